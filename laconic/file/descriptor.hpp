// file/descriptor.hpp — write(2) until everything is written, or nobody reads it.
#pragma once

#include <string>

#include "laconic/base/bytes.hpp"

namespace laconic {

// Throws SystemError naming `path`; part of the bytes may have been written then.
void write_all(int descriptor, ByteView bytes, const std::string& path);

// Whether it is a pipe or a socket that nobody reads any more. A terminal that was closed is none:
// a run that was left alone there goes on.
bool has_lost_reader(int descriptor);

}  // namespace laconic
