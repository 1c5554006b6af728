#!/usr/bin/env bash
# headroom explain: logs, snapshots and run directories; text and JSON, files and pipes; planned and proven fixes.
source "$(dirname "$0")/common.sh"
data=$(cd "$here/.." && pwd)

cat >oom.log <<'LOG'
step 12
Traceback (most recent call last):
  File "lib/transformers/trainer.py", line 12, in training_step
    loss.backward()
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.15
[rank3]: GiB of which 1.38 GiB is free. Including non-PyTorch memory, this process has 77.77 GiB memory in use. Of the
[rank3]: allocated memory 66.00 GiB is allocated by PyTorch, and 11.00 GiB is reserved by PyTorch but unallocated.
LOG
run explain oom.log; expect_rc 0; expect_no_err
expect_out '^line 5: pytorch-cuda.*rank 3, device 3, under transformers, in backward$'
expect_out '^fragmented, likely$'; expect_out 'unproven advice'; expect_out 'total +79.15 GiB'
awk 'length > 80 && !/^line/ { exit 1 }' out || fail "a line is wider than 80 columns"

run explain oom.log --json; expect_rc 0
expect_json 'len(d["failures"]) == 1' 'd["failures"][0]["cause"] == "fragmented"' 'd["failures"][0]["certainty"] == "likely"' \
  'd["failures"][0]["figures"]["requested_bytes"]["bytes"] == 2 << 30' 'd["failures"][0]["rank"] == 3' \
  'sum(s["bytes"] for s in d["failures"][0]["shares"]) == d["failures"][0]["figures"]["total_bytes"]["bytes"]' \
  'all(not a["proven"] and a["basis"] == "advice" for a in d["failures"][0]["advice"])' 'd["failures"][0]["event"] is None'

"$program" explain - <oom.log >piped 2>err; rc=$?
last='headroom explain - <oom.log'; expect_rc 0
run explain oom.log
cmp -s out piped || fail "a pipe and a file are explained differently"

printf 'CUDA error: out of memory\n' >bare.log
run explain bare.log; expect_rc 0; expect_out '^UNDECIDABLE'; expect_out 'could be:'

# Where a snapshot is the advice, the lines that record it stand there and run: the observer dumps, a file for each rank - the rank of the
# group where there is one, for not everybody sets RANK -; a second training in the process adds no observer, and a file that cannot be
# written leaves the program its own error.
expect_out '^to record a snapshot at the failure'; expect_out '_cuda_attach_out_of_memory_observer'
if [ -n "$have_python" ]; then
cat >stub.py <<'PY'
import sys, types
torch, log, observers, group = types.ModuleType("torch"), [], [], {"rank": None}
def dump(name):
    log.append(name)
    if len(log) > 3:
        raise PermissionError(13, "Permission denied", name)
memory = types.SimpleNamespace(_record_memory_history=lambda max_entries: log.append(max_entries), _dump_snapshot=dump)
torch.cuda = types.SimpleNamespace(memory=memory)
torch._C = types.SimpleNamespace(_cuda_attach_out_of_memory_observer=observers.append)
torch.distributed = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: group["rank"] is not None, get_rank=lambda: group["rank"])
names = {"transformers": {"TrainerCallback": object}, "lightning": {}, "lightning.pytorch": {}, "lightning.pytorch.callbacks": {"Callback": object}}
sys.modules["torch"] = torch
for name, members in names.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(members)
scope = {}
exec(open("snippet.py").read(), scope)
for again in range(2):
    if "RecordMemory" in scope:
        hook = scope["RecordMemory"]()
        hook.on_train_begin(None, None, None) if hasattr(hook, "on_train_begin") else hook.on_fit_start(None, None)
    else:
        scope["record_memory"]()
assert len(observers) == 1 and log == [1000000], (observers, log)
for group["rank"] in (None, 5, 6):
    observers[0](0, 1, 2, 3)
assert log == [1000000, "oom-rank3.pickle", "oom-rank5.pickle", "oom-rank6.pickle"], log
PY
for frame in '' lib/transformers/trainer.py lib/lightning/pytorch/trainer/trainer.py lib/torchtune/training/x.py; do
  { [ -z "$frame" ] || printf '  File "%s", line 12, in fit\n' "$frame"; cat bare.log; } >framed.log
  run explain framed.log --json; expect_rc 0
  python3 -c 'import json; open("snippet.py", "w").write(json.load(open("out"))["failures"][0]["snippet"])' || fail "no snippet for '$frame'"
  RANK=3 python3 stub.py >said 2>err || fail "the snippet for '$frame' does not run: $(tail -1 err)"
  grep -q '^the snapshot oom-rank6.pickle was not written: .*Permission denied' said || fail "the snippet for '$frame' does not say that it wrote nothing"
  case $frame in *transformers*) word=TrainerCallback ;; *lightning*) word=on_fit_start ;; *torchtune*) word=recipe_main ;; *) word=record_memory ;; esac
  grep -q "$word" snippet.py || fail "the snippet for '$frame' is not that framework's"
