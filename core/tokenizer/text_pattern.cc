#define PCRE2_CODE_UNIT_WIDTH 8
#include "core/tokenizer/text_pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "core/base/status.h"
#include "core/tokenizer/newer_characters.h"

namespace moed {
namespace {

// PCRE2's own \s has U+180E, Unicode's White_Space has not.
constexpr std::string_view kWhiteSpaceInClass =
    "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

constexpr std::array<std::string_view, 37> kGeneralCategories = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",  "Mc", "Me", "Mn", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};

constexpr std::array<std::string_view, 8> kGroups = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "("};

// Each is one character to Oniguruma where case counts for nothing, or is several.
constexpr std::array<std::string_view, 14> kFoldsOfSeveral = {
    "ss", "ff", "fi", "fl", "st", "\u00df", "\u1e9e", "\ufb00", "\ufb01", "\ufb02", "\ufb03", "\ufb04", "\ufb05", "\ufb06"};

constexpr std::string_view kPlainEscapes = "Gnrtfv\\.[](){}*+?^$|/-&~#'\"!@%,:;<>=_ ";

// Patterns that look at the rest of a run of digits from each of them, which takes the square of its length; and the same
// matches, where a search begins after the match before, in proportion to it.
constexpr struct {
  std::string_view pattern, proportional;
} kProportional[] = {{R"(\d{1,3}(?=(?:\d{3})*\b))", R"((?<!\d)\d{1,3}(?=(?:\d{3})*+\b)|\G(?<=\d)\d{3})"}};

std::string_view Proportional(std::string_view pattern) {
  const auto row = std::ranges::find(kProportional, pattern, [](const auto& each) { return each.pattern; });
  return row == std::end(kProportional) ? pattern : row->proportional;
}

std::string_view NewerThanPcre2(std::string_view name) {
  const auto row = std::ranges::find(kNewerCharacters, name, &NewerCharacters::name);
  return row == std::end(kNewerCharacters) ? std::string_view() : row->ranges;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Copies one pattern from Oniguruma's spelling to PCRE2's.
class Respeller {
 public:
  explicit Respeller(std::string_view pattern) : rest_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (!rest_.empty()) {
      if (absl::Status status = CheckFolds(); !status.ok()) return status;
      if (absl::Status status = in_class_ ? InClass() : OutsideClass(); !status.ok()) return status;
    }
    return std::move(out_);
  }

 private:
  void Copy(size_t bytes) {
    out_ += rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
  }
  bool At(std::string_view text) const { return rest_.substr(0, text.size()) == text; }
  absl::Status Refuse(std::string_view what) const { return InvalidArgument("'", what, "' is not supported"); }

  bool Folds() const { return !folds_.empty() && folds_.back(); }

  absl::Status CheckFolds() const {
    if (!Folds()) return absl::OkStatus();
    for (const std::string_view fold : kFoldsOfSeveral) {
      const bool pair = static_cast<uint8_t>(fold[0]) < 0x80;  // which a class takes one by one
      if (in_class_ && pair) continue;
      const std::string_view here = rest_.substr(0, fold.size());
      if (absl::EqualsIgnoreCase(ToAbsl(here), ToAbsl(fold))) return Refuse(StrCat("(?i:) with ", here));
    }
    return absl::OkStatus();
  }

  absl::Status OutsideClass() {
    switch (rest_[0]) {
      case '\\':
        return Escape();
      case '[':
        return OpenClass();
      case '(':
        return Group();
      case ')':
        if (!folds_.empty()) folds_.pop_back();
        Copy(1);
        return absl::OkStatus();
      case '{':
        return Repeat();
      case '^':
      case '$':
        return Refuse(rest_.substr(0, 1));
      default:
        Copy(1);
        return absl::OkStatus();
    }
  }

  absl::Status OpenClass() {
    Copy(At("[^") ? 2 : 1);
    if (At("]")) return Refuse("[]");
    in_class_ = true;
    return absl::OkStatus();
  }

  absl::Status InClass() {
    if (At("[")) return Refuse("[ inside a class");
    if (At("&&")) return Refuse("&& inside a class");
    if (At("\\")) return Escape();
    in_class_ = !At("]");
    Copy(1);
    return absl::OkStatus();
  }

  absl::Status Group() {
    for (const std::string_view group : kGroups) {
      if (!At(group)) continue;
      if (group == "(" && (At("(?") || At("(*"))) break;
      folds_.push_back(Folds() || group == "(?i:");
      Copy(group.size());
      return absl::OkStatus();
    }
    return Refuse(rest_.substr(0, 3));
  }

  // {n}, {n,} or {n,m}; what follows them means "lazy" or "possessive" to one of the two only.
  absl::Status Repeat() {
    size_t end = 1;
    while (end < rest_.size() && IsDigit(rest_[end])) ++end;
    const bool counted = end > 1;
    if (end < rest_.size() && rest_[end] == ',') ++end;
    while (end < rest_.size() && IsDigit(rest_[end])) ++end;
    if (!counted || end >= rest_.size() || rest_[end] != '}') return Refuse("{ that is no {n,m}");
    Copy(end + 1);
    if (At("+") || At("?") || At("*")) return Refuse(StrCat("}", rest_.substr(0, 1)));
    return absl::OkStatus();
  }

  absl::Status Escape() {
    if (rest_.size() < 2) return Refuse("\\ at the end");
    const char escaped = rest_[1];
    if (escaped == 'p' || escaped == 'P') return Property();
    if (escaped == 'x') return Hexadecimal();
    if (kPlainEscapes.find(escaped) != std::string_view::npos) {
      Copy(2);
      return absl::OkStatus();
    }
    if (escaped == 'd' || escaped == 'D') {
      rest_.remove_prefix(2);
      AppendProperty("Nd", "Nd", escaped == 'D');
      return absl::OkStatus();
    }
    if (escaped == 'w' || (escaped == 'b' && !in_class_)) {
      rest_.remove_prefix(2);
      AppendWord(escaped == 'b');
      return absl::OkStatus();
    }
    std::string respelled;
    if (escaped == 's') respelled = in_class_ ? std::string(kWhiteSpaceInClass) : StrCat("[", kWhiteSpaceInClass, "]");
    if (escaped == 'S') respelled = in_class_ ? "\\P{White_Space}" : StrCat("[^", kWhiteSpaceInClass, "]");
    if (respelled.empty()) return Refuse(rest_.substr(0, 2));
    rest_.remove_prefix(2);
    out_ += respelled;
    return absl::OkStatus();
  }

  absl::Status Hexadecimal() {
    const size_t end = rest_.find('}');
    if (!At("\\x{") || end == std::string_view::npos) return Refuse("\\x without {}");
    Copy(end + 1);
    return absl::OkStatus();
  }

  // A general category, or a script: PCRE2 would take a bare script's name for its extensions too.
  absl::Status Property() {
    const size_t end = rest_.find('}');
    if (rest_.size() < 3 || rest_[2] != '{' || end == std::string_view::npos) return Refuse("\\p without {}");
    std::string_view name = rest_.substr(3, end - 3);
    const bool negated = !name.empty() && name[0] == '^';
    if (negated) name.remove_prefix(1);
    const bool category = std::find(kGeneralCategories.begin(), kGeneralCategories.end(), name) != kGeneralCategories.end();
    AppendProperty(name, StrCat(category ? "" : "sc:", name), negated != (rest_[1] == 'P'));
    rest_.remove_prefix(end + 1);
    return absl::OkStatus();
  }

  // A character of a word, or the border between one and none.
  void AppendWord(bool border) {
    if (in_class_) return AppendWordCharacters();
    const auto append = [this](std::string_view before, std::string_view after) {
      out_ += StrCat(before, "[");
      in_class_ = true;
      AppendWordCharacters();
      in_class_ = false;
      out_ += StrCat("]", after);
    };
    if (!border) return append("", "");
    append("(?:(?<=", ")");
    append("(?!", ")|");
    append("(?<!", ")");
    append("(?=", "))");
  }

  // To Oniguruma: letters, those in circles and squares too, marks, digits and what joins words; of Latin-1 also digits above the
  // line and fractions.
  void AppendWordCharacters() {
    for (const std::string_view category : {"L", "M", "Nd", "Nl", "Pc"}) AppendProperty(category, category, false);
    out_ +=
        "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
        "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
  }

  // With the characters that PCRE2 does not know. Within a class none can be taken away, so that a negated property has them.
  void AppendProperty(std::string_view name, std::string_view property, bool negated) {
    const std::string_view newer = NewerThanPcre2(name);
    if (newer.empty() || (in_class_ && negated)) {
      out_ += StrCat(negated ? "\\P{" : "\\p{", property, "}");
    } else if (in_class_) {
      out_ += StrCat("\\p{", property, "}", newer);
    } else {
      out_ += StrCat(negated ? "[^\\p{" : "[\\p{", property, "}", newer, "]");
    }
  }

  std::string_view rest_;
  std::string out_;
  bool in_class_ = false;
  std::vector<bool> folds_;  // of the groups that are open, the innermost last: whether case counts for nothing
};

std::string ErrorText(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR Units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.empty() ? "" : text.data()); }

