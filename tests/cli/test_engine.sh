#!/usr/bin/env bash
# plan --engine pytorch: the screen, the JSON, exit codes, what is refused; and the line of it in plans for a GPU.
source "$(dirname "$0")/common.sh"

run plan gpt2-124m --device rtx-3060 --micro-batch 2 --engine pytorch; expect_rc 0; expect_no_err
expect_out '^FITS'; expect_out 'max_memory_allocated'; expect_out 'autocast to bf16, fp32 weights, AdamW'; expect_out '^unlike +the loss is not chunked'
[ "$(grep -c '^FITS' out)" -eq 2 ] || fail "the verdict is not first and last"
awk 'length > 80 { exit 1 }' out || fail "a line is wider than 80 columns"
run plan gpt2-124m --device rtx-3060 --micro-batch 16 --engine pytorch; expect_rc 3; expect_no_err; expect_out '^DOES NOT FIT'

# --fail-over holds for this answer too.
run plan gpt2-124m --device rtx-3060 --micro-batch 2 --engine pytorch --json --fail-over 100%; expect_rc 0; need=$(json_number need_bytes)
run plan gpt2-124m --device rtx-3060 --micro-batch 2 --engine pytorch --fail-over "$need"; expect_rc 0
run plan gpt2-124m --device rtx-3060 --micro-batch 2 --engine pytorch --fail-over $((need - 1)); expect_rc 3; expect_err 'more than --fail-over'

# Jobs beyond any device are answered as far as bytes are counted: hundreds of TiB, also in segments that grow, and among the settings that are
# tried; what is more is refused, in a table a dash, and --micro-batch auto takes fewer rows.
huge="plan llama-3-8b --device h100 --seq 8192 --micro-batch 8192"
run $huge --engine pytorch --json; expect_rc 3; expect_json 'd["need_bytes"] > 500 << 40'
run $huge --engine pytorch --alloc-conf expandable_segments:True --json; expect_rc 3
expect_json 'd["need_bytes"] > 500 << 40 and d["engines"]["pytorch"]["reserved_bytes"] < 1.05 * d["engines"]["pytorch"]["allocated_bytes"]'
run $huge --engine pytorch:axolotl; expect_rc 3; expect_out '^DOES NOT FIT +needs [0-9.]+ TiB'
heads="plan custom:family=llama,layers=2,hidden=65536,heads=1024,vocab=1000,positions=16777216 --device h100 --attention materialized"
run $heads --seq 16777216 --micro-batch 64 --engine pytorch; refuses 2; expect_err 'more than 512 PiB'; expect_err 'lower --micro-batch'
run $heads --seq 16777216 --micro-batch 16 --engine pytorch; refuses 2; expect_err 'more than 512 PiB'
run $heads --seq 2097152 --micro-batch 32 --engine pytorch --table seq,micro-batch --json; expect_rc 2
run $heads --seq 2097152 --engine pytorch --table seq,micro-batch --json --no-fixes; expect_rc 3; expect_json 'any(c["need_bytes"] is None for c in d["table"]) and any(c["need_bytes"] for c in d["table"])'
run plan custom:family=llama,layers=2,hidden=64,heads=4,vocab=1000,positions=1048576 --device h100 --seq 1048576 --batch-tokens 4294967296 --micro-batch auto --engine pytorch --json
expect_rc 0; expect_json 'd["job"]["micro_batch"] * d["job"]["accumulate"] == 4096'

# With --auto a job without rules is told as such, and not as one that does not fit; rows that were chosen are in each setting's options.
run plan smollm3-3b --device rtx-4080 --engine pytorch --auto; refuses 2; ! grep -q 'choices fits' err || fail "a job without rules does not fit"
run plan llama-3.2-1b --device l4 --engine pytorch:plain --seq 16 --accumulate 5 --micro-batch auto --budget 50% --json; expect_rc 3
expect_json 'd["fixes"] and all("--micro-batch %d" % d["job"]["micro_batch"] in f["plan_options"] for f in d["fixes"] if "micro-batch" in f["plan_options"]) and all("--micro-batch" in f["plan_options"] for f in d["fixes"])'
# The verdict of an allocator that asks anew is wrapped.
run plan qwen3-0.6b --device rtx-3060 --engine pytorch:llama-factory --seq 512 --micro-batch 3 --clip 0; expect_rc 0; expect_out 'returns cached memory 1 time in'
awk 'length > 80 { exit 1 }' out || fail "a line is wider than 80 columns"

# A loop of one's own keeps the logits of the step before, and foreach AdamW a list of its own.
run plan gpt2-124m --device a100-80 --micro-batch 8 --engine pytorch --json; expect_rc 0
expect_json 'd["engine"] == "pytorch" and d["fits"]' 'd["engines"]["pytorch"]["reserved_bytes"] >= d["engines"]["pytorch"]["allocated_bytes"]' \
  'd["need_bytes"] == d["engines"]["pytorch"]["device_used_bytes"]' 'd["engines"]["pytorch"]["peak"]["phase"] == "backward"'
trainer=$(json_number allocated_bytes)
run plan gpt2-124m --device a100-80 --micro-batch 8 --engine pytorch:plain --json; expect_rc 0
[ "$(json_number allocated_bytes)" -gt "$trainer" ] || fail "a plain loop needs no more than the Trainer"
# Padded rows rule flash attention out.
run plan llama-3-8b --device h200 --precision bf16-pure --engine pytorch --packing off; expect_rc 0; expect_out 'padding mask'
# Settings of the allocator reach it: with expandable segments less is reserved.
run plan llama-3.2-1b --device a100-80 --micro-batch 4 --precision fp32 --engine pytorch --json; expect_rc 0; plain=$(json_number reserved_bytes)
run plan llama-3.2-1b --device a100-80 --micro-batch 4 --precision fp32 --engine pytorch --json --alloc-conf expandable_segments:True; expect_rc 0
[ "$(json_number reserved_bytes)" -lt "$plain" ] || fail "expandable segments reserve no less"
# ... and a fraction caps it: it is of the device's memory, whatever the budget.
capped="plan gpt2-124m --engine pytorch --device rtx-3060 --micro-batch 4"
run $capped; expect_rc 0; expect_out '^FITS '
run $capped --alloc-conf per_process_memory_fraction:0.5; expect_rc 3; expect_out '^DOES NOT FIT +needs 7\.[0-9]+ GiB of 5\.9[0-9] GiB'
run $capped --alloc-conf per_process_memory_fraction:0.9; expect_rc 0; expect_out '^FITS .* of 10\.[0-9]+ GiB'
run $capped --alloc-conf per_process_memory_fraction:0.9 --budget 8GiB; expect_rc 0; expect_out '^FITS .* of 8\.00 GiB'
run $capped --alloc-conf per_process_memory_fraction:0; expect_rc 3

