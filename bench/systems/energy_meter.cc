#include "bench/systems/energy_meter.h"

#include <filesystem>
#include <fstream>
#include <optional>

namespace moed {
namespace {

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

// "intel-rapl:0" is a package, "intel-rapl:0:0" a part of one.
bool IsPackage(const std::string& name) {
  constexpr std::string_view kPrefix = "intel-rapl:";
  return name.starts_with(kPrefix) && name.find(':', kPrefix.size()) == std::string::npos;
}

}  // namespace

EnergyMeter::EnergyMeter(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (!IsPackage(entry.path().filename().string())) continue;
    const std::string file = (entry.path() / "energy_uj").string();
    const auto range = ReadNumber((entry.path() / "max_energy_range_uj").string());
    const auto now = ReadNumber(file);
    if (range && now) zones_.push_back({file, *range, *now});
  }
}

double EnergyMeter::TakeJoules() {
  double microjoules = 0;
  for (Zone& zone : zones_) {
    const uint64_t now = ReadNumber(zone.file).value_or(zone.last);
    microjoules += static_cast<double>(now >= zone.last ? now - zone.last : zone.range - zone.last + now);
    zone.last = now;
  }
  return microjoules * 1e-6;
}

}  // namespace moed
