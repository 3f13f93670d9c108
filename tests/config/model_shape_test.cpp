// config.json of every family: defaults of transformers 5.24's config classes, both spellings of rotary options, windows, and each refusal.
#include "plait/config/model_shape.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plait/base/error.h"

namespace plait {
namespace {

ModelShape shape(const std::string& text) { return parse_model_shape(text, "config.json"); }

// The message of the refusal; the exit code must be 4.
std::string refusal(const std::string& text) {
  try {
    shape(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << text;
  return "";
}

void expect_refused(const std::string& text, const std::vector<std::string>& words) {
  std::string message = refusal(text);
  for (const auto& word : words) EXPECT_NE(message.find(word), std::string::npos) << text << "\n -> " << message << "\n lacks " << word;
}

TEST(ModelShape, BertDefaults) {
  auto s = shape(R"({"model_type": "bert"})");
  EXPECT_EQ(s.family, Family::kBert);
  EXPECT_EQ(s.vocab_size, 30522);
  EXPECT_EQ(s.hidden_size, 768);
  EXPECT_EQ(s.num_layers, 12);
  EXPECT_EQ(s.num_heads, 12);
  EXPECT_EQ(s.num_kv_heads, 12);
  EXPECT_EQ(s.head_size, 64);
  EXPECT_EQ(s.ffn_size, 3072);
  EXPECT_EQ(s.max_positions, 512);
  EXPECT_EQ(s.type_vocab_size, 2);
  EXPECT_EQ(s.activation, Activation::kGelu);
  EXPECT_EQ(s.norm_eps, 1e-12);
  EXPECT_FALSE(s.pre_norm);
  EXPECT_FALSE(s.causal);
  EXPECT_FALSE(s.rotary || s.rms_norm || s.gated_ffn || s.tied_embeddings);
  EXPECT_EQ(s.hidden_dropout, 0.1);
  EXPECT_EQ(s.embedding_dropout, 0.1);
  EXPECT_EQ(s.attention_dropout, 0.1);
  EXPECT_EQ(s.classifier_dropout, 0.1);
  EXPECT_EQ(s.pad_token_id, 0);
  EXPECT_TRUE(s.pad_row_frozen);
  EXPECT_EQ(s.num_labels, 0);
}

TEST(ModelShape, BertOptions) {
  auto s =
      shape(R"({"model_type": "bert", "pad_token_id": null, "hidden_dropout_prob": 0, "classifier_dropout": 0.3, "hidden_act": "gelu_new",
                     "id2label": {"1": "b", "0": "a", "2": "c"}, "num_labels": 3})");
  EXPECT_FALSE(s.pad_row_frozen);
  EXPECT_FALSE(s.pad_token_id.has_value());
  EXPECT_EQ(s.hidden_dropout, 0);
  EXPECT_EQ(s.classifier_dropout, 0.3);
  EXPECT_EQ(s.activation, Activation::kGeluTanh);
  EXPECT_EQ(s.num_labels, 3);
  EXPECT_EQ(s.label_names, (std::vector<std::string>{"a", "b", "c"}));
}

TEST(ModelShape, Gpt2DefaultsAndAliases) {
  auto s = shape(R"({"model_type": "gpt2"})");
  EXPECT_EQ(s.vocab_size, 50257);
  EXPECT_EQ(s.max_positions, 1024);
  EXPECT_EQ(s.hidden_size, 768);
  EXPECT_EQ(s.ffn_size, 3072);
  EXPECT_EQ(s.activation, Activation::kGeluTanh);
  EXPECT_TRUE(s.tied_embeddings && s.causal && s.pre_norm && s.qkv_bias && s.ffn_bias);
  EXPECT_FALSE(s.pad_row_frozen);
  EXPECT_EQ(s.eos_token_id, 50256);
  EXPECT_FALSE(s.attention_scale.has_value());
  s = shape(
      R"({"model_type": "gpt2", "hidden_size": 96, "n_head": 4, "n_inner": null, "pad_token_id": 0, "scale_attn_weights": false, "tie_word_embeddings": false})");
  EXPECT_EQ(s.hidden_size, 96);
  EXPECT_EQ(s.ffn_size, 384);
  EXPECT_FALSE(s.pad_row_frozen);
  EXPECT_EQ(s.attention_scale, 1.0);
  EXPECT_FALSE(s.tied_embeddings);
  expect_refused(R"({"model_type": "gpt2", "n_embd": 768, "hidden_size": 96})", {"n_embd", "768", "96"});
}

TEST(ModelShape, LlamaLikeDefaults) {
  auto s = shape(R"({"model_type": "llama"})");
  EXPECT_EQ(s.vocab_size, 32000);
  EXPECT_EQ(s.ffn_size, 11008);
  EXPECT_EQ(s.num_kv_heads, 32);
  EXPECT_EQ(s.head_size, 128);
  EXPECT_EQ(s.max_positions, 2048);
  EXPECT_EQ(s.norm_eps, 1e-6);
  EXPECT_EQ(s.rope.theta, 10000);
  EXPECT_TRUE(s.rotary && s.rms_norm && s.gated_ffn && s.causal && s.pre_norm);
  EXPECT_FALSE(s.qkv_bias || s.attention_out_bias || s.ffn_bias || s.tied_embeddings || s.pad_row_frozen);
  EXPECT_EQ(s.bos_token_id, 1);
  EXPECT_EQ(s.eos_token_id, 2);
  s = shape(R"({"model_type": "mistral"})");
  EXPECT_EQ(s.family, Family::kLlama);
  EXPECT_EQ(s.num_kv_heads, 8);
  EXPECT_EQ(s.ffn_size, 14336);
  EXPECT_EQ(s.max_positions, 131072);
  EXPECT_EQ(s.sliding_window, 4096);
  s = shape(R"({"model_type": "qwen2"})");
  EXPECT_EQ(s.vocab_size, 151936);
  EXPECT_EQ(s.num_kv_heads, 32);
  EXPECT_TRUE(s.qkv_bias);
  EXPECT_FALSE(s.attention_out_bias || s.ffn_bias);
  EXPECT_FALSE(s.sliding_window.has_value());
  EXPECT_FALSE(s.bos_token_id.has_value());
}

TEST(ModelShape, LlamaOptions) {
  auto s = shape(
      R"({"model_type": "llama", "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "attention_bias": true,
                     "mlp_bias": true, "tie_word_embeddings": true, "pad_token_id": -1, "eos_token_id": [7, 8], "vocab_size": 61})");
  EXPECT_EQ(s.head_size, 20);
  EXPECT_EQ(s.num_kv_heads, 2);
  EXPECT_TRUE(s.qkv_bias && s.attention_out_bias && s.ffn_bias && s.tied_embeddings && s.pad_row_frozen);
  EXPECT_EQ(s.pad_token_id, 60);  // counts from the end, as nn.Embedding
  EXPECT_EQ(s.eos_token_id, 7);
}

TEST(ModelShape, RopeInBothSpellings) {
  auto rope = [](const std::string& options) {
    return shape(R"({"model_type": "llama", "max_position_embeddings": 8192, )" + options + "}").rope;
  };
  auto r = rope(R"("rope_theta": 100000.0, "rope_scaling": null)");
  EXPECT_EQ(r.theta, 100000);
  EXPECT_EQ(r.scaling, RopeScaling::kNone);
  r = rope(R"("rope_parameters": {"rope_type": "default", "rope_theta": 5e5})");
  EXPECT_EQ(r.theta, 5e5);
  r = rope(R"("rope_theta": 7000, "rope_scaling": {"type": "linear", "factor": 2})");
  EXPECT_EQ(r.theta, 7000);
  EXPECT_EQ(r.scaling, RopeScaling::kLinear);
  EXPECT_EQ(r.factor, 2);
  r = rope(R"("rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0})");
  EXPECT_EQ(r.scaling, RopeScaling::kDynamic);
  EXPECT_EQ(r.original_max_positions, 8192);
  r = rope(
      R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 4096})");
  EXPECT_EQ(r.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(r.original_max_positions, 4096);
  EXPECT_EQ(r.factor, 8);
  r = rope(
      R"("rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048, "beta_fast": 16, "beta_slow": 0})");
  EXPECT_EQ(r.scaling, RopeScaling::kYarn);
  EXPECT_EQ(r.beta_fast, 16);
  EXPECT_EQ(r.beta_slow, 1);
  EXPECT_FALSE(r.attention_factor.has_value());
  r = rope(R"("rope_scaling": {"type": "yarn", "original_max_position_embeddings": 2048, "mscale": 0.7, "mscale_all_dim": 1.0})");
  EXPECT_EQ(r.factor, 4);
  EXPECT_NEAR(r.attention_factor.value(), (0.07 * std::log(4.0) + 1) / (0.1 * std::log(4.0) + 1), 1e-15);
  EXPECT_EQ(rope(R"("rope_scaling": {"type": "yarn", "factor": 4, "attention_factor": 1.25})").attention_factor, 1.25);
}

