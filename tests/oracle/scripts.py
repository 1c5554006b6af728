"""Scripts of allocator operations: random ones over all settings, and hand-made ones about single rules.

`scripts()` yields (name, oldest version, text). The format is in README.md. Deterministic: the seed is the name."""

import random

MIB = 1 << 20
# Sizes on both sides of each threshold in the policy.
EDGES = sorted({max(1, base + delta)
                for base in (1, 511, 512, 1024, 512 << 10, MIB, 2 * MIB, 9 * MIB, 10 * MIB, 19 * MIB, 20 * MIB, 21 * MIB, 22 * MIB,
                             32 * MIB, 40 * MIB, 64 * MIB, 100 * MIB)
                for delta in (-513, -512, -1, 0, 1, 512, 513)})
# What a small transformer asks for again and again: weights, activations, logits.
MODEL = [4 * n for n in (768, 2304, 3072, 768 * 768, 768 * 2304, 768 * 3072, 8 * 256 * 768, 8 * 256 * 3072, 8 * 12 * 256 * 256,
                         8 * 256 * 8192, 1, 64, 8 * 256)]


def log_uniform(rng, low, high):
    return int(low * (high / low) ** rng.random())


SIZES = {
    "small": lambda rng: log_uniform(rng, 1, MIB),
    "mixed": lambda rng: log_uniform(rng, 100, 64 * MIB),
    "large": lambda rng: log_uniform(rng, MIB, 200 * MIB),
    "edges": lambda rng: rng.choice(EDGES),
    "model": lambda rng: rng.choice(MODEL),
    "varied": lambda rng: rng.choice(MODEL) * rng.randint(50, 100) // 100 + 1,  # sequence lengths that change
}


class Script:
    """Builds the text of one script and keeps track of what it left live."""

    def __init__(self, capacity, conf=""):
        self.lines = [f"D {capacity:x}"]
        self.capacity = capacity
        self.live = {}  # id -> bytes
        self.free_ids = []
        self.next_id = 1
        if conf:
            self.op(f"C {conf}")

    def op(self, text):
        self.lines.append(text)

    def alloc(self, size, stream=0):
        ident = self.free_ids.pop() if self.free_ids else self.next_id
        self.next_id = max(self.next_id, ident + 1)
        self.live[ident] = size
        self.op(f"a {ident:x} {size:x} {stream:x}")
        return ident

    def free(self, ident):
        self.op(f"f {ident:x}")
        del self.live[ident]
        self.free_ids.append(ident)

    def live_bytes(self):
        return sum(self.live.values())

    def check(self, full=False):
        self.op("s")
        self.op("S" if full else "H")

    def text(self):
        return "\n".join(self.lines) + "\n"


def pick_victim(rng, live, order):
    idents = list(live)
    if order == "stack":
        return idents[-1 - min(len(idents) - 1, int(rng.expovariate(0.7)))]
    if order == "queue":
        return idents[min(len(idents) - 1, int(rng.expovariate(0.3)))]
    return rng.choice(idents)


