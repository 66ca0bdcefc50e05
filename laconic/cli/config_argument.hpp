// cli/config_argument.hpp — CONFIG and --set, which several verbs have.
#pragma once

#include <CLI/CLI.hpp>

#include "laconic/cli/config_file.hpp"

namespace laconic {

inline void add_config(CLI::App& verb, ConfigFile& config, bool is_required = true) {
  verb.add_option("CONFIG", config.path,
                  "TOML file, or preset:NAME; `laconic config show` prints every key")
      ->required(is_required);
  verb.add_option("--set", config.sets, "override a key: section.key=value (may be repeated)")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
}

}  // namespace laconic
