#!/usr/bin/env bash
# wasm.sh OUT PROGRAM.c SOURCE.c ...: compiles a program for WebAssembly (clang, Debian's wasi-libc) into OUT, with jansson, whose
# sources come from the distribution. scripts/wasm/include has what WASI lacks and one thread does not need.
# wasm.sh --test: tests/wasm/formats.c over base and formats prints the same here and under wasmtime.
# wasm.sh --plan BUILD: libheadroom-plan, from the sources that BUILD/plan_sources.txt (of CMake) lists. Byte counts of 64 bits that lose
# some on a 32-bit machine are errors. Runs tests/plan/jobs.c under wasmtime, without files, and compares its plans with those of
# BUILD/plan_jobs. Exits with 77 and the reason where a tool is missing (./dev setup wasm tools).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$PWD/build/wasm
runtime=$(clang -print-resource-dir 2>/dev/null || true)/lib/wasi/libclang_rt.builtins-wasm32.a
flags=(--target=wasm32-wasi -nostdlibinc -isystem scripts/wasm/include -isystem "$work/include" -isystem /usr/include/wasm32-wasi
  -O2 -std=c11 -D_GNU_SOURCE -Iinclude -Isrc)

# jansson's sources by apt, from the mirrors that this machine uses anyway, with lists and settings of our own so that nothing
# of the machine's changes.
fetch_jansson() {
  local file options
  if [[ -f $work/jansson/src/value.c ]]; then return; fi
  mkdir -p "$work/apt/parts" "$work/apt/lists/partial" "$work/jansson"
  for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list.d/ubuntu.sources; do
    if [[ -f $file ]]; then sed 's/^Types:.*/Types: deb-src/' "$file" >"$work/apt/parts/${file##*/}"; fi
  done
  if [[ -f /etc/apt/sources.list ]]; then sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >"$work/apt/parts/more.list"; fi
  options=(-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/apt/parts" -o Dir::State::lists="$work/apt/lists"
    -o APT::Sandbox::User=root)
  (cd "$work" && apt-get "${options[@]}" update && apt-get "${options[@]}" source --download-only jansson) >"$work/apt.log" 2>&1
  tar xf "$work"/jansson_*.orig.tar.* -C "$work/jansson" --strip-components=1
}

prepare() {
  local source=$work/jansson/src file
  fetch_jansson
  mkdir -p "$work/include" "$work/objects"
  sed 's/@json_inline@/inline/; s/@json_have_long_long@/1/; s/@json_have_localeconv@/0/; s/@json_have_atomic_builtins@/1/
       s/@json_have_sync_builtins@/0/' "$source/jansson_config.h.in" >"$work/include/jansson_config.h"
  cp "$source/jansson.h" "$work/include/"
  : >"$work/include/jansson_private_config.h" # of its configure script; what it finds is named here
  cp "$(gcc -E -include xxhash.h -x c /dev/null | sed -n 's/^# 1 "\(.*xxhash\.h\)".*/\1/p' | head -n 1)" "$work/include/"
  for file in value hashtable hashtable_seed memory strbuffer error utf strconv; do
    clang "${flags[@]}" -w -I"$source" -DHAVE_STDINT_H=1 -DHAVE_UNISTD_H=1 -DHAVE_SYS_TYPES_H=1 -DHAVE_FCNTL_H=1 -DHAVE_STRTOLL=1 \
      -DINITIAL_HASHTABLE_ORDER=3 -c "$source/$file.c" -o "$work/objects/jansson_$file.o"
  done
}

build() {
  local out=$1 source objects=("$work"/objects/jansson_*.o) object
  shift
  for source; do
    object=$work/objects/$(tr / _ <<<"${source%.c}").o
    clang "${flags[@]}" -Wall -Wextra -c "$source" -o "$object"
    objects+=("$object")
  done
  wasm-ld -o "$out" /usr/lib/wasm32-wasi/crt1.o "${objects[@]}" -L/usr/lib/wasm32-wasi -lc "$runtime"
}

