#include "tests/server/server_harness.h"

#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "core/grammar/matcher_pool.h"
#include "google/rpc/status.pb.h"
#include "server/metrics/server_metrics.h"
#include "server/process/process_metrics.h"
#include "server/rpc/inference_limits.h"
#include "server/startup/log_level.h"
#include "server/wire/error_details.h"
#include "spdlog/spdlog.h"
#include "tests/paths.h"

namespace moed {

const Tokenizer& TestTokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = [] {
    std::ifstream file(SourcePath("models/tales-qwen/tokenizer.json"));
    std::stringstream text;
    text << file.rdbuf();
    auto blob = CompileTokenizer(text.str());
    EXPECT_TRUE(blob.ok()) << blob.status();
    return *Tokenizer::FromBlob(*std::move(blob));
  }();
  return *tokenizer;
}

ExpertStats TestExpertStats() {
  ExpertStats stats;
  uint64_t next = 1;
  for (int layer : {1, 3}) {
    LayerStats& out = stats.layers.emplace_back();
    out.layer = LayerId(layer);
    for (auto& by_result : out.lookups) {
      for (uint64_t& count : by_result) count = next++;
    }
    out.stall_seconds = static_cast<double>(next++);
    out.lowered = next++;
    out.skipped = next++;
    out.masked = next++;
    out.gate_mass_lost = static_cast<double>(next++);
    out.tokens = next++;
    out.resident = {static_cast<uint32_t>(next++), static_cast<uint32_t>(next++)};
  }
  stats.stall_seconds = {1.5, 2.5};
  for (LoadHistogram& load : stats.loads) {
    for (uint64_t& bucket : load.buckets) load.count += bucket = next++;
    load.sum_seconds = static_cast<double>(next++);
  }
  stats.load_bytes = {{next++, next++, next++}, {next++, next++, next++}};
  stats.prefetches = {next++, next++, next++, next++};
  stats.wasted_prefetch_bytes = next++;
  stats.prefetch_saved_seconds = 0.5;
  stats.predictions = {PredictionCounts{40, 50, 20}, PredictionCounts{30, 60, 15}};
  stats.evictions = {{next++, next++, next++}, {next++, next++, next++}};
  stats.cache_bytes = next++;
  stats.cache_capacity_bytes = next++;
  stats.read_busy_nanos = 2'500'000'000;
  stats.asked = {.waiting = next++, .done = next++, .refused = next++, .failed = next++};
  stats.anchors = {.records = next++, .bytes = next++, .most_bytes = next++};
  return stats;
}

LoadedModel TestModel(Engine& engine) {
  LoadedModel model;
  model.engine = &engine;
  model.cache = &TestCache::Get();
  model.tokenizer = &TestTokenizer();
  static auto& formats = *new grammar::MatcherPool(TestTokenizer(), TestTokenizer().vocabulary_size(), 1 << 20);
  model.formats = &formats;
  static auto& tool_schemas = *new ByteShare(1 << 20);
  model.tool_schemas = &tool_schemas;
  model.expert_stats = TestExpertStats;
  model.step_parts = [] { return std::vector<TracePart>{{"step", {1, 2}, {3'000'000, 4'000'000}}}; };
  model.hottest_experts = [](int top) {
    std::vector<ExpertHeat> heat = {{{LayerId(3), 7, 1}, 40, true}, {{LayerId(1), 2, 0}, 30, false}};
    heat.resize(std::min<size_t>(heat.size(), top));
    return heat;
  };
  for (const char* format : {"bf16", "q4"}) model.info.add_expert_formats(format);
  model.info.set_family("mixtral");
  model.info.set_layers(4);
  model.info.set_moe_layers(2);
  model.info.set_experts(8);
  return model;
}

