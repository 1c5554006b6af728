#!/usr/bin/env bash
# scratch.sh FOLDER COMMAND...: runs a test with a folder of its own below FOLDER as TMPDIR, so that all that it makes lies there, also
# when it is killed; what killed ones left is removed by the next that runs. A test that passes and leaves something there fails.
set -u
folder=$1
shift
remove() { rm -rf "$1" 2>/dev/null || { chmod -R u+rwX "$1" && rm -rf "$1"; }; } # some are made to be closed
# What has ended and was not waited for yet is not alive.
alive() { kill -0 "$1" 2>/dev/null && [[ $(ps -o stat= -p "$1" 2>/dev/null) != Z* ]]; }
mkdir -p "$folder" || exit 1
for left in "$folder"/*; do
  process=${left##*/}
  if [[ $process =~ ^[0-9]+$ ]] && ! alive "$process"; then remove "$left"; fi
done
export TMPDIR=$folder/$$
remove "$TMPDIR" # of a process that had this number
mkdir "$TMPDIR" || exit 1
"$@"
status=$?
left=$(ls -A "$TMPDIR")
remove "$TMPDIR"
if [[ $status == 0 && -n $left ]]; then
  printf 'passed, but left in TMPDIR:\n%s\n' "$left" >&2
  status=1
fi
exit $status
