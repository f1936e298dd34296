// moed-plan as a user runs it, on a tiny random checkpoint.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/pack/command.h"
#include "tests/pack/tiny_checkpoint.h"

namespace moed {

class PlanRig : public ::testing::Test {
 protected:
  using Arguments = std::vector<std::string>;

  // What a command makes: STORE and `suffix`.
  explicit PlanRig(const std::string& suffix) : out_(store_ + suffix) {}

  // The store at `formats`, and a text of `sentences`.
  void Prepare(const TinyCheckpoint& checkpoint, const std::string& formats, int sentences = 400);
  // A command with few short windows of the text, and `more`.
  Arguments Plan(const std::string& command, const Arguments& more, int tokens = 300) const;
  // The same is made whole and by a command that is ended by one signal after the other, each time once its journal has grown by
  // more than `growth_bytes`, and then run to its end.
  void InterruptAndResume(const Arguments& arguments, uint64_t growth_bytes);
  // Interrupts a command that makes out_ by SIGINT, later in its work each time, until it is made or that was often enough.
  // Whether it said that anything is kept, which is in out_.unfinished until the end.
  bool InterruptOften(const Arguments& arguments);
  // What was made whole, beside out_.
  std::string whole() const { return folder_ / "whole"; }

  TemporaryFolder folder_;
  const std::string store_ = folder_ / "s.moed";
  const std::string text_ = folder_ / "text.txt";
  const std::string out_;
};

}  // namespace moed
