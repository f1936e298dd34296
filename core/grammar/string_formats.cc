#include "core/grammar/string_formats.h"

#include <map>

#include "core/base/status.h"

namespace moed::grammar {
namespace {

std::string Whole(std::string_view pattern) { return StrCat("^(?:", pattern, ")$"); }

// Every month has its days, and the 29th of February its years.
std::string Date() {
  const std::string year = R"((?:[1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9]))";
  const std::string fourth = "(?:0[48]|[2468][048]|[13579][26])";  // of the years of a century, and of centuries
  const std::string days = R"((?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31))";
  return StrCat("(?:", year, "-", days, "|(?:", R"(\d\d)", fourth, "|", fourth, "00)-02-29)");
}

std::string Time() {
  const std::string minute = R"((?:[01]\d|2[0-3]):[0-5]\d)";
  return StrCat(minute, R"(:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-])", minute, ")");
}

// Days follow months, months years, and so on: none between two is left out.
std::string Duration() {
  const std::string number = R"(\d{1,6})";
  const auto nested = [&](std::string_view large, std::string_view middle, std::string_view small) {
    const std::string last = StrCat(number, small);
    const std::string second = StrCat(number, middle, "(?:", last, ")?");
    return StrCat("(?:", number, large, "(?:", second, ")?|", second, "|", last, ")");
  };
  const std::string time = StrCat("T", nested("H", "M", "S"));
  return StrCat("P(?:", nested("Y", "M", "D"), "(?:", time, ")?|", time, "|", number, "W)");
}

// Of up to 2 * `pairs` more characters.
std::string LabelRest(int pairs) { return StrCat("(?:-?[A-Za-z0-9]){0,", pairs, "}"); }

std::string Host() { return StrCat("(?:[A-Za-z0-9]", LabelRest(24), R"(\.){0,4}[A-Za-z])", LabelRest(24)); }

std::string Email() {
  const std::string_view atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]";
  return StrCat(atom, R"((?:\.?)", atom, "){0,31}@(?:[A-Za-z0-9]", LabelRest(22), R"(\.){1,3}[A-Za-z]{2,45})");
}

std::string Ipv4() {
  const std::string_view byte = R"((?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
  return StrCat(byte, R"((?:\.)", byte, "){3}");
}

// Eight groups, or "::" for those that are left out.
std::string Ipv6() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  std::string all = StrCat("(?:", group, ":){7}", group, "|(?:", group, ":){1,7}:|::(?:", group, "(?::", group, "){0,6})?");
  for (int before = 1; before <= 6; ++before) {
    all += StrCat("|(?:", group, ":){", before, "}(?::", group, "){1,", 7 - before, "}");
  }
  return all;
}

}  // namespace

const std::string* FormatPattern(std::string_view format) {
  static const auto& kPatterns = *new std::map<std::string, std::string, std::less<>>{
      {"date-time", Whole(StrCat(Date(), "T", Time()))},
      {"date", Whole(Date())},
      {"time", Whole(Time())},
      {"duration", Whole(Duration())},
      {"email", Whole(Email())},
      {"hostname", Whole(Host())},
      {"ipv4", Whole(Ipv4())},
      {"ipv6", Whole(Ipv6())},
      {"uuid", Whole("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")},
  };
  const auto found = kPatterns.find(format);
  return found == kPatterns.end() ? nullptr : &found->second;
}

}  // namespace moed::grammar
