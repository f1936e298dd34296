#include "bench/systems/journal.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

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

// `wanted`: what the first line is of this run.
absl::Status CheckRun(const std::string& line, const std::string& wanted) {
  if (line == wanted) return absl::OkStatus();
  if (!nlohmann::json::accept(line)) return DataLoss("it is no JSON");
  return FailedPrecondition("it belongs to another run (", line, ", this one is ", wanted, ")");
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
      status = CheckRun(contents, first);
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