TEST(ModelShape, RopeRefusals) {
  auto with = [](const std::string& options) { return R"({"model_type": "llama", )" + options + "}"; };
  expect_refused(with(R"("rope_scaling": {"type": "longrope", "factor": 2})"), {"rope_scaling", "longrope", "llama3"});
  expect_refused(with(R"("rope_scaling": {"type": "linear"})"), {"factor"});
  expect_refused(with(R"("rope_scaling": {"type": "linear", "factor": 0.5})"), {"factor", "0.5"});
  expect_refused(with(R"("rope_scaling": {"type": "linear", "factor": "2"})"), {"factor"});
  expect_refused(with(R"("rope_scaling": {"rope_type": "llama3", "factor": 8})"), {"low_freq_factor"});
  expect_refused(with(R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4})"),
                 {"high_freq_factor"});
  expect_refused(with(R"("rope_scaling": {"rope_type": "yarn", "factor": 8, "truncate": false})"), {"truncate"});
  expect_refused(with(R"("partial_rotary_factor": 0.5)"), {"partial_rotary_factor"});
  expect_refused(with(R"("rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5})"), {"partial_rotary_factor"});
  expect_refused(with(R"("rope_parameters": {"full_attention": {"rope_type": "default"}})"), {"full_attention"});
  expect_refused(with(R"("rope_scaling": 2)"), {"rope_scaling", "object"});
  expect_refused(with(R"("rope_theta": -1)"), {"rope_theta"});
}