# Settings that fit are told in the framework's words, and fit.
run plan gpt2-124m --device rtx-3060 --micro-batch 16 --engine pytorch; expect_rc 3; expect_out 'gradient_accumulation_steps=4'
run plan gpt2-124m --device rtx-3060 --micro-batch 4 --accumulate 4 --engine pytorch; expect_rc 0
run plan gpt2-124m --device rtx-3060 --engine pytorch --table seq,micro-batch --json; expect_rc 0
expect_json 'len(d["table"]) >= 12 and any(c["fits"] for c in d["table"]) and not all(c["fits"] for c in d["table"])'
# Also of a job that fits, where they are asked for; on a card without bf16 fp16 stands for it; states in 8 bits; evaluation.
run plan gpt2-124m --device a100-80 --engine pytorch; expect_rc 0; ! grep -q 'settings that fit' out || fail "a job that fits has a list of settings"
run plan gpt2-124m --device a100-80 --engine pytorch --fixes; expect_rc 0; expect_out 'settings that fit'; expect_out 'adamw_bnb_8bit'
run plan gpt2-774m --device t4 --precision fp32 --micro-batch 2 --engine pytorch --no-fixes; expect_rc 3; ! grep -q 'settings that' out || fail "--no-fixes lists settings"
run plan gpt2-774m --device t4 --precision fp32 --micro-batch 4 --engine pytorch; expect_rc 3; expect_out 'fp16=True'; ! grep -q 'bf16=True' out || fail "bf16 on a card that has none"
run plan gpt2-124m --device rtx-3060 --engine pytorch --engine-conf eval_batches=12,compute_metrics=true; expect_rc 3; expect_out 'eval_accumulation_steps=1'
run plan gpt2-124m --device rtx-3060 --engine pytorch --engine-conf eval_batches=12,compute_metrics=true,eval_accumulation_steps=1; expect_rc 0
# Each line of settings is options of plan too, and with them a plan of its own says the same bytes; Liger's kernels are offered where there are some.
each_fix() {
  run "$@" --fixes --json
  [ -n "$have_python" ] || return
  python3 -c 'import json, sys; [print(f["need_bytes"], f["plan_options"]) for f in json.load(open("out"))["fixes"]]' >fixes
  [ -s fixes ] || fail "no settings that fit"
  while read -r bytes options; do
    # shellcheck disable=SC2086  # several options
    run "$@" --no-fixes --json $options; expect_rc 0
    [ "$(json_number need_bytes)" -eq "$bytes" ] || fail "$options: $(json_number need_bytes) bytes, $bytes were offered"
  done <fixes
}
each_fix plan llama-3.2-1b --device rtx-4090 --precision bf16 --micro-batch 8 --seq 1024 --engine pytorch
grep -q 'use_liger_kernel=true' fixes || fail "Liger's kernels are not offered"
each_fix plan llama-3.2-1b --device rtx-4090 --batch-tokens 8192 --precision fp32 --seq 512 --engine pytorch:plain
each_fix plan llama-3.2-1b --device rtx-4090 --precision bf16 --ranks 4 --engine pytorch --engine-conf use_reentrant=true
each_fix plan llama-3.2-1b --device l4 --engine pytorch:plain --seq 16 --accumulate 5 --micro-batch auto --budget 50%
each_fix plan llama-3.2-1b --device rtx-5070-ti --engine pytorch --seq 333 --micro-batch 33 --optimizer momentum --update in-backward --clip 0
each_fix plan gpt2-774m --device rtx-3060 --micro-batch 4 --engine pytorch; ! grep -q liger fixes || fail "Liger's kernels are offered for gpt2"
each_fix plan llama-3.2-1b --device a100-80 --engine pytorch --engine-conf transformers=4.57; ! grep -q liger fixes || fail "Liger's kernels are offered for 4.57"
# a setting that fits only because cached memory is returned says so beside what it would take
run plan llama-3.2-1b --device rtx-4090 --precision bf16 --micro-batch 2 --engine pytorch; expect_rc 3; expect_out '23.98 GiB  PYTORCH_ALLOC_CONF=expandable_segments:True .fits by returning'
run plan llama-3.2-1b --device rtx-4090 --precision bf16 --micro-batch 2 --engine pytorch --json; expect_rc 3; expect_json 'sum(f["retries"] > 0 for f in d["fixes"]) == 1 and all((f["need_bytes"] > d["budget_bytes"]) == (f["retries"] > 0) for f in d["fixes"])'
run plan llama-3.2-1b --device rtx-4090 --micro-batch 8 --seq 1024 --precision bf16-pure --engine pytorch --fixes --json
expect_json 'any(f["options"] == "TrainingArguments(use_liger_kernel=True)" and f["effect_class"] == 1 for f in d["fixes"])'
run plan llama-3.2-1b --device rtx-4090 --micro-batch 8 --seq 1024 --precision bf16-pure --recompute none --accumulate 1 --engine pytorch --auto --json; expect_rc 0; expect_err 'use_liger_kernel=True'
# What it is a plan of, as in every plan, and the job as it ran.
run plan llama-3.2-1b --device rtx-4090 --precision bf16 --micro-batch auto --engine pytorch:llama-factory --json; expect_rc 0
expect_json 'd["model"]["name"] == "llama-3.2-1b" and d["model"]["trainable_parameter_count"] == d["model"]["parameter_count"] == 1235814400' \
  'd["device"]["name"] == "rtx-4090"' 'd["job"]["precision"] == "bf16" and d["job"]["micro_batch"] == d["engines"]["pytorch"]["micro_batch"] >= 1' \
  'd["engines"]["pytorch"]["stack"] == "llama-factory" and d["engines"]["pytorch"]["gradient_checkpointing"] and d["engines"]["pytorch"]["use_reentrant"]' \
  'd["engines"]["pytorch"]["optim"] == "adamw_torch_fused" and d["engines"]["pytorch"]["attn_implementation"] == "sdpa"' \
  'd["engines"]["pytorch"]["tokens_per_step"] == d["engines"]["pytorch"]["micro_batch"] * d["engines"]["pytorch"]["seq"] * d["engines"]["pytorch"]["accumulate"]'
# The snapshot is one: what it peaks at is what was said.
run plan gpt2-124m --device a100-80 --micro-batch 2 --engine pytorch --json --snapshot steps.pickle; expect_rc 0; peak=$(json_number allocated_bytes)
run inspect steps.pickle --at peak --json; expect_rc 0
[ "$((peak - $(json_number peak_live_bytes)))" -lt $((peak / 50)) ] || fail "the snapshot peaks elsewhere"
run plan gpt2-124m --device a100-80 --engine pytorch --snapshot -; refuses 2; expect_err 'snapshot: - names no file'
run plan gpt2-124m --device a100-80 --engine pytorch --snapshot steps.pickle; refuses 2; expect_err 'steps.pickle is there already'
run plan gpt2-124m --device a100-80 --snapshot x.pickle; refuses 2; expect_err 'engine pytorch'

# QLoRA, on a card of compute capability 7.5 too; settings that no option of a job stands for.
run plan llama-3-8b --device t4 --precision fp16 --quantize nf4+dq --lora r=16,targets=q_proj,v_proj --recompute block --seq 1024 --engine pytorch --engine-conf optim=paged_adamw_8bit
expect_rc 0; expect_out 'nf4 with double'; expect_out 'paged AdamW 8-bit'; expect_out 'unlike +paged states'
run plan gpt2-124m --device rtx-3060 --engine pytorch --engine-conf optim=paged; refuses 2; expect_err "'paged' is no optim"; expect_err 'paged_adamw_8bit'
run plan gpt2-124m --device rtx-3060 --engine pytorch --engine-conf reentrant=true; refuses 2; expect_err "'reentrant' is no setting"; expect_err 'use_reentrant'
run plan gpt2-124m --device rtx-3060 --engine-conf optim=sgd; refuses 2; expect_err 'engine-conf'
run plan gpt2-124m --device rtx-3060 --engine pytorch --engine-conf zero=2; refuses 2; expect_err 'did you mean zero_stage\?'
run plan gpt2-124m --device rtx-3060 --engine pytorch --engine-conf bnb_quant_storage=bf16; refuses 2; expect_err 'did you mean bnb_4bit_quant_storage\?'
run plan gpt2-124m --device rtx-3060 --engine pytorch --engine-conf foo=2; refuses 2; expect_err 'and 17 more: docs/pytorch\.md'
for stack in pytorch pytorch:plain pytorch:axolotl; do # as transformers does, which passes it over where nothing is checkpointed
  run plan gpt2-124m --device rtx-3060 --engine $stack --recompute none --engine-conf use_reentrant=false; expect_rc 0
