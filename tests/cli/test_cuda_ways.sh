#!/usr/bin/env bash
# test_cuda_ways.sh HEADROOM: how a GPU's library computes the products of a run is stored with it, and a run that goes on computes them
# so, whatever the library would choose by then; what is not possible any more is refused by name. On the card in software
# (tests/gpu/soft_card.c), whose library sums in one of three orders, as SOFT_CARD_WAY says.
source "$(dirname "$0")/card.sh"
export LD_LIBRARY_PATH=$card
for k in {1..40}; do echo "line $k of the text that is learned by heart, one after the other"; done >text.txt
options=(micro-gpt2-bytes --device cuda --seq 32 --micro-batch 2 --precision bf16 --schedule constant --data text.txt)
begin() { expect 0 "$headroom" train "${options[@]}" --steps 2 --out "$@"; }
weights() { cat "$1/final/model.safetensors"; }

# ---- the library has several ways, and their bits differ: else nothing below would show anything ----
SOFT_CARD_WAY=0 expect 0 "$headroom" train "${options[@]}" --steps 4 --out whole
SOFT_CARD_WAY=1 expect 0 "$headroom" train "${options[@]}" --steps 4 --out another
cmp -s <(weights whole) <(weights another) && fail "ways that have the same bits prove nothing"
SOFT_CARD_WAY=0 expect 0 "$headroom" train "${options[@]}" --steps 4 --out again
cmp <(weights whole) <(weights again) || fail "a run has other bits than its equal"

# ---- the table: each product once, in the words of the library, and its digest in run.json ----
python3 - <<'P'
import json
ways = json.load(open("whole/checkpoints/last/state.json"))["ways"]
assert len(ways) > 10 and len({json.dumps({k: w[k] for k in w if k != "way"}) for w in ways}) == len(ways), len(ways)
assert {w["epilogue"] for w in ways} == {"none", "bias", "gelu_backward", "bias_gradient"}, {w["epilogue"] for w in ways}
assert all(len(w["way"]) == 128 for w in ways) and any(w["takes"] for w in ways)
machines = [json.load(open(f"{run}/run.json"))["machine"]["ways"] for run in ("whole", "again", "another")]
assert machines[0] == machines[1] != machines[2], machines
P

# ---- a resume computes as it began, though the library would choose otherwise ----
SOFT_CARD_WAY=0 begin run
cp -r run run-anew
cp -r run run-narrow
cp -r run run-lacks
SOFT_CARD_WAY=1 SOFT_CARD_SEED=5 expect 0 "$headroom" train --resume run --steps 4 --same-bits
cmp <(weights whole) <(weights run) || fail "a resumed run has other bits: the table is not used"
[[ $(tr -d ' \n' <run/run.json) != *'"changes"'* ]] || fail "a change was recorded"

# ---- unless that is asked for: said, recorded, and refused with --same-bits ----
SOFT_CARD_WAY=1 expect 2 "$headroom" train --resume run-anew --steps 4 --allow-different ways --same-bits
says "how products are computed (as the library chooses now)"
SOFT_CARD_WAY=1 expect 0 "$headroom" train --resume run-anew --steps 4 --allow-different ways
says "from step 3 on bits may differ: how products are computed (as the library chooses now)"
cmp -s <(weights whole) <(weights run-anew) && fail "the library was not asked anew"
grep -q 'how products are computed' run-anew/run.json || fail "the change is not on record"

# ---- what is not possible any more: less workspace than a way takes, a library that lost one; nothing is changed ----
before=$(find run-narrow -type f ! -name lock -exec cksum {} + | sort)
expect 2 "$headroom" train --resume run-narrow --steps 4 --workspace none
says "in a way that is not possible any more: it takes"
says "of workspace, and the plan has 0 B for it"
says "--allow-different ways"
[[ $before == "$(find run-narrow -type f ! -name lock -exec cksum {} + | sort)" ]] || fail "a refused resume changed the run"
expect 0 "$headroom" train --resume run-narrow --steps 4 --workspace none --allow-different ways
SOFT_CARD_WAY=2 begin other
SOFT_CARD_WAYS=2 expect 2 "$headroom" train --resume other --steps 4
says "cublasLt 13.1.0 does not take it (status 15)"
SOFT_CARD_WAYS=2 SOFT_CARD_WAY=1 expect 0 "$headroom" train --resume other --steps 4 --allow-different ways

# ---- another library: its own ways, said as ever ----
SOFT_CARD_CUBLAS=130200 SOFT_CARD_WAY=1 expect 0 "$headroom" train --resume run-lacks --steps 4
says "from step 3 on bits may differ: the libraries (cublasLt 13.1.0, 4 SMs, then cublasLt 13.2.0, 4 SMs)"

# ---- a library without epilogues of the backward: kernels of ours behind its products, in the same plan; the table keeps it apart ----
expect 0 "$headroom" plan "${options[@]:0:9}" --json
grep -v '"plan_ns"' said >fused.json
SOFT_CARD_PLAIN=1 expect 0 "$headroom" plan "${options[@]:0:9}" --json
cmp <(grep -v '"plan_ns"' said) fused.json || fail "a plan depends on what the library has"
SOFT_CARD_PLAIN=1 begin apart
grep -q '"way": "apart"' apart/checkpoints/last/state.json || fail "the table does not say what the library lacked"
expect 0 "$headroom" train --resume apart --steps 4 # one that has them now
SOFT_CARD_PLAIN=1 expect 0 "$headroom" train "${options[@]}" --steps 4 --out apart-whole
cmp <(weights apart) <(weights apart-whole) || fail "what was apart was joined in a run that went on"
python3 - <<'P'
import json
runs = [[json.loads(line)["loss"] for line in open(f"{run}/metrics.jsonl")] for run in ("whole", "apart-whole")]
assert all(abs(a - b) < 0.02 for a, b in zip(*runs)) and len(runs[0]) == 4, runs
P
echo "test_cuda_ways: all as expected"