TEST(ModelShape, SlidingWindows) {
  EXPECT_FALSE(shape(R"({"model_type": "mistral", "sliding_window": null})").sliding_window.has_value());
  EXPECT_EQ(shape(R"({"model_type": "mistral", "sliding_window": 5})").sliding_window, 5);
  EXPECT_EQ(shape(R"({"model_type": "mistral", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]})").sliding_window, 4096);
  expect_refused(R"({"model_type": "mistral", "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]})",
                 {"layer_types"});
  auto qwen = [](const std::string& options) { return shape(R"({"model_type": "qwen2", "num_hidden_layers": 4, )" + options + "}"); };
  EXPECT_FALSE(qwen(R"("sliding_window": 8, "max_window_layers": 0)").sliding_window.has_value());
  auto s = qwen(R"("use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2)");
  EXPECT_EQ(s.sliding_window, 8);
  EXPECT_EQ(s.sliding_window_first_layer, 2);
  EXPECT_FALSE(qwen(R"("use_sliding_window": true, "sliding_window": 8)").sliding_window.has_value());  // 28 full layers first
  s = qwen(
      R"("use_sliding_window": true, "sliding_window": 8, "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"])");
  EXPECT_EQ(s.sliding_window_first_layer, 1);
  EXPECT_FALSE(
      qwen(R"("layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"])").sliding_window.has_value());
  std::string head = R"({"model_type": "qwen2", "num_hidden_layers": 2, )";
  expect_refused(head + R"("use_sliding_window": true, "layer_types": ["sliding_attention", "full_attention"]})",
                 {"layer_types", "alternate"});
  expect_refused(head + R"("layer_types": ["full_attention", "sliding_attention"]})", {"layer_types", "use_sliding_window"});
  expect_refused(head + R"("layer_types": ["full_attention"]})", {"layer_types", "2"});
  expect_refused(head + R"("layer_types": ["full_attention", "chunked_attention"]})", {"layer_types"});
}

