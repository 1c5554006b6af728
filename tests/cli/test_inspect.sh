#!/usr/bin/env bash
# headroom inspect: snapshots as text and JSON, instants, groups, comparisons, exports, and files that are none.
source "$(dirname "$0")/common.sh"

# Snapshots are written here as PyTorch's JSON: a training of six steps by hand, every tensor in a segment of its own, whose
# activations are $1 MiB each and which fails at the end with $2 MiB free on the device.
snapshot() {
  awk -v act="$1" -v free="$2" '
    function frames(name, file, line) {
      return "[{\"name\":\"" name "\",\"filename\":\"" file "\",\"line\":" line "},{\"name\":\"main\",\"filename\":\"train.py\",\"line\":9}]"
    }
    # Addresses do not fit the integers of every awk: blocks are numbered, and addresses printed as whole doubles.
    function address(block) { return sprintf("%.0f", 140000000000000 + block * 64 * mib) }
    function event(action, block, size, stack) {
      time += 10
      events = events (events == "" ? "" : ",\n") "{\"action\":\"" action "\",\"addr\":" address(block) ",\"size\":" size ",\"stream\":0,\"time_us\":" time ",\"frames\":" stack "}"
    }
    function make(size, stack) {
      last++
      segment[last] = size <= mib ? 2 * mib : size < 10 * mib ? 20 * mib : int((size + mib * 2 - 1) / (mib * 2)) * mib * 2
      bytes[last] = size; made[last] = stack
      event("segment_alloc", last, segment[last], stack); event("alloc", last, size, stack)
      return last
    }
    function drop(block) {
      event("free_requested", block, bytes[block], "[]"); event("free_completed", block, bytes[block], "[]")
      event("segment_free", block, segment[block], "[]"); segment[block] = 0
    }
    function block(at, size, requested, state, stack) {
      return "{\"address\":" at ",\"size\":" size ",\"requested_size\":" requested ",\"state\":\"" state "\",\"frames\":" stack "}"
    }
    BEGIN {
      mib = 1048576; time = 1000000
      init = frames("to", "torch/nn/modules/module.py", 1170); forward = frames("forward", "model.py", 31)
      backward = frames("_engine_run_backward", "torch/autograd/graph.py", 825); state = frames("_init_group", "torch/optim/adam.py", 120)
      for (k = 0; k < 4; k++) make(3 * mib, init)
      for (step = 0; step < 6; step++) {
        for (k = 0; k < 4; k++) a[k] = make(act * mib, forward)
        make(500000, frames("remember", "train.py", 44))
        for (k = 0; k < 4; k++) { g[k] = make(3 * mib, backward); drop(a[k]) }
        if (step == 0) for (k = 0; k < 8; k++) make(3 * mib, state)
        drop(make(2 * mib, frames("step", "torch/optim/adam.py", 200)))
        for (k = 0; k < 4; k++) drop(g[k])
      }
      for (k = 0; k < 3; k++) make(act * mib, forward)
      events = events ",\n{\"action\":\"oom\",\"device_free\":" free * mib ",\"size\":" act * mib ",\"stream\":0,\"time_us\":" time + 10 ",\"frames\":" forward "}"
      printf "{\"segments\":["
      for (k = 1; k <= last; k++) {
        if (!segment[k]) continue
        rounded = int((bytes[k] + 511) / 512) * 512
        blocks = block(address(k), rounded, bytes[k], "active_allocated", made[k])
        if (segment[k] > rounded) blocks = blocks "," block(sprintf("%.0f", address(k) + rounded), segment[k] - rounded, 0, "inactive", "[]")
        kind = segment[k] > 2 * mib ? "large" : "small"
        printf "%s{\"device\":0,\"address\":%s,\"total_size\":%d,\"allocated_size\":%d,\"active_size\":%d,\"requested_size\":%d,\"stream\":0,", comma, address(k), segment[k], rounded, rounded, bytes[k]
        printf "\"segment_type\":\"%s\",\"segment_pool_id\":[0,0],\"is_expandable\":false,\"frames\":[],\"blocks\":[%s]}", kind, blocks
        comma = ",\n"
      }
      printf "],\"device_traces\":[[%s]],\"allocator_settings\":{},\"external_annotations\":[]}\n", events
    }'
}
snapshot 24 4 >oom.json
snapshot 36 4 >larger.json

