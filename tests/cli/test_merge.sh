#!/usr/bin/env bash
# headroom merge: the merged model is the function of base and adapter, in the files that the base has; what is refused leaves nothing.
# (Element by element: tests/unit/test_merge.c.)
source "$(dirname "$0")/common.sh"
for i in $(seq 300); do echo "line $i of a small text that a very small model can learn by heart"; done >text.txt
head -c 4000 text.txt >held.txt
shape="layers=2,hidden=24,heads=3,mlp=28,vocab=257,positions=32"
llama="custom:family=llama,kv-heads=1,$shape"
weights=adapter_model.safetensors
tree() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum); }
loss_of() {
  run evaluate "$@" --seq 13 --threads 1 --data held.txt --json; expect_rc 0
  grep -m1 -oE '"loss": [0-9.e-]+' out | grep -oE '[0-9.e-]+$'
}
# near A B TOLERANCE NAME: two losses within a relative tolerance; apart: not even within it.
near() { awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d <= t * a) }' || fail "$4: $1 and $2 are not within $3"; }
apart() { awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(d > t * a) }' || fail "$4: $1 and $2 say nothing, being within $3"; }
# adapter NAME MODEL OPTION...: trains adapters beside MODEL
adapter() {
  local name=$1 model=$2
  shift 2
  run train "$model" --seq 13 --data text.txt --threads 1 --steps 25 --lr 3e-2 --out "$name" -q "$@"; expect_rc 0
}

# ---- as GGUF: weight + alpha / rank * B A, all as the files have them, is the merged model's file ----
cat >gguf.py <<'P'
import struct, sys
def read(path):
    data, at = open(path, "rb").read(), 8
    def take(form):
        nonlocal at
        value = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return value[0]
    def text():
        nonlocal at
        size = take("Q")
        at += size
        return data[at - size : at].decode()
    def value(kind):
        if kind == 8: return text()
        if kind == 9:
            kind, count = take("I"), take("Q")
            return [value(kind) for _ in range(count)]
        return take({0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}[kind])
    count, keys, tensors = take("Q"), {}, {}
    for _ in range(take("Q")):
        key = text()
        keys[key] = value(take("I"))
    heads = []
    for _ in range(count):
        name = text()
        heads.append((name, [take("Q") for _ in range(take("I"))], take("I"), take("Q")))
    at += -at % 32
    for name, dims, kind, offset in heads:
        size = 1
        for d in dims: size *= d
        form = {0: "f", 1: "e"}[kind]
        tensors[name] = dims, kind, struct.unpack_from("<%d%s" % (size, form), data, at + offset)
    return keys, tensors
if __name__ == "__main__":
    base, adapter, merged = (read(path) for path in sys.argv[1:4])
    share, left = {}, set(adapter[1])
    assert adapter[0]["general.type"] == "adapter" and adapter[0]["adapter.type"] == "lora"
    assert adapter[0]["general.architecture"] == base[0]["general.architecture"]
    changed = 0
    for name, (dims, _, w) in base[1].items():
        want, tolerance = list(w), 0
        if name + ".lora_a" in left:
            (columns, rank), _, a = adapter[1][name + ".lora_a"]
            (width, rows), _, b = adapter[1][name + ".lora_b"]
            assert [columns, rows] == dims and width == rank, name
            left -= {name + ".lora_a", name + ".lora_b"}
            scale, tolerance = adapter[0].get("adapter.lora.alpha", 0) / rank or 1, 1e-5
            for r in range(rows):
                for c in range(columns):
                    want[r * columns + c] += scale * sum(b[r * rank + k] * a[k * columns + c] for k in range(rank))
            changed += any(abs(x - y) > 1e-4 for x, y in zip(want, w))
        got = merged[1][name][2]
        assert len(got) == len(want) and max(abs(x - y) for x, y in zip(want, got)) <= tolerance, name
    assert not left and changed == len(adapter[1]) / 2 > 0, (left, changed)
