// Model families as rows of one table: how config.json becomes a ModelSpec and which checkpoint tensor becomes which store
// tensor. A family is one file (family_mixtral.cc, ...) and one row.
//
// Store tensors have the same names in every family:
//   embed, head (absent when tied), head_bias, final_norm, final_norm_bias, rope.inv_freq (made by the packer),
//   layers.N.{attn_norm, attn_norm_bias, q, k, v, o, q_bias, k_bias, v_bias, o_bias, sinks, q_norm, k_norm, ffn_norm,
//             ffn_norm_bias, router, router_bias, router_norm, shared_norm, attn_post_norm, shared_post_norm,
//             experts_post_norm, ffn_post_norm, layer_scale, expert_scales,
//             q_a, q_a_norm, kv_a, kv_a_norm, k_b, v_b (latent attention, see core/model/weights.h),
//             router_correction, expert_bias.gate, expert_bias.up, expert_bias.down, shared.gate, shared.up, shared.down,
//             shared_gate, dense.gate, dense.up, dense.down, attention_gate, delta.convolution, delta.a_in, delta.a, delta.b,
//             delta.gate_in, delta.bias, delta.decay_rate, delta.norm, convolution, mamba2.convolution_bias, mamba2.step,
//             mamba2.step_bias, mamba2.decay_rate, mamba2.skip, mamba2.norm, cross.norm, cross.q, cross.k, cross.v, cross.o}
//   of encoder-decoders: encoder_norm, encoder_bias, decoder_bias (position_buckets, heads)
//   of prefix-LMs: positions, extra_positions, last_project, last_project_bias, layers.N.{attn_post_norm_bias,
//             ffn_post_norm_bias, bypass, dense.up_bias, dense.down_bias}
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/spec.h"
#include "core/store/description.h"

namespace moed {

inline constexpr std::string_view kEmbeddingTensor = "embed";
inline constexpr std::string_view kEncoderBias = "encoder_bias", kDecoderBias = "decoder_bias";

enum class TensorRole : uint8_t {
  kMatrix,  // (rows, cols) at the trunk format
  kVector,  // (rows * cols), float32: one row after the other
  kRouter,  // (rows, cols) at the checkpoint's own precision: routing must not be rounded
};

// How a checkpoint of safetensors writes the numbers of a vector.
enum class Spelling : uint8_t {
  kPlain,
  kLessOne,        // the number - 1
  kLogOfNegative,  // log(-number)
};

// What a vector's numbers are multiplied by when they are packed: the first `dims` of every `head_dim` of them.
struct HeadFactor {
  int head_dim = 0;  // 0: none is
  int dims = 0;
  double factor = 1;
};

struct TrunkTensor {
  std::string store_name;
  std::string checkpoint_name;
  TensorRole role = TensorRole::kMatrix;
  int rows = 0;
  int cols = 0;
  bool one_row = false;  // the checkpoint has the vector as a matrix of one row
  Spelling spelling = Spelling::kPlain;
  HeadFactor head_factor = {};
  std::vector<uint64_t> checkpoint_shape() const {
    const auto width = static_cast<uint64_t>(cols);
    if (role == TensorRole::kVector && rows == 1 && !one_row) return {width};
    return {static_cast<uint64_t>(rows), width};
  }
  // The store's shape: a vector is one row.
  int stored_rows() const { return role == TensorRole::kVector ? 1 : rows; }
  int stored_cols() const { return role == TensorRole::kVector ? rows * cols : cols; }
};

// A matrix, or a vector (rows = 1), that the checkpoint holds as a part of a larger tensor: element (r, c) is number
// offset + r * row_stride + c * col_stride of it; where rows come in groups
// offset + r / group_rows * group_stride + r % group_rows * row_stride + c * col_stride.
struct TensorPart {
  std::string name;  // that the family asks for
  std::string whole;
  // Of MXFP4: the tensor with a scale for 32 neighbouring numbers; `whole` has two of their codes in a byte, and shape counts
  // blocks and bytes. col_stride = 1.
  std::string scales = "";
  // The tensors that make up the whole, one below the other, of one shape. Empty: it is a tensor itself.
  std::vector<std::string> stacked = {};
  std::vector<uint64_t> whole_shape;
  int rows = 0;
  int cols = 0;
  int64_t offset = 0;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
  int group_rows = 0;  // 0: no groups
  int64_t group_stride = 0;
};

// What names of tensors begin with in a checkpoint that has more than the text part, and what they begin with without more.
struct NameBeginning {
  std::string_view whole;
  std::string_view text;
};

struct Family {
  std::string_view model_type;
  // `config`, `generation_config`: texts of the files ("" where the second is absent). Both spellings of transformers 4 and 5.
  // A key that changes the function and is not implemented is an INVALID_ARGUMENT that names key and value; so are missing keys
  // and values out of range.
  absl::StatusOr<ModelSpec> (*read_spec)(std::string_view config, std::string_view generation_config);
  // "block_sparse_moe.experts.{e}.w1.weight" with its layer: the whole checkpoint name of a part of an expert.
  std::string (*expert_tensor)(LayerId layer, int expert, ExpertPart part);
  // Every trunk tensor the checkpoint must have; with the experts' the checkpoint's tensors are complete.
  std::vector<TrunkTensor> (*trunk_tensors)(const ModelSpec& spec);
  // Which of these tensors may come as parts of others. Null: none.
  std::vector<TensorPart> (*parts)(const ModelSpec& spec) = nullptr;
  // Whether a tensor that the checkpoint has beside these is known and not used. Null: none is.
  bool (*unused)(const ModelSpec& spec, std::string_view name) = nullptr;
  // A checkpoint that has more than the text part: its model_type, and what stands there in place of "model." before the names of
  // the text part's tensors. Empty: there is none.
  std::string_view whole_model_type = "";
  std::string_view whole_prefix = "";
  std::span<const NameBeginning> whole_names = {};  // of the text part's other tensors
  // The one of config.json's architectures by which a config.json without a model_type is known. Empty: there is none.
  std::string_view architecture = "";
};

std::span<const Family> Families();
// By config.json's model_type. INVALID_ARGUMENT lists the known ones.
absl::StatusOr<const Family*> FamilyOf(std::string_view config_json);
absl::StatusOr<const Family*> FamilyNamed(std::string_view model_type);

}  // namespace moed
