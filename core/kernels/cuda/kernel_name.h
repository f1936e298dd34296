// Kernels by name, for messages.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "core/kernels/cuda/runtime.h"

namespace moed {

// The kernel's name in its signature, without namespaces: "MatMul<kQ4>".
inline std::string KernelName(const Kernel& kernel) {
  const std::string_view signature = kernel.signature;
  constexpr std::string_view kBefore = "kKernel = ";
  size_t name = signature.find(kBefore) + kBefore.size();
  const size_t end = std::min(signature.find("; Arguments", name), signature.find(", Arguments", name));
  int depth = 0;  // of what is in brackets: arguments of templates
  for (size_t i = name; i < std::min(end, signature.size()); ++i) {
    if (signature[i] == '<') ++depth;
    if (signature[i] == '>') --depth;
    if (depth == 0 && signature.substr(i, 2) == "::") name = i + 2;
  }
  return std::string(signature.substr(name, end - name));
}

}  // namespace moed
