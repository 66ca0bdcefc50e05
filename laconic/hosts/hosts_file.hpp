// hosts/hosts_file.hpp — hosts.toml: machines and links, as people write them (docs/plan.md).
//
//   [[group]]
//   name = "home"
//   hosts = 4
//   device = "rtx-4090"                # one that is known, or a [[device]] of the file
//   card = { rate = "1gbit", latency = "0.1ms" }
//
// Strict: an unknown key, a wrong type or unit and every impossible number is a problem with its
// line, all of them together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "laconic/hosts/hosts.hpp"

namespace laconic {

// `name` stands in messages. Throws ConfigError with every problem.
Hosts parse_hosts(std::string_view text, const std::string& name);

// A file, or "preset:NAME", which is PRESETS/hosts/NAME.toml; without such a prefix a word that is
// no file is tried as that, too. Throws ConfigError.
Hosts read_hosts(const std::string& path, const std::string& presets_folder);
std::vector<std::string> preset_hosts(const std::string& presets_folder);  // names, sorted

// What parse_hosts() reads back as the same value.
std::string to_toml(const Hosts& hosts);

}  // namespace laconic
