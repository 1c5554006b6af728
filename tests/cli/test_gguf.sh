#!/usr/bin/env bash
# GGUF files: writing blocks (convert --quantize), what it says about them, what can be done with such files; files without
# a tokenizer work on token ids; keys that are not understood are named.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$1"
data=$(cd "$here/../gguf" && pwd)
expect_absent() { [ ! -e "$1" ] || fail "$1 is there"; }

for k in $(seq 400); do echo "line $k: memory is planned to the byte, $((k * k)) of them"; done >text.txt
head -n 12 text.txt >few.txt
run train custom:layers=2,hidden=256,heads=4,mlp=512,family=llama,vocab=257 --data text.txt --seq 32 --steps 4 --lr 3e-3 --out wide --quiet; expect_rc 0
run train custom:layers=1,hidden=96,heads=2,mlp=200,family=llama,vocab=257 --data text.txt --seq 32 --steps 1 --out narrow --quiet; expect_rc 0

# What is not supported is refused alike in both formats, by every command: exit 5, with file, field and value.
LC_ALL=C sed 's/general.architecture\(............\)gpt2/general.architecture\1mpt7/' "$data/gpt2.gguf" >odd.gguf
mkdir odd; echo '{"model_type": "mpt7"}' >odd/config.json
for model in odd.gguf odd odd/config.json; do
  for words in "plan $model" "evaluate $model --data few.txt" "generate $model --prompt 5" "train $model --data few.txt --out never"; do
    # shellcheck disable=SC2086
    run $words; refuses 5; expect_err 'odd(/config.json|.gguf): .*(model_type|general.architecture) is .mpt7.'
  done
done
run convert odd.gguf never; refuses 5; run convert odd never.gguf; refuses 5; expect_absent never; expect_absent never.gguf

# Each kind: what was written is read, and losing more bits loses more.
least=0
for kind in q8_0 q6_K q5_K q4_K q4_0; do
  run convert wide/final $kind.gguf --quantize $kind --json; expect_rc 0
  expect_json "d['type'] == '$kind'" 'd["tensors"] == 21' 'd["block_tensors"] == 16' 'd["fallbacks"] == 0' \
    "$least < d['block_error'] <= d['worst_error'] < 0.2" 'd["worst_tensor"].endswith(".weight")'
  least=$(grep -oE '"block_error": [0-9.e-]+' "$work/out" | grep -oE '[0-9.e-]+$')
  run evaluate $kind.gguf --data few.txt --seq 32 --quiet; expect_rc 0
done
run convert wide/final told.gguf --quantize q4_K; expect_rc 0
expect_out '^blocks: 16 tensors, off by [0-9.]+ % \(root mean square\), worst [a-z_0-9.]+ by [0-9.]+ %'
cmp -s told.gguf q4_K.gguf || fail 'the same source and kind gave other bytes'
run convert wide/final typed.gguf --type q8_0; expect_rc 0
cmp -s typed.gguf q8_0.gguf || fail '--type q8_0 and --quantize q8_0 differ'

# The mixes of llama.cpp: head, and values and down projections of some layers (here the last one), in Q6_K.
quarter=$((256 * 256)) table=$((257 * 256)) vectors=$((5 * 256 * 4))
for kind in q4_K:144:15 q5_K:176:17; do
  IFS=: read -r name bytes number <<<"$kind"
  run convert wide/final mixed.gguf --quantize ${name}_M --force --json; expect_rc 0
  expect_json "d['type'] == '${name}_M'" 'd["block_tensors"] == 16' \
    "d['data_bytes'] == $vectors + ($table + 8 * $quarter + 9 * $quarter) // 256 * $bytes + ($table + 3 * $quarter) // 256 * 210"
  run evaluate mixed.gguf --data few.txt --seq 32 --quiet; expect_rc 0
  [ -z "$have_python" ] || python3 - mixed.gguf "$number" <<'END' || fail "another general.file_type than $number"
import struct, sys
b = open(sys.argv[1], "rb").read()
at = b.index(b"general.file_type") + len(b"general.file_type")
assert struct.unpack_from("<II", b, at) == (4, int(sys.argv[2]))
END
done

# Blocks of q8_0 and q4_0 are found again from their own values, by way of a directory and of a GGUF file.
for kind in q8_0 q4_0; do
  run convert $kind.gguf values-$kind --type f32; expect_rc 0
  run convert values-$kind again.gguf --quantize $kind --force --json; expect_rc 0; expect_json 'd["block_error"] == 0'
  run convert $kind.gguf once-more.gguf --quantize $kind --force --json; expect_rc 0
  expect_json 'd["from"] == "GGUF" and d["to"] == "GGUF"' 'd["block_error"] == 0' 'd["tokens"] == 0'
  cmp -s <(tail -c 100000 $kind.gguf) <(tail -c 100000 again.gguf) || fail "$kind: other blocks by way of a directory"
  cmp -s $kind.gguf once-more.gguf || fail "$kind: another file by way of a file"
