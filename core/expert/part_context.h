// What policies, predictors, fidelity rules and router masks are made from, whichever row makes them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <typeindex>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/status.h"

namespace moed {

class StoreReader;

inline constexpr size_t kDefaultTableBytes = 8 << 20;

// The experts that a part is about.
struct ExpertModelShape {
  std::span<const LayerId> moe_layers;
  int experts_per_layer = 0;
  int top_k = 0;
  int precisions = 1;
  std::span<const uint64_t> record_bytes;  // by precision, of the largest layer; empty where nothing is cached
  uint64_t capacity_bytes = 0;             // of the cache; 0 likewise
  size_t table_bytes =
      kDefaultTableBytes;  // most bytes of a table of what was learned about tokens; one set of its rows is always there
  int encoder_layers = 0;  // of an encoder-decoder, the model's first: a request runs them once, on its source

  // So many of moe_layers, its first ones, are an encoder's: a token passes those or the others.
  int encoder_positions() const {
    return static_cast<int>(std::ranges::count_if(moe_layers, [this](LayerId layer) { return layer.value() < encoder_layers; }));
  }
  size_t experts() const { return moe_layers.size() * static_cast<size_t>(experts_per_layer); }  // of all layers
};

// Router probabilities (experts) that `layer`'s gate gives for `hidden`; injected by the application, since the router's weights
// belong to the model. Called on the engine's thread.
using GateFn = std::function<void(LayerId layer, std::span<const float> hidden, std::span<float> probabilities)>;

// What parts that are made together have in common: of each type one object, made for the first part that asks.
class SharedState {
 public:
  template <class T>
  absl::StatusOr<std::shared_ptr<T>> Of(absl::FunctionRef<absl::StatusOr<std::shared_ptr<T>>()> make) {
    std::shared_ptr<void>& state = states_[typeid(T)];
    if (state == nullptr) {
      MOED_ASSIGN_OR_RETURN(state, make());
    }
    return std::static_pointer_cast<T>(state);
  }

 private:
  std::map<std::type_index, std::shared_ptr<void>> states_;
};

// Spans need to live while parts are made; what is pointed to outlives them.
struct PartContext {
  ExpertModelShape model;
  int hidden = 0;                      // of the gate's input
  GateFn gate;                         // null: recorded routing has none
  const StoreReader* store = nullptr;  // null where nothing is asked that only a store can tell
  const Clock* clock = &Clock::Real();
  std::shared_ptr<SharedState> shared = std::make_shared<SharedState>();  // of the parts made from copies of this context
};

// What a part holds, told by its row before the part is made. Nothing but `model` (without a cache's size) and `hidden` of its
// context is known then.
struct PartMemory {
  uint64_t fixed_bytes = 0;
  uint64_t sequence_bytes = 0;    // for every conversation
  int tables = 0;                 // of ExpertModelShape::table_bytes, on top
  uint64_t most_table_bytes = 0;  // of one, beyond which nothing more is held in it

  PartMemory& operator+=(const PartMemory& other) {
    fixed_bytes += other.fixed_bytes;
    sequence_bytes += other.sequence_bytes;
    tables += other.tables;
    most_table_bytes = std::max(most_table_bytes, other.most_table_bytes);
    return *this;
  }
};

}  // namespace moed
