// Every table of 64-bit ARM gives the bits of the scalar one: each operation, every length below two vectors and awkward ones
// above, at the end of readable memory. Needs no library but GoogleTest, so that it can be cross-compiled by itself; the
// program's arguments are the tables that the processor is expected to support.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>

#include "core/kernels/kernel_table.h"
#include "core/quant/codec.h"
#include "core/quant/format.h"
#include "core/quant/half.h"
#include "gtest/gtest.h"
#include "tests/kernels/fixtures.h"

namespace moed {
namespace {

struct Table {
  std::string name;
  const KernelTable* kernels;
  bool (*supported)();
};

const Table kTables[] = {{"neon-dotprod", &kNeonDotprodKernels, HasNeonDotprod}, {"neon-i8mm", &kNeonI8mmKernels, HasNeonI8mm}};

std::vector<std::string> expected_tables;  // from the command line

constexpr int kLengths[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,  13,  14,  15,  16,
                            17, 23, 24, 31, 32, 33, 63, 64, 65, 96, 97, 100, 127, 250, 1000};
constexpr float kUntouched = -77.25f;

// `count` elements with an inaccessible page right behind them: the start is aligned to the element only.
template <class T>
class Guarded {
 public:
  explicit Guarded(size_t count) : count_(count) {
    const size_t page = sysconf(_SC_PAGESIZE);
    const size_t room = (count * sizeof(T) + page - 1) / page * page;
    mapped_ = room + page;
    mapping_ = static_cast<char*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(mapping_, MAP_FAILED);
    EXPECT_EQ(mprotect(mapping_ + room, page, PROT_NONE), 0);
    data_ = reinterpret_cast<T*>(mapping_ + room) - count;
  }
  explicit Guarded(std::span<const T> values) : Guarded(values.size()) { std::copy(values.begin(), values.end(), data_); }
  Guarded(const Guarded&) = delete;
  ~Guarded() { munmap(mapping_, mapped_); }

  T* data() { return data_; }
  std::span<const T> span() const { return {data_, count_}; }

 private:
  size_t count_, mapped_;
  char* mapping_;
  T* data_;
};

using GuardedFloats = Guarded<float>;

// Values where roundings, signs of zero, overflow and underflow show.
std::vector<float> Awkward(size_t count, uint32_t seed) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kSpecial[] = {0.0f,
                                -0.0f,
                                1e-38f,
                                -1e-42f,
                                3e38f,
                                -3e38f,
                                88.7f,
                                -88.8f,
                                104.0f,
                                -104.0f,
                                1e-20f,
                                -1e-20f,
                                0.5f,
                                kInfinity,
                                -kInfinity,
                                std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::signaling_NaN()};
  std::vector<float> values = Gaussian(count, seed, 10.0f);
  std::mt19937 random(seed);
  for (float& value : values) {
    if (random() % 3 == 0) value = kSpecial[random() % std::size(kSpecial)];
  }
  return values;
}

// `cols`, or as many of the format's blocks as it takes them to hold so many.
int WholeColumns(const Format& format, int cols) {
  return format.block_columns == kBlockColumns ? cols
                                               : static_cast<int>(CeilDiv(cols, format.block_columns)) * format.block_columns;
}

// A packed matrix: Gaussian weights, or any codes to scales of about their size.
std::vector<unsigned char> RandomWeights(const Format& format, int rows, int cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.1f);
  std::vector<unsigned char> bytes(format.panel_block_bytes * Panels(rows) * CeilDiv(cols, format.block_columns));
  for (size_t block = 0; block < bytes.size(); block += format.panel_block_bytes) {
    unsigned char* const begin = bytes.data() + block;
    float weights[kPanelRows * kBlockColumns];
    for (float& weight : weights) weight = normal(random);
    if (format.codec.nearest != nullptr) {
      format.codec.nearest(weights, reinterpret_cast<std::byte*>(begin));
    } else if (format.scale_bytes < 2 * kPanelRows) {
      std::generate_n(begin, format.scale_bytes, [&] { return static_cast<unsigned char>(120 + random() % 6); });
    } else {
      for (size_t i = 0; i < format.scale_bytes; i += 2) {
        const uint16_t half = FloatToFloat16(normal(random));
        std::memcpy(begin + i, &half, sizeof(half));
      }
    }
    if (format.id == FormatId::kFp8) {
      for (int i = 0; i < 32; i += 4) {
        const float scale = normal(random) / 100;
        std::memcpy(begin + i, &scale, sizeof(scale));
      }
      std::generate(begin + 32, begin + format.panel_block_bytes, [&] { return static_cast<unsigned char>(random()); });
    }
    if (format.id == FormatId::kNvfp4) {
      const float factor = normal(random) / 100, rest = factor * 0x1p-25f * normal(random);
      std::memcpy(begin, &factor, sizeof(factor));
      std::memcpy(begin + sizeof(factor), &rest, sizeof(rest));
    }
    if (format.scale_bytes == 0) continue;
    std::generate(begin + format.scale_bytes, begin + format.panel_block_bytes,
                  [&] { return static_cast<unsigned char>(random()); });
  }
  return bytes;
}