P
as_gguf() {
  run convert "base-$1/final" "base-$1.gguf" --type f32; expect_rc 0
  run convert "merged-$1" "merged-$1.gguf" --type f32; expect_rc 0
  run convert "lora-$1/final" "lora-$1.gguf"; expect_rc 0; expect_out 'PEFT \(f32\) to GGUF \(f32\)'
  python3 gguf.py "base-$1.gguf" "lora-$1.gguf" "merged-$1.gguf" || fail "the adapter of $1 is another one in GGUF"
  # Back again, the rows of q and k in their order: the same function, and merged the same bytes but for rsLoRA's root, which is rounded.
  local same=0
  [ "$1" = rslora ] && same=1e-6
  near "$(loss_of "base-$1/final" --adapter "lora-$1.gguf")" "$trained" $same "the adapter of $1 from GGUF"
  near "$(loss_of "base-$1.gguf" --adapter "lora-$1.gguf")" "$trained" 1e-6 "$1, both from GGUF"
  run merge "base-$1/final" "lora-$1.gguf" --out "back-$1"; expect_rc 0; expect_no_err
  [ "$1" = rslora ] || [ "$(tree "back-$1")" = "$(tree "merged-$1")" ] || fail "$1 merged from GGUF has other bytes"
  near "$(loss_of "back-$1")" "$trained" 1e-6 "$1 merged from GGUF"
}

# ---- the function, in fp32: one term of rounding ----
# whole FAMILY-NAME MODEL LORA: base, adapter, merged
whole() {
  local name=$1 lora=$3
  run train "$2" --seq 13 --data text.txt --threads 1 --steps 25 --lr 1e-2 --out "base-$name" -q; expect_rc 0
  adapter "lora-$name" "base-$name/final" --lora "$lora"
  before=$(tree "base-$name/final")
  run merge "base-$name/final" "lora-$name/final" --out "merged-$name"; expect_rc 0; expect_no_err
  [ "$(tree "base-$name/final")" = "$before" ] || fail "merging changed the base of $name"
  trained=$(loss_of "lora-$name/final")
  near "$(loss_of "merged-$name")" "$trained" 1e-6 "$name"
  apart "$(loss_of "base-$name/final")" "$trained" 1e-4 "$name"
  cmp -s "base-$name/final/config.json" "merged-$name/config.json" || fail "$name has another config.json"
  [ -e "merged-$name/adapter_config.json" ] && fail "$name is still an adapter"
  as_gguf "$name"
}
whole llama "$llama" r=4,alpha=8,targets=all-linear
whole rslora "$llama" r=8,alpha=4,rslora,targets=q_proj,down_proj,layers=1,dropout=0.1
whole gpt2 "custom:family=gpt2,$shape" r=4,alpha=8,targets=all-linear
whole phi3 "custom:family=phi3,kv-heads=1,$shape" r=4,alpha=8,targets=all-linear
run merge base-llama/final lora-llama/final --out again --json; expect_rc 0
expect_json 'd["tensors"] == 21' 'd["merged"] == 14' 'd["type"] == "f32"' 'd["onto"] == "original"'
[ "$(tree again)" = "$(tree merged-llama)" ] || fail "the same merge has other bytes"

# ---- a bf16 base: each weight is rounded once, by 2^-9 at most; in fp32 nothing is ----
run train "$llama" --seq 13 --data text.txt --threads 1 --steps 25 --lr 1e-2 --save-dtype bf16 --out narrow -q; expect_rc 0
adapter on-narrow narrow/final --lora r=4,alpha=8,targets=all-linear
trained=$(loss_of on-narrow/final)
run merge narrow/final on-narrow/final --out merged-narrow; expect_rc 0; expect_out '14 of 21 tensors merged, .*\(bf16\)'
near "$(loss_of merged-narrow)" "$trained" 2e-3 "bf16"
cmp -s narrow/final/config.json merged-narrow/config.json || fail "bf16: another config.json"
[ "$(stat -c %s merged-narrow/model.safetensors)" = "$(stat -c %s narrow/final/model.safetensors)" ] || fail "bf16 became another size"
run merge narrow/final on-narrow/final --type f32 --out merged-wide; expect_rc 0
near "$(loss_of merged-wide)" "$trained" 1e-6 "bf16 as f32"
grep -q '"float32"' merged-wide/config.json || fail "config.json does not say float32"

