#!/usr/bin/env python3
"""PyTorch's side of train.py: the same jobs by plain modules, eager and compiled, on the card's PyTorch (its version is told).

    bench/gpu/torch_side.py OUT JOB        leaves OUT/torch-JOB.json; JOB: gpt2-124m, gpt2-1558m, llama-3-8b
    bench/gpu/torch_side.py OUT --rehearse  a small job on the CPU, through the same code

What is there of PyTorch's speed is used: scaled_dot_product_attention, fused AdamW, vocabularies padded to a multiple of 64, TF32 allowed, and
torch.compile. bf16 is autocast over fp32 weights; bf16-pure has everything in bf16, AdamW's moments too, and gradient checkpointing of each
block where the model does not fit without. Rows are halved where memory is short. Each way is a process of its own. MFU by train.py's formula."""

import argparse
import json
import subprocess
import sys
import time

import card

# family, layers, width, heads, kv heads, mlp, vocabulary, rows, sequence, precision
JOBS = {
    "gpt2-124m": ("gpt2", 12, 768, 12, 12, 3072, 50304, 64, 1024, "bf16"),
    "gpt2-1558m": ("gpt2", 48, 1600, 25, 25, 6400, 50304, 16, 1024, "bf16"),
    "llama-3-8b": ("llama", 32, 4096, 32, 8, 14336, 128256, 4, 4096, "bf16-pure"),
    "host-bf16": ("gpt2", 12, 768, 12, 12, 3072, 50304, 4, 256, "bf16"),  # of host.py, on the processor
    "host-fp32": ("gpt2", 12, 768, 12, 12, 3072, 50304, 4, 256, "fp32"),
    "tiny": ("llama", 2, 64, 4, 2, 128, 320, 4, 32, "bf16-pure"),
    "tiny-gpt2": ("gpt2", 2, 64, 4, 4, 256, 320, 4, 32, "bf16"),
}
CARD_JOBS = ["gpt2-124m", "gpt2-1558m", "llama-3-8b"]
WARMUP = 3


