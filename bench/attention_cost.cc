// attention_cost: attention as a share of what the machine can do: of its multiply-adds in registers, and of reading each key and
// value once. Both are measured in turns with it, since machines are noisy; medians of the turns. The bound is the greater of the
// two. With one thread everything is its processor's time, so that it matters little what else runs.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "bench/float_peak.h"
#include "core/base/buffer.h"
#include "core/base/executor.h"
#include "core/base/median.h"
#include "core/base/status.h"
#include "core/kernels/backend.h"
#include "core/machine/memory_read.h"

namespace moed {
namespace {

constexpr size_t kReadBytes = 64 << 20;  // a turn of reading memory
constexpr size_t kKvBytes = 192 << 20;   // keys and values, at least
constexpr double kTurnSeconds = 0.01;

double Seconds(const Executor& executor) {
  timespec now;
  clock_gettime(executor.threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// A row of heads as a released model has them; rank > 0: of latent attention, head_dim being its rotary dimensions.
struct Heads {
  const char* name;
  int heads, kv_heads, head_dim;
  int rank = 0;
  int window = 0;
};
constexpr Heads kHeads[] = {
    {"Qwen3-30B-A3B, 32 of 4 x 128", 32, 4, 128},
    {"Mixtral-8x7B, 32 of 8 x 128", 32, 8, 128},
    {"OLMoE-1B-7B, 16 of 16 x 128", 16, 16, 128},
    {"gpt-oss-20b, 64 of 8 x 64", 64, 8, 64},
    {"gpt-oss-20b, a window of 128", 64, 8, 64, 0, 128},
    {"Qwen3-Next, 16 of 2 x 256", 16, 2, 256},
    {"DeepSeek-V2-Lite, 16, latent 512 + 64", 16, 1, 64, 512},
};

// The attention of `tokens` rows from `position` on in as many layers, one after the other, as no cache holds.
class Cell {
 public:
  Cell(ComputeBackend& backend, const Heads& heads, KvFormat format, int position, int tokens)
      : backend_(backend), heads_(heads), format_(format), position_(position), tokens_(tokens) {
    const int pages = (position + tokens + kKvPageTokens - 1) / kKvPageTokens;
    const int unseen = heads.window > 0 ? std::max(position + 1 - heads.window, 0) / kKvPageTokens : 0;
    const size_t page_bytes = RoundUp(kKvPageTokens * PositionBytes(), 64);
    const int layers = static_cast<int>(kKvBytes / ((pages - unseen) * page_bytes)) + 1;
    memory_ = Buffer::Allocate(static_cast<size_t>(unseen + (pages - unseen) * layers) * page_bytes).value();
    pages_.resize(static_cast<size_t>(layers));
    for (int page = 0; page < pages; ++page) {
      for (int layer = 0; layer < layers; ++layer) {  // of which each has its own pages that a row sees
        const int at = page < unseen ? page : unseen + (page - unseen) * layers + layer;
        pages_[static_cast<size_t>(layer)].push_back(memory_.data() + static_cast<size_t>(at) * page_bytes);
      }
    }
    Fill();
  }

  double multiply_adds() const {
    double seen = 0;
    for (int i = position_ + 1; i <= position_ + tokens_; ++i) seen += heads_.window > 0 ? std::min(heads_.window, i) : i;
    return seen * heads_.heads * (heads_.rank > 0 ? 2 * heads_.rank + heads_.head_dim : 2 * heads_.head_dim);
  }
  double bytes() const {
    const int all = position_ + tokens_;
    return static_cast<double>(PositionBytes()) * (heads_.window > 0 ? std::min(all, heads_.window + tokens_ - 1) : all);
  }
  // Seconds of one layer, the mean of as many as take about a turn.
  double MeanSeconds(const Executor& executor) {
    int count = 0;
    const double start = Seconds(executor);
    double seconds;
    do {
      Attend(next_++ % pages_.size());
      ++count;
      seconds = Seconds(executor) - start;
    } while (seconds < kTurnSeconds);
    return seconds / count;
  }

 private:
  size_t PositionBytes() const {
    return static_cast<size_t>(heads_.rank > 0 ? LatentRowBytes(format_, heads_.rank, heads_.head_dim)
                                               : 2 * heads_.kv_heads * KvRowBytes(format_, heads_.head_dim));
  }
  AttentionShape shape() const {
    return {.heads = heads_.heads,
            .kv_heads = heads_.kv_heads,
            .head_dim = heads_.head_dim,
            .scale = 0.1f,
            .kv_format = format_,
            .window = heads_.window};
  }
  LatentShape latent_shape() const {
    LatentShape shape;
    shape.heads = heads_.heads;
    shape.rank = heads_.rank;
    shape.rotary_dims = heads_.head_dim;
    shape.scale = 0.1f;
    shape.kv_format = format_;
    return shape;
  }
  KvRun Run(size_t layer, int position, int tokens) const {
    return {.pages = pages_[layer], .position = position, .tokens = tokens};
  }
  void Fill() {
    const int all = position_ + tokens_;
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const auto numbers = [&](int64_t count) {
      std::vector<float> some(static_cast<size_t>(count));
      for (float& x : some) x = normal(random);
      return some;
    };
    const int row = heads_.rank > 0 ? heads_.rank : heads_.kv_heads * heads_.head_dim;
    const std::vector<float> keys = numbers(int64_t{all} * row);
    const std::vector<float> values = numbers(int64_t{all} * (heads_.rank > 0 ? heads_.head_dim : row));
    for (size_t layer = 0; layer < pages_.size(); ++layer) {
      const KvRun run = Run(layer, 0, all);
      if (heads_.rank > 0) {
        backend_.StoreLatent(latent_shape(), {&run, 1}, keys.data(), values.data());
      } else {
        backend_.StoreKv(shape(), {&run, 1}, keys.data(), values.data());
      }
    }
    const int width = heads_.rank > 0 ? heads_.rank : heads_.head_dim;
    query_ = numbers(int64_t{tokens_} * heads_.heads * width);
    rotated_ = numbers(heads_.rank > 0 ? int64_t{tokens_} * heads_.heads * heads_.head_dim : 0);
    output_.resize(query_.size());
    const int threads = backend_.threads();
    scores_.resize(heads_.rank > 0 ? ComputeBackend::LatentScratchFloats(threads, all)
                                   : ComputeBackend::AttentionScratchFloats(threads, all));
  }
  void Attend(size_t layer) {
    const KvRun run = Run(layer, position_, tokens_);
    if (heads_.rank > 0) {
      backend_.AttendLatent(latent_shape(), {&run, 1}, query_.data(), rotated_.data(), heads_.head_dim, output_.data(), scores_);
    } else {
      backend_.Attention(shape(), {&run, 1}, query_.data(), output_.data(), scores_);
    }
  }

  ComputeBackend& backend_;
  const Heads heads_;
  const KvFormat format_;
  const int position_, tokens_;
  size_t next_ = 0;
  Buffer memory_;
  std::vector<std::vector<std::byte*>> pages_;  // of each layer
  std::vector<float> query_, rotated_, output_, scores_;
};

struct Options {
  std::string backend = "auto";
  std::string kv_format = "f16";
  int threads = 2;
  int position = 1999;
  int tokens = 1;
  int turns = 9;
};

absl::Status Run(const Options& options) {
  const auto executor = MakeThreadPool(options.threads);
  MOED_ASSIGN_OR_RETURN(const auto backend, MakeComputeBackend(options.backend, *executor));
  const auto format = static_cast<KvFormat>(std::ranges::find(kKvFormatNames, options.kv_format) - std::begin(kKvFormatNames));
  MOED_ASSIGN_OR_RETURN(const Buffer memory, Buffer::Allocate(kReadBytes));
  std::fill_n(memory.data(), memory.size(), std::byte{1});
  const MemoryRead& best_read = BestRead(*executor, memory.span());
  std::printf("%s, %d threads, %s, %d tokens from position %d on\n%-40s %9s %8s %8s %8s %8s %8s\n",
              std::string(backend->name()).c_str(), options.threads, options.kv_format.c_str(), options.tokens, options.position,
              "heads", "ms", "GMAC/s", "of peak", "GB/s", "of read", "x bound");
  for (const Heads& heads : kHeads) {
    Cell cell(*backend, heads, format, options.position, options.tokens);
    cell.MeanSeconds(*executor);
    std::vector<double> seconds, of_peak, of_read, of_bound;
    for (int turn = 0; turn < options.turns; ++turn) {
      const double start = Seconds(*executor);
      const double multiply_adds = RunMultiplyAdds(backend->name(), *executor);
      const double multiplied = Seconds(*executor);
      ReadRate(best_read, *executor, memory.span());
      const double read = Seconds(*executor);
      const double at_peak = multiply_adds > 0 ? cell.multiply_adds() / multiply_adds * (multiplied - start) : 0;
      const double at_read = cell.bytes() / static_cast<double>(memory.size()) * (read - multiplied);
      seconds.push_back(cell.MeanSeconds(*executor));
      of_peak.push_back(at_peak / seconds.back());
      of_read.push_back(at_read / seconds.back());
      of_bound.push_back(seconds.back() / std::max(at_peak, at_read));
    }
    const double median = Median(seconds);
    std::printf("%-40s %9.3f %8.1f %8.2f %8.2f %8.2f %8.2f\n", heads.name, median * 1e3, cell.multiply_adds() / median * 1e-9,
                Median(of_peak), cell.bytes() / median * 1e-9, Median(of_read), Median(of_bound));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace moed

int main(int argc, char** argv) {
  CLI::App app("Attention as a share of the processor's multiply-adds and of the memory's read bandwidth.");
  moed::Options options;
  app.add_option("--backend", options.backend, "kernels")->capture_default_str();
  app.add_option("--kv-format", options.kv_format, "of keys and values")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(moed::kKvFormatNames), std::end(moed::kKvFormatNames))))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "threads")->check(CLI::Range(1, 256))->capture_default_str();
  app.add_option("--position", options.position, "of the first row")->check(CLI::Range(0, 1 << 20))->capture_default_str();
  app.add_option("--tokens", options.tokens, "rows: 1 decodes")->check(CLI::Range(1, 1 << 16))->capture_default_str();
  app.add_option("--turns", options.turns, "turns")->check(CLI::Range(1, 1000))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = moed::Run(options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
