#!/usr/bin/env python3
"""SmolLM2-135M-Instruct from a 4-bit GGUF file to a plain Hugging Face folder in fp32.

usage: prepare_smollm2.py FILE.gguf OUT_FOLDER      (needs numpy)

The weights are the 4-bit model's exact values. Formats: GGUF version 3 (ggml docs/gguf.md), block types F32, Q8_0 and Q4_1
(32 values a block), safetensors.
"""
import json
import math
import pathlib
import struct
import sys

import numpy as np

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
F32, Q4_1, Q8_0 = 0, 3, 8
LAYER_NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
               "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
               "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
OTHER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
CONTROL_TOKEN = 3


class Gguf:
    """fields: name -> value; tensors: name -> (shape as in Hugging Face, block type, bytes)."""

    def __init__(self, path):
        self.raw, self.at = memoryview(pathlib.Path(path).read_bytes()), 4
        version, tensor_count, field_count = self.number("<I"), self.number("<Q"), self.number("<Q")
        if bytes(self.raw[:4]) != b"GGUF" or version != 3:
            sys.exit(f"error: {path} is no GGUF file of version 3")
        self.fields = {}
        for _ in range(field_count):
            name = self.string()
            self.fields[name] = self.value(self.number("<I"))
        entries = []
        for _ in range(tensor_count):
            name = self.string()
            shape = [self.number("<Q") for _ in range(self.number("<I"))][::-1]
            entries.append((name, shape, self.number("<I"), self.number("<Q")))
        alignment = self.fields.get("general.alignment", 32)
        start = -(-self.at // alignment) * alignment
        self.tensors = {name: (shape, kind, self.raw[start + offset:]) for name, shape, kind, offset in entries}

    def number(self, form):
        value, = struct.unpack_from(form, self.raw, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self):
        size = self.number("<Q")
        self.at += size
        return str(self.raw[self.at - size:self.at], "utf-8")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            element, count = self.number("<I"), self.number("<Q")
            return [self.value(element) for _ in range(count)]
        return self.number(SCALARS[kind])

    def tensor(self, name):
        shape, kind, data = self.tensors[name]
        count = math.prod(shape)
        if kind == F32:
            return np.frombuffer(data, "<f4", count).reshape(shape)
        blocks = count // 32
        if kind == Q8_0:  # scale, 32 signed bytes
            block = np.frombuffer(data, [("d", "<f2"), ("q", "i1", 32)], blocks)
            return (block["q"].astype(np.float32) * block["d"].astype(np.float32)[:, None]).reshape(shape)
        if kind == Q4_1:  # scale, offset, 16 bytes: low halves are values 0..15, high halves values 16..31
            block = np.frombuffer(data, [("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)], blocks)
            q = np.concatenate([block["q"] & 15, block["q"] >> 4], 1).astype(np.float32)
            return (q * block["d"].astype(np.float32)[:, None] + block["m"].astype(np.float32)[:, None]).reshape(shape)
        sys.exit(f"error: tensor {name} has block type {kind}")


def rotary_halves(weight, heads):
    """GGUF alternates the two halves of a head's rotary rows; Hugging Face has one after the other."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def weights_of(gguf):
    heads = {"attn_q": gguf.fields["llama.attention.head_count"], "attn_k": gguf.fields["llama.attention.head_count_kv"]}
    weights = {}
    for name in gguf.tensors:
        parts = name.split(".")
        weight = gguf.tensor(name)
        if parts[0] == "blk":
            if parts[2] in heads:
                weight = rotary_halves(weight, heads[parts[2]])
            weights[f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.weight"] = weight
        else:
            weights[OTHER_NAMES[parts[0]] + ".weight"] = weight
    return weights


def write_safetensors(path, weights):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(weights):
        size = weights[name].size * 4
        header[name] = {"dtype": "F32", "shape": list(weights[name].shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(weights):
            out.write(np.ascontiguousarray(weights[name], "<f4").tobytes())


def config_of(fields):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "attention_dropout": 0.0,
            "bos_token_id": fields["tokenizer.ggml.bos_token_id"], "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
            "pad_token_id": fields["tokenizer.ggml.padding_token_id"], "head_dim": fields["llama.rope.dimension_count"],
            "hidden_act": "silu", "hidden_size": fields["llama.embedding_length"], "initializer_range": 0.041666666666666664,
            "intermediate_size": fields["llama.feed_forward_length"], "max_position_embeddings": fields["llama.context_length"],
            "mlp_bias": False, "num_attention_heads": fields["llama.attention.head_count"],
            "num_hidden_layers": fields["llama.block_count"], "num_key_value_heads": fields["llama.attention.head_count_kv"],
            "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": float(fields["llama.rope.freq_base"]),
            "tie_word_embeddings": True, "torch_dtype": "float32", "use_cache": True, "vocab_size": fields["llama.vocab_size"]}


def tokenizer_of(fields):
    tokens = fields["tokenizer.ggml.tokens"]
    special = [i for i, kind in enumerate(fields["tokenizer.ggml.token_type"]) if kind == CONTROL_TOKEN]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": [merge.split(" ") for merge in fields["tokenizer.ggml.merges"]]}}


def main(source, folder):
    gguf, folder = Gguf(source), pathlib.Path(folder)
    fields = gguf.fields

    def dump(name, value):
        (folder / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    dump("config.json", config_of(fields))
    dump("generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2})
    dump("tokenizer.json", tokenizer_of(fields))
    dump("tokenizer_config.json", {
        "tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "bos_token": "<|im_start|>", "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>", "unk_token": "<|endoftext|>", "clean_up_tokenization_spaces": False,
        "model_max_length": 8192, "chat_template": fields["tokenizer.chat_template"]})
    dump("vocab.json", {token: i for i, token in enumerate(fields["tokenizer.ggml.tokens"])})
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(m + "\n" for m in fields["tokenizer.ggml.merges"]), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", weights_of(gguf))


if __name__ == "__main__":
    main(*sys.argv[1:])
