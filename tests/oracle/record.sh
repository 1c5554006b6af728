#!/usr/bin/env bash
# Makes tests/alloc/oracle and tests/snapshots/real anew: fetches PyTorch's wheels and NVIDIA's headers with pip, runs PyTorch's allocator and
# PyTorch on the fake device. README.md has the formats.
#   tests/oracle/record.sh WORK     a folder for about 20 GB
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tests=$(dirname "$here")
mkdir -p "$1"
work=$(cd "$1" && pwd)

[[ -x $work/venv/bin/python ]] || python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q filelock typing-extensions 'setuptools<82' sympy networkx jinja2 fsspec 'numpy<2'

# fetch PACKAGE FOLDER: unpacks a wheel without what it depends on
fetch() {
  if [[ -d $2 ]]; then return; fi
  "$work/venv/bin/pip" download -q --no-deps -d "$work/wheels" "$1"
  mkdir -p "$2"
  for wheel in "$work"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$2"; done
  rm -r "$work/wheels"
}
fetch nvidia-cuda-runtime==13.0.96 "$work/cuda13"
fetch nvidia-cuda-runtime-cu12==12.8.90 "$work/cuda12"
fetch nvidia-cuda-crt==13.0.88 "$work/crt"
for major in 12 13; do
  mkdir -p "$work/include$major"
  cp -r "$work/cuda$major"/nvidia/*/include/. "$work/crt/nvidia/cu13/include/." "$work/include$major/"
done

# prepare VERSION CUDA
prepare() {
  fetch "torch===$1" "$work/torch-$1"
  "$here/build.sh" "$work/torch-$1/torch" "$work/include$2" "$work/fake-$1"
}

# Recordings of the policy: all scripts with the newest version, some with the two others that choose differently among equal blocks.
some='plain-mixed plain-edges tight-mixed streams-tight pools-memory max-split-tight-edges expandable-tight-edges nested-pools capture-fails collect-80-edges'
# record VERSION OUT [NAMES]
record() {
  prepare "$1" 13
  rm -rf "$2"
  # shellcheck disable=SC2086  # names to keep, none for all
  python3 "$here/record.py" "$work/fake-$1/record" "${1%.*}" "$2" ${3-}
}
record 2.15.0 "$tests/alloc/oracle/2.15"
record 2.12.0 "$tests/alloc/oracle/2.12" "$some throw-on-oom throw-on-oom-fraction steps-varied-tight settings"
record 2.11.0 "$tests/alloc/oracle/2.11" "$some"
# 2.13 is the first that chooses as today: the same recordings, byte for byte, so none of its own are kept.
record 2.13.0 "$work/recorded-2.13" "$some"
for name in $some; do cmp "$work/recorded-2.13/$name.gz" "$tests/alloc/oracle/2.15/$name.gz"; done

# snapshots VERSION CUDA FOLDER [NAME...]
snapshots() {
  local version=$1 cuda=$2 folder=$tests/snapshots/real/$3
  shift 3
  prepare "$version" "$cuda"
  python3 "$here/stubs.py" "$work/torch-$version/torch/lib" "$work/fake-$version"
  mkdir -p "$folder"
  if (($# == 0)); then mapfile -t names < <(sed -n 's/^    "\([a-z0-9-]*\)": (.*/\1/p' "$here/scenarios.py"); else names=("$@"); fi
  for name in "${names[@]}"; do
    conf=$(sed -n "s/^    \"$name\": ([a-z0-9_]*, [0-9]*, \"\([^\"]*\)\".*/\1/p" "$here/scenarios.py")
    LD_LIBRARY_PATH=$work/fake-$version PYTHONPATH=$work/torch-$version PYTORCH_CUDA_ALLOC_CONF=$conf PYTORCH_ALLOC_CONF=$conf \
      "$work/venv/bin/python" "$here/scenarios.py" "$name" "$folder"
  done
}
snapshots 2.15.0 13 2.15
snapshots 2.12.0 13 2.12 gpt2-varied too-big-oom
snapshots 2.9.1 12 2.9 gpt2-varied gpt2-varied-expandable fragmented-oom
snapshots 2.1.2 12 2.1 gpt2-varied

recorders=()
for version in 2.1.2:12 2.4.1:12 2.7.1:12 2.9.1:12 2.10.0:12 2.11.0:13 2.12.0:13 2.13.0:13 2.14.0:13 2.15.0:13; do
  prepare "${version%:*}" "${version#*:}"
  recorders+=("${version%:*}=$work/fake-${version%:*}/record")
done
python3 "$here/messages.py" "$tests/snapshots/real/messages.txt" "${recorders[@]}"
