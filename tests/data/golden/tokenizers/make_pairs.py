#!/usr/bin/env python3
"""Writes pairs_small.json and pairs_minilm.jsonl: pairs of texts as Hugging Face tokenises and cuts them.

  python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3 transformers==5.24.0 && venv/bin/python make_pairs.py

pairs_small.json: {"variants": [{"name", "variant": one of small.json, "post_processor": replaces its own (absent: as it is),
"cases": [[first, second, max_length, ids, token_type_ids], ...]}]}; `tokenizers` with truncation "longest_first".
pairs_minilm.jsonl: a case a line; transformers' tokenizer(first, second, truncation=True, max_length=n) of models/minilm.
Needed only when a case is added; the tests read the two files."""
import json
import os

from tokenizers import Tokenizer
from transformers import AutoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "..", "..", "..", "..", "models", "minilm")


def template(pair, ids):
    pieces = lambda text: [{"Sequence": {"id": p[1], "type_id": int(p[3:])}} if p[0] == "$" else
                           {"SpecialToken": {"id": p.split(":")[0], "type_id": int(p.split(":")[1])}} for p in text.split()]
    return {"type": "TemplateProcessing", "single": pieces("$A:0"), "pair": pieces(pair),
            "special_tokens": {name: {"id": name, "ids": numbers, "tokens": [name] * len(numbers)} for name, numbers in ids.items()}}


def small_variants():
    yield "bert", "bert", None
    yield "BertProcessing", "BertProcessing, no decoder", None
    yield "RobertaProcessing", "RobertaProcessing", None
    yield "nothing between", "llama3: pattern, ignore_merges, bos", None
    yield "one type, a token of two ids between, none behind", "bert", template("[CLS]:0 $A:0 [SEP]:0 $B:0", {"[CLS]": [2], "[SEP]": [3, 3]})
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    yield "in a sequence", "gpt2", {"type": "Sequence", "processors": [byte_level, template("$A:0 hello:1 $B:1 hello:1", {"hello": [259]})]}


def small_cases(tokenizer):
    one, three, four, many = "cat", "the cat sit", "a b c x", "the cats sit, the cat sitting! a b c x the cafe $ n"
    for first, second in [(one, one), (three, four), (four, three), (four, "b a x c"), (one, many), (many, one), (many, many), (many, three)]:
        tokenizer.no_truncation()
        whole = len(tokenizer.encode(first, second).ids)
        least = whole - sum(len(tokenizer.encode(t, add_special_tokens=False).ids) for t in (first, second)) + 2
        for length in list(range(least, min(whole + 2, least + 7))) + [whole - 1, whole, whole + 5]:
            if length < least:
                continue
            tokenizer.enable_truncation(length, strategy="longest_first")
            encoded = tokenizer.encode(first, second)
            yield [first, second, length, encoded.ids, encoded.type_ids]


def write_small():
    with open(os.path.join(HERE, "small.json"), encoding="ascii") as file:
        small = json.load(file)
    lines = []
    for name, variant, post_processor in small_variants():
        entry = next(v for v in small["variants"] if v["name"] == variant)
        base = small["bases"][entry["base"]]
        model = dict(base, **entry["replace"], model=dict(base["model"], **entry["replace_in_model"]))
        out = {"name": name, "variant": variant}
        if post_processor:
            model["post_processor"] = out["post_processor"] = post_processor
        tokenizer = Tokenizer.from_str(json.dumps(model))
        tokenizer.no_padding()
        out["cases"] = list(small_cases(tokenizer))
        lines.append(json.dumps(out))
    with open(os.path.join(HERE, "pairs_small.json"), "w", encoding="ascii") as file:
        file.write('{"variants": [\n' + ",\n".join(lines) + "\n]}\n")


def write_minilm():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    with open(os.path.join(HERE, "tokenize_bert.jsonl"), encoding="ascii") as file:
        texts = [row["text"] for row in map(json.loads, file) if row["text"].strip() and len(row["text"]) < 400][::6]
    with open(os.path.join(HERE, "pairs_minilm.jsonl"), "w", encoding="ascii") as file:
        for i, first in enumerate(texts):
            second = texts[(7 * i + 3) % len(texts)]
            for length in (5, 6, 12, 17, 64, 512):
                row = tokenizer(first, second, truncation=True, max_length=length)
                file.write(json.dumps([first, second, length, row["input_ids"], row["token_type_ids"]]) + "\n")


if __name__ == "__main__":
    write_small()
    write_minilm()
