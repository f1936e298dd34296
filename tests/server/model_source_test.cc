// MODEL of `moed run`: what it is, when it has changed, where its store is kept.
#include "server/commands/model_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "server/commands/store_cache.h"
#include "tests/store/small_store.h"

namespace moed {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ModelSourceTest : public testing::Test {
 protected:
  std::string File(const std::string& name, const std::string& text) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path;
  }
  std::string PathOf(const std::string& model, const std::vector<std::string>& flags = {}) const {
    return PlaceInCache("/cache", ExamineModel(model).value(), flags).path;
  }

  MemoryFolder folder_;
};

TEST_F(ModelSourceTest, AFolderChangesWithWhatIsPackedOfIt) {
  File("m/config.json", "{}");
  const std::string weights = File("m/model.safetensors", "1");
  const std::string model = folder_ / "m", first = PathOf(model);
  EXPECT_THAT(first, testing::StartsWith("/cache/m-"));
  File("m/README.md", "words");
  fs::create_directory(folder_ / "m/more.txt");
  EXPECT_EQ(PathOf(model), first);
  EXPECT_EQ(PathOf(model + "/../m"), first);
  File("m/chat_template.jinja", "x");
  const std::string with_template = PathOf(model);
  EXPECT_NE(with_template, first);
  File("m/model.safetensors", "12");
  const std::string longer = PathOf(model);
  EXPECT_NE(longer, with_template);
  const auto written = fs::last_write_time(weights);
  fs::last_write_time(weights, written + std::chrono::seconds(1));
  EXPECT_NE(PathOf(model), longer);
  File("m/model.safetensors", "13");
  fs::last_write_time(weights, written);
  EXPECT_NE(PathOf(model), longer) << "another model, as old and as large";
  File("m/model.safetensors", "12");
  fs::last_write_time(weights, written);
  EXPECT_EQ(PathOf(model), longer);
}

TEST_F(ModelSourceTest, EveryStateOfAModelHasTheSameKeyAndOtherFlagsHaveAnother) {
  const std::string gguf = File("a b.gguf", "GGUF1");
  const auto place = [&](const std::vector<std::string>& flags) {
    return PlaceInCache("/cache", ExamineModel(gguf).value(), flags);
  };
  const CachedStore before = place({});
  EXPECT_THAT(before.path, testing::StartsWith("/cache/a-b-"));
  File("a b.gguf", "GGUF12");
  EXPECT_EQ(place({}).same_key, before.same_key);
  EXPECT_NE(place({}).path, before.path);
  EXPECT_NE(place({"--trunk-format", "q8"}).same_key, before.same_key);
}

TEST_F(ModelSourceTest, EveryPartOfASplitFileIsTheSameModel) {
  const std::string first = File("x-00001-of-00002.gguf", "GGUF"), second = File("x-00002-of-00002.gguf", "GGUF");
  const std::string path = PathOf(first);
  EXPECT_EQ(PathOf(second), path);
  File("x-00002-of-00002.gguf", "GGUF and more");
  EXPECT_NE(PathOf(first), path);
  fs::remove(second);
  EXPECT_TRUE(ExamineModel(first).ok()) << "moed-pack says what is missing";
}

// As the cache of Hugging Face has it.
TEST_F(ModelSourceTest, ALinkSaysWhatIsSplitAndItsTargetWhatHasChanged) {
  const std::string blob = File("blobs/1", "GGUF"), other = File("blobs/2", "GGUF");
  fs::create_directory(folder_ / "s");
  const std::string first = folder_ / "s/x-00001-of-00002.gguf", second = folder_ / "s/x-00002-of-00002.gguf";
  fs::create_symlink(blob, first);
  fs::create_symlink(other, second);
  const std::string path = PathOf(second);
  EXPECT_EQ(PathOf(first), path);
  File("blobs/2", "GGUF and more");
  EXPECT_NE(PathOf(first), path);
}

TEST_F(ModelSourceTest, AStoreNeedsNoPacking) { EXPECT_TRUE(ExamineModel(File("store", "MOEDSTOR and more")).value().is_store); }

TEST_F(ModelSourceTest, TheCacheIsWhereTheFirstVariableSays) {
  std::map<std::string, std::string> variables;
  const auto folder = [&] {
    return CacheFolder([&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_THAT(std::string(folder().status().message()), HasSubstr("$MOED_CACHE_DIR"));
  variables["HOME"] = folder_ / "home";
  EXPECT_EQ(folder().value(), folder_ / "home/.cache/moed");
  variables["XDG_CACHE_HOME"] = folder_ / "xdg";
  EXPECT_EQ(folder().value(), folder_ / "xdg/moed");
  variables["MOED_CACHE_DIR"] = folder_ / "mine";
  EXPECT_EQ(folder().value(), folder_ / "mine");
  EXPECT_TRUE(fs::is_directory(folder_ / "mine"));
}

TEST_F(ModelSourceTest, AStoreInTheCacheThatCannotBeReadStaysAndIsNamed) {
  StopSignals signals;
  const ModelSource source = ExamineModel(File("m.gguf", "GGUF1")).value();
  const std::string cache = folder_ / "", path = PlaceInCache(cache, source, {}).path;
  const auto refused = [&] { return std::string(PackOnce(cache, source, {}, signals).status().message()); };
  fs::create_symlink(path, path);
  EXPECT_THAT(refused(), HasSubstr("cannot open " + path));
  EXPECT_TRUE(fs::is_symlink(path));
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_THAT(refused(), HasSubstr(path + " is a folder, not a store"));
  EXPECT_TRUE(fs::is_directory(path));
}

}  // namespace
}  // namespace moed
