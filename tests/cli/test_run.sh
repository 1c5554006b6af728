#!/usr/bin/env bash
# train, evaluate, generate on a model of a minute's size.
source "$(dirname "$0")/common.sh"
for i in $(seq 400); do echo "line $i of a small text that a very small model can learn by heart"; done >text.txt
job="micro-llama-bytes --seq 64 --micro-batch 2 --threads 1 --lr 1e-3"

# shellcheck disable=SC2086
{
run plan $job --json; expect_rc 0; need=$(json_number need_bytes); reserved=$(json_number reserved_bytes)

# One granule less than needed is refused before anything is read or written.
run train $job --data text.txt --out run --steps 4 --budget $((need - 4096)); refuses 3; expect_err 'DOES NOT FIT'
[ -e run ] && fail "a refused job left a run directory"

run train $job --data text.txt --eval-data text.txt --eval-every 5 --out run --steps 10 --budget "$need"; expect_rc 0
expect_out '^trained 10 steps'; expect_out 'equal to the byte'; expect_out '^saved in run/final'
expect_err '^FITS'; expect_err '^step 10/10  loss '; expect_err 'evaluation loss'
LC_ALL=C grep -q $'[\033\r]' out err && fail "escape sequences or carriage returns in a pipe"
[ -f run/final/config.json ] && [ -f run/metrics.jsonl ] && [ -f run/run.json ] || fail "the run directory is not complete"

run train $job --data text.txt --out quiet --steps 3 --quiet --json; expect_rc 0; expect_no_err
expect_json 'd["status"] == "ok"' 'd["steps"] == 3' 'd["tiers"]["device"]["planned_bytes"] == d["tiers"]["device"]["reserved_bytes"]' "d['tiers']['device']['reserved_bytes'] == $reserved"

# A run that goes on says what it did now, and what the run has; one that is done says that.
run train $job --resume quiet --steps 4 --allow-different steps; expect_rc 0; expect_out '^trained 1 step in .* tokens/s; 4 steps in all$'
run train $job --resume quiet; expect_rc 0; expect_out '^nothing left to train: the run has done all of its 4 steps$'; expect_out '^saved in quiet/final'
run train $job --resume quiet --json -q; expect_rc 0; expect_json 'd["steps"] == 4' 'd["steps_before"] == 4' 'd["tokens_per_second"] == 0'

# What is legal and hardly meant is said before the first step.
head -n 20 text.txt >short.txt # 20 rows of 64 bytes and more
run train $job --data text.txt --out meant --steps 2 --warmup 1; expect_rc 0; grep -q '^warning' err && fail "a warning about nothing"
run train $job --data short.txt --out often --steps 2 --accumulate 40; expect_rc 0
expect_err '^warning: a step takes 80 rows \(micro-batch 2 x accumulate 40\) and the data make [0-9]+: each is in a step [0-9.]+ times'
run train $job --data text.txt --out warm --steps 2 --warmup 8; expect_rc 0
expect_err '^warning: the warm-up of 8 steps does not end in the run.s 2: the learning rate reaches 0.000125 of 0.001'

# Data that a run remembers and that moved: the remedy says how to name it.
mv short.txt elsewhere.txt
run train --resume often --steps 3 --allow-different steps; refuses 1; expect_err 'this is where often has it from; if it was moved, --data FILE... says where it is now'
run train --resume often --steps 3 --allow-different steps --data elsewhere.txt -q; expect_rc 0

# What is no file of data here.
run train $job --data - --out none; refuses 1; expect_err 'data are read more than once: write them to a file first'
run train $job --data https://example.com/chat.jsonl --out none; refuses 1; expect_err 'nothing is downloaded: fetch the file first'
run train $job --data SomeOne/chat-200k --out none; refuses 1; expect_err 'data set of a hub, nothing is downloaded'
run train $job --data no/such/file.jsonl --out none; refuses 1; expect_err 'try: check the path$'
run plan micro-llama-bytes --lora r=1,targets=q_proj; expect_rc 0
tr -s ' \n' ' ' <out >one; grep -qE 'adapters of rank 1 \([0-9]+ trained\)' one || fail 'so few parameters are not told by their number'

# --sample: behind each evaluation, at the end where there is none, and never passed over without a word.
run train $job --data text.txt --out sampled --steps 2 --sample 'line 1 of'; expect_rc 0; expect_err '^sample: line 1 of'
run train $job --data text.txt --eval-data text.txt --eval-batches 1 --out sampled-2 --steps 1 --sample "$(head -c 62 text.txt)"; expect_rc 0
[ "$(grep -c '^sample: line 1 of' err)" = 2 ] || fail "not a sample behind each of two evaluations"
run train $job --data text.txt --out unsampled --steps 2 --sample "$(head -c 63 text.txt)"; refuses 2; expect_err '63 tokens.*context of 64 has no room'
run train $job --data text.txt --out unsampled --steps 2 --sample ''; refuses 2; expect_err 'the text is empty'
[ -e unsampled ] && fail "a refused sample left a run directory"

# --micro-batch auto: the run holds what was chosen, and a resume takes it, whatever would be chosen now.
run train micro-llama-bytes --seq 32 --threads 1 --schedule constant --data text.txt --steps 2 --budget 40MiB --micro-batch auto --batch-tokens 2048 --out rows; expect_rc 0
expect_err '\(chosen\)'
rows=$(grep -m1 -oE '"micro_batch": [0-9]+' rows/run.json | cut -d' ' -f2) parts=$(grep -m1 -oE '"accumulate": [0-9]+' rows/run.json | cut -d' ' -f2)
[ $((rows * parts)) = 64 ] || fail "run.json says micro-batch ${rows:-none} and accumulate ${parts:-none}, which are not 64 rows"
run train --resume rows --micro-batch auto --steps 4; expect_rc 0; expect_out '^trained'
[ "$(grep -m1 -oE '"micro_batch": [0-9]+' rows/run.json | cut -d' ' -f2)" = "$rows" ] || fail "the resumed run has other rows"

# --recompute auto: the run takes the levels that the plan of the same budget shows, and says them.
run plan $job --recompute block --json; least=$(json_number need_bytes); middle=$(((need + least) / 2))
run plan $job --recompute auto --budget "$middle" --json; expect_rc 0
levels=$(grep -oE '"recompute": "[^"]+"' out | cut -d'"' -f4); [[ $levels == levels:* || $levels == block ]] || fail "auto chose '$levels'"
run train $job --recompute auto --budget "$middle" --data text.txt --out levels --steps 2; expect_rc 0; expect_out 'equal to the byte'
grep -qF "\"recompute\": \"$levels\"" levels/run.json || fail "run.json does not say $levels"

run evaluate run/final --seq 64 --threads 1 --data text.txt --json; expect_rc 0
expect_json '0 < d["loss"] < 6' 'abs(d["perplexity"] / 2.718281828459045 ** d["loss"] - 1) < 1e-6' 'd["tokens"] > 10000' 'd["micro_batch"] == 1'
loss=$(grep -m1 -oE '"loss": [0-9.]+' out | cut -d' ' -f2)
run evaluate run/final --seq 64 --threads 1 --data text.txt --micro-batch auto --json; expect_rc 0; expect_err '^rows +micro-batch [0-9]+ \(chosen\)'
expect_json "abs(d['loss'] - $loss) < 1e-5" 'd["micro_batch"] > 1' 'd["tiers"]["device"]["planned_bytes"] == d["tiers"]["device"]["reserved_bytes"]'
rows=$(json_number micro_batch)
run plan run/final --for evaluate --seq 64 --threads 1 --micro-batch auto --json; expect_json "d['job']['micro_batch'] == $rows"
run evaluate run/final --seq 64 --threads 1 --data text.txt --micro-batch auto --show-config; expect_out "$rows"
run evaluate run/final --seq 64 --threads 1 --data text.txt --micro-batch auto --quiet --json; expect_rc 0; expect_no_err
# Weights that are finite and whose products are not: no loss that a script would take for one, no text.
cp -r run/final huge
for _ in $(seq 64); do printf '\xff\xff\x7f\x7f'; done | dd of=huge/model.safetensors bs=1 seek=$(($(stat -c %s huge/model.safetensors) - 256)) conv=notrunc status=none
run evaluate huge --seq 64 --threads 1 --data text.txt --json; refuses 7; expect_err 'the loss of huge is not finite'
run generate huge --threads 1 --prompt 'line' --max-tokens 4; expect_rc 7; expect_err 'no token can be chosen'; expect_no_out
run evaluate run/final --seq 64 --threads 1 --data text.txt; expect_rc 0; expect_out '^perplexity'

run generate run/final --threads 1 --prompt 'line ' --max-tokens 16 --temperature 0 --json; expect_rc 0
expect_json 'd["prompt_tokens"] == 5' 'd["new_tokens"] == len(d["tokens"]) <= 16' 'd["text"] is not None'
run generate run/final --threads 1 --prompt 'line ' --max-tokens 16 --temperature 0; expect_rc 0; cp out first; expect_err 'reserved as planned'
run generate run/final --threads 1 --prompt 'line ' --max-tokens 16 --temperature 0 --quiet; expect_rc 0; expect_no_err
cmp -s out first || fail "greedy generation is not repeatable"
printf 'line ' >prompt.txt
"$program" generate run/final --threads 1 --prompt-file - --max-tokens 16 --temperature 0 <prompt.txt >out 2>err; rc=$?
last='headroom generate --prompt-file -'; expect_rc 0; cmp -s out first || fail "the prompt from standard input gives another text"
run generate run/final --threads 1 --prompt 'line ' --max-tokens 16 --context 8; refuses 2; expect_err 'context'
run generate run/final --threads 1 --prompt 'line ' --max-tokens 300 --temperature 0; expect_rc 0; expect_err '^warning: .* 256 tokens of prompt and answer together \(--context, --max-tokens\) stay inside'

# Ctrl-C saves and exits 130; the run goes on from there.
last='headroom train, interrupted'
"$program" train $job --data text.txt --out stopped --steps 100000 >out 2>err &
pid=$!
await '[ -s stopped/metrics.jsonl ]'
kill -INT "$pid"; wait "$pid"; rc=$?
expect_rc 130; expect_err 'the run is saved first'; expect_err '--resume stopped'
ls stopped/checkpoints/step-* >/dev/null 2>&1 || fail "no checkpoint was saved"
"$program" train $job --data text.txt --resume stopped --steps 100000 >out 2>err &
pid=$!; lines=$(wc -l <stopped/metrics.jsonl)
await '[ "$(wc -l <stopped/metrics.jsonl)" -gt "$lines" ]'; kill -INT "$pid"; wait "$pid"; rc=$?
last='headroom train --resume, interrupted'; expect_rc 130
# One request that comes in several signals is one: a terminal that closes, timeout(1) and launchers send theirs twice. And what
# batch systems send before they end a job is a request.
# This process sends them all, and pauses without making another one; where the machine kept it from that for long, once more.
mkfifo nothing; exec 7<>nothing
for signals in 'INT INT INT' 'HUP HUP' 'TERM CONT TERM' 'TERM HUP INT' XCPU 'USR1 USR1' USR2; do
  for attempt in 1 2 3 4 5; do
    rm -rf asked
    "$program" train $job --data text.txt --out asked --steps 1000000 >out 2>err &
    pid=$!
    await '[ -s asked/metrics.jsonl ]'
    began=${EPOCHREALTIME/[.,]/}
    for signal in $signals; do kill -$signal "$pid" 2>/dev/null; read -r -t 0.001 -u 7; done
    took=$((${EPOCHREALTIME/[.,]/} - began))
    wait "$pid"; rc=$?
    [ "$took" -lt 250000 ] && break
  done
  last="headroom train and SIG${signals// / SIG}"; expect_rc 130
  [ -e asked/checkpoints/last/manifest.json ] || fail "no checkpoint was saved"
done
# A second Ctrl-C leaves at once, in the middle of a micro-batch; SIGTERM and SIGHUP never do.
"$program" train ${job/--micro-batch 2/--micro-batch 6000} --data text.txt --out long --steps 2 >out 2>err &
pid=$!
await '[ -s long/run.json ]'
for signal in TERM HUP; do kill -$signal "$pid"; sleep 0.6; done
last='headroom train, within a long micro-batch'; kill -0 "$pid" 2>/dev/null || fail "SIGHUP behind SIGTERM ended it"
kill -INT "$pid"; wait "$pid"; rc=$?
expect_rc 130; [ -e long/checkpoints/last ] && fail "the step was over before the second request"

# A terminal gets one line that is painted again.
if command -v script >/dev/null 2>&1; then
  TERM=xterm script -qec "'$program' train $job --data text.txt --out painted --steps 20" /dev/null </dev/null >tty 2>/dev/null
  last='headroom train on a terminal'
  LC_ALL=C grep -q $'\r\033\[Kstep ' tty || fail "no progress line on a terminal"
fi

# Bad data is named: exit 5.
echo '{"input_ids": [1, 2, 99999]}' >bad.jsonl
run train $job --data bad.jsonl --out bad --steps 2; expect_rc 5; expect_err 'bad.jsonl'; expect_err '^headroom: '
: >empty.txt
run train $job --data empty.txt --out bad --steps 2; expect_rc 5; expect_err 'empty.txt'
run evaluate run/final --seq 64 --threads 1 --data nosuch.txt; [ "$rc" -eq 1 ] || [ "$rc" -eq 5 ] || fail "exit code $rc"; expect_err 'nosuch.txt'
run evaluate micro-llama-bytes --seq 64 --threads 1 --data text.txt; expect_rc 2; expect_err "has no weights"
run generate micro-llama-bytes --threads 1 --prompt x; expect_rc 2; expect_err "has no weights"
cp -r run/final cut; truncate -s -100 cut/model.safetensors
run evaluate cut --seq 64 --threads 1 --data text.txt; expect_rc 5; expect_err 'model.safetensors'
run train $job --data text.txt --out text.txt/run --steps 2; [ "$rc" -ne 0 ] || fail "trained into a file"; expect_err '^headroom: '
run train $job --data text.txt --out on-gpu --steps 2 --device h100; expect_rc 2; expect_err 'a row of the table'
}
finish
