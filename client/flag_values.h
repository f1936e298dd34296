// What the values of flags may be, said alike by help and by errors. For CLI::Option::transform.
#pragma once

#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "CLI/CLI.hpp"
#include "core/base/status.h"

namespace moed {

// The whole text as a decimal number. CLI11 itself takes 010 for 8, and the largest number for every larger one.
template <class Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(number)) return std::nullopt;
  }
  return number;
}

// `range` goes on with the error "'x' is no number", `help` stands in brackets ("" = no word).
template <class Number>
CLI::Validator NumberThat(const std::function<bool(Number)>& allowed, const std::string& range, const std::string& help) {
  const std::string wanted = StrCat(std::is_integral_v<Number> ? "whole number" : "number", range);
  const auto check = [allowed, wanted](std::string& text) {
    const std::optional<Number> number = ParseNumber<Number>(text);
    if (!number || !allowed(*number)) return StrCat("'", text, "' is no ", wanted);
    if constexpr (std::is_integral_v<Number>) text = StrCat(*number);
    return std::string();
  };
  return CLI::Validator(check, help.empty() ? "" : StrCat("(", help, ")"));
}

template <class Number>
CLI::Validator Between(Number least, Number most) {
  const std::string range = StrCat(least, " to ", most);
  return NumberThat<Number>([=](Number number) { return number >= least && number <= most; }, StrCat(" from ", range), range);
}
// Where only the type has a limit, which is nothing to remember.
template <class Number>
CLI::Validator AtLeast(Number least) {
  constexpr Number kMost = std::numeric_limits<Number>::max();
  return NumberThat<Number>([=](Number number) { return number >= least; }, StrCat(" from ", least, " to ", kMost),
                            StrCat(least, " or more"));
}

inline CLI::Validator AnyNumber() {
  return NumberThat<double>([](double) { return true; }, "", "");
}
// As seconds it fits every clock.
inline CLI::Validator Positive() {
  return NumberThat<double>([](double number) { return number > 0 && number <= 1e9; }, " above 0 up to 1e9", "above 0");
}

inline CLI::Validator OneOf(const std::vector<std::string>& names) {
  const std::string known = JoinNames(names, [](const std::string& name) { return name; });
  const auto check = [names, known](std::string& text) {
    for (const std::string& name : names) {
      if (name == text) return std::string();
    }
    return StrCat("'", text, "' is none of ", known);
  };
  return CLI::Validator(check, StrCat("(", known, ")"));
}

}  // namespace moed
