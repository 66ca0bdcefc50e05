#include <sentencepiece_processor.h>

#include <memory>

#include "laconic/data/sentencepiece_engine.hpp"

namespace laconic {
namespace {

class ProcessorEngine : public SentencePieceEngine {
 public:
  sentencepiece::SentencePieceProcessor processor;

  std::vector<int> encode(std::string_view text) const override {
    return processor.EncodeAsIds({text.data(), text.size()});
  }
  std::string decode(const std::vector<int>& ids) const override {
    return processor.DecodeIds(ids);
  }
  int size() const override { return processor.GetPieceSize(); }
  std::string piece(int id) const override { return processor.IdToPiece(id); }
  float score(int id) const override { return processor.GetScore(id); }
  bool is_control(int id) const override { return processor.IsControl(id); }
  bool is_unknown(int id) const override { return processor.IsUnknown(id); }
  bool is_byte(int id) const override { return processor.IsByte(id); }
  int pad() const override { return processor.pad_id(); }
  int bos() const override { return processor.bos_id(); }
  int eos() const override { return processor.eos_id(); }
  int unk() const override { return processor.unk_id(); }
};

}  // namespace
}  // namespace laconic

extern "C" {

extern const int laconic_plugin_interface;
const int laconic_plugin_interface = laconic::kSentencePieceInterface;

laconic::SentencePieceEngine* laconic_plugin_entry(std::string_view model, std::string& error) {
  auto engine = std::make_unique<laconic::ProcessorEngine>();
  const auto status = engine->processor.LoadFromSerializedProto({model.data(), model.size()});
  if (status.ok() && engine->size() > 0) return engine.release();
  error = status.ToString();
  return nullptr;
}
}
