#include "core/expert/cache/residency_table.h"

#include <algorithm>
#include <span>

namespace moed {
namespace {

// Tables count apart from each other, below what numbers in JSON hold (2^53) for the first 8191.
uint64_t NextBegin() {
  static std::atomic<uint64_t> tables{0};
  return (tables.fetch_add(1, std::memory_order_relaxed) + 1) << 40;
}

}  // namespace

ResidencyTable::ResidencyTable(const ExpertIndex& index)
    : index_(index),
      begin_(NextBegin()),
      states_(index.size()),
      on_device_(index.size()),
      counts_(index.size()),
      happenings_(begin_) {}

uint64_t ResidencyTable::TableBytes(size_t keys) { return keys * (sizeof(RecordState) + sizeof(bool) + sizeof(Counts)); }

void ResidencyTable::Set(const CachedKey& key, RecordState state) {
  const size_t i = index_.Of(key);
  states_[i].store(state, std::memory_order_relaxed);
  if (state == RecordState::kResident) {
    CountOne(&Counts::reads, counts_[i]);
  } else if (state == RecordState::kAbsent) {
    on_device_[i].store(false, std::memory_order_relaxed);
    Changed(counts_[i]);
  }
}

void ResidencyTable::PlaceOnDevice(const CachedKey& key, bool on_device) {
  const size_t i = index_.Of(key);
  on_device_[i].store(on_device, std::memory_order_relaxed);
  Changed(counts_[i]);
}

void ResidencyTable::CountLookup(const CachedKey& key, bool hit) {
  CountOne(hit ? &Counts::hits : &Counts::misses, counts_[index_.Of(key)]);
}

void ResidencyTable::CountSkip(LayerId layer, int32_t expert) {
  CountOne(&Counts::skipped, counts_[index_.Of({layer, expert, kReferencePrecision})]);
}

// One thread at a time writes, so that nothing needs to be locked for an addition.
void ResidencyTable::CountOne(Count Counts::*what, Counts& counts) {
  Count& count = counts.*what;
  count.store(Read(count) + 1, std::memory_order_relaxed);
  Changed(counts);
}

// Last, so that who knows of a happening sees what it changed.
void ResidencyTable::Changed(Counts& counts) {
  const uint64_t happening = Read(happenings_) + 1;
  counts.changed.store(happening, std::memory_order_relaxed);
  happenings_.store(happening, std::memory_order_release);
}

ExpertMap ResidencyTable::ChangedSince(uint64_t since) const {
  ExpertMap map{.now = happenings_.load(std::memory_order_acquire), .layers = {}};
  const bool all = since < begin_ || since > map.now;
  for (int position = 0; position < index_.layers(); ++position) {
    LayerCells& layer = map.layers.emplace_back();
    layer.layer = index_.Layer(position);
    for (int32_t expert = 0; expert < index_.experts_per_layer(); ++expert) {
      ExpertCell cell{.expert = expert};
      if (AddCell(position, expert, since, cell) || all) layer.experts.push_back(cell);
    }
  }
  return map;
}

// True where something has happened since.
bool ResidencyTable::AddCell(int position, int32_t expert, uint64_t since, ExpertCell& cell) const {
  const size_t first = (static_cast<size_t>(position) * index_.experts_per_layer() + expert) * index_.precisions();
  bool changed = false;
  for (int precision = 0; precision < index_.precisions(); ++precision) {
    const size_t i = first + precision;
    const Counts& counts = counts_[i];
    const bool resident = states_[i].load(std::memory_order_relaxed) == RecordState::kResident;
    changed |= Read(counts.changed) > since;
    cell.resident |= uint32_t{resident} << precision;
    cell.on_device |= uint32_t{resident && on_device_[i].load(std::memory_order_relaxed)} << precision;
    cell.hits += Read(counts.hits);
    cell.misses += Read(counts.misses);
    cell.lowered += precision == kReferencePrecision ? 0 : LookupsOf(counts);
    cell.skipped += Read(counts.skipped);
    cell.reads += Read(counts.reads);
  }
  return changed;
}

std::vector<ExpertHeat> ResidencyTable::Hottest(int top) const {
  std::vector<ExpertHeat> used;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const uint64_t uses = LookupsOf(counts_[i]);
    if (uses > 0) used.push_back({index_.KeyAt(i), uses, states_[i].load(std::memory_order_relaxed) == RecordState::kResident});
  }
  const auto count = static_cast<std::ptrdiff_t>(std::min(used.size(), static_cast<size_t>(std::max(top, 0))));
  const auto hotter = [this](const ExpertHeat& a, const ExpertHeat& b) {
    return a.uses != b.uses ? a.uses > b.uses : index_.Of(a.key) < index_.Of(b.key);
  };
  std::partial_sort(used.begin(), used.begin() + count, used.end(), hotter);
  used.resize(static_cast<size_t>(count));
  return used;
}

std::vector<ExpertHeat> ResidencyTable::ResidentRecords() const {
  std::vector<ExpertHeat> records;
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (states_[i].load(std::memory_order_relaxed) != RecordState::kResident) continue;
    records.push_back({index_.KeyAt(i), LookupsOf(counts_[i]), true});
  }
  std::ranges::stable_sort(records, std::ranges::greater(), &ExpertHeat::uses);
  return records;
}

std::vector<uint32_t> ResidencyTable::Residents(int position) const {
  std::vector<uint32_t> residents(static_cast<size_t>(index_.precisions()));
  const size_t records = static_cast<size_t>(index_.experts_per_layer()) * index_.precisions();
  for (size_t record = 0; record < records; ++record) {
    const RecordState state = states_[position * records + record].load(std::memory_order_relaxed);
    residents[record % residents.size()] += state == RecordState::kResident ? 1 : 0;
  }
  return residents;
}

}  // namespace moed
