"""Runs from settings of other systems train as the native ones do, to the same losses; weights that are pickles are not read but converted."""
import json
import os
import subprocess
import unittest

import tiny
from hugging_face_venv import venv_python
from program import ROOT, ProgramTest, read_json, read_jsonl, write_text

NATIVE = ["--set", "train.optimizer.params.weight_decay=0.01", "--set", "train.optimizer.decay_all=true", "--set", "train.clip_grad=2", "--set", "train.seed=42",
          "--set", "train.max_epochs=2", "--set", "train.batch_size=16", "--set", "train.distributed.gradient_accumulation_steps=2",
          "--set", "train.optimizer.params.lr=1e-3", "--set", "train.lr_scheduler.type=step", "--set", "train.lr_scheduler.by_epoch=true",
          "--set", "train.lr_scheduler.gamma=0.1"]

# A Megatron GPT-3 of two pieces, written as ModelScope has it, and its loss by a forward pass of its own.
MEGATRON = """
import json, math, os, sys
import torch
import torch.nn.functional as F
folder, data = sys.argv[1:3]
torch.manual_seed(5)
torch.set_num_threads(1)
V, P, H, L, N = 96, 32, 32, 2, 4
D = H // N
def matrix(*shape): return torch.randn(*shape, dtype=torch.float64) * 0.2
w = {"embedding.word_embeddings.weight": matrix(V, H), "embedding.position_embeddings.weight": matrix(P, H)}
for i in range(L):
    at = f"encoder.layers.{i}."
    for name, rows, columns in [("self_attention.query_key_value", 3 * H, H), ("self_attention.dense", H, H), ("mlp.dense_h_to_4h", 4 * H, H), ("mlp.dense_4h_to_h", H, 4 * H)]:
        w[at + name + ".weight"], w[at + name + ".bias"] = matrix(rows, columns), matrix(rows)
    for name in ("input_layernorm", "post_attention_layernorm"):
        w[at + name + ".weight"], w[at + name + ".bias"] = 1 + matrix(H), matrix(H)
w["encoder.final_layernorm.weight"], w["encoder.final_layernorm.bias"] = 1 + matrix(H), matrix(H)
def forward(ids):
    S = len(ids)
    x = w["embedding.word_embeddings.weight"][ids] + w["embedding.position_embeddings.weight"][:S]
    norm = lambda v, name: F.layer_norm(v, (H,), w[name + ".weight"], w[name + ".bias"], 1e-5)
    linear = lambda v, name: v @ w[name + ".weight"].T + w[name + ".bias"]
    for i in range(L):
        at = f"encoder.layers.{i}."
        mixed = linear(norm(x, at + "input_layernorm"), at + "self_attention.query_key_value").view(S, N, 3 * D)
        q, k, v = [part.transpose(0, 1) for part in mixed.split(D, dim=-1)]
        scores = (q @ k.transpose(1, 2) / math.sqrt(D)).masked_fill(torch.ones(S, S).triu(1).bool(), -math.inf)
        x = x + linear((scores.softmax(-1) @ v).transpose(0, 1).reshape(S, H), at + "self_attention.dense")
        x = x + linear(F.gelu(linear(norm(x, at + "post_attention_layernorm"), at + "mlp.dense_h_to_4h"), approximate="tanh"), at + "mlp.dense_4h_to_h")
    return norm(x, "encoder.final_layernorm") @ w["embedding.word_embeddings.weight"].T
loss = targets = 0
for line in open(data):
    ids = torch.tensor(json.loads(line)["input_ids"])
    loss += F.cross_entropy(forward(ids)[:-1], ids[1:], reduction="sum").item()
    targets += len(ids) - 1
def piece(name, value, rank):
    if name.endswith(("word_embeddings.weight", "query_key_value.weight", "query_key_value.bias", "dense_h_to_4h.weight", "dense_h_to_4h.bias")): return value.chunk(2, 0)[rank]
    if name.endswith(("attention.dense.weight", "dense_4h_to_h.weight")): return value.chunk(2, 1)[rank]
    return value
os.makedirs(os.path.join(folder, "model"))
for rank in range(2):
    state = {"module": {"language_model." + name: piece(name, value, rank).float().clone() for name, value in w.items()}}
    torch.save(state, os.path.join(folder, "model", f"mp_rank_{rank:02d}_model_states.pt"))
config = {"model_type": "gpt3", "hidden_size": H, "num_hidden_layers": L, "num_attention_heads": N, "ffn_hidden_size": 4 * H, "layernorm_epsilon": 1e-5, "eod_id": 7}
json.dump(config, open(os.path.join(folder, "config.json"), "w"))
print(loss / targets)
"""


