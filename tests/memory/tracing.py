"""What a training job asks of PyTorch's allocator: the history of requests with the op and the line that made each, and the allocator's own
statistics per phase."""

import ast
import ctypes
import functools
import os
import re
import sys

import torch



def fake_device():
    """None beside a real one (bench/gpu/memory.py), which nothing is told."""
    try:
        found = ctypes.CDLL("libcudart.so.13")
        found.fake_host_reads.restype = ctypes.c_uint64
        return found
    except (OSError, AttributeError):
        return None


FAKE = fake_device()
ROUND = 512
reset_peaks = torch.cuda.reset_peak_memory_stats  # phases alone: axolotl resets the peaks behind the load
# What takes memory for another op, and what is said with the op that wanted it.
TAKES = re.compile(r"(empty|resize|create_out|maybe_create|set_output|structured_|allocate|detail|cuda)")
COPIES = {"clone", "to", "_to_copy", "_to", "contiguous", "zeros", "zeros_like", "zero_", "new_zeros", "full", "full_like", "ones_like"}


def prepare(capability, capacity):
    """The fake device; before PyTorch looks for one."""
    major, minor = (int(part) for part in capability.split("."))
    if FAKE.fake_set_card(major, minor) != 0:
        raise SystemExit(f"no card of compute capability {capability}")
    FAKE.fake_set_capacity(ctypes.c_uint64(capacity))


class Reads:
    """Values that a program reads from the device are 0 here. Those that real data make true are said to be true; all are noted."""

    def __init__(self, padding, packed=False):
        self.seen, self.count = {}, 0
        self.whole_copies = False  # what goes to the host stays in use there: weights that are offloaded
        self.true = (set() if packed else {"find_packed_sequence_indices"}) | (set() if padding else {"_ignore_causal_mask_sdpa"})

    def install(self):
        for name in ("__bool__", "item", "tolist"):
            plain = getattr(torch.Tensor, name)

            def read(tensor, plain=plain, name=name):
                value = plain(tensor)
                if not tensor.is_cuda:
                    return value
                frame = caller()
                if frame == "read":  # "with device:" calls it again
                    return value
                self.count += 1
                if frame in self.true and name == "__bool__":
                    value = True
                self.seen[frame + "." + name] = str(value)
                return value

            setattr(torch.Tensor, name, read)
        plain_equal = torch.equal

        def equal(first, second):
            self.count += first.is_cuda
            self.seen[caller() + ".equal"] = str(value := plain_equal(first, second))
            return value

        torch.equal = equal
        self.install_cpu()

    def install_cpu(self):
        """What evaluation moves to the host: sizes for accelerate are the true ones, and large tensors, of which nobody reads a value, come without rows."""
        plain = torch.Tensor.cpu

        def read(tensor, *args, **kwargs):
            if not tensor.is_cuda:
                return plain(tensor, *args, **kwargs)
            self.seen[caller() + ".cpu"] = ""
            if sys._getframe(1).f_code.co_name == "_pad_across_processes":
                return torch.tensor(sys._getframe(1).f_locals["tensor"].shape)[None]
            predictions = sys._getframe(1).f_code.co_name == "nested_numpify"
            if tensor.nbytes > 1 << 20 and (predictions or not self.whole_copies):
                return torch.zeros((0, *tensor.shape[1:]), dtype=tensor.dtype)
            self.count += 1
            return plain(tensor, *args, **kwargs)

        torch.Tensor.cpu = read
        plain_to = torch.Tensor.to

        def moved(tensor, *args, **kwargs):
            """Weights that bitsandbytes' 8 bits take from the device before they are quantized there."""
            if tensor.is_cuda and args and args[0] == "cpu":
                self.seen[caller() + ".to"] = ""
                self.count += 1
            return plain_to(tensor, *args, **kwargs)

        torch.Tensor.to = moved

    def check(self, known=0):
        """Whether somebody read from the device in another way, in C++ for example: nobody looked at what that decides. `known`: but for so many."""
        really = FAKE.fake_host_reads() - known
        if self.whole_copies:
            self.seen["what is kept on the host"] = f"{really - self.count} copies"
            return
        if really != self.count:
            raise RuntimeError(f"{really} reads from the device, {self.count} of them noted")