def random_script(name, ops=2000, capacity=64 << 30, conf="", sizes="mixed", order="any", live=150, streams=1, record=0.0,
                  complete=0.02, empty=0.002, fraction=None, pools=False, capture=False, confs=(), resets=False):
    """`live`: blocks held on average; `record`: chance that a block is also used on another stream; `confs`: settings to
    change to on the way."""
    rng = random.Random(name)
    s = Script(capacity, conf)
    if pools or (record and streams > 2):
        s.op("# loose")
    s.op("h")
    if fraction:
        s.op(f"F {fraction}")
    handles = [i << 12 for i in range(streams)]
    pool = None   # the id of the pool that requests go to
    uses = []     # ids, as often as begun and not released; an id whose uses are over never comes back
    next_pool = 1
    for step in range(ops):
        roll = rng.random()
        grow = len(s.live) < live and s.live_bytes() < 1.2 * capacity
        if roll < (0.55 if grow else 0.4) or not s.live:
            stream = handles[int(streams * rng.random() ** 2)]
            ident = s.alloc(SIZES[sizes](rng), stream)
            if rng.random() < record:
                others = handles[-1:] if streams == 2 else rng.sample(handles, rng.randint(1, 2))
                for other in others:
                    s.op(f"r {ident:x} {other:x}")
        elif roll < 0.97:
            s.free(pick_victim(rng, s.live, order))
        if record and rng.random() < complete:
            s.op(f"t {rng.choice(handles[-1:] if streams == 2 else handles):x} {rng.choice((1, 2, 0xffffffffffffffff)):x}")
        if rng.random() < empty:
            s.op("e")
        if pools and rng.random() < 0.03:
            if pool is None:
                if uses and rng.random() < 0.5:
                    pool = rng.choice(uses)
                else:
                    pool, next_pool = next_pool, next_pool + 1
                s.op(f"B {pool:x} 0 {int(capture)}")
                uses.append(pool)
            else:
                s.op(f"E {pool:x} 0 {int(capture)}")
                pool = None
        elif pools and pool is None and uses and rng.random() < 0.02:
            s.op(f"X {uses.pop(rng.randrange(len(uses))):x} 0")
        if confs and rng.random() < 0.005:
            s.op(f"C {rng.choice(confs)}")
        if resets and rng.random() < 0.01:
            s.op(rng.choice("zZ"))
        if step % 200 == 199:
            s.check()
    if pool is not None:
        s.op(f"E {pool:x} 0 {int(capture)}")
    s.check(full=True)
    s.op("G")
    for ident in list(s.live):
        s.free(ident)
    s.op("e")
    s.check(full=True)
    s.op("G")
    return s.text()


def step_script(name, layers=6, steps=4, capacity=64 << 30, conf="", batch=lambda step, rng: 8, empty=False):
    """Training steps: weights stay, activations pile up in the forward pass and go in the backward, gradients come and go."""
    rng = random.Random(name)
    s = Script(capacity, conf)
    s.op("h")
    weights = [s.alloc(size) for _ in range(layers) for size in MODEL[:6]]
    moments = []
    for step in range(steps):
        rows = batch(step, rng)
        kept = []
        for _ in range(layers):
            workspace = s.alloc(4 * rows * 256 * 768)
            for width in (768, 2304, 768, 3072, 3072, 768):
                kept.append(s.alloc(4 * rows * 256 * width))
            kept.append(s.alloc(4 * rows * 12 * 256 * 256))
            s.free(workspace)
        logits = [s.alloc(4 * rows * 256 * 8192) for _ in range(2)]
        gradients = []
        for ident in reversed(kept):
            gradient = s.alloc(s.live[ident])
            s.free(ident)
            if len(gradients) < len(weights):
                gradients.append(s.alloc(s.live[weights[-1 - len(gradients)]]))
            s.free(gradient)
        for ident in logits:
            s.free(ident)
        if not moments:
            moments = [s.alloc(s.live[w]) for w in weights for _ in range(2)]
        for ident in gradients:
            s.free(ident)
        if empty:
            s.op("e")
        s.check()
    s.check(full=True)
    s.op("T")
    return s.text()


