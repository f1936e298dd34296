#include "bench/moe_bench/systems_journal.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/status.h"

namespace moed {
namespace {

using Json = nlohmann::ordered_json;

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

Record FromJson(const Json& json) {
  return {{json.at("kind"), json.at("share"), json.at("disk"), json.at("contender"), json.at("turn")},
          json.at("figures").get<Figures>(),
          json.value("not_run", std::string())};
}

absl::Status Append(const std::string& path, const Json& json) {
  std::ofstream file(path, std::ios::app | std::ios::binary);
  file << json.dump() << '\n' << std::flush;
  if (!file) return Internal(path, ": cannot be written");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Journal> Journal::Open(const std::string& path, const Json& run) {
  Journal journal(path);
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    MOED_RETURN_IF_ERROR(Append(path, Json{{"run", run}}));
    return journal;
  }
  std::ostringstream contents;
  contents << file.rdbuf();
  const std::string text = contents.str();
  size_t whole = 0;  // bytes of complete lines
  for (int line = 1; whole < text.size(); ++line) {
    const size_t end = text.find('\n', whole);
    if (end == std::string::npos) break;
    try {
      const Json json = Json::parse(text.substr(whole, end - whole));
      if (line > 1) {
        journal.records_.push_back(FromJson(json));
      } else if (json.at("run") != run) {
        return FailedPrecondition(path, " belongs to another run (", json.at("run").dump(), ", this one is ", run.dump(),
                                  "); delete it or name another --journal");
      }
    } catch (const nlohmann::json::exception& error) {
      return DataLoss(path, ", line ", line, ": ", error.what(), "; delete it or name another --journal");
    }
    whole = end + 1;
  }
  if (whole == 0) {
    MOED_RETURN_IF_ERROR(Append(path, Json{{"run", run}}));
  } else if (whole < text.size()) {
    std::error_code error;
    std::filesystem::resize_file(path, whole, error);
    if (error) return Internal(path, ": ", error.message());
  }
  return journal;
}

absl::Status Journal::Add(Record record) {
  MOED_RETURN_IF_ERROR(Append(path_, ToJson(record)));
  records_.push_back(std::move(record));
  return absl::OkStatus();
}

const Record* Journal::Find(const RecordKey& key) const {
  const auto found = std::ranges::find(records_, key, &Record::key);
  return found == records_.end() ? nullptr : &*found;
}

}  // namespace moed
