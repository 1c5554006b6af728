#!/usr/bin/env bash
# headroom explain: text and JSON, files and pipes, logs without a message.
source "$(dirname "$0")/common.sh"

cat >oom.log <<'LOG'
step 12
Traceback (most recent call last):
  File "lib/transformers/trainer.py", line 12, in training_step
    loss.backward()
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.15
[rank3]: GiB of which 1.38 GiB is free. Including non-PyTorch memory, this process has 77.77 GiB memory in use. Of the
[rank3]: allocated memory 66.00 GiB is allocated by PyTorch, and 11.00 GiB is reserved by PyTorch but unallocated.
LOG
run explain oom.log; expect_rc 0; expect_no_err
expect_out '^line 5: pytorch-cuda.*rank 3, device 3, under transformers, in backward$'
expect_out '^fragmented, likely$'; expect_out 'unproven advice'; expect_out 'total +79.15 GiB'
awk 'length > 80 && !/^line/ { exit 1 }' out || fail "a line is wider than 80 columns"

run explain oom.log --json; expect_rc 0
expect_json 'len(d["failures"]) == 1' 'd["failures"][0]["cause"] == "fragmented"' 'd["failures"][0]["certainty"] == "likely"' \
  'd["failures"][0]["figures"]["requested_bytes"]["bytes"] == 2 << 30' 'd["failures"][0]["rank"] == 3' \
  'sum(s["bytes"] for s in d["failures"][0]["shares"]) == d["failures"][0]["figures"]["total_bytes"]["bytes"]' \
  'all(not a["proven"] for a in d["failures"][0]["advice"])'

"$program" explain - <oom.log >piped 2>err; rc=$?
last='headroom explain - <oom.log'; expect_rc 0
run explain oom.log
cmp -s out piped || fail "a pipe and a file are explained differently"

printf 'CUDA error: out of memory\n' >bare.log
run explain bare.log; expect_rc 0; expect_out '^UNDECIDABLE'; expect_out 'could be:'

printf 'all is well\n' >fine.log
run explain fine.log; refuses 5; expect_err 'no out-of-memory message in 1 lines'
: >empty.log
run explain empty.log; refuses 5
run explain; refuses 2; expect_err 'FILE'
run explain missing.log; refuses 1; expect_err 'missing.log'
run explain oom.log other.log; refuses 2
finish
