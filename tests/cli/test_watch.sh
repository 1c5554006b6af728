#!/usr/bin/env bash
# What a person and other programs see of a run and of plans: streams of figures, and text as wide as the terminal.
source "$(dirname "$0")/common.sh"
watch() { python3 "$here/watch.py" "$@"; }
for i in $(seq 400); do echo "line $i of a small text that a very small model can learn by heart"; done >text.txt
tac text.txt >held.txt
job=(micro-llama-bytes --seq 32 --micro-batch 2 --threads 1 --lr 1e-3 --data text.txt)

# ---- streams ----

run train "${job[@]}" --steps 6 --eval-data held.txt --eval-every 3 --eval-batches 2 --out run --log-json log.jsonl --tensorboard --metrics-file prom.txt -q
expect_rc 0; expect_no_err; expect_out '^trained 6 steps'
cmp -s log.jsonl run/metrics.jsonl || fail "--log-json is not metrics.jsonl"
[ "$(wc -l <log.jsonl)" = 9 ] || fail "$(wc -l <log.jsonl) lines, not those of 6 steps and 3 evaluations"
board=$(echo run/tensorboard/events.out.tfevents.*)
[ -s "$board" ] || fail "no event file in run/tensorboard"
run inspect run --verify; expect_rc 0
if [ -n "$have_python" ]; then
  [ "$(watch events "$board" run/metrics.jsonl 2>err)" = 9 ] || fail "the event file is not as TensorBoard reads it"
  watch metrics prom.txt >figures 2>err || fail "the metrics file is not as Prometheus reads it"
  for figure in headroom_step=6 headroom_steps=6; do grep -qx "$figure" figures || fail "no $figure in the metrics file"; done
  for name in loss grad_norm tokens_per_second eval_loss process_resident_bytes device_budget_bytes last_update_seconds; do
    grep -q "^headroom_$name=" figures || fail "no headroom_$name in the metrics file"
  done
fi
ls | grep -q 'prom.txt.' && fail "something was left beside the metrics file"

# A run that goes on adds to its stream, and adds an event file.
run train --resume run --steps 8 --allow-different steps --log-json log.jsonl --tensorboard -q; expect_rc 0
cmp -s log.jsonl run/metrics.jsonl || fail "--log-json of a resumed run is not metrics.jsonl"
[ "$(find run/tensorboard -name 'events.out.tfevents.*' | wc -l)" = 2 ] || fail "not two event files"

# On standard output the lines stand alone; --json stays one document.
cp text.txt mine.txt
# The lines of a run are like those of a log, and it cannot go on without them.
run train --resume run --steps 9 --allow-different steps --budget 1KiB --log-json late.jsonl -q; expect_rc 3; [ ! -e late.jsonl ] || fail "a refused resume leaves a log"
run train "${job[@]}" --steps 2 --out none --budget 1KiB --tensorboard deep/a/board/ -q; expect_rc 3; [ ! -e deep ] || fail "a refused run leaves directories"
run train --resume run --steps 9 --allow-different steps --log-json run/metrics.jsonl -q; refuses 2; expect_err 'belongs to the run'
ln -s run/metrics.jsonl led; run train "${job[@]}" --steps 2 --out none --log-json led; refuses 2; expect_err 'belongs to the run'
run inspect run --verify; expect_rc 0
for option in log-json metrics-file; do
  run train "${job[@]}" --steps 2 --out none --$option mine.txt; refuses 2; expect_err 'mine.txt is there already'
  [ $option = log-json ] || { run train "${job[@]}" --steps 2 --out none --$option -; refuses 2; expect_err "$option: - names no file"; }
