// The systems journal, damaged: refused with its name, or what is read of it is sane and goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "bench/systems/journal.h"
#include "core/base/status.h"
#include "tests/base/damaged_bytes.h"
#include "tests/base/damaged_json.h"
#include "tests/store/small_store.h"

namespace moed {
namespace {

using testing::HasSubstr;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

const nlohmann::ordered_json kRun = {{"store", "a.moed"}, {"cells", {1, 2}}};
constexpr char kFirst[] = R"({"run":{"store":"a.moed","cells":[1,2]}})";
constexpr char kSpeed[] =
    R"({"kind":"speed","share":25,"disk":"native","contender":"auto","turn":1,"figures":{"rate":2.5,"n":3}})";
constexpr char kNotRun[] =
    R"({"kind":"speed","share":50,"disk":"native","contender":"fate","turn":0,"not_run":"why","figures":{}})";

class DamagedSystemsJournal : public testing::Test {
 protected:
  absl::StatusOr<SystemsJournal> Open(const std::string& contents) {
    std::ofstream(path_, std::ios::binary) << contents;
    return SystemsJournal::Open(path_, kRun);
  }
  void ExpectRefusedOrSane(const std::string& contents, const std::string& what) {
    auto journal = Open(contents);
    if (!journal.ok()) {
      EXPECT_THAT(MessageOf(journal.status()), HasSubstr(path_)) << what;
      return;
    }
    for (const Record& record : journal->records()) {
      EXPECT_GE(record.key.share, 0) << what;
      EXPECT_GE(record.key.turn, 0) << what;
      for (const auto& [name, figure] : record.figures) EXPECT_TRUE(std::isfinite(figure)) << what << ": " << name;
    }
    const size_t records = journal->records().size();
    ASSERT_TRUE(journal->Add({{"quality", 1, "native", "auto", 9}, {{"kl", .5}}, ""}).ok());
    const auto again = SystemsJournal::Open(path_, kRun);
    ASSERT_TRUE(again.ok()) << what << ": " << again.status();
    EXPECT_EQ(again->records().size(), records + 1) << what;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "j.jsonl";
  const std::string good_ = StrCat(kFirst, "\n", kSpeed, "\n", kNotRun, "\n");
};

TEST_F(DamagedSystemsJournal, UndamagedItIsRead) {
  const auto journal = Open(good_);
  ASSERT_TRUE(journal.ok()) << journal.status();
  EXPECT_EQ(journal->records().size(), 2u);
}

// Killed while it wrote, even its first line.
TEST_F(DamagedSystemsJournal, TruncatedItKeepsItsWholeLines) {
  ForEachTruncation(good_, {}, [&](const std::string& damaged, size_t at) {
    const auto journal = Open(damaged);
    ASSERT_TRUE(journal.ok()) << at << ": " << journal.status();
    const auto lines = static_cast<size_t>(std::ranges::count(damaged, '\n'));
    EXPECT_EQ(journal->records().size(), lines - (lines > 0)) << at;
    ExpectRefusedOrSane(damaged, std::to_string(at));
  });
}

TEST_F(DamagedSystemsJournal, FlippedAndGarbled) {
  const auto read = [&](const std::string& damaged, size_t at) { ExpectRefusedOrSane(damaged, std::to_string(at)); };
  ForEachFlip(good_, {}, 3, read);
  ForGarbled(good_, {}, 500, 3, read);
}

TEST_F(DamagedSystemsJournal, HostileValues) {
  ForEachHostileValue(kFirst,
                      [&](const std::string& damaged, const std::string& what) { ExpectRefusedOrSane(damaged + "\n", what); });
  for (const char* record : {kSpeed, kNotRun}) {
    ForEachHostileValue(record, [&](const std::string& damaged, const std::string& what) {
      ExpectRefusedOrSane(StrCat(kFirst, "\n", damaged, "\n"), what);
    });
  }
}

// A file of somebody else, named by mistake, stays as it is.
TEST_F(DamagedSystemsJournal, ALineOfSomethingElseIsKept) {
  EXPECT_THAT(MessageOf(Open("precious").status()), HasSubstr("no journal"));
  EXPECT_EQ(std::filesystem::file_size(path_), 8u);
}

TEST_F(DamagedSystemsJournal, FiguresThatAreNoNumbersAreAbsent) {
  auto journal = Open("");
  ASSERT_TRUE(journal.ok()) << journal.status();
  const double none = std::numeric_limits<double>::quiet_NaN(), endless = std::numeric_limits<double>::infinity();
  ASSERT_TRUE(journal->Add({{"speed", 1, "native", "auto", 0}, {{"a", none}, {"b", 2}, {"c", endless}}, ""}).ok());
  const auto again = SystemsJournal::Open(path_, kRun);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->records()[0].figures, (Figures{{"b", 2}}));
}

}  // namespace
}  // namespace moed