// The activations of some tokens as the scalar table prepares them.
class PreparedTokens {
 public:
  PreparedTokens(std::span<const float> x, int tokens, int cols)
      : tokens_(tokens), blocks_(Blocks(cols)), values_(Width()), codes_(Width()), scales_(Scales()), sums_(Scales()) {
    for (int t = 0; t < tokens; ++t) {
      const size_t block = static_cast<size_t>(t) * blocks_;
      kScalarKernels.prepare({x.data() + static_cast<size_t>(t) * cols, cols, values_.data() + block * kBlockColumns,
                              codes_.data() + block * kBlockColumns, scales_.data() + block, sums_.data() + block});
    }
  }

  // Of the last `tokens` tokens, which end where memory ends.
  MatMulArguments Arguments(const unsigned char* weights, int rows, int tokens, float* output, int64_t stride) {
    const size_t block = static_cast<size_t>(tokens_ - tokens) * blocks_;
    return {.weights = weights,
            .rows = rows,
            .blocks = blocks_,
            .tokens = tokens,
            .values = values_.data() + block * kBlockColumns,
            .codes = codes_.data() + block * kBlockColumns,
            .scales = scales_.data() + block,
            .sums = sums_.data() + block,
            .output = output,
            .output_stride = stride};
  }

 private:
  size_t Scales() const { return static_cast<size_t>(tokens_) * blocks_; }
  size_t Width() const { return Scales() * kBlockColumns; }

  const int tokens_, blocks_;
  Guarded<float> values_;
  Guarded<int8_t> codes_;
  Guarded<float> scales_;
  Guarded<int32_t> sums_;
};

class NeonExactness : public ::testing::TestWithParam<Table> {
 protected:
  void SetUp() override {
    if (!GetParam().supported()) GTEST_SKIP() << "not on this processor";
  }

  // Runs `operation(table, data)` on a copy of `data` on both.
  template <class Operation>
  void Compare(std::span<const float> data, const Operation& operation) {
    GuardedFloats expected(data), found(data);
    operation(kScalarKernels, expected.data());
    operation(kernels_, found.data());
    EXPECT_TRUE(SameBits(found.span(), expected.span()));
  }

  void ComparePrepare(const std::vector<float>& values) {
    GuardedFloats x{values};
    const int cols = static_cast<int>(values.size());
    const size_t blocks = Blocks(cols), width = blocks * kBlockColumns;
    GuardedFloats values_a(width), values_b(width), scales_a(blocks), scales_b(blocks);
    Guarded<int8_t> codes_a(width), codes_b(width);
    Guarded<int32_t> sums_a(blocks), sums_b(blocks);
    kScalarKernels.prepare({x.data(), cols, values_a.data(), codes_a.data(), scales_a.data(), sums_a.data()});
    kernels_.prepare({x.data(), cols, values_b.data(), codes_b.data(), scales_b.data(), sums_b.data()});
    EXPECT_TRUE(SameBits(values_b.span(), values_a.span())) << cols;
    EXPECT_TRUE(SameBits(scales_b.span(), scales_a.span())) << cols;
    EXPECT_TRUE(std::ranges::equal(codes_b.span(), codes_a.span())) << cols;
    EXPECT_TRUE(std::ranges::equal(sums_b.span(), sums_a.span())) << cols;
  }

