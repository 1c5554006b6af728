#!/usr/bin/env bash
# setup.sh arm|build|clang|cuda|pip|python|tools|wasm ...: install what is missing, say what, and be quick when nothing is.
# Presence is asked of the tools themselves, not of the package manager, so other distributions work
# too once the same things are there; only the installing is apt's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'dev: %s\n' "$*" >&2; }

has() {
  local tool
  for tool; do command -v "$tool" >/dev/null || return 1; done
}

# The Debian names of the libraries whose headers the compiler does not find.
missing_headers() {
  gcc -E -P -x c - <<'C'
#if !__has_include(<jansson.h>)
libjansson-dev
#endif
#if !__has_include(<yaml.h>)
libyaml-dev
#endif
#if !__has_include(<pcre2posix.h>)
libpcre2-dev
#endif
#if !__has_include(<utf8proc.h>)
libutf8proc-dev
#endif
#if !__has_include(<zlib.h>)
zlib1g-dev
#endif
#if !__has_include(<zstd.h>)
libzstd-dev
#endif
#if !__has_include(<xxhash.h>)
libxxhash-dev
#endif
#if !__has_include(<cmocka.h>)
libcmocka-dev
#endif
C
}

missing_build() {
  has cmake || echo cmake
  has ninja || echo ninja-build
  has pkg-config || echo pkg-config
  if has gcc g++ make; then
    missing_headers
  else
    echo build-essential libjansson-dev libyaml-dev libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev libxxhash-dev libcmocka-dev
  fi
}

# libFuzzer is a package of its own, with clang's version in its name.
missing_clang() {
  if ! has clang; then
    echo clang
    return
  fi
  local runtime
  runtime=$(clang -print-runtime-dir)
  compgen -G "$runtime/libclang_rt.fuzzer*.a" >/dev/null ||
    echo "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
}

# Compiling to WebAssembly; the runtime that runs it is a wheel (tools).
missing_wasm() {
  has clang || echo clang
  has wasm-ld || echo lld
  [[ -f /usr/lib/wasm32-wasi/libc.a ]] || echo wasi-libc
  if has clang && [[ ! -f $(clang -print-resource-dir)/lib/wasi/libclang_rt.builtins-wasm32.a ]]; then
    echo "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev-wasm32"
  fi
}

# The libraries that a build for Arm is linked with come without installing (arm.sh).
missing_arm() {
  has aarch64-linux-gnu-gcc || echo gcc-aarch64-linux-gnu
  has qemu-aarch64 || echo qemu-user
}

missing_python() {
  has python3 || echo python3
  if [[ ! -x build/venv/bin/pip ]]; then python3 -c 'import venv, ensurepip' 2>/dev/null || echo python3-venv; fi
}

# Python with a pip of its own, or that of the environment of `python`.
missing_pip() {
  has python3 || echo python3
  if [[ ! -x build/venv/bin/pip ]]; then python3 -m pip --version >/dev/null 2>&1 || echo python3-pip; fi
}

install_packages() {
  local root=() log=build/setup.log
  if ! has apt-get; then
    say "missing, and there is no apt-get here to install it: $*"
    say "install the equivalents of these Debian packages and try again"
    return 1
  fi
  if ((EUID != 0)); then
    if ! has sudo; then
      say "missing: $*"
      say "as root: apt-get install -y --no-install-recommends $*"
      return 1
    fi
    root=(sudo)
  fi
  mkdir -p build
  say "installing with apt: $* (a few minutes on a bare machine; log: $log)"
  local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300)
  if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "$@"; } \
    >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    say "apt could not install: $*"
    return 1
  fi
}

# A second look after installing finds what came into question only then (clang's runtime), and what apt
# installed but the compiler still does not see.
ensure() {
  local group=$1 attempt packages
  for attempt in 1 2 3; do
    read -ra packages <<<"$("missing_$group" | tr '\n' ' ')"
    if ((${#packages[@]} == 0)); then return; fi
    if ((attempt < 3)); then install_packages "${packages[@]}"; fi
  done
  say "still missing after installing: ${packages[*]}"
  return 1
}

# ensure_venv FOLDER REQUIREMENTS: a Python environment with these packages. pip's own settings (PIP_*, pip.conf) say where they come
# from; torch is by default the build with CUDA.
ensure_venv() {
  local venv=$1 want=$2
  if cmp -s "$want" "$venv/requirements.txt"; then return; fi
  if [[ ! -x $venv/bin/pip ]]; then python3 -m venv "$venv"; fi
  say "installing with pip into $venv: $(grep -v '^#' "$want" | tr '\n' ' ')"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$want"
  cp "$want" "$venv/requirements.txt"
}

for group; do
  case $group in
    arm | build | clang | pip | wasm) ensure "$group" ;;
    python)
      ensure python
      ensure_venv build/venv scripts/requirements.txt
      ;;
    cuda)
      ensure python
      ensure_venv build/cuda-tools scripts/cuda.txt
      ;;
    tools)
      ensure python
      ensure_venv build/tools scripts/tools.txt
      ;;
    *)
      say "unknown group '$group' (arm, build, clang, cuda, pip, python, tools, wasm)"
      exit 2
      ;;
  esac
done
