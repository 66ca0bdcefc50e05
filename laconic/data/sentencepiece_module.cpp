#include <sentencepiece_processor.h>

#include <exception>
#include <memory>
#include <stdexcept>

#include "laconic/data/sentencepiece_engine.hpp"

namespace laconic {
namespace {

void require(const sentencepiece::util::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

// What an exception says, and empty when there is none. The library returns a status, and the
// protobuf inside throws.
template <class Act>
std::string complaint_of(const Act& act) {
  try {
    act();
    return {};
  } catch (const std::exception& error) {
    return *error.what() == '\0' ? "the library does not say why" : error.what();
  } catch (...) {
    return "the library does not say why";
  }
}

class ProcessorEngine final : public SentencePieceEngine {
 public:
  explicit ProcessorEngine(std::string_view model) {
    require(processor_.LoadFromSerializedProto({model.data(), model.size()}));
    facts_ = {.size = processor_.GetPieceSize(),
              .pad = processor_.pad_id(),
              .bos = processor_.bos_id(),
              .eos = processor_.eos_id(),
              .unk = processor_.unk_id()};
    if (facts_.size <= 0) throw std::runtime_error("it has no pieces");
  }

  SentencePieceFacts facts() const override { return facts_; }
  std::string encode(std::string_view text, std::vector<int>& ids) const override {
    return complaint_of([&] { require(processor_.Encode({text.data(), text.size()}, &ids)); });
  }
  std::string decode(const std::vector<int>& ids, std::string& text) const override {
    return complaint_of([&] { require(processor_.Decode(ids, &text)); });
  }
  std::string describe(int id, PieceFacts& piece) const override {
    return complaint_of([&] {
      piece = {.text = processor_.IdToPiece(id),
               .score = processor_.GetScore(id),
               .is_control = processor_.IsControl(id),
               .is_unknown = processor_.IsUnknown(id),
               .is_byte = processor_.IsByte(id)};
    });
  }

 private:
  sentencepiece::SentencePieceProcessor processor_;
  SentencePieceFacts facts_;
};

}  // namespace
}  // namespace laconic

extern "C" {

extern const int laconic_plugin_interface;
const int laconic_plugin_interface = laconic::kSentencePieceInterface;

laconic::SentencePieceEngine* laconic_plugin_entry(std::string_view model, std::string& error) {
  laconic::SentencePieceEngine* engine = nullptr;
  error = laconic::complaint_of([&] { engine = new laconic::ProcessorEngine(model); });
  return engine;
}
}
