#!/usr/bin/env bash
# The device list, and a probe of this machine with a tiny time budget.
source "$(dirname "$0")/common.sh"
export HEADROOM_CACHE=$work/cache

run devices; expect_rc 0; expect_out '^cpu '; expect_out '^h100 '; expect_no_err
grep -qE '^cpu .* 0 +-$' out && fail "a rate below one is said to be none"
run devices rtx-2060; expect_rc 0; expect_out '^fp16 +25.8 TFLOP/s'; expect_out '^bf16 +none: '
run devices rtx-3070 --json; expect_json 'd["device"]["flops_fp16"] == d["device"]["flops_bf16"] == 40.6e12'
# What a device does not offer is said; the bytes are planned all the same.
run plan tiny-llama-bytes --device rtx-2060 --precision bf16; expect_rc 0; expect_out '^precision +rtx-2060 has no bf16, only fp16'
run plan tiny-llama-bytes --device rtx-2060 --precision bf16 --json; expect_rc 0; expect_json 'd["warnings"][0].startswith("rtx-2060 has no bf16, only fp16")'
run plan tiny-llama-bytes --device rtx-2060 --precision fp16; expect_rc 0; grep -q '^precision' "$work/out" && fail 'fp16 is said not to be offered'
run plan gpt2-124m --device rtx-2060 --seq 1024 --micro-batch 8 --json; expect_json 'any("--precision fp16" in f["options"] for f in d["fixes"])' 'not any("bf16" in f["options"] for f in d["fixes"])'
run plan tiny-llama-bytes --device rtx-2060; expect_rc 0; grep -q '^precision' "$work/out" && fail 'fp32 is said not to be offered'
run plan tiny-llama-bytes --device rtx-3050-6 --precision bf16; expect_rc 0; grep -q '^precision' "$work/out" && fail 'Ampere has bf16'
# tf32: the bytes of fp32 at another rate, where there is one.
run plan smollm2-135m --device a100-80 --micro-batch 4 --precision tf32; expect_rc 0; expect_out ' tf32, on a100-80'
run plan smollm2-135m --device a100-80 --micro-batch 4 --precision fp32 --json; expect_rc 0; cp out fp32
run plan smollm2-135m --device a100-80 --micro-batch 4 --precision tf32 --json; expect_rc 0
expect_json 'd["job"]["precision"] == "tf32"' 'd["need_bytes"] == json.load(open("fp32"))["need_bytes"]' \
  'd["time"]["step_ns"] < 0.7 * json.load(open("fp32"))["time"]["step_ns"]'
run plan smollm2-135m --device t4 --precision tf32; refuses 2; expect_err 'the device has no such products'; expect_err 'devices NAME'
run plan tiny-llama-bytes --precision tf32; refuses 2; expect_err 'a CPU multiplies all of them'
echo some text of a few words >text.txt
for command in 'train tiny-llama-bytes --data text.txt --out never' 'generate tiny-llama-bytes --prompt x'; do
  # shellcheck disable=SC2086
  run $command --precision tf32; refuses 2; expect_err 'a CPU multiplies all of them'
done
[ -e never ] && fail "a refused run made a directory"
run devices cpu; expect_rc 0; expect_out '^fixed .*assumed'; expect_out '^assumed reachable'
run plan micro-llama-bytes --threads 2; expect_rc 0; expect_out 'assumed'

run devices rtx-4090 --probe; refuses 2; expect_err 'takes no name'
run devices --probe --probe-seconds 0; refuses 2; expect_err 'probe-seconds'
run devices --probe --probe-seconds -1; refuses 2
[ -e cache ] && fail "a refused probe left files"
# Where it cannot be stored it is not measured first: that would take an hour here.
touch plain; HEADROOM_CACHE=plain run devices --probe --probe-seconds 3600; expect_rc 1; expect_err 'plain'
[ -s out ] && fail "a probe that cannot be stored was made"
# Others have half of the one processor: it says so, and that the rates may be low.
if [ -n "$(command -v taskset)" ] && [ -r /proc/self/schedstat ]; then
  one=$(taskset -cp $$ | sed -E 's/.*: ([0-9]+).*/\1/')
  taskset -c "$one" sh -c 'while :; do :; done' & busy=$!
  taskset -c "$one" "$program" devices --probe --probe-seconds 0.1 --threads 1 >out 2>err; rc=$? last="devices --probe beside another"
  kill $busy; expect_rc 0; expect_no_err
  tr -s ' \n' ' ' <out | grep -qF 'rounds 1, in 1 of them others had the processors: too few were quiet, so all count, and rates may be low' || fail "it does not say that the machine was busy"
  rm -r cache
fi

run devices --probe --probe-seconds 0.1 --threads 2 --json; expect_rc 0; expect_no_err
expect_json '1 <= d["rounds"] and 0 <= d["busy_rounds"] <= d["rounds"]' 'd["busy_counted"] == (d["busy_rounds"] == d["rounds"])'
expect_json 'd["path"].endswith(".json")' 'd["device"]["fixed_measured"]' 'd["device"]["rates"]["threads"] == 2' \
  'len(d["device"]["rates"]["fp32"]["product_flops"]) == 72' 'all(max(d["device"]["rates"][t]["product_flops"]) > 1e8 for t in ("fp32", "bf16"))' \
  'all(x > 0 for t in ("fp32", "bf16") for x in d["device"]["rates"][t]["attention_flops"] + d["device"]["rates"][t]["stream_bytes"][:39])' \
  '2**20 <= d["device"]["fixed_bytes"] < 2**30'
