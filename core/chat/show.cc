#include "core/chat/show.h"

#include "core/base/status.h"
#include "core/chat/iterator.h"
#include "core/chat/loop.h"
#include "core/chat/python_text.h"
#include "core/chat/run.h"

namespace moed::chat {
namespace {

class ReprWriter {
 public:
  ReprWriter(Run& run, std::string& out) : run_(run), out_(out) {}

  absl::Status Write(const Value& value) {
    MOED_RETURN_IF_ERROR(run_.Work(1));
    MOED_RETURN_IF_ERROR(run_.Fits(out_.size()));
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "None";
        return absl::OkStatus();
      case Kind::kBool:
        out_ += value.as_bool() ? "True" : "False";
        return absl::OkStatus();
      case Kind::kInteger:
        out_ += IntegerText(value.as_integer());
        return absl::OkStatus();
      case Kind::kFloat:
        out_ += FloatText(value.as_float());
        return absl::OkStatus();
      case Kind::kText:
        return WriteText(value.as<Text>());
      case Kind::kSequence:
        return WriteSequence(value.as<Sequence>());
      case Kind::kDict:
        return WriteDict(value.dict());
      case Kind::kUndefined:
        out_ += "Undefined";
        return absl::OkStatus();
      case Kind::kNamespace:
        return WriteNamespace(value.as<Namespace>());
      case Kind::kLoop:
        out_ += value.as<Loop>().Shown();
        return absl::OkStatus();
      default:
        out_ += StrCat("<", TypeName(value), " object>");
        return absl::OkStatus();
    }
  }

 private:
  absl::Status WriteText(const Text& text) {
    const std::string quoted = QuotedText(text.text);
    out_ += text.markup ? StrCat("Markup(", quoted, ")") : quoted;
    return run_.WorkOn(quoted.size());
  }

  absl::Status WriteItems(const std::vector<Value>& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ", ";
      MOED_RETURN_IF_ERROR(Write(items[i]));
    }
    return absl::OkStatus();
  }

  absl::Status WriteSequence(const Sequence& sequence) {
    const auto& items = sequence.items;
    switch (sequence.flavor) {
      case Flavor::kTuple:
        out_ += '(';
        MOED_RETURN_IF_ERROR(WriteItems(items));
        out_ += items.size() == 1 ? ",)" : ")";
        return absl::OkStatus();
      case Flavor::kRange:
        out_ += RangeText(items);
        return absl::OkStatus();
      case Flavor::kList:
        break;
      default:
        out_ += sequence.flavor == Flavor::kKeys     ? "dict_keys("
                : sequence.flavor == Flavor::kValues ? "dict_values("
                                                     : "dict_items(";
    }
    out_ += '[';
    MOED_RETURN_IF_ERROR(WriteItems(items));
    out_ += sequence.flavor == Flavor::kList ? "]" : "])";
    return absl::OkStatus();
  }

  // The end that was asked for is not kept: it is the nearest one that gives these numbers.
  static std::string RangeText(const std::vector<Value>& items) {
    if (items.empty()) return "range(0, 0)";
    const Integer first = items[0].as_integer();
    const Integer step = items.size() > 1 ? items[1].as_integer() - first : 1;
    const std::string ends =
        StrCat("range(", IntegerText(first), ", ", IntegerText(items.back().as_integer() + (step < 0 ? -1 : 1)));
    return step == 1 ? ends + ")" : StrCat(ends, ", ", IntegerText(step), ")");
  }

  absl::Status WriteDict(const Dict& dict) {
    out_ += '{';
    for (const auto& [key, value] : dict.entries()) {
      if (&key != &dict.entries()[0].first) out_ += ", ";
      MOED_RETURN_IF_ERROR(Write(key));
      out_ += ": ";
      MOED_RETURN_IF_ERROR(Write(value));
    }
    out_ += '}';
    return absl::OkStatus();
  }

  // A namespace may hold itself.
  absl::Status WriteNamespace(const Namespace& space) {
    MOED_RETURN_IF_ERROR(run_.Enter());
    out_ += "<Namespace {";
    absl::Status status;
    for (size_t i = 0; i < space.attributes.size() && status.ok(); ++i) {
      if (i > 0) out_ += ", ";
      out_ += QuotedText(space.attributes[i].first) + ": ";
      status = Write(space.attributes[i].second);
    }
    out_ += "}>";
    run_.Leave();
    return status;
  }

  Run& run_;
  std::string& out_;
};

}  // namespace

absl::Status AppendStr(Run& run, const Value& value, MarkedText& out) {
  if (value.is(Kind::kUndefined)) return absl::OkStatus();
  if (!value.is(Kind::kText)) {
    MOED_ASSIGN_OR_RETURN(std::string shown, Repr(run, value));
    MOED_RETURN_IF_ERROR(run.Fits(out.text.size() + 2 * shown.size()));
    out.Append(MarkedText::Whole(std::move(shown), HoldsForeign(value)));
    return absl::OkStatus();
  }
  MOED_RETURN_IF_ERROR(run.Fits(out.text.size() + value.text().size()));
  MOED_RETURN_IF_ERROR(run.WorkOn(value.text().size()));
  out.Append(value.as<Text>());
  return absl::OkStatus();
}

absl::StatusOr<MarkedText> Str(Run& run, const Value& value) {
  MarkedText out;
  MOED_RETURN_IF_ERROR(AppendStr(run, value, out));
  return out;
}

MarkedText Escaped(const Text& text) { return MarkedText::Whole(EscapedForHtml(text.text), !text.foreign.empty()); }

absl::StatusOr<std::string> Repr(Run& run, const Value& value) {
  std::string out;
  MOED_RETURN_IF_ERROR(ReprWriter(run, out).Write(value));
  return out;
}

}  // namespace moed::chat
