#include "tools/pack/gguf/pre_tokenizers.h"

#include <algorithm>
#include <string>

#include "core/base/status.h"

namespace moed {
namespace {

using Texts = std::string_view[];

// clang-format off
#define MOED_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define MOED_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define MOED_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define MOED_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define MOED_UPPER_NOT_HAN R"((?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]))"
#define MOED_LOWER_NOT_HAN R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}]))"
#define MOED_LEAD R"([^\r\n\p{L}\p{N}]?)"

constexpr Texts kGpt2Names = {"gpt-2", "phi-2", "mellum", "gigachat"};

constexpr Texts kOlmoNames = {"olmo", "mpt"};

constexpr Texts kDigits = {R"(\p{N})"};
constexpr Texts kDigitsNames = {"starcoder", "refact", "smollm", "mellum2"};

constexpr Texts kQwen2 = {MOED_CONTRACTIONS "|" MOED_LEAD R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" MOED_SPACES};
constexpr Texts kQwen2Names = {"qwen2", "deepseek-r1-qwen", "hunyuan", "megrez"};

constexpr Texts kQwen35 = {MOED_CONTRACTIONS "|" MOED_LEAD R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" MOED_SPACES};
constexpr Texts kQwen35Names = {"qwen35"};

constexpr Texts kLlama3 = {MOED_CONTRACTIONS "|" MOED_LEAD R"(\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" MOED_SPACES};
constexpr Texts kLlama3Names = {"llama-bpe", "llama3", "llama-v3", "lfm2", "falcon3", "falcon-h1", "pixtral", "midm-2.0"};
constexpr Texts kDbrxNames = {"dbrx", "smaug-bpe", "chatglm-bpe"};
constexpr Texts kGlmNames = {"glm4", "glm5"};

constexpr Texts kO200k = {
    MOED_LEAD MOED_UPPER "*" MOED_LOWER "+" MOED_CONTRACTIONS "?|" MOED_LEAD MOED_UPPER "+" MOED_LOWER "*" MOED_CONTRACTIONS "?|"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" MOED_SPACES};
constexpr Texts kO200kNames = {"gpt-4o", "llama4", "minimax-m2", "kanana2"};

// Groups of three digits, counted from the right, where a word ends with them.
constexpr Texts kCohere2Moe = {R"(\d{1,3}(?=(?:\d{3})*\b))", kO200k[0]};
constexpr Texts kCohere2MoeNames = {"cohere2moe", "tiny_aya"};

constexpr Texts kTekken = {MOED_LEAD MOED_UPPER "*" MOED_LOWER "+|" MOED_LEAD MOED_UPPER "+" MOED_LOWER "*|"
                           R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" MOED_SPACES};
constexpr Texts kTekkenNames = {"tekken"};

constexpr Texts kKimi = {
    R"([\p{Han}]+|)" MOED_LEAD MOED_UPPER_NOT_HAN "*" MOED_LOWER_NOT_HAN "+" MOED_CONTRACTIONS "?|"
    MOED_LEAD MOED_UPPER_NOT_HAN "+" MOED_LOWER_NOT_HAN "*" MOED_CONTRACTIONS "?|"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" MOED_SPACES};
constexpr Texts kKimiNames = {"kimi-k2"};

constexpr Texts kDeepSeekLlm = {
    R"([\r\n])",
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)",
    R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)",
    R"(\s+(?![^\n]))",
    R"([一-龥ࠀ-一가-퟿]+)",
    R"(\p{N})"};
constexpr Texts kDeepSeekLlmNames = {"deepseek-llm"};

constexpr Texts kDeepSeekCoder = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", R"([一-龥ࠀ-一가-퟿]+)", R"(\p{N})"};
constexpr Texts kDeepSeekCoderNames = {"deepseek-coder"};

constexpr Texts kDeepSeekV3 = {
    R"(\p{N}{1,3})",
    R"([一-龥぀-ゟ゠-ヿ]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" MOED_SPACES};
constexpr Texts kDeepSeekV3Names = {"deepseek-v3", "hunyuan-dense", "joyai-llm"};

// Groups of three digits, counted from the right: the first may have fewer.
constexpr Texts kAfmoe = {
    R"((?<!\p{N})\p{N}{1,2}(?=(?:\p{N}{3})*+(?!\p{N}))|\p{N}{3})",
    R"([一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" MOED_SPACES};
constexpr Texts kAfmoeNames = {"afmoe"};

constexpr Texts kExaoneMoe = {
    MOED_CONTRACTIONS "|" MOED_LEAD R"((?:\p{L}\p{M}*+(?: \p{L}\p{M}*+)*+)++|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr Texts kExaoneMoeNames = {"exaone-moe"};

constexpr Texts kSolarOpenNames = {"solar-open"};

constexpr Texts kBailing = {
    R"('(?i:[sdmt]|ll|ve|re)|)" MOED_LEAD R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr Texts kBailingNames = {"bailingmoe", "bailingmoe2", "llada-moe"};

constexpr Texts kLaguna = {
    R"([^\n]+|[\n]+)",
    MOED_CONTRACTIONS "|" MOED_LEAD R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" MOED_SPACES};
constexpr Texts kLagunaNames = {"laguna"};
// clang-format on

#undef MOED_CONTRACTIONS
#undef MOED_SPACES
#undef MOED_UPPER
#undef MOED_LOWER
#undef MOED_UPPER_NOT_HAN
#undef MOED_LOWER_NOT_HAN
#undef MOED_LEAD

constexpr GgufPreTokenizer kPreTokenizers[] = {
    {.names = kGpt2Names, .gpt2_pattern = true},
    {.names = kOlmoNames, .gpt2_pattern = true, .composes = true},
    {.names = kDigitsNames, .patterns = kDigits, .gpt2_pattern = true},
    {.names = kQwen2Names, .patterns = kQwen2, .composes = true},
    {.names = kQwen35Names, .patterns = kQwen35, .composes = true},
    {.names = kLlama3Names, .patterns = kLlama3, .ignore_merges = true, .adds_bos = true},
    {.names = kDbrxNames, .patterns = kLlama3},
    {.names = kGlmNames, .patterns = kLlama3, .ignore_merges = true},
    {.names = kO200kNames, .patterns = kO200k},
    {.names = kCohere2MoeNames, .patterns = kCohere2Moe},
    {.names = kTekkenNames, .patterns = kTekken, .ignore_merges = true, .adds_bos = true},
    {.names = kKimiNames, .patterns = kKimi},
    {.names = kDeepSeekLlmNames, .patterns = kDeepSeekLlm},
    {.names = kDeepSeekCoderNames, .patterns = kDeepSeekCoder},
    {.names = kDeepSeekV3Names, .patterns = kDeepSeekV3},
    {.names = kAfmoeNames, .patterns = kAfmoe},
    {.names = kExaoneMoeNames, .patterns = kExaoneMoe, .composes = true},
    {.names = kSolarOpenNames, .patterns = kQwen2},
    {.names = kBailingNames, .patterns = kBailing},
    {.names = kLagunaNames, .patterns = kLaguna},
};

}  // namespace

std::span<const GgufPreTokenizer> GgufPreTokenizers() { return kPreTokenizers; }

absl::StatusOr<const GgufPreTokenizer*> PreTokenizerNamed(std::string_view name) {
  std::string known;
  for (const GgufPreTokenizer& row : kPreTokenizers) {
    if (std::ranges::find(row.names, name) != row.names.end()) return &row;
    known += StrCat(known.empty() ? "" : ", ", JoinNames(row.names, [](std::string_view text) { return text; }));
  }
  return InvalidArgument("unknown pre-tokenizer \"", name, "\" (key tokenizer.ggml.pre); known: ", known);
}

}  // namespace moed
