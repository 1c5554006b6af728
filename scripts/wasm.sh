#!/usr/bin/env bash
# wasm.sh BUILD: libheadroom-plan for WebAssembly. Compiles the sources that BUILD/plan_sources.txt (of CMake) lists, with jansson, by clang
# against wasi-libc into build/wasm, where 64-bit byte counts that lose bits on a 32-bit machine are errors; runs tests/plan/jobs.c there under
# wasmtime; and compares the plans of its jobs with what BUILD/plan_jobs says. Exits with 77 and the reason where a tool is missing
# (./dev setup wasm installs them).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$1
out=build/wasm
skip() { echo "SKIP: $*"; exit 77; }

command -v clang >/dev/null || skip "clang is not installed"
command -v wasm-ld >/dev/null || skip "wasm-ld (lld) is not installed"
command -v ninja >/dev/null || skip "ninja is not installed"
mkdir -p "$out"
echo 'int main(void) { return 0; }' >"$out/probe.c"
clang --target=wasm32-wasi "$out/probe.c" -o "$out/probe.wasm" 2>"$out/probe.log" || skip "clang does not link for wasm32-wasi (wasi-libc, compiler-rt): $(tail -n 1 "$out/probe.log")"
[[ -f $out/jansson/src/jansson.h ]] || skip "the sources of jansson are not in $out/jansson"
[[ -x $out/venv/bin/python ]] && "$out/venv/bin/python" -c 'import wasmtime' 2>/dev/null || skip "wasmtime is not installed in $out/venv"

# What jansson's configure would find in wasi-libc.
mkdir -p "$out/include"
sed -e 's/@json_inline@/inline/; s/@json_have_long_long@/1/; s/@json_have_localeconv@/1/; s/@json_have_atomic_builtins@/1/; s/@json_have_sync_builtins@/0/' \
  "$out/jansson/src/jansson_config.h.in" >"$out/include/jansson_config.h.new"
{
  echo '#include <stdint.h>'
  printf '#define HAVE_%s 1\n' ENDIAN_H FCNTL_H LOCALE_H LOCALECONV STDINT_H STRTOLL SYS_TYPES_H UNISTD_H
  echo '#define INITIAL_HASHTABLE_ORDER 3'
} >"$out/include/jansson_private_config.h.new"
for header in jansson_config.h jansson_private_config.h; do
  cmp -s "$out/include/$header.new" "$out/include/$header" || cp "$out/include/$header.new" "$out/include/$header"
done

ours="-std=c11 -Wall -Wextra -Wshadow -Wconversion -Wshorten-64-to-32 -Wno-sign-conversion -Wno-missing-field-initializers -Werror"
{
  echo "flags = --target=wasm32-wasi -O2 -D_GNU_SOURCE -ffp-contract=off -Iinclude -Isrc -I$out/include -isystem $out/jansson/src"
  printf 'rule cc\n  command = clang $flags $more -MD -MF $out.d -c $in -o $out\n  deps = gcc\n  depfile = $out.d\n'
  printf 'rule link\n  command = clang --target=wasm32-wasi -Wl,-z,stack-size=8388608 $in -lm -o $out\n'
  objects=
  while read -r source; do
    object=$out/obj/${source//\//_}.o
    echo "build $object: cc $source"
    echo "  more = $ours"
    objects+=" $object"
  done < <(cat "$build/plan_sources.txt"; echo tests/plan/jobs.c)
  for source in "$out"/jansson/src/*.c; do
    object=$out/obj/jansson_$(basename "$source").o
    echo "build $object: cc $source"
    echo "  more = -w -DHAVE_CONFIG_H"
    objects+=" $object"
  done
  echo "build $out/plan_jobs.wasm: link$objects"
} >"$out/build.ninja"
ninja -f "$out/build.ninja" -j "${DEV_JOBS:-$(nproc)}" --quiet "$out/plan_jobs.wasm"

"$out/venv/bin/python" tests/plan/wasm.py "$out/plan_jobs.wasm" >"$out/wasm.json"
"$build/plan_jobs" >"$out/native.json"
if ! cmp "$out/native.json" "$out/wasm.json"; then
  echo "the planning library says other things as WebAssembly:"
  diff "$out/native.json" "$out/wasm.json" | cut -c1-400 | head -n 20
  exit 1
fi
echo "$(($(wc -l <"$out/native.json") / 2)) jobs: the same $(wc -c <"$out/native.json") bytes of JSON from both ($(stat -c %s "$out/plan_jobs.wasm") bytes of WebAssembly)"
