#!/usr/bin/env bash
# What happens when nothing is said: an evaluation first, two checkpoints, shuffled rows, a share held back by content,
# bf16 on GPUs; and that runs of other defaults go on with theirs.
source "$(dirname "$0")/common.sh"
for i in $(seq 300); do echo "{\"text\": \"row $i says something of its own, $((i * 7919 % 1000))\"}"; done >rows.jsonl
for i in $(seq 300); do echo "line $i of a small text that a very small model can learn by heart"; done >text.txt
job=(micro-llama-bytes --seq 32 --micro-batch 2 --threads 1 --lr 1e-3 -q)
value() { grep -oE "\"$2\": *(\"[^\"]*\"|[a-z0-9.]+)" "$1" | head -n "${3:-1}" | tail -n 1 | sed 's/.*: *//; s/"//g'; }
bits() { sha256sum <"$1/final/model.safetensors"; }

# ---- an evaluation before the first step ----

run train "${job[@]}" --data text.txt --eval-data text.txt --eval-batches 2 --steps 2 --save-every 1 --out first; expect_rc 0
head -n 1 first/metrics.jsonl | grep -q '^{"step":0,"eval_loss":' || fail "metrics begin with $(head -n 1 first/metrics.jsonl)"
[ "$(readlink first/checkpoints/best)" = step-000002 ] || fail "the best checkpoint is $(readlink first/checkpoints/best)"
run train "${job[@]}" --data text.txt --eval-data text.txt --eval-batches 2 --steps 2 --no-eval-first --out later; expect_rc 0
for option in "--eval-batches 2" --eval-first; do # of evaluations that nothing is there for
  run train "${job[@]}" --data text.txt $option --steps 2 --out none; refuses 2; expect_err "^headroom: ${option% 2} needs --eval-data or --eval-split"; expect_err 'try: name held-back files'
done
run train "${job[@]}" --data text.txt --no-eval-first --steps 1 --out unheld; expect_rc 0; [ -e none ] && fail "a refused run left a directory"
head -n 1 later/metrics.jsonl | grep -q '"step":1,"loss"' || fail "--no-eval-first evaluates first"
[ "$(bits first)" = "$(bits later)" ] || fail "evaluating first changes the weights"
run train "${job[@]}" --data text.txt --steps 2 --out without; expect_rc 0
grep -q eval without/metrics.jsonl && fail "there is nothing to evaluate"

# ---- two checkpoints ----

run train "${job[@]}" --data text.txt --steps 5 --save-every 1 --out two; expect_rc 0
[ "$(ls -d two/checkpoints/step-* | xargs -n1 basename | paste -sd' ')" = 'step-000004 step-000005' ] || fail "kept: $(ls two/checkpoints)"
run train "${job[@]}" --data text.txt --steps 3 --save-every 1 --schedule constant --keep 0 --out all; expect_rc 0
run train --resume all --steps 5 -q; expect_rc 0 # as a run of schema 1 has it: what it was begun with holds
[ "$(ls -d all/checkpoints/step-* | wc -l)" = 5 ] || fail "a run that keeps all lost checkpoints: $(ls all/checkpoints)"

# ---- the order of rows ----

[ -n "$(run train "${job[@]}" --data rows.jsonl --steps 4 --out shuffled; expect_rc 0)" ] && fail "a run of rows"
run train "${job[@]}" --data rows.jsonl --shuffle on --steps 4 --out on; expect_rc 0
run train "${job[@]}" --data rows.jsonl --shuffle off --steps 4 --save-every 2 --schedule constant --out off; expect_rc 0
[ "$(bits shuffled)" = "$(bits on)" ] || fail "rows are not shuffled by default"
[ "$(bits shuffled)" != "$(bits off)" ] || fail "--shuffle off shuffles"
[ "$(value shuffled/run.json shuffle)" = true ] || fail "run.json does not say that rows are shuffled"
run train "${job[@]}" --data text.txt --steps 4 --loss-chunk off --out text; expect_rc 0
[ "$(value text/run.json loss_chunk)" = off ] || fail "run.json has another loss_chunk than plan --json: $(value text/run.json loss_chunk)"
[ "$(value text/run.json shuffle)" = false ] || fail "text is shuffled by default"
run train "${job[@]}" --data rows.jsonl text.txt --steps 1 --out mixed; expect_rc 0
[ "$(value mixed/run.json shuffle)" = false ] || fail "rows and text together are shuffled by default"
run plan micro-llama-bytes --json; expect_json 'd["job"]["shuffle"] is None'
run train micro-llama-bytes --data rows.jsonl --show-config; expect_out '^# shuffle: on for rows'
# A run whose state says another order than today's default keeps it, also when nothing else remembers it.
rm off/run.json
run train "${job[@]}" --data rows.jsonl --schedule constant --steps 6 --resume off; expect_rc 0
run train "${job[@]}" --data rows.jsonl --schedule constant --shuffle off --steps 6 --out straight; expect_rc 0
[ "$(bits off)" = "$(bits straight)" ] || fail "a resumed run changed the order of its rows"
run train "${job[@]}" --data rows.jsonl --schedule constant --steps 8 --resume off --shuffle on; refuses 2; expect_err 'shuffle was false and is true'