done
run convert q4_K.gguf down.gguf --quantize q4_0; expect_rc 0; expect_err 'already: what they lost stays lost'

# Rows of no whole blocks: what llama.cpp falls back to, and f16 (200 is no multiple of 32).
run convert narrow/final narrow.gguf --quantize q4_K --json; expect_rc 0
expect_json 'd["fallbacks"] == 9' 'd["block_tensors"] == 8'
run convert narrow/final narrow6.gguf --quantize q6_K; expect_rc 0; expect_out '^9 tensors in another type, as their rows are no whole blocks of q6_K'
run evaluate narrow.gguf --data few.txt --seq 32 --quiet; expect_rc 0

# A plan of such a file is exact: its blocks to the byte, and one byte less is refused.
for kind in q4_K:256:144 q6_K:256:210 q4_0:32:18; do
  IFS=: read -r name block bytes <<<"$kind"
  run plan $name.gguf --seq 32 --lora r=4 --quantize keep --json; expect_rc 0
  need=$(json_number need_bytes)
  expect_json "d['tiers']['device']['max_by_role']['quantization'] == 2 * (4 * 256 * 256 + 3 * 256 * 512) // $block * $bytes"
done
run train q4_0.gguf --data text.txt --seq 32 --steps 1 --lora r=4 --quantize keep --budget "$need" --quiet --out exact; expect_rc 0
run train q4_0.gguf --data text.txt --seq 32 --steps 1 --lora r=4 --quantize keep --budget "$((need - 1))" --quiet --out less; expect_rc 3
run train q4_K.gguf --data text.txt --seq 32 --steps 2 --lora r=4 --quantize keep --quiet --out kept; expect_rc 0; expect_out 'equal to the byte'

# What makes no sense.
run convert wide/final never.gguf --quantize nf4; refuses 2; expect_err 'of GGUF files: q4_K_M'; expect_absent never.gguf
run convert wide/final never --quantize q4_K; refuses 2; expect_err 'ends in .gguf'; expect_absent never
run convert wide/final never.gguf --quantize q4_K --type f16; refuses 2; expect_err 'exclude each other'; expect_absent never.gguf
run convert wide/final never.gguf --quantize q5_1; refuses 2; expect_err 'not one of'; expect_absent never.gguf
run train "$data/llama.gguf" --data text.txt --quantize q4_K --out never; refuses 2; expect_err 'not one of'
run convert kept/final never.gguf --quantize q4_K; refuses 2; expect_err 'adapters are not written as q4_K'; expect_absent never.gguf

# What a tokenizer puts around a text is put there from the GGUF file as well, and from what that becomes: also where only the
# post-processor of tokenizer.json names it, or other files beside it say otherwise (which it overrules, as in transformers).
around() { # NAME TOKENIZER [tokenizer_config.json]
  local name=$1 words=around-$1
  mkdir "$words"; cp "$here/../tokenizer/$2.json" "$words/tokenizer.json"
  [ -z "${3:-}" ] || echo "$3" >"$words/tokenizer_config.json"
  run train custom:family=llama,layers=1,hidden=8,heads=1,mlp=8,vocab=800,positions=32 --tokenizer "$words" --data text.txt --seq 8 --threads 1 --steps 1 --out "run-$name" -q; expect_rc 0
  run tokenize "run-$name/final" text.txt; expect_rc 0; cp out words.ids
  run convert "run-$name/final" "$name.gguf"; expect_rc 0
  run tokenize "$name.gguf" text.txt; expect_rc 0; cmp -s out words.ids || fail "$name: other tokens from the GGUF file"
  run convert "$name.gguf" "back-$name"; expect_rc 0
  run tokenize "back-$name" text.txt; expect_rc 0; cmp -s out words.ids || fail "$name: other tokens from the directory made of it"
}
named='"bos_token":"<|begin_of_text|>","eos_token":"<|end_of_text|>"'
around begin llama3; grep -q '^600 ' words.ids || fail 'this tokenizer puts nothing before a text'
around sentencepiece llama2; around gemma gemma; around nothing qwen2
around denied llama3 "{$named,\"add_bos_token\":false}"; grep -q '^600 ' words.ids || fail 'add_bos_token counts beside a tokenizer.json'
around asked qwen2 "{\"bos_token\":\"<|endoftext|>\",\"add_bos_token\":true,\"add_eos_token\":true}"
echo '{"bos_token":"<|eot_id|>"}' >run-begin/final/tokenizer_config.json
run convert run-begin/final never.gguf; refuses 2; expect_err "post_processor: '<.begin_of_text.>' before a text, which is not the bos_token"; expect_absent never.gguf
rm run-begin/final/tokenizer_config.json
[ -z "$have_python" ] || python3 - <<'END'
import json
path = "run-begin/final/tokenizer.json"
t = json.load(open(path))
t["post_processor"]["processors"][1]["single"].insert(1, {"SpecialToken": {"id": "<|eot_id|>", "type_id": 0}})
t["post_processor"]["processors"][1]["special_tokens"]["<|eot_id|>"] = {"id": "<|eot_id|>", "ids": [602], "tokens": ["<|eot_id|>"]}
json.dump(t, open(path, "w"))
END
[ -z "$have_python" ] || { run convert run-begin/final never.gguf; refuses 2; expect_err 'more than one token on a side of a text'; expect_absent never.gguf; }

