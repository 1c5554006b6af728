"""Makes small history files for the fuzz target: tests/fuzz/corpus/history. The layout is that of src/snapshot/history_format.h.

    python3 tests/alloc/make_histories.py tests/fuzz/corpus/history
"""
import struct
import sys

ALLOC, REQUESTED, COMPLETED, SEGMENT, SEGMENT_FREE, MAP, UNMAP, SNAPSHOT, OOM = range(9)
BASE = 0x7F0000000000
MIB = 1 << 20


def event(action, addr, size, block=0, label=0, pool=0, stream=0, time=1_700_000_000_000_000):
    return struct.pack("<6Q", addr, size, stream, time, label, action | pool << 8 | (block >> 9) << 24)


def label(category, phase, name, layer):
    texts = [t.encode() for t in (category, phase, name)]
    body = struct.pack("<iIII", layer, *map(len, texts)) + b"".join(texts)
    body += bytes(-len(body) % 8)
    return struct.pack("<II", 1, len(body) + 8) + body


def pool(number, first, second):
    return struct.pack("<II3Q", 2, 32, number, first, second)


def settings(text):
    body = struct.pack("<qd16QII", -1, 0.5, *range(16), 1, len(text)) + text
    body += bytes(-len(body) % 8)
    return struct.pack("<II", 3, len(body) + 8) + body


def history(events, notes=b"", segments=(), blocks=(), begin=0, capacity=None, published=None, limit=100):
    """begin: how many events the state has seen; published: more than there are places makes the ring wrap."""
    capacity = capacity or len(events) + 2
    published = len(events) if published is None else published
    ring = [bytes(48)] * capacity
    for k, e in enumerate(events):
        ring[(published - len(events) + k) % capacity] = e
    state = struct.pack("<QQ", len(segments), len(blocks))
    state += b"".join(struct.pack("<4QII", *s) for s in segments) + b"".join(struct.pack("<5Q", *b) for b in blocks)
    ring_bytes = b"".join(ring)
    notes_at = 4096 + len(ring_bytes)
    state_at = notes_at + len(notes)
    head = b"HRMEMHST" + struct.pack("<IIIIiI", 1, 0x01020304, 4096, 48, 0, 1)
    head += struct.pack("<5Q", limit, 4096, capacity, published, (begin + 1) << 1)
    head += struct.pack("<4Q", state_at, len(state), 0, 0)
    head += struct.pack("<Q", 1) + struct.pack("<3Q", notes_at, len(notes), len(notes))
    return head.ljust(4096, b"\0") + ring_bytes + notes + state


def main(folder):
    notes = settings(b"expandable_segments:True") + pool(0, 0, 0) + pool(1, 7, 9) + label("weight", "load", "wte", -1) + label("", "forward", "gate", 3)
    plain = [event(SEGMENT, BASE, 2 * MIB, 2 * MIB, 1), event(ALLOC, BASE, 1000, 1024, 1), event(ALLOC, BASE + 1024, 512, 512, 12 << 32 | 2),
             event(REQUESTED, BASE, 1000, 1024, 1), event(COMPLETED, BASE, 1000, 1024, 1), event(REQUESTED, BASE + 1024, 512, 512, 2)]
    grown = [event(MAP, BASE, 2 * MIB), event(MAP, BASE + 2 * MIB, 20 * MIB), event(ALLOC, BASE, 5 * MIB, 5 * MIB, 2), event(UNMAP, BASE + 20 * MIB, 2 * MIB),
             event(OOM, 12345, 99 * MIB), event(SNAPSHOT, 0, 77)]
    files = {
        "empty": history([]),
        "plain": history(plain, notes),
        "grown": history(grown, notes),
        "wrapped": history(plain[1:], notes, [(BASE, 2 * MIB, 0, 1, 1, 0)], [(BASE + 4096, 512, 500, 2, 1)], begin=995, published=1000, capacity=6),
        "state": history([], notes, [(BASE, 20 * MIB, 3, 2, 0, 3), (BASE + 40 * MIB, 2 * MIB, 0, 0, 1, 0)], [(BASE + MIB, MIB, 5, 1, 0)]),
        "lost": history(plain, notes, begin=2, published=50, capacity=7),
        "overlap": history([event(SEGMENT, BASE, 4 * MIB), event(SEGMENT, BASE + MIB, 4 * MIB), event(ALLOC, BASE, 9 * MIB, 9 * MIB),
                            event(ALLOC, BASE + 512, 512, 512), event(ALLOC, BASE + 700, 512, 512), event(ALLOC, 3, 2**64 - 1)], notes),
        "unknown": history([event(14, BASE, 1, label=9, pool=5)], notes + struct.pack("<IIQ", 9, 16, 0)),
    }
    for name, data in files.items():
        with open(f"{folder}/{name}", "wb") as f:
            f.write(data)


main(sys.argv[1])
