#!/usr/bin/env bash
# arm.sh --root: the libraries that the project needs for 64-bit Arm, unpacked in build/arm-root, which is both what the cross compiler
# links with and what the emulator loads. They come from the package mirrors that this machine uses anyway, through apt with lists and
# settings of our own: nothing of the machine's changes, and it takes no rights.
# arm.sh --test BUILD [PART ...]: parts of the test of a build for Arm (scripts/arm.cmake) under qemu, as many at once as DEV_JOBS says;
# without a name all of them. Each is told with its seconds, then what was skipped, by name; one that fails, or takes longer than
# anything here may, is shown and makes the whole fail. arm.sh --part BUILD PART runs one of them here and now.
#   runs      training runs inside a budget. Beside the processor that has everything, one without bf16 instructions shows that they are
#             chosen at run time, and one page size of 64 KiB that none is taken for granted.
#   test_...  the tests of that name, in their short forms.
# Nothing is timed for its own sake: an emulator tells nothing about speed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$PWD/build/arm-root

libraries=(libjansson-dev libyaml-dev libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev libxxhash-dev libcmocka-dev)

fetch() {
  local apt=$work/apt options=()
  mkdir -p "$apt/lists/partial" "$apt/archives/partial"
  : >"$apt/status"
  options=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$apt" -o Dir::State::lists="$apt/lists"
    -o Dir::State::status="$apt/status" -o Dir::Cache="$apt" -o Dir::Cache::archives="$apt/archives" -o APT::Sandbox::User=root
    -o Debug::NoLocking=1)
  apt-get "${options[@]}" update || true # a source that has nothing for Arm is no reason to stop: what is missing shows below
  apt-get "${options[@]}" install -y --download-only --no-install-recommends "${libraries[@]}"
}

