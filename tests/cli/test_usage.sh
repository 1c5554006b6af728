#!/usr/bin/env bash
# Help, generated texts, and what a wrong command line is told.
source "$(dirname "$0")/common.sh"

for command in plan train evaluate generate chat devices explain inspect replay convert help version; do
  run "$command" --help; expect_rc 0; expect_no_err; expect_golden "$command-help.txt"
  cp out by_flag
  run help "$command"; expect_rc 0
  cmp -s out by_flag || fail "help $command and $command --help differ"
  awk 'length > 80 { exit 1 }' by_flag || grep -q '^  headroom' by_flag || fail "a line is wider than 80 columns"
done
run help; expect_rc 0; expect_golden help.txt
run --help; expect_rc 0; expect_out '^Usage: headroom COMMAND'
run; expect_rc 2; expect_err '^Usage: headroom COMMAND'; expect_no_out
run --version; expect_rc 0; expect_out '^headroom [0-9]+\.[0-9]+\.[0-9]+$'
run version --json; expect_rc 0; expect_json 'd["version"]'
run help --man; expect_rc 0; expect_out '^\.TH HEADROOM 1'; expect_out '\\-\\-micro\\-batch'
if command -v groff >/dev/null 2>&1; then
  groff -man -Tascii -ww out >/dev/null 2>man_warnings
  [ -s man_warnings ] && fail "groff: $(head -3 man_warnings)"
fi
run help --completion bash; expect_rc 0
cp out completion.bash

offered=$(bash -c 'source ./completion.bash; COMP_WORDS=(headroom convert --quantize q4_K); COMP_CWORD=3; _headroom; echo "${COMPREPLY[@]}"')
[ "$offered" = "q4_K q4_K_M" ] || fail "completion of convert --quantize offers '$offered'"

# Every choice that decides bytes is among the techniques, with what it does and what it excludes.
run help techniques; expect_rc 0; expect_no_err; expect_golden techniques.txt
cp out techniques
awk 'length > 80 { exit 1 }' techniques || fail "a line of the techniques is wider than 80 columns"
for field in recompute precision moments weight-packing attention optimizer quantize update; do
  words=$(sed -n "s/^    --$field) \(case .*\*) \)\{0,1\}_headroom_offer \"\([^\"]*\)\".*/\2/p" completion.bash)
  [ -n "$words" ] || fail "completion has no words of --$field"
  for word in $words; do
    case $field-$word in
      *-none | *-fp32 | update-after | weight-packing-auto | precision-auto | recompute-auto | recompute-every: | recompute-levels:) continue ;;
    esac
    grep -qx -- "--$field $word" techniques || fail "--$field $word is not among the techniques (src/cli/techniques.c)"
  done
done
[ "$(grep -c '^  results' techniques)" -eq "$(grep -c '^--' techniques)" ] || fail "a technique lacks what it does to results"
grep -A1 -x -- '--lora r=N,...' techniques | grep -q 'another algorithm' || fail "--lora is another algorithm"
grep -A1 -x -- '--quantize nf4' techniques | grep -q 'other numerics' || fail "--quantize is other numerics"
sed -n '/^--update in-backward/,/^$/p' techniques >block
for other in --clip --on-nonfinite --accumulate; do grep -q "excludes *$other" block || fail "in-backward excludes $other"; done
sed -n '/^--precision bf16-pure/,/^$/p' techniques | grep -q moments && fail "bf16-pure goes with bf16 moments"
sed -n '/^--precision bf16$/,/^$/p' techniques | grep -q 'excludes.*moments' || fail "bf16 excludes bf16 moments"
run help technique; refuses 2; expect_err 'headroom help techniques'

# A section of help stands once, and what it says of an option is that command's own.
for command in plan train evaluate generate devices explain inspect replay convert merge tokenize data help version; do
  run help "$command"; expect_rc 0
  twice=$(grep -E '^[A-Z][a-z ]*:$' out | sort | uniq -d)
  [ -z "$twice" ] || fail "the sections '$twice' stand twice"
  for other in plan train evaluate generate explain inspect replay convert merge tokenize data; do
    if [ "$other" = "$command" ]; then continue; fi
    sed -n '/^Usage/,/^Examples/!p' out | grep -qE "^  .*(  |; )$other(, [a-z]+)*: " && fail "it explains something of $other"
  done