done
cmp -s text.txt mine.txt || fail "a person's file was overwritten"; [ -e none ] && fail "the run began"
cp log.jsonl before; run train "${job[@]}" --steps 2 --out none --log-json log.jsonl --budget 1MiB; expect_rc 3
run train "${job[@]}" --steps 2 --out none --log-json one.jsonl --metrics-file ./one.jsonl; refuses 2; expect_err 'would write the same file'
run train "${job[@]}" --steps 2 --out none --log-json one.jsonl --profile "$PWD/one.jsonl"; refuses 2; expect_err '--log-json and --profile'
[ ! -e one.jsonl ] && [ ! -e none ] || fail "two options of one file left something"
# A directory that one makes is no file of another, nor is what lies below such a file.
for option in log-json metrics-file profile; do
  run train "${job[@]}" --steps 2 --out none --$option none/tensorboard --tensorboard; refuses 2; expect_err "--$option and --tensorboard would write the same file, none/tensorboard"
  run train "${job[@]}" --steps 2 --out none --$option place --tensorboard ./place/; refuses 2; expect_err "--$option and --tensorboard would write the same file"
  run train "${job[@]}" --steps 2 --out none --$option place --data-cache place; refuses 2; expect_err "--$option and --data-cache would write the same file, place"
  run train "${job[@]}" --steps 2 --out none --$option place --tensorboard place/boards; refuses 2; expect_err "--tensorboard: place/boards lies below place, which --$option writes as a file"
  run train "${job[@]}" --steps 2 --out place/run --$option place; refuses 2; expect_err "--out: place/run lies below place, which --$option writes"
done
run train "${job[@]}" --steps 2 --out none --metrics-file place/x --log-json place; refuses 2; expect_err "--metrics-file: place/x lies below place, which --log-json writes"
[ ! -e place ] && [ ! -e none ] || fail "outputs of one place left something"
# A run that goes on has its names, also those that are not there yet.
run train "${job[@]}" --steps 2 --out going -q; expect_rc 0; rm -r going/final
for option in log-json metrics-file profile tensorboard; do
  run train --resume going --steps 4 --allow-different steps --$option going/final -q; refuses 2; expect_err "$option: going/final belongs to the run"
  run train --resume going --steps 4 --allow-different steps --$option going/checkpoints/step-000004 -q; refuses 2; expect_err "belongs to the run"
done
run train "${job[@]}" --steps 2 --out none --log-json going/final; refuses 2; expect_err "log-json: going/final belongs to the run"
run inspect going --html going/final; refuses 2; expect_err "html: going/final belongs to the run"
run plan gpt2-124m --device rtx-4090 --engine pytorch --snapshot going/final; refuses 2; expect_err "snapshot: going/final belongs to the run"
[ ! -e going/final ] || fail "something was written where the run writes"
cmp -s log.jsonl before || fail "a refused run emptied the log of an earlier one"
run train "${job[@]}" --steps 2 --out lines --log-json - -q; expect_rc 0
cmp -s out lines/metrics.jsonl || fail "--log-json - is not metrics.jsonl alone"
run train "${job[@]}" --steps 2 --out json --log-json log2.jsonl --json -q; expect_rc 0; expect_json 'd["steps"] == 2'
run train "${job[@]}" --steps 2 --out both --log-json - --json; refuses 2; expect_err 'exclude each other'
[ -e both ] && fail "a refused run left a directory"
run train "${job[@]}" --steps 2 --out none --log-json no/such/x.jsonl; expect_rc 1; expect_err 'no/such/x.jsonl'; expect_no_out
run train "${job[@]}" --steps 2 --out none --metrics-file no/such/x.prom; expect_rc 1; expect_err 'no/such'
run train "${job[@]}" --steps 2 --out none --tensorboard text.txt; expect_rc 1; expect_err 'text.txt'
[ -e none ] && fail "a refused run left a directory"
if [ -w /dev/full ]; then # a stream that fails is left, and the run goes on
  run train "${job[@]}" --steps 3 --out full --log-json /dev/full -q; expect_rc 0
  [ "$(grep -c 'log-json is not written any more' err)" = 1 ] || fail "a failed stream is not named once"
fi

