// The real engine over a tiny checkpoint: one request at a time on the caller's thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/engine/kv_spill.h"
#include "core/engine/step_engine.h"
#include "core/io/nameless_file.h"
#include "tests/engine/observed_answer.h"
#include "tests/model/long_sequences.h"

namespace moed {

struct ModelServing {
  // `clock` outlives it. With a file, keys and values of idle sessions go there.
  ModelServing(const std::string& checkpoint, const Tokenizer& tokenizer, const Clock& clock, const ModelSetup& setup,
               const StepEngineOptions& options, std::shared_ptr<NamelessFile> file = nullptr, uint64_t disk = 0)
      : store(PackedStore(checkpoint, FormatId::kQ8)), model(store, setup), provider(store) {
    if (file != nullptr) OpenSpill(options, std::move(file), disk, clock);
    EngineParts parts{model.model(), provider, model.kv(), tokenizer, clock};
    parts.spill = spill.get();
    auto made = StepEngine::Create(options, parts);
    EXPECT_TRUE(made.ok()) << made.status();
    engine = *std::move(made);
  }

  std::shared_ptr<ObservedAnswer> Ask(EngineRequest request) {
    auto answer = std::make_shared<ObservedAnswer>();
    auto id = engine->Submit(std::move(request), answer);
    EXPECT_TRUE(id.ok()) << id.status();
    if (id.ok()) last = *id;
    return answer;
  }
  std::shared_ptr<ObservedAnswer> Serve(EngineRequest request) {
    auto answer = Ask(std::move(request));
    while (engine->RunOneStep()) {
    }
    EXPECT_TRUE(answer->status.ok()) << answer->status;
    return answer;
  }

  // Until nothing more is written.
  void SaveAll() {
    for (engine->RunOneStep(); spill->saving(); engine->RunOneStep()) spill->AwaitWork(absl::InfiniteDuration());
  }

  const StoreReader& store;
  PackedModel model;
  MemoryProvider provider;
  std::unique_ptr<KvSpill> spill;
  std::vector<absl::Status> reports;  // of it
  std::unique_ptr<StepEngine> engine;
  RequestId last;

 private:
  void OpenSpill(const StepEngineOptions& options, std::shared_ptr<NamelessFile> file, uint64_t disk, const Clock& clock) {
    const KvPool& kv = model.kv();
    const KvSpillSizes sizes{.budget = disk,
                             .page_bytes = kv.page_bytes(),
                             .slot_bytes = kv.slot_bytes(),
                             .page_tokens = kv.page_tokens(),
                             .max_context = kv.max_context(),
                             .sessions = options.max_kept_sessions + options.max_running,
                             .max_running = options.max_running};
    auto made = KvSpill::Create(model.kv(), sizes, std::move(file), clock,
                                [this](const absl::Status& status) { reports.push_back(status); });
    EXPECT_TRUE(made.ok()) << made.status();
    spill = *std::move(made);
  }
};

inline std::unique_ptr<Tokenizer> CheckpointTokenizer(const std::string& checkpoint) {
  return *Tokenizer::FromBlob(*Checkpoint::Open(StrCat(DataFolder(), "/", checkpoint))->CompiledTokenizer());
}

}  // namespace moed
