// Who is compared: a preset, what is replaced in it, and what its requests ask for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/expert/presets/preset.h"
#include "moe/v1/inference.pb.h"

namespace moed {

// A value given to a part of the daemon ("policy", "predictor", ...) or to one of a preset's options.
struct NamedValue {
  std::string name;
  std::string value;
  bool operator==(const NamedValue&) const = default;
};

// "hobbit", "hobbit+policy=lru", "fate+fate-prefill-low=0.5", "auto+learned", "auto@bounded:0.2".
struct Contender {
  std::string preset;
  std::vector<NamedValue> parts;    // flags of the daemon that replace parts of the preset
  std::vector<NamedValue> options;  // --preset-options of its own
  bool learned = false;             // every turn begins with what was learned on another text
  std::string fidelity_text;        // "": requests do not say
  std::optional<moe::v1::Fidelity> fidelity;

  bool plain() const { return parts.empty() && options.empty(); }
  std::string name() const;
};

// Names separated by commas. Two names are sets: "all" is every preset, auto with some bounds and with what it learned, and
// auto's exact rivals; "ablations" is everybody of systems_ablations.h. INVALID_ARGUMENT lists the known names.
absl::StatusOr<std::vector<Contender>> ParseContenders(const std::string& text);

// An option of --options: for every contender of that preset, or of all, that knows it.
struct GivenOption {
  std::string preset;  // "": all
  NamedValue option;
  int share = 0;  // percent of the cell; 0: any
};
// "[PRESET:]NAME=VALUE,..."
absl::StatusOr<std::vector<GivenOption>> ParseGivenOptions(const std::vector<std::string>& texts);

// What `moed-plan all` left in `folder` for a run at these cache sizes: for every contender that knows the option, and where
// `given` does not say it. `missing`: the files that are not there, whose presets do without. NOT_FOUND: none is there.
struct FoundPlans {
  std::vector<GivenOption> options;
  std::vector<std::string> missing;
};
absl::StatusOr<FoundPlans> FindPlans(const std::string& folder, const std::vector<int>& shares,
                                     const std::vector<GivenOption>& given);

// As the daemon is told, without options.
PresetChoice ChoiceOf(const Contender& contender);

// What --preset-options has to say for the contender: of those given what it knows, and its own.
std::vector<NamedValue> OptionsOf(const Contender& contender, const std::vector<GivenOption>& given, int share);

// INVALID_ARGUMENT: an option that none of the contenders knows.
absl::Status CheckGivenOptions(const std::vector<Contender>& contenders, const std::vector<GivenOption>& given);

// --preset and what goes with it.
std::vector<std::string> DaemonFlags(const Contender& contender, const std::vector<NamedValue>& options);

}  // namespace moed