def caller():
    """The function that reads, without PyTorch's and those that only pass it on."""
    frame = sys._getframe(2)
    while frame and ("/torch/" in frame.f_code.co_filename or frame.f_code.co_name in ("fast_all", "wrapped", "decorate_context")):
        frame = frame.f_back
    return frame.f_code.co_name if frame else "?"


class Phases:
    """Where the run is. Each phase's peak is that of the allocator, reset when it begins."""

    def __init__(self):
        self.rows, self.current = [], None
        self.step, self.micro_step = 0, 0
        self.whole = False  # evaluation: its losses are no phases of their own
        self.names = {}

    def begin(self, name):
        self.end()
        reset_peaks()
        self.current = name, self.step
        mark(f"{self.step} {name}")

    def end(self):
        if not self.current:
            return
        stats = torch.cuda.memory_stats()
        name, step = self.current
        self.rows.append({"step": step, "phase": name, "allocated_peak": stats["allocated_bytes.all.peak"],
                          "reserved_peak": stats["reserved_bytes.all.peak"], "requested_peak": stats["requested_bytes.all.peak"],
                          "allocated_after": stats["allocated_bytes.all.current"], "reserved_after": stats["reserved_bytes.all.current"]})
        self.current = None

    def name_parameters(self, model):
        for name, parameter in model.named_parameters():
            self.names.setdefault(storage_of(parameter), []).append((self.step, "parameter " + name))

    def name_gradients(self, model):
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                self.names.setdefault(storage_of(parameter.grad), []).append((self.step, "gradient " + name))

    def merged(self):
        """One row for each phase of a step: of several micro-steps the largest peaks and the last figures."""
        rows = {}
        for row in self.rows:
            old = rows.setdefault((row["step"], row["phase"]), dict(row))
            for key in row:
                if key.endswith("_peak"):
                    old[key] = max(old[key], row[key])
                elif key.endswith("_after"):
                    old[key] = row[key]
        return list(rows.values())


def storage_of(tensor):
    """Of the bytes of a tensor, or of this rank's part of it; of torchao's NF4Tensor those of its codes."""
    tensor = getattr(tensor, "quantized_data", tensor)
    return getattr(tensor, "_local_tensor", tensor).untyped_storage().data_ptr()


def mark(text):
    """The requests that follow carry this text in the history."""
    torch.cuda.memory._set_memory_metadata(text)


def wrap_losses(phases):
    """The loss of transformers is its own phase of the forward."""
    from transformers.loss import loss_utils

    for name, function in list(loss_utils.LOSS_MAPPING.items()):
        @functools.wraps(function)
        def phased(*args, function=function, **kwargs):
            if not phases.whole:
                phases.begin("loss")
            return function(*args, **kwargs)

        loss_utils.LOSS_MAPPING[name] = phased
NODE = re.compile(r"autograd::(?:generated::)?(\w+?)::apply")
OP = re.compile(r"(?:at::_ops|at::native)::(?:\(anonymous namespace\)::)?(\w+?)(?:::call|::redispatch|\(|<|$)")


@functools.lru_cache(maxsize=None)
def classes_of(path):
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found.append((node.lineno, node.end_lineno, node.name))
    return found


def place(frame):
    path = frame["filename"]
    line = frame["line"]
    owner = next((name + "." for first, last, name in classes_of(path) if first <= line <= last), "") if os.path.exists(path) else ""
    ours = os.path.dirname(path) == os.path.dirname(os.path.abspath(__file__))  # its lines move
    return f"{os.path.basename(path)}:{owner}{frame['name']}" + ("" if ours else f":{line}")


