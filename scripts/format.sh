#!/usr/bin/env bash
# format.sh [--check] [FILE ...]: lays out C sources as .clang-format says, all of them when none is named. --check changes nothing, names
# what would change, and fails when there is something. The version of clang-format is that of scripts/tools.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh tools
tool=build/tools/bin/clang-format
check=no
if [[ ${1:-} == --check ]]; then
  check=yes
  shift
fi
if (($#)); then files=("$@"); else mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cu' '*.cuh'); fi
if [[ $check == no ]]; then
  printf '%s\0' "${files[@]}" | xargs -0 -n 20 -P "${DEV_JOBS:-$(nproc)}" "$tool" -i
  exit
fi
bad=0
for file in "${files[@]}"; do
  lines=$("$tool" --dry-run "$file" 2>&1 | grep -c 'clang-format-violations' || true)
  if ((lines > 0)); then
    printf '%s:1: [format] %d places are laid out in another way; scripts/format.sh %s\n' "$file" "$lines" "$file"
    bad=$((bad + 1))
  fi
done
if ((bad > 0)); then
  echo "format: $bad of ${#files[@]} files"
  exit 1
fi
echo "format: ${#files[@]} files, as .clang-format says"
