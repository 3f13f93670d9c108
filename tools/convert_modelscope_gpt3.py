#!/usr/bin/env python3
"""Converts a GPT-3 model of ModelScope (Megatron weights, mp_rank_XX_model_states.pt) to a GPT-2 folder of Hugging Face, which plait reads.

usage: python3 tools/convert_modelscope_gpt3.py MODEL_DIR NEW_DIR

Needs torch and safetensors. The files are loaded with weights_only: a pickle that wants to run a program is refused by torch. Pieces of any tensor
size are joined. Megatron keeps q, k and v head by head and rows of outputs first; GPT-2 keeps all q, all k, all v, and columns.
"""
import argparse
import json
import pathlib
import re
import sys

JOINED_ROWS = ("word_embeddings.weight", "query_key_value.weight", "query_key_value.bias", "dense_h_to_4h.weight", "dense_h_to_4h.bias")
JOINED_COLUMNS = ("attention.dense.weight", "self_attention.dense.weight", "dense_4h_to_h.weight")


def flat(tree, prefix=""):
    """{"a": {"b": tensor}} -> {"a.b": tensor}"""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        elif hasattr(value, "shape"):
            yield prefix + name, value


def load_shard(path):
    import torch

    state = torch.load(path, map_location="cpu", weights_only=True)
    state = state.get("module", state)
    weights = {}
    for name, value in flat(state):
        cut = name.find("language_model.")
        if cut >= 0:
            weights[name[cut + len("language_model."):].replace("transformer.layers.", "encoder.layers.")] = value.float()
    if not weights:
        sys.exit(f"{path}: no language_model.* weights in it")
    return weights


def join(shards):
    import torch

    whole = {}
    for name, first in shards[0].items():
        dim = 0 if name.endswith(JOINED_ROWS) else 1 if name.endswith(JOINED_COLUMNS) else None
        whole[name] = first if dim is None or len(shards) == 1 else torch.cat([shard[name] for shard in shards], dim)
    return whole


def to_gpt2(weights, num_heads):
    def split_heads(value):  # (heads, 3, head size, ...) -> (3, heads, head size, ...)
        size = value.shape[0] // (3 * num_heads)
        return value.reshape(num_heads, 3, size, *value.shape[1:]).transpose(0, 1).reshape(value.shape)

    out = {"transformer.wte.weight": weights["embedding.word_embeddings.weight"],
           "transformer.wpe.weight": weights["embedding.position_embeddings.weight"]}
    parts = {"input_layernorm": "ln_1", "post_attention_layernorm": "ln_2", "self_attention.dense": "attn.c_proj", "attention.dense": "attn.c_proj",
             "mlp.dense_h_to_4h": "mlp.c_fc", "mlp.dense_4h_to_h": "mlp.c_proj", "self_attention.query_key_value": "attn.c_attn",
             "attention.query_key_value": "attn.c_attn"}
    for name, value in weights.items():
        layer = re.fullmatch(r"encoder\.layers\.(\d+)\.(.+)\.(weight|bias)", name)
        final = re.fullmatch(r"(?:encoder|transformer)\.final_layernorm\.(weight|bias)", name)
        if final:
            out[f"transformer.ln_f.{final[1]}"] = value
        elif layer and layer[2] in parts:
            part = parts[layer[2]]
            if part == "attn.c_attn":
                value = split_heads(value)
            if value.dim() == 2:
                value = value.t()
            out[f"transformer.h.{layer[1]}.{part}.{layer[3]}"] = value
        elif not name.startswith("embedding."):
            sys.exit(f"no place in GPT-2 for the weight {name} {tuple(value.shape)}")
    return {name: value.contiguous().clone() for name, value in out.items()}


def gpt2_config(given, weights):
    embeddings, positions = weights["embedding.word_embeddings.weight"], weights["embedding.position_embeddings.weight"]
    hidden = embeddings.shape[1]
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": embeddings.shape[0], "n_positions": positions.shape[0],
              "n_embd": hidden, "n_layer": given["num_hidden_layers"], "n_head": given["num_attention_heads"],
              "n_inner": given.get("ffn_hidden_size") or given.get("intermediate_size") or 4 * hidden, "activation_function": "gelu_new" if given.get("bias_gelu_fusion", True) else "gelu",
              "layer_norm_epsilon": given.get("layernorm_epsilon", 1e-5), "resid_pdrop": given.get("hidden_dropout", 0.1),
              "embd_pdrop": given.get("hidden_dropout", 0.1), "attn_pdrop": given.get("attention_dropout", 0.1),
              "initializer_range": given.get("init_method_std", 0.02), "tie_word_embeddings": True}
    if given.get("eod_id") is not None:
        config["eos_token_id"] = config["bos_token_id"] = given["eod_id"]
    for name in ("apply_residual_connection_post_layernorm", "num_experts"):
        if given.get(name) not in (None, False, 0, [0]):
            sys.exit(f"{name} {given[name]}: GPT-2 has nothing like it")
    return config


def main():
    parser = argparse.ArgumentParser(description="ModelScope's GPT-3 weights to a GPT-2 folder")
    parser.add_argument("model_dir", type=pathlib.Path)
    parser.add_argument("new_dir", type=pathlib.Path)
    options = parser.parse_args()
    pattern = "mp_rank_*_model_states.pt"
    files = sorted(options.model_dir.glob(pattern)) or sorted((options.model_dir / "model").glob(pattern))
    if not files:
        sys.exit(f"{options.model_dir}: no {pattern}")
    from safetensors.torch import save_file

    given = json.loads((options.model_dir / "config.json").read_text())
    weights = join([load_shard(path) for path in files])
    config = gpt2_config(given, weights)
    options.new_dir.mkdir(parents=True, exist_ok=True)
    save_file(to_gpt2(weights, config["n_head"]), options.new_dir / "model.safetensors", metadata={"format": "pt"})
    (options.new_dir / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tokenizer = options.model_dir / "tokenizer.json"
    if tokenizer.exists():
        (options.new_dir / "tokenizer.json").write_bytes(tokenizer.read_bytes())
    print(f"{options.new_dir}: {len(files)} files joined, {config['n_layer']} layers" + ("" if tokenizer.exists() else "; no tokenizer.json: give rows of token ids"))


if __name__ == "__main__":
    main()
