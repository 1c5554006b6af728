#!/usr/bin/env bash
# RUN/memory: recorded steps, the trail of a run that was killed or went on, and a machine that refuses.
source "$(dirname "$0")/common.sh"
for i in $(seq 400); do echo "line $i of a small text that a very small model can learn by heart"; done >text.txt
sed 's/small/tiny/' text.txt >other.txt
job="micro-llama-bytes --seq 64 --micro-batch 2 --threads 1 --lr 1e-3"
# Steps that are done, as the trail's page has them (src/snapshot/trail.h).
trail_steps() { od -A n -t u8 -j 32 -N 8 "$1/memory/trail" | tr -d ' '; }

# shellcheck disable=SC2086
{
# Micro-batches, evaluations in between: the last three steps, with exact roles.
run train $job --accumulate 3 --data text.txt --eval-data text.txt --eval-every 2 --out run --steps 7 --record-memory --quiet; expect_rc 0
[ "$(trail_steps run)" = 7 ] || fail "the trail says $(trail_steps run) steps"
run inspect run; expect_rc 0; expect_err 'run/memory/snapshot.pickle.gz'; expect_out 'optimizer_state'; expect_out 'layer [01], forward'
run inspect run --json; expect_rc 0
expect_json 'd["odd_count"] == 0' 'd["began_empty"]' '{"weight", "gradient", "activation", "optimizer_state"} <= {g["category"] for g in d["by_category"]}' \
  'sum(g["bytes"] for g in d["by_category"]) == d["at"]["requested_bytes"]'
run train $job --data text.txt --out plain --steps 2 --quiet; expect_rc 0
[ -e plain/memory/snapshot.pickle.gz ] && fail "a snapshot without --record-memory"
run inspect plain; expect_rc 0; expect_err 'plan.pickle.gz'

# A trail that is cut under a run is lost, and the run is not. A sanitizer leaves the signal to the program: where it has a handler of its own,
# the program has none (src/snapshot/trail.c).
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}handle_sigbus=0 "$program" train $job --data text.txt --out cut --steps 100000 --save-every 20 --quiet >out 2>err &
pid=$!
await '[ -e cut/checkpoints/last ]'
: >cut/memory/trail; before=$(readlink cut/checkpoints/last)
await '[ "$(readlink cut/checkpoints/last)" != "$before" ]'
kill -INT "$pid"; wait "$pid"; rc=$?
last='headroom train, its trail cut'; expect_rc 130; [ "$(readlink cut/checkpoints/last)" != "$before" ] || fail "the run did not go on"
at=$(readlink cut/checkpoints/last); at=$((10#${at#step-} + 5))
run train --resume cut --steps $at --allow-different steps -q; expect_rc 0
[ "$(trail_steps cut)" = $at ] || fail "the trail of the run that went on says $(trail_steps cut) steps"

# What a search for a plan leaves behind is given back before the arena is reserved: the process holds no more than the plan's need.
# Only where the C library can (hri_mem_trim); a program that is linked whole has its name, others the versions of its symbols.
if ! sanitized && grep -qaE 'GLIBC_2\.|GNU C Library' "$program"; then
  for more in '--auto --clip 0 --budget 42MiB' '--recompute auto --budget 40MiB' '--batch-tokens 1536 --micro-batch auto --budget 60MiB'; do
    deep="custom:family=llama,layers=40,hidden=64,heads=4,mlp=128,vocab=300 --threads 1 --seq 64 $more"
    [[ $more == *micro-batch* ]] || deep+=' --micro-batch 4'
    run plan $deep --json --no-fixes; expect_rc 0; need=$(json_number need_bytes)
    # The peak differs from run to run, as the kernel counts pages per CPU in batches: beside other work 24 runs were from 680 KiB
    # below the plan to 190 KiB above it. Without the giving back all of 12 were above, by 300 to 880 KiB.
    for attempt in 1 2 3 4 5; do
      run train $deep --data text.txt --out searched --steps 2 --json --quiet; expect_rc 0; expect_no_err; rm -r searched
      [ "$(json_number process_peak_bytes)" -le "$need" ] && break
    done
    [ "$(json_number process_peak_bytes)" -le "$need" ] || fail "$more: the process held $(json_number process_peak_bytes) bytes, planned are $need"
  done
fi

# Killed: the trail says how far it came; refused to go on: it stays; going on: it counts from there.
"$program" train $job --data text.txt --out killed --steps 100000 --save-every 20 --quiet >out 2>err &
pid=$!
await '[ -e killed/checkpoints/last ]'
kill -9 "$pid"; wait "$pid" 2>/dev/null
last='headroom train, killed'; steps=$(trail_steps killed)
[ "$steps" -ge 20 ] || fail "the trail says $steps steps"
run explain killed; expect_rc 0; expect_out "killed after $steps of 100000 steps"
cp killed/memory/trail before
run train $job --data other.txt --resume killed --steps 100000 --quiet; refuses 2; expect_err 'data was'
cmp -s killed/memory/trail before || fail "a refused run changed the trail of the earlier one"
run train $job --data text.txt --resume killed --steps 99999 --quiet; refuses 2
cmp -s killed/memory/trail before || fail "a refused run changed the trail of the earlier one"
"$program" train $job --data text.txt --resume killed --steps 100000 --quiet >out 2>err &
pid=$!
await '! cmp -s killed/memory/trail before && [ "$(trail_steps killed)" -gt 0 ]' # its first steps: they go on from those of before
kill -9 "$pid"; wait "$pid" 2>/dev/null
last='headroom train --resume, killed'; [ "$(trail_steps killed)" -ge 20 ] || fail "the trail of the resumed run says $(trail_steps killed) steps"

# The machine has less than the plan: which limit, whose bytes, what fits in what is left.
last='headroom train under ulimit -v'
(ulimit -v 1500000 && exec "$program" train gpt2-124m --seq 512 --micro-batch 4 --threads 1 --budget 8GiB --data text.txt --out refused --steps 2 --quiet) >out 2>err; rc=$?
if grep -q 'RLIMIT_AS' err; then # not where a sanitizer needs more than that itself
  expect_rc 3; expect_err 'not the machine'; expect_err 'this process$'; expect_err 'ulimit -v unlimited'; expect_err 'options that fit, each planned'; expect_no_out
else
  [ "$rc" -ne 0 ] || fail "it trained in less than its plan"
fi
# Stacks of a team count in plans of less memory too: none of these would fit, and fewer threads would.
last='headroom train --threads 1000 under ulimit -v'
(ulimit -v 400000; exec "$program" train micro-llama-bytes --seq 40 --threads 1000 --data text.txt --out refused --steps 2 --quiet) >out 2>err; rc=$?
if grep -q 'RLIMIT_AS' err; then
  expect_rc 3; expect_err 'give fewer --threads'; grep -q 'options that fit' err && fail "options are offered that would be refused as well"
else
  [ "$rc" -ne 0 ] || fail "it trained in less than the stacks of its team"
fi
[ -e refused ] && fail "a refused run left a directory"
}
finish
