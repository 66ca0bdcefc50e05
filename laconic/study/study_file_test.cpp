// Reading study files: what they say, and everything that is wrong with them at once.
#include "laconic/study/study_file.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "laconic/base/error.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/test_folder.hpp"

namespace laconic {
namespace {

StudyFile study_in(const std::string& text) {
  StudyFile study;
  apply_study(text, "folder/mine.toml", study);
  refuse(check_study(study, "mine.toml"));
  return study;
}

std::string problems_in(const std::string& text) {
  try {
    study_in(text);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

const std::string kWhole = R"(
title = "Mine"
seeds = [3, 5]
steps = 7
measures = ["loss", { name = "accuracy", unit = "%", scale = 100, digits = 1 }]
[base]
model.layers = 4
train = { batch = 8 }
[base.mesh]
tp = [2, 2]
[models.small]
set.model.width = 64
needs = "$data/x"
prepare = [{ makes = ["$work/a"], lines = ["true"] }]
[[axis]]
name = "codec"
about = "what travels"
settings = ["none", { name = "Q1", about = "two bits", value = 2, set = { pp.activation.codec = "quantise:bits=2" } }]
[[part]]
name = "all"
model = "small"
axes = ["codec"]
amend = [{ of = { codec = "Q1" }, set = { train.batch = 16 } }]
[[rule]]
name = "it costs little"
measure = "accuracy"
of = { codec = "Q1" }
against = { codec = "none" }
is = "at most 0.5 % below up to noise"
)";

TEST(StudyInAFile, IsPlainData) {
  const StudyFile study = study_in(kWhole);
  EXPECT_EQ(study.name, "mine");
  EXPECT_EQ(study.base, (Keys{{"model.layers", "4"}, {"train.batch", "8"}, {"mesh.tp", "2,2"}}));
  EXPECT_EQ(study.models.at(0).set, (Keys{{"model.width", "64"}}));
  EXPECT_EQ(study.models.at(0).needs, (std::vector<std::string>{"$data/x"}));
  const StudyAxis& axis = study.axes.at(0);
  ASSERT_EQ(axis.settings.size(), 2u);
  EXPECT_EQ(axis.settings[0].name, "none");
  EXPECT_EQ(axis.settings[1].value, 2);
  EXPECT_EQ(axis.settings[1].set, (Keys{{"pp.activation.codec", "quantise:bits=2"}}));
  const StudyPart& part = study.parts.at(0);
  EXPECT_EQ(part.seeds, (std::vector<std::int64_t>{3, 5}));
  EXPECT_EQ(part.rounds, 2);
  EXPECT_EQ(part.steps, 7);
  EXPECT_EQ(part.amendments.at(0).set, (Keys{{"train.batch", "16"}}));
  EXPECT_EQ(study.measures.at(1).digits, 1);
  EXPECT_TRUE(study.rules.at(0).relation.has_noise);
  EXPECT_DOUBLE_EQ(study.rules.at(0).relation.margin, 0.005);
}

TEST(StudyInAFile, TellsEveryProblemAtOnceWithItsPlaceAndTheNearestWord) {
  const std::string said = problems_in(R"(titel = "Mine"
steps = "many"
[[axis]]
name = "codec"
settings = ["none", "none", { about = "?" , set = 3 }]
[[part]]
name = "all"
seeds = ["one"]
[[rule]]
name = "r"
is = "nearly"
measure = "loss"
)");
  for (const char* part :
       {"folder/mine.toml:1:9: study: unknown key 'titel'; did you mean 'title'?",
        "mine.toml:2:9: study: steps must be a whole number above 0, not the text 'many'",
        "axis 'codec': has two settings 'none'", "axis 'codec', setting: name is missing",
        "set must be a table of keys of a configuration, not 3",
        "part 'all': seeds must be a list of whole numbers, not the text 'one'",
        "rule 'r': of names an axis", "'nearly' is no relation"})
    EXPECT_NE(said.find(part), std::string::npos) << part << " in\n" << said;
  const std::string kinds = problems_in(R"([[axis]]
name = "a"
settings = [{ name = "s", kinds = [{ steps = 0, share = -1 }, { steps = 2, shares = 0 }] }, { name = "t", kinds = [{ share = 0 }] }]
)");
  for (const char* part :
       {"setting 's', kinds: steps must be a whole number above 0", "share = -1 is below 0",
        "unknown key 'shares'; did you mean 'share'?", "no kind of step has a share above 0"})
    EXPECT_NE(kinds.find(part), std::string::npos) << part << " in\n" << kinds;
  EXPECT_NE(problems_in("models = 3").find("models must be a table of models, not 3"),
            std::string::npos);
  EXPECT_NE(problems_in("a = ").find("mine.toml:1"), std::string::npos);
}

TEST(StudyInAFile, MayOnlyNameWhatIsThere) {
  const std::string said = problems_in(kWhole + R"(
[[part]]
name = "more"
model = "smal"
axes = ["codecs"]
[[part]]
name = "listed"
axes = ["codec"]
list = [["Q1", "none"], ["Q2"]]
without = { codec = "Q9", mesh = "x" }
[[rule]]
name = "other"
measure = "acuracy"
parts = "al"
of = { codec = "Q2" }
against = { codec = "none" }
is = "below"
[[table]]
title = "t"
part = "none"
measure = "loss"
rows = "codec"
[[figure]]
name = "f"
title = "f"
part = "all"
x = "nothing"
y = "loss"
curves = "codec"
)");
  for (const char* part :
       {"part 'more': there is no axis 'codecs'; did you mean 'codec'?",
        "part 'more': there is no model 'smal'; did you mean 'small'?",
        "part 'listed': list has a row of 2 settings for 1 axes",
        "part 'listed': there is no setting 'Q2'", "part 'listed': there is no setting 'Q9'",
        "part 'listed': there is no axis 'mesh'",
        "rule 'other': there is no measure 'acuracy'; did you mean 'accuracy'?",
        "rule 'other': there is no setting 'Q2'", "rule 'other': there is no part 'al'",
        "table 't': there is no part 'none'", "figure 'f': there is no measure or axis 'nothing'"})
    EXPECT_NE(said.find(part), std::string::npos) << part << " in\n" << said;
  EXPECT_NE(problems_in("title = 'x'").find("there is no [[part]]"), std::string::npos);
}

TEST(StudyInAFile, ExtendsAnotherWhosePartsItReplaces) {
  const TemporaryFolder folder;
  write_atomically(folder / "first.toml", kWhole);
  write_atomically(folder / "second.toml", R"(
extends = "first.toml"
[base]
model.layers = 2
[[part]]
name = "own"
model = "small"
axes = ["codec"]
)");
  const StudyFile study = read_study(folder / "second.toml");
  EXPECT_EQ(study.name, "second");
  EXPECT_EQ(study.title, "Mine");
  EXPECT_EQ(study.base.at("model.layers"), "2");
  EXPECT_EQ(study.base.at("train.batch"), "8");
  ASSERT_EQ(study.parts.size(), 1u);
  EXPECT_EQ(study.parts[0].name, "own");
  EXPECT_EQ(study.rules.size(), 1u);
  write_atomically(folder / "circle.toml", "extends = 'circle.toml'");
  EXPECT_THROW(read_study(folder / "circle.toml"), ConfigError);
  EXPECT_THROW(read_study(folder / "nowhere.toml"), ConfigError);
}

TEST(RelationOfARule, IsReadFromWords) {
  using Side = Relation::Side;
  const struct {
    const char* text;
    Side side;
    double margin;
    bool is_share, is_at_most, has_noise;
  } cases[] = {{"within 0.5 %", Side::within, 0.005, true, false, false},
               {"within 0.01 up to noise", Side::within, 0.01, false, false, true},
               {"above", Side::above, 0, false, false, false},
               {"not above", Side::above, 0, false, true, false},
               {"not below up to noise", Side::below, 0, false, true, true},
               {"at least 3 % below", Side::below, 0.03, true, false, false},
               {"at most 2 above", Side::above, 2, false, true, false}};
  for (const auto& c : cases) {
    const auto relation = parse_relation(c.text);
    ASSERT_TRUE(relation) << c.text;
    EXPECT_EQ(relation->side, c.side) << c.text;
    EXPECT_DOUBLE_EQ(relation->margin, c.margin) << c.text;
    EXPECT_EQ(relation->is_share, c.is_share) << c.text;
    EXPECT_EQ(relation->is_at_most, c.is_at_most) << c.text;
    EXPECT_EQ(relation->has_noise, c.has_noise) << c.text;
  }
  for (const char* text :
       {"", "near", "within", "within x %", "within -1 %", "at most above", "at least 3 % beside",
        "not", "not within 3", "up to noise", "within 3 % above"})
    EXPECT_FALSE(parse_relation(text)) << text;
}

}  // namespace
}  // namespace laconic
