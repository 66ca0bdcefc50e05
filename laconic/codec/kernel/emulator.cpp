#include "laconic/codec/kernel/device_kernel.hpp"
//
#include <algorithm>
#include <csetjmp>
#include <iterator>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <vector>

#include <ucontext.h>

#include "laconic/base/denormals.hpp"
#include "laconic/codec/kernel/emulator.hpp"

namespace laconic::kernel {

EmulatedIndex threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

Start start = [](Stream, std::function<void()> kernel) { kernel(); };

namespace {

constexpr std::size_t kStack = 96 << 10;

// Threads that wait here go on when all that live have come.
struct Barrier {
  unsigned waiting = 0, live = 0;
  std::uint64_t generation = 0;

  void release_if_all() {
    if (waiting == 0 || waiting < live) return;
    waiting = 0;
    ++generation;
  }
  void leave() {
    --live;
    release_if_all();
  }
};

struct Warp {
  Barrier barrier;
  std::uint64_t values[2][32] = {};
};

struct Block {
  Barrier barrier;
  std::vector<Warp> warps;
  std::vector<double> shared;  // aligned
};

// Runs one thread after the other, in launch after launch: to make one costs more than most
// threads.
struct Fiber {
  ucontext_t context;
  jmp_buf at;
  std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(kStack);
  unsigned block = 0, thread = 0, turns = 0;
  bool is_made = false, is_done = false;
  const Barrier* waits_at = nullptr;  // until its generation is another
  std::uint64_t generation = 0;

  bool can_go_on() const { return waits_at == nullptr || waits_at->generation != generation; }
};

struct Grid {
  std::vector<Block> blocks;
  Barrier barrier;
  const std::function<void()>* thread = nullptr;
};

std::vector<std::unique_ptr<Fiber>> fibers;  // kept for the next launch
Grid grid;
Fiber* current = nullptr;
ucontext_t scheduler;
jmp_buf scheduler_at;

void yield() {
  if (_setjmp(current->at) == 0) _longjmp(scheduler_at, 1);
}

void wait_at(Barrier& barrier) {
  current->generation = barrier.generation;
  current->waits_at = &barrier;
  ++barrier.waiting;
  barrier.release_if_all();
  while (!current->can_go_on()) yield();
  current->waits_at = nullptr;
}

void body() {
  for (;;) {
    (*grid.thread)();
    Block& block = grid.blocks[current->block];
    current->is_done = true;
    block.warps[current->thread / 32].barrier.leave();
    block.barrier.leave();
    grid.barrier.leave();
    yield();  // to go on with the next thread
  }
}

void resume(Fiber& fiber) {
  current = &fiber;
  threadIdx.x = fiber.thread;
  blockIdx.x = fiber.block;
  if (_setjmp(scheduler_at) != 0) return;
  if (fiber.is_made) _longjmp(fiber.at, 1);
  fiber.is_made = true;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStack;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, body, 0);
  swapcontext(&scheduler, &fiber.context);
}

// The next of several ways to go through so many: back, in leaps, from the start.
std::size_t next_stride(std::size_t count) {
  constexpr std::size_t kLeaps[] = {0, 97, 1, 1009, 0, 37};  // 0: back
  static std::size_t turn = 0;
  const std::size_t leap = kLeaps[turn++ % std::size(kLeaps)];
  std::size_t stride = leap == 0 ? count - 1 : leap % count;
  while (stride == 0 || std::gcd(stride, count) != 1) ++stride;
  return stride;
}

// Blocks [first, last) at once.
void run_blocks(unsigned first, unsigned last, unsigned threads, std::size_t shared_bytes) {
  grid.blocks.clear();
  grid.blocks.resize(last);
  grid.barrier = {.live = (last - first) * threads};
  const std::size_t count = (last - first) * threads;
  while (fibers.size() < count) fibers.push_back(std::make_unique<Fiber>());
  for (std::size_t i = 0; i < count; ++i) {
    Fiber& fiber = *fibers[i];
    fiber.block = first + static_cast<unsigned>(i / threads);
    fiber.thread = static_cast<unsigned>(i % threads);
    fiber.turns = 0;
    fiber.is_done = false;
    fiber.waits_at = nullptr;
  }
  for (unsigned b = first; b < last; ++b) {
    Block& block = grid.blocks[b];
    block.barrier.live = threads;
    block.warps.resize((threads + 31) / 32);
    for (unsigned w = 0; w < block.warps.size(); ++w)
      block.warps[w].barrier.live = std::min(32u, threads - 32 * w);
    block.shared.assign(shared_bytes / sizeof(double) + 1, -7e77);  // nobody clears it
  }
  for (bool is_any = true; is_any;) {
    is_any = false;
    const std::size_t stride = next_stride(count);
    std::size_t i = stride % count;
    for (std::size_t left = count; left > 0; --left, i = (i + stride) % count)
      if (!fibers[i]->is_done) {
        if (fibers[i]->can_go_on()) resume(*fibers[i]);
        is_any = true;
      }
  }
}

}  // namespace

void run(unsigned blocks, unsigned threads, std::size_t shared_bytes, bool together,
         const std::function<void()>& thread) {
  static std::mutex mutex;  // one kernel at a time, whoever starts it
  const std::lock_guard lock(mutex);
  const ScopedDenormals flush(true);
  grid.thread = &thread;
  blockDim.x = threads;
  gridDim.x = blocks;
  if (together) return run_blocks(0, blocks, threads, shared_bytes);
  static bool is_turned = false;
  is_turned = !is_turned;
  for (unsigned i = 0; i < blocks; ++i) {
    const unsigned b = is_turned ? blocks - 1 - i : i;
    run_blocks(b, b + 1, threads, shared_bytes);
  }
}

void* shared() {
  return grid.blocks[current->block].shared.data();
}

void sync_block() {
  wait_at(grid.blocks[current->block].barrier);
}

void sync_grid() {
  wait_at(grid.barrier);
}

const std::uint64_t* exchange(std::uint64_t value) {
  Warp& warp = grid.blocks[current->block].warps[current->thread / 32];
  const unsigned turn = current->turns++ % 2;  // the other half may still be read
  warp.values[turn][current->thread % 32] = value;
  wait_at(warp.barrier);
  return warp.values[turn];
}

}  // namespace emulator

}  // namespace laconic::kernel
