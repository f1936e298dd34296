#include "server/commands/store_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/store/checksum.h"
#include "core/store/damage.h"
#include "core/store/store.h"
#include "server/commands/child.h"

namespace moed {
namespace {

namespace fs = std::filesystem;

constexpr int kLockPollMs = 100;
constexpr size_t kMostNameBytes = 60;
constexpr int kPackRefusesFlags = 2;  // an exit code of moed-pack

// Of the source, as a part of a file's name.
std::string NameOf(const ModelSource& source) {
  std::string name = fs::path(source.canonical).filename();
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_') c = '-';
  }
  return name.substr(0, kMostNameBytes);
}

// Held by whoever packs, and by moed-pack itself.
class PackLock {
 public:
  explicit PackLock(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  ~PackLock() {
    if (fd_ >= 0) close(fd_);
  }
  PackLock(const PackLock&) = delete;
  PackLock& operator=(const PackLock&) = delete;

  int descriptor() const { return fd_; }
  bool Try() const { return flock(fd_, LOCK_EX | LOCK_NB) == 0; }

 private:
  const int fd_;
};

absl::Status Interrupted() { return absl::CancelledError("interrupted; the same command goes on where this one was"); }

absl::Status Take(const PackLock& lock, const CachedStore& store, StopSignals& signals) {
  if (lock.descriptor() < 0) return ErrnoError(errno, "cannot open ", store.lock_path());
  for (bool told = false; !lock.Try(); told = true) {
    if (errno != EWOULDBLOCK) return ErrnoError(errno, "cannot lock ", store.lock_path());
    if (!told) std::fprintf(stderr, "waiting for another process that packs this model\n");
    if (signals.Wait(kLockPollMs)) return Interrupted();
  }
  return absl::OkStatus();
}

// Not what is unfinished of `store` itself.
void RemoveFormerStates(const CachedStore& store) {
  const fs::path prefix = store.same_key, kept = store.path;
  std::error_code error;
  std::vector<fs::path> former;
  for (fs::directory_iterator entry(prefix.parent_path(), error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.starts_with(prefix.filename().string()) && !name.starts_with(kept.filename().string()) &&
        entry->path() != store.lock_path()) {
      former.push_back(entry->path());
    }
  }
  if (!former.empty()) std::fprintf(stderr, "the model has changed since it was packed: its former store is removed\n");
  for (const fs::path& path : former) fs::remove(path, error);
}

// Whether there is a store, and its header is right. Another file is removed; one that cannot be read is not.
absl::StatusOr<bool> IsThere(const std::string& path) {
  if (IsAbsent(path)) return false;
  const absl::Status opened = StoreReader::Open(path).status();
  if (opened.ok()) return true;
  if (!IsDamage(opened)) return opened;
  if (unlink(path.c_str()) != 0) return ErrnoError(errno, opened.message(), "; it cannot be removed");
  std::fprintf(stderr, "%s: packed anew\n", std::string(opened.message()).c_str());
  return false;
}

absl::Status RunPack(const std::string& out, const ModelSource& source, const std::vector<std::string>& pack_flags,
                     const PackLock& lock, StopSignals& signals) {
  ChildOptions options{.output = STDERR_FILENO, .kept = lock.descriptor(), .blocked = signals.before()};
  MOED_ASSIGN_OR_RETURN(options.program, FindProgram("moed-pack"));
  options.arguments = {source.path, out};
  options.arguments.insert(options.arguments.end(), pack_flags.begin(), pack_flags.end());
  MOED_ASSIGN_OR_RETURN(Child pack, Child::Start(options));
  while (!pack.Ended()) {
    const std::optional<StopSignal> stop = signals.Wait();
    if (stop && !stop->reached_children) pack.Signal(stop->number);
  }
  if (signals.first() != 0 && pack.exit_code() != 0) return Interrupted();
  if (pack.exit_code() == 0) return absl::OkStatus();
  if (pack.exit_code() == kPackRefusesFlags) return InvalidArgument("moed-pack refuses its flags, as it says above");
  return FailedPrecondition("moed-pack ended with ", pack.exit_code(), "; the folder of packed models is ",
                            fs::path(out).parent_path().string(), " ($MOED_CACHE_DIR chooses another)");
}

}  // namespace

absl::StatusOr<std::string> CacheFolder(const Environment& environment) {
  const auto variable = [&](const char* name) -> fs::path {
    const char* value = environment(name);
    return value != nullptr ? value : "";
  };
  fs::path folder = variable("MOED_CACHE_DIR");
  if (folder.empty() && !variable("XDG_CACHE_HOME").empty()) folder = variable("XDG_CACHE_HOME") / "moed";
  if (folder.empty() && !variable("HOME").empty()) folder = variable("HOME") / ".cache" / "moed";
  if (folder.empty()) return FailedPrecondition("no folder for packed models: set $MOED_CACHE_DIR, $XDG_CACHE_HOME or $HOME");
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  if (error) {
    return ErrnoError(error.value(), "packed models cannot be kept in ", folder.string(), " ($MOED_CACHE_DIR chooses another)");
  }
  return fs::canonical(folder).string();
}

CachedStore PlaceInCache(const std::string& folder, const ModelSource& source, const std::vector<std::string>& pack_flags) {
  std::string key = source.canonical;
  for (const std::string& flag : pack_flags) key += StrCat("\n", flag);
  CachedStore store;
  store.same_key = fs::path(folder) / absl::StrFormat("%s-%016x-", NameOf(source), Checksum(key));
  store.path = absl::StrFormat("%s%016x.moed", store.same_key, Checksum(source.fingerprint));
  return store;
}

absl::StatusOr<std::string> PackOnce(const std::string& folder, const ModelSource& source,
                                     const std::vector<std::string>& pack_flags, StopSignals& signals) {
  const CachedStore store = PlaceInCache(folder, source, pack_flags);
  const PackLock lock(store.lock_path());
  MOED_RETURN_IF_ERROR(Take(lock, store, signals));
  MOED_ASSIGN_OR_RETURN(const bool is_there, IsThere(store.path));
  if (is_there) return store.path;
  RemoveFormerStates(store);
  std::fprintf(stderr, "packing %s into %s, once\n", source.path.c_str(), store.path.c_str());
  MOED_RETURN_IF_ERROR(RunPack(store.path, source, pack_flags, lock, signals));
  return store.path;
}

}  // namespace moed