# What lies in the directory of a new run waits for it, however it is spelled; names that are the run's own are refused.
run train "${job[@]}" --steps 3 --out inside --log-json ./inside//log.jsonl --metrics-file "$PWD/inside/prom.txt" --tensorboard inside/boards/first --profile ./inside/trace.json -q
expect_rc 0; expect_no_err
cmp -s inside/log.jsonl inside/metrics.jsonl || fail "a log inside the run directory is not metrics.jsonl"
for file in inside/prom.txt inside/trace.json inside/boards/first/events.out.tfevents.*; do [ -s "$file" ] || fail "$file is empty"; done
run train --resume inside --steps 4 --allow-different steps --log-json inside/log.jsonl --tensorboard inside/boards/first -q; expect_rc 0
cmp -s inside/log.jsonl inside/metrics.jsonl || fail "a log inside the directory of a run that goes on is not metrics.jsonl"
run inspect inside --verify; expect_rc 0
mkdir empty; run train "${job[@]}" --steps 2 --out empty --log-json empty/log.jsonl -q; expect_rc 0; expect_no_err; cmp -s empty/log.jsonl empty/metrics.jsonl || fail "no log in a directory that was there"
for name in metrics.jsonl run.json lock checkpoints/x final/x; do
  for option in log-json metrics-file profile; do
    run train "${job[@]}" --steps 2 --out none --$option none/$name; refuses 2; expect_err "$option: none/$name belongs to the run"
  done
done
run train "${job[@]}" --steps 2 --out none --log-json none; refuses 2; expect_err '^headroom: --out and --log-json would write the same file, none'
run train "${job[@]}" --steps 2 --out none --log-json none/logs/x.jsonl; refuses 2; expect_err 'lies in a directory that is not there'; expect_err 'try: name a file right in it'
run train "${job[@]}" --steps 2 --out none --tensorboard none/final; refuses 2; expect_err 'belongs to the run'
for option in "--out -" "--out none --tensorboard -" "--out none --data-cache -"; do # no place to write to: a directory called so is ./-
  run train "${job[@]}" --steps 2 $option; refuses 2; expect_err "^headroom: .*: - is standard output, and names no directory"; expect_err 'try: name a directory; .* is \./-'
done
run merge micro-llama-bytes inside/final --out -; refuses 2; expect_err '^headroom: --out: - is standard output'
run convert inside/final -; refuses 2; expect_err '^headroom: the target: - is standard output'
[ -e - ] && fail "a directory named - was made"
run train "${job[@]}" --steps 2 --out none --log-json none/x.jsonl --tensorboard none/y --budget 1MiB; expect_rc 3
[ -e none ] && fail "a refused run left a directory"
# What is outside of it goes as well, but for what others put there meanwhile.
mkdir kept; run train "${job[@]}" --steps 2 --out none --log-json fresh.jsonl --tensorboard new/boards --metrics-file fresh.prom --budget 1MiB; expect_rc 3
run train "${job[@]}" --steps 2 --out none --log-json kept/fresh.jsonl --tensorboard kept --budget 1MiB; expect_rc 3
[ -d kept ] && [ -z "$(ls -A kept)" ] && [ ! -e fresh.jsonl ] && [ ! -e new ] && [ ! -e fresh.prom ] || fail "a refused run left a stream"

# A stream that is closed has no file of the run behind it: what is said to nobody is lost, and nothing else.
last='train with closed streams'
"$program" train "${job[@]}" --steps 3 --out mute --log-json mute.jsonl 2>&- <&- >out; rc=$?; expect_rc 0; expect_out '^trained 3 steps'
cmp -s mute.jsonl mute/metrics.jsonl || fail "the log has what was meant for standard error"
grep -rqE '^(step|loaded|saved|FITS|plan) ' mute && fail "the run has what was meant for standard error"
"$program" train "${job[@]}" --steps 3 --out mute2 --log-json mute2.jsonl >&- 2>err; rc=$?; expect_rc 1; expect_err 'cannot write to standard output'
cmp -s mute2.jsonl mute2/metrics.jsonl || fail "the log has what was meant for standard output"
run inspect mute2 --verify; expect_rc 0

if [ -n "$have_python" ]; then # so is one whose earlier lines cannot be taken away
  last='a log that cannot be emptied'
  watch sealed log.jsonl "$program" train "${job[@]}" --steps 3 --out shut -q >out 2>err || fail "the run ended, or wrote into the earlier log"
  [ "$(grep -c 'log-json is not written any more: cannot empty' err)" = 1 ] || fail "a log that cannot be emptied is not named once"
fi

