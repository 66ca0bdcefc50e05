// file/safetensors_writer.hpp — writing safetensors, the pair of file/safetensors.hpp.
//
// The header comes first in the file, so all names, types and shapes must be
// known when the writer is made; the bytes then follow tensor by tensor, in
// that order. Nothing is visible before commit(). Equal input gives equal bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/checksum.hpp"
#include "laconic/file/safetensors.hpp"

namespace laconic {

struct SafetensorsSpec {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
};

// Length and JSON, padded with spaces to a multiple of 8 so that the data is aligned.
// Requires: names are UTF-8, distinct, and none is "__metadata__"; no size is negative.
std::string safetensors_header(const std::vector<SafetensorsSpec>& specs,
                               const SafetensorsMetadata& metadata);

class SafetensorsWriter {
 public:
  // Throws SystemError, here and below.
  SafetensorsWriter(const std::string& path, std::vector<SafetensorsSpec> specs,
                    const SafetensorsMetadata& metadata = {});

  // Requires: bytes of the next tensor, as many as its type and shape say.
  void write(ByteView bytes);
  // The same in pieces, for a tensor that is not in memory as a whole; an empty tensor takes one
  // empty piece. Requires: no piece reaches into the following tensor.
  void write_piece(ByteView bytes);
  // Requires: every tensor was written.
  void commit();
  std::string checksum() const { return checksum_.hex(); }  // of the whole file, once committed
  std::uint64_t size() const { return file_.size(); }       // written so far

 private:
  std::vector<SafetensorsSpec> specs_;
  std::size_t next_ = 0;       // the tensor that is being written
  std::uint64_t written_ = 0;  // bytes of it
  AtomicFile file_;
  Checksum checksum_;
};

}  // namespace laconic
