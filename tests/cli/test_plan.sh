#!/usr/bin/env bash
# The plan's screen, its JSON, its exit codes, and its variants.
source "$(dirname "$0")/common.sh"
small="micro-llama-bytes --threads 1"

run plan gpt2-124m --device rtx-4090 --micro-batch 4; expect_rc 0; expect_no_err
[ "$(sed -n '4p;$p' out | grep -c '^FITS')" -eq 2 ] || [ "$(grep -c '^FITS' out)" -eq 2 ] || fail "the verdict is not first and last"
expect_out 'optimizer state'; expect_out '^peak '; expect_out '^bound '; expect_out '^by phase '; expect_out 'published rates'; expect_out 'own'; expect_out '^pytorch '
awk 'length > 80 { exit 1 }' out || fail "a line is wider than 80 columns"
[ "$(wc -l <out)" -le 32 ] || fail "more than a screen: $(wc -l <out) lines"
LC_ALL=C grep -q $'[\033\r]' out && fail "escape sequences in a pipe"

run plan llama-3-8b --device rtx-3060; expect_rc 3; expect_no_err; expect_out '^ +--recompute block --lora r=16,alpha=32 --quantize nf4\+dq|^ +--lora r=16,alpha=32 --quantize nf4\+dq .*\*$'; expect_out '\* another algorithm'
run plan llama-3-8b --device rtx-3060 --precision bf16 --lora r=16; expect_rc 3; expect_out '^  --quantize nf4\+dq .* ~$'; expect_out '~ other numerics'
run plan llama-3-8b --device rtx-3060 --for evaluate --json; expect_rc 3; expect_json 'any(f["options"] == "--quantize nf4+dq" and f["effect"] == "other numerics" and f["fits"] for f in d["fixes"])'
run plan llama-3-8b --device rtx-3060 --budget 4GiB; expect_rc 3; expect_no_err
expect_out '^DOES NOT FIT'; expect_out 'smallest need found'; expect_out '^as asked on +[a-z0-9-]+ \('
# Cards are said once where the smallest need asks for no smaller ones.
run plan gpt2-124m --micro-batch 8 --budget 300MiB; expect_rc 3; cards=$(grep -oE 'rtx-.*' out)
[ -n "$cards" ] && [ "$(sort -u <<<"$cards")" = "$(sort <<<"$cards")" ] || fail "the same cards in two lines"
run plan llama-3.2-1b --micro-batch 8 --budget 300MiB; expect_rc 3; expect_out '^  then on +rtx'; expect_out '^as asked on +rtx'
run plan gpt2-124m --device rtx-4090 --micro-batch 4 --budget 3GiB; expect_rc 3; expect_out 'options that fit, each planned'
# Each option that is offered as fitting fits.
sed -nE 's/^  (--[^ ].*[^ ]) +[0-9.]+ [KMG]iB +([0-9.]+ .iB|-) +[+-].*/\1/p' out >offers
[ -s offers ] || fail "no option is offered"
# The last lines are larger devices, with all that they have.
grep -E '^ +(--|~|\*|and )' out | grep -vE '^ +(~|\*|and )' | tail -1 >err; grep -q -- '--device [a-z0-9-]* --budget 100%' err || fail "no larger device stands last"
while read -r options; do
  # shellcheck disable=SC2086
  case $options in
  --device*) run plan gpt2-124m --micro-batch 4 $options ;;
  *) run plan gpt2-124m --device rtx-4090 --micro-batch 4 --budget 3GiB $options ;;
  esac
  expect_rc 0
done < <(sed 's/  .*//' offers)

# Options that are longer than their column are wrapped as well; a time that is as good as equal is no minus.
run plan gpt2-124m --device rtx-4090 --seq 16 --budget 1200000000; expect_rc 3; expect_out '^  --recompute block --optimizer sgd --update in-backward'
awk 'length > 80 { exit 1 }' out || fail "a line is wider than 80 columns"
run plan micro-llama-bytes --seq 16 --device mi300x --precision bf16-pure --fixes; expect_rc 0; expect_out ' \+0 %  ~'
! grep -q -e ' -0 %' out || fail "-0 %"
# A screen has a table or a dump, or the rest; --json has a table beside it.
for more in --timeline --fixes; do
  run plan gpt2-124m --device rtx-4090 --table seq,micro-batch $more; refuses 2; expect_err "--table and $more exclude each other"; expect_err 'with --json'
  run plan gpt2-124m --device rtx-4090 --dump program $more --json; refuses 2; expect_err "--dump and $more exclude each other"
