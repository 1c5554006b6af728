#!/usr/bin/env bash
# Files that are no snapshot: what the profiler leaves is read, and what people give by mistake is named for what it is,
# with what to do; nothing of it is "damaged".
source "$(dirname "$0")/common.sh"
read=$here/../snapshots/read
corpus=$here/../fuzz/corpus/snapshot

# A Chrome trace of the profiler has stacks, steps and totals; its raw timeline has categories.
run inspect "$read/torch-trace.json.gz" --json; expect_rc 0; expect_no_err
expect_json 'd["format"] == "pytorch-profiler"' 'd["device"] == -1' 'd["steps_from"] == "annotations"' 'len(d["steps"]) >= 2' \
  'any("optimizer_state" == c["category"] for c in d["by_category"])'
gzip -dc "$read/torch-trace.json.gz" >trace.json
run inspect trace.json; expect_rc 0; expect_out 'record_profile.py:[0-9]+ main'
run inspect "$read/torch-timeline.json.gz"; expect_rc 0; expect_out 'KiB .* x  parameter'; expect_out 'optimizer_state'
run inspect "$corpus/trace"; expect_rc 0; expect_out '^PEAK .* 6.50 KiB live' # "Total Allocated", what was live before included
run replay trace.json; expect_rc 5; expect_err 'profiler'
run explain trace.json; expect_rc 0; expect_out 'no_failure, certain'
# That a request was refused is in a profile, why is not.
sed '0,/"\[memory\]"/s//"[OutOfMemory]"/' trace.json >refused.json
run explain refused.json; expect_rc 0; expect_out 'UNDECIDABLE'; expect_out 'a request failed, but a profile does not say'

# What holds no memory events says so.
grep -v '"\[memory\]"' <trace.json | sed 's/"Bytes":/"Size":/' >no-memory.json
for command in inspect explain replay; do
  run $command no-memory.json; refuses 5; expect_err 'trace of a profiler without memory events'; expect_err 'profile_memory=True'
  run $command "$corpus/timeline-totals"; refuses 5; expect_err 'totals by category over time'; expect_err 'raw.json.gz'
done

named() { # FILE NAME HINT
  for command in inspect explain replay; do
    run $command "$1"; refuses 5; expect_err "^headroom: $1 is $2"; expect_err "try: .*$3"
    grep -qi damaged err && fail "a whole file is called damaged"
  done
}
# Rows of data are said to be that, with what reads them, wherever a snapshot, a model or a tokenizer was asked for; a log of
# JSON lines that holds an error is explained.
printf '{"text": "a b"}\n{"text": "c d"}\n' >rows.jsonl
printf '\xef\xbb\xbf\n {"id": 1, "a": {"b": "}"}} \r\n\n{"id": 2}\n' >blanks.jsonl
printf '[\n  {"messages": []}]' >list.json
printf '{"prompt": "%5000d"}\n' 1 >one.jsonl
gzip -c rows.jsonl >rows.jsonl.gz
for file in rows.jsonl blanks.jsonl list.json one.jsonl; do
  named $file 'rows of data' 'train MODEL --data'
  run plan $file; refuses 5; expect_err "$file holds rows of data.*and no model"; expect_err 'data stands behind --data of headroom train.*headroom tokenize MODEL FILE'
  for target in out out.gguf; do run convert $file $target; refuses 5; expect_err "$file holds rows of data"; expect_err 'train MODEL --data'; done
  run tokenize $file rows.jsonl; refuses 5; expect_err 'rows of data.*are no tokenizer'
done
run inspect rows.jsonl.gz; refuses 5; expect_err 'rows.jsonl.gz is rows of data'; expect_err 'train MODEL --data'
gzip -c rows.jsonl.gz >twice.gz
run inspect twice.gz; refuses 5; expect_err 'twice.gz is gzip within gzip'; expect_err 'gunzip'
printf '{\n "a": 1}\n{"b": 2}\n' >no-rows.json
run inspect no-rows.json; refuses 5; grep -q 'rows of data' err && fail "an object over two lines is taken for rows"
printf '{"level": "info", "text": "step 1"}\n{"level": "error", "text": "%s"}\n' \
  'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 22.69 GiB memory in use. Of the allocated memory 20.00 GiB is allocated by PyTorch, and 2.00 GiB is reserved by PyTorch but unallocated.' >log.jsonl
run explain log.jsonl; expect_rc 0; expect_out '2.00 GiB'
printf '\x10\0\0\0\0\0\0\0{"a":1}         ' >w.safetensors; named w.safetensors 'a safetensors file' 'headroom plan'
printf 'GGUF\3\0\0\0' >w.gguf; named w.gguf 'a GGUF model' 'headroom plan'
cp "$corpus/checkpoint" w.pt; named w.pt 'a checkpoint of torch.save' 'data.pkl'
cp "$corpus/checkpoint-old" w.bin; named w.bin 'a checkpoint of torch.save' 'memory snapshot'
cp "$corpus/events" events.out; named events.out 'an event file of TensorBoard' 'profile_memory'
printf 'SQLite format 3\0' >nsys.sqlite; named nsys.sqlite 'an SQLite database, most likely of Nsight' 'profile_memory'
printf '\x89PNG\r\n\x1a\n' >plot.png; named plot.png 'a PNG picture' 'snapshot'
printf 'PK\3\4----------------------------------' >w.zip; named w.zip 'a zip archive' 'unpack'
printf '\x28\xb5\x2f\xfd....' >s.zst; named s.zst 'a file compressed with zstd' 'unpack'
cp "$corpus/page" page.html; named page.html 'an HTML page' 'raw.json.gz'
cp "$corpus/table" smi.csv; named smi.csv 'a table with commas' 'memory snapshot'

# JSON and pickles of other content were read to their end: they are whole.
printf '{"a": [1, {"b": 2}]}' >other.json; printf '\x80\2}q\0U\1aq\1K\1s.' >other.pickle
for file in other.json other.pickle; do
  for command in inspect replay; do
    run $command $file; refuses 5; expect_err "^headroom: $file: .*the file holds something else"; expect_err 'read to its end and is no memory snapshot'
    grep -qi damaged err && fail "a whole file is called damaged"
  done
done

# A page or a table may hold the message all the same.
{ cat "$corpus/page"; echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which 1.00 GiB is free.'; } >saved.html
run explain saved.html; expect_rc 0; expect_out 'line [0-9]+: pytorch-cuda'
finish
