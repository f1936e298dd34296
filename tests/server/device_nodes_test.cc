#include "server/startup/device_nodes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/temporary_folder.h"

namespace moed {
namespace {

class CardsWithoutNodeTest : public testing::Test {
 protected:
  // As the driver writes it.
  void AddCard(const std::string& bus, const std::string& lines) const {
    std::filesystem::create_directory(cards_ / bus);
    std::ofstream(cards_ / (bus + "/information")) << "Model: \t\t NVIDIA H100\nIRQ:   \t\t 57\n"
                                                   << lines << "GPU Excluded:\t No\n";
  }
  void AddNode(const std::string& name) const { std::ofstream file(nodes_ / name); }
  std::vector<std::string> Found() const { return CardsWithoutNode(cards_ / "", nodes_ / ""); }

  TemporaryFolder cards_, nodes_;
};

TEST_F(CardsWithoutNodeTest, AreThoseThatTheDriverNumbers) {
  AddCard("0000:41:00.0", "Device Minor: \t 2\n");
  AddCard("0000:01:00.0", "Device Minor: \t 0\n");
  AddCard("0000:21:00.0", "Device Minor: \t 1\n");
  AddNode("nvidia0");
  EXPECT_EQ(Found(), (std::vector<std::string>{"1", "2"}));
  AddNode("nvidia1");
  AddNode("nvidia2");
  EXPECT_TRUE(Found().empty());
}

TEST_F(CardsWithoutNodeTest, AreNoneWhereTheDriverSaysNoNumber) {
  AddCard("0000:01:00.0", "");
  AddCard("0000:21:00.0", "Device Minor: \t x\n");
  AddCard("0000:41:00.0", "Device Minor:\n");
  std::filesystem::create_directory(cards_ / "0000:61:00.0");
  EXPECT_TRUE(Found().empty());
  EXPECT_TRUE(CardsWithoutNode(cards_ / "absent", nodes_ / "").empty());
}

}  // namespace
}  // namespace moed
