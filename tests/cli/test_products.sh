#!/usr/bin/env bash
# The stored choice of products: who chose is in the plan, the choice is what runs, its bits depend on nothing else that an
# option selects, a checkpoint keeps it, and a file that is damaged or another machine's is named.
source "$(dirname "$0")/common.sh"
export HEADROOM_CACHE=$work/cache

for i in $(seq 200); do echo "line $i of products by merit, $((i * i % 97)) and $((i * 31 % 89))"; done >text.txt
job='micro-llama-bytes --precision bf16 --seq 64 --micro-batch 4'
"$program" train $job --data text.txt --steps 1 --threads 2 --out first --quiet >out 2>err || fail "a first run"
field() { grep -oE "\"$1\": \"[^\"]*\"" first/run.json | head -1 | cut -d'"' -f4; }
"$program" devices --probe --probe-seconds 0.1 --threads 1 >out 2>err || fail "a rough look" # whose file says which CPU this is
cpu=$(grep -hoE '"cpu": "[^"]*"' "$HEADROOM_CACHE"/cpu-*.json | head -1 | cut -d'"' -f4)
rm -r "$HEADROOM_CACHE"
level=$(field instruction_set) shipped=$(field libraries)
file=$HEADROOM_CACHE/products-$(printf '%s %s' "$cpu" "$level" | tr 'A-Z' 'a-z' | sed -E 's/[^a-z0-9]+/-/g; s/^-//').json

# rows A B C: three rates for each row of a code.
rows() { printf '{"few": [%s], "forward": [%s], "dx": [%s], "dw": [%s]}' "$1" "$2" "$3" "$4"; }
one='1e11, 1e11, 1e11'
two='2e11, 2e11, 2e11'
none='0, 0, 0'
[ "$level" = amx ] && none=$one # a code that was not measured is not compared with
# store PRODUCTS FMA DOT TILES: a file as `devices --probe` writes it.
store() {
  mkdir -p "$HEADROOM_CACHE"
  printf '{"schema_version": 1, "cpu": "%s", "instruction_set": "%s", "products": "products 2, bf16 by %s", "threads": 2, "date": "2026-01-02",
    "flops_per_second": {"fma": %s, "dot": %s, "tiles": %s}}\n' "$cpu" "$level" "$1" "$2" "$3" "$4" >"$file"
}
uniform() { rows "$1" "$1" "$1" "$1"; }
bits() { sha256sum <"$1/final/model.safetensors" | cut -c1-24; }
# train OUT OPTIONS: six steps, quiet, which fail when what is reserved is not what was planned.
train() {
  local to=$1
  shift
  rm -rf "$to"
  run train $job --data text.txt --lr 1e-3 --steps 6 --out "$to" --quiet "$@"
  expect_rc 0
}

# Standard output, whose lines are folded, holds this.
says() { tr -s ' \n' ' ' <out | grep -qE -- "$1" || fail "standard output lacks /$1/"; }

# ---- without a file ----
run plan $job --threads 2; expect_rc 0; expect_out "^products +${shipped#products 2, }, shipped$"
run plan $job --threads 2 --json; expect_rc 0; expect_json 'd["products"]["origin"] == "shipped"' "d['products']['text'] == '$shipped'" '"digest" not in d["products"]'
run plan gpt2-124m --device rtx-4090 --json; expect_json '"products" not in d'
train plain --threads 2

# ---- a vocabulary of several blocks: its sums see neither the team, nor packing, nor chunks ----
for i in $(seq 24); do
  printf '{"input_ids": [%d' $((i * 29))
  for j in $(seq 63); do printf ', %d' $(((i * i * j + 31 * j * j) % 1200)); done
  echo ']}'
