#include "tests/system/demo_rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/builder/build_provider.h"
#include "core/expert/presets/preset.h"
#include "tests/paths.h"
#include "tests/temporary_folder.h"

namespace moed::testing {
namespace {

template <class T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::abort();
  }
  return *std::move(value);
}

}  // namespace

const std::string& DemoStorePath(const std::string& expert_formats, int coded) {
  static const TemporaryFolder folder;
  static std::map<std::pair<std::string, int>, std::string> paths;
  std::string& path = paths[{expert_formats, coded}];
  if (path.empty()) {
    path = folder / StrCat(expert_formats, ".", coded, ".moed");
    const std::string command =
        StrCat(BuiltProgram("moed-pack"), " ", SourcePath("models/tales-qwen"), " ", path, " --expert-formats ", expert_formats,
               " --trunk-format q8", coded > 0 ? StrCat(" --coded=", coded) : "", " >/dev/null 2>&1");
    MOED_CHECK(std::system(command.c_str()) == 0);
  }
  return path;
}

struct Rig::Stream {
  SequenceId id;
  std::vector<TokenId> tokens;  // prompt, then what was generated
  size_t prompt_tokens = 0;
  size_t wanted = 0;  // tokens in the end
  KvSequence kv;
  Fidelity fidelity;
  bool done() const { return tokens.size() >= wanted; }
};

Rig::Rig(const RigOptions& options) : Rig(options, nullptr, nullptr) {}

Rig::Rig(const RigOptions& options, ReadBackend* reads, ComputeBackend* backend) : fidelity_(options.fidelity) {
  const std::string& path = options.store.empty() ? DemoStorePath(options.expert_formats, options.coded) : options.store;
  store_ = Must(StoreReader::Open(path));
  const ModelSpec spec = Must(SpecFromJson(store_->description().model_spec));
  executor_ = MakeThreadPool(options.threads);
  if (backend == nullptr) backend = (own_backend_ = Must(MakeComputeBackend(options.compute, *executor_))).get();
  if (reads == nullptr) reads = (own_reads_ = Must(OpenReadBackend(options.io_backend, path, {}))).get();
  kv_ = Must(KvPool::Create(spec, {.pages = options.kv_pages, .format = options.kv_format}, backend->memory()));
  const ModelOptions model_options{options.max_step_tokens, options.max_context, 4, options.own_step_tokens,
                                   Model::ExpertInputs(store_->description())};
  if (options.bring_seconds_per_byte > 0) processor_ = Must(MakeComputeBackend("auto", *executor_));
  model_ = Must(Model::Load(
      {.store = *store_, .spec = spec, .backend = *backend, .kv = *kv_, .trace = options.trace, .processor = processor_.get()},
      model_options));

  PresetChoice choice{
      .preset = options.preset, .fill = options.fill, .options = Must(PartOptions::Parse(options.preset_options))};
  if (options.preset.empty()) {
    choice.preset = "load-on-demand-lru";
    choice.policy = options.policy;
    choice.predictor = options.predictor;
  }
  ProviderInputs inputs;
  inputs.store = store_.get();
  inputs.reads = reads;
  inputs.allocator = &backend->memory().shared();
  inputs.router = {spec.top_k, spec.hidden, spec.encoder_layers()};
  inputs.gate = [this](LayerId layer, std::span<const float> hidden, std::span<float> out) {
    model_->GateProbabilities(layer, hidden, out);
  };
  inputs.trace = options.trace;
  inputs.options.capacity_bytes = static_cast<uint64_t>(options.slots) * store_->largest_expert_bytes(kReferencePrecision) +
                                  Model::LentBytes(spec, model_options);
  inputs.options.most_bytes =
      inputs.options.capacity_bytes +
      static_cast<uint64_t>(std::max(0, options.most_slots - options.slots)) * store_->largest_expert_bytes(kReferencePrecision);
  inputs.options.least_bytes = Model::LentBytes(spec, model_options);
  if (options.device_slots > 0) {
    copier_ = Must(backend->memory().MakeCopier());
    inputs.device = {&backend->memory().working(), copier_.get(),
                     static_cast<uint64_t>(options.device_slots) * store_->largest_expert_bytes(kReferencePrecision),
                     options.bring_seconds_per_byte};
  }
  inputs.options.queue.max_in_flight = options.max_reads_in_flight;
  provider_ = Must(BuildProvider(Must(ChoosePreset(choice, *store_)), inputs));
}

