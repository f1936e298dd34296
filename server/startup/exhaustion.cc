#include "server/startup/exhaustion.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

namespace moed {
namespace {

// Allocates nothing.
[[noreturn]] void EndNamed(const char* what, const char* remedy) {
  std::fprintf(stderr, "moed: the machine has no more %s; %s\n", what, remedy);
  _exit(1);
}

[[noreturn]] void OnTerminate() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    EndNamed("memory", "its limits are the cgroup's and ulimit -v");
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      EndNamed("threads or memory for one", "its limits are the cgroup's (TasksMax=, pids_limit), ulimit -u and ulimit -v");
    }
  } catch (...) {
  }
  std::abort();
}

}  // namespace

void NameExhaustion() { std::set_terminate(OnTerminate); }

}  // namespace moed
