#!/usr/bin/env bash
# uninstall.sh PREFIX: removes what `cmake --install` wrote there, by its manifest (scripts/manifest.cmake): the files, then the folders
# that it had made, where they are empty. Anything else below PREFIX stays as it is.
set -euo pipefail
say() { printf 'uninstall: %s\n' "$*" >&2; }

if (($# != 1)); then
  say "usage: uninstall.sh PREFIX"
  exit 2
fi
prefix=$1
manifest=$prefix/share/headroom/manifest.txt
if [[ ! -f $manifest ]]; then
  say "$manifest is not there: nothing of Headroom is installed in $prefix"
  exit 1
fi
mapfile -t lines <"$manifest"
for line in "${lines[@]}"; do
  if [[ -z $line || $line == /* || /$line/ == */../* ]]; then
    say "$manifest: '$line' does not lie below the prefix; nothing was removed"
    exit 1
  fi
done
count=0
for line in "${lines[@]}"; do
  if [[ $line == */ || (! -e $prefix/$line && ! -L $prefix/$line) ]]; then continue; fi
  rm -f -- "$prefix/$line"
  count=$((count + 1))
done
# Sorted, so that a folder stands before those in it.
for ((i = ${#lines[@]} - 1; i >= 0; i--)); do
  folder=$prefix/${lines[i]%./}
  if [[ ${lines[i]} == */ && -d $folder ]]; then rmdir --ignore-fail-on-non-empty -- "$folder"; fi
done
printf 'removed %d files from %s\n' "$count" "$prefix"