  // Panels [begin, end) times each of the counts of tokens; everything else stays untouched.
  void CompareMatMul(const Format& format, std::span<const unsigned char> bytes, int rows, int cols, int begin, int end,
                     std::span<const float> x, int most_tokens, std::span<const int> counts) {
    Guarded<unsigned char> weights(bytes);
    PreparedTokens prepared(x, most_tokens, cols);
    const int stride = rows + 3;
    const std::vector<float> untouched(static_cast<size_t>(most_tokens) * stride - 3, kUntouched);
    GuardedFloats expected(untouched);
    const int id = static_cast<int>(format.id);
    kScalarKernels.mat_mul.of[id](prepared.Arguments(weights.data(), rows, most_tokens, expected.data(), stride), begin, end);
    for (int tokens : counts) {
      GuardedFloats found{std::span(untouched).last(static_cast<size_t>(tokens) * stride - 3)};
      kernels_.mat_mul.of[id](prepared.Arguments(weights.data(), rows, tokens, found.data(), stride), begin, end);
      ASSERT_TRUE(SameBits(found.span(), expected.span().last(found.span().size())))
          << format.name << " " << rows << "x" << cols << " panels " << begin << " to " << end << " tokens " << tokens;
    }
  }

  const KernelTable& kernels_ = *GetParam().kernels;
};

TEST(NeonTables, SupportedAsExpected) {
  std::vector<std::string> supported;
  for (const Table& table : kTables) {
    if (table.supported()) supported.push_back(table.name);
  }
  EXPECT_EQ(supported, expected_tables);
}

TEST_P(NeonExactness, Prepare) {
  for (int cols : kLengths) {
    for (float deviation : {1.0f, 1e-37f, 1e35f}) ComparePrepare(Gaussian(cols, cols, deviation));
    ComparePrepare(Awkward(cols, cols));
  }
}

TEST_P(NeonExactness, PrepareRoundsTiesToEven) {
  std::vector<float> x;
  for (int block = 0; block < 16; ++block) {
    x.push_back(127.0f);  // makes the factor 1
    for (int i = 1; i < kBlockColumns; ++i) x.push_back(static_cast<float>(8 * block - 64) + static_cast<float>(i) / 4.0f);
  }
  ComparePrepare(x);
}

TEST_P(NeonExactness, MatMulShapes) {
  const int most = 19;
  std::vector<int> counts(most);
  for (int i = 0; i < most; ++i) counts[i] = i + 1;
  for (const Format& format : Formats()) {
    for (int rows : {1, 5, 7, 8, 9, 16, 17, 31, 33, 40, 71}) {
      for (int least : {1, 32, 33, 95, 160}) {
        const int cols = WholeColumns(format, least);
        const std::vector<unsigned char> weights = RandomWeights(format, rows, cols, rows * 1000 + cols);
        const std::vector<float> x = Gaussian(static_cast<size_t>(most) * cols, cols);
        CompareMatMul(format, weights, rows, cols, 0, Panels(rows), x, most, counts);
      }
    }
  }
}

TEST_P(NeonExactness, MatMulPartsOfLongRows) {
  const int rows = 85, most = 13;
  for (const Format& format : Formats()) {
    const int cols = WholeColumns(format, 33 * 64 + 7);
    const std::vector<unsigned char> weights = RandomWeights(format, rows, cols, 1);
    const std::vector<float> x = Gaussian(static_cast<size_t>(most) * cols, 2);
    CompareMatMul(format, weights, rows, cols, 2, 3, x, most, {{1, 2, 3, 13}});
    CompareMatMul(format, weights, rows, cols, 9, 11, x, most, {{1, 2, 4, 8, 9}});
    CompareMatMul(format, weights, rows, cols, 3, 3, x, most, {{5}});
  }
}

// Stores are input: any byte may stand where a code or a scale belongs, and any number among the activations.
TEST_P(NeonExactness, MatMulOfAnyBytes) {
  const int rows = 40, most = 11;
  std::mt19937 random(4);
  for (const Format& format : Formats()) {
    const int cols = WholeColumns(format, 96);
    for (int round = 0; round < 10; ++round) {
      std::vector<unsigned char> weights = RandomWeights(format, rows, cols, 1);
      for (unsigned char& byte : weights) byte = static_cast<unsigned char>(random());
      const size_t count = static_cast<size_t>(most) * cols;
      const std::vector<float> x = round % 2 == 0 ? Gaussian(count, round) : Awkward(count, round);
      CompareMatMul(format, weights, rows, cols, 0, Panels(rows), x, most, {{1, 2, 3, 11}});
    }
  }
}