# Not here: several streams and pools together. Blocks put off until a capture's end are in a hash table by their host address, so PyTorch
# itself gives another layout each time.
RANDOM = [
    # name, arguments
    *[(f"plain-{sizes}", dict(sizes=sizes)) for sizes in SIZES],
    *[(f"plain-{sizes}-{order}", dict(sizes=sizes, order=order)) for sizes in ("mixed", "edges") for order in ("stack", "queue")],
    ("many-blocks", dict(sizes="small", live=1500, ops=5000)),
    ("resets", dict(resets=True)),
    ("often-emptied", dict(empty=0.05, sizes="edges")),
    *[(f"tight-{sizes}", dict(sizes=sizes, capacity=capacity * MIB, live=400))
      for sizes, capacity in (("small", 40), ("mixed", 300), ("large", 1500), ("edges", 400), ("model", 200), ("varied", 100))],
    ("tiny-device", dict(sizes="mixed", capacity=30 * MIB)),
    *[(f"fraction-{f}", dict(sizes="mixed", capacity=1024 * MIB, fraction=f, live=400)) for f in (0.1, 0.33, 0.7)],
    *[(f"max-split-{mb}", dict(sizes="large", conf=f"max_split_size_mb:{mb}", live=60)) for mb in (21, 64, 128)],
    *[(f"max-split-tight-{mb}", dict(sizes="large", conf=f"max_split_size_mb:{mb}", capacity=1200 * MIB, live=60)) for mb in (21, 50, 100)],
    ("max-split-tight-edges", dict(sizes="edges", conf="max_split_size_mb:32", capacity=600 * MIB, live=100)),
    *[(f"power2-{d}", dict(sizes="mixed", conf=f"roundup_power2_divisions:{d}")) for d in (2, 8, 64)],
    ("power2-intervals", dict(sizes="mixed", conf="roundup_power2_divisions:[1:2,2:4,4:8,16:2,>:1]")),
    ("power2-tight", dict(sizes="varied", conf="roundup_power2_divisions:4", capacity=150 * MIB, live=400)),
    *[(f"collect-{int(100 * t)}-{sizes}", dict(sizes=sizes, conf=f"garbage_collection_threshold:{t}", fraction=f, capacity=800 * MIB,
                                               live=60))
      for t, f, sizes in ((0.3, 1.0, "large"), (0.6, 0.9, "mixed"), (0.8, 0.5, "edges"), (0.5, 0.7, "varied"))],
    ("collect-max-split", dict(sizes="large", conf="garbage_collection_threshold:0.5,max_split_size_mb:64", fraction=0.9,
                               capacity=1500 * MIB, live=60)),
    ("collect-without-fraction", dict(sizes="large", conf="garbage_collection_threshold:0.2", capacity=800 * MIB, live=60)),
    *[(f"expandable-{sizes}", dict(sizes=sizes, conf="expandable_segments:True")) for sizes in SIZES],
    *[(f"expandable-tight-{sizes}", dict(sizes=sizes, conf="expandable_segments:True", capacity=capacity * MIB, live=400))
      for sizes, capacity in (("small", 40), ("mixed", 300), ("large", 1500), ("edges", 400), ("varied", 100))],
    ("expandable-emptied", dict(sizes="mixed", conf="expandable_segments:True", empty=0.05, order="queue")),
    ("expandable-fraction", dict(sizes="mixed", conf="expandable_segments:True", capacity=1024 * MIB, fraction=0.3, live=400)),
    ("expandable-power2", dict(sizes="varied", conf="expandable_segments:True,roundup_power2_divisions:8")),
    ("expandable-max-split", dict(sizes="large", conf="expandable_segments:True,max_split_size_mb:64", capacity=1500 * MIB, live=60)),
    ("expandable-collect", dict(sizes="large", conf="expandable_segments:True,garbage_collection_threshold:0.5", fraction=0.8,
                                capacity=1500 * MIB, live=60)),
    ("expandable-streams", dict(sizes="mixed", conf="expandable_segments:True", streams=4, record=0.2, complete=0.1)),
    ("expandable-pools", dict(sizes="mixed", conf="expandable_segments:True", pools=True)),
    ("streams-alone", dict(streams=4, sizes="edges")),
    ("two-streams-slow", dict(streams=2, record=0.4, complete=0.05)),
    ("two-streams-tight", dict(streams=2, record=0.4, complete=0.05, sizes="edges", capacity=400 * MIB, live=400)),
    ("two-streams-expandable", dict(streams=2, record=0.4, complete=0.05, conf="expandable_segments:True", empty=0.01)),
    ("streams-slow", dict(streams=3, record=0.3, complete=0.02)),
    ("streams-fast", dict(streams=3, record=0.3, complete=0.5)),
    ("streams-many", dict(streams=12, record=0.5, complete=0.2, sizes="model", live=400)),
    ("streams-tight", dict(streams=3, record=0.3, complete=0.05, sizes="mixed", capacity=300 * MIB, live=400)),
    ("streams-emptied", dict(streams=3, record=0.3, complete=0.05, empty=0.03, sizes="edges")),
    ("streams-max-split", dict(streams=2, record=0.3, complete=0.1, sizes="large", conf="max_split_size_mb:40", capacity=1200 * MIB, live=60)),
    ("pools-memory", dict(pools=True, sizes="mixed")),
    ("pools-capture", dict(pools=True, capture=True, sizes="edges")),
    ("pools-tight", dict(pools=True, sizes="mixed", capacity=300 * MIB, live=400)),
    ("pools-capture-tight", dict(pools=True, capture=True, sizes="mixed", capacity=300 * MIB, live=400)),
    ("pools-emptied", dict(pools=True, sizes="edges", empty=0.03)),
    ("settings-change", dict(sizes="mixed", capacity=1500 * MIB, live=200, streams=2, record=0.1, complete=0.2, confs=(
        "max_split_size_mb:64", "expandable_segments:True", "expandable_segments:False", "roundup_power2_divisions:4",
        "garbage_collection_threshold:0.6", "max_split_size_mb:200,roundup_power2_divisions:[64:8,256:4,>:1]"))),
]
NEWER = [  # settings that older versions do not have
    ("non-split-rounding", 205, dict(sizes="large", conf="max_split_size_mb:40,max_non_split_rounding_mb:30", capacity=1200 * MIB, live=60)),
    ("large-segment-40", 212, dict(sizes="mixed", conf="large_segment_size_mb:40")),
    ("large-segment-expandable", 212, dict(sizes="mixed", conf="large_segment_size_mb:40,expandable_segments:True")),
    ("large-segment-tight", 212, dict(sizes="edges", conf="large_segment_size_mb:64", capacity=500 * MIB, live=400)),
    ("fraction-setting", 212, dict(sizes="mixed", conf="per_process_memory_fraction:0.4", capacity=1024 * MIB, live=400)),
    ("throw-on-oom", 212, dict(sizes="mixed", conf="throw_on_cudamalloc_oom:True", capacity=300 * MIB, live=400)),
    ("throw-on-oom-fraction", 212, dict(sizes="mixed", conf="throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.4",
                                        capacity=1024 * MIB, live=400)),
]