class OtherSettings(ProgramTest):
    def setUp(self):
        super().setUp()
        self.rows = tiny.bert_rows(self.path("rows.jsonl"), 40)

    def native(self, name, *words, layout="2x2x1"):
        steps, _ = self.train(layout, name, "--model", tiny.BERT, "--train_file", self.rows, *words)
        return steps

    def other(self, name, settings, *words, file="settings.json"):
        write_text(self.path(file), settings if isinstance(settings, str) else json.dumps(settings))
        done = self.ok("train", file, "--work_dir", self.path(name), *words)
        return self.metrics(name)[0], done

    def test_modelscope(self):
        settings = {
            "framework": "pytorch", "task": "text-classification", "model": {"path": tiny.BERT}, "dataset": {"train": {"file": self.rows}},
            "train": {"max_epochs": 2, "dataloader": {"batch_size_per_gpu": 4},
                      "optimizer": {"type": "AdamW", "lr": 1e-3, "options": {"cumulative_iters": 2, "grad_clip": {"max_norm": 2.0}}},
                      "lr_scheduler": {"type": "StepLR", "step_size": 1}, "hooks": [{"type": "MegatronHook"}, {"type": "CheckpointHook", "interval": 2}]},
            "megatron": {"world_size": 4, "tensor_model_parallel_size": 2}}
        steps, done = self.other("modelscope", settings)
        self.assertIn("data_parallel_size 2 = world_size 4 / (tensor_model_parallel_size 2", done.err + done.out)
        expected = self.native("native", *NATIVE)
        self.assertEqual([s["loss"] for s in steps], [s["loss"] for s in expected])
        self.assertEqual([s["learning_rate"] for s in steps], [1e-3] * 3 + [s["learning_rate"] for s in expected[3:]])
        self.assertTrue(os.listdir(self.path("modelscope", "weights")))

    def test_text_pairs(self):
        """A sentence-similarity file: the losses of the same pairs as token rows, by Adam with coupled decay; eval and predict take the columns."""
        model, length = tiny.text_model(self.path("model")), 14
        vocab = read_json(os.path.join(model, "tokenizer.json"))["model"]["vocab"]
        rows = tiny.pairs(24)
        write_text(self.path("pairs.csv"), "sentence2,gold,sentence1\n" + "".join(f"{b},{label},{a}\n" for a, b, label in rows))
        tokens, cut = [], 0
        for a, b, label in rows:
            first, second = [[vocab[word] for word in text.split()] for text in (a, b)]
            if len(first) + len(second) + 3 > length:  # the longer one first, the second of two alike keeps the odd token
                shorter, longer = (second, first) if len(first) > len(second) else (first, second)
                del shorter[(length - 3) // 2:]
                del longer[length - 3 - len(shorter):]
                cut += 1
            ids = [2, *first, 3, *second, 3]
            tokens.append({"input_ids": ids, "token_type_ids": [0] * (len(first) + 2) + [1] * (len(second) + 1), "labels": int(label == "same")})
        write_text(self.path("tokens.jsonl"), "".join(json.dumps(row) + "\n" for row in tokens))
        self.assertGreater(cut, 3)
        settings = {
            "framework": "pytorch", "task": "sentence-similarity", "model": {"type": "bert", "path": model}, "dataset": {"train": {"file": self.path("pairs.csv")}},
            "preprocessor": {"type": "sen-sim-tokenizer", "first_sequence": "sentence1", "second_sequence": "sentence2", "label": "gold",
                             "label2id": {"same": 1, "other": 0}, "sequence_length": length},
            "train": {"max_epochs": 2, "dataloader": {"batch_size_per_gpu": 4}, "optimizer": {"type": "Adam", "lr": 1e-3, "weight_decay": 0.3},
                      "lr_scheduler": {"type": "StepLR", "step_size": 9}},
            "megatron": {"world_size": 2, "tensor_model_parallel_size": 1}}
        steps, done = self.other("pairs", settings, "--set", "model.init=random", "--set", "train.dropout=0")
        self.assertIn(f"{cut} rows cut at sequence_length", done.err + done.out)
        native = ["--model", model, "--set", "model.init=random", "--set", "train.dropout=0", "--train_file", self.path("tokens.jsonl"), "--set", "dataset.labels=[other, same]",
                  "--set", "train.seed=42", "--set", "train.max_epochs=2", "--set", "train.batch_size=8", "--set", "train.clip_grad=0", "--set", "train.optimizer.params.lr=1e-3",
                  "--set", "train.lr_scheduler.type=constant", "--set", "train.optimizer.params.weight_decay=0.3", "--set", "train.optimizer.decay_all=true"]
        losses = {}
        for kind in ("Adam", "AdamW"):
            taken, _ = self.train("2x1x1", kind, *native, "--set", "train.optimizer.type=" + kind)
            losses[kind] = [s["loss"] for s in taken]
        self.assertEqual([s["loss"] for s in steps], losses["Adam"])
        self.assertNotEqual(losses["Adam"], losses["AdamW"])
        folder, columns = self.path("pairs", "output"), ["--set", f"preprocessor.sequence_length={length}", "--set", "evaluation.per_device_batch_size=8"]
        flags = ["--first_sequence", "sentence1", "--second_sequence", "sentence2", "--label", "gold"]
        scored = [json.loads(self.ok("eval", "--model", folder, "--data", self.path(data), *columns, *more).out.splitlines()[-1])["eval_loss"]
                  for data, more in (("pairs.csv", flags), ("tokens.jsonl", []))]
        self.assertEqual(scored[0], scored[1])
        for data, more in (("pairs.csv", flags), ("tokens.jsonl", [])):
            self.ok("predict", "--model", folder, "--data", self.path(data), "--output", self.path(data + ".out"), *columns, *more)
        self.assertEqual(read_jsonl(self.path("pairs.csv.out")), read_jsonl(self.path("tokens.jsonl.out")))
        explained = self.ok("explain", "settings.json")
        self.assertIn("preprocessor.second_sequence: sentence2", explained.out)
        self.assertIn("dataset.valid.text_pair_col = sentence2", explained.out)

    def test_deepspeed(self):
        settings = {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 0},
                    "gradient_clipping": 2.0, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}},
                    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-3, "warmup_num_steps": 2, "warmup_type": "linear"}},
                    "tensor_parallel": {"autotp_size": 2}}
        steps, _ = self.other("deepspeed", settings, "--model", tiny.BERT, "--train_file", self.rows, "--max_epochs", "1", "--set", "train.distributed.data_parallel_size=2",
                              "--set", "train.distributed.model_parallel_size=2")
        expected = self.native("native", "--set", "train.optimizer.params.weight_decay=0.01", "--set", "train.clip_grad=2", "--set", "train.max_epochs=1",
                               "--set", "train.batch_size=16", "--set", "train.distributed.gradient_accumulation_steps=2", "--set", "train.optimizer.params.lr=1e-3",
                               "--set", "train.lr_scheduler.type=constant", "--set", "train.lr_scheduler.warmup_steps=2")
        self.assertEqual([s["loss"] for s in steps], [s["loss"] for s in expected])

    def test_explain(self):
        done = self.ok("explain", os.path.join(ROOT, "tests", "data", "configs", "modelscope_hub.json"), "--json")
        lines = {line["key"]: line for line in json.loads(done.out)["lines"]}
        self.assertEqual(lines["train.max_epochs"]["outcome"], "train.max_epochs = 10")
        for name in ("modelscope_easynlp.yaml", "modelscope_flat.yaml", "hugging_face.yaml"):
            self.ok("explain", os.path.join(ROOT, "tests", "data", "configs", name))
        write_text(self.path("bad.yaml"), "train:\n  seed: 1\n  batchsize: 8\n")
        done = self.run_plait("explain", "bad.yaml")
        self.assertEqual(done.code, 2, str(done))
        self.assertIn("bad.yaml:2  train.seed: 1", done.out)
        self.assertIn("plait: bad.yaml:3: unknown key train.batchsize", done.err)


