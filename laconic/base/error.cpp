#include "laconic/base/error.hpp"

#include <fmt/format.h>

#include <cstring>
#include <iterator>
#include <utility>

namespace laconic {

std::string to_text(const Problems& problems) {
  std::string text;
  for (const Problem& p : problems) {
    if (!text.empty()) text += '\n';
    text += p.where.empty() ? p.what : p.where + ": " + p.what;
  }
  return text;
}

void append(Problems& all, Problems more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

Problems under(const std::string& section, Problems problems) {
  for (Problem& p : problems) p.where = p.where.empty() ? section : section + "." + p.where;
  return problems;
}

Problems all_at(const std::string& where, Problems problems) {
  for (Problem& p : problems) p.where = where;
  return problems;
}

ConfigError::ConfigError(Problems problems)
    : std::runtime_error(to_text(problems)), problems_(std::move(problems)) {}

ConfigError::ConfigError(std::string what) : ConfigError(Problems{{"", std::move(what)}}) {}

void refuse(const Problems& problems) {
  if (!problems.empty()) throw ConfigError(problems);
}

FileError::FileError(const std::string& path, const std::string& field, const std::string& what,
                     const std::string& remedy)
    : std::runtime_error(fmt::format("{}: {}{}{}{}", path, field.empty() ? "" : field + ": ", what,
                                     remedy.empty() ? "" : "; ", remedy)) {}

SystemError::SystemError(const std::string& path, const std::string& act, int error_number)
    : std::runtime_error(fmt::format("{}: cannot {}: {}", path, act, std::strerror(error_number))) {
}

WireError::WireError(std::size_t offset, std::string field, const std::string& what)
    : std::runtime_error(fmt::format("{} at byte {}: {}", field, offset, what)),
      offset_(offset),
      field_(std::move(field)) {}

WireError::WireError(const std::string& whose, const WireError& error)
    : std::runtime_error(fmt::format("{}: {}", whose, error.what())),
      offset_(error.offset()),
      field_(error.field()) {}

PeerLost::PeerLost(int peer, const std::string& what) : std::runtime_error(what), peer_(peer) {}

Timeout::Timeout(int peer, const std::string& what) : std::runtime_error(what), peer_(peer) {}

void assertion_failed(const char* condition, const std::string& values, const char* file,
                      int line) {
  throw std::logic_error(fmt::format("{}:{}: {} does not hold ({}); this is a bug in laconic", file,
                                     line, condition, values));
}

}  // namespace laconic
