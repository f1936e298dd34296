// Filters that give an iterator: what they compute, they compute when it is asked for.
#include "core/base/status.h"
#include "core/chat/arithmetic.h"
#include "core/chat/equality.h"
#include "core/chat/filters.h"
#include "core/chat/python_text.h"
#include "core/chat/run.h"
#include "core/chat/show.h"
#include "core/chat/tests.h"

namespace moed::chat {
namespace {

// "No filter named 'x'." with what went wrong where the name is no name.
absl::StatusOr<absl::Status> NoSuch(Run& run, std::string_view kind, const Value& name) {
  MOED_ASSIGN_OR_RETURN(const std::string shown, Repr(run, name));
  if (!name.is(Kind::kUndefined)) return InvalidArgument("No ", kind, " named ", shown, ".");
  return InvalidArgument("No ", kind, " named ", shown, ". (", name.as<Undefined>().Words(),
                         "; did you forget to quote the callable name?)");
}

Call WithoutFirst(const Call& call, size_t count) {
  return {{call.positional.begin() + static_cast<ptrdiff_t>(count), call.positional.end()}, call.keywords};
}

class Lazy : public Iterator {
 public:
  Lazy(Value source, Call call) : Iterator(1 + DepthOf(source)), source_(std::move(source)), call_(std::move(call)) {}
  absl::StatusOr<std::optional<Value>> Next(Run& run) final {
    if (items_ == nullptr) {
      if (!IsTrue(source_)) return std::nullopt;
      MOED_RETURN_IF_ERROR(Prepare(run));
      MOED_ASSIGN_OR_RETURN(items_, Iterate(run, source_));
    }
    while (true) {
      MOED_ASSIGN_OR_RETURN(auto item, items_->Next(run));
      if (!item) return std::nullopt;
      MOED_ASSIGN_OR_RETURN(auto yielded, Yield(run, *std::move(item)));
      if (yielded) return yielded;
    }
  }

 protected:
  virtual absl::Status Prepare(Run& run) = 0;
  virtual absl::StatusOr<std::optional<Value>> Yield(Run& run, Value item) = 0;  // nullopt: nothing for this one
  const Call& call() const { return call_; }

 private:
  const Value source_;
  const Call call_;
  std::shared_ptr<Iterator> items_;
};

class MapIterator final : public Lazy {
 public:
  using Lazy::Lazy;

 private:
  absl::Status Prepare(Run& run) override {
    if (call().positional.empty()) {
      for (const auto& [name, value] : call().keywords) {
        if (name == "attribute") {
          attribute_ = value;
        } else if (name == "default" && !value.is(Kind::kNone)) {
          otherwise_ = value;
        } else if (name != "default") {
          unexpected_ = name;
        }
      }
      if (!attribute_) return InvalidArgument("map requires a filter argument");
      if (!unexpected_.empty()) return InvalidArgument("Unexpected keyword argument ", QuotedText(unexpected_));
      return absl::OkStatus();
    }
    const Value& name = call().positional[0];
    if (name.is(Kind::kText)) filter_ = FindFilter(name.text());
    if (filter_ != nullptr) return absl::OkStatus();
    MOED_ASSIGN_OR_RETURN(missing_, NoSuch(run, "filter", name));
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<Value>> Yield(Run& run, Value item) override {
    MOED_RETURN_IF_ERROR(missing_);
    absl::StatusOr<Value> mapped = attribute_
                                       ? AttributeOf(run, std::move(item), &*attribute_, otherwise_ ? &*otherwise_ : nullptr)
                                       : ApplyFilter(run, *filter_, item, WithoutFirst(call(), 1));
    if (!mapped.ok()) return mapped.status();
    return *std::move(mapped);
  }

  std::optional<Value> attribute_, otherwise_;
  std::string unexpected_;
  const Filter* filter_ = nullptr;
  absl::Status missing_;
};

struct Selection {
  bool by_attribute;
  bool wanted;  // what the test must say
};

class SelectIterator final : public Lazy {
 public:
  SelectIterator(Value source, Call call, Selection selection)
      : Lazy(std::move(source), std::move(call)), selection_(selection) {}

