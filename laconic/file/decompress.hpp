// file/decompress.hpp — gzip, Zstandard and xz back to what was compressed.
//
// How an input is compressed shows in its first bytes; names do not count. Members, frames or
// streams may follow one another, as `cat a.gz b.gz` makes them. Bytes go through buffers of
// fixed size, so inputs may be pipes and of any length.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "laconic/base/bytes.hpp"

namespace laconic {

enum class Compression { none, gzip, zstd, xz };
std::string_view to_text(Compression compression);  // "none", "gzip", "zstd", "xz"

// Bytes that compression_of() wants to see, where there are as many.
inline constexpr std::size_t kMagicBytes = 6;
Compression compression_of(ByteView start);

// Reads `descriptor` to its end and hands what it holds to `write`, decompressed, or as it is when
// it is not compressed. Throws FileError with `name` and the offset in the compressed input when
// that is damaged, truncated or followed by something else; SystemError when it cannot be read.
// `write` has had what came before.
void decompress(int descriptor, const std::string& name,
                const std::function<void(ByteView)>& write);

}  // namespace laconic
