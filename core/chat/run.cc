#include "core/chat/run.h"

#include "core/base/status.h"
#include "core/chat/error.h"
#include "core/chat/python_text.h"

namespace moed::chat {

Run::~Run() {
  for (const auto& object : kept_) object->Drop();
}

absl::Status Run::Work(size_t steps) {
  steps_ += steps;
  if (steps_ > limits_.steps) return ResourceExhausted("the chat template takes more than ", limits_.steps, " steps");
  if (stopping_ == nullptr || steps_ - asked_at_ < kStepsBetweenQuestions) return absl::OkStatus();
  asked_at_ = steps_;
  return stopping_() ? absl::CancelledError("the rendering was stopped") : absl::OkStatus();
}

absl::Status Run::Fits(size_t bytes) const {
  if (bytes > limits_.memory_bytes || live_bytes_ > limits_.memory_bytes - bytes) {
    return ResourceExhausted("the chat template's values take more than ", limits_.memory_bytes, " bytes");
  }
  return absl::OkStatus();
}

absl::Status Run::FitsOutput(size_t bytes) const {
  return bytes > limits_.output_bytes ? TooLong(limits_.output_bytes) : absl::OkStatus();
}

absl::Status Run::TooDeep() {
  return ResourceExhausted("the chat template nests lists and dicts more than ", kMostDepth, " deep");
}

absl::Status Run::Enter() {
  if (level_ >= limits_.depth) return ResourceExhausted("the chat template nests more than ", limits_.depth, " levels deep");
  ++level_;
  return absl::OkStatus();
}

absl::StatusOr<Value> Run::NewText(MarkedText text, bool markup) {
  MOED_RETURN_IF_ERROR(WorkOn(text.text.size()));
  const size_t characters = CountCharacters(text.text);
  const size_t bytes = sizeof(Text) + text.bytes();
  return New<Text>(bytes, std::move(text), characters, markup);
}

absl::StatusOr<Value> Run::NewSequence(Flavor flavor, std::vector<Value> items) {
  MOED_RETURN_IF_ERROR(Work(items.size()));
  const size_t bytes = sizeof(Sequence) + items.capacity() * sizeof(Value);
  return New<Sequence>(bytes, flavor, std::move(items));
}

absl::StatusOr<Value> Run::NewDict(std::vector<Dict::Entry> entries) {
  size_t searched = 0;  // keys that are no texts are compared one by one
  for (const auto& [key, value] : entries) {
    if (!IsHashable(key)) return InvalidArgument("unhashable type: '", TypeName(key), "'");
    if (!key.is(Kind::kText)) ++searched;
  }
  MOED_RETURN_IF_ERROR(Work(entries.size() * (1 + searched)));
  const size_t bytes = sizeof(Dict) + entries.size() * (sizeof(Dict::Entry) + 32);
  return New<Dict>(bytes, std::move(entries));
}

}  // namespace moed::chat
