// base/text.hpp — small pure functions on text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace laconic {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, or empty when none is near enough to be a likely misspelling.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
// For messages: a name from a file nobody vouches for, without control characters (a terminal would
// obey them, what() would end at a zero) and cut after `max_bytes`, never inside a UTF-8 letter.
std::string printable(std::string_view text, std::size_t max_bytes = 80);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

std::string human_bytes(double bytes);        // "12.3 MB" (powers of ten, as links are rated)
std::string human_count(double count);        // "124.4 M"
std::string human_seconds(double seconds);    // "850 ms", "12.3 s", "4 m 05 s", "2 h 10 m"
std::string with_commas(std::int64_t value);  // "1,234,567"

}  // namespace laconic
