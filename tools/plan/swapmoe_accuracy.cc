#include "tools/plan/swapmoe_accuracy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/check.h"
#include "tools/plan/swapmoe_random.h"

namespace moed {
namespace {

// Adam's usual constants.
constexpr double kMomentum = 0.9;
constexpr double kSquares = 0.999;
constexpr double kEpsilon = 1e-8;

std::vector<double> Ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (size_t first = 0; first < order.size();) {
    size_t end = first;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    for (size_t i = first; i < end; ++i) ranks[order[i]] = static_cast<double>(first + end - 1) / 2;
    first = end;
  }
  return ranks;
}

}  // namespace

AccuracyModel::AccuracyModel(std::span<const MeasuredSlots> samples, int experts, const AccuracyOptions& options)
    : layers_(samples.front().slots.size()),
      hidden_(static_cast<size_t>(options.hidden)),
      experts_(experts),
      weights_(hidden_ * (layers_ + 2) + 1) {
  std::vector<std::vector<double>> inputs;
  std::vector<double> targets;
  for (const MeasuredSlots& sample : samples) {
    MOED_CHECK(sample.slots.size() == layers_);
    inputs.push_back(Input(sample.slots));
    targets.push_back(sample.nats);
    mean_ += sample.nats / static_cast<double>(samples.size());
  }
  double variance = 0;
  for (const double target : targets) variance += (target - mean_) * (target - mean_) / static_cast<double>(samples.size());
  if (variance > 0) scale_ = std::sqrt(variance);
  for (double& target : targets) target = (target - mean_) / scale_;
  SwapMoeRandom random(options.seed);
  const double first = 1 / std::sqrt(static_cast<double>(layers_)), second = 1 / std::sqrt(static_cast<double>(hidden_));
  for (size_t i = 0; i < hidden_ * layers_; ++i) weights_[i] = (2 * random.Uniform() - 1) * first;
  for (size_t h = 0; h < hidden_; ++h) weights_[hidden_ * (layers_ + 1) + h] = (2 * random.Uniform() - 1) * second;
  Train(inputs, targets, options);
}

std::vector<double> AccuracyModel::Input(const SlotCounts& slots) const {
  std::vector<double> input;
  for (const int here : slots) input.push_back(experts_ > 1 ? std::log(here) / std::log(experts_) : 0);
  return input;
}

double AccuracyModel::Forward(std::span<const double> input, std::vector<double>& hidden) const {
  const double* biases = &weights_[hidden_ * layers_];
  const double* out = biases + hidden_;
  double sum = out[hidden_];
  for (size_t h = 0; h < hidden_; ++h) {
    double at = biases[h];
    for (size_t l = 0; l < layers_; ++l) at += weights_[h * layers_ + l] * input[l];
    hidden[h] = std::tanh(at);
    sum += out[h] * hidden[h];
  }
  return sum;
}

void AccuracyModel::Train(const std::vector<std::vector<double>>& inputs, std::span<const double> targets,
                          const AccuracyOptions& options) {
  const auto samples = static_cast<double>(inputs.size());
  std::vector<double> hidden(hidden_), gradient(weights_.size()), momentum(weights_.size()), squares(weights_.size());
  for (int step = 1; step <= options.steps; ++step) {
    for (size_t i = 0; i < weights_.size(); ++i) gradient[i] = options.decay * weights_[i];
    for (size_t s = 0; s < inputs.size(); ++s) {
      const double error = (Forward(inputs[s], hidden) - targets[s]) / samples;
      for (size_t h = 0; h < hidden_; ++h) {
        const size_t out = hidden_ * (layers_ + 1) + h;
        const double behind = error * weights_[out] * (1 - hidden[h] * hidden[h]);
        gradient[out] += error * hidden[h];
        gradient[hidden_ * layers_ + h] += behind;
        for (size_t l = 0; l < layers_; ++l) gradient[h * layers_ + l] += behind * inputs[s][l];
      }
      gradient.back() += error;
    }
    const double unbias_momentum = 1 - std::pow(kMomentum, step), unbias_squares = 1 - std::pow(kSquares, step);
    for (size_t i = 0; i < weights_.size(); ++i) {
      momentum[i] = kMomentum * momentum[i] + (1 - kMomentum) * gradient[i];
      squares[i] = kSquares * squares[i] + (1 - kSquares) * gradient[i] * gradient[i];
      weights_[i] -= options.rate * (momentum[i] / unbias_momentum) / (std::sqrt(squares[i] / unbias_squares) + kEpsilon);
    }
  }
}

double AccuracyModel::Predict(const SlotCounts& slots) const {
  MOED_CHECK(slots.size() == layers_);
  std::vector<double> hidden(hidden_);
  return mean_ + scale_ * Forward(Input(slots), hidden);
}

double RankCorrelation(std::span<const double> a, std::span<const double> b) {
  MOED_CHECK(a.size() == b.size());
  const std::vector<double> x = Ranks(a), y = Ranks(b);
  const double mean = (static_cast<double>(a.size()) - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

}  // namespace moed
