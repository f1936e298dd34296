// moed-recorded: the daemon, with a recorded trace in the place of the model's router. For measurements alone: never installed,
// and what it answers means nothing.
#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/recorded/recorded_routing.h"
#include "core/base/status.h"
#include "server/daemon.h"

namespace moed {
namespace {

constexpr std::string_view kTraceFlag = "--recorded-routing", kRecallFlag = "--gate-recall";
constexpr std::string_view kUsage =
    "\nmoed-recorded --recorded-routing DIR [--gate-recall SHARE] and the daemon's own flags:\n"
    "  --recorded-routing DIR  the trace that says where tokens go (docs/routing-traces.md)\n"
    "  --gate-recall SHARE     what the next layer's gate is supposed to know (default: there are no gates)\n";

// Takes `flag` and its value away.
absl::StatusOr<std::optional<std::string>> TakeFlag(std::string_view flag, std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] != flag) continue;
    if (i + 1 == arguments.size()) return InvalidArgument(flag, ": a value is missing");
    std::string value = arguments[i + 1];
    const auto begin = arguments.begin() + static_cast<std::ptrdiff_t>(i);
    arguments.erase(begin, begin + 2);
    return value;
  }
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<RecordedRouting>> TakeRouting(std::vector<std::string>& arguments) {
  MOED_ASSIGN_OR_RETURN(const std::optional<std::string> directory, TakeFlag(kTraceFlag, arguments));
  if (!directory) return InvalidArgument(kTraceFlag, " DIR is missing");
  MOED_ASSIGN_OR_RETURN(const std::optional<std::string> text, TakeFlag(kRecallFlag, arguments));
  std::optional<double> recall;
  if (text) {
    recall = -1;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *recall);
    if (error != std::errc() || end != text->data() + text->size()) {
      return InvalidArgument(kRecallFlag, " \"", *text, "\": allowed is 0 to 1");
    }
  }
  TokenTexts texts;
  MOED_ASSIGN_OR_RETURN(RoutingTrace trace, ReadRoutingTrace(*directory, std::nullopt, texts));
  return RecordedRouting::Create(std::move(trace), recall);
}

int Main(std::vector<std::string> arguments) {
  const auto routing = TakeRouting(arguments);
  if (!routing.ok()) {
    std::fprintf(stderr, "moed: %s\n%s", StrCat(routing.status().message()).c_str(), std::string(kUsage).c_str());
    return 2;
  }
  return RunDaemon(arguments, kUsage, routing->get());
}

}  // namespace
}  // namespace moed

int main(int argc, char** argv) { return moed::Main({argv + 1, argv + argc}); }
