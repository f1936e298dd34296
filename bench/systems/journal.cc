#include "bench/systems/journal.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

#include "absl/strings/str_join.h"
#include "core/base/json_value.h"
#include "core/base/status.h"

namespace moed {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kRemedy = "; delete it or name another --journal";

Json ToJson(const Record& record) {
  Json json{{"kind", record.key.kind},
            {"share", record.key.share},
            {"disk", record.key.disk},
            {"contender", record.key.contender},
            {"turn", record.key.turn}};
  if (!record.not_run.empty()) json["not_run"] = record.not_run;
  json["figures"] = record.figures;
  return json;
}

absl::StatusOr<Record> ParseRecord(const std::string& line) {
  constexpr int kMost = std::numeric_limits<int>::max();
  try {
    const auto json = nlohmann::json::parse(line);  // the ordered one copies what is deep into the stack
    MOED_ASSIGN_OR_RETURN(const int64_t share, WholeNumber("share", json.at("share"), 0, kMost));
    MOED_ASSIGN_OR_RETURN(const int64_t turn, WholeNumber("turn", json.at("turn"), 0, kMost));
    return Record{{json.at("kind"), static_cast<int>(share), json.at("disk"), json.at("contender"), static_cast<int>(turn)},
                  json.at("figures").get<Figures>(),
                  json.value("not_run", std::string())};
  } catch (const nlohmann::json::exception& error) {
    return DataLoss(error.what());
  }
}

// "version is \"0.1\" there and \"0.2\" here; cells differ": every part that is not the same. Nothing of `there` that has parts
// is printed or copied: a damaged journal may nest deeper than the stack.
std::string Differences(const nlohmann::json& there, const Json& here) {
  const auto wanted = nlohmann::json::parse(here.dump());
  std::vector<std::string> names;
  for (const auto& [name, value] : here.items()) names.push_back(name);
  for (const auto& [name, value] : there.items()) {
    if (!wanted.contains(name)) names.push_back(name);
  }
  const auto text = [](const nlohmann::json& run, const std::string& name) {
    return !run.contains(name) ? "absent" : run.at(name).is_primitive() ? run.at(name).dump() : "";
  };
  std::vector<std::string> differences;
  for (const std::string& name : names) {
    if (there.contains(name) && wanted.contains(name) && there.at(name) == wanted.at(name)) continue;
    const std::string stored = text(there, name), now = text(wanted, name);
    differences.push_back(stored.empty() || now.empty() ? StrCat(name, " differ")
                                                        : StrCat(name, " is ", stored, " there and ", now, " here"));
  }
  return absl::StrJoin(differences, "; ");
}

// The first line.
absl::Status CheckRun(const std::string& line, const Json& run) {
  const auto stored = nlohmann::json::parse(line, nullptr, false);
  if (stored.is_discarded()) return DataLoss("it is no JSON");
  if (!stored.is_object() || stored.size() != 1 || !stored.contains("run") || !stored["run"].is_object()) {
    return DataLoss("it is no first line of a journal");
  }
  const std::string differences = Differences(stored["run"], run);
  if (!differences.empty()) return FailedPrecondition("it belongs to another run: ", differences);
  return absl::OkStatus();
}

absl::Status Append(const std::string& path, std::string_view line) {
  std::ofstream file(path, std::ios::app | std::ios::binary);
  file << line << '\n' << std::flush;
  if (!file) return Internal(path, ": cannot be written");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SystemsJournal> SystemsJournal::Open(const std::string& path, const Json& run) {
  SystemsJournal journal(path);
  std::ostringstream file;
  if (std::ifstream stored(path, std::ios::binary); stored) file << stored.rdbuf();
  const std::string text = file.str();
  const std::string first = Json{{"run", run}}.dump();
  size_t whole = 0;  // bytes of complete lines
  for (int line = 1; whole < text.size(); ++line) {
    const size_t end = text.find('\n', whole);
    if (end == std::string::npos) break;
    const std::string contents = text.substr(whole, end - whole);
    absl::Status status;
    if (line == 1) {
      status = CheckRun(contents, run);
    } else if (absl::StatusOr<Record> record = ParseRecord(contents); record.ok()) {
      journal.records_.push_back(*std::move(record));
    } else {
      status = DataLoss(record.status().message());
    }
    if (!status.ok()) return absl::Status(status.code(), StrCat(path, ", line ", line, ": ", status.message(), kRemedy));
    whole = end + 1;
  }
  if (whole == 0 && !first.starts_with(text)) return DataLoss(path, " is no journal: it has no whole line", kRemedy);
  if (whole < text.size()) {
    std::error_code error;
    std::filesystem::resize_file(path, whole, error);
    if (error) return Internal(path, ": ", error.message());
  }
  if (whole == 0) MOED_RETURN_IF_ERROR(Append(path, first));
  return journal;
}

absl::Status SystemsJournal::Add(Record record) {
  std::erase_if(record.figures, [](const auto& figure) { return !std::isfinite(figure.second); });  // which JSON cannot say
  MOED_RETURN_IF_ERROR(Append(path_, ToJson(record).dump(-1, ' ', false, Json::error_handler_t::replace)));
  records_.push_back(std::move(record));
  return absl::OkStatus();
}

const Record* SystemsJournal::Find(const RecordKey& key) const {
  const auto found = std::ranges::find(records_, key, &Record::key);
  return found == records_.end() ? nullptr : &*found;
}

}  // namespace moed
