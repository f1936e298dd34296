#include "core/tokenizer/chat_settings.h"

#include <gtest/gtest.h>

#include "tests/base/damaged_bytes.h"
#include "tests/tokenizer/tokenizers.h"

namespace moed {
namespace {

constexpr std::string_view kTemplate = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";

std::string Blob() { return CompileTokenizer(LlamaJson().dump()).value(); }

const ChatSettings kSettings[] = {
    {.chat_template = std::string(kTemplate)},
    {.chat_template = std::string(kTemplate), .named_tokens = R"({"bos_token":"<s>"})"},
    {.sampling_defaults = R"({"top_k":20})"},
    {.chat_template = "x", .named_tokens = "y", .sampling_defaults = "z"},
};

TEST(ChatSettingsTest, TravelWithTheTokenizer) {
  const std::string blob = Blob();
  const auto plain = Tokenizer::FromBlob(blob);
  for (const ChatSettings& settings : kSettings) {
    const auto with = WithChatSettings(blob, settings);
    ASSERT_TRUE(with.ok()) << with.status();
    EXPECT_EQ(*ChatSettingsOf(*with), settings);
    const auto tokenizer = Tokenizer::FromBlob(*with);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const std::string_view text : {"abc ab", "<s>\xE4\xBD\xA0 xx", ""}) {
      EXPECT_EQ(EncodeValues(**tokenizer, text), EncodeValues(**plain, text)) << text;
    }
  }
}

TEST(ChatSettingsTest, TheBytesAreThoseOfTheSettingsWhateverWasBefore) {
  const std::string blob = Blob();
  EXPECT_EQ(*ChatSettingsOf(blob), ChatSettings());
  EXPECT_EQ(*WithChatSettings(blob, {}), blob);
  for (const ChatSettings& before : kSettings) {
    EXPECT_EQ(*WithChatSettings(*WithChatSettings(blob, before), {}), blob);
    for (const ChatSettings& after : kSettings) {
      EXPECT_EQ(*WithChatSettings(*WithChatSettings(blob, before), after), *WithChatSettings(blob, after));
    }
  }
}

TEST(ChatSettingsTest, RefusesWhatIsNone) {
  EXPECT_EQ(WithChatSettings(Blob(), {.chat_template = "a\xFF"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WithChatSettings("no blob", {}).status().code(), absl::StatusCode::kDataLoss);
  const std::string blob = *WithChatSettings(Blob(), kSettings[3]);
  ForEachFlip(blob, {}, 1, [](const std::string& damaged, size_t at) {
    EXPECT_EQ(ChatSettingsOf(damaged).status().code(), absl::StatusCode::kDataLoss) << "byte " << at;
  });
  ForEachTruncation(blob, {.end = 128}, [](const std::string& damaged, size_t bytes) {
    EXPECT_EQ(ChatSettingsOf(damaged).status().code(), absl::StatusCode::kDataLoss) << bytes;
  });
}

}  // namespace
}  // namespace moed
