#!/usr/bin/env python3
"""Training on the fake device, by PyTorch itself, with its memory history on: real snapshots with real stacks.

    LD_LIBRARY_PATH=FAKES PYTHONPATH=WHEEL tests/oracle/scenarios.py NAME OUT     (all of them: snapshots.py)

Writes OUT/NAME.pickle.gz and OUT/NAME.json: what the snapshot has to say, from torch.cuda.memory_stats and from the error. The shapes
are small so that files are; kernels do nothing and all values are 0."""

import ctypes
import gc
import gzip
import json
import os
import pickle
import sys
import warnings

import torch
from torch import nn
from torch.nn import functional as F

MIB = 1 << 20
FAKE = ctypes.CDLL(next(name for name in ("libcudart.so.13", "libcudart.so.12")
                        if os.path.exists(os.path.join(os.environ["LD_LIBRARY_PATH"], name))))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, self.heads, width // self.heads).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(rows, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, layers=2, width=256, heads=4, vocabulary=2048, length=256):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids, targets=None):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits if targets is None else F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class LoRA(nn.Module):
    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Linear(base.in_features, rank, bias=False, device="cuda")
        self.b = nn.Linear(rank, base.out_features, bias=False, device="cuda")

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


def batch(rows, length, vocabulary=2048):
    ids = torch.zeros(rows, length, dtype=torch.long, device="cuda")
    return ids, torch.zeros_like(ids)


