#!/usr/bin/env bash
# Completion scripts: as recorded, and run: bash's by its function, those of zsh and fish in their shells, where these are installed.
source "$(dirname "$0")/common.sh"
for shell in bash zsh fish; do
  run help --completion "$shell"; expect_rc 0; expect_no_err; expect_golden "completion-$shell.txt"
  cp out "completion.$shell"
done
run help --completion csh; refuses 2; expect_err 'try: --completion [a-z]*sh'
mkdir data
touch data/a.jsonl 'data/b c.jsonl' model.gguf

# is WHAT GOT WANTED
is() {
  last=$1
  [ "$2" = "$3" ] || fail "offers '$2', not '$3'"
}

# ---- bash: bash_offers WORD...: what the function offers for the last word, words cut as bash cuts them ----
bash_offers() {
  # shellcheck disable=SC2016 # for the other shell
  bash -c 'source ./completion.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; _headroom; IFS=" "; echo "${COMPREPLY[*]}"' \
    bash headroom "$@"
}
is 'bash: commands' "$(bash_offers tr)" train
is 'bash: an option' "$(bash_offers plan x --micro)" --micro-batch
is 'bash: an option of another command' "$(bash_offers plan x --max-tok)" ''
is 'bash: words' "$(bash_offers plan x --schedule c)" 'constant cosine'
is 'bash: words behind =' "$(bash_offers plan x --schedule = c)" 'constant cosine'
is 'bash: all words behind =' "$(bash_offers plan x --schedule =)" 'constant linear cosine wsd'
is 'bash: words with colons' "$(bash_offers plan x --recompute l)" levels:
is 'bash: behind a colon' "$(bash_offers plan x --engine = pytorch : p)" plain
is 'bash: a new word behind =' "$(bash_offers plan gpt2-124m --seq = 8 --precision bf16-)" bf16-pure
is 'bash: devices' "$(bash_offers plan x --device rtx-409)" rtx-4090
is 'bash: devices to run on' "$(bash_offers train x --device '')" 'cpu cuda'
is 'bash: device of a snapshot' "$(bash_offers inspect x --device c)" cuda:0
is 'bash: device by name' "$(bash_offers devices h10)" "$(bash_offers plan x --device h10)"
is 'bash: presets' "$(bash_offers plan gpt2-12)" gpt2-124m
is 'bash: no presets where weights are read' "$(for c in evaluate generate chat merge tokenize; do bash_offers $c gpt2-12; done)" ''
is 'bash: files as models' "$(bash_offers evaluate mod)" model.gguf
is 'bash: files' "$(bash_offers evaluate x --data data/b)" 'data/b c.jsonl'
is 'bash: more files' "$(bash_offers evaluate x --data data/b data/a)" data/a.jsonl
is 'bash: files behind =' "$(bash_offers plan x --recipe = mo)" model.gguf
is 'bash: --model' "$(bash_offers data x --model gpt2-12)" gpt2-124m
is 'bash: templates' "$(bash_offers generate x --chat-template chatm)" chatml
is 'bash: formats' "$(bash_offers inspect x --export sp)" speedscope
is 'bash: numbers' "$(bash_offers plan x --seq '')" ''
is 'bash: flags take none' "$(bash_offers plan --json gpt2-12)" gpt2-124m
is 'bash: negations' "$(bash_offers tokenize x --no-s)" --no-special
is 'bash: topics' "$(bash_offers help tech)" techniques
for command in $(bash_offers ''); do
  for flag in $(bash_offers "$command" --); do
    "$program" help "$command" | grep -qE "^  ${flag/#--no-/--}( |\$)" || { last="bash: $command $flag"; fail "is no option"; }
  done
  [ "$(bash_offers "$command" -- | tr ' ' '\n' | grep -vc '^--no-')" -eq "$("$program" help "$command" | grep -c '^  --')" ] ||
    { last="bash: $command"; fail "options are missing"; }
done