def child(name, mode, rows, steps, checkpointing, device):
    """Trains; a line of JSON says how fast."""
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    family, layers, width, heads, kv_heads, mlp, vocabulary, _, sequence, precision = JOBS[name]
    size = width // heads
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high" if device == "cuda" else "highest")

    def turn(x, cosines, sines):
        low, high = x.chunk(2, -1)
        return torch.cat((low * cosines - high * sines, high * cosines + low * sines), -1).type_as(x)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            bias = family == "gpt2"
            norm = nn.LayerNorm if bias else nn.RMSNorm
            self.norm1, self.norm2 = norm(width), norm(width)
            self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * size, bias=bias)
            self.out = nn.Linear(width, width, bias=bias)
            self.up = nn.Linear(width, mlp * (1 if bias else 2), bias=bias)
            self.down = nn.Linear(mlp, width, bias=bias)

        def forward(self, x, cosines, sines):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).split((heads * size, kv_heads * size, kv_heads * size), -1)
            q, k, v = (y.view(b, t, -1, size).transpose(1, 2) for y in (q, k, v))
            if family == "llama":
                q, k = turn(q, cosines, sines), turn(k, cosines, sines)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, width))
            h = self.up(self.norm2(x))
            if family == "gpt2":
                return x + self.down(F.gelu(h, approximate="tanh"))
            gate, up = h.chunk(2, -1)
            return x + self.down(F.silu(gate) * up)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(vocabulary, width)
            self.positions = nn.Embedding(sequence, width) if family == "gpt2" else None
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(width) if family == "gpt2" else nn.RMSNorm(width)
            self.head = nn.Linear(width, vocabulary, bias=False)
            if family == "gpt2":
                self.head.weight = self.embed.weight
            angles = torch.outer(torch.arange(sequence).float(), 500000.0 ** (-torch.arange(0, size, 2) / size))
            self.register_buffer("cosines", angles.cos(), persistent=False)
            self.register_buffer("sines", angles.sin(), persistent=False)

        def forward(self, ids, labels):
            x = self.embed(ids)
            if self.positions is not None:
                x = x + self.positions.weight
            for block in self.blocks:
                x = checkpoint(block, x, self.cosines, self.sines, use_reentrant=False) if checkpointing else block(x, self.cosines, self.sines)
            return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())

    dtype = torch.bfloat16 if precision == "bf16-pure" else torch.float32
    torch.set_default_dtype(dtype)
    with torch.device(device):
        model = Model()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.02) if parameter.dim() > 1 else None
    torch.set_default_dtype(torch.float32)
    forward = torch.compile(model) if mode == "compile" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def step():
        ids = torch.randint(0, vocabulary, (rows, sequence + 1), device=device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = forward(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    seconds = []
    warmup = WARMUP if device == "cuda" else 1
    for number in range(warmup + steps):
        wait()
        begin = time.perf_counter()
        loss = step()
        wait()
        if number >= warmup:
            seconds.append(time.perf_counter() - begin)
    found = {"version": torch.__version__, "step_seconds": seconds, "loss": loss.item(),
             "parameter_count": sum(p.numel() for p in model.parameters())}
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        found |= {"allocated_most_bytes": torch.cuda.max_memory_allocated(), "reserved_most_bytes": torch.cuda.max_memory_reserved(),
                  "used_bytes": total - free}
    print(json.dumps(found))


def one(name, mode, steps, device, limit):
    """With checkpointing, and then with fewer rows, where memory is short."""
    _, layers, width, *_, rows, sequence, _ = JOBS[name]
    tried, checkpointing = [], False
    while rows >= 1:
        command = [sys.executable, __file__, "--child", json.dumps([name, mode, rows, steps, checkpointing, device]), "."]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return {"failed": f"not done in {limit:.0f} s", "tried": tried}
        if done.returncode == 0:
            found = json.loads(done.stdout.splitlines()[-1])
            seconds = card.middle(found["step_seconds"])
            flops = card.flops_per_token(found["parameter_count"], layers, width, sequence)
            return {**found, "rows": rows, "sequence": sequence, "checkpointing": checkpointing, "median_step_seconds": seconds, "tried": tried,
                    "tokens_per_second": rows * sequence / seconds, "mfu": rows * sequence / seconds * flops / 989e12}
        said = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        tried.append({"rows": rows, "checkpointing": checkpointing, "failed": said[:300]})
        if "out of memory" not in done.stderr:
            return {"failed": said, "tried": tried}
        if name == "llama-3-8b" and not checkpointing:
            checkpointing = True
        else:
            rows //= 2
    return {"failed": "out of memory with one row", "tried": tried}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("job", nargs="?", choices=CARD_JOBS)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=390)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--child")
    arguments = parser.parse_args()
    if arguments.child:
        return child(*json.loads(arguments.child))
    if not arguments.rehearse and not arguments.job:
        parser.error("which job? " + ", ".join(CARD_JOBS))
    document = {"card": None if arguments.rehearse else card.need_card(), "sides": {}}
    end, bad = time.perf_counter() + arguments.seconds, 0
    for name in ("tiny", "tiny-gpt2") if arguments.rehearse else (arguments.job,):
        for mode in ("eager", "compile"):
            found = one(name, mode, arguments.steps, "cpu" if arguments.rehearse else "cuda", max(5, end - time.perf_counter()))
            document["sides"][f"{name} {mode}"] = found
            bad += "failed" in found
            card.write(arguments.out, f"torch-{'rehearsal' if arguments.rehearse else name}", document)
            card.say(f"PyTorch {name} {mode}: " + (found.get("failed") or f"{found['rows']} x {found['sequence']}, {found['tokens_per_second']:.0f} tokens/s, "
                                                   f"MFU {100 * found['mfu']:.1f} %, {found.get('used_bytes', 0) / 2**30:.2f} GiB"))
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
