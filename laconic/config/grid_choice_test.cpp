#include "laconic/config/grid_choice.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "laconic/config/model_family.hpp"
#include "laconic/config/read.hpp"

namespace laconic {
namespace {

// 2 layers of width 48 with 4 heads, microbatches of 8, and these keys.
RunConfig with_grid(const std::vector<std::string>& sets) {
  RunConfig config;
  config.data.train = "data";
  config.model.layers = 2;
  config.model.width = 48;
  config.model.heads = 4;
  config.model.vocabulary = 50;
  config.train.batch = 8;
  for (const std::string& set : sets) EXPECT_EQ(to_text(apply_set(set, config)), "");
  return config;
}

struct GridCase {
  std::vector<std::string> sets;
  std::string problems;
};

void expect_problems(const std::vector<GridCase>& cases) {
  for (const GridCase& one : cases)
    EXPECT_EQ(to_text(check(with_grid(one.sets))), one.problems)
        << fmt::format("{}", fmt::join(one.sets, " "));
}

TEST(GridChoice, ANumberIsAGridAndAListIsItself) {
  EXPECT_EQ(mesh_of(with_grid({})), Mesh());
  EXPECT_EQ(mesh_of(with_grid({"mesh.tp=8"})).tp, (std::array{2, 2, 2}));
  EXPECT_EQ(mesh_of(with_grid({"mesh.tp=4", "tensor.method=1d"})).tp, (std::array{1, 4, 1}));
  EXPECT_EQ(mesh_of(with_grid({"mesh.tp=4", "tensor.method=2d"})).tp, (std::array{2, 2, 1}));
  for (const char* grid : {"mesh.tp=[2,1,4]", "mesh.tp=2,1,4", "mesh.tp=\"2, 1, 4\""})
    EXPECT_EQ(mesh_of(with_grid({grid})).tp, (std::array{2, 1, 4})) << grid;
  EXPECT_EQ(size(mesh_of(with_grid({"mesh.tp=[2,1,2]", "mesh.pp=2", "mesh.dp=2"}))), 16);
}

TEST(GridChoice, AFileMayHaveANumberAListOrAText) {
  for (const char* text : {"tp = 8", "tp = [8]", "tp = \"8\""}) {
    RunConfig config;
    EXPECT_EQ(to_text(apply_toml(fmt::format("[mesh]\n{}\n", text), "run.toml", config)), "");
    EXPECT_EQ(config.mesh.tp, "8") << text;
  }
  RunConfig config;
  EXPECT_EQ(to_text(apply_toml("[mesh]\ntp = 2.5\n", "run.toml", config)),
            "run.toml:2:6: mesh.tp must be a text in quotes, not 2.5");
}

TEST(GridChoice, AnOrderIsAPermutation) {
  EXPECT_EQ(mesh_of(with_grid({"mesh.tp=8", "mesh.order=[2,0,1]"})).order, (std::array{2, 0, 1}));
  expect_problems({{{"mesh.order=0,1"},
                    "mesh.order: order = \"0,1\" does not have each of 0, 1 and 2 once; or auto"},
                   {{"mesh.order=[0,1,1]", "mesh.tp=0"},
                    "mesh.order: order = \"0,1,1\" does not have each of 0, 1 and 2 once; or auto\n"
                    "mesh.tp: tp = \"0\": 0 is below 1"}});
}

TEST(GridChoice, WhatIsNoGridIsToldTheNearest) {
  expect_problems(
      {{{"mesh.tp=4"},
        "mesh.tp: tp = 4 is no grid of tensor.method = \"3d\": 8 is; or give the sizes of the "
        "axes, "
        "as [pi, pj, pl]"},
       {{"mesh.tp=20"},
        "mesh.tp: tp = 20 is no grid of tensor.method = \"3d\": 8 and 27 are; or give the sizes of "
        "the axes, as [pi, pj, pl]"},
       {{"mesh.tp=2,2"},
        "mesh.tp: tp = \"2,2\" has 2 numbers; a grid has 3 axes: [2, 2, 2], or write how many "
        "ranks "
        "it has"},
       {{"mesh.tp=two"}, "mesh.tp: tp = \"two\": 'two' is no whole number"},
       {{"mesh.tp=[4096,1,2]"}, "mesh.tp: tp = \"4096,1,2\" makes 8192 ranks; at most 4096"},
       {{"mesh.tp=[2,1,2]", "tensor.method=2d"},
        "mesh.tp: [2, 1, 2] with tensor.method = \"2d\": it needs a square, [q, q, 1]\n"
        "mesh.tp: grids of 4 ranks with tensor.method = \"2d\" that can: [2, 2, 1]"}});
}

TEST(GridChoice, GridsThatDivideEverythingAreFine) {
  for (const char* grid : {"2,2,2", "1,4,1", "4,1,1", "1,2,2", "2,4,1", "1,1,4", "2,1,2", "1,4,2"})
    expect_problems({{{fmt::format("mesh.tp={}", grid)}, ""}});
  expect_problems({{{"mesh.tp=4", "tensor.method=2d"}, ""},
                   {{"mesh.tp=8", "tensor.method=2.5d"}, ""},
                   {{"mesh.tp=4", "tensor.method=1d", "train.batch=3"}, ""},
                   {{"mesh.tp=8", "model.vocabulary=51"}, ""}});
}

// Whatever keeps a grid from cutting a model is said at once, and each kind of parameter once.
TEST(GridChoice, EverythingUndividedIsSaid) {
  expect_problems(
      {{{"mesh.tp=[1,4,2]", "model.heads=6", "train.batch=2"},
        "model.heads: heads = 6, which tp1 = 4 does not divide\n"
        "train.batch: a microbatch has 2 samples, and the rows of activations are cut in 4 (tp0 x "
        "tp1)\n"
        "mesh.tp: no grid of 8 ranks with tensor.method = \"3d\" can cut this model and its "
        "microbatches; the nearest that can: 4 ranks ([1, 2, 2])"},
       {{"mesh.tp=[1,4,2]", "model.heads=6", "train.microbatch=4"},
        "model.heads: heads = 6, which tp1 = 4 does not divide\n"
        "mesh.tp: grids of 8 ranks with tensor.method = \"3d\" that can: [1, 2, 4], [2, 2, 2]"},
       {{"mesh.tp=[2,2,2]", "model.width=36"},
        "wpe.weight: dim 1 has 36 elements, which tp2 x tp0 x tp1 = 8 does not divide\n"
        "h.*.attn.c_attn.bias: dim 1 has 36 elements, which tp1 x tp0 x tp2 = 8 does not divide\n"
        "mesh.tp: no grid of 8 ranks with tensor.method = \"3d\" can cut this model and its "
        "microbatches; the nearest that can: 4 ranks ([1, 2, 2])"}});
}

// Where nothing of so many ranks can, what else can: numbers of ranks on both sides, other methods.
TEST(GridChoice, WhereNoGridOfSoManyRanksCanOthersAreTold) {
  expect_problems(
      {{{"mesh.tp=[2,3,1]", "train.batch=4"},
        "model.heads: heads = 4, which tp1 = 3 does not divide\n"
        "train.batch: a microbatch has 4 samples, and the rows of activations are cut in 6 (tp0 x "
        "tp1)\n"
        "mesh.tp: no grid of 6 ranks with tensor.method = \"3d\" can cut this model and its "
        "microbatches; the nearest that can: 4 ranks ([2, 2, 1]), 8 ranks ([2, 2, 2])"},
       {{"mesh.tp=[4,1,1]", "train.batch=1"},
        "train.batch: a microbatch has 1 samples, and the rows of activations are cut in 4 (tp0 x "
        "tp1)\n"
        "train.batch: a microbatch has 1 samples, and the rows of activations are cut in 4 (tp0 x "
        "tp2)\n"
        "mesh.tp: no grid of 4 ranks with tensor.method = \"3d\" can cut this model and its "
        "microbatches; 4 ranks with another method: \"1d\" ([1, 4, 1])"}});
}

// A model that cannot be, and codecs, hide nothing of what is wrong with its grid.
TEST(GridChoice, NothingHidesWhatIsWrongWithAGrid) {
  const std::string text = to_text(check(
      with_grid({"mesh.tp=8", "mesh.pp=9", "model.heads=5", "tp.gradient.layers=9",
                 "tp.weight.codec=auto_encoder:code=4", "tp.activation.codec=auto_encoder:code=99",
                 "train.batch=6", "train.microbatch=6"})));
  for (const char* part :
       {"model.heads: heads = 5 does not divide width = 48",
        "model.heads: heads = 5, which tp1 = 2 does not divide", "mesh.pp: pp = 9",
        "tp.gradient.layers: ", "tp.weight.codec: auto_encoder's maps",
        "a code of 99 numbers for rows of 24", "train.microbatch: a microbatch has 6 samples"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  // What has no size cannot be counted with.
  for (const char* set : {"model.heads=0", "model.heads=49", "model.width=0", "mesh.pp=0"})
    EXPECT_EQ(to_text(check(with_grid({set, "mesh.tp=8", "train.batch=6"}))).find("tp0 x"),
              std::string::npos)
        << set;
}

TEST(GridChoice, MuonNeedsWholeMatrices) {
  expect_problems(
      {{{"mesh.tp=8", "optimiser.kind=muon"},
        "optimiser.kind: kind = \"muon\" with mesh.tp = [2, 2, 2]: it makes whole matrices "
        "orthogonal, and each rank has a part of them"},
       {{"optimiser.kind=muon"}, ""}});
}

// What a grid cannot be combined with, each alone and all at once.
TEST(GridChoice, WhatAGridCannotBeCombinedWithIsSaidAtOnce) {
  struct Row {
    std::vector<std::string> sets;
    std::vector<std::string> parts;
  };
  const std::vector<Row> rows = {
      {{"optimiser.kind=muon"}, {"optimiser.kind: kind = \"muon\" with mesh.tp = [2, 2, 2]"}},
      {{"train.update=block"}, {"train.update: ", "mesh.tp = 8: the ranks of a grid"}},
      {{"embedding.rows.method=alltoall"}, {"mesh.tp = 8: a grid cuts tables in its own way"}},
      {{"pipeline.schedule=auto"}, {"pipeline.schedule: auto with mesh.tp = \"8\""}},
      {{"local.steps=2", "local.method=streaming_diloco"},
       {"local.method: method = \"streaming_diloco\" with mesh.tp = \"8\""}},
      {{"tp.weight.codec=auto_encoder:code=4"}, {"tp.weight.codec: auto_encoder's maps"}},
      {{"tp.weight.gradient=transform"}, {"tp.weight.gradient: transform needs a basis"}},
      {{"tp.gradient.codec=nonsense"}, {"tp.gradient.codec: "}},
      {{"tp.activation.codec=auto_encoder:code=999"}, {"a code of 999 numbers for rows of 24"}},
      {{"tp.activation.masked=true"}, {"tp.activation.masked: "}},
      {{"tp.gradient.sum=gathered"},
       {"tp.gradient.sum: \"gathered\" with tensor.method = \"3d\": of a sum"}},
      {{"tp.gradient.layers=7"}, {"tp.gradient.layers: "}}};
  RunConfig all = with_grid({"mesh.tp=8"});
  std::vector<std::string> parts;
  for (const Row& row : rows) {
    std::vector<std::string> sets = row.sets;
    sets.emplace_back("mesh.tp=8");
    const std::string text = to_text(check(with_grid(sets)));
    for (const std::string& part : row.parts)
      EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
    for (const std::string& set : row.sets) EXPECT_EQ(to_text(apply_set(set, all)), "");
    parts.insert(parts.end(), row.parts.begin(), row.parts.end());
  }
  const std::string text = to_text(check(all));
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  // Without a grid, however that is written, nothing of this is about one.
  for (const char* none : {"mesh.tp=1", "mesh.tp=[1,1,1]", "mesh.tp=\"1, 1, 1\""})
    expect_problems({{{none, "train.update=block", "train.clip=0"}, ""},
                     {{none, "pipeline.schedule=auto"}, ""},
                     {{none, "optimiser.kind=muon"}, ""}});
}

// Where a sum is made in one step it is gathered, which needs something to round, and nothing that
// is added on the way.
TEST(GridChoice, SumsAreGatheredWhereThatMakesSense) {
  const auto problems_of = [](const char* section, const char* codec, const char* tp = "2") {
    return to_text(check(with_grid({fmt::format("mesh.tp={}", tp), "tensor.method=1d",
                                    fmt::format("{}.codec={}", section, codec),
                                    fmt::format("{}.sum=gathered", section)})));
  };
  for (const char* section : {"tp.activation", "tp.gradient"}) {
    for (const char* codec :
         {"quantise:bits=2", "top_k:keep=0.1", "half", "\"random_k:keep=0.1+half\""})
      for (const char* tp : {"1", "2", "4"})
        EXPECT_EQ(problems_of(section, codec, tp), "") << codec;
    EXPECT_EQ(
        problems_of(section, "raw"),
        fmt::format("{}.sum: sum = \"gathered\" with codec = \"raw\": nothing is rounded, so it "
                    "would only move more: use two-step",
                    section));
    EXPECT_NE(problems_of(section, "random_k:keep=0.1").find("random_k sends is added on the way"),
              std::string::npos);
  }
  EXPECT_NE(problems_of("tp.activation", "\"auto_encoder:code=4,values=f16\"")
                .find("what auto_encoder sends is added on the way"),
            std::string::npos);
}

TEST(GridChoice, SomeMethodsCutTheTableInOneWayAlone) {
  expect_problems(
      {{{"mesh.tp=4", "tensor.method=1d", "tensor.table=gathered"},
        "tensor.table: \"gathered\" with tensor.method = \"1d\", which gathers no weights: use "
        "split"},
       {{"mesh.tp=4", "tensor.method=2d", "tensor.table=split"},
        "tensor.table: \"split\" with tensor.method = \"2d\", which moves no partial sums: use "
        "gathered"},
       {{"mesh.tp=8", "tensor.method=2.5d", "tensor.table=gathered"}, ""},
       {{"mesh.tp=4", "tensor.method=1d", "tensor.table=split"}, ""},
       {{"mesh.tp=4", "tensor.method=1d-sequence", "tensor.table=gathered"}, ""}});
}

TEST(GridChoice, SquaresMustBeSquare) {
  for (const char* grid : {"3,1,1", "2,4,1", "3,2,1", "2,2,2"})
    EXPECT_NE(to_text(check(with_grid({fmt::format("mesh.tp={}", grid), "tensor.method=2d"})))
                  .find("with tensor.method = \"2d\": it needs a square, [q, q, 1]"),
              std::string::npos)
        << grid;
  for (const char* grid : {"4,1,1", "2,4,2"})
    EXPECT_NE(to_text(check(with_grid({fmt::format("mesh.tp={}", grid), "tensor.method=2.5d"})))
                  .find("with tensor.method = \"2.5d\": it needs squares, [q, q, depth]"),
              std::string::npos)
        << grid;
}

// Of 8 samples of 5 tokens the feature's axis carries most (12 bsh), of very short ones the
// weights' does (12 h h).
TEST(GridChoice, TheAxisThatCarriesMostIsInnermost) {
  const auto order = [](const std::vector<std::string>& sets) {
    return mesh_of(with_grid(sets)).order;
  };
  EXPECT_EQ(order({"mesh.tp=8", "model.context=64"}), (std::array{0, 1, 2}));
  EXPECT_EQ(order({"mesh.tp=8", "model.context=5"}), (std::array{1, 2, 0}));
  EXPECT_EQ(order({"mesh.tp=8", "model.context=5", "mesh.order=0,1,2"}), (std::array{0, 1, 2}));
  EXPECT_EQ(order({"mesh.tp=[2,4,1]", "model.context=512"}), (std::array{2, 0, 1}));
  EXPECT_EQ(order({"mesh.tp=8", "model.context=5", "model.start=folder"}), (std::array{0, 1, 2}));
  EXPECT_EQ(order({}), (std::array{0, 1, 2}));
}

// Logits of few samples are cheaper to move than a table, and those of many are not.
TEST(GridChoice, TheTableIsCutAsMovesLess) {
  const auto cut = [](const std::vector<std::string>& sets) {
    const RunConfig config = with_grid(sets);
    return grid_plan_of(config, family_of(config, {})).table;
  };
  EXPECT_EQ(cut({"mesh.tp=8", "model.vocabulary=1024", "model.context=4"}), TableCut::split);
  EXPECT_EQ(cut({"mesh.tp=8", "model.vocabulary=1024", "model.context=512"}), TableCut::gathered);
}

// Bytes decide: in bfloat16 what is gathered has two for each element, and partial sums have four.
// With b s rows and h features split moves 2 b s V / 8 elements more and gathered 10 V h / 8, so
// their ways part at 5 h = 240 rows; of bytes it is 6 against 28, at 224.
TEST(GridChoice, SumsOfShortNumbersWeighDouble) {
  const auto cut = [](int context, const char* precision) {
    const RunConfig config =
        with_grid({"mesh.tp=8", "model.vocabulary=1024", fmt::format("model.context={}", context),
                   fmt::format("run.precision={}", precision)});
    return grid_plan_of(config, family_of(config, {})).table;
  };
  for (const auto& [context, in_float, in_short] :
       {std::tuple{27, TableCut::split, TableCut::split},
        {29, TableCut::split, TableCut::gathered},
        {31, TableCut::gathered, TableCut::gathered}}) {
    EXPECT_EQ(cut(context, "float32"), in_float) << context;
    EXPECT_EQ(cut(context, "float64"), in_float) << context;
    EXPECT_EQ(cut(context, "bfloat16"), in_short) << context;
  }
}

TEST(GridChoice, PlansSayHowTheTableIsCut) {
  const RunConfig split = with_grid({"mesh.tp=8", "tensor.table=split"}),
                  gathered = with_grid({"mesh.tp=8", "tensor.table=gathered"});
  EXPECT_EQ(grid_plan_of(split, family_of(split, {})),
            (GridPlan{TensorMethod::three_d, {.tp = {2, 2, 2}}, TableCut::split}));
  EXPECT_EQ(grid_plan_of(gathered, family_of(gathered, {})).table, TableCut::gathered);
}

}  // namespace
}  // namespace laconic
