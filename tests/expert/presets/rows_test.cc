// What every row of every table of parts says of itself.
#include <set>

#include "core/expert/fidelity/widths.h"
#include "core/expert/presets/listing.h"
#include "core/expert/presets/preset.h"
#include "tests/expert/provider_rig.h"

namespace moed {
namespace rows_test {

using testing::HasSubstr;

template <class Visit>
void ForEveryPart(Visit&& visit) {
  for (const PolicyRow& row : Policies()) visit(row);
  for (const PredictorRow& row : Predictors()) visit(row);
  for (const FidelityRow& row : FidelityRules()) visit(row);
  for (const RouterMaskRow& row : RouterMasks()) visit(row);
}

template <class Row>
void ExpectNamed(std::span<const Row> rows) {
  std::set<std::string_view> names;
  for (const Row& row : rows) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.description.empty()) << row.name;
  }
}

TEST(Rows, HaveNamesOfTheirOwnAndDescriptions) {
  ExpectNamed(Policies());
  ExpectNamed(Predictors());
  ExpectNamed(FidelityRules());
  ExpectNamed(RouterMasks());
  ExpectNamed(Presets());
}

// Whoever takes an option lists the same object, so that its default is said once; and the default is allowed.
TEST(Rows, AnOptionIsOneObjectWhoeverTakesIt) {
  std::map<std::string_view, const OptionRow*> options;
  ForEveryPart([&](const auto& row) {
    for (const OptionRow* option : row.options) {
      EXPECT_EQ(options.emplace(option->name, option).first->second, option) << row.name << ", " << option->name;
    }
  });
  EXPECT_GT(options.size(), 20u);
  for (const auto& [name, option] : options) {
    EXPECT_FALSE(option->help.empty()) << name;
    EXPECT_FALSE(option->source.empty()) << name;
    if (option->read != nullptr) {
      EXPECT_TRUE(option->initial.empty()) << name;
    } else if (option->words.empty()) {
      EXPECT_TRUE(PartOptions().Number(*option).ok()) << name;
    } else {
      EXPECT_TRUE(PartOptions().Word(*option).ok()) << name;
    }
  }
}

TEST(Rows, PresetsNameRowsAndSetAllowedValues) {
  for (const PresetRow& row : Presets()) {
    const auto known = KnownOptions({.preset = std::string(row.name)});
    ASSERT_TRUE(known.ok()) << known.status();
    for (const OptionValue& value : row.values) {
      PartOptions options;
      options.Set(*value.option, value.value);
      EXPECT_TRUE(value.option->words.empty() ? options.Number(*value.option).ok() : options.Word(*value.option).ok())
          << row.name;
      EXPECT_EQ(std::ranges::count(*known, value.option), 0) << row.name << " lets others say " << value.option->name;
    }
  }
}

TEST(Rows, TheListingNamesThemAllWithTheirOptions) {
  const std::string listing = ListParts();
  for (const PresetRow& row : Presets()) EXPECT_THAT(listing, HasSubstr(StrCat("\n  ", row.name, " ")));
  ForEveryPart([&](const auto& row) {
    EXPECT_THAT(listing, HasSubstr(StrCat("\n  ", row.name, " ")));
    for (const OptionRow* option : row.options) {
      EXPECT_THAT(listing, HasSubstr(StrCat("\n      ", option->name)));
      EXPECT_THAT(listing, HasSubstr(option->Range()));
      EXPECT_THAT(listing, HasSubstr(std::string(option->help)));
    }
  });
}

// Started once for a part that counts what sequences hold.
template <class Part>
size_t BytesOfASequence(Part& part) {
  if constexpr (requires { part.OnSequenceStart(SequenceId(1)); }) {
    const size_t before = part.memory_bytes();
    part.OnSequenceStart(SequenceId(1));
    part.OnSequenceStart(SequenceId(2));
    const size_t both = part.memory_bytes() - before;
    EXPECT_EQ(both % 2, 0u);
    return both / 2;
  }
  return 0;
}

// The memory plan believes them.
TEST(Rows, PromiseWhatTheirPartsHold) {
  PartOptions options;
  options.SetFile(kWidthsOption, std::make_shared<const ExpertWidths>(std::size(kLayers), std::vector<int>(kExperts)));
  ForEveryPart([&](const auto& row) {
    SCOPED_TRACE(std::string(row.name));
    const PartContext before{.model = StoreContext(), .hidden = StoreParts().hidden};
    const PartMemory promised = row.memory == nullptr ? PartMemory{} : row.memory(before, options);
    for (const size_t table_bytes : {size_t{0}, size_t{1} << 14, size_t{1} << 20}) {
      PartContext context = StoreParts();
      context.model.table_bytes = table_bytes;
      const auto part = row.make(context, options);
      ASSERT_TRUE(part.ok()) << part.status();
      if (*part == nullptr) continue;  // no mask
      const size_t tables = static_cast<size_t>(promised.tables) * table_bytes;
      EXPECT_GE((*part)->memory_bytes(), promised.fixed_bytes);
      EXPECT_LE((*part)->memory_bytes(), promised.fixed_bytes + tables);
      EXPECT_EQ(BytesOfASequence(**part), promised.sequence_bytes);
    }
  });
}

// So that nothing is planned for in vain.
TEST(Rows, TablesHoldNothingBeyondWhatIsOfUse) {
  PartOptions options;
  options.SetFile(kWidthsOption, std::make_shared<const ExpertWidths>(std::size(kLayers), std::vector<int>(kExperts)));
  int bounded = 0;
  ForEveryPart([&](const auto& row) {
    SCOPED_TRACE(std::string(row.name));
    const PartContext before{.model = StoreContext(), .hidden = StoreParts().hidden};
    const PartMemory promised = row.memory == nullptr ? PartMemory{} : row.memory(before, options);
    EXPECT_EQ(promised.most_table_bytes > 0, promised.tables > 0);
    if (promised.tables == 0 || promised.most_table_bytes == UINT64_MAX) return;
    const auto bytes = [&](size_t table_bytes) {
      PartContext context = StoreParts();
      context.model.table_bytes = table_bytes;
      return (*row.make(context, options))->memory_bytes();
    };
    EXPECT_EQ(bytes(promised.most_table_bytes + (1 << 20)), bytes(promised.most_table_bytes));
    EXPECT_LT(bytes(promised.most_table_bytes - promised.most_table_bytes / 64), bytes(promised.most_table_bytes));
    ++bounded;
  });
  EXPECT_EQ(bounded, 3);
}

}  // namespace rows_test
}  // namespace moed
