#!/usr/bin/env bash
# Optimizers whose elements share entries of a state, from a checkpoint on: a run that is killed and resumed ends with the files of one that was
# not, byte by byte; what is in optimizer.safetensors; another kind of state is refused by name, and so is damage.
source "$(dirname "$0")/common.sh"
for i in $(seq 3000); do echo "line $i of a small text that a very small model can learn by heart"; done >text.txt
# Matrices of at least 4,096 elements and smaller ones, an untied head; 257 x 72 is no multiple of 256, and what pads the
# vocabulary begins within a block.
model="custom:family=llama,layers=2,hidden=72,heads=2,kv-heads=1,mlp=90,vocab=257,positions=32"
whole="--seq 16 --micro-batch 2 --data text.txt --schedule constant --lr 1e-3 --save-every 50 --keep 2 --steps 600 -q"

for optimizer in adafactor adamw8bit lion8bit; do
  for more in "--accumulate 2" "--precision bf16 --recompute block --states-8bit all" \
    "--precision bf16-pure --clip 0 --update in-backward --states-8bit all"; do
    [ $optimizer != adafactor ] || more=${more/ --states-8bit all/} # which has none
    job="$model $whole --optimizer $optimizer $more"
    rm -rf whole killed
    # shellcheck disable=SC2086
    run train $job --threads 1 --out whole; expect_rc 0
    # shellcheck disable=SC2086
    "$program" train $job --threads 2 --out killed >/dev/null 2>&1 &
    pid=$!
    for _ in $(seq 2000); do [ -e killed/checkpoints/last/manifest.json ] && break; sleep 0.005; done
    kill -9 $pid; wait $pid 2>/dev/null
    [ -e killed/checkpoints/last/manifest.json ] || fail "there was no checkpoint to kill the run behind"
    [ -e killed/final ] && fail "the run had ended before it was killed"
    run train --resume killed --threads 2 -q; expect_rc 0
    for file in model.safetensors optimizer.safetensors; do
      cmp -s whole/checkpoints/step-000600/$file killed/checkpoints/step-000600/$file ||
        fail "$optimizer $more: $file differs from that of the run that nobody killed"
    done
    parts="mlp.gate_proj.weight.exp_avg_codes mlp.gate_proj.weight.exp_avg_absmax"
    [ $optimizer = adafactor ] && parts="self_attn.k_proj.weight.exp_avg_sq_factors"
    for part in $parts; do
      grep -qaF "\"model.layers.1.$part\":" whole/checkpoints/last/optimizer.safetensors ||
        fail "optimizer.safetensors has no $part"
    done
  done
done

# ---- another kind of state ----
run train --resume killed --steps 601 --optimizer lion; refuses 2; expect_err 'optimizer was lion8bit'
run train --resume killed --steps 601 --optimizer lion --allow-different optimizer,steps; expect_rc 2
expect_err 'no tensor .*exp_avg: it holds another kind of state'; expect_err 'resume with the --optimizer'
run train --resume killed --steps 601 --states-8bit weights --allow-different states-8bit,steps; expect_rc 2
expect_err 'holds another kind of state'

# ---- but a name in which one bit is another is damage ----
cp -r killed misnamed
states=misnamed/checkpoints/step-000600/optimizer.safetensors
at=$(grep -aob exp_avg_codes $states | head -n 1 | cut -d : -f 1)
printf d | dd of=$states bs=1 seek="$at" conv=notrunc status=none
run train --resume misnamed --steps 601; expect_rc 5
expect_err 'step-000600/optimizer.safetensors is damaged'; expect_err '--from step-'

# ---- a scale that is no number ----
if [ -n "$have_python" ]; then
  python3 - whole/checkpoints/last/optimizer.safetensors <<'PYTHON'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
size = struct.unpack("<Q", data[:8])[0]
begin = json.loads(data[8:8 + size])["model.layers.1.mlp.gate_proj.weight.exp_avg_absmax"]["data_offsets"][0]
data[8 + size + begin + 4:8 + size + begin + 8] = struct.pack("<f", float("nan"))
open(sys.argv[1], "wb").write(data)
PYTHON
  run train --resume whole --steps 601 -q; [ "$rc" -ne 0 ] || fail "a scale that is NaN was loaded"
fi
finish