# A log has one writer, which loses nothing by another run; who cuts it meanwhile finds whole lines from its beginning on.
"$program" train "${job[@]}" --steps 1000000 --out first --log-json shared.jsonl -q >first.out 2>first.err &
pid=$!
await '[ -s shared.jsonl ] && [ "$(wc -l <shared.jsonl)" -gt 3 ]'
run train "${job[@]}" --steps 2 --out second --log-json shared.jsonl; refuses 2; expect_err 'shared.jsonl is locked by another process'
[ -e second ] && fail 'a refused run left a directory'
last='a log that is cut while it is written'
cp shared.jsonl until-then; : >shared.jsonl
await '[ -s shared.jsonl ] && [ "$(wc -l <shared.jsonl)" -gt 3 ]'
kill -INT $pid; wait $pid
cmp -s until-then <(head -c "$(wc -c <until-then)" first/metrics.jsonl) || fail 'lines were lost to the refused run'
[ "$(grep -vac '^{"step":[0-9]*,.*}$' shared.jsonl)" = 0 ] || fail 'the cut log has a hole, or half a line'
run train "${job[@]}" --steps 2 --out second --log-json shared.jsonl -q; expect_rc 0
cmp -s shared.jsonl second/metrics.jsonl || fail 'a log that was given up is not taken'

# ---- the terminal ----

# Options stand on one line, however long, so that they can be copied.
widest() { awk '!/^  --/ && length > most { most = length } END { print most + 0 }' "$1"; }
run plan gpt2-124m --device rtx-4090 --budget 2GiB; expect_rc 3
[ "$(widest out)" -le 80 ] || fail "a pipe gets $(widest out) columns"
if [ -n "$have_python" ]; then
  for columns in 60 100 160 300; do
    last="plan in $columns columns"
    watch terminal $columns "$program" plan llama-3-8b --device rtx-4090 --timeline >out 2>err
    most=$((columns > 160 ? 160 : columns))
    [ "$(widest out)" -le "$most" ] || fail "text is $(widest out) columns wide: $(awk -v m="$most" '!/^  --/ && length > m' out | head -n 3)"
    [ "$(grep -cE '^   \[.*\] \| budget' out)" = 1 ] || fail "no bar"
    [ "$(grep -E '^   \[' out | awk '{ print length }')" = $((most - 2)) ] || fail "the bar does not fill $most columns"
  done
  watch terminal 60 "$program" train "${job[@]}" --steps 40 --out narrow >out 2>err
  last='a run in 60 columns'
  grep -E 'loss [0-9.]+ +norm [0-9.e-]+ +[0-9.]+ ?[kMG]? tok/s +[0-9:]+ left' out >bar || fail "the line lacks loss, norm, tokens/s or time left"
  [ "$(widest bar)" -le 59 ] || fail "the line is $(widest bar) columns wide"
  watch terminal 150 "$program" train "${job[@]}" --steps 40 --out wide --budget 1GiB >out 2>err
  last='a run in 150 columns'
  expect_out 'resident [0-9.]+ MiB, planned [0-9.]+ of 1.00 GiB'
fi
run train "${job[@]}" --steps 2 --out piped; expect_rc 0
expect_err 'loss [0-9.]+  norm [0-9.e-]+  lr .* tok/s  [0-9:]+ left  resident [0-9.]+ MiB, planned [0-9.]+ of [0-9.]+ [GM]iB$'

# The chart has the budget, wherever it lies.
run plan gpt2-124m --device rtx-4090 --budget 1GiB --timeline --no-fixes; expect_rc 3; expect_out '^ +[0-9.]+ MiB \|=*#+'
run plan gpt2-124m --device rtx-4090 --timeline; expect_rc 0; expect_out '^ 23.12 GiB \|={60,}$'; expect_out '= is the budget less 500.0 MiB fixed'

# Names of devices stand whole.
[ -n "$have_python" ] && { watch terminal 60 "$program" devices >out 2>err; last='devices in 60 columns'; [ "$(widest out)" -le 60 ] || fail "the table is $(widest out) columns wide"; }
run devices; expect_rc 0; expect_out '^rtx-4070-ti-super +GeForce RTX 4070 Ti Super +'; expect_out '^rtx-6000-ada +RTX 6000 Ada Generation +'
finish
