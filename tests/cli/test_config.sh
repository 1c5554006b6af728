#!/usr/bin/env bash
# Where values come from: flag > environment > recipe > default; mistakes in a recipe name file and line.
source "$(dirname "$0")/common.sh"

cat >job.yaml <<'YAML'
# one recipe for plan and train
model: micro-llama-bytes
seq: 64
betas: [0.8, 0.95]
data: [a.txt, "b c.txt"]
eval-data: held.txt
shuffle: yes
loss-chunk: off
document-separator: "\n---\n"
epochs: ~
YAML
run plan --recipe job.yaml --json; expect_rc 0
expect_json 'd["job"]["seq"] == 64' 'd["job"]["betas"] == [0.8, 0.95]' 'd["job"]["shuffle"] is True' 'd["job"]["loss_chunk"] == "off"' 'd["model"]["name"] == "micro-llama-bytes"'
run train --recipe job.yaml --show-config; expect_rc 0; expect_no_err
expect_out '^seq: 64  # job.yaml:3$'; expect_out '^data: \[a.txt, "b c.txt"\]  # job.yaml:5$'; expect_out '^micro-batch: 1  # default$'
expect_out '^document-separator: "\\n---\\n"  # job.yaml:9$'; expect_out '^# out: \(not set\)$'

export HEADROOM_SEQ=128 HEADROOM_RECIPE=job.yaml HEADROOM_EVAL_DATA=x:y
run train --show-config; expect_rc 0; expect_out '^seq: 128  # environment HEADROOM_SEQ$'; expect_out '^eval-data: \[x, y\]'
run train --show-config --seq 32 --no-shuffle --data z; expect_out '^seq: 32  # flag$'; expect_out '^shuffle: false  # flag$'; expect_out '^data: \[z\]  # flag$'
run plan gpt2-124m --show-config; expect_out '^model: gpt2-124m  # flag$'
HEADROOM_SEQ=many run plan; refuses 2; expect_err 'HEADROOM_SEQ'
unset HEADROOM_SEQ HEADROOM_RECIPE HEADROOM_EVAL_DATA

# Values are shown whole, however long.
long=$(printf 'a word %.0s' {1..900}) paths=$(printf 'some/folder/file-%d.txt ' {1..200})
run generate gpt2-124m --prompt "$long" --show-config; expect_rc 0; cp out long.yaml
run generate --recipe long.yaml --show-config --json; expect_rc 0; expect_json 'len(d["config"]["prompt"]["value"]) == 6300'
# shellcheck disable=SC2086
run train gpt2-124m --data $paths --show-config --json; expect_rc 0; expect_json 'len(d["config"]["data"]["value"].split()) == 200'
# A value with the byte 0 would be cut there.
printf 'prompt: "a\\0b"\n' >zero.yaml
run generate gpt2-124m --recipe zero.yaml --show-config; refuses 5; expect_err '^headroom: zero.yaml:1: a value holds the byte 0'

# What --show-config prints is a recipe that gives the same configuration.
run train --recipe job.yaml --lr 3e-4 --out 'my run' --threads 1 --show-config; sed 's/ *#.*//' out >first; cp out again.yaml
run train --recipe again.yaml --show-config; expect_rc 0; sed 's/ *#.*//' out >second
cmp -s first second || fail "the printed configuration does not read back: $(diff first second | head -5)"
run train --recipe again.yaml --show-config --json; expect_rc 0; expect_json 'd["config"]["lr"]["value"] == "0.0003"' 'd["config"]["lr"]["origin"].startswith("again.yaml:")'
# ... and the same output: what is decided later is said in words, as a comment.
run plan gpt2-124m --device rtx-4090 --micro-batch 8 --budget 4GiB --show-config; expect_rc 0; expect_out '^# fixes: on when the job does not fit$'; cp out again.yaml
run plan --recipe again.yaml; expect_rc 3; expect_out 'options that fit, each planned'
run plan gpt2-124m --no-fixes --show-config; expect_out '^fixes: false  # flag$'

bad() { # exit code, pattern, lines of the recipe
  printf '%s\n' "${@:3}" >bad.yaml
  run plan micro-llama-bytes --recipe bad.yaml; refuses "$1"; expect_err "$2"
}
bad 2 "bad.yaml:2: unknown key 'micro-bacth'" 'seq: 8' 'micro-bacth: 2'
expect_err 'try: micro-batch'
bad 2 "bad.yaml:1: seq: 'x'" 'seq: x'
bad 2 'bad.yaml:2: .seq. stands in line 1 already' 'seq: 8' 'seq: 8'
bad 2 'bad.yaml:1: temperature' 'temperature: hot'
bad 2 'bad.yaml:1: unknown key' 'help: true'
bad 5 'bad.yaml:1: a recipe is a mapping' '- seq'
bad 5 'bad.yaml:1: a recipe is flat' 'seq: {a: 1}'
bad 5 'bad.yaml:2: a recipe is flat' 'lr: &x 1' 'seq: *x'
bad 5 'bad.yaml:1: a list holds' 'data: [[a]]'
bad 5 'bad.yaml:2:' 'seq: [1'
bad 5 'one document' 'seq: 8' '---' 'seq: 9'
: >bad.yaml; run plan micro-llama-bytes --recipe bad.yaml; expect_rc 0
echo '# nothing' >bad.yaml; run plan micro-llama-bytes --recipe bad.yaml; expect_rc 0
run plan micro-llama-bytes --recipe nosuch.yaml; refuses 1; expect_err 'nosuch.yaml'
run plan micro-llama-bytes --recipe .; refuses 5
finish
