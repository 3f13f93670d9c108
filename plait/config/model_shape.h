// ModelShape: what a Hugging Face config.json says, in plain numbers, for every family plait knows. No tensors: the
// planner, the layout check and the model builder all read this one struct.
// Letters: V vocabulary, H hidden, L layers, N heads, D head size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plait {

enum class Family { kBert, kGpt2, kLlama };  // kLlama serves llama, mistral, qwen2
enum class Activation { kGelu, kGeluTanh, kSilu, kRelu };
enum class RopeScaling { kNone, kLinear, kDynamic, kLlama3, kYarn };

struct RopeOptions {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  int64_t original_max_positions = 0;                    // llama3, yarn, dynamic
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  std::optional<double> attention_factor;                // yarn; none = 0.1 ln(factor) + 1
};

struct ModelShape {
  Family family = Family::kBert;
  std::string model_type;   // as config.json: "bert", "gpt2", "llama", "mistral", "qwen2"
  int64_t vocab_size = 0;   // V
  int64_t hidden_size = 0;  // H
  int64_t num_layers = 0;   // L
  int64_t num_heads = 0;    // N
  int64_t num_kv_heads = 0;
  int64_t head_size = 0;  // D
  int64_t ffn_size = 0;
  int64_t max_positions = 0;    // longest sequence
  int64_t type_vocab_size = 0;  // BERT segments; 0 = none
  Activation activation = Activation::kGelu;
  bool gated_ffn = false;  // SwiGLU
  bool rms_norm = false;   // else LayerNorm
  bool pre_norm = true;    // BERT: false
  double norm_eps = 1e-5;
  bool causal = true;
  bool rotary = false;  // else learned positions
  RopeOptions rope;
  bool qkv_bias = true;  // q, k, v
  bool attention_out_bias = true;
  bool ffn_bias = true;
  bool tied_embeddings = false;
  std::optional<int64_t> sliding_window;   // tokens a query sees, itself included
  int64_t sliding_window_first_layer = 0;  // layers below it see everything (qwen2 max_window_layers)
  std::optional<double> attention_scale;   // none = 1/sqrt(D)
  std::optional<int64_t> pad_token_id, bos_token_id, eos_token_id;
  bool pad_row_frozen = false;  // nn.Embedding(padding_idx): the pad row's gradient is 0 (BERT, llama)
  double initializer_range = 0.02;
  double embedding_dropout = 0, hidden_dropout = 0, attention_dropout = 0, classifier_dropout = 0;
  int64_t num_labels = 0;                // 0 = config.json says nothing
  std::vector<std::string> label_names;  // id2label in id order, empty = none
  std::string config_json;               // the file's text, kept for the export
};

// Reads MODEL_DIR/config.json. Error(kCheckpoint) names the file, field, value and rule: unknown model_type (with the known ones),
// missing or contradictory sizes, options plait cannot honour (never ignored in silence).
ModelShape read_model_shape(const std::string& model_dir);
ModelShape parse_model_shape(const std::string& json_text, const std::string& origin);

}  // namespace plait
