// Codecs on a GPU: how long each pass over a tensor takes. Prints one line for each. Then
// power_sgd: the phases of one exchange of GPT-2's gradient, without a network.
//
//     codec_gpu_bench [elements]
//
// GB/s and shares count the bytes that a pass must move, each once, even where it has to read some
// of them again, as for the scales of channels. `share` is their rate by that of a copy of all
// elements as f32 in the same run. `alike` is the time of a copy that reads and writes as many
// bytes, half of them each, by the time of the pass: to start and to end takes as long for few
// bytes as for many, and here both sides have it. That copy goes on to another part of the tensor
// each time, if it has several, so that it finds nothing in the cache. `copies` is the time of the
// pass in copies of all elements.
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "laconic/base/clock.hpp"
#include "laconic/codec/device_codec.hpp"
#include "laconic/reduce/device_low_rank.hpp"

namespace laconic {
namespace {

constexpr int kWarmUp = 3, kRounds = 5, kEach = 8;

void require(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(fmt::format("{}: {}", what, cudaGetErrorString(error)));
}

// The median over rounds, in seconds.
double seconds_of(const std::function<void()>& act) {
  cudaEvent_t begin, end;
  require(cudaEventCreate(&begin), "event");
  require(cudaEventCreate(&end), "event");
  for (int i = 0; i < kWarmUp; ++i) act();
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    require(cudaEventRecord(begin), "event");
    for (int i = 0; i < kEach; ++i) act();
    require(cudaEventRecord(end), "event");
    require(cudaEventSynchronize(end), "kernels");
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, begin, end), "event");
    rounds.push_back(milliseconds / 1e3 / kEach);
  }
  std::ranges::nth_element(rounds, rounds.begin() + kRounds / 2);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return rounds[kRounds / 2];
}

class Bench {
 public:
  explicit Bench(std::int64_t elements)
      : elements_(elements),
        x_(at::randn({elements}, on_device(at::kFloat))),
        before_(at::randn({elements}, on_device(at::kFloat))),
        after_(at::empty({elements}, on_device(at::kFloat))),
        out_(at::empty({elements}, on_device(at::kFloat))),
        half_(x_.to(at::kBFloat16)),
        flag_(at::empty({16}, on_device(at::kInt))) {
    flag_.zero_();
    const double seconds = seconds_of([&] {
      require(
          cudaMemcpyAsync(out_.data_ptr(), x_.data_ptr(), 4 * elements, cudaMemcpyDeviceToDevice),
          "copy");
    });
    copy_seconds_ = seconds;
    copy_rate_ = 8.0 * static_cast<double>(elements) / seconds;
    fmt::print("copy: {} elements of f32 in {:.1f} us, {:.0f} GB/s read and written\n", elements,
               seconds * 1e6, copy_rate_ / 1e9);
    fmt::print("{:<52} {:<11} {:>9} {:>8} {:>7} {:>7} {:>7}\n", "codec", "pass", "us", "GB/s",
               "share", "alike", "copies");
  }

  static at::TensorOptions on_device(at::ScalarType type) {
    return at::TensorOptions(type).device(at::kCUDA);
  }

