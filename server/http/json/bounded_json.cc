#include "server/http/json/bounded_json.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace moed::http {
namespace {

// What a value takes beside the bytes of its text: itself twice, as arrays grow; an entry of an object, with its name's string.
constexpr size_t kValueBytes = 2 * sizeof(Json);
constexpr size_t kEntryBytes = 96;
constexpr size_t kContainerBytes = 64;

// Builds the value of the parser's events. Each returns false to end the parsing, with status_ saying why.
class BoundedBuilder final : public Json::json_sax_t {
 public:
  explicit BoundedBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return Add(nullptr, 0); }
  bool boolean(bool value) override { return Add(value, 0); }
  bool number_integer(number_integer_t value) override { return Add(value, 0); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value, 0); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value, 0); }
  bool string(string_t& value) override {
    const size_t bytes = value.size();
    return Add(std::move(value), kContainerBytes + bytes);
  }
  bool binary(binary_t&) override { return Fail("binary values are no JSON"); }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return NamesDiffer() && Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    if (open_.back()->size() == limits_.members) return Fail(StrCat("more than ", limits_.members, " members of one object"));
    if (!Take(kEntryBytes + name.size())) return false;
    // Its own functions would search it for the name; that none stands twice is looked at when it is whole.
    auto& object = open_.back()->get_ref<Json::object_t&>();
    slot_ = &object.emplace_back(std::move(name), nullptr).second;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // The library's words quote what was read last; the place is enough.
    const bool number = error.id == 406;
    return Fail(number ? StrCat("the number before byte ", position, " is out of range")
                       : StrCat("the text is no JSON from byte ", position, " on"));
  }

  absl::StatusOr<Json> Result() && {
    if (!status_.ok()) return status_;
    return std::move(root_);
  }

 private:
  bool Fail(std::string why) {
    status_ = InvalidArgument(std::move(why));
    return false;
  }

  bool Take(size_t bytes) {
    bytes_ += bytes;
    return bytes_ <= limits_.memory_bytes ||
           Fail(StrCat("the values of the JSON text take more than ", limits_.memory_bytes >> 20, " MiB of memory"));
  }

  // Where the next value goes: the root, the entry that key() made, or the end of an array.
  Json* Place(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    *slot_ = std::move(value);
    return std::exchange(slot_, nullptr);
  }

  bool Add(Json value, size_t bytes) {
    if (!Take(kValueBytes + bytes)) return false;
    Place(std::move(value));
    return true;
  }

  bool Open(Json container) {
    if (static_cast<int>(open_.size()) == limits_.depth)
      return Fail(StrCat("more than ", limits_.depth, " arrays and objects in one another"));
    if (!Take(kValueBytes + kContainerBytes)) return false;
    open_.push_back(Place(std::move(container)));
    return true;
  }

  bool NamesDiffer() {
    std::vector<std::string_view> names;
    for (const auto& [name, value] : open_.back()->get_ref<const Json::object_t&>()) names.push_back(name);
    std::ranges::sort(names);
    const auto twice = std::ranges::adjacent_find(names);
    return twice == names.end() || Fail(StrCat("\"", twice->substr(0, 64), "\" stands twice in one object"));
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  Json root_;
  std::vector<Json*> open_;  // containers, the innermost last; only it grows, so pointers stay valid
  Json* slot_ = nullptr;
  size_t bytes_ = 0;
  absl::Status status_;
};

}  // namespace

std::string Dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

absl::StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  BoundedBuilder builder(limits);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder).Result();
}

}  // namespace moed::http
