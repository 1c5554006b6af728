#!/usr/bin/env bash
# chat, and what it shares with `generate --chat`: the kept cache, stop texts, a full context, Ctrl-C, UTF-8 that is split
# over tokens, refusals.
source "$(dirname "$0")/common.sh"
shopt -s lastpipe # behind a pipe, converse runs in this shell, which reads its $rc

shape=custom:family=llama,layers=1,hidden=16,heads=2,kv-heads=1,mlp=16,vocab=700,positions=64,tied
mkdir words
cp "$here/../tokenizer/gpt2.json" words/tokenizer.json
for i in $(seq 300); do echo "line $i: a budget of $((i * i % 97)) bytes is a budget"; done >text.txt
run train $shape --tokenizer words --data text.txt --seq 32 --threads 1 --quiet --steps 300 --micro-batch 4 --lr 3e-2 --schedule constant --out run; expect_rc 0
# Writes each message and the beginning of an answer, and ends when "budget" is asked for nothing.
printf '%s' '{% for m in messages %}{{ "<" + m.role[0] + ">" + m.content + "\n" }}{% endfor %}{{ "<a>" if add_generation_prompt }}' >plain.jinja
chat="chat run/final --chat-template plain.jinja --threads 1 --temperature 0 --context 256"
generate="generate run/final --chat-template plain.jinja --threads 1 --temperature 0 --context 256 --chat --quiet"

# The model was made for 64 positions, which every command says; that alone may be said.
expect_no_err() { grep -qv '^warning: a context of 256 tokens' "$work/err" && fail "standard error is not empty"; }

# converse ARGUMENT...: standard input is the conversation.
converse() {
  last="headroom $* (with messages)"
  "$program" "$@" >"$work/out" 2>"$work/err"
  rc=$?
}

# One message is what generate answers; the second turn computes only what is new, and says how much.
run $generate --prompt 'line 7' --max-tokens 9; expect_rc 0; expect_no_err; cp out one
converse $chat --max-tokens 9 <<<'line 7'; expect_rc 0
cmp -s out one || fail 'chat answers otherwise than generate --chat'
expect_err '^1 answer: [0-9]+ tokens read, 0 more kept in the cache, 9 made .*reserved as planned$'
printf 'line 7\r\n\n  \nline 8' | converse $chat --max-tokens 9 --render; expect_rc 0
[ "$(head -n "$(wc -l <one)" out)" = "$(cat one)" ] || fail 'the first of two answers is another'
expect_err '^2 answers: [0-9]+ tokens read, [1-9][0-9]* more kept in the cache, 18 made'
expect_err '^<u>line 8$' # what the template makes, with what was said before in front of it
[ "$(grep -c '^<u>line 7$' err)" = 2 ] || fail '--render does not show the conversation'
converse $chat --max-tokens 9 --quiet --no-render <<<'line 7'; expect_rc 0; expect_no_err; cmp -s out one || fail '--quiet changes the answer'

# What nobody can read is not computed to its end: the answer stops, and so does the conversation.
if [ -w /dev/full ]; then
  (trap '' PIPE; "$program" $generate --no-quiet --prompt 'line 7' --max-tokens 90 >/dev/full 2>err); rc=$?
  expect_rc 1; expect_err '1 made'; expect_err 'cannot write to standard output'
  printf 'line 7\nline 8\nline 9\n' | "$program" $chat --max-tokens 90 >/dev/full 2>err; rc=$?
  expect_rc 1; expect_err '^1 answer: .* 1 made'; expect_err 'cannot write to standard output'
fi

# /reset forgets, --system stays, /exit leaves.
printf 'line 7\n/reset\nline 7\n/exit\nline 7\n' | converse $chat --max-tokens 9; expect_rc 0
[ "$(cat out)" = "$(cat one one)" ] || fail '/reset does not begin anew'
expect_err '^a new conversation$'
printf 'line 7\n/reset\nline 7\n' | converse $chat --max-tokens 9 --system 'a budget' --render; expect_rc 0
[ "$(grep -c '^<s>a budget$' err)" = 2 ] || fail '--system is lost'
printf '/what\n/help\n/usr/bin is a path\n' | converse $chat --max-tokens 3; expect_rc 0; expect_err 'there is no command /what'; expect_err 'Ctrl-C stops an answer'
expect_err '^1 answer'
converse $chat </dev/null; expect_rc 0; expect_no_out; expect_no_err

