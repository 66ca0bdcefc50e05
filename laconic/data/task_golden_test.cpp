// Samples against those that tools/make_task_golden.py makes from the definitions.
#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "laconic/data/indexed_writer.hpp"
#include "laconic/data/task.hpp"
#include "laconic/data/test_data.hpp"
#include "laconic/file/json.hpp"

namespace laconic {
namespace {

using Json = nlohmann::json;

SpecialTokens special_in(const Json& json) {
  SpecialTokens special;
  for (const auto& [name, member] : kSpecialTokens) special.*member = json.at(std::string(name));
  return special;
}

// Writes the case's data and opens it as training would.
Dataset write_data(const Json& one, const std::string& prefix) {
  const std::string kind = one["kind"];
  const Json& data = one["data"];
  const bool has_sentences = kind == "sentences";
  const TaskKind task = has_sentences ? TaskKind::masked : *value_in(kTaskKindNames, kind);
  IndexedWriter writer(prefix, one["vocabulary"]);
  std::optional<RecordInfo> info;
  if (data.contains("stream")) {
    writer.add(data["stream"].get<std::vector<std::int32_t>>());
    writer.end_document();
  }
  const auto add_parts = [&](const Json& parts) {
    for (const Json& part : parts) {
      writer.add(part.get<std::vector<std::int32_t>>());
      writer.end_part();
    }
    writer.end_record();
  };
  if (has_sentences) {
    for (const Json& document : data["documents"]) add_parts(document);
    info = RecordInfo{.task = task, .parts = 0};
  }
  if (data.contains("records")) {
    for (const Json& record : data["records"]) {
      add_parts(record["parts"]);
      writer.add_labels(record["labels"].get<std::vector<double>>());
    }
    const Json& first = data["records"][0];
    info = RecordInfo{.task = task,
                      .parts = static_cast<std::int64_t>(first["parts"].size()),
                      .labels_per_record = static_cast<std::int64_t>(first["labels"].size())};
    if (task == TaskKind::classify) info->label_names = {"a", "b", "c"};
  }
  writer.sync("bytes", 0, special_in(one["special"]), info);
  writer.commit();
  return open_dataset(prefix, one["context"], one["vocabulary"], 0, {task, has_sentences});
}

Task task_in(const Json& one, const SpecialTokens& special) {
  const std::string kind = one["kind"];
  if (kind == "classify") return Classify{special};
  if (kind == "regress") return Regress{special};
  if (kind == "span") return AnswerSpan{special};
  if (kind == "translate") return Translate{special};
  const Json& t = one["task"];
  Masked task{.special = special,
              .vocabulary = t["vocabulary"],
              .seed = t["seed"],
              .share = t["share"],
              .by_sample = t["by_sample"],
              .has_next_sentence = kind == "sentences"};
  if (t["whole_words"]) {
    std::vector<bool> continues(one["vocabulary"].get<std::size_t>());
    for (const std::size_t token : t["continues"]) continues[token] = true;
    task.continues = std::make_shared<const std::vector<bool>>(std::move(continues));
  }
  return task;
}

// Reads a sample as rows and compares every field; returns how many elements differ.
void compare_sample(const Task& task, const Dataset& data, const Json& place,
                    const Json& expected) {
  const SampleAt at{place["sample"], place["epoch"]};
  const std::vector<FieldSpec> fields = fields_of(task, tokens_per_sample(task, data));
  ASSERT_EQ(fields.size(), expected.size());
  std::vector<std::vector<std::int64_t>> values;
  std::vector<std::span<std::int64_t>> rows;
  values.reserve(fields.size());
  for (const FieldSpec& field : fields)
    rows.emplace_back(values.emplace_back(static_cast<std::size_t>(field.per_sample[0]), -77));
  read_sample(task, data, at, rows);
  std::int64_t targets = 0;
  for (std::size_t f = 0; f < fields.size(); ++f) {
    const Json& wanted = expected.at(fields[f].name);
    std::vector<std::int64_t> numbers;
    for (const Json& value : wanted)
      numbers.push_back(fields[f].is_real ? std::bit_cast<std::int64_t>(value.get<double>())
                                          : value.get<std::int64_t>());
    ASSERT_EQ(values[f], numbers) << fields[f].name << " of sample " << at.sample << ", epoch "
                                  << at.epoch;
    if (fields[f].name == predicted_field(task))
      for (const std::int64_t number : numbers) targets += number != -100 ? 1 : 0;
  }
  EXPECT_EQ(count_targets(task, data, at, tokens_per_sample(task, data)), targets);
}

TEST(TaskGolden, SamplesEqualThoseMadeFromTheDefinitions) {
  const Json cases = read_json(source_root() + "/tests/golden/task/samples.json");
  ASSERT_GE(cases.size(), 15u);
  std::set<std::string> kinds;
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const Json& one = cases[c];
    kinds.insert(one["kind"]);
    SCOPED_TRACE("case " + std::to_string(c) + ", " + one["kind"].get<std::string>());
    const TemporaryFolder folder;
    const Dataset data = write_data(one, folder / "d");
    const Task task = task_in(one, set_in(data).special);
    for (std::size_t s = 0; s < one["samples"].size(); ++s)
      compare_sample(task, data, one["samples"][s], one["expected"][s]);
  }
  EXPECT_EQ(kinds.size(), 6u);
}

}  // namespace
}  // namespace laconic