done
run help generate; expect_out '^  --device NAME +cpu, or cuda \(the first GPU of this machine, else$'
run help inspect; expect_out '^  --device NAME +whose trace, 0 or cuda:0'
run help --man; expect_rc 0
[ -z "$(grep '^\.SH' out | sort | uniq -d)" ] || fail "a section of the manual page stands twice"
expect_out '^\.SH ENVIRONMENT'; expect_out '^\.SH FILES'; expect_out '^\.B HEADROOM_ISA'; expect_out 'RUN/checkpoints/'
run plan gpt2-124m --show-config; expect_rc 0
[ -z "$(grep '^# [A-Z][a-z]*$' out | sort | uniq -d)" ] || fail "a section of --show-config stands twice"

# A variable that nothing reads is said, and changes nothing; those of tests and other commands are none.
run plan gpt2-124m --device rtx-3060; cp out plain
HEADROOM_MICRO_BACTH=2 run plan gpt2-124m --device rtx-3060; expect_rc 0
expect_err '^warning: the environment has HEADROOM_MICRO_BACTH, which nothing reads$'; expect_err '^  try: HEADROOM_MICRO_BATCH$'
cmp -s plain out || fail "the plan is another one"
HEADROOM_XYZZY=1 HEADROOM_SHOW_CONFIG=1 run version; expect_rc 0
expect_err 'HEADROOM_XYZZY'; expect_err 'HEADROOM_SHOW_CONFIG'; [ "$(wc -l <err)" -eq 2 ] || fail "more than a line for each"
HEADROOM_PROMPT=x HEADROOM_CACHE=$HEADROOM_CACHE HEADROOM_TEST_QUICK=1 run version; expect_rc 0; expect_no_err

# Near misses are suggested.
run plna; refuses 2; expect_err "unknown command 'plna'"; expect_err 'try: headroom plan'
run plan gpt2-124m --micro-bacth 2; refuses 2; expect_err 'unknown option --micro-bacth'; expect_err 'try: --micro-batch'
run plan gpt2-124m --schedule cosin; refuses 2; expect_err 'try: --schedule cosine'
run plan gpt2-123m; refuses 2; expect_err 'gpt2-124m'
run plan gpt2-124m --device rtx-4091; refuses 2; expect_err 'rtx-4090'
run help plan --man; refuses 2; expect_err '^headroom: --man and the help of plan are printed one at a time'
run help techniques --completion zsh; refuses 2; expect_err 'the help of techniques'
run help --man --completion zsh; refuses 2; expect_err '^headroom: --man and --completion are'
run help pln; refuses 2; expect_err 'headroom help plan'
run plan gpt2-124m --qqqqqqqq; refuses 2; expect_err 'plan --help'
# What other trainers call it is known: one name of each kind, and those that a plan and a training are asked for most.
while read -r theirs ours; do
  run train micro-llama-bytes "$theirs" 1; refuses 2; expect_err "unknown option $theirs"; expect_err "^  try: $ours"
done <<'NAMES'
--learning-rate --lr X$
--learning_rate --lr X$
--batch-size --micro-batch N$
--per_device_train_batch_size --micro-batch N$
--gradient_accumulation_steps --accumulate N$
--max-steps --steps N$
--num_train_epochs --epochs X$
--output-dir --out RUN$
--bf16 --precision bf16$
--fp16 --precision fp16$
--gradient-checkpointing --recompute block$
--max-seq-length --seq N$
--lora-r --lora r=N$
--load-in-4bit --quantize nf4$
--qlora --lora r=16,alpha=32 --quantize nf4\+dq$
--model_name_or_path headroom train MODEL
--max-grad-norm --clip X$
--save-total-limit --keep N$
--val_set_size --eval-split SHARE$
NAMES
run plan gpt2-124m --output-dir x; refuses 2; expect_err 'try: --out RUN, an option of: train, merge'
printf 'model: gpt2-124m\nlearning_rate: 1e-4\n' >peer.yaml
run plan --recipe peer.yaml; refuses 2; expect_err "unknown key 'learning_rate'"; expect_err '^  try: lr: X$'
# Names of the Hub are no directories; the sizes are known.
run plan meta-llama/Llama-3.1-8B; refuses 2; expect_err 'nothing is downloaded'; expect_err 'try: for a plan, llama-3.1-8b: '
run plan meta-llama/Meta-Llama-3-8B-Instruct; refuses 2; expect_err 'llama-3-8b:'
run plan Qwen/Qwen2.5-7B-Instruct; refuses 2; expect_err 'qwen2.5-7b:'
run plan mistralai/Mistral-7B-Instruct-v0.3; refuses 2; expect_err 'mistral-7b-v0.3:'
run plan openai-community/gpt2; refuses 2; expect_err 'gpt2-124m:'
run plan some/other-model; refuses 2; expect_err 'download the model and name its directory'
run plan Llama-3.1-8B-Instruct; refuses 2; expect_err 'did you mean llama-3.1-8b'
run plan llama-3.1-8b --device h100 --json; expect_rc 3; expect_json 'd["model"]["parameter_count"] == 8030261248'
# Devices: by their number, and not where several have it.
run plan gpt2-124m --device 4090 --json; expect_rc 0; expect_json 'd["device"]["name"] == "rtx-4090"'
run plan gpt2-124m --device a100; refuses 2; expect_err 'a100-40 \(40 GB\), a100-80 \(80 GB\), a100-80-pcie'; expect_err 'try: --device a100-40'
run devices v100; refuses 2; expect_err 'v100-16 .*v100-32'
# Options belong to commands; the message says to which.
run plan gpt2-124m --data x; refuses 2; expect_err 'of: train, evaluate'
run train gpt2-124m --table seq,micro-batch; refuses 2; expect_err 'of: plan'

