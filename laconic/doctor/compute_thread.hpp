// doctor/compute_thread.hpp — denormals flushed on libtorch's pool as well.
//
// Where flush_denormals() came first in main(), these change nothing; they are
// for programs that could not do that, and for the doctor who verifies it.
// libtorch's kernels and OpenBLAS (OpenMP build) share one pool for each
// thread that calls them, so this must be called on every such thread.
#pragma once

namespace laconic {

void prepare_compute_threads();       // the caller and its pool
bool compute_threads_are_prepared();  // all of them flush denormals

}  // namespace laconic
