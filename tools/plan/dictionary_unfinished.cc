#include "tools/plan/dictionary_unfinished.h"

#include <filesystem>
#include <utility>

#include "core/base/status.h"
#include "core/expert/plan_file.h"
#include "nlohmann/json.hpp"
#include "tools/plan/plan_file.h"

namespace moed {
namespace {

using Json = nlohmann::ordered_json;

// Windows that the description says, -1 where there is none that can be read.
int WindowsIn(const std::string& description) {
  const absl::StatusOr<std::string> text = ReadPlanFile(description);
  if (!text.ok()) return -1;
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("windows") && json["windows"].is_number_integer() ? json["windows"].get<int>() : -1;
}

}  // namespace

std::string UnfinishedDictionary::Table(int windows) const { return StrCat(Description(), "-", windows); }

absl::Status UnfinishedDictionary::Write(const DictionaryState& state) {
  const int before = WindowsIn(Description());
  MOED_RETURN_IF_ERROR(state.paths->Write(Table(state.windows), identity_));
  Json json = {{"identity", identity_}, {"windows", state.windows}, {"tokens", state.tokens}, {"sources", Json::array()}};
  for (const DictionaryReport::Source& source : state.report.sources) {
    json["sources"].push_back({source.estimates, source.chosen, source.right});
  }
  MOED_RETURN_IF_ERROR(WritePlanFile(Description(), json));
  std::error_code ignored;
  if (before >= 0 && before != state.windows) std::filesystem::remove(Table(before), ignored);
  return absl::OkStatus();
}

absl::StatusOr<DictionaryState> UnfinishedDictionary::Read(int layers, int experts) const {
  DictionaryState state;
  std::error_code ignored;
  if (!std::filesystem::exists(Description(), ignored)) return state;
  MOED_ASSIGN_OR_RETURN(const std::string text, ReadPlanFile(Description()));
  try {
    const Json json = Json::parse(text);
    if (json.at("identity").get<uint64_t>() != identity_) return FailedPrecondition(Description(), ": of something else");
    state.windows = json.at("windows").get<int>();
    state.tokens = json.at("tokens").get<uint64_t>();
    for (size_t i = 0; i < state.report.sources.size(); ++i) {
      const Json& source = json.at("sources").at(i);
      state.report.sources[i] = {source.at(0).get<uint64_t>(), source.at(1).get<uint64_t>(), source.at(2).get<uint64_t>()};
    }
  } catch (const Json::exception& error) {
    return DataLoss(Description(), ": ", error.what());
  }
  MOED_ASSIGN_OR_RETURN(state.paths, ActivationPaths::Read(Table(state.windows), identity_, layers, experts));
  return state;
}

void UnfinishedDictionary::Remove() const {
  std::error_code ignored;
  if (const int windows = WindowsIn(Description()); windows >= 0) std::filesystem::remove(Table(windows), ignored);
  std::filesystem::remove(Description(), ignored);
}

}  // namespace moed
