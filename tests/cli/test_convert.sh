#!/usr/bin/env bash
# headroom convert: both directions, what it prints, what it refuses, and that nothing half-written stays.
source "$(dirname "$0")/common.sh"
data=$(cd "$here/../gguf" && pwd)

expect_same() { cmp -s "$1" "$2" || fail "$1 and $2 differ"; }
expect_absent() { [ ! -e "$1" ] && [ ! -e "$1.tmp" ] && [ ! -e "$1.old" ] || fail "$1 or something beside it was left"; }

# There and back: the weights are those that transformers saved.
for family in llama gpt2 qwen2 gemma3 phi3-longrope; do
  run convert "$data/$family" "$family.gguf"; expect_rc 0; expect_out '^Hugging Face \(bf16\) to GGUF \(bf16\): [0-9]+ tensors'
  expect_err 'note: the directory has no tokenizer: the file gets none'
  run convert "$family.gguf" "$family-back"; expect_rc 0; expect_out '^GGUF \(bf16\) to Hugging Face \(bf16\)'
  expect_same "$data/$family/model.safetensors" "$family-back/model.safetensors"
  [ -s "$family-back/config.json" ] && [ -s "$family-back/generation_config.json" ] || fail "$family-back lacks a file"
done

# A GGUF file is a model like any other.
run plan llama.gguf --micro-batch 1 --seq 16; expect_rc 0; expect_out 'FITS'

# With tokenizer and template.
cp -r llama-back chat
sed -i 's/"vocab_size": 37/"vocab_size": 400/' chat/config.json
run convert chat chat.gguf; expect_rc 5; expect_err 'embed_tokens.weight'; expect_absent chat.gguf
cp -r llama-back bytes
cp "$data/tokenizers/gpt2.json" bytes/tokenizer.json
run convert bytes bytes.gguf; expect_rc 5; expect_err 'the tokenizer has [0-9]+ tokens, the model.s vocabulary 37'; expect_absent bytes.gguf
run convert bytes bytes.gguf --without-tokenizer; expect_rc 0; expect_no_err

run convert llama-back typed.gguf --type q8_0 --json; expect_rc 0; expect_no_err
expect_json 'd["from"] == "Hugging Face"' 'd["type"] == "q8_0"' 'd["source_type"] == "bf16"' 'd["tokens"] == 0' 'd["tensors"] == 21'

# Targets: never overwritten unasked, and replaced whole.
run convert llama-back typed.gguf; refuses 2; expect_err 'typed.gguf exists'; expect_err '--force'
run convert llama-back typed.gguf --force --type f16; expect_rc 0
run convert typed.gguf llama-back; refuses 2; expect_err 'llama-back exists'
touch llama-back/stale
run convert typed.gguf llama-back/ --force --type f32; refuses 2; expect_err 'llama-back/ holds stale: it is not only a model'
rm llama-back/stale
touch llama-back/merges.txt
run convert typed.gguf llama-back/ --force --type f32; expect_rc 0
[ ! -e llama-back/merges.txt ] || fail "the directory that stood there was not replaced"
ls -d .headroom-* *.replaced* 2>/dev/null && fail "something beside the target was left"
run convert typed.gguf none/such/place; expect_rc 0; [ -s none/such/place/config.json ] || fail "directories on the way were not made"
run convert llama-back file/of/x.gguf; expect_rc 0; [ -s file/of/x.gguf ] || fail "directories on the way to a file were not made"
run convert chat nowhere/at/x.gguf; refuses 5; [ ! -e nowhere ] || fail "a conversion that failed left directories"
run convert llama-back typed.gguf/x.gguf; refuses 1; expect_err 'typed.gguf'

# Usage.
run convert; refuses 2; expect_err 'the model to convert is missing'
run convert llama-back; refuses 2; expect_err 'the target is missing'
run convert llama-back target; refuses 2; expect_err 'ends in .gguf'; expect_absent target
run convert typed.gguf target.gguf; refuses 2; expect_err 'does not end in .gguf'; expect_absent target.gguf
run convert typed.gguf target --type q8_0; refuses 2; expect_err 'f32, f16 and bf16'; expect_absent target
run convert typed.gguf target --type q9; refuses 2; expect_err 'not one of'
run convert none.gguf target; refuses 1; expect_err 'none.gguf'
run convert gpt2-124m target.gguf; refuses 2; expect_err 'gpt2-124m is a preset, which has no weights'
for part in config.json model.safetensors; do
  for other in target target.gguf; do
    run convert llama-back/$part $other; refuses 5; expect_err "$part is no GGUF file"; expect_err 'name the directory that'
  done
done

# Files that are none, or not whole.
head -c 20000 typed.gguf >short.gguf
run convert short.gguf target; refuses 5; expect_err 'cut short'; expect_absent target
printf 'FUGG' >bad.gguf
run convert bad.gguf target; refuses 5; expect_err 'GGUF'; expect_absent target
finish