void Rig::EndStream(Stream& stream) {
  last_counters_ = provider_->sequence_counters(stream.id);
  provider_->OnSequenceEnd(stream.id);
  kv_->Release(stream.kv);
}

void Rig::Step(std::vector<Stream*>& streams, int chunk, std::vector<float>* logits) {
  if (before_step) before_step();
  std::vector<SequenceChunk> chunks;
  for (Stream* stream : streams) {
    const size_t computed = static_cast<size_t>(stream->kv.length);
    const bool decoding = computed >= stream->prompt_tokens;
    const size_t count = decoding ? 1 : std::min<size_t>(chunk, stream->prompt_tokens - computed);
    MOED_CHECK(kv_->Reserve(stream->kv, static_cast<int>(computed + count)));
    SequenceChunk piece{
        stream->id, decoding ? Phase::kDecode : Phase::kPrefill, {stream->tokens.data() + computed, count}, &stream->kv};
    piece.fidelity = stream->fidelity;
    piece.first_logits = static_cast<int>(computed + count == stream->tokens.size() ? count - 1 : count);
    chunks.push_back(piece);
  }
  std::vector<TokenId> chosen(chunks.size(), TokenId(-1));
  model_->Forward(chunks, recorder != nullptr ? *recorder : *provider_, [&](int index, int, std::span<float> row) {
    chosen[static_cast<size_t>(index)] = TokenId(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    if (logits != nullptr) logits->insert(logits->end(), row.begin(), row.end());
  });
  for (size_t i = 0; i < streams.size(); ++i) {
    EXPECT_TRUE(chunks[i].status.ok()) << chunks[i].status;
    if (chosen[i].value() >= 0) streams[i]->tokens.push_back(chosen[i]);
  }
}

std::vector<TokenId> Rig::Greedy(const std::vector<TokenId>& prompt, int new_tokens, int chunk, std::vector<float>* logits) {
  Stream stream{
      SequenceId(next_sequence_++), prompt, prompt.size(), prompt.size() + static_cast<size_t>(new_tokens), {}, fidelity_};
  provider_->OnSequenceStart(stream.id);
  std::vector<Stream*> streams{&stream};
  while (!stream.done()) Step(streams, chunk, logits);
  EndStream(stream);
  return {stream.tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), stream.tokens.end()};
}

std::vector<std::vector<TokenId>> Rig::GreedyTogether(const std::vector<std::vector<TokenId>>& prompts, int new_tokens, int chunk,
                                                      const std::vector<Fidelity>& fidelities) {
  std::vector<Stream> streams;
  for (const auto& prompt : prompts) {
    streams.push_back({SequenceId(next_sequence_++),
                       prompt,
                       prompt.size(),
                       prompt.size() + static_cast<size_t>(new_tokens),
                       {},
                       fidelities.empty() ? fidelity_ : fidelities[streams.size()]});
    provider_->OnSequenceStart(streams.back().id);
  }
  for (;;) {
    std::vector<Stream*> live;
    for (Stream& stream : streams) {
      if (!stream.done()) live.push_back(&stream);
    }
    if (live.empty()) break;
    Step(live, chunk, nullptr);
  }
  std::vector<std::vector<TokenId>> answers;
  for (Stream& stream : streams) {
    answers.emplace_back(stream.tokens.begin() + static_cast<std::ptrdiff_t>(stream.prompt_tokens), stream.tokens.end());
    EndStream(stream);
  }
  return answers;
}

std::vector<TokenId> Tokens(std::initializer_list<int> ids) {
  std::vector<TokenId> tokens;
  for (int id : ids) tokens.emplace_back(id);
  return tokens;
}

}  // namespace moed::testing
