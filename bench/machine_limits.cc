// machine_limits: what this machine reads from memory and disk and multiplies at most, and the kernels as a share of that. The
// limits that a kernel is held against are measured in turns with it, since machines are noisy; rates are medians of the turns.
//   memory_read/...   GB/s
//   int8_peak/...     GMAC/s, 10^9 multiplications and additions of 8-bit codes a second, in registers alone
//   disk_read/...     GB/s of --file
//   mat_mul/...       GB/s of weights, GMAC/s, and both as shares: of the best memory_read form, of the format's int8_peak;
//                     with --against, how many times as fast as that backend, of products in turns
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "bench/machine_limits_int8.h"
#include "core/base/buffer.h"
#include "core/base/clock.h"
#include "core/base/executor.h"
#include "core/base/median.h"
#include "core/base/status.h"
#include "core/io/read_backend.h"
#include "core/kernels/backend.h"
#include "core/kernels/cuda/device.h"
#include "core/machine/disk_read.h"
#include "core/machine/memory_read.h"

namespace moed {
namespace {

constexpr int kThreads[] = {1, 2};
constexpr int kTokens[] = {1, 2, 4, 8, 16, 32, 64, 512};
constexpr FormatId kFormats[] = {FormatId::kQ8, FormatId::kQ4,  FormatId::kQ4A, FormatId::kQ3,
                                 FormatId::kQ2, FormatId::kQ4K, FormatId::kQ6K};
constexpr size_t kLimitReadBytes = 64 << 20;  // a turn of reading memory, beyond most caches
constexpr double kTurnSeconds = 0.01;
constexpr int kTurns = 9;

// Experts of published models.
struct Model {
  const char* name;
  int hidden;
  int expert_width;
};
constexpr Model kModels[] = {
    {"Mixtral-8x7B", 4096, 14336}, {"Qwen1.5-MoE-A2.7B", 2048, 1408}, {"Qwen3-30B-A3B", 2048, 768},
    {"OLMoE-1B-7B", 2048, 1024},   {"gpt-oss-20b", 2880, 2880},
};

double Now() { return Clock::Real().NowSeconds(); }

// Memory that every benchmark reads, far larger than caches: any bytes are weights, these with scales of about one.
class Pool {
 public:
  explicit Pool(Buffer memory) : memory_(std::move(memory)) {
    auto* words = reinterpret_cast<uint32_t*>(memory_.data());
    for (size_t i = 0; i < memory_.size() / 4; ++i) words[i] = (static_cast<uint32_t>(i) * 2654435761u) & 0x3fff3fffu;
  }
  size_t size() const { return memory_.size(); }
  std::span<const std::byte> NextToRead() { return {Next(kLimitReadBytes), kLimitReadBytes}; }
  // The next `bytes` of the memory, round and round.
  const std::byte* Next(size_t bytes) {
    bytes = RoundUp(bytes, kPageBytes);
    if (next_ + bytes > memory_.size()) next_ = 0;
    const std::byte* at = memory_.data() + next_;
    next_ += bytes;
    return at;
  }

 private:
  Buffer memory_;
  size_t next_ = 0;
};

// GMAC/s of all threads together.
double Int8Rate(const Int8Loop& loop, Executor& executor) {
  constexpr int kPieces = 16;  // a thread
  constexpr int64_t kIterations = 100000;
  const int pieces = kPieces * executor.threads();
  const double start = Now();
  executor.ParallelFor(pieces, 1, [&](int begin, int end) {
    for (int i = begin; i < end; ++i) loop.run(kIterations);
  });
  return static_cast<double>(pieces) * kIterations * loop.products / (Now() - start) * 1e-9;
}

// One product on matrices that are never in a cache.
class Product {
 public:
  Product(ComputeBackend& backend, Pool& pool, FormatId format, int rows, int cols, int tokens)
      : backend_(backend), pool_(pool), format_(format), rows_(rows), cols_(cols), bytes_(PackedBytes(format, rows, cols)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(tokens) * cols);
    for (float& value : x) value = normal(random);
    storage_ = Buffer::Allocate(ActivationBytes(tokens, cols)).value();
    input_ = backend.Prepare(x.data(), tokens, cols, cols, kAllForms, storage_.span());
    output_.resize(static_cast<size_t>(tokens) * rows);
  }
  double bytes() const { return static_cast<double>(bytes_); }
  double multiplications() const { return static_cast<double>(input_.tokens) * rows_ * cols_; }

