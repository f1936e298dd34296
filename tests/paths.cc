#include "tests/paths.h"

namespace moed {

std::string SourcePath(std::string_view inside) { return std::string(MOED_SOURCE_DIR "/") + std::string(inside); }
std::string BuiltProgram(std::string_view program) { return std::string(MOED_BIN_DIR "/") + std::string(program); }
std::string UnpackedCheckpoint(std::string_view name) { return std::string(MOED_CHECKPOINTS_DIR "/") + std::string(name); }

}  // namespace moed