TEST(ModelShape, Refusals) {
  struct Row {
    const char* text;
    std::vector<std::string> words;
  };
  const std::vector<Row> rows{
      {R"({"model_type": "bart"})", {"bart", "bert, gpt2, llama, mistral, qwen2"}},
      {R"({"model_type": "brt"})", {"Nearest: bert"}},
      {R"({"hidden_size": 3})", {"model_type", "bert, gpt2"}},
      {R"({"model_type": 3})", {"model_type", "string"}},
      {R"({"model_type": "bert", "hidden_size": 30, "num_attention_heads": 4})", {"hidden_size", "30", "num_attention_heads 4"}},
      {R"({"model_type": "gpt2", "n_embd": 30, "n_head": 4})", {"n_embd", "30", "n_head 4"}},
      {R"({"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 3})", {"num_key_value_heads", "3", "4"}},
      {R"({"model_type": "qwen2", "num_attention_heads": 4, "hidden_size": 32})", {"num_key_value_heads", "32", "4"}},
      {R"({"model_type": "llama", "head_dim": 7})", {"head_dim", "7", "even"}},
      {R"({"model_type": "bert", "vocab_size": -5})", {"vocab_size", "-5"}},
      {R"({"model_type": "bert", "vocab_size": 0})", {"vocab_size"}},
      {R"({"model_type": "bert", "vocab_size": 1e3})", {"vocab_size", "integer"}},
      {R"({"model_type": "bert", "vocab_size": "100"})", {"vocab_size", "integer"}},
      {R"({"model_type": "bert", "vocab_size": null})", {"vocab_size", "null"}},
      {R"({"model_type": "bert", "hidden_size": 99999999999999999999999})", {"hidden_size"}},
      {R"({"model_type": "bert", "hidden_size": 18446744073709551615})", {"hidden_size"}},
      {R"({"model_type": "bert", "num_hidden_layers": 1000000000})", {"num_hidden_layers"}},
      {R"({"model_type": "bert", "hidden_dropout_prob": 1.0})", {"hidden_dropout_prob"}},
      {R"({"model_type": "bert", "layer_norm_eps": "1e-12"})", {"layer_norm_eps"}},
      {R"({"model_type": "bert", "hidden_act": "gelo"})", {"hidden_act", "Did you mean gelu?"}},
      {R"({"model_type": "bert", "position_embedding_type": "relative_key"})", {"position_embedding_type", "absolute"}},
      {R"({"model_type": "bert", "is_decoder": true})", {"is_decoder"}},
      {R"({"model_type": "bert", "is_decoder": 1})", {"is_decoder", "true or false"}},
      {R"({"model_type": "bert", "problem_type": "regression"})", {"problem_type"}},
      {R"({"model_type": "bert", "pad_token_id": 30522})", {"pad_token_id", "30522"}},
      {R"({"model_type": "bert", "add_cross_attention": true})", {"add_cross_attention"}},
      {R"({"model_type": "bert", "is_encoder_decoder": true})", {"is_encoder_decoder"}},
      {R"({"model_type": "bert", "pruned_heads": {"0": [1]}})", {"pruned_heads"}},
      {R"({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true})", {"scale_attn_by_inverse_layer_idx"}},
      {R"({"model_type": "gpt2", "reorder_and_upcast_attn": true})", {"reorder_and_upcast_attn"}},
      {R"({"model_type": "llama", "pretraining_tp": 2})", {"pretraining_tp", "2"}},
      {R"({"model_type": "llama", "quantization_config": {"bits": 4}})", {"quantization_config"}},
      {R"({"model_type": "bert", "id2label": {"0": "a", "2": "b"}})", {"id2label", "\"2\""}},
      {R"({"model_type": "bert", "id2label": {"0": "a", "00": "b"}})", {"id2label"}},
      {R"({"model_type": "bert", "id2label": {"0": 5}})", {"id2label"}},
      {R"({"model_type": "bert", "id2label": ["a"]})", {"id2label"}},
      {R"({"model_type": "bert", "num_labels": 3, "id2label": {"0": "a"}})", {"num_labels"}},
      {R"({"model_type": "bert", "model_type": "gpt2"})", {"model_type", "twice"}},
      {R"({"model_type": "bert")", {"not valid JSON"}},
      {R"([1])", {"object", "array"}},
      {"", {"JSON"}},
  };
  for (const auto& row : rows) expect_refused(row.text, row.words);
  expect_refused(std::string("{\"model_type\": \"bert\"}\0{", 24), {"NUL"});
  expect_refused("{\"model_type\": \"bert\xff\"}", {"JSON"});
  expect_refused("{\"a\": " + std::string(100000, '[') + std::string(100000, ']') + "}", {"deeper"});
}

TEST(ModelShape, ReadsGoldenFoldersAndNamesMissingOnes) {
  for (const char* name : {"bert", "gpt2", "llama", "llama-tied"}) {
    auto s = read_model_shape(std::string(PLAIT_TEST_DATA "/golden/models/") + name);
    EXPECT_EQ(s.hidden_size, 32) << name;
    EXPECT_EQ(s.num_layers, 2) << name;
    EXPECT_EQ(s.vocab_size, 256) << name;
    EXPECT_EQ(s.pad_row_frozen, std::string(name) != "gpt2") << name;
    EXPECT_FALSE(s.config_json.empty());
  }
  EXPECT_EQ(read_model_shape(PLAIT_TEST_DATA "/golden/w2").ffn_size, 512);
  EXPECT_EQ(read_model_shape(PLAIT_TEST_DATA "/golden/w3s").num_labels, 8);
  for (const char* folder : {"/nowhere/at/all", PLAIT_TEST_DATA "/golden/austen"}) {
    try {
      read_model_shape(folder);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
      EXPECT_NE(std::string(error.what()).find(folder), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("config.json"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace plait
