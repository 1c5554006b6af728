#!/usr/bin/env bash
# tidy.sh BUILD JOBS: clang-tidy's checks (.clang-tidy) on the core and the program, with the compile commands of BUILD. What passed is remembered in
# BUILD/tidy by what was looked at - the source, all headers that it includes, the settings and the tool's version - so that a
# second call looks at what changed alone. The exit status is 1 when there is a finding.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$1
jobs=$2
export PATH=$PWD/build/tools/bin:$PATH LC_ALL=C
folders=(base formats program ops pass plan search model job device backend run snapshot alloc frameworks/pytorch gpu gpu/soft backend/cuda cli)
# Kernels are compiled several times over, for no difference in what is checked here: they are looked at once, as of the lowest level.
kernel=(-DHRI_ISA=base -D_GNU_SOURCE -Iinclude -Isrc -std=c11)

# key FILE: a digest of all that a verdict on it depends on.
key() {
  { gcc -MM "${kernel[@]}" "$1" | tr -d '\\\n' | cut -d: -f2- | xargs cat
    cat .clang-tidy
    clang-tidy --version; } | sha256sum | cut -d' ' -f1
}

# look FILE: silent when it is clean.
look() {
  local mark how=(-p "$build" --quiet "$1")
  if [[ $1 == src/ops/*/cpu*.c ]]; then how=(--quiet "$1" -- "${kernel[@]}"); fi
  mark=$build/tidy/$(key "$1")
  if [[ -f $mark ]]; then return; fi
  if ! clang-tidy "${how[@]}" >"$mark.out" 2>"$mark.err"; then
    if [[ -s $mark.out ]]; then cat "$mark.out"; else cat "$mark.err"; fi
    return 1
  fi
  rm -f "$mark.out" "$mark.err"
  : >"$mark"
}

if [[ ${3:-} == look ]]; then
  look "$4"
  exit
fi
mkdir -p "$build/tidy"
files=()
for folder in "${folders[@]}"; do
  for file in src/"$folder"/*.c; do files+=("$file"); done
done
for file in src/ops/*/*.c; do files+=("$file"); done
if ! printf '%s\n' "${files[@]}" | xargs -P "$jobs" -I{} scripts/tidy.sh "$build" "$jobs" look {}; then
  echo "tidy: findings (exceptions, each with its reason: .clang-tidy)"
  exit 1
fi
echo "tidy: ${#files[@]} sources, no findings"
