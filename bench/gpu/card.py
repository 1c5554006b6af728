"""Shared by the scripts of bench/gpu: the card, where our programs are, running a job of the program on it, and the documents that
are left behind."""

import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACK = ROOT / "build/card"  # of pack.sh
NO_CARD, NOT_BUILT = 3, 2  # exit codes

# FLOP/s of bf16 products that MFU is against, the same for H100 and H200, and bytes per second, as the program's table of devices has them.
CARDS = {"H200": (989e12, 4.8e12), "H100 PCIe": (756e12, 2.0e12), "H100": (989e12, 3.35e12), "A100": (312e12, 2.039e12)}


def say(text):
    print(f"bench/gpu: {text}", file=sys.stderr, flush=True)


def query(fields):
    """nvidia-smi's answers of the first card, or None where there is none."""
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", "-i", "0"],
                              capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.strip().split(", ")
    return words if done.returncode == 0 and len(words) == len(fields) else None


def need_card():
    """What the card is; ends the script where there is none."""
    fields = ["name", "uuid", "driver_version", "memory.total", "memory.used", "clocks.max.sm", "power.limit"]
    found = query(fields)
    if found is None:
        say("no NVIDIA GPU is here (nvidia-smi shows none): nothing of this script was run")
        sys.exit(NO_CARD)
    card = dict(zip(fields, found))
    card["peak_flops"], card["peak_bytes_per_second"] = peaks(card["name"])
    return card


class Day:
    """What exact.py and train.py begin with: options, the card or a rehearsal without one, and the jobs that time is left for."""

    def __init__(self, doc, jobs, rehearsed, numbers=None):
        parser = argparse.ArgumentParser(description=doc.splitlines()[0])
        parser.add_argument("out")
        parser.add_argument("names", nargs="*")
        parser.add_argument("--seconds", type=float, default=540)
        parser.add_argument("--device", default="cuda")
        parser.add_argument("--rehearse", nargs="?", const="cpu", metavar="DEVICE")
        for name, default in (numbers or {}).items():
            parser.add_argument(name, type=int, default=default)
        self.arguments = parser.parse_intermixed_args()
        rehearse = self.arguments.rehearse
        self.document = {"card": None if rehearse else need_card(), "jobs": {}}
        self.device, self.wanted = (rehearse, rehearsed) if rehearse else (self.arguments.device, jobs)
        self.end = time.perf_counter() + self.arguments.seconds

    def jobs(self, least):
        """Those that were named, or all; what has not `least` seconds left is said not to have run."""
        for name, job in self.wanted.items():
            if self.arguments.names and name not in self.arguments.names:
                continue
            if time.perf_counter() > self.end - least:
                self.document["jobs"][name] = {"failed": "not run: no time was left"}
                continue
            yield name, job


def peaks(name):
    for part, figures in CARDS.items():
        if all(word in name for word in part.split()):
            return figures
    return None, None


def ours(name):
    """A program of pack.sh."""
    path = PACK / name
    if not path.exists():
        say(f"{path} is not there: bench/gpu/pack.sh makes it, where nvcc and the libraries of the build are")
        sys.exit(NOT_BUILT)
    return path


def libraries():
    """Folders of CUDA's libraries, as a toolkit or Python packages have them, for whom the loader does not know them."""
    folders = [PACK / "lib"]
    for place in [pathlib.Path("/usr/local/cuda/lib64"), *(pathlib.Path(p) for p in sys.path)]:
        folders += [f.parent for pattern in ("libcublasLt.so.1*", "nvidia/*/lib/libcublasLt.so.1*") for f in place.glob(pattern)]
    return [str(f) for f in dict.fromkeys(folders)]


def environment():
    """For our programs alone: other programs keep their own libraries."""
    return {**os.environ, "LD_LIBRARY_PATH": ":".join([*libraries(), os.environ.get("LD_LIBRARY_PATH", "")]).rstrip(":"),
            "HEADROOM_CACHE": "/dev/null/no-cache"}


def write(out, name, document):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    document = {"date": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()), **document}
    part = out / f"{name}.part"
    part.write_text(json.dumps(document, indent=1) + "\n")
    part.replace(out / f"{name}.json")  # a script that is stopped leaves what it had
    return document


