#include "laconic/hosts/hosts_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <sstream>

#include "laconic/base/error.hpp"
#include "laconic/base/quantity.hpp"
#include "laconic/base/text.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/config/quoted_toml.hpp"
#include "laconic/config/toml_table.hpp"
#include "laconic/hosts/known_device.hpp"

namespace laconic {

namespace {

std::string title_of_host(const char* kind, const TomlNode& node) {
  const TomlNode* name = node.find("name");
  return name != nullptr && name->kind == TomlNode::Kind::text
             ? fmt::format("{} '{}'", kind, printable(name->text))
             : kind;
}

bool is_amount(const TomlNode& node) {
  return (node.kind == TomlNode::Kind::number || node.kind == TomlNode::Kind::integer) &&
         node.value >= 0 && node.value <= kLargestAmount;  // also refuses NaN
}

void read_amount(TomlTable& table, const char* key, double& value) {
  const TomlNode* node = table.find(key);
  if (node == nullptr) return;
  if (is_amount(*node))
    value = node->value;
  else
    table.report_wrong(*node, key, "a number from 0 on, below 1e24");
}

// A text with a unit: "1gbit".
void read_quantity(TomlTable& table, const char* key, std::span<const Unit> units,
                   const char* example, double& value) {
  const TomlNode* node = table.find(key);
  if (node == nullptr) return;
  const std::optional<double> number =
      node->kind == TomlNode::Kind::text ? parse_quantity(node->text, units) : std::nullopt;
  if (!number) return table.report_wrong(*node, key, example);
  value = *number;
}

enum class RateIs : std::uint8_t { needed, optional };

void read_link(TomlTable& table, const std::string& title, const char* key, RateIs rate, Link& link,
               Problems& problems) {
  const TomlNode* node = table.find(key);
  if (node == nullptr) return;
  if (node->kind != TomlNode::Kind::table)
    return table.report_wrong(*node, key,
                              "a table such as { rate = \"1gbit\", latency = \"0.1ms\" }");
  TomlTable inner(*node, fmt::format("{}, {}", title, key), problems);
  if (rate == RateIs::needed && node->find("rate") == nullptr)
    inner.report(*node, "rate is missing");
  read_quantity(inner, "rate", kBitUnits, "a rate such as \"1gbit\"", link.bits_per_second);
  read_quantity(inner, "latency", kTimeUnits, "a time such as \"0.1ms\"", link.latency_seconds);
  read_quantity(inner, "burst", kByteUnits, "a size such as \"500kB\"", link.burst_bytes);
  inner.read_flag("full_duplex", link.full_duplex);
  inner.report_unknown();
}

// A number of each precision that is there, times `unit`.
void read_by_precision(const TomlNode& node, const std::string& title, double unit,
                       ByPrecision& numbers, Problems& problems) {
  TomlTable inner(node, title, problems);
  for (const Named<RunPrecision>& precision : kRunPrecisionNames) {
    double number = 0;
    read_amount(inner, precision.name.data(), number);
    if (node.find(precision.name) != nullptr)
      numbers[static_cast<std::size_t>(precision.value)] = number * unit;
  }
  inner.report_unknown();
}

// Operations as data sheets count them, of which steps reach some: two are a multiply-add. One
// number of samples is that of every precision.
void read_passes(TomlTable& table, const std::string& title, double reached,
                 ByPrecision& multiply_adds, ByPrecision& pass_samples, Problems& problems) {
  if (const TomlNode* flops = table.find("flops")) {
    if (flops->kind == TomlNode::Kind::table)
      read_by_precision(*flops, title + ", flops", reached / 2, multiply_adds, problems);
    else
      table.report_wrong(*flops, "flops", "a table of precisions such as { float32 = 60e12 }");
  }
  const TomlNode* node = table.find("pass_samples");
  if (node == nullptr) return;
  if (node->kind == TomlNode::Kind::table)
    return read_by_precision(*node, title + ", pass_samples", 1, pass_samples, problems);
  if (!is_amount(*node))
    return table.report_wrong(*node, "pass_samples",
                              "a number from 0 on, or a table of precisions");
  pass_samples.fill(node->value);
}

void read_families(TomlTable& table, const std::string& title, double reached, HostDevice& device,
                   Problems& problems) {
  const TomlNode* node = table.find("family");
  if (node == nullptr) return;
  TomlTable families(*node, title + ", family", problems);
  for (const Named<ModelKind>& kind : kModelKindNames) {
    const TomlNode* own = families.find(kind.name.data());
    if (own == nullptr) continue;
    const std::string name = fmt::format("{}, family {}", title, kind.name);
    PassRates& rates = device.families[static_cast<std::size_t>(kind.value)];
    TomlTable inner(*own, name, problems);
    read_passes(inner, name, reached, rates.multiply_adds_per_second, rates.pass_samples, problems);
    inner.report_unknown();
  }
  families.report_unknown();
}

void read_rates(TomlTable& table, const std::string& title, HostDevice& device,
                Problems& problems) {
  double reached = 1;
  table.read_number("reached", reached);
  if (!(reached > 0 && reached <= 1))
    table.report(*table.find("reached"), fmt::format("reached = {} is not in (0, 1]", reached));
  read_passes(table, title, reached, device.multiply_adds_per_second, device.pass_samples,
              problems);
  read_families(table, title, reached, device, problems);
}

void read_codecs(TomlTable& table, const std::string& title, HostDevice& device,
                 Problems& problems) {
  const TomlNode* node = table.find("codec");
  if (node == nullptr) return;
  if (node->kind != TomlNode::Kind::table)
    return table.report_wrong(*node, "codec", "a table of codecs");
  for (const auto& [codec, entry] : node->entries) {
    try {
      (void)parse_codec(codec);
    } catch (const ConfigError& e) {
      for (const Problem& problem : e.problems()) table.report(entry, problem.what);
    }
    CodecRate rate{.codec = codec};
    TomlTable inner(entry, fmt::format("{}, codec {}", title, codec), problems);
    read_amount(inner, "encode", rate.encode);
    read_amount(inner, "decode", rate.decode);
    read_amount(inner, "feedback", rate.feedback);
    inner.report_unknown();
    std::erase_if(device.codecs, [&](const CodecRate& r) { return r.codec == rate.codec; });
    device.codecs.push_back(rate);
  }
}

void read_factors(TomlTable& table, const std::string& title, HostDevice& device,
                  Problems& problems) {
  const TomlNode* node = table.find("factors");
  if (node == nullptr) return;
  TomlTable inner(*node, title + ", factors", problems);
  read_amount(inner, "product", device.factors.product);
  read_amount(inner, "orthonormal", device.factors.orthonormal);
  inner.report_unknown();
}

HostDevice device_in(const TomlNode& node, Problems& problems) {
  const std::string title = title_of_host("device", node);
  TomlTable table(node, title, problems);
  HostDevice device;
  std::string like;
  table.read("like", like);
  if (!like.empty()) {
    if (const auto known = known_device(like))
      device = *known;
    else
      table.report(*node.find("like"), fmt::format("there is no device '{}'{}", printable(like),
                                                   suggestion(like, known_device_names())));
  }
  table.require("name", device.name);
  table.read_flag("gpu", device.is_gpu);
  read_quantity(table, "memory", kByteUnits, "a size such as \"24GB\"", device.memory_bytes);
  read_rates(table, title, device, problems);
  read_amount(table, "elements", device.elements_per_second);
  read_amount(table, "updates", device.updates_per_second);
  read_codecs(table, title, device, problems);
  read_factors(table, title, device, problems);
  read_amount(table, "copy", device.copy_bytes_per_second);
  read_amount(table, "handled", device.handled_bytes_per_second);
  read_quantity(table, "message", kTimeUnits, "a time such as \"0.1ms\"", device.message_seconds);
  read_quantity(table, "call", kTimeUnits, "a time such as \"0.1ms\"", device.call_seconds);
  table.report_unknown();
  return device;
}

void read_device(TomlTable& table, const TomlNode& node, const std::vector<HostDevice>& devices,
                 HostDevice& device) {
  std::string name;
  table.require("device", name);
  const auto own = std::ranges::find(devices, name, &HostDevice::name);
  if (own != devices.end()) {
    device = *own;
  } else if (const auto known = known_device(name)) {
    device = *known;
  } else if (!name.empty()) {
    std::vector<std::string> names = known_device_names();
    for (const HostDevice& d : devices) names.push_back(d.name);
    table.report(*node.find("device"), fmt::format("there is no device '{}'{}", printable(name),
                                                   suggestion(name, names)));
  }
}

HostGroup group_in(const TomlNode& node, const std::vector<HostDevice>& devices,
                   Problems& problems) {
  const std::string title = title_of_host("group", node);
  TomlTable table(node, title, problems);
  HostGroup group;
  table.require("name", group.name);
  table.read_count("hosts", group.hosts, 1);
  table.read_count("ranks_per_host", group.ranks_per_host, 1);
  table.read_count("cores", group.cores, 0);
  read_quantity(table, "memory", kByteUnits, "a size such as \"64GB\"", group.memory_bytes);
  read_device(table, node, devices, group.device);
  if (node.find("card") == nullptr) table.report(node, "card is missing");
  read_link(table, title, "card", RateIs::needed, group.card, problems);
  read_link(table, title, "inside", RateIs::optional, group.inside, problems);
  if (node.find("uplink") != nullptr)
    read_link(table, title, "uplink", RateIs::needed, group.uplink.emplace(), problems);
  (void)table.find("uplink");
  table.report_unknown();
  return group;
}

std::string link_text(const Link& link) {
  return fmt::format(
      "{{ rate = \"{}\", latency = \"{}\"{}{} }}", quantity_text(link.bits_per_second, kBitUnits),
      quantity_text(link.latency_seconds, kTimeUnits),
      link.burst_bytes == 0
          ? ""
          : fmt::format(", burst = \"{}\"", quantity_text(link.burst_bytes, kByteUnits)),
      link.full_duplex ? "" : ", full_duplex = false");
}

std::string text_of(const ByPrecision& numbers, double unit) {
  std::vector<std::string> rows;
  for (const Named<RunPrecision>& precision : kRunPrecisionNames) {
    const double number = numbers[static_cast<std::size_t>(precision.value)];
    if (number != 0) rows.push_back(fmt::format("{} = {}", precision.name, unit * number));
  }
  return fmt::format("{{ {} }}", join(rows, ", "));
}

void write_passes(const std::string& where, const PassRates& rates, std::string& text) {
  if (rates.multiply_adds_per_second != ByPrecision())
    text += fmt::format("{}flops = {}\n", where, text_of(rates.multiply_adds_per_second, 2));
  if (rates.pass_samples == ByPrecision()) return;
  ByPrecision alike;
  alike.fill(rates.pass_samples.front());
  text += fmt::format("{}pass_samples = {}\n", where,
                      rates.pass_samples == alike ? fmt::format("{}", alike.front())
                                                  : text_of(rates.pass_samples, 1));
}

void write_device(const HostDevice& device, std::string& text) {
  text += fmt::format("[[device]]\nname = {}\n", quoted_toml(device.name));
  if (device.is_gpu) text += "gpu = true\n";
  const auto number = [&](const char* key, double value) {
    if (value != 0) text += fmt::format("{} = {}\n", key, value);
  };
  if (device.memory_bytes != 0)
    text += fmt::format("memory = \"{}\"\n", quantity_text(device.memory_bytes, kByteUnits));
  write_passes("", {device.multiply_adds_per_second, device.pass_samples}, text);
  for (const Named<ModelKind>& kind : kModelKindNames)
    write_passes(fmt::format("family.{}.", kind.name),
                 device.families[static_cast<std::size_t>(kind.value)], text);
  number("elements", device.elements_per_second);
  number("updates", device.updates_per_second);
  number("copy", device.copy_bytes_per_second);
  number("handled", device.handled_bytes_per_second);
  text += fmt::format("message = \"{}\"\ncall = \"{}\"\n",
                      quantity_text(device.message_seconds, kTimeUnits),
                      quantity_text(device.call_seconds, kTimeUnits));
  for (const CodecRate& rate : device.codecs) {
    const bool is_kind = rate.codec.find(':') == std::string::npos;
    text += fmt::format("codec.{} = {{ encode = {}, decode = {}",
                        is_kind ? rate.codec : quoted_toml(rate.codec), rate.encode, rate.decode);
    if (rate.feedback != 0) text += fmt::format(", feedback = {}", rate.feedback);
    text += " }\n";
  }
  if (device.factors != FactorRate())
    text += fmt::format("factors = {{ product = {}, orthonormal = {} }}\n", device.factors.product,
                        device.factors.orthonormal);
  text += "\n";
}

void write_group(const HostGroup& group, std::string& text) {
  text += fmt::format("[[group]]\nname = {}\nhosts = {}\nranks_per_host = {}\n",
                      quoted_toml(group.name), group.hosts, group.ranks_per_host);
  if (group.cores != 0) text += fmt::format("cores = {}\n", group.cores);
  if (group.memory_bytes != 0)
    text += fmt::format("memory = \"{}\"\n", quantity_text(group.memory_bytes, kByteUnits));
  text += fmt::format("device = {}\ncard = {}\n", quoted_toml(group.device.name),
                      link_text(group.card));
  if (group.inside != Link()) text += fmt::format("inside = {}\n", link_text(group.inside));
  if (group.uplink) text += fmt::format("uplink = {}\n", link_text(*group.uplink));
  text += "\n";
}

std::string text_of_hosts(const std::string& path, const std::string& otherwise) {
  errno = 0;
  std::ifstream file(path);
  file.peek();
  if (!file.is_open() || file.bad())
    throw ConfigError(
        Problems{{path, fmt::format("cannot be read: {}{}", std::strerror(errno), otherwise)}});
  std::stringstream text;
  if (!file.eof()) text << file.rdbuf();
  return text.str();
}

}  // namespace

Hosts parse_hosts(std::string_view text, const std::string& name) {
  const TomlNode root = parse_toml_tree(text, name);
  Problems problems;
  TomlTable table(root, "hosts", problems);
  std::vector<HostDevice> devices;
  std::set<std::string> broken;
  table.each("device", [&](const TomlNode& node) {
    const std::size_t before = problems.size();
    HostDevice device = device_in(node, problems);
    if (std::ranges::find(devices, device.name, &HostDevice::name) != devices.end())
      problems.push_back({node.where, title_of_host("device", node) + ": is there twice"});
    devices.push_back(std::move(device));
    if (problems.size() > before) broken.insert(devices.back().name);
  });
  Hosts hosts, sound;
  table.each("group", [&](const TomlNode& node) {
    const std::size_t before = problems.size();
    hosts.groups.push_back(group_in(node, devices, problems));
    const HostGroup& group = hosts.groups.back();
    if (problems.size() == before && !broken.contains(group.device.name))
      sound.groups.push_back(group);
  });
  table.report_unknown();
  // What could not be read leaves defaults behind, which would be refused for the wrong reason. An
  // uplink may be one to a group that could not be.
  if (sound.groups.size() < hosts.groups.size())
    for (HostGroup& group : sound.groups) group.uplink.reset();
  if (problems.empty() || !sound.groups.empty())
    for (const Problem& found : check(sound))
      problems.push_back({name, found.where + ": " + found.what});
  refuse(problems);
  return hosts;
}

std::vector<std::string> preset_hosts(const std::string& presets_folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(presets_folder + "/hosts", ignored))
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  std::ranges::sort(names);
  return names;
}

