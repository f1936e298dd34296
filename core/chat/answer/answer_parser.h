// A model's answer, cut into reasoning, text and calls of tools while it arrives.
//
// Markers and the white space beside them go; of all else nothing is lost, repeated or changed. What opens like a call and is
// none is text, marker included; a whole header of a message is not. A call begins with its name; from then on its arguments are
// handed out as they come, and they are whole JSON exactly when the call was. Where they turn out to be none, the call ends
// there, incomplete, and what follows is text again. An answer that ends after the marker of a call (or within a message's
// header) and before the call begins, loses that end: nobody is to take the marker for text. So does one that was cut off within
// a marker.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/value.h"

namespace moed::chat {

struct AnswerPart {
  enum class Kind : uint8_t { kReasoning, kText, kToolCall };
  Kind kind = Kind::kText;
  std::string text;  // of a call: what follows of its arguments, an object in JSON
  int call = 0;      // of a call: which of the answer's, from 0
  std::string name;  // with a call's first part
  std::string id;    // likewise, where the answer names one
};

struct AnswerOptions {
  bool reasoning_open = false;  // the prompt's end has opened the reasoning (OpensReasoning in answer_format.h)
  Value tools;                  // as the template was given them; without any, nothing is a call
};

// One answer. Not synchronised. Holds at most kMostHeldBytes of what may become a marker or a call, and as much of a parameter
// whose type is not known before its end: beyond that, it is a list or an object that is handed out as it
// comes, or a string.
class AnswerParser {
 public:
  static constexpr size_t kMostHeldBytes = 16 << 10;

  virtual ~AnswerParser() = default;
  // The next piece, special tokens shown, cut anywhere. Appends to `parts`, or to the last of them where it goes on. Parts are
  // whole UTF-8 after every call where the pieces are.
  virtual void Add(std::string_view text, std::vector<AnswerPart>& parts) = 0;
  // What is held back. An answer cut off within a call leaves its arguments incomplete.
  virtual void End(std::vector<AnswerPart>& parts) = 0;
  // The same, where the answer's length ended it, wherever that was.
  virtual void CutOff(std::vector<AnswerPart>& parts) = 0;
};

}  // namespace moed::chat