# The byte 0 ends no conversation: it is left out, and that is said. A prompt that holds it is refused by what it is.
printf 'line 7\n\0\nline \0007\n' | converse $chat --max-tokens 3 --render; expect_rc 0; expect_err '^2 answers'
[ "$(grep -c '^<u>line 7$' err)" = 3 ] || fail 'the byte 0 changes more than itself'
[ "$(grep -c '^note: the byte 0 is left out of the message' err)" = 2 ] || fail 'a byte is left out in silence'
printf 'line \0007' >zero
run $generate --prompt-file zero; refuses 5; expect_err 'the prompt holds the byte 0 at byte 5'; expect_err 'without --chat'

# A stop text ends the answer wherever it stands, also within a token and across some, and is not said.
whole=$(cat one); stop=${whole:5:3}; before=${whole%%"$stop"*}
[ -n "$before" ] && [ "$before" != "$whole" ] || fail "no text to stop at in '$whole'"
run $generate --prompt 'line 7' --max-tokens 9 --stop "$stop"; expect_rc 0; [ "$(cat out; echo .)" = "$before"$'\n.' ] || fail "--stop '$stop' of '$whole' gives '$(cat out)'"
converse $chat --max-tokens 9 --stop never --stop "$stop" <<<'line 7'; expect_rc 0; [ "$(cat out)" = "$before" ] || fail 'chat stops elsewhere'
run $generate --prompt 'line 7' --max-tokens 9 --stop "$stop" --json; expect_rc 0
expect_json "d['text'] == '''$before'''" 'd["stopped_by_text"] and not d["stopped_by_end"]' 'd["new_tokens"] < 9'
run $generate --prompt 'line 7' --max-tokens 9 --stop "${whole: -3}never" --stop '\x00'; refuses 2; expect_err 'escape'
run $generate --prompt 'line 7' --max-tokens 9 --stop "${whole: -3}never"; expect_rc 0; cmp -s out one || fail 'a stop text that only began changes the answer'
run $generate --prompt 'line 7' --stop '\q'; refuses 2; expect_err 'escape'
run $generate --prompt 'line 7' --stop ''; refuses 2; expect_err 'empty'

# The samplers' options reach the sampler: with a penalty fewer tokens come again.
run $generate --prompt 'line 7' --max-tokens 60 --json; expect_rc 0; cp out plain
run $generate --prompt 'line 7' --max-tokens 60 --repetition-penalty 3 --json; expect_rc 0
expect_json 'len(set(d["tokens"])) > 5 + len(set(json.load(open("plain"))["tokens"]))'
run $generate --prompt 'line 7' --max-tokens 9 --temperature 5 --min-p 1; expect_rc 0; cmp -s out one || fail '--min-p 1 takes another than the most likely token'
run $generate --prompt 'line 7' --min-p 1.5; refuses 2
run $generate --prompt 'line 7' --repetition-penalty 0; refuses 2

# UTF-8 in pieces of tokens: what was said piece by piece is what all tokens say together.
run $generate --prompt 'line 7' --temperature 3 --max-tokens 200 --seed 5 --json; expect_rc 0
if [ -n "$have_python" ]; then
  python3 -c 'import json; d = json.load(open("out")); open("text", "w").write(d["text"] + "\n")
print(sum(ord(c) > 127 for c in d["text"]))' >wide
  [ "$(cat wide)" -gt 20 ] || fail 'the text has hardly a character of several bytes'
  run $generate --prompt 'line 7' --temperature 3 --max-tokens 200 --seed 5; expect_rc 0
  cmp -s out text || fail 'a text that is said piece by piece is another'
fi

# A full context: the oldest messages go, which is said; what is too long by itself is refused.
long=$(seq -s ' ' 20)
for i in 1 2 3 4 5 6; do echo "line $i $long"; done | converse $chat --max-tokens 20 --system 'a plan' --render; expect_rc 0
expect_err '^note: the context of 256 tokens is full: the oldest [0-9]+ messages are left out from here on$'
[ "$(grep -c '^<s>a plan$' err)" = 6 ] || fail 'the system message went'
expect_err '^6 answers: '
converse $chat <<<"$(seq -s ' ' 300)"; refuses 2; expect_err 'the message makes a prompt of [0-9]+ tokens, and the context has 256'; expect_err '--context'
converse $chat <<<'line 7'; expect_rc 0; expect_err '^note: the answer ends where the context does|^1 answer'

