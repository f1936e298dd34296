// A library for LD_PRELOAD between a program and the kernel: reads that go wrong, memory that is not there and a wall clock that
// jumps, as a test says while the program runs. tests/chaos/faults.py is the other side of the shared words.
//
// Reads are pread's, which is the store's of --io-backend buffered and direct alone. The wall clock is what clock_gettime and its
// like tell, and what futexes with FUTEX_CLOCK_REALTIME wait for, which is how Abseil and gRPC wait for a time.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

constexpr int64_t kNanos = 1'000'000'000;
constexpr int64_t kSliceNanos = 10'000'000;  // how soon a sleeper sees that its clock has jumped

enum Fault : int64_t { kNone, kError, kEndOfFile, kShort, kLate, kTorn, kFlipped, kHeld };

struct Words {
  std::atomic<int64_t> fault, value;  // kError: errno; kLate: nanoseconds; kHeld: bytes of the smallest reads that are
  std::atomic<int64_t> struck;        // reads that the fault concerned, held ones from when they begin
  std::atomic<int64_t> wall_nanos;    // that the wall clock goes ahead of the kernel's
  std::atomic<int64_t>
      mappings;  // of memory by the program's own code: so many more succeed, the next one fails; < 0: all succeed
};

template <class Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

Words* Map() {
  static Words none{.mappings = -1};
  const char* path = std::getenv("MOED_FAULTS");
  const int fd = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return &none;
  // Not by its name, which is this library's.
  void* mapped = Next<void*(void*, size_t, int, int, int, off_t)>("mmap64")(nullptr, sizeof(Words), PROT_READ | PROT_WRITE,
                                                                            MAP_SHARED, fd, 0);
  close(fd);
  return mapped == MAP_FAILED ? &none : static_cast<Words*>(mapped);
}

Words& Shared() {
  static Words* const words = Map();
  return *words;
}

int64_t NanosOf(const timespec& time) { return int64_t{time.tv_sec} * kNanos + time.tv_nsec; }
timespec TimeOf(int64_t nanos) {
  if (nanos < 0) return {};
  return {static_cast<time_t>(nanos / kNanos), static_cast<long>(nanos % kNanos)};
}

int RealClock(clockid_t clock, timespec* time) {
  static const auto next = Next<int(clockid_t, timespec*)>("clock_gettime");
  return next(clock, time);
}

int64_t KernelsNow() {
  timespec now;
  RealClock(CLOCK_REALTIME, &now);
  return NanosOf(now);
}

void SleepFor(int64_t nanos) {
  const timespec time = TimeOf(nanos);
  nanosleep(&time, nullptr);
}

// Not of a library: what Abseil's or the C library's own allocators map is not theirs to do without.
bool IsOfProgram(void* caller) {
  static void* const program = [] {
    Dl_info entry{};
    dladdr(reinterpret_cast<void*>(getauxval(AT_ENTRY)), &entry);
    return entry.dli_fbase;
  }();
  Dl_info info{};
  return dladdr(caller, &info) != 0 && info.dli_fbase == program;
}

ssize_t RealRead(int fd, void* out, size_t size, off_t offset) {
  static const auto next = Next<ssize_t(int, void*, size_t, off_t)>("pread64");
  return next(fd, out, size, offset);
}

// Of no size: what the kernel tells of the process, which no disk holds.
bool IsOfTheKernel(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && info.st_size == 0;
}

ssize_t Read(int fd, void* out, size_t size, off_t offset) {
  Words& words = Shared();
  const int64_t fault = words.fault.load();
  if (fault == kNone || (fault == kHeld && size < static_cast<size_t>(words.value))) return RealRead(fd, out, size, offset);
  if (IsOfTheKernel(fd)) return RealRead(fd, out, size, offset);
  ++words.struck;
  auto* bytes = static_cast<unsigned char*>(out);
  switch (fault) {
    case kError:
      errno = static_cast<int>(words.value);
      return -1;
    case kEndOfFile:
      return 0;
    case kShort:
      return RealRead(fd, out, (size + 1) / 2, offset);
    case kLate:
      SleepFor(words.value);
      break;
    case kHeld:
      while (words.fault == kHeld) SleepFor(1'000'000);
      break;
    default:
      break;
  }
  const ssize_t read = RealRead(fd, out, size, offset);
  if (read > 0 && fault == kTorn) std::fill(bytes + read / 2, bytes + read, 0);
  if (read > 0 && fault == kFlipped) bytes[read / 2] ^= 0x10;
  return read;
}

// Until the time has come by the clock that jumps.
long WaitByWallClock(const long (&words)[6], long (*next)(long, ...)) {
  const int64_t until = NanosOf(*reinterpret_cast<const timespec*>(words[3]));
  for (;;) {
    const int64_t kernels = KernelsNow();
    const timespec slice = TimeOf(std::min(until - Shared().wall_nanos, kernels + kSliceNanos));
    const long result = next(SYS_futex, words[0], words[1], words[2], &slice, words[4], words[5]);
    if (result == 0 || errno != ETIMEDOUT || KernelsNow() + Shared().wall_nanos >= until) return result;
  }
}

}  // namespace

extern "C" {

ssize_t pread(int fd, void* out, size_t size, off_t offset) { return Read(fd, out, size, offset); }
ssize_t pread64(int fd, void* out, size_t size, off_t offset) { return Read(fd, out, size, offset); }

void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  static const auto next = Next<void*(void*, size_t, int, int, int, off_t)>("mmap64");
  Words& words = Shared();
  const bool counted = (flags & MAP_ANONYMOUS) != 0 && words.mappings >= 0 && IsOfProgram(__builtin_return_address(0));
  if (counted && words.mappings-- == 0) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return next(address, size, protection, flags, fd, offset);
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = RealClock(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) *time = TimeOf(NanosOf(*time) + Shared().wall_nanos);
  return result;
}

int gettimeofday(timeval* time, void*) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *time = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* out) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

long syscall(long number, ...) noexcept {
  static const auto next = Next<long(long, ...)>("syscall");
  va_list list;
  va_start(list, number);
  long words[6];
  for (long& word : words) word = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && (words[1] & FUTEX_CLOCK_REALTIME) != 0 && words[3] != 0) return WaitByWallClock(words, next);
  return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

}  // extern "C"
