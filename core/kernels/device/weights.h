// A panel's weights where the panel lies, in words of four columns: what quant/block_layouts.h says of one code, for four at
// once.
#pragma once

#include "core/kernels/cuda/language.h"
#include "core/quant/block_layouts.h"
#include "core/quant/fp8.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

// A place in memory of some kind, from which the layouts read.
template <class Pointer>
struct Bytes {
  Pointer at;
  __device__ Bytes operator+(int64_t bytes) const { return {at + bytes}; }
  template <class T>
  __device__ T Get() const {
    return Load<T>(at, 0);
  }
  template <class T>
  friend __device__ T Load(Bytes bytes) {
    return bytes.template Get<T>();
  }
};
template <class Pointer>
__device__ inline Bytes<Pointer> BytesAt(Pointer at) {
  return {at};
}

constexpr uint32_t kEveryByte = 0x01010101u;

// The codes of columns 4 s to 4 s + 3 of a row, a byte each.
template <int kBits, class Memory>
__device__ inline uint32_t PlaneWord(Memory plane, int row, int s) {
  const auto word = Load<uint32_t>(plane + (quant::kVectorBytes * (s % kBits) + quant::kGroupColumns * row));
  return word >> kBits * (s / kBits) & quant::Plane<kBits>::kMask * kEveryByte;
}
template <class Planes>
struct PlaneWords;
template <int... kPlaneBits>
struct PlaneWords<quant::Planes<kPlaneBits...>> {
  template <class Memory>
  static __device__ uint32_t Get(Memory planes, int row, int s) {
    uint32_t codes = 0;
    int low = 0;
    ((codes |= PlaneWord<kPlaneBits>(planes, row, s) << low, planes = planes + quant::Plane<kPlaneBits>::kBytes,
      low += kPlaneBits),
     ...);
    return codes;
  }
};

template <>
struct PlaneWords<quant::PairPlanes> {
  template <class Memory>
  static __device__ uint32_t Get(Memory planes, int row, int s);
};

// What four codes stand for, an int8 each, by the base of a layout that says what one stands for. No code less kZeroCode borrows
// from its neighbour: codes are below 128, and so is kZeroCode.
template <int kZeroCode>
__device__ inline uint32_t LevelsOf(const quant::Integers<kZeroCode>*, uint32_t codes) {
  constexpr uint32_t kSigns = 0x80 * kEveryByte;
  return kZeroCode == 0 ? codes : ((codes | kSigns) - kZeroCode * kEveryByte) ^ kSigns;
}
__device__ inline uint32_t LevelsOf(const quant::SignedIntegers*, uint32_t codes) { return codes; }

constexpr uint32_t TableWord(const int8_t (&table)[16], int first) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word |= static_cast<uint32_t>(static_cast<uint8_t>(table[first + i])) << 8 * i;
  return word;
}
// Eight nibbles, byte by byte, and for each a mask that says whether it is 8 or more.
struct EightNibbles {
  uint32_t entries, first_upper, second_upper;
  explicit __device__ EightNibbles(uint32_t nibbles)
      : entries(nibbles & 0x7 * 0x11111111u),
        first_upper(SignsOfBytes<0x5140>(nibbles << 4, nibbles)),
        second_upper(SignsOfBytes<0x7362>(nibbles << 4, nibbles)) {}
};
// What the table has for four nibbles, of whose entries these are the low 16 bits.
template <const int8_t (&kTable)[16]>
__device__ inline uint32_t EntriesOfFour(uint32_t entries, uint32_t upper) {
  constexpr uint32_t kFirst = TableWord(kTable, 0), kSecond = TableWord(kTable, 4), kThird = TableWord(kTable, 8),
                     kFourth = TableWord(kTable, 12);
  return (__byte_perm(kFirst, kSecond, entries) & ~upper) | (__byte_perm(kThird, kFourth, entries) & upper);
}
// Of the low nibbles of four bytes, and of the high ones, which take turns until they are sorted.
template <const int8_t (&kTable)[16]>
__device__ inline void EntriesOfEight(const EightNibbles& nibbles, uint32_t& low, uint32_t& high) {
  const uint32_t first = EntriesOfFour<kTable>(nibbles.entries, nibbles.first_upper),
                 second = EntriesOfFour<kTable>(nibbles.entries >> 16, nibbles.second_upper);
  low = __byte_perm(first, second, 0x6420);
  high = __byte_perm(first, second, 0x7531);
}
// Codes are below 16, a byte each.
template <const int8_t (&kTable)[16]>
__device__ inline uint32_t LevelsOf(const quant::TableEntries<kTable>*, uint32_t codes) {
  uint32_t low, high;
  EntriesOfEight<kTable>(EightNibbles(codes), low, high);
  return low;
}

