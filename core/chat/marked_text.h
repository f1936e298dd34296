// Texts that know which of their bytes are foreign: of messages, tools and the like, in which nothing is a special token whatever
// it spells. All else is the template's own.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/byte_range.h"

namespace moed::chat {

using ByteRanges = std::vector<ByteRange>;  // ascending, not empty, none touches another

struct MarkedText {
  std::string text;
  ByteRanges foreign;

  static MarkedText Own(std::string text) { return {std::move(text), {}}; }
  // All of it foreign, or nothing.
  static MarkedText Whole(std::string text, bool foreign);
  // A Source has a text and what is foreign of it. `part` lies in that text, or is empty.
  template <class Source>
  static MarkedText PartOf(const Source& source, std::string_view part) {
    MarkedText out;
    out.AppendPart(source, part);
    return out;
  }

  void AppendOwn(std::string_view own) { text += own; }
  template <class Source>
  void Append(const Source& source) {
    AppendRange(source.text, source.foreign, 0, source.text.size());
  }
  template <class Source>
  void AppendPart(const Source& source, std::string_view part) {
    const size_t begin = part.empty() ? 0 : static_cast<size_t>(part.data() - source.text.data());
    AppendRange(source.text, source.foreign, begin, begin + part.size());
  }
  bool HoldsForeign() const { return !foreign.empty(); }
  size_t bytes() const { return text.capacity() + foreign.capacity() * sizeof(ByteRange); }

 private:
  void AppendRange(std::string_view from, const ByteRanges& of_from, size_t begin, size_t end);
};

}  // namespace moed::chat