done
run plan gpt2-124m --device rtx-3060 --engine pytorch --engine-conf '  optim = sgd ,use_reentrant =True ' --recompute block; expect_rc 0; expect_out 'use_reentrant'; expect_out 'SGD'
run plan gpt2-124m --device rtx-3060 --engine pytorch --engine-conf 'optim = '; refuses 2; expect_err "'' is no optim"
run plan llama-3.2-1b --device a100-80 --engine pytorch:torchtune --precision bf16-pure --engine-conf ' dataset.packed = True'; expect_rc 0
run plan gpt2-124m --device rtx-3060 --engine pytorch --engine-conf 'optim=sgd, use_reentrant=True' --recompute block; expect_rc 0; expect_out 'use_reentrant'; expect_out 'SGD'
# The Trainer's evaluation keeps all logits where metrics are computed.
run plan gpt2-124m --device rtx-3060 --engine pytorch --engine-conf eval_batches=12,compute_metrics=true; expect_rc 3; expect_out '^peak +in the evaluation'; expect_out 'evaluation of 12 batches of 8'
run plan gpt2-124m --device rtx-3060 --engine pytorch --engine-conf eval_batches=12,per_device_eval_batch_size=1 --json; expect_rc 0
expect_json '0 < d["engines"]["pytorch"]["allocated_by_phase"]["evaluate"] < d["engines"]["pytorch"]["allocated_by_phase"]["backward"]'
run plan gpt2-124m --device rtx-3060 --engine pytorch --engine-conf compute_metrics=true; refuses 2; expect_err 'eval_batches is missing'
run plan gpt2-124m --device rtx-3060 --engine pytorch --engine-conf eval_batches=0; refuses 2; expect_err "from 1 to 4096, not '0'"
run plan gpt2-124m --device rtx-3060 --engine pytorch:plain --engine-conf eval_batches=2; refuses 2; expect_err 'pytorch:trainer'
# Where one change of the settings has no rules the others are tried.
run plan gpt2-774m --device t4 --precision fp32 --micro-batch 4 --engine pytorch; expect_rc 3; expect_no_err

# Several ranks: buckets stand beside the gradients or instead of them; sharded weights and states are fewer bytes by rank; offload takes them to the host.
base="plan llama-3.2-1b --device a100-80 --precision fp32 --micro-batch 1 --engine pytorch:plain --json"
run $base; expect_rc 0; alone=$(json_number allocated_bytes); expect_json 'd["engines"]["pytorch"]["ranks"] == 1 and d["engines"]["pytorch"]["recorded"]'
run $base --ranks 8; expect_rc 0; beside=$(json_number allocated_bytes); expect_json 'd["engines"]["pytorch"]["ranks"] == 8'
run $base --ranks 8 --engine-conf gradient_as_bucket_view=true; expect_rc 0; instead=$(json_number allocated_bytes)
[ "$beside" -gt $((alone + 4000000000)) ] || fail "buckets take no memory beside the gradients"
[ "$instead" -lt $((beside - 2000000000)) ] || fail "gradients that are views of buckets take as much"
# What the switch was called in older scripts.
while IFS='|' read -r old new; do
  run $base --ranks 2 --engine-conf "fsdp=$old"; refuses 2; expect_err "try: $new$"
done <<'WORDS'
full_shard|fsdp=true
full_shard auto_wrap|fsdp=true
full_shard auto_wrap offload|fsdp=true,cpu_offload=true
shard_grad_op|fsdp=true,reshard_after_forward=false
perhaps|one of false, true
WORDS
run $base --ranks 2 --engine-conf fsdp=true; expect_rc 0; two=$(json_number allocated_bytes)
run $base --ranks 8 --engine-conf fsdp=true; expect_rc 0; eight=$(json_number allocated_bytes); expect_json 'd["engines"]["pytorch"]["host_bytes"] == 0'
[ "$two" -lt "$alone" ] && [ "$eight" -lt $((two * 2 / 3)) ] || fail "parts of more ranks are no smaller"
run $base --ranks 8 --engine-conf fsdp=true,cpu_offload=true; expect_rc 0; [ "$(json_number allocated_bytes)" -lt "$eight" ] || fail "offload leaves as much on the device"
expect_json 'd["engines"]["pytorch"]["host_bytes"] > 2e9'
run $base --ranks 8 --precision bf16 --engine-conf zero_stage=2,reduce_bucket_size=20000000; expect_rc 0; small=$(json_number allocated_bytes)
run $base --ranks 8 --precision bf16 --engine-conf zero_stage=2; expect_rc 0; [ "$small" -lt "$(json_number allocated_bytes)" ] || fail "a smaller bucket is no smaller"
run plan llama-3.2-1b --device a100-80 --precision bf16 --engine pytorch --ranks 8 --engine-conf fsdp=true,cpu_offload=true --json; expect_rc 0
expect_json 'not d["engines"]["pytorch"]["recorded"]' 'd["engines"]["pytorch"]["error_high"] >= 0.03'
run plan llama-3.2-1b --device rtx-4090 --precision bf16 --engine pytorch --ranks 8; expect_rc 3; expect_out 'fsdp=True'
run plan llama-3.2-1b --device rtx-4090 --precision bf16 --engine pytorch --ranks 8 --auto --json; expect_rc 0; expect_err 'fsdp=True'
expect_json 'any("bf16=True" in a and "fsdp=True, fsdp_config={" in a for a in d["engines"]["pytorch"]["arguments"])' 'any("--nproc-per-node=8" in a for a in d["engines"]["pytorch"]["arguments"])'
run plan llama-3.2-1b --device a100-80 --precision bf16 --recompute block --engine pytorch --ranks 8 --engine-conf zero_stage=3,offload_optimizer=cpu,offload_param=cpu,reduce_bucket_size=400000000,stage3_prefetch_bucket_size=40000000 --json; expect_rc 0
expect_json 'any("\"stage\": 3" in a and a.endswith("\"zero_force_ds_cpu_optimizer\": False})") for a in d["engines"]["pytorch"]["arguments"])'
run plan llama-3.2-1b --device a100-80 --precision bf16 --engine pytorch:plain --ranks 8 --json; expect_json 'any(a.startswith("DistributedDataParallel(model, find_unused_parameters=False") for a in d["engines"]["pytorch"]["arguments"])'
run plan llama-3.2-1b --device a100-80 --precision bf16 --engine pytorch --ranks 8 --engine-conf transformers=4.49 --json; expect_rc 0; expect_json 'not d["engines"]["pytorch"]["recorded"]'
run plan llama-3.2-1b --device a100-80 --engine pytorch --ranks 8 --engine-conf transformers=4.49,fsdp=true; refuses 2; expect_err 'transformers=5'
run plan llama-3.2-1b --device a100-80 --engine pytorch:trl --ranks 8; refuses 2; expect_err 'fused head'
run plan llama-3.2-1b --device a100-80 --engine pytorch --ranks 4294967294 --engine-conf zero_stage=1; refuses 2; expect_err 'ranks is 4294967294'
run plan llama-3.2-1b --device a100-80 --engine pytorch --ranks 1048576 --engine-conf zero_stage=1 --no-fixes --json; expect_rc 0
run plan llama-3.2-1b --device a100-80 --engine pytorch:axolotl --ranks 8 --json; expect_rc 0; expect_json 'not d["engines"]["pytorch"]["recorded"]'
run plan llama-3.2-1b --device a100-80 --engine pytorch:llama-factory --ranks 8 --engine-conf fsdp=true; refuses 2; expect_err 'plain loop alone'
run plan llama-3.2-1b --device a100-80 --engine pytorch:plain --ranks 8 --engine-conf use_cache=true; refuses 2; expect_err 'use_cache'
run plan gpt2-124m --device rtx-3060 --engine pytorch --engine-conf fsdp=true; refuses 2; expect_err 'fsdp is of several ranks'; expect_err 'ranks 8'
run plan gpt2-124m --device rtx-3060 --engine pytorch --ranks 4 --engine-conf cpu_offload=true; refuses 2; expect_err 'fsdp=true,cpu_offload'
run plan gpt2-124m --device rtx-3060 --engine pytorch --ranks 4 --engine-conf fsdp=true,zero_stage=2; refuses 2; expect_err 'two ways'
run plan gpt2-124m --device rtx-3060 --engine pytorch --ranks 4 --engine-conf fsdp=true,ddp_bucket_cap_mb=25; refuses 2; expect_err 'DistributedDataParallel'
run plan gpt2-124m --device rtx-3060 --engine pytorch --ranks 4 --engine-conf fsdp=true,param_dtype=bf16; refuses 2; expect_err 'pytorch:plain'
run plan gpt2-124m --device rtx-3060 --engine pytorch --ranks 0; refuses 2; expect_err 'ranks'
run plan gpt2-124m --device rtx-3060 --ranks 4; refuses 2; expect_err 'engine pytorch'
# Beside ranks that share: adapters, 4 bits, fp16, frozen tensors, evaluation; what frameworks refuse themselves is said with their reason.
shares="plan llama-3.2-1b --device a100-80 --precision bf16 --micro-batch 2 --ranks 8"
run $shares --lora r=8 --engine pytorch --json; expect_rc 0; own=$(json_number allocated_bytes)
for conf in fsdp=true fsdp=true,fsdp_version=1; do
  run $shares --lora r=8 --engine pytorch --engine-conf $conf --json; expect_rc 0; expect_json 'd["engines"]["pytorch"]["recorded"]'
  [ "$(json_number allocated_bytes)" -lt "$own" ] || fail "$conf shares no frozen weights"
