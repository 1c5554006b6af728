#!/usr/bin/env bash
# symbols.sh BUILD: do linked symbols go down as includes do? Public headers hide where a function lives, so the rows of floors.txt
# prove nothing about calls of hr_ functions; the objects do. BUILD/objects.txt (of CMake) names the objects of each library,
# BUILD/headroom is the program linked with all of them. Each finding is one line, the exit status is 1 when there is one.
# symbols.sh --self-test: proves on small objects that every rule can fail.
#
#   floors   an object uses symbols of its own folder and of those that its row in floors.txt allows; cli/ any that begin with hr_
#   library  it calls a foreign library only where scripts/links.txt allows
#   closed   a library that stands alone holds all that its objects use of ours
#   unknown  a symbol that neither an object nor a library of the program defines
#   stale    a line of links.txt that nothing needs
set -euo pipefail
self=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/symbols.sh
export LC_ALL=C

# The lines that `judge` reads, each with a tag in front: rows and links, exported symbols of libraries, symbols of objects.
gather() {
  local build=$1 objects
  sed -n 's/#.*//; s/^\([^ ].*\):/row \1 :/p' scripts/floors.txt
  sed -n 's/ #.*//; s/^\(library\|up\) \(.*\):/\1 \2 :/p' scripts/links.txt
  # What compilers add to the objects themselves.
  nm -g --defined-only "$(gcc -print-libgcc-file-name)" 2>/dev/null | awk 'NF == 3 { print "exports libgcc", $3 }'
  ldd "$build/headroom" | awk '$3 ~ /^\// { print $1, $3 }' | while read -r name path; do
    name=${name%%.so*}
    nm -D --defined-only "$path" | awk -v name="$name" '{ sub(/@.*/, "", $NF); print "exports", name, $NF }'
  done
  awk '/^\[/ { library = substr($0, 2, length($0) - 2) } /^[^[]/ { print "object", library, $0 }' "$build/objects.txt"
  objects=$(grep -v '^\[' "$build/objects.txt" | sort -u)
  # shellcheck disable=SC2086 # one word per object
  nm -A -g $objects | awk '{ path = $1; sub(/:.*/, "", path); print "symbol", path, $(NF - 1), $NF }'
}

