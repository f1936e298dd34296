// A disk and the time it takes, without either: reads are answered one at a time, each after as long as its bytes take.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/clock.h"
#include "core/io/read_backend.h"

namespace moed {

// One thread only: reads complete inside Advance and AwaitRead. What is read is all zeros; destinations are left alone.
class SimulatedDisk final : public ReadBackend, public Clock {
 public:
  explicit SimulatedDisk(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  int64_t NowNanos() const override { return now_nanos_; }
  std::string_view name() const override { return "simulated"; }
  const std::string& description() const override { return description_; }
  int max_in_flight() const override { return 1; }
  void Submit(ReadOp op) override;

  bool idle() const { return !reading_; }
  // Time passes; reads that end within it are answered when they end, and those submitted then begin then.
  void Advance(int64_t nanos);
  // Time passes until the read that is under way ends. Not idle.
  void AwaitRead();

 private:
  void EndRead();

  const double bytes_per_second_;
  const std::string description_ = "simulated";
  int64_t now_nanos_ = 0;
  bool reading_ = false;
  int64_t ends_nanos_ = 0;
  ReadOp op_;
};

}  // namespace moed
