// The table of settings. A new setting is a row here and a field of Config.

#include <charconv>
#include <string>

#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "core/expert/fidelity/table.h"
#include "core/expert/policies/table.h"
#include "core/expert/predictors/table.h"
#include "core/expert/presets/preset.h"
#include "core/io/read_backend.h"
#include "core/kernels/backend.h"
#include "server/startup/config.h"
#include "server/startup/log_level.h"

namespace moed {
namespace {

absl::Status SetInt(std::string_view text, int low, int high, int& out) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return InvalidArgument("\"", text, "\" is not a whole number from ", low, " to ", high);
  }
  out = value;
  return absl::OkStatus();
}

template <class T>
T& FieldOf(Config& config, T Config::*field) {
  return config.*field;
}
template <class T>
T& FieldOf(Config& config, T ServingOptions::*field) {
  return config.serving.*field;
}

// `kField`: int or std::optional<int>.
template <int kLow, int kHigh, auto kField>
absl::Status ApplyInt(std::string_view text, Config& config) {
  int value = 0;
  MOED_RETURN_IF_ERROR(SetInt(text, kLow, kHigh, value));
  FieldOf(config, kField) = value;
  return absl::OkStatus();
}

template <auto kField>
absl::Status ApplyBytes(std::string_view text, Config& config) {
  MOED_ASSIGN_OR_RETURN(FieldOf(config, kField), ParseBytes(text));
  return absl::OkStatus();
}

template <std::string TlsFiles::*kField>
absl::Status ApplyTlsFile(std::string_view text, Config& config) {
  if (text.empty()) return InvalidArgument("empty: a path is wanted");
  config.access.tls.*kField = text;
  return absl::OkStatus();
}

absl::Status SetSwitch(std::string_view text, bool& out) {
  if (text != "on" && text != "off") return InvalidArgument("\"", text, "\"; allowed are: on, off");
  out = text == "on";
  return absl::OkStatus();
}

template <bool Config::*kField>
absl::Status ApplySwitch(std::string_view text, Config& config) {
  return SetSwitch(text, config.*kField);
}

absl::Status ApplyTokens(std::string_view text, Config& config) {
  if (text.empty()) return InvalidArgument("empty: a path is wanted");
  config.access.tokens = text;
  return absl::OkStatus();
}

template <std::string Config::*kField>
absl::Status ApplyPath(std::string_view text, Config& config) {
  if (text.empty()) return InvalidArgument("empty: a path is wanted");
  config.*kField = text;
  return absl::OkStatus();
}

absl::Status ApplyReadRate(std::string_view text, Config& config) {
  MOED_ASSIGN_OR_RETURN(const uint64_t rate, ParseBytes(text));
  if (rate == 0) return InvalidArgument("\"", text, "\": at least one byte a second is needed");
  config.read_rate = rate;
  return absl::OkStatus();
}

absl::Status ApplyTextBytes(std::string_view text, Config& config) {
  constexpr uint64_t kLeast = 1 << 10, kMost = 8 << 20;
  MOED_ASSIGN_OR_RETURN(const uint64_t bytes, ParseBytes(text));
  if (bytes < kLeast || bytes > kMost) {
    return InvalidArgument("\"", text,
                           "\" is not from 1KiB to 8MiB: a longer message is taken for a flood while it is on its way");
  }
  config.serving.max_text_bytes = bytes;
  return absl::OkStatus();
}

absl::Status ApplyRequestLog(std::string_view text, Config& config) {
  config.request_log = text;
  return absl::OkStatus();
}

// A name of a table; `also` is allowed beside it ("" = nothing).
template <class Rows>
absl::Status SetName(std::string_view text, const Rows& rows, std::string_view also, std::string& out) {
  bool known = !also.empty() && text == also;
  for (const auto& row : rows) known = known || row.name == text;
  if (!known) {
    return InvalidArgument("unknown name \"", text, "\"; allowed are: ", also, also.empty() ? "" : ", ",
                           JoinNames(rows, [](const auto& row) { return row.name; }));
  }
  out = text;
  return absl::OkStatus();
}

