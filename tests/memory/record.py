#!/usr/bin/env python3
"""Records all jobs of jobs.json on the fake device and stores what came out.

    tests/memory/record.py WORK [NAME...]     WORK: made by record.sh; names: only those jobs (results of the others stay)

Jobs of several ranks are in sharded.json, those with what stands beside in beside.json, those with Liger's kernels in liger.json, those of axolotl and
LLaMA-Factory in stacks.json, those of torchtune's recipes in tune.json; their results lie in files with "sharded_", "beside_", "liger_", "stacks_" and "tune_"
before the name.

A job whose result is in WORK/results is not run again; what was cut off goes on from there.

recorded.json.gz has the jobs from which rules may be learnt, held_back.json.gz the others, lessons/ the requests of small jobs."""

import gzip
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
COLUMNS = ["step", "phase", "allocated_peak", "reserved_peak", "requested_peak", "allocated_after", "reserved_after"]
APART = {"zero": "deepspeed", "liger": "liger", "axolotl": "axolotl", "llama-factory": "llama-factory", "tune": "torchtune"}
AT_ONCE = int(os.environ.get("DEV_JOBS", "2"))


def environment(work, version, kind):
    result = dict(os.environ, LD_LIBRARY_PATH=str(work / "fake"), HF_HUB_OFFLINE="1", TORCH_SYMBOLIZE_MODE="dladdr", TOKENIZERS_PARALLELISM="false",
                  OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="0")
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        result.pop(name, None)
    result["TRL"] = str(work / "trl")
    older = work / f"transformers-{version}"
    if older.is_dir():
        result["PYTHONPATH"] = str(older)
    if kind in APART:  # only where they are used: libraries that find DeepSpeed or Liger import them
        result["PYTHONPATH"] = str(work / APART[kind])
    if kind == "tune":  # compiled flex_attention
        result |= {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor")}
    if kind in ("axolotl", "llama-factory"):
        result["HF_DEACTIVATE_ASYNC_LOAD"] = "1"  # else four threads race to bring weights to the device
    if kind == "axolotl":  # as its command line sets it (axolotl.utils.set_pytorch_cuda_alloc_conf)
        result |= {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "AXOLOTL_DO_NOT_TRACK": "1"}
    return result


def run(work, out, version, jobs, done):
    """One server for some jobs of a version and a kind of sharing."""
    with subprocess.Popen([work / "venv/bin/python", HERE / "serve.py", out], env=environment(work, version, kind_of(jobs[0])), stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=open(out / f"log-{version}-{jobs[0]['name']}", "a", encoding="utf-8"), text=True) as server:
        server.stdin.write("".join(json.dumps(job) + "\n" for job in jobs))
        server.stdin.close()
        for line in server.stdout:
            done(line.strip())


def kind_of(job):
    if job["loop"] == "torchtune":
        return "tune"
    if job["loop"] in ("axolotl", "llama-factory"):
        return job["loop"]
    return "liger" if job.get("liger") else job.get("sharding", {}).get("kind", "")


def record(work, out, jobs):
    groups = {}
    for job in sorted(jobs, key=lambda job: job.get("held_back", False)):
        groups.setdefault((job.get("held_back", False), job["transformers"], kind_of(job) if kind_of(job) in APART else ""), []).append(job)
    shares = [(version, some[first::AT_ONCE]) for (_, version, _), some in groups.items() for first in range(AT_ONCE) if some[first::AT_ONCE]]
    count, lock = [0], threading.Lock()

    def done(name):
        with lock:
            count[0] += 1
            print(f"{count[0]} of {len(jobs)}: {name}", file=sys.stderr, flush=True)

    def worker():
        while True:
            with lock:
                if not shares:
                    return
                version, some = shares.pop(0)
            run(work, out, version, some, done)

    workers = [threading.Thread(target=worker) for _ in range(AT_ONCE)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()


def finished(path):
    return path.exists() and "error" not in json.loads(path.read_text(encoding="utf-8"))


def stored(path):
    if not path.exists():
        return {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return {result["name"]: result for result in json.load(file)["results"]}


def store(path, results, order):
    names = [name for name in order if name in results]
    text = json.dumps({"columns": COLUMNS})[:-1] + ', "results": [\n'
    text += ",\n".join(json.dumps(results[name], separators=(",", ":")) for name in names) + "\n]}\n"
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(text.encode())


def store_lesson(job, result, out):
    requests = json.loads((out / f"{job['name']}.requests.json").read_text(encoding="utf-8"))
    (HERE / "lessons").mkdir(exist_ok=True)
    with open(HERE / "lessons" / f"{job['name']}.json.gz", "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(json.dumps({"job": job, "result": result, "requests": requests}, separators=(",", ":")).encode())


def collect(out, jobs, order):
    """Puts the results in `out` into the repository's files; what failed or has none."""
    parts, failed = {}, []
    for job in jobs:
        path = out / f"{job['name']}.json"
        result = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"error": "was not run"}
        if "error" in result:
            failed.append(f"{job['name']}: {result['error'].strip().splitlines()[-1]}")
            continue
        result["phases"] = [[row[key] for key in COLUMNS] for row in result["phases"]]
        if job.get("lesson"):
            store_lesson(job, result, out)
        else:
            parts.setdefault(job["prefix"] + ("held_back.json.gz" if job["held_back"] else "recorded.json.gz"), []).append(result)
    for name, results in parts.items():
        store(HERE / name, stored(HERE / name) | {result["name"]: result for result in results}, order)
    return failed


def main():
    work, names = Path(sys.argv[1]).resolve(), set(sys.argv[2:])
    out = work / "results"
    out.mkdir(exist_ok=True)
    tables = [(prefix, json.loads((HERE / name).read_text(encoding="utf-8"))) for prefix, name in (("", "jobs.json"), ("sharded_", "sharded.json"), ("liger_", "liger.json"),
                                                                                                   ("beside_", "beside.json"), ("stacks_", "stacks.json"),
                                                                                                   ("tune_", "tune.json"))]
    everything = [dict(job, prefix=prefix) for prefix, table in tables for job in table["jobs"]]
    everything += [dict(job, lesson=True) for _, table in tables for job in table["lessons"]]
    jobs = [job for job in everything if not names or job["name"] in names]
    if names - {job["name"] for job in jobs}:
        raise SystemExit(f"no job {sorted(names - {job['name'] for job in jobs})} in jobs.json, sharded.json, liger.json, beside.json, stacks.json and tune.json")
    record(work, out, [job for job in jobs if not finished(out / f"{job['name']}.json")])
    failed = collect(out, jobs, [job["name"] for _, table in tables for job in table["jobs"]])
    print(f"{len(jobs) - len(failed)} recorded, {len(failed)} failed", *failed, sep="\n", file=sys.stderr)
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
