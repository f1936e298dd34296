// The stream state machine under random interleavings, on a transport that ends the test's process when gRPC would.
#include "server/rpc/response_pump.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "server/rpc/sender.h"

namespace moed {

namespace {

struct Words {
  std::string text;
};
void AppendWords(Words& to, Words&& from) { to.text += from.text; }

// Checks gRPC's rules itself; answers when told to.
class FakeTransport final : public ResponseTransport<Words> {
 public:
  void SendInitialMetadata() override {
    MayBegin("metadata");
    Begin("metadata");
  }
  void SendMessage(const Words* message) override {
    MayBegin("message");
    received += message->text;
    ++messages;
    Begin("message");
  }
  void SendFinish(const Words* last, const grpc::Status& given) override {
    EXPECT_FALSE(in_flight) << "finish while an operation was in flight";
    EXPECT_EQ(finishes.fetch_add(1), 0);
    EXPECT_TRUE(last == nullptr || given.ok());
    if (last != nullptr) received += last->text;
    status = given;
  }
  void Abandon() override { abandoned = true; }

  void MayBegin(const char* what) {
    if (std::exchange(throws, false)) throw std::runtime_error(what);
    EXPECT_EQ(finishes, 0) << what << " after the finish";
  }
  // The last that an operation does: from here on another thread may answer it.
  void Begin(const char* what) { EXPECT_FALSE(in_flight.exchange(true)) << what << " while an operation was in flight"; }

