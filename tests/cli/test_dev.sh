#!/usr/bin/env bash
# ./dev refuses what it does not understand, before it does anything: in a copy of the entry alone, where no tool is called.
source "$(dirname "$0")/common.sh"
mkdir -p build/release build/demo/run build/venv scripts
cp "$here/../../dev" .
cp "$here/../../scripts/fuzz.sh" scripts
for script in setup uninstall; do printf '#!/bin/sh\necho "%s was called" >&2\nexit 1\n' "$script" >"scripts/$script.sh"; chmod +x "scripts/$script.sh"; done
cat >makes <<'C'
#!/bin/sh
echo "a target was run" >&2
C
chmod +x makes
mkdir -p build/fuzz && mv makes build/fuzz/fuzz_nothing

# refuse PATTERN ARGUMENTS...: exit 2 with one line, and what lies in build stays.
refuse() {
  local pattern=$1
  shift
  last="./dev $*"
  ./dev "$@" >out 2>err </dev/null
  rc=$?
  expect_rc 2; expect_no_out; expect_err "$pattern"
  [ "$(grep -c '' err)" -eq 1 ] || fail "more than one line"
  [ -d build/release ] && [ -d build/demo/run ] && [ -d build/venv ] || fail "something in build was removed"
}
refuse "^dev: clean what" clean release
refuse "^dev: clean what" clean al
refuse "'all' is one argument too many" clean all all
refuse "unknown build 'relaese'" build relaese
refuse "'check' is one argument too many" build release check
refuse '^dev: install where' install
refuse "'b' is one argument too many" install a b
refuse '^dev: uninstall where' uninstall
refuse "'-R' is one argument too many" lint -R x
refuse "'x' is one argument too many" wasm x
refuse "'--budget' is one argument too many" demo --budget 1GiB
refuse "'x' is one argument too many" real-model x
refuse '^dev: card what' card
refuse "'b' is one argument too many" card a b
refuse "^fuzz: 'nothing' is no number of seconds" fuzz nothing
refuse "^fuzz: '0' is no number of seconds" fuzz 0
mkdir -p tests/parity tests/weights
touch tests/parity/record.py tests/parity/record_peft.py tests/weights/record.py
refuse "no recorder 'pefd' \(models, peft, weights, memory, oracle, snapshots\)" parity pefd
last='an unknown command'
./dev nope >out 2>err; rc=$?; expect_rc 2; expect_err "^dev: unknown command 'nope'"

# What is understood is done.
last='./dev clean'; ./dev clean >out 2>err || fail "failed"; [ "$(ls build)" = venv ] || fail "what is left: $(ls build)"
last='./dev clean all'; ./dev clean all >out 2>err || fail "failed"; [ ! -e build ] || fail "build is left"
last='./dev help'; ./dev help >out 2>err || fail "failed"; expect_out '^  *\./dev build'

# What PyTorch's wheels are recorded with is asked of pip before anything is fetched: one line says what there is.
mkdir -p oracle work/venv/bin
cp "$here/../oracle/record.sh" oracle
printf '#!/bin/sh\nexit 1\n' >work/venv/bin/python
cat >work/venv/bin/pip <<'C'
#!/bin/sh
case "$*" in
  "index versions torch") printf 'torch (2.14.1)\nAvailable versions: 2.14.1, 2.14.0, 2.13.0, 2.1.2\n' ;;
  *) echo "$*" >>called; exit 1 ;;
esac
C
chmod +x work/venv/bin/*
last='record.sh without the newest version'
bash oracle/record.sh work >out 2>err; rc=$?
expect_rc 1; expect_no_out; expect_err '^record.sh: pip has no torch 2\.4\.1 .* 2\.15\.0, only 2\.14\.1, 2\.14\.0, 2\.13\.0, 2\.1\.2: name an index'
[ "$(grep -c '' err)" -eq 1 ] || fail "more than one line"
[ ! -e called ] || fail "pip was asked for more: $(cat called)"
finish
