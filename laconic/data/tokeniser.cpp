#include "laconic/data/tokeniser.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/data/bpe_file.hpp"
#include "laconic/data/sentencepiece.hpp"
#include "laconic/data/wordpiece.hpp"
#include "laconic/file/atomic_file.hpp"

namespace laconic {

std::string_view to_text(TokeniserKind kind) {
  switch (kind) {
    case TokeniserKind::bytes: return "bytes";
    case TokeniserKind::bpe: return "bpe";
    case TokeniserKind::wordpiece: return "wordpiece";
    case TokeniserKind::sentencepiece: return "sentencepiece";
  }
  return "";
}

void ByteTokens::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  const auto* first = reinterpret_cast<const unsigned char*>(text.data());
  out.insert(out.end(), first, first + text.size());
}

std::string ByteTokens::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens)
    if (token != kEnd) text += static_cast<char>(token);
  return text;
}

struct Tokeniser::State {
  TokeniserForm form;
  SpecialTokens special;
  std::vector<TokeniserFile> files;
};

Tokeniser::Tokeniser() {
  static const auto bytes = std::make_shared<const State>(
      State{std::make_shared<const ByteTokens>(), {.eos = ByteTokens::kEnd}, {}});
  state_ = bytes;
}

Tokeniser::Tokeniser(BpeVocabulary vocabulary) {
  const SpecialTokens special{.bos = vocabulary.end_of_text, .eos = vocabulary.end_of_text};
  state_ = std::make_shared<const State>(
      State{std::make_shared<const Bpe>(std::move(vocabulary)), special, {}});
}

Tokeniser::Tokeniser(TokeniserForm form, const SpecialTokens& special,
                     std::vector<TokeniserFile> files)
    : state_(std::make_shared<const State>(State{std::move(form), special, std::move(files)})) {
  LACONIC_ASSERT(end_of_document() >= 0, to_text(kind()).data());
}

TokeniserKind Tokeniser::kind() const {
  return static_cast<TokeniserKind>(state_->form.index());
}

bool Tokeniser::is_lossless() const {
  const auto* bpe = std::get_if<std::shared_ptr<const Bpe>>(&state_->form);
  return bpe ? !(*bpe)->rules().nfc : kind() == TokeniserKind::bytes;
}

std::int32_t Tokeniser::vocabulary_size() const {
  return std::visit([](const auto& form) { return form->size(); }, state_->form);
}

const SpecialTokens& Tokeniser::special() const {
  return state_->special;
}

std::int32_t Tokeniser::end_of_document() const {
  return state_->special.eos >= 0 ? state_->special.eos : state_->special.sep;
}

void Tokeniser::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  std::visit([&](const auto& form) { form->encode(text, out); }, state_->form);
}

std::vector<std::int32_t> Tokeniser::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  encode(text, tokens);
  return tokens;
}

void Tokeniser::check_ids(std::span<const std::int32_t> tokens) const {
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= vocabulary_size())
      throw ConfigError(
          fmt::format("token {} is outside the vocabulary of {}; is this the tokeniser "
                      "the data was prepared with?",
                      token, vocabulary_size()));
}

std::string Tokeniser::decode(std::span<const std::int32_t> tokens) const {
  check_ids(tokens);
  return std::visit([&](const auto& form) { return form->decode(tokens); }, state_->form);
}

std::string Tokeniser::text_behind(std::int32_t token) const {
  check_ids({&token, 1});
  return std::visit([&](const auto& form) { return form->text_behind(token); }, state_->form);
}

std::size_t Tokeniser::next_cut(std::string_view text, std::size_t from) const {
  switch (kind()) {
    case TokeniserKind::bytes:
    case TokeniserKind::wordpiece:  // blanks end words
      return laconic::next_cut(text, from, SafeCut::before_newline);
    case TokeniserKind::bpe: {
      const auto& bpe = *std::get<std::shared_ptr<const Bpe>>(state_->form);
      return laconic::next_cut(text, from, bpe.safe_cut());
    }
    case TokeniserKind::sentencepiece: break;
  }
  return text.size();
}

void Tokeniser::save(const std::string& folder) const {
  std::filesystem::create_directories(folder);
  for (const TokeniserFile& file : state_->files)
    write_atomically(folder + "/" + file.name, file.bytes);
  if (state_->files.empty() && kind() == TokeniserKind::bpe)
    write_bpe(std::get<std::shared_ptr<const Bpe>>(state_->form)->vocabulary(), folder);
  write_atomically(folder + kTokeniserMarker,
                   fmt::format("{{\"kind\": \"{}\"}}\n", to_text(kind())));
}

}  // namespace laconic
