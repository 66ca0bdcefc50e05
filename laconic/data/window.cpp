#include "laconic/data/window.hpp"

#include <fmt/format.h>

#include <utility>

#include "laconic/base/error.hpp"

namespace laconic {

void check_vocabulary(const IndexedDataset& tokens, std::int64_t vocabulary) {
  const auto [least, greatest] = tokens.extent();
  if (least >= 0 && greatest < vocabulary) return;
  throw FileError(tokens.prefix() + ".bin", "tokens",
                  fmt::format("they range from {} to {}, but the model's vocabulary is {}", least,
                              greatest, vocabulary),
                  fmt::format("set the model's vocabulary to at least {}, or prepare the data with "
                              "the model's tokeniser",
                              greatest + 1));
}

std::uint64_t sample_count(std::uint64_t tokens, std::uint64_t window) {
  return tokens == 0 ? 0 : (tokens - 1) / window;
}

std::uint64_t sample_count(std::uint64_t tokens, std::uint64_t window, std::uint64_t stride) {
  return tokens <= window ? 0 : (tokens - 1 - window) / stride + 1;
}

WindowedDataset::WindowedDataset(std::shared_ptr<const IndexedDataset> tokens, std::uint64_t window,
                                 std::int64_t vocabulary, std::uint64_t stride, bool has_prompts,
                                 const TokenSet& set)
    : tokens_(std::move(tokens)),
      window_(window),
      stride_(stride > 0 ? stride : window),
      has_prompts_(has_prompts),
      set_(set) {
  if (window == 0) throw ConfigError("the window is 0 tokens long; the least is 1");
  if (stride_ > window)
    throw ConfigError(
        fmt::format("a stride of {} tokens would leave out some between windows of {}; the most "
                    "is {}",
                    stride_, window, window));
  samples_ = sample_count(tokens_->tokens(), window, stride_);
  if (samples_ == 0)
    throw ConfigError(fmt::format("{} has {} tokens, but one sample of {} tokens needs {}",
                                  tokens_->prefix(), tokens_->tokens(), window, window + 1));
  check_vocabulary(*tokens_, vocabulary);
}

void WindowedDataset::read(std::uint64_t sample, std::span<std::int64_t> out) const {
  LACONIC_ASSERT(
      sample < samples_ && out.size() == window_ + 1,
      fmt::format("sample {} of {}, {} tokens of {}", sample, samples_, out.size(), window_ + 1));
  tokens_->read(sample * stride_, out);
}

void WindowedDataset::find_completions(std::uint64_t sample, std::span<bool> out) const {
  LACONIC_ASSERT(has_prompts_ && sample < samples_ && out.size() == window_ + 1,
                 fmt::format("sample {} of {}, {} tokens", sample, samples_, out.size()));
  tokens_->index().find_completions(sample * stride_, out);
}

}  // namespace laconic
