// encode, inspect and decode: tensors of a file as frames, and back.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <set>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/cli/codec_command.hpp"
#include "laconic/cli/distance.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/file/safetensors.hpp"
#include "laconic/file/safetensors_writer.hpp"
#include "laconic/report/table.hpp"
#include "laconic/wire/explain.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

std::string shape_text(const TensorSpec& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

std::string count_text(std::size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// `inputs` may be empty texts.
void check_output(const std::string& path, bool overwrite, const std::vector<std::string>& inputs,
                  Problems& problems) {
  const fs::path folder = fs::absolute(path).parent_path();
  if (!fs::is_directory(folder))
    problems.push_back({"--output", fmt::format("the folder {} does not exist", folder.string())});
  else if (fs::is_directory(path))
    problems.push_back({"--output", fmt::format("{} is a folder", path)});
  else if (fs::exists(path) && !overwrite)
    problems.push_back({"--output", fmt::format("{} exists; --overwrite replaces it", path)});
  else if (std::ranges::any_of(inputs, [&](const std::string& input) {
             return fs::exists(path) && !input.empty() && fs::equivalent(path, input);
           }))
    problems.push_back({"--output", fmt::format("{} is what is read", path)});
}

// The maps of auto_encoder are learned; a file of tensors or frames does not have them.
void check_stateless(const CodecSpec& codec, const std::string& where, Problems& problems) {
  if (std::holds_alternative<AutoEncoder>(codec))
    problems.push_back({where, "auto_encoder needs the maps that a run has learned"});
}

// --- encode

// Positions in the file of the tensors that are wanted.
std::vector<std::size_t> choose(const SafetensorsFile& file, const std::vector<std::string>& wanted,
                                Problems& problems) {
  std::vector<std::size_t> chosen;
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : file.entries()) names.push_back(entry.name);
  for (std::size_t i = 0; wanted.empty() && i < names.size(); ++i) chosen.push_back(i);
  for (const std::string& name : wanted) {
    const auto found = std::ranges::find(names, name);
    if (found != names.end()) {
      chosen.push_back(static_cast<std::size_t>(found - names.begin()));
      continue;
    }
    const std::string near = nearest(name, names);
    problems.push_back(
        {file.path(), fmt::format("no tensor '{}'{}", printable(name),
                                  near.empty() ? "" : "; did you mean '" + near + "'?")});
  }
  return chosen;
}

struct EncodePlan {
  CodecSpec codec;
  std::vector<std::size_t> chosen;
};

// Throws ConfigError with everything that is wrong.
EncodePlan plan_of(const CodecEncodeCommand& command, const SafetensorsFile& file) {
  EncodePlan plan;
  Problems problems;
  try {
    plan.codec = parse_codec(command.codec);
    check_stateless(plan.codec, "codec", problems);
  } catch (const ConfigError& error) {
    problems = error.problems();
  }
  check_output(command.output, command.overwrite, {command.input}, problems);
  plan.chosen = choose(file, command.tensors, problems);
  for (const std::size_t i : plan.chosen) {
    const SafetensorsEntry& entry = file.entries()[i];
    for (const Problem& p : check(plan.codec, {entry.dtype, entry.shape}))
      problems.push_back({printable(entry.name), p.what});
  }
  refuse(problems);
  return plan;
}

std::string ratio_text(std::uint64_t before, std::uint64_t after) {
  return fmt::format("{:.2f}x", static_cast<double>(before) /
                                    static_cast<double>(std::max<std::uint64_t>(after, 1)));
}

// The tensor's bytes, aligned for its type.
class Aligned {
 public:
  Aligned(ByteView bytes, std::size_t alignment) : data_(bytes.data()) {
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignment == 0) return;
    copy_.assign(bytes.begin(), bytes.end());
    data_ = copy_.data();
  }
  const void* data() const { return data_; }

 private:
  Bytes copy_;
  const void* data_;
};

void encode_frame(Bytes& message, const FrameHeader& header, ByteView bytes, std::uint64_t seed) {
  const Aligned tensor(bytes, bytes_of(header.tensor.dtype));
  const std::size_t start = message.size();
  const auto payload = open_frame(message, header);
  CodecInput input;
  input.seed = seed;
  close_frame(message, start, encode(header.codec, {header.tensor, tensor.data()}, input, payload));
}

// --- decode

struct NamedFrame {
  std::string name;
  Frame frame;
};

