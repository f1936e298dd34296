// What requests of every API come down to.
#pragma once

#include <span>
#include <string>

#include "moe/v1/inference.pb.h"
#include "server/http/api/parameters.h"

namespace moed::http {

struct AnswerOptions {
  std::string model;
  bool stream = false;
  bool include_usage = false;  // of a stream: in an event of its own
  moe::v1::Sampling sampling;
  moe::v1::Stopping stopping;
  moe::v1::ResponseOptions response;
  moe::v1::Fidelity fidelity;
  bool has_fidelity = false;
};

// Fills what the daemon's requests have in common.
template <class Request>
void SetOptions(AnswerOptions&& options, const std::string& request_id, Request& request) {
  request.set_request_id(request_id);
  *request.mutable_sampling() = std::move(options.sampling);
  *request.mutable_stopping() = std::move(options.stopping);
  *request.mutable_response() = std::move(options.response);
  if (options.has_fidelity) *request.mutable_fidelity() = std::move(options.fidelity);
}

}  // namespace moed::http