run inspect oom.json; expect_rc 0; expect_no_err
expect_golden inspect-oom.txt
awk 'length > 100 { exit 1 }' out || fail "a line is wider than 100 columns"
[ "$(wc -l <out)" -le 60 ] || fail "the report is longer than a screen"
expect_out '^OUT OF MEMORY in forward: 24.00 MiB asked for, 4.00 MiB free on the device'
# More was reserved before than is there now: what explain calls undecidable is not called fragmented here.
expect_out '^HELD ELSEWHERE: 40.00 MiB '
expect_out 'GROWS by 488.28 KiB every step'
expect_out 'remember'

run inspect oom.json --json; expect_rc 0
expect_json 'd["oom_count"] == 1' 'd["at_event"] == d["event_count"] - 1' 'd["at_stage"] == "forward"' 'd["began_empty"]' 'd["odd_count"] == 0' \
  'd["at"]["reserved_bytes"] == sum(d["at"][k] for k in ("requested_bytes", "rounding_bytes", "pending_bytes", "free_returnable_bytes", "free_pinned_bytes"))' \
  'sum(g["bytes"] for g in d["by_category"]) == d["at"]["requested_bytes"]' 'd["steps_from"] == "optimizer stacks"' \
  'd["growth"][0]["kind"] == "leak"' 'd["fragmentation"]["segment_bytes"] == 24 << 20' 'd["fragmentation"]["fits_compacted"]' \
  '{g["category"]: g["bytes"] for g in d["by_category"]}["parameter"] == 12 << 20' \
  '{g["category"]: g["bytes"] for g in d["by_category"]}["optimizer_state"] == 24 << 20' \
  '{g["category"]: g["bytes"] for g in d["by_category"]}["activation"] == 72 << 20'

run inspect oom.json --at peak --json; expect_rc 0
expect_json 'd["at_event"] == d["peak_event"]' 'd["at"]["requested_bytes"] == d["peak_live_bytes"]'
run inspect oom.json --at 0; expect_rc 0; expect_out '^INSTANT before the first event: 0 B live'
run inspect oom.json --at end --by size --top 2; expect_rc 0; expect_out 'live by size'; expect_out 'each'
grep -q 'live by stack' out && fail "--by size lists stacks too"
run inspect oom.json --at 100000; refuses 2; expect_err 'no instant after 100000'
run inspect oom.json --at noon; refuses 2; expect_err "'noon' is none of"
run inspect oom.json --by colour; refuses 2
run inspect oom.json --device 0; expect_rc 0
run inspect oom.json --device 3; refuses 2; expect_err 'devices with events: 0'
run inspect oom.json --device left; refuses 2

run inspect oom.json larger.json; expect_rc 0; expect_out '^live .* -> .*\+'; expect_out 'forward'
run inspect oom.json larger.json --by category --json; expect_rc 0
expect_json 'd["by"] == "category"' 'd["differences"][0]["name"] == "activation"' \
  'd["differences"][0]["after_bytes"] - d["differences"][0]["before_bytes"] == 36 << 20'
run inspect oom.json oom.json; expect_rc 0; expect_out 'no difference'

