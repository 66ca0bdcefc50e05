// codec/reference/reference.hpp — every codec once more, as plainly as docs/wire-format.md says it.
//
// Scalar, slow, written from that page and not from the kernels; for tests and
// fuzzing only. The kernels must give the same bytes and the same floats.
// Callers flush denormals (base/denormals.hpp), as codec.cpp does.
#pragma once

#include <vector>

#include "laconic/codec/codec.hpp"

namespace laconic::reference {

using Floats = std::vector<float>;

Bytes encode(const Half&, const TensorSpec&, const Floats&, const CodecInput&);
Bytes encode(const Quantise&, const TensorSpec&, const Floats&, const CodecInput&);
Bytes encode(const Sign&, const TensorSpec&, const Floats&, const CodecInput&);
Bytes encode(const TopK&, const TensorSpec&, const Floats&, const CodecInput&);
Bytes encode(const RandomK&, const TensorSpec&, const Floats&, const CodecInput&);
Bytes encode(const Huffman&, const TensorSpec&, const Floats&, const CodecInput&);

Floats decode(const Half&, const TensorSpec&, ByteView, const CodecInput&);
Floats decode(const Quantise&, const TensorSpec&, ByteView, const CodecInput&);
Floats decode(const Sign&, const TensorSpec&, ByteView, const CodecInput&);
Floats decode(const TopK&, const TensorSpec&, ByteView, const CodecInput&);
Floats decode(const RandomK&, const TensorSpec&, ByteView, const CodecInput&);
Floats decode(const LowRank&, const TensorSpec&, ByteView, const CodecInput&);
Floats decode(const AutoEncoder&, const TensorSpec&, ByteView, const CodecInput&);
Floats decode(const Huffman&, const TensorSpec&, ByteView, const CodecInput&);

}  // namespace laconic::reference