done
run plan gpt2-124m --device rtx-4090 --table seq,micro-batch --timeline --fixes --json; expect_rc 0; expect_json 'd["table"] and d["timeline"] and d["fixes"]'
run plan gpt2-124m --device rtx-4090 --alloc-conf expandable_segments:True; refuses 2; expect_err '--alloc-conf is of --engine pytorch'

run plan gpt2-124m --device rtx-4090 --json; expect_rc 0; expect_no_err
expect_json 'd["fits"] is True' 'd["model"]["parameter_count"] == 124439808' 'd["job"]["micro_batch"] == 1' 'd["job"]["seq"] == 1024' \
  'd["job"]["betas"] == [0.9, 0.999]' 'd["device"]["name"] == "rtx-4090"' 'set(d["tiers"]) == {"device", "host", "disk"}' \
  'd["tiers"]["device"]["reserved_bytes"] >= d["tiers"]["device"]["peak_bytes"] >= d["tiers"]["device"]["lower_bound_bytes"] > 0' \
  'sum(d["tiers"]["device"]["at_peak_by_role"].values()) <= d["tiers"]["device"]["peak_bytes"]' \
  'all(d["tiers"]["device"]["at_peak_by_role"][r] <= m for r, m in d["tiers"]["device"]["max_by_role"].items())' \
  'd["need_bytes"] == d["tiers"]["device"]["reserved_bytes"] + d["tiers"]["device"]["fixed_bytes"]' \
  'd["tiers"]["device"]["peak"]["phase"] and d["tiers"]["device"]["peak"]["node"] and d["tiers"]["device"]["peak"]["live"][0]["bytes"] > 0' \
  'd["time"]["step_ns"] > 0 and d["time"]["tokens_per_step"] == 1024 and "compute" in d["time"]["by_lane"]' 'd["fixes"] == []'
run plan gpt2-124m --device rtx-4090 --micro-batch 4 --budget 3GiB --json; expect_rc 3
expect_json 'not d["fits"]' 'd["budget_bytes"] == 3 << 30' 'd["fixes"][0]["fits"]' 'd["fixes"][0]["peak_bytes"] <= 3 << 30'
expect_json '[e["usable_bytes"] for e in d["larger_devices"]] == sorted(e["usable_bytes"] for e in d["larger_devices"])' \
  'len(d["larger_devices"]) == 3 and all(3 << 30 < e["need_bytes"] <= e["usable_bytes"] and e["step_ns"] > 0 for e in d["larger_devices"])'
holder=$(grep -A9 '"larger_devices"' out | grep -m1 -oE '"name": "[^"]+"' | cut -d'"' -f4) bytes=$(grep -A9 '"larger_devices"' out | grep -m1 -oE '"need_bytes": [0-9]+' | cut -d' ' -f2)
run plan gpt2-124m --device "$holder" --micro-batch 4 --json; expect_rc 0; expect_json "d['need_bytes'] == $bytes" 'd["larger_devices"] == []'
# What an option turns off beside itself is said.
run plan gpt2-124m --device rtx-4090 --update in-backward; expect_rc 0; expect_out 'adamw in the backward, no clipping'
run plan gpt2-124m --device rtx-4090 --update in-backward --json; expect_json 'd["job"]["clip"] == 0'
# Of a job in bf16 none that has fp16 alone, however many bytes it has.
run plan gpt2-124m --device rtx-4090 --micro-batch 8 --budget 4GiB --precision bf16 --json; expect_rc 3
expect_json 'len(d["larger_devices"]) == 3' 'not any(e["name"].startswith(("rtx-20", "t4", "v100")) for e in d["larger_devices"])'
run plan gpt2-124m --device rtx-4090 --json --fixes; expect_rc 0; expect_json 'len(d["fixes"]) > 0'
run plan gpt2-124m --device rtx-4090 --budget 1GiB --json --no-fixes; expect_rc 3; expect_json 'd["fixes"] == []'

