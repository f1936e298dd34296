#include "bench/systems/contender.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/systems/ablations.h"
#include "client/fidelity.h"
#include "core/base/status.h"
#include "core/expert/fidelity/table.h"
#include "core/expert/policies/table.h"
#include "core/expert/predictors/table.h"

namespace moed {
namespace {

constexpr std::string_view kAll = "all";
constexpr std::string_view kAblations = "ablations";
constexpr std::string_view kLearned = "learned";

// What auto may lose in some further rows.
constexpr std::string_view kBounds[] = {"bounded:0.1", "bounded:0.2", "bounded:0.4"};

// Who auto, being exact, is compared with beside the presets: another eviction alone, and the papers' systems where nothing may
// be lost, each also without its guesses.
constexpr std::string_view kExactRivals[] = {"load-on-demand-lru+policy=lfu", "hobbit@exact", "hobbit+predictor=none@exact",
                                             "fate@exact", "fate+predictor=none@exact"};

template <class Rows>
std::vector<std::string> NamesOf(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

// What moed-plan all makes: the file, and the option that takes it. Slots have a file for each cache size.
struct PlanRow {
  std::string_view file, option;
};
constexpr PlanRow kPlans[] = {
    {"widths.json", "widths"}, {"paths", "paths"}, {"fate.json", "fate-plan"}, {"hobbit.json", "hobbit-plan"}};

// The daemon's flags that replace a part.
struct PartRow {
  std::string_view flag;
  std::vector<std::string> (*names)();
};
constexpr PartRow kParts[] = {
    {"policy", [] { return NamesOf(Policies()); }},
    {"predictor", [] { return NamesOf(Predictors()); }},
    {"fidelity-rule", [] { return NamesOf(FidelityRules()); }},
    {"fill-cache",
     [] {
       return std::vector<std::string>{"on", "off"};
     }},
};

std::vector<std::string> AllNames() {
  std::vector<std::string> names;
  for (const PresetRow& row : Presets()) {
    names.emplace_back(row.name);
    if (row.name != "auto") continue;
    names.push_back(StrCat(row.name, "+", kLearned));
    for (std::string_view bound : kBounds) names.push_back(StrCat(row.name, "@", bound));
  }
  names.insert(names.end(), std::begin(kExactRivals), std::end(kExactRivals));
  return names;
}

std::string Expected() {
  return StrCat("expected PRESET[+learned][+NAME=VALUE...][@FIDELITY], NAME one of ",
                JoinNames(kParts, [](const PartRow& row) { return row.flag; }), " or an option of the preset");
}

absl::StatusOr<NamedValue> ParseNamedValue(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size()) {
    return InvalidArgument("\"", text, "\": expected NAME=VALUE");
  }
  return NamedValue{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

absl::Status AddChange(const std::string& text, Contender& contender) {
  if (text == kLearned) {
    contender.learned = true;
    return absl::OkStatus();
  }
  const absl::StatusOr<NamedValue> change = ParseNamedValue(text);
  if (!change.ok()) return InvalidArgument("--presets: \"+", text, "\": ", Expected());
  const auto part = std::ranges::find(kParts, change->name, &PartRow::flag);
  if (part == std::end(kParts)) {
    contender.options.push_back(*change);
    return absl::OkStatus();
  }
  const std::vector<std::string> names = part->names();
  if (std::ranges::find(names, change->value) == names.end()) {
    return InvalidArgument("--presets: unknown ", part->flag, " \"", change->value,
                           "\"; known are: ", absl::StrJoin(names, ", "));
  }
  contender.parts.push_back(*change);
  return absl::OkStatus();
}

absl::Status CheckPreset(std::string_view flag, const std::string& name) {
  const auto presets = Presets();
  if (std::ranges::find(presets, name, &PresetRow::name) != presets.end()) return absl::OkStatus();
  return InvalidArgument(flag, ": unknown preset \"", name,
                         "\"; known are: ", flag == "--presets" ? StrCat(kAll, ", ", kAblations, ", ") : "",
                         JoinNames(presets, [](const PresetRow& row) { return row.name; }));
}

absl::StatusOr<Contender> ParseContender(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('@', 1));
  const std::vector<std::string> changes = absl::StrSplit(parts.first, '+');
  Contender contender;
  contender.preset = changes.front();
  MOED_RETURN_IF_ERROR(CheckPreset("--presets", contender.preset));
  for (size_t i = 1; i < changes.size(); ++i) MOED_RETURN_IF_ERROR(AddChange(changes[i], contender));
  contender.fidelity_text = parts.second;
  MOED_ASSIGN_OR_RETURN(contender.fidelity, ParseFidelity(contender.fidelity_text));
  return contender;
}

// Whether the preset has, with the contender's parts, an option of that name.
bool Knows(const Contender& contender, const std::string& option) {
  const auto known = KnownOptions(ChoiceOf(contender));  // the names have been checked
  return known.ok() && std::ranges::find(*known, option, &OptionRow::name) != known->end();
}

}  // namespace

std::string Contender::name() const {
  std::string text = preset;
  if (learned) text += StrCat("+", kLearned);
  for (const auto* changes : {&parts, &options}) {
    for (const NamedValue& change : *changes) text += StrCat("+", change.name, "=", change.value);
  }
  return fidelity_text.empty() ? text : StrCat(text, "@", fidelity_text);
}

absl::StatusOr<std::vector<Contender>> ParseContenders(const std::string& text) {
  std::vector<std::string> names;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::vector<std::string> set = name == kAll         ? AllNames()
                                         : name == kAblations ? AblationNames()
                                                              : std::vector<std::string>{name};
    names.insert(names.end(), set.begin(), set.end());
  }
  std::vector<Contender> contenders;
  for (const std::string& name : names) {
    MOED_ASSIGN_OR_RETURN(Contender contender, ParseContender(name));
    if (std::ranges::find(contenders, contender.name(), &Contender::name) != contenders.end()) {
      return InvalidArgument("--presets: \"", contender.name(), "\" is there twice");
    }
    contenders.push_back(std::move(contender));
  }
  return contenders;
}

absl::StatusOr<std::vector<GivenOption>> ParseGivenOptions(const std::vector<std::string>& texts) {
  std::vector<GivenOption> options;
  for (const std::string& text : texts) {
    const size_t colon = text.find(':');
    const bool named = colon != std::string::npos && colon < text.find('=');
    const std::string preset = named ? text.substr(0, colon) : "";
    if (named) MOED_RETURN_IF_ERROR(CheckPreset("--options", preset));
    const std::vector<std::string> pairs = absl::StrSplit(text.substr(named ? colon + 1 : 0), ',');
    for (const std::string& option : pairs) {
      absl::StatusOr<NamedValue> value = ParseNamedValue(option);
      if (!value.ok()) return InvalidArgument("--options \"", text, "\": expected [PRESET:]NAME=VALUE,...");
      options.push_back({preset, *std::move(value)});
    }
  }
  return options;
}

absl::Status CheckGivenOptions(const std::vector<Contender>& contenders, const std::vector<GivenOption>& given) {
  for (const GivenOption& one : given) {
    const bool known = std::ranges::any_of(contenders, [&one](const Contender& contender) {
      return (one.preset.empty() || one.preset == contender.preset) && Knows(contender, one.option.name);
    });
    if (!known) return InvalidArgument("--options: no contender knows the option \"", one.option.name, "\"");
  }
  return absl::OkStatus();
}

absl::StatusOr<FoundPlans> FindPlans(const std::string& folder, const std::vector<int>& shares,
                                     const std::vector<GivenOption>& given) {
  FoundPlans found;
  const auto look_for = [&](const std::string& file, std::string_view option, int share) {
    const auto says = [option](const GivenOption& one) { return one.option.name == option; };
    if (std::ranges::any_of(given, says)) return;
    const std::string path = StrCat(folder, "/", file);
    std::error_code error;
    if (std::filesystem::exists(path, error)) {
      found.options.push_back({"", {std::string(option), path}, share});
    } else {
      found.missing.push_back(file);
    }
  };
  for (const PlanRow& row : kPlans) look_for(std::string(row.file), row.option, 0);
  for (const int share : shares) look_for(StrCat("slots-", share, ".json"), "slots", share);
  if (!found.options.empty() || found.missing.empty()) return found;
  return NotFound("--plans ", folder, ": none of ", absl::StrJoin(found.missing, ", "), "; \"moed-plan all STORE TEXT --out ",
                  folder, "\" makes them");
}

PresetChoice ChoiceOf(const Contender& contender) {
  PresetChoice choice{.preset = contender.preset};
  for (const NamedValue& part : contender.parts) {
    if (part.name == "policy") choice.policy = part.value;
    if (part.name == "predictor") choice.predictor = part.value;
    if (part.name == "fidelity-rule") choice.rule = part.value;
  }
  return choice;
}

std::vector<NamedValue> OptionsOf(const Contender& contender, const std::vector<GivenOption>& given, int share) {
  std::vector<NamedValue> options = contender.options;
  for (const GivenOption& one : given) {
    const bool own = std::ranges::find(options, one.option.name, &NamedValue::name) != options.end();
    if (own || (one.share != 0 && one.share != share) || (!one.preset.empty() && one.preset != contender.preset)) continue;
    if (Knows(contender, one.option.name)) options.push_back(one.option);
  }
  return options;
}

std::vector<std::string> DaemonFlags(const Contender& contender, const std::vector<NamedValue>& options) {
  std::vector<std::string> flags = {"--preset", contender.preset};
  for (const NamedValue& part : contender.parts) flags.insert(flags.end(), {StrCat("--", part.name), part.value});
  if (!options.empty()) {
    flags.push_back("--preset-options");
    flags.push_back(absl::StrJoin(
        options, ",", [](std::string* out, const NamedValue& option) { *out += StrCat(option.name, "=", option.value); }));
  }
  return flags;
}

}  // namespace moed
