#include "server/sandbox/system_calls.h"

#include <asm/ioctls.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>
#include <span>

#include "core/base/status.h"

namespace moed {
namespace {

constexpr const char* kAllowed[] = {
    // files
    "access", "chdir", "close", "close_range", "copy_file_range", "dup", "dup2", "dup3", "faccessat", "faccessat2", "fadvise64",
    "fallocate", "fcntl", "fdatasync", "flock", "fstat", "fstatfs", "fsync", "ftruncate", "getcwd", "getdents64", "ioctl",
    "lseek", "lstat", "mkdir", "mkdirat", "newfstatat", "open", "openat", "openat2", "pipe", "pipe2", "pread64", "preadv",
    "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readlink", "readlinkat", "readv", "rename", "renameat", "renameat2",
    "sendfile", "stat", "statfs", "statx", "sync_file_range", "umask", "unlink", "unlinkat", "write", "writev",
    // memory
    "brk", "madvise", "mincore", "mmap", "mprotect", "mremap", "munmap",
    // threads
    "exit", "exit_group", "futex", "futex_requeue", "futex_wait", "futex_waitv", "futex_wake", "get_robust_list", "getcpu",
    "gettid", "membarrier", "rseq", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getparam",
    "sched_getscheduler", "sched_setaffinity", "sched_setscheduler", "sched_yield", "set_robust_list", "set_tid_address",
    // signals
    "restart_syscall", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait",
    "sigaltstack", "signalfd4",
    // time and randomness
    "clock_getres", "clock_gettime", "clock_nanosleep", "getrandom", "gettimeofday", "nanosleep", "time", "timerfd_create",
    "timerfd_gettime", "timerfd_settime",
    // sockets and waiting
    "accept", "accept4", "bind", "connect", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2",
    "epoll_wait", "eventfd", "eventfd2", "getpeername", "getsockname", "getsockopt", "listen", "poll", "ppoll", "pselect6",
    "recvfrom", "recvmmsg", "recvmsg", "select", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown", "socketpair",
    // what the process is, and more filters
    "arch_prctl", "capget", "getegid", "geteuid", "getgid", "getgroups", "getpgrp", "getpid", "getppid", "getresgid", "getresuid",
    "getrlimit", "getrusage", "getuid", "prctl", "prlimit64", "seccomp", "setrlimit", "sysinfo", "times", "uname"};

constexpr const char* kRings[] = {"io_uring_enter", "io_uring_register", "io_uring_setup"};

constexpr const char* kRefused[] = {
    // other programs and processes
    "execve", "execveat", "fork", "kcmp", "pidfd_getfd", "pidfd_open", "pidfd_send_signal", "process_madvise", "process_vm_readv",
    "process_vm_writev", "ptrace", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "vfork",
    // users and rights
    "capset", "chmod", "chown", "fchmod", "fchmodat", "fchown", "fchownat", "lchown", "setfsgid", "setfsuid", "setgid",
    "setgroups", "setregid", "setresgid", "setresuid", "setreuid", "setuid",
    // mounts, namespaces, other files than Landlock's
    "chroot", "fsconfig", "fsmount", "fsopen", "mount", "mount_setattr", "move_mount", "name_to_handle_at", "open_by_handle_at",
    "open_tree", "pivot_root", "setns", "umount2", "unshare", "mknod", "mknodat",
    // the kernel
    "acct", "add_key", "bpf", "delete_module", "fanotify_init", "finit_module", "init_module", "ioperm", "iopl",
    "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "perf_event_open", "personality", "quotactl", "reboot",
    "request_key", "sethostname", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "swapon", "swapoff", "syslog",
    "userfaultfd"};

constexpr uint64_t kWord = 0xFFFF'FFFF;  // the kernel looks at no more of these arguments

class Filter {
 public:
  explicit Filter(uint32_t for_others) : context_(seccomp_init(for_others)) {
    if (context_ == nullptr) {
      Fail(ENOMEM);
      return;
    }
    Set(SCMP_FLTATR_CTL_TSYNC, 1);
    Set(SCMP_FLTATR_CTL_OPTIMIZE, 2);
    Set(SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    seccomp_attr_set(context_, SCMP_FLTATR_CTL_SSB, 1);  // kernels that lack it slow nothing down, or always do
  }
  ~Filter() {
    if (context_ != nullptr) seccomp_release(context_);
  }
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;

  void Add(uint32_t action, std::span<const char* const> names) {
    for (const char* name : names) Add(action, name, {});
  }
  // Where all comparisons hold. Calls that this architecture does not have are left out.
  void Add(uint32_t action, const char* name, std::initializer_list<scmp_arg_cmp> comparisons) {
    const int number = seccomp_syscall_resolve_name(name);
    if (number < 0 || error_ != 0) return;
    Fail(seccomp_rule_add_array(context_, action, number, static_cast<unsigned>(comparisons.size()), comparisons.begin()));
  }
  absl::Status Load() {
    if (error_ == 0) Fail(seccomp_load(context_));
    return error_ == 0 ? absl::OkStatus() : ErrnoError(error_, "seccomp does not take a filter");
  }

 private:
  void Set(scmp_filter_attr attribute, uint32_t value) { Fail(seccomp_attr_set(context_, attribute, value)); }
  void Fail(int result) {
    if (error_ == 0) error_ = result < 0 ? -result : result;
  }

  const scmp_filter_ctx context_;
  int error_ = 0;
};

constexpr uint32_t kRefuse = SCMP_ACT_ERRNO(EPERM), kUnknown = SCMP_ACT_ERRNO(ENOSYS);

// Threads, no processes. clone3 has its flags where no filter can look: C libraries then take clone.
void AllowThreads(Filter& filter) {
  filter.Add(SCMP_ACT_ALLOW, "clone", {SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD)});
  filter.Add(kRefuse, "clone", {SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0)});
}

void AllowSockets(Filter& filter) {
  for (const scmp_datum_t family : {AF_UNIX, AF_INET, AF_INET6}) {
    filter.Add(SCMP_ACT_ALLOW, "socket", {SCMP_A0(SCMP_CMP_MASKED_EQ, kWord, family)});
  }
}

}  // namespace

