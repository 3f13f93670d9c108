"""One transformer for all PyTorch baselines: gpt2, bert and llama shapes, whole or as a pipeline stage, whole or as a tensor-parallel
shard (Megatron's split: heads and feed-forward columns, vocabulary rows). Weights come from a Hugging Face folder."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors import safe_open
from torch import nn

IGNORED = -100


class TensorRanks:
    """The ranks one layer is split over."""

    def __init__(self, group=None):
        self.group, self.size, self.rank = group, 1, 0
        if group is not None:
            self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def part(self, tensor, axis):
        return tensor.chunk(self.size, axis)[self.rank] if self.size > 1 else tensor


class Enter(torch.autograd.Function):
    """The same tensor on all ranks; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx, x, ranks):
        ctx.ranks = ranks
        return x.view_as(x)

    @staticmethod
    def backward(ctx, dy):
        dy = dy.contiguous()
        dist.all_reduce(dy, group=ctx.ranks.group)
        return dy, None


class Leave(torch.autograd.Function):
    """Sum over the ranks; the gradient passes unchanged."""

    @staticmethod
    def forward(ctx, x, ranks):
        dist.all_reduce(x, group=ranks.group)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, dy):
        return dy, None


class SplitCrossEntropy(torch.autograd.Function):
    """Mean cross entropy of logits whose columns are split over the ranks; never gathers them."""

    @staticmethod
    def forward(ctx, logits, targets, ranks):
        x = logits.float()
        top = x.max(1).values
        dist.all_reduce(top, op=dist.ReduceOp.MAX, group=ranks.group)
        x = x - top.unsqueeze(1)
        column = targets - ranks.rank * x.shape[1]
        mine = (column >= 0) & (column < x.shape[1])
        column = column.clamp(0, x.shape[1] - 1)
        own = x.gather(1, column.unsqueeze(1)).squeeze(1) * mine
        e = x.exp_()
        sums = torch.stack([e.sum(1), own])
        dist.all_reduce(sums, group=ranks.group)
        kept = targets != IGNORED
        count = kept.sum()
        ctx.save_for_backward(e.div_(sums[0].unsqueeze(1)), column, mine, kept / count)
        ctx.dtype = logits.dtype
        return ((sums[0].log() - sums[1]) * kept).sum() / count

    @staticmethod
    def backward(ctx, dy):
        p, column, mine, weight = ctx.saved_tensors
        dx = p * (weight * dy).unsqueeze(1)
        dx.scatter_add_(1, column.unsqueeze(1), (-(weight * dy) * mine).unsqueeze(1))
        return dx.to(ctx.dtype), None, None


def parameter(tensor, split):
    p = nn.Parameter(tensor.contiguous().clone())
    p.split = split
    return p


class Dense(nn.Module):
    def __init__(self, weight, bias, split=False, split_bias=None):
        super().__init__()
        self.weight = parameter(weight, split)
        self.bias = None if bias is None else parameter(bias, split if split_bias is None else split_bias)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class Norm(nn.Module):
    def __init__(self, weight, bias, eps):
        super().__init__()
        self.weight, self.bias, self.eps = parameter(weight, False), None if bias is None else parameter(bias, False), eps

    def forward(self, x):
        if self.bias is None:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class Folder:
    """Weights of a Hugging Face folder."""

    def __init__(self, path, w):
        self.file, self.w = safe_open(f"{path}/model.safetensors", "pt"), w
        self.names = set(self.file.keys())

    def get(self, name):
        return self.file.get_tensor(name) if name in self.names else None

    def linear(self, name):
        weight = self.get(name + ".weight")
        return (weight.t() if self.w["family"] == "gpt2" else weight), self.get(name + ".bias")

    def norm(self, name):
        eps = 1e-12 if self.w["family"] == "bert" else 1e-5
        return Norm(self.get(name + ".weight"), self.get(name + ".bias"), eps)


