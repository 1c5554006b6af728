#!/usr/bin/env python3
"""Holds the snapshots that Headroom writes against Python's pickle module and PyTorch's own tools (torch.cuda._memory_viz).

    build/venv/bin/python tests/snapshots/check_viz.py [--program build/release/bench_snapshot_write] [FILE...]

Each FILE (a pickled snapshot; without any: those under tests/snapshots, snapshots of every PyTorch version made here, one
of PyTorch's profiler, and random ones made by the program) is rewritten by the program as pickle of protocols 2, 3 and 4,
as gzip, and as JSON. Then, for each of them:
  * pickle.load gives the same as it does for FILE, in all fields that are kept, and json.load the same again;
  * pickletools finds no opcode that the viewer does not know, and no protocol but the one asked for;
  * stats, trace, segments, memory and compare print the same text for both, and the plots embed what can be unpickled.
"""

import argparse
import base64
import contextlib
import copy
import gzip
import io
import json
import pathlib
import pickle
import pickletools
import random
import re
import subprocess
import sys
import tempfile

import torch
from torch.cuda import _memory_viz

HERE = pathlib.Path(__file__).resolve().parent
OPCODES = set("EMPTY_DICT EMPTY_LIST EMPTY_TUPLE MARK SETITEM SETITEMS APPEND APPENDS SHORT_BINUNICODE BINUNICODE BININT BININT1 "
              "BININT2 LONG1 BINFLOAT NONE NEWTRUE NEWFALSE MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET TUPLE TUPLE1 TUPLE2 "
              "TUPLE3 FRAME PROTO STOP".split())
ACTIONS = set("alloc free_requested free_completed segment_alloc segment_free segment_map segment_unmap snapshot oom".split())
MADE_TO_BE_ODD = ("broken", "bytes", "odd-", "profiler")  # what Python's tools or the plain rules here cannot take
VERSIONS = ("2.0", "2.0 segments", "2.1", "2.2", "2.4", "2.8", "2.10", "2026")

# ---- what is kept, in one form for all versions ----


def signed(address):
    """As the writer has addresses: those of some devices are at the top of the 64 bits."""
    return address - 2**64 if address and address >= 2**63 else address or 0


def frames_of(frames):
    return [{"name": f["name"], "filename": f["filename"], "line": f["line"]} for f in frames or []]


def block_of(block, address):
    history = block.get("history") or [{}]
    active = block["state"] != "inactive"
    requested = block.get("requested_size", history[0].get("real_size", block["size"]))
    out = {"address": address, "size": block["size"], "requested_size": requested if active else 0,
           "state": "active_pending_free" if block["state"] == "active_awaiting_free" else block["state"]}
    if "category" in block:
        out["category"] = block["category"]
    out["frames"] = frames_of(block.get("frames", history[0].get("frames")))
    return out


def segment_of(segment):
    address, blocks = signed(segment["address"]), []
    for block in segment["blocks"]:
        blocks.append(block_of(block, address))
        address += block["size"]
    active = [b for b in blocks if b["state"] != "inactive"]
    return {"device": segment.get("device", 0), "address": blocks[0]["address"], "total_size": segment["total_size"],
            "allocated_size": sum(b["size"] for b in active if b["state"] == "active_allocated"),
            "active_size": sum(b["size"] for b in active), "requested_size": sum(b["requested_size"] for b in active),
            "stream": signed(segment["stream"]), "segment_type": segment.get("segment_type", "large"),
            "segment_pool_id": list(segment.get("segment_pool_id", (0, 0))), "is_expandable": segment.get("is_expandable", False),
            "frames": frames_of(segment.get("frames")), "blocks": blocks}