// Levels of pairs: tables and, of the second columns, a turn.
template <class Memory>
__device__ inline uint32_t PlaneWords<quant::PairPlanes>::Get(Memory planes, int row, int s) {
  using Pairs = quant::PairPlanes;
  const int pair = quant::kGroupColumns * (s % 4);
  const uint32_t n = Load<uint32_t>(planes + Pairs::Nibble(pair, row)) >> Pairs::NibbleShift(pair) & 0xf * kEveryByte;
  if (s < 4) return LevelsOf(static_cast<const quant::TableEntries<kPairFirst>*>(nullptr), n);
  const uint32_t turned = Load<uint32_t>(planes + Pairs::Bit(pair, row)) >> Pairs::BitShift(pair, row) & kEveryByte;
  return LevelsOf(static_cast<const quant::TableEntries<kPairSecond>*>(nullptr), n) ^ turned * kPairTurn;
}

// Of layouts whose levels are codes less a constant: that constant; else 0.
template <int kZeroCode>
constexpr int ZeroCodeOf(const quant::Integers<kZeroCode>*) {
  return kZeroCode;
}
constexpr int ZeroCodeOf(const void*) { return 0; }
template <class Layout>
constexpr int ZeroCode() {
  return ZeroCodeOf(static_cast<const Layout*>(nullptr));
}
// The codes of columns 4 s to 4 s + 3 of 32-column block b of a format's block.
template <class Layout, class Memory>
__device__ inline uint32_t CodeWord(Memory block, int b, int row, int s) {
  return PlaneWords<typename Layout::Codes>::Get(block + (Layout::kHeaderBytes + Layout::Codes::kBytes * b), row, s);
}

// Columns 4 s to 4 s + 3 of 32-column block b of a format's block. Not of iq3_s, whose magnitudes are a grid's.
template <class Layout, class Memory>
__device__ inline uint32_t LevelWord(Memory block, int b, int row, int s) {
  return LevelsOf(static_cast<const Layout*>(nullptr), CodeWord<Layout>(block, b, row, s));
}
// Magnitudes are not 0, so a byte's two's complement does not carry.
template <class Layout, class Memory>
requires std::is_base_of_v<quant::PackedGrid, Layout> __device__ inline uint32_t LevelWord(Memory block, int b, int row, int s) {
  const Memory at = block + (Layout::kHeaderBytes + Layout::kBlockBytes * b);
  const int low = Load<uint8_t>(at + (kPanelRows * s + row));
  const int ninth = Load<uint8_t>(at + (Layout::kNinthBits + row)) >> s & 1;
  const uint32_t minus = PlaneWord<1>(at + Layout::kSigns, row, s);
  return (kIq3sGrid.rows[low | ninth << 8] ^ minus * 0xff) + minus;
}

// All of a row's 32 columns: word s as LevelWord has it.
template <class Layout, class Memory>
__device__ inline void LevelWords(const void*, Memory block, int b, int row, uint32_t (&words)[8]) {
  MOED_UNROLL
  for (int s = 0; s < 8; ++s) words[s] = LevelWord<Layout>(block, b, row, s);
}
// A plane's word has the codes of two.
template <class Layout, const int8_t (&kTable)[16], class Memory>
__device__ inline void LevelWords(const quant::TableEntries<kTable>*, Memory block, int b, int row, uint32_t (&words)[8]) {
  static_assert(std::is_same_v<typename Layout::Codes, quant::Planes<4>>);
  const Memory plane = block + (Layout::kHeaderBytes + Layout::Codes::kBytes * b);
  MOED_UNROLL
  for (int s = 0; s < 4; ++s) {
    const EightNibbles nibbles(Load<uint32_t>(plane + (quant::kVectorBytes * s + quant::kGroupColumns * row)));
    EntriesOfEight<kTable>(nibbles, words[s], words[s + 4]);
  }
}
// A word of pairs has the n of words 0 and 2, or of 1 and 3, both columns of each.
template <class Layout, class Memory>
requires std::is_same_v<typename Layout::Codes, quant::PairPlanes> __device__ inline void LevelWords(const quant::Integers<0>*,
                                                                                                     Memory block, int, int row,
                                                                                                     uint32_t (&words)[8]) {
  using Pairs = quant::PairPlanes;
  const Memory planes = block + Layout::kHeaderBytes;
  const uint32_t turns = Load<uint32_t>(planes + Pairs::Bit(0, row)) >> Pairs::BitShift(0, row);
  MOED_UNROLL
  for (int s = 0; s < 2; ++s) {
    const EightNibbles nibbles(Load<uint32_t>(planes + Pairs::Nibble(quant::kGroupColumns * s, row)));
    EntriesOfEight<kPairFirst>(nibbles, words[s], words[s + 2]);
    EntriesOfEight<kPairSecond>(nibbles, words[s + 4], words[s + 6]);
  }
  MOED_UNROLL
  for (int s = 0; s < 4; ++s) words[s + 4] ^= (turns >> s & kEveryByte) * kPairTurn;
}