done >ids.jsonl
large=custom:family=llama,layers=1,hidden=48,heads=2,mlp=64,vocab=1200,positions=64
for precision in fp32 bf16; do
  train_large() {
    local to=$1
    shift
    rm -rf "$to"
    run train $large --data ids.jsonl --seq 64 --micro-batch 4 --lr 1e-3 --steps 3 --precision $precision --out "$to" --quiet "$@"
    expect_rc 0
  }
  train_large large --threads 2
  expected=$(bits large)
  for variant in '--threads 1' '--threads 3 --weight-packing persistent' '--weight-packing transient --loss-chunk 100' '--weight-packing off --loss-chunk 32' '--recompute block'; do
    train_large other $variant
    [ "$(bits other)" = "$expected" ] || fail "$precision, $variant: other bits"
  done
  rm -rf large other
done

# ---- what is damaged or foreign is named, and not used ----
store fma "$(uniform "$two")" "$(uniform "$one")" "$(uniform "$none")"
cp "$file" whole
unused() {
  run plan $job --threads 2; expect_rc 0; says 'shipped: .*`headroom devices --probe` measures anew'
  tr -d ' \n' <out | grep -qF "$(basename "$file")" || fail "the plan does not name $file"
  run plan $job --threads 2 --json; expect_json 'd["products"]["origin"] == "shipped"' "'$1' in d['products']['problem']"
  run train $job --data text.txt --steps 1 --threads 2 --out other; expect_rc 0
  grep -qF "$(basename "$file")" err out || fail "the run does not name $file"
  rm -rf other
}
head -c 200 whole >"$file"; unused "$(basename "$file")"
sed 's/"cpu": "/"cpu": "another /' whole >"$file"; unused cpu
sed 's/"schema_version": 1/"schema_version": 2/' whole >"$file"; unused schema_version
sed 's/bf16 by fma/bf16 by dot/' whole >"$file"; [[ $level == avx512bf16 || $level == amx ]] && unused products
sed 's/\[2e11, 2e11, 2e11\]/[2e11, -1, 2e11]/' whole >"$file"; unused flops_per_second
rm "$file"

# ---- choices ----
case $level in
avx512bf16 | amx) ;;
*) echo "note: $level has one way to compute products of bf16: choices were not compared"; finish ;;
esac
# chosen NAME TEXT: what is stored is measured in the plan, planned for, and has the same bits whatever cannot matter.
chosen() {
  local name=$1
  run plan $job --threads 2; says "products bf16 by $2, measured on this machine \(xxh3:[0-9a-f]{16}\)"
  run plan $job --threads 2 --json
  expect_json 'd["products"]["origin"] == "measured"' "d['products']['text'] == 'products 2, bf16 by $2'" 'len(d["products"]["digest"]) == 21'
  train "$name" --threads 2
  for options in '--threads 1' '--threads 3' '--threads 2 --weight-packing off' '--threads 2 --weight-packing transient' \
    '--threads 2 --weight-packing persistent' '--threads 2 --recompute block' '--threads 2 --recompute selective' '--threads 1 --loss-chunk 64'; do
    train again $options
    [ "$(bits again)" = "$(bits "$name")" ] || fail "other bits than with --threads 2: $options"
  done
  grep -qF "\"libraries\": \"products 2, bf16 by $2\"" "$name"/checkpoints/last/state.json || fail "the checkpoint does not say $2"
}

store fma "$(uniform "$two")" "$(uniform "$one")" "$(uniform "$none")"
digest=$(sha256sum <"$file")
chosen by_fma fma
[ "$digest" = "$(sha256sum <"$file")" ] || fail "a plan or a run changed the file"
store dot "$(uniform "$one")" "$(uniform "$two")" "$(uniform "$none")"
chosen by_dot dot
store 'few ddd, forward fdd, dx dfd, dw ddd' "$(rows "$one" '2e11, 1e11, 1e11' '1e11, 2e11, 1e11' "$one")" \
  "$(rows "$two" '1e11, 2e11, 2e11' '2e11, 1e11, 2e11' "$two")" "$(uniform "$none")"