# A budget of exactly the need fits, a byte less does not.
# shellcheck disable=SC2086
run plan $small --json; need=$(json_number need_bytes)
# shellcheck disable=SC2086
{ run plan $small --budget "$need"; expect_rc 0; run plan $small --budget $((need - 1)); expect_rc 3
  run plan $small --fail-over "$need"; expect_rc 0; run plan $small --fail-over $((need - 1)); expect_rc 3; expect_err '--fail-over'; }

# Sizes: the same number of bytes in four spellings.
for size in 2GiB 2147483648 2048MiB 2097152kib; do
  # shellcheck disable=SC2086
  run plan $small --budget "$size" --json; expect_json 'd["budget_bytes"] == 2 << 30'
done
run plan gpt2-124m --device rtx-4090 --budget 50% --json; expect_json 'd["budget_bytes"] == d["device"]["usable_bytes"] // 2'
run plan gpt2-124m --device rtx-4090 --budget 6GB --json; expect_json 'd["budget_bytes"] == 6 * 10**9'

# --micro-batch auto: rows that fit, none faster among those that --table or a person could name.
run plan gpt2-124m --device rtx-3060 --micro-batch auto; expect_rc 0; expect_out '\(chosen\)'; expect_out '^FITS'
run plan gpt2-124m --device rtx-3060 --micro-batch auto --json; expect_rc 0; expect_json 'd["job"]["micro_batch"] > 8 and d["job"]["accumulate"] == 1'
chosen=$(json_number step_ns) rows=$(json_number micro_batch)
for k in 6 $((rows + 1)); do
  run plan gpt2-124m --device rtx-3060 --micro-batch "$k" --no-fixes --json
  [ "$(json_number step_ns)" -gt $((chosen * k / rows)) ] || grep -q '"fits": false' out || fail "$k rows fit and are faster than $rows, which were chosen"
done
run plan gpt2-124m --device rtx-3060 --micro-batch auto --batch-tokens 49152 --json; expect_rc 0
expect_json 'd["job"]["micro_batch"] * d["job"]["accumulate"] == 48 and d["job"]["micro_batch"] > 1 and d["time"]["tokens_per_step"] == 49152'
split=$(json_number step_ns)
for k in 8 16 24; do
  run plan gpt2-124m --device rtx-3060 --micro-batch "$k" --batch-tokens 49152 --no-fixes --json
  [ "$(json_number step_ns)" -ge "$split" ] || grep -q '"fits": false' out || fail "$k rows at a time are faster than what was chosen"
done
run plan gpt2-124m --device rtx-3060 --micro-batch auto --batch-tokens 49152 --auto --json; expect_rc 0; expect_json "d['time']['step_ns'] <= 1.001 * $split"
run plan gpt2-124m --device rtx-3060 --micro-batch auto --recompute auto --budget 4GiB --json; expect_rc 0; expect_json 'd["fits"] and d["job"]["recompute"] != "auto"'
# No more rows than a launch of a GPU has blocks for, however much memory there is.
run plan custom:family=llama,layers=1,hidden=16,heads=1,vocab=64,positions=64 --device h100 --seq 8 --micro-batch auto --json; expect_rc 0
expect_json 'd["fits"] and 1024 < d["job"]["micro_batch"] <= 65535'
run plan custom:family=llama,layers=1,hidden=16,heads=1,vocab=64,positions=64 --device h100 --seq 8 --micro-batch 65536; expect_rc 2
expect_err 'no kernel for attention with more than 65535 rows of data at a time'; expect_err 'try: give a smaller --micro-batch'
# Rows whose loss is cut by itself need less than fewer rows whose loss is whole: a budget that holds 16 and not 12 is used.
cut="custom:family=smollm3,layers=2,hidden=24,heads=3,kv-heads=1,head-size=8,mlp=100,vocab=5003,positions=256,tied --device rtx-4090 --seq 256"
# shellcheck disable=SC2086
{ run plan $cut --micro-batch 16 --json; most=$(json_number need_bytes)
  run plan $cut --micro-batch 12 --budget "$most"; expect_rc 3
  run plan $cut --micro-batch auto --budget "$most" --json; expect_rc 0; expect_json 'd["job"]["micro_batch"] >= 16'
  run plan $cut --micro-batch auto --batch-tokens 12288 --budget "$most" --json; expect_rc 0; expect_json 'd["job"]["micro_batch"] == 16'; }