# Where the template writes what was said otherwise, that is said, and the answers are those of the text.
printf '%s' '{% for m in messages %}{{ loop.revindex|string + m.role[0] + m.content + "\n" }}{% endfor %}{{ "<a>" }}' >counts.jinja
printf 'line 7\nline 8\n' | converse chat run/final --chat-template counts.jinja --threads 1 --temperature 0 --max-tokens 5; expect_rc 0
expect_err '^note: the template writes what was said in other tokens now: [0-9]+ of [0-9]+ in the cache are computed again$'

# Ctrl-C ends the answer and not the program, which answers the next message.
mkfifo messages
"$program" chat run/final --chat-template plain.jinja --threads 1 --context 60000 <messages >out 2>err &
process=$!
exec 3>messages
echo 'line 7' >&3
for i in $(seq 200); do [ "$(wc -c <out)" -gt 20 ] && break; sleep 0.05; done
kill -INT $process
for i in $(seq 200); do grep -q '^stopped$' err && break; sleep 0.05; done
last='headroom chat, interrupted'
grep -q '^stopped$' err || fail 'Ctrl-C does not stop an answer'
size=$(wc -c <out)
echo 'line 8' >&3
for i in $(seq 200); do [ "$(wc -c <out)" -gt $((size + 20)) ] && break; sleep 0.05; done
[ "$(wc -c <out)" -gt $((size + 20)) ] || fail 'there is no answer behind Ctrl-C'
kill -INT $process
exec 3>&-
wait $process; rc=$?; expect_rc 0; expect_err '^2 answers: '

# On a terminal: a prompt, Ctrl-C on an empty line does nothing but say how to leave, a bad message is told, Ctrl-D leaves.
if [ -n "$have_python" ]; then
  last='headroom chat on a terminal'
  python3 - "$program" <<'PYTHON' >out || fail 'the terminal shows something else'
import os, pty, sys
child, end = pty.fork()
if child == 0:
    os.execv(sys.argv[1], [sys.argv[1]] + 'chat run/final --chat-template plain.jinja --threads 1 --temperature 0 --context 64 --max-tokens 9 --color never'.split())
seen = b''
def until(text):
    global seen
    while text not in seen:
        got = os.read(end, 4096)
        sys.stdout.buffer.write(got)
        sys.stdout.flush()
        seen += got
    seen = seen[seen.index(text) + len(text):]
def say(text):
    os.write(end, text)
until(b'Ctrl-D leaves')
until(b'> '); say(b'\x03')
until(b'Ctrl-D or /exit leaves')
until(b'> '); say(b'7 ' * 90 + b'\n')
until(b'the context has 64')
until(b'> '); say(b'line 7\n')
until(b'> '); say(b'\x04')
until(b'1 answer: ')
_, status = os.waitpid(child, 0)
sys.exit(status != 0)
PYTHON
  tr -d '\r' <out | grep -qF "$(head -n 1 one)" || fail 'the terminal shows no answer'

  # Under a shell with jobs: after Ctrl-Z, `fg` shows the prompt again and the conversation goes on; with `bg` it stops instead of taking
  # lines that are meant for the shell; while an answer is written, `fg` shows no prompt of its own.
  last='headroom chat under a shell, stopped and continued'
  python3 - "$program" <<'PYTHON' >out || fail 'the terminal shows something else'
import fcntl, os, pty, re, select, signal, sys, termios, time
child, end = pty.fork()
if child == 0:
    os.environ.update(PS1='shell$ ', TERM='dumb', HISTFILE='')
    os.execvp('bash', ['bash', '--norc', '--noprofile', '--noediting', '-i'])
signal.alarm(120)
terminal = os.open(f'/proc/{child}/fd/0', os.O_RDWR | os.O_NOCTTY)
seen = b''
def read(seconds):
    ready, _, _ = select.select([end], [], [], seconds)
    got = os.read(end, 4096) if ready else b''
    sys.stdout.buffer.write(got)
    sys.stdout.flush()
    return got