chosen mixed 'few ddd, forward fdd, dx dfd, dw ddd'
[ "$(bits by_fma)" != "$(bits by_dot)" ] && [ "$(bits by_fma)" != "$(bits mixed)" ] && [ "$(bits by_dot)" != "$(bits mixed)" ] ||
  fail "choices that have the same bits prove nothing"
[ "$shipped" != 'products 2, bf16 by dot' ] || [ "$(bits plain)" = "$(bits by_dot)" ] || fail "dot, shipped and measured, differ"

# Ties go to what is shipped: 4 % faster is not chosen, 6 % is. (fma is not what AMD ships, dot not what Intel does.)
if [ "$shipped" = 'products 2, bf16 by dot' ]; then
  store dot "$(uniform '1.04e11, 1.04e11, 1.04e11')" "$(uniform "$one")" "$(uniform "$none")"
  run plan $job; expect_out '^products +bf16 by dot, measured'
  store fma "$(uniform '1.06e11, 1.06e11, 1.06e11')" "$(uniform "$one")" "$(uniform "$none")"
  run plan $job; expect_out '^products +bf16 by fma, measured'
fi

# ---- a probe stores the choice, and measures rates with it ----
rm -rf "$HEADROOM_CACHE"
run devices --probe --probe-seconds 5 --threads 1 --json; expect_rc 0; expect_no_err
[ -f "$file" ] || fail "the choice is not in $file"
probed=$(grep -o '"libraries": "[^"]*"' out | cut -d'"' -f4)
grep -qF "\"products\": \"$probed\"" "$file" || fail "the rates are not those of the products chosen: $probed"
[ "$(tr -d ' \n' <"$file" | grep -oE '"(few|forward|dx|dw)":\[([0-9.]+e?[0-9]*,?){3}\]' | grep -cvE '\[0|,0')" -ge 8 ] || fail "a class was not measured"
for threads in 1 2; do
  run plan $job --threads $threads --json; expect_json 'd["products"]["origin"] == "measured"' "d['products']['text'] == '$probed'" "d['time']['measured'] == ($threads == 1)"
done
run devices --probe --probe-seconds 0.1 --threads 1 --json; expect_rc 0 # a rough look chooses nothing
grep -qF "\"libraries\": \"$probed\"" out || fail "a rough look changed the products"

# ---- a checkpoint keeps the choice ----
store fma "$(uniform "$two")" "$(uniform "$one")" "$(uniform "$none")"
keeps() {
  run train --resume "$1" --steps 6 --same-bits; expect_rc 0
  grep -qE 'as in the checkpoint: products 2, bf16 by fma' out err || fail "it does not say that the checkpoint's products are used"
  [ "$(bits "$1")" = "$(bits by_fma)" ] || fail "the resumed run has other bits than one without a stop"
  grep -q '"machine"' <(grep -A3 '"changes"' "$1/run.json") && fail "run.json says that the machine changed"
}
half() { rm -rf "$1"; run train $job --data text.txt --lr 1e-3 --schedule constant --warmup 0 --steps 3 --threads 2 --out "$1" --quiet; expect_rc 0; }
rm -rf by_fma
run train $job --data text.txt --lr 1e-3 --schedule constant --warmup 0 --steps 6 --threads 2 --out by_fma --quiet; expect_rc 0
half a; half b; half c
rm "$file"; keeps a
head -c 200 whole >"$file"; keeps b
store dot "$(uniform "$one")" "$(uniform "$two")" "$(uniform "$none")"; keeps c
# A level that has no such products: named, and --same-bits refuses.
half d
HEADROOM_ISA=avx512 run train --resume d --steps 6 --same-bits; expect_rc 2; expect_err 'bf16 by dot, then products 2, bf16 by fma'
HEADROOM_ISA=avx512 run train --resume d --steps 6; expect_rc 0; expect_err 'from step 4 on bits may differ'
finish