template <class T>
T Info(const pcre2_code* code, uint32_t what) {
  T value{};
  pcre2_pattern_info(code, what, &value);
  return value;
}

}  // namespace

absl::StatusOr<std::string> PatternForPcre2(std::string_view pattern) { return Respeller(Proportional(pattern)).Run(); }

void TextPattern::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

absl::StatusOr<TextPattern> TextPattern::Compile(std::string_view pattern, bool literal) {
  const auto refuse = [&](std::string_view why) { return InvalidArgument("pattern '", pattern, "': ", why); };
  absl::StatusOr<std::string> respelled = literal ? std::string(pattern) : PatternForPcre2(pattern);
  if (!respelled.ok()) return refuse(std::string_view(respelled.status().message().data(), respelled.status().message().size()));

  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t error_at = 0;
  pcre2_code* code =
      pcre2_compile(Units(*respelled), respelled->size(), PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_NEVER_BACKSLASH_C), &error,
                    &error_at, context.get());
  if (code == nullptr) return refuse(ErrorText(error));
  TextPattern compiled(std::string(pattern), code);
  if (pattern.empty() || Info<uint32_t>(code, PCRE2_INFO_MATCHEMPTY) != 0)
    return refuse("it matches empty text, which is not supported");
  // Without JIT (a kernel may forbid executable memory) PCRE2 interprets: the same matches, slower.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return compiled;
}

