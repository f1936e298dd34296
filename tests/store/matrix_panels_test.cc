#include "core/store/matrix_panels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/buffer.h"
#include "core/store/damage.h"
#include "tests/io/lying_file.h"
#include "tests/store/small_store.h"

namespace moed {
namespace matrix_panels_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRows = 997;  // 125 panels, the last with 5 rows

class MatrixPanelsTest : public testing::TestWithParam<FormatId> {
 protected:
  MatrixPanelsTest()
      : description_(TableDescription("table", GetParam(), kRows, 256)),
        file_(std::make_shared<LyingFile>("store", WriteSmallStore(folder_ / "store.moed", description_))),
        store_(*StoreReader::Open(file_)),
        reads_(MakeThreadedReadBackend("threads", file_, 3)),
        table_(**store_->FindTensor("table")),
        panels_(*store_, table_, *reads_),
        memory_(*Buffer::Allocate(static_cast<size_t>(Panels(kRows)) * MatrixPanels::LandingBytes(table_))) {
    // In pieces that no panel ends with.
    std::string trunk(description_.trunk_bytes, '\0');
    EXPECT_TRUE(ReadTrunkInto(*store_, std::as_writable_bytes(std::span(trunk))).ok());
    for (size_t done = 0; done < trunk.size(); done += 1000)
      panels_.Note(done, Bytes(trunk).subspan(done, std::min<size_t>(1000, trunk.size() - done)));
  }

  std::vector<WantedPanel> Want(const std::vector<int>& panels) {
    std::vector<WantedPanel> wanted;
    const size_t landing = MatrixPanels::LandingBytes(table_);
    for (const int panel : panels) {
      wanted.push_back({.panel = panel, .pages = memory_.span().subspan(wanted.size() * landing, landing)});
    }
    panels_.Read(wanted);
    return wanted;
  }
  std::string ContentsOf(int panel) const {
    const size_t bytes = MatrixPanels::PanelBytes(table_);
    return TensorContents(description_, 1).substr(static_cast<size_t>(panel) * bytes, bytes);
  }
  uint64_t InFile(int panel) const {
    return store_->layout().trunk_offset() + table_.offset + static_cast<uint64_t>(panel) * MatrixPanels::PanelBytes(table_);
  }

  MemoryFolder folder_;
  const StoreDescription description_;
  const std::shared_ptr<LyingFile> file_;
  const std::unique_ptr<StoreReader> store_;
  const std::unique_ptr<ReadBackend> reads_;
  const TensorInfo& table_;
  MatrixPanels panels_;
  const Buffer memory_;
};

TEST_P(MatrixPanelsTest, AreWhatTheMatrixHas) {
  std::vector<int> all(static_cast<size_t>(Panels(kRows)));
  std::iota(all.rbegin(), all.rend(), 0);
  for (const WantedPanel& panel : Want(all)) {
    ASSERT_TRUE(panel.status.ok()) << panel.status;
    EXPECT_TRUE(std::ranges::equal(panel.bytes, Bytes(ContentsOf(panel.panel)))) << panel.panel;
  }
}

TEST_P(MatrixPanelsTest, DamageNamesTheRows) {
  file_->FlipBit(InFile(124) + 5, 3);
  const auto wanted = Want({123, 124});
  EXPECT_TRUE(wanted[0].status.ok()) << wanted[0].status;
  EXPECT_EQ(wanted[1].status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(wanted[1].status.message()),
              AllOf(HasSubstr("store: "), HasSubstr("\"table\""), HasSubstr("in rows 992 to 996")));
}

// Panels that share a page fail together.
TEST_P(MatrixPanelsTest, AFailedReadIsThatPagesAlone) {
  file_->FailWith({InFile(60), InFile(60) + 1}, absl::UnavailableError("injected"));
  const auto failed = Want({0, 60, 124});
  EXPECT_TRUE(failed[0].status.ok() && failed[2].status.ok());
  EXPECT_TRUE(absl::IsDataLoss(failed[1].status) && !IsDamage(failed[1].status)) << failed[1].status;
  EXPECT_THAT(std::string(failed[1].status.message()), AllOf(HasSubstr("reading rows "), HasSubstr("injected")));
  file_->Heal();
  EXPECT_TRUE(Want({60})[0].status.ok());
}

// The pages that hold nothing else: what is before and behind them is in no other page of theirs.
TEST_P(MatrixPanelsTest, PagesAreTheMatrixAlone) {
  const TrunkRange pages = MatrixPanels::PagesOf(table_);
  EXPECT_GE(pages.begin, table_.offset);
  EXPECT_LE(pages.end, table_.offset + table_.bytes);
  EXPECT_GT(pages.bytes() + 2 * kPageBytes, table_.bytes);
  EXPECT_EQ(pages.begin % kPageBytes, 0u);
  EXPECT_EQ(pages.bytes() % kPageBytes, 0u);
  const TensorInfo tiny = {.name = "tiny", .rows = 8, .cols = 32, .offset = 64, .bytes = 1024};
  EXPECT_EQ(MatrixPanels::PagesOf(tiny).bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Formats, MatrixPanelsTest, testing::ValuesIn(AllFormats()),
                         [](const auto& info) { return std::string(FormatOf(info.param).name); });

}  // namespace matrix_panels_test
}  // namespace moed
