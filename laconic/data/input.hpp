// data/input.hpp — the inputs of prepare, read as often as needed.
//
// A plain file is mapped where it lies. A compressed one (file/decompress.hpp), a pipe and standard
// input,
// "-", are decompressed once into a temporary file without a name, which goes with this object or
// its process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "laconic/data/source.hpp"
#include "laconic/file/mapped_file.hpp"

namespace laconic {

inline constexpr const char* kStandardInput = "-";

class Inputs {
 public:
  // Decompresses what is compressed. The temporary file lies in `folder`, or in the nearest folder
  // above that exists. Throws FileError for damaged input, SystemError when it cannot be read or
  // stored.
  Inputs(const std::vector<std::string>& sources, const SourceOptions& options,
         const std::string& folder);

  std::size_t size() const { return parts_.size(); }
  const std::string& name(std::size_t i) const { return parts_[i].path; }  // "-": standard input

  // All documents, in order. Throws as for_each_document does.
  void for_each(const std::function<void(const Document&)>& visit) const;

 private:
  struct Part {
    std::string path;
    bool is_stored = false;
    std::size_t begin = 0, end = 0;  // in the temporary file, when stored
  };
  SourceText text_of(const Part& part) const;

  std::vector<Part> parts_;
  SourceOptions options_;
  std::shared_ptr<const MappedFile> stored_;
};

}  // namespace laconic
