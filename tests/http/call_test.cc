#include "server/http/upstream/call.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "moe/v1/control.pb.h"

namespace moed::http {
namespace {

// What gRPC would do of a call.
class FakeCall final : public grpc::ClientCallbackUnary {
 public:
  void Begin(grpc::ClientUnaryReactor* call) {
    BindReactor(call);
    call_ = call;
  }
  void StartCall() override { started_ = true; }
  bool started() const { return started_; }
  void Arrive() { call_->OnReadInitialMetadataDone(true); }
  void End() { call_->OnDone(grpc::Status::OK); }

 private:
  grpc::ClientUnaryReactor* call_ = nullptr;
  bool started_ = false;
};

// Who waits for the count destroys what the answer goes to.
TEST(UnaryCall, HoldsNothingOnceItIsNotCounted) {
  CallCount count;
  FakeCall fake;
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> alive = held;
  std::make_shared<UnaryCall<moe::v1::Stats>>(count)->Start(
      [held = std::move(held)](const grpc::Status&, const moe::v1::Stats&) {},
      [&](grpc::ClientContext*, moe::v1::Stats*, auto* call) { fake.Begin(call); });
  EXPECT_TRUE(fake.started());
  EXPECT_FALSE(alive.expired());
  fake.End();
  count.WaitUntilNone();
  EXPECT_TRUE(alive.expired());
}

TEST(UnaryCall, WaitsForRoomAndMakesItsRequestWhenItGoes) {
  constexpr size_t kMost = 100, kBytes = 60;
  CallCount count;
  Passage passage(kMost);
  std::array<FakeCall, 6> fakes;
  std::vector<grpc::StatusCode> ends;
  std::vector<std::shared_ptr<UnaryCall<moe::v1::Stats>>> calls;
  std::vector<std::weak_ptr<int>> requests;  // what they are made of
  int made = 0;
  const auto started = [&] {
    std::string text;
    for (const FakeCall& fake : fakes) text += fake.started() ? '1' : '0';
    return text;
  };
  for (FakeCall& fake : fakes) {
    const auto request = std::make_shared<int>();
    requests.push_back(request);
    calls.push_back(std::make_shared<UnaryCall<moe::v1::Stats>>(count));
    calls.back()->Start([&](const grpc::Status& status, const moe::v1::Stats&) { ends.push_back(status.error_code()); },
                        [&](grpc::ClientContext*, moe::v1::Stats*, auto* call) {
                          fake.Begin(call);
                          call->GoThrough(
                              passage, calls.size() == 5 ? 2 * kMost : kBytes, [request, &made] { ++made; }, nullptr);
                        });
  }
  EXPECT_EQ(started(), "100000");
  EXPECT_TRUE(requests[0].expired());
  EXPECT_FALSE(requests[1].expired());
  EXPECT_EQ(made, 1);
  fakes[0].Arrive();
  EXPECT_EQ(started(), "110000");
  fakes[0].End();  // has no room any more
  EXPECT_EQ(started(), "110000");
  calls[3]->Cancel();  // goes to its end, and takes none
  EXPECT_EQ(started(), "110100");
  fakes[3].End();
  EXPECT_EQ(started(), "110100");
  fakes[1].End();  // without having arrived
  EXPECT_EQ(started(), "111100");
  EXPECT_FALSE(requests[4].expired());
  fakes[2].Arrive();  // the last one takes more than there is, and goes alone
  EXPECT_EQ(started(), "111110");
  EXPECT_TRUE(requests[4].expired());
  passage.EndWaiting();  // nobody waits for a daemon that is not reached
  EXPECT_EQ(started(), "111111");
  EXPECT_EQ(made, 5);
  EXPECT_TRUE(requests[5].expired());
  for (const int i : {2, 4, 5}) fakes[static_cast<size_t>(i)].End();
  count.WaitUntilNone();
  using enum grpc::StatusCode;
  EXPECT_EQ(ends, (std::vector<grpc::StatusCode>{OK, OK, OK, OK, OK, UNAVAILABLE}));
}

}  // namespace
}  // namespace moed::http