absl::Status CheckSeccomp() {
  constexpr unsigned kForAllThreads = 2;
  if (seccomp_api_get() >= kForAllThreads) return absl::OkStatus();
  return FailedPrecondition("the kernel has no seccomp for all threads of a process (CONFIG_SECCOMP_FILTER, Linux 3.17)");
}

absl::Status FilterSystemCalls(const SystemCallNeeds& needs) {
  Filter filter(needs.devices ? SCMP_ACT_ALLOW : kUnknown);
  filter.Add(kRefuse, kRefused);
  if (needs.devices) {
    filter.Add(kUnknown, "clone3", {});
    filter.Add(kRefuse, "clone", {SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0)});
    return filter.Load();
  }
  filter.Add(SCMP_ACT_ALLOW, kAllowed);
  filter.Add(needs.io_uring ? SCMP_ACT_ALLOW : kRefuse, kRings);
  filter.Add(SCMP_ACT_ALLOW, "tgkill", {SCMP_A0(SCMP_CMP_MASKED_EQ, kWord, static_cast<scmp_datum_t>(getpid()))});
  AllowThreads(filter);
  AllowSockets(filter);
  return filter.Load();
}

absl::Status FilterSockets(const SystemCallNeeds& needs) {
  Filter filter(SCMP_ACT_ALLOW);
  // What is pushed into a terminal its shell reads.
  for (const scmp_datum_t request : {TIOCSTI, TIOCLINUX}) {
    filter.Add(kRefuse, "ioctl", {SCMP_A1(SCMP_CMP_MASKED_EQ, kWord, request)});
  }
  if (needs.devices) {
    filter.Add(kRefuse, "socket", {SCMP_A0(SCMP_CMP_NE, AF_UNIX)});
  } else {
    for (const char* name : {"bind", "listen", "socket"}) filter.Add(kRefuse, name, {});
    // Of two bytes it can only be AF_UNSPEC, which ends a connection.
    filter.Add(kRefuse, "connect", {SCMP_A2(SCMP_CMP_NE, sizeof(sa_family_t))});
  }
  return filter.Load();
}

}  // namespace moed