  // Seconds of one product, the mean of as many as take about a turn.
  double Seconds() {
    int count = 0;
    const double start = Now();
    double seconds;
    do {
      const MatMulJob job{{format_, rows_, cols_, pool_.Next(bytes_)}, &input_, output_.data(), rows_};
      backend_.MatMul({&job, 1});
      ++count;
      seconds = Now() - start;
    } while (seconds < kTurnSeconds);
    return seconds / count;
  }

 private:
  ComputeBackend& backend_;
  Pool& pool_;
  const FormatId format_;
  const int rows_;
  const int cols_;
  const size_t bytes_;
  Buffer storage_;
  Activations input_;
  std::vector<float> output_;
};

struct MatMulCase {
  std::string_view backend;
  FormatId format;
  int rows;
  int cols;
  int tokens;
  int threads;
};

void MatMulShare(benchmark::State& state, Pool& pool, const MatMulCase& c, const std::string& against) {
  const auto executor = MakeThreadPool(c.threads);
  const auto backend = MakeComputeBackend(c.backend, *executor).value();
  const MemoryRead& read = BestRead(*executor, pool.NextToRead());
  const Int8Loop* loop = FindInt8Loop(c.backend, c.format);
  Product product(*backend, pool, c.format, c.rows, c.cols, c.tokens);
  product.Seconds();  // pages of the output
  std::unique_ptr<ComputeBackend> other;
  std::optional<Product> other_product;
  if (!against.empty()) {
    other = MakeComputeBackend(against, *executor).value();
    other_product.emplace(*other, pool, c.format, c.rows, c.cols, c.tokens);
    other_product->Seconds();
  }
  std::vector<double> bandwidth, compute, bandwidth_share, compute_share, times;
  for (auto _ : state) {
    const double read_rate = ReadRate(read, *executor, pool.NextToRead());
    const double peak = loop == nullptr ? 0 : Int8Rate(*loop, *executor);
    const double seconds = product.Seconds();
    state.SetIterationTime(seconds);
    bandwidth.push_back(product.bytes() / seconds * 1e-9);
    compute.push_back(product.multiplications() / seconds * 1e-9);
    bandwidth_share.push_back(bandwidth.back() / read_rate);
    if (loop != nullptr) compute_share.push_back(compute.back() / peak);
    if (other_product) times.push_back(other_product->Seconds() / seconds);
  }
  state.counters["GB/s"] = Median(bandwidth);
  state.counters["GMAC/s"] = Median(compute);
  state.counters["of_read"] = Median(bandwidth_share);
  if (loop != nullptr) state.counters["of_int8"] = Median(compute_share);
  if (other_product) state.counters["times"] = Median(times);
}

void Memory(benchmark::State& state, Pool& pool, const MemoryRead& read, int threads) {
  const auto executor = MakeThreadPool(threads);
  std::vector<double> rates;
  for (auto _ : state) {
    rates.push_back(ReadRate(read, *executor, pool.NextToRead()));
    state.SetIterationTime(kLimitReadBytes / (rates.back() * 1e9));
  }
  state.counters["GB/s"] = Median(rates);
}

void Int8(benchmark::State& state, const Int8Loop& loop, int threads) {
  const auto executor = MakeThreadPool(threads);
  std::vector<double> rates;
  for (auto _ : state) {
    const double start = Now();
    rates.push_back(Int8Rate(loop, *executor));
    state.SetIterationTime(Now() - start);
  }
  state.counters["GMAC/s"] = Median(rates);
  state.SetLabel(std::string(loop.instructions));
}

void Disk(benchmark::State& state, const std::string& path, std::string_view backend, size_t block_bytes, int depth) {
  constexpr uint64_t kTurnBytes = 256 << 20;
  auto reads = OpenReadBackend(backend, path, {.queue_depth = depth});
  auto memory = Buffer::Allocate(block_bytes * static_cast<size_t>(depth));
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const off_t end = file < 0 ? 0 : lseek(file, 0, SEEK_END);
  const uint64_t file_blocks = static_cast<uint64_t>(std::max<off_t>(end, 0)) / block_bytes;
  if (!reads.ok() || !memory.ok() || file_blocks == 0) {
    state.SkipWithError(!reads.ok() ? reads.status().ToString().c_str() : "the file is shorter than a block");
  } else {
    const uint64_t blocks = std::min(kTurnBytes / block_bytes, file_blocks);
    uint64_t first = 0;
    std::vector<uint64_t> numbers(blocks);
    std::vector<double> rates;
    for (auto _ : state) {
      std::iota(numbers.begin(), numbers.end(), first);
      posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);  // what the page cache holds is no disk read
      const double start = Now();
      const absl::Status status = ReadBlocks(**reads, {0, file_blocks, block_bytes}, numbers, depth, *memory);
      const double seconds = Now() - start;
      state.SetIterationTime(seconds);
      if (!status.ok()) {
        state.SkipWithError(status.ToString().c_str());
        break;
      }
      rates.push_back(static_cast<double>(blocks * block_bytes) / seconds * 1e-9);
      first = first + 2 * blocks <= file_blocks ? first + blocks : 0;
    }
    state.counters["GB/s"] = Median(rates);
  }
  if (file >= 0) close(file);
}

