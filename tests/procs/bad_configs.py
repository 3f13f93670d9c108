"""Settings and flags that must be refused, as data: what is given, the exit code, and a piece of the message. `text` is the settings file
(None = flags only), `name` what it is called: the ending decides between YAML and JSON. Neither a model nor data is needed: settings are
refused before either is opened."""
from dataclasses import dataclass, field
from typing import List, Optional

USAGE, CHECKPOINT = 2, 4


@dataclass
class BadConfig:
    title: str
    text: Optional[str]
    message: str
    name: str = "settings.yaml"
    flags: List[str] = field(default_factory=list)
    code: int = USAGE
    world_size: int = 0  # as if a launcher had started so many ranks; 0 = no launcher


HUB = "framework: pytorch\nmodel: {path: m}\ndataset: {train: {file: t.jsonl}}\n"
DS = ["--model", "m", "--train_file", "t.jsonl"]

BAD_CONFIGS = [
    BadConfig("native: unknown key", "train:\n  batchsize: 8\n", "settings.yaml:2: unknown key train.batchsize; nearest known key: train.batch_size"),
    BadConfig("native: duplicate key", "train: {seed: 1}\ntrain: {seed: 2}\n", "duplicate key train (first at settings.yaml:1)"),
    BadConfig("native: out of range", "train: {dropout: 1.5}\n", "train.dropout 1.5 (settings.yaml:1) is not in [0, 1)"),
    BadConfig("native: batch equation",
              "train: {batch_size: 30, per_device_train_batch_size: 4, distributed: {gradient_accumulation_steps: 4}}\n",
              "the batch does not come out: batch_size 30 (settings.yaml:1)"),
    BadConfig("native: ZeRO", "train: {distributed: {zero_stage: 3}}\n", "zero_stage 3 (settings.yaml:1): sharded optimizer states are not available yet"),
    BadConfig("native: strategy against sizes", "train: {distributed: {distributed_strategy: data_parallel, model_parallel_size: 2}}\n",
              "contradicts model_parallel_size 2"),
    BadConfig("not YAML", "train: [1, 2\n", "not YAML"),
    BadConfig("not JSON", '{"train": {"seed": }}', "not JSON", name="settings.json"),
    BadConfig("a Python program", "train = 1\n", "is a Python program, which is never run", name="settings.py"),
    BadConfig("flags: unknown, with the nearest", None, "unknown flag --batch_sise; nearest known name: batch_size", flags=["--batch_sise", "8"]),
    BadConfig("Hugging Face: fp16 and bf16", "output_dir: o\nfp16: true\nbf16: true\n", "contradicts"),
    BadConfig("Hugging Face: FSDP", "output_dir: o\nfsdp: full_shard\n", "fsdp full_shard (settings.yaml:2): sharded weights are not available yet"),
    BadConfig("ModelScope: world_size against the launcher", HUB + "megatron: {world_size: 4, tensor_model_parallel_size: 2}\n",
              "megatron.world_size 4 (settings.yaml:4) is not the number of launched ranks: there are 8; write world_size 8", world_size=8),
    BadConfig("ModelScope: world size that does not divide", HUB + "megatron: {world_size: 6, tensor_model_parallel_size: 4}\n", "sizes that fit"),
    BadConfig("ModelScope: both forms of one hook",
              HUB + "train: {hooks: [{type: CheckpointHook, interval: 1}], checkpoint: {period: {interval: 2}}}\n",
              "hook CheckpointHook (settings.yaml:4) and train.checkpoint.period (settings.yaml:4) are two forms of one hook; keep one"),
    BadConfig("ModelScope: Apex", HUB + "train: {hooks: [{type: ApexAMPOptimizerHook}]}\n", "Apex is not available"),
    BadConfig("ModelScope: unknown hook", HUB + "train: {hooks: [{type: EvaluatonHook}]}\n", "hook EvaluatonHook (settings.yaml:4) is not known; nearest: EvaluationHook"),
    BadConfig("ModelScope: schedule that follows a metric", HUB + "train: {hooks: [{type: PlateauLrSchedulerHook, metric_key: f1}]}\n",
              "a schedule that follows a metric is not available"),
    BadConfig("ModelScope: another optimizer", HUB + "train: {optimizer: {type: Adamax, weight_decay: 0.01}}\n", "is not available; one of AdamW, Adam, SGD"),
    BadConfig("ModelScope: metric and rule", HUB + "train: {checkpoint: {best: {metric_key: accuracy, rule: min}}}\n",
              "contradicts accuracy, which is better when greater; nearest valid value max"),
    BadConfig("ModelScope: one column as both texts", HUB + "preprocessor: {first_sequence: a, second_sequence: a}\n",
              "dataset.train.text_pair_col a (settings.yaml:4) is the column of the first text too; name the other column"),
    BadConfig("ModelScope: data of a hub", "framework: pytorch\nmodel: {path: m}\ndataset: {train: {name: clue}}\n",
              "dataset.train.name clue (settings.yaml:3) is no data file: data sets on a hub are not fetched. Give --train_file FILE"),
    BadConfig("ModelScope: another task", "framework: pytorch\ntask: image-classification\n", "this task is not available; one of text-classification"),
    BadConfig("ModelScope: a model of the hub", None, "is not a folder here, and plait fetches nothing from a hub", code=CHECKPOINT,
              flags=["--trainer", "nlp-gpt3-trainer", "--model", "damo/nlp_gpt3_text-generation_1.3B", "--src_txt", "text1", "--use_model_config", "true"]),
    BadConfig("ModelScope: DeepspeedHook with ZeRO", HUB + "train: {hooks: [{type: DeepspeedHook, zero_stage: 1}]}\n", "sharded optimizer states are not available yet"),
    BadConfig("DeepSpeed: offload", '{"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}',
              "zero_optimization.offload_optimizer.device cpu (settings.json:1): offloading", name="settings.json", flags=DS),
    BadConfig("DeepSpeed: stage 2", '{"zero_optimization": {"stage": 2}}', "zero_stage 2 (settings.json:1)", name="settings.json", flags=DS),
    BadConfig("DeepSpeed: unknown key", '{"train_batch_size": 8, "gradient_clippin": 1.0}', "unknown key gradient_clippin; nearest known key: gradient_clipping",
              name="settings.json", flags=DS),
    BadConfig("DeepSpeed: logarithmic warm-up", '{"train_batch_size": 8, "scheduler": {"type": "WarmupLR", "params": {"warmup_type": "log"}}}',
              "nearest valid value linear", name="settings.json", flags=DS),
    BadConfig("DeepSpeed: engine", '{"train_batch_size": 8, "compression_training": {"enabled": true}}', "compression is not available", name="settings.json", flags=DS),
]
