#include "server/http/transport/status_text.h"

#include <random>

#include "absl/strings/str_format.h"

namespace moed::http {
namespace {

struct StatusRow {
  int status;
  std::string_view text;
};
constexpr StatusRow kStatuses[] = {
    {200, "OK"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Request Cancelled"},  // of no RFC
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
};

}  // namespace

std::string_view StatusText(int status) {
  for (const StatusRow& row : kStatuses) {
    if (row.status == status) return row.text;
  }
  return "Unknown";
}

std::string NewRequestId() {
  thread_local std::mt19937_64 random(std::random_device{}());
  return absl::StrFormat("%016x%016x", random(), random());
}

}  // namespace moed::http