ExpertMap TestExpertMap(uint64_t since, int experts) {
  ExpertMap map{.now = since + 5, .layers = {{LayerId(1), {}}, {LayerId(3), {}}}};
  if (since == 0) map.layers[0].experts.push_back({.expert = 2, .resident = 0b11, .on_device = 0b10, .hits = 7});
  const ExpertCell cell{.expert = 6, .hits = 1, .misses = 2, .lowered = 3, .skipped = 4, .reads = uint64_t{1} << 60};
  map.layers[1].experts.resize(static_cast<size_t>(experts), cell);
  return map;
}

ServerHarness::ServerHarness(HarnessOptions options)
    : engine_(options.engine, call_clock_, std::move(options.script)),
      registry_(std::make_shared<prometheus::Registry>()),
      requests_(*registry_),
      sampler_(counters_, requests_, call_clock_),
      log_(*RequestLog::Open("/dev/null")),
      live_(options.untaken_bytes),
      workers_({.threads = 1, .max_jobs = 64, .max_bytes = 1 << 20}),
      environment_{state_, workers_, sender_, requests_, *log_, live_, call_clock_, options.tokens},
      inference_(environment_),
      control_({state_, sampler_, requests_, call_clock_,
                [this] {
                  state_.SetDraining();
                  state_.SetRefusing();
                  engine_.Drain(absl::UnavailableError("drained"));
                },
                [] { return absl::OkStatus(); }, nullptr, nullptr, SetLogLevel}) {
  spdlog::set_level(spdlog::level::warn);  // what Control changes is logged
  moe::v1::ServerInfo info;
  info.set_version("1.2.3");
  info.set_compute_backend("scalar");
  info.set_memory_budget_bytes(6000);
  info.set_io_backend("buffered");
  state_.SetServerInfo(info);
  if (options.wrap) wrapped_ = options.wrap(engine_);
  model_ = TestModel(wrapped_ != nullptr ? *wrapped_ : engine_);
  model_.limits = options.calls;
  model_.messages = std::make_shared<InferenceLimits>(options.calls.request);
  model_.expert_map = [experts = options.mapped_experts](uint64_t since) { return TestExpertMap(since, experts); };
  model_.expert_stats = [experts = options.resident_experts] {
    ExpertStats stats = TestExpertStats();
    for (LayerStats& layer : stats.layers) layer.resident.resize(experts, layer.resident.back());
    return stats;
  };
  *model_.info.mutable_sampling_defaults() = options.sampling_defaults;
  if (!options.chat_template.empty()) {
    auto parsed = chat::ModelTemplate::Parse(options.chat_template, R"({"bos_token": "<|endoftext|>"})");
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    chat_template_ = *std::move(parsed);
    model_.chat = &*chat_template_;
    model_.answer_format = &chat::FormatOfTemplate(options.chat_template);
  }
  collectables_ = {registry_, std::make_shared<ServerMetrics>(state_, sampler_, counters_), std::make_shared<ProcessMetrics>()};
  server_ = *RpcServer::Listen({"127.0.0.1", 0}, {&inference_, &control_}, quota_, {.reflection = options.reflection});
  inference_stub_ = moe::v1::Inference::NewStub(Channel());
  control_stub_ = moe::v1::Control::NewStub(Channel());
  if (options.load) Load();
}

ServerHarness::~ServerHarness() {
  engine_.Stop(absl::UnavailableError("the test ends"));
  server_.reset();
}

void ServerHarness::Load() {
  counters_.Observe(&model_);
  state_.SetLoaded({&model_, [](const LoadedModel*) {}});
  server_->SetServing(true);
}

void ServerHarness::StepUntilIdle() {
  while (!engine_.Idle() || live_.size() > 0) {
    engine_.Step();
    std::this_thread::yield();
  }
}

std::shared_ptr<grpc::Channel> ServerHarness::Channel() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A window that does not grow, so that a client which does not read holds the server up early.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 65535);
  return grpc::CreateCustomChannel(server_->address().Text(), grpc::InsecureChannelCredentials(), arguments);
}

