#!/usr/bin/env bash
# headroom tokenize: ids, pieces, figures and JSON; files and pipes; back again; what is refused.
source "$(dirname "$0")/common.sh"
model=$here/../tokenizer/gpt2.json

printf 'Hello  world\n' >text.txt
run tokenize "$model" text.txt; expect_rc 0; expect_no_err
expect_out '^[0-9]+( [0-9]+)+$'
cp out ids.txt
run tokenize "$model" ids.txt --decode; expect_rc 0; expect_no_err
cmp -s out text.txt || fail "decoding does not give the text back"
"$program" tokenize "$model" <text.txt >piped 2>err; rc=$?
last='headroom tokenize <text.txt'; expect_rc 0
cmp -s piped ids.txt || fail "a pipe and a file give different ids"
"$program" tokenize "$model" - <text.txt >piped 2>err
cmp -s piped ids.txt || fail "- and no file give different ids"

run tokenize "$model" text.txt --tokens; expect_rc 0; expect_out ' 12\.\.13 +"\\n"  Ċ$'
[ "$(wc -l <out)" -eq "$(wc -w <ids.txt)" ] || fail "not one line for each token"
run tokenize "$model" text.txt --stats; expect_rc 0
expect_out '^bytes +13$'; expect_out '^bytes per token +[0-9.]+$'; expect_out '^tokenizer +byte-level BPE, 700 tokens, gpt2.json$'
run tokenize "$model" text.txt --json --tokens; expect_rc 0
expect_json 'd["bytes"] == 13' 'd["token_count"] == len(d["ids"]) == len(d["tokens"])' 'd["tokens"][-1]["end"] == 13' 'd["encode_ns"] >= 0'
run tokenize "$model" ids.txt --decode --json; expect_rc 0; expect_json 'd["text"] == "Hello  world\n"'

# special tokens around the text, and in the decoded text
model=$here/../tokenizer/llama2.json
printf 'a' >a.txt
run tokenize "$model" a.txt; expect_rc 0; expect_out '^1 [0-9]+$'; cp out ids.txt
run tokenize "$model" a.txt --no-special; expect_rc 0; expect_out '^[0-9]+$'
run tokenize "$model" ids.txt --decode; expect_rc 0; expect_out '^<s> ?a$'
run tokenize "$model" ids.txt --decode --no-special; expect_rc 0; expect_out '^a$'

: >empty.txt
run tokenize "$model" empty.txt --no-special; expect_rc 0
run tokenize "$model" empty.txt --stats; expect_rc 0; expect_out '^tokens +1$'

run tokenize; refuses 2; expect_err 'model'
run tokenize "$model" missing.txt; refuses 1; expect_err 'missing.txt'
run tokenize missing.json text.txt; refuses 1; expect_err 'missing.json'
run tokenize text.txt text.txt; refuses 5; expect_err 'text.txt is no tokenizer'
run tokenize . text.txt; refuses 5; expect_err 'holds no tokenizer'
run tokenize "$model" text.txt --decode; refuses 5; expect_err "byte 0 of the ids is 'H'"
printf '1 2 99999999999' >ids.txt
run tokenize "$model" ids.txt --decode; refuses 5; expect_err 'byte 4'
printf '1 5000' >ids.txt
run tokenize "$model" ids.txt --decode; refuses 5; expect_err 'no id 5000'
run tokenize "$model" text.txt --decode --stats; refuses 2
printf '{"model":{"type":"WordLevel","vocab":[]}}' >bad.json
run tokenize bad.json text.txt; refuses 5; expect_err "bad.json.*'WordLevel' is not supported"

# A model with more ids than its tokenizer has tokens: such an id has no text, the others keep theirs.
cp -r "$here/../gguf/llama" padded
printf '{"decoder":{"type":"ByteLevel"},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"model":{"type":"BPE","vocab":{%s},"merges":[]}}' \
  '"a":0,"b":1,"c":2,"d":3,"e":4,"f":5,"g":6,"h":7,"i":8,"j":9,"k":10,"l":11' >padded/tokenizer.json
run generate padded --prompt ab --max-tokens 24 --temperature 2 --seed 3 --threads 1 --json; expect_rc 0
expect_json 'any(t > 11 for t in d["tokens"])' 'd["text"] == "".join("abcdefghijkl"[t] for t in d["tokens"] if t < 12) != ""'
run generate padded --prompt ab --max-tokens 24 --temperature 2 --seed 3 --threads 1 --quiet; expect_rc 0; expect_out '^[a-l]+$'
run tokenize padded text.txt --stats --tokens; refuses 2; expect_err '^headroom: --stats and --tokens exclude each other'; expect_err 'try: one after the other, or both with --json'
run tokenize padded nothing.txt; refuses 1; expect_err 'cannot open the text nothing.txt'; expect_err 'try: check the path'
finish