Hosts read_hosts(const std::string& path, const std::string& presets_folder) {
  constexpr std::string_view kPreset = "preset:";
  const std::vector<std::string> presets = preset_hosts(presets_folder);
  const bool is_preset = path.starts_with(kPreset);
  const std::string name = is_preset ? path.substr(kPreset.size()) : path;
  const bool is_word = std::ranges::find(presets, name) != presets.end();
  const std::string likely = nearest(name, presets);
  const std::string unknown =
      fmt::format("there is no preset '{}'{}", printable(name),
                  likely.empty() ? fmt::format(" (presets: {})", join(presets, ", "))
                                 : fmt::format("; did you mean '{}'?", likely));
  if (is_preset && !is_word) throw ConfigError(Problems{{path, unknown}});
  const std::string file = is_preset || (is_word && !std::filesystem::exists(path))
                               ? presets_folder + "/hosts/" + name + ".toml"
                               : path;
  return parse_hosts(text_of_hosts(file, is_word ? "" : ", and " + unknown), file);
}

std::string to_toml(const Hosts& hosts) {
  std::string text;
  std::vector<const HostDevice*> written;
  for (const HostGroup& group : hosts.groups) {
    if (std::ranges::any_of(written, [&](const HostDevice* d) { return *d == group.device; }))
      continue;
    write_device(group.device, text);
    written.push_back(&group.device);
  }
  for (const HostGroup& group : hosts.groups) write_group(group, text);
  return text;
}

}  // namespace laconic
