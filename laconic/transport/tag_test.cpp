#include "laconic/transport/tag.hpp"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string_view>

namespace laconic {
namespace {

TEST(Tag, FieldsComeBackFromEveryCornerOfTheirRanges) {
  for (int traffic = 0; traffic < kTrafficClasses; ++traffic)
    for (const std::uint32_t unit : {0u, 1u, 0x8000u, 0xffffu})
      for (const std::uint64_t number : {0u, 1u, 4182u, (1u << 28) - 1})
        for (const std::uint32_t part : {0u, 1u, 0x800u, 0xfffu}) {
          const TagFields fields{static_cast<Traffic>(traffic), unit, number, part};
          EXPECT_EQ(fields_of(make_tag(fields)), fields);
        }
}

TEST(Tag, EveryBitOfEveryFieldMakesAnotherTag) {
  std::set<Tag> tags = {make_tag({})};
  for (int traffic = 1; traffic < kTrafficClasses; ++traffic)
    tags.insert(make_tag({.traffic = static_cast<Traffic>(traffic)}));
  for (int bit = 0; bit < 16; ++bit) tags.insert(make_tag({.unit = 1u << bit}));
  for (int bit = 0; bit < 28; ++bit) tags.insert(make_tag({.number = 1u << bit}));
  for (int bit = 0; bit < 12; ++bit) tags.insert(make_tag({.part = 1u << bit}));
  EXPECT_EQ(tags.size(), static_cast<std::size_t>(kTrafficClasses) + 16 + 28 + 12);
}

TEST(Tag, LayoutIsWhatTheHeaderSays) {
  EXPECT_EQ(make_tag({Traffic::dp_gradient, 0x1234, 0xabcdef0, 0x567}), 0x011234abcdef0567u);
}

TEST(Tag, NumberIsTakenModuloAPowerOfTwo) {
  EXPECT_EQ(make_tag({.number = (std::uint64_t{1} << 28) + 5}), make_tag({.number = 5}));
  EXPECT_EQ(make_tag({.number = ~std::uint64_t{0}}), make_tag({.number = (1u << 28) - 1}));
}

TEST(Tag, TextNamesClassUnitNumberAndPart) {
  EXPECT_EQ(to_text(make_tag({Traffic::dp_gradient, 2, 4182, 3})), "dp.gradient 2 #4182.3");
  EXPECT_EQ(to_text(make_tag({Traffic::control, 0, 0, 0})), "control 0 #0");
  EXPECT_EQ(to_text(make_tag({Traffic::preflight, 65535, (1u << 28) - 1, 4095})),
            "preflight 65535 #268435455.4095");
}

TEST(Tag, UnknownClassesPrintToo) {
  EXPECT_EQ(to_text(~Tag{0}), "traffic? 65535 #268435455.4095");
}

TEST(Tag, EveryClassHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int i = 0; i < kTrafficClasses; ++i) {
    const auto traffic = static_cast<Traffic>(i);
    names.insert(name_of(traffic));
    EXPECT_EQ(traffic_named(name_of(traffic)), traffic);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kTrafficClasses));
  EXPECT_EQ(name_of(Traffic::preflight), "preflight");
  EXPECT_EQ(name_of(Traffic::embedding_rows), "embedding.rows");
  for (const char* name : {"", "dp", "dp.gradient.codec", "DP.gradient"})
    EXPECT_EQ(traffic_named(name), std::nullopt) << name;
}

TEST(Tag, UnitAndPartOutsideTheirRangeAreOurMistake) {
  EXPECT_THROW(make_tag({.unit = 1u << 16}), std::logic_error);
  EXPECT_THROW(make_tag({.part = 1u << 12}), std::logic_error);
}

}  // namespace
}  // namespace laconic
