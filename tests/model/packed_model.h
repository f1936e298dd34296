// The tiny checkpoints of tests/model/data, packed with the real packer, and a loaded model to feed tokens to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/io/read_backend.h"
#include "core/kernels/backend.h"
#include "core/model/model.h"
#include "core/store/writer.h"
#include "tests/model/memory_provider.h"
#include "tests/paths.h"
#include "tests/store/small_store.h"
#include "tools/pack/packer.h"

namespace moed {

inline std::string DataFolder() { return UnpackedCheckpoint(""); }

// One a folder, sorted. Those of models whose prompt is computed whole (encoder-decoders, prefix-LMs), or the others.
inline std::vector<std::string> FolderNames(bool whole_prompts) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(DataFolder())) {
    const std::string name = entry.path().filename();
    const bool whole = name.starts_with("switch_transformers") || name.starts_with("gptsan_japanese");
    if (whole == whole_prompts) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}
// "mixtral", "olmoe", ...
inline std::vector<std::string> CheckpointNames() { return FolderNames(false); }
inline std::vector<std::string> WholePromptNames() { return FolderNames(true); }

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Packs once for each checkpoint (its folder's name, or a path) and formats of experts, the reference first, which the
// trunk has too, and keeps the store for the life of the program.
inline const StoreReader& PackedStore(const std::string& checkpoint_name, const std::vector<FormatId>& formats) {
  static MemoryFolder folder;
  static std::map<std::pair<std::string, std::vector<FormatId>>, std::unique_ptr<StoreReader>> stores;
  std::unique_ptr<StoreReader>& store = stores[{checkpoint_name, formats}];
  if (store != nullptr) return *store;
  std::string file_name = StrCat(checkpoint_name, ".", JoinNames(formats, [](FormatId f) { return FormatOf(f).name; }));
  std::replace(file_name.begin(), file_name.end(), '/', '.');
  const std::string path = folder / file_name;
  auto checkpoint = Checkpoint::Open(std::filesystem::path(DataFolder()) / checkpoint_name);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  PackEncodings encodings{.trunk = Encoding{formats[0]}};
  for (const FormatId format : formats) encodings.experts.push_back(Encoding{format});
  auto plan = MakePlan(*checkpoint, encodings);
  EXPECT_TRUE(plan.ok()) << plan.status();
  auto writer = StoreWriter::Open(path, plan->description, {.identity = plan->identity});
  EXPECT_TRUE(writer.ok()) << writer.status();
  InlineExecutor executor;
  std::FILE* nowhere = std::fopen("/dev/null", "w");
  Progress progress("packing", plan->piece_bytes(), 0, nowhere, Clock::Real());
  const absl::Status packed = Pack(*plan, **writer, executor, progress).status();
  std::fclose(nowhere);
  EXPECT_TRUE(packed.ok()) << packed;
  auto opened = StoreReader::Open(path);
  EXPECT_TRUE(opened.ok()) << opened.status();
  store = *std::move(opened);
  return *store;
}

inline const StoreReader& PackedStore(const std::string& checkpoint_name, FormatId format) {
  return PackedStore(checkpoint_name, std::vector{format});
}

struct ModelSetup {
  std::string backend = "scalar";
  int threads = 1;
  int max_step_tokens = 96;
  int logits_rows = 5;
  int kv_pages = 40;
  int kv_slots = 8;
  int page_tokens = kKvPageTokens;
  bool windows_keep_all = false;  // the pool has pages of all layers, as if none had a window
  int max_positions = 0;          // in place of the model's; 0: those
  int max_context = 0;            // 0: all positions
  int own_step_tokens = 0;
  KvFormat kv_format = KvFormat::kF32;
  Trace* trace = nullptr;
  bool fast_matmul = false;
  ComputeBackend* use_backend = nullptr;  // in place of one by its name; outlives the model
  bool stored_embedding = false;
  ReadBackend* rows = nullptr;  // of a stored embedding, in place of the file's; outlives the model
};

using Logits = std::vector<std::vector<float>>;  // [wanted token][vocabulary]

inline bool SameBits(const Logits& a, const Logits& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size() || std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
  }
  return true;
}

