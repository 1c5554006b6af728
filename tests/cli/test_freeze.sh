#!/usr/bin/env bash
# --freeze and --train-only: what is frozen keeps its bytes, what is left trains, the plan pays for that alone.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$1"

for k in $(seq 300); do echo "line $k of the text, $((k * k)) in all"; done >text.txt
run train micro-llama-bytes --data text.txt --seq 32 --steps 5 --lr 3e-3 --out base --quiet
expect_rc 0
# OUT OPTION...
go_on() {
  local out=$1
  shift
  run train base/final --data text.txt --seq 32 --micro-batch 2 --steps 5 --lr 1e-3 --quiet --check --out "$out" "$@"
  expect_rc 0
  expect_out 'equal to the byte'
}
# OUT PATTERN [BASE]: just the tensors whose names match the regular expression have other bytes than in the base.
changed() {
  [ -n "$have_python" ] || return 0
  python3 - "${3:-base/final}/model.safetensors" "$1/final/model.safetensors" "$2" <<'PYTHON' || fail "$1: not just $2 changed"
import json, re, sys
def tensors(path):
    data = open(path, "rb").read()
    n = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + n])
    return {k: data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in head.items() if k != "__metadata__"}
a, b = tensors(sys.argv[1]), tensors(sys.argv[2])
assert a.keys() == b.keys()
wrong = [k for k in a if (a[k] != b[k]) != bool(re.search(sys.argv[3], k))]
sys.exit("  " + ", ".join(wrong) if wrong else 0)
PYTHON
}

go_on layer --freeze embed,norms,layers.0
changed layer '^(?!.*(embed_tokens|norm|layers\.0\.)).*'
go_on norms --train-only norms
changed norms norm
go_on part --train-only '*.v_proj.*,*.up_proj.*'
changed part '(v_proj|up_proj)'
# What is frozen has no master, so the programs read it rounded; what is saved has the bits that it came with.
go_on rounded --train-only '*.v_proj.*' --precision bf16
changed rounded 'v_proj'
go_on pure --train-only norms,layers.1 --precision bf16-pure --recompute block
changed pure 'norm|layers\.1\.'
go_on again --train-only '*.v_proj.*' --precision bf16 --save-every 2 --schedule constant
run train --resume again --steps 7 --quiet # loads a checkpoint, which holds the same bits
expect_rc 0
changed again 'v_proj'
go_on both --train-only layers.1 --freeze '*.mlp.*' --accumulate 2 --recompute block
changed both 'layers\.1\.(?!mlp)'

iconv -f ascii -t utf-16le text.txt >tokens.bin # GGUF files of presets have no tokenizer
# The same of other files: F16, transposed (GPT-2), and blocks, whose values are those that convert writes.
# MODEL BASE NORM OPTION...: trains one norm alone.
only_norm() {
  local model=$1 base=$2 norm=$3 out
  shift 3
  out=only-${model//[^a-z0-9]/-}
  run train "$model" --data tokens.bin --seq 32 --micro-batch 2 --steps 3 --lr 1e-2 --quiet --check --out "$out" \
    --precision bf16 --train-only "$norm" "$@"
  expect_rc 0
  changed "$out" "$norm" "$base"
}
for preset in micro-llama-bytes micro-gpt2-bytes; do
  norm=model.norm.weight
  [ $preset = micro-llama-bytes ] || norm=transformer.ln_f.weight
  run train $preset --data text.txt --seq 32 --steps 2 --quiet --out "of-$preset" --save-dtype f16
  expect_rc 0
  only_norm "of-$preset/final" "of-$preset/final" $norm
  for type in f32 q8_0; do
    run convert "of-$preset/final" "$preset-$type.gguf" --type $type
    expect_rc 0
    run convert "$preset-$type.gguf" "of-$preset-$type" --type f32
    expect_rc 0
    only_norm "$preset-$type.gguf" "of-$preset-$type" $norm --save-dtype f32
  done
done

# A model that was written over while the run went on: its new values are nobody's, what the run holds is saved.
if [ -n "$have_python" ]; then
  cp -r base/final over
  "$program" train over --data text.txt --seq 32 --steps 1000000 --train-only layers.1 --precision bf16 --quiet \
    --out overwritten >out 2>err &
  until [ -s overwritten/metrics.jsonl ]; do kill -0 $! 2>/dev/null || break; sleep 0.01; done
  python3 - over/model.safetensors <<'PYTHON'
import sys
with open(sys.argv[1], "r+b") as f:
    n = int.from_bytes(f.read(8), "little")
    f.seek(8 + n)
    f.write(bytes(4096))
PYTHON
  kill -INT $!
  wait $! || true
  grep -q 'is not what was loaded from there any more: what does not train is saved as rounded' err ||
    fail "an overwritten model: $(cat err)"
  run inspect overwritten --verify
  expect_rc 0
fi

run plan base/final --seq 32 --json
all=$(json_number need_bytes)
run plan base/final --seq 32 --freeze layers.0 --json
[ "$(json_number need_bytes)" -lt "$all" ] || fail 'a frozen layer costs as much as one that trains'

# A run that goes on takes it over, and is the same as one that never stopped.
go_on once --train-only layers.1 --schedule constant
run train base/final --data text.txt --seq 32 --micro-batch 2 --steps 2 --lr 1e-3 --quiet --out twice --train-only layers.1 --schedule constant
run train --resume twice --steps 5 --quiet
expect_rc 0
cmp -s once/final/model.safetensors twice/final/model.safetensors || fail 'the run that went on differs'
run train --resume twice --steps 6 --train-only layers.0 --quiet
refuses 2

for words in layers.9 q_proj nothing 'layers.1-0' layers.+1 'layers.0-+1' 'layers. 1' layers.0--1; do
  run train base/final --data text.txt --freeze "$words" --out no
  refuses 2
  expect_err 'means no tensor'
done
run train base/final --data text.txt --freeze embed,head,norms,layers.0-1 --out no
refuses 2
expect_err 'nothing to train'
run train base/final --data text.txt --freeze norms --lora r=2 --out no
refuses 2
finish