absl::Status ApplyPreset(std::string_view text, Config& config) { return SetName(text, Presets(), "", config.preset.preset); }
absl::Status ApplyPolicy(std::string_view text, Config& config) { return SetName(text, Policies(), "", config.preset.policy); }
absl::Status ApplyPredictor(std::string_view text, Config& config) {
  return SetName(text, Predictors(), "", config.preset.predictor);
}
absl::Status ApplyFidelityRule(std::string_view text, Config& config) {
  return SetName(text, FidelityRules(), "", config.preset.rule);
}
absl::Status ApplyPrefixCache(std::string_view text, Config& config) { return SetSwitch(text, config.serving.prefix_cache); }
absl::Status ApplyEmbedding(std::string_view text, Config& config) {
  constexpr std::pair<std::string_view, EmbeddingPlace> kPlaces[] = {
      {"auto", EmbeddingPlace::kAuto}, {"memory", EmbeddingPlace::kMemory}, {"disk", EmbeddingPlace::kStore}};
  for (const auto& [name, place] : kPlaces) {
    if (text != name) continue;
    config.serving.embedding = place;
    return absl::OkStatus();
  }
  return InvalidArgument("\"", text, "\"; allowed are: auto, memory, disk");
}
absl::Status ApplyPromptLookup(std::string_view text, Config& config) { return SetSwitch(text, config.serving.prompt_lookup); }
absl::Status ApplyFastMatmul(std::string_view text, Config& config) { return SetSwitch(text, config.serving.fast_matmul); }
absl::Status ApplyFillCache(std::string_view text, Config& config) {
  bool fill = false;
  MOED_RETURN_IF_ERROR(SetSwitch(text, fill));
  config.preset.fill = fill;
  return absl::OkStatus();
}
absl::Status ApplyPresetOptions(std::string_view text, Config& config) {
  MOED_ASSIGN_OR_RETURN(config.preset.options, PartOptions::Parse(text));
  config.preset_options = text;
  return absl::OkStatus();
}
absl::Status ApplyIoBackend(std::string_view text, Config& config) {
  return SetName(text, ReadBackends(), "auto", config.io_backend);
}
absl::Status ApplyBackend(std::string_view text, Config& config) {
  return SetName(text, ComputeBackends(), "auto", config.backend);
}

struct ChecksumRow {
  std::string_view name;
  ChecksumRule rule;
};
constexpr ChecksumRow kChecksumRules[] = {{"first", ChecksumRule::kFirstRead}, {"always", ChecksumRule::kEveryRead}};
absl::Status ApplyVerifyReads(std::string_view text, Config& config) {
  std::string name;
  MOED_RETURN_IF_ERROR(SetName(text, kChecksumRules, "", name));
  for (const ChecksumRow& row : kChecksumRules) {
    if (row.name == name) config.checksums = row.rule;
  }
  return absl::OkStatus();
}

struct KvFormatRow {
  KvFormat format;
  std::string_view name = kKvFormatNames[static_cast<int>(format)];
};
constexpr KvFormatRow kKvFormats[] = {{KvFormat::kF16}, {KvFormat::kF32}, {KvFormat::kQ8}};
absl::Status ApplyKvFormat(std::string_view text, Config& config) {
  std::string name;
  MOED_RETURN_IF_ERROR(SetName(text, kKvFormats, "", name));
  for (const KvFormatRow& row : kKvFormats) {
    if (row.name == name) config.serving.kv_format = row.format;
  }
  return absl::OkStatus();
}

absl::Status ApplyLogLevel(std::string_view text, Config& config) {
  MOED_RETURN_IF_ERROR(ParseLogLevel(text).status());
  config.log_level = text;
  return absl::OkStatus();
}