run inspect oom.json --export collapsed live.txt; expect_rc 0; grep -q forward live.txt || fail "the flame graph lacks a frame"
run inspect oom.json --export csv events.csv; expect_rc 0; [ "$(wc -l <events.csv)" -gt 100 ] || fail "the table of events is short"
run inspect oom.json --export chart x; refuses 2; expect_err 'not one of: chrome'
run inspect oom.json --export csv; refuses 2; expect_err 'a format and a file'
run inspect oom.json --html one.html --export csv; refuses 2; expect_err 'a format and a file, 1 values'; [ ! -e one.html ] || fail "a page was written"
run inspect oom.json larger.json --export csv r.csv; refuses 2
run inspect oom.json larger.json --html r.html; expect_rc 0; expect_out '^live .* -> .*\+'
grep -q 'larger.json</h1>' r.html || fail "the page of two snapshots is not about the second"
run inspect oom.json --html /proc/report.html; refuses 1; expect_err 'cannot write /proc/report.html: cannot make a directory in /proc'
run train tiny-llama-bytes --data oom.json --steps 1 --out none --metrics-file /proc/metrics; expect_rc 1; expect_err 'cannot write /proc/metrics'
run inspect oom.json --html report.html; expect_rc 0
grep -q '<html' report.html || fail "the report is no page"
# At another instant the page still says what explain says, and without a failure what the peak was made of.
run inspect oom.json --at 3 --html report.html; expect_rc 0
# Files that are there: an earlier page is written again, what is anybody else's stays.
cp oom.json mine.json
run inspect oom.json --html both.out --export speedscope both.out; refuses 2; expect_err '--html and --export would write the same file'
[ ! -e both.out ] || fail "two options of one file left something"
run inspect mine.json --html -; refuses 2; expect_err 'html: - names no file'; run inspect mine.json --export csv -; refuses 2; [ ! -e ./- ] || fail 'a file is called -'
run inspect mine.json --html mine.json; refuses 2; expect_err 'mine.json is there already'; expect_err 'another name'
for format in chrome speedscope collapsed csv json; do
  run inspect mine.json --export $format mine.json; refuses 2; expect_err 'mine.json is there already'
done
run inspect mine.json --export speedscope report.html; refuses 2
run inspect mine.json --export csv events.csv; refuses 2
cmp -s oom.json mine.json || fail "a person's snapshot was overwritten"
run inspect oom.json --export speedscope live.json; expect_rc 0; run inspect oom.json --export speedscope live.json; expect_rc 0
: >blank; run inspect oom.json --html blank; expect_rc 0; run inspect oom.json --html /dev/null; expect_rc 0
grep -q 'class="verdict">Undecidable: ' report.html || fail "the verdict is not that of the failure"
run inspect "$here/../snapshots/real/2.15/gpt2-varied.pickle.gz" --html report.html; expect_rc 0
grep -q 'class="verdict">no_failure, certain: no failure is recorded; the peak was 147.01 MiB' report.html || fail "the peak is not explained"
grep -q 'roundup_power2_divisions:16' report.html || fail "the page lacks the setting that reserves less"
# The page says what explain says: the cause and its certainty, the arithmetic, the settings; events are counted alike.
real=$here/../snapshots/real/2.15/backward-oom.pickle.gz
run inspect "$real" --html real.html; expect_rc 0; expect_out '^PyTorch 2.12 to 2.15, device 0'
grep -q 'class="verdict">too_big, likely: with its rest as in step 5 this step needs 322.36 MiB, nearly all of 330.00 MiB that this process has' real.html || fail "the page's verdict is not explain's"
grep -q '31.64 MiB left of 330.00 MiB' real.html || fail "the arithmetic is not on the page"
grep -q 'set PYTORCH_ALLOC_CONF=expandable_segments:True' real.html || fail "the fix is not on the page"
run explain "$real"; expect_rc 0; expect_out 'after event 5316'
run inspect "$real" --at 5316; expect_rc 0; expect_out '^OUT OF MEMORY'
run inspect "$real" --wide; expect_rc 0; awk 'length > 120 { wide = 1 } END { exit !wide }' out || fail "--wide cuts its lines"

run explain oom.json; expect_rc 0; expect_out '^UNDECIDABLE'; expect_out '40.00 MiB went to somebody else'