# ---- fish: it is asked, and answers with a line for each, the description behind a tab ----
fish_offers() { fish --no-config -c 'source ./completion.fish; complete -C "$argv[1]"' -- "$1" 2>&1 | cut -f1 | tr '\n' ' ' | sed 's/ $//'; }
if command -v fish >/dev/null 2>&1; then
  export HOME=$work
  is 'fish: commands' "$(fish_offers 'headroom tr')" train
  is 'fish: an option' "$(fish_offers 'headroom plan x --micro')" --micro-batch
  is 'fish: an option of another command' "$(fish_offers 'headroom plan x --max-tok')" ''
  is 'fish: words' "$(fish_offers 'headroom plan x --schedule c')" 'constant cosine'
  is 'fish: words behind =' "$(fish_offers 'headroom plan x --schedule=c')" '--schedule=constant --schedule=cosine'
  is 'fish: devices' "$(fish_offers 'headroom plan x --device rtx-409')" rtx-4090
  is 'fish: devices to run on' "$(fish_offers 'headroom train x --device ')" 'cpu cuda'
  is 'fish: presets' "$(fish_offers 'headroom plan gpt2-12')" gpt2-124m
  is 'fish: no presets where weights are read' "$(for c in evaluate generate chat merge tokenize; do fish_offers "headroom $c gpt2-12"; done)" ''
  is 'fish: files as models' "$(fish_offers 'headroom evaluate mod')" model.gguf
  is 'fish: files' "$(fish_offers 'headroom evaluate x --data data/a')" data/a.jsonl
  is 'fish: more files' "$(fish_offers 'headroom evaluate x --data data/b data/a')" data/a.jsonl
  is 'fish: templates' "$(fish_offers 'headroom generate x --chat-template chatm')" chatml
  is 'fish: negations' "$(fish_offers 'headroom tokenize x --no-s')" --no-special
  is 'fish: topics' "$(fish_offers 'headroom help tech')" techniques
else
  echo 'skipped: fish is not installed'
fi

# ---- zsh: lines are typed into an interactive one, completed by tab, and what stands on the line then is written down ----
cat >drive.zsh <<'Z'
zmodload zsh/zpty
zpty -b shell zsh -f -i
expect() { local text; zpty -r -m shell text "*$1*" || exit 1 }
zpty -w shell 'PS1= PROMPT_EOL_MARK= ; unsetopt beep; fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -u -D'
zpty -w shell 'setopt no_auto_menu no_list_beep; zstyle ":completion:*" list-prompt ""; zstyle ":completion:*" select-prompt ""'
zpty -w shell 'note() { print -r -- "$BUFFER" >>answers; BUFFER=; zle redisplay }; zle -N note; bindkey "^X^N" note; print re''ady'
expect ready
for line in "$@"; do zpty -w -n shell "$line"$'\t\C-X\C-N'; done
zpty -w shell 'print do''ne'
expect done
zpty -d shell
Z
zsh_cases=(
  'headroom tra' 'headroom train '
  'headroom plan x --micro' 'headroom plan x --micro-batch='
  'headroom plan x --max-tok' 'headroom plan x --max-tok'
  'headroom plan x --schedule cosi' 'headroom plan x --schedule cosine '
  'headroom plan x --schedule=cosi' 'headroom plan x --schedule=cosine '
  'headroom plan x --engine pytorch:p' 'headroom plan x --engine pytorch:plain '
  'headroom plan x --device rtx-409' 'headroom plan x --device rtx-4090 '
  'headroom train x --device ' 'headroom train x --device cpu '
  'headroom plan gpt2-12' 'headroom plan gpt2-124m '
  'headroom evaluate mod' 'headroom evaluate model.gguf '
  'headroom evaluate x --data data/a' 'headroom evaluate x --data data/a.jsonl '
  'headroom evaluate x --data data/a.jsonl data/b' 'headroom evaluate x --data data/a.jsonl data/b\ c.jsonl '
  'headroom generate x --chat-template chatm' 'headroom generate x --chat-template chatml '
  'headroom tokenize x --no-s' 'headroom tokenize x --no-special '
  'headroom help tech' 'headroom help techniques '
)
if command -v zsh >/dev/null 2>&1; then
  mkdir functions
  cp completion.zsh functions/_headroom
  lines=()
  for ((i = 0; i < ${#zsh_cases[@]}; i += 2)); do lines+=("${zsh_cases[i]}"); done
  last='zsh'
  TERM=dumb timeout 60 zsh -f drive.zsh "${lines[@]}" >zsh_log 2>&1 || fail "it did not answer: $(tail -3 zsh_log)"
  touch answers
  mapfile -t answers <answers
  for ((i = 0; i < ${#lines[@]}; i++)); do is "zsh: ${lines[i]}" "${answers[i]:-}" "${zsh_cases[2 * i + 1]}"; done
else
  echo 'skipped: zsh is not installed'
fi
finish
