#!/usr/bin/env bash
# coverage.sh BUILD [FILES]: lines that ran of those that could, by folder of src/, from the counts that the tests of BUILD left. With FILES
# ("formats/") its sources instead, with the lines that did not run. The aim is 90 % of the folders with a star.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$1
files=${2:-}
export LC_ALL=C

# Each object's counts, as "source line count"; a line that several objects have (inline functions, kernels per level) ran when
# it ran in one. Every gcov has a file of its own: what several write into one pipe gets mixed.
counts=$(mktemp -d)
trap 'rm -rf "$counts"' EXIT
find "$build" -name '*.gcno' -path '*/src/*' -print0 |
  xargs -0 -n 40 -P "${DEV_JOBS:-$(nproc)}" sh -c 'exec gcov --stdout --preserve-paths "$@" >"$(mktemp "$0/XXXXXX")" 2>/dev/null' "$counts"
find "$counts" -type f -exec cat {} + |
  awk -F: -v root="$PWD/" -v files="$files" '
    { count = $1; line = $2 + 0; gsub(/ /, "", count) }
    $3 == "Source" && line == 0 { source = $4; sub(root, "", source); sub(/^(\.\.\/)*/, "", source); next }
    line == 0 || source !~ /^src\/.*\.c$/ || count == "-" { next }
    { key = source SUBSEP line; seen[key] = 1; if (count !~ /^[#=]/) ran[key] = 1 }
    END {
      for (key in seen) {
        split(key, part, SUBSEP)
        split(part[1], path, "/")
        name = files == "" ? path[2] : part[1]
        if (files != "" && index(part[1], "src/" files) != 1) continue
        total[name]++
        if (key in ran) hit[name]++
        else if (files != "") printf "%s:%d: did not run\n", part[1], part[2] | "sort -t: -k1,1 -k2,2n"
      }
      close("sort -t: -k1,1 -k2,2n")
      split("program pass plan formats snapshot alloc", list, " ")
      for (i in list) aim[list[i]] = 1
      for (name in total) printf "%-28s %6d of %6d lines  %5.1f %%%s\n", name, hit[name], total[name], 100 * hit[name] / total[name], (name in aim) ? " *" : "" | "sort"
    }'