# ---- several, with weights ----
adapter second base-llama/final --lora r=2,alpha=3,targets=v_proj,up_proj --seed 5
run merge base-llama/final lora-llama/final second/final --weights 1,0 --out first-only; expect_rc 0
near "$(loss_of first-only)" "$(loss_of merged-llama)" 0 "a second adapter of weight 0"
run merge base-llama/final lora-llama/final second/final --weights 0.5,-1.5 --out both; expect_rc 0
run merge base-llama/final lora-llama/final --weights 0.5 --out half; expect_rc 0
run merge half second/final --weights=-1.5 --out both-after; expect_rc 0; expect_err 'note: .*second/final says that it belongs to .*base-llama/final, and is merged into .*/half'
near "$(loss_of both)" "$(loss_of both-after)" 1e-6 "both at once and one after the other"
apart "$(loss_of both)" "$(loss_of merged-llama)" 1e-4 "weights"
run merge base-llama/final lora-llama/final second/final --out sum; expect_rc 0
run merge base-llama/final second/final lora-llama/final --out mus; expect_rc 0
near "$(loss_of sum)" "$(loss_of mus)" 1e-6 "in another order"

# ---- beside quantized weights ----
# Matrices without an adapter were quantized too, and in gpt2's files they are transposed.
for name in llama gpt2; do
  targets=o_proj,v_proj
  [ $name = gpt2 ] && targets=c_attn
  for kind in nf4+dq fp4 int8; do
    adapter "q-$name-$kind" "base-$name/final" --lora r=4,alpha=8,targets=$targets --quantize "$kind"
    trained=$(loss_of "q-$name-$kind/final" --quantize "$kind")
    run merge "base-$name/final" "q-$name-$kind/final" --onto dequantized --out "back-$name-$kind"; expect_rc 0; expect_no_err
    near "$(loss_of "back-$name-$kind")" "$trained" 1e-6 "$name onto what is left of it in $kind"
    run merge "base-$name/final" "q-$name-$kind/final" --out "onto-$name-$kind"; expect_rc 0; expect_err "note: .* trained beside ${kind/+/.} weights .*--onto dequantized"
    near "$(loss_of "onto-$name-$kind")" "$(loss_of "q-$name-$kind/final")" 1e-6 "$name onto the original after $kind"
    [ "$(tree "back-$name-$kind")" != "$(tree "onto-$name-$kind")" ] || fail "$kind lost nothing"
  done
done
# The difference on given rows: what evaluate says of both.
for kind in nf4+dq fp4; do
  trained=$(loss_of "q-llama-$kind/final" --quantize "$kind")
  merged=$(loss_of "onto-llama-$kind")
  run merge base-llama/final "q-llama-$kind/final" --out "seen-$kind" --data held.txt --seq 13 --threads 1 --json; expect_rc 0
  near "$(grep -oE '"trained_loss": [0-9.]+' out | grep -oE '[0-9.]+$')" "$trained" 0 "the loss as trained beside $kind"
  near "$(grep -oE '"merged_loss": [0-9.]+' out | grep -oE '[0-9.]+$')" "$merged" 0 "the loss merged after $kind"
  apart "$trained" "$merged" 1e-5 "$kind"
  expect_json "d['trained_beside'] == '$kind'" 'd["onto"] == "original"' 'd["labels"] == 3692'
done
run merge base-llama/final q-llama-fp4/final --onto dequantized --out seen --data held.txt --seq 13; expect_rc 0; expect_out 'on 3692 labels: loss .* as trained beside fp4, .* difference [+-]0.00000'
run merge base-llama/final lora-llama/final --out seen-plain --data held.txt --seq 13; expect_rc 0; expect_out 'as trained, .* difference [+-]0.00000'
run merge base-llama/final lora-llama/final --out never --data nosuch.txt; refuses 1; expect_err 'cannot open nosuch.txt: No such file'
run merge base-llama/final lora-llama/final --out never --data -; refuses 1; expect_err 'cannot open -'
for option in "--seq 13" "--threads 1" "--precision bf16" "--chat-template chatml"; do
  # shellcheck disable=SC2086
  run merge base-llama/final lora-llama/final --out never $option; refuses 2; expect_err "^headroom: ${option%% *} does nothing without --data"
