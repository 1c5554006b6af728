#!/usr/bin/env bash
# test_cuda.sh HEADROOM: --device cuda through everything that a real card is reached by - the driver, cuBLASLt, NVML and the library
# of kernels, each loaded by its name - with the software GPU behind those names (tests/gpu/soft_card.c).
source "$(dirname "$0")/card.sh"
field() { python3 -c "import json,sys; d=json.load(open(sys.argv[1]))
for k in sys.argv[2].split('.'): d=d[int(k)] if isinstance(d,list) else d[k]
print(d)" "$@"; }

for k in {1..40}; do echo "line $k of the text that is learned by heart, one after the other"; done >text.txt
tac text.txt >held.txt

# ---- nothing is there: named, and no run begins ----
if ! ldconfig -p 2>/dev/null | grep -q libcuda.so.1; then
  expect 2 "$headroom" train micro-llama-bytes --device cuda --data text.txt --out none
  says "libcuda.so.1, the driver of NVIDIA's GPUs, is not there"
  [[ ! -e none ]] || fail "a run directory was left"
fi
mkdir -p partly bin # the program alone: in a source tree the kernels may lie where it looks for them
ln -s "$card/libcuda.so.1" partly/
cp "$headroom" bin/
if ! ldconfig -p 2>/dev/null | grep -q libcublasLt; then
  expect 2 env LD_LIBRARY_PATH="$work/partly" bin/headroom plan micro-llama-bytes --device cuda
  says "libheadroom-cuda.so, the library of Headroom's kernels for GPUs, cannot be loaded"
  ln -s "$card/libheadroom-cuda.so" partly/
  unset VIRTUAL_ENV CONDA_PREFIX CUDA_HOME
  if ! compgen -G "/usr/local/cuda*/lib64/libcublasLt.so*" >/dev/null; then
    expect 2 env LD_LIBRARY_PATH="$work/partly" "$headroom" plan micro-llama-bytes --device cuda
    says "libcublasLt.so.13, NVIDIA's library of matrix products, is not there"
  fi
  # where the packages of PyPI put it, in the environment of Python that is active
  mkdir -p venv/lib/python3.12/site-packages/nvidia/cu13/lib
  ln -s "$card/libcublasLt.so.13" venv/lib/python3.12/site-packages/nvidia/cu13/lib/
  expect 0 env LD_LIBRARY_PATH="$work/partly" VIRTUAL_ENV="$work/venv" "$headroom" plan micro-llama-bytes --device cuda
fi

export LD_LIBRARY_PATH=$card
expect 2 "$headroom" plan micro-llama-bytes --device cuda:x
says "cuda for the first of this machine, cuda:1 for the second"
expect 2 "$headroom" plan micro-llama-bytes --device cuda:1
says "there is no CUDA device 1: the driver shows 1"

# ---- what it is ----
expect 0 "$headroom" devices cuda --json
[[ $(field said device.usable_bytes) == $((1 << 30)) ]] || fail "usable"
SOFT_CARD_HELD=$((200 << 20)) expect 0 "$headroom" devices cuda:0 --json
[[ $(field said device.usable_bytes) == $((824 << 20)) ]] || fail "usable beside another process"

# ---- training: as on the CPU within rounding, in the planned bytes ----
for model in micro-gpt2-bytes micro-llama-bytes; do
  for precision in fp32 bf16; do
    for device in cpu cuda; do
      expect 0 "$headroom" train $model --device $device --precision $precision --seq 32 --micro-batch 2 --data text.txt --steps 3 \
        --eval-data held.txt --out $model-$precision-$device --json
      cp said $model-$precision-$device.json
    done
    python3 - $model-$precision <<'P'
import json, sys
name = sys.argv[1]
cpu, cuda = ([json.loads(line) for line in open(f"{name}-{d}/metrics.jsonl")] for d in ("cpu", "cuda"))
assert len(cpu) == len(cuda) and len(cpu) >= 4, (len(cpu), len(cuda))
# Losses of about 5.5: fp32 sums in another order move the seventh digit, bf16 activations the third.
bound = 2e-5 if name.endswith("fp32") else 0.03
for a, b in zip(cpu, cuda):
    key = "loss" if "loss" in a else "eval_loss"
    assert abs(a[key] - b[key]) <= bound, (name, a[key], b[key])
P
  done
done
LD_LIBRARY_PATH=$card expect 0 "$headroom" train micro-llama-bytes --device cuda --seq 32 --data text.txt --steps 2 --out shown
says "equal to the byte"
says "has not run on a card yet"
says "held 310.0 MiB, planned"
grep -q '"device_held_bytes":325058560' shown/metrics.jsonl || fail "what the driver counts is not in the metrics"
[[ $(field micro-llama-bytes-bf16-cuda.json tiers.device.planned_bytes) == $(field micro-llama-bytes-bf16-cuda.json tiers.device.reserved_bytes) ]] ||
  fail "reserved is not planned"

# ---- the same bits from run to run in any order of streams, and behind a resume ----
job=(micro-llama-bytes --device cuda --seq 32 --micro-batch 2 --accumulate 2 --optimizer adamw8bit --recompute block)
options=("${job[@]}" --data text.txt)
expect 0 "$headroom" train "${options[@]}" --schedule constant --steps 4 --out whole
SOFT_CARD_SEED=9 expect 0 "$headroom" train "${options[@]}" --schedule constant --steps 2 --out parts
SOFT_CARD_SEED=7 expect 0 "$headroom" train --resume parts --steps 4
cmp whole/final/model.safetensors parts/final/model.safetensors || fail "a resumed run has other bits"

# ---- generation, adapters beside a quantized base, merging ----
for device in cpu cuda; do
  expect 0 "$headroom" generate micro-llama-bytes-fp32-cpu/final --device $device --precision fp32 --prompt 'line 1' --max-tokens 10 \
    --temperature 0 --json
  field said tokens >tokens-$device
  expect 0 "$headroom" train micro-llama-bytes-fp32-cpu/final --device $device --precision bf16 --quantize nf4+dq --lora r=4 --lr 1e-3 \
    --seq 32 --data text.txt --steps 2 --out tuned-$device
done
cmp tokens-cpu tokens-cuda || fail "another answer than the CPU's"
python3 - <<'P'
import json
losses = [[json.loads(line)["loss"] for line in open(f"tuned-{d}/metrics.jsonl")] for d in ("cpu", "cuda")]
assert all(abs(a - b) <= 0.03 for a, b in zip(*losses)) and len(losses[0]) == 2, losses
P
expect 0 "$headroom" merge micro-llama-bytes-fp32-cpu/final tuned-cuda/final --out merged
expect 0 "$headroom" evaluate merged --device cuda --data text.txt --seq 32

# ---- check mode, a profile, the record of its memory, saved activations on the host ----
expect 0 "$headroom" train micro-gpt2-bytes --device cuda --seq 32 --data text.txt --steps 2 --check --out checked
expect 0 "$headroom" train micro-gpt2-bytes --device cuda --seq 32 --data text.txt --steps 3 --profile trace.json --record-memory --out profiled
[[ -s trace.json && -s profiled/memory/snapshot.pickle.gz ]] || fail "no profile or record"

# ---- a profiler sees programs and, of a measured run, nodes ----
ranged=0
for profile in "" "--profile nvtx.json"; do
  # shellcheck disable=SC2086 # two words or none
  NVTX_INJECTION64_PATH=$(dirname "$card")/fake_nvtx/libfake_nvtx.so FAKE_NVTX=ranges expect 0 "$headroom" train micro-gpt2-bytes --device cuda \
    --seq 32 --data text.txt --steps 2 $profile --out ranged$((++ranged))
  [[ $(grep -c '^step$' ranges) == 2 && $(grep -c '^\.$' ranges) == $(grep -vc '^\.$' ranges) ]] || fail "ranges: $(sort ranges | uniq -c)"
  if [[ -n $profile ]]; then
    [[ $(grep -c '^attention_backward$' ranges) == 4 ]] || fail "no ranges of nodes"
  elif grep -q attention ranges; then fail "a graph has no ranges of nodes"; fi
done
# Every node by events of the device: none took nothing, one is behind the other, and together they are most of the step.
python3 - <<'P'
import json
trace = json.load(open("trace.json"))
nodes = sorted((e for e in trace["traceEvents"] if "predicted_us" in e.get("args", {})), key=lambda e: e["ts"])
assert len(nodes) > 50 and all(e["dur"] > 0 for e in nodes), len(nodes)
assert all(a["ts"] + a["dur"] <= b["ts"] + 1 for a, b in zip(nodes, nodes[1:])), "nodes of one stream overlap"
took, step = sum(e["dur"] for e in nodes) / 1e6, trace["otherData"]["step_seconds"]
assert 0.5 * step < took < 1.5 * step, (took, step) # of one step, and of their median
P
expect 0 "$headroom" evaluate whole/final --device cuda --data text.txt --seq 32 --json

# ---- memory that others took: refused before anything is read, naming them; a budget to the granule ----
SOFT_CARD_HELD=$((719 << 20)) expect 3 "$headroom" train "${options[@]}" --steps 1 --budget 900MiB --out short
says "other processes hold the rest"
says "(pid 1) 719.00 MiB"
[[ ! -e short ]] || fail "a refused run left a directory"
expect 0 "$headroom" plan "${job[@]}" --json
need=$(field said need_bytes)
expect 0 "$headroom" train "${options[@]}" --steps 1 --budget "$need" --out exact
expect 3 "$headroom" train "${options[@]}" --steps 1 --budget $((need - 1)) --out below
# ---- a workspace of one's own choice ----
expect 0 "$headroom" plan "${job[@]}" --workspace none --json
[[ $(field said need_bytes) -lt $need ]] || fail "products without a workspace need as much"
need=$(field said need_bytes)
expect 0 "$headroom" train "${options[@]}" --steps 1 --workspace none --budget "$need" --out narrow
expect 2 "$headroom" plan micro-llama-bytes --workspace 4MiB
says "it is for a GPU's library of products"
echo "test_cuda: all as expected"