done
run $shares --lora r=8 --engine pytorch --engine-conf zero_stage=3 --json; expect_rc 0; expect_json 'd["engines"]["pytorch"]["recorded"]'
run $shares --lora r=8 --engine pytorch --engine-conf fsdp=true,fsdp_version=1 --json; expect_json 'any("fsdp_config={\"version\": 1}" in a for a in d["engines"]["pytorch"]["arguments"])'
run $shares --engine pytorch --engine-conf fsdp=true,fsdp_version=1,reshard_after_forward=false; refuses 2; expect_err 'FSDP_SHARDING_STRATEGY'
run $shares --lora r=8 --engine pytorch:plain --engine-conf fsdp=true,fsdp_version=1; refuses 2; expect_err 'each adapter a unit'
run plan llama-3.2-1b --device a100-80 --precision fp32 --ranks 8 --lora r=8 --engine pytorch:plain --engine-conf fsdp=true,fsdp_version=1 --json; expect_rc 0; own=$(json_number allocated_bytes)
run plan llama-3.2-1b --device a100-80 --precision fp32 --ranks 8 --lora r=8 --engine pytorch:plain --engine-conf fsdp=true --json; [ "$(json_number allocated_bytes)" -lt "$own" ] || fail "frozen weights of a flat tensor have no gradients"
run $shares --lora r=8,dora --engine pytorch --engine-conf fsdp=true; refuses 2; expect_err 'DoRA'
run $shares --lora r=8 --quantize nf4 --engine pytorch --engine-conf fsdp=true --json; expect_rc 0; own=$(json_number allocated_bytes)
run $shares --lora r=8 --quantize nf4 --engine pytorch --engine-conf fsdp=true,bnb_4bit_quant_storage=bf16 --json; expect_rc 0
[ "$(json_number allocated_bytes)" -lt "$own" ] || fail "codes in bf16 are not shared"
expect_json '"bnb_4bit_quant_storage=torch.bfloat16" in d["engines"]["pytorch"]["arguments"][0]'
run $shares --lora r=8 --quantize nf4 --engine pytorch --engine-conf fsdp=true,fsdp_version=1; refuses 2; expect_err 'integer dtype'
for stage in 2 3; do
  run $shares --lora r=8 --quantize nf4 --engine pytorch --engine-conf zero_stage=$stage --json; expect_rc 0; expect_json 'd["engines"]["pytorch"]["recorded"]'
done
run $shares --lora r=8 --quantize nf4 --engine pytorch --engine-conf zero_stage=3,offload_optimizer=cpu; refuses 2; expect_err 'parts on the host'
run $shares --lora r=8 --quantize nf4 --engine pytorch:plain --engine-conf fsdp=true; refuses 2; expect_err 'pytorch:trainer'
run $shares --lora r=8 --quantize int8 --engine pytorch --engine-conf fsdp=true; refuses 2; expect_err "attribute 'CB'"
run $shares --lora r=8 --engine pytorch --engine-conf fsdp=true,bnb_4bit_quant_storage=bf16; refuses 2; expect_err 'quantize nf4'
run $shares --lora r=8 --quantize nf4 --engine pytorch --engine-conf bnb_4bit_quant_storage=bf16; refuses 2; expect_err 'fsdp=true'
run $shares --freeze embed --engine pytorch --engine-conf fsdp=true,fsdp_version=1 --json; expect_rc 0; expect_json 'd["engines"]["pytorch"]["recorded"]'
run $shares --freeze embed --engine pytorch --engine-conf zero_stage=2 --json; expect_rc 0; expect_json 'd["engines"]["pytorch"]["recorded"]'
run $shares --accumulate 2 --engine pytorch --engine-conf zero_stage=2,offload_optimizer=cpu; expect_rc 0
run $shares --recompute block --engine pytorch --engine-conf fsdp=true,use_reentrant=true --json; expect_rc 0; expect_json 'd["engines"]["pytorch"]["recorded"]'
run plan llama-3.2-1b --device a100-80 --precision fp16 --ranks 8 --engine pytorch --engine-conf fsdp=true; expect_rc 0; expect_out 'fp16=True with GradScaler'
run plan llama-3.2-1b --device a100-80 --precision fp16 --ranks 8 --engine pytorch --engine-conf zero_stage=2 --json; expect_json 'any("\"fp16\": {\"enabled\": True}" in a for a in d["engines"]["pytorch"]["arguments"])'
run plan llama-3.2-1b --device a100-80 --precision fp16 --ranks 8 --engine pytorch --engine-conf fsdp=true,fsdp_version=1; refuses 2; expect_err 'found_inf'
run $shares --lora r=8 --recompute block --engine pytorch --engine-conf use_reentrant=true; refuses 2; expect_err "ready twice"
run $shares --lora r=8 --recompute block --engine pytorch --engine-conf use_reentrant=true,ddp_find_unused_parameters=false; expect_rc 0
run $shares --lora r=8 --recompute block --engine pytorch --json; expect_json 'any("ddp_find_unused_parameters=True" in a for a in d["engines"]["pytorch"]["arguments"])'
run $shares --engine pytorch --engine-conf eval_batches=3,per_device_eval_batch_size=2,compute_metrics=true --no-fixes --json; own=$(json_number evaluate)
run plan llama-3.2-1b --device a100-80 --precision bf16 --micro-batch 2 --ranks 2 --engine pytorch --engine-conf eval_batches=3,per_device_eval_batch_size=2,compute_metrics=true --no-fixes --json
[ "$own" -gt $((2 * $(json_number evaluate))) ] || fail "logits of all ranks are not gathered"

# The verdict knows its error: between what fits surely and what does not there is what fits only within it.
run plan gpt2-124m --device a100-80 --micro-batch 8 --engine pytorch --json --no-fixes; needs=$(json_number need_bytes)
expect_json 'd["engines"]["pytorch"]["verdict"] == "fits" and d["engines"]["pytorch"]["reserve_missing_bytes"] == 0 and d["engines"]["pytorch"]["recorded"]'
run plan gpt2-124m --device a100-80 --micro-batch 8 --engine pytorch --json --no-fixes --budget $((needs * 85 / 100)); expect_rc 3
expect_json 'd["engines"]["pytorch"]["verdict"] == "does_not_fit" and not d["fits"]'
low=$((needs * 85 / 100)); high=$needs
while [ $((high - low)) -gt 1048576 ]; do
  middle=$(((low + high) / 2))
  if "$program" plan gpt2-124m --device a100-80 --micro-batch 8 --engine pytorch --no-fixes --budget "$middle" >/dev/null; then high=$middle; else low=$middle; fi
done
run plan gpt2-124m --device a100-80 --micro-batch 8 --engine pytorch --no-fixes --budget "$high"; expect_rc 0; expect_out '^FITS ONLY WITHIN THE ERROR '; expect_out ' missing$'
run plan gpt2-124m --device a100-80 --micro-batch 8 --engine pytorch --no-fixes --json --budget "$high"; expect_rc 0
expect_json 'd["fits"] and d["engines"]["pytorch"]["verdict"] == "fits_within_error"'; missing=$(json_number reserve_missing_bytes)
run plan gpt2-124m --device a100-80 --micro-batch 8 --engine pytorch --no-fixes --budget $((high + missing)); expect_rc 0; expect_out '^FITS '; ! grep -q 'WITHIN' out || fail "with the reserve that was missing it is not sure"

