#include "laconic/config/projection_choice.hpp"

#include <gtest/gtest.h>

#include "laconic/config/model_family.hpp"
#include "laconic/config/read.hpp"

namespace laconic {
namespace {

RunConfig projected_config(const std::vector<std::string>& sets) {
  RunConfig config;
  config.data.train = "data";
  for (const char* set : {"model.project_after=\"2,4\"", "model.project_rank=96"})
    EXPECT_EQ(to_text(apply_set(set, config)), "");
  for (const std::string& set : sets) EXPECT_EQ(to_text(apply_set(set, config)), "") << set;
  return config;
}

std::vector<std::string> keys_refused(const std::vector<std::string>& sets) {
  std::vector<std::string> keys;
  for (const Problem& problem : check(projected_config(sets))) keys.push_back(problem.where);
  return keys;
}

using Keys = std::vector<std::string>;

TEST(ProjectionChoice, WhatComposesIsAccepted) {
  for (const std::vector<std::string>& sets :
       {Keys{},
        {"mesh.pp=3", "pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta"},
        {"mesh.dp=2", "local.steps=4", "model.project_anchor=learned"},
        {"mesh.dp=2", "dp.gradient.method=compressed_adam", "dp.gradient.codec=sign",
         "dp.gradient.warmup=2"},
        {"model.project_basis=learned", "mesh.pp=3", "mesh.dp=2", "train.update=block",
         "train.clip=0"},
        {"model.project_basis=pca", "model.project_anchor=initial", "mesh.pp=3",
         "pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta"},
        {"model.kind=llama"},
        {"model.kind=bert", "task.kind=masked"}})
    EXPECT_EQ(keys_refused(sets), Keys{}) << (sets.empty() ? "" : sets.front());
}

// Learned codes where stages end.
TEST(ProjectionChoice, CodesAreBehindTheLayersThatEndStages) {
  const auto with = [](const std::vector<std::string>& sets) {
    RunConfig config;
    config.data.train = "data";
    for (const char* set :
         {"mesh.pp=3", "model.layers=6", "pp.activation.codec=auto_encoder:code=9"})
      EXPECT_EQ(to_text(apply_set(set, config)), "");
    for (const std::string& set : sets) EXPECT_EQ(to_text(apply_set(set, config)), "") << set;
    return config;
  };
  const auto keys = [&](const std::vector<std::string>& sets) {
    Keys found;
    for (const Problem& problem : check(with(sets))) found.push_back(problem.where);
    return found;
  };
  using Layers = std::vector<std::int64_t>;
  const std::string split = "pipeline.split=1,3,2";
  EXPECT_EQ(keys({split}), Keys{});
  EXPECT_EQ(projection_in(with({split})).after, (Layers{1, 4}));
  EXPECT_EQ(projection_in(with({split})).rank, 9);
  EXPECT_EQ(projection_in(with({split, "pp.activation.boundaries=1"})).after, Layers{4});
  EXPECT_EQ(projection_in(with({split, "pp.activation.tied=true"})).basis, BasisKind::tied);
  EXPECT_TRUE(projection_in(with({split, "pp.activation.start=noise"})).is_drawn);
  EXPECT_TRUE(projection_in(with({"mesh.pp=1"})).is_empty());
  EXPECT_EQ(keys({"mesh.pp=1"}), Keys{});
  EXPECT_EQ(keys({}), Keys{"pipeline.split"});
  EXPECT_EQ(keys({"pipeline.split=0,3,3"}), Keys{"pp.activation.codec"});
  EXPECT_EQ(keys({split, "pp.activation.codec=auto_encoder:code=999"}),
            Keys{"pp.activation.codec"});
  EXPECT_EQ(keys({split, "pp.gradient.codec=auto_encoder:code=9"}), Keys{"pp.gradient.codec"});
  EXPECT_EQ(keys({split, "pp.activation.memory=delta"}), Keys{"pp.activation.memory"});
  EXPECT_EQ(keys({split, "pp.gradient.memory=delta"}), Keys{"pp.gradient.memory"});
  EXPECT_EQ(keys({split, "mesh.tp=2", "tensor.method=1d"}), Keys{});
  EXPECT_EQ(keys({split, "mesh.tp=1,2,1", "train.microbatch=2", "train.batch=8"}), Keys{"mesh.tp"});
  EXPECT_EQ(keys({split, "model.kind=lstm"}).front(), "pp.activation.codec");
}

TEST(ProjectionChoice, WhatDoesNotIsRefusedByItsKey) {
  const std::string learned = "model.project_basis=learned";
  EXPECT_EQ(keys_refused({"mesh.tp=2"}), Keys{"mesh.tp"});
  EXPECT_EQ(keys_refused({learned, "mesh.pp=3", "pp.activation.codec=quantise:bits=4",
                          "pp.activation.memory=delta"}),
            Keys{"pp.activation.memory"});
  EXPECT_EQ(keys_refused({learned, "mesh.dp=2", "local.steps=4"}), Keys{"local.steps"});
  EXPECT_EQ(keys_refused({learned, "mesh.dp=2", "dp.gradient.method=compressed_adam",
                          "dp.gradient.codec=sign", "dp.gradient.warmup=2"}),
            Keys{"dp.gradient.method"});
  EXPECT_EQ(keys_refused({learned, "optimiser.lr=4.5"}), Keys{"optimiser.lr"});
  EXPECT_EQ(keys_refused({learned, "optimiser.lr=4"}), Keys{});
  EXPECT_EQ(keys_refused({"model.project_basis=pca", "mesh.dp=2", "local.steps=4"}),
            Keys{"local.steps"});
  EXPECT_EQ(keys_refused({"model.project_anchor=initial", "mesh.dp=2", "local.steps=4"}),
            Keys{"local.steps"});
  EXPECT_EQ(keys_refused({"model.kind=bert", "task.kind=masked", "model.project_anchor=initial"}),
            Keys{"model.project_anchor"});
  EXPECT_EQ(keys_refused({"model.kind=lstm", "model.heads=6"}), Keys{"model.project_after"});
  EXPECT_EQ(keys_refused({"model.project_rank=400"}), Keys{"model.project_rank"});
  EXPECT_EQ(keys_refused({"model.project_after=\"2,x\""}), Keys{"model.project_after"});
  EXPECT_EQ(keys_refused({"model.project_after=\"\"", "model.project_anchor=learned"}),
            (Keys{"model.project_rank", "model.project_anchor"}));
}

}  // namespace
}  // namespace laconic
