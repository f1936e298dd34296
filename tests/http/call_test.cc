#include "server/http/upstream/call.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>

#include "moe/v1/control.pb.h"

namespace moed::http {
namespace {

// Who waits for the count destroys what the answer goes to.
TEST(UnaryCall, HoldsNothingOnceItIsNotCounted) {
  CallCount count;
  std::function<void(const grpc::Status&)> end;
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> alive = held;
  std::make_shared<UnaryCall<moe::v1::Stats>>(count)->Start(
      [held = std::move(held)](const grpc::Status&, const moe::v1::Stats&) {},
      [&](grpc::ClientContext*, moe::v1::Stats*, auto callback) { end = std::move(callback); });
  EXPECT_FALSE(alive.expired());
  end(grpc::Status::OK);
  count.WaitUntilNone();
  EXPECT_TRUE(alive.expired());
}

}  // namespace
}  // namespace moed::http