def rounding_script(conf):
    """Each size alone: the block, its segment, what is split off."""
    s = Script(64 << 30, conf)
    for size in EDGES + [3 * 512 + 1, 1200, 5000, 70000, 700000, 3 * MIB + 7, 12345678, 123456789, 1234567890]:
        ident = s.alloc(size)
        s.op("S")
        s.free(ident)
        s.op("e")
    s.check(full=True)
    return s.text()


HAND_MADE = {
    # A pool inside another; requests while both are open; both released with blocks live.
    "nested-pools": """D 40000000
h
a 1 100000 0
B 1 0 0
a 2 100000 0
B 2 0 0
a 3 100000 0
a 4 300000 0
E 2 0 0
a 5 100000 0
E 1 0 0
a 6 100000 0
S
X 1 0
f 2
e
S
f 5
e
S
X 2 0
f 3
f 4
e
S
f 1
f 6
e
s
S
T
""",
    # The same id begun twice in a row shares the pool and needs two releases.
    "pool-shared": """D 40000000
h
B 7 0 1
a 1 200000 0
E 7 0 1
f 1
B 7 0 1
a 2 200000 0
E 7 0 1
S
X 7 0
f 2
e
S
X 7 0
e
S
s
T
""",
    # A released pool's memory is returned when a request cannot be served otherwise.
    "pool-returned-on-failure": """D 4000000
h
B 3 0 0
a 1 2000000 0
E 3 0 0
f 1
a 2 3000000 0
S
X 3 0
a 3 3000000 0
S
s
T
""",
    # During a capture nothing cached is returned, so the request fails although free memory would do.
    "capture-fails": """D 4000000
h
a 1 2000000 0
f 1
B 3 0 1
a 2 3000000 0
E 3 0 1
s
a 3 3000000 0
s
S
X 3 0
T
""",
    # A block used on another stream is freed in a capture: its event is recorded when the capture ends.
    "capture-defers-events": """D 40000000
h
a 1 200000 0
r 1 1000
B 3 0 1
f 1
a 2 200000 0
s
S
E 3 0 1
a 3 200000 0
t 1000 ffffffffffffffff
a 4 200000 0
s
S
f 2
X 3 0
e
S
T
""",
    # The oldest open event of a stream holds up the ones behind it.
    "head-of-line": """# loose
D 40000000
h
a 1 100000 0
a 2 100000 0
a 3 100000 0
r 1 1000
r 1 2000
r 2 2000
r 3 1000
f 1
f 2
f 3
t 2000 1
a 4 100000 0
S
t 1000 1
a 5 100000 0
S
t 1000 1
t 2000 1
a 6 100000 0
S
s
T
""",
    # Two blocks on two streams that each used the other's; freed, waited for by empty_cache.
    "empty-waits": """D 40000000
h
a 1 800000 1000
a 2 800000 2000
r 1 2000
r 2 1000
f 1
f 2
S
e
S
s
T
""",
    # Fragmented: free memory would be enough, no single block is.
    "fragmented": """D 10000000
h
""" + "".join(f"a {i:x} 1e00000 0\n" for i in range(1, 9)) + "f 1\nf 3\nf 5\nf 7\na 10 3c00000 0\nS\ns\na 11 9600000 0\ns\nS\nT\n",
    # Smaller tensors inside the 20 MiB segments pin them.
    "pinned-segments": """D 6400000
h
""" + "".join(f"a {i:x} {size:x} 0\n" for i, size in enumerate([9 * MIB, 2 * MIB] * 5, 1))
    + "".join(f"f {i:x}\n" for i in range(1, 11, 2)) + "a 20 1400000 0\ns\nS\ne\na 21 1400000 0\ns\nS\nT\n",
}