def text_of_value(value):
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def event_of(event):
    """In the order of the writer, since `trace` prints some events as they are."""
    out = {"action": event["action"] if event["action"] in ACTIONS else "other"}
    key = "device_free" if event["action"] == "oom" else "addr"
    out[key] = signed(event[key])
    out["size"], out["stream"] = event["size"], signed(event.get("stream", 0))
    if "time_us" in event:
        out["time_us"] = event["time_us"]
    if event.get("user_metadata"):
        out["user_metadata"] = text_of_value(event["user_metadata"])
    elif event.get("compile_context") and event["compile_context"] != "N/A":
        out["compile_context"] = event["compile_context"]
    if list(event.get("pool_id", (0, 0))) != [0, 0]:
        out["pool_id"] = list(event["pool_id"])
    if "category" in event:
        out["category"] = event["category"]
    if event.get("frames"):
        out["frames"] = frames_of(event["frames"])
    return out


def settings_of(settings):
    keys = ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size", "garbage_collection_threshold", "expandable_segments")
    out = {key: settings.get(key, default) for key, default in zip(keys, ("", -1, 0.0, False))}
    if out["max_split_size"] >= 2**63 - 1:
        out["max_split_size"] = -1  # unlimited, in both forms
    divisions = settings.get("roundup_power2_divisions") or {}
    out["roundup_power2_divisions"] = {str(1 << k): divisions.get(str(1 << k), 0) for k in range(16)}
    return out


def kept(data):
    if isinstance(data, list):
        data = {"segments": data, "device_traces": []}
    out = {"segments": sorted((segment_of(s) for s in data["segments"]), key=lambda s: (s["device"], s["address"])),
           "device_traces": [[event_of(e) for e in trace] for trace in data.get("device_traces", [])]}
    if data.get("allocator_settings"):
        out["allocator_settings"] = settings_of(data["allocator_settings"])
    annotations = [{key: a[key] for key in ("name", "stage", "device", "time_us")} for a in data.get("external_annotations", [])]
    out["external_annotations"] = sorted(annotations, key=lambda a: a["time_us"])
    return out


def without_added(ours, source):
    """Drops what the category rule adds: the category of one event, or one event more."""
    for mine, theirs in zip(ours["device_traces"], source["device_traces"]):
        if len(mine) == len(theirs) + 1 and mine[-1].get("category") == "unknown":
            mine.pop()
        for a, b in zip(mine, theirs):
            if a.get("category") == "unknown" and "category" not in b:
                del a["category"]
    for traces in (ours["device_traces"], source["device_traces"]):
        while traces and not traces[-1]:
            traces.pop()  # a device without events may have a place or none
    return ours


# ---- PyTorch's tools ----


def plain(lines):
    return lines