  std::atomic<bool> in_flight{false};
  std::atomic<int> finishes{0};
  std::atomic<bool> abandoned{false};
  bool throws = false;  // once: the next operation does not begin
  std::string received;
  int messages = 0;
  grpc::Status status;
};

using Pump = ResponsePump<Words>;
const Pump::Options kStreaming{.streaming = true, .max_unsent_bytes = 8, .append = AppendWords};

void Answer(FakeTransport& transport, Pump& pump, bool ok) {
  transport.in_flight = false;
  pump.OperationDone(ok);
}

class PumpTest : public ::testing::Test {
 protected:
  FakeClock clock_;
  FakeTransport transport_;
};

TEST_F(PumpTest, SendsMetadataThenMessagesThenTheEndWithTheLastMessage) {
  Pump pump(transport_, clock_, kStreaming);
  EXPECT_EQ(pump.Push({"a"}, 1), PushResult::kTaken);
  EXPECT_FALSE(transport_.in_flight) << "nothing goes out before admission";
  pump.Open();
  EXPECT_EQ(transport_.messages, 0);
  Answer(transport_, pump, true);
  EXPECT_EQ(transport_.received, "a");
  EXPECT_EQ(pump.Push({"b"}, 1), PushResult::kTaken);
  EXPECT_EQ(pump.Push({"c"}, 1), PushResult::kTaken);
  pump.End(grpc::Status::OK, Words{"d"});
  EXPECT_EQ(pump.Push({"e"}, 1), PushResult::kEnded);
  EXPECT_EQ(transport_.finishes, 0);
  Answer(transport_, pump, true);
  EXPECT_EQ(transport_.finishes, 1);
  EXPECT_EQ(transport_.received, "abcd");
  EXPECT_EQ(transport_.messages, 1) << "what piled up goes out with the end";
}

TEST_F(PumpTest, CapsUnsentTokensAndCountsThoseInFlight) {
  Pump pump(transport_, clock_, kStreaming);
  pump.Open();
  Answer(transport_, pump, true);
  EXPECT_EQ(pump.Push({"a"}, 5), PushResult::kTaken);
  EXPECT_EQ(pump.Push({"b"}, 3), PushResult::kTaken);
  EXPECT_EQ(pump.Push({"c"}, 1), PushResult::kTooSlow);
  Answer(transport_, pump, true);
  EXPECT_EQ(pump.Push({"d"}, 5), PushResult::kTaken);
  EXPECT_EQ(pump.Push({"e"}, 1), PushResult::kTooSlow);
}

TEST_F(PumpTest, StallsWhileTheClientDoesNotTakeWhatWasSent) {
  Pump pump(transport_, clock_, kStreaming);
  clock_.AdvanceNanos(1000);
  EXPECT_FALSE(pump.Stalled(10));
  pump.Open();
  clock_.AdvanceNanos(10);
  EXPECT_FALSE(pump.Stalled(10));
  clock_.AdvanceNanos(1);
  EXPECT_TRUE(pump.Stalled(10));
  pump.End(grpc::Status(grpc::StatusCode::CANCELLED, "slow"));
  pump.Abandon();
  EXPECT_TRUE(transport_.abandoned);
  Answer(transport_, pump, false);
  EXPECT_EQ(transport_.finishes, 1);
  EXPECT_EQ(transport_.status.error_message(), "slow") << "the first end counts";
  EXPECT_FALSE(pump.Stalled(10));
  clock_.AdvanceNanos(11);
  EXPECT_TRUE(pump.Stalled(10)) << "the client does not take the end";
  pump.Close();
  EXPECT_FALSE(pump.Stalled(10));
  transport_.abandoned = false;
  pump.Abandon();
  EXPECT_FALSE(transport_.abandoned) << "nothing touches a closed transport";
}

TEST_F(PumpTest, AnErrorBeforeAdmissionFinishesAtOnce) {
  Pump pump(transport_, clock_, kStreaming);
  pump.End(grpc::Status(grpc::StatusCode::ABORTED, "busy"));
  EXPECT_EQ(transport_.finishes, 1);
  EXPECT_EQ(transport_.status.error_code(), grpc::StatusCode::ABORTED);
  pump.Open();
  pump.End(grpc::Status::OK);
  EXPECT_EQ(transport_.finishes, 1);
}

TEST_F(PumpTest, AnEngineThatEndsBeforeAdmissionWasToldWaitsForIt) {
  Pump pump(transport_, clock_, kStreaming);
  pump.Push({"a"}, 1);
  pump.End(grpc::Status::OK, Words{"b"});
  EXPECT_EQ(transport_.finishes, 0);
  pump.Open();
  Answer(transport_, pump, true);
  EXPECT_EQ(transport_.finishes, 1);
  EXPECT_EQ(transport_.received, "ab");
}

TEST_F(PumpTest, AnOperationThatThrowsEndsTheCallAndTellsTheCaller) {
  const std::function<void(Pump&)> kOperations[] = {
      [](Pump& pump) { pump.Open(); },
      [&](Pump& pump) { Answer(transport_, pump, true), pump.Push({"a"}, 1); },
      [&](Pump& pump) { pump.Push({"b"}, 1), Answer(transport_, pump, true); },
  };
  for (size_t faulty = 0; faulty < std::size(kOperations); ++faulty) {
    SCOPED_TRACE(faulty);
    transport_.in_flight = false;
    transport_.finishes = 0;
    Pump pump(transport_, clock_, kStreaming);
    for (size_t i = 0; i < faulty; ++i) kOperations[i](pump);
    transport_.throws = true;
    EXPECT_THROW(kOperations[faulty](pump), std::runtime_error);
    EXPECT_EQ(transport_.finishes, 0) << "the caller has not said why yet";
    EXPECT_EQ(pump.Push({"c"}, 1), PushResult::kEnded);
    pump.End(grpc::Status::OK);
    EXPECT_EQ(transport_.finishes, 1);
    EXPECT_EQ(transport_.status.error_code(), grpc::StatusCode::INTERNAL);
    pump.End(grpc::Status::OK);
    EXPECT_EQ(transport_.finishes, 1);
  }
}

TEST_F(PumpTest, WhatIsAllowedBesideTheCapCountsAsUnsent) {
  Pump pump(transport_, clock_, kStreaming);
  pump.AllowMore(100);
  pump.Open();
  Answer(transport_, pump, true);
  EXPECT_EQ(pump.Push({"a"}, 102), PushResult::kTaken);
  EXPECT_EQ(pump.Push({"b"}, 6), PushResult::kTaken);
  EXPECT_EQ(pump.unsent_bytes(), 108u);
  EXPECT_EQ(pump.Push({"c"}, 1), PushResult::kTooSlow);
}

TEST_F(PumpTest, WithoutStreamingEverythingComesWithTheEndUpToTheCap) {
  Pump pump(transport_, clock_, {.streaming = false, .max_unsent_bytes = 100, .append = AppendWords});
  pump.Open();
  Answer(transport_, pump, true);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(pump.Push({"x"}, 1), PushResult::kTaken);
  EXPECT_EQ(pump.Push({"z"}, 1), PushResult::kTooLarge);
  EXPECT_EQ(transport_.messages, 0);
  pump.End(grpc::Status::OK, Words{"y"});
  EXPECT_EQ(transport_.received, std::string(100, 'x') + "y");
}

TEST_F(PumpTest, LeavesSendingToAnotherThread) {
  int asked = 0;
  Pump pump(transport_, clock_,
            {.streaming = true, .max_unsent_bytes = 8, .append = AppendWords, .send_later = [&asked] { ++asked; }});
  pump.Push({"a"}, 1);
  EXPECT_EQ(asked, 0) << "nothing may be sent before admission";
  pump.Open();
  Answer(transport_, pump, true);
  EXPECT_EQ(transport_.received, "a") << "who is on the transport's thread sends at once";
  pump.Push({"b"}, 1);
  EXPECT_EQ(asked, 0) << "its reaction sends what piled up behind an operation in flight";
  Answer(transport_, pump, true);
  Answer(transport_, pump, true);
  pump.Push({"c"}, 1);
  pump.Push({"d"}, 1);
  EXPECT_EQ(asked, 1) << "it is asked for only once";
  EXPECT_EQ(transport_.received, "ab") << "Push does not touch the transport";
  pump.Send();
  EXPECT_EQ(transport_.received, "abcd");
  EXPECT_EQ(transport_.messages, 3);
  Answer(transport_, pump, true);
  pump.End(grpc::Status::OK, Words{"e"});
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(transport_.finishes, 0);
  pump.Send();
  EXPECT_EQ(transport_.finishes, 1);
  EXPECT_EQ(transport_.received, "abcde");
  pump.Close();
  pump.Send();
  EXPECT_EQ(transport_.finishes, 1);
}

TEST_F(PumpTest, AsksAgainAfterAThrownOperation) {
  int asked = 0;
  Pump pump(transport_, clock_,
            {.streaming = true, .max_unsent_bytes = 8, .append = AppendWords, .send_later = [&asked] { ++asked; }});
  pump.Open();
  Answer(transport_, pump, true);
  pump.Push({"a"}, 1);
  transport_.throws = true;
  EXPECT_THROW(pump.Send(), std::runtime_error);
  pump.End(grpc::Status(grpc::StatusCode::INTERNAL, "why"));
  EXPECT_EQ(asked, 2);
  pump.Send();
  EXPECT_EQ(transport_.finishes, 1);
}

// Push, write-done, cancel, engine error, drain, stall and a late sender in random order: exactly one finish, never two
// operations, nothing after it.
TEST(PumpRandomTest, KeepsTheRulesInEveryInterleaving) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    FakeClock clock;
    FakeTransport transport;
    int due = 0;  // sends that were asked for
    Pump::Options options{.streaming = seed % 4 != 0, .max_unsent_bytes = 4, .append = AppendWords};
    if (seed % 3 != 0) {
      options.send_later = [&due] {
        EXPECT_EQ(due, 0);
        ++due;
      };
    }
    Pump pump(transport, clock, options);
    const auto send = [&] {
      if (std::exchange(due, 0) > 0) pump.Send();
    };
    std::string pushed;
    bool ok = true;
    bool ended = false;
    for (int step = 0; step < 30; ++step) {
      switch (random() % 10) {
        case 0:
        case 1:
        case 2: {
          const std::string text(1, static_cast<char>('a' + step % 26));
          if (pump.Push({text}, 1) == PushResult::kTaken) pushed += text;
          break;
        }
        case 3:
        case 4:
          if (transport.in_flight && transport.finishes == 0) {
            const bool done_ok = random() % 10 != 0;
            if (!done_ok) ok = false;
            Answer(transport, pump, done_ok);
          }
          break;
        case 5:
          pump.Open();
          break;
        case 6:
          if (random() % 3 == 0) pump.Abandon();
          break;
        case 7:
          if (random() % 4 == 0) {  // engine's end, a cancellation, a drain: whoever is first
            const bool success = random() % 2 == 0;
            if (!ended && !success) ok = false;
            ended = true;
            pump.End(success ? grpc::Status::OK : grpc::Status(grpc::StatusCode::CANCELLED, "x"));
          }
          break;
        case 8:
        case 9:
          send();
          break;
      }
    }
    pump.Open();
    pump.End(grpc::Status::OK);
    send();
    for (int i = 0; i < 100 && transport.finishes == 0; ++i) Answer(transport, pump, true);
    EXPECT_EQ(transport.finishes, 1);
    EXPECT_EQ(transport.status.ok(), ok);
    if (ok) {
      EXPECT_EQ(transport.received, pushed) << "nothing lost, nothing twice, in order";
    } else {
      EXPECT_EQ(pushed.compare(0, transport.received.size(), transport.received), 0);
    }
  }
}

