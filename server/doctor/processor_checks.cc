#include <sched.h>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/kernels/backend.h"
#include "core/kernels/cuda/device.h"
#include "core/kernels/cuda_row.h"
#include "core/machine/control_groups.h"
#include "core/serving/serving_plan.h"
#include "server/doctor/check.h"

namespace moed {
namespace {

int AllowedProcessors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
}

}  // namespace

Finding LookAtProcessor(const Machine& machine) {
  Finding finding;
  InlineExecutor executor;
  const auto backend = MakeComputeBackend("auto", executor);
  const std::string kernels = backend.ok() ? std::string((*backend)->name()) : "";
  const int threads = ServingOptionsOfThisMachine().threads;
  const int allowed = AllowedProcessors();
  const std::optional<GroupProcessors> quota = SmallestGroupProcessors(machine.root);
  finding.values["kernels"] = kernels;
  finding.values["threads"] = threads;
  finding.values["allowed_processors"] = allowed;
  if (quota.has_value()) {
    finding.values["cgroup_processors"] = quota->processors;
    finding.values["cgroup_file"] = quota->path;
  }
  finding.found = StrCat("kernels ", kernels, ", ", threads, " threads; this process may run on ", allowed, " processors");
  if (quota.has_value()) finding.found += absl::StrFormat(", %.1f of them by its cgroup (%s)", quota->processors, quota->path);
  const int useful = quota.has_value() ? std::min(allowed, static_cast<int>(quota->processors)) : allowed;
  if (kernels == "scalar") {
    finding.state = CheckState::kSlower;
    finding.remedy = "this processor has none of the vector instructions that moed has kernels for (moed --list)";
  } else if (allowed > 0 && threads > useful) {
    finding.state = CheckState::kSlower;
    finding.remedy = StrCat("threads wait for each other: moed --threads ", std::max(1, useful));
  }
  return finding;
}

Finding LookAtCuda(const Machine&) {
  Finding finding;
  const auto devices = FindCudaDevices();
  finding.values["devices"] = nlohmann::ordered_json::array();
  if (devices.ok()) {
    for (const CudaDevice& device : *devices) {
      finding.values["devices"].push_back({{"name", device.name}, {"memory_bytes", device.memory_bytes}});
    }
  }
  if (CudaRefusal().ok()) {
    finding.found = Describe(*devices);
  } else {
    finding.state = CheckState::kUnavailable;
    finding.found = StrCat(CudaRefusal().message());
  }
  return finding;
}

}  // namespace moed
