// Reads calls of tools in one way of writing them.
#pragma once

#include <cstdint>

#include "core/chat/answer/answer_writer.h"
#include "core/chat/answer/markers.h"

namespace moed::chat {

enum class CallState : uint8_t {
  kHeld,       // this byte and those since the last kTaken are text should the next ones be no call
  kTaken,      // they are not: they are written, or markers of what is
  kDone,       // taken, and the last
  kMalformed,  // neither this byte nor those since the last kTaken belong to a call
};

// What follows the marker that opens a call, or a list of them.
class CallReader {
 public:
  virtual ~CallReader() = default;
  virtual CallState Put(char c, AnswerWriter& out) = 0;
  // The answer ends within: writes what was taken and is not written.
  virtual void End(AnswerWriter&) {}
  // While no call has begun: no marker or name tells yet that it is to be one.
  virtual bool MayBeText() const { return false; }
};

// A byte of the only literal that may end a call.
inline CallState PutClose(char c, Choice& close) {
  const int choice = close.Put(c);
  return choice == 0 ? CallState::kDone : choice == Choice::kNone ? CallState::kMalformed : CallState::kHeld;
}

// Of tools, as they are written without quotes.
inline bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' ||
         c == ':' || c == '/';
}
constexpr size_t kMostNameBytes = 256;

}  // namespace moed::chat