struct DeviceLostRow {
  DeviceLost what;
  std::string_view name;
};
constexpr DeviceLostRow kDeviceLost[] = {{DeviceLost::kCpu, "cpu"}, {DeviceLost::kFail, "fail"}, {DeviceLost::kExit, "exit"}};
absl::Status ApplyDeviceLost(std::string_view text, Config& config) {
  std::string name;
  MOED_RETURN_IF_ERROR(SetName(text, kDeviceLost, "", name));
  for (const DeviceLostRow& row : kDeviceLost) {
    if (row.name == name) config.device_lost = row.what;
  }
  return absl::OkStatus();
}

absl::Status ApplySandbox(std::string_view text, Config& config) {
  MOED_ASSIGN_OR_RETURN(config.sandbox, ParseSandboxRule(text));
  return absl::OkStatus();
}

absl::Status ApplyListen(std::string_view text, Config& config) {
  MOED_ASSIGN_OR_RETURN(config.listen, ParseSocketAddress(text));
  return absl::OkStatus();
}
absl::Status ApplyControlListen(std::string_view text, Config& config) {
  MOED_ASSIGN_OR_RETURN(config.control_listen, ParseSocketAddress(text));
  return absl::OkStatus();
}
absl::Status ApplyMetricsListen(std::string_view text, Config& config) {
  config.metrics_listen.reset();
  if (text == "off") return absl::OkStatus();
  MOED_ASSIGN_OR_RETURN(config.metrics_listen, ParseAddress(text));
  return absl::OkStatus();
}

