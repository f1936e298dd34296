#include "core/tokenizer/chat_settings.h"

#include "core/base/status.h"
#include "core/tokenizer/blob.h"
#include "core/tokenizer/unicode.h"

namespace moed {
namespace {

struct Row {
  BlobSection section;
  std::string ChatSettings::*text;
};
constexpr Row kRows[] = {{BlobSection::kChatTemplate, &ChatSettings::chat_template},
                         {BlobSection::kNamedTokens, &ChatSettings::named_tokens},
                         {BlobSection::kSamplingDefaults, &ChatSettings::sampling_defaults}};

}  // namespace

absl::StatusOr<std::string> WithChatSettings(std::string_view blob, const ChatSettings& settings) {
  if (const auto bad = FirstInvalidByte(settings.chat_template)) {
    return InvalidArgument("the chat template is not UTF-8 at byte ", *bad);
  }
  MOED_ASSIGN_OR_RETURN(const auto opened, OpenBlob(blob));
  PerBlobSection<std::string> sections;
  for (size_t i = 0; i < kBlobSections; ++i) sections[i] = opened[i];
  for (const Row& row : kRows) sections[static_cast<size_t>(row.section)] = settings.*row.text;
  return SealBlob(sections);
}

absl::StatusOr<ChatSettings> ChatSettingsOf(std::string_view blob) {
  MOED_ASSIGN_OR_RETURN(const auto sections, OpenBlob(blob));
  ChatSettings settings;
  for (const Row& row : kRows) settings.*row.text = sections[static_cast<size_t>(row.section)];
  return settings;
}

}  // namespace moed