  void run(const char* text, std::vector<std::int64_t> shape = {}, Dtype dtype = Dtype::f32) {
    const CodecSpec codec = parse_codec(text);
    if (shape.empty()) shape = {elements_};
    const TensorSpec spec{dtype, shape};
    const double count = static_cast<double>(elements_of(spec));
    const double in = count * static_cast<double>(bytes_of(dtype));
    const auto staged_size = staged_bytes(codec, spec);
    const double payload = static_cast<double>(staged_size);
    at::Tensor staged =
        at::empty({static_cast<std::int64_t>(staged_size) + 16}, on_device(at::kByte));
    at::Tensor scratch = at::empty(
        {static_cast<std::int64_t>(device_scratch_bytes(codec, spec)) + 16}, on_device(at::kByte));
    at::Tensor map = at::randn({64 * 8192}, on_device(at::kFloat));
    auto* to = reinterpret_cast<std::byte*>(staged.data_ptr());
    auto* room = reinterpret_cast<std::byte*>(scratch.data_ptr());
    const DeviceInput input{.seed = 7, .maps = {map.data_ptr<float>(), map.data_ptr<float>()}};
    DeviceSource source{dtype, dtype == Dtype::f32 ? x_.data_ptr() : half_.data_ptr()};
    const std::string name =
        dtype == Dtype::f32 ? text : fmt::format("{} of {}", text, name_of(dtype));
    tell(name, "encode", in + payload,
         [&] { device_encode(codec, spec, source, input, to, room, nullptr); });
    source.before = before_.data_ptr<float>();
    source.after = after_.data_ptr<float>();
    source.is_unsound = reinterpret_cast<std::uint32_t*>(flag_.data_ptr<int>());
    for (const auto memory : {kernel::Memory::feedback, kernel::Memory::difference}) {
      source.memory = memory;
      tell(name, memory == kernel::Memory::feedback ? "feedback" : "difference",
           in + payload + 8 * count,
           [&] { device_encode(codec, spec, source, input, to, room, nullptr); });
    }
    DeviceSink sink{.dtype = dtype, .out = out_.data_ptr()};
    const auto decode = [&] { device_decode(codec, spec, to, input, sink, room, nullptr); };
    tell(name, "decode", payload + in, decode);
    sink.kind = Delivery::add;
    tell(name, "add", payload + 2 * in, decode);
    sink = {Delivery::difference, dtype, nullptr, before_.data_ptr<float>(),
            after_.data_ptr<float>()};
    tell(name, "update", payload + 8 * count, decode);
  }

  // The products of low_rank, against libtorch's.
  void products(std::int64_t n, std::int64_t m, std::int64_t r) {
    const at::Tensor a = at::randn({n, m}, on_device(at::kFloat));
    const at::Tensor q = at::randn({m, r}, on_device(at::kFloat));
    const at::Tensor p = at::randn({n, r}, on_device(at::kFloat));
    at::Tensor y = at::empty({n, r}, on_device(at::kFloat)),
               z = at::empty({m, r}, on_device(at::kFloat));
    at::Tensor all = at::empty({n, m}, on_device(at::kFloat));
    const auto rows = static_cast<std::uint64_t>(n), columns = static_cast<std::uint64_t>(m),
               rank = static_cast<std::uint64_t>(r);
    at::Tensor scratch =
        at::empty({static_cast<std::int64_t>(
                      std::max(kernel::product_scratch_bytes(rows, columns, rank),
                               kernel::subspace_scratch_bytes(std::max(rows, columns), rank)))},
                  on_device(at::kByte));
    auto* room = reinterpret_cast<std::byte*>(scratch.data_ptr());
    const auto pair = [&](const char* what, const std::function<void()>& ours,
                          const std::function<void()>& theirs) {
      const double mine = seconds_of(ours), blas = seconds_of(theirs);
      fmt::print("{:<52} {:<11} {:>9.1f} us, libtorch {:.1f} us: {:.2f} of its rate\n",
                 fmt::format("{} x {}, r = {}", n, m, r), what, mine * 1e6, blas * 1e6,
                 blas / mine);
    };
    pair(
        "a q",
        [&] {
          kernel::device_multiply(a.data_ptr<float>(), rows, columns, q.data_ptr<float>(), rank,
                                  y.data_ptr<float>(), room, nullptr);
        },
        [&] { at::mm_out(y, a, q); });
    const at::Tensor at_ = a.t();
    pair(
        "a^T p",
        [&] {
          kernel::device_multiply_transposed(a.data_ptr<float>(), rows, columns,
                                             p.data_ptr<float>(), rank, z.data_ptr<float>(), room,
                                             nullptr);
        },
        [&] { at::mm_out(z, at_, p); });
    const at::Tensor qt = q.t();
    pair(
        "p q^T",
        [&] {
          kernel::device_multiply_factors(p.data_ptr<float>(), rows, q.data_ptr<float>(), columns,
                                          rank, {.out = all.data_ptr()}, nullptr);
        },
        [&] { at::mm_out(all, p, qt); });
    const double seconds = seconds_of(
        [&] { kernel::device_orthonormalise(y.data_ptr<float>(), rows, rank, room, nullptr); });
    fmt::print("{:<52} {:<11} {:>9.1f} us\n", fmt::format("{} x {}", n, r), "orthonormal",
               seconds * 1e6);
  }