def train_step(model, optimizer, rows, length):
    ids, targets = batch(rows, length)
    loss = model(ids, targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def gpt2_step(steps=3, rows=8, length=256, **sizes):
    model = GPT2(**sizes).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        train_step(model, optimizer, rows, length)


def gpt2_varied():
    model = GPT2().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for length in (97, 256, 180, 33, 240, 201):
        train_step(model, optimizer, 8, length)


def lora():
    model = GPT2(layers=3)
    model = model.to("cuda").requires_grad_(False)
    for block in model.h:
        block.attn.c_attn = LoRA(block.attn.c_attn)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    for _ in range(3):
        train_step(model, optimizer, 8, 256)


def evaluation_then_training():
    model = GPT2().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    train_step(model, optimizer, 4, 128)
    with torch.no_grad():
        model.eval()
        kept = [model(batch(4, 128)[0]) for _ in range(4)]
    del kept
    model.train()
    train_step(model, optimizer, 8, 256)


def leak():
    model = GPT2().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    losses, states = [], []
    for _ in range(8):
        losses.append(train_step(model, optimizer, 4, 128))
        states.append(model.wte.weight.detach().clone())  # kept by mistake


def fragmented():
    """Two tensors in each segment, and every second goes: what is free would do for the next one, but is in pieces."""
    kept = [torch.empty(9 * MIB, dtype=torch.uint8, device="cuda") for _ in range(24)]
    del kept[::2]
    kept.append(torch.empty(60 * MIB, dtype=torch.uint8, device="cuda"))


def too_big():
    model = GPT2().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    train_step(model, optimizer, 4, 128)
    train_step(model, optimizer, 12, 256)


def backward_fails():
    model = GPT2(layers=4).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    train_step(model, optimizer, 2, 64)
    for rows in range(4, 13, 2):
        train_step(model, optimizer, rows, 256)


def optimizer_fails():
    """Room for weights and gradients, none for the two moments."""
    model = GPT2(layers=2, width=512, vocabulary=8192).to("cuda")
    train_step(model, torch.optim.AdamW(model.parameters()), 1, 32)


def two_streams():
    other = torch.cuda.Stream()
    for _ in range(6):
        x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        with torch.cuda.stream(other):
            y = torch.empty_like(x).copy_(x)
            x.record_stream(other)
        del x
        z = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        del y, z


def pool():
    if hasattr(torch.cuda, "MemPool"):
        mine = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(mine):
            held = [torch.empty(size * MIB, dtype=torch.uint8, device="cuda") for size in (1, 5, 30)]
        outside = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
        del held[1], outside
        torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
        return mine, held
    return None


def cuda_graph():
    model = GPT2(layers=1).to("cuda")
    ids, targets = batch(4, 128)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        model(ids, targets).backward()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = model(ids, targets)
        loss.backward()
    graph.replay()
    torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    return graph, loss


def checkpointed():
    from torch.utils.checkpoint import checkpoint

    model = GPT2(layers=3).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    for block in model.h:
        plain = block.forward
        block.forward = lambda x, plain=plain: checkpoint(plain, x, use_reentrant=False)
    for _ in range(2):
        train_step(model, optimizer, 8, 256)


def mixed_precision():
    model = GPT2().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        ids, targets = batch(8, 256)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(ids, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


# name: (what runs, bytes of the device, settings, further arguments)
SCENARIOS = {
    "gpt2": (gpt2_step, 8192, "", {}),
    "gpt2-expandable": (gpt2_step, 8192, "expandable_segments:True", {}),
    "gpt2-varied": (gpt2_varied, 8192, "", {}),
    "gpt2-varied-expandable": (gpt2_varied, 8192, "expandable_segments:True", {}),
    "gpt2-max-split": (gpt2_varied, 8192, "max_split_size_mb:21", {}),
    "gpt2-power2": (gpt2_varied, 8192, "roundup_power2_divisions:[16:4,>:2]", {}),
    "gpt2-collect": (gpt2_varied, 600, "garbage_collection_threshold:0.5", {"fraction": 0.35}),
    "gpt2-history-started-late": (gpt2_step, 8192, "", {"late": True}),
    "gpt2-history-cut": (gpt2_step, 8192, "", {"entries": 300}),
    "gpt2-cpp-stacks": (gpt2_step, 8192, "", {"stacks": "all", "steps": 1, "layers": 1}),
    "gpt2-no-stacks": (gpt2_step, 8192, "", {"context": None}),
    "lora": (lora, 8192, "", {}),
    "evaluation-then-training": (evaluation_then_training, 8192, "", {}),
    "leak": (leak, 8192, "", {}),
    "checkpointed": (checkpointed, 8192, "", {}),
    "mixed-precision": (mixed_precision, 8192, "", {}),
    "fragmented-oom": (fragmented, 250, "", {}),
    "fragmented-expandable": (fragmented, 250, "expandable_segments:True", {}),
    "too-big-oom": (too_big, 150, "", {}),
    "backward-oom": (backward_fails, 330, "", {}),
    "backward-oom-expandable": (backward_fails, 330, "expandable_segments:True", {}),
    "optimizer-oom": (optimizer_fails, 190, "", {}),
    "fraction-oom": (backward_fails, 2048, "", {"fraction": 0.15}),
    "two-streams": (two_streams, 8192, "", {}),
    "memory-pool": (pool, 8192, "", {}),
    "cuda-graph": (cuda_graph, 8192, "", {}),
}


def shorten_names(snapshot):
    """File names of frames without this machine's folders: torch/... and scenarios.py."""
    here, wheel = os.path.dirname(os.path.abspath(__file__)) + "/", os.path.dirname(os.path.dirname(torch.__file__)) + "/"
    seen = set()

    def visit(frames):
        for frame in frames or ():
            if id(frame) in seen:
                continue
            seen.add(id(frame))
            name = frame["filename"]
            for prefix in (here, wheel, sys.base_prefix + "/"):
                name = name.removeprefix(prefix)
            frame["filename"] = name if not name.startswith("/") else os.path.basename(name)

    for segment in snapshot["segments"]:
        visit(segment.get("frames"))
        for block in segment["blocks"]:
            visit(block.get("frames"))
            for old in block.get("history", ()):
                visit(old.get("frames"))
    for trace in snapshot["device_traces"]:
        for event in trace:
            visit(event.get("frames"))


def record(options):
    arguments = dict(stacks=options.pop("stacks", "python"), max_entries=options.pop("entries", sys.maxsize))
    if "context" in options:
        arguments["context"] = options.pop("context")
    torch.cuda.memory._record_memory_history("all", **arguments)


def main():
    name, out = sys.argv[1], sys.argv[2]
    function, capacity, conf, options = SCENARIOS[name]
    options = dict(options)
    warnings.simplefilter("ignore")
    FAKE.fake_set_capacity(ctypes.c_uint64(capacity * MIB))
    fraction = options.pop("fraction", None)
    late = options.pop("late", False)
    if late:
        held = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda"), torch.empty(1000, device="cuda")
    record(options)
    if fraction:
        torch.cuda.set_per_process_memory_fraction(fraction)
    error = None
    result = None
    try:
        result = function(**options)
    except torch.cuda.OutOfMemoryError as caught:
        error = str(caught)
    gc.disable()  # snapshot and statistics of the same instant
    snapshot = torch.cuda.memory._snapshot()
    facts = {"torch": torch.__version__.split("+")[0], "conf": conf, "capacity_bytes": capacity * MIB, "fraction": fraction,
             "began_empty": not late and arguments_complete(snapshot), "events": len(snapshot["device_traces"][0]), "error": error,
             "stats": {key: value for key, value in torch.cuda.memory_stats().items()},
             "summary": torch.cuda.memory_summary(), "summary_abbreviated": torch.cuda.memory_summary(abbreviated=True)}
    shorten_names(snapshot)
    with gzip.GzipFile(os.path.join(out, name + ".pickle.gz"), "wb", 9, mtime=0) as file:
        pickle.dump(snapshot, file)
    with open(os.path.join(out, name + ".json"), "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=1)
        file.write("\n")
    del result


def arguments_complete(snapshot):
    """Whether the trace has everything since the allocator was empty: it begins with taking a segment."""
    trace = snapshot["device_traces"][0]
    return bool(trace) and trace[0]["action"] in ("segment_alloc", "segment_map")


if __name__ == "__main__":
    main()