class PickledWeights(ProgramTest):
    def test_refused_with_the_line_that_converts(self):
        rows = tiny.causal_rows(self.path("rows.jsonl"), 4)
        folder = self.path("gpt3")
        os.makedirs(os.path.join(folder, "model"))
        write_text(os.path.join(folder, "config.json"), json.dumps({"model_type": "gpt3", "hidden_size": 8}))
        write_text(os.path.join(folder, "model", "mp_rank_00_model_states.pt"), "pickle")
        done = self.run_plait("train", "--task", "text-generation", "--model", folder, "--train_file", rows)
        self.assertEqual(done.code, 4, str(done))
        self.assertIn("only model/mp_rank_00_model_states.pt of a Megatron model. That is a pickle", done.last_line)
        self.assertIn(f"python3 tools/convert_modelscope_gpt3.py {folder} NEW_FOLDER (docs/modelscope.md)", done.last_line)

    def test_converted(self):
        python = venv_python()
        if not python:
            self.skipTest("no .venv-test here: setup/test_venv.sh makes it (4 GB), or PLAIT_TEST_VENV=1 lets this test do so")
        rows = tiny.causal_rows(self.path("rows.jsonl"), 8, vocab=96)
        made = subprocess.run([python, write_text(self.path("make.py"), MEGATRON), self.path("old"), rows], capture_output=True, text=True, timeout=300)
        self.assertEqual(made.returncode, 0, made.stderr)
        tool = os.path.join(ROOT, "tools", "convert_modelscope_gpt3.py")
        converted = subprocess.run([python, tool, self.path("old"), self.path("new")], capture_output=True, text=True, timeout=300)
        self.assertEqual(converted.returncode, 0, converted.stderr)
        self.assertIn("2 files joined, 2 layers", converted.stdout)
        self.assertEqual(read_json(self.path("new", "config.json"))["eos_token_id"], 7)
        done = self.ok("eval", "--task", "text-generation", "--model", self.path("new"), "--data", rows, "--set", "preprocessor.block=document")
        loss = json.loads(done.out.strip().splitlines()[-1])["eval_loss"]
        self.assert_close([loss], [float(made.stdout)], 1e-5, "loss after conversion")


if __name__ == "__main__":
    unittest.main()
