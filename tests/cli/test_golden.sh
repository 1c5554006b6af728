#!/usr/bin/env bash
# Plans and runs stay what they were: the placement of every storage of the jobs in golden/plan-jobs.txt, and the final
# weights of golden/run-jobs.txt, against recorded hashes. Whoever changes a plan or a bit on purpose records again
# (HEADROOM_RECORD=1 replaces the records of this machine) and says why in the commit.
#
# A plan for a device of the table depends on nothing of the machine. A plan for the cpu, and the bits of a run, depend on
# the processor and its caches, the instruction set and the library; a record holds for these three, and where a job has none, a line
# says so: that proves nothing.
source "$(dirname "$0")/common.sh"
last='golden plans and runs'
jobs=$here/golden/plan-jobs.txt runs=$here/golden/run-jobs.txt
plan_records=$here/golden/plans.txt machine_records=$here/golden/machines.txt

# Storages by name, with tier, role, bytes, offset and programs; numbers of storages are nobody's promise. And the peak,
# the need and whether it fits: what people see.
placement_of() {
  # shellcheck disable=SC2086
  "$program" plan $1 --dump program >dump 2>err
  case $? in 0 | 3) ;; *) last="plan $1"; fail "exit code, not 0 or 3"; return ;; esac
  awk '/^storages$/ { on = 1; next } /^untouched / { next } /^segment / { on = 0 } on { $1 = ""; print }' dump | sort >rows
  [ -s rows ] || { last="plan $1"; fail "no storages in the dump"; }
  # shellcheck disable=SC2086
  "$program" plan $1 --json >out 2>err
  grep -m6 -E '"(peak_bytes|lower_bound_bytes)": ' out >>rows # of the three tiers; behind them come alternatives, fixed bytes included
  [[ $1 == *"--device cpu"* ]] || grep -E '"(need_bytes|fits)": ' out >>rows # fixed bytes of the cpu are measured
  sha256sum <rows | cut -c1-24
}

bits_of() {
  local data=text.txt
  [[ $1 != *vocab=* ]] || data=ids.jsonl # more tokens than bytes
  rm -rf run
  # shellcheck disable=SC2086
  "$program" train $1 --data $data --lr 1e-3 --steps 6 --threads 2 --out run --quiet >out 2>err || { last="train $1"; fail "exit code"; return; }
  sha256sum <run/final/model.safetensors | cut -c1-24
}

for i in $(seq 300); do echo "golden line $i: what was written once is read again, $((i * i % 97)) times"; [ $((i % 11)) = 0 ] && echo; done >text.txt
for i in $(seq 40); do
  printf '{"input_ids": [%d' $((i * 29))
  for j in $(seq 63); do printf ', %d' $(((i * i * j + 31 * j * j) % 1200)); done
  echo ']}'
done >ids.jsonl
"$program" train micro-llama-bytes --seq 32 --data text.txt --steps 1 --threads 2 --out run --quiet >out 2>err || fail "a first run"
field() { grep -oE "\"$1\": \"[^\"]*\"" run/run.json | cut -d'"' -f4; }
fact() { grep -m1 "^$1" /proc/cpuinfo 2>/dev/null | cut -d: -f2- | xargs; }
caches=$(for level in LEVEL1_DCACHE_SIZE LEVEL2_CACHE_SIZE LEVEL3_CACHE_SIZE; do getconf $level 2>/dev/null || echo 0; done | paste -sd/)
machine="$(fact 'model name') $(fact 'cpu family').$(fact model) caches $caches|$(field instruction_set)|$(field libraries)"

: >plans.now
: >machine.now
count=0
while read -r name options; do
  [[ -z $name || $name == \#* ]] && continue
  count=$((count + 1))
  case $options in
  *'--device cpu'*) echo "$machine|plan $name $(placement_of "$options")" >>machine.now ;;
  *) echo "$name $(placement_of "$options")" >>plans.now ;;
  esac
done <"$jobs"
[ "$count" -ge 40 ] || fail "only $count jobs"
while read -r name options; do
  [[ -z $name || $name == \#* ]] && continue
  echo "$machine|run $name $(bits_of "$options")" >>machine.now
done <"$runs"
sanitized && sed -i '/|run /d' machine.now # what ran is what the sanitizers see; its bits are those of other flags

if [ -n "$record" ]; then
  cp plans.now "$plan_records"
  { grep -vF "$machine|" "$machine_records" 2>/dev/null; cat machine.now; } >records && mv records "$machine_records"
fi
last='golden plans'
diff "$plan_records" plans.now >err || { : >out; fail "these plans are not what was recorded"; }
last='golden plans and runs of this machine'
grep -F "$machine|" "$machine_records" >machine.then
sanitized && sed -i '/|run /d' machine.then
awk '{ value = $NF; $NF = "" } FILENAME == "machine.then" { then[$0] = value; next } !($0 in then) { print "none " $0; next }
     { print (then[$0] == value ? "same " : "differs ") $0 }' machine.then machine.now >compared
if [ -s machine.then ]; then
  grep -E '^differs' compared >err && { : >out; fail "these plans or runs are not what was recorded for $machine"; }
fi
grep -q '^none' compared && echo "note: no record for $machine: $(grep -c '^none' compared) of $(wc -l <machine.now) plans for the cpu and runs were not compared"
finish
