#!/usr/bin/env bash
# The main job on real input: a small byte-level Llama learns this repository's own documents and sources
# inside a stated budget, and then a job that does not fit is refused with reasons and remedies.
# BUDGET and STEPS override the two numbers below.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
headroom=build/release/headroom
out=build/demo
budget=${BUDGET:-128MiB}
steps=${STEPS:-1000}

# Says what comes and shows the command as one could type it.
show() {
  printf '\n## %s\n\n$ headroom' "$1"
  printf ' %q' "${@:2}"
  printf '\n\n'
  "$headroom" "${@:2}"
}

rm -rf "$out"
mkdir -p "$out"

# Every hundredth file is held back for evaluation; whole files, so that no text stands on both sides. A tenth took as long to evaluate,
# four times over, as the training.
count=0
while IFS= read -r -d '' file; do
  if [[ ! -f $file ]]; then continue; fi
  count=$((count + 1))
  part=train
  if ((count % 100 == 0)); then part=valid; fi
  cat "$file" >>"$out/$part.txt"
done < <(
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard -- '*.md' '*.c' '*.h'
  else
    find . -path ./build -prune -o \( -name '*.md' -o -name '*.c' -o -name '*.h' \) -print0
  fi | sort -z
)
printf 'text: %d files of this repository; %d bytes to learn from, %d bytes held back\n' \
  "$count" "$(wc -c <"$out/train.txt")" "$(wc -c <"$out/valid.txt")"

shape=(--seq 128 --micro-batch 8)
job=("${shape[@]}" --budget "$budget")
show "What will the job need? (nothing is allocated)" plan tiny-llama-bytes "${job[@]}"
show "Train inside $budget" train tiny-llama-bytes --data "$out/train.txt" --eval-data "$out/valid.txt" \
  --out "$out/run" "${job[@]}" --steps "$steps" --shuffle --lr 4e-3 \
  --schedule cosine --warmup 50 --betas 0.9,0.98 --weight-decay 0.1 --eval-every 500 --save-every 500 --keep 1
show "Evaluate on the text held back" evaluate "$out/run/final" --data "$out/valid.txt" "${shape[@]}"
show "Sample from the saved model" generate "$out/run/final" --prompt "The plan " \
  --max-tokens 200 --temperature 0.7 --top-k 40 --seed 1

# This one does not fit (exit 3): the point is that it says so first, why, and what would.
status=0
show "A Llama-3 8B job on a 24 GB card" plan llama-3-8b --device rtx-4090 --seq 2048 --micro-batch 1 || status=$?
if ((status != 3)); then
  echo "demo: expected exit 3 (does not fit) from the last plan, got $status" >&2
  exit 1
fi
printf '\ndemo: done; exit 3 above is right, that job does not fit. The run is in %s/run\n' "$out"