# Accepted or refused; each on its own.
SETTINGS = [
    "max_split_size_mb:20", "max_split_size_mb:21", "max_split_size_mb:0", "max_split_size_mb:-1", "max_split_size_mb:64.5",
    "max_split_size_mb:100000000", "max_split_size_mb:18446744073709551615", "max_split_size_mb:18446744073709551616",
    "max_split_size_mb:abc", "max_split_size_mb:", "max_split_size_mb", ":64", ",", "", "max_split_size_mb:64,",
    ",max_split_size_mb:64", "max_split_size_mb:64,,expandable_segments:True", " max_split_size_mb : 64 ", "max_split_size_mb:64mb",
    "Max_split_size_mb:64", "max_split_size_mb=64", "max_split_size_mb:64;expandable_segments:True", "max_split_size_mb:[64]",
    "max_non_split_rounding_mb:20", "max_non_split_rounding_mb:21", "max_non_split_rounding_mb:5", "max_non_split_rounding_mb:19",
    "garbage_collection_threshold:0", "garbage_collection_threshold:0.0", "garbage_collection_threshold:1",
    "garbage_collection_threshold:1.0", "garbage_collection_threshold:0.5", "garbage_collection_threshold:-0.5",
    "garbage_collection_threshold:.5", "garbage_collection_threshold:5e-1", "garbage_collection_threshold:50%",
    "garbage_collection_threshold:nan", "garbage_collection_threshold:1.5", "garbage_collection_threshold:x",
    "expandable_segments:True", "expandable_segments:False", "expandable_segments:true", "expandable_segments:1",
    "expandable_segments:TRUE", "expandable_segments:", "expandable_segments:True,expandable_segments:False",
    "roundup_power2_divisions:4", "roundup_power2_divisions:3", "roundup_power2_divisions:0", "roundup_power2_divisions:1",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", "roundup_power2_divisions:[256:1]", "roundup_power2_divisions:[>:8]",
    "roundup_power2_divisions:[300:2]", "roundup_power2_divisions:[256:3]", "roundup_power2_divisions:[]",
    "roundup_power2_divisions:[256:1,512:2", "roundup_power2_divisions:[256]", "roundup_power2_divisions:[256:1 512:2]",
    "roundup_power2_divisions:[512:2,256:4]", "roundup_power2_divisions:[256:1,>:8,512:2]", "roundup_power2_divisions:[0:2]",
    "roundup_power2_divisions:[1:2]", "roundup_power2_divisions:[65536:2]", "roundup_power2_divisions:[131072:2]",
    "backend:native", "backend:Native", "backend:cuda", "no_such_option:1", "expandable_segment:True",
    "release_lock_on_cudamalloc:True", "release_lock_on_cudamalloc:yes", "release_lock_on_hipmalloc:True",
    "pinned_use_cuda_host_register:True", "pinned_use_hip_host_register:True", "pinned_num_register_threads:8",
    "pinned_num_register_threads:3", "pinned_num_register_threads:256", "pinned_num_register_threads:0",
    "pinned_use_background_threads:True", "pinned_reserve_segment_size_mb:100", "pinned_free_catch_all:True",
    "graph_capture_record_stream_reuse:True", "graph_capture_record_stream_reuse:1",
    "per_process_memory_fraction:0.5", "per_process_memory_fraction:0", "per_process_memory_fraction:1",
    "per_process_memory_fraction:1.1", "per_process_memory_fraction:-0.1", "throw_on_cudamalloc_oom:True",
    "throw_on_cudamalloc_oom:0", "large_segment_size_mb:20", "large_segment_size_mb:19", "large_segment_size_mb:21",
    "large_segment_size_mb:1", "large_segment_size_mb:0", "large_segment_size_mb:512", "large_segment_size_mb:4096",
    "large_segment_size_mb:10", "large_segment_size_mb:11", "large_segment_size_mb:2",
    "max_split_size_mb:64 expandable_segments:True", "max_split_size_mb:6 4",
    "garbage_collection_threshold:0.8,max_split_size_mb:128,expandable_segments:False,roundup_power2_divisions:[64:8,>:2]",
]


