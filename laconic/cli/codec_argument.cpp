#include "laconic/cli/codec_argument.hpp"

#include <CLI/CLI.hpp>

namespace laconic {

namespace {

constexpr const char* kSpecHelp =
    "a codec and its options: quantise:bits=4,block=64; `laconic codec list` has them all";

void add_output(CLI::App& verb, std::string& output, bool& overwrite, const char* help) {
  verb.add_option("-o,--output", output, help)->required()->type_name("FILE");
  verb.add_flag("--overwrite", overwrite, "replace an older file of that name");
}

void add_json(CLI::App& verb, std::string& json) {
  verb.add_option("--json", json, "also write it to FILE")->type_name("FILE");
}

}  // namespace

void add_words(CLI::App&, CodecListCommand&) {}

void add_words(CLI::App& verb, CodecShowCommand& command) {
  verb.add_option("SPEC", command.codec, kSpecHelp)->required();
  verb.add_option("--shape", command.shape, "of the tensor, with commas")
      ->delimiter(',')
      ->capture_default_str();
  verb.add_option("--dtype", command.dtype, "of the tensor")
      ->check(
          CLI::IsMember({"f32", "f16", "bf16", "f64", "i64", "i32", "i16", "i8", "u8", "boolean"}))
      ->capture_default_str();
  add_json(verb, command.json);
}

void add_words(CLI::App& verb, CodecEncodeCommand& command) {
  verb.add_option("SPEC", command.codec, kSpecHelp)->required();
  verb.add_option("FILE", command.input, "a safetensors file")->required();
  verb.add_option("--tensor", command.tensors, "only this one (may be repeated); default: all")
      ->allow_extra_args(false)
      ->type_name("NAME");
  add_output(verb, command.output, command.overwrite, "where the frames go, one for each tensor");
  verb.add_option("--seed", command.seed, "of codecs that draw; tensor i gets SEED + i")
      ->capture_default_str()
      ->type_name("SEED");
}

void add_words(CLI::App& verb, CodecInspectCommand& command) {
  verb.add_option("FILE", command.input, "frames, as `laconic codec encode` writes them")
      ->required();
  verb.add_flag("--brief", command.brief, "one line for each frame");
  add_json(verb, command.json);
}

void add_words(CLI::App& verb, CodecDecodeCommand& command) {
  verb.add_option("FILE", command.input, "frames, as `laconic codec encode` writes them")
      ->required();
  add_output(verb, command.output, command.overwrite, "the safetensors file to write");
  verb.add_option("--compare", command.original,
                  "say how far from this safetensors file the tensors are, and name them after it")
      ->type_name("ORIGINAL");
  add_json(verb, command.json);
}

void add_words(CLI::App& verb, CodecBenchCommand& command) {
  verb.add_option("SPEC", command.codecs, "codecs to measure; default: a list of usual ones");
  verb.add_option("--mebibytes", command.mebibytes, "of f32 that are encoded")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb.add_option("--columns", command.columns, "of the tensor, a matrix")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb.add_option("--rounds", command.rounds, "whose median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_json(verb, command.json);
}

}  // namespace laconic