template <class Body>
void Register(const std::string& name, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime()->Iterations(kTurns)->Unit(benchmark::kMillisecond);
}

void RegisterLimits(Pool& pool, const std::string& file) {
  for (int threads : kThreads) {
    const std::string suffix = "/threads:" + std::to_string(threads);
    for (const MemoryRead& read : MemoryReads()) {
      if (!Runs(read.backend)) continue;
      Register(StrCat("memory_read/", read.name, suffix),
               [&pool, &read, threads](benchmark::State& state) { Memory(state, pool, read, threads); });
    }
    for (const Int8Loop& loop : Int8Loops()) {
      if (!Runs(loop.backend)) continue;
      Register(StrCat("int8_peak/", loop.backend, "/", FormatOf(loop.format).name, suffix),
               [&loop, threads](benchmark::State& state) { Int8(state, loop, threads); });
    }
  }
  if (file.empty()) return;
  for (const ReadBackendRow& row : ReadBackends()) {
    for (size_t kib : {64, 256, 1024, 4096}) {
      for (int depth : {1, 2, 4, 8}) {
        Register(StrCat("disk_read/", row.name, "/KiB:", std::to_string(kib), "/depth:", std::to_string(depth)),
                 [&file, &row, kib, depth](benchmark::State& state) { Disk(state, file, row.name, kib << 10, depth); });
      }
    }
  }
}

void RegisterMatMul(Pool& pool, const std::string& against) {
  for (const ComputeBackendRow& row : ComputeBackends()) {
    if (row.name == "scalar" || !row.supported()) continue;
    for (const Model& model : kModels) {
      for (const auto& [part, rows, cols] :
           {std::tuple("gate_up", 2 * model.expert_width, model.hidden), std::tuple("down", model.hidden, model.expert_width)}) {
        for (FormatId format : kFormats) {
          for (int tokens : kTokens) {
            for (int threads : kThreads) {
              const MatMulCase c{row.name, format, rows, cols, tokens, threads};
              Register(StrCat("mat_mul/", row.name, "/", model.name, "/", part, "/", FormatOf(format).name,
                              "/tokens:", std::to_string(tokens), "/threads:", std::to_string(threads)),
                       [&pool, &against, c](benchmark::State& state) { MatMulShare(state, pool, c, against); });
            }
          }
        }
      }
    }
  }
}

// Beside the other lines about this machine, which benchmark prints to standard error as well.
void PrintCudaDevices() {
  const auto devices = FindCudaDevices();
  const std::string line = devices.ok() ? StrCat("CUDA: ", Describe(*devices)) : std::string(devices.status().message());
  std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace
}  // namespace moed

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);  // takes its own flags, such as --benchmark_filter=mat_mul/avx2/.*tokens:512
  CLI::App app("What this machine reads and multiplies at most, and the kernels as a share of that.");
  std::string file;
  std::string against;
  size_t pool_mib = 512;
  app.add_option("--file", file, "file for disk_read, at least 256 MiB; without it the disk is left out")
      ->check(CLI::ExistingFile);
  app.add_option("--pool-mib", pool_mib, "memory to read, far beyond the caches")
      ->check(CLI::Range(256, 65536))
      ->capture_default_str();
  app.add_option("--against", against, "compute backend that products are compared with")->check([](const std::string& name) {
    return moed::Runs(name) ? std::string() : "no compute backend of this machine: " + name;
  });
  CLI11_PARSE(app, argc, argv);
  auto memory = moed::Buffer::Allocate(pool_mib << 20);
  if (!memory.ok()) {
    std::fprintf(stderr, "%s\n", memory.status().ToString().c_str());
    return 1;
  }
  moed::Pool pool(std::move(memory).value());
  moed::PrintCudaDevices();
  moed::RegisterLimits(pool, file);
  moed::RegisterMatMul(pool, against);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
