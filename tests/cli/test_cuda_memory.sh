#!/usr/bin/env bash
# test_cuda_memory.sh HEADROOM: memory of the device is compared before and after every run, on the card in software
# (tests/gpu/soft_card.c): a driver that takes some while work runs, for itself or for deeper stacks, is told, on record, and an error of
# check mode; one that has what it needs before bytes are counted takes none.
source "$(dirname "$0")/card.sh"
export LD_LIBRARY_PATH=$card
for k in {1..40}; do echo "line $k of the text that is learned by heart, one after the other"; done >text.txt
options=(micro-llama-bytes --device cuda --seq 32 --data text.txt)
silent() { cat said told | tr -s ' \n' ' ' | grep -qF -- "$1" && { cat said told >&2; fail "it says: $1"; } || true; }
# grown RUN BYTES...: what metrics.jsonl has of each step.
grown() {
  python3 - "$@" <<'P'
import json, sys
found = [json.loads(line)["device_grown_bytes"] for line in open(f"{sys.argv[1]}/metrics.jsonl") if '"loss"' in line]
wanted = [int(word) for word in sys.argv[2:]]
assert found == wanted, (found, wanted)
P
}

# ---- nothing grows: arenas, kernels, graphs and stacks are there before the first step ----
expect 0 "$headroom" train "${options[@]}" --steps 3 --out still
silent "grew by"
says "held 310.0 MiB, planned"
grown still 0 0 0

# ---- stacks are made as deep as kernels need before bytes are counted: 6 MiB less than a context begins with; one that needs no more takes none ----
SOFT_CARD_FRAME=attention_keys_kernel:256:1 expect 0 "$headroom" train "${options[@]}" --steps 3 --out deep
silent "grew by"
says "held 310.0 MiB, planned"
# one that would need more, of a library for instance, makes them deeper where every node runs once, which is before bytes are counted too
SOFT_CARD_FRAME=attention_keys_kernel:1024:1 expect 0 "$headroom" train "${options[@]}" --steps 3 --out deeper
silent "grew by"
says "held 316.0 MiB, planned"
grown deeper 0 0 0

# ---- with the third step the driver takes 2 MiB: told once, and on record from the second on, behind which the third was launched ----
SOFT_CARD_GROWS=3 expect 0 "$headroom" train "${options[@]}" --steps 4 --out taken
says "warning: what this process holds of the device grew by 2.00 MiB, from 310.00 MiB, while step ran: a run takes nothing of it, so its driver or library did"
[[ $(cat said told | tr -s ' \n' ' ' | grep -oF "grew by" | wc -l) == 1 ]] || fail "it is told more than once"
grown taken 0 2097152 2097152 2097152
[[ $(python3 -c 'import json; print(json.load(open("taken/run.json"))["result"]["device_grown_bytes"])') == 2097152 ]] || fail "run.json does not say it"

# ---- a kernel that wants a deeper stack in the middle of a run: two launches when every node runs once, two in each step ----
SOFT_CARD_FRAME=attention_keys_kernel:4096:6 expect 0 "$headroom" train "${options[@]}" --steps 4 --out late
says "grew by 30.00 MiB"
# in check mode that is an error
SOFT_CARD_FRAME=attention_keys_kernel:4096:6 expect 6 "$headroom" train "${options[@]}" --steps 4 --check --out checked
says "what this process holds of the device grew by 30.00 MiB"
SOFT_CARD_FRAME=attention_keys_kernel:4096:1 expect 0 "$headroom" train "${options[@]}" --steps 2 --check --out fine

# ---- where the driver does not count by process, all that is held is compared, and nobody is blamed ----
SOFT_CARD_BLIND=1 SOFT_CARD_GROWS=2 expect 0 "$headroom" train "${options[@]}" --steps 4 --out blind
says "what is held of the device grew by 2.00 MiB"
says "the driver does not count by process here, so another program may have taken it"
grep -q '"device_grown_bytes":2097152' blind/metrics.jsonl || fail "it is not on record"

# ---- close to the end of the device: who holds the rest is named ----
SOFT_CARD_HELD=$((672 << 20)) expect 0 "$headroom" train "${options[@]}" --steps 2 --budget 900MiB --out close
says "warning: the device has only 42.00 MiB free; others on it: "
says "(pid 1) 672.00 MiB"

# ---- evaluations and generation are looked at too ----
SOFT_CARD_GROWS=1 expect 0 "$headroom" evaluate still/final --device cuda --data text.txt --seq 32
says "while evaluate ran"
SOFT_CARD_GROWS=2 expect 0 "$headroom" generate still/final --device cuda --prompt "line 1" --max-tokens 4
says "while decode ran"
echo "test_cuda_memory: all as expected"
