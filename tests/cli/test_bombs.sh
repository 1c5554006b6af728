#!/usr/bin/env bash
# What a file may make the program allocate is limited: files of some kilobytes that ask for gigabytes, and files that are
# honestly too large, end with exit 5 and say why, under a limit of address space that the kernel enforces.
source "$(dirname "$0")/common.sh"

limited() {
  if sanitized; then run "$@" --max-memory 95MiB; return; fi # the shadow needs terabytes of address space
  last="headroom $* under ulimit -v"
  (ulimit -v 200000 && exec "$program" "$@") >out 2>err </dev/null
  rc=$?
}
many() { yes "$1" | tr -d '\n' | head -c "$2"; } # TEXT BYTES

# One event and three million references to it; a memo of fifteen million places; ten million open lists; values that nobody
# takes; one string; JSON; the profiler's files. Each would need 100 MB to 1 GB.
event='}q\1(U\6actionU\5allocU\4addrK\1U\4sizeK\1U\6streamK\0u'
{ printf '%b' '\x80\2}(U\10segments]U\15device_traces](](' "$event"; many $'h\1' 6000000; printf 'eeu.'; } | gzip -1 >references.gz
{ printf '%b' '\x80\4'; many $'N\x940' 45000000; printf 'N.'; } | gzip -1 >memo.gz
{ printf '%b' '\x80\4'; many '](' 20000000; printf 'N.'; } | gzip -1 >lists.gz
{ printf '%b' '\x80\4('; many 'N' 16000000; printf '1N.'; } | gzip -1 >stack.gz
{ printf '%b' '\x80\4\x8d\0\341\365\5\0\0\0\0'; many 'a' 70000000; printf '.'; } | gzip -1 >string.gz
{ printf '{"segments":[],"device_traces":[['; many '{"action":"alloc","size":1,"addr":1},' 70000000; printf '{"action":"alloc","size":1,"addr":1}]]}'; } | gzip -1 >json.gz
{ printf '{"traceEvents":['; many '{"ph":"X","name":"a","ts":1,"dur":9,"pid":1,"tid":1},' 70000000; printf '{}]}'; } | gzip -1 >trace.gz
{ printf '['; many '[5,2,7,0],' 70000000; printf '[5,2,7,0]]'; } | gzip -1 >timeline.gz
for file in references memo lists stack string json trace timeline; do
  [ "$(stat -c %s $file.gz)" -lt 3000000 ] || fail "$file.gz is no small file"
  for command in inspect explain replay; do
    limited $command $file.gz; refuses 5
    expect_err "^headroom: $file.gz: needs more memory than the [0-9.]+ MiB that reading it may take: [0-9.]+ MiB are held and"
    sanitized || expect_err 'half of what the address-space limit .*; --max-memory SIZE allows more'
    [ $file = references ] || break # the commands read alike
  done
done

# The option says how much; below it the file is read, above it refused, whatever the machine has.
for command in inspect explain replay; do
  run $command references.gz --max-memory 20MiB; refuses 5; expect_err 'than the 20.00 MiB'; expect_err 'try: allow more with --max-memory SIZE'
done
"$program" explain - --max-memory 20MiB <references.gz >out 2>err; rc=$?
last='headroom explain - <references.gz'; refuses 5; expect_err '^headroom: standard input: needs more memory than the 20.00 MiB'
(many 'x' 30000000 | cat references.gz -) | "$program" explain - --max-memory 20MiB >out 2>err; rc=$?
last='headroom explain - with a long tail'; refuses 5; expect_err 'than the 20.00 MiB'
# Some kilobytes that fit the window of a text, and not what is made of them.
{ printf '{"traceEvents":['; many '{"name":"[memory]","ts":1,"args":{"Bytes":1,"Addr":2}},' 5390000; printf '{}]}'; } | gzip -1 >rows.gz
{ printf '['; many '[5,2,7,0],' 4000000; printf '[5,2,7,0]]'; } | gzip -1 >raw.gz
for file in rows raw; do
  run inspect $file.gz --max-memory 14MiB; refuses 5; expect_err "^headroom: $file.gz: needs more memory than the 14.00 MiB"
  run inspect $file.gz --max-memory 400MiB; expect_rc 0
done
run inspect references.gz --max-memory 0.0001%; refuses 5
run inspect references.gz --max-memory 0; refuses 2; expect_err 'max-memory'

# A log of any length takes the same: what is kept of it has a bound.
for ((k = 0; k < 3000; k++)); do
  echo "[rank$k]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate $((k + 2)).00 MiB. GPU $k has a total capacity of 23.69 GiB of which 1.00 MiB is free."
done >failures.log
many 'no line end ' 20000000 >>failures.log
limited explain failures.log; expect_rc 0
run explain failures.log --max-memory 4MiB; expect_rc 0
run explain failures.log --max-memory 100KiB; refuses 5; expect_err '^headroom: failures.log: needs more memory than the 100.00 KiB'

# Good files need little, and what is made of them counts: the same file is read with its need and refused with half of it.
good=$here/../snapshots/real/2.15/backward-oom.pickle.gz
limited inspect "$good"; expect_rc 0
# What a file is, is told whatever the limit: it is refused as a snapshot, and not taken for a log or a run.
mkdir ranks; for rank in 0 1; do cp "$good" ranks/snapshot_rank$rank.pickle.gz; done
for command in inspect explain replay; do run $command "$good" --max-memory 20KiB; refuses 5; expect_err "^headroom: $good: needs more memory than the 20.00 KiB"; done
for command in inspect explain; do run $command ranks --max-memory 20KiB; refuses 5; expect_err '^headroom: ranks/snapshot_rank0.pickle.gz: needs more memory than the 20.00 KiB'; done
limited explain "$good"; expect_rc 0
limited replay "$good" --search; expect_rc 0
run explain "$good" --max-memory 64MiB; expect_rc 0
run explain "$good" --max-memory 1MiB; refuses 5; expect_err 'backward-oom.pickle.gz: needs more memory'
run replay "$good" --search --max-memory 500KiB; refuses 5
run inspect "$good" "$good" --max-memory 900KiB; refuses 5
run inspect "$good" --html page.html --max-memory 700KiB; refuses 5
[ -e page.html ] && fail "a page was left behind"
finish
