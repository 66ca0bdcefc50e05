// file/test_compress.hpp — for tests only: compressed bytes, by the libraries themselves.
#pragma once

#include <gtest/gtest.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <string>

namespace laconic {

inline std::string compress_gzip(const std::string& text) {
  z_stream stream{};
  ::deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(::deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  return out;
}

inline std::string compress_zstd(const std::string& text) {
  ZSTD_CCtx* context = ::ZSTD_createCCtx();
  ::ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(::ZSTD_compressBound(text.size()), '\0');
  out.resize(::ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ::ZSTD_freeCCtx(context);
  return out;
}

inline std::string compress_xz(const std::string& text) {
  std::string out(::lzma_stream_buffer_bound(text.size()), '\0');
  std::size_t size = 0;
  EXPECT_EQ(::lzma_easy_buffer_encode(
                6, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const std::uint8_t*>(text.data()),
                text.size(), reinterpret_cast<std::uint8_t*>(out.data()), &size, out.size()),
            LZMA_OK);
  out.resize(size);
  return out;
}

}  // namespace laconic