TEST_P(NeonExactness, MatMulOfEveryCode) {
  const int most = 11;
  int tested = 0;
  for (const Format& format : Formats()) {
    if (format.scale_bytes == 0) continue;  // no codes
    ++tested;
    const int cols = WholeColumns(format, 64);
    std::vector<float> x = Gaussian(most * cols, 3);
    std::fill_n(x.begin(), cols, 1.0f);  // codes of 127 throughout
    std::fill_n(x.begin() + cols, cols, -1.0f);
    std::copy_n(x.begin(), 2 * cols, x.end() - 2 * cols);
    std::vector<unsigned char> weights = RandomWeights(format, kPanelRows, cols, 1);
    for (int byte = 0; byte < 256; ++byte) {
      for (size_t i = 0; i < weights.size(); ++i) {
        if (i % format.panel_block_bytes >= format.scale_bytes) weights[i] = static_cast<unsigned char>(byte);
      }
      CompareMatMul(format, weights, kPanelRows, cols, 0, 1, x, most, {{1, 2, 11}});
    }
  }
  EXPECT_GT(tested, 0);
}

TEST_P(NeonExactness, RmsNorm) {
  for (int cols : kLengths) {
    GuardedFloats weight(Gaussian(cols, 2));
    const auto operation = [&](const KernelTable& table, float* x) { table.rms_norm(x, weight.data(), 1e-6f, cols, x); };
    Compare(Gaussian(cols, cols), operation);
    Compare(Gaussian(cols, cols, 1e-23f), operation);
    Compare(Awkward(cols, cols), operation);
    Compare(Gaussian(cols, cols), [&](const KernelTable& table, float* x) { table.rms_norm(x, nullptr, 1e-6f, cols, x); });
  }
}

TEST_P(NeonExactness, Rope) {
  for (int head_dim = 2; head_dim <= 40; head_dim += 2) {
    const int heads = 3;
    std::vector<float> frequencies(head_dim / 2);
    for (int i = 0; i < head_dim / 2; ++i) frequencies[i] = static_cast<float>(std::pow(1e6, -2.0 * i / head_dim));
    GuardedFloats inv_freq(frequencies);
    const float position = static_cast<float>(head_dim * head_dim * 7919 + 1);
    const auto operation = [&](const KernelTable& table, float* x) {
      table.rope({x, heads, head_dim, position, inv_freq.data()});
    };
    Compare(Gaussian(heads * head_dim, head_dim), operation);
    Compare(Awkward(heads * head_dim, head_dim), operation);
  }
}

TEST_P(NeonExactness, RopeAngles) {
  constexpr int kHeadDim = 128;
  std::vector<float> inv_freq(kHeadDim / 2);
  for (int i = 0; i < kHeadDim / 2; ++i) inv_freq[i] = static_cast<float>(std::pow(10000.0, -2.0 * i / kHeadDim));
  for (float position : {0.0f, 1.0f, 2.0f, 3.0f, 100.0f, 4095.0f, 32768.0f, 131071.0f, 999999.0f, 2147483648.0f}) {
    Compare(Gaussian(kHeadDim, 1), [&](const KernelTable& table, float* x) {
      table.rope({x, 1, kHeadDim, position, inv_freq.data()});
    });
  }
}

