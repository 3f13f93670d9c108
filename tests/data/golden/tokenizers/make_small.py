#!/usr/bin/env python3
"""Writes small.json: tiny tokenizer.json files, one rule each, and what Hugging Face's tokenizers makes of some texts.

  python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3 && venv/bin/python make_small.py

{"bases": {name: tokenizer.json}, "variants": [{"name", "base", "replace": {top-level key: value}, "replace_in_model": {key: value},
"cases": [[text, ids, decoded without special tokens, decoded with them], ...]}]}.
Needed only when a rule is added; the tests read small.json."""
import copy
import json
import os

from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))


def byte_alphabet():
    printable = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    out, extra = {}, 0x100
    for byte in range(256):
        if byte in printable:
            out[byte] = chr(byte)
        else:
            out[byte] = chr(extra)
            extra += 1
    return out


def bpe_base():
    alphabet = byte_alphabet()
    spell = lambda text: "".join(alphabet[b] for b in text.encode())
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), (" ", "w"), ("o", "r"), (" w", "or"), ("l", "d"),
              (" wor", "ld"), ("1", "2"), ("12", "3"), ("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc"), (" ", " "),
              ("  ", "  "), ("Ã", "©"), ("c", "a"), ("ca", "f"), ("caf", "Ã©"), ("'", "s"), ("!", "!"), ("!!", "!!"),
              ("q", "r"), ("p", "q"), ("p", "qr"), ("t", "u"), ("s", "t")]
    merges = [[spell(a) if a.isascii() else a, spell(b) if b.isascii() else b] for a, b in merges]
    vocab = {alphabet[b]: i for i, b in enumerate(range(256))}
    for a, b in merges:
        vocab.setdefault(a + b, len(vocab))
    vocab["whole"] = len(vocab)  # no merge leads to it: only ignore_merges finds it
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": len(vocab), "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True}],
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocab, "merges": merges}}