def scripts():
    """(name, oldest version as 100 * major + minor, text)"""
    for name, text in HAND_MADE.items():
        yield name, 204 if "pool" in name or "capture" in name else 201, text
    for name, conf in (("rounding", ""), ("rounding-power2", "roundup_power2_divisions:4"), ("rounding-expandable", "expandable_segments:True"),
                       ("rounding-max-split", "max_split_size_mb:32")):
        yield name, 201, rounding_script(conf)
    yield "settings", 212, "D 40000000\n" + "".join(f"C {text}\n" for text in SETTINGS)
    for name, arguments in RANDOM:
        yield name, 204 if arguments.get("pools") else 201, random_script(name, **arguments)
    for name, oldest, arguments in NEWER:
        yield name, oldest, random_script(name, **arguments)
    yield "steps", 201, step_script("steps")
    yield "steps-varied", 201, step_script("steps-varied", batch=lambda step, rng: rng.randint(4, 12), steps=6)
    yield "steps-varied-tight", 201, step_script("steps-varied-tight", batch=lambda step, rng: rng.randint(4, 12), steps=6, capacity=1300 * MIB)
    yield "steps-expandable", 201, step_script("steps-expandable", batch=lambda step, rng: rng.randint(4, 12), steps=6,
                                              conf="expandable_segments:True")
    yield "steps-emptied", 201, step_script("steps-emptied", batch=lambda step, rng: rng.randint(4, 12), empty=True)