done
[ ! -e never ] || fail 'the model was written before its rows were looked for'
run merge base-llama/final lora-llama/final second/final --out never --data held.txt; refuses 2; expect_err 'the function that was trained'
run merge base-llama/final q-llama-fp4/final --onto dequantized --quantize nf4 --out never; refuses 2; expect_err 'trained beside fp4 weights, not nf4'
run merge base-llama/final q-llama-fp4/final q-llama-int8/final --onto dequantized --out never; refuses 2; expect_err 'int8 weights, not fp4'
run merge base-llama/final lora-llama/final --onto dequantized --out never; refuses 2; expect_err 'no adapter says'; expect_err '--quantize nf4'
run merge base-llama/final lora-llama/final --onto dequantized --quantize nf4 --out asked --json; expect_rc 0; expect_json 'd["onto"] == "nf4"'
near "$(loss_of asked)" "$(loss_of base-llama/final --adapter lora-llama/final --quantize nf4)" 1e-6 "asked for by --quantize"
run merge base-llama/final lora-llama/final --quantize nf4 --out never; refuses 2; expect_err '--onto dequantized --quantize nf4'

# ---- shards, types, metadata and companions are the base's ----
rows=rows.jsonl
for k in $(seq 20); do echo "{\"input_ids\": [1, 2, 3, $((k % 7)), 5, $((k % 3)), 4, 2, 6]}"; done >$rows
for name in llama-bf16-shards gpt2-f16-shards llama-mixed; do
  base=$here/../weights/$name
  cp -r "$base" plain; rm plain/tokenizer.json plain/ranks.tiktoken # they are none
  run train plain --seq 8 --data $rows --threads 1 --steps 3 --lr 1e-2 --lora r=2,targets=all-linear --out "on-$name" -q; expect_rc 0
  rm -r plain
  run merge "$base" "on-$name/final" --out "of-$name"; expect_rc 0
  [ "$(cd "of-$name" && echo *)" = "$(cd "$base" && echo *)" ] || fail "$name became $(ls "of-$name")"
  for file in "$base"/*; do
    case $file in
    *.safetensors) # the same header: names, types, shapes, metadata; and other values
      head -c "$(($(od -An -tu8 -N8 "$file") + 8))" "$file" | cmp -s - <(head -c "$(($(od -An -tu8 -N8 "$file") + 8))" "of-$name/${file##*/}") || fail "another header in $file" ;;
    *) cmp -s "$file" "of-$name/${file##*/}" || fail "another $file" ;;
    esac
  done
  cp -r "of-$name" plain; rm plain/tokenizer.json plain/ranks.tiktoken
  run evaluate plain --seq 8 --data $rows --json; expect_rc 0
  rm -r plain
done

# ---- an adapter of the embedding: a head that was tied keeps what it was ----
cat >embedding.py <<'P'
import array, json, struct, sys
def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8 : 8 + size])
    head.pop("__metadata__", None)
    return {k: (v["shape"], array.array("f", data[8 + size + v["data_offsets"][0] : 8 + size + v["data_offsets"][1]])) for k, v in head.items()}
def write(path, tensors):
    head, at = {}, 0
    for name, (shape, values) in tensors.items():
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(values)]}
        at += 4 * len(values)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for _, v in tensors.values()))
e = "model.embed_tokens."
base, adapter, merged = (read(p) for p in sys.argv[1:4])
(rank, vocabulary), a = adapter["base_model.model." + e + "lora_embedding_A"]
(width, _), b = adapter["base_model.model." + e + "lora_embedding_B"]
old, new, scale = base[e + "weight"][1], merged[e + "weight"][1], 8 / 4
moved = max(abs(x - y) for x, y in zip(old, new))
wrong = max(abs(new[t * width + c] - old[t * width + c] - scale * sum(a[k * vocabulary + t] * b[c * rank + k] for k in range(rank)))
            for t in range(vocabulary) for c in range(width))