// Every frame of the file. Throws FileError at the first that is none.
std::vector<NamedFrame> read_frames(const MappedFile& file) {
  std::vector<NamedFrame> frames;
  for (std::size_t offset = 0; offset < file.bytes().size();) {
    try {
      frames.push_back({fmt::format("tensor-{}", frames.size()), read_frame(file.bytes(), offset)});
    } catch (const WireError& error) {
      throw FileError(file.path(), fmt::format("frame {}", frames.size()), error.what());
    }
    offset += frames.back().frame.size;
  }
  if (frames.empty()) throw FileError(file.path(), "", "is empty: there is no frame");
  return frames;
}

void check_decodable(const std::vector<NamedFrame>& frames, Problems& problems) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const std::string where = fmt::format("frame {}", i);
    check_stateless(frames[i].frame.header.codec, where, problems);
    if (frames[i].frame.header.visit == Visit::difference)
      problems.push_back({where, "a difference, and the reference is not in the frame"});
  }
}

// By the number in the sequence, which `encode` made of the position in the file.
void name_after(const SafetensorsFile& original, std::vector<NamedFrame>& frames,
                Problems& problems) {
  std::set<std::string> used;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const FrameHeader& header = frames[i].frame.header;
    const std::uint32_t number = number_of(header.sequence);
    const auto complain = [&](const std::string& what) {
      problems.push_back({fmt::format("frame {}", i), what});
    };
    if (number >= original.entries().size()) {
      complain(fmt::format("is number {}, but {} has {} tensors", number, original.path(),
                           original.entries().size()));
      continue;
    }
    const SafetensorsEntry& entry = original.entries()[number];
    const TensorSpec spec{entry.dtype, entry.shape};
    if (header.tensor != spec)
      complain(fmt::format("is {} {}, but '{}' of {} is {} {}", shape_text(header.tensor),
                           name_of(header.tensor.dtype), printable(entry.name), original.path(),
                           shape_text(spec), name_of(spec.dtype)));
    else if (!used.insert(entry.name).second)
      complain(fmt::format("is '{}' a second time", printable(entry.name)));
    frames[i].name = entry.name;
  }
}

Bytes decode_tensor(const std::string& path, const NamedFrame& named) {
  const FrameHeader& header = named.frame.header;
  const std::uint64_t bytes = elements_of(header.tensor) * bytes_of(header.tensor.dtype);
  try {
    Bytes out(bytes);
    decode(header.codec, named.frame.payload, {}, {header.tensor, out.data()});
    return out;
  } catch (const std::bad_alloc&) {
    throw FileError(
        path, named.name,
        fmt::format("{} {} are {} bytes, more than there is memory", shape_text(header.tensor),
                    name_of(header.tensor.dtype), commas(bytes)));
  } catch (const WireError& error) {
    throw FileError(path, named.name,
                    fmt::format("payload, which begins at byte {}: {}", named.frame.payload_offset,
                                error.what()));
  }
}

// --- comparison

// Distances as a table and as JSON.
class FrameComparison {
 public:
  void add(const NamedFrame& f) {
    json_["tensors"].push_back({{"name", f.name}, {"codec", to_text(f.frame.header.codec)}});
  }
  void add(const NamedFrame& f, const Distance& d) {
    add(f);
    nlohmann::ordered_json& row = json_["tensors"].back();
    row["relative_error"] = d.relative_error();
    row["max_error"] = d.max_error;
    row["cosine"] = d.cosine();
    table_.add({printable(f.name), to_text(f.frame.header.codec),
                fmt::format("{:.3e}", d.relative_error()), fmt::format("{:.3e}", d.max_error),
                fmt::format("{:.7f}", d.cosine())});
  }
  std::string text() const { return table_.is_empty() ? "" : to_text(table_); }
  std::string json() const { return json_.dump(2); }

 private:
  Table table_{{{"tensor", Align::left},
                {"codec", Align::left},
                {"relative error"},
                {"max error"},
                {"cosine"}}};
  nlohmann::ordered_json json_ = {{"command", "codec decode"},
                                  {"tensors", nlohmann::ordered_json::array()}};
};

// --- what inspect prints

nlohmann::ordered_json to_json(const Explanation& e) {
  nlohmann::ordered_json json = {{"command", "codec inspect"}, {"frames", e.frames}};
  json["fields"] = nlohmann::ordered_json::array();
  for (const ExplainedField& row : e.rows)
    json["fields"].push_back({{"frame", row.frame},
                              {"offset", row.offset},
                              {"bytes", row.bytes},
                              {"field", row.field},
                              {"hex", row.hex},
                              {"meaning", row.meaning}});
  if (e.fault)
    json["fault"] = {{"frame", e.fault->frame},
                     {"offset", e.fault->offset},
                     {"field", e.fault->field},
                     {"what", e.fault->what}};
  return json;
}

