// SwapMoE, 3.4.2: what a model loses with so many slots in each layer, from losses that were measured at some of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moed {

using SlotCounts = std::vector<int>;  // by MoE layer

struct MeasuredSlots {
  SlotCounts slots;
  double nats = 0;  // a token
};

struct AccuracyOptions {
  int hidden = 16;
  int steps = 2000;  // of gradient descent (Adam) over all samples at once
  double rate = 0.01;
  double decay = 1e-3;  // of the weights, so that few samples are not learned by heart
  uint64_t seed = 1;
};

// Two layers, tanh between them, fitted to least squares. Layer l's input is log(slots_l) / log(experts). The same bits for the
// same samples, options and machine.
class AccuracyModel {
 public:
  // At least one sample; all of as many layers.
  AccuracyModel(std::span<const MeasuredSlots> samples, int experts, const AccuracyOptions& options);

  double Predict(const SlotCounts& slots) const;  // nats a token

 private:
  std::vector<double> Input(const SlotCounts& slots) const;
  double Forward(std::span<const double> input, std::vector<double>& hidden) const;
  void Train(const std::vector<std::vector<double>>& inputs, std::span<const double> targets, const AccuracyOptions& options);

  const size_t layers_;
  const size_t hidden_;
  const int experts_;
  double mean_ = 0;  // of the samples, and their deviation
  double scale_ = 1;
  std::vector<double> weights_;  // (hidden, layers), biases (hidden), (hidden), bias
};

// Spearman's: 1 where both order the same way, -1 where they order oppositely; equal values share their mean rank. 0 where one
// of them is constant or fewer than two are given.
double RankCorrelation(std::span<const double> a, std::span<const double> b);

}  // namespace moed
