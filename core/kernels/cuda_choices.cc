#include "core/kernels/cuda_choices.h"

#include <algorithm>
#include <functional>

namespace moed::cuda {
namespace {

bool Meet(std::span<const ExpertChoice> one, std::span<const ExpertChoice> other) {
  const std::less<const ExpertChoice*> before;
  return before(one.data(), other.data() + other.size()) && before(other.data(), one.data() + one.size());
}

}  // namespace

RouteOperation ExpertChoices::RouteOf(const RouterShape& shape, float* logits, int rows, ExpertChoice* choices) {
  RouteOperation operation = {.shape = shape, .logits = logits, .choices = choices, .choices_on_host = nullptr, .rows = rows};
  if (unified_) return operation;
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(shape.top_k);
  operation.choices = descriptions_.Take<ExpertChoice>(count).device;
  operation.choices_on_host = choices;
  routed_.push_back({{choices, count}, operation.choices});
  return operation;
}

const ExpertChoice* ExpertChoices::ChoicesOf(std::span<const ExpertChoice> choices) {
  if (unified_) return choices.data();
  const auto last =
      std::find_if(routed_.rbegin(), routed_.rend(), [&](const Routed& routed) { return Meet(routed.on_host, choices); });
  if (last == routed_.rend()) return descriptions_.Copy(choices);
  const ptrdiff_t first = choices.data() - last->on_host.data();
  const bool all = first >= 0 && static_cast<size_t>(first) + choices.size() <= last->on_host.size();
  return all ? last->on_device + first : choices.data();
}

const unsigned char* const* ExpertChoices::MatricesOf(std::span<const std::byte* const> matrices) {
  const auto on_device = [](const std::byte* const* table) { return reinterpret_cast<const unsigned char* const*>(table); };
  if (unified_) return on_device(matrices.data());
  for (const Table& table : tables_) {
    if (table.on_host == matrices.data()) return table.on_device;
  }
  tables_.push_back({matrices.data(), on_device(descriptions_.Copy(matrices))});
  return tables_.back().on_device;
}

}  // namespace moed::cuda
