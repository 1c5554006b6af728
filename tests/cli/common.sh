# Shared by the tests of the command line: runs the program, keeps what it said, counts what is wrong.
# Usage in a test: source common.sh; run plan gpt2-124m; expect_rc 0; expect_out 'FITS'; finish
set -u
program=$(realpath -e "$1") || exit 1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
record=${HEADROOM_RECORD:-}
for name in ${!HEADROOM_@}; do
  case $name in HEADROOM_ISA) ;; *) unset "$name" ;; esac
done
unset NO_COLOR
work=$(mktemp -d)
export HEADROOM_CACHE=/dev/null/cache # no rates of this machine are stored, and none can be
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
last=
# Built by ./dev sanitize: slow, larger, and its kernels, compiled otherwise, round otherwise.
sanitized() { grep -qa __asan_init "$program"; }

fail() {
  failures=$((failures + 1))
  echo "FAILED: $last"
  echo "  $1"
  [ -s "$work/out" ] && sed 's/^/  out| /' "$work/out" | head -20
  [ -s "$work/err" ] && sed 's/^/  err| /' "$work/err" | head -20
}

# Runs the program; its output is in $work/out and $work/err, its exit code in $rc.
run() {
  last="headroom $*"
  "$program" "$@" >"$work/out" 2>"$work/err" </dev/null
  rc=$?
}
expect_rc() { [ "$rc" -eq "$1" ] || fail "exit code $rc, not $1"; }
expect_out() { grep -qE -- "$1" "$work/out" || fail "standard output lacks /$1/"; }
expect_err() { grep -qE -- "$1" "$work/err" || fail "standard error lacks /$1/"; }
expect_no_out() { [ ! -s "$work/out" ] || fail "standard output is not empty"; }
expect_no_err() { [ ! -s "$work/err" ] || fail "standard error is not empty"; }
# One mistake, one message: exit 2, a line that starts with the program's name, nothing on standard output.
refuses() { expect_rc "$1"; expect_err '^headroom: '; expect_no_out; }

# Waits until a condition holds, a minute at most (machines are busy), while the process $pid runs; else that one is killed.
await() {
  local latest=$((SECONDS + 60)) runs
  while :; do
    runs=; kill -0 "$pid" 2>/dev/null && runs=1
    eval "$1" && return 0
    if [ -z "$runs" ] || [ "$SECONDS" -ge "$latest" ]; then break; fi
    sleep 0.02
  done
  fail "waited in vain for: $1"
  kill -9 "$pid" 2>/dev/null
  return 1
}

if command -v python3 >/dev/null 2>&1; then have_python=1; else have_python=; fi
# Standard output is one JSON document with schema_version; further arguments are Python expressions over it that must hold.
expect_json() {
  if [ -z "$have_python" ]; then
    grep -q '"schema_version": 1' "$work/out" || fail "standard output has no schema_version"
    return
  fi
  python3 - "$work/out" "$@" <<'PYTHON' || fail "the JSON is not as expected"
import json, sys
d = json.load(open(sys.argv[1]))
for expression in ['d["schema_version"] == 1'] + sys.argv[2:]:
    if not eval(expression):
        sys.exit("  does not hold: " + expression)
PYTHON
}
# A member of the JSON on standard output, by a grep that needs no Python: json_number need_bytes
json_number() { grep -m1 -oE "\"$1\": [0-9]+" "$work/out" | grep -oE '[0-9]+$'; }

# Standard output equals golden/NAME; HEADROOM_RECORD=1 writes it instead.
expect_golden() {
  if [ -n "$record" ]; then
    mkdir -p "$here/golden" && cp "$work/out" "$here/golden/$1"
  elif ! diff -u "$here/golden/$1" "$work/out" >"$work/diff"; then
    fail "differs from golden/$1 (HEADROOM_RECORD=1 records it anew): $(head -20 "$work/diff")"
  fi
}
finish() {
  [ "$failures" -eq 0 ] && echo "all as expected" && exit 0
  echo "$failures failures"
  exit 1
}