head = base.get("lm_head.weight", base[e + "weight"])
assert moved > 1e-3 and wrong < 1e-6 and merged["lm_head.weight"] == head, (moved, wrong)
adapter["base_model.model." + e + "base_layer.weight"] = base[e + "weight"]
write(sys.argv[4], adapter)
adapter["base_model.model." + e + "base_layer.weight"][1][77] += 1
write(sys.argv[5], adapter)
P
run train "$llama,tied" --seq 13 --data text.txt --threads 1 --steps 25 --lr 1e-2 --out base-tied -q; expect_rc 0
for name in llama tied; do
  adapter "embed-$name" "base-$name/final" --lora r=4,alpha=8,targets=embed_tokens,v_proj
  trained=$(loss_of "embed-$name/final")
  apart "$(loss_of "base-$name/final")" "$trained" 1e-4 "$name with its embedding adapted"
  run merge "base-$name/final" "embed-$name/final" --out "embedded-$name"; expect_rc 0; expect_no_err
  near "$(loss_of "embedded-$name")" "$trained" 1e-6 "$name, an embedding merged"
  grep -q '"tie_word_embeddings": false' "embedded-$name/config.json" || fail "$name is tied after its embedding was merged"
  # PEFT saves the embedding itself beside them: it must be the model's.
  for kind in with other; do cp -r "embed-$name/final" "$kind-$name"; done
  python3 embedding.py "base-$name/final/model.safetensors" "embed-$name/final/$weights" "embedded-$name/model.safetensors" \
    "with-$name/$weights" "other-$name/$weights" || fail "$name has another embedding than W + s (B A)^T, or another head"
  near "$(loss_of "with-$name")" "$trained" 0 "$name beside its embedding"
  run merge "base-$name/final" "with-$name" --out "again-$name"; expect_rc 0
  [ "$(tree "again-$name")" = "$(tree "embedded-$name")" ] || fail "$name beside its embedding is merged otherwise"
  run evaluate "base-$name/final" --adapter "other-$name" --seq 13 --data held.txt; refuses 2; expect_err "other-$name/$weights: the tensor .*base_layer.weight holds another embedding"
  run merge "base-$name/final" "other-$name" --out never; refuses 2; expect_err 'holds another embedding'
done

# ---- targets: whole or not at all ----
run merge base-llama/final lora-llama/final --out merged-llama; refuses 2; expect_err 'merged-llama exists'; expect_err '--force'
touch merged-llama/notes
run merge base-llama/final lora-llama/final --out merged-llama --force; refuses 2; expect_err 'merged-llama holds notes: it is not only a model'
rm merged-llama/notes
run merge base-llama/final second/final --out merged-llama --force; expect_rc 0
near "$(loss_of merged-llama)" "$(loss_of second/final)" 1e-6 "replaced"
cp -r base-llama/final own; cp -r lora-llama/final own-adapter
run merge own own-adapter --out own --force; refuses 2; expect_err 'own would be replaced by what is made of own'
run merge base-llama/final own-adapter --out own-adapter --force; refuses 2
[ "$(tree own-adapter)" = "$(tree lora-llama/final)" ] || fail "a refused merge changed an adapter"
run merge base-llama/final lora-llama/final --out not/there/yet; expect_rc 0; [ -s not/there/yet/model.safetensors ] || fail "directories on the way were not made"

