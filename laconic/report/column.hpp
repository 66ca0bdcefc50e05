// report/column.hpp — how wide a text is on a screen.
//
// A code point counts as one column: right for what we print ("µs", "×"), wrong
// for East Asian wide letters and combining marks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace laconic {

std::size_t columns_of(std::string_view utf8);
std::string_view clipped(std::string_view utf8, std::size_t columns);  // never splits a letter

enum class Align { left, right };
std::string padded(std::string_view utf8, std::size_t columns, Align align);

}  // namespace laconic
