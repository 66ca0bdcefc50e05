#include "laconic/cli/example.hpp"

#include <utility>

namespace laconic {

namespace {

constexpr std::string_view kProgram = R"(Examples:
  laconic prepare book.txt --out data/book --train-bpe 4096 --valid 0.05
  laconic train examples/quickstart/quickstart.toml --set train.steps=200
  laconic train examples/quickstart/quickstart.toml --resume auto
  laconic train mine.toml --set mesh.dp=4 --ranks 4 --max-restarts 3
  laconic generate runs/quickstart/slow-network --prompt "The harbour" --temperature 0.8
  laconic evaluate runs/quickstart/slow-network --data runs/quickstart/data/pellhaven-valid
  laconic compare runs/quickstart/exact runs/quickstart/slow-network --svg loss.svg
  laconic doctor
`laconic help VERB` has more of each.

Exit status: 0 done, 1 failed, 2 refused (a bad request or input file), 3 another rank was lost,
128 + signal when interrupted after saving.)";

// Verbs and lines behind "Examples:", each of which begins with "laconic VERB".
constexpr std::pair<std::string_view, std::string_view> kOfVerbs[] = {
    {"train", R"(
  laconic train mine.toml
  laconic train mine.toml --set train.steps=200 --set run.folder=runs/short
  laconic train mine.toml --resume auto          the line to put into a job script
  laconic train mine.toml --set run.folder=runs/b --resume runs/a
  laconic train mine.toml --set mesh.dp=4 --max-restarts 3)"},
    {"prepare", R"(
  laconic prepare book.txt --out data/book
  laconic prepare books/ --out data/books --train-bpe 8192 --valid 0.02
  laconic prepare news.jsonl --out data/news --text-key body --tokeniser data/books.tokeniser
  laconic prepare train.tsv --task classify --layout sst-2 --validation dev.tsv --tokeniser bert --out data/sst2
  laconic prepare --task translate --source train.en --target train.de --tokeniser t5 --out data/en-de)"},
    {"generate", R"(
  laconic generate runs/mine --prompt "The harbour" --tokens 80
  laconic generate runs/mine --prompt "The harbour" --temperature 0.8 --top-p 0.9 --seed 7
  laconic generate runs/mine --prompt-ids 5,17,3 --greedy --show-ids)"},
    {"evaluate", R"(
  laconic evaluate runs/mine --data data/book-valid
  laconic evaluate runs/mine/checkpoints/step-00000500 --data data/book-valid --json loss.json)"},
    {"predict", R"(
  laconic predict runs/sst2 --input questions.jsonl
  echo '{"text": "a gripping film"}' | laconic predict runs/sst2 --input -
  laconic predict runs/en-de --input english.jsonl --beam 5 --json german.jsonl)"},
    {"export", R"(
  laconic export runs/mine exported
  laconic export runs/mine exported --dtype bfloat16 --shard-bytes 2000000000)"},
    {"config", R"(
  laconic config check mine.toml
  laconic config show mine.toml --set train.steps=200)"},
    {"config check", R"(
  laconic config check mine.toml
  laconic config check mine.toml --set mesh.pp=4 --no-data)"},
    {"config show", R"(
  laconic config show                            every key with its default and its meaning
  laconic config show mine.toml --set train.steps=200 > whole.toml)"},
    {"codec", R"(
  laconic codec list
  laconic codec show quantise:bits=4,block=64)"},
    {"codec list", R"(
  laconic codec list)"},
    {"codec show", R"(
  laconic codec show quantise:bits=4,block=64
  laconic codec show top_k:keep=0.01+half --shape 1024,1024)"},
    {"codec encode", R"(
  laconic codec encode quantise:bits=4,block=64 model.safetensors -o model.frames
  laconic codec encode sign model.safetensors --tensor wte.weight -o one.frames)"},
    {"codec inspect", R"(
  laconic codec inspect model.frames --brief)"},
    {"codec decode", R"(
  laconic codec decode model.frames -o back.safetensors --compare model.safetensors)"},
    {"codec bench", R"(
  laconic codec bench
  laconic codec bench quantise:bits=4,block=64 sign --mebibytes 16)"},
    {"lab", R"(
  sudo laconic lab up --hosts 4 --rate 20mbit
  sudo laconic lab run -- laconic train mine.toml --set mesh.dp=4
  sudo laconic lab down)"},
    {"lab up", R"(
  sudo laconic lab up --hosts 4 --rate 20mbit)"},
    {"lab run", R"(
  sudo laconic lab run -- laconic train mine.toml --set mesh.dp=4
  sudo laconic lab run --hosts 4 --rate 20mbit -- laconic train mine.toml --set mesh.dp=4)"},
    {"lab rate", R"(
  sudo laconic lab rate 100mbit)"},
    {"lab status", R"(
  sudo laconic lab status
  sudo laconic lab status --json -)"},
    {"lab down", R"(
  sudo laconic lab down)"},
    {"study", R"(
  laconic study examples/study/study.toml
  laconic study studies/mp-compression.toml --list
  laconic study studies/mp-compression.toml --only part=sites --only compressor=A1,none)"},
    {"lab report", R"(
  sudo laconic lab report --list
  sudo laconic lab report --size short --out results/mine)"},
    {"schedule", R"(
  laconic schedule 1f1b --ranks 4 --microbatches 8
  laconic schedule --compare --activation 0.3 --when critical
  laconic schedule zero_bubble --text > mine.schedule)"},
    {"simulate", R"(
  laconic simulate mine.toml --hosts preset:two-sites
  laconic simulate mine.toml --hosts mine-hosts.toml --set mesh.dp=8 --gantt
  laconic simulate mine.toml --hosts preset:home-fibre --straggler 3=1.5 --json step.json)"},
    {"layout", R"(
  laconic layout preset:gpt2 --tp 2,2,2 --batch 8 --set model.vocabulary=50257
  laconic layout mine.toml --tp 4 --method 2d --svg layout.svg)"},
    {"measure", R"(
  laconic measure mine.toml --set mesh.dp=4 -o hosts.toml
  laconic measure mine.toml --families llama,lstm
  sudo laconic lab run -- laconic measure mine.toml --set mesh.dp=4)"},
    {"plan", R"(
  laconic plan preset:gpt2 --set model.vocabulary=50257 --hosts home-fibre
  laconic plan mine.toml --hosts two-sites --loss-budget 0.3% -o best.toml)"},
    {"compare", R"(
  laconic compare runs/exact runs/four-bits
  laconic compare runs/exact runs/four-bits --by steps --svg loss.svg)"},
    {"doctor", R"(
  laconic doctor
  laconic doctor --threads 1 --json doctor.json)"},
};

}  // namespace

std::string examples_of(std::string_view verb) {
  if (verb.empty()) return std::string(kProgram);
  for (const auto& [name, lines] : kOfVerbs)
    if (name == verb) return "Examples:" + std::string(lines);
  return "";
}

}  // namespace laconic