# Tokens that are added beside the tokenizer's file, by tokenizer_config.json or added_tokens.json, are the file's too. So is a
# tokenizer of vocab.json and merges.txt.
beside() { # NAME: the directory words-NAME, through a GGUF file and back
  run train custom:family=llama,layers=1,hidden=8,heads=1,mlp=8,vocab=800,positions=32 --tokenizer "words-$1" --data text.txt --seq 8 --threads 1 --steps 1 --out "run-$1" -q; expect_rc 0
  run convert "run-$1/final" "$1.gguf"; expect_rc 0
  run convert "$1.gguf" "back-$1"; expect_rc 0
  for file in text.txt marks.txt; do
    run tokenize "run-$1/final" $file; expect_rc 0; cp out words.ids
    for model in "$1.gguf" "back-$1"; do run tokenize "$model" $file; expect_rc 0; cmp -s out words.ids || fail "$1: other tokens of $file from $model"; done
  done
}
printf '<|mark|>hello <mind> 12<|mark|>' >marks.txt
mkdir words-config words-pieces words-merges words-gpt2
cp "$here/../tokenizer/gpt2.json" words-config/tokenizer.json
decoder='"added_tokens_decoder":{"700":{"content":"<|mark|>","special":true,"normalized":false},"701":{"content":"<mind>","special":false,"normalized":false}}'
echo "{\"tokenizer_class\":\"GPT2Tokenizer\",\"eos_token\":\"<|mark|>\",$decoder}" >words-config/tokenizer_config.json
beside config; grep -q '^700 .* 701 .* 700$' words.ids || fail 'the added tokens are none'
cp "$here/../parity/sentencepiece/plain.model" words-pieces/tokenizer.model
echo '{"<|mark|>": 420, "<mind>": 421}' >words-pieces/added_tokens.json
echo '{"tokenizer_class":"LlamaTokenizer","eos_token":"<|mark|>"}' >words-pieces/tokenizer_config.json
run train custom:family=llama,layers=1,hidden=8,heads=1,mlp=8,vocab=800,positions=32 --tokenizer words-pieces --data text.txt --seq 8 --threads 1 --steps 1 --out run-pieces -q; expect_rc 0
run convert run-pieces/final pieces.gguf; expect_rc 0; run convert pieces.gguf back-pieces; expect_rc 0
printf '<|mark|>hello <mind> <|mark|>' >marks.txt
for model in run-pieces/final pieces.gguf back-pieces; do run tokenize $model marks.txt; expect_rc 0; expect_out ' 420 .* 421 (.* )?420$'; done
if [ -n "$have_python" ]; then
  python3 - "$here/../tokenizer" <<'END' || fail 'no vocab.json and merges.txt'
import json, sys
for name, source, kind in [("merges", "qwen2", "Qwen2Tokenizer"), ("gpt2", "gpt2", "GPT2Tokenizer")]:
    t = json.load(open(f"{sys.argv[1]}/{source}.json"))
    added = {a["id"]: {k: a[k] for k in a if k != "id"} for a in t["added_tokens"]}
    json.dump(t["model"]["vocab"], open(f"words-{name}/vocab.json", "w"))
    open(f"words-{name}/merges.txt", "w").write("#version: 0.2\n" + "".join(" ".join(m) + "\n" for m in t["model"]["merges"]))
    json.dump({"tokenizer_class": kind, "added_tokens_decoder": added}, open(f"words-{name}/tokenizer_config.json", "w"))
END
  printf '<|im_start|>Hello 12<|im_end|><|endoftext|>' >marks.txt
  beside merges; beside gpt2
  grep -q '"eos_token": "<|endoftext|>"' back-merges/tokenizer_config.json || fail "the class's own tokens were lost"