def text_of(data):
    """Everything that the tools print, by name. Sizes are of the whole, so equal texts mean equal totals."""
    out = {"stats": _memory_viz.segsum(data), "trace": _memory_viz.trace(data),
           "segments": _memory_viz.segments(data, format_flamegraph=plain), "memory": _memory_viz.memory(data, format_flamegraph=plain)}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        half = data["segments"][: len(data["segments"]) // 2]
        out["compare"] = _memory_viz.compare(half, data["segments"], format_flamegraph=plain)
    out["compare"] += printed.getvalue()
    return out


def check_plots(data, name):
    plots = [_memory_viz.trace_plot(copy.deepcopy(data)), _memory_viz.trace_plot(copy.deepcopy(data), plot_segments=True),
             _memory_viz.segment_plot(copy.deepcopy(data))]
    for html in plots:
        embedded = base64.b64decode(re.search(r'"base64": "([^"]*)"', html)[1])
        assert pickle.loads(embedded) == data, f"{name}: a plot embeds something else"
    with contextlib.redirect_stdout(io.StringIO()):  # it tells of frees whose request the trace has lost
        _memory_viz.trace_plot(copy.deepcopy(data), filter_freed=True)


def check_opcodes(raw, protocol, name):
    for opcode, argument, position in pickletools.genops(raw):
        assert opcode.name in OPCODES, f"{name}: {opcode.name} at byte {position}"
        assert opcode.proto <= protocol, f"{name}: {opcode.name} at byte {position} is of protocol {opcode.proto}"
        if opcode.name == "LONG1":
            assert abs(argument) < 2**53, f"{name}: {argument} at byte {position}"
        if opcode.name == "PROTO":
            assert argument == protocol, f"{name}: protocol {argument}"
    pickletools.dis(raw, out=io.StringIO())  # checks the stack and the memo


def check_categories(data, name):
    stated = [e["category"] for trace in data["device_traces"] for e in trace if "category" in e]
    assert not stated or "unknown" in stated, f"{name}: the viewer would throw"


# ---- snapshots of every version ----


def make(version, seed):
    """What a process that allocates and frees at random leaves, with the keys that this version has."""
    choose, rank = random.Random(seed), VERSIONS.index(version)
    frames = [{"name": f"f{k}", "filename": f"/src/module{k % 5}.py", "line": k} for k in range(40)]
    stacks = [[frames[choose.randrange(40)] for _ in range(choose.randrange(1, 12))] for _ in range(25)]
    trace, segments, time = [], [], 1_760_000_000_000_000

    def event(action, address, size, stack=None):
        nonlocal time
        time += choose.randrange(50)
        entry = {"action": action, "device_free" if action == "oom" else "addr": address, "size": size, "stream": 0}
        if rank >= 3:
            entry["time_us"] = time
        if rank >= 5:
            entry["compile_context"] = choose.choice(["", "N/A", "1/0"])
        if rank >= 6:
            entry["user_metadata"] = choose.choice(["", "", "epoch 1"])
        if rank >= 7:
            entry["pool_id"] = choose.choice([(0, 0), (0, 0), (0, 3)])
        if stack is not None:
            entry["frames"] = list(stack)
        trace.append(entry)

    for index in range(12):
        address = 0x7F5E00000000 + (index << 26)
        sizes = [512 * choose.randrange(1, 3000) for _ in range(choose.randrange(1, 15))]
        event("segment_map" if rank >= 2 and index % 4 == 3 else "segment_alloc", address, sum(sizes), stacks[0])
        blocks, at = [], address
        for size in sizes:
            stack, requested = choose.choice(stacks), size - choose.randrange(512)
            state = choose.choice(["active_allocated", "active_allocated", "inactive", "active_pending_free"])
            for _ in range(choose.randrange(3)):
                event("alloc", at, requested, choose.choice(stacks))
                event("free_requested", at, requested)
                event("free_completed", at, requested)
            if state != "inactive":
                event("alloc", at, requested, stack)
            if state == "active_pending_free":
                event("free_requested", at, requested)
            block = {"address": at, "size": size, "requested_size": requested if state != "inactive" else 0, "state": state,
                     "frames": list(stack) if state != "inactive" else []}
            if rank <= 1:
                del block["address"], block["frames"]
                block["state"] = "active_awaiting_free" if state == "active_pending_free" else state
                if state != "inactive":
                    block["history"] = [{"addr": at, "real_size": requested, "frames": list(stack)}]
            blocks.append(block)
            at += size
        active = [b for b in blocks if b["state"] != "inactive"]
        segment = {"device": index % 2, "address": address, "total_size": sum(sizes),
                   "allocated_size": sum(b["size"] for b in active if b["state"] == "active_allocated"),
                   "active_size": sum(b["size"] for b in active), "requested_size": sum(b["requested_size"] for b in active),
                   "stream": 0, "segment_type": choose.choice(["small", "large"]), "blocks": blocks}
        if rank >= 2:
            segment |= {"segment_pool_id": (0, index % 3), "is_expandable": index % 4 == 3, "frames": []}
        segments.append(segment)
    event("oom", 123456789, 20 << 20)
    event("snapshot", 0, 1 << 30)
    if version == "2.0 segments":
        return segments
    data = {"segments": segments, "device_traces": [trace, []]}
    if rank >= 4:
        data["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "max_split_size": 64 << 20,
                                      "garbage_collection_threshold": 0.8, "expandable_segments": False,
                                      "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": False,
                                      "pinned_use_cuda_host_register": False,
                                      "roundup_power2_divisions": {str(1 << k): 4 if k == 8 else 0 for k in range(16)}}
    if rank >= 5:
        data["external_annotations"] = [{"name": "ProfilerStep#1", "stage": s, "device": 0, "time_us": t}
                                        for s, t in (("START", time - 500), ("END", time))]
    return data


def make_by_profiler():
    """What PyTorch makes of its profiler's events: categories, the CPU as a device, neither times nor pools."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters())
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True, record_shapes=True, with_stack=True) as profile:
        for _ in range(3):
            model(torch.randn(32, 64)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return _memory_viz._profile_to_snapshot(profile)


# ---- the whole ----


def rewrite(program, *words):
    subprocess.run([program, *map(str, words)], check=True)


def load(path):
    raw = path.read_bytes()
    return pickle.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)


def check(program, path, folder):
    source, out = kept(load(path)), folder / "out.pickle"
    expected = text_of(source)
    for protocol in (2, 3, 4):
        rewrite(program, "rewrite", path, out, protocol)
        raw = out.read_bytes()
        check_opcodes(raw, protocol, path.name)
        data = pickle.loads(raw)
        check_categories(data, path.name)
        ours = without_added(kept(data), source)
        for key in source:
            assert ours.get(key) == source[key], f"{path.name}: '{key}' differs in protocol {protocol}: {difference(ours.get(key), source[key])}"
        for tool, text in text_of(ours).items():
            assert text == expected[tool], f"{path.name}: '{tool}' prints something else"
        text_of(data)  # and as it is
    check_plots(data, path.name)
    rewrite(program, "rewrite", path, folder / "out.pickle.gz")
    assert load(folder / "out.pickle.gz") == data, f"{path.name}: gzip holds something else"
    rewrite(program, "json", path, folder / "out.json")
    assert json.loads((folder / "out.json").read_text()) == json.loads(json.dumps(data)), f"{path.name}: JSON holds something else"
    return sum(map(len, source["device_traces"]))


def difference(ours, theirs, where=""):
    """The first place where two values differ."""
    if type(ours) is type(theirs) and isinstance(ours, dict):
        for key in theirs.keys() | ours.keys():
            if ours.get(key) != theirs.get(key):
                return difference(ours.get(key), theirs.get(key), f"{where}.{key}")
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (a, b) in enumerate(zip(ours, theirs)):
            if a != b:
                return difference(a, b, f"{where}[{index}]")
    return f"{where}: {str(ours)[:200]} is not {str(theirs)[:200]}"


def recorded():
    found = (p for p in HERE.rglob("*") if p.name.endswith((".pickle", ".pickle.gz")) and not p.name.startswith(MADE_TO_BE_ODD))
    return sorted(found)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--program", type=pathlib.Path, default=HERE.parents[1] / "build/release/bench_snapshot_write")
    arguments.add_argument("files", nargs="*", type=pathlib.Path)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, files = pathlib.Path(name), options.files or recorded()
        count = len(files)
        if not options.files:
            for version in VERSIONS:
                for seed in range(4):
                    files.append(folder / f"{version}-{seed}.pickle".replace(" ", "-"))
                    files[-1].write_bytes(pickle.dumps(make(version, seed), protocol=2 + seed))
            files.append(folder / "profiler.pickle")
            files[-1].write_bytes(pickle.dumps(make_by_profiler()))
            for seed in range(24):
                files.append(folder / f"made-{seed}.pickle")
                rewrite(options.program, "make", seed, 400 if seed else 0, files[-1], 2 + seed % 3)
        events = sum(check(options.program, path, folder) for path in files)
    print(f"{len(files)} snapshots ({count} recorded), {events} events: pickle, JSON and PyTorch's tools agree")


if __name__ == "__main__":
    sys.exit(main())
