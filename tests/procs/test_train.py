"""plait train, eval and predict from the outside: what they write, and that every layout gives the same numbers."""
import json
import os
import unittest

import tiny
from program import ProgramTest, free_port, layout_flags, read_bytes, read_json, read_jsonl, write_text

STEP_FIELDS = {"step", "epoch", "loss", "grad_norm", "learning_rate", "samples", "tokens", "step_seconds", "tokens_per_second"}


class TrainTest(ProgramTest):
    def settings(self, *more):
        self.rows = tiny.bert_rows(self.path("rows.jsonl"))
        return ["--model", tiny.BERT, "--train_file", self.rows, "--valid_file", self.rows, "--set", "train.max_epochs=1",
                "--set", "train.batch_size=8", "--set", "train.optimizer.params.lr=1e-3", *more]

    def compare_layouts(self, layouts, words, tolerance=1e-5):
        runs = {}
        for layout in layouts:
            runs[layout] = self.train(layout, f"run_{layout}", *words)
            first = runs[layouts[0]]
            self.assert_same_losses(runs[layout][0], first[0], tolerance, layout)
            self.assert_close([x["eval_loss"] for x in runs[layout][1]], [x["eval_loss"] for x in first[1]], tolerance, layout)
        return runs


class WhatARunWrites(TrainTest):
    def test_three_layouts_same_losses_and_files(self):
        runs = self.compare_layouts(["1x1x1", "2x2x2", "1x2x2"], self.settings())
        for layout, (steps, evaluations) in runs.items():
            self.assertEqual([s["step"] for s in steps], [1, 2, 3, 4, 5])
            for step in steps:
                self.assertLessEqual(STEP_FIELDS, set(step), layout)
            self.assertEqual([s["samples"] for s in steps], [8, 16, 24, 32, 37])
            self.assert_close([s["learning_rate"] for s in steps], [1e-3 * (5 - k) / 5 for k in range(5)], 1e-9)
            self.assert_close([s["epoch"] for s in steps], [0.2, 0.4, 0.6, 0.8, 1.0], 1e-12)
            self.assertEqual(sum(s["tokens"] for s in steps), sum(len(r["input_ids"]) for r in read_jsonl(self.rows)))
            self.assertEqual(len(evaluations), 1)
            self.assertEqual(set(evaluations[0]), {"step", "eval_loss", "eval_accuracy", "eval_f1", "eval_samples", "eval_tokens"})
            self.assertEqual(evaluations[0]["eval_samples"], 37)
            # config.json's labels, fillers LABEL_0.. of Hugging Face, become the integers of the file; every weight is there, in fp32.
            config = read_json(self.path(f"run_{layout}", "output", "config.json"))
            self.assertEqual(config["architectures"], ["BertForSequenceClassification"])
            self.assertEqual(sorted(config["label2id"].values()), [0, 1, 2])
            self.assertEqual({int(i): name for i, name in config["id2label"].items()}, {v: k for k, v in config["label2id"].items()})
            weights = tiny.read_safetensors(self.path(f"run_{layout}", "output", "model.safetensors"))
            original = tiny.read_safetensors(os.path.join(tiny.BERT, "model.safetensors"))
            self.assertEqual({n: t[:2] for n, t in weights.items()}, {n: t[:2] for n, t in original.items()})
            self.assertNotEqual(weights["classifier.weight"], original["classifier.weight"])
            self.assertTrue(os.path.exists(self.path(f"run_{layout}", "output_best", "model.safetensors")))
            logs = os.listdir(self.path(f"run_{layout}", "logs"))
            if layout != "1x1x1":
                self.assertEqual(len(logs), {"2x2x2": 8, "1x2x2": 4}[layout])
        one = tiny.read_safetensors(self.path("run_1x1x1", "output", "model.safetensors"))
        for layout in ("2x2x2", "1x2x2"):
            other = tiny.read_safetensors(self.path(f"run_{layout}", "output", "model.safetensors"))
            for name in one:
                if not name.endswith("key.bias"):  # its gradient is zero but for rounding, which AdamW makes large
                    self.assert_close(tiny.floats(other[name]), tiny.floats(one[name]), 2e-5, f"{layout} {name}")

    def test_resolved_settings_give_the_same_run_bit_for_bit(self):
        self.train("1x2x2", "first", *self.settings("--set", "train.dropout=0.1", "--set", "train.label_smoothing=0.1"))
        resolved = self.path("first", "config.resolved.yaml")
        self.ok("train", resolved, "--work_dir", self.path("second"))
        self.assertEqual(read_bytes(self.path("first", "output", "model.safetensors")), read_bytes(self.path("second", "output", "model.safetensors")))
        timeless = lambda steps: [{k: v for k, v in s.items() if "second" not in k} for s in steps]
        self.assertEqual(timeless(self.metrics("first")[0]), timeless(self.metrics("second")[0]))
        self.assertEqual(read_bytes(resolved).replace(b"/first", b"/second"), read_bytes(self.path("second", "config.resolved.yaml")))

    def test_print_config_starts_nothing_and_reads_back(self):
        words = self.settings("--set", "train.clip_grad=0.5", "--warmup-ratio", "0.25")
        printed = self.ok("train", *words, *layout_flags("2x1x1"), "--work_dir", self.path("never"), "--print-config").out
        self.assertFalse(os.path.exists(self.path("never")))
        self.assertIn("clip_grad: 0.5\n", printed)
        self.assertIn("warmup_ratio: 0.25\n", printed)
        self.assertIn("batch_size: 8\n", printed)
        again = self.ok("train", write_text(self.path("printed.yaml"), printed), "--print-config").out
        self.assertEqual(printed, again)

    def test_work_dir_of_an_earlier_run_goes_on_in_metrics(self):
        words = self.settings("--set", "train.max_steps=2")
        self.train("1x1x1", "run", *words)
        steps, _ = self.train("1x1x1", "run", *words)
        self.assertEqual([s["step"] for s in steps], [1, 2, 1, 2])


