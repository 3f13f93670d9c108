#!/usr/bin/env python3
"""tokenizer.json from GPT-2's vocab.json and merges.txt in FOLDER.   usage: prepare_gpt2_tokenizer.py FOLDER"""
import json
import pathlib
import sys


def byte_level(add_prefix_space, trim_offsets):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": trim_offsets, "use_regex": True}


def main(folder):
    folder = pathlib.Path(folder)
    vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    merges = [line.split(" ") for line in (folder / "merges.txt").read_text(encoding="utf-8").split("\n")[1:] if line]
    end = "<|endoftext|>"
    if (len(vocab), len(merges), vocab.get(end)) != (50257, 50000, 50256):
        sys.exit("error: this is not GPT-2's vocabulary")
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": vocab[end], "content": end, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": True, "special": True}],
        "normalizer": None,
        "pre_tokenizer": byte_level(False, True),
        "post_processor": byte_level(True, False),
        "decoder": byte_level(True, True),
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": merges}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
