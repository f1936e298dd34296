// GGUF files of the tiny checkpoints, made by llama.cpp's converter and kept as their difference from the checkpoint's
// model.safetensors (tools/parity/make_gguf.py, which says what a difference is made of).
#pragma once

#include <string>
#include <string_view>

namespace moed {

// The converter's file, to the byte: fails the test where its checksum is another.
std::string ApplyGgufDelta(std::string_view delta, std::string_view safetensors);

}  // namespace moed
