// What streaming over gRPC costs a token: the same request to a running daemon as a stream and as one answer at the end, in
// turns.
//
//   stream_cost --server 127.0.0.1:50051 --tokens 128 --turns 8
//
// Both compute the same tokens (same seed); only the stream hands each of them to gRPC and to the client on its way. Time per
// token is the daemon's own. Best on a daemon with all experts in memory: waits for the disk only add noise.
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "client/client.h"
#include "core/base/status.h"

namespace moed {
namespace {

struct Options {
  std::string server;
  std::string prompt = "Once upon a time there was a";
  int tokens = 128;
  int turns = 8;
};

moe::v1::GenerateRequest Request(const Options& options, int seed) {
  moe::v1::GenerateRequest request;
  request.set_text(options.prompt);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(static_cast<uint64_t>(seed));
  request.mutable_stopping()->set_max_new_tokens(options.tokens);
  request.mutable_stopping()->set_min_new_tokens(options.tokens);
  return request;
}

absl::StatusOr<double> StreamedTpot(Client& client, const moe::v1::GenerateRequest& request) {
  double tpot = 0;
  MOED_RETURN_IF_ERROR(client.GenerateStream(request, [&](const moe::v1::GenerateResponse& part) {
    if (part.has_finish()) tpot = part.finish().stats().tpot_seconds();
    return true;
  }));
  return tpot;
}

absl::StatusOr<double> WholeTpot(Client& client, const moe::v1::GenerateRequest& request) {
  MOED_ASSIGN_OR_RETURN(const moe::v1::GenerateResponse answer, client.Generate(request));
  return answer.finish().stats().tpot_seconds();
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

absl::Status Measure(const Options& options) {
  MOED_ASSIGN_OR_RETURN(const auto client, Client::Connect(options.server));
  MOED_RETURN_IF_ERROR(WholeTpot(*client, Request(options, 0)).status());  // warms up
  std::vector<double> streamed, whole, ratios;
  for (int turn = 1; turn <= options.turns; ++turn) {
    const moe::v1::GenerateRequest request = Request(options, turn);
    MOED_ASSIGN_OR_RETURN(const double with, StreamedTpot(*client, request));
    MOED_ASSIGN_OR_RETURN(const double without, WholeTpot(*client, request));
    streamed.push_back(with);
    whole.push_back(without);
    ratios.push_back(with / without);
    std::cout << absl::StrFormat("turn %d: streamed %.3f ms, whole %.3f ms a token, ratio %.4f\n", turn, with * 1e3,
                                 without * 1e3, ratios.back())
              << std::flush;
  }
  std::cout << absl::StrFormat("median: streamed %.3f ms, whole %.3f ms a token, ratio %.4f (%.4f to %.4f)\n",
                               Median(streamed) * 1e3, Median(whole) * 1e3, Median(ratios), *std::ranges::min_element(ratios),
                               *std::ranges::max_element(ratios));
  return absl::OkStatus();
}

}  // namespace
}  // namespace moed

int main(int argc, char** argv) {
  moed::Options options;
  CLI::App app("what streaming over gRPC costs a token");
  app.add_option("--server", options.server, "address of a running daemon")->required();
  app.add_option("--prompt", options.prompt, "text to continue");
  app.add_option("--tokens", options.tokens, "of each answer")->check(CLI::Range(2, 1 << 20));
  app.add_option("--turns", options.turns, "pairs of answers")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = moed::Measure(options);
  if (!status.ok()) std::cerr << "stream_cost: " << status.ToString() << "\n";
  return status.ok() ? 0 : 1;
}
