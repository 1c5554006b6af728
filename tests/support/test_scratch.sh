#!/usr/bin/env bash
# The temporary root that every test gets (scratch.sh): what is left in it fails a test that passed, what a killed one left goes with the
# next of the same name, and what runs beside keeps its own.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0 pids=()
fail() { echo "FAILED: $1"; failures=$((failures + 1)); }
alone() { bash "$here/scratch.sh" "$work/root" "$@" >"$work/said" 2>&1; }
count() { find "$work/root" -mindepth 1 -maxdepth 1 | wc -l; }
until_there() { for _ in $(seq 600); do [ -e "$1" ] && return; sleep 0.05; done; fail "$1 never came"; }

alone bash -c '[ -d "$TMPDIR" ] && echo x >"$(mktemp)" && rm "$TMPDIR"/*' || fail 'a test that cleans up does not pass'
alone bash -c 'exit 3'; [ $? = 3 ] || fail 'the exit code is lost'
alone bash -c 'mkdir -p "$TMPDIR/left/deep"' && fail 'what is left passes'
grep -qx left "$work/said" || fail 'what is left is not named'
alone bash -c 'mktemp; exit 3'; [ $? = 3 ] || fail 'what a failing test leaves hides its exit code'
[ "$(count)" = 0 ] || fail 'something stays behind tests that ended'

# Two at once, of which one is killed with what it runs.
for name in killed kept; do
  # shellcheck disable=SC2016
  setsid bash "$here/scratch.sh" "$work/root" bash -c 'mkdir -m 0 "$TMPDIR/closed"; echo x >"$TMPDIR/file"; : >"$0"; sleep 60' "$work/$name" >/dev/null 2>&1 &
  pids[${#pids[@]}]=$!
  until_there "$work/$name"
done
kill -9 -- "-${pids[0]}"
wait "${pids[0]}" 2>/dev/null
[ "$(count)" = 2 ] || fail 'the killed one left nothing, so nothing is shown'
alone true || fail 'what a killed test left cannot be cleared'
[ "$(count)" = 1 ] || fail "$(count) roots are there, not that of the one that runs"
kill -9 -- "-${pids[1]}"
wait "${pids[1]}" 2>/dev/null
alone true
[ "$(count)" = 0 ] || fail 'a root stays when nobody runs'
[ "$failures" = 0 ] && echo 'all as expected'
exit "$failures"
