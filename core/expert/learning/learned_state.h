// What policies and predictors have learned, saved when the daemon ends and taken up when it starts again.
//
// A part shows its arrays to a visitor, always the same ones in the same order; the visitor writes them or overwrites them. The
// file fits one store and one choice of parts. Tables of rows may have become larger or smaller since, with the budget: as many
// rows as there is room for are taken up. Arrays whose size has changed start anew. A right checksum does not make sense of
// numbers that cannot have been learned: with each array goes what its elements may be.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moed {

// A number, or an array of them.
struct Within {
  float least;
  float most;
  bool operator()(float value) const { return value >= least && value <= most; }  // no NaN
  template <size_t n>
  bool operator()(const std::array<float, n>& values) const {
    return std::ranges::all_of(values, *this);
  }
};
// Of weights, features and the like: what can be multiplied and added up and stays finite.
inline constexpr Within kCalculable{-1e6f, 1e6f};

inline constexpr auto kAnything = [](const auto&) { return true; };

// Of a table whose number of rows the budget sets.
class LearnedRows {
 public:
  virtual size_t rows() const = 0;
  virtual size_t row_bytes() const = 0;
  virtual bool Write(size_t row, std::span<std::byte> bytes) const = 0;  // false: nothing was learned in it
  virtual bool Sane(std::span<const std::byte> bytes) const = 0;         // whether this may have been
  virtual void Take(std::span<const std::byte> bytes) = 0;

 protected:
  ~LearnedRows() = default;
};

class LearnedState {
 public:
  virtual ~LearnedState() = default;

  template <class Array, class Sane>
  void Values(Array&& array, const Sane& sane) {
    using T = typename std::remove_cvref_t<Array>::value_type;
    static_assert(std::is_trivially_copyable_v<T>);
    Visit(std::as_writable_bytes(std::span(array)), sizeof(T), [&sane](const std::byte* bytes) {
      T element;
      std::memcpy(&element, bytes, sizeof(T));
      return sane(element);
    });
  }
  template <class T, class Sane>
  void Value(T& value, const Sane& sane) {
    Values(std::span(&value, 1), sane);
  }
  virtual void Rows(LearnedRows& rows) = 0;

 protected:
  // `sane`: of one element as the file has it.
  virtual void Visit(std::span<std::byte> array, size_t element_bytes, absl::FunctionRef<bool(const std::byte*)> sane) = 0;
};

struct LearnedFile {
  std::string path;
  uint64_t model_hash = 0;
  std::string parts;  // their names
};

// Shows everything that learns to the visitor, always in the same order.
using VisitLearners = absl::FunctionRef<void(LearnedState&)>;

// Replaces the file once the new one is whole.
absl::Status SaveLearned(const LearnedFile& file, VisitLearners visit);
// The same with a visit that may fail: then the file stays as it was.
absl::Status TrySaveLearned(const LearnedFile& file, absl::FunctionRef<absl::Status(LearnedState&)> visit);

// Whether TakeLearned will take it, but for arrays that cannot have been learned: its errors.
absl::Status CheckLearned(const LearnedFile& file);

struct LearnedTaken {
  uint64_t taken_bytes = 0;
  uint64_t left_bytes = 0;  // that the file has not, or for which there is no room
};
// Before the first sequence. NOT_FOUND: there is no file; FAILED_PRECONDITION: of another store or other parts; DATA_LOSS:
// damaged; OUT_OF_RANGE: of an earlier version of this file, or whole but with numbers that cannot have been learned. Then
// nothing is taken.
absl::StatusOr<LearnedTaken> TakeLearned(const LearnedFile& file, VisitLearners visit);

}  // namespace moed
