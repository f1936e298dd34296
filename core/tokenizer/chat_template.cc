#include "core/tokenizer/chat_template.h"

#include "core/base/status.h"
#include "core/tokenizer/blob.h"
#include "core/tokenizer/unicode.h"

namespace moed {
namespace {

constexpr auto kSection = static_cast<size_t>(BlobSection::kChatTemplate);

}  // namespace

absl::StatusOr<std::string> WithChatTemplate(std::string_view blob, std::string_view chat_template) {
  if (const auto bad = FirstInvalidByte(chat_template)) return InvalidArgument("the chat template is not UTF-8 at byte ", *bad);
  MOED_ASSIGN_OR_RETURN(const auto opened, OpenBlob(blob));
  PerBlobSection<std::string> sections;
  for (size_t i = 0; i < kBlobSections; ++i) sections[i] = opened[i];
  sections[kSection] = chat_template;
  return SealBlob(sections);
}

absl::StatusOr<std::string> ChatTemplateOf(std::string_view blob) {
  MOED_ASSIGN_OR_RETURN(const auto sections, OpenBlob(blob));
  return std::string(sections[kSection]);
}

}  // namespace moed
