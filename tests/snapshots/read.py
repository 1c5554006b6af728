"""Snapshots of every version and notation, and what a reader must find in them: writes read/NAME.pickle (.gz, .json) and
read/NAME.txt (.gz) beside this file. Needs nothing but Python.

    python3 tests/snapshots/read.py

The text is made from the Python objects, not from the pickles; unpickling each file must give the objects back. Layouts
follow torch/csrc/cuda/Module.cpp and memory_snapshot.cpp of the version that a case is named after.
"""
import gzip
import json
import pathlib
import pickle
import struct

HERE = pathlib.Path(__file__).parent / "read"
T0 = 1_700_000_000_000_000


# ---- TorchScript's pickler: protocol 2, no batches, containers memoized after they are complete ----

class Cpp:
    def __init__(self, memoize=()):
        self.out = bytearray(b"\x80\x02")
        self.memo = {}
        self.shared = {id(x) for x in memoize}  # objects with more than one owner
        self.next = 0

    def put(self, key):
        self.memo[key] = self.next
        self.out += b"q" + bytes([self.next]) if self.next < 256 else b"r" + struct.pack("<I", self.next)
        self.next += 1

    def get(self, slot):
        self.out += b"h" + bytes([slot]) if slot < 256 else b"j" + struct.pack("<I", slot)

    def integer(self, v):
        if v >= 1 << 63:
            v -= 1 << 64  # int64_t of a pointer
        if 0 <= v < 256:
            self.out += b"K" + bytes([v])
        elif 0 <= v < 65536:
            self.out += b"M" + struct.pack("<H", v)
        elif -(1 << 31) <= v < 1 << 31:
            self.out += b"J" + struct.pack("<i", v)
        else:
            self.out += b"\x8a\x08" + struct.pack("<q", v)

    def value(self, v):
        if v is None:
            self.out += b"N"
        elif v is True or v is False:
            self.out += b"\x88" if v else b"\x89"
        elif isinstance(v, int):
            self.integer(v)
        elif isinstance(v, float):
            self.out += b"G" + struct.pack(">d", v)
        elif isinstance(v, (str, bytes)):
            data = v.encode() if isinstance(v, str) else v
            if data in self.memo:
                return self.get(self.memo[data])
            self.out += b"X" + struct.pack("<I", len(data)) + data
            self.put(data)
        elif id(v) in self.memo:
            self.get(self.memo[id(v)])
        else:
            self.container(v)
            if id(v) in self.shared:
                self.put(id(v))

    def container(self, v):
        if isinstance(v, tuple):
            for item in v:
                self.value(item)
            self.out += b"\x86"
        elif isinstance(v, list):
            self.out += b"]("
            for item in v:
                self.value(item)
            self.out += b"e"
        else:
            self.out += b"}("
            for key, item in v.items():
                self.value(key)
                self.value(item)
            self.out += b"u"

    def dumps(self, v):
        self.value(v)
        return bytes(self.out + b".")


# ---- the expected text ----

STATES = {"active_allocated": "allocated", "active_pending_free": "pending", "active_awaiting_free": "pending", "inactive": "inactive"}
ACTIONS = "alloc free_requested free_completed segment_alloc segment_free segment_map segment_unmap snapshot oom".split()


def text(v):
    return v.decode("utf-8", "replace") if isinstance(v, bytes) else v or ""


def stack(frames):
    return ";".join(f"{text(f.get('name'))}@{text(f.get('filename'))}:{f.get('line') or 0}" for f in frames or [])


def note(e):
    metadata = e.get("user_metadata")
    if isinstance(metadata, dict):
        metadata = json.dumps(metadata, separators=(",", ":")) if metadata else ""
    if metadata:
        return "metadata " + text(metadata)
    context = e.get("compile_context")
    return "context " + text(context) if context and context != "N/A" else "-"


def pool(v):
    return f"{v[0]}:{v[1]}" if v else "0:0"


def event_line(e):
    action = e["action"] if e["action"] in ACTIONS else "other"
    addr = e.get("device_free") if e["action"] == "oom" else e.get("addr")
    time = e.get("time_us")
    known = "" if addr is not None or e["action"] == "oom" else " no-address"
    return (f"  {action} 0x{addr or 0:x} {e.get('size') or 0} stream 0x{e.get('stream') or 0:x} time {'-' if time is None else time} "
            f"pool {pool(e.get('pool_id'))} category '{e.get('category') or ''}' note {note(e)}{known} [{stack(e.get('frames'))}]")


