#!/usr/bin/env python3
"""Records training jobs, each in a process of its own that begins with the libraries loaded and the fake device untouched.

    LD_LIBRARY_PATH=FAKES tests/memory/serve.py OUT < jobs, one a line      (record.py starts it, once for each version of transformers)

Writes OUT/NAME.json for each, with "error" where a job failed, and OUT/NAME.requests.json for lessons."""

import importlib
import json
import os
import sys
import tempfile
import time
import traceback
import warnings

import tracing

CAPACITY = 2 << 40  # nothing is refused
LIMIT = 900         # seconds for one job


def versions(job):
    from importlib.metadata import version

    names = ("torch", "transformers", "accelerate", "peft", "bitsandbytes") + (("liger-kernel",) if job.get("liger") else ())
    names += {"axolotl": ("axolotl",), "llama-factory": ("llamafactory",)}.get(job["loop"], ())
    if job["loop"] == "torchtune":
        names = ("torch", "torchtune", "torchao", "bitsandbytes")
    return {name: version(name) for name in names}


def first_step(job):
    """Leaves in job["folder"] what one step saves, from a process of its own."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            prepared(dict(job, resumed=False))
            status = 0
        except BaseException:  # pylint: disable=broad-except
            traceback.print_exc()
        os._exit(status)
    if os.waitpid(process, 0)[1]:
        raise RuntimeError("the run to resume failed")


def prepared(job, before=lambda: None):
    """Runs the job: its model, optimizer, phases and reads."""
    import ranks
    import training

    tracing.prepare(job["capability"], CAPACITY)
    training.skip_initialization()
    training.skip_triton()
    reads = tracing.Reads(job["mask"] == "padding", job.get("sample_packing", False))
    reads.install()
    ranks.begin(job, reads, tracing.FAKE)
    phases = tracing.Phases()
    tracing.wrap_losses(phases)
    before()
    model, optimizer = training.run(job, phases)
    return model, optimizer, phases, reads


def record(job, out):
    import torch

    import training

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        if job.get("saving"):
            job = dict(job, folder=folder, resumed=job["saving"] == "resume")
        if job.get("resumed"):
            first_step(job)
        model, optimizer, phases, reads = prepared(
            job, lambda: torch.cuda.memory._record_memory_history("all", stacks="all", max_entries=1 << 30))
    if job.get("saving") != "save":  # files are written by copies that nobody looks into
        # TRL: the backward of masked_scatter asks how many it takes, and makes up with zeros for what it does not get
        reads.check(training.STEPS * job["accumulation"] if job["loop"] == "trl" else training.unnoted(job))
    rows = phases.merged()
    events = tracing.history()
    result = {"name": job["name"], "parameters": sum(p.numel() for p in model.parameters()),
              "trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
              "phases": rows, "peak": tracing.peak(events, phases.names, model, optimizer), "reads": reads.seen, "versions": versions(job),
              "requests": sum(size >= 0 for size, *_ in events), "seconds": round(time.monotonic() - began, 1)}
    if job.get("lesson"):
        write(out, job["name"] + ".requests", tracing.compact(events))
    return result


def write(out, name, value):
    path = os.path.join(out, name + ".json")
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.rename(path + ".part", path)


def child(job, out):
    warnings.simplefilter("ignore")
    os.dup2(2, 1)  # what libraries print does not go to record.py
    try:
        result = record(job, out)
    except BaseException:  # pylint: disable=broad-except
        result = {"name": job["name"], "error": traceback.format_exc()}
    write(out, job["name"], result)
    os._exit(0)


def wait(process):
    """False when it had to be ended."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if os.waitpid(process, os.WNOHANG)[0]:
            return True
        time.sleep(0.05)
    os.kill(process, 9)
    os.waitpid(process, 0)
    return False


def main():
    out = sys.argv[1]
    import torch  # noqa: F401  loaded once for all; what looks for a device while it is loaded (bitsandbytes, accelerate) is not
    import transformers
    import transformers.modeling_utils

    import frameworks

    transformers.logging.set_verbosity_error()
    for line in sys.stdin:
        job = json.loads(line)
        for name in frameworks.LIBRARIES.get(job["loop"], ()):
            importlib.import_module(name)
        process = os.fork()
        if process == 0:
            child(job, out)
        if not wait(process) or not os.path.exists(os.path.join(out, job["name"] + ".json")):
            write(out, job["name"], {"name": job["name"], "error": "ended by the system or after the limit of time"})
        print(job["name"], flush=True)


if __name__ == "__main__":
    main()
