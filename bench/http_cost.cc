// What moed-http costs a token: the same stream straight over gRPC and through moed-http, in turns that begin with either of them
// alternately.
//
//   http_cost --server 127.0.0.1:50051 --http 127.0.0.1:8080 --tokens 128 --turns 21
//
// Both ask for the same tokens (same seeds). Time per token is this client's: from the first text to the last, by tokens less
// one. Best on a daemon with all experts in memory: waits for the disk only add noise.
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "client/client.h"
#include "client/load_generator.h"
#include "core/base/address.h"
#include "core/base/clock.h"
#include "core/base/status.h"

namespace moed {
namespace {

struct Options {
  std::string server;
  std::string http;
  std::string model;
  std::string prompt = "Once upon a time there was a";
  int tokens = 128;
  int turns = 21;
};

// When the first and the last piece of an answer came.
class Stopwatch {
 public:
  void OnText() {
    last_nanos_ = Clock::Real().NowNanos();
    if (first_nanos_ == 0) first_nanos_ = last_nanos_;
  }
  double SecondsPerToken(int tokens) const { return SecondsBetween(first_nanos_, last_nanos_) / (tokens - 1); }

 private:
  int64_t first_nanos_ = 0, last_nanos_ = 0;
};

absl::StatusOr<double> OverGrpc(Client& client, const Options& options, int seed) {
  moe::v1::GenerateRequest request;
  request.set_text(options.prompt);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(static_cast<uint64_t>(seed));
  request.mutable_stopping()->set_max_new_tokens(options.tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  Stopwatch watch;
  int tokens = 0;
  MOED_RETURN_IF_ERROR(client.GenerateStream(request, [&](const moe::v1::GenerateResponse& part) {
    if (!part.text().empty() || part.has_finish()) watch.OnText();
    tokens = part.finish().usage().completion_tokens();
    return true;
  }));
  if (tokens != options.tokens) return Internal("the answer has ", tokens, " tokens instead of ", options.tokens);
  return watch.SecondsPerToken(tokens);
}

absl::StatusOr<int> ConnectTo(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found); error != 0) {
    return InvalidArgument(address.host, ": ", gai_strerror(error));
  }
  const absl::Cleanup free_found = [&] { freeaddrinfo(found); };
  const int connection = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, 0);
  if (connection < 0 || connect(connection, found->ai_addr, found->ai_addrlen) != 0) {
    const int reason = errno;
    if (connection >= 0) close(connection);
    return ErrnoError(reason, StrCat("cannot connect to ", address.Text()));
  }
  const int on = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return connection;
}

std::string HttpRequest(const Options& options, int seed) {
  const std::string body =
      absl::StrFormat(R"({"model":"%s","prompt":"%s","max_tokens":%d,"temperature":1,"seed":%d,"ignore_eos":true,"stream":true,)"
                      R"("stream_options":{"include_usage":true}})",
                      options.model, options.prompt, options.tokens, seed);
  return StrCat(
      "POST /v1/completions HTTP/1.1\r\nhost: bench\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ",
      body.size(), "\r\n\r\n", body);
}

absl::StatusOr<double> OverHttp(const Address& address, const Options& options, int seed) {
  MOED_ASSIGN_OR_RETURN(const int connection, ConnectTo(address));
  const absl::Cleanup close_connection = [&] { close(connection); };
  const std::string request = HttpRequest(options, seed);
  if (send(connection, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
    return ErrnoError(errno, "the request could not be sent");
  }
  Stopwatch watch;
  std::string answer(1 << 20, '\0');
  size_t bytes = 0;
  for (ssize_t read = 0; bytes < answer.size() && (read = recv(connection, &answer[bytes], answer.size() - bytes, 0)) > 0;) {
    const std::string_view came(answer.data() + bytes, static_cast<size_t>(read));
    if (came.find("\"text\":") != std::string_view::npos) watch.OnText();
    bytes += static_cast<size_t>(read);
  }
  answer.resize(bytes);
  const bool whole = answer.find(absl::StrFormat("\"completion_tokens\":%d,", options.tokens)) != std::string::npos;
  if (!whole) return Internal("the answer is not ", options.tokens, " tokens: ", answer.substr(0, 400));
  return watch.SecondsPerToken(options.tokens);
}

absl::Status Measure(const Options& options) {
  MOED_ASSIGN_OR_RETURN(const auto client, Client::Connect(options.server));
  MOED_ASSIGN_OR_RETURN(const Address http, ParseAddress(options.http));
  MOED_RETURN_IF_ERROR(OverGrpc(*client, options, 0).status());  // these two warm up
  MOED_RETURN_IF_ERROR(OverHttp(http, options, 0).status());
  std::vector<double> straight, through, ratios;
  for (int turn = 1; turn <= options.turns; ++turn) {
    for (const bool is_straight : {turn % 2 == 1, turn % 2 == 0}) {
      MOED_ASSIGN_OR_RETURN(const double seconds, is_straight ? OverGrpc(*client, options, turn) : OverHttp(http, options, turn));
      (is_straight ? straight : through).push_back(seconds);
    }
    ratios.push_back(through.back() / straight.back());
    std::cout << absl::StrFormat("turn %d: gRPC %.4f ms, moed-http %.4f ms a token, ratio %.4f\n", turn, straight.back() * 1e3,
                                 through.back() * 1e3, ratios.back())
              << std::flush;
  }
  std::ranges::sort(ratios);
  const auto quartile = [&](size_t part) { return ratios[part * (ratios.size() - 1) / 4]; };
  std::cout << absl::StrFormat(
      "median: gRPC %.4f ms, moed-http %.4f ms a token, ratio %.4f (quartiles %.4f to %.4f, all %.4f to %.4f)\n",
      PercentilesOf(straight).p50 * 1e3, PercentilesOf(through).p50 * 1e3, quartile(2), quartile(1), quartile(3), ratios.front(),
      ratios.back());
  return absl::OkStatus();
}

}  // namespace
}  // namespace moed

int main(int argc, char** argv) {
  moed::Options options;
  CLI::App app("what moed-http costs a token of one stream");
  app.add_option("--server", options.server, "address of a running daemon")->required();
  app.add_option("--http", options.http, "address of a running moed-http in front of it")->required();
  app.add_option("--model", options.model, "as moed-http calls it")->required();
  app.add_option("--prompt", options.prompt, "text to continue, without quotes")
      ->check(CLI::Validator(
          [](std::string& text) { return text.find_first_of("\"\\\n") == std::string::npos ? "" : "has quotes"; }, "TEXT"));
  app.add_option("--tokens", options.tokens, "of each answer")->check(CLI::Range(2, 4096));
  app.add_option("--turns", options.turns, "pairs of answers")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = moed::Measure(options);
  if (!status.ok()) std::cerr << "http_cost: " << status.ToString() << "\n";
  return status.ok() ? 0 : 1;
}
