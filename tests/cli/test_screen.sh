#!/usr/bin/env bash
# On a terminal of 60, 80 and 160 columns no line of text is wider than it, but for commands to copy; nothing is coloured where
# NO_COLOR or TERM says so; and what a pipe gets does not depend on a window.
source "$(dirname "$0")/common.sh"
command -v script >/dev/null && script -qec true /dev/null >/dev/null 2>&1 </dev/null || { echo "no terminal can be made (script): nothing to test"; exit 0; }
cp "$here/../snapshots/real/2.15/backward-oom.pickle.gz" snapshot.gz; snapshot=snapshot.gz
printf '{"text": "a b"}\n{"text": "c d"}\n' >rows.jsonl

# on_screen COLUMNS ARGUMENTS...: runs the program on a terminal; what it shows, without colours, is in seen
on_screen() {
  local columns=$1
  shift
  last="headroom $* on $columns columns"
  TERM=${term:-xterm} script -qec "stty cols $columns rows 50; '$program' $*" /dev/null </dev/null >tty 2>/dev/null
  tr '\r' '\n' <tty | sed 's/\x1b\[[0-9;?]*[A-Za-z]//g' >seen
  [ -s seen ] || fail "nothing is shown"
}
fits() { # COLUMNS
  grep -vE '^  headroom (plan|train|generate|evaluate|inspect|data) ' seen | LC_ALL=C.UTF-8 awk -v most="$1" 'length($0) > most' >wide
  [ ! -s wide ] || fail "wider than $1: $(head -3 wide)"
}

for columns in 60 80 160; do
  for arguments in help 'help plan' 'help train' 'plan llama-3-8b --device rtx-4090' 'plan smollm2-135m --device rtx-3060 --timeline' \
    'plan gpt2-124m --device rtx-3060 --engine pytorch --fixes' devices "inspect $snapshot" "inspect $snapshot --by size" "explain $snapshot" \
    "replay $snapshot" 'plan smollm2-135m --device rtx' 'plan smollm2-135m --seq 1k' 'plan rows.jsonl' 'plan nonesuch' \
    'plan smollm2-135m --learning-rate 3'; do
    on_screen $columns "$arguments"; fits $columns
    grep -q $'\xef\xbf\xbd' seen && fail 'a character was cut'
  done
done
# A run, from its first line to its last, with notes and warnings; what a bar repaints is no line of text, but fits too.
yes 'the quick brown fox' | head -400 >text.txt
for columns in 60 80; do
  on_screen $columns "train tiny-llama-bytes --data text.txt --seq 2048 --steps 2 --out run-$columns"; fits $columns
  grep -q 'warning: rows of 2048' seen || fail 'the warning is missing'
  on_screen $columns "train tiny-llama-bytes --data text.txt --seq 64 --steps 20 --eval-data text.txt --eval-every 10 --out bar-$columns"; fits $columns
  on_screen $columns "evaluate run-$columns/final --data text.txt"; fits $columns
  on_screen $columns "data text.txt --model tiny-llama-bytes --seq 64"; fits $columns
done

# What is wide uses it: a stack has room for both frames, and is not cut.
on_screen 160 "inspect $snapshot"; grep -q 'adam._init_group < scenarios.py:88 train_step < scenarios.py:155 backward_fails$' seen || fail 'a stack is cut on 160 columns'
# A narrow one loses no figure.
on_screen 60 "inspect $snapshot"; grep -q 'live tensors .* 271.36 MiB  88 %$' seen || fail 'a share is missing'
on_screen 60 'plan llama-3-8b --device rtx-4090'; grep -q -- '--precision bf16-pure$\|--clip 0$' seen || fail 'options are broken within a word'

for variant in NO_COLOR=1 term=dumb; do
  for arguments in 'plan llama-3-8b --device rtx-4090' "explain $snapshot" 'plan nonesuch'; do
    (export "${variant?}"; on_screen 80 "$arguments"); grep -q $'\x1b' tty && fail "coloured with $variant"
  done
done

