// Sixteen ranks that are processes: a grid for every stage and every replica, against one process.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/processes/tensor_ranks.hpp"

namespace laconic {
namespace {

class SixteenProcesses : public TensorProcesses {
 protected:
  // The doubles of a checkpoint, behind a header that says what is where.
  std::pair<std::string, std::vector<double>> doubles_of(const std::string& run, int step) const {
    const std::string file = text(checkpoint(run, step) + "/model.safetensors");
    std::uint64_t header = 0;
    if (file.size() < sizeof(header)) return {};
    std::memcpy(&header, file.data(), sizeof(header));
    std::vector<double> numbers((file.size() - sizeof(header) - header) / sizeof(double));
    std::memcpy(numbers.data(), file.data() + sizeof(header) + header,
                numbers.size() * sizeof(double));
    return {nlohmann::json::parse(file.substr(sizeof(header), header)).dump(), numbers};
  }

  void expect_near_end(const std::string& run, const std::string& other, int step,
                       double most) const {
    const auto [header, mine] = doubles_of(run, step);
    const auto [other_header, theirs] = doubles_of(other, step);
    ASSERT_TRUE(contains(header, "\"F64\"")) << header;
    ASSERT_EQ(header, other_header);
    ASSERT_EQ(mine.size(), theirs.size());
    double largest = 0;
    for (std::size_t i = 0; i < mine.size(); ++i)
      largest = std::max(largest, std::abs(mine[i] - theirs[i]));
    EXPECT_LT(largest, most);
    const auto log = losses(run), other_log = losses(other);
    ASSERT_EQ(static_cast<int>(log.size()), step);
    for (const auto& [at, loss] : log) EXPECT_NEAR(loss, other_log.at(at), most) << at;
  }
};

TEST_F(SixteenProcesses, TrainWhatOneTrains) {
  const Sets in_double = {"run.precision=float64", "train.steps=3", "train.batch=16",
                          "train.microbatch=8", "evaluate.samples=16"};
  expect_exit(0, train("runs/one", in_double));
  const std::vector<Sets> meshes = {{"mesh.pp=2", "mesh.tp=2,2,2"},
                                    {"mesh.pp=2", "mesh.dp=2", "mesh.tp=1,2,2"}};
  for (std::size_t m = 0; m < meshes.size(); ++m) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(meshes[m], " ")));
    const std::string run = fmt::format("runs/{}", m);
    const ProcessResult outcome = Process(spec(train(run, in_double + meshes[m]))).wait(240);
    ASSERT_EQ(outcome.exit_code, 0) << to_text(outcome);
    EXPECT_TRUE(contains(outcome.out, "0 of 16 on this machine")) << outcome.out;
    expect_near_end(run, "runs/one", 3, 1e-10);
  }
}

// Four of them, by another transport.
TEST_F(SixteenProcesses, TrainOverMpiWhatTheyTrainOverGloo) {
  const std::string mpirun = "/usr/bin/mpirun";
  if (!std::filesystem::exists(mpirun)) GTEST_SKIP() << "no mpirun here";
  if (!contains(laconic({"doctor"}).out, "mpi")) GTEST_SKIP() << "built without MPI";
  const Sets sets = {"mesh.tp=2,2,1", "tp.activation.codec=quantise:bits=8",
                     "tp.weight.gradient=quantise:bits=4"};
  expect_exit(0, train("runs/gloo", sets));
  ProcessSpec mpi = spec(train("runs/mpi", sets + Sets{"network.transport=mpi"}));
  mpi.words = Words{mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "4"} + mpi.words;
  const ProcessResult outcome = Process(mpi).wait(120);
  EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.out, "over mpi")) << to_text(outcome);
  expect_same_end("runs/gloo", "runs/mpi", 8);
}

}  // namespace
}  // namespace laconic
