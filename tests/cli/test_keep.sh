#!/usr/bin/env bash
# --quantize keep: a GGUF file's blocks through plan, train, resume, evaluate, generate, merge; refusals.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$1"

for k in $(seq 400); do echo "line $k: memory is planned to the byte, $((k * k)) of them"; done >text.txt
run train custom:layers=2,hidden=64,heads=2,mlp=128,family=llama,vocab=257 --data text.txt --seq 32 --steps 20 --lr 3e-3 --out base --quiet; expect_rc 0
run convert base/final base.gguf --type q8_0; expect_rc 0
rows="--data text.txt --seq 32 --micro-batch 2"
# OUT OPTION...: adapters beside base.gguf
adapt() {
  local out=$1
  shift
  run train base.gguf $rows --schedule constant --lr 1e-3 --quiet --check --out "$out" --lora r=4,alpha=8,dropout=0.1,targets=all-linear "$@"
  expect_rc 0; expect_out 'equal to the byte'
}
# What a file of adapters holds behind its head, which says beside what it was trained.
tensors() { python3 -c 'import sys; b = open(sys.argv[1], "rb").read(); sys.stdout.buffer.write(b[8 + int.from_bytes(b[:8], "little"):])' "$1/final/adapter_model.safetensors"; }
expect_absent() { [ ! -e "$1" ] || fail "$1 is there"; }
same() { [ -z "$have_python" ] || cmp -s <(tensors "$1") <(tensors "$2") || fail "$1 and $2 differ"; }
loss_of() { run "$@" --data text.txt --seq 32 --quiet --json; expect_rc 0; grep -oE '"loss": [0-9.]+' "$work/out"; }

for precision in fp32 bf16 fp16; do
  adapt "plain-$precision" --precision $precision --steps 6
  adapt "kept-$precision" --precision $precision --steps 6 --quantize keep --recompute block --threads 1
  same "plain-$precision" "kept-$precision"
done
grep -aq '"headroom.quantization":"keep"' kept-bf16/final/adapter_model.safetensors || fail 'the adapter does not say beside what it was trained'

# A run that goes on, and none beside another file.
adapt half --precision bf16 --steps 3 --quantize keep
run train --resume half --steps 6 --quiet; expect_rc 0
same half kept-bf16
run train --resume half --steps 7 --quantize none --quiet; refuses 2
cp base.gguf kept.gguf
run convert base/final base.gguf --type q8_0 --force; expect_rc 0
run train --resume half --steps 7 --quiet; expect_rc 0
python3 - <<'END' 2>/dev/null || true
b = bytearray(open("base.gguf", "rb").read()); b[-3] ^= 1; open("base.gguf", "wb").write(b)
END
[ -z "$have_python" ] || { run train --resume half --steps 8 --allow-different tokenizer --quiet; refuses 5; expect_err 'base.gguf is not the file that the adapters'; }
cp kept.gguf base.gguf

# The function is the file's, with adapters and without.
[ "$(loss_of evaluate base.gguf --quantize keep)" = "$(loss_of evaluate base.gguf)" ] || fail 'kept blocks evaluate otherwise'
[ "$(loss_of evaluate kept-fp32/final --quantize keep)" = "$(loss_of evaluate kept-fp32/final)" ] || fail 'kept blocks evaluate otherwise beside adapters'
run generate kept-fp32/final --quantize keep --prompt 'line 1' --max-tokens 12 --temperature 0 --json; expect_rc 0
cp "$work/out" kept.text
run generate kept-fp32/final --prompt 'line 1' --max-tokens 12 --temperature 0 --json; expect_rc 0
[ "$(grep -o '"text": .*' "$work/out")" = "$(grep -o '"text": .*' kept.text)" ] || fail 'kept blocks generate another text'

# The need is exact: one byte less is refused, and nothing is made.
run plan base.gguf --seq 32 --lora r=4 --quantize keep --precision bf16 --json; expect_rc 0
need=$(json_number need_bytes)
expect_json 'd["tiers"]["device"]["max_by_role"]["quantization"] == 2 * (64 * 64 * 4 + 3 * 64 * 128) // 32 * 34'
run train base.gguf --data text.txt --seq 32 --steps 1 --lora r=4 --quantize keep --precision bf16 --budget "$need" --quiet --out exact; expect_rc 0
run train base.gguf --data text.txt --seq 32 --steps 1 --lora r=4 --quantize keep --precision bf16 --budget "$((need - 1))" --quiet --out less; expect_rc 3
[ ! -e less ] || fail 'a refused run left something'

# Merged onto the file's values it is the function that was trained; a directory has no blocks to go back to.
run convert base.gguf values --type f32; expect_rc 0
run merge values kept-fp32/final --out merged; expect_rc 0; expect_err 'trained beside the blocks of a GGUF file'
run merge values kept-fp32/final --out never --onto dequantized; refuses 2; expect_err 'a directory does not have'; expect_absent never
run merge values kept-fp32/final --out compared --data text.txt --seq 32 --json; expect_rc 0
expect_json 'd["trained_beside"] == "keep" and abs(d["trained_loss"] - d["merged_loss"]) < 1e-5'

run plan values --quantize keep --lora r=4; refuses 2; expect_err 'a model that is no GGUF file'
run train base.gguf $rows --quantize keep --out never; refuses 2; expect_err 'quantized weights have no gradient'
run convert values never --quantize keep; refuses 2; expect_err 'not one of'; expect_absent never
finish