# Of two devices the one that failed is shown, also where the other has more events: it is what explain is about.
if [ -n "$have_python" ]; then
  python3 - <<'PYTHON'
import json
calm, failed = json.load(open("larger.json")), json.load(open("oom.json"))
events = calm["device_traces"][0][:-1]
calm["device_traces"] = [events + [dict(events[-1], action="snapshot")] * 40, failed["device_traces"][0]]
for segment in failed["segments"]:
    segment["device"] = 1
calm["segments"] += failed["segments"]
json.dump(calm, open("devices.json", "w"))
PYTHON
  run inspect devices.json; expect_rc 0; expect_out '^OUT OF MEMORY in forward: 24.00 MiB'; expect_out ', device 1: '; expect_out 'one of 2 devices with events'
  run explain devices.json; expect_rc 0; expect_out 'device 1'
  run inspect devices.json --device 0; expect_rc 0; expect_out '^PEAK'
fi

gzip -k oom.json; run inspect oom.json.gz --json; expect_rc 0; expect_json 'd["oom_count"] == 1'
printf 'step 1 loss 2.0\n' >log.txt
run inspect log.txt; refuses 5; expect_err 'log.txt'
head -c 3000 oom.json >cut.json; run inspect cut.json; refuses 5; expect_err 'cut.json'
! grep -q 'while it was read' err || fail "nobody wrote cut.json"
# A file that is still being written is no damaged one.
for command in inspect explain; do
  head -c 3000 oom.json >growing.json
  (while [ -e growing.json ]; do printf ' ' >>growing.json; done) 2>/dev/null & writer=$!
  run $command growing.json; refuses 5; expect_err 'try: somebody wrote growing.json while it was read: read it again when it is whole'
  kill $writer; wait $writer 2>/dev/null || true; rm growing.json
done
mkdir empty; run inspect empty; refuses 5; expect_err 'memory/snapshot.pickle.gz'
run inspect; refuses 2
# From standard input and from a pipe of the shell as from the file; two cannot both be standard input.
for command in "inspect --json" "replay --json" "inspect --by size" "replay --search"; do
  # shellcheck disable=SC2086
  { run $command "$real"; expect_rc 0; mv out from-file
    last="headroom $command - <snapshot"; "$program" $command - <"$real" >out 2>err; rc=$?; expect_rc 0; expect_no_err
    sed -i "s|standard input|$real|" out; cmp -s out from-file || fail "another answer from standard input"
    last="headroom $command <(gzip -dc snapshot)"; "$program" $command <(gzip -dc "$real") >out 2>err; rc=$?; expect_rc 0; expect_no_err
    sed -i "s|/dev/fd/[0-9]*|$real|" out; cmp -s out from-file || fail "another answer from a pipe"; }
done
last='headroom inspect - FILE'; "$program" inspect - "$real" <"$real" >out 2>err; rc=$?; expect_rc 0; expect_out 'no difference'
for option in "--html x.html" "--export csv x.csv" "--at peak" "--top 3" "--by size" --wide "--device 0" "--max-memory 1GiB"; do
  # shellcheck disable=SC2086
  run inspect missing --verify $option; refuses 2; expect_err "^headroom: ${option%% *} does nothing beside --verify"; expect_err 'try: leave one'
done
run inspect - -; refuses 2; expect_err 'standard input is one snapshot'
for command in inspect replay; do
  run $command -; refuses 5; expect_err '^headroom: standard input'
  last="headroom $command - --max-memory"; "$program" $command - --max-memory 1MiB <"$real" >out 2>err; rc=$?; refuses 5; expect_err 'standard input'
  last="headroom $command -, endless"; yes '{' | head -c 100000000 | "$program" $command - --max-memory 16MiB >out 2>err; rc=$?; refuses 5; expect_err 'standard input: needs more memory than the 16.00 MiB'
done
run inspect missing.pickle; refuses 1; expect_err 'missing.pickle'
finish
