// store/delta_checkpoint.hpp — the committed records of a delta store as a safetensors file.
//
//   keys    I64 [n]                 sorted; the bit pattern of the unsigned key
//   visits  I32 [n]                 likewise
//   records U8  [n, record_bytes]
//
// Records pass one by one, so neither direction needs them all in RAM, and a
// file may be loaded into a store of another kind than it was saved from. Equal
// content gives equal bytes. Both ends of a link must save after the same step;
// nothing here can tell if they did.
//
// Thread safety: that of the store, whose thread must call.
#pragma once

#include <string>

#include "laconic/store/delta_store.hpp"

namespace laconic {

// What the current step has staged is not saved, and stays staged. Throws SystemError, and `path`
// is then as it was.
void save_records(DeltaStore& store, const std::string& path);

// Replaces what the store holds, staged values included. Throws FileError, with the store as it
// was, when the file is not of this kind, has records of another size, a key twice or without a
// visit, or more records than the budget admits. Throws SystemError when the disk is full, with
// part of the records in the store.
void load_records(DeltaStore& store, const std::string& path);

}  // namespace laconic
