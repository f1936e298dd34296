#include "server/wire/inlet.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <limits>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/wire/connection_bytes.h"

namespace moed {
namespace {

constexpr uint64_t kPieceBytes = 2048;  // that may come in until memory is asked for: a call is 9 bytes, and takes 12 KB
constexpr absl::Duration kMostPatience = absl::Seconds(1);
constexpr int64_t kNobodyLooks = std::numeric_limits<int64_t>::max();  // it may have grown by any number

std::atomic<uint64_t> g_received{0};
std::atomic<int64_t> g_touched{0};
// Until the next look.
std::atomic<int64_t> g_since_resident{0}, g_since_touched{0};
std::atomic<int64_t> g_most_grown{kNobodyLooks};
std::atomic<uint64_t> g_most_received{kAnyNumber};
std::atomic<bool> g_calm{true};

absl::Mutex g_mutex(absl::kConstInit);
int g_watches ABSL_GUARDED_BY(g_mutex) = 0;
uint64_t g_looks ABSL_GUARDED_BY(g_mutex) = 0;
bool g_wanted ABSL_GUARDED_BY(g_mutex) = false;  // somebody has begun to wait for a look

void WaitForLook() {
  absl::MutexLock lock(&g_mutex);
  g_wanted = true;
  const uint64_t before = g_looks;
  const auto looked = [before]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(g_mutex) { return g_looks != before || g_watches == 0; };
  g_mutex.AwaitWithTimeout(absl::Condition(&looked), kMostPatience);
}

int64_t PageBytes() {
  static const int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

// Of this thread, since the last time.
void CountTouchedPages() {
  constexpr long kUnknown = -1;
  thread_local long faults = kUnknown;
  rusage usage{};
  if (getrusage(RUSAGE_THREAD, &usage) != 0) return;
  const long before = std::exchange(faults, usage.ru_minflt);
  if (before != kUnknown) g_touched.fetch_add((usage.ru_minflt - before) * PageBytes(), std::memory_order_relaxed);
}

void OnReceived(uint64_t bytes) {
  thread_local uint64_t own = kPieceBytes;  // since its pages were counted
  const uint64_t before = g_received.fetch_add(bytes, std::memory_order_relaxed);
  const int64_t most_grown = g_most_grown.load(std::memory_order_relaxed);
  const bool look = before / kPieceBytes != (before + bytes) / kPieceBytes;
  own += bytes;
  if (most_grown == kNobodyLooks || (!look && own < kPieceBytes)) return;
  CountTouchedPages();
  own = 0;
  if (!look) return;
  const ProcessBytes since = {g_since_resident.load(std::memory_order_relaxed), g_since_touched.load(std::memory_order_relaxed)};
  if (before + bytes > g_most_received.load(std::memory_order_relaxed) || GrownSince(since, MemoryOfProcess()) > most_grown)
    WaitForLook();
}

}  // namespace

ProcessBytes MemoryOfProcess() {
  static const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  char text[128] = "";  // "size resident shared ...", in pages
  long resident = 0, of_files = 0;
  if (pread(file, text, sizeof(text) - 1, 0) > 0) std::sscanf(text, "%*d %ld %ld", &resident, &of_files);
  return {(resident - of_files) * PageBytes(), g_touched.load(std::memory_order_relaxed)};
}

uint64_t BytesReceived() { return g_received.load(std::memory_order_relaxed); }

bool InletIsCalm() { return g_calm.load(std::memory_order_relaxed); }

InletWatch::InletWatch() {
  absl::MutexLock lock(&g_mutex);
  ++g_watches;
}

InletWatch::~InletWatch() {
  absl::MutexLock lock(&g_mutex);
  if (--g_watches > 0) return;
  g_most_grown = kNobodyLooks;
  g_calm = true;
}

void InletWatch::Wait(absl::Duration at_most, bool for_readers) {
  absl::MutexLock lock(&g_mutex);
  const auto called = [=, this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(g_mutex) { return woken_ || (for_readers && g_wanted); };
  g_mutex.AwaitWithTimeout(absl::Condition(&called), at_most);
  g_wanted = woken_ = false;
}

void InletWatch::Wake() {
  absl::MutexLock lock(&g_mutex);
  woken_ = true;
}

void InletWatch::Looked(const InletAllowance& until_next) {
  absl::MutexLock lock(&g_mutex);
  g_since_resident = until_next.since.resident;
  g_since_touched = until_next.since.touched;
  g_most_grown = until_next.grown;
  g_most_received = until_next.received;
  g_calm = until_next.calm;
  ++g_looks;
}

}  // namespace moed

// Before the C library's for the whole process, its libraries too.
extern "C" ABSL_ATTRIBUTE_NOINLINE __attribute__((visibility("default"))) ssize_t recvmsg(int descriptor, msghdr* message,
                                                                                          int flags) {
  using Receive = ssize_t (*)(int, msghdr*, int);
  static const auto receive = reinterpret_cast<Receive>(dlsym(RTLD_NEXT, "recvmsg"));
  const ssize_t received = receive(descriptor, message, flags);
  if (received > 0) {
    moed::CountReceived(descriptor, static_cast<uint64_t>(received));
    moed::OnReceived(static_cast<uint64_t>(received));
  }
  return received;
}
