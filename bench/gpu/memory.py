#!/usr/bin/env python3
"""What `plan --engine pytorch` says, beside PyTorch on a card: the referee of the recordings that taught its rules.

    bench/gpu/memory.py OUT [NAME...]           24 jobs of tests/memory, or those named; leaves OUT/memory.json
    bench/gpu/memory.py OUT --rehearse FOLDER   the same by the fake device of `./dev parity memory FOLDER`: the recorded bytes again

The programs are tests/memory's own, in a process each, with the PyTorch, transformers, PEFT and bitsandbytes that are there (build/card/python,
where `pip install --target build/card/python transformers accelerate peft bitsandbytes` has put them, comes first; versions are told). Of each
job: max_memory_allocated and max_memory_reserved over loading and two steps, what the driver says is in use behind them without what was
before, and the plan's three figures. Where cuDNN's attention would be preferred (9.0 and later) it is put behind the others, as in the
recordings."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import card

ROOT = card.ROOT
JOBS, WANTED, SHARE = ROOT / "tests/memory", 24, 0.8  # of the card's bytes: a job's need, and some room
HOST_BYTES = 16 << 30                                 # the largest model is made there


# ---- the child: one job ----

def fill(model):
    """Weights that make no NaN: what they are decides no byte, but whether a step is taken does."""
    import torch

    for tensor in model.parameters():
        if tensor.dtype in (torch.float32, torch.bfloat16, torch.float16):
            tensor.data.normal_(0, 0.01)
    return model


def in_use():
    """Bytes of the device that are taken, by whomever."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return total - free


def child(job, before, fake):
    sys.path[:0] = [str(JOBS), *([str(card.PACK / "python")] if not fake else [])]
    import torch

    if fake:
        import serve

        _, _, phases, _ = serve.prepared(job)
    else:
        import tracing
        import training

        plain, tracing.mark = training.build, lambda _: None
        training.build = lambda job: fill(plain(job))
        phases = tracing.Phases()
        training.run(job, phases)
    rows = [row for row in phases.merged() if row["step"] <= 2]
    found = {"allocated_bytes": max(row["allocated_peak"] for row in rows), "reserved_bytes": max(row["reserved_peak"] for row in rows)}
    if not fake:
        found["device_used_bytes"] = in_use() - before
    print(json.dumps(dict(found, versions=versions(torch))))