run plan gpt2-124m --device rtx-3060 --micro-batch auto --budget 1GiB; expect_rc 3; expect_out 'micro-batch 1'
run plan gpt2-124m --micro-batch auto --auto; refuses 2; expect_err 'try: say how large a step is by --batch-tokens'
run plan gpt2-124m --micro-batch auto --batch-tokens 4096 --accumulate 2; refuses 2; expect_err 'two of them decide the third'
run plan gpt2-124m --micro-batch auto --for generate; refuses 2; expect_err 'trainings and evaluations only'
run plan gpt2-124m --micro-batch auto --for evaluate --auto; refuses 2; expect_err 'try: leave --auto out'
# Of an evaluation the fewest rows that are within 1 % of the fastest: twice as many gain no more, half of them lose.
run plan gpt2-124m --device rtx-4090 --for evaluate --micro-batch auto; expect_rc 0; expect_out '\(chosen\)'
run plan gpt2-124m --device rtx-4090 --for evaluate --micro-batch auto --json; expect_rc 0; expect_json 'd["fits"] and d["job"]["micro_batch"] > 1'
chosen=$(json_number step_ns) rows=$(json_number micro_batch)
run plan gpt2-124m --device rtx-4090 --for evaluate --micro-batch $((2 * rows)) --json; expect_json "d['time']['step_ns'] > 0.99 * 2 * $chosen"
run plan gpt2-124m --device rtx-4090 --for evaluate --micro-batch $((rows / 2)) --json; expect_json "d['time']['step_ns'] * 2 > $chosen"
run plan gpt2-124m --device rtx-4090 --for evaluate --micro-batch auto --budget 852MiB --json; expect_rc 0; expect_json "d['fits'] and 1 <= d['job']['micro_batch'] < $rows"
run plan gpt2-124m --device rtx-4090 --for evaluate --budget 800MiB; expect_rc 3; expect_out '~ other numerics: the same evaluation,'
# JSON has all fixes, those that do not fit too.
run plan llama-3-8b --device rtx-4090 --seq 512 --micro-batch 60 --budget 1GiB --json; expect_rc 3
expect_json 'len(d["fixes"]) > 40 and max(f["need_bytes"] for f in d["fixes"]) > 0.9 * d["need_bytes"]'
# One doubling that gains less is no end: of this one 6 rows are 1.2 % faster than 2.
few='gpt2-355m --device rtx-3060 --seq 512 --for evaluate --budget 1410259331 --json'
run plan $few --micro-batch auto; expect_rc 0; chosen=$(json_number step_ns) rows=$(json_number micro_batch)
run plan $few --micro-batch 6; expect_json "d['fits'] and $chosen / $rows <= 1.0101 * d['time']['step_ns'] / 6"
run plan gpt2-124m --micro-batch some; refuses 2; expect_err 'is none of: auto, a whole number of rows'

# --auto says how far what it takes is from what nothing can be below.
run plan gpt2-124m --device rtx-3060 --micro-batch 32 --auto; expect_rc 0; expect_err '^auto '; expect_err 'above the bound'
run plan gpt2-124m --device rtx-3060 --micro-batch 32 --auto --json; expect_rc 0
expect_json 'd["auto"]["found"] and 0 <= d["auto"]["gap"] < 1 and d["auto"]["bound_bytes"] <= d["need_bytes"]' \
  'd["auto"]["bound_token_ns"] <= d["auto"]["fastest_token_ns"] <= d["auto"]["token_ns"] <= 1.001 * d["auto"]["fastest_token_ns"]' \
  'abs(d["auto"]["token_ns"] * d["time"]["tokens_per_step"] / d["time"]["step_ns"] - 1) < 1e-6'
