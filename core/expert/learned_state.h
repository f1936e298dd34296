// What policies and predictors have learned, saved when the daemon ends and taken up when it starts again.
//
// A part shows its arrays to a visitor, always the same ones in the same order; the visitor writes them or overwrites them. The
// file fits one store and one choice of parts. Arrays whose size has changed since, because tables grow with the budget, start
// anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moed {

class EvictionPolicy;
class ExpertPredictor;

class LearnedState {
 public:
  virtual ~LearnedState() = default;
  virtual void Visit(std::span<std::byte> bytes) = 0;

  template <class Array>
  void Values(Array& array) {
    static_assert(std::is_trivially_copyable_v<typename Array::value_type>);
    Visit(std::as_writable_bytes(std::span(array)));
  }
  template <class T>
  void Value(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    Visit(std::as_writable_bytes(std::span(&value, 1)));
  }
};

struct LearnedFile {
  std::string path;
  uint64_t model_hash = 0;
  std::string parts;  // their names
};

// Replaces the file once the new one is whole.
absl::Status SaveLearned(const LearnedFile& file, EvictionPolicy& policy, ExpertPredictor& predictor);

struct LearnedTaken {
  uint64_t taken_bytes = 0;
  uint64_t left_bytes = 0;  // of arrays that start anew
};
// Before the first sequence. NOT_FOUND: there is no file; FAILED_PRECONDITION: of another store or other parts; DATA_LOSS:
// damaged. Then nothing is taken.
absl::StatusOr<LearnedTaken> TakeLearned(const LearnedFile& file, EvictionPolicy& policy, ExpertPredictor& predictor);

}  // namespace moed