# ---- usage ----
run merge; refuses 2; expect_err 'the model is missing'
run merge base-llama/final --out never; refuses 2; expect_err 'the adapter is missing'
run merge base-llama/final lora-llama/final; refuses 2; expect_err '--out'
run merge base-llama/final lora-llama/final --weights 1,2 --out never; refuses 2; expect_err '2 numbers, and 1 adapters'
for bad in 1,,2 nan inf , 1x 0x1p2e; do run merge base-llama/final lora-llama/final --weights "$bad" --out never; refuses 2; done
run merge base-llama/final lora-llama/final --type q8_0 --out never; refuses 2; expect_err 'f32, f16 and bf16'
run merge lora-llama/final lora-llama/final --out never; refuses 2; expect_err 'is an adapter'
run merge tiny-llama-bytes lora-llama/final --out never; refuses 5; expect_err 'holds no weights'
run merge base-llama/final base-llama/final --out never; refuses 5; expect_err 'there is no adapter_config.json'
run merge base-llama/final nosuch --out never; [ "$rc" -ne 0 ] || fail "took adapters that are not there"
gguf=$(find "$here/../gguf" -name '*.gguf' | head -n 1)
run merge "$gguf" lora-llama/final --out never; refuses 2; expect_err 'is a GGUF file'; expect_err 'headroom convert'

# ---- bad files ----
run merge base-gpt2/final lora-llama/final --out never; refuses 5; expect_err 'target_modules'
run train "${llama/hidden=24/hidden=18}" --seq 13 --data text.txt --threads 1 --steps 1 --out thin -q; expect_rc 0
run merge thin/final lora-llama/final --out never; refuses 5; expect_err "$weights: .*shape"
run train "${llama/layers=2/layers=1}" --seq 13 --data text.txt --threads 1 --steps 1 --out low -q; expect_rc 0
run merge low/final lora-llama/final --out never; refuses 5; expect_err "$weights: .*layers.1"
cp -r lora-llama/final lost; sed -i 's/q_proj.lora_B/q_prog.lora_B/' lost/$weights
run merge base-llama/final lost --out never; refuses 5; expect_err "$weights: the tensor .*q_proj.lora_B.weight is missing"
cp -r lora-llama/final rank; sed -i 's/"r": 4/"r": 8/' rank/adapter_config.json
run merge base-llama/final rank --out never; refuses 5; expect_err "$weights: .*shape \[4, 24\]"
cp -r lora-llama/final cut; head -c -4 lora-llama/final/$weights >cut/$weights
run merge base-llama/final cut --out never; refuses 5; expect_err "cut/$weights"
# The last four bytes of a file are a value.
cp -r lora-llama/final sick; head -c -4 lora-llama/final/$weights >sick/$weights; printf '\0\0\300\177' >>sick/$weights
run merge base-llama/final sick --out never; refuses 5; expect_err "sick/$weights: element [0-9]+ of tensor base_model.* is not finite"
cp -r base-llama/final ill; head -c -4 base-llama/final/model.safetensors >ill/model.safetensors; printf '\0\0\200\177' >>ill/model.safetensors
run merge ill lora-llama/final --out never; refuses 5; expect_err 'ill/model.safetensors: tensor .* holds a value that is not finite'
run merge base-llama/final lora-llama/final --weights 1e7 --type f16 --out never; refuses 5; expect_err 'which f16 does not reach'; expect_err '--type bf16 or f32'
run merge base-llama/final lora-llama/final --weights 1e300 --out never; refuses 2; expect_err '1e\+300 makes no factor'
# ---- an adapter as GGUF: other types, and what is refused ----
run convert lora-llama/final half.gguf --type f16 --json; expect_rc 0; expect_json 'd["tensors"] == 28' 'd["type"] == "f16"'
python3 - <<'P' || fail "A and B are not F16"
import gguf
wide, half = gguf.read("lora-llama.gguf")[1], gguf.read("half.gguf")[1]
assert all(t[1] == 1 for t in half.values()) and wide.keys() == half.keys()
assert all(abs(x - y) <= 1e-3 * abs(x) + 1e-7 for k in wide for x, y in zip(wide[k][2], half[k][2]))
P
near "$(loss_of base-llama/final --adapter half.gguf)" "$(loss_of lora-llama/final)" 1e-3 "A and B in F16"
# Files of others: a rank of each module's own, no alpha; and what is no such file.
cat >make.py <<'P'
import struct
import gguf
def text(t): return struct.pack("<Q", len(t)) + t.encode()
def write(path, keys, tensors):
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for key, value in keys.items():
        out += text(key) + (struct.pack("<I", 8) + text(value) if isinstance(value, str) else struct.pack("<If", 6, value))
    data = b""
    for name, (dims, values, *kind) in tensors.items():
        out += text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, *kind or [0], len(data))
        data += struct.pack("<%df" % len(values), *values)
        data += b"\0" * (-len(data) % 32)
    open(path, "wb").write(out + b"\0" * (-len(out) % 32) + data)
