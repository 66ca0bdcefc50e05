#include "tests/processes/workplace.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "laconic/base/clock.hpp"
#include "laconic/file/checksum.hpp"

namespace laconic {

namespace fs = std::filesystem;

namespace {

constexpr const char* kConfig = R"([run]
folder = "runs/a"
threads = 1

[model]
layers = 2
width = 16
heads = 2
context = 16
dropout = 0.1

[data]
train = "data"
valid = "data-valid"

[train]
steps = 6
batch = 4

[optimiser]
lr = 1e-2
min_lr = 1e-3
warmup = 2
decay_steps = 100

[checkpoint]
every = 2
)";

}  // namespace

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::map<std::string, std::string> snapshot(const std::string& path) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(path))
    all[fs::relative(entry.path(), path).string()] =
        entry.is_regular_file() ? checksum_of_file(entry.path().string()) : "folder";
  return all;
}

void write_text(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

void flip_bit(const std::string& path, std::uint64_t byte) {
  std::string text = read_text(path);
  text.at(byte) = static_cast<char>(text[byte] ^ 1);
  write_text(path, text);
}

void cut_in_half(const std::string& path) {
  fs::resize_file(path, fs::file_size(path) / 2);
}

Workplace::Workplace() {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += fmt::format("Line {} of a text that repeats itself. ", i % 37);
  write_text(folder_ / "text.txt", text);
  write_text(folder_ / "run.toml", kConfig);
}

std::string Workplace::program() {
  const char* folder = std::getenv("LACONIC_BIN");
  return folder == nullptr ? "LACONIC_BIN is not set" : folder + std::string("/laconic");
}

ProcessSpec Workplace::spec(const Words& arguments) const {
  Words words{program()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return {.words = words, .folder = folder_.path()};
}

ProcessResult Workplace::laconic(const Words& arguments) const {
  return Process(spec(arguments)).wait();
}

ProcessResult Workplace::expect_exit(int exit_code, const Words& arguments) const {
  const ProcessResult outcome = laconic(arguments);
  EXPECT_EQ(outcome.exit_code, exit_code)
      << fmt::format("{}\n", fmt::join(arguments, " ")) << to_text(outcome);
  return outcome;
}

void Workplace::prepare() const {
  expect_exit(0, {"prepare", "text.txt", "--out", "data", "--valid", "0.1"});
}

std::string Workplace::checkpoint(const std::string& run, std::int64_t step) const {
  return fmt::format("{}/checkpoints/step-{:08}", run, step);
}

std::vector<std::int64_t> Workplace::steps_saved(const std::string& run) const {
  std::vector<std::int64_t> steps;
  std::error_code ignored;  // no folder, no checkpoints
  for (const auto& entry : fs::directory_iterator(folder_ / (run + "/checkpoints"), ignored))
    if (const std::string name = entry.path().filename(); name.size() == 13)
      steps.push_back(std::stoll(name.substr(5)));
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::map<std::int64_t, double> Workplace::losses(const std::string& run) const {
  std::map<std::int64_t, double> all;
  std::istringstream file(text(run + "/log.jsonl"));
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (!json.contains("loss")) continue;
    const auto [place, is_new] = all.emplace(json["step"], json["loss"]);
    EXPECT_TRUE(is_new) << "twice: " << line;
  }
  return all;
}

bool Workplace::wait_until(Process& process, const std::function<bool()>& holds) const {
  const Stopwatch watch;
  while (!holds()) {
    if (process.has_ended() || watch.seconds() > 60) return false;
    ::usleep(1000);
  }
  return true;
}

bool Workplace::wait_for_step(Process& process, const std::string& run, std::int64_t step) const {
  const std::string wanted = fmt::format("{{\"step\":{},", step);
  return wait_until(process,
                    [&] { return text(run + "/log.jsonl").find(wanted) != std::string::npos; });
}

void Workplace::expect_same_end(const std::string& run, const std::string& other,
                                std::int64_t step) const {
  for (const char* file : {"/model.safetensors", "/optimiser.safetensors"}) {
    const std::string a = text(checkpoint(run, step) + file);
    EXPECT_FALSE(a.empty()) << run << file;
    EXPECT_TRUE(a == text(checkpoint(other, step) + file)) << run << ", " << other << file;
  }
  const auto log = losses(run);
  EXPECT_EQ(static_cast<std::int64_t>(log.size()), step);
  EXPECT_EQ(log, losses(other));
}

}  // namespace laconic
