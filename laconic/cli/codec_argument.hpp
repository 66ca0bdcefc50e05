// cli/codec_argument.hpp — the words of `laconic codec ...`, used by cli/arguments.cpp only.
#pragma once

#include "laconic/cli/codec_command.hpp"

namespace CLI {
class App;
}

namespace laconic {

void add_words(CLI::App& verb, CodecListCommand& command);
void add_words(CLI::App& verb, CodecShowCommand& command);
void add_words(CLI::App& verb, CodecEncodeCommand& command);
void add_words(CLI::App& verb, CodecInspectCommand& command);
void add_words(CLI::App& verb, CodecDecodeCommand& command);
void add_words(CLI::App& verb, CodecBenchCommand& command);

}  // namespace laconic
