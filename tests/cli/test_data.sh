#!/usr/bin/env bash
# headroom data, and the data options of train and evaluate.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$1"

cat >chat.jsonl <<'JSONL'
{"id": 1, "messages": [{"role": "user", "content": "What is 2+2?"}, {"role": "assistant", "content": "4"}]}
{"id": 2, "messages": [{"role": "user", "content": "Name a colour."}, {"role": "assistant", "content": "Blue."}]}
JSONL
model=(--model tiny-llama-bytes --chat-template chatml)

run data --help; expect_rc 0; expect_golden data-help.txt
run data; refuses 2; expect_err 'no FILE is given'
run data chat.jsonl; refuses 2; expect_err '--model is missing'
run data nothing.jsonl "${model[@]}"; refuses 1; expect_err 'nothing.jsonl'
run data chat.jsonl --model no-such-model; refuses 2

# what it says; the masked part is in brackets where there is no colour
run data chat.jsonl "${model[@]}" --seq 256
expect_rc 0; expect_no_err
expect_out 'chat.jsonl: JSONL of messages, bytes as tokens, chat template from preset'
expect_out '^tokenizer +bytes$'
expect_out '^documents +2$'
expect_out '^counted labels +26, '
expect_out '^longest +[0-9]+ tokens  chat.jsonl:2$'
expect_out '^packing pack +1 rows of 256, [0-9.]+ % filled$'
expect_out '^ +off +2 rows of 256'
expect_out '^example 1: chat.jsonl:1, 74 tokens; what stands in \[\[ \]\] does not count$'
expect_out '^\]\]4<\|im_end\|>\[\[$'
run data chat.jsonl "${model[@]}" --color always --examples 1
expect_rc 0; expect_out $'\033\\[2m<.im_start.>user'; expect_out 'what is dim does not count'

run data chat.jsonl "${model[@]}" --json --loss all --examples 1
expect_rc 0
expect_json 'd["documents"] == 2' 'd["labels"] == d["tokens"] - 2' 'd["longest"][0]["line"] == 2' 'd["broken_rows"] == 0' \
  'len(d["examples"]) == 1' 'all(s["counted"] for s in d["examples"][0]["stretches"])' 'd["packing"]["off"]["rows"] == 2' \
  'd["length_percentiles"]["100"] == d["longest"][0]["tokens"]' '"not used: id" in d["note"]'

# broken rows: listed and exit 5; named and refused, or skipped and counted by train
cat >>chat.jsonl <<'JSONL'
{"messages": []}
{"messages": [{"role": "user", "content": "x"}]}
JSONL
run data chat.jsonl "${model[@]}"
expect_rc 5; expect_out 'broken rows +2'; expect_out "chat.jsonl:3: field 'messages' is empty"; expect_out 'chat.jsonl:4: no label counts'
expect_err '2 broken rows'; expect_err 'skip-bad'
run data chat.jsonl "${model[@]}" --skip-bad; expect_rc 0
printf '{"text": "a\\u001b[1mb\\u009b2m"}\n' >escape.jsonl # data does not steer a terminal
run data escape.jsonl --model tiny-llama-bytes; expect_rc 0; expect_out 'a\\x1b\[1mb\\xc2\\x9b2m'
train=(train micro-llama-bytes --chat-template chatml --seq 128 --steps 1 --threads 1)
run "${train[@]}" --data chat.jsonl --out broken
refuses 5; expect_err "chat.jsonl:3: field 'messages' is empty"; [ ! -e broken ] || fail 'a refused run left its directory'
run "${train[@]}" --data chat.jsonl --out run --skip-bad --eval-data chat.jsonl
expect_rc 0; expect_err '2 broken rows passed over'; expect_err '^warning: chat.jsonl of --eval-data is trained on too, by --data:'
[ -d run/data-cache ] || fail 'no data-cache in the run'
if [ -n "$have_python" ]; then
  python3 -c 'import json; d = json.load(open("run/run.json")); assert d["broken_rows"] == 2, d' || fail 'run.json does not count the broken rows'
fi
run "${train[@]}" --data chat.jsonl --out run2 --skip-bad --data-cache run/data-cache
expect_rc 0; expect_err 'from the cache'; [ ! -e run2/data-cache ] || fail 'a second cache'
# A file on both sides is warned of, by whatever name; one of the same size is none.
head -c 70000 /dev/zero | tr '\0' a >same.txt; cp same.txt copy.txt; ln same.txt link.txt; sed 's/.$/b/' same.txt >other.txt; head -c 300 same.txt >short.txt
sides=(train micro-llama-bytes --seq 64 --steps 1 --threads 1 --eval-batches 1)
for held in copy.txt link.txt "short.txt copy.txt"; do
  # shellcheck disable=SC2086
  run "${sides[@]}" --data other.txt same.txt --eval-data $held --out sides; expect_rc 0; rm -r sides
  tr -s ' \n' '  ' <err | grep -q "warning: ${held##* } of --eval-data is trained on too, by --data as same.txt: .* --eval-split 1%" || fail "$held on both sides is not warned of"
