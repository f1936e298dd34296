// From the checkpoint into the store.
#include "core/tokenizer/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/store/store.h"
#include "tests/pack/command.h"
#include "tests/pack/tiny_checkpoint.h"

namespace moed {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Files = std::map<std::string, std::string>;

struct Packed {
  TemporaryFolder folder;
  CommandResult result;
  std::string store;

  explicit Packed(const Files& files) {
    MakeTinyCheckpoint("olmoe").Write(folder / "in");
    for (const auto& [name, text] : files) WriteContents(folder / ("in/" + name), text);
    result = RunPack({folder / "in", folder / "out"});
    if (result.exit_code == 0) store = FileContents(folder / "out");
  }
  std::string chat_template() const { return *ChatTemplateOf((*StoreReader::Open(folder / "out"))->TakeTokenizer()); }
};

TEST(ChatTemplateTest, ComesFromTheFilesThatHaveIt) {
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
    EXPECT_EQ(packed.chat_template(), "{{ one }}") << files.begin()->second;
    EXPECT_THAT(packed.result.err, Not(HasSubstr("chat template")));
  }
}

TEST(ChatTemplateTest, WithoutOneTheStoreIsTheSameAndThePackerSaysSo) {
  const Packed none(Files{}), empty(Files{{"tokenizer_config.json", R"({"bos_token": null})"}});
  ASSERT_EQ(none.result.exit_code, 0) << none.result.err;
  EXPECT_EQ(none.chat_template(), "");
  EXPECT_EQ(none.store, empty.store);
  EXPECT_THAT(none.result.err, HasSubstr("in has no chat template"));
}

TEST(ChatTemplateTest, SaysWhatIsWrong) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"chat_template": 3})", "chat_template is 3, expected a text or a list"},
      {R"({"chat_template": [{"name": "default"}]})", "expected objects with"},
      {"[]", "tokenizer_config.json"},
  };
  for (const auto& [text, expected] : cases) {
    const Packed packed({{"tokenizer_config.json", text}});
    EXPECT_EQ(packed.result.exit_code, 1);
    EXPECT_THAT(packed.result.err, HasSubstr(expected));
  }
}

}  // namespace
}  // namespace moed
