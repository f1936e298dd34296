// Memory may run out at any allocation of what callers ask of the intake. A program of its own: it replaces operator new.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/engine/intake.h"

namespace {
int64_t allocations_left = -1;  // the one after them fails; negative: none does
}

// Not inlined: the compiler would see free() meet the library's operator new.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (allocations_left-- == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace moed {
namespace {

// Too long to lie in a std::string itself.
constexpr char kJob[] = "a job whose name is long";
constexpr char kTenant[] = "a tenant whose name is long";
constexpr char kSession[] = "a session whose name is long";

EngineRequest Request() {
  return {.name = kJob, .tenant = kTenant, .tenant_limits = {.max_running = 1}, .prompt = {TokenId(1)}, .session_id = kSession};
}

absl::StatusOr<RequestId> Submit(Intake& intake, EngineRequest request) {
  const auto build = [&](RequestId id, std::unique_ptr<Sequence>& sequence) {
    EngineRequest taken = std::move(request);
    auto live = std::make_unique<LiveRequest>();
    live->id = id;
    live->request = std::move(taken);
    live->sequence = std::move(sequence);
    return live;
  };
  return intake.Submit(request, {.max_context = 8}, build);
}

// The one that came in.
std::unique_ptr<LiveRequest> Receive(Intake& intake) {
  std::vector<std::unique_ptr<LiveRequest>> requests;
  Cancellations cancellations;
  intake.Receive(requests, cancellations);
  EXPECT_EQ(requests.size(), 1u);
  return std::move(requests.front());
}

void KeepAConversation(Intake& intake) {
  EXPECT_TRUE(Submit(intake, Request()).ok());
  const auto live = Receive(intake);
  live->sequence->Keep();
  EXPECT_EQ(intake.Release(*live, std::move(live->sequence)), nullptr);
  intake.Finished();
}

// True: the allocation after so many failed.
bool FailsAfter(int allocations, absl::FunctionRef<void()> body) {
  bool failed = false;
  allocations_left = allocations;
  try {
    body();
  } catch (const std::bad_alloc&) {
    failed = true;
  }
  allocations_left = -1;
  return failed;
}

class SubmitTest : public ::testing::TestWithParam<bool> {};

TEST_P(SubmitTest, ASubmitThatFailsLeavesNothingBehind) {
  const bool kept = GetParam();
  int allocations = 0;
  for (;; ++allocations) {
    SCOPED_TRACE(allocations);
    Intake intake(1, 1, 1);
    if (kept) KeepAConversation(intake);
    EngineRequest request = Request();
    if (!FailsAfter(allocations, [&] { Submit(intake, std::move(request)).IgnoreError(); })) break;
    EXPECT_EQ(intake.live(), 0);
    EXPECT_TRUE(intake.Idle());
    EXPECT_EQ(intake.sessions(), kept ? 1 : 0);
    EXPECT_EQ(intake.HasSession(kSession), kept);
    const auto again = Submit(intake, Request());
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_EQ(intake.ListTenants().size(), 1u);
    EXPECT_EQ(intake.ListTenants()[0].name, kTenant);
    EXPECT_EQ(intake.ListTenants()[0].limits.max_running, 1);
    EXPECT_EQ(Receive(intake)->sequence->tokens.size(), kept ? 2u : 1u);
  }
  EXPECT_GT(allocations, 5);
}

INSTANTIATE_TEST_SUITE_P(Sessions, SubmitTest, ::testing::Bool(), [](const auto& info) { return info.param ? "kept" : "fresh"; });

TEST(OutOfMemoryTest, ACancellationThatFailsMayBeAskedForAgain) {
  Intake intake(1, 1, 1);
  const RequestId id = Submit(intake, Request()).value();
  const absl::Status reason = absl::CancelledError("nobody waits any more");
  EXPECT_TRUE(FailsAfter(0, [&] { intake.Cancel(id, reason); }));
  EXPECT_TRUE(intake.Cancel(id, reason));
  Cancellations cancellations;
  EXPECT_FALSE(intake.Interruptions(cancellations));
  EXPECT_EQ(cancellations, (Cancellations{{id, reason}}));
}

}  // namespace
}  // namespace moed