done
fi
run explain oom.log; expect_rc 0
! grep -q '^to record' out || fail "a snippet stands where no snapshot is advised"

printf 'all is well\n' >fine.log
run explain fine.log; refuses 5; expect_err 'no out-of-memory message in 1 lines'
: >empty.log
run explain empty.log; refuses 5
run explain; refuses 2; expect_err 'FILE'
gzip -c oom.log >oom.log.gz
run explain oom.log.gz; refuses 5; expect_err 'is compressed'; expect_err 'zcat'
mkdir -p no-run; run explain no-run; refuses 1; expect_err 'not one of a run'
iconv -f ASCII -t UTF-16 oom.log >wide.log
run explain wide.log; expect_rc 0; expect_out '^fragmented, likely$'
run explain missing.log; refuses 1; expect_err 'missing.log'
run explain oom.log other.log; refuses 2

# Refusals after which PyTorch asked again are one row, however many; of other failures a few rows, those that are decided before the others.
for k in {1..90}; do
  echo "[W1128 CUDACachingAllocator.cpp:3934] memory allocation failed with OOM on device 0 while trying to allocate $((k << 21)) bytes (free: 1048576, total: 84987084800)."
done >served.log
cat oom.log >>served.log
run explain served.log; expect_rc 0
expect_out '^line 95: .*rank 3'; expect_out '^  from line 1 on: the device refused 90 requests that were made again, mostly with success$'
[ "$(sed -n '/^other failures/,$p' out | wc -l)" = 2 ] || fail "a row for each refusal that was served"
for k in {10..29}; do sed "s/2.00 GiB/2.$k GiB/" oom.log; done >many.log
run explain many.log; expect_rc 0
[ "$(sed -n '/^other failures/,$p' out | grep -c '^  line')" = 8 ] || fail "not the first few of many failures"
expect_out '^  and 11 more \(--json has them\)$'

# Planned fixes: the device of the message, the words of its framework; more than the plan of the job as given saves.
cat >full.log <<'LOG'
  File "lib/transformers/trainer.py", line 12, in training_step
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 20.38 MiB is
free. Including non-PyTorch memory, this process has 23.60 GiB memory in use. Of the allocated memory 22.90 GiB is allocated by PyTorch,
and 150.00 MiB is reserved by PyTorch but unallocated.
LOG
run explain full.log --model gpt2-124m --micro-batch auto; refuses 2; expect_err 'auto says nothing of the job that failed'; expect_err 'try: .*--micro-batch N'
run explain full.log --model gpt2-124m --micro-batch 64 --recompute auto; refuses 2; expect_err 'auto says nothing of the job that failed'; expect_err 'try: say what it did'
run explain full.log --model gpt2-124m --seq 1024 --micro-batch 64; expect_rc 0; expect_no_err
expect_out '^planned$'; expect_out 'TrainingArguments\(per_device_train_batch_size=32,'; expect_out 'gpt2-124m on rtx-3090, 23.65 GiB'
run explain full.log --model gpt2-124m --seq 1024 --micro-batch 64 --json; expect_rc 0
expect_json 'd["planned"]["need_bytes"] > 20 << 30' 'd["failures"][0]["advice"][0]["basis"] == "planned"' 'not d["failures"][0]["advice"][0]["proven"]' \
  'all(a["need_bytes"] <= 23.65 * 2**30 and a["proof"] for a in d["failures"][0]["advice"] if a["basis"] == "planned")' \
  'any("batch_size=32" in a["text"] and "accumulation_steps=2" in a["text"] for a in d["failures"][0]["advice"])'
