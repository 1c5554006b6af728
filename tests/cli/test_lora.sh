#!/usr/bin/env bash
# --lora and --adapter from the command line: the same bits however it is run, killed or gone on; what is refused; the base stays as it is.
source "$(dirname "$0")/common.sh"
for i in $(seq 300); do echo "line $i of a small text that a very small model can learn by heart"; done >text.txt
head -c 4000 text.txt >held.txt
model="custom:family=llama,layers=3,hidden=24,heads=3,kv-heads=1,mlp=28,vocab=257,positions=32"
rows="--seq 13 --data text.txt"
weights=adapter_model.safetensors
tree() { find "$1" -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum; }
# The loss of a model, of a model with adapters: loss_of base/final --adapter DIR
loss_of() {
  run evaluate "$@" --seq 13 --threads 1 --data held.txt --json; expect_rc 0
  grep -m1 -oE '"loss": [0-9.]+' out | grep -oE '[0-9.]+$'
}

# shellcheck disable=SC2086
{
run train $model $rows --threads 1 --steps 40 --lr 1e-2 --out base -q; expect_rc 0
run train $model $rows --threads 1 --steps 41 --lr 1e-2 --out other -q; expect_rc 0
base=$(tree base/final)
plain=$(loss_of base/final)

# ---- the same bits, however it is run ----
# same NAME OPTIONS... : trains adapters, whose bytes must be those of the first run since `fresh`.
fresh() { first=; }
same() {
  local name=$1
  shift
  run train base/final $rows --steps 12 --lr 2e-2 --lora "$lora" "$@" --out "$name" --json -q; expect_rc 0
  expect_json 'd["tiers"]["device"]["planned_bytes"] == d["tiers"]["device"]["reserved_bytes"]'
  [ -n "$first" ] || first=$name
  cmp -s "$first/final/$weights" "$name/final/$weights" || fail "$name has other adapters than $first"
}
lora=r=4,alpha=8,targets=q_proj,v_proj,gate_proj,up_proj,o_proj
fresh
same one --threads 1
same two --threads 2
for way in selective block levels:mlp,attention,block; do same "again-${way%%:*}" --threads 2 --recompute $way; done
same unpacked --threads 1 --weight-packing off
same packed --threads 2 --weight-packing persistent
same checked --threads 2 --check
same chunked --threads 1 --recompute every:2
fresh
same after --threads 1 --clip 0
same backward --threads 2 --clip 0 --update in-backward
same backward-block --threads 1 --clip 0 --update in-backward --recompute block
# Accumulated is as the whole batch where micro-batches are blocks of rows, as for weights that train (32 rows a micro-batch).
fresh
same whole --threads 1 --seq 32 --micro-batch 4
same halves --threads 2 --seq 32 --micro-batch 2 --accumulate 2
same quarters --threads 1 --seq 32 --micro-batch 1 --accumulate 4 --recompute block --weight-packing persistent
# Each place that drops has its own bits, which go by where an element stands.
lora=r=3,targets=all-linear,dropout=0.3,rslora,init=gaussian,layers=0,2
fresh
same drop --threads 1 --seq 32 --micro-batch 2
same drop-block --threads 2 --seq 32 --micro-batch 2 --recompute block
same drop-levels --threads 1 --seq 32 --micro-batch 2 --recompute selective --weight-packing off
same drop-halves --threads 2 --seq 32 --micro-batch 1 --accumulate 2
lora=r=4,targets=all-linear,dropout=0.1
fresh
same bf --threads 1 --seq 32 --precision bf16 --micro-batch 2
same bf-two --threads 2 --seq 32 --precision bf16 --micro-batch 2 --recompute block --weight-packing persistent
same bf-halves --threads 2 --seq 32 --precision bf16 --micro-batch 1 --accumulate 2 --weight-packing off
# DoRA, ranks of their own, biases, whole modules of tied weights: the same holds of all of it.
lora='r=4,dora,targets=.*[02]\.(self_attn\.[qv]_proj|mlp\.(up|down)_proj),rank_pattern=v_proj:2,alpha_pattern=.*mlp.*:3,modules_to_save=lm_head,norm'
fresh
same dora --threads 1
same dora-two --threads 2 --recompute block
same dora-levels --threads 2 --recompute levels:mlp,attention,block
same dora-every --threads 1 --recompute every:2 --weight-packing off
same dora-packed --threads 2 --weight-packing persistent --check
lora=${lora%,norm} # whose weights' gradients are summed micro-batch by micro-batch
fresh
same dora-whole --threads 1 --seq 32 --micro-batch 2
same dora-halves --threads 2 --seq 32 --micro-batch 1 --accumulate 2 --recompute selective
lora=$lora,norm
fresh
same dora-after --threads 1 --clip 0
same dora-backward --threads 2 --clip 0 --update in-backward --recompute block
lora=${lora%,norm}
fresh
same dora-nf4 --threads 1 --seq 32 --micro-batch 2 --precision bf16 --quantize nf4+dq
same dora-nf4-two --threads 2 --seq 32 --micro-batch 2 --precision bf16 --quantize nf4+dq --recompute block
same dora-nf4-halves --threads 2 --seq 32 --micro-batch 1 --accumulate 2 --precision bf16 --quantize nf4+dq --weight-packing off
# Merged it is the same function, head and embedding apart; going on with it begins where it ended.
dora=$(loss_of base/final --adapter dora/final)
run merge base/final dora/final --out dora-merged; expect_rc 0
merged=$(loss_of dora-merged)
awk -v a="$dora" -v b="$merged" 'BEGIN { d = a - b; exit !(d < 1e-6 * a && d > -1e-6 * a) }' || fail "merged, DoRA evaluates to $merged instead of $dora"
[ "$dora" != "$plain" ] || fail "DoRA learnt nothing"
run train base/final $rows --adapter dora/final --steps 1 --lr 0 --threads 1 --out dora-zero -q; expect_rc 0
cmp -s dora-zero/final/$weights dora/final/$weights || fail "DoRA changed by being loaded and saved"
run train base/final $rows --lora r=4,dora --steps 1 --lr 0 --threads 1 --out dora-begun -q; expect_rc 0
[ "$(loss_of base/final --adapter dora-begun/final)" = "$plain" ] || fail "DoRA does not begin as the base"
run train base/final $rows --steps 6 --save-every 3 --schedule constant --lr 1e-2 --lora "$lora" --threads 1 --out dora-straight -q; expect_rc 0
run train base/final $rows --steps 3 --save-every 3 --schedule constant --lr 1e-2 --lora "$lora" --threads 1 --out dora-parts -q; expect_rc 0
run train --resume dora-parts --steps 6 -q; expect_rc 0
cmp -s dora-parts/final/$weights dora-straight/final/$weights || fail "DoRA gone on in steps, other adapters"
run convert dora/final never.gguf; refuses 2; expect_err "DoRA.s magnitudes, for which GGUF"; [ -e never.gguf ] && fail "DoRA became a GGUF file"
run train base/final $rows --lora r=4,dora,dropout=0.1 --steps 1 --out never; refuses 2; expect_err 'dora and dropout of adapters exclude'
# An adapter of the embedding: a lookup of A, and B; among others, alone, gone on with, beside quantized weights.
lora=r=4,alpha=8,targets=embed_tokens,q_proj,rank_pattern=embed_tokens:3
fresh
same embedding --threads 1 --seq 32 --micro-batch 2
same embedding-two --threads 2 --seq 32 --micro-batch 2 --recompute block --weight-packing persistent
same embedding-halves --threads 2 --seq 32 --micro-batch 1 --accumulate 2 --check
fresh
same embedding-bf --threads 1 --seq 32 --precision bf16 --micro-batch 2 --quantize nf4+dq
same embedding-bf-two --threads 2 --seq 32 --precision bf16 --micro-batch 1 --accumulate 2 --quantize nf4+dq --recompute block
grep -q '"embed_tokens": 3' embedding/final/adapter_config.json || fail "the embedding's rank is not written"
run train base/final $rows --micro-batch 32 --steps 80 --lr 2e-3 --lora r=4,targets=embed_tokens --threads 1 --update in-backward --clip 0 --out embedding-alone -q; expect_rc 0
awk -v a="$plain" -v b="$(loss_of embedding-alone/final)" 'BEGIN { exit !(b < a - 0.03) }' || fail "an adapter of the embedding alone learns nothing"
run train base/final $rows --steps 6 --save-every 3 --schedule constant --lr 1e-2 --lora targets=embed_tokens --threads 1 --out embedding-straight -q; expect_rc 0
run train base/final $rows --steps 3 --save-every 3 --schedule constant --lr 1e-2 --lora targets=embed_tokens --threads 1 --out embedding-parts -q; expect_rc 0
run train --resume embedding-parts --steps 6 -q; expect_rc 0
cmp -s embedding-parts/final/$weights embedding-straight/final/$weights || fail "an embedding's adapter gone on in steps, other values"
run train base/final $rows --adapter embedding/final --steps 1 --lr 0 --threads 1 --out embedding-zero -q; expect_rc 0
cmp -s embedding-zero/final/$weights embedding/final/$weights || fail "an embedding's adapter changed by being loaded and saved"
cmp -s embedding-zero/final/adapter_config.json embedding/final/adapter_config.json || fail "its settings did"
run train base/final $rows --lora targets=embed_tokens,layers=0-1 --steps 1 --out never; refuses 2; expect_err 'names the embedding, and layers='
run train base/final $rows --lora targets=embed_tokens,dora --steps 1 --out never; refuses 2; expect_err 'with dora the embedding'
run train base/final $rows --lora targets=embed_tokens,modules_to_save=embed_tokens --steps 1 --out never; refuses 2; expect_err 'the embedding trains whole'
run convert embedding/final never.gguf; refuses 2; expect_err "an adapter of the embedding, for which GGUF"
# In a recipe as a mapping.
printf 'lora:\n  r: 4\n  targets: [q_proj, v_proj]\n  rslora: false\n  dora: true\n  rank_pattern: {v_proj: 2}\n  modules_to_save: lm_head\n' >words.yaml
run train base/final $rows --recipe words.yaml --steps 2 --lr 1e-2 --threads 1 --out by-recipe -q; expect_rc 0
run train base/final $rows --lora r=4,targets=q_proj,v_proj,dora,rank_pattern=v_proj:2,modules_to_save=lm_head --steps 2 --lr 1e-2 --threads 1 --out by-words -q; expect_rc 0
cmp -s by-recipe/final/$weights by-words/final/$weights || fail "a mapping means otherwise than its words"
printf 'lora:\n  r: 4\n  targets: [[q_proj]]\n' >bad.yaml
run train base/final $rows --recipe bad.yaml --steps 1 --out never; refuses 5; expect_err 'bad.yaml:3'
printf 'freeze:\n  embed: true\n' >bad.yaml
run train base/final $rows --recipe bad.yaml --steps 1 --out never; refuses 5; expect_err 'bad.yaml:2.*flat'
cmp -s one/final/$weights drop/final/$weights && fail "other options left the same adapters"
[ "$(tree base/final)" = "$base" ] || fail "training adapters changed the base"

# ---- what is in RUN/final and in a checkpoint ----
[ "$(cd one/final && echo *)" = "adapter_config.json $weights" ] || fail "final holds $(ls one/final)"
[ "$(cd one/checkpoints/last && echo *)" = "adapter_config.json $weights manifest.json optimizer.safetensors state.json" ] || fail "a checkpoint holds $(ls one/checkpoints/last)"
[ "$(stat -c %s one/checkpoints/last/$weights)" -lt $(($(stat -c %s base/final/model.safetensors) / 3)) ] || fail "the adapters are as large as the base"
run inspect one --verify; expect_rc 0
trained=$(loss_of one/final)
awk -v a="$plain" -v b="$trained" 'BEGIN { exit !(b < a - 0.02) }' || fail "adapters took the loss from $plain to $trained only"
[ "$(loss_of base/final --adapter one/final)" = "$trained" ] || fail "--adapter evaluates otherwise than RUN/final"
[ "$(loss_of base/final --adapter one/checkpoints/last)" = "$trained" ] || fail "a checkpoint evaluates otherwise than RUN/final"
[ "$(loss_of other/final --adapter one/final)" != "$trained" ] || fail "the base makes no difference"
run generate one/final --threads 1 --prompt 'line ' --max-tokens 12 --temperature 0 --json; expect_rc 0; cp out told
run generate base/final --adapter one/final --threads 1 --prompt 'line ' --max-tokens 12 --temperature 0 --json; expect_rc 0
[ "$(grep '"tokens"' told)" = "$(grep '"tokens"' out)" ] || fail "--adapter generates otherwise than RUN/final"

# ---- going on ----
# A rate of 0 changes no bit; a further run begins with the adapters and new states, its settings are theirs.
run train base/final $rows --adapter one/final --steps 1 --lr 0 --threads 1 --out zero -q; expect_rc 0
cmp -s zero/final/$weights one/final/$weights || fail "adapters changed by being loaded and saved"
cmp -s zero/final/adapter_config.json one/final/adapter_config.json || fail "their settings did"
run train one/final $rows --steps 4 --lr 1e-2 --threads 1 --out further -q; expect_rc 0
run train base/final $rows --adapter one/final --steps 4 --lr 1e-2 --threads 2 --out further-too -q; expect_rc 0
cmp -s further/final/$weights further-too/final/$weights || fail "named as a model, adapters go on otherwise than by --adapter"
cmp -s further/final/$weights one/final/$weights && fail "nothing was trained"
run train base/final $rows --adapter one/final --lora r=4 --steps 1 --out never; refuses 2; expect_err '--lora and --adapter exclude each other'
# Killed in the middle, several times: the same bits at the end.
job="base/final $rows --steps 60 --lr 1e-2 --lora r=4,targets=all-linear,dropout=0.2 --micro-batch 2 --accumulate 2 --save-every 5 --keep 2 --shuffle"
run train $job --threads 1 --out unhurt -q; expect_rc 0
"$program" train $job --threads 2 --out killed -q >/dev/null 2>&1 &
pid=$!
for _ in $(seq 400); do [ -e killed/checkpoints/step-000015 ] && break; sleep 0.005; done
kill -9 $pid; wait $pid 2>/dev/null
[ -e killed/final ] && fail "the run was over before it was killed"
run train --resume killed -q; expect_rc 0
cmp -s killed/final/$weights unhurt/final/$weights || fail "killed and gone on, other adapters"
cmp -s killed/checkpoints/last/optimizer.safetensors unhurt/checkpoints/last/optimizer.safetensors || fail "killed and gone on, other states"
# In steps, from elsewhere, and with the directory of the first adapters gone: a checkpoint has its own.
cp -r one/final start
run train base/final $rows --adapter start --steps 6 --save-every 3 --schedule constant --lr 1e-2 --threads 1 --out straight -q; expect_rc 0
run train base/final $rows --adapter start --steps 3 --save-every 3 --schedule constant --lr 1e-2 --threads 1 --out parts -q; expect_rc 0
rm -r start; mkdir elsewhere; cd elsewhere
run train --resume ../parts --steps 6 -q; expect_rc 0
cd ..
cmp -s parts/final/$weights straight/final/$weights || fail "gone on in steps, other adapters"
# Not beside another base: by the name of the file, whatever it is called.
mv base/final kept; cp -r other/final base/final
run train --resume unhurt --steps 61 --allow-different steps -q; refuses 5; expect_err 'base/final/model.safetensors is not the file that the adapters'
rm -r base/final
run train --resume unhurt --steps 61 --allow-different steps -q; refuses 5; expect_err 'base/final, is not there'
run train kept --resume unhurt --steps 61 --allow-different steps -q; expect_rc 0 # moved, the same bytes
mv kept base/final
run train base/final --resume unhurt --steps 62 --lora r=8 -q; refuses 2; expect_err 'lora was'
cp -r one/final louder; sed -i 's/"lora_alpha": 8.0/"lora_alpha": 9.0/' louder/adapter_config.json
run train --resume parts --adapter louder --steps 9 -q; refuses 2; expect_err 'says other adapters'

# ---- a base from a seed: nothing can load it ----
run train $model $rows --threads 1 --steps 4 --lora r=2 --seed 7 --out seeded --save-every 2 -q; expect_rc 0
grep -q '"base_model_name_or_path": null' seeded/final/adapter_config.json || fail "an adapter of no model names one"
run evaluate seeded/final --seq 13 --data held.txt; refuses 5; expect_err 'does not say which model'; expect_err '--adapter'
run train --resume seeded --steps 5 --seed 8 --allow-different seed,steps -q; refuses 2; expect_err 'made from seed 7'
run train --resume seeded --steps 5 --allow-different steps -q; expect_rc 0

# ---- a base in a GGUF file ----
shape="--seq 13 --data text.txt --threads 1"
job="$shape --lora r=2 --schedule constant --steps 4 -q"
run train ${model/vocab=257/vocab=600} --seq 13 --data "$here/../parity/data/llama-a/inputs.jsonl" --threads 1 --steps 1 --out named -q; expect_rc 0
cp "$here/../tokenizer/smollm.json" named/final/tokenizer.json; rm -f named/final/manifest.json
run convert named/final base.gguf; expect_rc 0
run train base.gguf $job --out from-gguf; expect_rc 0
run train named/final $job --out from-directory; expect_rc 0
cmp -s from-gguf/final/$weights from-directory/final/$weights || fail "beside the same weights in a GGUF file, other adapters"
run evaluate from-gguf/final --seq 13 --data held.txt; expect_rc 0
run train --resume from-gguf --steps 5 -q; expect_rc 0
run train named/final $shape --steps 1 --lr 1e-2 --out tuned -q; expect_rc 0
rm base.gguf; run convert tuned/final base.gguf; expect_rc 0
run train --resume from-gguf --steps 6 --allow-different tokenizer -q; refuses 5; expect_err 'base.gguf is not the file that the adapters'

# ---- the budget ----
for lora in r=4,targets=all-linear r=4,targets=all-linear,dora,bias=all,modules_to_save=lm_head r=16,targets=q_proj,v_proj,dropout=0.1,rslora; do
  shape="base/final --seq 13 --micro-batch 2 --lora $lora --threads 2 --recompute block --precision bf16"
  run plan $shape --budget 1GiB --json; expect_rc 0
  need=$(($(json_number need_bytes)))
  run train $shape --data text.txt --steps 2 --budget $((need - 1)) --out small -q; expect_rc 3; [ -e small ] && fail "a refused run made a directory"
  run train $shape --data text.txt --steps 2 --budget $need --out exact-$lora --json -q; expect_rc 0
  expect_json 'd["tiers"]["device"]["planned_bytes"] == d["tiers"]["device"]["reserved_bytes"]'
done

# ---- bad words and bad files, by the command that a person gives ----
run train base/final $rows --steps 1 --lora r=4,targets=c_attn --out never; refuses 2; expect_err "no module 'c_attn'"; expect_err 'q_proj, k_proj'
run train base/final $rows --steps 1 --adapter nosuch --out never; [ "$rc" -ne 0 ] || fail "took adapters that are not there"; expect_err 'nosuch'
run train base/final $rows --steps 1 --lora r=0 --out never; refuses 2
cp -r one/final cut; head -c -4 one/final/$weights >cut/$weights
run evaluate base/final --adapter cut --seq 13 --data held.txt; refuses 5; expect_err "cut/$weights"
run train ${model/layers=3/layers=2} $rows --threads 1 --steps 1 --out shallow -q; expect_rc 0
run evaluate shallow/final --adapter one/final --seq 13 --data held.txt; refuses 5; expect_err "$weights: .*layers.2"
run train ${model/hidden=24/hidden=18} $rows --threads 1 --steps 1 --out narrow -q; expect_rc 0
run evaluate narrow/final --adapter one/final --seq 13 --data held.txt; refuses 5; expect_err "$weights: .*shape"
cp -r one/final other-rank; sed -i 's/"r": [0-9]*/"r": 3/' other-rank/adapter_config.json
run convert other-rank never.gguf; refuses 5; expect_err "^headroom: other-rank/$weights: tensor"; grep -q base/final err && fail "the base is named for a tensor of the adapter"
run convert one/final one.gguf; expect_rc 0; grep -aq adapter.lora.alpha one.gguf || fail "adapters became a model"
# Ranks of their own are those of the tensors; factors of their own go into B, which rounds it once.
run train base/final $rows --lora r=4,alpha=8,targets=q_proj,v_proj,down_proj,rank_pattern=v_proj:2 --steps 6 --lr 1e-2 --threads 1 --out ranks -q; expect_rc 0
run convert ranks/final ranks.gguf; expect_rc 0
[ "$(loss_of base/final --adapter ranks.gguf)" = "$(loss_of base/final --adapter ranks/final)" ] || fail "ranks of their own evaluate otherwise from GGUF"
for kinds in alpha_pattern=v_proj:3 rslora,rank_pattern=down_proj:3,alpha_pattern=q_proj:5; do
  run train base/final $rows --lora "r=4,alpha=8,targets=q_proj,v_proj,down_proj,$kinds" --steps 6 --lr 1e-2 --threads 1 --out "kinds-$kinds" -q; expect_rc 0
  run convert "kinds-$kinds/final" kinds.gguf --force; expect_rc 0
  own=$(loss_of base/final --adapter "kinds-$kinds/final")
  [ "$own" != "$plain" ] || fail "$kinds learnt nothing"
  awk -v a="$own" -v b="$(loss_of base/final --adapter kinds.gguf)" 'BEGIN { d = a - b; exit !(d < 1e-6 * a && d > -1e-6 * a) }' || fail "$kinds evaluate otherwise from GGUF"
done
# From GGUF, as from the directory: evaluated, gone on with, resumed when the file is gone.
[ "$(loss_of base/final --adapter one.gguf)" = "$trained" ] || fail "a GGUF file of adapters evaluates otherwise"
run generate base/final --adapter one.gguf --threads 1 --prompt 'line ' --max-tokens 12 --temperature 0 --json; expect_rc 0
[ "$(grep '"tokens"' told)" = "$(grep '"tokens"' out)" ] || fail "a GGUF file of adapters generates otherwise"
run train base/final $rows --adapter one.gguf --steps 4 --lr 1e-2 --threads 1 --out further-gguf -q; expect_rc 0
cmp -s further-gguf/final/$weights further/final/$weights || fail "from GGUF, adapters go on otherwise"
run train base/final $rows --adapter one.gguf --steps 2 --schedule constant --lr 1e-2 --threads 1 --out half-way -q; expect_rc 0
run train base/final $rows --adapter one/final --steps 4 --schedule constant --lr 1e-2 --threads 1 --out whole-way -q; expect_rc 0
rm one.gguf
run train --resume half-way --steps 4 -q; expect_rc 0
cmp -s half-way/final/$weights whole-way/final/$weights || fail "begun from GGUF and resumed, other adapters"
[ -e never ] && fail "a refused run made a directory"
[ "$(tree base/final)" = "$base" ] || fail "something changed the base"
}
finish
