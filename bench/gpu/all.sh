#!/usr/bin/env bash
# all.sh OUT: a day with a card, in the order of what is worth most. Each script has a limit below ten minutes; what there is no time for
# is left out. JSON, the table of fragments and the scripts' words are left in OUT. SECONDS_IN_ALL limits the whole (default: an hour).
# Before: bench/gpu/pack.sh, on this machine or another one. ONLY="check kernels" runs these alone.
set -uo pipefail
if (($# != 1)); then
  echo "usage: bench/gpu/all.sh OUT" >&2
  exit 2
fi
mkdir -p "$1"
out=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PYTHONUNBUFFERED=1
total=${SECONDS_IN_ALL:-3600}
bad=0

# script NAME LIMIT COMMAND...
script() {
  local name=$1 limit=$2 left=$((total - SECONDS)) begin=$SECONDS code
  shift 2
  if [[ -n ${ONLY:-} && " $ONLY " != *" $name "* ]]; then return; fi
  if ((left < 20)); then
    echo "all.sh: $name: not run: no time was left" | tee -a "$out/all.log" >&2
    bad=1
    return
  fi
  if ((limit > left)); then limit=$left; fi
  timeout --kill-after=10 "$limit" "$@" 2>&1 | tee -a "$out/all.log"
  code=${PIPESTATUS[0]}
  printf 'all.sh: %s: %s after %d s\n' "$name" "$(if ((code == 0)); then echo done; elif ((code == 124)); then echo "stopped at its limit"; else echo "ended with $code"; fi)" \
    $((SECONDS - begin)) | tee -a "$out/all.log" >&2
  if ((code != 0)); then bad=1; fi
}

if ! python3 -c 'import sys; sys.path.insert(0, "bench/gpu"); import card; print(card.need_card())' >"$out/card.txt"; then
  exit 3
fi
script fragments 60 bench/gpu/fragments.sh "$out/fragments.txt"
script check 240 python3 bench/gpu/check.py "$out" --seconds 200
script host 240 python3 bench/gpu/host.py "$out"
# Plans of what follows take their times and fixed bytes from it (docs/cli.md, devices --probe).
export HEADROOM_CACHE=$out/cache
script probe 120 build/card/headroom devices cuda --probe --probe-seconds 60
script exact 540 python3 bench/gpu/exact.py "$out" --seconds 500
script kernels 300 python3 bench/gpu/kernels.py "$out"
script train 590 python3 bench/gpu/train.py "$out" --seconds 560
script memory 400 python3 bench/gpu/memory.py "$out" --seconds 380
script torch-gpt2-124m 400 python3 bench/gpu/torch_side.py "$out" gpt2-124m
script torch-llama-3-8b 400 python3 bench/gpu/torch_side.py "$out" llama-3-8b
script torch-gpt2-1558m 500 python3 bench/gpu/torch_side.py "$out" gpt2-1558m
exit $bad