// One conversation of a test.
struct TestSequence {
  SequenceId id;
  KvSequence kv;
};

class PackedModel {
 public:
  explicit PackedModel(const StoreReader& store, const ModelSetup& setup = {}) : executor_(MakeThreadPool(setup.threads)) {
    auto spec = SpecFromJson(store.description().model_spec);
    EXPECT_TRUE(spec.ok()) << spec.status();
    auto backend = MakeComputeBackend(setup.backend, *executor_);
    EXPECT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    if (setup.max_positions > 0) spec->max_positions = setup.max_positions;
    ModelSpec kept = *spec;
    if (setup.windows_keep_all) kept.windows.clear();
    ComputeBackend& used = setup.use_backend != nullptr ? *setup.use_backend : *backend_;
    auto kv = KvPool::Create(
        kept, {.pages = setup.kv_pages, .slots = setup.kv_slots, .format = setup.kv_format, .page_tokens = setup.page_tokens},
        used.memory());
    EXPECT_TRUE(kv.ok()) << kv.status();
    kv_ = *std::move(kv);
    const int max_context = setup.max_context > 0 ? setup.max_context : spec->max_positions;
    const ModelOptions options = {setup.max_step_tokens,
                                  max_context,
                                  setup.logits_rows,
                                  setup.own_step_tokens,
                                  Model::ExpertInputs(store.description()),
                                  setup.fast_matmul,
                                  setup.stored_embedding};
    if (setup.stored_embedding && setup.rows == nullptr) {
      auto rows = OpenReadBackend("buffered", store.path(), {});
      EXPECT_TRUE(rows.ok()) << rows.status();
      rows_ = *std::move(rows);
    }
    auto model = Model::Load({.store = store,
                              .spec = *spec,
                              .backend = used,
                              .kv = *kv_,
                              .trace = setup.trace,
                              .rows = setup.rows != nullptr ? setup.rows : rows_.get()},
                             options);
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  Model& model() { return *model_; }
  KvPool& kv() { return *kv_; }
  const ModelSpec& spec() const { return model_->spec(); }

  // All chunks in one step. [chunk]: logits of all its tokens.
  std::vector<Logits> Step(ExpertProvider& provider, std::span<SequenceChunk> chunks, StepWatcher* watcher = nullptr) {
    std::vector<Logits> logits(chunks.size());
    for (SequenceChunk& chunk : chunks) {
      EXPECT_TRUE(kv_->Reserve(*chunk.kv, chunk.kv->length + static_cast<int>(chunk.tokens.size())));
    }
    const auto take = [&](int chunk, int token, std::span<float> row) {
      EXPECT_EQ(static_cast<int>(logits[chunk].size()), token - chunks[chunk].first_logits);
      logits[chunk].emplace_back(row.begin(), row.end());
    };
    model_->Forward(chunks, provider, take, watcher);
    return logits;
  }

  // One sequence alone, cut into chunks of `chunk_tokens`.
  Logits Feed(ExpertProvider& provider, TestSequence& sequence, std::span<const TokenId> tokens, size_t chunk_tokens) {
    Logits all;
    for (size_t begin = 0; begin < tokens.size(); begin += chunk_tokens) {
      const auto piece = tokens.subspan(begin, std::min(chunk_tokens, tokens.size() - begin));
      SequenceChunk chunk = {.sequence = sequence.id, .phase = Phase::kPrefill, .tokens = piece, .kv = &sequence.kv};
      const Logits logits = Step(provider, std::span(&chunk, 1))[0];
      all.insert(all.end(), logits.begin(), logits.end());
      EXPECT_TRUE(chunk.status.ok()) << chunk.status;
    }
    return all;
  }

 private:
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ComputeBackend> backend_;
  std::unique_ptr<KvPool> kv_;
  std::unique_ptr<ReadBackend> rows_;
  std::unique_ptr<Model> model_;
};

}  // namespace moed
