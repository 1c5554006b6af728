#!/usr/bin/env bash
# --precision from the command line: training, evaluation, generation and resuming in each of them.
source "$(dirname "$0")/common.sh"
for i in $(seq 400); do echo "line $i of a small text that a very small model can learn by heart"; done >text.txt
shape="micro-llama-bytes --seq 64 --micro-batch 4 --threads 1"
job="$shape --lr 2e-3 --schedule constant --data text.txt"

# The evaluation loss of RUN's model in PRECISION, from the JSON on standard output.
loss_of() {
  run evaluate "$1/final" --precision "$2" --seq 64 --threads 1 --data text.txt --json; expect_rc 0
  grep -m1 -oE '"loss": [0-9.]+' out | grep -oE '[0-9.]+$'
}
# The loss of step STEP of a run, from its metrics.
step_loss() { sed -n "$2p" "$1/metrics.jsonl" | grep -oE '"loss": ?[0-9.]+' | grep -oE '[0-9.]+$'; }
# near A B TOLERANCE WHAT
near() { awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { exit !(a > 0 && b > 0 && a - b < t && b - a < t) }' || fail "$4: $1 and $2 are further apart than $3"; }

# shellcheck disable=SC2086
{
for precision in fp32 bf16 bf16-pure fp16; do
  run train $job --precision $precision --steps 100 --out "$precision" --json --quiet; expect_rc 0; expect_no_err
  expect_json 'd["tiers"]["device"]["planned_bytes"] == d["tiers"]["device"]["reserved_bytes"]'
  grep -q "\"precision\": \"$precision\"" "$precision/run.json" || fail "run.json does not name $precision"
done
run train $job --precision bf16-pure --moments bf16 --steps 100 --out small --json --quiet; expect_rc 0
reference=$(loss_of fp32 fp32)
awk -v a="$reference" 'BEGIN { exit !(a > 0 && a < 0.5) }' || fail "100 steps in fp32 end at a loss of $reference"

# A run in bf16 learns what the one in fp32 learns. The first steps differ by roundings of logits, less than 0.005 of 3.7;
# later the paths part, by no more than two fp32 runs with different seeds do at the end, 0.05.
for name in bf16 bf16-pure small fp16; do
  near "$(step_loss $name 11)" "$(step_loss fp32 11)" 0.005 "step 11 of $name"
  near "$(loss_of $name fp32)" "$reference" 0.05 "trained as $name"
done
# The same weights evaluated in bf16: rounding them and the activations moves the mean loss by less than 0.01.
near "$(loss_of fp32 bf16)" "$reference" 0.01 "evaluated in bf16"
near "$(loss_of bf16 bf16)" "$(loss_of bf16 fp32)" 0.01 "the bf16 run, evaluated in bf16"
# A bf16-pure run has no other weights than those in bf16, so that evaluation reads the very same.
near "$(loss_of bf16-pure bf16-pure)" "$(loss_of bf16-pure bf16)" 0.000001 "bf16 and bf16-pure evaluate alike"

near "$(loss_of fp32 fp16)" "$reference" 0.002 "evaluated in fp16"
near "$(loss_of fp16 fp16)" "$(loss_of fp16 fp32)" 0.002 "the fp16 run, evaluated in fp16"

for precision in fp32 bf16 bf16-pure fp16; do
  run generate bf16/final --precision $precision --threads 1 --prompt 'line ' --max-tokens 12 --temperature 0 --json; expect_rc 0
  expect_json 'd["prompt_tokens"] == 5' 'd["new_tokens"] == len(d["tokens"]) <= 12'
done

# A checkpoint goes on as it was made, and not otherwise; a memory technique may change.
run train $job --precision bf16 --steps 6 --save-every 3 --out held --quiet; expect_rc 0
run train $job --precision fp32 --steps 6 --resume held; refuses 2; expect_err 'precision was bf16 and is fp32'; expect_err 'fp32'
run train $job --precision bf16-pure --steps 6 --resume held; refuses 2; expect_err 'precision was bf16 and is bf16-pure'
run train $job --precision bf16 --steps 6 --save-every 3 --resume held --weight-packing transient --recompute block --quiet; expect_rc 0
# One that an earlier program made, whose masters stood beside rounded copies, goes on and says that bits may differ.
run train $job --precision bf16 --steps 3 --save-every 3 --out early --quiet; expect_rc 0
grep -q '"masters": "in halves"' early/checkpoints/last/state.json || fail "the checkpoint does not say how masters stand"
sed -i '/"masters": "in halves"/d; s/\("threads": "[0-9]*"\),$/\1/; s/"schema_version": 2/"schema_version": 1/' early/checkpoints/step-000003/state.json
rm early/checkpoints/step-000003/manifest.json # without digests, as then
run train $job --precision bf16 --steps 6 --resume early --same-bits; refuses 2; expect_err 'the masters .beside their copies, then in halves.'
run train $job --precision bf16 --steps 6 --resume early; expect_rc 0; expect_err 'from step 4 on bits may differ'
run train $job --precision fp32 --steps 3 --save-every 3 --out wide --quiet; expect_rc 0
grep -q masters wide/checkpoints/last/state.json && fail "fp32 has masters"
run train $job --precision bf16 --lora r=2 --steps 3 --save-every 3 --out narrow --quiet; expect_rc 0
grep -q masters narrow/checkpoints/last/state.json && fail "a frozen bf16 weight has a master"
run train $job --precision bf16-pure --moments bf16 --steps 3 --save-every 3 --out pure --quiet; expect_rc 0
run train $job --precision bf16-pure --moments fp32 --steps 3 --resume pure; refuses 2; expect_err 'moments was bf16 and is fp32'
run train $job --precision bf16 --moments bf16 --steps 3 --out none; refuses 2; expect_err 'moments'
run train $job --precision fp8 --steps 3 --out none; refuses 2; expect_err 'fp8'

# In fp16 the loss is scaled: a scale that is too large comes down by steps that are skipped, metrics and the log say so,
# and a run that was killed goes on with the scale, the count and the bits that it would have had.
scaled="$job --precision fp16 --loss-scale 268435456 --growth-interval 3"
run train $scaled --steps 40 --out straight; expect_rc 0; expect_err '^warning: step 1 is skipped: its gradients are not finite .*; the loss scale goes from 2.68435e\+08 to 1.34218e\+08'
grep -q '"step":1,.*"loss_scale":268435456.0,.*"skipped":true' straight/metrics.jsonl || fail 'metrics.jsonl does not say that step 1 was skipped'
grep -c '"skipped":true' straight/metrics.jsonl | awk '{ exit !($1 > 3 && $1 < 30) }' || fail 'not some of 40 steps were skipped'
"$program" train $scaled --steps 40 --save-every 1 --out broken >/dev/null 2>&1 & pid=$!
for _ in $(seq 1200); do [ -e broken/checkpoints/step-000022 ] && break; sleep 0.05; done
kill -9 $pid; wait $pid 2>/dev/null
run train --resume broken --save-every 1 --quiet; expect_rc 0
cmp straight/final/model.safetensors broken/final/model.safetensors || fail 'a run in fp16 that was killed ends with other weights'
diff <(grep -oE '"(loss_scale|growth_tracker|applied_steps|skipped_steps)": [0-9.]+' straight/checkpoints/step-000040/state.json) \
  <(grep -oE '"(loss_scale|growth_tracker|applied_steps|skipped_steps)": [0-9.]+' broken/checkpoints/step-000040/state.json) || fail 'the scaler went another way'
run train $job --precision fp16 --loss-scale 1e30 --max-skipped 4 --steps 9 --out none --quiet; expect_rc 7; expect_err 'too many steps in a row had to be skipped.*--precision bf16'
run train $job --precision fp16 --update in-backward --steps 9 --out none; refuses 2; expect_err 'in-backward and --precision fp16 exclude each other'
run train $job --precision bf16 --growth-interval 5 --steps 9 --out none; refuses 2; expect_err 'only gradients in fp16 need a scale'
run train $job --precision fp16 --loss-scale 0 --steps 9 --out none; refuses 2; expect_err 'loss-scale'
run train $job --precision fp16 --loss-scale 512 --steps 40 --resume broken; refuses 2; expect_err 'loss-scale was'

# The plan shows what is saved: masters in bf16, none in bf16-pure, and less of everything.
run plan $shape --json; expect_rc 0; fp32=$(json_number reserved_bytes)
run plan $shape --precision bf16-pure --moments bf16 --json; expect_rc 0; pure=$(json_number reserved_bytes)
[ "$pure" -lt $((fp32 * 2 / 3)) ] || fail "bf16-pure reserves $pure bytes and fp32 $fp32"
}
finish