# ---- a share held back ----

split() { grep -oE 'held back for evaluation: [0-9]+ of [0-9]+ documents' err | tail -n 1 | grep -oE '[0-9]+' | head -n 1; }
loud=("${job[@]/-q/--steps}") # the note is no warning
run train "${loud[@]}" 3 --data rows.jsonl --eval-split 10% --out held; expect_rc 0; expect_err 'held back for evaluation: .*chosen by their content and seed 42'
count=$(split)
[ "${count:-0}" -ge 15 ] && [ "$count" -le 45 ] || fail "10 % of 300 rows are ${count:-none}"
loss=$(value held/metrics.jsonl eval_loss)
tac rows.jsonl >backwards.jsonl
head -n 100 backwards.jsonl >a.jsonl; tail -n 200 backwards.jsonl >b.jsonl
run train "${loud[@]}" 3 --data b.jsonl a.jsonl --eval-split 0.1 --out other; expect_rc 0
[ "$(split)" = "$count" ] || fail "another order holds back $(split) rows, not $count"
awk -v a="$loss" -v b="$(value other/metrics.jsonl eval_loss)" 'BEGIN { exit !(a > 1 && (a / b - 1) ^ 2 < 1e-10) }' || fail "another order holds back other rows: losses $loss and $(value other/metrics.jsonl eval_loss)"
run train "${loud[@]}" 3 --data rows.jsonl --eval-split 10% --seed 7 --out seed; expect_rc 0
awk -v a="$loss" -v b="$(value seed/metrics.jsonl eval_loss)" 'BEGIN { exit !((a / b - 1) ^ 2 > 1e-10) }' || fail "another seed holds back the same rows"
# More rows leave the old ones on their sides: none that was held back is trained on.
cat rows.jsonl rows.jsonl >twice.jsonl
run train "${loud[@]}" 1 --data twice.jsonl --eval-split 10% --out twice; expect_rc 0
[ "$(split)" = $((2 * count)) ] || fail "copies of rows are on both sides: $(split) of 600, $count of 300"
# In text the documents are what separators make.
run train "${loud[@]}" 1 --data text.txt --format lines --eval-split 20% --out lines; expect_rc 0
[ "$(split)" -ge 30 ] && [ "$(split)" -le 90 ] || fail "20 % of 300 lines are $(split)"
# The run goes on with the same rows; another share is another run.
run train --resume held --steps 5 --allow-different steps -q; expect_rc 0
run train --resume held --steps 6 --allow-different steps --eval-split 20% -q; refuses 2; expect_err 'eval-split was 0.1 and is 0.2'
run train "${loud[@]}" 1 --data text.txt --eval-split 10% --out x; refuses 2; expect_err 'holds back [01] of 1 document'; expect_err 'document-separator'
run train "${loud[@]}" 1 --data rows.jsonl --eval-split 0.00001 --out x; refuses 2; expect_err 'a larger share'
run train "${loud[@]}" 1 --data rows.jsonl --eval-split 1% --eval-data text.txt --out x; refuses 2; expect_err 'exclude each other'
for wrong in 100% 1 -1% x 1.5; do
  run train "${loud[@]}" 1 --data rows.jsonl "--eval-split=$wrong" --out x; refuses 2; expect_err 'eval-split'
done
[ -e x ] && fail "a refused run left a directory"

# ---- bf16 on GPUs ----

run plan gpt2-124m --device rtx-4090; expect_rc 0; tr -s ' \n' ' ' <out >one; grep -q 'bf16 with fp32 masters (a GPU.s default), on rtx-4090' one || fail "the first line does not name the precision"
run plan gpt2-124m --device rtx-4090 --json; expect_json 'd["job"]["precision"] == "bf16"' 'd["tiers"]["device"]["max_by_role"]["master_weight"] > 0'; cp out default
run plan gpt2-124m --device rtx-4090 --precision bf16 --json
[ "$(json_number need_bytes)" = "$(grep -m1 -oE '"need_bytes": [0-9]+' default | grep -oE '[0-9]+$')" ] || fail "the default is not --precision bf16"
[ "$(json_number allocated_bytes)" = "$(grep -m1 -oE '"allocated_bytes": [0-9]+' default | grep -oE '[0-9]+$')" ] || fail "PyTorch's line has another precision"
run plan gpt2-124m --device rtx-4090 --precision fp32 --json; expect_json 'd["job"]["precision"] == "fp32"'
run plan gpt2-124m --device t4 --json; expect_json 'd["job"]["precision"] == "fp32"' # it has no bf16
run plan gpt2-124m --json; expect_json 'd["job"]["precision"] == "fp32"'
run plan gpt2-124m --precision auto --json; expect_json 'd["job"]["precision"] == "fp32"'
finish
