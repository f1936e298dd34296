// A library for LD_PRELOAD that is what a broken library would be: code of somebody else in the daemon, which tries what the
// daemon has no use for. It acts whenever /metrics is scraped, on a thread of the daemon, and appends what came of it to the file
// INTRUDER_REPORT: lines of "attempt errno". With INTRUDER_NO_LANDLOCK the kernel seems to have no Landlock.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

namespace {

const int report = open(std::getenv("INTRUDER_REPORT"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
const std::string folder = std::getenv("INTRUDER_FOLDER"), store = std::getenv("INTRUDER_STORE");

// errno, or 0.
int Closed(long descriptor) {
  if (descriptor < 0) return errno;
  close(static_cast<int>(descriptor));
  return 0;
}
int Result(long result) { return result < 0 ? errno : 0; }

int Open(const std::string& path, int flags) { return Closed(open(path.c_str(), flags | O_CLOEXEC, 0600)); }

int StartProgram() {
  char name[] = "/bin/true";
  char* const arguments[] = {name, nullptr};
  pid_t child = 0;
  const int error = posix_spawn(&child, name, nullptr, nullptr, arguments, nullptr);
  if (error == 0) waitpid(child, nullptr, 0);
  return error;
}

int Fork() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  if (child > 0) waitpid(child, nullptr, 0);
  return Result(child);
}

int BecomeProgram() {
  char* const none[] = {nullptr};
  return Result(execve((folder + "/no-program").c_str(), none, none));
}

int RenameAndBack() {
  const std::string there = folder + "/secret", moved = folder + "/moved";
  if (rename(there.c_str(), moved.c_str()) != 0) return errno;
  return Result(rename(moved.c_str(), there.c_str()));
}

int StartThread() {
  std::thread([] {}).join();
  return 0;
}

struct Attempt {
  const char* name;
  int (*make)();
};
constexpr Attempt kAttempts[] = {
    {"read a file", [] { return Open(folder + "/secret", O_RDONLY); }},
    {"change a file", [] { return Open(folder + "/secret", O_WRONLY); }},
    {"cut a file", [] { return Result(truncate((folder + "/secret").c_str(), 0)); }},
    {"make a file", [] { return Open(folder + "/made", O_WRONLY | O_CREAT); }},
    {"rename a file", RenameAndBack},
    {"change a file's mode", [] { return Result(chmod((folder + "/secret").c_str(), 0600)); }},
    {"list a folder", [] { return Open(folder, O_RDONLY | O_DIRECTORY); }},
    {"change the store", [] { return Open(store, O_WRONLY); }},
    {"start a program", StartProgram},
    {"fork", Fork},
    {"become a program", BecomeProgram},
    {"trace", [] { return Result(ptrace(PTRACE_ATTACH, -1, nullptr, nullptr)); }},
    {"read another's memory", [] { return Result(syscall(SYS_process_vm_readv, -1, nullptr, 0, nullptr, 0, 0)); }},
    {"mount", [] { return Result(mount("none", folder.c_str(), "no-file-system", 0, nullptr)); }},
    {"unshare", [] { return Result(unshare(0)); }},
    {"send a signal", [] { return Result(kill(getppid(), 0)); }},
    {"new IPv4 socket", [] { return Closed(socket(AF_INET, SOCK_STREAM, 0)); }},
    {"new unix socket", [] { return Closed(socket(AF_UNIX, SOCK_STREAM, 0)); }},
    {"new netlink socket", [] { return Closed(socket(AF_NETLINK, SOCK_RAW, 0)); }},
    {"a call of no table", [] { return Closed(memfd_create("none", MFD_CLOEXEC)); }},
    {"read the store", [] { return Open(store, O_RDONLY); }},
    {"read of /proc", [] { return Open("/proc/self/status", O_RDONLY); }},
    {"start a thread", StartThread},
};

void Act() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::string lines;
  for (const Attempt& attempt : kAttempts) lines += std::string(attempt.name) + " " + std::to_string(attempt.make()) + "\n";
  if (write(report, lines.data(), lines.size()) < 0) std::perror("intruder");
}

}  // namespace

extern "C" {

int getrlimit(__rlimit_resource_t resource, rlimit* limits) noexcept {
  static const auto next = reinterpret_cast<int (*)(__rlimit_resource_t, rlimit*)>(dlsym(RTLD_NEXT, "getrlimit"));
  if (resource == RLIMIT_NOFILE) Act();
  return next(resource, limits);
}

long syscall(long number, ...) noexcept {
  static const auto next = reinterpret_cast<long (*)(long, ...)>(dlsym(RTLD_NEXT, "syscall"));
  if (number == SYS_landlock_create_ruleset && std::getenv("INTRUDER_NO_LANDLOCK") != nullptr) {
    errno = ENOSYS;
    return -1;
  }
  va_list list;
  va_start(list, number);
  long words[6];
  for (long& word : words) word = va_arg(list, long);
  va_end(list);
  return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

}  // extern "C"
