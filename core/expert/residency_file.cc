#include "core/expert/residency_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/store/file_write.h"

namespace moed {
namespace {

constexpr std::string_view kHeader = "moed residency 1 of model ";
constexpr std::string_view kEnd = "records ";

std::string HeaderOf(uint64_t model_hash) { return absl::StrFormat("%s%016x", kHeader, model_hash); }

bool InStore(const CachedKey& key, const StoreDescription& store) {
  return std::ranges::binary_search(store.moe_layers, key.layer) && key.expert >= 0 && key.expert < store.experts_per_layer &&
         key.precision < store.precisions.size();
}

// The next number of `text`, which a space follows, or the end where it is the last.
template <class Number>
bool TakeNumber(std::string_view& text, bool last, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (last || !text.starts_with(' ')) return last && text.empty();
  text.remove_prefix(1);
  return true;
}

bool ParseRecord(std::string_view line, const StoreDescription& store, CachedKey& key) {
  int32_t layer = 0;
  if (!TakeNumber(line, false, layer) || !TakeNumber(line, false, key.expert) || !TakeNumber(line, true, key.precision)) {
    return false;
  }
  key.layer = LayerId(layer);
  return InStore(key, store);
}

std::string Text(const ResidencyFile& file, std::span<const CachedKey> records) {
  std::string text = HeaderOf(file.model_hash) + "\n";
  for (const CachedKey& key : records) absl::StrAppendFormat(&text, "%d %d %d\n", key.layer.value(), key.expert, key.precision);
  absl::StrAppendFormat(&text, "%s%d\n", kEnd, records.size());
  return text;
}

// Lines are short and no record comes twice, so that a file of whatever size is read no further than this store has records.
absl::Status ParseRecords(std::istream& in, const StoreDescription& store, std::vector<CachedKey>& records) {
  absl::flat_hash_set<CachedKey> seen;
  char line[64];
  for (int number = 2;; ++number) {
    in.getline(line, sizeof(line));
    if (in.bad()) return ErrnoError(errno, "cannot be read");
    if (!in) return InvalidArgument("line ", number, ": no last line with the number of records");
    if (std::string_view(line).starts_with(kEnd)) {
      if (line == absl::StrFormat("%s%d", kEnd, records.size())) return absl::OkStatus();
      return InvalidArgument("line ", number, ": '", line, "' stands after ", records.size());
    }
    CachedKey key;
    if (!ParseRecord(line, store, key)) return InvalidArgument("line ", number, ": '", line, "' is no record of this store");
    if (!seen.insert(key).second) return InvalidArgument("line ", number, ": '", line, "' is there twice");
    records.push_back(key);
  }
}

}  // namespace

absl::Status WriteResidency(const ResidencyFile& file, std::span<const CachedKey> records) {
  const std::string text = Text(file, records);
  return ReplaceFile(file.path,
                     [&](int fd, const std::string& partial) { return WriteAt(fd, partial, 0, std::as_bytes(std::span(text))); });
}

absl::StatusOr<std::vector<CachedKey>> ReadResidency(const ResidencyFile& file, const StoreDescription& store) {
  std::ifstream in(file.path, std::ios::binary);
  if (!in) return ErrnoError(errno, "cannot open ", file.path);
  char header[64] = {};
  in.getline(header, sizeof(header));
  if (in.bad()) return ErrnoError(errno, "cannot read ", file.path);
  if (!in || !std::string_view(header).starts_with(kHeader))
    return InvalidArgument(file.path, ": is no list of experts in memory");
  if (header != HeaderOf(file.model_hash))
    return FailedPrecondition(file.path, ": is of another model; take it away, or name another file");
  std::vector<CachedKey> records;
  MOED_RETURN_IF_ERROR(Annotate(ParseRecords(in, store, records), file.path));
  return records;
}

}  // namespace moed
