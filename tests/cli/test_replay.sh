#!/usr/bin/env bash
# headroom replay: real traces come out as recorded, what-if and search, lost beginnings, and what cannot be replayed.
source "$(dirname "$0")/common.sh"
real=$here/../snapshots/real
made=$here/../snapshots/read

# A failure by fragmentation: as recorded it fails again, and the search names what avoids it first.
oom=$real/2.15/fragmented-oom.pickle.gz
run replay "$oom"; expect_rc 0; expect_no_err
expect_out '^trust: exact'; expect_out 'room for 250.00 MiB \(out-of-memory event\)'; expect_out 'at event 61 .*\(recorded\)'
run replay "$oom" --search; expect_rc 0; expect_no_err
expect_out '^PYTORCH_ALLOC_CONF=[a-z_0-9]*:[0-9a-zA-Z]*: carries this request only: '
expect_out '^[0-9]+ more come to the same'
[ "$(grep -c '(recorded)' out)" -eq 1 ] || fail "the recorded settings are not listed once"
run replay "$oom" --search --json; expect_rc 0
expect_json 'd["trust"] == "exact" and d["trust_reason"] == ""' 'd["recorded"]["failed"] and d["recorded"]["failed_event"] == d["recorded_failed_event"] == 60' \
  'd["same_address_count"] == d["compared_count"] == 24' 'd["same_segment_count"] == d["segment_count"]' 'd["capacity_bytes"] == 250 << 20' \
  'len(d["search"]) >= 12' 'not d["search"][0]["failed"]' 'd["search"][0]["reach"] == "request" and not any(r["proven"] for r in d["search"])' '[r["failed"] for r in d["search"]] == sorted(r["failed"] for r in d["search"])' '"asked" not in d'
run replay "$oom" --alloc-conf max_split_size_mb:64 --json; expect_rc 0
expect_json 'd["asked"]["alloc_conf"] == "max_split_size_mb:64"' 'd["asked"]["failed"]' '"search" not in d'
run replay "$oom" --alloc-conf max_split_size_mb:64; expect_rc 0; expect_out '^it would still fail'
run replay "$oom" --capacity 1GiB --json; expect_rc 0
expect_json 'd["capacity_from"] == "given"' 'not d["recorded"]["failed"]' 'd["trust"] == "rough"'

# A memory fraction refused with room on the device; the order of equal blocks of 2.12; a trace that lost its beginning.
run replay "$real/2.15/fraction-oom.pickle.gz" --json; expect_rc 0
expect_json 'd["trust"] == "exact"' 'd["recorded"]["failed"]' 'd["capacity_from"].startswith("a cap")' 'd["capacity_bytes"] == d["trace_reserved_peak_bytes"]'
run replay "$real/2.12/gpt2-varied.pickle.gz" --json; expect_rc 0; expect_json 'd["trust"] == "exact"' 'd["capacity_bytes"] is None'
run replay "$real/2.15/gpt2-collect.pickle.gz" --json; expect_rc 0; expect_json 'd["trust"] == "exact"'
run replay "$real/2.15/gpt2-history-cut.pickle.gz" --json; expect_rc 0
expect_json 'd["trust"] == "close"' 'not d["began_empty"]' 'd["start_live_bytes"] > 0' '"going back" in d["trust_reason"]'
run replay "$real/2.15/gpt2-history-cut.pickle.gz" --empty-start; expect_rc 0; expect_out '^trust: rough'

# A fraction is of the device's memory: where the recording does not tell it, the caller must. What saves nothing is not recommended.
gpt2="$real/2.15/gpt2.pickle.gz"
for conf in per_process_memory_fraction:0.5 per_process_memory_fraction:0 garbage_collection_threshold:0.8,per_process_memory_fraction:0.9; do
  run replay "$gpt2" --alloc-conf "$conf"; refuses 2; expect_err 'the recording does not tell'; expect_err 'try: .*--capacity'
done
run replay "$gpt2" --alloc-conf per_process_memory_fraction:1; expect_rc 0
run replay "$gpt2" --alloc-conf per_process_memory_fraction:0.5 --capacity 200MiB; expect_rc 0; expect_out '^ *100.00 MiB .* at event 118 '
run replay "$oom" --alloc-conf per_process_memory_fraction:0.5; expect_rc 0; expect_out '^it would still fail'
run replay "$gpt2" --alloc-conf expandable_segments:True,expandable_segments_reserve:1e300; expect_rc 0
run replay "$gpt2" --alloc-conf expandable_segments:True,expandable_segments_reserve:1e-300; expect_rc 0
run replay "$real/2.15/cuda-graph.pickle.gz" --search; expect_rc 0; expect_out '^no settings that were tried save as much as one percent'

# Settings are shown whole, so that they can be copied.
long=large_segment_size_mb:64,max_split_size_mb:128,max_non_split_rounding_mb:65,roundup_power2_divisions:[256:2,512:4,1024:8,2048:16,4096:32,8192:64,16384:128]
long=expandable_segments:True,$long,throw_on_cudamalloc_oom:True,release_lock_on_cudamalloc:True,pinned_use_cuda_host_register:True
run replay "$gpt2" --alloc-conf "$long"; expect_rc 0; expect_out 'pinned_use_cuda_host_register:True:?$'
run replay "$gpt2" --alloc-conf "$long" --json; expect_rc 0; expect_json 'd["asked"]["alloc_conf"].endswith("pinned_use_cuda_host_register:True")'

