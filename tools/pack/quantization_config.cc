#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/model/config_reader.h"
#include "nlohmann/json.hpp"
#include "tools/pack/quantization.h"

namespace moed {
namespace {

using nlohmann::json;

constexpr std::string_view kKey = "quantization_config";
constexpr int kMostGroup = 1 << 24;

// What AutoRound and GPTQModel say of how the numbers came about.
void KnowBookkeeping(ConfigReader& config) {
  config.Only("data_type", {"int"});
  config.Known({"autoround_version", "dynamic", "enable_quanted_input", "iters", "lm_head", "low_gpu_mem_usage", "meta",
                "nsamples", "pack_dtype", "provider", "seqlen", "sym"});
}

uint64_t ReadGroup(ConfigReader& config) {
  const int group = config.Int("group_size", -1, kMostGroup);
  return group > 0 ? static_cast<uint64_t>(group) : 0;
}

Quantization ReadAwq(ConfigReader& config) {
  config.Only("bits", {4});
  config.Only("version", {"gemm", "GEMM"});
  config.Only("format", {"gemm", "GEMM"});
  config.Only("checkpoint_format", {"gemm", "GEMM"});
  config.Only("zero_point", {true, false});  // the zeros are there either way
  config.Only("desc_act", {false});
  KnowBookkeeping(config);
  config.Known({"backend", "do_fuse", "exllama_config", "fuse_max_seq_len", "modules_to_fuse", "modules_to_not_convert"});
  return {.method = Quantization::Method::kAwq, .group = ReadGroup(config)};
}

Quantization ReadGptq(ConfigReader& config) {
  config.Only("bits", {4});
  config.Only("desc_act", {false});
  config.Only("is_marlin_format", {false});
  config.Only("pack_dtype", {"int32"});
  const std::string_view format = config.Spelling("checkpoint_format", "format");
  config.Only(format, {"gptq", "gptq_v2"});
  const bool second = config.Has(format) && config.String(format) == "gptq_v2";
  KnowBookkeeping(config);
  config.Known({"act_group_aware",
                "backend",
                "batch_size",
                "block_name_to_quantize",
                "cache_block_outputs",
                "damp_auto_increment",
                "damp_percent",
                "dataset",
                "disable_exllama",
                "exllama_config",
                "hyb_act",
                "max_input_length",
                "model_file_base_name",
                "model_name_or_path",
                "model_seqlen",
                "module_name_preceding_first_block",
                "modules_in_block_to_quantize",
                "mse",
                "offload_to_disk",
                "pad_token_id",
                "static_groups",
                "tokenizer",
                "true_sequential",
                "use_cuda_fp16",
                "use_exllama"});
  return {.method = Quantization::Method::kGptq, .group = ReadGroup(config), .zero_term = second ? 0 : 1};
}

Quantization ReadFp8(ConfigReader& config) {
  config.Only("fmt", {"e4m3", "float8_e4m3fn"});
  config.Only("scale_fmt", {"float", "ue8m0"});
  config.Known({"act_per_tensor", "activation_scheme", "dequantize", "ignored_layers", "kv_cache_scheme",
                "modules_to_not_convert", "weight_per_tensor"});
  const std::vector<int> block = config.IntsOr("weight_block_size", 1, kMostGroup);
  if (!block.empty()) config.Only("weight_per_tensor", {false});
  if (!block.empty() && block.size() != 2) {
    config.Fail(InvalidArgument("config.json: ", kKey, ": weight_block_size has ", block.size(), " numbers, expected 2"));
  }
  Quantization fp8{.method = Quantization::Method::kFp8};
  if (block.size() == 2) {
    fp8.block_rows = static_cast<uint64_t>(block[0]), fp8.block_cols = static_cast<uint64_t>(block[1]);
    fp8.scale = "_scale_inv";
  }
  return fp8;
}

// compressed-tensors' formats of weights.
constexpr struct CompressedFormat {
  std::string_view name;
  Quantization::Method method;
  int bits;
  const char* type;
} kCompressedFormats[] = {{"pack-quantized", Quantization::Method::kPacked, 4, "int"},
                          {"float-quantized", Quantization::Method::kFp8, 8, "float"},
                          {"nvfp4-pack-quantized", Quantization::Method::kNvfp4, 4, "float"}};

// How compressed-tensors has the weights of a group of layers; activations stay as they are.
absl::StatusOr<Quantization> ReadCompressedWeights(ConfigReader weights, const CompressedFormat& format) {
  weights.Only("num_bits", {format.bits});
  weights.Only("type", {format.type});
  weights.Only("symmetric", {true});
  weights.Only("dynamic", {false});
  weights.Only("actorder", {"weight", "static"});  // columns lie in their own order
  weights.Known({"observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
  const std::string strategy = weights.String("strategy");
  Quantization read{.method = format.method};
  if (format.method == Quantization::Method::kNvfp4) {
    weights.Only("strategy", {"tensor_group"});
    weights.Only("group_size", {16});
    weights.Only("block_structure", {});
  } else if (format.method == Quantization::Method::kPacked) {
    weights.Only("strategy", {"group", "channel"});
    weights.Only("block_structure", {});
    if (weights.Has("group_size")) read.group = ReadGroup(weights);
  } else {
    weights.Only("strategy", {"tensor", "channel", "block"});
    weights.Only("group_size", {});
    const std::vector<int> block = weights.IntsOr("block_structure", 1, kMostGroup);
    if (strategy == "block" && block.size() != 2) weights.Only("block_structure", {"two numbers"});
    read.block_rows = strategy == "tensor" ? 0 : strategy == "channel" || block.empty() ? 1 : static_cast<uint64_t>(block[0]);
    read.block_cols = block.size() == 2 ? static_cast<uint64_t>(block[1]) : 0;
  }
  weights.Known({"group_size", "block_structure"});
  MOED_RETURN_IF_ERROR(weights.Finish());
  return read;
}

// One group of layers, whose weights are packed integers or numbers of FP8 or NVFP4.
absl::StatusOr<Quantization> ReadCompressedGroup(ConfigReader& config) {
  config.Only("format", {"pack-quantized", "float-quantized", "nvfp4-pack-quantized"});
  MOED_ASSIGN_OR_RETURN(ConfigReader groups, config.Object("config_groups"));
  MOED_ASSIGN_OR_RETURN(ConfigReader group, groups.Object("group_0"));
  MOED_RETURN_IF_ERROR(groups.Finish());
  const std::string name = config.String("format");
  const auto format = std::ranges::find(kCompressedFormats, name, &CompressedFormat::name);
  if (format == std::end(kCompressedFormats)) return config.status();
  group.Only("format", {name});
  group.Only("output_activations", {});
  group.Known({"input_activations", "targets"});
  MOED_ASSIGN_OR_RETURN(ConfigReader weights, group.Object("weights"));
  MOED_RETURN_IF_ERROR(group.Finish());
  return ReadCompressedWeights(std::move(weights), *format);
}

// compressed-tensors' rotations of weights are in the weights; those of activations would have to be done.
absl::Status CheckTransforms(const json& transforms) {
  const std::string key = StrCat("config.json: ", kKey, ": transform_config");
  const json groups = transforms.is_object() ? transforms.value("config_groups", json::object()) : json();
  if (!groups.is_object()) return InvalidArgument(key, " = ", ShownJson(transforms), ", expected an object with config_groups");
  for (const auto& [name, group] : groups.items()) {
    const json apply = group.is_object() ? group.value("apply", json()) : json();
    if (!apply.is_array()) return InvalidArgument(key, ", config_groups: ", name, " has no list \"apply\"");
    if (group.value("requires_grad", json(false)) != false) {
      return InvalidArgument(key, ", config_groups: ", name, ": requires_grad = ", ShownJson(group["requires_grad"]),
                             " is not supported; allowed: false");
    }
    for (const json& one : apply) {
      const json location = one.is_object() ? one.value("location", json()) : json();
      if (location == "weight_input" || location == "weight_output") continue;
      return InvalidArgument(key, ", config_groups: ", name, ": location = ", ShownJson(location),
                             " is not supported; allowed: \"weight_input\", \"weight_output\"");
    }
  }
  return absl::OkStatus();
}

// What ModelOpt says of layers where they are not alike.
absl::Status CheckLayers(const json& layers) {
  const std::string key = StrCat("config.json: ", kKey, ": quantized_layers");
  if (!layers.is_object()) return InvalidArgument(key, " = ", ShownJson(layers), ", expected an object");
  for (const auto& [name, layer] : layers.items()) {
    const json algorithm = layer.is_object() ? layer.value("quant_algo", json()) : json();
    if (algorithm == "NVFP4" || algorithm == "W4A16_NVFP4" || algorithm == "FP8") continue;
    return InvalidArgument(key, ", ", name, ": quant_algo = ", ShownJson(algorithm),
                           " is not supported; allowed: \"NVFP4\", \"W4A16_NVFP4\", \"FP8\"");
  }
  return absl::OkStatus();
}

Quantization ReadCompressed(ConfigReader& config) {
  config.Only("quantization_status", {"compressed"});
  config.Only("sparsity_config", {json::object()});
  config.Known({"global_compression_ratio", "ignore", "kv_cache_scheme", "provider", "transform_config", "version"});
  const absl::StatusOr<Quantization> read = ReadCompressedGroup(config);
  if (!read.ok()) config.Fail(read.status());
  return read.value_or(Quantization{});
}

// NVIDIA's ModelOpt: a tensor's own type says whether it is NVFP4 or FP8.
Quantization ReadModelOpt(ConfigReader& config) {
  config.Only("quant_algo", {"NVFP4", "W4A16_NVFP4", "FP8", "MIXED_PRECISION"});
  config.Only("group_size", {16});
  config.Known(
      {"config_groups", "exclude_modules", "ignore", "kv_cache_quant_algo", "kv_cache_scheme", "producer", "quantized_layers"});
  return {.method = Quantization::Method::kModelOpt};
}

constexpr struct {
  std::string_view name;
  Quantization (*read)(ConfigReader& config);  // null: the family's
} kMethods[] = {{"awq", ReadAwq},           {"compressed-tensors", ReadCompressed},
                {"fp8", ReadFp8},           {"gptq", ReadGptq},
                {"modelopt", ReadModelOpt}, {"mxfp4", nullptr}};

}  // namespace

std::vector<std::string> QuantizationMethods() {
  std::vector<std::string> names;
  for (const auto& method : kMethods) names.emplace_back(method.name);
  return names;
}

absl::Status AddModelOptConfig(std::string_view path, std::string_view hf_quant_config, std::string& config_json) {
  absl::StatusOr<json> config = ParseConfigJson("config.json", config_json);
  if (!config.ok() || !config->is_object()) return absl::OkStatus();  // the family's error
  if (config->contains(kKey)) return absl::OkStatus();
  MOED_ASSIGN_OR_RETURN(const json file, ParseForeignJson<json>(std::string(path), hf_quant_config));
  json said = file.is_object() ? file.value("quantization", json()) : json();
  if (!said.is_object()) return InvalidArgument(path, ": expected an object \"quantization\"");
  said["quant_method"] = "modelopt";
  (*config)[kKey] = std::move(said);
  config_json = config->dump(-1, ' ', false, json::error_handler_t::replace);
  return absl::OkStatus();
}

absl::StatusOr<Quantization> TakeQuantization(std::string& config_json) {
  absl::StatusOr<json> parsed = ParseConfigJson("config.json", config_json);
  if (!parsed.ok() || !parsed->is_object()) return Quantization{};  // the family's error
  json& config = *parsed;
  const auto text = config.find("text_config");
  const bool in_text = !config.contains(kKey) && text != config.end() && text->is_object();
  json& holder = in_text ? *text : config;
  if (!holder.contains(kKey) || holder[kKey].is_null()) return Quantization{};
  const json& own = holder[kKey];
  const json method = own.is_object() ? own.value("quant_method", json()) : json();
  const auto row =
      std::find_if(std::begin(kMethods), std::end(kMethods), [&](const auto& known) { return method == known.name; });
  if (row == std::end(kMethods) && method.is_null() && own.is_object() && own.contains("group_size") && own.contains("bits")) {
    return InvalidArgument("config.json: ", kKey, " is that of MLX, whose files are not read: pack the original, or a GGUF file");
  }
  if (row == std::end(kMethods)) {
    return InvalidArgument("config.json: ", kKey, ": quant_method is ", ShownJson(method),
                           ", known methods: ", JoinNames(QuantizationMethods(), [](const std::string& name) { return name; }));
  }
  if (row->read == nullptr) return Quantization{};
  MOED_ASSIGN_OR_RETURN(ConfigReader reader, ConfigReader::Parse(StrCat("config.json: ", kKey),
                                                                 own.dump(-1, ' ', false, json::error_handler_t::replace)));
  reader.Known({"quant_method"});
  const Quantization quantization = row->read(reader);
  if (const auto at = own.find("transform_config"); at != own.end() && !at->is_null()) {
    MOED_RETURN_IF_ERROR(CheckTransforms(*at));
  }
  if (const auto at = own.find("quantized_layers"); at != own.end() && !at->is_null()) MOED_RETURN_IF_ERROR(CheckLayers(*at));
  MOED_RETURN_IF_ERROR(reader.Finish());
  // Of a text part it is written once more, or was that of the checkpoint that the weights were made of.
  if (!in_text && text != config.end() && text->is_object()) text->erase(kKey);
  holder.erase(kKey);
  config_json = config.dump(-1, ' ', false, json::error_handler_t::replace);
  return quantization;
}

}  // namespace moed