  // Between device and pinned host memory.
  void crossings() {
    const at::Tensor host =
        at::empty({elements_}, at::TensorOptions(at::kFloat).pinned_memory(true));
    for (const bool is_down : {true, false}) {
      const double seconds = seconds_of([&] {
        require(cudaMemcpyAsync(is_down ? host.data_ptr() : out_.data_ptr(),
                                is_down ? x_.data_ptr() : host.data_ptr(), 4 * elements_,
                                is_down ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice),
                "copy");
      });
      fmt::print("{}: {:.1f} GB/s\n", is_down ? "device to pinned host" : "pinned host to device",
                 4.0 * static_cast<double>(elements_) / seconds / 1e9);
    }
  }

 private:
  void tell(const std::string& codec, const char* pass, double bytes,
            const std::function<void()>& act) {
    const double seconds = seconds_of(act);
    fmt::print("{:<52} {:<11} {:>9.1f} {:>8.0f} {:>6.0f}% {:>6.0f}% {:>7.2f}\n", codec, pass,
               seconds * 1e6, bytes / seconds / 1e9, 100 * bytes / seconds / copy_rate_,
               100 * copy_seconds_of(bytes) / seconds, seconds / copy_seconds_);
  }

  // Of a copy that reads and writes so many bytes together. What is asked for again was measured.
  double copy_seconds_of(double bytes) {
    constexpr std::int64_t kStep = 1 << 20;  // passes that differ by less have one copy
    const std::int64_t half = std::max<std::int64_t>(std::llround(bytes / 2 / kStep), 1) * kStep;
    const auto found = copies_.find(half);
    if (found != copies_.end()) return found->second;
    const std::int64_t all = 4 * elements_;
    const at::Tensor from = half <= all ? x_ : at::randn({half / 4}, on_device(at::kFloat)),
                     to = half <= all ? out_ : at::empty({half / 4}, on_device(at::kFloat));
    const std::int64_t parts = std::max<std::int64_t>(all / half, 1);
    std::int64_t part = 0;
    const double seconds = seconds_of([&] {
      part = (part + 1) % parts;
      require(cudaMemcpyAsync(static_cast<std::byte*>(to.data_ptr()) + part * half,
                              static_cast<const std::byte*>(from.data_ptr()) + part * half,
                              static_cast<std::size_t>(half), cudaMemcpyDeviceToDevice),
              "copy");
    });
    copies_.emplace(half, seconds);
    return seconds;
  }

  std::int64_t elements_;
  at::Tensor x_, before_, after_, out_, half_, flag_;
  double copy_seconds_ = 0, copy_rate_ = 0;
  std::unordered_map<std::int64_t, double> copies_;  // by the bytes that are read
};

// --- power_sgd

std::vector<NamedTensor> gpt2_tensors() {
  std::vector<NamedTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    tensors.push_back({name, {Dtype::f32, std::move(shape)}});
  };
  add("tokens", {50257, 768});
  add("positions", {1024, 768});
  for (int layer = 0; layer < 12; ++layer) {
    const struct {
      const char* name;
      std::int64_t in, out;
    } matrices[] = {
        {"attention", 768, 2304}, {"out", 768, 768}, {"wide", 768, 3072}, {"narrow", 3072, 768}};
    for (const auto& m : matrices) {
      add(fmt::format("{}.{}", layer, m.name), {m.in, m.out});
      add(fmt::format("{}.{}.bias", layer, m.name), {m.out});
    }
    for (const char* norm : {"a", "b", "c", "d"})
      add(fmt::format("{}.norm.{}", layer, norm), {768});
  }
  add("norm.gain", {768});
  add("norm.bias", {768});
  return tensors;
}

