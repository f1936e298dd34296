#include "tools/pack/family_list.h"

#include <cstdio>
#include <vector>

#include "core/base/status.h"
#include "core/model/family.h"
#include "core/quant/ggml_types.h"
#include "core/quant/safetensors_types.h"
#include "nlohmann/json.hpp"
#include "tools/pack/gguf/architecture.h"
#include "tools/pack/gguf/pre_tokenizers.h"
#include "tools/pack/quantization.h"

namespace moed {
namespace {

// That of a checkpoint with more than the text part too.
std::vector<std::string> ModelTypesOf(const Family& family) {
  std::vector<std::string> names = {std::string(family.model_type)};
  if (!family.whole_model_type.empty()) names.emplace_back(family.whole_model_type);
  return names;
}

std::vector<std::string> ArchitecturesOf(const Family& family) {
  std::vector<std::string> names;
  for (const GgufArchitecture& architecture : GgufArchitectures()) {
    if (architecture.Runs(family.model_type)) names.emplace_back(architecture.name);
  }
  return names;
}

std::vector<std::string> PreTokenizerNames() {
  std::vector<std::string> names;
  for (const GgufPreTokenizer& row : GgufPreTokenizers()) names.insert(names.end(), row.names.begin(), row.names.end());
  return names;
}

template <class Rows>
std::vector<std::string> Names(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> SafetensorsNumbers() {
  std::vector<std::string> names;
  for (const BlockType& type : SafetensorsTypes()) {
    if (type.is_numbers()) names.emplace_back(type.name);
  }
  return names;
}

std::string Joined(const std::vector<std::string>& names) {
  return JoinNames(names, [](const std::string& name) { return name; });
}

}  // namespace

std::string FamiliesText() {
  std::string text = "model_type of config.json       general.architecture of GGUF\n";
  for (const Family& family : Families()) {
    const std::vector<std::string> architectures = ArchitecturesOf(family);
    char line[200];
    std::snprintf(line, sizeof line, "%-31s %s\n", Joined(ModelTypesOf(family)).c_str(),
                  architectures.empty() ? "-" : Joined(architectures).c_str());
    text += line;
  }
  return StrCat(text, "\nnumbers of safetensors: ", Joined(SafetensorsNumbers()),
                "\nquantised safetensors: ", Joined(QuantizationMethods()), "\ntypes of GGUF: ", Joined(Names(GgmlTypes())),
                "\npre-tokenizers of GGUF: ", Joined(PreTokenizerNames()), "\n");
}

std::string FamiliesJson() {
  nlohmann::ordered_json json;
  for (const Family& family : Families()) {
    json["families"].push_back({{"model_type", family.model_type},
                                {"model_types", ModelTypesOf(family)},
                                {"gguf_architectures", ArchitecturesOf(family)}});
  }
  json["safetensors_types"] = SafetensorsNumbers();
  json["quantised_safetensors"] = QuantizationMethods();
  json["gguf_types"] = Names(GgmlTypes());
  json["gguf_pre_tokenizers"] = PreTokenizerNames();
  return json.dump(2) + "\n";
}

}  // namespace moed