NAMES = {
    "gpt2": dict(block="transformer.h.{}.", qkv="attn.c_attn", out="attn.c_proj", norm1="ln_1", up=["mlp.c_fc"], down="mlp.c_proj", norm2="ln_2",
                 words="transformer.wte.weight", places="transformer.wpe.weight", last_norm="transformer.ln_f"),
    "bert": dict(block="bert.encoder.layer.{}.", q="attention.self.query", k="attention.self.key", v="attention.self.value",
                 out="attention.output.dense", norm1="attention.output.LayerNorm", up=["intermediate.dense"], down="output.dense",
                 norm2="output.LayerNorm", words="bert.embeddings.word_embeddings.weight", places="bert.embeddings.position_embeddings.weight"),
    "llama": dict(block="model.layers.{}.", q="self_attn.q_proj", k="self_attn.k_proj", v="self_attn.v_proj", out="self_attn.o_proj",
                  norm1="input_layernorm", up=["mlp.gate_proj", "mlp.up_proj"], down="mlp.down_proj", norm2="post_attention_layernorm",
                  words="model.embed_tokens.weight", last_norm="model.norm"),
}


def joined(pairs, ranks):
    """One layer of several with a common input: fewer, larger products. Each one's rows are split over the ranks."""
    weight = torch.cat([ranks.part(a, 0) for a, _ in pairs])
    bias = None if pairs[0][1] is None else torch.cat([ranks.part(b, 0) for _, b in pairs])
    return Dense(weight, bias, split=ranks.size > 1)


class Block(nn.Module):
    def __init__(self, folder, layer, ranks):
        super().__init__()
        w, n = folder.w, NAMES[folder.w["family"]]
        self.family, self.ranks, prefix = w["family"], ranks, n["block"].format(layer)
        self.head_size = w["hidden"] // w["heads"]
        self.heads, self.kv_heads = w["heads"] // ranks.size, w["kv_heads"] // ranks.size
        if "qkv" in n:
            weight, bias = folder.linear(prefix + n["qkv"])
            parts = list(zip(weight.chunk(3, 0), bias.chunk(3, 0)))
        else:
            parts = [folder.linear(prefix + n[x]) for x in "qkv"]
        self.qkv = joined(parts, ranks)
        self.up = joined([folder.linear(prefix + x) for x in n["up"]], ranks)
        split = ranks.size > 1
        for attribute in ("out", "down"):
            weight, bias = folder.linear(prefix + n[attribute])
            setattr(self, attribute, Dense(ranks.part(weight, 1), bias, split, split_bias=False))
        self.norm1, self.norm2 = folder.norm(prefix + n["norm1"]), folder.norm(prefix + n["norm2"])

    def leave(self, x, layer):
        if self.ranks.size == 1:
            return layer(x)
        y = Leave.apply(F.linear(x, layer.weight), self.ranks)
        return y if layer.bias is None else y + layer.bias.to(y.dtype)

    def attend(self, x, rotary):
        if self.ranks.size > 1:
            x = Enter.apply(x, self.ranks)
        rows, length = x.shape[:2]
        y = self.qkv(x).view(rows, length, -1, self.head_size)
        q, k, v = y.split([self.heads, self.kv_heads, self.kv_heads], 2)
        if rotary is not None:
            q, k = turn(q, rotary), turn(k, rotary)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if self.heads != self.kv_heads:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.family != "bert")
        return self.leave(y.transpose(1, 2).reshape(rows, length, -1), self.out)

    def feed(self, x):
        if self.ranks.size > 1:
            x = Enter.apply(x, self.ranks)
        y = self.up(x)
        if self.family == "llama":
            gate, up = y.chunk(2, -1)
            y = F.silu(gate) * up
        else:
            y = F.gelu(y, approximate="tanh" if self.family == "gpt2" else "none")
        return self.leave(y, self.down)

    def forward(self, x, rotary=None):
        if self.family == "bert":
            x = self.norm1(x + self.attend(x, None))
            return self.norm2(x + self.feed(x))
        x = x + self.attend(self.norm1(x), rotary)
        return x + self.feed(self.norm2(x))


