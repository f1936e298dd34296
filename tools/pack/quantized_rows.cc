#include "tools/pack/quantized_rows.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/status.h"
#include "core/quant/half.h"
#include "core/quant/safetensors_types.h"
#include "tools/pack/unpackable.h"

namespace moed {
namespace {

constexpr uint64_t kWordCodes = 8;
constexpr uint64_t kWordBytes = 4;

absl::Status ReadAt(const FilePlace& place, uint64_t offset, std::span<std::byte> out) {
  return place.file->ReadAt(place.offset + offset, out);
}

template <class T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Of a run of columns the first half's codes to low nibbles, the second half's to high ones: as GGUF has them. kHalf: bytes of
// half a run, which has two neighbouring columns in each.
template <int kHalf>
std::byte* PutHalves(const std::byte* codes, std::byte* out) {
  for (int i = 0; i < kHalf; ++i) {
    const std::byte low = codes[i], high = codes[kHalf + i];
    *out++ = (low & std::byte{15}) | high << 4;
    *out++ = low >> 4 | (high & std::byte{0xf0});
  }
  return out;
}

class Mxfp4Source final : public RowSource {
 public:
  Mxfp4Source(FilePlace codes, FilePlace scales, uint64_t cols, uint64_t row_step)
      : codes_(std::move(codes)), scales_(std::move(scales)), blocks_(cols / kMxfp4Blocks.block_columns), row_step_(row_step) {}

