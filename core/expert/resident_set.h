// The residents of a cache by their dense numbers (ExpertIndex), for policies that score each of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/base/check.h"

namespace moed {

class ResidentSet {
 public:
  static constexpr size_t kNone = ~size_t{0};

  explicit ResidentSet(size_t keys) : place_(keys, kOut), touched_(keys) {
    MOED_CHECK(keys < kOut);
    keys_.reserve(keys);
  }

  bool Has(size_t key) const { return place_[key] != kOut; }
  std::span<const uint32_t> keys() const { return keys_; }  // in no order

  void Insert(size_t key) {
    MOED_CHECK(!Has(key));
    place_[key] = static_cast<uint32_t>(keys_.size());
    keys_.push_back(static_cast<uint32_t>(key));
    Touch(key);
  }
  void Remove(size_t key) {
    MOED_CHECK(Has(key));
    place_[keys_.back()] = place_[key];
    keys_[place_[key]] = keys_.back();
    keys_.pop_back();
    place_[key] = kOut;
  }
  // Of equal scores the one that was touched (inserted, used) longest ago is the least.
  void Touch(size_t key) { touched_[key] = ++now_; }

  // Of those allowed; kNone where there is none. score(key) is asked for every resident, allowed(key) for few.
  template <class Score>
  size_t LeastOf(Score score, absl::FunctionRef<bool(size_t)> allowed) const {
    size_t least = kNone;
    decltype(score(uint32_t{0})) least_score{};
    for (const uint32_t key : keys_) {
      const auto of_key = score(key);
      if (least != kNone && (least_score < of_key || (!(of_key < least_score) && touched_[least] < touched_[key]))) continue;
      if (!allowed(key)) continue;
      least = key;
      least_score = of_key;
    }
    return least;
  }

 private:
  static constexpr uint32_t kOut = std::numeric_limits<uint32_t>::max();

  std::vector<uint32_t> keys_;
  std::vector<uint32_t> place_;  // by key: in keys_, kOut when absent
  std::vector<uint64_t> touched_;
  uint64_t now_ = 0;
};

}  // namespace moed
