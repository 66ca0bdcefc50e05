#include "laconic/data/input.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "laconic/base/error.hpp"
#include "laconic/file/decompress.hpp"
#include "laconic/file/descriptor.hpp"

namespace laconic {

namespace fs = std::filesystem;

namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ > STDERR_FILENO) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return number_; }

 private:
  int number_;
};

int open_input(const std::string& path) {
  if (path == kStandardInput) return STDIN_FILENO;
  const int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (number < 0) throw SystemError(path, "open", errno);
  return number;
}

std::string name_of(const std::string& path) {
  return path == kStandardInput ? "standard input" : path;
}

// Whether the first bytes are those of a compressed file. A name that promises one must keep it.
bool is_compressed(const std::string& path) {
  const Descriptor file(open_input(path));
  std::array<std::byte, kMagicBytes> start;
  const ssize_t n = ::pread(file, start.data(), start.size(), 0);
  if (n < 0) throw SystemError(path, "read", errno);
  const bool is_compressed =
      compression_of(ByteView(start).first(static_cast<std::size_t>(n))) != Compression::none;
  if (!is_compressed && has_compressed_name(path))
    throw FileError(path, "byte 0", "begins neither as gzip nor as zstd nor as xz data",
                    "fetch or compress it again, or rename it if it is plain text");
  return is_compressed;
}

// A file that has no name, so that nothing stays when the process is killed.
int open_unnamed(fs::path folder) {
  if (folder.empty()) folder = ".";
  while (!fs::is_directory(folder) && folder.has_relative_path())
    folder = folder.has_parent_path() ? folder.parent_path() : ".";
  const int number = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (number >= 0) return number;
  std::string name = folder / "laconic-input-XXXXXX";  // not every file system can do that
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named < 0) throw SystemError(folder, "make a temporary file in", errno);
  ::unlink(name.c_str());
  return named;
}

}  // namespace

Inputs::Inputs(const std::vector<std::string>& sources, const SourceOptions& options,
               const std::string& folder)
    : options_(options) {
  for (const std::string& path : sources)
    parts_.push_back({path, path == kStandardInput || fs::is_fifo(path) || is_compressed(path)});
  std::unique_ptr<Descriptor> store;
  std::size_t size = 0;
  for (Part& part : parts_) {
    if (!part.is_stored) continue;
    if (!store) store = std::make_unique<Descriptor>(open_unnamed(folder));
    const Descriptor input(open_input(part.path));
    part.begin = size;
    decompress(input, name_of(part.path), [&](ByteView bytes) {
      write_all(*store, bytes, fmt::format("temporary file in {}", folder.empty() ? "." : folder));
      size += bytes.size();
    });
    part.end = size;
  }
  if (store) stored_ = std::make_shared<const MappedFile>("decompressed inputs", *store);
}

SourceText Inputs::text_of(const Part& part) const {
  SourceText source{.name = name_of(part.path),
                    .text = {},
                    .owner = stored_,
                    .is_json_lines = is_json_lines(part.path, options_),
                    .record_format = record_format(part.path, options_)};
  if (part.is_stored) {
    source.text = stored_->text().substr(part.begin, part.end - part.begin);
  } else {
    const auto file = std::make_shared<const MappedFile>(part.path);
    source.text = file->text();
    source.owner = file;
  }
  return source;
}

void Inputs::for_each(const std::function<void(const Document&)>& visit) const {
  if (options_.is_side_by_side) {
    for (std::size_t i = 0; i + 1 < parts_.size(); i += 2)
      for_each_line_pair(text_of(parts_[i]), text_of(parts_[i + 1]), visit);
    return;
  }
  for (const Part& part : parts_) for_each_document(text_of(part), options_, visit);
}

}  // namespace laconic