# Links to absolute paths would lead out of the root.
unpack() {
  local file target
  for file in "$work"/apt/archives/*.deb; do dpkg-deb -x "$file" "$work" || return 1; done
  while IFS= read -r -d '' file; do
    target=$(readlink "$file")
    if [[ $target == /* ]]; then ln -sfn "$work$target" "$file"; fi
  done < <(find "$work" -path "$work/apt" -prune -o -type l -print0)
}

root() {
  local wanted=${libraries[*]}
  if [[ -f $work/complete && $(<"$work/complete") == "$wanted" ]]; then return; fi
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "arm: there is no apt here that could fetch libraries for Arm" >&2; return 1; }
  rm -rf "$work"
  mkdir -p "$work"
  echo "arm: fetching libraries for Arm into build/arm-root" >&2
  if ! { fetch && unpack; } >"$work/log" 2>&1; then
    tail -n 5 "$work/log" >&2
    echo "arm: the libraries for Arm could not be had (log: $work/log)" >&2
    return 1
  fi
  rm -rf "$work/apt"
  printf '%s\n' "$wanted" >"$work/complete"
}

say() { printf '\n## %s\n' "$*"; }
die() { echo "arm: $*" >&2; exit 1; }
headroom() { "${run[@]}" "$build/headroom" "$@"; }

# train NAME OPTIONS...: ten steps inside a budget; the loss falls, and what was reserved is what plan said.
train() {
  local name=$1 planned reserved
  shift
  headroom plan micro-llama-bytes --budget 32MiB --json "$@" >"$out/$name.plan"
  headroom train micro-llama-bytes --budget 32MiB "$@" --data "$out/text" --steps 10 --lr 3e-3 --quiet --out "$out/$name" >"$out/$name.said" 2>&1 ||
    { cat "$out/$name.said" >&2; die "$name: training failed"; }
  planned=$(grep -m1 -oE '"reserved_bytes": [0-9]+' "$out/$name.plan" | grep -oE '[0-9]+$')
  reserved=$(tail -n 1 "$out/$name/metrics.jsonl" | grep -oE '"device_reserved_bytes":[0-9]+' | grep -oE '[0-9]+$')
  if [[ -z $planned || $planned != "$reserved" ]]; then die "$name: planned ${planned:-nothing}, reserved ${reserved:-nothing}"; fi
  if ((reserved % ${QEMU_PAGESIZE:-4096} != 0)); then die "$name: $reserved bytes are not whole pages"; fi
  awk -F'"loss":' -v name="$name" -v bytes="$reserved" '
    { split($2, n, ","); if (NR == 1) first = n[1]; last = n[1] }
    END { printf "%-6s loss %.3f -> %.3f in %d steps, %d bytes planned and reserved\n", name, first, last, NR, bytes
          exit !(NR == 10 && last < first) }' "$out/$name/metrics.jsonl"
}

bits() { sha256sum <"$out/$1/final/model.safetensors"; }

# runs NAME LEVEL: in both types; leaves the bits in fp32 and bf16.
runs() {
  local level
  say "ten steps: $1"
  rm -rf "$out"/{fp32,bf16}
  train fp32 --seq 48 --micro-batch 2
  train bf16 --seq 48 --micro-batch 2 --precision bf16
  level=$(grep -oE '"instruction_set": "[^"]*"' "$out/bf16/run.json" | cut -d'"' -f4)
  if [[ $level != "$2" ]]; then die "ran at level $level, not $2"; fi
  fp32=$(bits fp32) bf16=$(bits bf16)
}

# A level that a processor lacks is refused.
refused() {
  local status=0
  HEADROOM_ISA=$1 headroom plan micro-llama-bytes >/dev/null 2>"$out/refusal" || status=$?
  if ((status != 2)) || ! grep -q "has no $1" "$out/refusal"; then die "HEADROOM_ISA=$1 was not refused (exit $status)"; fi
}

# One processor with bf16 instructions and one without give the same bits wherever both do the same.
demo() {
  local all_fp32 all_bf16 neon_bf16
  runs "a processor with bf16 instructions" neonbf16
  all_fp32=$fp32 all_bf16=$bf16
  headroom generate "$out/bf16/final" --prompt "The " --max-tokens 8 --seed 1 >/dev/null 2>&1
  refused avx2
  HEADROOM_ISA=neon runs "the same without them, by HEADROOM_ISA" neon
  neon_bf16=$bf16
  [[ $fp32 == "$all_fp32" && $bf16 != "$all_bf16" ]] || die "bf16 instructions change fp32, or do not change bf16"
  export QEMU_CPU=cortex-a72
  runs "a processor without bf16 instructions" neon
  [[ $fp32 == "$all_fp32" && $bf16 == "$neon_bf16" ]] || die "the bits of level neon depend on the processor"
  refused neonbf16
  export QEMU_CPU=$full QEMU_PAGESIZE=65536
  runs "pages of 64 KiB" neonbf16
  [[ $fp32 == "$all_fp32" && $bf16 == "$all_bf16" ]] || die "bits depend on the size of pages"
}

part() {
  local words
  build=$1 out=${TMPDIR:?}
  full=max,sve=off
  run=(qemu-aarch64 -L "$work")
  export QEMU_CPU=$full HEADROOM_TEST_QUICK=1 HEADROOM_TEST_EMULATED=1 HEADROOM_CACHE=$out/no-cache
  unset HEADROOM_ISA QEMU_PAGESIZE
  if [[ $2 == runs ]]; then
    mkdir "$out/runs"
    out=$out/runs
    cp README.md "$out/text"
    demo
    rm -rf "$out"
    return
  fi
  read -ra words <<<"$2"
  cd "$build"
  "${run[@]}" "./${words[0]}" "${words[@]:1}" 2>&1 | tee "$out/said"
  grep -q 'test(s) run' "$out/said" || die "$2: no test was run"
  rm "$out/said"
}

# one PART: in a process of its own, whose log, verdict and skipped tests stay in $logs.
one() {
  local name=${1%% *} begun=$SECONDS verdict=passed status=0
  timeout "$limit" bash tests/support/scratch.sh "$build/scratch/$name" bash scripts/arm.sh --part "$build" "$1" >"$logs/$name" 2>&1 &
  # shellcheck disable=SC2064
  trap "kill $! 2>/dev/null" TERM
  wait $! || status=$?
  if ((status)); then
    verdict="FAILED (exit $status)"
    if ((status == 124)); then verdict="FAILED (more than $limit s)"; fi
    tail -n 40 "$logs/$name" | sed "s/^/$name| /"
  else
    echo "$name" >>"$logs/passed"
  fi
  sed -n "s/^\[ *SKIPPED *\] \([^ ]*[a-z][^ ]*\)$/$name: \1/p" "$logs/$name" | sort -u >>"$logs/skipped"
  printf '%-18s %s in %d s\n' "$name" "$verdict" $((SECONDS - begun))
}

all() {
  local begun=$SECONDS chosen name part running=0 workers=${DEV_JOBS:-$(nproc)} passed
  build=$1 limit=2400
  shift
  logs=$build/logs
  rm -rf "$logs"
  mkdir -p "$logs"
  : >"$logs/passed"
  : >"$logs/skipped"
  trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
  chosen=("${parts[@]}")
  if (($#)); then chosen=(); fi
  for name; do
    part=$(part_of "$name") || die "no part '$name' (${parts[*]%% *})"
    chosen+=("$part")
  done
  echo "arm: ${#chosen[@]} parts, $workers at once, under $(qemu-aarch64 --version | head -n 1)"
  for part in "${chosen[@]}"; do
    if ((running == workers)); then wait -n || true; else running=$((running + 1)); fi
    one "$part" &
  done
  wait
  if [[ -s $logs/skipped ]]; then
    echo "skipped within them:"
    sed 's/^/  /' "$logs/skipped"
  fi
  passed=$(wc -l <"$logs/passed")
  if ((passed < ${#chosen[@]})); then die "$((${#chosen[@]} - passed)) of ${#chosen[@]} parts failed (logs: $logs)"; fi
  echo "arm: ${#chosen[@]} parts passed in $((SECONDS - begun)) s"
}

# The longest first. Of the regimes of test_bits one.
parts=(test_gemm "test_bits bf16-emulated" test_attention test_kernels test_gradients test_kept runs test_optim_bf16 test_quant)
# By its first word.
part_of() {
  local part
  for part in "${parts[@]}"; do
    if [[ ${part%% *} == "$1" ]]; then
      echo "$part"
      return
    fi
  done
  return 1
}

case ${1:-} in
  --root) root ;;
  --targets) echo "headroom ${parts[*]%% *}" | sed 's/ runs\>//' ;;
  --test) all "${@:2}" ;;
  --part) part "$2" "$3" ;;
  *) sed -n '2,/^set /{/^set /d;s/^#\( \|$\)//;p}' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
