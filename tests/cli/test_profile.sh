#!/usr/bin/env bash
# train --profile: the table, the trace, and paths that cannot be written.
source "$(dirname "$0")/common.sh"
for i in $(seq 400); do echo "line $i of a small text that a very small model can learn by heart"; done >text.txt
job="micro-llama-bytes --seq 64 --micro-batch 2 --threads 1 --lr 1e-3 --data text.txt"

# shellcheck disable=SC2086
{
run train $job --out run --steps 6 --profile run/trace.json; expect_rc 0
expect_err '^profile of 5 steps, median .* run/trace.json'; expect_err '^  op +calls +ms +% +rate +predicted ms'
expect_err '^  linear_dw +[0-9]+ .* GFLOP/s'; expect_err '^  step +[0-9.]+ +100.0 .*assumed rates'
if [ -n "$have_python" ]; then
  last='the trace'
  python3 - run/trace.json <<'PYTHON' || fail "the trace is not as expected"
import json, sys
trace = json.load(open(sys.argv[1]))
nodes = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] != "layers"]
other = trace["otherData"]
assert len(nodes) == sum(row["calls"] for row in other["ops"]), "an event for each call"
assert {e["cat"] for e in nodes} == {"forward", "loss", "backward", "optimizer"}
assert all(e["args"]["phase"] == e["cat"] and e["args"]["dtype"] and e["args"]["bytes"] > 0 for e in nodes)
ends = [e["ts"] + e["dur"] for e in nodes]
assert all(a <= b["ts"] + 1 for a, b in zip(ends, nodes[1:])), "one after the other"
assert other["steps"] == 5 and not other["warm_up_only"] and other["model"] == "micro-llama-bytes"
assert all(row["seconds"] > 0 and abs(row["share"] * other["step_seconds"] - row["seconds"]) < 1e-9 for row in other["ops"]), "shares of the step"
PYTHON
fi

# Recording changes no result: the same bits with and without.
run train $job --out plain --steps 6 --quiet; expect_rc 0; expect_no_err
cmp -s run/final/model.safetensors plain/final/model.safetensors || fail "the profile changes the weights"

# A step alone is shown, and said to be the one that warms up.
run train $job --out one --steps 1 --profile one.json; expect_rc 0; expect_err '^profile of 1 step \(the first, which warms up\)'
run train $job --out more --steps 1 --profile one.json --quiet; expect_rc 0 # an earlier one
cp text.txt mine.txt; run train $job --out refused --steps 1 --profile mine.txt; refuses 2; expect_err 'mine.txt is there already'
cmp -s text.txt mine.txt || fail "a person's file was overwritten"; [ -e refused ] && fail "the run began"
run train $job --out quiet --steps 2 --profile quiet.json --quiet --json; expect_rc 0; expect_no_err; [ -s quiet.json ] || fail "no trace"

# Refused before the run begins, and nothing is left behind.
run train $job --out refused --steps 2 --profile nowhere/trace.json; [ "$rc" -ne 0 ] || fail "wrote into a directory that is not there"; expect_err '^headroom: .*nowhere'
[ -e refused ] && fail "a refused run left its directory"
# A device is written to and stays, also for who may remove it; named by a link, for a mistake must not cost it.
ln -s /dev/null sink; ln -s nothing dangling
run train $job --out sunk --steps 2 --profile sink --metrics-file sink -q; expect_rc 0; [ "$(readlink sink)" = /dev/null ] && [ -c /dev/null ] || fail "a device gave way to a profile"
run train $job --out refused --steps 2 --profile dangling; refuses 2; expect_err 'it is a link'
run train $job --out refused --steps 2 --metrics-file dangling; refuses 2; expect_err 'it is a link'
[ "$(readlink dangling)" = nothing ] || fail "a link gave way to a profile"
run train $job --out refused --steps 2 --profile run; refuses 2; expect_err 'not the name of a file'
run train $job --out refused --steps 2 --profile text.txt/trace; [ "$rc" -ne 0 ] || fail "wrote below a file"; expect_err '^headroom: '
[ -e refused ] && fail "a refused run left its directory"

# Ctrl-C writes it as well.
last='headroom train --profile, interrupted'
"$program" train $job --out stopped --steps 100000 --profile stopped.json >out 2>err &
pid=$!
for _ in $(seq 200); do [ "$(wc -l 2>/dev/null <stopped/metrics.jsonl || echo 0)" -ge 3 ] && break; sleep 0.1; done
kill -INT "$pid"; wait "$pid"; rc=$?
expect_rc 130; expect_err '^profile of [0-9]+ steps'; [ -s stopped.json ] || fail "no trace after an interrupt"
}
finish