// Keys before values and the other way round, so that each ends where memory ends. Rows of three heads a token.
TEST_P(NeonExactness, Attention) {
  constexpr int kHeads = 3, kTokens = 4, kPageTokens = 16;
  constexpr float kSinks[kHeads] = {0.5f, -3.0f, 50.0f};
  for (int head_dim : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 33, 48, 63, 64, 72, 96, 128, 130}) {
    for (int format = 0; format < kKvFormatCount; ++format) {
      const KvFormat kv_format = static_cast<KvFormat>(format);
      const int64_t row_bytes = KvRowBytes(kv_format, head_dim), part = kPageTokens * row_bytes;
      // The second of three pages has infinities and the like.
      const int pages = head_dim == 20 ? 17 : 3;
      for (const bool keys_first : {true, false}) {
        const int64_t keys_at = keys_first ? 0 : part, values_at = part - keys_at;
        std::vector<std::unique_ptr<Guarded<unsigned char>>> kept;
        std::vector<const unsigned char*> where;
        std::vector<unsigned char> row(row_bytes);
        for (int page = 0; page < pages; ++page) {
          kept.push_back(std::make_unique<Guarded<unsigned char>>(2 * part));
          where.push_back(kept.back()->data());
          const int count = 2 * kPageTokens * head_dim;
          const std::vector<float> numbers = page == 1 ? Awkward(count, page) : Gaussian(count, page);
          for (int slot = 0; slot < kPageTokens; ++slot) {
            StoreKvRow(kv_format, &numbers[slot * head_dim], head_dim, row.data());
            PlaceKvKey(kv_format, row.data(), head_dim, kPageTokens, slot, kept.back()->data() + keys_at);
            StoreKvRow(kv_format, &numbers[(kPageTokens + slot) * head_dim], head_dim,
                       kept.back()->data() + values_at + slot * row_bytes);
          }
        }
        // Of rows without a window, by distance.
        constexpr int kReach = 9;
        GuardedFloats bias(Gaussian(kHeads * (2 * kReach + 1), 5));
        GuardedFloats query(Gaussian(kTokens * kHeads * head_dim, 8));
        for (const int length : {1, 2, 7, 12, 13, 16, 17, 30, 44, 250, 255, 268}) {
          if (length + kTokens - 1 > pages * kPageTokens) continue;
          for (const auto& [first_row, rows, window] : {std::tuple{0, 1, 0}, {1, 4, 3}, {0, 12, 20}, {2, 7, 0}, {0, 12, 1}}) {
            const int stride = (length + kTokens - 1 + 15) / 16 * 16;
            GuardedFloats expected_scores(rows * stride), found_scores(rows * stride);
            Compare(std::vector<float>(kTokens * kHeads * head_dim), [&](const KernelTable& table, float* output) {
              table.attention[format]({.query = query.data(),
                                       .output = output,
                                       .token_stride = kHeads * head_dim,
                                       .heads = kHeads,
                                       .first_row = first_row,
                                       .rows = rows,
                                       .pages = where.data(),
                                       .keys = keys_at,
                                       .values = values_at,
                                       .page_tokens = kPageTokens,
                                       .length = length,
                                       .grows = true,
                                       .window = window,
                                       .head_dim = head_dim,
                                       .scale = 0.3f,
                                       .sinks = window == 1 ? nullptr : kSinks,
                                       .bias = window == 0 ? bias.data() : nullptr,
                                       .bias_reach = kReach,
                                       .position = length - 1,
                                       .scores = (&table == &kernels_ ? found_scores : expected_scores).data(),
                                       .score_stride = stride});
            });
            for (int i = 0; i < rows; ++i) {
              const auto seen = [&](const GuardedFloats& scores) {
                const int own = length + (first_row + i) / kHeads, attended = window == 0 ? own : std::min(window, own);
                return scores.span().subspan(i * stride + own - attended, attended);
              };
              EXPECT_TRUE(SameBits(seen(found_scores), seen(expected_scores))) << head_dim << " length " << length;
            }
          }
        }
      }
    }
  }
}

