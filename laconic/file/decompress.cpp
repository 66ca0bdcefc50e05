#include "laconic/file/decompress.hpp"

#include <fmt/format.h>
#include <lzma.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <span>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

constexpr std::size_t kDecompressBytes = 1 << 18;

// What a library says about bytes that it cannot decompress; becomes a FileError with name and
// offset.
struct Damage {
  std::string what;
};

std::uint8_t* raw(const std::byte* at) {
  // The three libraries read through pointers to what is not const.
  return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(at));
}

// Each decompressor has two functions. step() takes from the front of `in`, fills the front of
// `out` and returns how much of it. is_complete() says whether the input may end here.

class GzipDecompressor {
 public:
  GzipDecompressor() {
    constexpr int kGzipOnly = 16, kWindowBits = 15;
    if (::inflateInit2(&stream_, kWindowBits + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~GzipDecompressor() { ::inflateEnd(&stream_); }
  GzipDecompressor(const GzipDecompressor&) = delete;
  GzipDecompressor& operator=(const GzipDecompressor&) = delete;

  std::size_t step(ByteView& in, std::span<std::byte> out) {
    if (is_complete_ && in.empty()) return 0;
    if (is_complete_) ::inflateReset(&stream_);  // the next member
    stream_.next_in = raw(in.data());
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = raw(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    in = in.last(stream_.avail_in);
    is_complete_ = result == Z_STREAM_END;
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      throw Damage{stream_.msg != nullptr ? stream_.msg : fmt::format("zlib error {}", result)};
    return out.size() - stream_.avail_out;
  }
  bool is_complete() const { return is_complete_; }

 private:
  z_stream stream_{};
  bool is_complete_ = false;
};

class ZstdDecompressor {
 public:
  ZstdDecompressor() : context_(::ZSTD_createDCtx(), ::ZSTD_freeDCtx) {
    if (!context_) throw std::bad_alloc();
    constexpr int kLongestWindow = 31;  // what `zstd --long=31` makes; the library refuses above 27
    ::ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kLongestWindow);
  }

  std::size_t step(ByteView& in, std::span<std::byte> out) {
    ZSTD_inBuffer input{in.data(), in.size(), 0};
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    const std::size_t result = ::ZSTD_decompressStream(context_.get(), &output, &input);
    in = in.subspan(input.pos);
    if (::ZSTD_isError(result) != 0) throw Damage{::ZSTD_getErrorName(result)};
    if (input.pos > 0 || output.pos > 0) is_complete_ = result == 0;
    return output.pos;
  }
  bool is_complete() const { return is_complete_; }

 private:
  std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context_;
  bool is_complete_ = false;
};

const char* reason_of(lzma_ret result) {
  switch (result) {
    case LZMA_FORMAT_ERROR: return "this is no xz stream";
    case LZMA_OPTIONS_ERROR: return "options that this liblzma does not know";
    case LZMA_DATA_ERROR: return "the data is corrupt";
    default: return "liblzma cannot decompress it";
  }
}

class XzDecompressor {
 public:
  XzDecompressor() {
    if (::lzma_stream_decoder(&stream_, UINT64_MAX, LZMA_CONCATENATED) != LZMA_OK)
      throw std::bad_alloc();
  }
  ~XzDecompressor() { ::lzma_end(&stream_); }
  XzDecompressor(const XzDecompressor&) = delete;
  XzDecompressor& operator=(const XzDecompressor&) = delete;

  // An empty `in` means the end of the input: with streams one after the other, only then the last
  // can be known.
  std::size_t step(ByteView& in, std::span<std::byte> out) {
    if (is_complete_) return 0;
    stream_.next_in = raw(in.data());
    stream_.avail_in = in.size();
    stream_.next_out = raw(out.data());
    stream_.avail_out = out.size();
    const lzma_ret result = ::lzma_code(&stream_, in.empty() ? LZMA_FINISH : LZMA_RUN);
    in = in.last(stream_.avail_in);
    is_complete_ = result == LZMA_STREAM_END;
    if (result != LZMA_OK && result != LZMA_STREAM_END && result != LZMA_BUF_ERROR)
      throw Damage{reason_of(result)};
    return out.size() - stream_.avail_out;
  }
  bool is_complete() const { return is_complete_; }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool is_complete_ = false;
};

// An open file, read buffer by buffer.
class Input {
 public:
  Input(int descriptor, std::string name)
      : descriptor_(descriptor), name_(std::move(name)), buffer_(kDecompressBytes) {}

  // Bytes that were read and not used yet; at least `wanted` of them unless the input ends before.
  ByteView peek(std::size_t wanted) {
    if (left_.size() < wanted) {
      std::copy(left_.begin(), left_.end(), buffer_.begin());
      left_ = ByteView(buffer_).first(left_.size());
    }
    while (left_.size() < wanted) {
      const std::size_t used = left_.size();
      const ssize_t n = ::read(descriptor_, buffer_.data() + used, buffer_.size() - used);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw SystemError(name_, "read", errno);
      if (n == 0) break;
      bytes_read_ += static_cast<std::uint64_t>(n);
      left_ = ByteView(buffer_).first(used + static_cast<std::size_t>(n));
    }
    return left_;
  }
  void keep(ByteView left) { left_ = left; }
  std::uint64_t offset() const { return bytes_read_ - left_.size(); }
  const std::string& name() const { return name_; }

 private:
  int descriptor_;
  std::string name_;
  Bytes buffer_;
  ByteView left_;
  std::uint64_t bytes_read_ = 0;
};

[[noreturn]] void complain(const Input& input, Compression compression, const std::string& what) {
  throw FileError(input.name(), fmt::format("byte {}", input.offset()),
                  fmt::format("{} data {}", to_text(compression), what),
                  "fetch or compress it again");
}

// Decompresses all of the input.
template <class Decompress>
void decompress_all(Decompress& decompressor, Input& input, Compression compression,
                    const std::function<void(ByteView)>& write) {
  Bytes out(kDecompressBytes);
  while (true) {
    ByteView in = input.peek(1);
    const bool is_end = in.empty();
    if (!is_end && decompressor.is_complete()) {
      // Another member may follow, and nothing else.
      in = input.peek(kMagicBytes);
      if (compression_of(in) != compression)
        complain(input, compression, "ends here, but the file goes on");
    }
    std::size_t made = 0;
    const std::size_t before = in.size();
    try {
      made = decompressor.step(in, out);
    } catch (const Damage& damage) {
      input.keep(in);
      complain(input, compression, "is damaged: " + damage.what);
    }
    input.keep(in);
    write(ByteView(out).first(made));
    if (made > 0 || in.size() < before) continue;
    if (!is_end) complain(input, compression, "is damaged: no way to go on");
    if (!decompressor.is_complete())
      complain(input, compression, "is truncated: the file ends too early");
    return;
  }
}

void copy_all(Input& input, const std::function<void(ByteView)>& write) {
  for (ByteView in = input.peek(1); !in.empty(); in = input.peek(1)) {
    write(in);
    input.keep({});
  }
}

bool starts_with(ByteView bytes, std::initializer_list<int> magic) {
  return bytes.size() >= magic.size() &&
         std::equal(magic.begin(), magic.end(), bytes.begin(),
                    [](int m, std::byte b) { return m == std::to_integer<int>(b); });
}

}  // namespace

std::string_view to_text(Compression compression) {
  constexpr std::string_view kNames[] = {"none", "gzip", "zstd", "xz"};
  return kNames[static_cast<std::size_t>(compression)];
}

Compression compression_of(ByteView start) {
  if (starts_with(start, {0x1f, 0x8b, 0x08})) return Compression::gzip;
  if (starts_with(start, {0x28, 0xb5, 0x2f, 0xfd})) return Compression::zstd;
  for (int n = 0x50; n <= 0x5f; ++n)  // frames that say something about others, as pzstd makes
    if (starts_with(start, {n, 0x2a, 0x4d, 0x18})) return Compression::zstd;
  if (starts_with(start, {0xfd, '7', 'z', 'X', 'Z', 0x00})) return Compression::xz;
  return Compression::none;
}

void decompress(int descriptor, const std::string& name,
                const std::function<void(ByteView)>& write) {
  Input input(descriptor, name);
  const Compression compression = compression_of(input.peek(kMagicBytes));
  switch (compression) {
    case Compression::none: return copy_all(input, write);
    case Compression::gzip: {
      GzipDecompressor decompressor;
      return decompress_all(decompressor, input, compression, write);
    }
    case Compression::zstd: {
      ZstdDecompressor decompressor;
      return decompress_all(decompressor, input, compression, write);
    }
    case Compression::xz: {
      XzDecompressor decompressor;
      return decompress_all(decompressor, input, compression, write);
    }
  }
}

}  // namespace laconic