def segment_lines(s, device):
    lines, at, blocks = [], s.get("address"), s.get("blocks") or []
    if at is None:
        at = blocks[0].get("address") if blocks else 0
    total = sum(b["size"] for b in blocks)
    large = s["segment_type"] == "large" if "segment_type" in s else s["total_size"] > 2 << 20
    active = [b for b in blocks if b["state"] != "inactive"]
    sums = [sum(b["size"] for b in active if b["state"] == "active_allocated"), sum(b["size"] for b in active), sum(map(requested, active))]
    lines.append(f"segment {device} 0x{at:x} {total} stream 0x{s.get('stream') or 0:x} {'large' if large else 'small'}"
                 f"{' expandable' if s.get('is_expandable') else ''} pool {pool(s.get('segment_pool_id'))} "
                 f"sums {sums[0]} {sums[1]} {sums[2]} [{stack(s.get('frames'))}]")
    for b in blocks:
        old = (b.get("history") or [{}])[0]
        lines.append(f"  block 0x{at:x} {b['size']} {STATES[b['state']]} {requested(b) if b in active else 0} "
                     f"category '{b.get('category') or ''}' [{stack(b.get('frames') or old.get('frames'))}]")
        at += b["size"]
    return lines


def requested(b):
    old = (b.get("history") or [{}])[0]
    return b.get("requested_size", old.get("real_size", b["size"]))


def expect(v, form, unknown=0, repaired=0):
    lines = [f"format {form}", f"unknown {unknown} repaired {repaired}"]
    if isinstance(v, list):
        v = {"segments": v}
    traces = [(k, t) for k, t in enumerate(v.get("device_traces", []))]
    cpu = len(traces) - 1 if form == "pytorch-profiler" else None
    traces = [(-1 if k == cpu else k, t) for k, t in traces] + [(-1, t) for t in v.get("host_traces", []) if t]
    for device, trace in traces:
        lines.append(f"trace {device} {len(trace)}")
        lines += map(event_line, trace)
    segments = [(-1 if s.get("device", 0) == cpu else s.get("device", 0), s) for s in v.get("segments", [])]
    segments += [(-1, s) for s in v.get("host_segments", [])]
    for device, s in sorted(segments, key=lambda x: (x[0], x[1].get("address") or 0)):
        lines += segment_lines(s, device)
    for a in sorted(v.get("external_annotations", []), key=lambda a: a["time_us"]):
        lines.append(f"annotation {a['time_us']} {a['device']} {a['stage']} {a['name']}")
    s = v.get("allocator_settings")
    if s:
        split = -1 if s["max_split_size"] in (-1, (1 << 63) - 1) else s["max_split_size"]
        division = " ".join(str(s["roundup_power2_divisions"].get(str(1 << k), 0)) for k in range(16))
        lines.append(f"settings '{s['PYTORCH_CUDA_ALLOC_CONF']}' split {split} gc {s['garbage_collection_threshold']:g} "
                     f"expandable {int(s['expandable_segments'])} divisions {division}")
    return "\n".join(lines) + "\n"


# ---- contents ----

def frames(*names):
    return [{"name": n, "filename": f"model/{n}.py", "line": 10 + k} for k, n in enumerate(names)]


