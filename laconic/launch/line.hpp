// launch/line.hpp — the output of many ranks as one text, line by line.
//
// Ranks write when they like and pipes deliver in pieces; what goes on is whole
// lines, so that two ranks never share one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace laconic {

// Puts pieces together and cuts them into lines. Who writes very long ones without an end gets
// them cut, so that a broken rank cannot fill our memory.
class LineCutter {
 public:
  static constexpr std::size_t kLongest = 16 << 20;  // an answer of `predict` is one line

  std::vector<std::string> take(std::string_view bytes);  // whole lines, without their ends
  // What is left when no more comes; empty: nothing.
  std::string take_rest();

 private:
  std::string rest_;
};

// "[3] ", in a colour of its own for each rank where there are colours.
std::string line_prefix(int rank, bool has_colour);

}  // namespace laconic
