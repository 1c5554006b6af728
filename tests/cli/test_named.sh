#!/usr/bin/env bash
# --tokenizer: one that is named for a model without its own makes tokens of text, goes with the results, and is part of
# what a run is.
source "$(dirname "$0")/common.sh"

shape=custom:family=llama,layers=1,hidden=16,heads=2,kv-heads=1,mlp=16,vocab=700,positions=64,tied
mkdir words other nothing
cp "$here/../tokenizer/gpt2.json" words/tokenizer.json
cp "$here/../tokenizer/roberta.json" other/tokenizer.json
for i in $(seq 300); do echo "line $i: a budget of $((i * i % 97)) bytes is a budget"; done >text.txt
# same A B KEY...: whether two JSON documents agree in these members.
same() {
  python3 -c 'import json, sys
a, b = (json.load(open(p)) for p in sys.argv[1:3])
sys.exit(any(a[k] != b[k] for k in sys.argv[3:]))' "$@"
}

# Text: bytes without it, tokens with it.
run data text.txt --model $shape --json; expect_rc 0; expect_json 'd["tokenizer"] == "bytes"'
printf 'gr\xfc\xdfe aus k\xf6ln\n' >latin.txt # in ISO-8859-1: bytes stay, a tokenizer has no letters for them
run data latin.txt --model $shape; expect_rc 0; grep -q 'UTF-8' out && fail "bytes as tokens lose nothing"
run data latin.txt --model $shape --tokenizer words; expect_rc 0
tr -s ' \n' ' ' <out >flat; grep -q 'bytes that are not UTF-8 were read as U+FFFD.*iconv -f ISO-8859-1' flat || fail "letters are lost without a word"
run data text.txt --model $shape --tokenizer words; expect_rc 0; grep -q 'UTF-8' out && fail "a note about text that is UTF-8"
run data text.txt --model $shape --tokenizer words --json; expect_rc 0; expect_json '"BPE" in d["tokenizer"]'
cp out named.json

train="--data text.txt --seq 32 --schedule constant --lr 1e-2 --threads 1 --quiet --sample budget --save-every 2"
run train $shape --tokenizer words $train --steps 4 --out whole; expect_rc 0
cmp whole/final/tokenizer.json words/tokenizer.json || fail "the results lack the tokenizer"
grep -q '"tokenizer": ".*/words"' whole/run.json || fail "run.json lacks the tokenizer's place"
# The results are a model with a tokenizer of its own: the same tokens.
run data text.txt --model whole/final --json; expect_rc 0
same named.json out tokens tokenizer || fail "the same tokenizer makes other tokens"

# Evaluation and generation of weights without one are those of weights with it.
cp -r whole/final bare
rm -f bare/tokenizer.json bare/manifest.json
run evaluate whole/final --data text.txt --seq 32 --threads 1 --quiet --json; expect_rc 0
cp out with
# Weights whose tokenizer was left behind are not taken for a model of bytes without a word.
run evaluate bare --data text.txt --seq 32 --threads 1; expect_rc 0; expect_err '^warning: bare has no tokenizer, so each byte of the data is a token.*--tokenizer DIR'
run train bare --data text.txt --eval-data text.txt --seq 32 --threads 1 --steps 1 --out spelt; expect_rc 0
[ "$(grep -c 'has no tokenizer' err)" = 1 ] || fail "not one warning for training and evaluation data"
run evaluate bare --tokenizer words --data text.txt --seq 32 --threads 1 --quiet --json; expect_rc 0
same with out loss tokens || fail "another loss with the named tokenizer"
run generate whole/final --prompt 'a budget' --temperature 0 --max-tokens 8 --quiet; expect_rc 0
cp out with
run generate bare --tokenizer words --prompt 'a budget' --temperature 0 --max-tokens 8 --quiet; expect_rc 0
cmp with out || fail "another text with the named tokenizer"