// Rows of each page end where memory ends.
TEST_P(NeonExactness, AttendLatent) {
  constexpr int kTokens = 3, kPageTokens = 16;
  for (const auto& [rank, rotary_dims] : {std::pair(1, 2), {4, 3}, {24, 6}, {33, 10}, {64, 16}}) {
    for (const int heads : {1, 5, 8, 11}) {
      for (int format = 0; format < kKvFormatCount; ++format) {
        const KvFormat kv_format = static_cast<KvFormat>(format);
        const int64_t latent_bytes = KvRowBytes(kv_format, rank), row_bytes = LatentRowBytes(kv_format, rank, rotary_dims);
        const int pages = rank == 24 ? 17 : 3;
        std::vector<std::unique_ptr<Guarded<unsigned char>>> kept;
        std::vector<const unsigned char*> where;
        for (int page = 0; page < pages; ++page) {
          kept.push_back(std::make_unique<Guarded<unsigned char>>(kPageTokens * row_bytes));
          where.push_back(kept.back()->data());
          const int width = rank + rotary_dims;
          const std::vector<float> numbers = page == 1 ? Awkward(kPageTokens * width, page) : Gaussian(kPageTokens * width, page);
          for (int slot = 0; slot < kPageTokens; ++slot) {
            unsigned char* const row = kept.back()->data() + slot * row_bytes;
            StoreKvRow(kv_format, &numbers[slot * width], rank, row);
            StoreKvRow(kv_format, &numbers[slot * width + rank], rotary_dims, row + latent_bytes);
          }
        }
        GuardedFloats query(Gaussian(kTokens * heads * rank, 8)), rotated(Gaussian(kTokens * heads * rotary_dims, 9));
        for (const int length : {1, 5, 6, 7, 13, 16, 17, 44, 255, 268}) {
          if (length + kTokens - 1 > pages * kPageTokens) continue;
          for (const int first_row : {0, 1}) {
            const int rows = std::min(kTokens * heads - first_row, kLatentRows);
            const int stride = (length + kTokens - 1 + 15) / 16 * 16;
            GuardedFloats scores(rows * stride);
            Compare(std::vector<float>(kTokens * heads * rank), [&](const KernelTable& table, float* output) {
              float totals[kLatentRows];
              LatentArguments arguments = {.latents = {.query = query.data(),
                                                       .output = output,
                                                       .token_stride = heads * rank,
                                                       .heads = heads,
                                                       .first_row = first_row,
                                                       .rows = rows,
                                                       .pages = where.data(),
                                                       .keys = 0,
                                                       .values = 0,
                                                       .page_tokens = kPageTokens,
                                                       .length = length,
                                                       .grows = true,
                                                       .window = 0,
                                                       .head_dim = rank,
                                                       .scale = 0.3f,
                                                       .sinks = nullptr,
                                                       .scores = scores.data(),
                                                       .score_stride = stride},
                                           .rotated = rotated.data(),
                                           .rotated_stride = rotary_dims,
                                           .rotary_dims = rotary_dims,
                                           .totals = totals,
                                           .stage = LatentStage::kScores,
                                           .begin = 0,
                                           .end = length + (first_row + rows - 1) / heads};
              table.attend_latent[format](arguments);
              arguments.stage = LatentStage::kWeights;
              arguments.end = rows;
              table.attend_latent[format](arguments);
              arguments.stage = LatentStage::kSums;
              arguments.end = rank;
              table.attend_latent[format](arguments);
            });
          }
        }
      }
    }
  }
}

TEST_P(NeonExactness, StoreKvRow) {
  for (int head_dim : {1, 2, 3, 4, 5, 8, 15, 31, 32, 33, 64, 130}) {
    for (int format = 0; format < kKvFormatCount; ++format) {
      for (int seed = 0; seed < 5; ++seed) {
        GuardedFloats numbers(seed == 0 ? Gaussian(head_dim, 1) : Awkward(head_dim, seed));
        const int64_t row_bytes = KvRowBytes(static_cast<KvFormat>(format), head_dim);
        Guarded<unsigned char> found(row_bytes), expected(row_bytes);
        kernels_.store_kv_row[format](numbers.data(), head_dim, found.data());
        kScalarKernels.store_kv_row[format](numbers.data(), head_dim, expected.data());
        EXPECT_EQ(std::memcmp(found.data(), expected.data(), row_bytes), 0) << head_dim << " " << format;
      }
    }
  }
}

