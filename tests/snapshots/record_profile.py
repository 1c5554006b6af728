"""Records what PyTorch's own code makes of a profile, and what must be found in it: read/torch-profiler.pickle.gz (the
snapshot that _memory_viz makes), read/torch-trace.json.gz (export_chrome_trace) and read/torch-timeline.json.gz
(export_memory_timeline, the raw form). Needs PyTorch (2.13 made the files); a CPU will do.

    python tests/snapshots/record_profile.py
"""
import collections
import gzip
import json
import math
import pathlib
import pickle
import tempfile

import torch
from torch.cuda._memory_viz import _profile_to_snapshot
from torch.profiler import ProfilerActivity, profile

import read


def frame(name):
    return {"name": name, "filename": "none", "line": 0}


def of_trace(doc):
    """A Chrome trace as a snapshot, the slow and plain way."""
    base = doc["baseTimeNanoseconds"] / 1000
    us = lambda t: math.floor(t + base + 0.5)
    slices = [(e["ts"], -(e["ts"] + e["dur"]), k, e) for k, e in enumerate(doc["traceEvents"])
              if e["ph"] == "X" and "dur" in e and e.get("cat") != "Trace"]
    slices.sort(key=lambda s: s[:3])
    moments = sorted((e for e in doc["traceEvents"] if e["name"] == "[memory]"), key=lambda e: (e["ts"], e["args"]["Ev Idx"]))
    trace, live, total = [], {}, None
    for e in moments:
        a = e["args"]
        assert a["Device Type"] == 0
        stack = [frame(s["name"]) for start, end, _, s in reversed(slices) if start <= e["ts"] <= -end and s["tid"] == e["tid"]]
        event = {"addr": a["Addr"], "size": abs(a["Bytes"]), "stream": 0, "time_us": us(e["ts"]), "frames": stack}
        trace += [event | {"action": action} for action in (["alloc"] if a["Bytes"] > 0 else ["free_requested", "free_completed"])]
        # PyTorch's own totals, held against the sum
        total = a["Total Allocated"] if total is None else total + a["Bytes"]
        assert total == a["Total Allocated"]
    freed = {}
    for e in trace:
        freed.setdefault(e["addr"], e["size"] if e["action"] != "alloc" else 0)
    first = moments[0]["args"]
    rest = first["Total Allocated"] - first["Bytes"] - sum(freed.values())
    assert rest <= 0, "nothing else was live before"
    marks = [{"name": e["name"], "stage": stage, "device": -1, "time_us": us(t)} for _, _, _, e in sorted(slices, key=lambda s: s[2])
             if e.get("cat") == "user_annotation" for stage, t in (("START", e["ts"]), ("END", e["ts"] + e["dur"]))]
    return {"device_traces": [trace], "external_annotations": marks}


def of_timeline(rows, totals):
    """A raw timeline as a snapshot: what goes is the last of its size and category. Its sums are held against the profiler's."""
    names = ["parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail", ""]
    live, at, trace, sums, series = collections.defaultdict(list), 4096, [], [0] * 8, {}
    first = min(t for t, *_ in rows if t > 0)
    for t, _, size, category in rows:
        event = {"size": abs(size), "stream": 0}
        if t >= 0:
            event["time_us"] = t // 1000
        sums[category] += size
        series[int((t if t > 0 else first) / 1000)] = list(sums)  # as the profiler rounds
        if size > 0:
            live[size, category].append(at)
            trace.append(event | {"action": "alloc", "addr": at} | ({"category": names[category]} if names[category] else {}))
            at += (size // 4096 + 2) * 4096
        elif size < 0:
            addr = live[-size, category].pop()
            trace += [event | {"action": action, "addr": addr} for action in ("free_requested", "free_completed")]
    assert series == {t: list(s[1:]) for t, s in zip(*totals)}
    return {"device_traces": [trace, []]}


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.randn(16, 64), torch.randint(0, 10, (16,))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True) as p:
        for _ in range(2):
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            p.step()
    snapshot = _profile_to_snapshot(p)
    read.write("torch-profiler.pickle.gz", gzip.compress(pickle.dumps(snapshot, protocol=4), mtime=0), read.expect(snapshot, "pytorch-profiler"))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        p.export_chrome_trace(str(path / "trace.json"))
        p.export_memory_timeline(str(path / "all.raw.json.gz"), device="cpu")
        p.export_memory_timeline(str(path / "totals.json"), device="cpu")
        trace, rows = (path / "trace.json").read_bytes(), gzip.decompress((path / "all.raw.json.gz").read_bytes())
        totals = json.loads((path / "totals.json").read_bytes())
    read.write("torch-trace.json.gz", gzip.compress(trace, mtime=0), read.expect(of_trace(json.loads(trace)), "pytorch-profiler"))
    wanted = read.expect(of_timeline(json.loads(rows), totals), "pytorch-profiler").removesuffix("trace -1 0\n")
    read.write("torch-timeline.json.gz", gzip.compress(rows, mtime=0), wanted)


if __name__ == "__main__":
    main()
