#include "laconic/config/projection_choice.hpp"

#include <gtest/gtest.h>

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