done
run "${sides[@]}" --data other.txt --eval-data same.txt short.txt --out sides; expect_rc 0; grep -q 'trained on too' err && fail 'another file of that size is warned of'
# One's own is that of the run, and no other lies in a directory that is to be empty.
run "${train[@]}" --data chat.jsonl --out run3 --skip-bad --data-cache ./run3/data-cache; expect_rc 0; [ -d run3/data-cache ] || fail 'no data-cache in the run'
for place in run4 run4/cache run4/final run4/run.json; do
  run "${train[@]}" --data chat.jsonl --out run4 --skip-bad --data-cache $place; refuses 2; expect_err "data-cache: $place (lies in run4|belongs to the run)"
  [ ! -e run4 ] || fail "a cache in a run that did not begin"
done

# percentiles: lines of 1 to 100 bytes and an end token each
for i in $(seq 1 100); do head -c "$i" /dev/zero | tr '\0' x; echo; done >steps.txt
run data steps.txt --model tiny-llama-bytes --format lines --json --examples 0
expect_rc 0
expect_json 'd["length_percentiles"] == {"10": 11, "25": 26, "50": 51, "75": 76, "90": 91, "99": 100, "100": 101}' 'd["examples"] == []' \
  '[p["line"] for p in d["longest"]] == list(range(100, 92, -1))' 'd["packing"]["pack"]["fill"] > 0.99 or d["packing"]["pack"]["rows"] == 6'

# formats, truncation, packing
printf 'one\ntwo\n' >lines.txt
run data lines.txt --model tiny-llama-bytes --format lines --json; expect_rc 0; expect_json 'd["documents"] == 2'
run data lines.txt --model tiny-llama-bytes --json; expect_rc 0; expect_json 'd["documents"] == 1'
run data lines.txt --model tiny-llama-bytes --format line; refuses 2; expect_err 'lines'
run data lines.txt --model tiny-llama-bytes --seq 3 --truncate drop --document-separator '\n' --json
refuses 5; expect_err 'no label that counts'
printf '{"input_ids":[5]}\n{"input_ids":\n' >half.jsonl # a row that is whole, of one token, and one that is not
run data half.jsonl --model tiny-llama-bytes; refuses 5; expect_err 'no label that counts'; expect_err '1 broken row was passed over; the first: half.jsonl:2'
run data lines.txt --model tiny-llama-bytes --seq 3 --truncate keep-end --document-separator '\n' --json
expect_rc 0; expect_json 'd["packing"]["pack"] == {"rows": 2, "fill": 1, "cut_documents": 2, "dropped_documents": 0}'
run evaluate run/final --data chat.jsonl --chat-template chatml --skip-bad --packing wrapped --loss completion --json
expect_rc 0; expect_json 'd["tokens"] > 5'

# Files as they come: what is learned from Parquet, and from the twin in gzip, is what is learned from JSONL, through the
# cache, evaluation and a resume; another file is told.
cp "$here/../parquet/messages.jsonl" plain.jsonl
cp "$here/../parquet/messages-zstd-2.parquet" packed.parquet
gzip -c plain.jsonl >packed.jsonl.gz
train=(train micro-llama-bytes --chat-template chatml --seq 64 --threads 1 --schedule constant --quiet --skip-bad)
run "${train[@]}" --data plain.jsonl --eval-data plain.jsonl --steps 4 --out plain; expect_rc 0
run "${train[@]}" --data packed.parquet --eval-data packed.jsonl.gz --steps 2 --out packed; expect_rc 0
run train --resume packed --steps 4 --allow-different steps --quiet; expect_rc 0
cmp plain/final/model.safetensors packed/final/model.safetensors || fail 'packed data trains to other weights'
run "${train[@]}" --data packed.parquet --steps 1 --out cached --data-cache packed/data-cache --no-quiet; expect_rc 0; expect_err 'packed.parquet: Parquet of messages, .*from the cache'
cp packed.parquet packed.bak
cp "$here/../parquet/messages-none-1.parquet" packed.parquet # the same rows in other bytes
run train --resume packed --steps 6 --allow-different steps --quiet; expect_rc 2; expect_err 'data'
mv packed.bak packed.parquet
run train --resume packed --steps 6 --allow-different steps --quiet; expect_rc 0
run data packed.parquet packed.jsonl.gz "${model[@]}" --skip-bad --examples 1 --json; expect_rc 0
expect_json 'd["documents"] == 36 and d["broken_rows"] == 12' '"packed.parquet: Parquet of messages; packed.jsonl.gz: JSONL of messages" in d["note"]' \
  'd["longest"][0]["line"] > 0 and d["examples"]'
head -c 1000 packed.parquet >cut.parquet
run data cut.parquet "${model[@]}"; refuses 5; expect_err 'cut.parquet is a damaged Parquet file: it has no footer \(is it whole\?\)'; expect_err 'anew'
printf 'a,b\n1,2\n' >table.csv
run data table.csv "${model[@]}"; refuses 5; expect_err 'table.csv is a table'; expect_err 'read_csv'
printf '%s\n' '{"messages": [{"role": "user", "content": "q"}, {"role": "asistant", "content": "a"}]}' >slip.jsonl
run "${train[@]}" --data slip.jsonl --out no --no-skip-bad --steps 1; refuses 5; expect_err "slip.jsonl:1: nobody knows the role 'asistant'"; expect_err "did you mean 'assistant'.*where the row is at fault, --skip-bad passes over it"
run data slip.jsonl "${model[@]}" --skip-bad; grep -qE "nobody knows the role 'asistant' \\(did you mean 'assistant'\\?\\)" out err || fail 'data does not name the nearest role'
run data slip.jsonl chat.jsonl "${model[@]}" --skip-bad; refuses 5; expect_err 'slip.jsonl: its only row is broken'
finish
