#!/usr/bin/env bash
# What fine-tuning a large model takes: bytes reserved, without the fixed ones, against what was promised.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$1"

# LIMIT (MiB) OPTION...
needs() {
  local limit=$1 reserved
  shift
  run plan "$@" --recompute block --json
  expect_rc 0
  reserved=$(json_number reserved_bytes)
  [ "$((reserved >> 20))" -le "$limit" ] || fail "reserves $((reserved >> 20)) MiB, which is more than $limit"
}
attention=targets=q_proj,k_proj,v_proj,o_proj
states='--precision bf16 --optimizer adamw8bit'

# shellcheck disable=SC2086
{
  needs 4403 llama-2-7b $states --quantize nf4+dq --lora r=16,alpha=32,$attention --seq 512 --budget 6GiB
  needs 12288 llama-2-7b $states --quantize nf4+dq --lora r=16,alpha=32,$attention --seq 2048 --budget 12GiB
  needs 7577 llama-3-8b --device rtx-4090 $states --quantize nf4+dq --lora r=16,alpha=32,$attention --seq 2048 --micro-batch 2
  needs 16588 llama-3-8b --device rtx-4090 $states --lora r=16,alpha=32,$attention --seq 2048
}
full='--device a100-80 --precision bf16-pure --seq 2048 --clip 0 --update in-backward --optimizer adamw8bit'
# shellcheck disable=SC2086
{
  needs 33996 llama-3-8b $full --states-8bit all
  needs 37068 llama-3-8b $full # embeddings keep 32-bit states
}
finish
