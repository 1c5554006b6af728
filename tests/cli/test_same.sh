#!/usr/bin/env bash
# Every recorded snapshot: inspect, explain, the page and the exports say the same figures in the same words. With Node, the
# page's own arithmetic as well, at instants spread over each trace.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$1"
real=$here/../snapshots/real
mkdir files
if [ -z "$have_python" ]; then
  echo "python3 is not there: nothing was compared"
else
  last="same.py"
  python3 "$here/same.py" "$program" "$work/files" "$real"/*/*.pickle.gz >out 2>err || fail "places differ"
fi
if command -v node >/dev/null 2>&1; then
  last="sums.mjs"
  node "$here/../report/sums.mjs" "$program" "$work/files" "$real"/*/*.pickle.gz >out 2>err || fail "the page computes otherwise"
fi
finish
