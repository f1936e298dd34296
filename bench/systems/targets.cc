#include "bench/systems/targets.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "core/base/status.h"

namespace moed {
namespace {

constexpr std::string_view kRate = "decode_tokens_per_second";
constexpr std::string_view kAuto = "auto";

// Of one contender or, by name, of a choice among several.
using Pick = std::string (*)(const ReportParts& parts, const Cell& cell);

struct TargetRow {
  std::string_view ours;
  std::string_view theirs;
  Pick pick_ours = nullptr;  // null: `ours` itself
  Pick pick_theirs = nullptr;
  double reach = 0;
  int share = 0;  // 0: any
};

double MedianOr(const ReportParts& parts, const Cell& cell, const std::string& name, std::string_view figure, double otherwise) {
  const auto spread = SpreadOf(parts.journal, cell, name, std::string(figure));
  return spread ? spread->median : otherwise;
}

bool TakesPart(const ReportParts& parts, const std::string& name) {
  return std::ranges::find(parts.contenders, name, &Contender::name) != parts.contenders.end();
}

// Of all that compute exactly and are not auto with some part replaced. None where the usual baseline is missing: of some of an
// ablation's contenders the best says nothing.
std::string BestExact(const ReportParts& parts, const Cell& cell) {
  std::string best;
  if (!TakesPart(parts, "load-on-demand-lru")) return best;
  double rate = 0;
  for (const Contender& contender : parts.contenders) {
    const std::string name = contender.name();
    if (contender.preset == kAuto || MedianOr(parts, cell, name, "exact", 0) != 1) continue;
    const double here = MedianOr(parts, cell, name, kRate, 0);
    if (here > rate) best = name, rate = here;
  }
  return best;
}

// The fastest bounded auto that loses no more gate mass than the rival.
std::string AutoWithin(const ReportParts& parts, const Cell& cell, const std::string& rival) {
  const double mass = MedianOr(parts, cell, rival, "gate_mass_lost", 0);
  std::string best;
  double rate = 0;
  for (const Contender& contender : parts.contenders) {
    const std::string name = contender.name();
    if (!contender.plain() || contender.learned || contender.preset != kAuto) continue;
    if (MedianOr(parts, cell, name, "gate_mass_lost", 1) > mass) continue;
    const double here = MedianOr(parts, cell, name, kRate, 0);
    if (here > rate) best = name, rate = here;
  }
  return best;
}
std::string AutoWithinHobbit(const ReportParts& parts, const Cell& cell) { return AutoWithin(parts, cell, "hobbit"); }
std::string AutoWithinSwapmoe(const ReportParts& parts, const Cell& cell) { return AutoWithin(parts, cell, "swapmoe"); }

constexpr TargetRow kTargets[] = {
    {"hobbit", "load-on-demand-lru", nullptr, nullptr, 1.5, 25},
    {"hobbit", "load-on-demand", nullptr, nullptr, 1.5, 25},
    {"fate", "load-on-demand-lru", nullptr, nullptr, 1.3},
    {"fate", "eap", nullptr, nullptr, 1.15},
    {"fate", "load-on-demand", nullptr, nullptr, 3},
    {"edgemoe", "io-exp", nullptr, nullptr, 2},
    {"edgemoe", "io-qexp", nullptr, nullptr, 1.2},
    {"auto", "the best exact rival", nullptr, BestExact, 1.0},
    {"auto", "the best exact rival", nullptr, BestExact, 1.2, 25},
    {"auto+learned", "the best exact rival", nullptr, BestExact, 1.0},
    {"auto+learned", "the best exact rival", nullptr, BestExact, 1.2, 25},
    {"auto within hobbit's gate mass", "hobbit", AutoWithinHobbit, nullptr, 1.1},
    {"auto within swapmoe's gate mass", "swapmoe", AutoWithinSwapmoe, nullptr, 1.1},
};

std::string Title(std::string_view row, const std::string& name) { return row == name ? name : StrCat(row, " (", name, ")"); }

}  // namespace

std::vector<TargetResult> Targets(const ReportParts& parts) {
  std::vector<TargetResult> results;
  for (const TargetRow& row : kTargets) {
    for (const Cell& cell : parts.cells) {
      if (row.share != 0 && row.share != cell.share) continue;
      const std::string ours = row.pick_ours != nullptr ? row.pick_ours(parts, cell) : std::string(row.ours);
      const std::string theirs = row.pick_theirs != nullptr ? row.pick_theirs(parts, cell) : std::string(row.theirs);
      if (!TakesPart(parts, ours) || !TakesPart(parts, theirs)) continue;
      results.push_back({StrCat(Title(row.ours, ours), " / ", Title(row.theirs, theirs)), cell.name(), row.reach,
                         RatioOf(parts.journal, cell, ours, theirs)});
    }
  }
  return results;
}

}  // namespace moed