# --auto: the cheapest settings that fit and nobody gave, as the framework has them.
run plan gpt2-124m --device a100-80 --engine pytorch --auto; expect_rc 0; expect_err 'chose what was asked for'; expect_out '^set +from_pretrained'; expect_out 'TrainingArguments\(per_device_train_batch_size=1'
run plan gpt2-124m --device rtx-3060 --batch-tokens 16384 --engine pytorch --auto --json; expect_rc 0; expect_json 'd["engines"]["pytorch"]["verdict"] == "fits"' 'any("gradient_accumulation_steps=4" in a for a in d["engines"]["pytorch"]["arguments"])'
run plan gpt2-774m --device rtx-3060 --micro-batch 8 --engine pytorch:plain --auto; expect_rc 0; expect_err 'checkpoint'; expect_out 'gradient_checkpointing_enable'; expect_out 'batches of 8 rows'
run plan gpt2-774m --device rtx-3060 --micro-batch 8 --recompute none --precision bf16 --optimizer adamw --engine pytorch --auto; expect_rc 3; expect_err 'none of [0-9]+ choices fits'; expect_out '^DOES NOT FIT'
run plan llama-3-8b --device rtx-4090 --engine pytorch --auto --quiet; expect_rc 3; expect_no_err

# Versions, kernels, optimizers, frozen tensors.
run plan llama-3.2-1b --device a100-80 --micro-batch 2 --engine pytorch --json; own=$(json_number allocated_bytes)
run plan llama-3.2-1b --device a100-80 --micro-batch 2 --engine pytorch --engine-conf transformers=4.46.3 --json; [ "$(json_number allocated_bytes)" -gt "$own" ] || fail "4.46 copies no logits"
expect_json 'd["engines"]["pytorch"]["versions"].endswith("4.46") and any("torch_dtype" in a for a in d["engines"]["pytorch"]["arguments"])'
run plan llama-3.2-1b --device a100-80 --engine pytorch --engine-conf transformers=4.50; refuses 2; expect_err "'4.50' is no transformers"; expect_err '4.49'
run plan qwen3-0.6b --device a100-80 --engine pytorch --engine-conf transformers=4.49; refuses 2; expect_err 'before 4.51'
run plan llama-3.2-1b --device a100-80 --micro-batch 2 --engine pytorch --engine-conf sdpa_kernel=math --json; [ "$(json_number allocated_bytes)" -gt "$own" ] || fail "math makes no scores"
run plan gpt2-124m --device t4 --precision bf16 --micro-batch 2 --engine pytorch; expect_rc 0
run plan llama-3.2-1b --device a100-80 --engine pytorch --packing off --engine-conf sdpa_kernel=flash_attention; refuses 2; expect_err 'without a mask'
run plan llama-3.2-1b --device a100-80 --engine pytorch --engine-conf attn_implementation=flash_attention_2; expect_rc 0; expect_out '^rules +from source, not recorded'
run plan llama-3.2-1b --device a100-80 --engine pytorch --optimizer adafactor; expect_rc 0; expect_out 'Adafactor by transformers'
run plan llama-3.2-1b --device a100-80 --precision bf16 --lora r=8 --engine pytorch:llama-factory --ranks 2 --engine-conf gradient_as_bucket_view=true; refuses 2; expect_err 'gradient_as_bucket_view'
run plan llama-3.2-1b --device a100-80 --engine pytorch --optimizer adafactor --engine-conf optim=sgd; refuses 2; expect_err 'adafactor and --engine-conf name two'
run plan llama-3.2-1b --device a100-80 --engine pytorch --optimizer adamw --engine-conf optim=paged_adamw_8bit; expect_rc 0
run plan llama-3.2-1b --device a100-80 --engine pytorch:plain --optimizer adafactor; expect_rc 0; expect_out 'Adafactor by torch'
run plan llama-3.2-1b --device a100-80 --micro-batch 2 --engine pytorch --freeze embed --json; [ "$(json_number allocated_bytes)" -lt "$own" ] || fail "frozen embeddings cost as much"
run plan llama-3.2-1b --device a100-80 --engine pytorch --freeze embed --recompute block --engine-conf use_reentrant=true; refuses 2; expect_err 'frozen embeddings'
run plan llama-3.2-1b --device a100-80 --engine pytorch --lora r=8,targets=q_proj,dora; expect_rc 0; expect_out "DoRA's adapters"
run plan llama-3-8b --device a100-80 --engine pytorch --lora r=8,modules_to_save=lm_head; expect_rc 0; expect_out 'whole modules'
run plan llama-3.2-1b --device t4 --precision fp16 --quantize int8 --lora r=8 --recompute block --engine pytorch; expect_rc 0; expect_out 'base in 8 bits'; expect_out 'no outliers'
run plan gpt2-124m --device a100-80 --quantize int8 --lora r=8 --precision bf16 --engine pytorch; refuses 2; expect_err '8-bit weights of this family'
run plan gpt2-124m --device a100-80 --quantize nf4 --lora r=8 --precision bf16 --engine pytorch; expect_rc 0
run plan gpt2-124m --device a100-80 --engine pytorch --engine-conf use_cache=true; refuses 2; expect_err 'pytorch:plain'
run plan gpt2-124m --device a100-80 --micro-batch 4 --engine pytorch:plain --json; own=$(json_number allocated_bytes)
run plan gpt2-124m --device a100-80 --micro-batch 4 --engine pytorch:plain --engine-conf use_cache=true --json; [ "$(json_number allocated_bytes)" -gt "$own" ] || fail "use_cache costs nothing"
run plan gpt2-124m --device a100-80 --engine pytorch --engine-conf eval_batches=3,eval_strategy=steps,predict=true; expect_rc 0; expect_out 'predict'; expect_out 'between steps'
run plan gpt2-124m --device a100-80 --engine pytorch --engine-conf resume_from_checkpoint=true --json; expect_rc 0; expect_out 'resumed from a checkpoint'; expect_json '"trainer.train(resume_from_checkpoint=True)" in d["engines"]["pytorch"]["arguments"]'
run plan gpt2-124m --device a100-80 --optimizer sgd --engine pytorch --engine-conf resume_from_checkpoint=true; refuses 2; expect_err 'AdamW'
run plan llama-3-8b --device a100-80 --quantize int8 --lora r=8,dora,modules_to_save=lm_head --engine pytorch --json; expect_json '"load_in_8bit=True" in d["engines"]["pytorch"]["arguments"][0]' '"use_dora=True, modules_to_save=[\"lm_head\"]" in d["engines"]["pytorch"]["arguments"][1]'
run plan llama-3-8b --device a100-80 --quantize nf4 --lora r=8 --engine pytorch:axolotl --json; expect_json '"adapter: qlora" in d["engines"]["pytorch"]["arguments"]' 'any("bnb_4bit_use_double_quant: false" in a for a in d["engines"]["pytorch"]["arguments"])'
run plan llama-3-8b --device a100-80 --quantize nf4+dq --lora r=8 --engine pytorch:llama-factory --json; expect_json '{"quantization_bit: 4", "finetuning_type: lora"} <= set(d["engines"]["pytorch"]["arguments"])'
run plan gpt2-124m --device a100-80 --engine pytorch --engine-conf predict=true; refuses 2; expect_err 'eval_batches is missing'