def wordpiece_base():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "cats", "##s", "##ing", "sit", "##t", "un", "##able", "a", "b",
             "c", "e", "##e", "caf", "cafe", "café", "über", "uber", "i", "##̇", "İ", "ß", "!", ",", ".", "'", "don", "t", "do", "not",
             "中", "文", "##文", "か", "カ", "##x", "x", "É", "e\u0301", "##\u0301", "The", "Cat", "s", "²", "$", "-", "n"]
    special = [{"id": i, "content": words[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for i in range(5)]
    return {"version": "1.0", "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
            "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
                        "pad_token": "[PAD]"},
            "added_tokens": special,
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                           "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing",
                               "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                                          {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
                               "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                                        {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
                                        {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
                               "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                                                  "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 12,
                      "vocab": {w: i for i, w in enumerate(words)}}}


BPE_TEXTS = ["", " ", "hello world", "  hello   world  ", "abc abcabc", "abcab", "123 1234", "1'2'3's", "it's IT'S 'll 'LL 'S", "café cafe\u0301",
             "a\u00a0b\u3000c\u0085d\u180ee", "x\n\n y\r\n\tz", "!!!! !!!!!", "whole wholes", "\u4f60\u597d\uff0c \u00bd\u2167\u0664", "a, b, ,c",
             "<|end|>hello<|end|>", "<|en hello <|end|>!", "hello  <m>  world", "w<w>w <w> (<w>)", "\u017f's'\u017f", "\U0001f468\u200d\U0001f469",
             "a" * 70 + " " * 40 + "b", "x" * 5 + "\u0301", "12\u00b23", "foo\n", "\n\n\n", "E\u0301E <n\u00c9> <n\u00e9> <ne\u0301>", "a--b-c", "pqr pqrpq stu"]
WORDPIECE_TEXTS = ["", " \t\n", "the cat sitting", "The CATS, sit!", "unable unablex", "caf\u00e9 CAFE\u0301 \u00fcber", "\u0130i\u0307 \u00df\u1e9e", "\u4e2d\u6587the\u4e2d",
                   "\u304b\u304c \u30ab", "don't. do not ' s", "a" * 12 + " " + "a" * 13, "a\u0000b\u200bc\ufffd\u00ade", "x\u00b2 $x -x- \u00bf\u3002\u2014",
                   "[CLS] the [MASK] [mask] [SEP]", "[PAD][UNK]x", "the\u2028cat\u3000cats\u0085s", "s\u0323\u0307", "\ue000a\U000f0000", "cat[foo]CAT [FOO]",
                   "\u00c9e\u0301E\u0301", "a.b,c!d", "\u0e01\u0e33 \u0f73"]


def added(base, *tokens):
    first = len(base["model"]["vocab"]) + (1 if base["model"]["type"] == "BPE" else 0)
    out = copy.deepcopy(base["added_tokens"])
    for i, (content, flags) in enumerate(tokens):
        token = {"id": first + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                 "special": False}
        token.update(flags)
        out.append(token)
    return out


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def variants(bpe, wordpiece):
    plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    gpt2 = dict(plain, use_regex=True)
    llama3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    end = len(bpe["model"]["vocab"])
    bos = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
           "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [end], "tokens": ["<|end|>"]}}}
    yield "gpt2", "bpe", {}
    yield "string merges", "bpe", {"model": {"merges": [" ".join(m) for m in bpe["model"]["merges"]]}}
    yield "a merge twice: the later rank counts", "bpe", {"model": {"merges": bpe["model"]["merges"] + [["t", "u"]]}}
    yield "prefix space", "bpe", {"pre_tokenizer": dict(gpt2, add_prefix_space=True)}
    yield "smollm2: single digits", "bpe", {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, gpt2)}
    yield "runs of digits", "bpe", {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": False}, gpt2)}
    yield "llama3: pattern, ignore_merges, bos", "bpe", {"pre_tokenizer": sequence(split(llama3), plain), "model": {"ignore_merges": True},
                                                         "post_processor": {"type": "Sequence", "processors": [gpt2, bos]}}
    yield "RobertaProcessing", "bpe", {"post_processor": {"type": "RobertaProcessing", "sep": ["hello", bpe["model"]["vocab"]["hello"]],
                                                          "cls": ["<|end|>", end], "trim_offsets": True, "add_prefix_space": False}}
    yield "qwen2: NFC", "bpe", {"normalizer": {"type": "NFC"}, "pre_tokenizer": sequence(split(llama3.replace("{1,3}", "")), plain),
                                "post_processor": gpt2, "added_tokens": added(bpe, ("<n\u00e9>", {"normalized": True}))}
    yield "NFKC then lower case", "bpe", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]}}
    yield "added tokens with flags", "bpe", {"added_tokens": added(bpe, ("<m>", {"lstrip": True, "rstrip": True}), ("<w>", {"single_word": True}),
                                                                 ("<|end|>!", {}), ("--", {"special": True}))}
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield f"split {behavior}", "bpe", {"pre_tokenizer": sequence(split(r"[\s,-]", behavior), plain)}
        yield f"split {behavior} inverted", "bpe", {"pre_tokenizer": sequence(split("-", behavior, True, "String"), plain)}
    kept = [t for t in bpe["model"]["vocab"] if not set(t) & set("bcxyz!f")]
    holes = {"vocab": {t: i for i, t in enumerate(kept)}, "merges": [m for m in bpe["model"]["merges"] if m[0] + m[1] in kept]}
    for name, unk, fuse in (("unknown bytes vanish", None, False), ("unknown bytes", "whole", False), ("unknown bytes fused", "whole", True)):
        yield name, "bpe", {"model": dict(holes, unk_token=unk, fuse_unk=fuse), "added_tokens": []}
    bert = wordpiece["normalizer"]
    yield "bert", "wordpiece", {}
    yield "bert cased", "wordpiece", {"normalizer": dict(bert, lowercase=False)}
    yield "bert cased, accents stripped", "wordpiece", {"normalizer": dict(bert, lowercase=False, strip_accents=True)}
    yield "bert lower, accents kept", "wordpiece", {"normalizer": dict(bert, strip_accents=False)}
    yield "bert not cleaned", "wordpiece", {"normalizer": dict(bert, clean_text=False, handle_chinese_chars=False)}
    yield "BertProcessing, no decoder", "wordpiece", {"post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
                                                      "decoder": None}
    yield "normalized added token", "wordpiece", {"added_tokens": added(wordpiece, ("[FOO]", {"normalized": True, "special": True}))}
    yield "no clean-up in decode", "wordpiece", {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False}}


def main():
    bases = {"bpe": bpe_base(), "wordpiece": wordpiece_base()}
    lines = []
    for name, base, replace in variants(bases["bpe"], bases["wordpiece"]):
        replace_in_model = replace.pop("model", {})
        file = dict(bases[base], **replace, model=dict(bases[base]["model"], **replace_in_model))
        tokenizer = Tokenizer.from_str(json.dumps(file))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        cases = []
        for text in BPE_TEXTS if base == "bpe" else WORDPIECE_TEXTS:
            ids = tokenizer.encode(text).ids
            cases.append([text, ids, tokenizer.decode(ids), tokenizer.decode(ids, skip_special_tokens=False)])
        lines.append(json.dumps({"name": name, "base": base, "replace": replace, "replace_in_model": replace_in_model, "cases": cases}))
    with open(os.path.join(HERE, "small.json"), "w", encoding="ascii") as file:
        file.write('{"bases": ' + json.dumps(bases) + ',\n"variants": [\n' + ",\n".join(lines) + "\n]}\n")
    print(len(lines), "variants", os.path.getsize(os.path.join(HERE, "small.json")), "bytes")


if __name__ == "__main__":
    main()
