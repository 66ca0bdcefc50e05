#!/bin/sh
# The data of studies/pretraining.toml, and the models that it begins with:
#
#     pretraining.sh data LACONIC DATA WORK              SST-2, QNLI, MRPC, STS-B, WikiText-2 and the PTB as records and tokens
#     pretraining.sh bert SIZE CODEC LACONIC DATA WORK   a BERT, SIZE dry or 30m, CODEC whole, A2 or Q2
#     pretraining.sh gpt SIZE CODEC LACONIC DATA WORK    a GPT
#
# A model is WORK/KIND-SIZE-CODEC, beside it its log and recipe, and WORK/KIND-SIZE-CODEC.sha256, the digest of its weights.
set -eu

data() {
  laconic=$1 data=$2 work=$3
  mkdir -p "$work/bert"
  xz -dc "$data/bert-vocab/bert-base-uncased-vocab.txt.xz" > "$work/bert/vocab.txt"
  records() {  # name task train validation
    "$laconic" prepare "$3" --task "$2" --layout "$1" --validation "$4" --tokeniser "$work/bert" --overwrite --out "$work/$1"
  }
  records sst-2 classify "$data/sst-2/train.tsv.xz" "$data/sst-2/dev.tsv.xz"
  records mrpc classify "$data/mrpc/msr_paraphrase_train.txt.xz" "$data/mrpc/msr_paraphrase_test.txt.xz"
  records sts-b regress "$data/sts-b/sts-train.csv.xz" "$data/sts-b/sts-dev.csv.xz"
  xz -dc "$data/qnli/dev.tsv.xz" > "$work/qnli-dev.tsv"
  head -n 4464 "$work/qnli-dev.tsv" > "$work/qnli-first.tsv"
  (head -n 1 "$work/qnli-dev.tsv"; tail -n 1000 "$work/qnli-dev.tsv") > "$work/qnli-last.tsv"
  records qnli classify "$work/qnli-first.tsv" "$work/qnli-last.tsv"
  # A sentence a line, a blank line between documents, as BERT reads them.
  for half in train valid; do
    xz -dc "$data/wikitext-2/$half.txt.xz" > "$work/wikitext-$half.txt"
    sed 's/^ *//; s/ \([.?!]\) /\1\n/g' "$work/wikitext-$half.txt" > "$work/sentences-$half.txt"
  done
  "$laconic" prepare "$work/sentences-train.txt" --task masked --validation "$work/sentences-valid.txt" --tokeniser "$work/bert" \
    --overwrite --out "$work/sentences"
  "$laconic" prepare "$work/wikitext-train.txt" --overwrite --out "$work/wikitext" --train-bpe 8192
  "$laconic" prepare "$work/wikitext-valid.txt" --overwrite --out "$work/wikitext-valid" --tokeniser "$work/wikitext.tokeniser"
  xz -dc "$data/ptb/ptb.train.txt.xz" > "$work/ptb.txt"
  "$laconic" prepare "$work/ptb.txt" --valid 0.05 --overwrite --out "$work/ptb" --tokeniser "$work/wikitext.tokeniser"
  touch "$work/data.done"
}

# The same messages as the study's settings of these names.
codec_words() {
  both() { echo "--set tp.activation.codec=$1 --set pp.activation.codec=$1"; }
  case $1 in
    whole) ;;
    A2) both "auto_encoder:code=$2,values=f16"; echo "--set tp.activation.start=pca --set pp.activation.start=pca --set pp.gradient.codec=half:kind=f16" ;;
    Q2) both quantise:bits=4,block=64 ;;
  esac
}

pretrain() {
  kind=$1 size=$2 codec=$3 laconic=$4 work=$6
  out=$work/$kind-$size-$codec
  case $size in
    dry) shape="--set model.layers=4 --set model.width=128 --set model.heads=4 --set pipeline.split=2,2" code=13 steps=600 device="--set run.threads=1" ;;
    30m) shape="--set model.layers=10 --set model.width=384 --set model.heads=6 --set pipeline.split=5,5" code=38 steps=40000 device="--set run.device=cuda --set network.transport=in_process" ;;
  esac
  case $kind in
    bert) task="--set model.kind=bert --set task.kind=masked --set data.train=$work/sentences --set data.valid=$work/sentences-valid" ;;
    gpt) task="--set data.train=$work/wikitext --set data.valid=$work/wikitext-valid" ;;
  esac
  : > "$work/empty.toml"  # every key is said here
  # shellcheck disable=SC2086
  "$laconic" train "$work/empty.toml" --ranks 4 $task $shape $device $(codec_words "$codec" "$code") --set model.context=128 --set mesh.tp=2 --set mesh.pp=2 \
    --set tensor.method=1d --set "tp.activation.layers=last half" --set "pp.activation.boundaries=last half" \
    --set "pp.gradient.boundaries=last half" --set evaluate.encoded=true --set train.steps=$steps --set train.batch=64 \
    --set train.microbatch=64 --set optimiser.lr=5e-4 --set optimiser.min_lr=5e-5 --set optimiser.schedule=linear \
    --set optimiser.warmup=0.05 --set optimiser.weight_decay=0.01 --set evaluate.every=$((steps / 10)) --set evaluate.samples=1024 \
    --set report.tensorboard=false --set run.seed=1 --set run.folder="$out"
  (cd "$out" && ln -sfn "checkpoints/$(ls checkpoints | tail -n 1)" last && sha256sum last/*.safetensors) > "$out.part"
  mv "$out.part" "$out.sha256"  # that it is done
}

case $1 in
  data) shift; data "$@" ;;
  *) pretrain "$@" ;;
esac