size_t TextPattern::memory_bytes() const {
  return source_.capacity() + Info<size_t>(code_.get(), PCRE2_INFO_SIZE) + Info<size_t>(code_.get(), PCRE2_INFO_JITSIZE);
}

TextPattern::Searcher::Searcher(const TextPattern& pattern)
    : pattern_(&pattern), data_(pcre2_match_data_create(1, nullptr)), context_(pcre2_match_context_create(nullptr)) {}

TextPattern::Searcher::Searcher(Searcher&& other) noexcept
    : pattern_(other.pattern_), data_(std::exchange(other.data_, nullptr)), context_(std::exchange(other.context_, nullptr)) {}

TextPattern::Searcher::~Searcher() {
  pcre2_match_data_free(data_);
  pcre2_match_context_free(context_);
}

absl::StatusOr<std::optional<TextPattern::Match>> TextPattern::Searcher::Find(std::string_view text, size_t from) const {
  // A run of white space as long as the text is backed out of one character at a time: that is work in proportion, not a runaway.
  constexpr size_t kStepsPerByte = 64, kLeastSteps = 10'000'000;
  pcre2_set_match_limit(context_, static_cast<uint32_t>(std::min<size_t>(UINT32_MAX, kLeastSteps + kStepsPerByte * text.size())));
  const auto match = [&](uint32_t options) {
    return pcre2_match(pattern_->code_.get(), Units(text), text.size(), from, PCRE2_NO_UTF_CHECK | options, data_, context_);
  };
  int result = match(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);  // the interpreter keeps its stack on the heap
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    return ResourceExhausted("pattern '", pattern_->source_, "' fails on this text from byte ", from, ": ", ErrorText(result));
  }
  const size_t* offsets = pcre2_get_ovector_pointer(data_);
  return Match{offsets[0], offsets[1]};
}

}  // namespace moed
