#!/usr/bin/env bash
# Adapters beside quantized weights: the same bytes whatever the plan, resume, refusals, the need to the byte.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$1"

for k in $(seq 400); do echo "line $k: memory is planned to the byte, $((k * k)) of them"; done >text.txt
run train micro-llama-bytes --data text.txt --seq 32 --steps 30 --lr 3e-3 --out base --quiet
expect_rc 0
# OUT OPTION...: adapters beside base/final
adapt() {
  local out=$1
  shift
  run train base/final --data text.txt --seq 32 --micro-batch 2 --steps 6 --lr 1e-3 --quiet --check --out "$out" \
    --lora r=4,alpha=8,dropout=0.1 "$@"
  expect_rc 0
  expect_out 'equal to the byte'
}
same() { cmp -s "$1/final/adapter_model.safetensors" "$2/final/adapter_model.safetensors" || fail "$1 and $2 differ"; }

for kind in nf4 fp4 nf4+dq fp4+dq int8; do
  adapt "one-$kind" --quantize "$kind" --precision bf16 --threads 1
  adapt "two-$kind" --quantize "$kind" --precision bf16 --threads 2 --recompute block
  same "one-$kind" "two-$kind"
done
adapt plain --precision bf16 --threads 1
cmp -s plain/final/adapter_model.safetensors one-nf4/final/adapter_model.safetensors && fail 'nf4 changed nothing'
adapt a --quantize nf4+dq --accumulate 2
adapt b --quantize nf4+dq --accumulate 2 --recompute levels:mlp,attention --weight-packing off --threads 1
same a b
grep -q all-linear a/final/adapter_config.json && fail 'targets are names'
grep -q down_proj a/final/adapter_config.json || fail 'all linear modules are the default beside quantized weights'

# A run that goes on has the same bytes as one that never stopped.
run train base/final --data text.txt --seq 32 --micro-batch 2 --steps 6 --schedule constant --lr 1e-3 --quiet --out whole \
  --lora r=4,alpha=8 --quantize fp4+dq --precision bf16
run train base/final --data text.txt --seq 32 --micro-batch 2 --steps 3 --schedule constant --lr 1e-3 --quiet --out half \
  --lora r=4,alpha=8 --quantize fp4+dq --precision bf16
run train --resume half --steps 6 --quiet
expect_rc 0
same whole half

# The function that was trained is the one that is evaluated.
run evaluate base/final --adapter whole/final --quantize fp4+dq --precision bf16 --data text.txt --seq 32 --quiet --json
expect_rc 0
cp "$work/out" json
run evaluate whole/final --quantize fp4+dq --precision bf16 --data text.txt --seq 32 --quiet --json
[ "$(grep -oE '"loss": [0-9.]+' json)" = "$(grep -oE '"loss": [0-9.]+' "$work/out")" ] || fail 'the two evaluations differ'

# The need is exact: one byte less is refused, and nothing is made.
run plan base/final --seq 32 --lora r=4 --quantize nf4 --json
need=$(json_number need_bytes)
run train base/final --data text.txt --seq 32 --steps 1 --lora r=4 --quantize nf4 --budget "$need" --quiet --out exact
expect_rc 0
run train base/final --data text.txt --seq 32 --steps 1 --lora r=4 --quantize nf4 --budget "$((need - 1))" --quiet --out less
expect_rc 3
[ ! -e less ] || fail 'a refused run left something'

run train base/final --data text.txt --seq 32 --quantize nf4 --out no
refuses 2
expect_err 'quantized weights have no gradient'
run train base/final --data text.txt --seq 32 --quantize nf5 --lora r=4 --out no
refuses 2
finish
