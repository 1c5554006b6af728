#!/usr/bin/env bash
# tidy.sh BUILD JOBS: clang-tidy's checks (.clang-tidy) on the core, with the compile commands of BUILD. What passed is remembered in
# BUILD/tidy by what was looked at - the source, all headers that it includes, the settings and the tool's version - so that a
# second call looks at what changed alone. The exit status is 1 when there is a finding.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$1
jobs=$2
export PATH=$PWD/build/tools/bin:$PATH LC_ALL=C
folders=(base formats program ops pass plan search model job device backend run snapshot alloc frameworks/pytorch gpu gpu/soft backend/cuda)

# key FILE: a digest of all that a verdict on it depends on.
key() {
  { gcc -MM -Iinclude -Isrc -D_GNU_SOURCE "$1" | tr -d '\\\n' | cut -d: -f2- | xargs cat
    cat .clang-tidy
    clang-tidy --version; } | sha256sum | cut -d' ' -f1
}

# look FILE: silent when it is clean.
look() {
  local mark
  mark=$build/tidy/$(key "$1")
  if [[ -f $mark ]]; then return; fi
  if ! clang-tidy -p "$build" --quiet "$1" >"$mark.out" 2>"$mark.err"; then
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
  # Kernels are compiled several times over, for no difference in what is checked here.
  for file in src/"$folder"/*.c src/"$folder"/*/rule.c; do
    if [[ -f $file ]]; then files+=("$file"); fi
  done
done
if ! printf '%s\n' "${files[@]}" | xargs -P "$jobs" -I{} scripts/tidy.sh "$build" "$jobs" look {}; then
  echo "tidy: findings in the core (exceptions, each with its reason: .clang-tidy)"
  exit 1
fi
echo "tidy: ${#files[@]} sources, no findings"
