// From the checkpoint into the store.
#include "core/tokenizer/chat_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/store/store.h"
#include "tests/pack/command.h"
#include "tests/pack/tiny_checkpoint.h"

namespace moed {
namespace chat_settings_test {

using ::testing::HasSubstr;
using ::testing::Not;
using Files = std::map<std::string, std::string>;

struct Packed {
  TemporaryFolder folder;
  CommandResult result;
  std::string store;

  explicit Packed(const Files& files, const std::vector<std::string>& flags = {}) {
    MakeTinyCheckpoint("olmoe").Write(folder / "in");
    for (const auto& [name, text] : files) WriteContents(folder / ("in/" + name), text);
    std::vector<std::string> arguments = {folder / "in", folder / "out"};
    for (const std::string& flag : flags) arguments.push_back(flag);
    result = RunPack(arguments);
    if (result.exit_code == 0) store = FileContents(folder / "out");
  }
  ChatSettings settings() const { return *ChatSettingsOf((*StoreReader::Open(folder / "out"))->TakeTokenizer()); }
};

TEST(ChatSettingsTest, ComesFromTheFilesThatHaveIt) {
  const Files cases[] = {
      {{"chat_template.jinja", "{{ one }}"}},
      {{"chat_template.jinja", "{{ one }}"}, {"tokenizer_config.json", R"({"chat_template": "{{ two }}"})"}},
      {{"tokenizer_config.json", R"({"chat_template": "{{ one }}", "bos_token": null})"}},
      {{"tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "{{ two }}"}, {"name": "default", "template": "{{ one }}"}]})"}},
  };
  for (const Files& files : cases) {
    const Packed packed(files);
    ASSERT_EQ(packed.result.exit_code, 0) << packed.result.err;
    EXPECT_EQ(packed.settings().chat_template, "{{ one }}") << files.begin()->second;
    EXPECT_THAT(packed.result.err, Not(HasSubstr("chat template")));
  }
}

TEST(ChatSettingsTest, WithoutOneTheStoreIsTheSameAndThePackerSaysSo) {
  const Packed none(Files{}), empty(Files{{"tokenizer_config.json", R"({"bos_token": null})"}});
  ASSERT_EQ(none.result.exit_code, 0) << none.result.err;
  EXPECT_EQ(none.settings().chat_template, "");
  EXPECT_EQ(none.store, empty.store);
  EXPECT_THAT(none.result.err, HasSubstr("in has no chat template"));
}

TEST(ChatSettingsTest, SaysWhatIsWrong) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"chat_template": 3})", "chat_template is 3, expected a text or a list"},
      {R"({"chat_template": [{"name": "default"}]})", "expected objects with"},
      {R"({"bos_token": 3})", "bos_token is 3, expected a text"},
      {"[]", "tokenizer_config.json"},
  };
  for (const auto& [text, expected] : cases) {
    const Packed packed({{"tokenizer_config.json", text}});
    EXPECT_EQ(packed.result.exit_code, 1);
    EXPECT_THAT(packed.result.err, HasSubstr(expected));
  }
}

TEST(ChatSettingsTest, NamesOfTokensAndSamplingTravelToo) {
  const Packed packed(
      Files{{"tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null})"},
            {"generation_config.json", R"({"temperature": 0.6, "top_k": 20, "do_sample": true, "min_p": 0.0})"}});
  ASSERT_EQ(packed.result.exit_code, 0) << packed.result.err;
  EXPECT_EQ(packed.settings().named_tokens, R"({"bos_token":"<s>","eos_token":"</s>"})");
  EXPECT_EQ(packed.settings().sampling_defaults, R"({"min_p":0.0,"temperature":0.6,"top_k":20})");
  for (const char* wrong : {R"({"temperature": -1})", R"({"top_k": 1.5})", R"({"top_p": "x"})"}) {
    EXPECT_THAT(Packed(Files{{"generation_config.json", wrong}}).result.err, HasSubstr("generation_config.json: t")) << wrong;
  }
}

TEST(ChatSettingsTest, ATemplateThatCannotBeRunIsRefusedUnlessAnotherIsGiven) {
  const Files files = {{"chat_template.jinja", "{{ one }}\n{% include 'two' %}"}};
  const Packed refused(files);
  EXPECT_EQ(refused.result.exit_code, 1);
  EXPECT_THAT(refused.result.err, HasSubstr("line 2: the tag 'include' is not supported"));
  EXPECT_THAT(refused.result.err, HasSubstr("--chat-template none"));
  const Packed without(files, {"--chat-template", "none"});
  ASSERT_EQ(without.result.exit_code, 0) << without.result.err;
  EXPECT_EQ(without.settings(), ChatSettings());
  EXPECT_THAT(without.result.err, Not(HasSubstr("chat template")));
  const TemporaryFolder folder;
  WriteContents(folder / "mine.jinja", "{{ mine }}");
  const Packed other(files, {"--chat-template", folder / "mine.jinja"});
  ASSERT_EQ(other.result.exit_code, 0) << other.result.err;
  EXPECT_EQ(other.settings().chat_template, "{{ mine }}");
}

}  // namespace chat_settings_test
}  // namespace moed
