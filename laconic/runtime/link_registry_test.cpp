#include "laconic/runtime/link_registry.hpp"

#include <ATen/ops/full.h>

#include <cstdlib>
#include <filesystem>

#include "laconic/base/error.hpp"
#include "laconic/link/test_link.hpp"

namespace laconic {
namespace {

struct RegistryFolder {
  std::string path = testing::TempDir() + "laconic-registry-XXXXXX";
  RegistryFolder() { EXPECT_NE(mkdtemp(path.data()), nullptr); }
  ~RegistryFolder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
};

// A link of a class, with the rows of both its ends.
struct RegisteredLink {
  LinkPair link;
  Traffic traffic;
  Fidelity fidelity = {};

  RegisteredLink(Traffic of, const char* codec, MemorySpec memory)
      : link({std::string(name_of(of)) + ".0", parse_codec(codec), memory}, kMatrix), traffic(of) {}

  void add_to(LinkRegistry& registry) {
    const auto add = [&](auto& end, const char* role, LinkControl control) {
      control.traffic = traffic;
      control.name = end.spec().name + role;
      control.override_codec = [&end, configured = end.spec().codec](const CodecOverride& change) {
        end.set_codec(effective_codec(change, configured));
      };
      control.has_memory = [&end] { return has_memory(end.spec()); };
      control.save = [&end](const std::string& path) { end.save(path); };
      control.load = [&end](const std::string& path) { end.load(path); };
      registry.add(std::move(control));
    };
    add(link.sender, ".sender",
        {.measure_fidelity =
             [this](bool measures) {
               if (measures) fidelity = {};
               link.sender.measure_fidelity(measures ? &fidelity : nullptr);
             },
         .fidelity = [this] { return fidelity; }});
    add(link.receiver, ".receiver", {});
  }
};

// Two links of two classes, in one list.
struct TwoLinks {
  RegisteredLink up{Traffic::pp_activation, "half", NoMemory{}};
  RegisteredLink down{Traffic::pp_gradient, "quantise:bits=4,block=16", ErrorFeedback{}};
  LinkRegistry registry;