run plan llama-2-7b --device rtx-3060 --auto --json; expect_rc 3
expect_json 'not d["auto"]["found"] and d["budget_bytes"] < d["auto"]["bound_bytes"] <= d["auto"]["smallest_bytes"] <= d["need_bytes"]'
grep -q "$(json_number smallest_bytes)" err || fail "the smallest need is not said"; expect_err 'Searched: levels'
tr -s ' \n' '  ' <err >flat # its lines are wrapped
grep -qE 'the smallest needs [0-9.]+ GiB, [0-9]+ bytes' flat || fail "the smallest need is not said in units"
grep -qE 'no choice needs less than [0-9.]+ GiB, so none fits' flat || fail "that nothing can fit is not said"
run plan gpt2-124m --device rtx-4090 --micro-batch 32 --budget 2.3GiB --auto; expect_rc 3 # between the bound and what is known
tr -s ' \n' '  ' <err | grep -qE 'no choice needs less than [0-9.]+ GiB; the smallest known is [0-9.]+ % above that' || fail "the gap is not said"
# What it says it took, and what needs least where nothing fits: planned again it has those bytes.
again() { # BUDGET SED-EXPRESSION MEMBER OPTION...
  local budget=$1 words=$2 member=$3 need options
  shift 3
  run plan gpt2-124m --device rtx-3090 "$@" --micro-batch 24 --budget "$budget" --auto --json --no-fixes
  need=$(json_number "$member")
  options=$(tr -s ' \n' '  ' <err | sed -E "$words")
  [[ $options == --* ]] || fail "no options in '$options'"
  # shellcheck disable=SC2086
  run plan gpt2-124m --device rtx-3090 "$@" --micro-batch 24 --budget "$budget" $options --json --no-fixes
  [ "$(json_number need_bytes)" = "$need" ] || fail "$options needs other bytes than --auto says"
}
for more in '' '--clip 0'; do
  # shellcheck disable=SC2086
  { again 3GiB 's/^auto (.*) its time per token.*/\1/' need_bytes $more
    again 2GiB 's/.*bytes \((.*)\)\. Searched.*/\1/' smallest_bytes $more; }
done
# What was searched is what was free; of what clipping alone rules out it says the bytes, which are those of its options.
run plan gpt2-124m --device rtx-3090 --budget 1GiB --clip 0 --auto; expect_rc 3; tr -s ' \n' '  ' <err >flat
grep -q 'loss chunks, place of the update' flat || fail "updates in the backward were searched, and it does not say so"
grep -q 'Clipping rules out' flat && fail "nothing is clipped here"
run plan gpt2-124m --device rtx-3090 --budget 1GiB --update after --auto; expect_rc 3; grep -q 'Clipping' err && fail "the place of the update was given"
run plan gpt2-124m --device rtx-3090 --budget 400MiB --for evaluate --auto; expect_rc 3; grep -qE 'place of|packing|rows of' err && fail "an evaluation has no such choice"
for budget in 1GiB 2400MiB; do
  run plan gpt2-124m --device rtx-3090 --budget $budget --auto; expect_rc 3; tr -s ' \n' '  ' <err >flat
  grep -q 'place of the update' flat && fail "clipping rules it out, and it says that it was searched"
  [ $budget = 1GiB ] && words='are enough,' || words='are enough and fit,'
  read -r need options < <(sed -E "s/.* without it, another training, .* $words ([0-9]+) bytes \(([^)]*)\).*/\1 \2/" flat)
  [[ $options == --*' --clip 0'* ]] || fail "no options in '$options'"
  # shellcheck disable=SC2086
  run plan gpt2-124m --device rtx-3090 --budget $budget $options --json --no-fixes; expect_json "d['need_bytes'] == $need" "d['fits'] == ('$budget' != '1GiB')"
