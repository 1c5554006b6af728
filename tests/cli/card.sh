# Shared by the tests of --device cuda: the card in software (tests/gpu/soft_card.c) in place of a machine's, and words for what is
# expected of a command. A test ends at what is not as expected. Usage: source card.sh; expect 0 "$headroom" plan ...; says WORDS
set -euo pipefail
headroom=$(readlink -f "$1")
card=$(dirname "$headroom")/soft_card
[[ -e $card/libcuda.so.1 ]] || { echo "skipped: without a C++ compiler there is no card in software"; exit 0; }
command -v python3 >/dev/null || { echo "skipped: it reads JSON with python3, which is not installed"; exit 0; }
for name in ${!HEADROOM_@}; do
  case $name in HEADROOM_ISA) ;; *) unset "$name" ;; esac
done
work=$(mktemp -d)
export HEADROOM_CACHE=$work/cache # no rates of this machine
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "$(basename "$0" .sh): $*" >&2; exit 1; }
# expect STATUS COMMAND...: its output is in `said`, its messages in `told`.
expect() {
  local status=$1 got=0
  shift
  "$@" >said 2>told || got=$?
  [[ $got == "$status" ]] || { cat said told >&2; fail "exit $got, not $status: $*"; }
}
says() { cat said told | tr -s ' \n' ' ' | grep -qF -- "$1" || { cat said told >&2; fail "it does not say: $1"; }; }