void print_rows(const Explanation& e) {
  for (std::size_t i = 0; i < e.rows.size();) {
    const std::size_t frame = e.rows[i].frame;
    fmt::print("{}frame {}\n", frame == 0 ? "" : "\n", frame);
    Table table({{"offset"},
                 {"bytes"},
                 {"field", Align::left},
                 {"hex", Align::left},
                 {"meaning", Align::left}});
    for (; i < e.rows.size() && e.rows[i].frame == frame; ++i)
      table.add({fmt::format("{}", e.rows[i].offset), fmt::format("{}", e.rows[i].bytes),
                 e.rows[i].field, e.rows[i].hex, e.rows[i].meaning});
    fmt::print("{}", to_text(table));
  }
}

void print_brief(const MappedFile& file) {
  Table table({{"frame"},
               {"offset"},
               {"bytes"},
               {"codec", Align::left},
               {"dtype", Align::left},
               {"shape", Align::left},
               {"step"},
               {"number"}});
  std::size_t offset = 0, i = 0;
  for (const NamedFrame& named : read_frames(file)) {
    const FrameHeader& h = named.frame.header;
    table.add({fmt::format("{}", i++), fmt::format("{}", offset),
               fmt::format("{}", named.frame.size), to_text(h.codec),
               std::string(name_of(h.tensor.dtype)), shape_text(h.tensor),
               fmt::format("{}", step_of(h.sequence)), fmt::format("{}", number_of(h.sequence))});
    offset += named.frame.size;
  }
  fmt::print("{}", to_text(table));
}

}  // namespace

int run_codec(const CodecEncodeCommand& command) {
  const SafetensorsFile file(command.input);
  const EncodePlan plan = plan_of(command, file);
  AtomicFile output(command.output);
  Table table({{"tensor", Align::left},
               {"dtype", Align::left},
               {"shape", Align::left},
               {"bytes"},
               {"frame"},
               {"ratio"}});
  Bytes message;
  std::uint64_t before = 0;
  for (const std::size_t i : plan.chosen) {
    const SafetensorsEntry& entry = file.entries()[i];
    const ByteView bytes = file.bytes(entry);
    const FrameHeader header{.codec = plan.codec,
                             .tensor = {entry.dtype, entry.shape},
                             .sequence = make_sequence(0, static_cast<std::uint32_t>(i))};
    message.clear();
    encode_frame(message, header, bytes, command.seed + i);
    output.write(message);
    before += bytes.size();
    table.add({printable(entry.name), std::string(name_of(entry.dtype)), shape_text(header.tensor),
               commas(bytes.size()), commas(message.size()),
               ratio_text(bytes.size(), message.size())});
  }
  output.commit();
  fmt::print("{}{}: {}, {} bytes for {} ({})\n", to_text(table), command.output,
             count_text(plan.chosen.size(), "frame"), commas(output.size()), commas(before),
             ratio_text(before, output.size()));
  return 0;
}

int run_codec(const CodecInspectCommand& command) {
  const MappedFile file(command.input);
  const Explanation explanation =
      command.brief && command.json.empty() ? Explanation{} : explain(file.bytes());
  if (command.brief)
    print_brief(file);
  else
    print_rows(explanation);
  if (!command.json.empty()) write_atomically(command.json, to_json(explanation).dump(2) + "\n");
  if (explanation.fault)
    throw FileError(command.input, fmt::format("frame {}", explanation.fault->frame),
                    explanation.fault->what);
  return 0;
}

int run_codec(const CodecDecodeCommand& command) {
  const MappedFile file(command.input);
  std::vector<NamedFrame> frames = read_frames(file);
  Problems problems;
  check_output(command.output, command.overwrite, {command.input, command.original}, problems);
  check_decodable(frames, problems);
  SafetensorsFile original;
  if (!command.original.empty()) {
    original = SafetensorsFile(command.original);
    name_after(original, frames, problems);
  }
  refuse(problems);

  std::vector<SafetensorsSpec> specs;
  for (const NamedFrame& f : frames)
    specs.push_back({f.name, f.frame.header.tensor.dtype, f.frame.header.tensor.shape});
  SafetensorsWriter writer(command.output, specs);
  FrameComparison comparison;
  for (const NamedFrame& f : frames) {
    const Bytes tensor = decode_tensor(command.input, f);
    writer.write(tensor);
    if (command.original.empty())
      comparison.add(f);
    else
      comparison.add(f, distance_of(f.frame.header.tensor.dtype, original.bytes(f.name), tensor));
  }
  writer.commit();
  fmt::print("{}{}: {}\n", comparison.text(), command.output, count_text(frames.size(), "tensor"));
  if (!command.json.empty()) write_atomically(command.json, comparison.json() + "\n");
  return 0;
}

}  // namespace laconic
