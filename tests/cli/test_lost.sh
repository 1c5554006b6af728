#!/usr/bin/env bash
# Nothing lost: people's files, one writer, how runs end, what a resume takes over and what it refuses (docs/run-directory.md).
source "$(dirname "$0")/common.sh"
for i in $(seq 300); do echo "line $i of a small text that a very small model can learn by heart"; done >text.txt
head -c 6000 text.txt >held.txt
model="custom:family=llama,layers=1,hidden=8,heads=2,kv-heads=1,mlp=8,vocab=257,positions=32,tied"
job="$model --seq 12 --threads 1 --data text.txt"
digest() { find "$1" -type f ! -path '*/memory/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum; }
tree() { find "$1" | sort; }
# What of the metrics must be the same in two runs: all but times and resident bytes.
course() { grep -oE '"(step|loss|grad_norm|learning_rate|tokens_total|eval_loss)":[^,}]*' "$1/metrics.jsonl"; }

# shellcheck disable=SC2086
{
# ---- 1. foreign files ----
mkdir -p mine/memory mine/data-cache mine/final mine/checkpoints
echo thesis >mine/final/x.tex; echo a >mine/memory/a; echo b >mine/data-cache/b; echo c >mine/metrics.jsonl; echo d >mine/checkpoints/.step-000001.tmp
before=$(digest mine; tree mine)
run train $job --out mine --steps 2; refuses 2; expect_err 'mine is not empty and holds no run: .*final'
run train $model --seq 12 --threads 1 --data nosuch.txt --out mine --steps 2; [ "$rc" -ne 0 ] || fail "trained on nothing"
run train $job --resume mine; refuses 2; expect_err 'no run directory'
[ "$(digest mine; tree mine)" = "$before" ] || fail "a foreign directory was changed"
mkdir empty; run train $job --out empty --steps 2 -q; expect_rc 0
ln -s nothing dangling
for out in dangling dangling/ dangling//; do run train $job --out $out --steps 2; refuses 2; expect_err 'a link to something that is no directory'; done
# What can be checked is checked before anything is made.
for bad in "--data nosuch.txt" "--data text.txt --eval-data nosuch.txt" "--data text.txt --format messages" "--data text.txt --chat-template nosuch.jinja --format messages" \
           "--data text.txt --profile /nonexistent/dir/p.json" "--data text.txt --allow-different lr" "--data text.txt --from step-1"; do
  run train $model --seq 12 --threads 1 $bad --out never --steps 2; [ "$rc" -ne 0 ] || fail "ran with $bad"
  [ -e never ] && fail "a directory was made with $bad"
done
run train $job --resume nope; refuses 2; expect_err 'nope is no run directory'; [ -e nope ] && fail "--resume made a directory"

# ---- 7. endings ----
run train $job --out run --steps 6 --save-every 2 --eval-data held.txt --eval-every 2 --keep 2 --shuffle -q; expect_rc 0
grep -q '"state": "finished"' run/run.json || fail "run.json does not say finished"
run train $job --out run --steps 6; refuses 2; expect_err 'already holds a run'; expect_err '--resume run'
[ "$(readlink run/checkpoints/last)" = step-000006 ] || fail "last is $(readlink run/checkpoints/last)"
find run -name '.headroom-*' | grep -q . && fail "scratch directories were left"
# Killed before the first checkpoint: the same command starts again, another one does not.
"$program" train $job --out early --steps 1000000 -q >out 2>err &
pid=$!
await '[ -s early/metrics.jsonl ]'
kill -9 $pid; wait $pid 2>/dev/null
run train $job --out early --steps 3 --lr 1e-2; refuses 2; expect_err 'lr was'; expect_err 'no checkpoint'
run train $job --out early --steps 3 -q; expect_rc 0

# Data that changes under a run ends it, and costs none of its steps; put back as it was, the run is the same.
cp text.txt moving.txt; cp -p moving.txt kept.txt
moving="$model --seq 12 --threads 1 --data moving.txt --schedule constant --eval-data held.txt --eval-every 50 --eval-batches 1"
"$program" train $moving --out moved --steps 1000000 --save-every 400000 -q >out 2>err &
pid=$!
await '[ -s moved/metrics.jsonl ] && [ "$(wc -l <moved/metrics.jsonl)" -gt 20 ]'
echo more >>moving.txt; wait $pid; rc=$?
last="training on moving.txt, which grows"; refuses 5; expect_err "moving.txt was changed while it was in use"; expect_err 'step [0-9]+ is saved: .*--resume'
cp -p kept.txt moving.txt
run inspect moved --verify; expect_rc 0
run inspect nowhere --verify --json; refuses 2; expect_err 'nowhere is no run directory' # and not a list without damage
at=$(readlink moved/checkpoints/last); at=$((10#${at#step-}))
[ "$at" -ge 20 ] || fail "the steps before the change are lost: $at"
run train --resume moved --steps $((at + 10)) -q; expect_rc 0
run train $moving --out straight --steps $((at + 10)) -q; expect_rc 0
cmp -s moved/final/model.safetensors straight/final/model.safetensors || fail "data that was put back trains to other weights"
[ "$(course moved)" = "$(course straight)" ] || fail "data that was put back gives other metrics"

# So does an evaluation that fails, or is left because the run is to stop: it is due when the run goes on, which then is the same.
cp -p kept.txt asked.txt
asked="$model --seq 12 --threads 1 --data text.txt --schedule constant --eval-data asked.txt --eval-every 300"
"$program" train $asked --out unasked --steps 1000000 -q >out 2>err &
pid=$!
await '[ -s unasked/metrics.jsonl ] && [ "$(wc -l <unasked/metrics.jsonl)" -gt 20 ]'
echo more >>asked.txt; wait $pid; rc=$?
last="an evaluation on asked.txt, which grows"; refuses 5; expect_err "asked.txt was changed"; expect_err 'step [0-9]+ is saved: .*--resume.*--allow-different eval-data'
cp -p kept.txt asked.txt
at=$(readlink unasked/checkpoints/last); at=$((10#${at#step-}))
[ $((at % 300)) -eq 0 ] || fail "it is not the step behind which was evaluated: $at"
run train --resume unasked --steps $((at + 10)) -q; expect_rc 0
run train $asked --out straight-asked --steps $((at + 10)) -q; expect_rc 0
cmp -s unasked/final/model.safetensors straight-asked/final/model.safetensors || fail "another model after an evaluation that failed"
[ "$(course unasked)" = "$(course straight-asked)" ] || fail "an evaluation that failed is not made up for"
for i in $(seq 100); do cat text.txt; done >long.txt
long="$model --seq 12 --threads 1 --data text.txt --eval-data long.txt --no-eval-first --steps 3"
"$program" train $long --out asked-last -q >out 2>err & # an evaluation of many seconds, behind the last step
pid=$!
await '[ -s asked-last/metrics.jsonl ] && [ "$(wc -l <asked-last/metrics.jsonl)" -eq 3 ]'; kill -TERM $pid; wait $pid; rc=$?
last="a run that is stopped in its last evaluation"; expect_rc 130; expect_err 'stopped after step 3 of 3; the checkpoint is .*step-000003'
[ -e asked-last/final ] && fail "final is there before the evaluation"
run train --resume asked-last -q; expect_rc 0
[ "$(grep -c eval_loss asked-last/metrics.jsonl)" = 1 ] || fail "the last evaluation is not made up for"
[ "$(readlink asked-last/checkpoints/best)" = step-000003 ] || fail "its checkpoint is not the best"
"$program" train $long --eval-first --out asked-first -q >out 2>err &
pid=$!
await '[ -e asked-first/memory/trail ]'; sleep 0.5; kill -TERM $pid; wait $pid; rc=$?
last="a run that is stopped before its first step"; refuses 130; expect_err 'before the first step.*nothing to save'
run explain asked-first; expect_rc 0; expect_out 'stopped on request, before its first step'
run train $long --eval-first --eval-batches 1 --out asked-first -q; expect_rc 0
rm long.txt

# Nor does it wait for the end of a long step: its micro-batches count for nothing, and are made again.
parts="$model --seq 12 --threads 1 --data text.txt --accumulate 15000 --steps 3 --dropout 0.1"
"$program" train $parts --out parted -q >out 2>err &
pid=$!
await '[ -s parted/metrics.jsonl ]'; kill -TERM $pid; wait $pid; rc=$?
last="a run that is stopped within a step"; expect_rc 130; expect_err 'stopped after step 1 of 3; the checkpoint is .*step-000001'
run train --resume parted -q; expect_rc 0
run train $parts --out unparted -q; expect_rc 0
cmp -s parted/final/model.safetensors unparted/final/model.safetensors || fail "a step that was left in the middle left something behind"
[ "$(course parted)" = "$(course unparted)" ] || fail "a step that was left in the middle changed the course"

# A run that waits for another one's entry of the data cache has not begun, and goes when it is asked to.
if command -v flock >/dev/null; then
  echo '{"text": "a row that is tokenized once, and kept"}' >row.jsonl
  shared="$model --seq 12 --threads 1 --data row.jsonl --data-cache shared --steps 1"
  run train $shared --out maker -q; expect_rc 0
  entry=$(echo shared/*.tokens); rm "$entry"
  flock -F "${entry%.tokens}.lock" sleep 100 &
  holder=$!
  "$program" train $shared --out waiter >out 2>err &
  pid=$!
  await 'grep -q "waiting for another process" err'; kill -TERM $pid; wait $pid; rc=$?
  last="a run that waits for the data cache"; refuses 130; expect_err 'stopped while the entry of the data cache was in use'
  [ -e waiter ] && fail "a run that did not begin left a directory"
  kill $holder; wait $holder 2>/dev/null
fi

# What is to be done about an entry of the cache is still said, behind that.
for i in $(seq 10000); do echo "{\"text\": \"row $i of rows that are tokenized once, and kept\"}"; done >rows.jsonl
"$program" train $model --seq 12 --threads 1 --data rows.jsonl --out cached --shuffle --steps 10000000 --save-every 4000000 -q >out 2>err &
pid=$!
last="training on rows.jsonl, whose entry of the cache is cut"
await '[ -s cached/metrics.jsonl ] && [ "$(wc -l <cached/metrics.jsonl)" -gt 20 ]' && truncate -s 1000 cached/data-cache/*.tokens
wait $pid; rc=$?
refuses 5; expect_err 'entry of the data cache was cut'; expect_err 'step [0-9]+ is saved: --resume cached; leave the data cache alone.*remove it'
at=$(readlink cached/checkpoints/last); rm -r cached/data-cache
run train --resume cached --steps $((10#${at#step-} + 5)) --allow-different steps -q; expect_rc 0
rm rows.jsonl

# A checkpoint that was moved away and linked to is not passed over without a word, and not begun over.
cp -r run linked; mv linked/checkpoints/step-000006 linked-6; ln -s ../../linked-6 linked/checkpoints/step-000006
run train --resume linked; refuses 2; expect_err 'step-000006 is a link'; expect_err '--from step-000004'
run train --resume linked --from step-6; refuses 2; expect_err 'step-000006 is a link'; expect_err '--from step-000004'
mv linked-6 unmounted; run train --resume linked; refuses 2; expect_err 'step-000006 is a link'; mv unmounted linked-6
run train --resume linked --from step-000004 -q; expect_rc 0; expect_err 'step-000006.*set-aside-1'
[ -e linked-6/model.safetensors ] && [ -e linked/checkpoints/step-000006.set-aside-1/model.safetensors ] || fail "the linked checkpoint is gone"
"$program" train $job --out begun --steps 1000000 --save-every 5 -q >/dev/null 2>&1 &
pid=$!
await '[ -e begun/checkpoints/last/manifest.json ]'
kill -9 $pid; wait $pid 2>/dev/null
mv begun/checkpoints begun-away; mkdir begun/checkpoints
for step in begun-away/step-*; do ln -s "../../$step" begun/checkpoints/; done
cp begun/metrics.jsonl begun.metrics
for away in begun-away begun-unmounted; do # there, and where the disk that has them is not
  [ -e $away ] || mv begun-away $away
  run train $job --out begun --steps 5 --save-every 5; refuses 2; expect_err 'already holds a run'
  cmp -s begun/metrics.jsonl begun.metrics || fail "a run whose checkpoints are linked was begun over"
  run train --resume begun; refuses 2; expect_err 'step-[0-9]+ is a link'
done

# ---- 2. one writer ----
"$program" train $job --out busy --steps 1000000 --save-every 50 --keep 2 --log-json busy.jsonl >busy.out 2>busy.err &
pid=$!
await '[ -e busy/checkpoints/last/manifest.json ]'
run train $job --out busy --steps 5; refuses 2; expect_err "in use: host .*process $pid"
run train --resume busy; refuses 2; expect_err "process $pid"
run train --resume busy --log-json busy.jsonl; refuses 2; expect_err "the run busy is in use: host .*process $pid" # and not its log
run evaluate busy/checkpoints/last --seq 12 --threads 1 --data held.txt; expect_rc 0
run generate busy/checkpoints/last --threads 1 --prompt 'line' --max-tokens 4; expect_rc 0
run inspect busy; expect_rc 0
run inspect busy --verify; expect_rc 0
kill -9 $pid; wait $pid 2>/dev/null
grep -q '"state": "running"' busy/run.json || fail "a killed run does not say running"
run train --resume busy --steps 1; refuses 2; expect_err 'is asked for 1'

# The lock is removed under a run: it says so, and gives way to who comes in then, from where on it writes nothing. It is held
# between two checkpoints until the other one works, which writes run.json when it begins and then not for long.
"$program" train $job --out open --steps 10000000 --save-every 4000 --record-memory -q >first.out 2>first.err &
first=$! pid=$!
last="a run whose lock was removed, beside another one"
await '[ -e open/checkpoints/last/manifest.json ]' && rm open/lock
await 'grep -q "lock was removed" first.err'
grep -q 'open/lock was removed: nothing keeps another process' first.err || fail "a removed lock is not told"
at=$(readlink open/checkpoints/last)
await '[ "$(readlink open/checkpoints/last)" != $at ]'
kill -STOP $first; count=$(wc -l <open/metrics.jsonl)
"$program" train --resume open --allow-different metrics --save-every 9000000 -q >second.out 2>second.err &
second=$! pid=$!
await '[ "$(wc -c <open/memory/trail)" -gt 0 ] && [ "$(wc -l <open/metrics.jsonl)" -gt $((count + 20)) ]'
cp open/run.json second.json
kill -CONT $first; wait $first; rc=$?; cp first.err err
expect_rc 2; expect_err "open was taken over: host .*process $second"
cmp -s open/run.json second.json || fail "the first process wrote run.json at its end"
grep -q '"state": "running"' open/run.json || fail "run.json does not say that the second process runs"
[ -e open/memory/snapshot.pickle.gz ] && fail "the first process wrote its snapshot into the run of another"
kill -INT $second; wait $second; rc=$?; cp second.err err; last="the run that took over"; expect_rc 130
run inspect open --verify; grep -qE 'DAMAGED.*checkpoints' out && fail "a checkpoint was damaged"

# Who takes metrics.jsonl away under a run, or cuts it, is told at the next checkpoint, and not first by the resume that misses it.
metrics_gone() { # what is done to it, what is said
  "$program" train $job --out logs --steps 10000000 --save-every 500 --schedule constant -q >out 2>err &
  pid=$!
  last="a run under which this is done: $1"
  await '[ -e logs/checkpoints/last/manifest.json ]' && eval "$1"
  await "grep -q '^warning: logs/metrics.jsonl $2 while this run writes it: .*--allow-different metrics' err"
  kill -INT $pid; wait $pid; rc=$?; expect_rc 130
  [ "$(grep -c 'while this run writes it' err)" = 1 ] || fail "it is told at each checkpoint"
  at=$(readlink logs/checkpoints/last); at=$((10#${at#step-} + 1))
  run train --resume logs --steps $at; refuses 5; expect_err 'metrics.jsonl .* since the checkpoint was made'
  run train --resume logs --steps $at --allow-different metrics -q; expect_rc 0
  rm -r logs
}
metrics_gone 'rm logs/metrics.jsonl' 'was removed'
metrics_gone ': >logs/metrics.jsonl' 'was cut'
metrics_gone 'mv logs/metrics.jsonl logs/old; echo mine >logs/metrics.jsonl' 'is another file now'

# A run whose directory is moved away ends, and does not say that a step is saved where none is any more.
"$program" train $job --out there --steps 10000000 --save-every 500 -q >out 2>err &
pid=$!
last="a run whose directory is moved"
await '[ -e there/checkpoints/last/manifest.json ]' && mv there elsewhere
wait $pid; rc=$?; expect_rc 1
expect_err 'step [0-9]+ was saved, and there/checkpoints/step-[0-9]+ is gone: if it was moved, --resume takes the run where it is now'
run inspect elsewhere --verify; grep -qE 'DAMAGED.*checkpoints' out && fail "a checkpoint was damaged"

# Where descriptors run out, what was made is taken back with those that there are.
for files in $(seq 5 16); do
  last="a run that may open $files files"
  (ulimit -n "$files" && exec "$program" train $job --out few --steps 1 -q) >out 2>err </dev/null
  rc=$?
  if [ "$rc" = 0 ]; then break; fi
  expect_rc 1; expect_err 'Too many open files'
  [ -e few ] && fail "it left $(tree few)"
done
last="a run with few files"; expect_rc 0

# ---- 8. --resume RUN alone; longer runs ----
run train $job --out whole --steps 8 --save-every 2 --schedule constant --shuffle --optimizer momentum --lr 3e-2 --eval-data held.txt --eval-every 4 -q; expect_rc 0
run train $job --out part --steps 4 --save-every 2 --schedule constant --shuffle --optimizer momentum --lr 3e-2 --eval-data held.txt --eval-every 4 -q; expect_rc 0
run train --resume part --steps 8 -q; expect_rc 0
cmp -s whole/final/model.safetensors part/final/model.safetensors || fail "a longer run has other weights"
[ "$(course whole)" = "$(course part)" ] || fail "a longer run has other metrics"
mkdir beside; cp text.txt moved.txt
cd beside; run train --resume ../part -q; expect_rc 0; cd ..
run train --resume part --data moved.txt --steps 9 -q; expect_rc 0
run train --resume run --steps 9; refuses 2; expect_err 'linear schedule depends'; expect_err 'allow-different steps'
run train --resume run --steps 9 --allow-different steps -q; expect_rc 0; expect_err 'learning rate of the next step'
grep -q '"allowed": "steps' run/run.json || fail "run.json does not record the other number of steps"
# The model is not needed any more.
cp -r whole/final base; run train base --seq 12 --threads 1 --data text.txt --out tuned --steps 2 --save-every 1 --schedule constant -q; expect_rc 0
rm -rf base; run train --resume tuned --steps 3 -q; expect_rc 0

# ---- 5. identity ----
run train --resume part --lr 1e-3; refuses 2; expect_err 'lr was 0.03 and is 0.001'
run train --resume part --lr 1e-3 --seed 7; refuses 2; expect_err 'lr was'; expect_err 'seed was'
run train --resume part --lr 1e-3 --seed 7 --allow-different lr; refuses 2; expect_err 'seed was'; ! grep -q 'lr was' err || fail "lr is named although it is allowed"
run train --resume part --packing off; refuses 2; expect_err 'packing was pack and is off'; ! grep -qi 'data was' err || fail "the data is blamed for packing"
run train --resume part --data held.txt; refuses 2; expect_err 'data was'
run train --resume part --allow-different nonsense; refuses 2; expect_err "nonsense"
# What was allowed when it went on holds although that ended before its first checkpoint: --resume RUN alone goes on, and says it once.
run train $job --out changed --steps 4 --save-every 2 --lr 3e-2 -q; expect_rc 0
"$program" train --resume changed --lr 1e-4 --steps 900000 --save-every 900000 --allow-different lr,steps -q >killed.out 2>killed.err &
pid=$!
await '[ "$(wc -l <changed/metrics.jsonl)" -gt 20 ]'
kill -9 $pid; wait $pid 2>/dev/null
[ "$(readlink changed/checkpoints/last)" = step-000004 ] || fail "there is a later checkpoint"
run train --resume changed --lr 2e-4; refuses 2; expect_err 'lr was 0.03 and is 0.0002'
cp -r changed before; run train --resume before --from step-2; refuses 2; expect_err 'allowed to differ from step 4 on, behind this checkpoint'
run train --resume before --lr 3e-2 --steps 6 --allow-different steps -q; expect_rc 0; grep -q 'lr 0.03' err && fail "the values of the checkpoint are said to differ"
grep -q '"allowed": "lr' before/run.json && fail "what only the killed attempt was allowed is still recorded"
grep -q '"allowed": "steps 4 -> 6"' before/run.json || fail "what this attempt was allowed is not recorded"
cp -r changed back; run train --resume back --from step-2 --lr 1e-5 --steps 6 --allow-different lr,steps -q; expect_rc 0
grep -q '"from_step": 4' back/run.json && fail "a change of steps that were set aside is still told"
"$program" train --resume changed -q >again.out 2>again.err &
pid=$!
await '[ "$(grep -c "\"step\":2[0-9]," changed/metrics.jsonl)" -gt 0 ] && [ "$(grep -c . again.err)" -gt 0 ]'
kill -INT $pid; wait $pid; rc=$?; cp again.err err; last="--resume RUN alone"; expect_rc 130; expect_err 'as allowed: lr 0.03 -> 0.0001, steps 4 -> 900000'
[ "$(grep -c '"allowed": "lr 0.03 -> 0.0001, steps 4 -> 900000"' changed/run.json)" -eq 1 ] || fail "the change is recorded other than once"
sed 's/"rms_norm_eps": [^,]*/"rms_norm_eps": 0.001/' part/checkpoints/last/config.json >eps.json
run train eps.json --resume part; refuses 2; expect_err 'model: rms_norm_eps'
run train --resume part --recompute block --steps 10 -q; expect_rc 0 # memory alone: free
run train --resume part --threads 2 --same-bits; refuses 2; expect_err 'the threads'
run train --resume part --threads 2 --steps 11 -q; expect_rc 0; expect_err 'from step 11 on bits may differ'; grep -q '"machine": "the threads' part/run.json || fail "run.json does not record the change"

# ---- 4. bit rot, --from, --verify ----
run inspect part --verify; expect_rc 0; expect_out ' 0 damaged, 0 unverified'
run inspect part --verify --json; expect_rc 0; expect_json 'd["damaged"] == 0' 'd["whole"] > 10' 'd["newest_whole"] == "step-000011"'
flip() { printf "\\x$(printf '%02x' $(( $(od -An -tu1 -j "$2" -N1 "$1") ^ 1 )))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
cp -r part rotten
flip rotten/checkpoints/step-000011/model.safetensors 1500
run train --resume rotten --steps 12; expect_rc 5; expect_err 'step-000011/model.safetensors is damaged'; expect_err '--from step-000010'
run inspect rotten --verify; expect_rc 5; expect_out 'DAMAGED.*step-000011/model.safetensors'; expect_err 'step-000010'
echo mine >rotten/checkpoints/step-000011/notes.txt
run train --resume rotten --from step-000010 --steps 12 -q; expect_rc 0; expect_err 'set-aside-1'
[ "$(cat rotten/checkpoints/step-000011.set-aside-1/notes.txt)" = mine ] || fail "a person's notes are gone"
cp -r part plain; run train --resume plain --from step-10 --steps 12 -q; expect_rc 0; expect_err 'step-000011.*set-aside-1' # step-N, as it is told
run train --resume rotten --from step-77; refuses 2; expect_err 'no such checkpoint'
# What a run that goes on otherwise does not make again is kept: the steps behind its checkpoint, as they went.
cp -r part other; echo '{"step":12,"loss":null}' >>other/metrics.jsonl; cp other/metrics.jsonl went.jsonl
run train --resume other --steps 12 --lr 1e-4 --allow-different lr -q; expect_rc 0; expect_err 'kept as metrics.jsonl.set-aside-1'
cmp -s other/metrics.jsonl.set-aside-1 went.jsonl || fail "how the run went before is gone"
cp -r part cut; truncate -s -20 cut/metrics.jsonl
run train --resume cut; expect_rc 5; expect_err 'metrics.jsonl was cut'
run train --resume cut --allow-different metrics --steps 12 -q; expect_rc 0

# ---- 6. links ----
ln -sfn step-000002 part/checkpoints/last; rm part/checkpoints/best
run train --resume part -q; expect_rc 0
[ "$(readlink part/checkpoints/last)" = step-000011 ] || fail "last was not rebuilt"
[ -e part/checkpoints/best/state.json ] || fail "best was not rebuilt"

# ---- what is not ours stays ----
echo mine >part/final/x.tex; echo mine >part/checkpoints/.mine.tmp; echo mine >part/.note.tmp; mkdir part/.headroom-abcdef; echo mine >part/.headroom-abcdef/y
run train --resume part --steps 12 --keep 1 -q; expect_rc 0; expect_err 'final.*set-aside'
for kept in final.set-aside-1/x.tex checkpoints/.mine.tmp .note.tmp .headroom-abcdef/y; do [ "$(cat part/$kept)" = mine ] || fail "$kept is gone"; done
[ -e part/final/model.safetensors ] || fail "there is no final"

# ---- the model goes, the newest checkpoint rots, and the run goes on with all of its files ----
"$program" convert part/final m.gguf >/dev/null 2>err && "$program" convert m.gguf word >/dev/null 2>err
for companion in generation_config.json special_tokens_map.json; do echo '{}' >word/$companion; done
run train word --seq 12 --threads 1 --data text.txt --schedule constant --steps 4 --save-every 2 --keep 2 --out gone -q; expect_rc 0
rm -rf word
run train --resume gone --steps 6 -q; expect_rc 0; ! grep -q warning err || fail "the model's files are missed"
run train --resume gone --steps 10 -q; expect_rc 0; ! grep -q warning err || fail "the model's files are missed"
for companion in generation_config.json special_tokens_map.json; do [ -e gone/final/$companion ] && [ -e gone/checkpoints/last/$companion ] || fail "$companion is lost"; done
flip gone/checkpoints/step-000010/config.json 30
run train --resume gone; expect_rc 5; expect_err '--from step-000008'
run train --resume gone --from step-000008 --steps 10 -q; expect_rc 0; [ -e gone/final/special_tokens_map.json ] || fail "special_tokens_map.json is lost"
grep -q special_tokens_map.json gone/checkpoints/last/manifest.json || fail "the manifest lacks a file"

# ---- what a person changed stays ----
echo mine >gone/final/manifest.json; run train --resume gone -q; expect_rc 0; [ "$(cat gone/final.set-aside-1/manifest.json)" = mine ] || fail "final/manifest.json is gone"
sed -i 's/{/{ /' gone/final/config.json; edited=$(sha256sum <gone/final/config.json)
run train --resume gone -q; expect_rc 0; [ "$(sha256sum <gone/final.set-aside-2/config.json)" = "$edited" ] || fail "an edited config.json is gone"
run train --resume gone -q; expect_rc 0; [ -e gone/final.set-aside-3 ] && fail "final was set aside though nobody touched it"
cp gone/metrics.jsonl before.jsonl; sed -i '3s/step/Step/' gone/metrics.jsonl; cp gone/metrics.jsonl broken.jsonl
run train --resume gone; expect_rc 5; expect_err 'metrics.jsonl was changed'
run train --resume gone --allow-different metrics -q; expect_rc 0
cmp -s gone/metrics.jsonl.set-aside-2 broken.jsonl || fail "the broken metrics are gone"
[ "$(wc -l <gone/metrics.jsonl)" -eq $(($(wc -l <before.jsonl) - 1)) ] || fail "more than the broken line is gone"
grep -q '"allowed": "metrics"' gone/run.json || fail "run.json does not record what was allowed"

# ---- bytes that JSON does not have, a long text, variables for all runs ----
run train $job --steps 2 --schedule constant --document-separator '\xff' --out bytes -q; expect_rc 0
run train --resume bytes --steps 3 -q; expect_rc 0
long=$(printf 'x%.0s' $(seq 300))
run train $job --steps 2 --schedule constant --document-separator "$long" --out long -q; expect_rc 0
run train --resume long --steps 3 -q; expect_rc 0
run train --resume long --steps 4 --document-separator "${long}y"; refuses 2; expect_err 'document-separator was'
HEADROOM_EPOCHS=1 "$program" train --resume bytes --steps 4 -q >out 2>err || fail "HEADROOM_EPOCHS is in the way"
HEADROOM_EPOCHS=1 "$program" train --resume bytes -q >out 2>err || fail "HEADROOM_EPOCHS is in the way"; grep -q '"steps": 4' bytes/run.json || fail "HEADROOM_EPOCHS overruled the run's steps"
run train $job --steps 2 --out deep/er/run --profile deep/er/run/no/p.json; [ "$rc" -ne 0 ] || fail "wrote into a directory that is not there"; [ -e deep ] && fail "directories were left"
run train $job --steps 2 --out slash/ --profile slash/p.json -q; expect_rc 0; [ -s slash/p.json ] || fail "no profile"

# ---- a run of schema 1 (recorded with an early checkout; tests/runs) ----
for i in $(seq 40); do echo "line $i of a text"; done >old.txt
cp -r "$here/../runs/schema-1" old
oldjob="$model --seq 12 --threads 1 --data old.txt --schedule constant --eval-data old.txt --eval-every 2 --save-every 2"
run inspect old --verify; expect_rc 0; flat_out=$(tr -s ' \n' ' ' <out)
[ "$(grep -o 'made before runs had digests (schema_version 1)' <<<"$flat_out" | wc -l)" -ge 2 ] || fail "verify does not say why it is not verified"
grep -qF '0.1.0' out && fail "an early run is told as one of a version"
run train $oldjob --resume old --lr 1; refuses 2; expect_err 'lr was 5e-05 and is 1'
run train ${oldjob/--data old.txt/--data text.txt} --resume old --lr 1 --allow-different lr; refuses 2; expect_err 'training data'
run train $oldjob --resume old --steps 6 -q; expect_rc 0; expect_err 'before runs had digests .schema_version 1.: it is not verified'
run train $oldjob --out new --steps 6 -q; expect_rc 0
# Its first steps were summed in another order (there was a library for products): the same losses, but for the last digits.
last_loss() { grep -oE '"eval_loss":[^,}]*' "$1/metrics.jsonl" | tail -n 1 | cut -d: -f2; }
awk -v a="$(last_loss old)" -v b="$(last_loss new)" 'BEGIN { exit !(a > 1 && (a - b) ^ 2 < 1e-10) }' || fail "a run of schema 1 goes on to other losses: $(last_loss old), $(last_loss new)"
run train --resume old --steps 7 -q; expect_rc 0 # it is a run of today now
sed 's/"schema_version": 2/"schema_version": 9/' old/run.json >x.json; mv x.json old/run.json
run train --resume old --steps 8; expect_rc 5; expect_err 'schema version 9'

# ---- 3. divergence ----
run train $job --out wild --steps 200 --save-every 20 --keep 1 --lr 900 --optimizer sgd --clip 0 --eval-data held.txt --eval-every 20; expect_rc 7; expect_err 'diverged in step'
run train $job --out clipped --steps 20 --lr 900 --optimizer sgd; expect_rc 7; expect_err 'gradient norm nan'; grep -q -- -nan err clipped/run.json && fail "a sign of what is no number is told"
grep -q '"state": "diverged"' wild/run.json || fail "run.json does not say diverged"
[ -e wild/final ] && fail "a diverged run has a final model"
}
finish
