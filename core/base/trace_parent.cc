#include "core/base/trace_parent.h"

#include <algorithm>
#include <array>

#include "core/base/status.h"

namespace moed {
namespace {

constexpr size_t kVersionDigits = 2, kTraceDigits = 32;
// VERSION-TRACE-PARENT-FLAGS
constexpr std::array<size_t, 4> kDigits = {kVersionDigits, kTraceDigits, 16, 2};
constexpr size_t kLength = 55;

bool IsDigit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

bool IsId(std::string_view digits) {
  return !std::ranges::all_of(digits, [](char c) { return c == '0'; });
}

}  // namespace

std::string ReadTraceParent(std::string_view text) {
  if (text.size() < kLength) return "";
  std::array<std::string_view, kDigits.size()> fields;
  size_t at = 0;
  for (size_t i = 0; i < fields.size(); ++i) {
    fields[i] = text.substr(at, kDigits[i]);
    if (!std::ranges::all_of(fields[i], IsDigit)) return "";
    at += kDigits[i];
    if (at < text.size() && text[at++] != '-') return "";
  }
  const auto& [version, trace, parent, flags] = fields;
  const bool is_longer = text.size() > kLength;
  if (version == "ff" || (version == "00" && is_longer) || !IsId(trace) || !IsId(parent)) return "";
  return StrCat("00-", trace, "-", parent, "-", flags);
}

std::string TraceIdOf(std::string_view trace_parent) {
  return trace_parent.empty() ? "" : std::string(trace_parent.substr(kVersionDigits + 1, kTraceDigits));
}

}  // namespace moed
