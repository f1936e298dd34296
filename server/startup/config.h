// What the daemon was told: the daemon's only reader of flags, environment and configuration file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/address.h"
#include "core/expert/cache/loader.h"
#include "core/expert/presets/preset.h"
#include "core/serving/serving_plan.h"
#include "server/sandbox/sandbox.h"
#include "server/wire/access.h"

namespace moed {

// What becomes of the model where its device does nothing any more: it is loaded again on the processor; every request fails; the
// process ends with an error.
enum class DeviceLost : uint8_t { kCpu, kFail, kExit };

struct Config {
  std::string store;
  std::string models_folder;                  // Control.LoadModel may load what lies there; "" = the store of the start alone
  std::optional<uint64_t> memory_budget;      // absent: from the machine
  std::optional<uint64_t> max_memory_budget;  // that ResizeMemory may be asked for; absent: the larger of the two budgets
  uint64_t server_budget = 0;                 // no setting of its own: the server's, where this model was given less of it
  std::optional<uint64_t> device_budget;      // absent: from the device
  bool processor_experts = true;
  DeviceLost device_lost = DeviceLost::kCpu;
  ServingOptions serving;

  Address listen{"127.0.0.1", 50051};
  std::optional<Address> control_listen;                               // absent: Control is on `listen`
  std::optional<Address> metrics_listen = Address{"127.0.0.1", 9464};  // absent: off

  AccessFiles access;
  bool insecure = false;  // other machines may reach addresses that are not protected

  SandboxRule sandbox = SandboxRule::kOn;

  PresetChoice preset;
  std::string preset_options;  // as they were given, which may name files
  std::string io_backend = "auto";
  int io_queue_depth = 8;
  std::optional<uint64_t> read_rate;  // bytes a second; absent: what the disk gives
  ChecksumRule checksums = ChecksumRule::kFirstRead;
  std::string backend = "auto";
  std::optional<int> max_connections;  // absent: as many as the memory beside the budget has room for

  std::string kv_spill;          // "" = off: a folder
  std::string trace;             // "" = off
  std::string learned_state;     // "" = nothing is kept
  bool follows_another = false;  // no setting of its own: files of what another model has learned stay, its own lie beside them
  std::string residency;         // "" = nothing is kept
  std::string record_routing;    // "" = off
  std::string log_level = "info";
  std::string request_log;  // "" = with the normal log; "off"
  bool reflection = false;
  std::optional<int> max_calls_per_token;  // absent: as many as run and wait for all
  int max_streams = 100;                   // of a connection
  int connection_idle_seconds = 300;
  int connection_age_seconds = 3600;
  int drain_delay_seconds = 2;
  int drain_seconds = 30;
};

// One row per setting NAME: flag --NAME, variable MOED_NAME (upper case, '_' for '-'), key NAME of the file.
struct Setting {
  std::string_view name;
  std::string_view group;
  std::string_view value;  // "BYTES"; "" = none as a flag, elsewhere on or off
  std::string_view help;
  std::string_view initial;  // as text, for --help
  // INVALID_ARGUMENT says what is allowed.
  absl::Status (*apply)(std::string_view text, Config& config);
};
std::span<const Setting> Settings();

struct ConfigOutcome {
  Config config;
  std::string answer;  // not empty: print it and leave (--help, --version)
};

using Environment = std::function<const char*(const char* name)>;

// Flag before environment before file (--config, MOED_CONFIG) before default. INVALID_ARGUMENT names flag, variable or file and
// key, and what is allowed. `more_help`: --help ends with it.
absl::StatusOr<ConfigOutcome> ReadConfig(std::span<const std::string> arguments, const Environment& environment,
                                         std::string_view more_help = "");

// What values need of each other before anything is opened: the preset's parts and options, TLS's files, a folder's bytes, and
// protection of addresses that other machines reach. INVALID_ARGUMENT names the flags and the remedy.
absl::Status CheckConfig(const Config& config);
// Logs what is open to other machines all the same.
void WarnOfExposure(const Config& config);
// Whether a setting, or another program of moed's, is given by the variable `name`.
bool ReadsVariable(std::string_view name);

}  // namespace moed
