"""One rank of one baseline: run.py PROGRAM --inputs FOLDER ... (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT set, as torchrun does).

Each program below is what a user of that system would write. Every rank writes its step times and losses to OUT/RANK.json."""
import argparse
import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from safetensors.torch import load_file

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from model import IGNORED, Model, TensorRanks, loss_of  # noqa: E402
from workloads import CLIP, WEIGHT_DECAY, WORKLOADS  # noqa: E402


class Run:
    """Data, model, clock of one rank. Rank order: tensor fastest, then data, then pipeline."""

    def __init__(self, args):
        self.args, self.w = args, WORKLOADS[args.workload]
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        torch.set_num_threads(1)
        self.dp_rank, self.pp_rank = self.rank // args.tp % args.dp, self.rank // (args.tp * args.dp)
        rows = load_file(f"{args.inputs}/rows.safetensors")
        self.ids, self.labels = rows["input_ids"], rows.get("labels")
        self.ends, self.losses = [], []

    def connect(self):
        dist.init_process_group("gloo")

    def model(self, **where):
        return Model(f"{self.args.inputs}/model", self.w, **where)

    def batches(self):
        """(ids, targets) of this data rank, step by step."""
        share = self.w["rows"] // self.args.dp
        for step in range(self.args.steps):
            begin = step * self.w["rows"] + self.dp_rank * share
            ids = self.ids[begin:begin + share]
            if self.labels is not None:
                yield ids, self.labels[begin:begin + share]
            else:
                targets = torch.full_like(ids, IGNORED)
                targets[:, :-1] = ids[:, 1:]
                yield ids, targets

    def autocast(self):
        return torch.autocast("cpu", torch.bfloat16) if self.args.dtype == "bf16" else contextlib.nullcontext()

    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=self.w["lr"], betas=(0.9, 0.999), eps=1e-8, weight_decay=WEIGHT_DECAY, fused=True)

    def step_done(self, loss):
        self.losses.append(None if loss is None else float(loss.detach()))
        self.ends.append(time.time())


def plain_loop(run, model, core):
    parameters = list(core.parameters())
    optimizer = run.optimizer(parameters)
    for ids, targets in run.batches():
        with run.autocast():
            loss = loss_of(model(ids), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        run.step_done(loss)


def single(run):
    model = run.model()
    plain_loop(run, model, model)


def ddp(run):
    run.connect()
    model = run.model()
    plain_loop(run, torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True), model)


def clip_split(parameters, tensor_group=None, pipeline_group=None, uncounted=()):
    """Clips to the norm over all ranks, each weight counted once."""
    grads = {split: [p.grad for p in parameters if p.split == split and id(p) not in uncounted] for split in (False, True)}
    squares = {split: torch.nn.utils.get_total_norm(g) ** 2 if g else torch.zeros(()) for split, g in grads.items()}
    if tensor_group is not None:
        dist.all_reduce(squares[True], group=tensor_group)
    total = squares[True] + squares[False]
    if pipeline_group is not None:
        dist.all_reduce(total, group=pipeline_group)
    torch._foreach_mul_([p.grad for p in parameters], (CLIP / (total.sqrt() + 1e-6)).clamp(max=1.0))


def tp(run):
    """Megatron's tensor parallelism, written out."""
    run.connect()
    ranks = TensorRanks(dist.group.WORLD)
    model = run.model(ranks=ranks)
    parameters = list(model.parameters())
    optimizer = run.optimizer(parameters)
    split_vocabulary = ranks if run.labels is None else None
    for ids, targets in run.batches():
        with run.autocast():
            loss = loss_of(model(ids), targets, split_vocabulary)
        loss.backward()
        clip_split(parameters, ranks.group)
        optimizer.step()
        optimizer.zero_grad()
        run.step_done(loss)