# Values are read whole.
for wrong in '--seq x' '--seq 0' '--seq -1' '--seq 1.5' '--seq 99999999999' '--micro-batch 2x' '--lr fast' '--lr nan' \
  '--betas 0.9' '--betas 0.9,x' '--clip -1' '--loss-chunk some' '--budget 0' '--budget 6G' '--budget 101%' '--budget -5' \
  '--budget 99999999TiB' '--recompute blok' '--recompute every:0' '--optimizer adam' '--steps 0' '--auto=maybe' '--table seq' \
  '--dump all' '--for fun' '--color red' '--no-seq' '--seq' '--seq --micro-batch' '--fail-over much' '--threads 0'; do
  # shellcheck disable=SC2086
  run plan gpt2-124m $wrong; refuses 2
done
# A budget without its unit, and one that is meant so.
run plan gpt2-124m --device rtx-4090 --budget 6; refuses 2; expect_err "'6' is not a size"; expect_err '^  try: --budget 6GiB, or 6B for bytes'
# A unit that some read as 1000s and some as 1024s, an exponent, and more than there is: each says what to write instead.
while IFS='|' read -r size reason remedy; do
  run plan gpt2-124m --device rtx-4090 --budget "$size"; refuses 2; expect_err "^headroom: --budget: '$size' is not a size: $reason"; expect_err "^  try: $remedy"
done <<'SIZES'
8G|its unit may be of 1000s or of 1024s|--budget 8GiB \(of 1024s\), or 8GB \(of 1000s\)
0.5 m|its unit may be of 1000s or of 1024s|--budget 0.5MiB \(of 1024s\), or 0.5MB
8Ti|its unit may be of 1000s or of 1024s|--budget 8TiB
8e9|sizes are written without an exponent|--budget 8000000000B
1e400|sizes are written without an exponent|6GiB
99999999999999999999|it is larger than any memory|6GiB
1.5|bytes are whole numbers|6GiB
8 gigs|its unit is unknown; write GiB|6GiB
SIZES
# What is offered instead is taken.
for tokens in 2147483647 4294967296; do
  run plan tiny-llama-bytes --device h100 --seq 64 --batch-tokens $tokens; refuses 2; expect_err 'it must be from 1 to 1048576'
  # shellcheck disable=SC2046
  run plan tiny-llama-bytes --device h100 --seq 64 $(sed -nE 's/^  try: (--batch-tokens [0-9]+), or a larger --micro-batch$/\1/p' err) --json; expect_rc 0; expect_json 'd["job"]["accumulate"] == 1048576'
