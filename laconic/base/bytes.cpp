#include "laconic/base/bytes.hpp"

template class std::vector<std::byte, laconic::UninitialisedAllocator<std::byte>>;
template class std::vector<float, laconic::UninitialisedAllocator<float>>;
