// Energy that the processor packages have used, where the machine lets one read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moed {

class EnergyMeter {
 public:
  // Package zones under `folder`; none when there are none or they may not be read.
  explicit EnergyMeter(const std::string& folder = "/sys/class/powercap");
  bool readable() const { return !zones_.empty(); }
  // Joules of all packages since the last call or the start; counters that wrapped once are right.
  double TakeJoules();

 private:
  struct Zone {
    std::string file;
    uint64_t range = 0;  // microjoules at which the counter starts again
    uint64_t last = 0;
  };
  std::vector<Zone> zones_;
};

}  // namespace moed
