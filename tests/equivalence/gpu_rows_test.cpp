// Tables whose rows travel, of ranks that compute on a GPU and are threads: they follow ranks on
// the CPU, all methods train one model, and a run goes on after a stop as if there had been none.
//
// With LACONIC_ROWS_ON_CPU=1 the same is asked where there is no GPU, of tables that are apart from
// blocks on the CPU: what does not hold there cannot hold on a GPU.
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "embedding_rows.hpp"
#include "laconic/tensor/test_gpu.hpp"

namespace laconic {
namespace {

// How far a run on a GPU may be from one on the CPU, in shares: losses, and parameters as vectors.
struct Nearness {
  double loss, weights;
};
constexpr Nearness kNear{1e-4, 1e-4};
// Adam gives elements whose gradient is next to nothing a step as large as any other.
constexpr Nearness kNearByAdam{1e-4, 1e-2};
constexpr Nearness kNearRounded{0.02, 0.1};

class GpuRows : public EmbeddingRows {
 protected:
  void SetUp() override {
    if (const std::string why = is_on_cpu() ? "" : no_gpu_here(); !why.empty()) GTEST_SKIP() << why;
    prepare_pairs();
  }

  static bool is_on_cpu() {
    const char* set = std::getenv("LACONIC_ROWS_ON_CPU");
    return set != nullptr && std::string_view(set) == "1";
  }

  // Tables of more rows than a step reads, and more than a product finds sums of.
  static std::vector<std::string> language_model() {
    return with(lstm(), {"model.hidden=32", "task.sampled=120"});
  }
  static std::vector<std::string> by(const std::string& method, const std::string& precision) {
    return {"embedding.rows.method=" + method, "run.precision=" + precision, "model.dropout=0",
            "evaluate.every=3", "train.steps=6"};
  }
  static std::vector<std::string> adam() {
    return {"embedding.rows.optimiser=lazy_adam", "optimiser.lr=1e-3", "optimiser.min_lr=1e-4"};
  }

  TrainSummary run_on_cpu(const std::string& name, std::int64_t dp,
                          const std::vector<std::string>& sets) {
    return run(config_on(name, dp, sets));
  }
  TrainSummary run_on_gpu(const std::string& name, std::int64_t dp,
                          const std::vector<std::string>& sets,
                          const std::string& resume = "none") {
    const std::vector<std::string> device =
        is_on_cpu() ? std::vector<std::string>() : std::vector<std::string>{"run.device=cuda"};
    return run_hooked(config_on(name, dp, with(sets, device)), {.tables_are_apart = is_on_cpu()},
                      resume);
  }

  std::vector<double> losses_of(const std::string& name) const {
    std::vector<double> values;
    std::istringstream lines(losses(name));
    for (std::string line; std::getline(lines, line);)
      values.push_back(std::stod(line.substr(line.find(':') + 1)));
    return values;
  }

  // |a - b| / |b| of all parameters together.
  double distance(const TrainSummary& a, const TrainSummary& b) {
    const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat);
    const Weights left = read_model(a.checkpoint, options),
                  right = read_model(b.checkpoint, options);
    const at::NoGradGuard no_grad;
    double apart = 0, all = 0;
    for (std::size_t p = 0; p < left.parameters.size(); ++p) {
      const double of_difference =
          left.parameters[p].value.sub(right.parameters[p].value).norm().item<double>();
      const double whole = right.parameters[p].value.norm().item<double>();
      apart += of_difference * of_difference;
      all += whole * whole;
    }
    return std::sqrt(apart / all);
  }

  // Returns the run on the GPU.
  TrainSummary expect_near_cpu(const std::string& name, std::int64_t dp,
                               const std::vector<std::string>& sets, const Nearness& nearness) {
    const TrainSummary cpu = run_on_cpu("cpu " + name, dp, sets);
    const TrainSummary gpu = run_on_gpu("gpu " + name, dp, sets);
    const std::vector<double> expected = losses_of("cpu " + name), got = losses_of("gpu " + name);
    EXPECT_GE(expected.size(), 6U);
    EXPECT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i)
      EXPECT_NEAR(got[i], expected[i], nearness.loss * expected[i]) << "loss " << i;
    EXPECT_NEAR(gpu.evaluation->loss, cpu.evaluation->loss, nearness.loss * cpu.evaluation->loss);
    EXPECT_LT(distance(gpu, cpu), nearness.weights);
    EXPECT_EQ(bytes_of_rows(gpu), bytes_of_rows(cpu));
    std::filesystem::remove_all(folder_ / ("cpu " + name));
    return gpu;
  }

  // And that all methods train one model on a GPU, too, bit for bit.
  void expect_every_method_near_cpu(const std::vector<std::string>& model) {
    for (const char* precision : {"float32", "bfloat16"}) {
      const bool is_rounded = precision == std::string_view("bfloat16");
      std::string first;
      for (const char* method : {"alltoall", "allgather", "server"}) {
        const std::string name = fmt::format("{} {}", precision, method);
        SCOPED_TRACE(name);
        const auto sets = with(sgd(), with(by(method, precision), {"embedding.rows.split=on"}));
        const TrainSummary gpu =
            expect_near_cpu(name, 2, with(model, sets), is_rounded ? kNearRounded : kNear);
        if (first.empty()) first = gpu.checkpoint;
        EXPECT_TRUE(model_bytes(gpu.checkpoint) == model_bytes(first)) << "not those of alltoall";
      }
    }
  }
};

