// A chat template and its variables, a zero byte between them: whatever both are, rendering ends within its limits, and a text
// that comes out is UTF-8 no longer than allowed. What is printed as JSON is read again to what prints the same.
#include "core/base/utf8.h"
#include "core/chat/json.h"
#include "core/chat/template.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

namespace {

absl::StatusOr<std::string> Render(std::string_view source, const chat::Value& variables) {
  chat::RenderOptions options;
  options.limits.steps = 200'000;
  options.limits.output_bytes = 1 << 16;
  options.limits.memory_bytes = 1 << 22;
  const auto parsed = chat::Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  const auto text = parsed->Render(variables, options);
  if (!text.ok()) return text.status();
  MOED_CHECK(text->text.size() <= options.limits.output_bytes && IsValidUtf8(text->text));
  size_t end = 0;
  for (const ByteRange& range : text->foreign) {
    MOED_CHECK((end == 0 || range.begin > end) && range.begin < range.end && range.end <= text->text.size());
    end = range.end;
  }
  return text->text;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::Text(data, size);
  const size_t zero = std::min(text.find('\0'), text.size());
  const auto given = chat::ValueFromJson(zero < text.size() ? text.substr(zero + 1) : "{}");
  const bool usable = given.ok() && given->is(chat::Kind::kDict);
  const chat::Value variables = usable ? *given : chat::MakeDict({});
  const auto own = Render(text.substr(0, zero), variables);
  if (!given.ok()) return 0;
  size_t room = SIZE_MAX;
  const auto strangers = chat::ForeignFromJson(zero < text.size() ? text.substr(zero + 1) : "{}", room);
  const auto foreign = usable ? Render(text.substr(0, zero), *strangers) : own;
  if (own.ok() && foreign.ok()) MOED_CHECK(*own == *foreign);
  const chat::Value whole = chat::MakeDict({{chat::MakeText("value"), *given}});
  const auto printed = Render("{{ value|tojson }}", whole);
  if (!printed.ok()) return 0;
  const auto again = chat::ValueFromJson(*printed);
  if (again.ok()) MOED_CHECK(*Render("{{ value|tojson }}", chat::MakeDict({{chat::MakeText("value"), *again}})) == *printed);
  return 0;
}