def make(version, shared=True):
    """A small training step on one device, as `version` (2.0 -> 20) writes it."""
    base, big = 0x7F3A00000000, 0xFFFF_8000_0000_0000  # the second one does not fit an int64
    forward, backward = frames("linear", "mlp", "main"), frames("autograd", "main")
    symbol = {"name": b"at::empty<\xff\xfe>".decode("latin-1"), "filename": "??", "line": 0}
    if version >= 21:
        backward.insert(0, symbol)
    segment = {"device": 0, "address": base, "total_size": 20 << 20, "allocated_size": (8 << 20) + 512, "active_size": (10 << 20) + 512,
               "requested_size": (10 << 20) + 100, "stream": 0, "segment_type": "large",
               "blocks": [{"size": 8 << 20, "requested_size": 8 << 20, "state": "active_allocated"},
                          {"size": 2 << 20, "requested_size": 2 << 20, "state": "active_pending_free"},
                          {"size": 512, "requested_size": 100, "state": "active_allocated"},
                          {"size": (10 << 20) - 512, "requested_size": 0, "state": "inactive"}]}
    other = {"device": 1, "address": big, "total_size": 2 << 20, "allocated_size": 2 << 20, "active_size": 2 << 20, "requested_size": 2 << 20,
             "stream": big + 64, "segment_type": "small", "blocks": [{"size": 2 << 20, "requested_size": 2 << 20, "state": "active_allocated"}]}
    trace = [{"action": "segment_alloc", "addr": base, "size": 20 << 20, "stream": 0, "frames": forward},
             {"action": "alloc", "addr": base, "size": 8 << 20, "stream": 0, "frames": forward},
             {"action": "alloc", "addr": base + (8 << 20), "size": (2 << 20) - 5, "stream": 0, "frames": backward},
             {"action": "free_requested", "addr": base + (8 << 20), "size": (2 << 20) - 5, "stream": 0},
             {"action": "oom", "device_free": 123456789, "size": 64 << 30, "stream": 0, "frames": backward},
             {"action": "snapshot", "addr": 0, "size": 10 << 20, "stream": 0}]
    trace_1 = [{"action": "alloc", "addr": big, "size": 2 << 20, "stream": big + 64, "frames": [dict(f) for f in forward]}]
    for s in (segment, other):
        at = s["address"]
        for k, b in enumerate(s["blocks"]):
            if version == 20:
                if b["state"] != "inactive":
                    b["history"] = [{"addr": at, "real_size": b["requested_size"], "frames": forward, "cpp_frames": []}]
                    if k == 1:
                        b["history"].append({"addr": at, "real_size": 77, "frames": backward})
            else:
                b["address"] = at
                b["frames"] = forward if shared else list(forward)
            at += b["size"]
        if version >= 21:
            s.update(segment_pool_id=(0, 0) if s is segment else (3, 1 << 40), is_expandable=s is other, frames=s["blocks"][0]["frames"])
    if version >= 21:
        trace_1.insert(0, {"action": "segment_map", "addr": big, "size": 2 << 20, "stream": big + 64, "frames": []})
    if version >= 22:
        for k, e in enumerate(trace + trace_1):
            e["time_us"] = T0 + 7 * k
    v = {"segments": [segment, other], "device_traces": [trace, trace_1]}
    if version >= 24:
        v["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:8]",
                                   "max_split_size": 128 << 20, "garbage_collection_threshold": 0.8, "expandable_segments": False,
                                   "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": False,
                                   "pinned_use_cuda_host_register": False,
                                   "roundup_power2_divisions": {str(1 << k): min(k, 8) for k in range(16)}}
    if version >= 26:
        v["external_annotations"] = [{"name": "## step 2 ##", "stage": "START", "device": 0, "time_us": T0 + 9},
                                     {"name": "## step 1 ##", "stage": "START", "device": 0, "time_us": T0 + 1, "rank": 3},
                                     {"name": "## step 1 ##", "stage": "END", "device": 0, "time_us": T0 + 9}]
    if version >= 27:
        for k, e in enumerate(trace):
            e["compile_context"] = "N/A" if k else "[0/0]"
    if version >= 210:
        for k, e in enumerate(trace):
            e["user_metadata"] = ["", "phase=forward", ""][k % 3]
        v["allocator_settings"]["graph_capture_record_stream_reuse"] = False
        forward[0].update(fx_node_op="call_function", fx_node_name="linear", fx_original_trace="...")
    if version >= 214:
        for e in trace + trace_1:
            e["pool_id"] = segment["segment_pool_id"]
        trace_1[0]["pool_id"] = other["segment_pool_id"]
        trace.insert(3, {"action": "annotate", "addr": base, "size": 8 << 20, "stream": 0, "time_us": T0 + 20, "user_metadata": "saved for backward",
                         "pool_id": (0, 0)})
        v["host_segments"] = [{"address": 4096, "total_size": 4096, "stream": 0, "blocks": [{"address": 4096, "size": 4096, "requested_size": 4000,
                                                                                          "state": "active_allocated"}]}]
        v["host_traces"] = [[{"action": "alloc", "addr": 4096, "size": 4000, "stream": 0, "time_us": T0}]]
    return v


def profiler():
    """As torch/cuda/_memory_viz.py makes it from a profile: no times, categories, no block addresses."""
    f = [{"filename": "none", "line": 0, "name": "nn.Module: Linear_0"}]
    trace = [{"action": "alloc", "addr": 4096, "size": 100, "stream": 0, "frames": f, "category": "parameter"},
             {"action": "alloc", "addr": 8192, "size": 50, "stream": 0, "frames": [], "category": "unknown"},
             {"action": "free_requested", "addr": 8192, "size": 50, "stream": 0, "frames": []},
             {"action": "free_completed", "addr": None, "size": 50, "stream": 0, "frames": []}]
    blocks = [{"size": 100, "state": "active_allocated", "requested_size": 100, "frames": f}, {"size": 400, "state": "inactive"}]
    return {"device_traces": [[], trace], "segments": [{"device": 1, "address": 4096, "total_size": 500, "stream": 0, "blocks": blocks}]}