# ---- jobs of the program ----


def write_text(path, size):
    """Random printable bytes: what is learnt of them costs nothing."""
    source, letters = random.Random(0), [chr(code) for code in range(32, 127)]
    block = "".join("".join(source.choices(letters, k=63)) + "\n" for _ in range(4096))
    with open(path, "w") as file:
        for at in range(0, size, len(block)):
            rotated = at // len(block) % 63
            file.write(block[rotated:] + block[:rotated])


class Memory(threading.Thread):
    """The most that nvidia-smi shows in use while a job runs, in MiB."""

    def __init__(self):
        super().__init__(daemon=True)
        self.before = self.used()
        self.most, self.over = self.before, threading.Event()
        self.start()

    @staticmethod
    def used():
        found = query(["memory.used"])
        return int(found[0]) if found else 0

    def run(self):
        while not self.over.wait(0.25):
            self.most = max(self.most, self.used())

    def stop(self):
        self.over.set()
        self.join()
        return {"used_before_mib": self.before, "used_most_mib": self.most, "used_by_job_mib": self.most - self.before}


def plan(model, options, device):
    """The plan of a job, and whether it fits; None with what was said where it was refused."""
    command = [str(ours("headroom")), "plan", model, "--device", device, *map(str, options), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    try:
        return json.loads(done.stdout), done.stderr.strip()
    except ValueError:
        return None, done.stderr.strip() or f"plan ended with {done.returncode}"


def steps_of(model, options, steps, device, sequence, rows, limit=240):
    """Trains so many steps and stops there, before anything is saved (weights and states of 8B parameters are 48 GB): the lines of
    metrics.jsonl, seconds to the first, and what of the card's memory was taken. {"failed": text} where it went wrong."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        data, errors = pathlib.Path(folder) / "text.txt", pathlib.Path(folder) / "stderr"
        write_text(data, 2 * rows * (sequence + 1) * (steps + 2))
        command = [str(ours("headroom")), "train", model, "--device", device, "--data", data, "--out", pathlib.Path(folder) / "run", "--quiet",
                   "--seq", sequence, "--micro-batch", rows, "--steps", 1000, "--log-json", "-", "--schedule", "constant", *options]
        memory, begin, lines = Memory(), time.perf_counter(), []
        with open(errors, "w") as stderr:
            process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment())
        timer = threading.Timer(limit, process.kill)
        timer.start()
        first = None
        for line in process.stdout:
            entry = json.loads(line)
            if "step_seconds" not in entry:
                continue
            first = first or time.perf_counter() - begin
            lines.append(entry)
            if len(lines) == steps:
                break
        if len(lines) == steps:
            process.send_signal(signal.SIGKILL)
        process.wait()
        timer.cancel()
        found = {"command": " ".join(["headroom", *(str(word) for word in command[1:])]).replace(folder, "TMP"), **memory.stop()}
        if len(lines) < steps:
            said = errors.read_text().strip() or f"nothing was said in {limit} s"
            return {**found, "failed": said, "exit": process.returncode, "steps": len(lines)}
        run = json.loads((pathlib.Path(folder) / "run/run.json").read_text())
        tier = run["plan"]["tiers"]["device"]
        return {**found, "seconds_to_first_step": first, "step_seconds": [line["step_seconds"] for line in lines],
                "losses": [line["loss"] for line in lines], "planned_bytes": tier["planned_bytes"], "reserved_bytes": lines[-1]["device_reserved_bytes"],
                "grown_bytes": lines[-1].get("device_grown_bytes"), "fixed_bytes": tier["fixed_bytes"], "parameter_count": run["plan"]["parameter_count"],
                "predicted_step_seconds": run["plan"]["step_seconds"]}


def flops_per_token(parameters, layers, width, sequence):
    """The one formula: 6 for each parameter, and of attention 6 for each layer, column of all heads, and position (half of T x T is masked):
    forward once, backward twice, nothing for what is made again."""
    return 6 * parameters + 6 * layers * width * sequence


def middle(values):
    return statistics.median(values) if values else None
