#include "core/base/status.h"

#include <cerrno>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moed {
namespace {

TEST(StatusTest, StrCatTakesEveryKindOfText) {
  const std::string_view view = "view";
  const std::string text = "text";
  EXPECT_EQ(StrCat(view, " ", text, " ", "literal", " ", 42, " ", 1.5, " ", ToAbsl(view)), "view text literal 42 1.5 view");
  EXPECT_EQ(StrCat(std::string_view()), "");
}

TEST(StatusTest, EachMakerHasItsCode) {
  const std::pair<absl::Status, absl::StatusCode> made[] = {
      {InvalidArgument("got ", 1), absl::StatusCode::kInvalidArgument},
      {NotFound("got ", 1), absl::StatusCode::kNotFound},
      {FailedPrecondition("got ", 1), absl::StatusCode::kFailedPrecondition},
      {ResourceExhausted("got ", 1), absl::StatusCode::kResourceExhausted},
      {DataLoss("got ", 1), absl::StatusCode::kDataLoss},
      {Internal("got ", 1), absl::StatusCode::kInternal},
  };
  for (const auto& [status, code] : made) {
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), "got 1");
  }
}

TEST(StatusTest, ErrnoKeepsCodeAndReason) {
  const absl::Status status = ErrnoError(ENOENT, "cannot open ", "/x");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "cannot open /x: No such file or directory");
}

TEST(StatusTest, JoinNames) {
  EXPECT_EQ(JoinNames(std::vector<std::string>{"a", "b", "c"}, [](const std::string& name) { return name; }), "a, b, c");
  EXPECT_EQ(JoinNames(std::vector<int>{1}, [](int value) { return StrCat("n", value); }), "n1");
  EXPECT_EQ(JoinNames(std::vector<int>{}, [](int value) { return StrCat(value); }), "");
}

absl::StatusOr<std::unique_ptr<int>> Positive(int value) {
  if (value <= 0) return InvalidArgument(value, " is not positive");
  return std::make_unique<int>(value);
}

absl::StatusOr<int> SumOfPositive(int a, int b, int* reached) {
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<int> first, Positive(a));
  ++*reached;
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<int> second, Positive(b));
  ++*reached;
  MOED_RETURN_IF_ERROR(*first + *second > 100 ? ResourceExhausted("over 100") : absl::OkStatus());
  return *first + *second;
}

TEST(StatusTest, TheFirstErrorEndsTheFunction) {
  struct Case {
    int a, b, reached;
    absl::StatusCode code;
  };
  for (const Case& c :
       {Case{1, 2, 2, absl::StatusCode::kOk}, Case{-1, 2, 0, absl::StatusCode::kInvalidArgument},
        Case{1, -2, 1, absl::StatusCode::kInvalidArgument}, Case{99, 2, 2, absl::StatusCode::kResourceExhausted}}) {
    int reached = 0;
    const absl::StatusOr<int> sum = SumOfPositive(c.a, c.b, &reached);
    EXPECT_EQ(sum.status().code(), c.code);
    EXPECT_EQ(reached, c.reached);
    if (sum.ok()) {
      EXPECT_EQ(*sum, c.a + c.b);
    }
  }
}

}  // namespace
}  // namespace moed
