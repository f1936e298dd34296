#include "core/store/coding.h"

#define ZSTD_STATIC_LINKING_ONLY  // the encoder's literal compression mode; what it writes every zstd reads
#include <zstd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/quant/format.h"
#include "core/store/coded_chunks.h"
#include "core/store/description.h"

namespace moed {
namespace {

constexpr size_t kChunkBytes = 256 << 10;  // at most
constexpr size_t kMostPlanes = 4;
constexpr size_t kFp8ScaleBytes = 32;
constexpr size_t kSmallScaleBytes = 16;  // with the bytes of offsets
constexpr double kLeastPlaneGain = 0.02;

// What a chunk is split into. Of numbers of `width` bytes, turned left by one bit so that the sign is the last: a plane for each
// byte. Of blocks: the even and the odd bytes of their scales, and their codes.
struct Split {
  size_t width = 0;  // 0: blocks
  size_t block_bytes = 0;
  size_t scale_bytes = 0;

  size_t planes() const { return width > 0 ? width : 3; }
  size_t PlaneBytes(size_t plane, size_t bytes) const {
    if (width > 0) return bytes / width;
    return bytes / block_bytes * (plane < 2 ? scale_bytes / 2 : block_bytes - scale_bytes);
  }
};

Split SplitOf(FormatId id) {
  const Format& format = FormatOf(id);
  if (id == FormatId::kF32) return {sizeof(float), format.panel_block_bytes, 0};
  if (id == FormatId::kFp8) return {0, format.panel_block_bytes, kFp8ScaleBytes};
  if (!format.integer_activations()) return {sizeof(uint16_t), format.panel_block_bytes, 0};
  const bool small_scales = id == FormatId::kQ2S || id == FormatId::kQ2P;
  return {0, format.panel_block_bytes, small_scales ? kSmallScaleBytes : format.scale_bytes};
}

// Of a segment, as alike as whole blocks allow, so that none is short.
size_t ChunkBytes(const Split& split, size_t segment_bytes) {
  const size_t blocks = segment_bytes / split.block_bytes, most = kChunkBytes / split.block_bytes;
  const size_t chunks = (blocks + most - 1) / most;
  return (blocks + chunks - 1) / chunks * split.block_bytes;
}

template <class Number>
void SplitNumbers(std::span<const std::byte> chunk, std::byte* planes) {
  const size_t count = chunk.size() / sizeof(Number);
  for (size_t i = 0; i < count; ++i) {
    Number number;
    std::memcpy(&number, chunk.data() + i * sizeof(Number), sizeof(Number));
    number = std::rotl(number, 1);
    for (size_t p = 0; p < sizeof(Number); ++p) planes[p * count + i] = static_cast<std::byte>(number >> (8 * p));
  }
}

template <class Number>
void JoinNumbers(const std::byte* planes, std::span<std::byte> chunk) {
  const size_t count = chunk.size() / sizeof(Number);
  for (size_t i = 0; i < count; ++i) {
    Number number = 0;
    for (size_t p = 0; p < sizeof(Number); ++p)
      number |= static_cast<Number>(static_cast<Number>(planes[p * count + i]) << (8 * p));
    number = std::rotr(number, 1);
    std::memcpy(chunk.data() + i * sizeof(Number), &number, sizeof(Number));
  }
}

// Byte by byte of scales, block by block of codes: `move(in the chunk, in the planes, bytes)`.
template <class Move>
void ForBlocks(const Split& split, size_t chunk_bytes, Move move) {
  const size_t half = split.scale_bytes / 2, codes = split.block_bytes - split.scale_bytes;
  const size_t blocks = chunk_bytes / split.block_bytes;
  for (size_t b = 0; b < blocks; ++b) {
    const size_t at = b * split.block_bytes;
    for (size_t i = 0; i < half; ++i) {
      move(at + 2 * i, b * half + i, 1);
      move(at + 2 * i + 1, (blocks + b) * half + i, 1);
    }
    move(at + split.scale_bytes, 2 * blocks * half + b * codes, codes);
  }
}

// Plane after plane.
void SplitChunk(const Split& split, std::span<const std::byte> chunk, std::byte* planes) {
  if (split.width == sizeof(uint16_t)) return SplitNumbers<uint16_t>(chunk, planes);
  if (split.width == sizeof(uint32_t)) return SplitNumbers<uint32_t>(chunk, planes);
  ForBlocks(split, chunk.size(),
            [&](size_t from, size_t to, size_t bytes) { std::memcpy(planes + to, chunk.data() + from, bytes); });
}

void JoinChunk(const Split& split, const std::byte* planes, std::span<std::byte> chunk) {
  if (split.width == sizeof(uint16_t)) return JoinNumbers<uint16_t>(planes, chunk);
  if (split.width == sizeof(uint32_t)) return JoinNumbers<uint32_t>(planes, chunk);
  ForBlocks(split, chunk.size(),
            [&](size_t to, size_t from, size_t bytes) { std::memcpy(chunk.data() + to, planes + from, bytes); });
}

using Encoder = std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)>;

// Nothing but Huffman codes: what a search for repetitions finds in weights costs more than it saves.
Encoder MakeEncoder() {
  Encoder encoder(ZSTD_createCCtx(), ZSTD_freeCCtx);
  MOED_CHECK(encoder != nullptr);
  const std::pair<ZSTD_cParameter, int> parameters[] = {{ZSTD_c_strategy, ZSTD_fast},
                                                        {ZSTD_c_minMatch, 7},
                                                        {ZSTD_c_hashLog, ZSTD_HASHLOG_MIN},
                                                        {ZSTD_c_targetLength, ZSTD_TARGETLENGTH_MAX},
                                                        {ZSTD_c_literalCompressionMode, ZSTD_ps_enable}};
  for (const auto& [parameter, value] : parameters) {
    MOED_CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(encoder.get(), parameter, value)));
  }
  return encoder;
}