# The precision is what plan takes for that device, and is said.
run explain full.log --model gpt2-124m --seq 1024 --micro-batch 64 --json; cp out explained
run plan gpt2-124m --seq 1024 --micro-batch 64 --device rtx-3090 --budget 23.65GiB --json; cp out planned
expect_json '(lambda e, p: e["planned"]["need_bytes"] == p["tiers"]["device"]["reserved_bytes"] + p["tiers"]["device"]["fixed_bytes"])(json.load(open("explained")), json.load(open("planned")))'
run explain full.log --model gpt2-124m --seq 1024 --micro-batch 64; expect_out 'bf16 with fp32 masters'
run explain full.log --model gpt2-124m --seq 1024 --micro-batch 64 --precision fp32; expect_out '23.65 GiB, fp32, needs'
# Each change in the words of its own optimizer.
run explain full.log --model llama-3.2-1b --seq 2048 --micro-batch 4 --json; expect_rc 0
expect_json '(lambda a: ["adafactor" in x["proof"] for x in a] == ["adafactor" in x["text"] for x in a] and any("adafactor" in x["text"] for x in a))([x for x in d["failures"][0]["advice"] if x["basis"] == "planned"])'
run explain full.log --model no-such-model; refuses 2; expect_err 'no-such-model'
# A card whose total is not quite the table's: the message's counts, and no option that nobody gave is named.
for total in 23.64 44.53 39.39 7.91; do
  echo "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; $total GiB total capacity; 7.00 GiB already allocated; 100.00 MiB free; 7.10 GiB reserved in total by PyTorch)" >total.log
  run explain total.log --model gpt2-124m --seq 1024 --micro-batch 64; expect_rc 0; expect_no_err; expect_out "of $total GiB"
done
run explain bare.log --model gpt2-124m; refuses 2; expect_err 'no total'
run explain bare.log --model gpt2-124m --device rtx-4090; expect_rc 0; expect_out 'on rtx-4090'
run explain full.log --micro-batch 0; refuses 2
run explain full.log --micro-batch 4; refuses 2; expect_err 'micro-batch does nothing without --model'; expect_err 'try: add --model'
run explain full.log --budget 8GiB; refuses 2; expect_err 'budget does nothing without --model: it is of a snapshot'
run explain full.log --device rtx-4090; refuses 2; expect_err 'device does nothing without --model'

# Snapshots: told from logs by their first bytes, from a file or a pipe.
run explain "$data/explain/cases/pieces.pickle.gz"; expect_rc 0; expect_no_err
# The recording ends with the failure: a setting carries the request, and that is all it shows.
expect_out '^fragmented, certain$'; expect_out '^carries this request$'; expect_out 'expandable_segments:True'; expect_out 'carries this request only'
! grep -q '^proven' out || fail "a setting is called proven though the recording ends with the failure"
expect_out 'total is not in a snapshot'
run explain "$data/explain/cases/pieces.pickle.gz" --json; expect_rc 0
expect_json 'd["failures"][0]["cause"] == "fragmented"' 'd["failures"][0]["line"] is None' 'd["failures"][0]["advice"][0]["basis"] == "request"' \
  'not any(a["proven"] for a in d["failures"][0]["advice"])' \
  'd["failures"][0]["advice"][0]["need_bytes"] < 4 << 30' 'sum(s["bytes"] for s in d["failures"][0]["shares"]) == 4 << 30'
cp out first
"$program" explain - --json <"$data/explain/cases/pieces.pickle.gz" >out 2>err; rc=$?
expect_rc 0; cmp -s out first || fail "a snapshot from a pipe is explained differently"
# Thousands of empty members of gzip before it, of which the first bytes tell nothing.
gzip -nc </dev/null >members; for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do cat members members >more; mv more members; done
cat members "$data/explain/cases/pieces.pickle.gz" >late.pickle.gz
run explain late.pickle.gz --json; expect_rc 0; cmp -s out first || fail "a snapshot behind empty members is explained differently"
"$program" explain - --json <late.pickle.gz >out 2>err; rc=$?
expect_rc 0; cmp -s out first || fail "a snapshot behind empty members is explained differently from a pipe"
run inspect members; refuses 5; expect_err 'is empty'
run explain members; refuses 5; expect_err 'is empty'
run explain "$data/explain/cases/leak.pickle.gz" --budget 24GiB; expect_rc 0
expect_out '^growth, likely$'; expect_out '20.00 GiB of the device' # that somebody else holds
run explain "$data/explain/cases/leak.pickle.gz" --budget 4GiB; expect_rc 0; expect_out '^growth, certain$'; expect_out 'history.append'
run explain "$data/explain/cases/leak.pickle.gz" --device rtx-4090; expect_rc 0; expect_out 'total +23\.[0-9]+ GiB'
run explain "$data/explain/cases/leak.pickle.gz" --device rtx-9; refuses 2; expect_err 'rtx-9'
# An option that says no total is refused, not passed over.
run explain "$data/explain/cases/leak.pickle.gz" --device rtx-4090 --budget 50%; expect_rc 0; expect_out 'total +11\.[0-9]+ GiB'
run explain "$data/explain/cases/leak.pickle.gz" --budget 50%; refuses 2; expect_err '--budget: a share of a device that is not named'; expect_err 'try: --budget SIZE'
run explain "$data/explain/cases/leak.pickle.gz" --device cpu; refuses 2; expect_err 'cpu: what this machine has free now'
run explain "$data/explain/cases/leak.pickle.gz" --device rtx-4090 --budget 4GiB; expect_rc 0; expect_out 'total +4\.00 GiB'
head -c 3000 "$data/explain/cases/leak.pickle.gz" >cut.pickle.gz
run explain cut.pickle.gz; refuses 5; expect_err 'cut.pickle.gz'