const Address& ServerHarness::metrics_address() {
  if (metrics_server_ == nullptr) {  // on demand: its end takes two seconds
    MetricsServerParts parts{collectables_, [this] { return alive; }, [this] { return state_.ready(); }};
    metrics_server_ = *MetricsServer::Listen({"127.0.0.1", 0}, std::move(parts));
  }
  return metrics_server_->address();
}

double ServerHarness::Metric(const std::string& name_and_labels) const {
  std::istringstream lines(Scrape());
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name_and_labels + " ", 0) == 0) return std::stod(line.substr(name_and_labels.size() + 1));
  }
  return -1;
}

moe::v1::GenerateRequest TextRequest(const std::string& text) {
  moe::v1::GenerateRequest request;
  request.set_text(text);
  return request;
}

grpc::Status Generate(ServerHarness& server, const moe::v1::GenerateRequest& request, moe::v1::GenerateResponse* response) {
  grpc::ClientContext context;
  moe::v1::GenerateResponse ignored;
  return server.inference().Generate(&context, request, response == nullptr ? &ignored : response);
}

int ConnectTo(const Address& address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(address.port));
  inet_pton(AF_INET, address.host.c_str(), &to.sin_addr);
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) return fd;
  close(fd);
  return -1;
}

HttpResponse HttpGet(const Address& address, const std::string& path) {
  HttpResponse response;
  const int fd = ConnectTo(address);
  if (fd >= 0) {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    EXPECT_EQ(send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    std::string answer;
    char buffer[65536];
    for (ssize_t n; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) answer.append(buffer, n);
    const size_t body = answer.find("\r\n\r\n");
    if (answer.size() > 12 && body != std::string::npos) response = {std::stoi(answer.substr(9, 3)), answer.substr(body + 4)};
  }
  close(fd);
  return response;
}

namespace {

template <class Detail>
std::optional<Detail> FindDetail(const grpc::Status& status) {
  if (status.error_details().empty()) return std::nullopt;
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  EXPECT_EQ(details.code(), static_cast<int>(status.error_code()));
  EXPECT_EQ(details.message(), status.error_message());
  Detail detail;
  for (const auto& any : details.details()) {
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> ViolatedFields(const grpc::Status& status) {
  std::vector<std::string> fields;
  if (auto bad_request = FindDetail<google::rpc::BadRequest>(status)) {
    for (const auto& violation : bad_request->field_violations()) {
      EXPECT_NE(violation.description(), "");
      fields.push_back(violation.field());
    }
  }
  return fields;
}

std::optional<PromptBeyondContext> BeyondContextOf(const grpc::Status& status) {
  const auto info = FindDetail<google::rpc::ErrorInfo>(status);
  if (!info || info->domain() != kErrorDomain || info->reason() != kContextLength) return std::nullopt;
  const auto number = [&](const char* name) {
    const auto found = info->metadata().find(name);
    return found == info->metadata().end() ? -1 : std::stoi(found->second);
  };
  return PromptBeyondContext{number(kContextTokens), number(kPromptTokens)};
}

double RetrySeconds(const grpc::Status& status) {
  const auto retry = FindDetail<google::rpc::RetryInfo>(status);
  return retry.has_value() ? static_cast<double>(retry->retry_delay().seconds()) + retry->retry_delay().nanos() * 1e-9 : -1;
}

grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method, const std::string& request,
                     std::string* response) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  grpc::Slice slice(request);
  auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  grpc::Slice joined;
  if (response != nullptr && status.ok() && answer.DumpToSingleSlice(&joined).ok()) {
    response->assign(reinterpret_cast<const char*>(joined.begin()), joined.size());
  }
  return status;
}

Health CheckHealth(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  // grpc.health.v1: request {1: service}, response {1: status}.
  std::string request;
  if (!service.empty()) request = std::string("\x0a") + static_cast<char>(service.size()) + service;
  std::string response;
  if (!CallRaw(channel, "/grpc.health.v1.Health/Check", request, &response).ok() || response.size() != 2) return Health::kUnknown;
  return static_cast<Health>(response[1]);
}

}  // namespace moed