judge() {
  awk '
    function folder_of(file) { return substr(file, 1, index(file, "/") - 1) }
    function row_of(file, i) {
      for (i = pattern_count; i >= 1; i--) if (file ~ expression[i]) return pattern[i]
      return folder_of(file)
    }
    # ".../room_x.dir/src/base/text.c.o" is base/text.c; ".../generated/report_page.c.o" is of report/.
    function source_of(path) {
      sub(/^.*\.dir\/(\.\/)?/, "", path); sub(/\.o$/, "", path)
      if (path ~ /^generated\//) { sub(/^generated\//, "", path); sub(/_/, "/", path) }
      sub(/^src\//, "", path)
      return path
    }
    $1 == "row" {
      row[$2] = " "
      for (i = 4; i <= NF; i++) row[$2] = row[$2] $i " "
      if ($2 ~ /\//) { pattern[++pattern_count] = $2; text = $2; gsub(/[.]/, "[.]", text); gsub(/[*]/, "[^/]*", text)
                       expression[pattern_count] = "^" text "$" }
    }
    $1 == "library" { for (i = 4; i <= NF; i++) may[$2, $i] = 1 }
    $1 == "up" { for (i = 4; i <= NF; i++) up[$2, $i] = 1 }
    $1 == "exports" { if (!($3 in from)) from[$3] = $2; present[$2] = 1 }
    $1 == "object" { where[$3] = where[$3] $2 " "; if (!($2 in libraries)) libraries[$2] = 1 }
    $1 == "symbol" {
      if ($3 == "U" || $3 == "w") { used[++uses] = $2; symbol[uses] = $4 }
      else { home[$4] = source_of($2); split(where[$2], list, " "); for (i in list) holds[list[i], $4] = 1 }
    }
    END {
      for (i = 1; i <= uses; i++) {
        path = used[i]; name = symbol[i]; file = source_of(path); folder = folder_of(file)
        if (name == "_GLOBAL_OFFSET_TABLE_" || name == "__tls_get_addr") continue # of position-independent code, resolved by the linker
        if (name in home) {
          split(where[path], list, " ")
          for (k in list) if (!((list[k], name) in holds))
            print "src/" file ": [closed] libheadroom-" list[k] " lacks " name " (src/" home[name] ")"
          target = folder_of(home[name])
          if (target == folder || index(row[row_of(file)], " " target " ")) continue
          if (folder == "cli" && name ~ /^hr_/) continue
          if ((file, name) in up) { needed[file, name] = 1; continue }
          print "src/" file ": [floors] " row_of(file) " may not use " target "/ (" name ", src/" home[name] ")"
        } else if (name in from) {
          if ((from[name], "*") in may) continue
          if ((from[name], folder) in may) { needed_library[from[name], folder] = 1; continue }
          print "src/" file ": [library] " folder " may not call " from[name] " (" name ")"
        } else print "src/" file ": [unknown] nothing that is linked defines " name
      }
      for (key in up) if (!(key in needed)) { split(key, part, SUBSEP); print "scripts/links.txt: [stale] src/" part[1] " does not take " part[2] " from above" }
      for (key in may) { split(key, part, SUBSEP); if (part[2] != "*" && part[1] in present && !(key in needed_library))
        print "scripts/links.txt: [stale] " part[2] " does not call " part[1] }
    }' | sort -u
}

# expect RULE LINKS FILE=CODE...: a program of these sources (library mem: base and alloc; all: everything), under the floors
# "base:", "alloc: base", "plan: base", "cli:" and these lines of links.txt, yields a finding of that rule, or with "none" none.
expect() {
  local rule=$1 links=$2 root output status=0 pair file objects=() mem=() all=()
  shift 2
  root=$(mktemp -d)
  mkdir -p "$root/scripts"
  printf 'base:\nalloc: base\nplan: base\nplan/ops.c: base alloc\ncli:\n' >"$root/scripts/floors.txt"
  printf '%b' "library libc: *\nlibrary libgcc: *\n$links" >"$root/scripts/links.txt"
  for pair in "$@" 'cli/main.c=int main(void) { return 0; }'; do
    file=$root/x.dir/src/${pair%%=*}.o
    mkdir -p "${file%/*}"
    gcc -w -x c -c -o "$file" - <<<"${pair#*=}"
    objects+=("$file")
    case $pair in base/* | alloc/*) mem+=("$file") ;; esac
    all+=("$file")
  done
  { printf '[mem]\n' && printf '%s\n' "${mem[@]}" && printf '[all]\n' && printf '%s\n' "${all[@]}"; } >"$root/objects.txt"
  gcc -Wl,--unresolved-symbols=ignore-all -o "$root/headroom" "${objects[@]}" -Wl,--no-as-needed -lz
  output=$("$self" --root "$root" "$root") || status=$?
  rm -rf "$root"
  cases=$((cases + 1))
  if [[ $rule == none ]]; then
    if ((status == 0)); then return; fi
  elif ((status == 1)) && [[ $output == *"[$rule] "* ]]; then
    return
  fi
  printf 'self-test: %s: expected [%s], got status %d:\n%s\n' "$*" "$rule" "$status" "$output"
  wrong=$((wrong + 1))
}

self_test() {
  cases=0
  wrong=0
  local base='base/a.c=int hri_a(void) { return 1; }' plan='plan/p.c=int hr_p(void) { return hri_a(); }'
  local alloc='alloc/b.c=int hr_b(void) { return hri_a(); }'
  expect none '' "$base" "$plan" "$alloc" 'cli/x.c=int hr_p(void); int x(void) { return hr_p(); }'
  expect floors '' "$base" "$plan" 'alloc/c.c=int c(void) { return hr_p(); }'
  expect floors '' "$base" "$alloc" 'plan/q.c=int q(void) { return hr_b(); }'
  expect none '' "$base" "$alloc" 'plan/ops.c=int q(void) { return hr_b(); }'
  expect floors '' "$base" 'cli/x.c=int x(void) { return hri_a(); }'
  expect none 'up plan/q.c: hr_b # why\n' "$base" "$alloc" 'plan/q.c=int q(void) { return hr_b(); }'
  expect stale 'up plan/q.c: hr_b # why\n' "$base" "$alloc" 'plan/q.c=int q(void) { return hri_a(); }'
  expect closed '' 'alloc/b.c=int hr_b(void) { return hr_p(); }' 'plan/p.c=int hr_p(void) { return 0; }'
  expect library '' 'base/z.c=int z(void) { return deflate(0, 0); }'
  expect none 'library libz: base\n' 'base/z.c=int z(void) { return deflate(0, 0); }'
  expect stale 'library libz: base\n' "$base"
  expect unknown '' 'base/a.c=int a(void) { return hr_nowhere(); }'
  if ((wrong > 0)); then return 1; fi
  echo "symbols: self-test, $cases cases as expected"
}

root=${self%/*}/..
if [[ ${1:-} == --self-test ]]; then
  self_test
  exit
fi
if [[ ${1:-} == --root ]]; then
  root=$2
  shift 2
fi
build=$(cd "$1" && pwd)
cd "$root"
report=$(gather "$build" | judge)
if [[ -n $report ]]; then
  printf '%s\n' "$report"
  exit 1
fi
echo "symbols: $(grep -cv '^\[' "$build/objects.txt") objects, no findings"
