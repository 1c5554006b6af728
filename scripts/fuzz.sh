#!/usr/bin/env bash
# fuzz.sh [SECONDS [TARGET ...]]: run the named targets of build/fuzz, or every one, each for that long (30). The stored corpus is only
# read; what is found goes to build/fuzz/new/TARGET, and an input that crashes to build/fuzz/crash/. With --arguments in front they are
# looked at and nothing runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
only_looks=no
if [[ ${1:-} == --arguments ]]; then
  only_looks=yes
  shift
fi
seconds=${1:-30}
targets=("${@:2}")
# What is no number, and 0, would be no limit for libFuzzer: the first target would run on for ever.
if [[ ! $seconds =~ ^[1-9][0-9]{0,6}$ ]]; then
  echo "fuzz: '$seconds' is no number of seconds: ./dev fuzz SECONDS [TARGET ...]" >&2
  exit 2
fi
if [[ $only_looks == yes ]]; then exit; fi
ran=0
failed=0

if ((${#targets[@]} == 0)); then targets=(build/fuzz/fuzz_*); fi
for binary in "${targets[@]}"; do
  binary=build/fuzz/fuzz_${binary##*/fuzz_}
  if [[ ! -e $binary && $# -gt 1 ]]; then
    echo "fuzz: no target ${binary##*/fuzz_}: $(cd build/fuzz && ls fuzz_* | sed 's/^fuzz_//' | tr '\n' ' ')" >&2
    exit 2
  fi
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
