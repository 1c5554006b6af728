#!/usr/bin/env bash
# What the libraries show is what the headers offer, and the other way round: every symbol of default visibility is a function
# that a header marks HR_API or HR_CHECKED, and every such function is there. Usage: symbols.sh INCLUDE ARCHIVE... [SHARED...]; a shared
# library shows the same as the archives, or, being a part, nothing else.
set -euo pipefail
include=$1
shift
archives=() shared=()
for library; do
  case $library in *.a) archives+=("$library") ;; *) shared+=("$library") ;; esac
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# "HR_API type hr_name(", on one line or several: the first word with a bracket behind it.
awk '/^(HR_API|HR_CHECKED) / { text = "" } text != "" || /^(HR_API|HR_CHECKED) / { text = text " " $0; if (/[(]/) { print text; text = "" } }' \
  "$include"/headroom/*.h | sed -nE 's/^ (HR_API|HR_CHECKED) [^(]*\<(hr_[a-z0-9_]+)\(.*/\2/p' | sort -u >"$work/offered"
[ "$(wc -l <"$work/offered")" -gt 150 ] || { echo "only $(wc -l <"$work/offered") functions in the headers"; exit 1; }
# Names of tools (sanitizers, coverage) begin with two underscores, or are none of C.
readelf -Ws "${archives[@]}" | awk '$5 == "GLOBAL" && $6 == "DEFAULT" && $7 != "UND" && $8 ~ /^[a-z]/ { print $8 }' | sort -u >"$work/shown"
hidden=$(readelf -Ws "${archives[@]}" | awk '$5 == "GLOBAL" && $6 == "HIDDEN" && $7 != "UND"' | wc -l)
[ "$hidden" -gt 500 ] || { echo "only $hidden hidden symbols: the libraries are not built with hidden visibility"; exit 1; }
comm -13 "$work/offered" "$work/shown" | sed 's/$/ is shown, and no header offers it/' >"$work/wrong"
comm -23 "$work/offered" "$work/shown" | sed 's/$/ is offered, and no library has it/' >>"$work/wrong"
for library in "${shared[@]}"; do
  nm -D --defined-only "$library" | awk '$3 ~ /^[a-z]/ { print $3 }' | sort -u >"$work/there"
  [ -s "$work/there" ] || echo "$library shows nothing" >>"$work/wrong"
  comm -23 "$work/there" "$work/offered" | sed "s|\$| is shown by $library, and no header offers it|" >>"$work/wrong"
  if [[ $library == *libheadroom.so* ]]; then
    comm -13 "$work/there" "$work/shown" | sed "s|\$| is not shown by $library|" >>"$work/wrong"
  fi
done
cat "$work/wrong"
[ ! -s "$work/wrong" ]