keys, tensors = gguf.read("lora-llama.gguf")
keys = {k: keys[k] for k in ("general.architecture", "general.type", "adapter.type", "adapter.lora.alpha")}
tensors = {k: (t[0], list(t[2])) for k, t in tensors.items()}
def one(path, change):
    k, t = dict(keys), {name: (list(dims), list(values)) for name, (dims, values) in tensors.items()}
    change(k, t)
    write(path, k, t)
def thin(t, weight, rank): # the first `rank` of four
    (columns, _), a = t[weight + ".lora_a"]
    (_, rows), b = t[weight + ".lora_b"]
    t[weight + ".lora_a"] = [columns, rank], a[: columns * rank]
    t[weight + ".lora_b"] = [rank, rows], [b[r * 4 + k] for r in range(rows) for k in range(rank)]
def ranks(k, t):
    thin(t, "blk.0.attn_q.weight", 2)
    thin(t, "blk.1.attn_k.weight", 1)
    thin(t, "blk.1.ffn_down.weight", 3)
q = "blk.1.attn_q.weight.lora_"
one("ranks.gguf", ranks)
one("ones.gguf", lambda k, t: (k.pop("adapter.lora.alpha"), ranks(k, t)))
one("single.gguf", lambda k, t: t.pop(q + "b"))
one("foreign.gguf", lambda k, t: k.update({"general.architecture": "qwen2"}))
one("other.gguf", lambda k, t: k.update({"adapter.type": "control_vector"}))
one("minus.gguf", lambda k, t: k.update({"adapter.lora.alpha": -1.0}))
one("embedding.gguf", lambda k, t: t.update({"token_embd.weight.lora_a": t[q + "a"], "token_embd.weight.lora_b": t[q + "b"]}))
one("deep.gguf", lambda k, t: t.update({q.replace("1", "2", 1) + h: t[q + h] for h in "ab"}))
one("wide.gguf", lambda k, t: t.update({q + "a": ([25, 4], [0.0] * 100)}))
one("tall.gguf", lambda k, t: t.update({q + "b": ([4, 25], [0.0] * 100)}))
one("pair.gguf", lambda k, t: t.update({q + "b": ([3, 24], [0.0] * 72)}))
one("cube.gguf", lambda k, t: t.update({q + "a": ([24, 4, 2], [0.0] * 192)}))
one("whole.gguf", lambda k, t: t.update({q + "a": (*t[q + "a"], 26)})) # I32, of which no weights are
one("empty.gguf", lambda k, t: t.clear())
one("nan.gguf", lambda k, t: t[q + "b"][1].__setitem__(5, float("nan")))
P
python3 make.py || fail "no GGUF files were made"
for name in ranks ones; do
  run merge base-llama/final $name.gguf --out "of-$name"; expect_rc 0; expect_no_err
  run convert "of-$name" "of-$name.gguf" --type f32; expect_rc 0
  python3 gguf.py base-llama.gguf $name.gguf "of-$name.gguf" || fail "$name.gguf is merged otherwise than it says"
  near "$(loss_of base-llama/final --adapter $name.gguf)" "$(loss_of "of-$name")" 1e-6 "$name.gguf"
  run train base-llama/final --adapter $name.gguf --seq 13 --data text.txt --threads 1 --steps 2 --lr 0 --out "kept-$name" -q; expect_rc 0
  near "$(loss_of "kept-$name/final")" "$(loss_of base-llama/final --adapter $name.gguf)" 0 "$name.gguf, kept as PEFT has it"
