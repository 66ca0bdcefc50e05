// config/model_section.hpp — what is trained: [model].
#pragma once

#include <cstdint>
#include <string>

#include "laconic/config/option.hpp"

namespace laconic {

struct ModelSection {
  ModelKind kind = ModelKind::gpt;
  std::int64_t layers = 6;
  std::int64_t width = 384;
  std::int64_t heads = 6;
  std::int64_t context = 128;
  std::int64_t vocabulary = 0;
  double dropout = 0.0;
  bool dropout_by_sample = false;
  bool recompute = false;
  std::string start = "";

  template <class V>
  void visit(V& v) {
    v("kind", kind, "architecture", kModelKindNames);
    v("layers", layers, "Transformer layers");
    v("width", width, "of the residual stream");
    v("heads", heads, "attention heads; must divide width");
    v("context", context, "tokens per sample, and the longest position");
    v("vocabulary", vocabulary, "token ids; 0: the tokeniser's size, from the data");
    v("dropout", dropout, "after embedding, attention and each residual branch");
    v("dropout_by_sample", dropout_by_sample,
      "a sample's masks are the same in every epoch, so that its activations change less");
    v("recompute", recompute, "keep only block inputs and run forward again in backward");
    v("start", start, "begin from these weights: a Hugging Face GPT-2 folder or a checkpoint");
  }
};

}  // namespace laconic