# Liger's kernels: no logits, and what its head holds from the forward on; where there are none it is said.
liger="plan llama-3.2-1b --device h100 --precision bf16 --micro-batch 8 --seq 1024"
run $liger --engine pytorch --json; expect_rc 0; own=$(json_number allocated_bytes)
run $liger --engine pytorch --engine-conf use_liger_kernel=true --json; expect_rc 0; [ $((10 * $(json_number allocated_bytes))) -lt $((7 * own)) ] || fail "Liger's kernels save less than logits take"
expect_json 'd["engines"]["pytorch"]["recorded"]' 'any("use_liger_kernel=True" in a for a in d["engines"]["pytorch"]["arguments"])'
run $liger --engine pytorch:plain --engine-conf use_liger_kernel=true --json; expect_rc 0; expect_json '"apply_liger_kernel_to_llama(model=model)" in d["engines"]["pytorch"]["arguments"]'
run $liger --engine pytorch --engine-conf use_liger_kernel=false --json; [ "$(json_number allocated_bytes)" -eq "$own" ] || fail "use_liger_kernel=false is not what nobody says"
run $liger --engine pytorch --engine-conf use_liger_kernel=true; expect_out 'liger-kernel 0\.8\.5'; ! grep -q 'not chunked' out || fail "a fused loss is called whole"
run $liger --quantize nf4 --lora r=8 --engine pytorch --engine-conf use_liger_kernel=true --json; expect_rc 0; expect_json 'd["engines"]["pytorch"]["recorded"]'
run $liger --engine pytorch --engine-conf use_liger_kernel=yes; refuses 2; expect_err "'yes' is no use_liger_kernel"
run plan gpt2-124m --device a100-80 --engine pytorch --engine-conf use_liger_kernel=true; refuses 2; expect_err "gpt2"; expect_err 'gemma3_text'
run $liger --engine pytorch:trl --engine-conf use_liger_kernel=true; refuses 2; expect_err 'own head'
run $liger --engine pytorch --ranks 4 --engine-conf use_liger_kernel=true --json; expect_rc 0; expect_json 'd["engines"]["pytorch"]["recorded"]'
run $liger --engine pytorch --engine-conf use_liger_kernel=true,eval_batches=3 --json; expect_rc 0; own=$(json_number evaluate)
run $liger --engine pytorch --engine-conf use_liger_kernel=true,eval_batches=3,compute_metrics=true --json; [ "$(json_number evaluate)" -gt $((own + 8 * 1024 * 128256 * 4)) ] || fail "an evaluation with compute_metrics has no logits"
run $liger --engine pytorch --ranks 4 --engine-conf use_liger_kernel=true,fsdp=true; refuses 2; expect_err 'use_liger_kernel=true under fsdp=true'
run $liger --engine pytorch --engine-conf use_liger_kernel=true,transformers=4.57; refuses 2; expect_err 'transformers=5'
run plan llama-3-8b --device h100 --lora r=8,modules_to_save=lm_head --engine pytorch --engine-conf use_liger_kernel=true; refuses 2; expect_err 'modules_to_save'

# Stacks by name, with their defaults: what is from their source alone says so, and allows for a larger error.
for stack in axolotl llama-factory; do
  run plan llama-3.2-1b --device a100-80 --micro-batch 4 --engine pytorch:$stack --json; expect_rc 0; expect_json 'd["engines"]["pytorch"]["recorded"] and d["engines"]["pytorch"]["error_high"] < 0.01'
  run plan llama-3.2-1b --device a100-80 --micro-batch 4 --engine pytorch:$stack --packing off --auto --quiet; expect_rc 0; expect_out '^rules +from source, not recorded'
  run plan llama-3.2-1b --device a100-80 --engine pytorch:$stack --engine-conf eval_batches=2 --json; expect_json 'not d["engines"]["pytorch"]["recorded"] and d["engines"]["pytorch"]["error_high"] >= 0.03'
  run plan gpt2-124m --device a100-80 --engine pytorch:$stack --json; expect_json 'not d["engines"]["pytorch"]["recorded"]'
  run plan llama-3.2-1b --device a100-80 --micro-batch 4 --engine pytorch:$stack --engine-conf use_liger_kernel=true --json; expect_rc 0; expect_json 'd["engines"]["pytorch"]["recorded"]' 'any("iger" in a for a in d["engines"]["pytorch"]["arguments"])'
done
# axolotl: expandable segments by itself, LoRA kernels unless they are turned off, no way without autocast.
axolotl="plan llama-3.2-1b --device rtx-4090 --precision bf16 --micro-batch 4 --engine pytorch:axolotl"
run $axolotl --json; expect_rc 0; own=$(json_number reserved_bytes); expect_out 'expandable_segments:True'
run $axolotl --alloc-conf "" --json; [ "$(json_number reserved_bytes)" -ne "$own" ] || fail "settings of the allocator that are given are not taken"
run $axolotl --lora r=16,targets=all-linear --json; expect_rc 0; own=$(json_number allocated_bytes); expect_out "LoRA kernels \(mlp, qkv, o\)"; expect_json 'not any("kernel" in a for a in d["engines"]["pytorch"]["arguments"])'
run $axolotl --lora r=16,targets=all-linear --engine-conf lora_mlp_kernel=false --json; expect_rc 0; [ "$(json_number allocated_bytes)" -gt "$own" ] || fail "without LoRA kernels as much is kept"
expect_json '"lora_mlp_kernel: false, lora_qkv_kernel: false, lora_o_kernel: false, lora_embedding_kernel: false" in d["engines"]["pytorch"]["arguments"]'
run $axolotl --lora r=16 --engine-conf lora_qkv_kernel=true; expect_rc 0; expect_out 'LoRA kernels \(qkv\)'
run $axolotl --lora r=16 --quantize int8; expect_rc 0; ! grep -q 'LoRA kernels' out || fail "LoRA kernels beside 8 bits"
run $axolotl --lora r=16 --quantize int8 --engine-conf lora_o_kernel=true; refuses 2; expect_err '8-bit'
run $axolotl --lora r=16,dora; refuses 2; expect_err 'DoRA'; expect_err 'lora_mlp_kernel=false'
run $axolotl --engine-conf lora_o_kernel=true; refuses 2; expect_err '\-\-lora'
run plan phi-3-mini --device a100-80 --lora r=8 --engine pytorch:axolotl; refuses 2; expect_err 'fused q, k and v'
run plan phi-3-mini --device a100-80 --lora r=8 --engine pytorch:axolotl --engine-conf lora_qkv_kernel=false; expect_rc 0
run $axolotl --precision bf16-pure; refuses 2; expect_err 'precision bf16'
run $axolotl --precision fp16; refuses 2; expect_err 'GradScaler'
run plan llama-3.2-1b --device a100-80 --lora r=8 --engine pytorch --engine-conf lora_o_kernel=false; refuses 2; expect_err 'pytorch:axolotl'
# Documents that share rows: varlen_attn beside adapters, a mask of each layer's own for whole models.
run $axolotl --lora r=16 --json; own=$(json_number allocated_bytes)
run $axolotl --lora r=16 --engine-conf sample_packing=true --json; expect_rc 0; [ "$(json_number allocated_bytes)" -gt "$own" ] || fail "repeated keys and values cost nothing"
expect_json 'd["engines"]["pytorch"]["recorded"]' '"sample_packing: true" in d["engines"]["pytorch"]["arguments"]' '"four documents" in d["engines"]["pytorch"]["unlike"]'
run plan mistral-7b --device h100 --engine pytorch:axolotl --engine-conf sample_packing=true; refuses 2; expect_err 'sliding window'
run plan llama-3.2-1b --device t4 --precision fp16 --lora r=8 --engine pytorch:axolotl --engine-conf sample_packing=true; refuses 2; expect_err '8\.0'
run plan llama-3.2-1b --device h100 --engine pytorch --engine-conf sample_packing=true; refuses 2; expect_err 'pytorch:axolotl'
# LLaMA-Factory: norms in fp32 beside adapters; blocks in which nothing trains are not checkpointed, and what is frozen keeps 16 bits.
factory="plan llama-3.2-1b --device rtx-4090 --precision bf16 --micro-batch 4 --engine pytorch:llama-factory"
run $factory --lora r=16 --recompute none --json; expect_rc 0; own=$(json_number allocated_bytes)
run $factory --lora r=16 --recompute none --engine-conf upcast_layernorm=true --json; expect_rc 0; [ "$(json_number allocated_bytes)" -gt "$own" ] || fail "norms in fp32 cost nothing"
expect_json '"upcast_layernorm: true" in d["engines"]["pytorch"]["arguments"]' 'd["engines"]["pytorch"]["recorded"]'
run $factory --precision bf16-pure --engine-conf upcast_layernorm=true; refuses 2; expect_err 'without autocast'
run $axolotl --engine-conf upcast_layernorm=true; refuses 2; expect_err 'llama-factory'
run $factory --train-only 'layers.15' --json; expect_rc 0; expect_out 'what trains in fp32'; expect_json 'd["engines"]["pytorch"]["recorded"] and d["model"]["trainable_parameter_count"] < d["model"]["parameter_count"] / 10'
# What people know by name and there are no rules for says what to do instead; what is said twice is refused.
# Neither looks for unused parameters beside adapters, which the Trainer does.
run $factory --lora r=8 --ranks 4 --json; expect_rc 0; expect_json '"with find_unused" not in str(d["engines"]["pytorch"])'
run $axolotl --lora r=8 --recompute block --ranks 4 --json; expect_rc 0; expect_json '"with find_unused" not in str(d["engines"]["pytorch"])'
run $factory --lora r=8 --ranks 4 --engine-conf ddp_find_unused_parameters=true,use_reentrant=false,ddp_bucket_cap_mb=50 --json; expect_rc 0; expect_json '"ddp_find_unused_parameters: true" in d["engines"]["pytorch"]["arguments"] and "ddp_bucket_cap_mb: 50" in d["engines"]["pytorch"]["arguments"]'
run $factory --ranks 4 --recompute none --json; expect_rc 3; expect_json '"with find_unused" in str(d["engines"]["pytorch"])'
run $factory --engine-conf use_unsloth=true; refuses 2; expect_err 'no rules for use_unsloth'
run $axolotl --engine-conf cut_cross_entropy=true; refuses 2; expect_err 'no rules for cut_cross_entropy'; expect_err 'use_liger_kernel=true'
run $factory --engine-conf flash_attn=sdpa; refuses 2; expect_err 'flash_attn has another name here'; expect_err 'attn_implementation=sdpa'
run $factory --engine-conf pure_bf16=true; refuses 2; expect_err 'precision bf16-pure'
run $axolotl --engine-conf load_in_4bit=true; refuses 2; expect_err 'quantize nf4'
run $factory --engine-conf optim=sgd,optim=adafactor; refuses 2; expect_err 'optim is named twice'
run plan llama-3.2-1b --device a100-80 --engine pytorch:trl --json; expect_json 'd["engines"]["pytorch"]["recorded"] and d["engines"]["pytorch"]["error_high"] < 0.01'
run plan llama-3.2-1b --device a100-80 --engine pytorch:trl --engine-conf eval_batches=2,compute_metrics=true; refuses 2; expect_err 'logits of an evaluation'
run plan llama-3.2-1b --device a100-80 --engine pytorch:trl --engine-conf transformers=4.57 --json; expect_json 'not d["engines"]["pytorch"]["recorded"]'
run plan llama-3.2-1b --device a100-80 --lora r=8 --quantize nf4 --engine pytorch:trl; expect_out 'by PEFT in bf16|in bf16'
run plan llama-3.2-1b --device a100-80 --engine pytorch:trl; expect_out 'gradient checkpointing, .*'; expect_out 'fused head'; expect_out 'trl 1.16'
run plan llama-3.2-1b --device a100-80 --engine pytorch:trl --recompute none; ! grep -q 'gradient checkpointing' out || fail "--recompute none is not taken"
run plan llama-3.2-1b --device a100-80 --engine pytorch:llama-factory; expect_out 'use_reentrant'
run plan llama-3.2-1b --device a100-80 --engine pytorch:llama-factory --engine-conf use_reentrant=false; ! grep -q 'use_reentrant' out || fail "use_reentrant=false is not taken"
run plan llama-3.2-1b --device a100-80 --engine pytorch:axolotl --auto --quiet; expect_out 'micro_batch_size: 1'; expect_out 'bf16 weights'; expect_out 'head and norms in fp32'
run plan llama-3.2-1b --device a100-80 --recompute block --engine pytorch --engine-conf transformers=4.49; expect_out 'use_reentrant'