class Settings(TrainTest):
    def test_max_steps_wins_and_goes_over_epochs(self):
        steps, evaluations = self.train("1x1x1", "run", *self.settings("--set", "train.max_steps=7"))
        self.assertEqual([s["samples"] for s in steps], [8, 16, 24, 32, 37, 45, 53])
        self.assertEqual([e["step"] for e in evaluations], [5, 7])

    def test_sgd_with_momentum(self):
        words = self.settings("--set", "train.optimizer.type=SGD", "--set", "train.optimizer.params.momentum=0.9", "--set", "train.clip_grad=0")
        self.compare_layouts(["1x1x1", "2x1x2"], words)

    def test_dropout_is_the_same_in_every_layout(self):
        runs = self.compare_layouts(["1x1x1", "2x2x2", "1x4x1"], self.settings("--set", "train.dropout=0.2", "--set", "train.max_steps=4"))
        without, _ = self.train("1x1x1", "without", *self.settings("--set", "train.dropout=0", "--set", "train.max_steps=4"))
        self.assertGreater(abs(without[0]["loss"] - runs["1x1x1"][0][0]["loss"]), 1e-4)

    def test_mixed_precision(self):
        reference, _ = self.train("1x1x1", "fp32", *self.settings())
        for dtype, tolerance in (("bfloat16", 2e-2), ("float16", 3e-3)):
            for layout in ("1x1x1", "2x2x1"):
                steps, _ = self.train(layout, f"{dtype}_{layout}", *self.settings("--set", f"train.dtype={dtype}"))
                self.assert_close([s["loss"] for s in steps], [s["loss"] for s in reference], tolerance, f"{dtype} {layout}")
                self.assertEqual("loss_scale" in steps[0], dtype == "float16")
                self.assertNotEqual([s["loss"] for s in steps], [s["loss"] for s in reference])

    def test_sequence_parallel_interleaved_and_uneven_stages(self):
        model = tiny.text_model(self.path("model"), num_hidden_layers=5)
        file = tiny.text_file(self.path("rows.tsv"), tiny.sentences(24))
        words = ["--model", model, "--set", "model.init=random", "--train_file", file, "--valid_file", file, "--set", "train.max_epochs=1",
                 "--set", "train.batch_size=8", "--set", "train.optimizer.params.lr=1e-3"]
        one, _ = self.train("1x1x1", "one", *words)
        cases = {
            "sequence": ("1x2x2", "--set", "train.distributed.sequence_parallel=true"),
            "interleaved": ("1x1x2", "--set", "train.distributed.schedule=interleaved_1f1b", "--set", "train.distributed.virtual_pipeline_size=2"),
            "uneven": ("1x1x3", "--set", "train.distributed.pipeline_layers=[3,1,1]"),
            "gpipe": ("2x1x2", "--set", "train.distributed.schedule=gpipe"),
            "v": ("1x2x2", "--set", "train.distributed.schedule=zb_v"),
            "auto": ("1x1x2", "--set", "train.distributed.schedule=auto", "--set", "train.distributed.pipeline_memory_bytes=100000000"),
        }
        for name, (layout, *more) in cases.items():
            steps, _ = self.train(layout, name, *words, *more)
            self.assert_same_losses(steps, one, 1e-5, name)
        # The first and the last stage lie on one rank; the export is the same model.
        found, expected = (tiny.read_safetensors(self.path(name, "output", "model.safetensors")) for name in ("v", "one"))
        self.assertEqual(sorted(found), sorted(expected))
        for name, tensor in expected.items():
            for a, b in zip(tiny.floats(found[name]), tiny.floats(tensor)):
                self.assertAlmostEqual(a, b, delta=2e-3, msg=name)

    def test_a_schedule_of_a_file_is_checked_before_anything_connects(self):
        text = self.ok("schedule", "--kind", "zb_h1", "--stages", 2, "--micro_batches", 4, "--text").out
        file = write_text(self.path("mine.txt"), text.replace("zb_h1", "mine"))
        layout = ["--set", "train.distributed.gradient_accumulation_steps=4"]
        words = [*self.settings("--set", "train.max_steps=3"), *layout]
        custom = ["--set", "train.distributed.schedule=custom", "--set", f"train.distributed.schedule_file={file}"]
        mine, _ = self.train("1x1x2", "mine", *words, *custom)
        named, _ = self.train("1x1x2", "named", *words, "--set", "train.distributed.schedule=zb_h1")
        self.assert_same_losses(mine, named, 0)
        # Ranks of a launcher that never meet: each of them sees the fault by itself.
        write_text(file, text.replace("1RF1 ", "", 1))
        for rank in (0, 1):
            finished = self.run_plait("train", *words, *layout_flags("1x1x2"), *custom, "--work_dir", self.path(f"broken{rank}"), timeout=60,
                                      RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
            self.assertEqual(finished.code, 2, finished)
            self.assertIn(f"{file}:3: not a valid schedule: rank 1: 1RF1 is missing", finished.err)

    def test_hugging_face_arguments_are_a_way_in(self):
        self.settings()
        arguments = {"output_dir": "run_hf", "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "learning_rate": 1e-3, "max_steps": 4,
                     "seed": 5, "save_strategy": "no", "eval_strategy": "no", "lr_scheduler_type": "cosine", "warmup_steps": 1, "max_grad_norm": 0.7,
                     "weight_decay": 0.01, "data_parallel_size": 2}
        file = write_text(self.path("arguments.json"), json.dumps(arguments))
        self.ok("train", file, "--model", tiny.BERT, "--train_file", self.rows)
        found, _ = self.metrics("run_hf")
        self.assertEqual([s["samples"] for s in found], [8, 16, 24, 32])
        native = self.settings("--set", "train.seed=5", "--set", "train.max_steps=4", "--set", "train.lr_scheduler.type=cosine", "--set",
                               "train.lr_scheduler.warmup_steps=1", "--set", "train.clip_grad=0.7", "--set", "train.optimizer.params.weight_decay=0.01",
                               "--set", "evaluation.period.eval_strategy=no")
        self.assert_same_losses(found, self.train("1x1x1", "native", *native)[0])
        as_flags = self.path("flags")
        self.ok("train", "--output_dir", as_flags, *[w for k, v in arguments.items() if k != "output_dir" for w in (f"--{k}", v)],
                "--model", tiny.BERT, "--train_file", self.rows)
        self.assert_same_losses(self.metrics("flags")[0], found, 0)

    def test_the_article_settings_as_they_stand(self):
        self.settings()
        file = write_text(self.path("article.yaml"), """train:
  distributed:
    data_parallel_size: 2
    model_parallel_size: 4
    pipeline_parallel_size: 2
    gradient_accumulation_steps: 4
    optimizer: {type: AdamW, params: {lr: 2e-5, weight_decay: 0.01}}
  fp16: True
  batch_size: 32
  per_device_train_batch_size: 4
""")
        words = ["train", file, "--model", tiny.BERT, "--train_file", self.rows, "--task", "text-classification", "--work_dir", self.path("run")]
        printed = self.ok(*words, "--print-config").out
        for line in ("model_parallel_size: 4", "dtype: float16", "batch_size: 32", "gradient_accumulation_steps: 4"):
            self.assertIn(line + "\n", printed)
        # The layout of the command line replaces the file's as a whole, aloud.
        done = self.ok(*words, "--data_parallel_size", "1", "--model_parallel_size", "2", "--max_steps", "1", "--set", "train.batch_size=16")
        self.assertIn("pipeline_parallel_size 2", done.err + done.out)
        self.assertIn("replaced by 1", done.err + done.out)
        self.assertEqual(len(os.listdir(self.path("run", "logs"))), 2)


class TextAndLabels(TrainTest):
    def setUp(self):
        super().setUp()
        self.model = tiny.text_model(self.path("model"))
        self.rows = tiny.sentences(30)
        self.common = ["--model", self.model, "--set", "model.init=random", "--set", "train.max_epochs=1", "--set", "train.batch_size=8",
                       "--set", "train.optimizer.params.lr=2e-3", "--set", "train.dropout=0"]

    def test_all_file_forms_give_the_same_run(self):
        first = None
        for form in ("jsonl", "tsv", "csv"):
            file = tiny.text_file(self.path(f"rows.{form}"), self.rows)
            steps, _ = self.train("1x1x1", form, *self.common, "--train_file", file)
            first = first or steps
            self.assert_same_losses(steps, first, 0, form)
        self.assertEqual(first[0]["tokens"] > 8 * 5, True)

    def test_text_labels_get_ids_in_bytewise_order_and_travel_with_the_model(self):
        file = tiny.text_file(self.path("rows.jsonl"), self.rows)
        self.train("2x2x1", "run", *self.common, "--train_file", file, "--valid_file", file)
        config = read_json(self.path("run", "output", "config.json"))
        self.assertEqual(config["label2id"], {"animal": 0, "food": 1, "place": 2})
        self.assertEqual(read_bytes(self.path("run", "output", "tokenizer.json")), read_bytes(self.path("model", "tokenizer.json")))
        self.ok("predict", "--model", self.path("run", "output"), "--data", file, "--output", self.path("out.jsonl"))
        for line in read_jsonl(self.path("out.jsonl")):
            self.assertEqual(line["label"], ["animal", "food", "place"][line["scores"].index(max(line["scores"]))])

    def test_labels_given_set_the_order(self):
        file = tiny.text_file(self.path("rows.jsonl"), self.rows)
        self.train("1x1x1", "run", *self.common, "--train_file", file, "--set", "dataset.labels=[place, animal, food, thing]")
        self.assertEqual(read_json(self.path("run", "output", "config.json"))["label2id"], {"place": 0, "animal": 1, "food": 2, "thing": 3})

    def test_integer_labels(self):
        file = tiny.text_file(self.path("rows.csv"), [(t, str(tiny.CLASSES.index(l))) for t, l in self.rows])
        steps, _ = self.train("1x1x1", "numbers", *self.common, "--train_file", file)
        named = tiny.text_file(self.path("named.csv"), self.rows)
        self.assert_same_losses(steps, self.train("1x1x1", "names", *self.common, "--train_file", named)[0], 0)

    def test_other_columns_and_rows(self):
        file = write_text(self.path("rows.tsv"), "id\tkind\tsentence\n" + "".join(f"{i}\t{l}\t{t}\n" for i, (t, l) in enumerate(self.rows)))
        steps, _ = self.train("1x1x1", "run", *self.common, "--train_file", file, "--set", "dataset.train.text_col=sentence", "--set",
                              "dataset.train.label_col=kind", "--set", "dataset.train.rows=20")
        self.assertEqual(steps[-1]["samples"], 20)

    def test_text_that_is_too_long_is_cut_and_said(self):
        file = tiny.text_file(self.path("rows.jsonl"), self.rows)
        done = self.ok("train", *self.common, "--train_file", file, "--set", "preprocessor.sequence_length=6", "--work_dir", self.path("run"))
        cut = sum(len(t.split()) + 2 > 6 for t, _ in self.rows)
        self.assertIn(f"{cut} rows cut", done.err + done.out)


class EvalAndPredict(TrainTest):
    def test_one_to_five_rows_in_any_layout_and_batch(self):
        for num_rows in range(1, 6):
            tiny.bert_rows(self.path(f"rows{num_rows}.jsonl"), num_rows, seed=num_rows)
        for num_rows in range(1, 6):
            file = self.path(f"rows{num_rows}.jsonl")
            reference = None
            for layout, batch in (("1x1x1", 1), ("1x1x1", 6), ("2x1x2", 1), ("4x1x1", 2)):
                done = self.ok("eval", "--model", tiny.BERT, "--data", file, *layout_flags(layout), "--set", f"evaluation.per_device_batch_size={batch}",
                               "--output", self.path("result.json"))
                result = read_json(self.path("result.json"))
                self.assertEqual(json.loads(done.out.strip().splitlines()[-1]), result)
                reference = reference or result
                self.assertEqual(result["eval_samples"], num_rows)
                for name in reference:
                    self.assert_close([result[name]], [reference[name]], 1e-6, f"{num_rows} rows, {layout}, batch {batch}: {name}")

    def test_evaluation_equals_what_training_saw(self):
        _, evaluations = self.train("1x2x2", "run", *self.settings())
        found = json.loads(self.ok("eval", "--model", self.path("run", "output"), "--data", self.rows, *layout_flags("2x1x1")).out.splitlines()[-1])
        for name, value in found.items():
            self.assert_close([value], [evaluations[-1][name]], 1e-6, name)

    def test_predict_in_row_order_in_every_layout(self):
        rows = tiny.bert_rows(self.path("rows.jsonl"), 23)
        reference = None
        for layout in ("1x1x1", "2x2x2", "3x1x1", "1x4x1"):
            self.ok("predict", "--model", tiny.BERT, "--data", rows, "--output", self.path("out.jsonl"), "--logits", self.path("logits.safetensors"),
                    *layout_flags(layout))
            lines = read_jsonl(self.path("out.jsonl"))
            self.assertEqual([line["row"] for line in lines], list(range(23)))
            tensors = tiny.read_safetensors(self.path("logits.safetensors"))
            self.assertEqual(tensors["logits"][:2], ("F32", [23, 3]))
            logits = tiny.floats(tensors["logits"])
            reference = reference or logits
            self.assert_close(logits, reference, 1e-5, layout)
            for line in lines:
                self.assertEqual(set(line), {"row", "label", "scores"})
                own = logits[3 * line["row"]:3 * line["row"] + 3]
                self.assertAlmostEqual(sum(line["scores"]), 1, places=5)
                self.assertEqual(own.index(max(own)), line["scores"].index(max(line["scores"])))

    def test_predict_needs_no_labels(self):
        file = write_text(self.path("rows.jsonl"), '{"input_ids": [5, 6, 7]}\n{"input_ids": [9]}\n')
        self.ok("predict", "--model", tiny.BERT, "--data", file, "--output", self.path("out.jsonl"))
        self.assertEqual(len(read_jsonl(self.path("out.jsonl"))), 2)

    def test_evaluation_during_training_changes_nothing(self):
        with_evaluation, lines = self.train("1x2x1", "with", *self.settings("--set", "evaluation.period.eval_strategy=steps", "--set",
                                                                           "evaluation.period.interval=2", "--set", "train.dropout=0.1"))
        self.assertEqual([e["step"] for e in lines], [2, 4, 5])
        without, lines = self.train("1x2x1", "without", *self.settings("--set", "evaluation.period.eval_strategy=no", "--set", "train.dropout=0.1"))
        self.assertEqual(lines, [])
        self.assert_same_losses(with_evaluation, without, 0)


class CausalLanguageModels(TrainTest):
    def test_text_file_as_a_stream(self):
        model = tiny.byte_model(self.path("model"))
        text = "".join(f"{t}. the {l} is here.\n" for t, l in tiny.sentences(40))
        file = write_text(self.path("train.txt"), text)
        words = ["--task", "text-generation", "--model", model, "--set", "model.init=random", "--train_file", file, "--valid_file", file, "--set",
                 "preprocessor.sequence_length=32", "--set", "train.batch_size=8", "--set", "train.max_epochs=2", "--set", "train.optimizer.params.lr=2e-3"]
        runs = self.compare_layouts(["1x1x1", "2x2x2"], words)
        steps, evaluations = runs["1x1x1"]
        self.assertEqual(set(evaluations[0]), {"step", "eval_loss", "eval_perplexity", "eval_samples", "eval_tokens"})
        self.assertLess(evaluations[-1]["eval_loss"], steps[0]["loss"] - 1)
        found = json.loads(self.ok("eval", "--model", self.path("run_2x2x2", "output"), "--data", file, "--set", "preprocessor.sequence_length=32",
                                   *layout_flags("1x2x1")).out.splitlines()[-1])
        self.assert_close([found["eval_loss"]], [evaluations[-1]["eval_loss"]], 1e-6)

    def test_golden_models_from_token_rows(self):
        for name, source, layouts in (("gpt2", tiny.GPT2, ["1x1x1", "1x2x2", "2x4x1"]), ("llama", tiny.LLAMA, ["1x1x1", "2x2x2", "1x4x1"])):
            file = tiny.causal_rows(self.path(f"{name}.jsonl"))
            words = ["--task", "text-generation", "--model", source, "--train_file", file, "--valid_file", file, "--set", "train.batch_size=8",
                     "--set", "train.max_epochs=1", "--set", "train.optimizer.params.lr=1e-3"]
            reference = None
            for layout in layouts:
                steps, evaluations = self.train(layout, f"{name}_{layout}", *words)
                reference = reference or (steps, evaluations)
                self.assert_same_losses(steps, reference[0], 1e-5, f"{name} {layout}")
                self.assert_close([evaluations[0]["eval_loss"]], [reference[1][0]["eval_loss"]], 1e-5)


if __name__ == "__main__":
    unittest.main()
