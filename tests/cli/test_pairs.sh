#!/usr/bin/env bash
# Two processes on one run directory, in all pairs: what each may do while the other works (docs/run-directory.md).
# The first one is stopped (SIGSTOP) in its work, the second one runs to its end, then the first one goes on to its own.
source "$(dirname "$0")/common.sh"
for i in $(seq 3000); do echo "line $i of a small text that a very small model can learn by heart"; done >text.txt
head -c 6000 text.txt >held.txt
model="custom:family=llama,layers=1,hidden=8,heads=2,kv-heads=1,mlp=8,vocab=257,positions=32,tied"
job="$model --seq 12 --threads 1 --data text.txt --schedule constant --save-every 2 --keep 2"

# shellcheck disable=SC2086
words() { # the command of a kind, on the directory `run`
  case $1 in
    fresh) echo train $job --steps "$2" --out run -q ;;
    resume) echo train --resume run --steps "$2" -q ;;
    evaluate) echo evaluate run/checkpoints/last --seq 12 --threads 1 --data text.txt ;;
    generate) echo generate run/checkpoints/last --threads 1 --prompt line --max-tokens 16 --context 32 ;;
    inspect) echo inspect run --verify ;;
    convert) echo convert run/final run/final/model.gguf ;;
  esac
}
prepare() { # what must be there before: nothing for a fresh run, else a finished one
  rm -rf run
  [ "$1" = fresh ] || cp -r finished run
}
# shellcheck disable=SC2086,SC2046
"$program" $(words fresh 4) >/dev/null 2>err || fail "the run that the pairs begin with failed"
mv run finished

# Exit codes of the second, while the first one works: a row for each first, a column for each second.
#                 fresh resume evaluate generate inspect convert
declare -A expect=(
  [fresh]="        2     2      0        0        0       1"   # no final yet: there is nothing to convert
  [resume]="       2     2      0        0        0       0"
  [evaluate]="     2     0      0        0        0       0"
  [generate]="     2     0      0        0        0       0"
  [inspect]="      2     0      0        0        0       0"
  [convert]="      2     0      0        0        0       0")
kinds="fresh resume evaluate generate inspect convert"

for first in $kinds; do
  # shellcheck disable=SC2206
  codes=(${expect[$first]}); column=0
  for second in $kinds; do
    code=${codes[$column]}; column=$((column + 1))
    prepare "$first"
    # shellcheck disable=SC2046
    "$program" $(words "$first" 1000000) >first.out 2>first.err &
    pid=$!
    case $first in # in its work: past its first checkpoint, or its first files
      fresh | resume) for _ in $(seq 400); do [ "$(readlink run/checkpoints/last)" != step-000004 ] && [ -e run/checkpoints/last/manifest.json ] && break; sleep 0.02; done ;;
      *) sleep 0.03 ;;
    esac
    kill -STOP $pid 2>/dev/null
    # shellcheck disable=SC2046
    run $(words "$second" 8)
    case $first:$second in
      fresh:convert) [ "$rc" -ne 0 ] || fail "$first, then $second: converted what is not there" ;;
      convert:convert) [ "$rc" -eq 0 ] || [ "$rc" -eq 2 ] || fail "$first, then $second: exit code $rc" ;; # who comes second finds the target there
      *) [ "$rc" -eq "$code" ] || fail "$first, then $second: exit code $rc, not $code" ;;
    esac
    case $first:$second in fresh:resume | resume:resume | resume:fresh) expect_err "in use: host .*process $pid" ;; esac
    kill -CONT $pid 2>/dev/null
    case $first in
      fresh | resume) kill -INT $pid; wait $pid; [ $? -eq 130 ] || fail "$first beside $second did not end well: $(cat first.err)" ;;
      convert) # a resume that ends while a file is made in `final` sets that folder aside, with what is begun in it
        wait $pid; rc=$?
        [ $rc -eq 0 ] || [ "$second:$rc" = convert:2 ] || { [ "$second:$rc" = resume:1 ] && grep -q "run/final/model.gguf: cannot" first.err; } || fail "$first beside $second: exit code $rc: $(cat first.err)" ;;
      *) wait $pid || fail "$first beside $second failed: $(cat first.err)" ;;
    esac
    run inspect run --verify; [ "$rc" -eq 0 ] || fail "$first beside $second left damage"
    [ -z "$(find run -name '.headroom-??????')" ] || fail "$first beside $second left $(find run -name '.headroom-??????')"
  done
done

# A checkpoint that is read stays: the reader stands in the middle of opening it while the run retires it.
rm -rf run; cp -r finished run
exec 9<run/checkpoints/step-000002/manifest.json
if command -v flock >/dev/null 2>&1; then
  flock -s 9
  run train --resume run --steps 12 -q; expect_rc 0
  [ -e run/checkpoints/step-000002/model.safetensors ] || fail "a checkpoint was taken from under its reader"
  exec 9<&-
  run train --resume run --steps 14 -q; expect_rc 0
  [ -e run/checkpoints/step-000002 ] && fail "a checkpoint that nobody reads any more was not retired"
fi
finish