constexpr Setting kSettings[] = {
    {"store", "Model and memory", "PATH", "the packed model to serve (made by moed-pack)", "", ApplyPath<&Config::store>},
    {"memory-budget", "Model and memory", "BYTES",
     "trunk, keys and values, expert cache, scratch and queues together (\"8GiB\"); the process needs up to 64 MiB beside it",
     "from the cgroup's limit or the available memory", ApplyBytes<&Config::memory_budget>},
    {"max-memory-budget", "Model and memory", "BYTES",
     "the largest budget that moectl resize may give a running server: address space is reserved for so large an expert cache",
     "the memory budget", ApplyBytes<&Config::max_memory_budget>},
    {"device-budget", "Model and memory", "BYTES",
     "trunk, keys and values, activations and experts together, in the memory of a device that has some of its own",
     "fifteen sixteenths of what is free of the device", ApplyBytes<&Config::device_budget>},
    {"processor-experts", "Model and memory", "on|off",
     "beside a device with memory of its own, experts in the host's memory are computed by its processor where that is faster "
     "than bringing them",
     "on", ApplySwitch<&Config::processor_experts>},
    {"device-lost", "Model and memory", "cpu|fail|exit",
     "where the device does nothing any more: the model is loaded again on the processor, every request fails, or the process "
     "ends",
     "cpu", ApplyDeviceLost},
    {"models-folder", "Model and memory", "DIR", "where moectl load may take other stores from", "the store of the start alone",
     ApplyPath<&Config::models_folder>},
    {"fast-matmul", "Model and memory", "on|off",
     "requests of a fidelity from fast-matmul on have steps of 32 tokens or more multiplied with dense matrices in 16 bits, by "
     "cuBLAS (--backend cuda)",
     "off", ApplyFastMatmul},
    {"embedding", "Model and memory", "auto|memory|disk",
     "where an embedding lies that is not the model's head as well: auto takes memory where neither experts nor the context need "
     "its room, else the disk, from where each token's row is read",
     "auto", ApplyEmbedding},
    {"kv-budget", "Model and memory", "BYTES", "keys and values of all conversations, out of the memory budget",
     "a sixteenth of what the fixed parts leave, and what experts have no use for", ApplyBytes<&ServingOptions::kv_budget>},
    {"kv-format", "Model and memory", "f16|f32|q8", "how keys and values are kept: in 16, 32 or 8.5 bits", "f16", ApplyKvFormat},
    {"kv-spill", "Model and memory", "FOLDER",
     "keys and values of idle conversations that may lose their room are written to a file there that nobody else sees, and read "
     "back where that is sooner done than computing them",
     "off", ApplyPath<&Config::kv_spill>},
    {"kv-spill-budget", "Model and memory", "BYTES", "of that file; conversations that were idle longest go first", "",
     ApplyBytes<&ServingOptions::kv_spill_budget>},
    {"prefix-cache", "Model and memory", "on|off",
     "pages of keys and values that nobody uses stay, for prompts that begin with the same tokens, until their room is needed",
     "on", ApplyPrefixCache},
    {"prompt-lookup", "Model and memory", "on|off",
     "an exact answer that is alone and repeats earlier text is computed several tokens a step, where that is faster", "on",
     ApplyPromptLookup},
    {"max-context", "Model and memory", "TOKENS", "longest prompt and answer together", "what the keys and values hold",
     ApplyInt<2, 1 << 24, &ServingOptions::max_context>},

    {"listen", "Addresses", "HOST:PORT|unix:PATH", "gRPC; port 0 takes any free one", "127.0.0.1:50051", ApplyListen},
    {"control-listen", "Addresses", "HOST:PORT|unix:PATH", "gRPC for moe.v1.Control, which then is not on --listen",
     "as --listen", ApplyControlListen},
    {"metrics-listen", "Addresses", "HOST:PORT|off", "HTTP for /metrics, /healthz and /readyz", "127.0.0.1:9464",
     ApplyMetricsListen},

    {"tls-cert", "Access", "FILE",
     "TLS on --listen and --control-listen: the server's certificate and those between it and a root, PEM", "plain text",
     ApplyTlsFile<&TlsFiles::certificate>},
    {"tls-key", "Access", "FILE", "the certificate's key, PEM without a password", "", ApplyTlsFile<&TlsFiles::key>},
    {"tls-client-ca", "Access", "FILE", "clients must have a certificate of one of these authorities, PEM", "clients need none",
     ApplyTlsFile<&TlsFiles::client_ca>},
    {"tokens", "Access", "FILE",
     "who may do what: lines of NAME SCOPES SHA256-HEX [LIMIT=NUMBER]..., as moectl token new makes them",
     "everybody may do everything", ApplyTokens},
    {"insecure", "Access", "", "listens on addresses that other machines reach without TLS, or without tokens or --tls-client-ca",
     "", ApplySwitch<&Config::insecure>},
    {"reflection", "Access", "on|off",
     "tells everybody the services and their messages (grpc.reflection), for tools such as grpcurl", "off",
     ApplySwitch<&Config::reflection>},
    {"sandbox", "Access", "on|off|require",
     "gives up files, ports and system calls that serving does not need (Landlock, seccomp): those that this kernel knows, none, "
     "or none less than both",
     "on", ApplySandbox},

    {"preset", "Experts", "NAME", "what to do with experts, as a whole: a combination of the four below", "auto", ApplyPreset},
    {"policy", "Experts", "NAME", "which expert leaves the cache", "the preset's", ApplyPolicy},
    {"predictor", "Experts", "NAME", "which experts are read ahead", "the preset's", ApplyPredictor},
    {"fidelity-rule", "Experts", "NAME", "what a request that may lose something loses", "the preset's", ApplyFidelityRule},
    {"fill-cache", "Experts", "on|off", "reads experts into free room of the cache while the disk is idle", "the preset's",
     ApplyFillCache},
    {"preset-options", "Experts", "NAME=VALUE,...", "settings of these parts (docs/policies.md)", "", ApplyPresetOptions},
    {"learned-state", "Experts", "FILE",
     "what policy and predictor have learned: taken up at the start if the file is there, written every 10 minutes and at the "
     "end",
     "", ApplyPath<&Config::learned_state>},
    {"residency", "Experts", "FILE",
     "which experts are in memory: written every 10 s and at the end, read first by the next start", "",
     ApplyPath<&Config::residency>},
    {"io-backend", "Experts", "NAME", "how experts are read; auto says what it took and why", "auto", ApplyIoBackend},
    {"io-queue-depth", "Experts", "N", "reads in flight at most", "8", ApplyInt<1, 256, &Config::io_queue_depth>},
    {"read-rate", "Experts", "BYTES", "reads at most so many bytes a second (\"550MB\"), to try out a slower disk", "",
     ApplyReadRate},
    {"verify-reads", "Experts", "first|always",
     "which reads of an expert are compared with the store's checksum: the first one in this process, or every one", "first",
     ApplyVerifyReads},

    {"backend", "Compute", "NAME", "kernels; auto takes the fastest that this processor has", "auto", ApplyBackend},
    {"threads", "Compute", "N", "threads of the kernels", "the processor's", ApplyInt<1, kMaxThreads, &ServingOptions::threads>},

    {"max-running", "Requests", "N", "requests computed at once", "8", ApplyInt<1, 1024, &ServingOptions::max_running>},
    {"queue-capacity", "Requests", "N", "requests that may wait; more fail with RESOURCE_EXHAUSTED",
     "64, fewer in a small budget", ApplyInt<0, 65536, &ServingOptions::queue_capacity>},
    {"max-calls-per-token", "Requests", "N",
     "calls of Inference by tokens of one name, running and waiting; more fail with RESOURCE_EXHAUSTED",
     "as many as run and wait", ApplyInt<1, 65536, &Config::max_calls_per_token>},
    {"prefill-chunk", "Requests", "TOKENS",
     "most tokens of one step, prompts and answers together; while somebody is answered, at most 64, or --max-running + 32",
     "512, up to 4096 where it waits for experts, fewer in a small budget", ApplyInt<1, 8192, &ServingOptions::prefill_chunk>},
    {"max-kept-sessions", "Requests", "N", "idle conversations that are kept", "64, fewer in a small budget",
     ApplyInt<0, 65536, &ServingOptions::max_kept_sessions>},
    {"max-new-tokens", "Requests", "N", "most tokens that a request may ask for; more is refused",
     "any number, and an answer has what the context leaves", ApplyInt<1, 1 << 24, &ServingOptions::max_new_tokens>},
    {"max-request-seconds", "Requests", "N", "longest that a request may take, from its arrival; its answer then ends",
     "as long as it takes", ApplyInt<1, 1 << 24, &ServingOptions::max_request_seconds>},
    {"max-text-bytes", "Requests", "BYTES", "longest text that is tokenised, a prompt's or Tokenize's", "1MiB", ApplyTextBytes},
    {"max-connections", "Requests", "N", "open connections; more are closed at once", "512; with TLS 192",
     ApplyInt<1, 65536, &Config::max_connections>},
    {"max-streams", "Requests", "N", "calls of one connection at once; more wait in the client", "100",
     ApplyInt<1, 65536, &Config::max_streams>},
    {"connection-idle-seconds", "Requests", "N", "for which a connection may be without calls", "300",
     ApplyInt<1, 86400, &Config::connection_idle_seconds>},
    {"connection-age-seconds", "Requests", "N", "after which clients are told to connect anew; their calls go on to the end",
     "3600", ApplyInt<1, 1 << 30, &Config::connection_age_seconds>},
    {"drain-delay-seconds", "Requests", "N",
     "how long new requests are still taken after SIGTERM while health and /readyz say no, for load balancers to notice", "2",
     ApplyInt<0, 3600, &Config::drain_delay_seconds>},
    {"drain-seconds", "Requests", "N", "how long running requests may go on once new ones are refused", "30",
     ApplyInt<0, 86400, &Config::drain_seconds>},

    {"log-level", "Diagnosis", "LEVEL", "trace, debug, info, warning, error, critical or off", "info", ApplyLogLevel},
    {"request-log", "Diagnosis", "FILE|off", "one JSON line for each call of Inference that ended, never its text",
     "with the normal log", ApplyRequestLog},
    {"trace", "Diagnosis", "FILE", "writes a Chrome trace of reads and compute at the end", "", ApplyPath<&Config::trace>},
    {"record-routing", "Diagnosis", "DIR", "records which experts served each decoded token, for moe-bench replay", "",
     ApplyPath<&Config::record_routing>},
};

}  // namespace

std::span<const Setting> Settings() { return kSettings; }

}  // namespace moed