// The state ends where memory ends.
TEST_P(NeonExactness, States) {
  const float rate = 0.4f;
  const float decay[10] = {0.7f, 0.1f, 0.9f, 0.3f, 0.99f, 0.5f, 0.2f, 0.8f, 0.01f, 0.6f};
  for (int columns : kLengths) {
    const int key_dim = columns % 10 + 1;
    GuardedFloats keys(Gaussian(key_dim, 1)), queries(Gaussian(key_dim, 2));
    for (bool awkward : {false, true}) {
      GuardedFloats values(awkward ? Awkward(columns, columns) : Gaussian(columns, columns));
      for (const auto& [rule, by_channel] :
           {std::pair(&KernelTable::delta_rule, false), std::pair(&KernelTable::delta_rule, true),
            std::pair(&KernelTable::state_space, false)}) {
        Compare(Gaussian(key_dim * columns, 3), [&](const KernelTable& table, float* state) {
          std::vector<float> output(columns);
          (table.*rule)({.query = queries.data(),
                         .key = keys.data(),
                         .value = values.data(),
                         .decay = decay,
                         .rate = &rate,
                         .state = state,
                         .output = output.data(),
                         .row_stride = key_dim,
                         .gate_stride = 1,
                         .state_stride = columns,
                         .output_stride = columns,
                         .tokens = 1,
                         .key_dim = key_dim,
                         .columns = columns,
                         .scale = 0.3f,
                         .skip = 0.6f,
                         .decay_by_channel = by_channel});
          std::copy_n(output.data(), columns, state);  // outputs are compared too, in place of the first row
        });
      }
    }
  }
}

TEST_P(NeonExactness, Softmax) {
  for (int n : kLengths) {
    const auto operation = [n](const KernelTable& table, float* x) { table.softmax(x, n); };
    Compare(Gaussian(n, n, 4.0f), operation);
    Compare(Gaussian(n, n, 60.0f), operation);  // many underflow
    for (int seed = 0; seed < 5; ++seed) Compare(Awkward(n, n + seed), operation);
    Compare(std::vector<float>(n, -std::numeric_limits<float>::infinity()), operation);
  }
}

TEST_P(NeonExactness, Elementwise) {
  for (int n : kLengths) {
    for (bool awkward : {false, true}) {
      const std::vector<float> x = awkward ? Awkward(n, n) : Gaussian(n, n);
      GuardedFloats other(awkward ? Awkward(n, n + 1) : Gaussian(n, n + 1));
      Compare(x, [&](const KernelTable& table, float* y) { table.sigmoid_gate(y, other.data(), n); });
      Compare(x, [&](const KernelTable& table, float* y) { table.sigmoid_gate(y, y, n); });
      Compare(x, [&](const KernelTable& table, float* y) { table.swi_glu(y, other.data(), n, y); });
      Compare(x, [&](const KernelTable& table, float* y) { table.swi_glu(other.data(), y, n, y); });
      Compare(x, [&](const KernelTable& table, float* y) { table.ge_glu(y, other.data(), n, y); });
      Compare(x, [&](const KernelTable& table, float* y) { table.ge_glu(other.data(), y, n, y); });
      Compare(x, [&](const KernelTable& table, float* y) { table.squared_relu(y, n); });
      Compare(x, [&](const KernelTable& table, float* y) { table.soft_cap(y, 1.5f, n); });
      for (const SwiGluClamp& clamp : {SwiGluClamp{1.702f, 7.0f}, {1.0f, 0.25f}}) {
        Compare(x, [&](const KernelTable& table, float* y) { table.clamped_swi_glu(clamp, y, other.data(), n, y); });
        Compare(x, [&](const KernelTable& table, float* y) { table.clamped_swi_glu(clamp, other.data(), y, n, y); });
      }
      Compare(x, [&](const KernelTable& table, float* y) { table.add_scaled(y, other.data(), 0.37f, n); });
      Compare(x, [&](const KernelTable& table, float* y) { table.add(y, other.data(), n); });
    }
  }
}

TEST_P(NeonExactness, ActivationsOverTheWholeRange) {
  std::vector<float> gate;
  for (float x = -130.0f; x < 130.0f; x += 0.0037f) gate.push_back(x);
  GuardedFloats up(std::vector<float>(gate.size(), 1.0f));
  const auto n = static_cast<int64_t>(gate.size());
  Compare(gate, [&](const KernelTable& table, float* y) { table.swi_glu(y, up.data(), n, y); });
  Compare(gate, [&](const KernelTable& table, float* y) { table.ge_glu(y, up.data(), n, y); });
  for (const float cap : {1.0f, 30.0f}) {
    Compare(gate, [&](const KernelTable& table, float* y) { table.soft_cap(y, cap, n); });
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, NeonExactness, ::testing::ValuesIn(kTables),
                         [](const auto& info) { return TestName(info.param.name); });

}  // namespace
}  // namespace moed

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  moed::expected_tables.assign(argv + 1, argv + argc);
  return RUN_ALL_TESTS();
}