  TwoLinks() {
    up.add_to(registry);
    down.add_to(registry);
  }
  void step(int seed) {
    up.link.step(normal(kElements, seed));
    down.link.step(normal(kElements, seed + 100));
  }
  Floats residual() const { return floats_of(down.link.sender.residual()); }
};

TEST(LinkRegistry, OverridesBothEndsOfOneClassAlone) {
  TwoLinks links;
  const CodecSpec other = parse_codec("quantise:bits=8,block=16");
  links.registry.override_codec(Traffic::pp_gradient, {.codec = other});
  EXPECT_EQ(links.down.link.sender.spec().codec, other);
  EXPECT_EQ(links.down.link.receiver.spec().codec, other);
  EXPECT_EQ(links.up.link.sender.spec().codec, parse_codec("half"));
  links.step(1);  // both ends understand each other
  links.registry.override_codec(Traffic::pp_gradient, {});
  EXPECT_EQ(links.down.link.sender.spec().codec, parse_codec("quantise:bits=4,block=16"));
  links.registry.override_codec(Traffic::dp_gradient, {.codec = other});  // has no rows
  EXPECT_EQ(links.up.link.sender.spec().codec, parse_codec("half"));
}

TEST(LinkRegistry, ACodecThatALinkCannotHaveIsRefusedAndChangesNothing) {
  TwoLinks links;
  const CodecSpec impossible = parse_codec("auto_encoder:code=4");
  EXPECT_THROW(links.registry.override_codec(Traffic::pp_gradient, {.codec = impossible}),
               ConfigError);
  EXPECT_EQ(links.down.link.sender.spec().codec, parse_codec("quantise:bits=4,block=16"));
  EXPECT_EQ(links.down.link.receiver.spec().codec, parse_codec("quantise:bits=4,block=16"));
}

TEST(LinkRegistry, FidelityIsAddedUpByClassAndOnlyWhileItIsMeasured) {
  TwoLinks links;
  RegisteredLink second(Traffic::pp_gradient, "sign", ErrorFeedback{});
  second.add_to(links.registry);
  links.step(1);
  EXPECT_TRUE(links.registry.fidelity().empty()) << "nobody asked";
  links.registry.measure_fidelity(true);
  EXPECT_TRUE(links.registry.fidelity().empty()) << "classes that sent nothing are not there";
  links.step(2);
  second.link.step(normal(kElements, 3));
  const std::map<Traffic, Fidelity> found = links.registry.fidelity();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found.at(Traffic::pp_activation), links.up.fidelity);
  Fidelity both = links.down.fidelity;
  both += second.fidelity;
  EXPECT_EQ(found.at(Traffic::pp_gradient), both);
  EXPECT_EQ(both.messages, 2U);
  links.registry.measure_fidelity(false);
  links.step(4);
  EXPECT_EQ(links.registry.fidelity(), found) << "what was measured stays, and nothing is added";
  links.registry.measure_fidelity(true);
  EXPECT_TRUE(links.registry.fidelity().empty()) << "it begins anew";
}

TEST(LinkRegistry, HasAMemoryIfAnyRowHas) {
  LinkRegistry registry;
  EXPECT_FALSE(registry.has_memory());
  registry.add({.name = "a sum without files"});
  RegisteredLink up(Traffic::pp_activation, "half", NoMemory{});
  up.add_to(registry);
  EXPECT_FALSE(registry.has_memory());
  registry.override_codec(Traffic::pp_activation, {.codec = parse_codec("low_rank:rank=2")});
  EXPECT_TRUE(registry.has_memory()) << "a warm start";
  registry.override_codec(Traffic::pp_activation, {});
  EXPECT_FALSE(registry.has_memory());
  TwoLinks links;
  EXPECT_TRUE(links.registry.has_memory());
}

TEST(LinkRegistry, GoesOnFromWhatItSavedUnderThePrefix) {
  const RegistryFolder folder;
  TwoLinks links;
  for (int step = 0; step < 3; ++step) links.step(step);
  const Floats saved = links.residual();
  links.registry.save(folder / "rank-00001.");
  EXPECT_TRUE(std::filesystem::exists(folder / "rank-00001.pp.gradient.0.sender"));
  links.step(7);
  ASSERT_NE(links.residual(), saved);

  TwoLinks resumed;
  resumed.registry.load(folder / "rank-00001.");
  EXPECT_EQ(resumed.residual(), saved);
}

TEST(LinkRegistry, AFileThatIsNotThereIsAnErrorThatNamesIt) {
  const RegistryFolder folder;
  TwoLinks links;
  links.step(1);
  const Floats before = links.residual();
  links.registry.save(folder / "here.");
  std::filesystem::remove(folder / "here.pp.gradient.0.sender");
  try {
    links.registry.load(folder / "here.");
    ADD_FAILURE() << "a residual was lost, and nobody said so";
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("here.pp.gradient.0.sender"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(links.residual(), before);
}

LinkControl sum_called(const std::string& name, double value, const std::string& note) {
  return {.traffic = Traffic::dp_gradient,
          .name = name,
          .tensors =
              [=] {
                return RankTensors{{name, at::full({2}, value)}};
              },
          .restore =
              [=](const std::vector<RankTensors>& saved) {
                return saved.size() == 3 ? note : fmt::format("{} ranks", saved.size());
              }};
}

TEST(LinkRegistry, TensorsOfAllRowsAreOneMapAndNotesAreToldOnce) {
  LinkRegistry registry;
  EXPECT_TRUE(registry.tensors().empty());
  EXPECT_EQ(registry.restore({}), "");
  registry.add(sum_called("a", 1, "grown"));
  registry.add({.name = "a link without tensors"});
  registry.add(sum_called("b", 2, ""));
  registry.add(sum_called("c", 3, "grown"));
  registry.add(sum_called("d", 4, "of another policy"));
  const RankTensors all = registry.tensors();
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all.at("b")[0].item<double>(), 2);
  EXPECT_EQ(registry.restore(std::vector<RankTensors>(3)), "grown; of another policy");
  EXPECT_EQ(registry.restore(std::vector<RankTensors>(2)), "2 ranks");
}

}  // namespace
}  // namespace laconic