done
apart "$(loss_of of-ranks)" "$(loss_of lora-llama/final)" 1e-4 "ranks"
apart "$(loss_of of-ranks)" "$(loss_of of-ones)" 1e-4 "alpha"
# refused_gguf STATUS NAME MESSAGE: by whatever takes adapters.
refused_gguf() {
  run merge base-llama/final "$2.gguf" --out never; refuses "$1"; expect_err "$2.gguf: $3"
  run evaluate base-llama/final --adapter "$2.gguf" --seq 13 --data held.txt; refuses "$1"; expect_err "$2.gguf: $3"
  run plan base-llama/final --adapter "$2.gguf" --seq 13; refuses "$1"; expect_err "$2.gguf: $3"
}
refused_gguf 5 single 'the tensor blk.1.attn_q.weight.lora_b is missing'
refused_gguf 5 foreign "general.architecture is 'qwen2', and .* is llama"
refused_gguf 2 other "adapter.type is 'control_vector'"
refused_gguf 5 minus 'adapter.lora.alpha is -1'
refused_gguf 2 embedding 'tensor token_embd.weight.lora_a: adapters of embeddings'
refused_gguf 5 deep 'the tensor blk.2.attn_q.weight.lora_a is A or B of no linear module'
refused_gguf 5 wide 'tensor blk.1.attn_q.weight.lora_a has 4 rows of 25 elements; .* has 4 of 24'
refused_gguf 5 tall 'tensor blk.1.attn_q.weight.lora_b has 25 rows of 4 elements; .* has 24 of 4'
refused_gguf 5 pair 'tensor blk.1.attn_q.weight.lora_b has 24 rows of 3 elements; .* has 24 of 4'
refused_gguf 5 cube 'tensor blk.1.attn_q.weight.lora_a has 4 rows of 24 elements'
refused_gguf 5 whole 'tensor blk.1.attn_q.weight.lora_a has type I32'; expect_err 'these are read: F32, F16,'
for name in wide tall pair cube; do
  run plan base-llama/final --adapter $name.gguf --seq 13; refuses 5; expect_err 'name the model that the adapters were trained beside'
done
run merge base-llama/final nan.gguf --out never; refuses 5; expect_err 'nan.gguf: element 17 of tensor blk.1.attn_q.weight.lora_b is not finite' # where our rows have it
run evaluate base-llama/final --adapter nan.gguf --seq 13 --data held.txt; refuses 5; expect_err 'nan.gguf: tensor blk.1.attn_q.weight.lora_b holds a value that is not finite'
run merge base-llama/final empty.gguf --out never; refuses 5; expect_err 'empty.gguf holds no tensors'
run merge base-llama/final base-llama.gguf --out never; refuses 5; expect_err 'base-llama.gguf holds no adapters'
run merge base-llama/final lora-llama.gguf --onto dequantized --out never; refuses 2; expect_err 'no adapter says'
run merge base-llama/final lora-llama.gguf --onto dequantized --quantize nf4 --out asked-gguf; expect_rc 0
[ "$(tree asked-gguf)" = "$(tree asked)" ] || fail "onto dequantized weights, other bytes from GGUF"
run evaluate half.gguf --data held.txt; refuses 2; expect_err 'half.gguf holds adapters, and no model'; expect_err '--adapter half.gguf'
run convert half.gguf never; refuses 2; expect_err 'holds adapters, and no model'
run convert lora-llama/final never --quantize nf4; refuses 2; expect_err 'adapters, which are not quantized'
run convert lora-llama/final never; refuses 2
cp -r lora-llama/final short; sed -i 's/"r": 4/"r": 3/' short/adapter_config.json
run convert short never.gguf; refuses 5; expect_err 'lora_A.weight has another shape than \[3, 24\]'
cp -r lora-llama/final fewer; sed -i 's/"q_proj",//' fewer/adapter_config.json
run convert fewer never.gguf; refuses 5; expect_err 'belongs to no module that adapter_config.json adapts'
[ -e never.gguf ] && fail "a refused conversion left something"
[ -e never ] && fail "a refused merge left something"
ls -d .headroom-* ./*.replaced* 2>/dev/null && fail "something beside a target was left"
finish