# torchtune's recipes: settings by the keys of their configurations, each of which changes the bytes as it should or is refused.
tune="plan llama-3.2-1b --device a100-80 --micro-batch 4 --engine pytorch:torchtune --json"
run $tune; expect_rc 0; own=$(json_number allocated_bytes); weights=$((1235814400 * 2))
expect_json 'd["engines"]["pytorch"]["recorded"]' '"torchtune 0.6" in d["engines"]["pytorch"]["versions"]' 'd["engines"]["pytorch"]["unlike"].startswith("weights, gradients and states are bf16")'
expect_json '{"tune run full_finetune_single_device", "dtype=bf16", "batch_size=4", "optimizer._component_=torch.optim.AdamW", "optimizer.fused=True", "optimizer_in_bwd=False", "clip_grad_norm=null", "enable_activation_checkpointing=False", "loss.num_output_chunks=8"} <= set(d["engines"]["pytorch"]["arguments"])'
run $tune --precision fp32; [ "$(json_number allocated_bytes)" -gt $((own * 3 / 2)) ] || fail "fp32 is not twice bf16"; expect_json '"dtype=fp32" in d["engines"]["pytorch"]["arguments"]'
run $tune --recompute block; [ "$(json_number allocated_bytes)" -lt $((own * 9 / 10)) ] || fail "checkpointing saves nothing"; expect_json '"enable_activation_checkpointing=True" in d["engines"]["pytorch"]["arguments"]'
small="plan llama-3.2-1b --device a100-80 --seq 128 --recompute block --engine pytorch:torchtune --json"
run $small; whole=$(json_number allocated_bytes)
run $small --update in-backward; [ "$(json_number allocated_bytes)" -lt $((whole - weights / 3)) ] || fail "gradients wait although the optimizer steps in the backward"
expect_json '"optimizer_in_bwd=True" in d["engines"]["pytorch"]["arguments"]'
run $tune --engine-conf optimizer._component_=bitsandbytes.optim.PagedAdamW8bit; [ "$(json_number allocated_bytes)" -lt $((own - weights)) ] || fail "paged states are on the device"
run $small --engine-conf optimizer.fused=False; [ "$(json_number allocated_bytes)" -gt $((whole + weights / 2)) ] || fail "a list of square roots takes nothing"
run $tune --engine-conf loss._component_=torch.nn.CrossEntropyLoss; [ "$(json_number allocated_bytes)" -gt "$own" ] || fail "whole logits take no more"; expect_json '"loss._component_=torch.nn.CrossEntropyLoss" in d["engines"]["pytorch"]["arguments"]'
run $tune --clip 1; expect_json '"clip_grad_norm=1" in d["engines"]["pytorch"]["arguments"]'
run $tune --accumulate 4; expect_json '"gradient_accumulation_steps=4" in d["engines"]["pytorch"]["arguments"]'
run $tune --lora r=16,targets=q_proj,v_proj,o_proj; expect_rc 0; lora=$(json_number allocated_bytes); [ "$lora" -lt "$own" ] || fail "adapters train as much"
expect_json '{"tune run lora_finetune_single_device", "model.lora_attn_modules=[q_proj,v_proj,output_proj]", "model.apply_lora_to_mlp=False", "model.lora_rank=16"} <= set(d["engines"]["pytorch"]["arguments"])'
run plan llama-3-8b --device rtx-4090 --lora r=16,targets=all-linear --quantize nf4+dq --recompute block --engine pytorch:torchtune --json; expect_rc 0; expect_json 'd["model"]["parameter_count"] == 8030261248 + d["model"]["trainable_parameter_count"]' '"NF4Tensor" in d["engines"]["pytorch"]["settings"]' '"model.apply_lora_to_mlp=True" in d["engines"]["pytorch"]["arguments"]'
run plan llama-3.2-3b --device rtx-4090 --seq 4096 --micro-batch 4 --precision bf16-pure --engine pytorch:torchtune --fixes --json; expect_rc 3
expect_json 'any("enable_activation_checkpointing=True" in f["options"] for f in d["fixes"])' 'not any("TrainingArguments" in f["options"] or "fsdp" in f["options"] for f in d["fixes"])'
inward="--recompute block --update in-backward --engine-conf optimizer._component_=bitsandbytes.optim.PagedAdamW8bit"
run plan llama-3.1-8b --device rtx-4090 --precision bf16-pure --micro-batch 2 --engine pytorch:torchtune --json; expect_rc 3; expect_json "any(f['plan_options'] == '$inward' for f in d['fixes'])"
run plan llama-3.1-8b --device rtx-4090 --precision bf16-pure --micro-batch 2 --engine pytorch:torchtune $inward; expect_rc 0
run plan llama-3.1-8b --device rtx-4090 --precision bf16-pure --engine pytorch:torchtune --auto --json; expect_rc 0
expect_json 'd["engines"]["pytorch"]["verdict"] == "fits"' 'any("PagedAdamW8bit" in a or "optimizer_in_bwd=True" in a for a in d["engines"]["pytorch"]["arguments"])'
run plan llama-3.2-1b --device rtx-4090 --engine pytorch:torchtune --table seq,micro-batch; expect_rc 0
refused() { run $tune "${@:2}"; refuses 2; expect_err "$1"; }
refused 'enable_activation_offloading=True' --engine-conf enable_activation_offloading=True
run $tune --engine-conf dataset.packed=True; expect_rc 0; [ "$(json_number allocated_bytes)" -gt "$own" ] || fail "positions of packed rows take nothing"; expect_json '"dataset.packed=True" in d["engines"]["pytorch"]["arguments"]'
run plan gemma-2-2b --device a100-80 --engine pytorch:torchtune --engine-conf dataset.packed=True; refuses 2; expect_err 'takes no block masks'
refused 'compile=True' --engine-conf compile=True
run $tune --engine-conf compile=False,dataset.packed=False; expect_rc 0; [ "$(json_number allocated_bytes)" = "$own" ] || fail "defaults that are said change something"
refused '--micro-batch N stands for it' --engine-conf batch_size=2
refused 'optimizer._component_' --engine-conf optim=adamw_torch
refused 'AdamW8bit, ' --engine-conf optimizer._component_=torch.optim.Adam
refused '1 to 32' --engine-conf loss.num_output_chunks=40
refused 'optimizer._component_ is named twice' --engine-conf optimizer._component_=torch.optim.SGD,optimizer._component_=torch.optim.AdamW
refused 'optimizer sgd and optimizer.fused' --optimizer sgd --engine-conf optimizer.fused=True
refused 'is of CEWithChunkedOutputLoss' --engine-conf loss._component_=torch.nn.CrossEntropyLoss,loss.num_output_chunks=4
refused 'ranks' --ranks 2
refused 'fp16' --precision fp16
run $tune --lora r=8,dora; expect_rc 0; expect_json '"model.use_dora=True" in d["engines"]["pytorch"]["arguments"]'
run plan gemma-2b --device a100-80 --engine pytorch:torchtune --json; expect_rc 0; expect_json 'd["engines"]["pytorch"]["recorded"]'
refused 'all three products' --lora r=8,targets=q_proj,up_proj
refused 'nf4\+dq' --lora r=8 --quantize int8
refused 'optimizer' --optimizer lion
refused 'freeze' --freeze embed
run plan qwen3-0.6b --device a100-80 --engine pytorch:torchtune; refuses 2; expect_err 'llama, mistral, qwen2, phi3, gemma and gemma2'
run plan llama-3-8b --device a100-80 --seq 16384 --engine pytorch:torchtune; refuses 2; expect_err 'max_seq_len'
run plan llama-3.2-1b --device t4 --precision bf16-pure --engine pytorch:torchtune; refuses 2; expect_err 'below compute capability 8\.0'
run plan llama-3.2-1b --device a100-80 --engine pytorch --engine-conf optimizer.fused=True; refuses 2; expect_err 'no setting'

