#!/usr/bin/env bash
# Makes tests/alloc/oracle and tests/snapshots/real anew: fetches PyTorch's wheels and NVIDIA's headers with pip, runs PyTorch's allocator and
# PyTorch on the fake device. README.md has the formats.
#   tests/oracle/record.sh WORK     a folder for about 20 GB
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tests=$(dirname "$here")

# PyTorch's versions, each with the major version of its wheels' CUDA, the newest last: with it all is recorded.
versions=(2.1.2:12 2.4.1:12 2.7.1:12 2.9.1:12 2.10.0:12 2.11.0:13 2.12.0:13 2.13.0:13 2.14.0:13 2.15.0:13)
headers=(nvidia-cuda-runtime==13.0.96 nvidia-cuda-runtime-cu12==12.8.90 nvidia-cuda-crt==13.0.88)
newest=${versions[-1]%:*}

die() { printf 'record.sh: %s\n' "$*" >&2; exit 1; }
mkdir -p "$1"
work=$(cd "$1" && pwd)
[[ -x $work/venv/bin/python ]] || python3 -m venv "$work/venv"

# offers PACKAGE VERSION...: that pip can have what was not fetched yet, before anything is
offers() {
  local package=$1 known version wanted=() lacks=''
  shift
  for version; do [[ -d $work/$package-$version ]] || wanted+=("$version"); done
  if ((${#wanted[@]} == 0)); then return; fi
  known=$("$work/venv/bin/pip" index versions "$package" 2>/dev/null | sed -n 's/^Available versions: //p') || true
  [[ $known ]] || die "pip finds no version of $package: look at its settings (pip config list) and the network"
  for version in "${wanted[@]}"; do [[ " $known," == *" $version,"* ]] || lacks+=" $version"; done
  [[ -z $lacks ]] || die "pip has no $package$lacks, only $known: name an index that has it (PIP_INDEX_URL); or change the versions at the head of" \
    "$here/record.sh, and what is named after them (tests/alloc/oracle, tests/snapshots/real)"
}
offers torch "${versions[@]%:*}"
for header in "${headers[@]}"; do offers "${header%%=*}" "${header##*=}"; done
"$work/venv/bin/pip" install -q filelock typing-extensions 'setuptools<82' sympy networkx jinja2 fsspec 'numpy<2'

# fetch PACKAGE VERSION: unpacks a wheel without what it depends on, whole or not at all
fetch() {
  local to=$work/$1-$2
  if [[ -d $to ]]; then return; fi
  rm -rf "$work/wheels" "$to.part"
  "$work/venv/bin/pip" download -q --no-deps -d "$work/wheels" "$1===$2"
  mkdir -p "$to.part"
  for wheel in "$work"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$to.part"; done
  rm -r "$work/wheels"
  mv "$to.part" "$to"
}
for header in "${headers[@]}"; do fetch "${header%%=*}" "${header##*=}"; done
for major in 12 13; do
  mkdir -p "$work/include$major"
  cp -r "$work/nvidia-cuda-runtime"*-"$major".*/nvidia/*/include/. "$work"/nvidia-cuda-crt-*/nvidia/cu13/include/. "$work/include$major/"
done

# prepare VERSION: one of the list
prepare() {
  local version cuda=''
  for version in "${versions[@]}"; do [[ ${version%:*} != "$1" ]] || cuda=${version#*:}; done
  [[ $cuda ]] || die "torch $1 is not among the versions at the head of this script"
  fetch torch "$1"
  "$here/build.sh" "$work/torch-$1/torch" "$work/include$cuda" "$work/fake-$1"
}

# Recordings of the policy: all scripts with the newest version, some with the two others that choose differently among equal blocks.
some='plain-mixed plain-edges tight-mixed streams-tight pools-memory max-split-tight-edges expandable-tight-edges nested-pools capture-fails collect-80-edges'
# record VERSION OUT [NAMES]
record() {
  prepare "$1"
  rm -rf "$2"
  # shellcheck disable=SC2086  # names to keep, none for all
  python3 "$here/record.py" "$work/fake-$1/record" "${1%.*}" "$2" ${3-}
}
record "$newest" "$tests/alloc/oracle/${newest%.*}"
record 2.12.0 "$tests/alloc/oracle/2.12" "$some throw-on-oom throw-on-oom-fraction steps-varied-tight settings"
record 2.11.0 "$tests/alloc/oracle/2.11" "$some"
# 2.13 is the first that chooses as today: the same recordings, byte for byte, so none of its own are kept.
record 2.13.0 "$work/recorded-2.13" "$some"
for name in $some; do cmp "$work/recorded-2.13/$name.gz" "$tests/alloc/oracle/${newest%.*}/$name.gz"; done

# snapshots VERSION [NAME...]
snapshots() {
  local version=$1 folder=$tests/snapshots/real/${1%.*}
  shift
  prepare "$version"
  python3 "$here/stubs.py" "$work/torch-$version/torch/lib" "$work/fake-$version"
  mkdir -p "$folder"
  if (($# == 0)); then mapfile -t names < <(sed -n 's/^    "\([a-z0-9-]*\)": (.*/\1/p' "$here/scenarios.py"); else names=("$@"); fi
  for name in "${names[@]}"; do
    conf=$(sed -n "s/^    \"$name\": ([a-z0-9_]*, [0-9]*, \"\([^\"]*\)\".*/\1/p" "$here/scenarios.py")
    LD_LIBRARY_PATH=$work/fake-$version PYTHONPATH=$work/torch-$version PYTORCH_CUDA_ALLOC_CONF=$conf PYTORCH_ALLOC_CONF=$conf \
      "$work/venv/bin/python" "$here/scenarios.py" "$name" "$folder"
  done
}
snapshots "$newest"
snapshots 2.12.0 gpt2-varied too-big-oom
snapshots 2.9.1 gpt2-varied gpt2-varied-expandable fragmented-oom
snapshots 2.1.2 gpt2-varied

recorders=()
for version in "${versions[@]%:*}"; do
  prepare "$version"
  recorders+=("$version=$work/fake-$version/record")
done
python3 "$here/messages.py" "$tests/snapshots/real/messages.txt" "${recorders[@]}"
