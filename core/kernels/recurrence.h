// What layers with a state in place of keys and values are given. Plain data: files compiled for one instruction set include it.
#pragma once

#include <stdint.h>

namespace moed {

inline constexpr int kMostTaps = 16;

// Consecutive positions of one sequence, a row of activations each; the rows of the runs of a call follow each other. No two runs
// share a state.
struct StateRun {
  float* state = nullptr;  // of what lies before the run, then of its last row too. At position 0 zeros count, whatever is there
  int position = 0;        // of the first row
  int tokens = 0;          // rows
};

// A depthwise causal convolution: each channel by itself, `taps` positions up to a row's own.
struct ConvolutionShape {
  int channels = 0;
  int taps = 0;                 // 2 to kMostTaps
  const float* bias = nullptr;  // (channels); null: none
  bool silu = true;             // of the sums
};

// Rows of queries (key_heads, key_dim), keys (key_heads, key_dim), values (value_heads, value_dim), one behind the other. Value
// head h goes with the key head KeyHead(h).
struct DeltaRuleShape {
  int key_heads = 0;
  int value_heads = 0;  // a multiple of key_heads
  int key_dim = 0;
  int value_dim = 0;
  float scale = 1;                 // of the outputs
  bool key_heads_in_turn = false;  // neighbouring value heads go with neighbouring key heads, not with one
  bool decay_by_channel = false;   // each dimension of a value head's keys has a decay of its own
  int KeyHead(int value_head) const {
    return key_heads_in_turn ? value_head % key_heads : value_head / (value_heads / key_heads);
  }
  int64_t row() const { return int64_t{2} * key_heads * key_dim + output_row(); }
  int64_t output_row() const { return int64_t{value_heads} * value_dim; }
  int decays() const { return decay_by_channel ? key_dim : 1; }  // of a value head
};

// Rows of values (value_heads, value_dim), keys (key_heads, key_dim), queries (key_heads, key_dim), one behind the other. Value
// head h goes with the key head KeyHead(h).
struct StateSpaceShape {
  int key_heads = 0;
  int value_heads = 0;  // a multiple of key_heads
  int key_dim = 0;
  int value_dim = 0;
  int KeyHead(int value_head) const { return value_head / (value_heads / key_heads); }
  int64_t row() const { return int64_t{2} * key_heads * key_dim + output_row(); }
  int64_t output_row() const { return int64_t{value_heads} * value_dim; }
};

// A run of tokens through some columns of a head's state.
struct StateArguments {
  const float* query;  // (tokens, key_dim), `row_stride` floats from token to token; so are the next two
  const float* key;
  const float* value;  // (tokens, columns)
  const float* decay;  // (tokens), or (tokens, key_dim) where decay_by_channel, `decay_stride` floats from token to token
  const float* rate;   // (tokens), `gate_stride` floats from token to token
  float* state;        // (key_dim, columns), `state_stride` floats from row to row
  float* output;       // (tokens, columns), `output_stride` floats from token to token
  int64_t row_stride;
  int64_t gate_stride;
  int64_t decay_stride;
  int64_t state_stride;
  int64_t output_stride;
  int tokens;
  int key_dim;
  int columns;
  float scale;            // of the delta rule's outputs
  float skip;             // of the values that the state space model adds to its outputs
  bool decay_by_channel;  // of the delta rule
};

}  // namespace moed
