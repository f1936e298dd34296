#include <array>
#include <utility>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/io/backends.h"

namespace moed {
namespace {

constexpr int kLargestQueueDepth = 1024;

// In the order in which "auto" tries them.
constexpr std::array<ReadBackendRow, 3> kRows = {{
    {"io_uring", OpenUringBackend},
    {"direct", OpenDirectBackend},
    {"buffered", OpenBufferedBackend},
}};

// A backend whose description also says why better ones were not taken.
class ChosenBackend final : public ReadBackend {
 public:
  ChosenBackend(std::unique_ptr<ReadBackend> chosen, std::string_view refusals)
      : chosen_(std::move(chosen)), description_(StrCat(chosen_->description(), " (", refusals, ")")) {}

  std::string_view name() const override { return chosen_->name(); }
  const std::string& description() const override { return description_; }
  int max_in_flight() const override { return chosen_->max_in_flight(); }
  void Submit(ReadOp op) override { chosen_->Submit(std::move(op)); }

 private:
  const std::unique_ptr<ReadBackend> chosen_;
  const std::string description_;
};

absl::StatusOr<std::unique_ptr<ReadBackend>> OpenFirstThatWorks(const std::string& path, const ReadBackendOptions& options) {
  std::string refusals;
  absl::Status last;
  for (const ReadBackendRow& row : kRows) {
    auto opened = row.open(path, options);
    if (opened.ok() && refusals.empty()) return opened;
    if (opened.ok()) return std::make_unique<ChosenBackend>(*std::move(opened), refusals);
    last = opened.status();
    refusals +=
        StrCat(refusals.empty() ? "" : "; ", row.name, ": ", std::string_view(last.message().data(), last.message().size()));
  }
  return last;  // the last row asks least of file and kernel, so its error is the file's own
}

}  // namespace

void CheckAligned(const ReadOp& op) {
  MOED_CHECK(op.offset % kPageBytes == 0);
  MOED_CHECK(op.destination.size() % kPageBytes == 0);
  MOED_CHECK(reinterpret_cast<uintptr_t>(op.destination.data()) % kPageBytes == 0);
}

std::span<const ReadBackendRow> ReadBackends() { return kRows; }

absl::StatusOr<std::unique_ptr<ReadBackend>> OpenReadBackend(std::string_view name, const std::string& path,
                                                             const ReadBackendOptions& options) {
  if (options.queue_depth < 1 || options.queue_depth > kLargestQueueDepth) {
    return InvalidArgument("queue depth ", options.queue_depth, " of the read backend is not in 1..", kLargestQueueDepth);
  }
  if (name == "auto") return OpenFirstThatWorks(path, options);
  for (const ReadBackendRow& row : kRows) {
    if (row.name == name) return row.open(path, options);
  }
  return InvalidArgument("unknown read backend '", name, "'; known: auto, ",
                         JoinNames(kRows, [](const auto& row) { return row.name; }));
}

}  // namespace moed
