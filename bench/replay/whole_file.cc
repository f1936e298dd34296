#include "bench/replay/whole_file.h"

#include <lzma.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/cleanup/cleanup.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr uint64_t kMostMemoryBytes = 256ull << 20;  // of the decoder
constexpr uint64_t kMostContentsBytes = 4ull << 30;

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound(path, ": cannot be opened for reading");
  std::string contents((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return DataLoss(path, ": reading failed after ", contents.size(), " bytes");
  return contents;
}

absl::StatusOr<std::string> Decompress(const std::string& path, const std::string& compressed) {
  lzma_stream stream = LZMA_STREAM_INIT;
  const absl::Cleanup end = [&stream] { lzma_end(&stream); };
  if (lzma_stream_decoder(&stream, kMostMemoryBytes, LZMA_CONCATENATED) != LZMA_OK) {
    return ResourceExhausted(path, ": no memory for the xz decoder");
  }
  stream.next_in = reinterpret_cast<const uint8_t*>(compressed.data());
  stream.avail_in = compressed.size();
  std::string contents;
  std::string block(1 << 20, '\0');
  for (;;) {
    stream.next_out = reinterpret_cast<uint8_t*>(block.data());
    stream.avail_out = block.size();
    const lzma_ret result = lzma_code(&stream, LZMA_FINISH);
    contents.append(block, 0, block.size() - stream.avail_out);
    if (result == LZMA_STREAM_END) return contents;
    if (result != LZMA_OK) {
      return DataLoss(path, ": the xz stream is damaged or ends early (offset ", stream.total_in, " of ", compressed.size(),
                      " bytes)");
    }
    if (contents.size() > kMostContentsBytes) {
      return InvalidArgument(path, ": more than ", kMostContentsBytes, " bytes once decompressed, which is the most allowed");
    }
  }
}

}  // namespace

absl::StatusOr<WholeFile> ReadPlainOrXz(const std::string& path) {
  std::error_code ignored;
  WholeFile file{path, {}};
  if (std::filesystem::exists(path, ignored)) {
    MOED_ASSIGN_OR_RETURN(file.contents, ReadWhole(path));
    return file;
  }
  file.path = path + ".xz";
  if (!std::filesystem::exists(file.path, ignored)) return NotFound("neither ", path, " nor ", file.path, " exists");
  MOED_ASSIGN_OR_RETURN(const std::string compressed, ReadWhole(file.path));
  MOED_ASSIGN_OR_RETURN(file.contents, Decompress(file.path, compressed));
  return file;
}

}  // namespace moed