done
# Of adapters alone it frees little: that is no other training worth, but where it fits.
few='llama-3-8b --lora r=16,alpha=32 --quantize nf4 --device rtx-4090 --auto'
# shellcheck disable=SC2086
{ run plan $few --budget 4GiB; expect_rc 3; grep -q 'Clipping' err && fail "less than 1 % smaller is offered"
  run plan $few --budget 4GiB --json; need=$(json_number smallest_bytes)
  run plan $few --budget $((need - 4194304)); expect_rc 3; tr -s ' \n' '  ' <err | grep -q 'without it, another training, .* are enough and fit' || fail "what fits is not offered"; }
run plan gpt2-124m --device rtx-4090 --json; expect_json '"auto" not in d'

run plan gpt2-124m --device rtx-4090 --batch-tokens 8192 --micro-batch 2 --seq 512 --json; expect_json 'd["job"]["accumulate"] == 8' 'd["time"]["tokens_per_step"] == 8192'
run plan gpt2-124m --batch-tokens 5000; refuses 2; expect_err 'try: --batch-tokens 4096'
run plan gpt2-124m --batch-tokens 4096 --accumulate 3; refuses 2

# Levels for the budget: the frontier, the chosen one, and the same by its own name.
auto="plan gpt2-124m --device rtx-4090 --micro-batch 8 --budget 3584MiB"
# shellcheck disable=SC2086
{ run $auto --recompute auto; expect_rc 0; expect_no_err; expect_out 'recompute levels:'; expect_out '^> levels:'; expect_out '^- none '
  awk 'length > 80 { exit 1 }' out || fail "a line is wider than 80 columns"
  [ "$(wc -l <out)" -le 44 ] || fail "more than a screen: $(wc -l <out) lines"
  run $auto --recompute auto --json; expect_rc 0; expect_no_err
  expect_json '5 <= len(d["frontier"]) <= 10' 'sum(p["chosen"] for p in d["frontier"]) == 1' \
    'all(a["peak_bytes"] < b["peak_bytes"] and a["step_ns"] > b["step_ns"] for a, b in zip(d["frontier"], d["frontier"][1:]))' \
    'all(p["fits"] == (p["peak_bytes"] <= 3584 << 20) for p in d["frontier"])' \
    '[p["peak_bytes"] for p in d["frontier"] if p["chosen"]] == [d["need_bytes"]]' \
    '[p["options"] for p in d["frontier"] if p["chosen"]] == ["--recompute " + d["job"]["recompute"]]'
  need=$(json_number need_bytes); levels=$(grep -oE '"recompute": "[^"]+"' out | cut -d'"' -f4)
  run $auto --recompute "$levels" --json; expect_rc 0; expect_json 'd["frontier"] == []'
  [ "$(json_number need_bytes)" = "$need" ] || fail "--recompute $levels needs other bytes than auto, which chose it"
  HEADROOM_RECOMPUTE=auto run $auto --json; expect_json "d['job']['recompute'] == '$levels'"
  run $auto --recompute auto --show-config; expect_rc 0; grep -qF "recompute: \"$levels\"" out || fail "--show-config does not say $levels"
  cp out shown.yaml; run plan --recipe shown.yaml --json; expect_rc 0; expect_json "d['job']['recompute'] == '$levels'" "d['need_bytes'] == $need"
  run $auto --recompute selective --json; expect_rc 3; expect_json 'd["job"]["recompute"] == "selective"' 'any(f["options"].startswith("--recompute levels:") and "," in f["options"] for f in d["fixes"])'
  run $auto --recompute auto --table micro-batch,seq --json; expect_rc 0; expect_json 'any(c["fits"] and c["micro_batch"] == 8 for c in d["table"])'; }
run plan gpt2-124m --device rtx-4090 --budget 1GiB --recompute auto --json; expect_rc 3; expect_json 'not d["fits"]' 'd["need_bytes"] == d["frontier"][0]["need_bytes"]'
run plan gpt2-124m --device rtx-4090 --for evaluate --recompute auto --json; expect_rc 0; expect_json 'd["frontier"] == []'
for also in --fixes --auto; do run plan gpt2-124m --device rtx-4090 --for evaluate --recompute auto $also; expect_rc 0; expect_out '^FITS'; done

