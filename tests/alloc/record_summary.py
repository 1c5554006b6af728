"""Records what torch.cuda.memory_stats and memory_summary make of given statistics: tests/alloc/summaries.txt.

    python tests/alloc/record_summary.py > tests/alloc/summaries.txt

Any torch of 2.4 to 2.15 will do, also one without CUDA: the functions above the driver's counters are run, the counters are made
here. A case is a line "case NAME DEVICE full|abbreviated", then "key value" lines in the order of memory_stats, then the table, whose
lines begin with "|".
"""
import random

import torch.cuda.memory as memory

FAMILIES = ["allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
            "inactive_split_bytes", "requested_bytes"]
MEASURES = ["current", "peak", "allocated", "freed"]


def nested(value):
    """The dict that the C++ side gives; value(family, pool, measure) makes the numbers."""
    stats = {f: {p: {m: value(f, p, m) for m in MEASURES} for p in ["all", "small_pool", "large_pool"]} for f in FAMILIES}
    for f in ["oversize_allocations", "oversize_segments"]:
        stats[f] = {m: value(f, "", m) for m in MEASURES}
    for f in ["num_alloc_retries", "num_ooms", "max_split_size", "num_sync_all_streams", "num_device_alloc", "num_device_free"]:
        stats[f] = value(f, "", "")
    return stats


def record(name, device, abbreviated, value):
    stats = nested(value)
    memory.memory_stats_as_nested_dict = lambda device=None: stats
    memory._get_device_index = lambda device, optional=False: device
    print("case", name, device, "abbreviated" if abbreviated else "full")
    for key, number in memory.memory_stats(device).items():
        print(key, number)
    print(memory.memory_summary(device, abbreviated), end="")


def main():
    def of(limit, seed):
        rng = random.Random(seed)
        return lambda f, p, m: rng.randrange(limit)

    def edges(f, p, m):  # the limits at which units change, and one below
        return {"current": 768 * 1024, "peak": 768 * 1024 - 1, "allocated": 768 * 1024 * 1024, "freed": 768 * 1024 * 1024 - 1}.get(m, 1)

    def counts(f, p, m):
        return {"current": 750_000, "peak": 749_999, "allocated": 750_000_000, "freed": 749_999_999}.get(m, 12_345)

    rng = random.Random(6)
    record("zero", 0, False, lambda f, p, m: 0)
    record("zero-short", 3, True, lambda f, p, m: 0)
    record("small", 0, False, of(2000, 1))
    record("middle", 1, False, of(1 << 31, 2))
    record("large", 7, False, of(1 << 45, 3))
    record("huge", 127, False, of(1 << 62, 4))
    record("huge-short", 127, True, of(1 << 62, 4))
    record("edges", 0, False, edges)
    record("counts", 0, True, counts)
    record("negative", 2, False, lambda f, p, m: rng.randrange(-(1 << 40), 1 << 40))
    record("unlimited", 12, True, lambda f, p, m: -1 if f == "max_split_size" else 1 << 33)


main()