def versions(torch):
    from importlib.metadata import PackageNotFoundError, version

    found = {"torch": torch.__version__}
    for name in ("transformers", "accelerate", "peft", "bitsandbytes"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            pass
    return found


# ---- the jobs ----

def estimators():
    """bench/estimators.py: the recorded jobs, and their words on our command line. Its neighbour peft.py must not hide the package."""
    sys.path.append(str(ROOT / "bench"))
    import estimators as module

    sys.path.remove(str(ROOT / "bench"))
    return module


def kind(job):
    """Settings of which one job is enough before a second is taken."""
    return (job["model"].split("-")[0], job["precision"], job["optimizer"], job["loop"], job["attention"], job.get("quantized"), bool(job["lora"]),
            bool(job["checkpointing"]), job["mask"] == "padding")


def chosen(names, most_bytes):
    """Jobs of the newest transformers that options of ours can say, of as many kinds as there are: each next one is the one with the most
    settings that none before it has; the smaller one of two."""
    words, jobs = estimators(), []
    for job, peak, _ in words.recorded():
        if names and job["name"] not in names:
            continue
        if not job["transformers"].startswith("5.") or job["loop"] == "trl" or job.get("saving") or job.get("evaluation"):
            continue
        if peak > most_bytes or not words.headroom_words(job):
            continue
        jobs.append((job, peak))
    seen, found = set(), []
    while jobs and len(found) < (len(names) or WANTED):
        best = max(jobs, key=lambda pair: (len(set(enumerate(kind(pair[0]))) - seen), -pair[1]))
        jobs.remove(best)
        seen |= set(enumerate(kind(best[0])))
        found.append(best[0])
    return found


def planned(job, device):
    """Of the plan for this very card; a rehearsal keeps the job's."""
    words = estimators().headroom_words(job)
    if device:
        words[words.index("--device") + 1] = device
    program = card.PACK / "headroom" if (card.PACK / "headroom").exists() else ROOT / "build/release/headroom"
    done = subprocess.run([program, "plan", *words, "--json", "--no-fixes"], capture_output=True, text=True, env=card.environment(), check=False)
    if done.returncode not in (0, 3):
        return {"failed": done.stderr.strip()}
    answer = json.loads(done.stdout)["engines"]["pytorch"]
    return {key: answer[key] for key in ("allocated_bytes", "reserved_bytes", "device_used_bytes", "context_bytes", "error_low", "error_high")}


def measured(job, fake, limit):
    environment, python, before = dict(os.environ, CUDA_VISIBLE_DEVICES="0", TORCH_CUDNN_SDPA_DEPRIORITIZED="1", HF_HUB_OFFLINE="1"), sys.executable, 0
    if fake:
        python = str(fake / "venv/bin/python")
        environment |= {"LD_LIBRARY_PATH": str(fake / "fake"), "PYTORCH_ALLOC_CONF": ""}
    else:
        before = (int(card.query(["memory.used"])[0]) << 20) if card.query(["memory.used"]) else 0
    words = [python, __file__, "-", "--child", json.dumps(job), "--before", str(before), *(["--rehearse", str(fake)] if fake else [])]
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"not over after {limit:.0f} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if done.returncode == 0 and lines else {"failed": (done.stderr.strip() or f"ended with {done.returncode}")[-600:]}


def off(ours, theirs, key):
    return ours[key] / theirs[key] - 1


def summary(jobs):
    """Errors in percent of what was measured, by figure."""
    found = {}
    for key in ("allocated_bytes", "reserved_bytes", "device_used_bytes"):
        errors = [100 * off(job["planned"], job["measured"], key) for job in jobs.values()
                  if key in job["measured"] and key in job["planned"]]
        if errors:
            found[key] = {"jobs": len(errors), "median_percent": statistics.median(errors), "worst_percent": max(errors, key=abs),
                          "within_3_percent": sum(abs(e) <= 3 for e in errors)}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rehearse", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--before", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    if options.child:
        child(json.loads(options.child), options.before, options.rehearse)
        return 0
    end, fake = time.perf_counter() + options.seconds, options.rehearse and options.rehearse.absolute()
    document = {"card": None if fake else card.need_card(), "jobs": {}}
    most = 12 << 30 if fake else int(SHARE * int(document["card"]["memory.total"]) * (1 << 20))
    capability = None if fake else card.query(["compute_cap"])
    bad = 0
    for job in chosen(options.names, min(most, HOST_BYTES)):
        left = end - time.perf_counter()
        if left < 20:
            document["jobs"][job["name"]] = {"measured": {"failed": "not run: no time was left"}, "planned": {}}
            continue
        if capability:
            job = dict(job, capability=capability[0])
        entry = {"measured": measured(job, fake, min(left, 180)), "planned": planned(job, None if fake else options.device)}
        document["jobs"][job["name"]] = entry
        failed = entry["measured"].get("failed") or entry["planned"].get("failed")
        bad += bool(failed)
        card.say(f"{job['name']}: " + (failed or f"allocated {100 * off(entry['planned'], entry['measured'], 'allocated_bytes'):+.2f} %, "
                                                 f"reserved {100 * off(entry['planned'], entry['measured'], 'reserved_bytes'):+.2f} %"))
        document["summary"] = summary(document["jobs"])
        card.write(options.out, "memory", document)
    print(json.dumps(document.get("summary", {}), indent=1))
    return 1 if bad or not document["jobs"] else 0


if __name__ == "__main__":
    sys.exit(main())
