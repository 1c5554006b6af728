#!/usr/bin/env python3
"""A team of threads on a machine that others use too: step times beside one thread's, and PyTorch's.

    ./dev bench contention                      # all conditions, training and generation, PyTorch where it is installed
    ./dev bench contention --conditions idle spinners --jobs train --no-torch --rounds 9
    ./dev bench contention --write              # also into docs/performance.md

Conditions:
    idle      nothing else runs
    spinners  as many processes as cores do nothing but compute
    four      four of the job at once; the figure is the mean of the four
    quota     CPU time for three quarters of the team (1.5 CPUs for two threads): a control group where one may be made,
              else the process is stopped for a quarter of each 100 ms

Jobs: `train` is tiny-llama-bytes, 8 x 128, 1.6 M parameters: loops of some us to 2 ms; `generate` continues a prompt with
it, loops of a few us. Sides: the team of --threads, `--threads 1`, PyTorch eager with as many threads as the team
(training). The sides of a round are measured in turn, and what is compared is the ratio within a round; the table gives
medians over the rounds and, in brackets, the least and the largest ratio.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "support"))
from document import ROOT, command_text, core_count, machine_text, replace_section  # noqa: E402

CONDITIONS = ("idle", "spinners", "four", "quota")
MODEL = "tiny-llama-bytes"
BATCH, SEQUENCE, COPIES = 8, 128, 4
PERIOD = 0.1  # seconds, of a quota
GROUPS = ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup")


# ---------------------------------------------------------------------------------------------------------------------
# Conditions


class Spinners:
    """As many busy processes as there are cores, for as long as the block lasts."""

    def __enter__(self):
        self.processes = [subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"]) for _ in range(core_count())]

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


class Quota:
    """CPU time of `cpus` processors for the processes given to it."""

    def __init__(self, cpus):
        self.cpus, self.group, self.stopped = cpus, None, []
        for parent in map(pathlib.Path, GROUPS):
            group = parent / f"headroom-bench-{os.getpid()}"
            try:
                group.mkdir()
                if (group / "cpu.cfs_quota_us").exists():
                    (group / "cpu.cfs_period_us").write_text(str(int(PERIOD * 1e6)))
                    (group / "cpu.cfs_quota_us").write_text(str(int(PERIOD * 1e6 * cpus)))
                else:
                    (group / "cpu.max").write_text(f"{int(PERIOD * 1e6 * cpus)} {int(PERIOD * 1e6)}")
                self.group = group
                return
            except OSError:
                if group.is_dir():
                    group.rmdir()

    @property
    def kind(self):
        return "control group" if self.group else "stopped and continued"

    def take(self, process, threads):
        if self.group:
            (self.group / "cgroup.procs").write_text(str(process.pid))
        elif threads > self.cpus:
            thread = threading.Thread(target=self.duty, args=(process, self.cpus / threads), daemon=True)
            thread.start()

    @staticmethod
    def duty(process, share):
        while process.poll() is None:
            time.sleep(PERIOD * share)
            process.send_signal(signal.SIGSTOP)
            time.sleep(PERIOD * (1 - share))
            process.send_signal(signal.SIGCONT)

    def close(self):
        if self.group:
            self.group.rmdir()


# ---------------------------------------------------------------------------------------------------------------------
# Sides: each starts a process that ends by itself and is asked for its seconds afterwards


def fresh(work):
    """A path of its own for what a process leaves."""
    return pathlib.Path(tempfile.mkdtemp(dir=work)) / "out"


class Train:
    def __init__(self, options, work, threads):
        self.threads, self.options, self.work = threads, options, work
        data = work / "data.jsonl"
        rows = [[(7 * row + 13 * k * k) % 250 for k in range(SEQUENCE + 1)] for row in range(64)]
        data.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))
        self.data = data

    def start(self):
        out = fresh(self.work)
        words = [self.options.program, "train", MODEL, "--data", self.data, "--out", out, "--micro-batch", BATCH, "--seq", SEQUENCE,
                 "--steps", self.options.steps, "--threads", self.threads, "--quiet"]
        return subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True), out

    @staticmethod
    def seconds(out):
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        steps = [line["step_seconds"] for line in lines if "step_seconds" in line]
        return statistics.fmean(steps[len(steps) // 5:])  # the mean: what a condition delays is part of the figure


class Generate:
    def __init__(self, options, work, threads, model):
        self.threads, self.options, self.model, self.work = threads, options, model, work

    def start(self):
        out = fresh(self.work)
        words = [self.options.program, "generate", self.model, "--prompt", "The memory of", "--max-tokens", self.options.tokens, "--temperature", 0,
                 "--threads", self.threads, "--json", "--quiet"]
        return subprocess.Popen([str(word) for word in words], stdout=out.open("w"), stderr=subprocess.PIPE, text=True), out

    @staticmethod
    def seconds(out):
        said = json.loads(out.read_text())
        return said["decode_seconds"] / said["new_tokens"]


class Torch:
    """A model of the same shape, as Hugging Face builds it."""

    def __init__(self, options, work, threads):
        self.threads, self.options, self.work = threads, options, work

    def start(self):
        out = fresh(self.work)
        words = [sys.executable, __file__, "--child", out, "--threads", self.threads, "--steps", self.options.steps]
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads), "HF_HUB_OFFLINE": "1"}
        return subprocess.Popen([str(word) for word in words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True), out

    @staticmethod
    def seconds(out):
        steps = json.loads(out.read_text())
        return statistics.fmean(steps[len(steps) // 5:])


def torch_main(out, threads, steps):
    import torch
    import transformers

    torch.set_num_threads(threads)
    shape = json.loads(pathlib.Path(os.environ["HEADROOM_BENCH_SHAPE"]).read_text())
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**{**shape, "use_cache": False})).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    seconds = []
    for _ in range(steps):
        ids = torch.randint(0, 250, (BATCH, SEQUENCE))
        begin = time.perf_counter()
        model(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - begin)
    pathlib.Path(out).write_text(json.dumps(seconds))


# ---------------------------------------------------------------------------------------------------------------------
# Measuring


def measure(side, copies, quota):
    """Seconds per step or token, the mean of the copies that run at once."""
    started = [side.start() for _ in range(copies)]
    if quota:
        for process, _ in started:
            quota.take(process, side.threads)
    for process, _ in started:
        error = process.communicate()[1]
        if process.returncode != 0:
            raise RuntimeError(f"ended with {process.returncode}: {error.strip()[-400:]}")
    return statistics.fmean(side.seconds(out) for _, out in started)


def rounds_of(condition, sides, options, quota):
    """{side: seconds of each round}. The sides of a round run one after the other, in another order each time."""
    seconds = {name: [] for name in sides}
    for number in range(options.rounds):
        names = list(sides)
        names = names[number % len(names):] + names[:number % len(names)]
        for name in names:
            if condition == "spinners":
                with Spinners():
                    value = measure(sides[name], 1, None)
            else:
                value = measure(sides[name], COPIES if condition == "four" else 1, quota if condition == "quota" else None)
            seconds[name].append(value)
        print(f"{condition}, round {number + 1}: " + ", ".join(f"{name} {seconds[name][-1] * 1e3:.1f} ms" for name in sides), file=sys.stderr, flush=True)
    return seconds


def ratio_text(over, under):
    ratios = [a / b for a, b in zip(over, under)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def row(condition, job, seconds):
    def milliseconds(name):
        return f"{statistics.median(seconds[name]) * 1e3:.2f}" if name in seconds else ""

    torch = ratio_text(seconds["torch"], seconds["team"]) if "torch" in seconds else ""
    return (f"| {condition} | {job} | {milliseconds('team')} | {milliseconds('one')} | {ratio_text(seconds['team'], seconds['one'])} "
            f"| {milliseconds('torch')} | {torch} |")


HEADER = """\
| condition | job | team, ms | one thread, ms | team / one thread | PyTorch, ms | PyTorch / team |
|---|---|---|---|---|---|---|"""


def has_torch():
    return subprocess.run([sys.executable, "-c", "import torch, transformers"], capture_output=True, check=False).returncode == 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conditions", nargs="+", choices=CONDITIONS, default=list(CONDITIONS))
    parser.add_argument("--jobs", nargs="+", choices=("train", "generate"), default=["train", "generate"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=core_count())
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/headroom")
    parser.add_argument("--scratch", type=pathlib.Path, help="where runs are written (TMPDIR)")
    parser.add_argument("--write", action="store_true", help="also into docs/performance.md")
    parser.add_argument("--child", type=pathlib.Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse_arguments()
    if options.child:
        torch_main(options.child, options.threads, options.steps)
        return
    rows, quota = [], Quota(0.75 * options.threads)
    print(HEADER)
    try:
        with tempfile.TemporaryDirectory(dir=options.scratch) as temporary:
            work = pathlib.Path(temporary)
            model = work / "model"
            begin = Train(options, work, 1)
            words = [options.program, "train", MODEL, "--data", begin.data, "--out", model, "--micro-batch", 1, "--seq", SEQUENCE, "--steps", 1, "--quiet"]
            subprocess.run([str(word) for word in words], check=True, capture_output=True)
            os.environ["HEADROOM_BENCH_SHAPE"] = str(model / "final/config.json")
            torch = not options.no_torch and has_torch()
            for job in options.jobs:
                for condition in options.conditions:
                    if job == "train":
                        sides = {"team": Train(options, work, options.threads), "one": Train(options, work, 1)}
                        if torch:
                            sides["torch"] = Torch(options, work, options.threads)
                    else:
                        sides = {"team": Generate(options, work, options.threads, model / "final"),
                                 "one": Generate(options, work, 1, model / "final")}
                    rows.append(row(condition, job, rounds_of(condition, sides, options, quota)))
                    print(rows[-1], flush=True)
    finally:
        quota.close()
    about = (f"{machine_text(options.program)}; a team of {options.threads}, {options.rounds} rounds, the sides in turn; per step of 8 x 128 tokens, per "
             f"token generated; quota: {quota.kind}.")
    print("\n" + about)
    if options.write:
        replace_section("contention", command_text("contention", sys.argv[1:]), "\n".join([HEADER, *rows, "", about]))


if __name__ == "__main__":
    main()
