#include "client/fidelity.h"

#include <cstdio>
#include <utility>

#include "core/base/status.h"

namespace moed {

absl::StatusOr<std::optional<moe::v1::Fidelity>> ParseFidelity(const std::string& text) {
  using moe::v1::Fidelity;
  if (text.empty()) return std::nullopt;
  Fidelity fidelity;
  float mass = 0;
  int used = 0;
  if (text == "exact") {
    fidelity.set_kind(Fidelity::EXACT);
  } else if (text == "fast-matmul") {
    fidelity.set_kind(Fidelity::FAST_MATMUL);
  } else if (text == "fast") {
    fidelity.set_kind(Fidelity::FAST);
  } else if (std::sscanf(text.c_str(), "bounded:%f%n", &mass, &used) == 1 && used == static_cast<int>(text.size())) {
    fidelity.set_kind(Fidelity::BOUNDED);
    fidelity.set_max_gate_mass(mass);
  } else {
    return InvalidArgument("'", text, "': expected exact, fast-matmul, bounded:X with X from 0 to 1, or fast");
  }
  return fidelity;
}

absl::StatusOr<std::optional<moe::v1::Fidelity>> FidelityOfFlag(const std::string& text) {
  auto fidelity = ParseFidelity(text);
  return fidelity.ok() ? std::move(fidelity) : Annotate(fidelity.status(), "--fidelity");
}

}  // namespace moed
