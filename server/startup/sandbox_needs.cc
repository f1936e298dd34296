#include "server/startup/sandbox_needs.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace moed {
namespace {

namespace fs = std::filesystem;

void AddNamed(const std::string& path, std::vector<std::string>& paths) {
  if (!path.empty()) paths.push_back(path);
}

// Plans of experts are among a preset's options. Other values may be names of files by chance, beside the daemon's own.
void AddOptions(const std::string& options, SandboxNeeds& needs) {
  for (const std::string& option : std::vector<std::string>(absl::StrSplit(options, ','))) {
    const std::string value = option.substr(option.find('=') + 1);
    std::error_code error;
    if (fs::is_regular_file(value, error)) needs.read_files.push_back(value);
  }
}

void AddAddress(const Address& address, SandboxNeeds& needs) {
  needs.listens.push_back(address);
  AddNamed(address.path, needs.write_files);
}

}  // namespace

SandboxNeeds SandboxNeedsOf(const Config& config) {
  SandboxNeeds needs{.io_uring = config.io_backend == "auto" || config.io_backend == "io_uring",
                     .devices = config.backend == "cuda"};
  const TlsFiles& tls = config.access.tls;
  for (const std::string* file : {&config.store, &tls.certificate, &tls.key, &tls.client_ca, &config.access.tokens}) {
    AddNamed(*file, needs.read_files);
  }
  AddOptions(config.preset_options, needs);
  AddNamed(config.models_folder, needs.read_folders);
  for (const std::string* file : {&config.trace, &config.learned_state, &config.residency}) AddNamed(*file, needs.write_files);
  if (config.request_log != "off") AddNamed(config.request_log, needs.write_files);
  AddNamed(config.kv_spill, needs.write_folders);
  AddNamed(config.record_routing, needs.write_folders);
  AddAddress(config.listen, needs);
  if (config.control_listen) AddAddress(*config.control_listen, needs);
  if (config.metrics_listen) AddAddress(*config.metrics_listen, needs);
  return needs;
}

}  // namespace moed
