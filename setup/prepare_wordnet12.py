#!/usr/bin/env python3
"""Twelve-class text classification from WordNet's noun glosses: train.jsonl, test.jsonl, labels.json.

usage: prepare_wordnet12.py data.noun OUT_FOLDER

Per class: glosses of at least 20 characters, each text once (first occurrence in file order), ordered by the hex of
sha256(synset offset); the first 200 are test rows, the next 1,200 training rows. All rows of a file are then ordered by
the hex of sha256(synset offset + class name), so that the classes are mixed.
"""
import hashlib
import json
import pathlib
import sys

# Class name -> number of its lexicographer file (the second field of a data.noun line; lexnames(5WN)).
CLASSES = {"noun.act": 4, "noun.animal": 5, "noun.artifact": 6, "noun.attribute": 7, "noun.body": 8, "noun.cognition": 9,
           "noun.communication": 10, "noun.food": 13, "noun.location": 15, "noun.person": 18, "noun.plant": 20,
           "noun.substance": 27}
TEST_ROWS, TRAIN_ROWS, SHORTEST = 200, 1200, 20


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def glosses_by_file(path):
    """lexicographer file number -> {gloss: synset offset}, in file order, each gloss once."""
    found = {number: {} for number in CLASSES.values()}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("  "):  # the licence at the top
                continue
            fields, gloss = line.rstrip("\n").split(" | ", 1)
            offset, number = fields.split(" ", 2)[:2]
            gloss = " ".join(gloss.split())
            if int(number) in found and len(gloss) >= SHORTEST:
                found[int(number)].setdefault(gloss, offset)
    return found


def main(source, folder):
    found = glosses_by_file(source)
    test, train = [], []
    for label, (name, number) in enumerate(CLASSES.items()):
        rows = sorted(found[number].items(), key=lambda row: digest(row[1]))
        rows = [(digest(offset + name), gloss, label) for gloss, offset in rows[:TEST_ROWS + TRAIN_ROWS]]
        test += rows[:TEST_ROWS]
        train += rows[TEST_ROWS:]
    for name, rows in (("train", train), ("test", test)):
        rows.sort(key=lambda row: row[0])
        with open(pathlib.Path(folder, name + ".jsonl"), "w", encoding="utf-8") as out:
            for _, gloss, label in rows:
                out.write(json.dumps({"text": gloss, "label": label}, ensure_ascii=False) + "\n")
    pathlib.Path(folder, "labels.json").write_text(json.dumps(list(CLASSES), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
