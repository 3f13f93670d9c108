"""transformers opens what plait exports and computes the same: logits of a classifier, loss of a language model. Needs .venv-test."""
import json
import os
import subprocess
import unittest

import tiny
from hugging_face_venv import venv_python
from program import ROOT, ProgramTest, layout_flags, write_text

# Arguments: model folder, data file, what to print. No padding: every row alone, so nothing hides.
SCRIPT = """
import json, os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
import torch, transformers
folder, data, kind = sys.argv[1:4]
torch.set_num_threads(1)
rows = [json.loads(line) for line in open(data, encoding="utf-8")]
if kind == "logits":
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder) if "text" in rows[0] else None
else:
    model, tokenizer = transformers.AutoModelForCausalLM.from_pretrained(folder), None
model.eval()
result = {"class": type(model).__name__, "dtype": str(model.dtype), "labels": model.config.id2label, "logits": [], "loss": 0.0}
targets = 0
with torch.no_grad():
    for row in rows:
        if tokenizer:
            inputs = dict(tokenizer(row["text"], row.get("second"), return_tensors="pt", truncation=True, max_length=int(sys.argv[4]), padding=False))
        else:
            inputs = {"input_ids": torch.tensor([row["input_ids"]])}
        if kind == "logits":
            result["logits"] += model(**inputs).logits[0].tolist()
        else:
            count = len(row["input_ids"]) - 1
            result["loss"] += model(**inputs, labels=inputs["input_ids"]).loss.item() * count
            targets += count
if targets:
    result["loss"] /= targets
print(json.dumps(result))
"""


class HuggingFaceTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.python = venv_python()
        if not self.python:
            self.skipTest("no .venv-test here: setup/test_venv.sh makes it (4 GB), or PLAIT_TEST_VENV=1 lets this test do so")

    def transformers(self, folder, data, kind, length=64):
        script = write_text(self.path("open.py"), SCRIPT)
        done = subprocess.run([self.python, script, folder, data, kind, str(length)], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        for complaint in ("newly initialized", "MISSING", "UNEXPECTED", "not used when"):
            self.assertNotIn(complaint, done.stderr)
        return json.loads(done.stdout.strip().splitlines()[-1])

    def assert_same_logits(self, folder, data, layout, tolerance=1e-5, *more, length=64):
        self.ok("predict", "--model", folder, "--data", data, "--output", self.path("out.jsonl"), "--logits", self.path("l.safetensors"),
                *layout_flags(layout), *more)
        found = self.transformers(folder, data, "logits", length)
        self.assertEqual(found["dtype"], "torch.float32")
        self.assert_close(tiny.floats(tiny.read_safetensors(self.path("l.safetensors"))["logits"]), found["logits"], tolerance, folder)
        return found

    def test_classifier(self):
        rows = tiny.bert_rows(self.path("rows.jsonl"))
        self.train("2x2x2", "run", "--model", tiny.BERT, "--train_file", rows, "--set", "train.max_epochs=1", "--set", "train.batch_size=8", "--lr", "1e-3")
        found = self.assert_same_logits(self.path("run", "output"), rows, "1x2x1")
        self.assertEqual(found["class"], "BertForSequenceClassification")

    def test_classifier_from_text_with_tokenizer_and_labels(self):
        model = tiny.text_model(self.path("model"))
        file = tiny.text_file(self.path("rows.jsonl"), tiny.sentences(20))
        self.train("1x2x3", "run", "--model", model, "--set", "model.init=random", "--train_file", file, "--set", "train.max_epochs=1", "--set",
                   "train.batch_size=4", "--lr", "1e-3")
        found = self.assert_same_logits(self.path("run", "output"), file, "2x1x1")
        self.assertEqual(found["labels"], {"0": "animal", "1": "food", "2": "place"})

    def test_pairs_of_texts(self):
        model = tiny.text_model(self.path("model"))
        rows = write_text(self.path("rows.jsonl"), "".join(json.dumps({"text": a, "second": b, "label": l}) + "\n" for a, b, l in tiny.pairs(24)))
        columns = ["--set", "dataset.valid.text_pair_col=second", "--set", "preprocessor.sequence_length=14"]
        self.train("1x2x3", "run", "--model", model, "--set", "model.init=random", "--train_file", rows, "--set", "dataset.train.text_pair_col=second", *columns,
                   "--set", "train.max_epochs=1", "--set", "train.batch_size=4", "--lr", "1e-3")
        found = self.assert_same_logits(self.path("run", "output"), rows, "2x1x1", 1e-5, *columns, length=14)
        self.assertEqual(found["labels"], {"0": "other", "1": "same"})

    def test_language_models(self):
        for name, source, layout in (("GPT2LMHeadModel", tiny.GPT2, "2x2x2"), ("LlamaForCausalLM", tiny.LLAMA, "1x4x2")):
            with self.subTest(name):
                rows = tiny.causal_rows(self.path(f"{name}.jsonl"))
                words = ["--task", "text-generation", "--set", "train.max_epochs=1", "--set", "train.batch_size=8", "--lr", "1e-3"]
                self.train(layout, name, "--model", source, "--train_file", rows, *words)
                folder = self.path(name, "output")
                scored = json.loads(self.ok("eval", "--model", folder, "--data", rows, *layout_flags("1x2x1")).out.splitlines()[-1])
                found = self.transformers(folder, rows, "loss")
                self.assertEqual(found["class"], name)
                self.assert_close([scored["eval_loss"]], [found["loss"]], 1e-5, name)

    def test_minilm_on_wordnet12(self):
        model, data = os.path.join(ROOT, "models", "minilm"), os.path.join(ROOT, "datasets", "wordnet12", "test.jsonl")
        if not os.path.exists(os.path.join(model, "model.safetensors")) or not os.path.exists(data):
            self.skipTest("models/minilm or datasets/wordnet12 is not here: setup/fetch.sh makes them")
        with open(data, encoding="utf-8") as f:
            rows = write_text(self.path("rows.jsonl"), "".join(f.readline() for _ in range(40)))
        self.train("2x2x2", "run", os.path.join(ROOT, "configs", "quickstart.yaml"), "--set", "dataset.train.rows=96", "--set",
                   "evaluation.period.eval_strategy=no", timeout=400)
        found = self.assert_same_logits(self.path("run", "output"), rows, "1x1x2", 2e-5, "--set", "preprocessor.sequence_length=64")
        self.assertEqual(found["labels"]["3"], "noun.attribute")


if __name__ == "__main__":
    unittest.main()
