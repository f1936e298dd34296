#include "core/tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include "tests/base/damaged_bytes.h"
#include "tests/tokenizer/tokenizers.h"

namespace moed {
namespace {

constexpr std::string_view kTemplate = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";

std::string Blob() { return CompileTokenizer(LlamaJson().dump()).value(); }

TEST(ChatTemplate, TravelsWithTheTokenizer) {
  const std::string blob = Blob();
  const auto with = WithChatTemplate(blob, kTemplate);
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_EQ(*ChatTemplateOf(*with), kTemplate);
  const auto plain = Tokenizer::FromBlob(blob), templated = Tokenizer::FromBlob(*with);
  ASSERT_TRUE(templated.ok()) << templated.status();
  for (const std::string_view text : {"abc ab", "<s>\xE4\xBD\xA0 xx", ""}) {
    EXPECT_EQ(EncodeValues(**templated, text), EncodeValues(**plain, text)) << text;
  }
}

TEST(ChatTemplate, WithoutOneTheBytesAreTheSame) {
  const std::string blob = Blob();
  EXPECT_EQ(*ChatTemplateOf(blob), "");
  EXPECT_EQ(*WithChatTemplate(blob, ""), blob);
  EXPECT_EQ(*WithChatTemplate(*WithChatTemplate(blob, kTemplate), ""), blob);
  EXPECT_EQ(*WithChatTemplate(*WithChatTemplate(blob, kTemplate), "x"), *WithChatTemplate(blob, "x"));
}

TEST(ChatTemplate, RefusesWhatIsNone) {
  EXPECT_EQ(WithChatTemplate(Blob(), "a\xFF").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WithChatTemplate("no blob", kTemplate).status().code(), absl::StatusCode::kDataLoss);
  const std::string blob = *WithChatTemplate(Blob(), kTemplate);
  ForEachFlip(blob, {}, 1, [](const std::string& damaged, size_t at) {
    EXPECT_EQ(ChatTemplateOf(damaged).status().code(), absl::StatusCode::kDataLoss) << "byte " << at;
  });
  ForEachTruncation(blob, {.end = 128}, [](const std::string& damaged, size_t bytes) {
    EXPECT_EQ(ChatTemplateOf(damaged).status().code(), absl::StatusCode::kDataLoss) << bytes;
  });
}

}  // namespace
}  // namespace moed