// The plane coded, or itself where that gains too little; behind `out`.
uint32_t AppendPlane(ZSTD_CCtx* encoder, std::span<const std::byte> plane, std::vector<std::byte>& out) {
  const size_t begin = out.size();
  out.resize(begin + ZSTD_compressBound(plane.size()));
  size_t bytes = ZSTD_compress2(encoder, out.data() + begin, out.size() - begin, plane.data(), plane.size());
  MOED_CHECK(!ZSTD_isError(bytes));
  if (static_cast<double>(bytes) > (1 - kLeastPlaneGain) * static_cast<double>(plane.size())) {
    bytes = plane.size();
    std::ranges::copy(plane, out.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  out.resize(begin + bytes);
  return static_cast<uint32_t>(bytes);
}

}  // namespace

std::vector<std::byte> EncodeSegment(FormatId format, std::span<const std::byte> plain, int least_gain) {
  const Split split = SplitOf(format);
  MOED_CHECK(plain.size() % split.block_bytes == 0 && !plain.empty());
  const size_t chunk_bytes = ChunkBytes(split, plain.size());
  const Encoder encoder = MakeEncoder();
  std::vector<std::byte> coded, planes(chunk_bytes);
  std::vector<std::pair<size_t, size_t>> ends;  // of chunks: plain, coded
  for (size_t begin = 0; begin < plain.size(); begin += chunk_bytes) {
    const auto chunk = plain.subspan(begin, std::min(chunk_bytes, plain.size() - begin));
    SplitChunk(split, chunk, planes.data());
    const size_t lengths_at = coded.size();
    coded.resize(lengths_at + split.planes() * sizeof(uint32_t));
    for (size_t p = 0, at = 0; p < split.planes(); ++p) {
      const size_t bytes = split.PlaneBytes(p, chunk.size());
      const uint32_t length = AppendPlane(encoder.get(), std::span(planes).subspan(at, bytes), coded);
      std::memcpy(coded.data() + lengths_at + p * sizeof(length), &length, sizeof(length));
      at += bytes;
    }
    ends.emplace_back(begin + chunk.size(), coded.size());
  }
  const uint64_t plain_pages = RoundUp(plain.size(), kStoreAlignment), coded_pages = RoundUp(coded.size(), kStoreAlignment);
  if (coded_pages * 100 > plain_pages * static_cast<uint64_t>(100 - least_gain)) return {};
  ends.pop_back();
  const auto in_place = [&](const auto& end) { return end.first <= plain_pages - coded_pages + end.second; };
  return std::ranges::all_of(ends, in_place) ? coded : std::vector<std::byte>();
}

size_t BytesOfChunks(FormatId format, uint64_t segment_bytes) { return ChunkBytes(SplitOf(format), segment_bytes); }

absl::StatusOr<size_t> CodedBytesOfFirst(FormatId format, std::span<const std::byte> coded) {
  const size_t planes = SplitOf(format).planes();
  std::array<uint32_t, kMostPlanes> lengths{};
  uint64_t bytes = planes * sizeof(uint32_t);
  if (coded.size() < bytes) return DataLoss("cannot be decoded: it ends too early");
  std::memcpy(lengths.data(), coded.data(), bytes);
  for (size_t p = 0; p < planes; ++p) bytes += lengths[p];
  if (coded.size() < bytes) return DataLoss("cannot be decoded: ", bytes, " bytes of a chunk, at most ", coded.size());
  return bytes;
}

struct SegmentDecoder::State {
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> zstd{ZSTD_createDCtx(), ZSTD_freeDCtx};
  std::vector<std::byte> planes;

  absl::Status TakePlane(std::span<const std::byte> coded, std::span<std::byte> plane) {
    if (coded.size() == plane.size()) {
      std::ranges::copy(coded, plane.begin());
      return absl::OkStatus();
    }
    const size_t bytes = ZSTD_decompressDCtx(zstd.get(), plane.data(), plane.size(), coded.data(), coded.size());
    if (ZSTD_isError(bytes)) return DataLoss("cannot be decoded: ", ZSTD_getErrorName(bytes));
    if (bytes != plane.size()) return DataLoss("cannot be decoded: ", bytes, " bytes instead of ", plane.size());
    return absl::OkStatus();
  }

  // The planes of a chunk of so many bytes, off the front of `coded`.
  absl::Status TakePlanes(const Split& split, size_t chunk_bytes, std::span<const std::byte>& coded) {
    std::array<uint32_t, kMostPlanes> lengths{};
    const size_t header = split.planes() * sizeof(uint32_t);
    if (coded.size() < header) return DataLoss("cannot be decoded: it ends too early");
    std::memcpy(lengths.data(), coded.data(), header);
    coded = coded.subspan(header);
    for (size_t p = 0, at = 0; p < split.planes(); ++p) {
      const size_t bytes = split.PlaneBytes(p, chunk_bytes);
      if (lengths[p] > std::min(bytes, coded.size())) {
        return DataLoss("cannot be decoded: ", lengths[p], " bytes of a plane, at most ", std::min(bytes, coded.size()));
      }
      MOED_RETURN_IF_ERROR(TakePlane(coded.first(lengths[p]), std::span(planes).subspan(at, bytes)));
      coded = coded.subspan(lengths[p]);
      at += bytes;
    }
    return absl::OkStatus();
  }
};

SegmentDecoder::SegmentDecoder() : state_(std::make_unique<State>()) { MOED_CHECK(state_->zstd != nullptr); }
SegmentDecoder::~SegmentDecoder() = default;

absl::Status SegmentDecoder::Decode(FormatId format, std::span<const std::byte> coded, std::span<std::byte> plain) {
  const Split split = SplitOf(format);
  MOED_CHECK(plain.size() % split.block_bytes == 0 && !plain.empty());
  const size_t chunk_bytes = ChunkBytes(split, plain.size());
  state_->planes.resize(chunk_bytes);
  const bool in_place = coded.data() >= plain.data() && coded.data() < plain.data() + plain.size();
  for (size_t begin = 0; begin < plain.size(); begin += chunk_bytes) {
    const auto chunk = plain.subspan(begin, std::min(chunk_bytes, plain.size() - begin));
    MOED_RETURN_IF_ERROR(state_->TakePlanes(split, chunk.size(), coded));
    if (in_place && !coded.empty() && chunk.data() + chunk.size() > coded.data()) {
      return DataLoss("cannot be decoded: it would write over what is not decoded yet");
    }
    JoinChunk(split, state_->planes.data(), chunk);
  }
  if (!coded.empty()) return DataLoss("cannot be decoded: ", coded.size(), " bytes are left");
  return absl::OkStatus();
}

}  // namespace moed