  absl::Status Read(uint64_t first, uint64_t count, std::byte* out) const override {
    std::vector<std::byte> codes(blocks_ * 2 * kHalf), scales(blocks_);
    for (uint64_t row = first; row < first + count; ++row) {
      MOED_RETURN_IF_ERROR(ReadAt(codes_, row * row_step_ * codes.size(), codes));
      MOED_RETURN_IF_ERROR(ReadAt(scales_, row * row_step_ * scales.size(), scales));
      for (uint64_t block = 0; block < blocks_; ++block) {
        *out++ = scales[block];
        out = PutHalves<kHalf>(codes.data() + 2 * kHalf * block, out);
      }
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int kHalf = 8;

  const FilePlace codes_, scales_;
  const uint64_t blocks_;  // of a row
  const uint64_t row_step_;
};

// Where a word of AWQ has row i of its eight.
constexpr int kAwqPlaces[kWordCodes] = {0, 4, 1, 5, 2, 6, 3, 7};

class GroupedSource final : public RowSource {
 public:
  explicit GroupedSource(GroupedTensors tensors) : t_(std::move(tensors)) {}

  absl::Status Read(uint64_t first, uint64_t count, std::byte* out) const override {
    MOED_RETURN_IF_ERROR(ReadHeaders(first, count, out));
    return t_.awq ? ReadAwqCodes(first, count, out) : ReadGptqCodes(first, count, out);
  }

 private:
  static constexpr uint64_t kHeaderBytes = 3;  // of a block: scale and zero

  uint64_t RowBytes() const { return t_.cols / t_.type->block_columns * t_.type->block_bytes; }
  // Where in a row the byte of columns `column` and the next is.
  uint64_t PairAt(uint64_t column) const {
    const uint64_t columns = t_.type->block_columns;
    return column / columns * t_.type->block_bytes + kHeaderBytes + column % columns / 2;
  }
  // The zero of `row` in words that begin with that of `first`. Stored are words less the term in each place, with their borrows.
  int ZeroOfRow(const std::vector<std::byte>& words, uint64_t first, uint64_t row) const {
    const auto stored = Load<uint32_t>(words.data() + kWordBytes * (row / kWordCodes - first / kWordCodes));
    const uint32_t word = stored + static_cast<uint32_t>(t_.zero_term) * 0x11111111;
    const auto place = static_cast<int>(row % kWordCodes);
    return static_cast<int>(word >> 4 * (t_.awq ? kAwqPlaces[place] : place) & 15);
  }
  // The words of rows [first, first + count) in line `line` of a tensor that has one for eight rows.
  absl::Status ReadWords(const FilePlace& place, uint64_t line, uint64_t first, uint64_t count,
                         std::vector<std::byte>& words) const {
    const uint64_t begin = first / kWordCodes, end = (first + count - 1) / kWordCodes + 1;
    words.resize((end - begin) * kWordBytes);
    return ReadAt(place, (line * (t_.rows / kWordCodes) + begin) * kWordBytes, words);
  }

  absl::Status ReadHeaders(uint64_t first, uint64_t count, std::byte* out) const {
    std::vector<std::byte> zeros, scales(count * sizeof(uint16_t));
    const uint64_t row_bytes = RowBytes();
    for (uint64_t column = 0; column < t_.cols; column += t_.type->block_columns) {
      if (column % t_.group == 0) {
        const uint64_t group = column / t_.group;
        MOED_RETURN_IF_ERROR(ReadWords(t_.zeros, group, first, count, zeros));
        MOED_RETURN_IF_ERROR(ReadAt(t_.scales, (group * t_.rows + first) * sizeof(uint16_t), scales));
      }
      std::byte* header = out + PairAt(column) - kHeaderBytes;
      for (uint64_t i = 0; i < count; ++i, header += row_bytes) {
        std::memcpy(header, scales.data() + i * sizeof(uint16_t), sizeof(uint16_t));
        header[2] = static_cast<std::byte>(ZeroOfRow(zeros, first, first + i));
      }
    }
    return absl::OkStatus();
  }

  // Of kLines columns the words of some rows.
  static constexpr uint64_t kLines = 32;
  struct Lines {
    std::vector<std::byte> bytes;
    const std::byte* words = nullptr;
    uint64_t stride = 0;  // from column to column
  };
  // A column has few bytes of a few rows: unless they are far apart, those between them are read with them.
  absl::Status ReadLines(uint64_t column, uint64_t first, uint64_t count, Lines& lines) const {
    constexpr uint64_t kFar = 64;
    const uint64_t line = t_.rows / kWordCodes * kWordBytes, begin = first / kWordCodes * kWordBytes;
    if (count * kFar >= t_.rows) {
      lines.bytes.resize(kLines * line);
      lines.words = lines.bytes.data() + begin;
      lines.stride = line;
      return ReadAt(t_.codes, column * line, lines.bytes);
    }
    const uint64_t wanted = (first + count - 1) / kWordCodes * kWordBytes + kWordBytes - begin;
    lines.bytes.resize(kLines * wanted);
    lines.words = lines.bytes.data();
    lines.stride = wanted;
    for (uint64_t i = 0; i < kLines; ++i) {
      const auto words = std::span(lines.bytes).subspan(i * wanted, wanted);
      MOED_RETURN_IF_ERROR(ReadAt(t_.codes, (column + i) * line + begin, words));
    }
    return absl::OkStatus();
  }

  absl::Status ReadAwqCodes(uint64_t first, uint64_t count, std::byte* out) const {
    Lines lines;
    for (uint64_t column = 0; column < t_.cols; column += kLines) {
      MOED_RETURN_IF_ERROR(ReadLines(column, first, count, lines));
      for (uint64_t i = 0; i < kLines; i += 2) {
        const std::byte* const words = lines.words + i * lines.stride;
        PutPairs(words, words + lines.stride, first, count, out + PairAt(column + i));
      }
    }
    return absl::OkStatus();
  }

  // `even`, `odd`: two columns' words, from that of row `first` on. Their codes to a byte of every row.
  void PutPairs(const std::byte* even, const std::byte* odd, uint64_t first, uint64_t count, std::byte* out) const {
    constexpr uint32_t kLow = 0x0f0f0f0f;
    const uint64_t row_bytes = RowBytes(), end = first + count;
    for (uint64_t row = first; row < end; even += kWordBytes, odd += kWordBytes) {
      const auto e = Load<uint32_t>(even), o = Load<uint32_t>(odd);
      const uint32_t pairs[2] = {(e & kLow) | (o & kLow) << 4, (e >> 4 & kLow) | (o & ~kLow)};  // of even places, of odd ones
      for (uint64_t i = row % kWordCodes; i < kWordCodes && row < end; ++i, ++row, out += row_bytes) {
        *out = static_cast<std::byte>(pairs[kAwqPlaces[i] % 2] >> 8 * (kAwqPlaces[i] / 2));
      }
    }
  }

  absl::Status ReadGptqCodes(uint64_t first, uint64_t count, std::byte* out) const {
    std::vector<std::byte> words(count * kWordBytes);
    const uint64_t row_bytes = RowBytes();
    for (uint64_t column = 0; column < t_.cols; column += kWordCodes) {
      MOED_RETURN_IF_ERROR(ReadAt(t_.codes, (column / kWordCodes * t_.rows + first) * kWordBytes, words));
      std::byte* pairs = out + PairAt(column);
      for (uint64_t i = 0; i < count; ++i, pairs += row_bytes) std::memcpy(pairs, words.data() + i * kWordBytes, kWordBytes);
    }
    return absl::OkStatus();
  }

  const GroupedTensors t_;
};

class PackedSource final : public RowSource {
 public:
  explicit PackedSource(PackedTensors tensors) : t_(std::move(tensors)) {}

  absl::Status Read(uint64_t first, uint64_t count, std::byte* out) const override {
    const uint64_t columns = t_.type->block_columns, groups = (t_.cols + t_.group - 1) / t_.group;
    std::vector<std::byte> codes(t_.cols / 2), raw(groups * t_.scale_type->block_bytes);
    std::vector<float> scales(groups);
    for (uint64_t row = first; row < first + count; ++row) {
      MOED_RETURN_IF_ERROR(ReadAt(t_.codes, row * codes.size(), codes));
      MOED_RETURN_IF_ERROR(ReadAt(t_.scales, row * raw.size(), raw));
      DecodeRow(*t_.scale_type, raw.data(), static_cast<int>(groups), scales.data());
      for (uint64_t column = 0; column < t_.cols; column += columns, out += t_.type->block_bytes) {
        const float number = scales[column / t_.group];
        if (!(std::fabs(number) <= kMostScale)) return Unpackable(t_.scales.file->path(), ": a scale is ", number);
        const uint16_t scale = FloatToFloat16(number);
        std::memcpy(out, &scale, sizeof scale);
        out[sizeof scale] = kZero;
        std::memcpy(out + kHeaderBytes, codes.data() + column / 2, columns / 2);
      }
    }
    return absl::OkStatus();
  }

 private:
  static constexpr std::byte kZero{8};
  static constexpr float kMostScale = 65504;  // of float16
  static constexpr uint64_t kHeaderBytes = 3;

  const PackedTensors t_;
};

class ScaledE4m3Source final : public RowSource {
 public:
  explicit ScaledE4m3Source(ScaledE4m3Tensors tensors) : t_(std::move(tensors)) {}

  absl::Status Read(uint64_t first, uint64_t count, std::byte* out) const override {
    const uint64_t columns = kScaledE4m3.block_columns;
    std::vector<std::byte> codes(count * t_.cols);
    MOED_RETURN_IF_ERROR(ReadAt(t_.codes, first * t_.cols, codes));
    std::vector<float> scales;
    for (uint64_t row = first; row < first + count; ++row) {
      if (row == first || row % t_.block_rows == 0) MOED_RETURN_IF_ERROR(ReadScales(row / t_.block_rows, scales));
      for (uint64_t column = 0; column < t_.cols; column += columns, out += kScaledE4m3.block_bytes) {
        std::memcpy(out, &scales[column / t_.block_cols], sizeof(float));
        std::memcpy(out + sizeof(float), codes.data() + (row - first) * t_.cols + column, columns);
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadScales(uint64_t line, std::vector<float>& scales) const {
    const uint64_t count = (t_.cols - 1) / t_.block_cols + 1;
    std::vector<std::byte> raw(count * t_.scale_type->block_bytes);
    MOED_RETURN_IF_ERROR(ReadAt(t_.scales, line * raw.size(), raw));
    scales.resize(count);
    DecodeRow(*t_.scale_type, raw.data(), static_cast<int>(count), scales.data());
    return absl::OkStatus();
  }

  const ScaledE4m3Tensors t_;
};

constexpr uint64_t kNvfp4Parts = 4;  // of a block of 64 columns
constexpr uint64_t kNvfp4Codes = 32;

absl::Status CheckNvfp4Scales(std::span<const std::byte> scales, uint64_t row, uint64_t first_column) {
  constexpr std::byte kMost{0x7e};
  for (uint64_t i = 0; i < scales.size(); ++i) {
    if (scales[i] <= kMost) continue;
    return Unpackable("the scale of row ", row, " from column ", first_column + 16 * i, " on is the byte ",
                      static_cast<int>(scales[i]), " of e4m3, expected a number that is not negative: 0 to ",
                      static_cast<int>(kMost));
  }
  return absl::OkStatus();
}

std::byte* PutFactor(const Nvfp4Factor& factor, std::byte* out) {
  std::memcpy(out, &factor.factor, sizeof(float));
  std::memcpy(out + sizeof(float), &factor.rest, sizeof(float));
  return out + 2 * sizeof(float);
}

class Nvfp4Source final : public RowSource {
 public:
  explicit Nvfp4Source(Nvfp4Tensors tensors) : t_(std::move(tensors)) {}

  absl::Status Read(uint64_t first, uint64_t count, std::byte* out) const override {
    const uint64_t code_bytes = t_.cols / 2, scale_bytes = t_.cols / 16;
    std::vector<std::byte> codes(count * code_bytes), scales(count * scale_bytes);
    MOED_RETURN_IF_ERROR(ReadAt(t_.codes, first * code_bytes, codes));
    MOED_RETURN_IF_ERROR(ReadAt(t_.scales, first * scale_bytes, scales));
    for (uint64_t row = 0; row < count; ++row) {
      const auto own = std::span(scales).subspan(row * scale_bytes, scale_bytes);
      MOED_RETURN_IF_ERROR(CheckNvfp4Scales(own, first + row, 0));
      const Nvfp4Factor& factor = t_.factors[(first + row) / t_.matrix_rows];
      for (uint64_t part = 0; part < scale_bytes; part += kNvfp4Parts) {
        out = PutFactor(factor, out);
        std::memcpy(out, own.data() + part, kNvfp4Parts);
        out += kNvfp4Parts;
        for (uint64_t i = part; i < part + kNvfp4Parts; ++i) out = PutHalves<4>(codes.data() + row * code_bytes + 8 * i, out);
      }
    }
    return absl::OkStatus();
  }

 private:
  const Nvfp4Tensors t_;
};

class Nvfp4BlockSource final : public RowSource {
 public:
  Nvfp4BlockSource(FilePlace blocks, uint64_t cols, Nvfp4Factor factor)
      : blocks_(std::move(blocks)), of_row_(cols / kNvfp4Blocks.block_columns), factor_(factor) {}

  absl::Status Read(uint64_t first, uint64_t count, std::byte* out) const override {
    constexpr uint64_t kBytes = kNvfp4Parts + kNvfp4Codes;
    std::vector<std::byte> blocks(count * of_row_ * kBytes);
    MOED_RETURN_IF_ERROR(ReadAt(blocks_, first * of_row_ * kBytes, blocks));
    for (uint64_t i = 0; i < count * of_row_; ++i) {
      const auto block = std::span(blocks).subspan(i * kBytes, kBytes);
      MOED_RETURN_IF_ERROR(
          CheckNvfp4Scales(block.first(kNvfp4Parts), first + i / of_row_, i % of_row_ * kNvfp4Blocks.block_columns));
      out = PutFactor(factor_, out);
      std::memcpy(out, block.data(), kBytes);
      out += kBytes;
    }
    return absl::OkStatus();
  }

 private:
  const FilePlace blocks_;
  const uint64_t of_row_;
  const Nvfp4Factor factor_;
};

}  // namespace

std::shared_ptr<const RowSource> Mxfp4Rows(FilePlace codes, FilePlace scales, uint64_t cols, uint64_t row_step) {
  return std::make_shared<Mxfp4Source>(std::move(codes), std::move(scales), cols, row_step);
}

std::shared_ptr<const RowSource> GroupedRows(GroupedTensors tensors) {
  return std::make_shared<GroupedSource>(std::move(tensors));
}

std::shared_ptr<const RowSource> PackedRows(PackedTensors tensors) { return std::make_shared<PackedSource>(std::move(tensors)); }

std::shared_ptr<const RowSource> ScaledE4m3Rows(ScaledE4m3Tensors tensors) {
  return std::make_shared<ScaledE4m3Source>(std::move(tensors));
}

std::shared_ptr<const RowSource> Nvfp4Rows(Nvfp4Tensors tensors) { return std::make_shared<Nvfp4Source>(std::move(tensors)); }

std::shared_ptr<const RowSource> Nvfp4Rows(FilePlace blocks, uint64_t cols, Nvfp4Factor factor) {
  return std::make_shared<Nvfp4BlockSource>(std::move(blocks), cols, factor);
}

}  // namespace moed