def pipeline(run):
    """torch.distributed.pipelining's 1F1B; with data parallel ranks around the stages and tensor parallel ones inside: the 3D composition."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    run.connect()
    a = run.args
    mesh = init_device_mesh("cpu", (a.pp, a.dp, a.tp), mesh_dim_names=("pp", "dp", "tp"))
    ranks = TensorRanks(mesh["tp"].get_group()) if a.tp > 1 else TensorRanks()
    core = run.model(stage=run.pp_rank, stages=a.pp, ranks=ranks)
    module = core
    if a.dp > 1:
        module = torch.nn.parallel.DistributedDataParallel(core, process_group=mesh["dp"].get_group(), gradient_as_bucket_view=True)
    stage = PipelineStage(module, run.pp_rank, a.pp, torch.device("cpu"), group=mesh["pp"].get_group())
    split_vocabulary = ranks if run.labels is None else None
    schedule = Schedule1F1B(stage, n_microbatches=a.micro_batches, loss_fn=lambda y, t: loss_of(y, t, split_vocabulary))
    parameters = list(core.parameters())
    optimizer = run.optimizer(parameters)
    last = core.head is not None
    tied, table, copy = None, None, ()
    if run.w["family"] == "gpt2":  # the embedding table lives on the first and on the last stage
        for i in range(a.dp * a.tp):
            ends = [i, (a.pp - 1) * a.dp * a.tp + i]
            group = dist.new_group(ends)
            tied = group if run.rank in ends else tied
        copy = {id(core.head.weight)} if last else ()
        table = core.head.weight if last else core.embedding.words if core.embedding is not None else None
    for ids, targets in run.batches():
        losses = []
        with run.autocast():
            schedule.step(*([ids] if core.embedding is not None else []), **(dict(target=targets, losses=losses) if last else {}))
        if tied is not None:
            dist.all_reduce(table.grad, group=tied)
        clip_split(parameters, ranks.group, mesh["pp"].get_group(), copy)
        optimizer.step()
        optimizer.zero_grad()
        run.step_done(torch.stack([x.detach() for x in losses]).mean() if losses else None)


def interleaved(run):
    """torch.distributed.pipelining's interleaved 1F1B, two stages a rank."""
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
    run.connect()
    pp, device = run.args.pp, torch.device("cpu")
    cores = [run.model(stage=i, stages=2 * pp) for i in (run.rank, run.rank + pp)]
    stages = [PipelineStage(core, run.rank + i * pp, 2 * pp, device, group=dist.group.WORLD) for i, core in enumerate(cores)]
    schedule = ScheduleInterleaved1F1B(stages, n_microbatches=run.args.micro_batches, loss_fn=loss_of)
    parameters = [p for core in cores for p in core.parameters()]
    optimizer = run.optimizer(parameters)
    first, last = run.rank == 0, cores[1].head is not None
    tied = run.w["family"] == "gpt2"
    ends = dist.new_group([0, pp - 1]) if tied else None
    table = cores[1].head.weight if last and tied else cores[0].embedding.words if first else None
    copy = {id(cores[1].head.weight)} if last and tied else ()
    for ids, targets in run.batches():
        losses = []
        with run.autocast():
            schedule.step(*([ids] if first else []), **(dict(target=targets, losses=losses) if last else {}))
        if tied and (first or last):
            dist.all_reduce(table.grad, group=ends)
        clip_split(parameters, None, dist.group.WORLD, copy)
        optimizer.step()
        optimizer.zero_grad()
        run.step_done(torch.stack([x.detach() for x in losses]).mean() if losses else None)