// The formats of weights themselves: a panel's, column by column. Two weights are those of a row and the next, for even rows.
template <FormatId kFormat>
struct FloatLayout;
template <class Element, class Two, float (*kWiden)(Element)>
struct PlainLayout {
  static constexpr int kColumns = kBlockColumns;
  static constexpr int kBytes = sizeof(Element) * kPanelRows * kBlockColumns;
  template <class Memory>
  static __device__ float Weight(Memory block, int column, int row) {
    return kWiden(Load<Element>(block + sizeof(Element) * (kPanelRows * column + row)));
  }
  template <class Memory>
  static __device__ float2 TwoWeights(Memory block, int column, int row) {
    const auto two = Load<Two>(block + sizeof(Element) * (kPanelRows * column + row));
    return {kWiden(two.x), kWiden(two.y)};
  }
};
constexpr float SameFloat(float weight) { return weight; }
template <>
struct FloatLayout<FormatId::kF32> : PlainLayout<float, float2, SameFloat> {};
template <>
struct FloatLayout<FormatId::kF16> : PlainLayout<uint16_t, ushort2, Float16ToFloat> {};
template <>
struct FloatLayout<FormatId::kBF16> : PlainLayout<uint16_t, ushort2, BFloat16ToFloat> {};
template <>
struct FloatLayout<FormatId::kFp8> {
  static constexpr int kColumns = quant::kFp8BlockColumns;
  static constexpr int kHeaderBytes = quant::kFp8HeaderBytes;
  static constexpr int kBytes = quant::kFp8PanelBlockBytes;
  template <class Memory>
  static __device__ float Weight(Memory block, int column, int row) {
    const auto scale = Load<float>(block + sizeof(float) * row);
    return quant::E4m3ToFloat(Load<uint8_t>(block + (kHeaderBytes + kPanelRows * column + row))) * scale;
  }
  template <class Memory>
  static __device__ float2 TwoWeights(Memory block, int column, int row) {
    const auto scales = Load<float2>(block + sizeof(float) * row);
    const uint32_t codes = Load<uint16_t>(block + (kHeaderBytes + kPanelRows * column + row));
    return {quant::UpperE4m3ToFloat(codes << 24) * scales.x, quant::UpperE4m3ToFloat(codes << 16) * scales.y};
  }
};

template <FormatId kFormat>
constexpr bool kIsFloats = requires {
  sizeof(FloatLayout<kFormat>);
};

template <bool kFloats, FormatId kFormat>
struct LayoutChoice {
  using Layout = quant::BlockLayout<kFormat>;
};
template <FormatId kFormat>
struct LayoutChoice<true, kFormat> {
  using Layout = FloatLayout<kFormat>;
};
// A format without a row in either does not compile.
template <FormatId kFormat>
using PanelLayout = typename LayoutChoice<kIsFloats<kFormat>, kFormat>::Layout;

// A table with an entry of each format.
template <class Function, template <FormatId> class Entry, int... kIds>
consteval auto MakeFormatTable(std::integer_sequence<int, kIds...>) {
  struct Table {
    Function of[kFormatCount];
  };
  return Table{{Entry<static_cast<FormatId>(kIds)>::kLaunch...}};
}
template <class Function, template <FormatId> class Entry>
constexpr auto kFormatTable = MakeFormatTable<Function, Entry>(std::make_integer_sequence<int, kFormatCount>());

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
