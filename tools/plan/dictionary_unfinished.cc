#include "tools/plan/dictionary_unfinished.h"

#include <filesystem>
#include <limits>
#include <utility>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/expert/plan_reader.h"
#include "core/io/file.h"
#include "nlohmann/json.hpp"
#include "tools/plan/plan_writer.h"

namespace moed {
namespace {

using Json = nlohmann::json;  // the ordered one copies what is deep into the stack

absl::StatusOr<int> Windows(const Json& json) {
  MOED_ASSIGN_OR_RETURN(const int64_t windows, WholeNumber("windows", json, 0, std::numeric_limits<int>::max()));
  return static_cast<int>(windows);
}

absl::StatusOr<uint64_t> Count(const Json& json) {
  MOED_ASSIGN_OR_RETURN(const int64_t count, WholeNumber("a count", json, 0));
  return static_cast<uint64_t>(count);
}

// Windows that the description says, -1 where there is none that can be read.
int WindowsIn(const std::string& description) {
  const absl::StatusOr<std::string> text = ReadPlanFile(description);
  if (!text.ok()) return -1;
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("windows") ? Windows(json["windows"]).value_or(-1) : -1;
}

absl::StatusOr<DictionaryState> Parse(const std::string& text, uint64_t identity) {
  DictionaryState state;
  try {
    const Json json = Json::parse(text);
    if (json.at("identity") != identity) return FailedPrecondition("of something else");
    MOED_ASSIGN_OR_RETURN(state.windows, Windows(json.at("windows")));
    MOED_ASSIGN_OR_RETURN(state.tokens, Count(json.at("tokens")));
    for (size_t i = 0; i < state.report.sources.size(); ++i) {
      const Json& source = json.at("sources").at(i);
      MOED_ASSIGN_OR_RETURN(state.report.sources[i].estimates, Count(source.at(0)));
      MOED_ASSIGN_OR_RETURN(state.report.sources[i].chosen, Count(source.at(1)));
      MOED_ASSIGN_OR_RETURN(state.report.sources[i].right, Count(source.at(2)));
    }
  } catch (const Json::exception& error) {
    return DataLoss(error.what());
  }
  return state;
}

}  // namespace

std::string UnfinishedDictionary::Table(int windows) const { return StrCat(Description(), "-", windows); }

absl::Status UnfinishedDictionary::Write(const DictionaryState& state) {
  const int before = WindowsIn(Description());
  MOED_RETURN_IF_ERROR(state.paths->Write(Table(state.windows), identity_));
  nlohmann::ordered_json json = {{"identity", identity_},
                                 {"windows", state.windows},
                                 {"tokens", state.tokens},
                                 {"sources", nlohmann::ordered_json::array()}};
  for (const DictionaryReport::Source& source : state.report.sources) {
    json["sources"].push_back({source.estimates, source.chosen, source.right});
  }
  MOED_RETURN_IF_ERROR(WritePlanFile(Description(), json));
  std::error_code ignored;
  if (before >= 0 && before != state.windows) std::filesystem::remove(Table(before), ignored);
  return absl::OkStatus();
}

absl::StatusOr<DictionaryState> UnfinishedDictionary::Read(int layers, int experts) const {
  if (IsAbsent(Description())) return DictionaryState{};
  const absl::StatusOr<std::string> text = ReadPlanFile(Description());
  absl::StatusOr<DictionaryState> state = text.ok() ? Parse(*text, identity_) : text.status();
  if (absl::IsFailedPrecondition(state.status())) return Annotate(state.status(), Description());
  if (!state.ok()) return DataLoss(Description(), ": ", state.status().message());
  MOED_ASSIGN_OR_RETURN(state->paths, ActivationPaths::Read(Table(state->windows), identity_, layers, experts));
  return state;
}

void UnfinishedDictionary::Remove() const {
  std::error_code ignored;
  if (const int windows = WindowsIn(Description()); windows >= 0) std::filesystem::remove(Table(windows), ignored);
  std::filesystem::remove(Description(), ignored);
}

}  // namespace moed
