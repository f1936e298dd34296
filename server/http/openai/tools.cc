#include "server/http/openai/tools.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "core/base/status.h"
#include "server/http/api/tool_members.h"

namespace moed::http {
namespace {

using moe::v1::ChatRequest;
using moe::v1::Tool;
using moe::v1::ToolChoice;

constexpr Parameter<Tool> kFunction[] = {
    {"name", Into<&Tool::mutable_name>},
    {"description", Into<&Tool::mutable_description>},
    {"parameters", ApplyToolSchema},
    {"strict", Into<&Tool::set_strict>},
};
absl::Status ApplyFunction(const Json& value, Tool& tool) { return ReadMembers(value, kFunction, tool); }
constexpr Parameter<Tool> kNestedTool[] = {{"type", OnlyFunction<Tool>}, {"function", ApplyFunction}};
constexpr Parameter<Tool> kFlatTool[] = {{"type", OnlyFunction<Tool>},
                                         kFunction[0],
                                         kFunction[1],
                                         kFunction[2],
                                         kFunction[3],
                                         {"allowed_callers", ApplyToolCallers},
                                         {"defer_loading", ApplyToolDeferLoading},
                                         {"output_schema", nullptr}};

// The type first: other types have other members.
absl::Status ReadTool(const Json& json, Layout layout, Tool& tool) {
  if (json.is_object() && HasMember(json, "type"))
    MOED_RETURN_IF_ERROR(InParameter(".type", OnlyFunction(*json.find("type"), tool)));
  return layout == Layout::kNested ? ReadMembers(json, kNestedTool, tool) : ReadMembers(json, kFlatTool, tool);
}

struct ChoiceRow {
  std::string_view name;
  ToolChoice::Kind kind;
};
constexpr ChoiceRow kChoices[] = {{"auto", ToolChoice::AUTO}, {"none", ToolChoice::NONE}, {"required", ToolChoice::REQUIRED}};

constexpr Parameter<ToolChoice> kChosenFunction[] = {{"name", Into<&ToolChoice::mutable_name>}};
absl::Status ApplyChosenFunction(const Json& value, ToolChoice& choice) { return ReadMembers(value, kChosenFunction, choice); }
constexpr Parameter<ToolChoice> kNestedChoice[] = {{"type", OnlyFunction<ToolChoice>}, {"function", ApplyChosenFunction}};
constexpr Parameter<ToolChoice> kFlatChoice[] = {{"type", OnlyFunction<ToolChoice>}, kChosenFunction[0]};

absl::Status ReadChosenFunction(const Json& json, Layout layout, ToolChoice& choice) {
  return layout == Layout::kNested ? ReadMembers(json, kNestedChoice, choice) : ReadMembers(json, kFlatChoice, choice);
}
std::string_view PlaceOfName(Layout layout) { return layout == Layout::kNested ? ".function.name" : ".name"; }

// {"mode": "auto", "tools": [{"type": "function", "function": {"name": "..."}}]}.
struct AllowedTools {
  ToolChoice::Kind mode = ToolChoice::KIND_UNSPECIFIED;
  std::optional<std::vector<std::string>> names;
};
absl::Status ApplyAllowedMode(const Json& value, AllowedTools& allowed) {
  if (value != "auto" && value != "required") return InvalidArgument(ShownJson(value), " is neither auto nor required");
  allowed.mode = value == "auto" ? ToolChoice::AUTO : ToolChoice::REQUIRED;
  return absl::OkStatus();
}
template <Layout kLayout>
absl::Status ApplyAllowedNames(const Json& value, AllowedTools& allowed) {
  allowed.names.emplace();
  return ReadElements(value, [&](const Json& element) -> absl::Status {
    ToolChoice tool;
    MOED_RETURN_IF_ERROR(ReadChosenFunction(element, kLayout, tool));
    if (tool.name().empty()) return InvalidArgument(PlaceOfName(kLayout), ": missing");
    allowed.names->push_back(tool.name());
    return absl::OkStatus();
  });
}
absl::Status CheckAllowed(const AllowedTools& allowed) {
  if (allowed.mode == ToolChoice::KIND_UNSPECIFIED) return InvalidArgument(".mode: missing");
  return allowed.names ? absl::OkStatus() : InvalidArgument(".tools: missing");
}
constexpr Parameter<AllowedTools> kAllowed[] = {{"mode", ApplyAllowedMode}, {"tools", ApplyAllowedNames<Layout::kNested>}};
absl::Status ApplyAllowed(const Json& value, AllowedTools& allowed) {
  MOED_RETURN_IF_ERROR(ReadMembers(value, kAllowed, allowed));
  return CheckAllowed(allowed);
}
constexpr Parameter<AllowedTools> kNestedAllowed[] = {{"type", nullptr}, {"allowed_tools", ApplyAllowed}};
constexpr Parameter<AllowedTools> kFlatAllowed[] = {
    {"type", nullptr}, {"mode", ApplyAllowedMode}, {"tools", ApplyAllowedNames<Layout::kFlat>}};

absl::Status ReadAllowed(const Json& choice, Layout layout, AllowedTools& allowed) {
  if (layout == Layout::kFlat) {
    MOED_RETURN_IF_ERROR(ReadMembers(choice, kFlatAllowed, allowed));
    return CheckAllowed(allowed);
  }
  if (!HasMember(choice, "allowed_tools")) return InvalidArgument(".allowed_tools: missing");
  return ReadMembers(choice, kNestedAllowed, allowed);
}

}  // namespace

absl::Status ReadTools(const Json& tools, Layout layout, ChatRequest& request) {
  return ReadElements(tools, [&](const Json& element) { return ReadTool(element, layout, *request.add_tools()); });
}

absl::Status ReadToolChoice(const Json& choice, Layout layout, ToolChoice& out,
                            std::optional<std::vector<std::string>>& allowed) {
  for (const ChoiceRow& row : kChoices) {
    if (choice == row.name) {
      out.set_kind(row.kind);
      return absl::OkStatus();
    }
  }
  if (!choice.is_object()) return InvalidArgument(ShownJson(choice), " is not auto, none, required, a function or allowed_tools");
  if (choice.value("type", Json()) == "allowed_tools") {
    AllowedTools read;
    MOED_RETURN_IF_ERROR(ReadAllowed(choice, layout, read));
    out.set_kind(read.mode);
    allowed = std::move(read.names);
    return absl::OkStatus();
  }
  out.set_kind(ToolChoice::FUNCTION);
  return ReadChosenFunction(choice, layout, out);
}

absl::Status KeepAllowedTools(const std::vector<std::string>& allowed, Layout layout, ChatRequest& request) {
  auto& tools = *request.mutable_tools();
  absl::flat_hash_set<std::string_view> known;
  for (const Tool& tool : tools) known.insert(tool.name());
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (known.contains(allowed[i])) continue;
    const std::string_view list = layout == Layout::kNested ? "tool_choice.allowed_tools.tools[" : "tool_choice.tools[";
    return InvalidArgument(list, i, "]", PlaceOfName(layout),
                           ": no tool of this name; there are: ", JoinNames(tools, [](const Tool& tool) { return tool.name(); }));
  }
  const absl::flat_hash_set<std::string_view> kept(allowed.begin(), allowed.end());
  const auto other = [&](const Tool& tool) { return !kept.contains(std::string_view(tool.name())); };
  tools.erase(std::remove_if(tools.begin(), tools.end(), other), tools.end());
  return absl::OkStatus();
}

}  // namespace moed::http