def until(pattern):
    global seen
    while not (found := re.search(pattern, seen)):
        seen += read(None)
    before, seen = seen[:found.start()], seen[found.end():]
    return before
def say(text):
    os.write(end, text)
def nothing_more(seconds):
    global seen
    seen += read(seconds)
    if seen.strip():
        sys.exit(f'more than expected: {seen}')
command = b"'%s' chat run/final --chat-template plain.jinja --threads 1 --temperature 0 --context %d --max-tokens %d --color never\n"
until(rb'shell\$ '); say(command % (sys.argv[1].encode(), 256, 9))
until(rb'Ctrl-D leaves\r\n> '); say(b'\x1a')
until(rb'Stopped'); until(rb'shell\$ '); say(b'fg\n')
until(rb'--color never\r\n> '); nothing_more(0.3)
say(b'half \x04') # handed over without its end: still there
until(rb'half ')
time.sleep(0.3)
while any(fcntl.ioctl(terminal, termios.FIONREAD, bytes(4))):
    time.sleep(0.05)
say(b'\x1a')
until(rb'Stopped'); until(rb'shell\$ '); say(b'bg\n')
until(rb'bg\r\n')
while b'Stopped' not in seen: # the shell says so before a prompt
    say(b'\n')
    seen += read(0.2)
say(b'fg\n')
until(rb'--color never\r\n> half '); nothing_more(0.3)
say(b'line\n')
until(rb'\n> '); say(b'/exit\n')
until(rb'1 answer: '); until(rb'shell\$ ')
say(command % (sys.argv[1].encode(), 60000, 50000))
until(rb'Ctrl-D leaves\r\n> '); say(b'line 7\n')
until(rb'(?s)line 7\r\n.{20}'); say(b'\x1a')
until(rb'Stopped'); until(rb'shell\$ '); say(b'fg\n')
until(rb'--color never\r\n')
while len(seen) < 40:
    seen += read(None)
say(b'\x03')
if b'> ' in until(rb'stopped\r\n'):
    sys.exit('a prompt within an answer')
until(rb'> '); say(b'\x04')
until(rb'1 answer: '); until(rb'shell\$ '); say(b'exit\n')
_, status = os.waitpid(child, 0)
sys.exit(status != 0)
PYTHON
fi

# Adapters and quantized bases are the same jobs.
run train run/final --data text.txt --seq 32 --threads 1 --quiet --steps 2 --lora r=2 --out tuned; expect_rc 0
converse chat run/final --adapter tuned/final --chat-template plain.jinja --threads 1 --temperature 0 --max-tokens 5 <<<'line 7'; expect_rc 0; cp out adapted
run generate tuned/final --chat --chat-template plain.jinja --threads 1 --temperature 0 --max-tokens 5 --prompt 'line 7' --quiet; expect_rc 0; cmp -s out adapted || fail 'an adapter chats otherwise'
converse $chat --quantize nf4 --max-tokens 5 <<<'line 7'; expect_rc 0; expect_err 'reserved as planned'

# Refusals.
run chat; refuses 2; expect_err 'MODEL'
for template in '' '--chat-template chatml'; do
  run generate micro-llama-bytes --chat $template --prompt x; refuses 2; expect_err 'byte-level: .*marks would be text to it'; expect_err 'write the marks yourself: .*--stop MARK'
  run chat micro-llama-bytes $template </dev/null; refuses 2; expect_err 'write the marks yourself'
done
run chat $shape --tokenizer words --chat-template plain.jinja; refuses 2; expect_err 'no weights'
run chat run/final; refuses 5; expect_err 'chatml'
run $chat --json; refuses 2; expect_err 'no option of `headroom chat`'
run $chat --prompt x; refuses 2
run $chat --budget 1MiB; refuses 3
run generate run/final --prompt x --render; refuses 2; expect_err 'add --chat'
run generate "$here/../gguf/llama" --prompt '1 2' --stop x; refuses 2; expect_err 'no tokenizer'
run chat run/final --chat-template plain.jinja --show-config; expect_rc 0; expect_out '^# stop: \(not set\)'
finish
