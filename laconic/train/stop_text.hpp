// train/stop_text.hpp — ends a text where a stop string begins.
//
// A text comes in pieces, and a stop string may lie across several. What could still become
// one is held back, so nothing that is handed on has to be taken back. No libtorch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace laconic {

class StopText {
 public:
  // Requires: no stop string is empty.
  explicit StopText(std::vector<std::string> stops);

  // Takes the next piece and returns what is certain now. After a stop string it returns nothing.
  std::string add(std::string_view piece);

  // What was held back, when no more is to come.
  std::string finish();

  bool is_stopped() const { return is_stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool is_stopped_ = false;
};

}  // namespace laconic