# Of several devices it is the one that failed, as inspect and explain have it, and the text says which. Pinned host memory is not
# the device allocator's.
if [ -n "$have_python" ]; then
  python3 - <<'end'
import json
MIB = 1 << 20
def event(action, place, size, **more):
    return {"action": action, "device_free" if action == "oom" else "addr": place, "size": size, "stream": 0, **more}
def segment(device, address, size):
    return {"device": device, "address": address, "total_size": size, "stream": 0, "segment_type": "large",
            "blocks": [{"address": address, "size": size, "requested_size": size, "state": "active_allocated"}]}
def taken(address, size):
    return [event("segment_alloc", address, size), event("alloc", address, size)]
first, second, host = 1 << 40, 2 << 40, 3 << 40
quiet = taken(first, 60 * MIB) + taken(first + 100 * MIB, 20 * MIB)
failing = taken(second, 60 * MIB) + [event("oom", 40 * MIB, 100 * MIB)]
pinned = [event(*e) for e in [("segment_alloc", host + k * MIB, MIB) for k in range(9)]]
both = {"segments": [segment(0, first, 60 * MIB), segment(0, first + 100 * MIB, 20 * MIB), segment(1, second, 60 * MIB)],
        "device_traces": [quiet, failing]}
json.dump(both, open("two.json", "w"))
json.dump({"segments": both["segments"][:2], "device_traces": [quiet], "host_segments": [], "host_traces": pinned},
          open("host.json", "w"))
end
  run replay two.json; expect_rc 0; expect_out '^two.json, device 1 of 2: 2 requests'; expect_out '100.00 MiB at event 3'
  run replay two.json --json; expect_rc 0; expect_json 'd["device"] == 1' 'd["recorded_failed"]'
  run replay two.json --trace 0; expect_rc 0; expect_out '^two.json, device 0 of 2: 2 requests'
  run replay host.json; expect_rc 0; expect_out '^host.json, device 0 of 2: 2 requests'
  run replay host.json --trace 1; refuses 5; expect_err 'host.json: trace 1 is of pinned host memory'
fi

# Of the two events of a free skip_actions may leave one out: then the other is the whole of it, and nothing waits for streams.
if [ -n "$have_python" ]; then
  python3 - "$real/2.15/leak.pickle.gz" <<'end'
import gzip, pickle, sys
for skipped in "free_requested", "free_completed", "alloc":
    d = pickle.load(gzip.open(sys.argv[1]))
    d["device_traces"] = [[e for e in t if e["action"] != skipped] for t in d["device_traces"]]
    pickle.dump(d, open(skipped + ".pickle", "wb"))
end
  for file in "$real/2.15/leak.pickle.gz" free_requested.pickle free_completed.pickle; do
    run inspect "$file" --json; expect_rc 0
    expect_json 'd["odd_count"] == 0' 'd["peak_live_bytes"] == 80217156' '[g["bytes"] for g in d["growth"]] == [14680064, 32, 10776576, 10776576]'
    run replay "$file" --json; expect_rc 0
    expect_json 'd["same_address_count"] == d["compared_count"] == d["recorded"]["request_count"] == 1439'
  done
  # Without allocations what lived when is not known: no peak is stated, and the last state is what there is.
  run inspect alloc.pickle; expect_rc 0; expect_out '^INSTANT after event'; expect_out 'the peak is not known: the recording holds frees and no allocations'
  ! grep -q '^PEAK' out || fail "a peak of no allocations"
  run inspect alloc.pickle --json; expect_rc 0; expect_json 'not d["allocations_recorded"]'
  run explain alloc.pickle; expect_rc 0; expect_out '^UNDECIDABLE'; expect_out 'nor any allocation'
  run replay free_requested.pickle; expect_rc 0; expect_out '^trust: close.*one of the two events of a free'
  run replay free_completed.pickle; expect_rc 0; expect_out '^trust: close.*one of the two events of a free'
fi

# What cannot be replayed, and what is no choice.
run replay; refuses 2; expect_err 'nothing to replay'
run replay "$oom" --search --alloc-conf ''; refuses 2
run replay "$oom" --alloc-conf max_split_size_mb:1; refuses 2; expect_err 'max_split_size_mb:1'
run replay "$oom" --alloc-conf backend:cudaMallocAsync; refuses 2; expect_err 'native'
run replay "$oom" --trace 1; refuses 2; expect_err 'no trace 1'
run replay "$oom" --trace 4294967296; refuses 2; expect_err '4294967296'
run replay "$made/profiler.pickle"; refuses 5; expect_err 'profiler'
run replay "$made/bare-list.pickle"; refuses 5; expect_err 'bare-list.pickle: .*no events'
printf 'step 1 loss 2.0\n' >log.txt; run replay log.txt; refuses 5; expect_err 'log.txt'
run replay missing.pickle; refuses 1; expect_err 'missing.pickle'
finish