run plan gpt2-124m --device rtx-4090 --micro-batch 8 --budget 4GiB --auto --json; expect_rc 0; expect_err '^auto +--'
expect_json 'd["fits"]' 'd["job"]["micro_batch"] * d["job"]["accumulate"] == 8'
run plan gpt2-124m --device rtx-4090 --budget 1GiB --auto; expect_rc 3; expect_out '^DOES NOT FIT'; expect_err 'Searched: levels'

# Fixes: by effect class, in a class by time per token; each line, given as it stands, is a plan of those bytes; --auto is as fast as any.
job="plan gpt2-124m --device rtx-3060 --seq 1000 --micro-batch 12 --budget 5GiB"
# shellcheck disable=SC2086
{ run $job --json; expect_rc 3
  expect_json '[(f["effect_class"], f["token_ns"]) for f in d["fixes"] if f["fits"]] == sorted((f["effect_class"], f["token_ns"]) for f in d["fixes"] if f["fits"])' \
    'all(f["changes_algorithm"] == (f["effect_class"] > 1) for f in d["fixes"])' '{0, 1, 2, 3} <= {f["effect_class"] for f in d["fixes"] if f["fits"]}' \
    'any(f["options"] == "--recompute block --update in-backward --clip 0" for f in d["fixes"])' 'any(f["options"] == "--precision bf16-pure --moments bf16" for f in d["fixes"])' \
    'all(not (a is not b and a["fits"] and b["fits"] and a["effect_class"] <= b["effect_class"] < 2 and a["need_bytes"] <= b["need_bytes"] and a["token_ns"] <= b["token_ns"]) for a in d["fixes"] for b in d["fixes"])'
  python3 -c 'import json
for f in json.load(open("out"))["fixes"][::3]: print(f["need_bytes"], f["options"])' >listed
  python3 -c 'import json; print(min(f["token_ns"] for f in json.load(open("out"))["fixes"] if f["fits"] and f["effect_class"] < 2))' >least
  while read -r need options; do
    run $job $options --json --no-fixes; [ "$(json_number need_bytes)" = "$need" ] || fail "$options needs other bytes than the list says"
  done <listed
  run $job --auto --json; expect_rc 0; expect_json "d['auto']['fastest_token_ns'] <= $(cat least) * (1 + 1e-6)"; }

run plan gpt2-124m --device rtx-4090 --budget 6GiB --table seq,micro-batch; expect_rc 0; expect_out '^seq +1 +2 +4'; expect_out ' GiB \*'
awk 'length > 80 { exit 1 }' out || fail "a line is wider than 80 columns"
run plan gpt2-124m --device rtx-4090 --budget 6GiB --table micro-batch,seq --json
expect_json 'len(d["table"]) == 36' 'any(not c["fits"] for c in d["table"]) and any(c["fits"] for c in d["table"])'
# shellcheck disable=SC2086
{ run plan $small --timeline; expect_rc 0; expect_out 'forward +.*backward'
  expect_out 'step +.*: compute 100 %'
  run plan $small --timeline --json; expect_json 'len(d["timeline"]) == d["plan"]["node_count"]' \
    'max(s["live_bytes"] for s in d["timeline"]) >= d["tiers"]["device"]["lower_bound_bytes"]' \
    'all(s["begin_ns"] <= s["end_ns"] and s["lane"] in d["time"]["by_lane"] for s in d["timeline"])' \
    '[p for p in d["schedule"] if p["program"] == "step"][0]["span_ns"] == d["time"]["step_ns"]' \
    'all(d["timeline"][p["critical_path"][-1]]["end_ns"] == p["span_ns"] for p in d["schedule"])'
  run plan $small --dump program; expect_rc 0; expect_out '^program step'
  run plan $small --dump program --json; expect_rc 0; expect_json 'd["programs"]'
  run plan $small --on-nonfinite skip --dump program; expect_rc 0; expect_out 'write:control.found_inf@'; expect_out ' guard:control.found_inf@'
  run plan $small --on-nonfinite skip --dump program --json; expect_rc 0
  expect_json 'all(n["operands"][-1].get("guard") and n["operands"][-1]["access"] == "read" for n in d["programs"]["step"] if n["op"] in ("advance", "adamw"))'
  run plan $small --for evaluate --json; expect_rc 0; expect_json 'd["job"]["command"] == "evaluate"' 'd["tiers"]["device"]["max_by_role"]["gradient"] == 0'
  run plan $small --for generate --context 64 --json; expect_rc 0; expect_json 'd["tiers"]["device"]["max_by_role"]["cache"] > 0'
  run plan $small --sample hello --json; expect_rc 0; expect_json 'd["tiers"]["device"]["peak_by_phase"]["generate"] > 0'
  run plan $small --table seq,micro-batch --for generate; refuses 2
  # What the planned command has no place for is said, not taken without effect.
  run plan $small --for generate --micro-batch 2; refuses 2; expect_err '^headroom: --micro-batch does nothing in a plan of generate: one row is generated at a time'
  run plan $small --for generate --micro-batch 1; expect_rc 0
  for purpose in evaluate generate; do
    for option in "--accumulate 2" "--batch-tokens 8192"; do run plan $small --for $purpose $option; refuses 2; expect_err "${option% *} does nothing in a plan of $purpose"; done
  done
  for purpose in train evaluate; do run plan $small --for $purpose --context 64; refuses 2; expect_err "context does nothing in a plan of $purpose"; expect_err 'try: give --seq N'; done
  run plan $small --sample hello --context 64; expect_rc 0; }

