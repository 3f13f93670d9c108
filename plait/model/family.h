// A model family: how Hugging Face names its tensors and stores them. One small file a family in families/; the block itself is one.
#pragma once

#include <string>
#include <vector>

#include "plait/config/model_shape.h"

namespace plait {

// Names inside one layer, without ".weight" / ".bias".
struct BlockNames {
  std::string fused_qkv;  // one tensor q | k | v; empty: three tensors
  std::string query, key, value;
  std::string attention_out;
  std::string norm1, norm2;  // pre-norm: before attention / FFN; post-norm: after them
  std::string gate;          // gated FFN only
  std::string up, down;
};

struct FamilyNames {
  std::string word_embedding, position_embedding, token_type_embedding;  // with ".weight"
  std::string embedding_norm;                                            // BERT
  std::string final_norm;                                                // pre-norm families
  std::string head;                                                      // "lm_head.weight"
  std::string pooler, classifier;
  bool transposed_linears = false;    // weights stored [in, out] (Conv1D)
  bool scaled_residual_init = false;  // output projections start at initializer_range / sqrt(2 L) (GPT-2)
  BlockNames block;                   // "{}" stands for the layer number
};

const FamilyNames& bert_names();
const FamilyNames& gpt2_names();
const FamilyNames& llama_names();
const FamilyNames& family_names(Family family);

// "h.{}.ln_1" and 3 -> "h.3.ln_1"
std::string layer_name(const std::string& pattern, int64_t layer);

}  // namespace plait
