// What requests of every API come down to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "moe/v1/inference.pb.h"
#include "server/http/api/parameters.h"

namespace moed::http {

// What every object of one answer says of it.
struct AnswerIdentity {
  std::string id;  // "cmpl-..."; the daemon's request_id as well
  std::string model;
  int64_t created_unix_seconds = 0;
};

// A conversation that the daemon keeps (docs/sessions.md).
struct SessionOptions {
  std::string id;  // "" = none
  bool must_exist = false;
  std::optional<int32_t> expected_tokens;
};

struct AnswerOptions {
  std::string model;
  bool stream = false;
  bool include_usage = false;  // of a stream: in an event of its own
  int choices = 1;             // to each prompt
  moe::v1::Sampling sampling;
  moe::v1::Stopping stopping;
  moe::v1::ResponseOptions response;
  moe::v1::Fidelity fidelity;
  bool has_fidelity = false;
  moe::v1::Priority priority = moe::v1::PRIORITY_UNSPECIFIED;
  SessionOptions session;
  moe::v1::OutputFormat format;            // nothing set: any text
  std::string_view format_parameter = "";  // a literal: which of several said it
  std::string_view length_parameter = "";  // likewise, of stopping.max_new_tokens
};

// Fills what the daemon's requests have in common.
template <class Request>
void SetOptions(AnswerOptions&& options, const std::string& request_id, Request& request) {
  request.set_request_id(request_id);
  *request.mutable_sampling() = std::move(options.sampling);
  *request.mutable_stopping() = std::move(options.stopping);
  *request.mutable_response() = std::move(options.response);
  request.set_session_id(std::move(options.session.id));
  request.set_must_exist(options.session.must_exist);
  request.set_priority(options.priority);
  if (options.format.kind_case() != moe::v1::OutputFormat::KIND_NOT_SET) *request.mutable_format() = std::move(options.format);
  if (options.session.expected_tokens) request.set_expected_tokens(*options.session.expected_tokens);
  if (options.has_fidelity) *request.mutable_fidelity() = std::move(options.fidelity);
}

// The daemon's requests for one answer: to each prompt so many choices, prompt by prompt.
template <class Request>
class ChoiceRequests {
 public:
  // `prompts`: what they have not in common. `options` are all that `common` has beside what is set already.
  ChoiceRequests(std::string id, std::vector<Request> prompts, Request common, AnswerOptions&& options)
      : id_(std::move(id)),
        each_(static_cast<size_t>(options.choices)),
        prompts_(std::move(prompts)),
        common_(std::move(common)) {
    SetOptions(std::move(options), id_, common_);
  }

  size_t count() const { return prompts_.size() * each_; }
  // Of the request that Make makes, about.
  size_t bytes(size_t choice) const { return prompts_[choice / each_].ByteSizeLong() + common_.ByteSizeLong(); }
  // Of memory.
  size_t held_bytes() const {
    size_t bytes = common_.SpaceUsedLong();
    for (const Request& prompt : prompts_) bytes += prompt.SpaceUsedLong();
    return bytes;
  }

  // Of choices to the same prompt each has a seed and a name of its own. Where there is one in all it is made once. Several
  // threads may make others.
  Request Make(size_t choice) {
    if (count() == 1) {
      Request request = std::move(prompts_.front());
      request.MergeFrom(common_);
      return request;
    }
    Request request = prompts_[choice / each_];
    request.MergeFrom(common_);
    request.set_request_id(StrCat(id_, "-", choice));
    if (request.sampling().has_seed()) request.mutable_sampling()->set_seed(request.sampling().seed() + choice % each_);
    return request;
  }

 private:
  const std::string id_;
  const size_t each_;
  std::vector<Request> prompts_;
  Request common_;
};

}  // namespace moed::http