# Run directories.
mkdir -p run/memory
cat >run/run.json <<'JSON'
{"state": "running", "step": 0, "steps": 100, "plan": {"budget_bytes": 4294967296, "tiers": {"device": {"planned_bytes": 1073741824,
 "fixed_bytes": 67108864, "peak_bytes": 1073741000}}}}
JSON
printf '{"step":%d,"process_resident_bytes":%d}\n' 1 1200000000 2 1200000100 >run/metrics.jsonl
run explain run; expect_rc 0; expect_out '^unknown after 2 of 100 steps$'; expect_out '^UNDECIDABLE from this run$'
run explain run --max-memory 1KiB; refuses 5; expect_err "^headroom: run: needs more memory than the 1.00 KiB"
if [ -n "$have_python" ]; then
python3 - <<'PY'
import struct
open("run/memory/trail", "wb").write(struct.pack("<8sIIqqQQiI16s16s32sQQQQQQI1024s", b"HRTRAIL1", 0x7fffffff, 0, 1, 2, 7, 100, 3, 0, b"train", b"backward",
    b"linear_dx", 1 << 30, 4 << 30, 64 << 20, 1200000000, 1300000000, 10000000, 0, b"").ljust(4096, b"\0"))
PY
run explain run --device rtx-4090; refuses 2; expect_err 'device does nothing without --model: it is of a snapshot, a run states its budget'
run explain run --budget 8GiB; refuses 2; expect_err 'budget does nothing without --model'; expect_err 'try: add --model'
run explain run; expect_rc 0; expect_out '^killed after 7 of 100 steps$'; expect_out 'last: backward, layer 3, linear_dx \(train\)'
expect_out '^host_memory, likely$'; expect_out 'planned +1.00 GiB'; expect_out 'kernel.*dmesg'
# Memory that stayed as it was is no growth, and nobody is told to look for any; a run of ours keeps no graph.
python3 - <<'PY'
import struct
page = struct.pack("<8sIIqqQQiI16s16s32sQQQQQQI1024s", b"HRTRAIL1", 0x7fffffff, 0, 1, 2, 7, 100, 3, 0, b"train", b"backward",
    b"linear_dx", 1 << 30, 4 << 30, 64 << 20, 1200000000, 1300000000, 8 << 30, 0, b"").ljust(4096, b"\0")
open("steady", "wb").write(page)
PY
cp run/metrics.jsonl two.jsonl; cp run/memory/trail low; cp steady run/memory/trail
for i in $(seq 7); do printf '{"step":%d,"process_resident_bytes":%d}\n' "$i" 1200000000; done >run/metrics.jsonl
run explain run; expect_rc 0; expect_out '^UNDECIDABLE from this run$'; expect_out 'could be: other_process host_memory$'; expect_out 'dmesg'
grep -qE 'defect|graph' out && fail "advice against growth where nothing grew"
for i in $(seq 4); do printf '{"step":%d,"process_resident_bytes":%d}\n' "$i" $((600000000 + i * 75000000)); done >run/metrics.jsonl
run explain run; expect_rc 0; expect_out '^growth, likely$'; expect_out 'is a defect: please report'
grep -q 'retain_graph' out && fail "a run of ours is told to look for a graph"
cp two.jsonl run/metrics.jsonl; cp low run/memory/trail
run explain run --json; expect_rc 0
expect_json 'd["run"]["end"] == "killed"' 'd["run"]["tiers"]["device"]["planned_bytes"] == 1 << 30' 'd["failures"][0]["source"] == "run"'
fi
printf 'HRTRAIL1' >run/memory/trail # torn: the rest never reached the disk
run explain run; expect_rc 0; expect_out '^unknown after 2 of 100 steps$'; expect_out 'left out: .*memory/trail: is no trail of a run \(8 bytes'
sed -i 's/running/asleep/' run/run.json
run explain run; refuses 5; expect_err "field 'state'"
run explain run/memory; refuses 1; expect_err 'run.json'
echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.00 GiB is free.' >idle.log
for option in "--seq 128" "--micro-batch 4" "--optimizer lion"; do # of a job that nobody named
  # shellcheck disable=SC2086
  run explain idle.log $option; refuses 2; expect_err "^headroom: ${option% *} does nothing without --model"; expect_err 'try: add --model'
done
finish
