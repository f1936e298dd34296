#include "tests/grammar/format_validator.h"

#include <arpa/inet.h>

#include <regex>
#include <vector>

namespace moed::grammar {
namespace {

// `numbers`: what the groups of the pattern match, 0 for those that do not.
bool Matches(const std::string& text, const char* pattern, std::vector<int>& numbers) {
  std::smatch match;
  if (!std::regex_match(text, match, std::regex(pattern))) return false;
  for (size_t i = 1; i < match.size(); ++i) numbers.push_back(match[i].length() == 0 ? 0 : std::stoi(match[i]));
  return true;
}

bool Matches(const std::string& text, const char* pattern) { return std::regex_match(text, std::regex(pattern)); }

bool IsDate(const std::string& text) {
  std::vector<int> n;
  if (!Matches(text, R"((\d{4})-(\d\d)-(\d\d))", n) || n[1] < 1 || n[1] > 12) return false;
  const bool leap = n[0] % 4 == 0 && (n[0] % 100 != 0 || n[0] % 400 == 0);
  const int days = n[1] == 2 ? (leap ? 29 : 28) : n[1] == 4 || n[1] == 6 || n[1] == 9 || n[1] == 11 ? 30 : 31;
  return n[2] >= 1 && n[2] <= days;
}

bool IsTime(const std::string& text) {
  std::vector<int> n;
  return Matches(text, R"((\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:Z|[+-](\d\d):(\d\d)))", n) && n[0] < 24 && n[1] < 60 && n[2] < 60 &&
         n[3] < 24 && n[4] < 60;
}

bool IsDateTime(const std::string& text) {
  const size_t middle = text.find('T');
  return middle != std::string::npos && IsDate(text.substr(0, middle)) && IsTime(text.substr(middle + 1));
}

bool IsDuration(const std::string& text) {
  const bool units = Matches(text, R"(P(\d+Y)?(\d+M)?(\d+D)?(T(\d+H)?(\d+M)?(\d+S)?)?)") || Matches(text, R"(P\d+W)");
  return units && text.back() != 'P' && text.back() != 'T' && !Matches(text, R"(.*Y\d+D.*|.*H\d+S)");
}

bool IsHost(const std::string& text) {
  const char* pattern = "([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\\.)*[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  return text.size() <= 253 && Matches(text, pattern);
}

bool IsEmail(const std::string& text) {
  const size_t at = text.find('@');
  if (at == std::string::npos || at > 64) return false;
  const char* local = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*";
  return Matches(text.substr(0, at), local) && IsHost(text.substr(at + 1));
}

bool IsAddress(int family, const std::string& text) {
  unsigned char address[sizeof(in6_addr)];
  return inet_pton(family, text.c_str(), address) == 1;
}

}  // namespace

bool IsOfFormat(const std::string& text, const std::string& format) {
  if (format == "date") return IsDate(text);
  if (format == "time") return IsTime(text);
  if (format == "date-time") return IsDateTime(text);
  if (format == "duration") return IsDuration(text);
  if (format == "hostname") return IsHost(text);
  if (format == "email") return IsEmail(text);
  if (format == "ipv4") return IsAddress(AF_INET, text);
  if (format == "ipv6") return IsAddress(AF_INET6, text);
  if (format == "uuid") return Matches(text, "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}");
  return true;
}

}  // namespace moed::grammar