// What does not hold of whole tables on a GPU has nothing to do with rows.
TEST_F(GpuRows, SumsOfWholeTablesFollowTheCpu) {
  for (const auto& [kind, model] : {std::pair{"lstm", language_model()}, {"pairs", pairs()}}) {
    SCOPED_TRACE(kind);
    expect_near_cpu(kind, 2, with(model, with(sgd(), by("allreduce", "float32"))), kNear);
  }
}

TEST_F(GpuRows, LanguageModelsFollowTheCpuByEveryMethod) {
  expect_every_method_near_cpu(language_model());
}

TEST_F(GpuRows, TransformersFollowTheCpuByEveryMethod) {
  expect_every_method_near_cpu(pairs());
}

TEST_F(GpuRows, LlamasFollowTheCpuByEveryMethod) {
  expect_every_method_near_cpu({});
}

TEST_F(GpuRows, FollowTheCpuByAdam) {
  for (const auto& [kind, model] : {std::pair{"lstm", language_model()}, {"pairs", pairs()}})
    for (const char* precision : {"float32", "bfloat16"}) {
      const std::string name = fmt::format("{} {} adam", kind, precision);
      SCOPED_TRACE(name);
      expect_near_cpu(
          name, 2, with(model, with(adam(), with(by("alltoall", precision), {"train.clip=0.3"}))),
          precision == std::string_view("bfloat16") ? kNearRounded : kNearByAdam);
    }
}

// Rows that leave early; stages, of which one may hold nothing but a table; one rank alone, whose
// steps are never repeated as a graph; three, whose columns are uneven; steps that are computed
// twice; float64, which goes by libtorch's own kernels; 8 bits.
TEST_F(GpuRows, FollowTheCpuOnAnyMesh) {
  const struct {
    const char* name;
    std::int64_t dp;
    std::vector<std::string> sets;
    Nearness nearness = kNear;
  } cases[] = {
      {"early", 2, {"embedding.rows.early=true", "embedding.rows.split=on"}},
      {"stages", 2, {"mesh.pp=2"}},
      {"stage of a table", 2, {"mesh.pp=2", "pipeline.split=0,1"}},
      {"alone", 1, {"train.steps=9"}},
      {"uneven", 3, {"model.recompute=true"}},
      {"wide", 2, {"run.precision=float64"}},
      {"short",
       2,
       {"embedding.rows.codec=quantise:bits=8,group=row",
        "embedding.rows.gradient=quantise:bits=8,group=row"},
       kNearRounded},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    expect_near_cpu(one.name, one.dp, with(sgd(), with(by("alltoall", "float32"), one.sets)),
                    one.nearness);
  }
}

// With dropout.
TEST_F(GpuRows, GoOnAsIfNeverStopped) {
  for (const auto& [kind, model] : {std::pair{"lstm", language_model()}, {"pairs", pairs()}})
    for (const char* precision : {"float32", "bfloat16"})
      for (const char* method : {"alltoall", "server"}) {
        const std::string name = fmt::format("{} {} {}", kind, precision, method);
        SCOPED_TRACE(name);
        const auto sets = with(model, with(adam(), with(by(method, precision),
                                                        {"model.dropout=0.1", "checkpoint.every=3",
                                                         "embedding.rows.split=on"})));
        const TrainSummary through = run_on_gpu("through " + name, 2, sets);
        const TrainSummary rest = run_on_gpu(
            "rest " + name, 2, sets, folder_ / ("through " + name + "/checkpoints/step-00000003"));
        EXPECT_EQ(rest.loss, through.loss);
        EXPECT_EQ(rest.evaluation->loss, through.evaluation->loss);
        EXPECT_TRUE(model_bytes(rest.checkpoint) == model_bytes(through.checkpoint));
      }
}

TEST_F(GpuRows, AStepThatIsNotFiniteLeavesNoTrace) {
  const auto sets = with(adam(), {"train.non_finite=skip", "checkpoint.every=1",
                                  "checkpoint.keep=0", "optimiser.weight_decay=0"});
  RunConfig c =
      config_on("skipped", 2, with(language_model(), with(by("alltoall", "float32"), sets)));
  if (!is_on_cpu()) set(c, {"run.device=cuda"});
  EXPECT_EQ(run_hooked(c, {.spoiled = {2, 3}, .tables_are_apart = is_on_cpu()}).skipped, 2);
  const auto bytes = [&](int step) {
    return model_bytes(folder_ / fmt::format("skipped/checkpoints/step-{:08}", step));
  };
  EXPECT_TRUE(bytes(4) == bytes(2));
  EXPECT_FALSE(bytes(5) == bytes(4));
}

}  // namespace
}  // namespace laconic