done
run plan gpt2-124m --device rtx-4090 --budget 8192; refuses 2; expect_err '^  try: --budget 8192MiB'
run plan gpt2-124m --fail-over 24; refuses 2; expect_err 'try: --fail-over 24GiB'
run plan micro-llama-bytes --budget 6000B --no-fixes; expect_rc 3
run plan micro-llama-bytes --budget 1048576 --no-fixes; expect_rc 3
run plan micro-llama-bytes --budget 500KiB --show-config; expect_rc 0; expect_out '^budget: 512000B'
# Rows beyond the positions that a model was made for: legal, and said with what follows.
run plan llama-2-7b --device h100 --seq 8192 --no-fixes; tr -s ' \n' ' ' <out >one; grep -q 'positions rows of 8192 tokens, and llama-2-7b was made for 4096 positions: .*--seq 4096 stays inside' one || fail "no word of the positions"
run plan llama-2-7b --device h100 --seq 8192 --json --no-fixes; expect_json 'len(d["warnings"]) == 1' '"4096" in d["warnings"][0]'
run plan llama-2-7b --device h100 --seq 4096 --json --no-fixes; expect_json 'd["warnings"] == []'
echo 'a text' >short.txt
run train micro-llama-bytes --seq 512 --data short.txt --steps 1 --threads 1 --out beyond -q; expect_rc 0; expect_err '^warning: rows of 512 tokens'
# Data that are not there are found before anything is planned.
for option in --data '--data short.txt --eval-data'; do
  # shellcheck disable=SC2086
  run train gpt2-124m $option nosuch.jsonl --auto --batch-tokens 8192 --out nowhere; refuses 1; expect_err 'nosuch.jsonl'
  grep -qE '^(plan|auto)' err && fail "a plan was made before the data were looked for"
done
# Values as others call them, beginnings of names, cards of laptops, words of --lora, files that are no models.
while read -r option theirs ours; do
  run plan gpt2-124m "$option" "$theirs"; refuses 2; expect_err "^  try: $option $ours\$"
done <<'V'
--precision float16 fp16
--precision bfloat16 bf16
--quantize int4 nf4
--quantize 8bit int8
--optimizer adamw_bnb_8bit adamw8bit
--optimizer adamw_torch adamw
--attention sdpa flash
--lora 16 r=16
V
run plan qwen3; refuses 2; expect_err 'try: presets of that name are qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b$'
run plan llama3-8b; refuses 2; expect_err 'did you mean llama-3-8b'
run plan gpt2-124m --device 'RTX 4070 Laptop GPU'; refuses 2; expect_err 'no cards of laptops'; expect_err 'try: --device rtx-4070 --budget SIZE'
run plan gpt2-124m --device 'NVIDIA RTX A2000 Laptop GPU'; refuses 2; expect_err 'no cards of laptops'; expect_err 'try: --device NAME --budget SIZE' # no card of the table is spelt so
run plan gpt2-124m --device 'NVIDIA GeForce RTX 3060 Laptop GPU'; refuses 2; expect_err 'no cards of laptops'; expect_err 'try: --device rtx-3060 --budget SIZE'
run plan gpt2-124m --device '4090 laptop'; refuses 2; expect_err 'try: --device rtx-4090 --budget SIZE'
run plan gpt2-124m --device 'NVIDIA GeForce RTX 2060 with Max-Q Design'; refuses 2; expect_err 'try: --device rtx-2060 --budget SIZE'
run plan gpt2-124m --device 'Quadro M1200 Mobile'; refuses 2; expect_err 'no cards of laptops'; expect_err 'headroom devices'
run plan gpt2-124m --lora r=16,target=q_proj; refuses 2; expect_err 'did you mean targets=q_proj'
run plan gpt2-124m --lora rank=8; refuses 2; expect_err 'did you mean r=8'
run plan gpt2-124m --lora zz=8; refuses 2; expect_err 'words are r=N'
printf '{"text": "a"}\n{"text": "b"}\n' >rows.jsonl
run train rows.jsonl --data rows.jsonl --out none; refuses 5; expect_err 'data stands behind --data'
run tokenize gpt2-124m rows.jsonl; refuses 2; expect_err 'is a preset, which has no tokenizer'
run chat micro-llama-bytes; refuses 2; expect_err 'headroom generate MODEL --prompt'
run plan; refuses 2; expect_err 'MODEL'
run plan gpt2-124m extra; refuses 2; expect_err 'extra'
run plan gpt2-124m --update in-backward --clip 1; refuses 2; expect_err 'exclude'
run plan gpt2-124m --update in-backward --on-nonfinite skip; refuses 2; expect_err 'exclude'; expect_err 'skipping would keep .* of gradients alive'
run plan gpt2-124m --max-skipped 0; refuses 2; expect_err 'max-skipped'
# What an optimizer or a schedule has no place for changes nothing, and is said: sgd takes no momentum here, as PyTorch's does.
while read -r option rest; do
  # shellcheck disable=SC2086
  run plan micro-llama-bytes $option ${rest%%:*}; expect_rc 0; expect_err "^warning: $option does nothing with ${rest#*: }"; expect_err ', or leave it out'