def turn(x, rotary):
    a, b = x.chunk(2, -1)
    cosine, sine = rotary
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1).to(x.dtype)


class Embedding(nn.Module):
    def __init__(self, folder, ranks):
        super().__init__()
        w, n = folder.w, NAMES[folder.w["family"]]
        self.ranks, self.family = ranks, w["family"]
        self.words = parameter(ranks.part(folder.get(n["words"]), 0), ranks.size > 1)
        self.first = ranks.rank * -(-w["vocab"] // ranks.size)  # as chunk() splits
        self.places = parameter(folder.get(n["places"]), False) if "places" in n else None
        if self.family == "bert":
            self.types, self.norm = parameter(folder.get("bert.embeddings.token_type_embeddings.weight"), False), folder.norm("bert.embeddings.LayerNorm")

    def forward(self, ids):
        if self.ranks.size == 1:
            x = F.embedding(ids, self.words)
        else:
            own = ids - self.first
            missing = (own < 0) | (own >= self.words.shape[0])
            x = F.embedding(own.masked_fill(missing, 0), self.words).masked_fill(missing.unsqueeze(-1), 0)
            x = Leave.apply(x, self.ranks)
        if self.places is not None:
            x = x + self.places[: ids.shape[1]]
        return self.norm(x + self.types[0]) if self.family == "bert" else x


class Head(nn.Module):
    def __init__(self, folder, ranks, words):
        super().__init__()
        self.ranks, self.family = ranks, folder.w["family"]
        if self.family == "bert":
            self.pool, self.classifier = Dense(*folder.linear("bert.pooler.dense")), Dense(*folder.linear("classifier"))
            return
        self.norm = folder.norm(NAMES[self.family]["last_norm"])
        if words is not None:
            self.weight = words
            return
        name = "transformer.wte.weight" if self.family == "gpt2" else "lm_head.weight"
        self.weight = parameter(ranks.part(folder.get(name), 0), ranks.size > 1)

    def forward(self, x):
        if self.family == "bert":
            return self.classifier(torch.tanh(self.pool(x[:, 0])))
        x = self.norm(x)
        if self.ranks.size > 1:
            x = Enter.apply(x, self.ranks)
        return F.linear(x, self.weight)


class Model(nn.Module):
    """Stage `stage` of `stages`; the only one is the whole model."""

    def __init__(self, path, w, stage=0, stages=1, ranks=None):
        super().__init__()
        folder, self.ranks = Folder(path, w), ranks or TensorRanks()
        first, end = w["layers"] * stage // stages, w["layers"] * (stage + 1) // stages
        self.embedding = Embedding(folder, self.ranks) if stage == 0 else None
        self.blocks = nn.ModuleList(Block(folder, i, self.ranks) for i in range(first, end))
        tied = self.embedding.words if self.embedding is not None and w["family"] == "gpt2" else None
        self.head = Head(folder, self.ranks, tied) if stage == stages - 1 else None
        self.rotary = None
        if w["family"] == "llama":
            d = w["hidden"] // w["heads"]
            angles = torch.outer(torch.arange(w["length"]).double(), 10000.0 ** (-torch.arange(0, d, 2).double() / d)).unsqueeze(1)
            self.rotary = angles.cos().float(), angles.sin().float()

    def forward(self, x):
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks:
            x = block(x, self.rotary)
        return self.head(x) if self.head is not None else x


def loss_of(logits, targets, ranks=None):
    """Mean over the targets that count. `ranks`: the logits' columns are split over them."""
    logits, targets = logits.flatten(0, -2), targets.flatten()
    if ranks is not None and ranks.size > 1:
        return SplitCrossEntropy.apply(logits, targets, ranks)
    return F.cross_entropy(logits.float(), targets, ignore_index=IGNORED)
