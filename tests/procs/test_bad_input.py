"""Bad settings, layouts, model folders and data files: each is one message and the right exit code, before anything good is lost."""
import json
import os
import struct
import unittest

import tiny
from program import free_port, layout_flags, read_bytes, write_text
from refusals import CHECKPOINT, DATA, NON_FINITE, USAGE, RefusalTest


class Settings(RefusalTest):
    def test_flags_and_settings(self):
        w = lambda *more: self.words(tiny.BERT, None, *more)
        self.each({
            "no command": (USAGE, ["no command", "usage"], []),
            "unknown command": (USAGE, ["trian", "did you mean 'train'"], ["trian"]),
            "no model": (USAGE, ["model.path", "--model"], ["train", "--train_file", self.rows]),
            "no data": (USAGE, ["dataset.train.file", "--train_file"], ["train", "--model", tiny.BERT]),
            "unknown flag": (USAGE, ["learning_rat", "learning_rate"], w("--learning_rat", "1")),
            "unknown set": (USAGE, ["train.clip_gard", "train.clip_grad"], w("--set", "train.clip_gard=1")),
            "set without value": (USAGE, ["train.clip_grad"], w("--set", "train.clip_grad")),
            "not a number": (USAGE, ["lr", "fast"], w("--lr", "fast")),
            "below zero": (USAGE, ["clip_grad", "-1", "nearest valid"], w("--set", "train.clip_grad=-1")),
            "half a size": (USAGE, ["data_parallel_size", "1.5"], w("--data_parallel_size", "1.5")),
            "size zero": (USAGE, ["model_parallel_size", "0"], w("--model_parallel_size", "0")),
            "dropout of one": (USAGE, ["dropout", "1", "[0, 1)"], w("--set", "train.dropout=1")),
            "unknown dtype": (USAGE, ["dtype", "float31", "float32"], w("--set", "train.dtype=float31")),
            "unknown optimizer": (USAGE, ["Adma", "AdamW"], w("--set", "train.optimizer.type=Adma")),
            "unknown schedule": (USAGE, ["1f1c", "1f1b"], w("--set", "train.distributed.schedule=1f1c")),
            "unknown task": (USAGE, ["task", "text-generation"], w("--task", "text-generatio")),
            "zero": (USAGE, ["zero_stage", "nearest valid value 0"], w("--set", "train.distributed.zero_stage=1")),
            "momentum of AdamW": (USAGE, ["momentum", "AdamW"], w("--set", "train.optimizer.params.momentum=0.9")),
            "strategy and sizes": (USAGE, ["data_parallel", "model_parallel_size 2"], w("--distributed_strategy", "data_parallel", *layout_flags("2x2x1"))),
            "auto strategy": (USAGE, "auto_parallel", w("--distributed_strategy", "auto_parallel")),
            "metric of the other task": (USAGE, ["perplexity", "text-generation"], w("--set", "evaluation.metrics=[perplexity]")),
            "task of the other family": (USAGE, ["text-generation", "bert"], w("--task", "text-generation")),
            "two warm-ups": (USAGE, ["warmup_steps", "warmup_ratio"], w("--set", "train.lr_scheduler.warmup_steps=3", "--set", "train.lr_scheduler.warmup_ratio=0.1")),
        })
        self.assertFalse(os.path.exists(self.path("run", "output")))

    def test_settings_files(self):
        rest = f"model: {{path: {tiny.BERT}}}\ndataset: {{train: {{file: rows.jsonl}}}}\n"
        file = lambda name, text: ["train", write_text(self.path(name), text)]
        self.each({
            "absent": (USAGE, "nowhere.yaml", ["train", "nowhere.yaml"]),
            "two files": (USAGE, "two settings files", ["train", "a.yaml", "b.yaml"]),
            "two --config": (USAGE, "two settings files", ["train", "--config", "a.yaml", "--config", "b.yaml"]),
            "one dash": (USAGE, "unknown flag -x", ["train", "a.yaml", "-x"]),
            "empty": (USAGE, "no model given", file("empty.yaml", "")),
            "unknown key": (USAGE, ["unknown.yaml:4", "max_epoch", "max_epochs"], file("unknown.yaml", rest + "train:\n  max_epoch: 1\n")),
            "duplicate key": (USAGE, ["twice.yaml:5", "seed"], file("twice.yaml", rest + "train:\n  seed: 1\n  seed: 2\n")),
            "two names of one": (USAGE, ["tensor_parallel_size", "model_parallel_size"],
                                 file("names.yaml", rest + "train: {distributed: {tensor_parallel_size: 1, model_parallel_size: 1}}\n")),
            "optimizer at two places": (USAGE, "optimizer", file("places.yaml", rest + "train:\n  optimizer: {type: SGD}\n  distributed:\n    optimizer: {type: SGD}\n")),
            "not YAML": (USAGE, ["broken.yaml:", "not YAML"], file("broken.yaml", "train: {a: [1\n")),
            "not JSON": (USAGE, "broken.json", file("broken.json", '{"train": {"seed": 1,}')),
            "wrong kind": (USAGE, ["kind.yaml:4", "seed"], file("kind.yaml", rest + "train:\n  seed: [1, 2]\n")),
            "batch equation": (USAGE, ["batch_size 10", "per_device_train_batch_size 2", "gradient_accumulation_steps 4", "nearest valid"],
                               file("batch.yaml", rest + "train: {batch_size: 10, per_device_train_batch_size: 2, distributed: {gradient_accumulation_steps: 4}}\n")),
            "ModelScope": (USAGE, "ModelScope", file("configuration.json", '{"framework": "pytorch", "task": "text-classification"}')),
            "DeepSpeed": (USAGE, "zero_stage 1", file("ds.json", '{"zero_optimization": {"stage": 1}}')),
            "Hugging Face name not there yet": (USAGE, "push_to_hub", file("hf.json", '{"output_dir": "o", "push_to_hub": true}')),
        })

    def test_launcher_environment(self):
        words = self.words(tiny.BERT, None, *layout_flags("2x2x1"))
        rank = {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        done = self.refused(USAGE, ["data_parallel_size 2", "6 ranks", "2 x 3 x 1"], words, WORLD_SIZE="6", **rank)
        self.assertLess(done.seconds, 60)
        for missing in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            env = {k: v for k, v in dict(rank, WORLD_SIZE="4").items() if k != missing}
            with self.subTest(missing=missing):
                self.refused(USAGE, missing, words, **env)
        self.refused(USAGE, ["RANK=4", "WORLD_SIZE 4"], words, **dict(rank, WORLD_SIZE="4", RANK="4"))
        self.refused(USAGE, "WORLD_SIZE=four", words, **dict(rank, WORLD_SIZE="four"))
        self.refused(USAGE, "MASTER_PORT=99999", words, **dict(rank, WORLD_SIZE="4", MASTER_PORT="99999"))


class Layouts(RefusalTest):
    def test_what_does_not_divide(self):
        odd = tiny.copy_model(tiny.LLAMA, self.path("odd"), num_key_value_heads=3, num_attention_heads=6, hidden_size=48)
        tokens = tiny.causal_rows(self.path("tokens.jsonl"), 8)
        causal = lambda model, *more: self.words(model, tokens, "--task", "text-generation", *more)
        w = lambda *more: self.words(tiny.BERT, None, *more)
        self.each({
            "heads": (USAGE, ["model_parallel_size", "3", "4 heads", "1, 2, 4"], w(*layout_flags("1x3x1"))),
            "more ranks than heads": (USAGE, ["model_parallel_size", "8", "1, 2, 4"], w(*layout_flags("1x8x1"))),
            "key/value heads": (USAGE, ["model_parallel_size", "2", "3 key/value heads"], causal(odd, *layout_flags("1x2x1"))),
            "layers": (USAGE, ["pipeline_parallel_size", "3", "2 layers"], w(*layout_flags("1x1x3"))),
            "layers given": (USAGE, ["pipeline_layers [1, 1, 1]", "3 stages"], w(*layout_flags("1x1x2"), "--set", "train.distributed.pipeline_layers=[1,1,1]")),
            "layers given, wrong sum": (USAGE, ["pipeline_layers", "2"], w(*layout_flags("1x1x2"), "--set", "train.distributed.pipeline_layers=[1,2]")),
            "chunks without interleaving": (USAGE, ["virtual_pipeline_size", "interleaved_1f1b"],
                                            w(*layout_flags("1x1x2"), "--set", "train.distributed.virtual_pipeline_size=2")),
            "a schedule without its file": (USAGE, ["schedule custom", "schedule_file"], w(*layout_flags("1x1x2"), "--set", "train.distributed.schedule=custom")),
            "a file without its schedule": (USAGE, ["schedule_file", "has no effect with schedule 1f1b"],
                                            w(*layout_flags("1x1x2"), "--set", "train.distributed.schedule_file=mine.txt")),
            "a schedule file that is not there": (USAGE, ["schedule_file", "cannot be read"],
                                                  w(*layout_flags("1x1x2"), "--set", "train.distributed.schedule=custom", "--set",
                                                    "train.distributed.schedule_file=mine.txt")),
            "a V of two layers": (USAGE, ["2 layers do not fill 2 x 2"], w(*layout_flags("1x1x2"), "--set", "train.distributed.schedule=zb_v")),
            "memory for no schedule": (USAGE, ["pipeline_memory_bytes 1", "no schedule fits", "That value works"],
                                       w(*layout_flags("1x1x2"), "--set", "train.distributed.schedule=auto", "--set", "train.distributed.pipeline_memory_bytes=1")),
            "batch smaller than the data ranks": (USAGE, ["batch_size", "data_parallel_size 8"],
                                                  w(*layout_flags("8x1x1"))),
            "sequence beyond the model": (USAGE, ["sequence_length", "33", "32"], w("--set", "preprocessor.sequence_length=33")),
            "padding beyond the model": (USAGE, ["pad_to", "64", "32"], w("--set", "preprocessor.pad_to=64")),
            "padding below the length": (USAGE, ["pad_to", "8", "16"], w("--set", "preprocessor.pad_to=8", "--set", "preprocessor.sequence_length=16")),
        })
        self.assertFalse(os.path.exists(self.path("run", "output")))

    def test_vocabulary_that_does_not_divide_is_handled(self):
        model = tiny.text_model(self.path("model"))  # 41 words on 4 ranks
        file = tiny.text_file(self.path("rows.tsv"), tiny.sentences(8))
        words = ["--model", model, "--set", "model.init=random", "--train_file", file, "--set", "train.max_epochs=1", "--set", "train.batch_size=4"]
        one, _ = self.train("1x1x1", "one", *words)
        self.assert_same_losses(self.train("1x4x1", "four", *words)[0], one)

    def test_sequence_that_does_not_divide_is_handled(self):
        file = write_text(self.path("odd.jsonl"), "".join(json.dumps({"input_ids": list(range(5, 12)), "labels": i % 3}) + "\n" for i in range(8)))
        one, _ = self.train("1x1x1", "one", *self.words(tiny.BERT, file)[1:-2])
        two, _ = self.train("1x2x1", "two", *self.words(tiny.BERT, file)[1:-2], "--set", "train.distributed.sequence_parallel=true")
        self.assert_same_losses(two, one)


class ModelFolders(RefusalTest):
    def model(self, name, change):
        folder = tiny.copy_model(tiny.BERT, self.path(name))
        change(folder + "/model.safetensors")
        return folder

    def tensors(self, name, edit=None, header=None):
        """A model whose tensors (or file header) were edited."""
        def change(path):
            tensors = tiny.read_safetensors(path)
            if edit:
                edit(tensors)
            tiny.write_safetensors(path, tensors, header)
        return self.model(name, change)

    def bytes(self, name, change):
        def write(path):
            data = change(read_bytes(path))
            with open(path, "wb") as f:
                f.write(data)
        return self.model(name, write)

    def test_weights(self):
        query = "bert.encoder.layer.0.attention.self.query.weight"
        key = "bert.encoder.layer.0.attention.self.key.weight"

        def cut_header(table):
            table[query]["data_offsets"][1] += 4

        def overlap(table):
            table[query]["data_offsets"] = table[key]["data_offsets"]

        def beyond(table):
            size = table[query]["data_offsets"][1] - table[query]["data_offsets"][0]
            table[query]["data_offsets"] = [10**9, 10**9 + size]

        def half(t):
            t[query] = ("F32", [32, 16], t[query][2][:32 * 16 * 4])

        def integers(t):
            t[query] = ("I32", t[query][1], t[query][2])

        def not_finite(t):
            dtype, shape, data = t[query]
            t[query] = (dtype, shape, struct.pack("<f", float("nan")) + data[4:])

        w = lambda folder, *more: self.words(folder, None, *more)
        cases = {
            "no folder": (CHECKPOINT, ["nowhere", "not there"], w("nowhere")),
            "no weights": (CHECKPOINT, "model.safetensors", w(self.model("none", os.remove))),
            "a pickle only": (CHECKPOINT, "pickle", w(self.model("pickle", lambda p: os.rename(p, os.path.dirname(p) + "/pytorch_model.bin")))),
            "empty": (CHECKPOINT, "model.safetensors", w(self.bytes("empty", lambda b: b""))),
            "four bytes": (CHECKPOINT, "4 bytes", w(self.bytes("four", lambda b: b[:4]))),
            "truncated": (CHECKPOINT, ["truncated", "model.safetensors"], w(self.bytes("short", lambda b: b[:-100]))),
            "truncated header": (CHECKPOINT, "header length", w(self.bytes("short_header", lambda b: b[:200]))),
            "header length": (CHECKPOINT, "header length", w(self.bytes("length", lambda b: struct.pack("<Q", 2**62) + b[8:]))),
            "header length too small": (CHECKPOINT, "JSON", w(self.bytes("small", lambda b: struct.pack("<Q", 20) + b[8:]))),
            "header not JSON": (CHECKPOINT, "header", w(self.bytes("json", lambda b: b[:8] + b"x" + b[9:]))),
            "bytes left over": (CHECKPOINT, "belong to no tensor", w(self.bytes("long", lambda b: b + b"abc"))),
            "offsets": (CHECKPOINT, [query, "data_offsets"], w(self.tensors("offsets", header=cut_header))),
            "offsets beyond the file": (CHECKPOINT, [query, "outside"], w(self.tensors("beyond", header=beyond))),
            "overlap": (CHECKPOINT, ["overlap"], w(self.tensors("overlap", header=overlap))),
            "unknown dtype": (CHECKPOINT, ["F31", query], w(self.tensors("dtype", header=lambda t: t[query].update(dtype="F31")))),
            "integer weights": (CHECKPOINT, ["I32", query], w(self.tensors("integers", integers))),
            "shape": (CHECKPOINT, [query, "[32, 16]", "[32, 32]"], w(self.tensors("shape", half))),
            "missing tensor": (CHECKPOINT, query, w(self.tensors("missing", lambda t: t.pop(query)))),
            "unexpected tensor": (CHECKPOINT, "bert.encoder.layer.0.adapter.weight",
                                  w(self.tensors("unexpected", lambda t: t.update({"bert.encoder.layer.0.adapter.weight": t[query]})))),
            "a third layer": (CHECKPOINT, "encoder.layer.2.", w(tiny.copy_model(tiny.BERT, self.path("layers"), num_hidden_layers=3))),
            "index without its file": (CHECKPOINT, "model-00001-of-00001.safetensors", w(self.model("index", self.make_index))),
            "NaN weight": (NON_FINITE, ["step 1", "is nan"], w(self.tensors("nan", not_finite))),
        }
        self.each(cases)
        # The same refusals when the weights are read by several ranks: one message, their own code.
        done = self.run_plait(*cases["missing tensor"][2], *layout_flags("1x2x2"))
        self.assertEqual(done.code, CHECKPOINT, done)
        self.assertIn(query, done.last_line)
        self.assertEqual(self.left_behind(), [])

    @staticmethod
    def make_index(path):
        names = list(tiny.read_safetensors(path))
        os.remove(path)
        write_text(path + ".index.json", json.dumps({"metadata": {}, "weight_map": {n: "model-00001-of-00001.safetensors" for n in names}}))

    def test_config_json(self):
        n = iter(range(1000))
        bert = lambda **changes: self.words(tiny.copy_model(tiny.BERT, self.path(f"m{next(n)}"), **changes))
        tokens = tiny.causal_rows(self.path("tokens.jsonl"), 8)
        llama = lambda **changes: self.words(tiny.copy_model(tiny.LLAMA, self.path(f"m{next(n)}"), **changes), tokens, "--task", "text-generation")
        gpt2 = lambda **changes: self.words(tiny.copy_model(tiny.GPT2, self.path(f"m{next(n)}"), **changes), tokens, "--task", "text-generation")
        broken = tiny.copy_model(tiny.BERT, self.path("broken"))
        write_text(broken + "/config.json", '{"model_type": "bert",')
        none = tiny.copy_model(tiny.BERT, self.path("none"))
        os.remove(none + "/config.json")
        self.each({
            "no config.json": (CHECKPOINT, "config.json", self.words(none)),
            "not JSON": (CHECKPOINT, "config.json", self.words(broken)),
            "unknown family": (CHECKPOINT, ["model_type", "brat", "bert"], bert(model_type="brat")),
            "no family": (CHECKPOINT, "model_type", bert(model_type=None)),
            "hidden size and heads": (CHECKPOINT, ["hidden_size", "32", "5"], bert(num_attention_heads=5)),
            "no hidden size": (CHECKPOINT, ["[256, 32]", "[256, 768]"], bert(hidden_size=None)),
            "text as a size": (CHECKPOINT, ["vocab_size", "many"], bert(vocab_size="many")),
            "negative layers": (CHECKPOINT, ["num_hidden_layers", "-1"], bert(num_hidden_layers=-1)),
            "activation": (CHECKPOINT, ["hidden_act", "gleu", "gelu"], bert(hidden_act="gleu")),
            "labels contradict": (CHECKPOINT, ["num_labels", "id2label"], bert(num_labels=7)),
            "two names, two sizes": (CHECKPOINT, ["n_embd", "hidden_size"], gpt2(hidden_size=64)),
            "key/value heads": (CHECKPOINT, ["num_key_value_heads", "3", "4"], llama(num_key_value_heads=3)),
            "rotary scaling": (CHECKPOINT, ["rope_type", "spiral"], llama(rope_parameters={"rope_type": "spiral", "rope_theta": 10000.0})),
            "vocabulary and weights": (CHECKPOINT, ["word_embeddings", "256", "300"], bert(vocab_size=300)),
            "quantised": (CHECKPOINT, "quantization_config", llama(quantization_config={"bits": 4})),
        })

    def test_tokenizer_that_does_not_belong(self):
        model = tiny.text_model(self.path("model"), vocab_size=20)
        file = tiny.text_file(self.path("rows.tsv"), tiny.sentences(8))
        self.refused(CHECKPOINT, ["tokenizer", "vocab_size is 20"], self.words(model, file, "--set", "model.init=random"))
        write_text(model + "/tokenizer.json", "{}")
        self.refused(CHECKPOINT, "tokenizer.json", self.words(model, file, "--set", "model.init=random"))

    def test_text_without_tokenizer(self):
        file = tiny.text_file(self.path("rows.tsv"), tiny.sentences(8))
        self.refused(CHECKPOINT, "tokenizer.json", self.words(tiny.BERT, file))


class DataFiles(RefusalTest):
    def test_rows(self):
        model = tiny.text_model(self.path("model"))

        def file(name, content):
            with open(self.path(name), "wb") as f:
                f.write(content if isinstance(content, bytes) else content.encode())
            return self.path(name)

        text = lambda name, content, *more: self.words(model, file(name, content), "--set", "model.init=random", *more)
        ids = lambda name, content, *more: self.words(tiny.BERT, file(name, content), *more)
        good = '{"text": "the dog", "label": "animal"}\n{"text": "a cake", "label": "food"}\n'
        valid = file("valid.jsonl", '{"text": "the dog", "label": "animal"}\n{"text": "a lake", "label": "plase"}\n')
        self.each({
            "absent": (USAGE, ["dataset.train.file", "nowhere.jsonl"], self.words(model, "nowhere.jsonl")),
            "unknown form": (USAGE, ["rows.parquet", ".jsonl"], text("rows.parquet", good)),
            "empty": (DATA, ["empty.jsonl", "empty"], text("empty.jsonl", "")),
            "blank lines only": (DATA, "blank.jsonl", text("blank.jsonl", "\n\n")),
            "header only": (DATA, "header.tsv", text("header.tsv", "text\tlabel\n")),
            "missing column": (DATA, ["column.tsv", "label"], text("column.tsv", "text\tkind\nthe dog\tanimal\n")),
            "missing field": (DATA, ["field.jsonl:3", "label"], text("field.jsonl", good + '{"text": "a city"}\n')),
            "row without text": (DATA, ["blank_text.jsonl:3", "text"], text("blank_text.jsonl", good + '{"text": "  ", "label": "food"}\n')),
            "too few columns": (DATA, "short.csv:3", text("short.csv", "text,label\nthe dog,animal\nthe cat\n")),
            "open quote": (DATA, "quote.csv", text("quote.csv", 'text,label\n"the dog,animal\n')),
            "not UTF-8": (DATA, ["latin.jsonl:3", "UTF-8"], text("latin.jsonl", good.encode() + '{"text": "caf\xe9", "label": "food"}\n'.encode("latin-1"))),
            "not JSON": (DATA, "json.jsonl:3", text("json.jsonl", good + '{"text": "a ca\n')),
            "not an object": (DATA, "list.jsonl:3", text("list.jsonl", good + "[1, 2]\n")),
            "label unseen in training": (DATA, ["valid.jsonl:2", "plase", "animal, food"], text("rows.jsonl", good, "--valid_file", valid)),
            "label not in the list": (DATA, ["listed.jsonl:2", "food"], text("listed.jsonl", good, "--set", "dataset.labels=[animal, place]")),
            "one class": (DATA, "1 class", text("one.jsonl", good.splitlines()[0] + "\n")),
            "token id": (DATA, ["ids.jsonl:2", "256"], ids("ids.jsonl", '{"input_ids": [5], "labels": 0}\n{"input_ids": [5, 256], "labels": 1}\n')),
            "negative token id": (DATA, ["negative.jsonl:1", "-1"], ids("negative.jsonl", '{"input_ids": [-1], "labels": 0}\n')),
            "no token": (DATA, "none.jsonl:1", ids("none.jsonl", '{"input_ids": [], "labels": 0}\n')),
            "row longer than the model": (DATA, ["long.jsonl:1", "33", "32"], ids("long.jsonl", json.dumps({"input_ids": [5] * 33, "labels": 0}) + "\n")),
            "class beyond the model's": (DATA, ["class.jsonl:1"], ids("class.jsonl", '{"input_ids": [5], "labels": 7}\n', "--set", "dataset.labels=[a, b, c]")),
            "mask of another length": (DATA, ["mask.jsonl:1", "attention_mask"], ids("mask.jsonl", '{"input_ids": [5, 6], "attention_mask": [1], "labels": 0}\n')),
            "rows below zero": (USAGE, "rows", text("rows.jsonl", good, "--set", "dataset.train.rows=-1")),
            "no room for text": (USAGE, "3", text("rows.jsonl", good, "--set", "preprocessor.sequence_length=2")),
        })

    def test_causal_data(self):
        model = tiny.byte_model(self.path("model"))
        words = lambda text, *more: self.words(model, write_text(self.path("data.txt"), text), "--task", "text-generation", "--set", "model.init=random", *more)
        self.refused(DATA, ["data.txt", "no window", "8"], words("abcd\n", "--set", "preprocessor.sequence_length=8"))
        self.refused(USAGE, "at least 2", words("abcd\n" * 9, "--set", "preprocessor.sequence_length=1"))
        self.refused(DATA, "labels", self.words(tiny.GPT2, write_text(self.path("l.jsonl"), '{"input_ids": [5, 6], "labels": [5]}\n'), "--task", "text-generation"))
        for rows in ('{"input_ids": [5]}\n{"input_ids": [6]}\n', '{"input_ids": [5, 6], "labels": [-100, -100]}\n'):
            self.refused(DATA, ["nothing.jsonl", "none of its", "a token to predict"],
                         self.words(tiny.GPT2, write_text(self.path("nothing.jsonl"), rows), "--task", "text-generation"))

    def test_eval_and_predict(self):
        self.refused(USAGE, "--output", ["predict", "--model", tiny.BERT, "--data", self.rows])
        self.refused(USAGE, "unexpected argument", ["eval", "rows.jsonl"])
        self.refused(USAGE, "text-generation", ["predict", "--model", tiny.GPT2, "--data", self.rows, "--output", "o.jsonl"])
        self.refused(CHECKPOINT, "nowhere", ["eval", "--model", "nowhere", "--data", self.rows])
        self.refused(DATA, "rows.jsonl:", ["eval", "--model", tiny.BERT, "--data", tiny.bert_rows(self.path("rows.jsonl"), 9, num_classes=5)])
        self.refused(USAGE, ["dataset.valid.file", "nothing.jsonl"], ["eval", "--model", tiny.BERT, "--data", "nothing.jsonl"])
        self.refused(USAGE, "model_parallel_size", ["eval", "--model", tiny.BERT, "--data", self.rows, "--model_parallel_size", "3"])
        self.refused(USAGE, "--data", ["eval", "--model", tiny.BERT])
        for flag in ("--output", "--logits"):
            words = ["predict", "--model", tiny.BERT, "--data", self.rows, "--output", "out.jsonl", flag, "/nowhere/out"]
            done = self.refused(USAGE, "/nowhere/out", [w for i, w in enumerate(words) if flag != "--output" or i not in (5, 6)])
            self.assertNotIn("12 rows", done.err, "refused before the data was read")
        self.refused(USAGE, "is a folder", ["eval", "--model", tiny.BERT, "--data", self.rows, "--output", self.folder])


if __name__ == "__main__":
    unittest.main()
