// Renders many templates in one process, for the comparison with Python's. A line of standard input is a JSON object with "file",
// the template's path, and "variables"; a line of standard output one with "text", "error" or "refused". Without "variables" it
// has the members of SystemForm.
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "core/base/check.h"
#include "core/chat/json.h"
#include "core/chat/model_template.h"
#include "core/chat/template.h"
#include "nlohmann/json.hpp"

namespace moed::chat {
namespace {

using namespace std::literals;  // NOLINT

nlohmann::json SystemFormOf(const std::string& source) {
  const auto parsed = ModelTemplate::Parse(source, "");
  MOED_CHECK(parsed.ok());
  const SystemForm& form = parsed->system_form();
  return {{"knows_developers", form.knows_developers},
          {"leads_alone", form.leads_alone},
          {"later_is_user", form.later_is_user},
          {"users_alternate", form.users_alternate}};
}

nlohmann::json Outcome(const Value& one) {
  std::ostringstream source;
  source << std::ifstream(one.dict().Find("file"sv)->text(), std::ios::binary).rdbuf();
  if (one.dict().Find("variables"sv) == nullptr) return SystemFormOf(source.str());
  const auto parsed = Template::Parse(source.str());
  if (!parsed.ok()) return {{"refused", std::string(parsed.status().message())}};
  RenderOptions options;  // 2026-01-31T12:00:00, a Saturday
  options.now.tm_year = 126;
  options.now.tm_mday = 31;
  options.now.tm_hour = 12;
  options.now.tm_wday = 6;
  options.now.tm_yday = 30;
  const auto text = parsed->Render(*one.dict().Find("variables"sv), options);
  if (!text.ok()) return {{"error", std::string(text.status().message())}};
  return {{"text", text->text}};
}

}  // namespace
}  // namespace moed::chat

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto one = moed::chat::ValueFromJson(line);
    MOED_CHECK(one.ok());
    std::cout << moed::chat::Outcome(*one).dump() << "\n";
  }
}
