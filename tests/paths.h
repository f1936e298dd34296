// Where the tests find golden files and the programs under test.
#pragma once

#include <string>
#include <string_view>

namespace moed {

std::string SourcePath(std::string_view inside);     // of the repository: "models/tales-qwen"; "" is its root
std::string BuiltProgram(std::string_view program);  // "moed-pack"
std::string UnpackedCheckpoint(
    std::string_view name);  // a folder of tests/model/data, unpacked: "olmoe"; "" is the folder of all

}  // namespace moed
