#!/usr/bin/env bash
# A directory of snapshots, one of each rank: who is highest, what it has beyond the lowest, and who failed first.
source "$(dirname "$0")/common.sh"

snapshot() { # FILE BYTES-OF-ONE-TENSOR FAILURE-TIME (0: none) STACK
  { printf '{"segments":[],"device_traces":[[{"action":"alloc","addr":4096,"size":1048576,"stream":0,"time_us":1,"frames":[{"name":"common","filename":"train.py","line":3}]},'
    printf '{"action":"alloc","addr":4194304,"size":%s,"stream":0,"time_us":2,"frames":[{"name":"%s","filename":"train.py","line":7}]}' "$2" "$4"
    [ "$3" = 0 ] || printf ',{"action":"oom","device_free":1000,"size":33554432,"stream":0,"time_us":%s,"frames":[]}' "$3"
    printf ']]}'; } >"$1"
}
mkdir job
snapshot job/oom_rank0.json 8388608 5000000 small
snapshot job/oom_rank2.json 33554432 3000000 large
snapshot job/oom_rank10.json 67108864 9000000 large
snapshot job/oom_rank11.json 1048576 0 small
echo 'a log' >job/train.log
run inspect job; expect_rc 0; expect_no_err
expect_out '^4 ranks$'
expect_out '^ +0 +9.00 MiB .* 2.00 s later +oom_rank0.json'
expect_out '^ +2 +33.00 MiB .* first +oom_rank2.json'
expect_out '^ +11 +2.00 MiB .* - +oom_rank11.json'
expect_out '^rank 2 failed first, at a request of 32.00 MiB'
expect_out '^rank 10 is highest: 65.00 MiB live at its peak, 63.00 MiB more than'
expect_out '^ +change +rank 11 +rank 10$'
expect_out '\+ +64.00 MiB +- +64.00 MiB .*train.py:7 large'
grep -q common out && fail "what all have alike is listed"
grep -n 'rank10' out | cut -d: -f1 >place10; grep -n 'rank2' out | cut -d: -f1 >place2
[ "$(cat place2)" -lt "$(cat place10)" ] || fail "rank 10 stands before rank 2"
awk 'length > 80 { exit 1 }' out || fail "a line is wider than 80 columns"
run inspect job --json; expect_rc 0
expect_json 'd["highest_rank"] == 10' 'd["lowest_rank"] == 11' 'd["first_failed_rank"] == 2' '[r["rank"] for r in d["ranks"]] == [0, 2, 10, 11]' \
  'd["ranks_numbered"]' 'd["ranks"][1]["failed_time_us"] == 3000000' 'd["ranks"][3]["failed_time_us"] is None' \
  'sum(r["after_bytes"] - r["before_bytes"] for r in d["by_stack"]) == 63 << 20' 'sum(r["after_bytes"] - r["before_bytes"] for r in d["by_category"]) == 63 << 20'

# Options are followed or refused: the instant, what live tensors are grouped by; the device is each rank's own.
run inspect job --at 1; expect_rc 0; expect_out '^ +10 +65.00 MiB +1.00 MiB '; expect_out 'no difference'
run inspect job --at 1 --json; expect_rc 0; expect_json '[r["live_bytes"] for r in d["ranks"]] == [1 << 20] * 4' 'd["by_stack_count"] == 0'
run inspect job --at 3; refuses 2; expect_err 'oom_rank11.json: the trace has 2 events'
run inspect job --by size; expect_rc 0; expect_out '^live by size'; grep -qE 'live by (stack|category)' out && fail "--by size lists others too"
run inspect job --by category --json; expect_rc 0; expect_json '"by_category" in d' '"by_stack" not in d'
run inspect job --device 0; refuses 2; expect_err '--device is of one snapshot, job is a directory'

# A rank whose snapshot was never written is told, where its name says that it is one; an empty log is none.
: >job/oom_rank1.pickle; : >job/rank3.log
run inspect job; expect_rc 0; expect_out '^4 ranks$'; expect_out 'not read: job/oom_rank1.pickle is empty'
grep -q 'rank3' out && fail "an empty log is taken for a snapshot"
rm job/oom_rank1.pickle job/rank3.log

# The rank that failed first is the one that is explained.
run explain job; expect_rc 0; expect_out 'rank 2 failed first'; expect_out '^snapshot, after event 3, rank 2'
run explain job --json; expect_rc 0; expect_json 'd["first_failed_rank"] == 2' 'd["failures"][0]["rank"] == 2' 'len(d["ranks"]) == 4'

# Names without a rank are counted in their order, digits as numbers; without a failure the highest is explained.
mkdir plain
snapshot plain/node-9.json 1048576 0 a; snapshot plain/node-10.json 2097152 0 a
run inspect plain; expect_rc 0; expect_out 'counted in the order of the files'; expect_out '^ +0 .* node-9.json'; expect_out '^ +1 .* node-10.json'
run explain plain; expect_rc 0; expect_out "no rank's failure is recorded"; expect_out 'rank 1'
mkdir alike; snapshot alike/rank0.json 1048576 0 a; snapshot alike/rank1.json 1048576 0 a
run inspect alike; expect_rc 0; expect_out '^all peaks are alike: 2.00 MiB'
run inspect alike --json; expect_rc 0; expect_json '"by_stack" not in d'

# What cannot be: a directory without snapshots, a damaged one among them, files of one snapshot, too little memory.
mkdir none; echo x >none/log.txt
run inspect none; refuses 5; expect_err 'none: a directory without'; expect_err 'one snapshot of each rank'
run explain none; expect_no_out; expect_err 'run.json'
run inspect job --html page.html; refuses 2; expect_err 'name one of its files'
run inspect job --max-memory 100KiB; refuses 5; expect_err 'oom_rank0.json: needs more memory'

# A process that was ended while it dumped, a profiler's trace beside the snapshots: named, and the others are shown.
printf '{"segments":[' >job/oom_rank3.json
echo '{"traceEvents":[{"ph":"X","name":"a","ts":1,"dur":2}]}' >job/trace_rank2.json
run inspect job; expect_rc 0; expect_no_err; expect_out '^4 ranks$'; expect_out '^ +not read: job/oom_rank3.json: '; expect_out '^ +not read: job/trace_rank2.json: a trace of a profiler'
expect_out '^ +10 +65.00 MiB' # the trace takes no number from its rank
expect_out '^rank 2 failed first, at a request of 32.00 MiB .*of those'
run inspect job --json; expect_rc 0
expect_json '[u["file"] for u in d["unread"]] == ["trace_rank2.json", "oom_rank3.json"]' 'all(u["message"] for u in d["unread"])' 'd["ranks_numbered"] and len(d["ranks"]) == 4'
run explain job; expect_rc 0; expect_out '^ +not read: job/oom_rank3.json: '; expect_out '^snapshot, after event 3, rank 2'
run explain job --json; expect_rc 0; expect_json 'len(d["unread"]) == 2' 'd["failures"][0]["rank"] == 2'
mkdir broken; printf '{"segments":[' >broken/rank0.json; printf '{"segments":[[' >broken/rank1.json
run inspect broken; refuses 5; expect_err 'broken/rank0.json'
run explain broken; refuses 5; expect_err 'broken/rank0.json'
mkdir single; cp job/oom_rank2.json job/oom_rank3.json single
run inspect single; expect_rc 0; expect_out '^1 rank$'; expect_out '^all peaks are alike: 33.00 MiB'
finish
