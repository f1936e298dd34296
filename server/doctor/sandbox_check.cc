#include "core/base/status.h"
#include "server/doctor/check.h"
#include "server/sandbox/landlock.h"
#include "server/sandbox/system_calls.h"

namespace moed {

Finding LookAtSandbox(const Machine&) {
  Finding finding;
  const int version = LandlockVersion();
  const absl::Status seccomp = CheckSeccomp();
  finding.values["landlock_version"] = version;
  finding.values["seccomp"] = seccomp.ok();
  finding.found =
      StrCat(version > 0 ? StrCat("Landlock, version ", version) : "no Landlock", "; ", seccomp.ok() ? "" : "no ", "seccomp");
  if (version > 0 && seccomp.ok()) return finding;
  finding.state = CheckState::kUnavailable;
  finding.remedy =
      "moed serves with less protection: Linux 5.13 with landlock in lsm= of its command line, and a filter that allows it";
  return finding;
}

}  // namespace moed