done <<'E'
--momentum 0.9 --optimizer sgd: --optimizer sgd
--momentum 0.9: --optimizer adamw
--betas 0.9,0.98 --optimizer sgd: --optimizer sgd
--eps 1e-6 --optimizer lion: --optimizer lion
--adafactor-clip 2: --optimizer adamw
--states-8bit all: --optimizer adamw
--decay 0.2: --schedule linear
--min-lr-ratio 0.1 --schedule constant: --schedule constant
--max-skipped 3: --on-nonfinite stop
--epochs 2 --steps 5: --steps 5
E
run plan micro-llama-bytes --optimizer momentum --momentum 0.5 --schedule wsd --decay 0.2 --on-nonfinite skip --max-skipped 3; expect_rc 0
HEADROOM_MOMENTUM=0.5 run plan micro-llama-bytes; expect_rc 0 # which is for several commands
run plan gpt2-124m --dropout 1; refuses 2; expect_err 'dropout is 1; it must be at least 0 and below 1'
run plan llama-2-7b --dropout 0.1 --seq 5000000; refuses 2; expect_err 'masks reach to'
run plan gpt2-124m --label-smoothing 1.5; refuses 2; expect_err 'label-smoothing'
run plan gpt2-124m --neftune-alpha -1; refuses 2; expect_err 'neftune-alpha'
run evaluate micro-gpt2-bytes --data "$0" --dropout 0.1; refuses 2; expect_err 'no option of'
run plan gpt2-124m --on-nonfinite skpi; refuses 2; expect_err 'try: --on-nonfinite skip'
run train micro-llama-bytes; refuses 2; expect_err '--data'
run train micro-llama-bytes --data "$0"; refuses 2; expect_err '--out'
run train micro-llama-bytes --data "$0" --out a --resume b; refuses 2; expect_err 'differ'
run train --data a b --out c; refuses 2; expect_err 'MODEL'
run train micro-llama-bytes --data "$0" --out a --document-separator '\q'; refuses 2; expect_err 'document-separator'
run generate micro-llama-bytes; refuses 2; expect_err '--prompt'
run generate micro-llama-bytes --prompt x --prompt-file y; refuses 2
run generate micro-llama-bytes --prompt x --top-p 0; refuses 2
run generate gpt2-124m --prompt 'words'; refuses 2; expect_err 'token ids'
run generate gpt2-124m --prompt '1 99999999'; refuses 2; expect_err 'vocabulary'
run devices nosuch; refuses 2

run devices; expect_rc 0; expect_out '^cpu '; expect_out '^rtx-4090 '; expect_no_err
awk 'length > 80 { exit 1 }' out || fail "a line is wider than 80 columns"
run devices 'RTX 4090'; expect_rc 0; expect_out 'source'
run devices --json; expect_rc 0; expect_json 'len(d["devices"]) > 12' 'd["devices"][0]["is_cpu"]' 'all(x["usable_bytes"] <= x["capacity_bytes"] for x in d["devices"])'
run devices h100 --json; expect_rc 0; expect_json 'd["device"]["name"] == "h100"' 'd["device"]["source"]'

# An argument that is empty, as of a variable that is not set, is told by its place.
for command in inspect explain replay convert tokenize plan train evaluate generate chat data; do
  run $command ''; refuses 2; expect_err 'argument 1 is empty: a variable of the shell may be unset'; expect_err "try: headroom $command "
done
run merge micro-llama-bytes '' --out none; refuses 2; expect_err 'argument 2 is empty'
run plan micro-llama-bytes ''; refuses 2; expect_err 'argument 2 is empty'
run plan '' micro-llama-bytes; refuses 2; expect_err 'argument 1 is empty'
run data "$0" ''; refuses 2; expect_err 'argument 2 is empty'

# A result that cannot be written is an error, which says why: also where it is more than a stream holds, or goes word by word.
if [ -w /dev/full ]; then
  run train micro-llama-bytes --data "$0" --seq 16 --steps 1 --threads 1 --out written -q; expect_rc 0
  for words in 'devices' 'devices --json' 'help --man' 'plan micro-llama-bytes --json' 'generate written/final --prompt x --max-tokens 2'; do
    "$program" $words >/dev/full 2>err; rc=$?
    last="headroom $words >/dev/full"; expect_rc 1; expect_err 'standard output: No space left on device'
    "$program" $words >&- 2>err; rc=$?
    last="headroom $words >&-"; expect_rc 1; expect_err 'standard output: Bad file descriptor'
  done
fi
finish