fi
# What has no counterpart is refused by the name of its file, and what is not kept is said.
mkdir ranked worded
cp run-config/final/config.json run-config/final/model.safetensors ranked; cp ranked/* worded
echo 'YQ== 0' >ranked/x.tiktoken; printf '[UNK]\na\n' >worded/vocab.txt
run convert ranked never.gguf; refuses 2; expect_err 'ranked/x.tiktoken: .*ranks has no counterpart in GGUF'; expect_err '--without-tokenizer'
run convert worded never.gguf; refuses 2; expect_err 'worded/vocab.txt: .*WordPiece has no counterpart in GGUF'
run convert worded without.gguf --without-tokenizer; expect_rc 0; expect_no_err
sed -i 's/"<|mark|>","special":true/"<|mark|>","rstrip":true,"special":true/' run-config/final/tokenizer_config.json
run convert run-config/final config.gguf --force; expect_rc 0; expect_err "note: the token '<.mark.>' takes the blanks beside it"
mkdir words-first; cp "$here/../tokenizer/mistral.json" words-first/tokenizer.json; echo '{}' >words-first/tokenizer_config.json
run train custom:family=llama,layers=1,hidden=8,heads=1,mlp=8,vocab=800,positions=32 --tokenizer words-first --data text.txt --seq 8 --threads 1 --steps 1 --out run-first -q; expect_rc 0
run convert run-first/final first.gguf; expect_rc 0; expect_err "note: tokenizer.json puts a blank in front of a text only \('prepend_scheme': 'first'\)"
run convert run-pieces/final pieces.gguf --force; expect_rc 0; expect_no_err
sed -i 's/"model": *{/&"end_of_word_suffix": "<\/w>", /' run-config/final/tokenizer.json
run convert run-config/final never.gguf; refuses 2; expect_err 'end_of_word_suffix has no counterpart'; expect_absent never.gguf

# Without a tokenizer: token ids do.
python3 - <<'END' 2>/dev/null || finish
import struct
open("ids.bin", "wb").write(struct.pack("<2000H", *[i * i % 37 for i in range(2000)]))
END
run plan "$data/llama.gguf" --seq 16; expect_rc 0
run train "$data/llama.gguf" --data ids.bin --seq 16 --steps 2 --out ids --quiet; expect_rc 0
run evaluate "$data/llama.gguf" --data ids.bin --seq 16 --quiet; expect_rc 0
run generate "$data/llama.gguf" --prompt '5 6 7' --max-tokens 4 --temperature 0; expect_rc 0; expect_out '^[0-9]+ [0-9]+ [0-9]+ [0-9]+$'
run generate "$data/llama.gguf" --prompt 'hello'; refuses 2; expect_err 'no tokenizer'; expect_err 'ids with blanks between them'
run generate "$data/llama.gguf" --chat --prompt 'hello'; refuses 2; expect_err 'no tokenizer, and so no chat template'
run tokenize "$data/llama.gguf" text.txt; refuses 5; expect_err 'llama.gguf has no tokenizer'; expect_err 'token ids'

# A key of the architecture that is not understood is named wherever the file is read.
python3 - "$data/llama.gguf" <<'END'
import struct, sys
b = open(sys.argv[1], "rb").read()
tensors, keys = struct.unpack_from("<QQ", b, 8)
key = b"llama.attention.clamp_kqv"
more = struct.pack("<Q", len(key)) + key + struct.pack("<If", 6, 8.0) # 41 bytes
pad = b"general.note"
text = b"x" * (-(41 + 8 + len(pad) + 4 + 8) % 32)
more += struct.pack("<Q", len(pad)) + pad + struct.pack("<IQ", 8, len(text)) + text
open("clamped.gguf", "wb").write(b[:8] + struct.pack("<QQ", tensors, keys + 2) + more + b[24:])
END
run plan clamped.gguf --seq 16 --json; expect_rc 0; expect_err 'warning: clamped.gguf: not understood, and left out of account: llama.attention.clamp_kqv$'
expect_json 'd["model"]["unread_keys"] == "llama.attention.clamp_kqv"'
run train clamped.gguf --data ids.bin --seq 16 --steps 1 --out clamped --quiet; expect_rc 0; expect_err 'not understood, and left out of account: llama.attention.clamp_kqv'
run convert clamped.gguf unclamped; expect_rc 0; expect_err 'note: not understood, and left out of account: llama.attention.clamp_kqv'
run plan "$data/llama.gguf" --seq 16 --json; expect_rc 0; expect_json '"unread_keys" not in d["model"]'; expect_no_err
finish
