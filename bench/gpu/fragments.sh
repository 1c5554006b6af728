#!/usr/bin/env bash
# fragments.sh TABLE: records what mma.sync, ldmatrix, cp.async with zero fill and conversions give on a card. Put into the repository as
# tests/gpu/fragments.txt, the table is what the test of the GPU in software compares with (test_soft_fragments).
set -euo pipefail
if (($# != 1)); then
  echo "usage: bench/gpu/fragments.sh TABLE" >&2
  exit 2
fi
table=$(realpath -m "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [[ ! -x build/card/card_fragments ]]; then
  echo "bench/gpu: build/card/card_fragments is not there: bench/gpu/pack.sh makes it" >&2
  exit 2
fi
if ! nvidia-smi -L >/dev/null 2>&1; then
  echo "bench/gpu: no NVIDIA GPU is here (nvidia-smi shows none): no table was recorded" >&2
  exit 3
fi
LD_LIBRARY_PATH=build/card/lib build/card/card_fragments "$table"
head -n 1 "$table"