# A run goes on with its tokenizer, from its own checkpoint when the directory is gone, and with no other.
run train $shape --tokenizer words $train --steps 2 --out half; expect_rc 0
run train --resume half --steps 4 --tokenizer other --allow-different steps --quiet; expect_rc 2; expect_err 'tokenizer'
mv words away
run train --resume half --steps 4 --allow-different steps --quiet; expect_rc 0
cmp half/final/model.safetensors whole/final/model.safetensors || fail "the resumed run has other bits"
cmp half/final/tokenizer.json away/tokenizer.json || fail "the resumed run's results lack the tokenizer"
mv away words
# Files beside the tokenizer that it is not read from are none of the run's business.
printf '{"a": 0}\n' >words/vocab.json; printf '#version: 0.2\n' >words/merges.txt
run train --resume half --steps 5 --tokenizer words --allow-different steps --quiet; expect_rc 0
rm words/vocab.json words/merges.txt
# Nor is a model's GGUF file in its directory its tokenizer: bytes stay its tokens.
run evaluate bare --data text.txt --seq 32 --threads 1 --quiet --json; expect_rc 0
cp out with
run convert whole/final bare/model.gguf; expect_rc 0
run evaluate bare --data text.txt --seq 32 --threads 1 --quiet --json; expect_rc 0
same with out loss tokens || fail "another loss beside a GGUF file"
rm bare/model.gguf
# Of a model of bytes too, and for all commands alike: it generates, and samples while it trains, as without the file.
bytes=custom:family=llama,layers=1,hidden=16,heads=2,mlp=16,vocab=257,positions=64
run train $bytes --data text.txt --seq 32 --threads 1 --quiet --steps 1 --out bytes; expect_rc 0
run generate bytes/final --prompt 'line 7' --temperature 0 --max-tokens 4 --json; expect_rc 0
cp out with
for gguf in "$here/../gguf/llama.gguf" whole.gguf; do # without a tokenizer, and with another model's
  [ -e "$gguf" ] || { run convert whole/final "$gguf"; expect_rc 0; }
  cp "$gguf" bytes/final/other.gguf
  run generate bytes/final --prompt 'line 7' --temperature 0 --max-tokens 4 --json; expect_rc 0
  same with out text tokens prompt_tokens || fail "another text beside ${gguf##*/}"
  run train bytes/final --data text.txt --seq 32 --threads 1 --quiet --sample line --eval-data text.txt --steps 1 --out beside; expect_rc 0
  rm -rf beside
  run data text.txt --model bytes/final --json; expect_rc 0; expect_json 'd["tokenizer"] == "bytes"'
  rm bytes/final/other.gguf
done
# Named as a tokenizer, such a file goes by its own name: its directory was taken, and text read as bytes all the same.
mkdir one; cp whole.gguf one
run data text.txt --model $shape --tokenizer one; refuses 2; expect_err 'one: there is no tokenizer'; expect_err 'a GGUF file by its own name'
run generate bare --tokenizer one --prompt line; refuses 2; expect_err 'one: there is no tokenizer'
run data text.txt --model $shape --tokenizer one/whole.gguf --json; expect_rc 0; same named.json out tokens || fail "a GGUF file's tokenizer makes other tokens"

# All files of the tokenizer go with the results, and none of its model: its generation_config.json names that model's tokens.
mkdir pieces
{ printf '[PAD]\n[UNK]\n'; printf '%s\n' {a..z} '##'{a..z} {0..9} '##'{0..9} ':'; } >pieces/vocab.txt
echo '{"tokenizer_class": "BertTokenizer"}' >pieces/tokenizer_config.json
echo '{"eos_token_id": 3}' >pieces/generation_config.json
run train $shape --tokenizer pieces --data text.txt --seq 32 --threads 1 --quiet --steps 1 --out worded; expect_rc 0
cmp -s pieces/vocab.txt worded/final/vocab.txt || fail 'the results lack vocab.txt'
[ ! -e worded/final/generation_config.json ] || fail "the results have another model's generation_config.json"

run train whole/final --tokenizer words $train --steps 1 --out no; refuses 2; expect_err 'has a tokenizer of its own'
run train $shape --tokenizer nothing $train --steps 1 --out no; refuses 2; expect_err 'nothing: there is no tokenizer'; expect_err 'tokenizer.json'
run train $shape --tokenizer words/tokenizer.json $train --steps 1 --out no; refuses 2; expect_err 'name a directory'
few=${shape/vocab=700/vocab=270}
run train $few --tokenizer words --data text.txt --seq 32 --steps 1 --threads 1 --quiet --out no; expect_rc 5; expect_err 'vocabulary has 270'
printf '{"input_ids": [%s]}\n' "$(seq -s, 1 200)" >ids.jsonl
run train $few --tokenizer words --data ids.jsonl --seq 32 --threads 1 --quiet --sample thing --steps 1 --out no2; expect_rc 2; expect_err 'the tokenizer makes id'

# A directory that was saved with a tokenizer and lacks it: text is refused and not taken as bytes, ids are none of its business.
printf '{"tokenizer_class": "GPT2Tokenizer"}' >bare/tokenizer_config.json
run evaluate bare --data text.txt --seq 32 --threads 1 --quiet; expect_rc 5; expect_err 'bare has no tokenizer for the text of text.txt'
run data text.txt --model bare; expect_rc 5; expect_err 'tokenizer_class'
run evaluate bare --data ids.jsonl --seq 32 --threads 1 --quiet; expect_rc 0
run evaluate bare --tokenizer words --data text.txt --seq 32 --threads 1 --quiet; expect_rc 0

finish
