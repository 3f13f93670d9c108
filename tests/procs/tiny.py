"""Tiny inputs: token rows for the golden models, a text model with a WordPiece tokenizer, and safetensors files as Python values."""
import json
import os
import random
import shutil
import struct

from program import GOLDEN, write_text

BERT = os.path.join(GOLDEN, "models", "bert")
GPT2 = os.path.join(GOLDEN, "models", "gpt2")
LLAMA = os.path.join(GOLDEN, "models", "llama")
W3S = os.path.join(GOLDEN, "w3s")  # BERT, 6 layers, 8 heads or more: room for many layouts; weights are named init.safetensors

CLASSES = ["animal", "food", "place"]
WORDS = {
    "animal": "dog cat horse bird fish mouse wolf bear".split(),
    "food": "bread cheese soup apple rice meat cake salt".split(),
    "place": "city river town lake hill street island valley".split(),
}
FILLERS = "the a of in with small large old new and for near some".split()


def bert_rows(path, num_rows=37, seed=1, num_classes=3, vocab=256, longest=20):
    """Pre-tokenised classification rows of different length; some tokens tell the class."""
    draw = random.Random(seed)
    lines = []
    for _ in range(num_rows):
        label = draw.randrange(num_classes)
        ids = [10 + label if draw.random() < 0.4 else draw.randrange(20, vocab) for _ in range(draw.randrange(3, longest))]
        lines.append(json.dumps({"input_ids": ids, "labels": label}))
    return write_text(path, "\n".join(lines) + "\n")


def causal_rows(path, num_rows=20, seed=1, vocab=256, longest=30):
    draw = random.Random(seed)
    lines = []
    for _ in range(num_rows):
        ids = [draw.randrange(3, vocab)]
        for _ in range(draw.randrange(4, longest)):
            ids.append((ids[-1] * 3 + 1) % vocab if draw.random() < 0.7 else draw.randrange(3, vocab))
        lines.append(json.dumps({"input_ids": ids}))
    return write_text(path, "\n".join(lines) + "\n")


def sentences(num_rows, seed=3):
    """[(text, class name)]"""
    draw = random.Random(seed)
    rows = []
    for _ in range(num_rows):
        label = draw.choice(CLASSES)
        words = [draw.choice(WORDS[label] if draw.random() < 0.5 else FILLERS) for _ in range(draw.randrange(3, 9))]
        rows.append((" ".join(words), label))
    return rows


def text_model(folder, **changes):
    """A BERT folder without weights (model.init random) with a WordPiece tokenizer.json over the words above."""
    os.makedirs(folder)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + FILLERS + [w for c in CLASSES for w in WORDS[c]]
    vocab = {token: i for i, token in enumerate(tokens)}
    special = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for i in range(5)]
    sequence = lambda name, kind=0: {"Sequence": {"id": name, "type_id": kind}}
    token = lambda name, kind=0: {"SpecialToken": {"id": name, "type_id": kind}}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": [token("[CLS]"), sequence("A"), token("[SEP]")],
                           "pair": [token("[CLS]"), sequence("A"), token("[SEP]"), sequence("B", 1), token("[SEP]", 1)],
                           "special_tokens": {name: {"id": name, "ids": [vocab[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab}}
    write_text(os.path.join(folder, "tokenizer.json"), json.dumps(tokenizer))
    config = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
              "intermediate_size": 64, "vocab_size": len(tokens), "max_position_embeddings": 32, "type_vocab_size": 2, "pad_token_id": 0,
              "hidden_act": "gelu", "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
              "initializer_range": 0.1}
    config.update(changes)
    write_text(os.path.join(folder, "config.json"), json.dumps(config))
    return folder


def pairs(num_rows, seed=4):
    """[(first text, second text, "same" | "other")]: whether both speak of one kind of thing."""
    draw = random.Random(seed)
    rows = []
    for _ in range(num_rows):
        first, second = draw.choice(CLASSES), draw.choice(CLASSES)
        texts = [" ".join(draw.choice(WORDS[c] if draw.random() < 0.6 else FILLERS) for _ in range(draw.randrange(1, 12))) for c in (first, second)]
        rows.append((*texts, "same" if first == second else "other"))
    return rows


def text_file(path, rows):
    """By extension: .jsonl, .tsv, .csv."""
    if path.endswith(".jsonl"):
        return write_text(path, "".join(json.dumps({"text": t, "label": l}) + "\n" for t, l in rows))
    separator = "\t" if path.endswith(".tsv") else ","
    return write_text(path, separator.join(("label", "text")) + "\n" + "".join(f"{l}{separator}{t}\n" for t, l in rows))


def copy_model(source, folder, **changes):
    """A model folder of our own with other values in config.json (None removes a key)."""
    os.makedirs(folder)
    with open(os.path.join(source, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    for key, value in changes.items():
        config.pop(key, None)
        if value is not None:
            config[key] = value
    write_text(os.path.join(folder, "config.json"), json.dumps(config))
    weights = os.path.join(source, "model.safetensors")
    shutil.copy(weights if os.path.exists(weights) else os.path.join(source, "init.safetensors"), os.path.join(folder, "model.safetensors"))
    return folder


def byte_model(folder, bos="<s>", vocab=260):
    """A GPT-2 folder without weights whose tokenizer.json is plain bytes (byte-level BPE without merges)."""
    os.makedirs(folder)
    codes = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    letters = {b: chr(b) for b in codes}
    letters.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in letters)})
    tokenizer = {"version": "1.0", "truncation": None, "padding": None,
                 "added_tokens": [{"id": 256, "content": bos, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                                   "special": True}],
                 "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                 "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                           "fuse_unk": False, "byte_fallback": False, "vocab": {letters[b]: b for b in range(256)}, "merges": []}}
    write_text(os.path.join(folder, "tokenizer.json"), json.dumps(tokenizer))
    write_text(os.path.join(folder, "config.json"), json.dumps(
        {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": vocab,
         "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
         "bos_token_id": 256, "eos_token_id": 256, "initializer_range": 0.05}))
    return folder


def read_safetensors(path):
    """name -> (dtype, shape, bytes)"""
    with open(path, "rb") as f:
        data = f.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length:]
    return {name: (t["dtype"], t["shape"], body[t["data_offsets"][0]:t["data_offsets"][1]]) for name, t in header.items()}


def floats(tensor):
    dtype, _, data = tensor
    assert dtype == "F32", dtype
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def write_safetensors(path, tensors, header=None):
    """tensors as read_safetensors gives them; `header` may change the header (a dict) before it is written."""
    table, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    if header:
        header(table)
    text = json.dumps(table).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)
    return path
