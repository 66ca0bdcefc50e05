#include "laconic/data/encode_batch.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

namespace laconic {

namespace {
constexpr std::size_t kPartBytes = std::size_t{256} << 10;
}

EncodeBatch::EncodeBatch(const Tokeniser& tokeniser, int threads)
    : tokeniser_(tokeniser),
      threads_(threads > 0 ? static_cast<std::size_t>(threads)
                           : std::max(1u, std::thread::hardware_concurrency())) {}

std::string_view EncodeBatch::add(const Document& document, int target) {
  std::string_view rest = document.text;
  while (!rest.empty() && !is_full()) {
    const std::size_t cut = tokeniser_.next_cut(rest, std::min(kPartBytes, rest.size()));
    parts_.push_back({document, rest.substr(0, cut), target, cut == rest.size(), {}});
    rest.remove_prefix(cut);
    bytes_ += cut;
  }
  return rest;
}

std::span<const EncodedPart> EncodeBatch::encode() {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < parts_.size();)
      tokeniser_.encode(parts_[i].text, parts_[i].tokens);
  };
  // A future hands on an exception, and waits in its destructor if another is on its way.
  std::vector<std::future<void>> helpers;
  const std::size_t useful = std::min(threads_, std::max<std::size_t>(1, bytes_ / kPartBytes));
  for (std::size_t t = 1; t < useful; ++t) helpers.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& helper : helpers) helper.get();
  return parts_;
}

void EncodeBatch::clear() {
  parts_.clear();
  bytes_ = 0;
}

}  // namespace laconic
