// config/option.hpp — the values of keys that have a fixed set of them, each set with its names.
//
// Enums that mean something outside of the configuration too live where they are used: Dtype in
// base, When in schedule, Reference in link. What "auto" comes to is decided elsewhere.
#pragma once

#include <cstdint>

#include "laconic/base/dtype.hpp"
#include "laconic/base/named.hpp"
#include "laconic/link/link_spec.hpp"
#include "laconic/schedule/when.hpp"

namespace laconic {

// A mark in visit(): the text may also be written as a whole number or as a list of them, [2, 3]
// for "2,3".
struct AlsoAsList {};

// run.precision
enum class RunPrecision : std::uint8_t { float32, tf32, bfloat16, float64 };
inline constexpr auto kRunPrecisionNames =
    std::to_array<Named<RunPrecision>>({{RunPrecision::float32, "float32"},
                                        {RunPrecision::tf32, "tf32"},
                                        {RunPrecision::bfloat16, "bfloat16"},
                                        {RunPrecision::float64, "float64"}});

// model.kind
enum class ModelKind : std::uint8_t { gpt, llama, bert, seq2seq, lstm, gnmt };
inline constexpr auto kModelKindNames =
    std::to_array<Named<ModelKind>>({{ModelKind::gpt, "gpt"},
                                     {ModelKind::llama, "llama"},
                                     {ModelKind::bert, "bert"},
                                     {ModelKind::seq2seq, "seq2seq"},
                                     {ModelKind::lstm, "lstm"},
                                     {ModelKind::gnmt, "gnmt"}});

// task.masks: what the draws of masks depend on
enum class MaskDraws : std::uint8_t { epoch, sample };
inline constexpr auto kMaskDrawsNames =
    std::to_array<Named<MaskDraws>>({{MaskDraws::epoch, "epoch"}, {MaskDraws::sample, "sample"}});

// task.negatives: who has the same
enum class NegativesOf : std::uint8_t { shared, rank };
inline constexpr auto kNegativesOfNames = std::to_array<Named<NegativesOf>>(
    {{NegativesOf::shared, "shared"}, {NegativesOf::rank, "rank"}});

// task.pad: where the samples of a microbatch end
enum class Padding : std::uint8_t { context, longest };
inline constexpr auto kPaddingNames =
    std::to_array<Named<Padding>>({{Padding::context, "context"}, {Padding::longest, "longest"}});

// train.non_finite
enum class NonFinite : std::uint8_t { stop, skip };
inline constexpr auto kNonFiniteNames =
    std::to_array<Named<NonFinite>>({{NonFinite::stop, "stop"}, {NonFinite::skip, "skip"}});

// train.update
enum class UpdateBy : std::uint8_t { step, block };
inline constexpr auto kUpdateByNames =
    std::to_array<Named<UpdateBy>>({{UpdateBy::step, "step"}, {UpdateBy::block, "block"}});

// optimiser.kind
enum class OptimiserKind : std::uint8_t { adamw, adam, sgd, lion, muon };
inline constexpr auto kOptimiserKindNames =
    std::to_array<Named<OptimiserKind>>({{OptimiserKind::adamw, "adamw"},
                                         {OptimiserKind::adam, "adam"},
                                         {OptimiserKind::sgd, "sgd"},
                                         {OptimiserKind::lion, "lion"},
                                         {OptimiserKind::muon, "muon"}});

// optimiser.muon_scale: how the rate of a matrix depends on its shape
enum class MuonScale : std::uint8_t { match_adamw, original };
inline constexpr auto kMuonScaleNames = std::to_array<Named<MuonScale>>(
    {{MuonScale::match_adamw, "match_adamw"}, {MuonScale::original, "original"}});

// optimiser.schedule
enum class LearningRateShape : std::uint8_t { cosine, linear, constant, wsd };
inline constexpr auto kLearningRateShapeNames =
    std::to_array<Named<LearningRateShape>>({{LearningRateShape::cosine, "cosine"},
                                             {LearningRateShape::linear, "linear"},
                                             {LearningRateShape::constant, "constant"},
                                             {LearningRateShape::wsd, "wsd"}});

// optimiser.decay: how the rate falls at the end of a wsd schedule
enum class DecayShape : std::uint8_t { linear, cosine, one_minus_sqrt };
inline constexpr auto kDecayShapeNames =
    std::to_array<Named<DecayShape>>({{DecayShape::linear, "linear"},
                                      {DecayShape::cosine, "cosine"},
                                      {DecayShape::one_minus_sqrt, "1-sqrt"}});

// embedding.rows.method
enum class RowsMethod : std::uint8_t { automatic, allreduce, allgather, alltoall, server };
inline constexpr auto kRowsMethodNames =
    std::to_array<Named<RowsMethod>>({{RowsMethod::allreduce, "allreduce"},
                                      {RowsMethod::alltoall, "alltoall"},
                                      {RowsMethod::allgather, "allgather"},
                                      {RowsMethod::server, "server"},
                                      {RowsMethod::automatic, "auto"}});

// embedding.rows.optimiser
enum class RowsOptimiser : std::uint8_t { same, sgd, adagrad, lazy_adam };
inline constexpr auto kRowsOptimiserNames =
    std::to_array<Named<RowsOptimiser>>({{RowsOptimiser::same, "same"},
                                         {RowsOptimiser::sgd, "sgd"},
                                         {RowsOptimiser::adagrad, "adagrad"},
                                         {RowsOptimiser::lazy_adam, "lazy_adam"}});

// embedding.rows.clip
enum class RowsClip : std::uint8_t { all, dense };
inline constexpr auto kRowsClipNames =
    std::to_array<Named<RowsClip>>({{RowsClip::all, "all"}, {RowsClip::dense, "dense"}});

// embedding.rows.split
enum class RowsSplit : std::uint8_t { automatic, on, off };
inline constexpr auto kRowsSplitNames = std::to_array<Named<RowsSplit>>(
    {{RowsSplit::automatic, "auto"}, {RowsSplit::on, "on"}, {RowsSplit::off, "off"}});

// tensor.table
enum class TableChoice : std::uint8_t { automatic, split, gathered };
inline constexpr auto kTableChoiceNames =
    std::to_array<Named<TableChoice>>({{TableChoice::automatic, "auto"},
                                       {TableChoice::split, "split"},
                                       {TableChoice::gathered, "gathered"}});

// pp.activation.memory, pp.gradient.memory
enum class LinkMemory : std::uint8_t { none, feedback, delta };
inline constexpr auto kLinkMemoryNames = std::to_array<Named<LinkMemory>>(
    {{LinkMemory::none, "none"}, {LinkMemory::feedback, "feedback"}, {LinkMemory::delta, "delta"}});
// Feedback of activations is named after what is wrong with it: what was lost of one sample goes
// into another that comes to its place.
inline constexpr auto kActivationMemoryNames =
    std::to_array<Named<LinkMemory>>({{LinkMemory::none, "none"},
                                      {LinkMemory::delta, "delta"},
                                      {LinkMemory::feedback, "slot_feedback"}});

// pp.gradient.when
inline constexpr auto kGradientWhenNames =
    rows_of(kWhenNames, {When::always, When::epilogue, When::critical});

// local.method: what becomes of the changes that ranks make alone
enum class LocalMethod : std::uint8_t { diloco, streaming_diloco, linear, sparse_loco };
inline constexpr auto kLocalMethodNames =
    std::to_array<Named<LocalMethod>>({{LocalMethod::diloco, "diloco"},
                                       {LocalMethod::streaming_diloco, "streaming_diloco"},
                                       {LocalMethod::linear, "linear"},
                                       {LocalMethod::sparse_loco, "sparse_loco"}});

// local.aggregate: by how many the sum of what ranks have sent of an element is divided
enum class ChangeAggregate : std::uint8_t { mean, choosers };
inline constexpr auto kChangeAggregateNames = std::to_array<Named<ChangeAggregate>>(
    {{ChangeAggregate::mean, "mean"}, {ChangeAggregate::choosers, "choosers"}});

// dp.gradient.method
enum class GradientMethod : std::uint8_t { codec, power_sgd, compressed_adam };
inline constexpr auto kGradientMethodNames =
    std::to_array<Named<GradientMethod>>({{GradientMethod::codec, "codec"},
                                          {GradientMethod::power_sgd, "power_sgd"},
                                          {GradientMethod::compressed_adam, "compressed_adam"}});
inline constexpr auto kTiedMethodNames = std::to_array<Named<GradientMethod>>(
    {{GradientMethod::codec, "codec"}, {GradientMethod::power_sgd, "power_sgd"}});

// dp.gradient.feedback: whose residuals are kept
enum class FeedbackOf : std::uint8_t { both, up, none };
inline constexpr auto kFeedbackOfNames = std::to_array<Named<FeedbackOf>>(
    {{FeedbackOf::both, "both"}, {FeedbackOf::up, "up"}, {FeedbackOf::none, "none"}});

// dp.gradient.algorithm
enum class AllReduceKind : std::uint8_t { automatic, direct, ring, doubling, native };
inline constexpr auto kAllReduceKindNames =
    std::to_array<Named<AllReduceKind>>({{AllReduceKind::automatic, "auto"},
                                         {AllReduceKind::direct, "direct"},
                                         {AllReduceKind::ring, "ring"},
                                         {AllReduceKind::doubling, "doubling"},
                                         {AllReduceKind::native, "native"}});

// tp.*.sum: how encoded partial sums become one. two_step: whoever has a part of the sum adds what
// comes, and encodes it once more; gathered: all get what each has encoded once, and add it
enum class SumForm : std::uint8_t { two_step, gathered };
inline constexpr auto kSumFormNames = std::to_array<Named<SumForm>>(
    {{SumForm::two_step, "two-step"}, {SumForm::gathered, "gathered"}});

// tp.activation.start: what the maps of learned codes begin as
enum class CodeBegin : std::uint8_t { orthogonal, pca, noise };
inline constexpr auto kCodeBeginNames = std::to_array<Named<CodeBegin>>(
    {{CodeBegin::orthogonal, "orthogonal"}, {CodeBegin::pca, "pca"}, {CodeBegin::noise, "noise"}});

// steering.bypass
enum class BypassMode : std::uint8_t { never, automatic };
inline constexpr auto kBypassModeNames = std::to_array<Named<BypassMode>>(
    {{BypassMode::never, "never"}, {BypassMode::automatic, "auto"}});

// steering.guard
enum class GuardMode : std::uint8_t { off, watch, fallback };
inline constexpr auto kGuardModeNames = std::to_array<Named<GuardMode>>(
    {{GuardMode::off, "off"}, {GuardMode::watch, "watch"}, {GuardMode::fallback, "fallback"}});

}  // namespace laconic