// What a sender does for the calls of a daemon.
class PumpSender final : public Outgoing {
 public:
  explicit PumpSender(Pump& pump) : pump_(pump) {}
  void Send() override { pump_.Send(); }

 private:
  Pump& pump_;
};

// The same from five threads, for the sanitizers.
TEST(PumpThreadsTest, KeepsTheRulesAcrossThreads) {
  for (int round = 0; round < 200; ++round) {
    FakeClock clock;
    FakeTransport transport;
    auto sender = std::make_unique<Sender>();
    std::shared_ptr<PumpSender> outgoing;
    Pump::Options options{.streaming = true, .max_unsent_bytes = 1 << 20, .append = AppendWords};
    options.send_later = [&] { sender->Post(outgoing); };
    Pump pump(transport, clock, options);
    outgoing = std::make_shared<PumpSender>(pump);
    std::atomic<bool> finished{false};
    std::thread engine([&] {
      for (int i = 0; i < 50; ++i) pump.Push({"x"}, 1);
      pump.End(grpc::Status::OK, Words{"."});
    });
    std::thread completions([&] {
      while (transport.finishes == 0) {
        bool expected = true;
        if (transport.finishes == 0 && transport.in_flight.compare_exchange_strong(expected, false)) {
          if (transport.finishes != 0) break;
          pump.OperationDone(true);
        }
        std::this_thread::yield();
      }
      finished = true;
    });
    std::thread canceller([&] {
      if (round % 2 == 0) pump.End(grpc::Status(grpc::StatusCode::CANCELLED, "x"));
    });
    std::thread ticker([&] {
      while (!finished) {
        pump.Stalled(1);
        std::this_thread::yield();
      }
    });
    pump.Open();
    for (std::thread* thread : {&engine, &completions, &canceller, &ticker}) thread->join();
    sender.reset();  // before what it sends for
    EXPECT_EQ(transport.finishes, 1);
    if (transport.status.ok()) {
      EXPECT_EQ(transport.received, std::string(50, 'x') + ".");
    }
  }
}

}  // namespace
}  // namespace moed
