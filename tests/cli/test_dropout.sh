#!/usr/bin/env bash
# --dropout config: each place drops as config.json says, plan and run agree to the byte, the words of config.json stay as they
# were, and a run goes on with it and with nothing else.
source "$(dirname "$0")/common.sh"

for i in $(seq 200); do echo "line $i: a budget of $((i * i % 97)) bytes is a budget"; done >text.txt
train="--data text.txt --seq 32 --micro-batch 2 --schedule constant --lr 1e-2 --threads 1"
run train micro-gpt2-bytes $train --steps 1 --quiet --out base; expect_rc 0

# places ATTENTION RESIDUAL EMBEDDING: a model that asks for them.
places() {
  rm -rf asks
  mkdir asks
  cp base/final/* asks
  rm -f asks/manifest.json
  python3 - "$@" <<'PY'
import json, sys
config = json.load(open("base/final/config.json"))
assert config["attn_pdrop"] == config["resid_pdrop"] == config["embd_pdrop"] == 0
config |= dict(zip(("attn_pdrop", "resid_pdrop", "embd_pdrop"), map(float, sys.argv[1:])))
json.dump(config, open("asks/config.json", "w"))
PY
}
bits() { sha256sum <"$1/final/model.safetensors"; }

# Without the option there is none, and that is said.
places 0.1 0 0.3
run train asks $train --steps 4 --out none; expect_rc 0
expect_err 'attention 0.1, residual 0, embeddings 0.3'; expect_err '--dropout config takes it'
run train asks $train --steps 4 --out taken --dropout config; expect_rc 0
if grep -q 'asks for dropout' err; then fail "what is taken is still told"; fi
[ "$(bits none)" != "$(bits taken)" ] || fail "--dropout config drops nothing"
python3 - <<'PY' || fail "config.json of the results asks for other dropout"
import json
config = json.load(open("taken/final/config.json"))
assert (config["attn_pdrop"], config["resid_pdrop"], config["embd_pdrop"]) == (0.1, 0, 0.3)
PY

# Every place counts, and equal ones are --dropout X.
rm -f all
for odds in "0.1 0 0" "0 0.1 0" "0 0 0.1" "0.1 0.1 0.1"; do
  places $odds
  rm -rf each
  run train asks $train --steps 4 --quiet --out each --dropout config; expect_rc 0
  bits each >>all
done
bits none >>all
[ "$(sort -u all | wc -l)" = 5 ] || fail "two sets of places have the same bits"
run train asks $train --steps 4 --quiet --out number --dropout 0.1; expect_rc 0
[ "$(bits number)" = "$(bits each)" ] || fail "equal places are not --dropout 0.1"

# Masks are made again from their numbers: no place adds to what is alive at once. And what is planned is reserved.
places 0 0 0.3
plan="plan asks --budget 64MiB --seq 32 --threads 1 --json"
run $plan --micro-batch 16 --dropout config; expect_rc 0
one=$(json_number lower_bound_bytes)
run $plan --micro-batch 16 --dropout 0.3; expect_rc 0
expect_json 'd["job"]["dropout"] == 0.3'
[ "$one" -gt 0 ] && [ "$one" = "$(json_number lower_bound_bytes)" ] || fail "places of dropout cost bytes"
run $plan --micro-batch 2 --dropout config; expect_rc 0
expect_json 'd["job"]["dropout"] == "config"'
planned=$(json_number reserved_bytes)
run train asks $train --budget 64MiB --steps 2 --quiet --out exact --dropout config; expect_rc 0
[ "$planned" = "$(tail -n 1 exact/metrics.jsonl | grep -oE '"device_reserved_bytes":[0-9]+' | cut -d: -f2)" ] || fail "planned is not reserved"

# It is part of what a run is.
run train asks $train --steps 4 --quiet --out whole --dropout config; expect_rc 0
run train asks $train --steps 2 --quiet --out half --dropout config; expect_rc 0
run train --resume half --steps 4 --allow-different steps --quiet --dropout 0.3; refuses 2; expect_err 'dropout was config and is 0.3'
run train --resume half --steps 4 --allow-different steps --quiet --dropout 0; refuses 2; expect_err 'dropout was config and is 0'
run train --resume half --steps 4 --allow-different steps --quiet; expect_rc 0
[ "$(bits half)" = "$(bits whole)" ] || fail "a resumed run has other bits"

run plan asks --dropout confg; refuses 2; expect_err "'confg' is none of: config, a number"
run plan asks --dropout -1; refuses 2; expect_err "'-1' is none of: config, a number"
places 0 1 0
run plan asks --seq 32 --dropout config; refuses 2; expect_err 'a probability of 1'
run plan asks --seq 32; expect_rc 0

finish
