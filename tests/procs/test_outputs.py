"""What a run leaves behind besides output/: weights during training, event files for TensorBoard; and why it stops early."""
import glob
import os
import shutil
import struct
import unittest

import tiny
from program import ProgramTest, layout_flags, read_bytes, read_json, write_text


def records(path):
    """The data of each TFRecord: length (8), checksum of it (4), data, checksum of them (4). The unit test looks at the checksums."""
    data, at, found = read_bytes(path), 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        found.append(data[at + 12:at + 12 + length])
        at += 12 + length + 4
    return found


def fields(message):
    """(number, value) of a protocol buffers message: varints as numbers, the rest as bytes."""
    at, found = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            length = {1: 8, 5: 4}.get(key & 7) or varint()
            value, at = message[at:at + length], at + length
        found.append((key >> 3, value))
    return found


def scalars(path):
    """{tag: {step: value}}"""
    found = {}
    for record in records(path)[1:]:
        event = dict(fields(record))
        for _, value in fields(event[5]):
            parts = dict(fields(value))
            found.setdefault(parts[1].decode(), {})[event[2]] = struct.unpack("<f", parts[2])[0]
    return found


class Outputs(ProgramTest):
    def words(self, *more):
        rows = tiny.bert_rows(self.path("rows.jsonl"))  # 37 rows: 5 steps an epoch
        return ["--model", tiny.BERT, "--train_file", rows, "--valid_file", rows, "--set", "train.batch_size=8", "--set",
                "train.optimizer.params.lr=1e-3", *[word for setting in more for word in ("--set", setting)]]

    def test_weights_during_training(self):
        words = self.words("train.max_epochs=2", "train.save.strategy=steps", "train.save.interval=2", "train.save.keep=2")
        os.makedirs(self.path("run_2x1x1", "weights", "step_3"))  # somebody's, and no step of ours
        write_text(self.path("run_2x1x1", "weights", "step_3", "notes.txt"), "mine")
        for layout in ("1x1x1", "2x1x1", "1x2x1"):
            self.train(layout, f"run_{layout}", *words)
            left = {"step_8", "step_10"} | ({"step_3"} if layout == "2x1x1" else set())
            self.assertEqual(set(os.listdir(self.path(f"run_{layout}", "weights"))), left)
            last = tiny.read_safetensors(self.path(f"run_{layout}", "output", "model.safetensors"))
            ten = tiny.read_safetensors(self.path(f"run_{layout}", "weights", "step_10", "model.safetensors"))
            self.assertEqual(ten, last)  # step 10 is the last one
            eight = tiny.read_safetensors(self.path(f"run_{layout}", "weights", "step_8", "model.safetensors"))
            self.assertNotEqual(eight["classifier.weight"], last["classifier.weight"])
            self.assertEqual(read_json(self.path(f"run_{layout}", "weights", "step_8", "config.json")),
                             read_json(self.path(f"run_{layout}", "output", "config.json")))
        self.ok("eval", "--model", self.path("run_1x1x1", "weights", "step_8"), "--data", self.path("rows.jsonl"))
        # The same command again writes its own folders anew.
        self.train("1x1x1", "run_1x1x1", *words)
        # A folder of another hand that is in the way is refused, not replaced.
        shutil.rmtree(self.path("run_1x1x1", "weights", "step_8"))
        tiny.copy_model(tiny.BERT, self.path("run_1x1x1", "weights", "step_8"))
        before = read_bytes(self.path("run_1x1x1", "weights", "step_8", "model.safetensors"))
        done = self.run_plait("train", *words, *layout_flags("2x1x1"), "--work_dir", self.path("run_1x1x1"))
        self.assertEqual(done.code, 2, done)
        self.assertIn("weights/step_8, which is there already and was not saved by plait", done.last_line)
        self.assertEqual(read_bytes(self.path("run_1x1x1", "weights", "step_8", "model.safetensors")), before)

    def test_weights_by_epoch_from_hugging_face_names(self):
        self.words()
        file = write_text(self.path("hf.yaml"), "output_dir: run\nper_device_train_batch_size: 8\nlearning_rate: 1e-3\nnum_train_epochs: 2\n"
                                                "save_only_model: true\nsave_strategy: epoch\nreport_to: tensorboard\n")
        self.ok("train", file, "--model", tiny.BERT, "--train_file", self.path("rows.jsonl"))
        self.assertEqual(sorted(os.listdir(self.path("run", "weights"))), ["step_10", "step_5"])
        self.assertEqual(len(glob.glob(self.path("run", "runs", "events.out.tfevents.*"))), 1)

    def test_early_stop(self):
        # An accuracy cannot gain more than 1: no evaluation after the first one is better.
        words = self.words("train.max_epochs=9", "evaluation.period.eval_strategy=steps", "evaluation.period.interval=2",
                           "train.early_stop.patience=3", "train.early_stop.min_delta=1")
        for layout in ("1x1x1", "2x1x1", "1x2x1"):
            done = self.ok("train", *words, *layout_flags(layout), "--work_dir", self.path(layout))
            steps, evaluations = self.metrics(layout)
            self.assertEqual([e["step"] for e in evaluations], [2, 4, 6, 8])
            self.assertEqual(len(steps), 8)
            self.assertIn("early stop after step 8 of 45: 3 evaluations in a row without an eval_accuracy better than", done.err)
            self.assertIn("trained 8 steps", done.err)
            self.assertTrue(os.path.exists(self.path(layout, "output", "model.safetensors")))
        # Nothing stops a run that gets better all the time.
        falling = self.words("train.max_epochs=2", "evaluation.period.eval_strategy=steps", "evaluation.period.interval=2",
                             "train.early_stop.patience=1", "evaluation.metrics=[loss]")
        self.assertEqual(len(self.train("1x1x1", "falling", *falling)[0]), 10)

    def test_early_stop_needs_validation_rows(self):
        self.words()
        done = self.run_plait("train", "--model", tiny.BERT, "--train_file", self.path("rows.jsonl"), "--set", "train.early_stop.patience=1",
                              "--work_dir", self.path("run"))
        self.assertEqual(done.code, 2, done)
        self.assertIn("needs validation data", done.last_line)

    def test_tensorboard(self):
        words = self.words("train.max_epochs=1", "train.tensorboard.interval=2", "evaluation.period.eval_strategy=steps",
                           "evaluation.period.interval=3")
        for layout in ("1x1x1", "2x1x1"):
            steps, evaluations = self.train(layout, layout, *words, "--set", f"train.tensorboard.dir={self.path(layout, 'tb')}")
            (path,) = glob.glob(self.path(layout, "tb", "events.out.tfevents.*"))
            self.assertEqual(dict(fields(records(path)[0]))[3], b"brain.Event:2")
            found = scalars(path)
            self.assertEqual(set(found), {"train/loss", "train/grad_norm", "train/learning_rate", "eval/loss", "eval/accuracy", "eval/f1",
                                          "eval/samples", "eval/tokens"})
            for name in ("loss", "grad_norm", "learning_rate"):
                points = found[f"train/{name}"]
                self.assertEqual(sorted(points), [2, 4, 5])
                self.assert_close([points[n] for n in (2, 4, 5)], [steps[n - 1][name] for n in (2, 4, 5)], 1e-6, name)
            self.assertEqual(sorted(found["eval/loss"]), [3, 5])
            self.assert_close([found["eval/loss"][3]], [evaluations[0]["eval_loss"]], 1e-6)

    def test_a_schedule_by_epoch_and_a_static_loss_scale(self):
        words = self.words("train.max_epochs=3", "train.lr_scheduler.type=step", "train.lr_scheduler.by_epoch=true", "train.lr_scheduler.gamma=0.5",
                           "train.lr_scheduler.warmup_steps=2", "train.lr_scheduler.warmup_start_factor=0.1", "train.dtype=float16",
                           "train.loss_scale.dynamic=false", "train.loss_scale.init_scale=128")
        expected = [1e-4, 5.5e-4] + [1e-3] * 3 + [5e-4] * 5 + [2.5e-4] * 5
        for layout in ("1x1x1", "1x2x1"):
            steps, _ = self.train(layout, layout, *words)
            self.assert_close([s["learning_rate"] for s in steps], expected, 1e-12, layout)
            self.assertEqual({s["loss_scale"] for s in steps}, {128})


if __name__ == "__main__":
    unittest.main()