# Colour: never in a pipe unless asked for, never with NO_COLOR.
# shellcheck disable=SC2086
{ run plan $small --color always; LC_ALL=C grep -q $'\033' out || fail "no colour with --color always"
  run plan $small --color always --color never; LC_ALL=C grep -q $'\033' out && fail "colour with --color never"; }
if command -v script >/dev/null 2>&1; then
  TERM=xterm script -qec "'$program' plan $small" /dev/null </dev/null >tty 2>/dev/null
  LC_ALL=C grep -q $'\033' tty || fail "no colour on a terminal"
  NO_COLOR=1 TERM=xterm script -qec "'$program' plan $small" /dev/null </dev/null >tty 2>/dev/null
  LC_ALL=C grep -q $'\033' tty && fail "colour in spite of NO_COLOR"
  TERM=dumb script -qec "'$program' plan $small" /dev/null </dev/null >tty 2>/dev/null
  LC_ALL=C grep -q $'\033' tty && fail "colour on a dumb terminal"
fi

# In so little address space that a plan can be made and no alternatives, the plan is told; where they were asked for by name
# their lack is an error. Which limits these are is the machine's: from the first that has room for a plan.
if ! sanitized; then
  for limit in $(seq 10000 250 40000); do
    last="headroom plan under ulimit -v $limit"
    (ulimit -v "$limit" && exec "$program" plan micro-llama-bytes --budget 2MiB --seq 64) >out 2>err </dev/null; rc=$?
    grep -q '^DOES NOT FIT' out && break
  done
  expect_rc 3; expect_err '^note: +alternatives were not planned: the host refused [0-9]+ bytes'; expect_out '^DOES NOT FIT'
  (ulimit -v "$limit" && exec "$program" plan micro-llama-bytes --budget 2MiB --seq 64 --fixes) >out 2>err </dev/null; rc=$?
  refuses 4
fi

# Bad files are named.
echo '{"model_type": "gpt2", "vocab_size": "many"}' >config.json
run plan ./config.json; refuses 5; expect_err vocab_size
echo '{"model_type": ' >config.json
run plan ./config.json; refuses 5; expect_err 'config.json'
# Where the memory ends in the middle of a plan, the program ends with a word: what it printed of --json is a document.
if ! sanitized && [ -n "$have_python" ]; then
  for limit in $(seq 18000 400 32000); do
    last="headroom plan llama-3-70b --table seq,micro-batch --json under ulimit -v $limit"
    (ulimit -v "$limit" && exec "$program" plan llama-3-70b --device rtx-4090 --seq 64 --table seq,micro-batch --json --no-fixes) >out 2>err; rc=$?
    case $rc in 3 | 4 | 127) ;; *) fail "exit code $rc" ;; esac
    grep ' 0 bytes' err && fail 'a refusal of nothing'
    [ ! -s out ] || expect_json 'd["fits"] is False'
  done
fi
finish
