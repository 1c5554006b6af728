#!/usr/bin/env bash
# test_cuda_probe.sh HEADROOM: devices cuda --probe on the card in software (tests/gpu/soft_card.c): what it measures, what plans take of it,
# and whose they do not take.
source "$(dirname "$0")/card.sh"
export LD_LIBRARY_PATH=$card
silent() { cat said told | tr -s ' \n' ' ' | grep -qF -- "$1" && { cat said told >&2; fail "it says: $1"; } || true; }
job=(plan micro-llama-bytes --device cuda --seq 32)
# taken: a plan with what was measured; assumed: one with none of it, and the bytes of one made before.
taken() { expect 0 "$@" "$headroom" "${job[@]}"; says "runtime and libraries, measured"; says "predicted from rates measured on this machine"; silent "not taken"; }
assumed() { expect 0 "$@" "$headroom" "${job[@]}"; says "context: assumed"; says "predicted from assumed rates"; }

expect 0 "$headroom" "${job[@]}" --json; cp said before.json
expect 0 "$headroom" plan micro-llama-bytes --device h200 --seq 32; cp said elsewhere

# ---- what cannot be measured ----
expect 2 "$headroom" devices h200 --probe; says "h200 is a row of the table"
expect 2 "$headroom" devices cuda:1 --probe; says "there is no CUDA device 1"
expect 2 "$headroom" devices cuda --probe --threads 2; says "cuda has none"
[[ ! -e cache ]] || fail "a refused probe left files"

# ---- measured: the context's 300 MiB and 16 more for what a probe has none of; rates of every class ----
expect 0 "$headroom" devices cuda --probe --probe-seconds 3 --json
python3 - <<'P'
import json
said, before = json.load(open("said")), json.load(open("before.json"))
d = said["device"]
r = d["rates"]
assert d["fixed_measured"] and d["fixed_bytes"] == 316 << 20, d["fixed_bytes"]
assert r["threads"] == 1 and r["instruction_set"] == "sm_80" and r["libraries"] == "cublasLt 13.1.0, 4 SMs", r
assert r["card"] == "GPU-07070707-0707-0707-0707-070707070707, CUDA 13.1, driver 580.01", r["card"]
for t in ("fp32", "bf16"):
    kinds = r[t]["product_flops"]
    assert all(max(kinds[12 * k:12 * k + 12]) > 1e6 for k in range(3)), (t, kinds)
    assert not any(kinds[36:]), "nothing is packed on a card"
    assert all(max(r[t]["attention_flops"][4 * k:4 * k + 4]) > 1e5 for k in range(2)), (t, r[t]["attention_flops"])
    streams = r[t]["stream_bytes"]
    assert all(max(streams[3 * k:3 * k + 3]) > 1e5 for k in range(13)), (t, streams)
    # A GPU in software multiplies 2^34 in minutes: left out, for a round was to take half a second.
    assert not any(kinds[4 * k + 3] for k in range(9)), kinds
link = r["link_bytes_per_second"]
assert min(link.values()) > 1e6 and d["link_bytes_per_second"] == min(link.values()), link
assert 1e-7 < r["node_seconds"] < 0.05, r["node_seconds"]
stored = json.load(open(said["path"]))
assert stored["fixed_bytes"] == d["fixed_bytes"] and stored["card"] == r["card"], stored
assert said["path"].endswith("cuda-gpu-07070707-0707-0707-0707-070707070707-cuda-13-1-driver-580-01-cublaslt-13-1-0-4-sms.json"), said["path"]
P
expect 0 "$headroom" devices cuda; says "here on 20"; says "measured on this machine"
expect 0 "$headroom" devices cuda:0; says "measured on this machine" # the same card by its other name