# What there are no rules for is refused by name.
run plan llama-3.2-1b --device rtx-4090 --engine pytorch --optimizer lion; refuses 2; expect_err 'optimizer'
for model in gemma-2b smollm3-3b granite-3.1-2b olmo-2-1b stablelm-3b phi-2; do
  run plan "$model" --device h200 --engine pytorch; refuses 2; expect_err 'no rules for the family'
done
run plan phi-2 --device h200 --json; expect_json '"engines" not in d'
run plan llama-3.2-1b --engine pytorch; refuses 2; expect_err "NVIDIA"
run plan llama-3.2-1b --device t4 --precision bf16 --engine pytorch --engine-conf sdpa_kernel=efficient_attention; refuses 2; expect_err 'no bf16 below 8\.0'; expect_err 'sdpa_kernel=math'
run plan llama-3.2-1b --device rtx-4090 --engine pytorch --quantize nf4 --lora r=8 --precision fp32; refuses 2; expect_err '16 bits'
run plan gpt2-124m --device a100-80 --engine pytorch --dump program; refuses 2; expect_err "Headroom's own plans"
# Its course: a chart with both steps and the budget, and in JSON each request; the highest moments are the figures.
run plan gpt2-124m --device a100-80 --engine pytorch --timeline; expect_rc 0; expect_out 'step 1'; expect_out 'step 2'; expect_out 'request by request'
run plan gpt2-124m --device a100-80 --engine pytorch --timeline --json; expect_rc 0
expect_json 'max(m["allocated_bytes"] for m in d["timeline"]) == d["engines"]["pytorch"]["allocated_bytes"]' \
  'max(m["reserved_bytes"] for m in d["timeline"]) == d["engines"]["pytorch"]["reserved_bytes"]' \
  'all(m["allocated_bytes"] <= m["reserved_bytes"] for m in d["timeline"])' '{m["step"] for m in d["timeline"]} == {1, 2}'
run plan llama-3.2-1b --device a100-80 --engine pytorch --lora r=8,bias=all; refuses 2; expect_err 'no bias'
run plan gpt2-124m --device a100-80 --engine torch; refuses 2; expect_err 'pytorch'

run plan gpt2-124m --device rtx-3060 --engine pytorch --micro-batch auto --json; expect_rc 0; expect_json 'd["engines"]["pytorch"]["verdict"] == "fits"'
rows=$(grep -oE "per_device_train_batch_size=[0-9]+" "$work/out" | grep -oE "[0-9]+$" | head -1)
run plan gpt2-124m --device rtx-3060 --engine pytorch --micro-batch "$rows"; expect_rc 0; expect_out '^FITS  '
run plan gpt2-124m --device rtx-3060 --engine pytorch --micro-batch $((rows + 1)) --json; expect_json 'd["engines"]["pytorch"]["verdict"] != "fits" or d["engines"]["pytorch"]["retries"]'
run plan gpt2-124m --device rtx-3060 --engine pytorch --micro-batch auto --batch-tokens 65536; expect_rc 0; expect_out 'micro-batch 4 \(chosen\) x accumulate 16'
run plan llama-3-8b --device t4 --engine pytorch --micro-batch auto; expect_rc 3; expect_out 'micro-batch 1 \(chosen\)'
# Settings of the allocator are tried with every change, however long they are.
long=$(for i in $(seq 0 15); do echo -n "$((1 << i)):8,"; done)
long="garbage_collection_threshold:0.8,roundup_power2_divisions:[$long>:8],max_split_size_mb:512,pinned_use_cuda_host_register:True,pinned_num_register_threads:8"
run plan gpt2-124m --device rtx-3060 --micro-batch 32 --engine pytorch --alloc-conf "$long" --json; expect_rc 3; expect_no_err
expect_json 'len(d["fixes"]) > 1' 'all("pinned_num_register_threads:8" in f["plan_options"] for f in d["fixes"] if "alloc-conf" in f["plan_options"])'
run plan gpt2-124m --device rtx-4090; expect_rc 0; expect_out "^pytorch +with Trainer would need [0-9.]+ GiB"
run plan gpt2-124m --device rtx-4090 --json; expect_rc 0; expect_json 'd["engines"]["pytorch"]["allocated_bytes"] > d["tiers"]["device"]["reserved_bytes"]'
run plan gpt2-124m --device mi300x --json; expect_rc 0; expect_json '"engines" not in d'
run plan micro-llama-bytes --threads 1 --json; expect_rc 0; expect_json '"engines" not in d'
finish