 private:
  absl::Status Prepare(Run& run) override {
    const auto& given = call().positional;
    const size_t before = selection_.by_attribute ? 1 : 0;
    if (given.size() < before) return InvalidArgument("Missing parameter for attribute name");
    if (given.size() == before) return absl::OkStatus();
    const Value& name = given[before];
    if (name.is(Kind::kText)) test_ = FindTest(name.text());
    if (test_ != nullptr) return absl::OkStatus();
    MOED_ASSIGN_OR_RETURN(missing_, NoSuch(run, "test", name));
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<Value>> Yield(Run& run, Value item) override {
    const size_t before = selection_.by_attribute ? 1 : 0;
    Value tested = item;
    if (selection_.by_attribute) {
      MOED_ASSIGN_OR_RETURN(tested, AttributeOf(run, item, &call().positional[0]));
    }
    MOED_RETURN_IF_ERROR(missing_);
    bool holds = IsTrue(tested);
    if (test_ != nullptr) {
      MOED_ASSIGN_OR_RETURN(holds, ApplyTest(run, *test_, tested, WithoutFirst(call(), before + 1)));
    }
    if (holds != selection_.wanted) return std::nullopt;
    return item;
  }

  const Selection selection_;
  const Test* test_ = nullptr;
  absl::Status missing_;
};

class UniqueIterator final : public Lazy {
 public:
  UniqueIterator(Value source, bool case_sensitive, std::optional<Value> attribute)
      : Lazy(std::move(source), {}), case_sensitive_(case_sensitive), attribute_(std::move(attribute)) {}

 private:
  absl::Status Prepare(Run&) override { return absl::OkStatus(); }
  absl::StatusOr<std::optional<Value>> Yield(Run& run, Value item) override {
    MOED_ASSIGN_OR_RETURN(Value key, AttributeOf(run, item, attribute_ ? &*attribute_ : nullptr));
    if (!case_sensitive_) {
      MOED_ASSIGN_OR_RETURN(key, WithoutCase(run, key));
    }
    if (!IsHashable(key)) return InvalidArgument("unhashable type: '", TypeName(key), "'");
    for (const Value& other : seen_) {
      MOED_ASSIGN_OR_RETURN(const bool equal, AreEqual(run, key, other));
      if (equal) return std::nullopt;
    }
    seen_.push_back(std::move(key));
    return item;
  }

  const bool case_sensitive_;
  const std::optional<Value> attribute_;
  std::vector<Value> seen_;
};

absl::StatusOr<Value> Map(Run& run, const Value& value, const Arguments& arguments) {
  return run.New<MapIterator>(sizeof(MapIterator), value, arguments.call());
}

template <bool by_attribute, bool wanted>
absl::StatusOr<Value> Select(Run& run, const Value& value, const Arguments& arguments) {
  return run.New<SelectIterator>(sizeof(SelectIterator), value, arguments.call(), Selection{by_attribute, wanted});
}

absl::StatusOr<Value> Unique(Run& run, const Value& value, const Arguments& arguments) {
  const Value* attribute = arguments.FindSome(1);
  return run.New<UniqueIterator>(sizeof(UniqueIterator), value, arguments.True(0),
                                 attribute != nullptr ? std::optional(*attribute) : std::nullopt);
}

constexpr Filter kFilters[] = {
    {"map", "*", Map},
    {"reject", "*", Select<false, false>},
    {"rejectattr", "*", Select<true, false>},
    {"select", "*", Select<false, true>},
    {"selectattr", "*", Select<true, true>},
    {"unique", "case_sensitive? attribute?", Unique},
};

}  // namespace

std::span<const Filter> LazyFilters() { return kFilters; }

}  // namespace moed::chat