# What plans rest on: without locks, scratch directories and publishing, which need processes, and without writing GGUF.
core() { ls src/base/{account,error,file,json,json_scan,mem,rng,text,utf8}.c src/formats/*.c | grep -v '_avx\|gguf_write'; }

run_test() {
  local sources gguf safetensors
  mapfile -t sources < <(core)
  gguf=$(ls tests/gguf/*.gguf | head -n 1)
  safetensors=$(ls tests/gguf/*.safetensors | head -n 1)
  prepare
  build "$work/formats.wasm" tests/wasm/formats.c "${sources[@]}"
  gcc -O2 -std=c11 -D_GNU_SOURCE -Iinclude -Isrc -o "$work/formats" tests/wasm/formats.c "${sources[@]}" src/formats/*_avx*.c \
    -mavx2 -mavx512f -ljansson -lm
  "$work/formats" "$gguf" "$safetensors" >"$work/native.txt"
  build/tools/bin/python scripts/wasm/run.py . "$work/formats.wasm" "$gguf" "$safetensors" >"$work/wasm.txt"
  cmp "$work/native.txt" "$work/wasm.txt"
  echo "wasm: $(wc -l <"$work/wasm.txt") lines, as here"
}

skip() { echo "SKIP: $*"; exit 77; }

# Why libheadroom-plan cannot be built and run as WebAssembly here; nothing when it can.
missing() {
  command -v clang >/dev/null || { echo "clang is not installed"; return; }
  command -v wasm-ld >/dev/null || { echo "wasm-ld (lld) is not installed"; return; }
  [[ -f /usr/lib/wasm32-wasi/libc.a ]] || { echo "wasi-libc is not installed"; return; }
  [[ -f $runtime ]] || { echo "clang has no builtins for wasm32"; return; }
  build/tools/bin/python -c 'import wasmtime' 2>/dev/null || { echo "wasmtime is not installed in build/tools"; return; }
  fetch_jansson 2>/dev/null || echo "the sources of jansson could not be fetched by apt ($work/apt.log)"
}

# The rules by which ninja makes it, so that only what changed is compiled.
plan_rules() {
  local source object objects=("$work"/objects/jansson_*.o)
  echo "builddir = $work"
  echo "flags = ${flags[*]} -Wall -Wextra -Wshadow -Wconversion -Wshorten-64-to-32 -Wno-sign-conversion -Wno-missing-field-initializers -Werror"
  printf 'rule cc\n  command = clang $flags -MD -MF $out.d -c $in -o $out\n  deps = gcc\n  depfile = $out.d\n'
  printf 'rule link\n  command = wasm-ld -z stack-size=1048576 -o $out /usr/lib/wasm32-wasi/crt1.o $in -L/usr/lib/wasm32-wasi -lc %s\n' "$runtime"
  while read -r source; do
    object=$work/objects/plan_$(tr / _ <<<"${source%.c}").o
    echo "build $object: cc $source"
    objects+=("$object")
  done < <(cat "$1/plan_sources.txt" && echo tests/plan/jobs.c)
  echo "build $work/plan_jobs.wasm: link ${objects[*]}"
}

run_plan() {
  local build=$1 reason
  reason=$(missing)
  if [[ -n $reason ]]; then skip "$reason"; fi
  prepare
  plan_rules "$build" >"$work/plan.ninja"
  ninja -f "$work/plan.ninja" -j "${DEV_JOBS:-$(nproc)}" "$work/plan_jobs.wasm" >"$work/plan.log" || { grep -v '^\[' "$work/plan.log"; return 1; }
  mkdir -p "$work/empty"
  build/tools/bin/python scripts/wasm/run.py "$work/empty" "$work/plan_jobs.wasm" >"$work/plans.wasm.json"
  "$build/plan_jobs" >"$work/plans.json"
  if ! cmp "$work/plans.json" "$work/plans.wasm.json"; then
    diff "$work/plans.json" "$work/plans.wasm.json" | cut -c1-400 | head -n 20
    return 1
  fi
  echo "wasm: $(grep -c '"model"' "$work/plans.json") jobs, $(wc -c <"$work/plans.json") bytes of JSON, as here; the module has $(wc -c <"$work/plan_jobs.wasm") bytes"
}

if [[ $1 == --plan ]]; then
  run_plan "$2"
elif [[ $1 == --test ]]; then
  run_test
else
  prepare
  build "$@"
fi