def odd():
    """Things that no version writes, but which have one meaning."""
    deep = frames(*[f"f{k % 40}" for k in range(1100)])  # more than a batch
    many = [{"action": "alloc", "addr": 512 * k, "size": k, "stream": 0} for k in range(1200)]
    many[7]["frames"] = deep
    many[8]["user_metadata"] = {"step": 3, "name": 'a"b', "rate": 0.5, "flag": True, "none": None}
    many[9]["user_metadata"] = many[8]["user_metadata"]
    many[10]["user_metadata"] = {}
    many[11]["future"] = {"list": [1, 2, [3]], "x": (1, 2, 3), "huge": 1 << 200, "set": 5}
    many[12]["action"] = "teleport"
    shared = many[13]
    return {"first_event": shared, "device_traces": [many, [], [], many[20:22] + [dict(many[3])]], "segments": [], "more": [[], {}, ()]}


def broken():
    """Blocks that contradict what is said about them."""
    v = make(21)
    v["segments"][0]["total_size"] += 512
    v["segments"][0]["allocated_size"] -= 1
    v["segments"][1]["blocks"][0]["address"] += 512
    return v


def without(v, *keys):
    return {k: x for k, x in v.items() if k not in keys}


def write(name, data, expected):
    HERE.mkdir(exist_ok=True)
    (HERE / name).write_bytes(data)
    data = expected.encode()
    if len(data) < 16384:
        (HERE / (name.split(".")[0] + ".txt")).write_bytes(data)
    else:
        (HERE / (name.split(".")[0] + ".txt.gz")).write_bytes(gzip.compress(data, mtime=0))


def main():
    forms = {20: "2.0", 21: "2.1", 22: "2.2", 24: "2.4", 26: "2.6", 27: "2.7", 210: "2.10", 214: "2.14"}
    for version, form in forms.items():
        v = make(version)
        data = pickle.dumps(v, protocol=4)
        assert pickle.loads(data) == v
        write(f"python-{form.replace('.', '-')}.pickle", data, expect(v, "pytorch-" + form))
    for protocol in range(6):
        v = make(214)
        write(f"protocol-{protocol}.pickle", pickle.dumps(v, protocol=protocol), expect(v, "pytorch-2.14"))
    for version, form in forms.items():
        v = make(version)
        owners = [v["device_traces"][0][0]["frames"], v["device_traces"][0][2]["frames"]] + v["device_traces"][0][0]["frames"]
        owners += v["device_traces"][0][2]["frames"]
        write(f"cpp-{form.replace('.', '-')}.pickle", Cpp(owners).dumps(v), expect(v, "pytorch-" + form))
    v = make(214)
    write("viewer.json", json.dumps(v).encode(), expect(v, "pytorch-2.14"))
    v = make(24)
    write("indented.json.gz", gzip.compress(json.dumps(v, indent=2).encode(), mtime=0), expect(v, "pytorch-2.4"))
    write("gzip.pickle.gz", gzip.compress(pickle.dumps(v, protocol=4), mtime=0), expect(v, "pytorch-2.4"))
    half = len(pickle.dumps(v, protocol=4)) // 2
    two = b"".join(gzip.compress(p, mtime=0) for p in (pickle.dumps(v, protocol=4)[:half], pickle.dumps(v, protocol=4)[half:]))
    write("members.pickle.gz", two, expect(v, "pytorch-2.4"))
    v = make(20)["segments"]
    write("bare-list.pickle", pickle.dumps(v, protocol=4), expect(v, "pytorch-2.0"))
    write("profiler.pickle", pickle.dumps(profiler(), protocol=4), expect(profiler(), "pytorch-profiler"))
    v = odd()
    for protocol in (0, 4):
        write(f"odd-{protocol}.pickle.gz", gzip.compress(pickle.dumps(v, protocol=protocol), mtime=0), expect(v, "pytorch-2.10", unknown=3))
    v = broken()
    write("broken.pickle", pickle.dumps(v, protocol=4), expect(v, "pytorch-2.1", repaired=3))
    v = make(22)
    symbol = v["device_traces"][0][2]["frames"][0]
    symbol["name"], symbol["filename"] = b"at::\xffempty", "Module \u2603.cpp"
    write("bytes.pickle", Cpp().dumps(v), expect(v, "pytorch-2.2"))
    v = make(24)
    v["allocator_settings"].update(max_split_size=(1 << 63) - 1, garbage_collection_threshold=0, roundup_power2_divisions={})
    v["device_traces"].reverse()
    write("empty-settings.pickle", pickle.dumps(v, protocol=2), expect(v, "pytorch-2.4"))


if __name__ == "__main__":
    main()