LIBRARIES = re.compile(r"/(transformers|peft|bitsandbytes|trl|accelerate|torchtune|torchao|recipes)/")
PYTORCH = re.compile(r"/torch/(optim|utils|nn/utils|nn/parallel|amp|nn/modules|distributed/fsdp)/|/memory/(training|ranks|tuning).py")


def label(frames):
    """(op, the autograd node, the innermost line of a library that people know); a copy is said with the op that made it, "clone<reshape"."""
    ops, node, where, inner = [], "", "", ""
    for frame in frames or ():
        name = frame["name"]
        if frame["filename"].endswith(".py"):
            if not where and LIBRARIES.search(frame["filename"]):
                where = place(frame)
            if not inner and PYTORCH.search(frame["filename"]):
                inner = place(frame)
        elif not node and (found := NODE.search(name)):
            node = found[1]
        elif found := OP.match(name):
            if not TAKES.match(found[1]) and found[1] not in ops:
                ops.append(found[1])
        elif "BlasWorkspace" in name or "blasHandle" in name or "CUDABlasHandle" in name or "BlasLtWorkspace" in name:
            ops.append("workspace")
    first = next((i for i, op in enumerate(ops) if op not in COPIES), len(ops))
    op = "<".join(ops[:first][:1] + ops[first:first + 1]) or "empty"
    return op, node, where or inner


def history():
    """[(+bytes or -index - 1, frames, phase, address)]; index: the position of the request that is freed. What autograd's own thread asks
    carries no text and belongs to the phase that the main thread said last."""
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    events, live, phase = [], {}, "0 start"
    for entry in trace:
        phase = entry.get("user_metadata") or phase
        if entry["action"] == "alloc":
            live[entry["addr"]] = len(events)
            events.append((entry["size"], entry["frames"], phase, entry["addr"], entry["stream"]))
        elif entry["action"] == "free_completed" and entry["addr"] in live:
            events.append((-live.pop(entry["addr"]) - 1, None, phase, entry["addr"], entry["stream"]))
    return events


def rounded(size):
    return (size + ROUND - 1) // ROUND * ROUND


def peak(events, names, model, optimizer):
    """Where the most is live: the event's index, its phase, and the live requests there by size."""
    current = best = 0
    at = 0
    for index, (size, *_) in enumerate(events):
        current += rounded(size) if size >= 0 else -rounded(events[-size - 1][0])
        if current > best:
            best, at = current, index
    live = {}
    for index, (size, *_) in enumerate(events[:at + 1]):
        if size >= 0:
            live[index] = size
        else:
            del live[-size - 1]
    states = {}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if torch.is_tensor(value) and value.is_cuda:
                states[storage_of(value)] = key
    step = int(events[at][2].split()[0])
    largest = []
    for index in sorted(live, key=lambda i: (-live[i], i))[:5]:
        size, frames, phase, address, _ = events[index]
        op, node, where = label(frames)
        known = [text for when, text in names.get(address, []) if when in (int(phase.split()[0]), 0)]
        state = states.get(address)
        largest.append({"bytes": size, "op": op, "node": node, "line": where, "made": phase,
                        "what": known[0] if known else ("state " + state if state else "")})
    return {"phase": events[at][2], "step": step, "op": list(label(events[at][1])), "bytes_by_requests": best, "live": len(live), "largest": largest}


def compact(events):
    """All requests for teaching: a row is [bytes, label, phase] or [-row - 1] for what is freed, in the order in which they were made. What another
    stream than the usual asks for has the stream's number, from 1, behind it."""
    labels, phases, rows, streams = {}, {}, [], {0: 0}
    for size, frames, phase, _, stream in events:
        if size >= 0:
            rows.append([size, labels.setdefault(" | ".join(label(frames)), len(labels)), phases.setdefault(phase, len(phases))])
            if stream:
                rows[-1].append(streams.setdefault(stream, len(streams)))
        else:
            rows.append([size])
    return {"labels": list(labels), "phases": list(phases), "rows": rows}
