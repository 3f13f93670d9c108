// Llama (Touvron et al., arXiv 2302.13971) as LlamaForCausalLM; also Mistral (sliding window) and Qwen2 (q/k/v biases).
#include "plait/model/family.h"

namespace plait {

const FamilyNames& llama_names() {
  static const FamilyNames names = [] {
    FamilyNames n;
    n.word_embedding = "model.embed_tokens.weight";
    n.final_norm = "model.norm";
    n.head = "lm_head.weight";
    const std::string layer = "model.layers.{}.";
    n.block.query = layer + "self_attn.q_proj";
    n.block.key = layer + "self_attn.k_proj";
    n.block.value = layer + "self_attn.v_proj";
    n.block.attention_out = layer + "self_attn.o_proj";
    n.block.norm1 = layer + "input_layernorm";
    n.block.norm2 = layer + "post_attention_layernorm";
    n.block.gate = layer + "mlp.gate_proj";
    n.block.up = layer + "mlp.up_proj";
    n.block.down = layer + "mlp.down_proj";
    return n;
  }();
  return names;
}

}  // namespace plait
