#!/usr/bin/env bash
# fuzz.sh SECONDS: run every target of build/fuzz. The stored corpus is only read; what is found goes to
# build/fuzz/new/TARGET, and an input that crashes to build/fuzz/crash/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=$1
ran=0
failed=0

for binary in build/fuzz/fuzz_*; do
  if [[ ! -f $binary || ! -x $binary ]]; then continue; fi
  target=${binary##*/fuzz_}
  corpus=tests/fuzz/corpus/$target
  found=build/fuzz/new/$target
  log=build/fuzz/$target.log
  mkdir -p "$found" build/fuzz/crash
  options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048
    -artifact_prefix="build/fuzz/crash/$target-")
  if [[ -f tests/fuzz/$target.dict ]]; then options+=(-dict="tests/fuzz/$target.dict"); fi
  inputs=("$found")
  if [[ -d $corpus ]]; then inputs+=("$corpus"); fi
  ran=$((ran + 1))
  if "$binary" "${options[@]}" "${inputs[@]}" >"$log" 2>&1; then
    printf 'fuzz %s: no failure; %s\n' "$target" "$(tail -n 1 "$log")"
  else
    failed=$((failed + 1))
    printf 'fuzz %s: FAILED, log in %s\n' "$target" "$log"
    tail -n 40 "$log"
  fi
done

if ((ran == 0)); then
  echo "fuzz: there are no targets build/fuzz/fuzz_*" >&2
  exit 1
fi
printf 'fuzz: %d targets, %d failed\n' "$ran" "$failed"
((failed == 0))
