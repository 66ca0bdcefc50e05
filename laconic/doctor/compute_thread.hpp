// doctor/compute_thread.hpp — whether denormals are flushed on libtorch's pool as well.
//
// They are where flush_denormals() came first in main(). libtorch's kernels and
// OpenBLAS (OpenMP build) share one pool for each thread that calls them, so
// the answer is for the calling thread and its pool.
#pragma once

namespace laconic {

bool compute_threads_are_prepared();  // all of them flush denormals

}  // namespace laconic
