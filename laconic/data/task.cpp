#include "laconic/data/task.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/base/target.hpp"
#include "laconic/data/mask.hpp"
#include "laconic/data/pair.hpp"

namespace laconic {

namespace {

using Rows = std::span<const std::span<std::int64_t>>;

template <class T, class... Some>
inline constexpr bool is_one_of = (std::is_same_v<T, Some> || ...);

const WindowedDataset& windows_of(const Dataset& data) {
  return std::get<WindowedDataset>(data);
}

const RecordDataset& records_of(const Dataset& data) {
  return std::get<RecordDataset>(data);
}

// Causal and Completion.

// By token of the window: whether it belongs to a completion. (Not vector<bool>: it has no spans.)
std::unique_ptr<bool[]> completions_of(const WindowedDataset& data, std::uint64_t sample) {
  auto found = std::make_unique<bool[]>(data.window() + 1);
  data.find_completions(sample, {found.get(), data.window() + 1});
  return found;
}

void read(const Causal&, const Dataset& data, SampleAt at, Rows rows) {
  std::vector<std::int64_t> window(windows_of(data).window() + 1);
  windows_of(data).read(at.sample, window);
  std::copy(window.begin(), window.end() - 1, rows[0].begin());
  std::copy(window.begin() + 1, window.end(), rows[1].begin());
}

void read(const Completion&, const Dataset& data, SampleAt at, Rows rows) {
  read(Causal{}, data, at, rows);
  const auto is_completion = completions_of(windows_of(data), at.sample);
  for (std::size_t i = 0; i < rows[1].size(); ++i)
    if (!is_completion[i + 1]) rows[1][i] = kNoTarget;
}

// Masked.

constexpr std::size_t kIds = 0, kTypes = 1, kLength = 2, kMaskTargets = 3, kNext = 4;

Key draws_of(const Masked& task, std::string_view what, SampleAt at) {
  return derive(derive(key_of(task.seed), what), task.by_sample ? 0 : at.epoch, at.sample);
}

// A number below `count`. Requires: count < 2^32.
std::uint64_t draw_below(Key key, std::uint64_t index, std::uint64_t count) {
  return std::uint64_t{word_at(key, index)} * count >> 32;
}

struct SentencePair {
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> second;
  bool follows = true;
};

void append_sentence(std::vector<std::int64_t>& text, const SentenceDataset& data,
                     std::uint64_t document, std::uint64_t sentence) {
  const std::vector<std::int64_t> tokens = data.sentence(document, sentence);
  text.insert(text.end(), tokens.begin(), tokens.end());
}

// Sentences of another document from a drawn one on, as many as fit into `room`; of the first as
// much as fits.
std::vector<std::int64_t> foreign_text(const SentenceDataset& data, Key key, std::uint64_t document,
                                       std::size_t room) {
  std::uint64_t other = draw_below(key, 2, data.documents() - 1);
  if (other >= document) ++other;
  const std::uint64_t sentences = data.sentences(other);
  std::uint64_t s = draw_below(key, 3, sentences);
  std::vector<std::int64_t> text = data.sentence(other, s);
  if (text.size() > room) text.resize(room);
  while (++s < sentences) {
    const std::vector<std::int64_t> next = data.sentence(other, s);
    if (text.size() + next.size() > room) break;
    text.insert(text.end(), next.begin(), next.end());
  }
  return text;
}

SentencePair pair_of(const Masked& task, const SentenceDataset& data, SampleAt at) {
  const SentenceDataset::Chunk& chunk = data.chunk(at.sample);
  const Key key = draws_of(task, "sentences", at);
  const std::uint64_t split = chunk.first + 1 + draw_below(key, 0, chunk.end - chunk.first - 1);
  SentencePair pair;
  for (std::uint64_t s = chunk.first; s < split; ++s)
    append_sentence(pair.first, data, chunk.document, s);
  pair.follows = word_at(key, 1) < 0x80000000u;
  if (pair.follows)
    for (std::uint64_t s = split; s < chunk.end; ++s)
      append_sentence(pair.second, data, chunk.document, s);
  else
    pair.second = foreign_text(data, key, chunk.document,
                               static_cast<std::size_t>(data.context()) - 3 - pair.first.size());
  return pair;
}

void read(const Masked& task, const Dataset& data, SampleAt at, Rows rows) {
  FramedPair frame;
  if (task.has_next_sentence) {
    const SentencePair pair = pair_of(task, std::get<SentenceDataset>(data), at);
    frame = frame_texts(task.special, pair.first, pair.second, true, rows[kIds], rows[kTypes]);
    rows[kNext][0] = pair.follows ? 0 : 1;
  } else {
    std::vector<std::int64_t> window(windows_of(data).window() + 1);  // the last has no use here
    windows_of(data).read(at.sample, window);
    window.pop_back();
    frame = frame_texts(task.special, window, {}, false, rows[kIds], rows[kTypes]);
  }
  rows[kLength][0] = static_cast<std::int64_t>(frame.length);
  std::ranges::fill(rows[kMaskTargets], kNoTarget);
  const MaskRule rule{.share = task.share,
                      .special = task.special,
                      .vocabulary = task.vocabulary,
                      .continues = task.continues.get()};
  const Key key = draws_of(task, "mask", at);
  for (const FramedText& text : {frame.first, frame.second})
    mask_text(rule, key, text, rows[kIds], rows[kMaskTargets]);
}

// Classify, Regress and AnswerSpan.

constexpr std::size_t kLabel = 3, kEnd = 4;

// Writes a record's text or texts. For AnswerSpan, which `keeps_first`, only the second is cut,
// unless the first alone is too long.
FramedPair frame_record(const SpecialTokens& special, const RecordDataset& data,
                        std::uint64_t sample, bool keeps_first, Rows rows) {
  std::vector<std::int64_t> first = data.part(sample, 0), second;
  const bool has_second = data.info().parts == 2;
  if (has_second) second = data.part(sample, 1);
  const std::size_t room = rows[kIds].size() - (has_second ? 3 : 2);
  PairSizes kept = truncate_longest_first({first.size(), second.size()}, room);
  if (!has_second) kept = {std::min(first.size(), room), 0};
  if (keeps_first) {
    kept.first = std::min(first.size(), room);
    kept.second = std::min(second.size(), room - kept.first);
  }
  first.resize(kept.first);
  second.resize(kept.second);
  const FramedPair frame =
      frame_texts(special, first, second, has_second, rows[kIds], rows[kTypes]);
  rows[kLength][0] = static_cast<std::int64_t>(frame.length);
  return frame;
}

void read(const Classify& task, const Dataset& data, SampleAt at, Rows rows) {
  frame_record(task.special, records_of(data), at.sample, false, rows);
  rows[kLabel][0] = static_cast<std::int64_t>(records_of(data).label(at.sample, 0));
}

void read(const Regress& task, const Dataset& data, SampleAt at, Rows rows) {
  frame_record(task.special, records_of(data), at.sample, false, rows);
  rows[kLabel][0] = std::bit_cast<std::int64_t>(records_of(data).label(at.sample, 0));
}

void read(const AnswerSpan& task, const Dataset& data, SampleAt at, Rows rows) {
  const RecordDataset& records = records_of(data);
  const FramedPair frame = frame_record(task.special, records, at.sample, true, rows);
  const auto first = static_cast<std::int64_t>(records.label(at.sample, 0));
  const auto last = static_cast<std::int64_t>(records.label(at.sample, 1));
  const auto begin = static_cast<std::int64_t>(frame.second.begin);
  const bool is_inside = last < static_cast<std::int64_t>(frame.second.end) - begin;
  const bool has_answer = first >= 0;
  rows[kLabel][0] = !has_answer ? 0 : is_inside ? begin + first : kNoTarget;
  rows[kEnd][0] = !has_answer ? 0 : is_inside ? begin + last : kNoTarget;
}

// Translate.

constexpr std::size_t kSource = 0, kSourceLength = 1, kTargetIds = 2, kTargets = 3;

void read(const Translate& task, const Dataset& data, SampleAt at, Rows rows) {
  const SpecialTokens& special = task.special;
  const bool has_eos = special.eos != kNoToken;
  const std::int64_t eos = has_eos ? special.eos : special.sep;
  const std::int64_t pad = special.pad != kNoToken ? special.pad : eos;
  const std::int64_t bos = has_eos ? special.bos : special.cls;
  const auto cut = [&](std::uint64_t part, std::size_t size) {
    std::vector<std::int64_t> tokens = records_of(data).part(at.sample, part);
    tokens.resize(std::min(tokens.size(), size - 1));
    return tokens;
  };
  const std::vector<std::int64_t> source = cut(0, rows[kSource].size());
  std::ranges::fill(rows[kSource], pad);
  std::ranges::copy(source, rows[kSource].begin());
  rows[kSource][source.size()] = eos;
  rows[kSourceLength][0] = static_cast<std::int64_t>(source.size()) + 1;
  const std::vector<std::int64_t> target = cut(1, rows[kTargets].size());
  std::ranges::fill(rows[kTargetIds], pad);
  rows[kTargetIds][0] = bos != kNoToken ? bos : eos;
  std::ranges::copy(target, rows[kTargetIds].begin() + 1);
  std::ranges::fill(rows[kTargets], kNoTarget);
  std::ranges::copy(target, rows[kTargets].begin());
  rows[kTargets][target.size()] = eos;
}

}  // namespace

SampleCount count_sample(const Task& task, const Dataset& data, SampleAt at) {
  const std::vector<FieldSpec> fields = fields_of(task, tokens_per_sample(task, data));
  std::vector<std::vector<std::int64_t>> values;
  std::vector<std::span<std::int64_t>> rows;
  values.reserve(fields.size());
  for (const FieldSpec& field : fields)
    rows.emplace_back(values.emplace_back(static_cast<std::size_t>(field.per_sample[0])));
  read_sample(task, data, at, rows);
  SampleCount count;
  for (std::size_t f = 0; f < fields.size(); ++f) {
    count.elements.push_back(used_elements(task, f, rows));
    if (fields[f].name == predicted_field(task))
      count.targets = std::ranges::count_if(rows[f], [](std::int64_t v) { return v != kNoTarget; });
  }
  return count;
}

std::vector<FieldSpec> fields_of(const Task& task, std::int64_t tokens) {
  return std::visit(
      [&]<class T>(const T& t) -> std::vector<FieldSpec> {
        if constexpr (is_one_of<T, Causal, Completion>)
          return {{"ids", {tokens}}, {"targets", {tokens}}};
        if constexpr (is_one_of<T, Translate>)
          return {{"source", {tokens}},
                  {"source_length", {1}},
                  {"ids", {tokens}},
                  {"targets", {tokens}}};
        std::vector<FieldSpec> fields = {{"ids", {tokens}}, {"types", {tokens}}, {"length", {1}}};
        if constexpr (is_one_of<T, Masked>) {
          fields.push_back({"targets", {tokens}});
          if (t.has_next_sentence) fields.push_back({"next", {1}});
        }
        if constexpr (is_one_of<T, Classify>) fields.push_back({"label", {1}});
        if constexpr (is_one_of<T, Regress>) fields.push_back({"score", {1}, /*is_real=*/true});
        if constexpr (is_one_of<T, AnswerSpan>) {
          fields.push_back({"start", {1}});
          fields.push_back({"end", {1}});
        }
        return fields;
      },
      task);
}

std::string_view predicted_field(const Task& task) {
  if (std::holds_alternative<Classify>(task)) return "label";
  if (std::holds_alternative<Regress>(task)) return "score";
  if (std::holds_alternative<AnswerSpan>(task)) return "start";
  return "targets";
}

std::int64_t rows_per_sample(const Task& task, std::int64_t tokens) {
  return predicted_field(task) == "targets" ? tokens : 1;
}

std::int64_t tokens_per_sample(const Task& task, const Dataset& data) {
  if (const auto* windows = std::get_if<WindowedDataset>(&data)) {
    const auto window = static_cast<std::int64_t>(windows->window());
    return std::holds_alternative<Masked>(task) ? window + 2 : window;
  }
  if (const auto* records = std::get_if<RecordDataset>(&data)) return records->context();
  return std::get<SentenceDataset>(data).context();
}

std::int64_t count_targets(const Task& task, const Dataset& data, SampleAt at,
                           std::int64_t tokens) {
  if (std::holds_alternative<Causal>(task)) return tokens;
  if (std::holds_alternative<Completion>(task)) {
    const auto is_completion = completions_of(windows_of(data), at.sample);
    const bool* end = is_completion.get() + windows_of(data).window() + 1;
    return std::count(end - tokens, end, true);
  }
  if (std::holds_alternative<Classify>(task) || std::holds_alternative<Regress>(task)) return 1;
  return count_sample(task, data, at).targets;
}

void read_sample(const Task& task, const Dataset& data, SampleAt at, Rows rows) {
  std::visit([&](const auto& t) { read(t, data, at, rows); }, task);
}

bool pads_to_longest(const Task& task) {
  return std::visit(
      [](const auto& t) {
        if constexpr (requires { t.pads_to_longest; }) return t.pads_to_longest;
        return false;
      },
      task);
}

std::int64_t used_elements(const Task& task, std::size_t field, Rows rows) {
  const auto all = static_cast<std::int64_t>(rows[field].size());
  if (all <= 1 || std::holds_alternative<Causal>(task) || std::holds_alternative<Completion>(task))
    return all;
  if (!std::holds_alternative<Translate>(task)) return rows[kLength][0];
  if (field == kSource) return rows[kSourceLength][0];
  return std::ranges::count_if(rows[kTargets], [](std::int64_t v) { return v != kNoTarget; });
}

}  // namespace laconic
