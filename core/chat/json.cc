#include "core/chat/json.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/chat/python_text.h"

namespace moed::chat {
namespace {

constexpr size_t kMostDepth = 100;

// Containers are built from the inside, so that values stay immutable.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  using MakeTextFn = Value (*)(std::string text);
  Builder(MakeTextFn make_text, size_t& room) : make_text_(make_text), room_(room) {}

  absl::StatusOr<Value> Finish() {
    if (!status_.ok()) return status_;
    return *std::move(root_);
  }

  bool null() override { return Add(Value()); }
  bool boolean(bool value) override { return Add(Value(value)); }
  bool number_integer(number_integer_t value) override { return Add(Value(Integer{value})); }
  bool number_unsigned(number_unsigned_t value) override { return Add(Value(Integer{value})); }
  bool number_float(number_float_t value, const string_t& written) override {
    if (written.find_first_of(".eE") != string_t::npos) return Add(Value(value));
    const auto whole = ParseInteger(written, 10);
    return whole ? Add(Value(*whole)) : Fail(InvalidArgument("a number of more than 127 bits: ", written.substr(0, 60)));
  }
  bool string(string_t& value) override { return Take(BytesOfText(value)) && Add(make_text_(std::move(value))); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return Open(true); }
  bool key(string_t& value) override {
    if (!Take(BytesOfText(value) + kBytesOfItem)) return false;
    open_.back().keys.push_back(make_text_(std::move(value)));
    return true;
  }
  bool end_object() override {
    Container done = Close();
    std::vector<Dict::Entry> entries;
    for (size_t i = 0; i < done.items.size(); ++i) entries.emplace_back(std::move(done.keys[i]), std::move(done.items[i]));
    return Add(MakeDict(std::move(entries)));
  }
  bool start_array(size_t) override { return Open(false); }
  bool end_array() override { return Add(MakeList(Close().items)); }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    return Fail(InvalidArgument("no JSON at byte ", position, ": ", Cause(error.what())));
  }

 private:
  struct Container {
    bool object;
    std::vector<Value> keys, items;
  };

  // Without the library's number and position before it ("[json.exception.parse_error.101] parse error at line 1, column 3: ")
  // and without what was read last, which is the user's.
  static std::string_view Cause(std::string_view what) {
    const size_t colon = what.find(": ");
    const std::string_view cause = colon == std::string_view::npos ? what : what.substr(colon + 2);
    return cause.substr(0, cause.find("; last read: "));
  }
  bool Fail(absl::Status status) {
    status_ = std::move(status);
    return false;
  }
  bool Open(bool object) {
    if (open_.size() >= kMostDepth) return Fail(InvalidArgument("lists and objects more than ", kMostDepth, " deep"));
    if (!Take(kBytesOfContainer)) return false;
    open_.push_back({object, {}, {}});
    return true;
  }
  Container Close() {
    Container done = std::move(open_.back());
    open_.pop_back();
    return done;
  }
  bool Take(size_t bytes) {
    if (bytes > room_) return Fail(ResourceExhausted("values take more memory than there is for them"));
    room_ -= bytes;
    return true;
  }
  bool Add(Value value) {
    if (!Take(kBytesOfItem)) return false;
    if (open_.empty()) {
      root_ = std::move(value);
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  const MakeTextFn make_text_;
  size_t& room_;
  std::vector<Container> open_;
  std::optional<Value> root_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<Value> ValueFromJson(std::string_view json) {
  size_t room = SIZE_MAX;
  Builder builder(MakeText, room);
  (void)nlohmann::json::sax_parse(json, &builder);  // the builder knows why it failed
  return builder.Finish();
}

absl::StatusOr<Value> ForeignFromJson(std::string_view json, size_t& room) {
  Builder builder(MakeForeignText, room);
  (void)nlohmann::json::sax_parse(json, &builder);
  return builder.Finish();
}

}  // namespace moed::chat