[ "$(find cache -type f | wc -l)" -eq 1 ] || fail "not one file in the cache: $(ls cache)"

# Plans for that team use it, others do not; a run says predicted against measured.
run plan micro-llama-bytes --threads 2; expect_rc 0; expect_out 'fixed .*measured'
run plan micro-llama-bytes --threads 2 --json; expect_json 'd["time"]["measured"]' 'd["tiers"]["device"]["fixed_measured"]' 'd["time"]["step_ns"] > 0'
run plan micro-llama-bytes --threads 3; expect_rc 0; expect_out 'assumed'
run train micro-llama-bytes --threads 2 --data "$here/common.sh" --seq 32 --steps 3 --out a --quiet; expect_rc 0; expect_out '^step time .*predicted .* from measured rates: the run took [-+]'
grep -q '"predicted_step_seconds"' a/run.json || fail "run.json lacks the prediction"
run train micro-llama-bytes --threads 2 --data "$here/common.sh" --seq 32 --steps 3 --out b --quiet --json; expect_rc 0
expect_json 'd["prediction_measured"]' 'd["predicted_step_seconds"] > 0' 'd["step_seconds"] > 0'

# A team that shares processors has nothing to tell of the machine, and is not taken for other programs' work.
HEADROOM_CACHE=$PWD/none run train micro-llama-bytes --threads $(($(nproc) + 1)) --data "$here/common.sh" --seq 32 --steps 1 --out shared; expect_rc 0
expect_err "note: $(($(nproc) + 1)) threads share $(nproc) processors?: what such steps take is not stored"
HEADROOM_CACHE=$PWD/none run train micro-llama-bytes --threads 1 --data "$here/common.sh" --seq 32 --steps 1 --out alone; grep -q "threads share" err && fail "a team of one is told as too large"

# Rates of earlier runs, of fp32 alone, in the form of a file that training leaves: twice what is assumed of two threads.
HEADROOM_CACHE=$PWD/none run devices cpu --json; cp out device.json
python3 - cache <<'END'
import glob, json, os, sys
device = json.load(open("device.json"))["device"]
cores = device["team"]["default_threads"]
memory, core = device["memory_bytes_per_second"], device["core_memory_bytes_per_second"]
of = {k: device[k] * min(2, cores) / cores for k in ("flops_fp32", "flops_bf16")}
of.update(memory_bytes_per_second=min(memory, 3 * core) if core and cores > 2 else memory, node_seconds=device["node_seconds"])
(path,) = glob.glob(sys.argv[1] + "/cpu-*.json")
probe = json.load(open(path))
seen = {k: v for k, v in probe.items() if k != "fixed_bytes"}
half = [72 + 8 + 42, 0]
seen.update(schema_version=5, assumed_of=of, seconds=[2e-3] * half[0] + [0] * half[0], assumed_seconds=[1e-3] * half[0] + [0] * half[0])
os.makedirs("earlier")
json.dump(seen, open("earlier/" + os.path.basename(path)[:-5] + "-seen.json", "w"))
END
seconds() { python3 -c "import json; print(json.load(open('out'))['time']['step_ns'])"; }
HEADROOM_CACHE=$PWD/none run plan micro-llama-bytes --threads 2 --json; assumed=$(seconds)
export HEADROOM_CACHE=$PWD/earlier
run plan micro-llama-bytes --threads 2 --json; expect_json 'd["time"]["seen"] and d["time"]["measured"]' '0.9 < d["time"]["seen_share"] <= 1' \
  "1.5 * $assumed < d['time']['step_ns'] < 2.1 * $assumed" 'not d["tiers"]["device"]["fixed_measured"]'
flat_says() { tr '\n' ' ' <out | tr -s ' ' | grep -qE -- "$1" || fail "not told: $1"; }
run plan micro-llama-bytes --threads 2; expect_rc 0; flat_says 'predicted from rates of earlier runs on this machine'
run plan micro-llama-bytes --threads 2 --precision bf16 --json; expect_json 'd["time"]["seen"]' 'd["time"]["seen_share"] < 0.6'
run plan micro-llama-bytes --threads 2 --precision bf16; expect_rc 0
flat_says 'earlier runs on this machine; [0-9]+ % of it is for operations of kinds or sizes that they did not have'
run train micro-llama-bytes --threads 2 --data "$here/common.sh" --seq 32 --steps 3 --out c --quiet; expect_rc 0; expect_out 'predicted .* from stored rates: the run took'
run train micro-llama-bytes --threads 2 --data "$here/common.sh" --seq 32 --steps 3 --out d --quiet --json; expect_json 'd["prediction_seen"]'
for file in earlier/*; do sed -i 's/"assumed_of": {"flops_fp32": /&9/' "$file"; done # of another processor
HEADROOM_CACHE=$PWD/earlier run plan micro-llama-bytes --threads 2 --json; expect_json 'not d["time"]["seen"]' "d['time']['step_ns'] == $assumed"
unset HEADROOM_CACHE; export HEADROOM_CACHE=$PWD/cache

# What is damaged is as good as nothing.
for file in cache/*; do echo '{' >"$file"; done
run plan micro-llama-bytes --threads 2; expect_rc 0; expect_no_err; expect_out 'assumed'

# Of a probe alone.
for option in "--probe-seconds 3" "--threads 2"; do for name in "" cpu; do
  # shellcheck disable=SC2086
  run devices $name $option; refuses 2; expect_err "^headroom: ${option% *} does nothing without --probe"; expect_err 'try: add --probe'
done; done

finish