def dp_tp(run):
    """Data-parallel replicas, each split over tensor ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    run.connect()
    mesh = init_device_mesh("cpu", (run.args.dp, run.args.tp), mesh_dim_names=("dp", "tp"))
    ranks = TensorRanks(mesh["tp"].get_group())
    core = run.model(ranks=ranks)
    model = torch.nn.parallel.DistributedDataParallel(core, process_group=mesh["dp"].get_group(), gradient_as_bucket_view=True)
    parameters = list(core.parameters())
    optimizer = run.optimizer(parameters)
    split_vocabulary = ranks if run.labels is None else None
    for ids, targets in run.batches():
        with run.autocast():
            loss = loss_of(model(ids), targets, split_vocabulary)
        loss.backward()
        clip_split(parameters, ranks.group)
        optimizer.step()
        optimizer.zero_grad()
        run.step_done(loss)


def zero1(run):
    """torch's ZeroRedundancyOptimizer beside DDP."""
    from torch.distributed.optim import ZeroRedundancyOptimizer
    run.connect()
    core = run.model()
    model = torch.nn.parallel.DistributedDataParallel(core, gradient_as_bucket_view=True)
    parameters = list(core.parameters())
    optimizer = ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=run.w["lr"], betas=(0.9, 0.999), eps=1e-8, weight_decay=WEIGHT_DECAY, fused=True)
    for ids, targets in run.batches():
        with run.autocast():
            loss = loss_of(model(ids), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        run.step_done(loss)


def fsdp2(run):
    """fully_shard with parameters kept after the forward (ZeRO-2)."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    run.connect()
    mesh = init_device_mesh("cpu", (run.args.dp,))
    model = run.model()
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    optimizer = run.optimizer(model.parameters())
    for ids, targets in run.batches():
        with run.autocast():
            loss = loss_of(model(ids), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        run.step_done(loss)


def deepspeed_zero(run, stage):
    import deepspeed
    deepspeed.init_distributed("gloo")
    model = run.model()
    settings = dict(train_micro_batch_size_per_gpu=run.w["rows"] // run.args.dp, gradient_accumulation_steps=1, gradient_clipping=CLIP,
                    steps_per_print=10**9, zero_optimization=dict(stage=stage), bf16=dict(enabled=run.args.dtype == "bf16"),
                    zero_allow_untested_optimizer=True)
    engine, *_ = deepspeed.initialize(model=model, optimizer=run.optimizer(model.parameters()), config=settings)
    for ids, targets in run.batches():
        loss = loss_of(engine(ids), targets)
        engine.backward(loss)
        engine.step()
        run.step_done(loss)


def megatron(run):
    """megatron-core's GPTModel over tensor ranks. It assumes CUDA: the replacements below are what a run without one needs, and a backward inside
    autocast, as its layers remember that of CUDA only."""
    run.connect()
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = lambda *a, **k: None
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig
    w, tp_size = run.w, run.args.tp
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tp_size)
    tensor_parallel.random.get_cuda_rng_tracker().fork = lambda *a, **k: contextlib.nullcontext()
    config = TransformerConfig(
        num_layers=w["layers"], hidden_size=w["hidden"], num_attention_heads=w["heads"], ffn_hidden_size=w["ffn"], attention_dropout=0.0,
        hidden_dropout=0.0, use_cpu_initialization=True, params_dtype=torch.float32, tensor_model_parallel_size=tp_size,
        gradient_accumulation_fusion=False, bias_dropout_fusion=False, masked_softmax_fusion=False, bias_activation_fusion=False,
        activation_func=lambda x: torch.nn.functional.gelu(x, approximate="tanh"))
    model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=w["vocab"], max_sequence_length=w["length"],
                     position_embedding_type="learned_absolute", share_embeddings_and_output_weights=True)
    load_megatron(model, run)
    parameters = list(model.parameters())
    for p in parameters:
        p.split = getattr(p, "tensor_model_parallel", False)
    optimizer = run.optimizer(parameters)
    group = parallel_state.get_tensor_model_parallel_group()
    places = torch.arange(w["length"]).unsqueeze(0).expand(w["rows"], -1)
    hidden = torch.triu(torch.ones(1, 1, w["length"], w["length"], dtype=torch.bool), 1)
    for ids, targets in run.batches():
        kept = (targets != IGNORED).float()
        with run.autocast():
            losses = model(ids, places, hidden, labels=targets.clamp_min(0)).float()
        loss = (losses * kept).sum() / kept.sum()
        with run.autocast():
            loss.backward()
        clip_split(parameters, group)
        optimizer.step()
        optimizer.zero_grad()
        run.step_done(loss)


def load_megatron(model, run):
    """This rank's part of the folder's weights; megatron-core orders q, k, v by head."""
    from safetensors import safe_open
    w, tp_size, rank = run.w, run.args.tp, run.rank
    file = safe_open(f"{run.args.inputs}/model/model.safetensors", "pt")
    d = w["hidden"] // w["heads"]

    def by_head(t):  # [3 * heads * d, ...] -> head, q | k | v, d
        return t.reshape(3, w["heads"], d, *t.shape[1:]).transpose(0, 1).reshape(t.shape)

    def put(target, tensor, axis=None):
        if axis is not None:
            tensor = tensor.chunk(tp_size, axis)[rank]
        with torch.no_grad():
            target.copy_(tensor)

    get = file.get_tensor
    put(model.embedding.word_embeddings.weight, get("transformer.wte.weight"), 0)
    put(model.embedding.position_embeddings.weight, get("transformer.wpe.weight"))
    for i, layer in enumerate(model.decoder.layers):
        p = f"transformer.h.{i}."
        put(layer.self_attention.linear_qkv.weight, by_head(get(p + "attn.c_attn.weight").t()), 0)
        put(layer.self_attention.linear_qkv.bias, by_head(get(p + "attn.c_attn.bias")), 0)
        put(layer.self_attention.linear_proj.weight, get(p + "attn.c_proj.weight").t(), 1)
        put(layer.self_attention.linear_proj.bias, get(p + "attn.c_proj.bias"))
        put(layer.mlp.linear_fc1.weight, get(p + "mlp.c_fc.weight").t(), 0)
        put(layer.mlp.linear_fc1.bias, get(p + "mlp.c_fc.bias"), 0)
        put(layer.mlp.linear_fc2.weight, get(p + "mlp.c_proj.weight").t(), 1)
        put(layer.mlp.linear_fc2.bias, get(p + "mlp.c_proj.bias"))
        for norm, name in ((layer.input_layernorm, "ln_1"), (layer.pre_mlp_layernorm, "ln_2")):
            put(norm.weight, get(p + name + ".weight"))
            put(norm.bias, get(p + name + ".bias"))
    put(model.decoder.final_layernorm.weight, get("transformer.ln_f.weight"))
    put(model.decoder.final_layernorm.bias, get("transformer.ln_f.bias"))


PROGRAMS = {"single": single, "ddp": ddp, "fsdp2": fsdp2, "zero1": zero1, "ds-zero1": lambda run: deepspeed_zero(run, 1),
            "ds-zero2": lambda run: deepspeed_zero(run, 2), "tp": tp, "megatron": megatron, "pp-1f1b": pipeline, "pp-interleaved": interleaved,
            "dp-tp": dp_tp, "3d": pipeline}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program", choices=PROGRAMS)
    p.add_argument("--workload", choices=WORKLOADS, required=True)
    p.add_argument("--dtype", choices=["fp32", "bf16"], required=True)
    p.add_argument("--inputs", required=True)
    p.add_argument("--out", required=True)
    for name in ("steps", "dp", "tp", "pp", "micro_batches"):
        p.add_argument("--" + name, type=int, required=True)
    run = Run(p.parse_args())
    PROGRAMS[run.args.program](run)
    path = f"{run.args.out}/{run.rank}.json"
    with open(path + ".tmp", "w") as f:
        json.dump({"ends": run.ends, "losses": run.losses}, f)
    os.rename(path + ".tmp", path)
    sys.stdout.flush()
    if dist.is_initialized():
        dist.barrier()  # nobody leaves while others still talk
    os._exit(0)  # interpreter and groups are not torn down: that is not measured


main()