# Nothing that a file is called or a model writes steers the terminal: of control characters there are lines' ends alone.
export NO_COLOR=1
steered() { LC_ALL=C grep -q $'[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]\|\xc2[\x80-\x9f]' tty && fail 'control characters reach the terminal'; }
name=$'a\e[31mb'
cp text.txt "$name.txt"
on_screen 80 "train tiny-llama-bytes --data '$name.txt' --seq 64 --steps 1 --out '$name' --profile '$name.profile'"; grep -q $'\x1b\[31mb' tty && fail 'a name steers the terminal'; grep -q 'saved in a?\[31mb/final' seen || fail 'the name is missing'
grep -q 'is traced in a?\[31mb.profile' seen || fail 'the name of the profile is missing'
on_screen 80 "inspect '$name'"; steered; grep -qF 'inspect: a?[31mb/memory' seen || fail 'the name is missing'
: >"$name/final/$name"
on_screen 80 "inspect '$name' --verify"; steered; grep -qE '^unknown +.*/final/a\?\[31mb' seen || fail 'the name is missing'
rm "$name/final/$name"
on_screen 80 "plan '$name'"; steered
cp -r "$name/final" "d$name" # a directory gives its model the name
for command in plan 'evaluate --data text.txt --seq 16'; do on_screen 80 "$command 'd$name'"; steered; grep -qF 'da?[31mb' seen || fail 'the name is missing'; done
on_screen 80 "data '$name.txt' --model tiny-llama-bytes"; steered; grep -qF 'a?[31mb.txt' seen || fail 'the name is missing'
printf '{"text": "a"}\n{"text": 1}\n' >"$name.jsonl"
on_screen 80 "data '$name.jsonl' --model tiny-llama-bytes"; steered; grep -qF 'a?[31mb.jsonl: line 2' seen || fail 'the broken row is missing'
# Nor do the frames of a snapshot.
if [ -n "$have_python" ]; then
  python3 - <<'END'
import pickle
name = "\x1b]0;t\x07\x9b"
frames = [{"name": name, "filename": f"/a/{name}.py", "line": 3}]
block = {"address": 0x7000000, "size": 1 << 20, "requested_size": 1 << 20, "state": "active_allocated", "frames": frames}
segment = {"device": 0, "address": 0x7000000, "total_size": 1 << 20, "stream": 0, "segment_type": "large", "blocks": [block]}
oom = {"action": "oom", "size": 1 << 30, "device_free": 1 << 19, "stream": 0, "frames": frames}
pickle.dump({"segments": [segment], "device_traces": [[oom]]}, open("steering.pickle", "wb"))
END
  for command in inspect 'inspect --by size' explain; do on_screen 80 "$command steering.pickle"; steered; done
  on_screen 80 "inspect steering.pickle"; grep -qF '?]0;t??' seen || fail 'the frame is missing'
fi
# Neither does what stands in a tokenizer or a template. U+009B begins such a sequence, too.
mkdir steering
printf '%s' '{"added_tokens":[{"id":1,"content":"\u001b]0;t\u0007\u009b","special":true}],"decoder":{"type":"Fuse"},"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}' >steering/tokenizer.json
printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}\e]0;t\a\xc2\x9b' >steering.jinja
printf 'a\e]0;t\a\xc2\x9b' >steering.txt; echo 0 1 >steering.ids
controls() { steered; grep -qF '?]0;t??' seen || fail 'the text is missing'; }
on_screen 80 "tokenize steering steering.txt --tokens"; controls
on_screen 80 "tokenize steering steering.ids --decode --no-special"; steered
on_screen 80 "tokenize steering steering.ids --decode"; controls
run train custom:family=llama,layers=1,hidden=8,heads=1,mlp=8,vocab=8,positions=32 --tokenizer steering --data steering.txt --seq 4 --steps 1 --threads 1 --out steered -q; expect_rc 0
on_screen 80 "generate steered/final --chat --chat-template steering.jinja --prompt a --max-tokens 1 --render"; controls
run tokenize steering steering.ids --decode; expect_rc 0; [ "$(cat out)" = "$(cat steering.txt)" ] || fail 'a pipe does not get the bytes as they are'
on_screen 80 "generate run-60/final --prompt x --temperature 50 --max-tokens 600"; steered
# Of a model of bytes, whose answer comes one byte at a time: it has learned U+009B by heart.
yes $'a\xc2\x9b' | tr -d '\n' | head -c 20000 >bytes.txt
run train micro-llama-bytes --data bytes.txt --seq 32 --micro-batch 4 --threads 1 --lr 1e-2 --steps 200 --out bytes -q; expect_rc 0
run generate bytes/final --prompt a --temperature 0 --max-tokens 30 --threads 1 --quiet; expect_rc 0; [ "$(grep -ao $'\xc2\x9b' out | wc -l)" -ge 8 ] || fail 'it has not learned it'
on_screen 80 "generate bytes/final --prompt a --temperature 0 --max-tokens 30 --threads 1 --quiet"; steered; grep -qF 'a?a?' seen || fail 'the text is missing'
unset NO_COLOR

# A pipe and a file get the same from everywhere, and each error in one line.
run inspect "$snapshot"; expect_rc 0; cp out piped
script -qec "stty cols 160; '$program' inspect '$snapshot' >from-terminal" /dev/null </dev/null >/dev/null 2>&1
last='inspect into a file'; cmp -s piped from-terminal || fail 'a window decides what a file gets'
run plan smollm2-135m --device rtx; refuses 2; [ "$(wc -l <err)" = 2 ] || fail 'an error in a pipe is no line of its own'
finish
