#include "core/expert/cache/loader.h"

#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {

Loader::Loader(const StoreReader& store, ReadBackend& backend, const Clock& clock, Trace* trace, const LoaderOptions& options,
               Listener& listener)
    : store_(store),
      clock_(clock),
      trace_(trace),
      split_read_bytes_(options.split_read_bytes),
      checksums_(options.checksums),
      index_(store.description().moe_layers, store.description().experts_per_layer,
             static_cast<int>(store.description().precisions.size())),
      listener_(listener),
      verified_(index_.size()),
      timer_(backend, clock),
      queue_(timer_, clock, options.queue) {
  if (store.coded()) decoding_.emplace();
}

Loader::Range Loader::RangeOf(const CachedKey& key, int read) const {
  const ExpertLayout& layout = store_.expert_layout(key);
  const size_t segments = layout.segments.size(), down = segments - 1;
  if (ReadsOf(key) == 1) return {layout.record_bytes, 0, segments};
  return read == 0 ? Range{layout.segments[down].offset, 0, down} : Range{layout.record_bytes, down, segments};
}

// As many bytes as the range has in the file, at its end in memory.
std::span<std::byte> Loader::DestinationOf(const LoadTarget& target, const Range& range) const {
  const uint64_t stored = store_.StoredRange(target.key, range.first_segment, range.end_segment).bytes;
  return target.bytes.first(range.end_bytes).last(stored);
}

Loader::Tickets Loader::Start(LoadTarget& target, ReadPriority priority) {
  const int reads = ReadsOf(target.key);
  Tickets tickets{};
  for (int read = 0; read < reads; ++read) {
    const Range range = RangeOf(target.key, read);
    const uint64_t offset = store_.StoredRange(target.key, range.first_segment, range.end_segment).offset;
    tickets[read] = queue_.Submit(priority, offset, DestinationOf(target, range),
                                  [this, &target, read](absl::Status outcome) { Answered(target, read, std::move(outcome)); });
  }
  return tickets;
}

void Loader::Promote(const Tickets& tickets) {
  for (const ReadTicket ticket : tickets) {
    if (ticket != 0) queue_.Promote(ticket);
  }
}

void Loader::Cancel(const Tickets& tickets) {
  for (const ReadTicket ticket : tickets) {
    if (ticket == 0 || !queue_.Cancel(ticket)) return;
  }
}

void Loader::Answered(LoadTarget& target, int read, absl::Status outcome) {
  if (!decoding_ || !outcome.ok()) return Finish(target, read, std::move(outcome));
  decoding_->Add([this, &target, read](SegmentDecoder& decoder) {
    const Range range = RangeOf(target.key, read);
    Finish(target, read, store_.Decode(target.key, range.first_segment, range.end_segment, target.bytes, decoder));
  });
}

void Loader::Finish(LoadTarget& target, int read, absl::Status outcome) {
  const Range range = RangeOf(target.key, read);
  const std::span<std::byte> destination = DestinationOf(target, range);
  const std::optional<int64_t> begin = timer_.TakeBegin(destination.data());
  if (trace_ != nullptr && begin) {
    trace_->Add({"read", kReadTrack, *begin, clock_.NowNanos(), target.key.layer.value(), target.key.expert, destination.size()});
  }
  if (outcome.ok() && Unverified(target, read)) {
    outcome = Verify(target, range);
    if (outcome.ok()) verified_[index_.Of(target.key)].fetch_or(1 << read, std::memory_order_relaxed);
  }
  // Whatever the device called it: these bytes of the store cannot be had.
  if (!outcome.ok() && !absl::IsCancelled(outcome) && !absl::IsDataLoss(outcome)) {
    outcome = DataLoss("reading expert ", target.key.expert, " of layer ", target.key.layer.value(), ": ", outcome.message());
  }
  listener_.OnRead(target, read, std::move(outcome));
}

bool Loader::Unverified(const LoadTarget& target, int read) const {
  return checksums_ == ChecksumRule::kEveryRead ||
         (verified_[index_.Of(target.key)].load(std::memory_order_relaxed) >> read & 1) == 0;
}

absl::Status Loader::Verify(const LoadTarget& target, const Range& range) const {
  const ExpertLayout& layout = store_.expert_layout(target.key);
  for (size_t i = range.first_segment; i < range.end_segment; ++i) {
    const ExpertSegment& segment = layout.segments[i];
    MOED_RETURN_IF_ERROR(store_.VerifySegment(target.key, segment.part, target.bytes.subspan(segment.offset, segment.bytes)));
  }
  return absl::OkStatus();
}

}  // namespace moed
