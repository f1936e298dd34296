// Parts of a checkpoint's tensors: rows of its matrices, and the weights of its convolutions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/family.h"

namespace moed {

// Rows of `whole`, which has as many columns.
struct RowsOf {
  std::string whole;
  int whole_rows = 0;
  int64_t first = 0;
  int group = 0;         // rows that follow each other; 0: all
  int groups_apart = 0;  // rows from the begin of a group to that of the next
};
TensorPart PartOf(std::string name, int rows, int cols, const RowsOf& from);
// The weights of a depthwise convolution as (taps, channels); they stand by channel in `whole`, (channels, 1, taps) or, `flat`,
// (channels, taps).
TensorPart TapsOf(std::string name, std::string whole, int channels, int taps, bool flat = false);
// `prefix` + query, key and value: the rows of `prefix` + weight, one below the other, of layers whose heads are those of the
// model.
void AddQueryKeyValue(const ModelSpec& spec, const std::string& prefix, std::vector<TensorPart>& parts);
// `prefix` + gate, value, key, query and step: the rows of `prefix` + weight, one below the other, as Mamba-2 has them.
void AddMamba2Projections(const Mamba2Shape& shape, int hidden, const std::string& prefix, std::vector<TensorPart>& parts);
// `prefix` + key, gate and value: the rows of `prefix` + weight, as a short convolution has them.
void AddShortConvolutionProjections(int hidden, const std::string& prefix, std::vector<TensorPart>& parts);

}  // namespace moed
