// A folder is read by ranges: no rank of a tensor grid has room for a whole large tensor, neither
// among tensors nor elsewhere.
#include <ATen/ops/arange.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "laconic/base/test_effort.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/model/hugging_face.hpp"
#include "laconic/tensor/test_alive.hpp"

namespace {

// The largest that this thread has asked for besides tensors.
thread_local std::size_t largest_new = 0;

void* note_new(std::size_t bytes) {
  largest_new = std::max(largest_new, bytes);
  void* memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Of the whole program: the standard's own, and a look at the size. Never inlined: compilers warn
// where they see one half of a pair.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return note_new(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
  return note_new(bytes);
}
// The address sanitizer has one of its own, whose memory may not come here.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  largest_new = std::max(largest_new, bytes);
  return std::malloc(std::max<std::size_t>(bytes, 1));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace laconic {
namespace {

constexpr std::int64_t kReadWords = 20'000, kReadWidth = 256;  // tables of 20 MB
const at::TensorOptions kReadFloats = at::TensorOptions().dtype(at::kFloat);

// Every element is its number.
at::Tensor whole_of(const ParameterSpec& p) {
  return at::arange(elements_of(p), at::kFloat).view(p.sizes);
}

// What one rank needs to read its parts, in bytes, beside what it then has.
struct Needed {
  std::size_t part = 0;  // the largest that it has
  std::size_t tensors = 0, others = 0;
};

Needed read_part(const std::string& folder, const Family& family, const GridPlace& place) {
  const AliveBytes alive;
  Weights weights = make_empty_weights(family, kReadFloats, {}, 4, place);
  Needed needed;
  for (const Parameter& p : weights.parameters)
    needed.part = std::max(needed.part, p.value.nbytes());
  const std::size_t held = AliveBytes::now();
  AliveBytes::take_peak();
  largest_new = 0;
  read_weights(folder, weights);
  needed.others = largest_new;
  needed.tensors = AliveBytes::take_peak() - held;
  const at::NoGradGuard no_grad;
  for (const Parameter& p : weights.parameters) {
    const ParameterSpec& spec = weights.spec.parameters[p.number];
    EXPECT_TRUE(p.value.equal(shard_from(whole_of(spec), place, spec))) << p.name;
  }
  return needed;
}

TEST(TensorRead, AFolderIsReadByRanges) {
  const std::vector<Family> families = {
      GptShape{
          .layers = 1, .width = kReadWidth, .heads = 4, .context = 8, .vocabulary = kReadWords},
      LlamaShape{.layers = 1,
                 .width = kReadWidth,
                 .heads = 4,
                 .key_heads = 4,
                 .head_width = 64,
                 .hidden = kReadWidth,
                 .context = 8,
                 .vocabulary = kReadWords}};
  const std::vector<GridPlan> plans = {
      {TensorMethod::three_d, {.tp = {1, 2, 2}}, TableCut::split},
      {TensorMethod::three_d, {.tp = {2, 1, 2}}, TableCut::gathered},
      {TensorMethod::two_d, {.tp = {2, 2, 1}}, TableCut::gathered},
      {TensorMethod::one_d, {.tp = {1, 4, 1}}, TableCut::split}};
  for (const Family& family : families) {
    const TemporaryFolder folder;
    const ModelSpec spec = model_spec(family, 4);
    write_model(folder.path(), family,
                [&](std::size_t p, const TakePiece& take) { take(whole_of(spec.parameters[p])); },
                {});
    for (const GridPlan& plan : some_of(plans, 2))
      for (const Rank rank : {0, 3}) {
        SCOPED_TRACE(fmt::format("{} rank {}", name_of(plan.method), rank));
        const Needed needed = read_part(folder.path(), family, {plan, coord_of(plan.mesh, rank)});
        EXPECT_EQ(needed.part, std::size_t{kReadWords * kReadWidth});  // a fourth of 4 bytes each
        EXPECT_LE(needed.others, needed.part);
        EXPECT_LE(needed.tensors, needed.part + needed.part / 8);
      }
  }
}

}  // namespace
}  // namespace laconic
