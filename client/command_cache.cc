// The expert cache, while it serves: resize, pin, unpin, prefetch, residency. And the log's level.
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/command.h"
#include "client/flag_values.h"
#include "client/shown.h"
#include "core/base/byte_size.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr char kExpertsHelp[] = "LAYER:EXPERT, numbers of moectl stats and GetExpertMap";

bool TakeNumber(std::string_view text, int32_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

template <class Request>
absl::Status AddExperts(const std::vector<std::string>& experts, Request& request) {
  for (const std::string_view text : experts) {
    const size_t colon = text.find(':');
    auto* id = request.add_experts();
    int32_t layer = 0, expert = 0;
    if (colon == std::string_view::npos || !TakeNumber(text.substr(0, colon), layer) ||
        !TakeNumber(text.substr(colon + 1), expert)) {
      return UsageError("\"", text, "\" is not LAYER:EXPERT");
    }
    id->set_layer(layer);
    id->set_expert(expert);
  }
  return absl::OkStatus();
}

absl::Status ChangePins(CommandContext& context, const moe::v1::PinExpertsRequest& request) {
  MOED_ASSIGN_OR_RETURN(const moe::v1::PinExpertsResponse answer, context.client.PinExperts(request));
  std::printf("%llu experts are pinned: %s of at most %s; %llu wait to be read\n",
              static_cast<unsigned long long>(answer.pinned()), FormatBytes(answer.pinned_bytes()).c_str(),
              FormatBytes(answer.most_pinned_bytes()).c_str(), static_cast<unsigned long long>(answer.waiting()));
  return absl::OkStatus();
}

}  // namespace

CommandRun DefineResize(CLI::App& app) {
  auto text = std::make_shared<std::string>();
  app.add_option("budget", *text, "as --memory-budget of moed: \"8GiB\"")->required()->type_name("BYTES");
  return [text](CommandContext& context) -> absl::Status {
    MOED_ASSIGN_OR_RETURN(const uint64_t budget, AsUsage(ParseBytes(*text)));
    MOED_ASSIGN_OR_RETURN(const moe::v1::ResizeMemoryResponse answer, context.client.ResizeMemory(budget));
    std::printf("memory budget %s:", FormatBytes(answer.memory_budget_bytes()).c_str());
    for (const auto& part : answer.memory()) absl::PrintF(" %s %s", LineOn(stdout, part.part()), FormatBytes(part.bytes()));
    std::printf("; the cache holds %s\n", FormatBytes(answer.cache_bytes()).c_str());
    return absl::OkStatus();
  };
}

CommandRun DefinePin(CLI::App& app) {
  auto experts = std::make_shared<std::vector<std::string>>();
  app.add_option("experts", *experts, kExpertsHelp)->required()->type_name("LAYER:EXPERT");
  return [experts](CommandContext& context) -> absl::Status {
    moe::v1::PinExpertsRequest request;
    MOED_RETURN_IF_ERROR(AddExperts(*experts, request));
    return ChangePins(context, request);
  };
}

CommandRun DefineUnpin(CLI::App& app) {
  auto experts = std::make_shared<std::vector<std::string>>();
  auto all = std::make_shared<bool>(false);
  auto* list = app.add_option("experts", *experts, kExpertsHelp)->type_name("LAYER:EXPERT");
  app.add_flag("--all", *all, "every pinned expert")->excludes(list);
  return [experts, all](CommandContext& context) -> absl::Status {
    moe::v1::PinExpertsRequest request;
    request.set_unpin(true);
    request.set_all(*all);
    MOED_RETURN_IF_ERROR(AddExperts(*experts, request));
    return ChangePins(context, request);
  };
}

CommandRun DefinePrefetch(CLI::App& app) {
  auto experts = std::make_shared<std::vector<std::string>>();
  auto hottest = std::make_shared<int>(0);
  auto* list = app.add_option("experts", *experts, kExpertsHelp)->type_name("LAYER:EXPERT");
  app.add_option("--hottest", *hottest, "so many that were used most since the model was loaded")
      ->transform(Between(1, 1000))
      ->excludes(list);
  return [experts, hottest](CommandContext& context) -> absl::Status {
    moe::v1::PrefetchExpertsRequest request;
    request.set_hottest(*hottest);
    MOED_RETURN_IF_ERROR(AddExperts(*experts, request));
    MOED_ASSIGN_OR_RETURN(const moe::v1::PrefetchExpertsResponse answer, context.client.PrefetchExperts(request));
    std::printf("%llu experts are taken; %llu wait to be read\n", static_cast<unsigned long long>(answer.taken()),
                static_cast<unsigned long long>(answer.waiting()));
    return absl::OkStatus();
  };
}

CommandRun DefineResidency(CLI::App& app) {
  auto what = std::make_shared<std::string>();
  app.add_option("what", *what, "save or restore")->required()->transform(OneOf({"save", "restore"}));
  return [what](CommandContext& context) -> absl::Status {
    const bool save = *what == "save";
    MOED_ASSIGN_OR_RETURN(const uint64_t experts, save ? context.client.SaveResidency() : context.client.RestoreResidency());
    std::printf("%llu experts %s\n", static_cast<unsigned long long>(experts), save ? "are in the file" : "are read");
    return absl::OkStatus();
  };
}

CommandRun DefineLogLevel(CLI::App& app) {
  auto level = std::make_shared<std::string>();
  app.add_option("level", *level, "trace, debug, info, warning, error, critical or off")->required()->type_name("LEVEL");
  return [level](CommandContext& context) { return context.client.SetLogLevel(*level); };
}

}  // namespace moed