# ---- plans take it, and another plan's time follows the file ----
taken env
expect 0 "$headroom" "${job[@]}" --json; cp said after.json
python3 - <<'P'
import glob, json
before, after = (json.load(open(f)) for f in ("before.json", "after.json"))
device = lambda p: p["tiers"]["device"]
assert not before["time"]["measured"] and after["time"]["measured"]
assert after["time"]["step_ns"] > 5 * before["time"]["step_ns"], (before["time"], after["time"])
assert device(before)["fixed_bytes"] == 500 << 20 and device(after)["fixed_bytes"] == 316 << 20
assert device(before)["reserved_bytes"] == device(after)["reserved_bytes"]
assert before["need_bytes"] - after["need_bytes"] == 184 << 20
name = glob.glob("cache/*")[0]
stored = json.load(open(name))
stored["node_seconds"] += 1e-3
json.dump(stored, open("slower.json", "w"))
P
mkdir slower && cp slower.json "slower/$(ls cache)"
HEADROOM_CACHE=$work/slower expect 0 "$headroom" "${job[@]}" --json
python3 -c "
import json
slower, after = json.load(open('said')), json.load(open('after.json'))
assert slower['time']['step_ns'] > after['time']['step_ns'] + 5e7, (slower['time'], after['time'])"
expect 0 "$headroom" plan micro-llama-bytes --device h200 --seq 32
cmp said elsewhere || fail "a probe of this machine changed a plan for another device"
for k in {1..20}; do echo "line $k of a text"; done >text.txt
expect 0 "$headroom" train micro-llama-bytes --device cuda --seq 32 --data text.txt --steps 3 --out run --profile trace.json
says "from measured rates: the run took"

# ---- not another card's, driver's or library's ----
SOFT_CARD_UUID=9 assumed env
SOFT_CARD_DRIVER=581.02 assumed env
SOFT_CARD_CUDA=13020 assumed env
SOFT_CARD_CUBLAS=130200 assumed env
silent "not taken"
taken env

# ---- what is there and does not hold is told, and changes nothing else ----
file=cache/$(ls cache)
cp "$file" whole
renamed=${file/0707-0707-0707-070707070707/0909-0909-0909-090909090909}
cp whole "${renamed/gpu-07070707/gpu-09090909}"
SOFT_CARD_UUID=9 assumed env
says "not taken: "; says "field 'card' must be 'GPU-09090909-0909-0909-0909-090909090909, CUDA 13.1, driver 580.01'"
damage() { sed "$1" whole >"$file"; cmp -s "$file" whole && fail "nothing was damaged: $1"; assumed env; says "not taken: "; says "measures anew"; }
damage 's/"schema_version": 1/"schema_version": 2/'
damage 's/"headroom": "/"headroom": "0/'
damage 's/"libraries": "cublasLt/"libraries": "another/'
damage 's/"instruction_set": "sm_80"/"instruction_set": "sm_90"/'
damage 's/"fixed_bytes": /"fixed_bytes": -/'
damage 's/"node_seconds": /"node_seconds": -/'
damage 's/"to_host": /"to_host": -/'
damage 's/"from_host"/"from"/'
damage 's/"attention_flops": \[/"attention_flops": [ 1.0,/'
damage '$d'
expect 0 "$headroom" "${job[@]}" --json
python3 -c "import json; assert 'cublaslt-13-1-0-4-sms.json' in json.load(open('said'))['time']['rates_problem']"
expect 0 "$headroom" devices cuda; says "stored probe not taken: "
expect 0 "$headroom" train micro-llama-bytes --device cuda --seq 32 --data text.txt --steps 1 --out damaged
says "warning: times and fixed bytes are assumed: "
cp whole "$file"
taken env

# ---- the driver does not show this process (a container): what is free less than before; beside others too ----
rm -r cache
SOFT_CARD_BLIND=1 SOFT_CARD_HELD=$((100 << 20)) expect 0 "$headroom" devices cuda --probe --probe-seconds 0.1 --json
python3 -c "import json; assert json.load(open('said'))['device']['fixed_bytes'] == 316 << 20"
taken env
echo "test_cuda_probe: all as expected"