// Medians over rounds of an exchange and of its phases, each waited for, so that the host's part
// counts too.
void power_sgd(std::int64_t rank) {
  const std::vector<NamedTensor> tensors = gpt2_tensors();
  const SharedLowRankSpec spec{.rank = rank, .min_ratio = 1.5};
  const SharedLowRank::Counts counts = SharedLowRank(spec, tensors, 1).counts();
  DeviceLowRank low_rank(spec, tensors, 1);
  const auto floats = [](std::uint64_t count) {
    return at::randn({static_cast<std::int64_t>(count)}, Bench::on_device(at::kFloat));
  };
  std::uint64_t elements = 0;
  for (const NamedTensor& tensor : tensors) elements += elements_of(tensor.tensor);
  const at::Tensor gradient = floats(elements), raw = floats(counts.raw),
                   left = floats(counts.left), right = floats(counts.right);
  std::vector<float*> places;
  std::uint64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    places.push_back(gradient.data_ptr<float>() + offset);
    offset += elements_of(tensor.tensor);
  }
  require(cudaDeviceSynchronize(), "random numbers");
  const std::pair<const char*, std::function<void()>> phases[] = {
      {"begin", [&] { low_rank.begin(places, raw.data_ptr<float>(), left.data_ptr<float>()); }},
      {"project", [&] { low_rank.project(left.data_ptr<float>(), right.data_ptr<float>()); }},
      {"finish", [&] { low_rank.finish(raw.data_ptr<float>(), right.data_ptr<float>()); }}};
  std::vector<std::vector<double>> times(std::size(phases) + 1);
  for (int round = -kWarmUp; round < kRounds * kEach; ++round) {
    const Stopwatch whole;
    for (std::size_t p = 0; p < std::size(phases); ++p) {
      const Stopwatch clock;
      phases[p].second();
      DeviceEvent().wait();
      if (round >= 0) times[p].push_back(clock.seconds());
    }
    if (round >= 0) times.back().push_back(whole.seconds());
    low_rank.commit();
  }
  for (std::size_t p = 0; p < times.size(); ++p) {
    std::ranges::nth_element(times[p], times[p].begin() + kRounds * kEach / 2);
    fmt::print("{:<52} {:<11} {:>9.1f} us\n",
               fmt::format("power_sgd rank {} of GPT-2, {} elements", rank, elements),
               p < std::size(phases) ? phases[p].first : "exchange",
               times[p][kRounds * kEach / 2] * 1e6);
  }
}

void run_all(std::int64_t elements) {
  cudaDeviceProp device{};
  require(cudaGetDeviceProperties(&device, 0), "a GPU");
  fmt::print("{}, {} processors\n", device.name, device.multiProcessorCount);
  Bench bench(elements);
  bench.crossings();
  const std::int64_t rows = elements / 768 / 8 * 8;
  for (const char* text :
       {"raw", "half", "half:kind=f16", "quantise:bits=4", "quantise:bits=8", "quantise:bits=2",
        "quantise:bits=3", "quantise:bits=4,block=64", "quantise:bits=4,block=1024",
        "quantise:bits=4,block=4096", "quantise:bits=4,grid=ends,rounding=stochastic", "sign",
        "sign:block=4096", "quantise:bits=4,block=256,rotate=true",
        "quantise:bits=4,block=4096,rotate=true", "top_k:keep=0.01",
        "top_k:keep=0.01+quantise:bits=4", "random_k:keep=0.01", "random_k:keep=0.1"})
    bench.run(text);
  bench.run("quantise:bits=4", {}, Dtype::bf16);
  bench.run("half:kind=f16", {}, Dtype::bf16);
  for (const char* text :
       {"quantise:bits=4,group=row", "quantise:bits=4,group=channel", "auto_encoder:code=50"})
    bench.run(text, {rows, 768});
  bench.run("low_rank:rank=16", {4096, elements / 4096});
  bench.products(4096, 6144, 16);
  bench.products(768, 3072, 16);
  bench.products(50257, 768, 16);
  for (const std::int64_t rank : {4, 16, 32}) power_sgd(rank);
}

}  // namespace
}  // namespace laconic

int main(int count, char** words) {
  try {
    laconic::run_all(count > 1 ? std::stoll(words[1]) : std::int64_t{4096} * 6144);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
