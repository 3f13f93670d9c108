// Defaults are those of the config classes of transformers 5.24; each family function reads like its class there.
#include "plait/config/model_shape.h"

#include <sys/stat.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "plait/base/error.h"
#include "plait/config/pickled_weights.h"
#include "plait/config/shape_fields.h"
#include "plait/config/strict_json.h"

namespace plait {

namespace {

using detail::ShapeFields;
using nlohmann::json;

// Ranges no real model leaves; they keep every product of two sizes far from overflow.
constexpr int64_t kMaxVocab = 1 << 28, kMaxWidth = 1 << 22, kMaxLayers = 100'000, kMaxHeads = 1 << 16, kMaxPositions = 1 << 30;

Activation activation_of(const ShapeFields& f, const std::string& key, const std::string& fallback) {
  static const std::vector<std::pair<std::string, Activation>> kKnown{{"gelu", Activation::kGelu},
                                                                      {"gelu_python", Activation::kGelu},
                                                                      {"gelu_new", Activation::kGeluTanh},
                                                                      {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                                                      {"gelu_python_tanh", Activation::kGeluTanh},
                                                                      {"gelu_fast", Activation::kGeluTanh},
                                                                      {"gelu_accurate", Activation::kGeluTanh},
                                                                      {"silu", Activation::kSilu},
                                                                      {"swish", Activation::kSilu},
                                                                      {"relu", Activation::kRelu}};
  std::string name = f.text(key, fallback);
  std::vector<std::string> names;
  for (const auto& [known, activation] : kKnown) {
    if (name == known) return activation;
    names.push_back(known);
  }
  std::string near = nearest(name, names);
  f.fail(key, cat("unknown activation; known: ", join(names), near.empty() ? "" : cat(". Did you mean ", near, "?")));
}

// GPT-2 spells its sizes in two ways; both may stand in one file when they agree.
int64_t gpt2_size(const ShapeFields& f, const std::string& key, const std::string& alias, int64_t fallback, int64_t max) {
  int64_t value = f.integer(key, fallback, 1, max);
  if (!f.present(alias)) return value;
  int64_t other = f.integer(alias, fallback, 1, max);
  if (f.present(key) && other != value) f.fail(key, cat("contradicts ", alias, " ", other, "; both name the same size"));
  return other;
}

void read_labels(ModelShape& s, const ShapeFields& f) {
  auto count = f.optional_integer("num_labels", 1, kMaxWidth);
  if (!count) count = f.optional_integer("_num_labels", 1, kMaxWidth);
  if (f.given("id2label")) {
    const json& labels = f.at("id2label");
    if (!labels.is_object()) f.fail("id2label", "must be an object of id: name");
    s.label_names.resize(labels.size());
    std::vector<bool> seen(labels.size());
    for (const auto& [id, name] : labels.items()) {
      bool digits = !id.empty() && id.size() < 9 && id.find_first_not_of("0123456789") == std::string::npos;
      size_t index = digits ? std::stoul(id) : labels.size();
      if (index >= labels.size() || seen[index])
        f.fail("id2label", cat("keys must be the ids 0 to ", labels.size() - 1, ", found ", shown_name(id)));
      if (!name.is_string()) f.fail("id2label", cat("the name of id ", id, " must be a string"));
      seen[index] = true;
      s.label_names[index] = name.get<std::string>();
    }
    if (count && *count != static_cast<int64_t>(labels.size()))
      f.fail("num_labels", cat("contradicts id2label, which names ", labels.size(), " labels"));
    count = static_cast<int64_t>(labels.size());
  }
  s.num_labels = count.value_or(0);
}

void read_tokens(ModelShape& s, const ShapeFields& f, std::optional<int64_t> bos, std::optional<int64_t> eos, std::optional<int64_t> pad) {
  auto token = [&](const std::string& key, std::optional<int64_t> fallback) -> std::optional<int64_t> {
    if (!f.present(key)) return fallback;
    if (!f.given(key)) return std::nullopt;
    if (f.at(key).is_array()) {  // several end tokens: the first is the one that is appended
      const json& list = f.at(key);
      if (list.empty() || !list[0].is_number_integer()) f.fail(key, "must be an integer or a list of integers");
      return list[0].get<int64_t>();
    }
    return f.integer(key, 0, INT32_MIN, INT32_MAX);
  };
  s.bos_token_id = token("bos_token_id", bos);
  s.eos_token_id = token("eos_token_id", eos);
  s.pad_token_id = token("pad_token_id", pad);
  // The Hub holds files with -1 for "none".
  if (s.bos_token_id && *s.bos_token_id < 0) s.bos_token_id.reset();
  if (s.eos_token_id && *s.eos_token_id < 0) s.eos_token_id.reset();
  if (s.family == Family::kGpt2) {
    if (s.pad_token_id && *s.pad_token_id < 0) s.pad_token_id.reset();
    return;
  }
  // nn.Embedding(padding_idx): a negative index counts from the end, one beyond the table is refused there too.
  if (!s.pad_token_id) return;
  if (*s.pad_token_id >= s.vocab_size || *s.pad_token_id < -s.vocab_size)
    f.fail("pad_token_id", cat("is outside the vocabulary of ", s.vocab_size));
  if (*s.pad_token_id < 0) *s.pad_token_id += s.vocab_size;
  s.pad_row_frozen = true;
}

// v5: rope_parameters {rope_type, rope_theta, ...}; v4: rope_theta beside rope_scaling {type or rope_type, ...}, which wins when both are there.
void read_rope(ModelShape& s, const ShapeFields& f) {
  constexpr double kHuge = 1e300;
  RopeOptions& rope = s.rope;
  rope.theta = f.number_or("rope_theta", 10000.0, 1.0, kHuge);
  auto check_partial = [](const ShapeFields& fields) {
    if (fields.number_or("partial_rotary_factor", 1.0, 0, 1) != 1.0)
      fields.fail("partial_rotary_factor", "rotary positions on a part of each head; plait cannot do this, only 1.0 works");
  };
  check_partial(f);
  std::string key =
      f.given("rope_scaling") && !(f.at("rope_scaling").is_object() && f.at("rope_scaling").empty()) ? "rope_scaling" : "rope_parameters";
  if (!f.given(key)) return;
  if (!f.at(key).is_object()) f.fail(key, "must be an object");
  ShapeFields r(f.at(key), cat(f.origin(), ": ", key));
  for (const auto& [name, value] : f.at(key).items())
    if (value.is_object())
      f.fail(key, cat("holds own options for ", shown_name(name), "; plait has one set of rotary options for all layers"));
  check_partial(r);
  rope.theta = r.number_or("rope_theta", rope.theta, 1.0, kHuge);
  std::string type = r.text("rope_type", r.text("type", "default"));
  if (type == "default") return;
  if (type == "linear" || type == "dynamic") {
    rope.scaling = type == "linear" ? RopeScaling::kLinear : RopeScaling::kDynamic;
    if (type == "dynamic") rope.original_max_positions = s.max_positions;
  } else if (type == "llama3" || type == "yarn") {
    rope.scaling = type == "llama3" ? RopeScaling::kLlama3 : RopeScaling::kYarn;
    auto original = f.optional_integer("original_max_position_embeddings", 1, kMaxPositions);
    if (!original) original = r.optional_integer("original_max_position_embeddings", 1, kMaxPositions);
    rope.original_max_positions = original.value_or(s.max_positions);
  } else {
    r.fail(r.given("rope_type") ? "rope_type" : "type", "unknown kind of rotary scaling; known: default, linear, dynamic, llama3, yarn");
  }
  if (rope.scaling == RopeScaling::kYarn && !r.given("factor"))
    rope.factor = static_cast<double>(s.max_positions) / static_cast<double>(rope.original_max_positions);
  else if (!r.given("factor")) r.fail("factor", cat("is needed by the kind ", type));
  else rope.factor = r.number("factor", 1.0, 1.0, 1e6);
  if (rope.scaling == RopeScaling::kLlama3) {
    for (const char* needed : {"low_freq_factor", "high_freq_factor"})
      if (!r.given(needed)) r.fail(needed, "is needed by the kind llama3");
    rope.low_freq_factor = r.number("low_freq_factor", 1.0, 1e-6, 1e6);
    rope.high_freq_factor = r.number("high_freq_factor", 4.0, 1e-6, 1e6);
    if (rope.high_freq_factor <= rope.low_freq_factor)
      r.fail("high_freq_factor", cat("must be above low_freq_factor ", rope.low_freq_factor));
  }
  if (rope.scaling == RopeScaling::kYarn) {
    if (!r.flag("truncate", true)) r.fail("truncate", "plait cannot do this, only true works");
    // `or`, not `if given`: transformers reads 0 as unset.
    double fast = r.number_or("beta_fast", 0, 0, 1e6), slow = r.number_or("beta_slow", 0, 0, 1e6);
    rope.beta_fast = fast != 0 ? fast : 32.0;
    rope.beta_slow = slow != 0 ? slow : 1.0;
    double mscale = r.number_or("mscale", 0, 0, 1e6), mscale_all = r.number_or("mscale_all_dim", 0, 0, 1e6);
    auto scale_of = [&](double m) { return rope.factor <= 1 ? 1.0 : 0.1 * m * std::log(rope.factor) + 1.0; };
    if (r.given("attention_factor")) rope.attention_factor = r.number("attention_factor", 1.0, 0, 1e6);
    else if (mscale != 0 && mscale_all != 0) rope.attention_factor = scale_of(mscale) / scale_of(mscale_all);
  }
}

void read_window(ModelShape& s, const ShapeFields& f) {
  auto types = [&]() -> std::optional<std::vector<bool>> {  // true = sliding
    if (!f.given("layer_types")) return std::nullopt;
    const json& list = f.at("layer_types");
    if (!list.is_array() || static_cast<int64_t>(list.size()) != s.num_layers)
      f.fail("layer_types", cat("must be a list of num_hidden_layers ", s.num_layers, " names"));
    std::vector<bool> sliding;
    for (const auto& item : list) {
      if (item != "sliding_attention" && item != "full_attention")
        f.fail("layer_types", "each must be full_attention or sliding_attention");
      sliding.push_back(item == "sliding_attention");
    }
    return sliding;
  }();
  if (s.model_type == "mistral") {
    // The key absent means 4096 in the config class; null means none. All layers alike.
    if (!f.present("sliding_window")) s.sliding_window = 4096;
    else s.sliding_window = f.optional_integer("sliding_window", 1, kMaxPositions);
    for (bool sliding : types.value_or(std::vector<bool>{}))
      if (sliding != s.sliding_window.has_value())
        f.fail("layer_types",
               "a mistral model's layers are all alike: all sliding_attention when sliding_window is set, else all full_attention");
    return;
  }
  // qwen2
  int64_t window = f.present("sliding_window") ? f.optional_integer("sliding_window", 1, kMaxPositions).value_or(0) : 4096;
  if (!f.flag("use_sliding_window", false)) window = 0;
  int64_t first = f.integer("max_window_layers", 28, 0, kMaxLayers);
  if (types) {
    first = 0;
    while (first < s.num_layers && !(*types)[static_cast<size_t>(first)]) ++first;
    for (int64_t i = first; i < s.num_layers; ++i)
      if (!(*types)[static_cast<size_t>(i)])
        f.fail("layer_types", "full_attention after sliding_attention; plait cannot alternate, full layers must come first");
    if (first < s.num_layers && window == 0)
      f.fail("layer_types", "has sliding_attention but use_sliding_window is false or sliding_window is not set");
  }
  if (window > 0 && first < s.num_layers) {
    s.sliding_window = window;
    s.sliding_window_first_layer = first;
  }
}

void read_bert(ModelShape& s, const ShapeFields& f) {
  s.family = Family::kBert;
  s.vocab_size = f.integer("vocab_size", 30522, 1, kMaxVocab);
  s.hidden_size = f.integer("hidden_size", 768, 1, kMaxWidth);
  s.num_layers = f.integer("num_hidden_layers", 12, 1, kMaxLayers);
  s.num_heads = f.integer("num_attention_heads", 12, 1, kMaxHeads);
  s.ffn_size = f.integer("intermediate_size", 3072, 1, kMaxWidth);
  s.max_positions = f.integer("max_position_embeddings", 512, 1, kMaxPositions);
  s.type_vocab_size = f.integer("type_vocab_size", 2, 1, kMaxHeads);
  s.activation = activation_of(f, "hidden_act", "gelu");
  s.norm_eps = f.number("layer_norm_eps", 1e-12, 0, 1);
  s.pre_norm = false;
  s.causal = false;
  s.hidden_dropout = f.dropout("hidden_dropout_prob", 0.1);
  s.embedding_dropout = s.hidden_dropout;
  s.attention_dropout = f.dropout("attention_probs_dropout_prob", 0.1);
  s.classifier_dropout = f.given("classifier_dropout") ? f.dropout("classifier_dropout", 0) : s.hidden_dropout;
  s.initializer_range = f.number("initializer_range", 0.02, 0, 1);
  read_tokens(s, f, std::nullopt, std::nullopt, 0);
  std::string positions = f.text("position_embedding_type", "absolute");
  if (positions != "absolute") f.fail("position_embedding_type", "plait cannot do this, only absolute works");
  f.refuse_true("is_decoder", "BERT as a decoder");
  std::string problem = f.text("problem_type", "single_label_classification");
  if (problem != "single_label_classification")
    f.fail("problem_type", "plait cannot do this, only single_label_classification (or null) works");
}

void read_gpt2(ModelShape& s, const ShapeFields& f) {
  s.family = Family::kGpt2;
  s.vocab_size = f.integer("vocab_size", 50257, 1, kMaxVocab);
  s.max_positions = gpt2_size(f, "n_positions", "max_position_embeddings", 1024, kMaxPositions);
  s.hidden_size = gpt2_size(f, "n_embd", "hidden_size", 768, kMaxWidth);
  s.num_layers = gpt2_size(f, "n_layer", "num_hidden_layers", 12, kMaxLayers);
  s.num_heads = gpt2_size(f, "n_head", "num_attention_heads", 12, kMaxHeads);
  s.ffn_size = f.optional_integer("n_inner", 1, kMaxWidth).value_or(4 * s.hidden_size);
  s.activation = activation_of(f, "activation_function", "gelu_new");
  s.norm_eps = f.number("layer_norm_epsilon", 1e-5, 0, 1);
  s.hidden_dropout = f.dropout("resid_pdrop", 0.1);
  s.embedding_dropout = f.dropout("embd_pdrop", 0.1);
  s.attention_dropout = f.dropout("attn_pdrop", 0.1);
  s.initializer_range = f.number("initializer_range", 0.02, 0, 1);
  s.tied_embeddings = f.flag("tie_word_embeddings", true);
  if (!f.flag("scale_attn_weights", true)) s.attention_scale = 1.0;
  read_tokens(s, f, 50256, 50256, std::nullopt);
  f.refuse_true("scale_attn_by_inverse_layer_idx", "attention scaled by the layer");
  f.refuse_true("reorder_and_upcast_attn", "attention in another order and type");
}

void read_llama_like(ModelShape& s, const ShapeFields& f) {
  bool llama = s.model_type == "llama", mistral = s.model_type == "mistral", qwen2 = s.model_type == "qwen2";
  s.family = Family::kLlama;
  s.vocab_size = f.integer("vocab_size", qwen2 ? 151936 : 32000, 1, kMaxVocab);
  s.hidden_size = f.integer("hidden_size", 4096, 1, kMaxWidth);
  s.ffn_size = f.integer("intermediate_size", llama ? 11008 : mistral ? 14336 : 22016, 1, kMaxWidth);
  s.num_layers = f.integer("num_hidden_layers", 32, 1, kMaxLayers);
  s.num_heads = f.integer("num_attention_heads", 32, 1, kMaxHeads);
  // Absent and null differ: the class default against "as many as heads".
  int64_t kv_default = llama ? s.num_heads : mistral ? 8 : 32;
  s.num_kv_heads =
      f.present("num_key_value_heads") ? f.optional_integer("num_key_value_heads", 1, kMaxHeads).value_or(s.num_heads) : kv_default;
  s.head_size = f.optional_integer("head_dim", 1, kMaxWidth).value_or(0);
  s.max_positions = f.integer("max_position_embeddings", llama ? 2048 : mistral ? 131072 : 32768, 1, kMaxPositions);
  s.activation = activation_of(f, "hidden_act", "silu");
  s.norm_eps = f.number("rms_norm_eps", 1e-6, 0, 1);
  s.gated_ffn = s.rms_norm = s.rotary = true;
  s.qkv_bias = qwen2 || (llama && f.flag("attention_bias", false));
  s.attention_out_bias = llama && f.flag("attention_bias", false);
  s.ffn_bias = llama && f.flag("mlp_bias", false);
  s.attention_dropout = f.given("attention_dropout") ? f.dropout("attention_dropout", 0) : 0.0;
  s.initializer_range = f.number("initializer_range", 0.02, 0, 1);
  s.tied_embeddings = f.flag("tie_word_embeddings", false);
  read_tokens(s, f, qwen2 ? std::nullopt : std::optional<int64_t>(1), qwen2 ? std::nullopt : std::optional<int64_t>(2), std::nullopt);
  read_rope(s, f);
  if (!llama) read_window(s, f);
  if (f.optional_integer("pretraining_tp", 1, kMaxHeads).value_or(1) != 1)
    f.fail("pretraining_tp", "the linear layers of pretraining in slices; plait cannot do this, only 1 works");
}

void check_sizes(ModelShape& s, const ShapeFields& f) {
  std::string heads = s.family == Family::kGpt2 ? "n_head" : "num_attention_heads";
  if (s.num_kv_heads == 0) s.num_kv_heads = s.num_heads;
  if (s.head_size == 0) {
    if (s.hidden_size % s.num_heads != 0)
      f.fail(s.family == Family::kGpt2 ? "n_embd" : "hidden_size",
             cat("the hidden size ", s.hidden_size, " must be a multiple of ", heads, " ", s.num_heads));
    s.head_size = s.hidden_size / s.num_heads;
  }
  if (s.num_heads * s.head_size > kMaxWidth)
    f.fail("head_dim", cat("heads x head size = ", s.num_heads * s.head_size, ", at most ", kMaxWidth));
  if (s.num_heads % s.num_kv_heads != 0)
    f.fail("num_key_value_heads", cat(s.num_kv_heads, " must divide num_attention_heads ", s.num_heads));
  if (s.rotary && s.head_size % 2 != 0) f.fail("head_dim", cat("rotary positions need an even head size, not ", s.head_size));
}

}  // namespace

ModelShape parse_model_shape(const std::string& json_text, const std::string& origin) {
  static const std::vector<std::string> kKnown{"bert", "gpt2", "llama", "mistral", "qwen2"};
  json root = parse_json_object(json_text, origin);
  ShapeFields f(root, origin);
  ModelShape s;
  s.config_json = json_text;
  s.model_type = f.text("model_type", "");
  if (s.model_type.empty()) f.fail("model_type", cat("must be one of ", join(kKnown)));
  if (s.model_type == "bert") {
    read_bert(s, f);
  } else if (s.model_type == "gpt2") {
    read_gpt2(s, f);
  } else if (s.model_type == "llama" || s.model_type == "mistral" || s.model_type == "qwen2") {
    read_llama_like(s, f);
  } else {
    std::string near = nearest(s.model_type, kKnown);
    f.fail("model_type", cat("unknown family; known: ", join(kKnown), near.empty() ? "" : cat(". Nearest: ", near)));
  }
  check_sizes(s, f);
  read_labels(s, f);
  f.refuse_true("is_encoder_decoder", "an encoder-decoder");
  f.refuse_true("add_cross_attention", "cross attention");
  if (f.given("quantization_config")) f.fail("quantization_config", "quantised weights; plait reads F64, F32, F16 and BF16 only");
  if (f.given("pruned_heads") && !f.at("pruned_heads").empty()) f.fail("pruned_heads", "pruned attention heads; plait cannot do this");
  return s;
}

ModelShape read_model_shape(const std::string& model_dir) {
  std::string path = model_dir + "/config.json";
  struct stat info {};
  if (::stat(model_dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    throw_error(
        ExitCode::kCheckpoint, "model folder ", model_dir,
        " is not there: a folder with config.json, model.safetensors and tokenizer.json is needed (models of a hub are not fetched: "
        "download the folder first)");
  // A model of ModelScope's trainer: its config.json names a family that has another name once it is converted.
  auto refuse_megatron = [&] {
    if (has_megatron_weights(model_dir))
      throw_error(ExitCode::kCheckpoint, "model folder ", model_dir, " holds no model.safetensors, ", pickled_weights_advice(model_dir));
  };
  if (::stat(path.c_str(), &info) != 0) {
    refuse_megatron();
    throw_error(ExitCode::kCheckpoint, "model folder ", model_dir,
                " holds no config.json: a Hugging Face folder has config.json, model.safetensors and tokenizer.json");
  }
  try {
    return parse_model_shape(read_text_file(path), path);
  } catch (const Error&) {
    refuse_megatron();
    throw;
  }
}

}  // namespace plait
