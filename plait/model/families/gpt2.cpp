// GPT-2 (Radford et al., 2019) as GPT2LMHeadModel. Linears are Conv1D: stored [in, out]; q, k and v are one tensor.
#include "plait/model/family.h"

namespace plait {

const FamilyNames& gpt2_names() {
  static const FamilyNames names = [] {
    FamilyNames n;
    n.word_embedding = "transformer.wte.weight";
    n.position_embedding = "transformer.wpe.weight";
    n.final_norm = "transformer.ln_f";
    n.head = "lm_head.weight";
    n.transposed_linears = true;
    n.scaled_residual_init = true;
    const std::string layer = "transformer.h.{}.";
    n.block.fused_qkv = layer + "attn.c_attn";
    n.block.attention_out = layer + "attn.c_proj";
    n.block.norm1 = layer + "ln_1";
    n.block.norm2 = layer + "ln_2";
    n.block.up = layer + "mlp.c_fc";
    n.block.down = layer + "mlp.c_proj";
    return n;
  }();
  return names;
}

}  // namespace plait
