#!/usr/bin/env bash
# lint.sh [--root DIR]: the rules about sources that no compiler knows. Each finding is one line,
# "file:line: [rule] what is wrong"; the exit status is 1 when there is one.
# lint.sh --self-test: proves on temporary trees that every rule can fail.
#
#   table       scripts/floors.txt is well-formed: each row names only rows above it
#   floors      an include goes where floors.txt allows; examples/ see public headers only
#   technique   the executor names no memory technique: those are passes
#   pass        a pass includes no executor
#   contract    src/backend alone includes the rooms of backends (backend/cpu/...)
#   quiet       library code (src/ but src/cli) never prints, exits or aborts
#   type        a hr_ or hri_ type has one definition: the same name for two things misleads readers and debuggers
#   whitespace  no tabs, no trailing blanks, a newline at the end
#   layout      scripts/layout.txt names every file, so that nothing is committed that was only left behind
#   machine     no absolute path of one machine, no package registry's host
#
# Plain bash, grep and awk, so that it runs where there is no Python.
set -euo pipefail
self=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lint.sh
export LC_ALL=C

declare -A allowed=() # a row of floors.txt -> " base program "
patterns=()           # those of its rows that have a slash, in order
tree=()               # every file that git does not ignore, from the root

# Turns "file:line:text" (grep -n) into findings of a rule.
findings() {
  local rule=$1 message=$2
  awk -v rule="$rule" -v message="$message" '
    { match($0, /^[^:]*:[0-9]+:/); text = substr($0, RLENGTH + 1); sub(/^ +/, "", text)
      printf "%s [%s] %s: %s\n", substr($0, 1, RLENGTH), rule, message, text }'
}

# list_files PATTERN...: the files of the tree that match, a NUL after each.
list_files() {
  local file pattern
  for file in "${tree[@]}"; do
    for pattern; do
      # shellcheck disable=SC2053 # a pattern is meant
      if [[ $file == $pattern ]]; then
        printf '%s\0' "$file"
        break
      fi
    done
  done
}

# search PATTERN... -- GREP_ARGUMENTS: grep in the files that match, fine with no file and no match.
search() {
  local files=()
  while [[ $1 != -- ]]; do
    files+=("$1")
    shift
  done
  shift
  list_files "${files[@]}" | { xargs -0 -r grep -HnI "$@" || true; }
}

read_table() {
  local line number=0 row folder
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    if [[ $line =~ ^[[:space:]]*(#.*)?$ ]]; then continue; fi
    if [[ $line != *:* ]]; then
      echo "scripts/floors.txt:$number: [table] not 'folder: allowed folders'"
      continue
    fi
    row=${line%%:*}
    for folder in ${line#*:}; do
      if [[ -z ${allowed[$folder]+x} ]]; then
        echo "scripts/floors.txt:$number: [table] '$row' names '$folder', which is no row above it"
      fi
    done
    if [[ $row == */* ]]; then patterns+=("$row"); fi
    allowed[$row]=" ${line#*:} "
  done <scripts/floors.txt
}

# An include in quotes is spelled from src/ ("base/text.h") or names a file beside the including one.
check_floors() {
  local where file number text path row folder target pattern
  while IFS= read -r where; do
    file=${where%%:*}
    text=${where#*:}
    number=${text%%:*}
    path=${text#*[<\"]}
    path=${path%[>\"]*}
    if [[ $path == headroom/* ]]; then continue; fi
    if [[ $file == examples/* ]]; then
      if [[ $text == *\"* || -n ${allowed[${path%%/*}]+x} ]]; then
        echo "$file:$number: [floors] an example includes public headers only, not $path"
      fi
      continue
    fi
    folder=${file#src/}
    folder=${folder%%/*}
    if [[ -z ${allowed[$folder]+x} ]]; then
      echo "$file:$number: [floors] src/$folder has no row in scripts/floors.txt"
      continue
    fi
    row=$folder
    for pattern in "${patterns[@]}"; do
      # shellcheck disable=SC2053
      if [[ ${file#src/} == $pattern ]]; then row=$pattern; fi
    done
    target=${path%%/*}
    if [[ $path == */* && -n ${allowed[$target]+x} ]]; then
      if [[ $target != "$folder" && ${allowed[$row]} != *" $target "* ]]; then
        echo "$file:$number: [floors] $row may not include $target/ ($path)"
      fi
    elif [[ $text == *\"* && ($path == *..* || ! -f ${file%/*}/$path) ]]; then
      echo "$file:$number: [floors] write \"folder/file.h\", from src/: $path"
    fi
  done < <(search 'src/*.[ch]' 'src/*.cu' 'src/*.cuh' 'src/*.inc' 'examples/*.[ch]' -- \
    -oE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"][^>"]+[>"]')
}

check_technique() {
  search 'src/run/executor*' -- -iE \
    '(^|[^a-z])(recomput|offload|quantiz|chunk|zero[ _-]*stage|lora([^a-z]|$))' |
    findings technique "the executor knows no technique"
}

check_pass() {
  search 'src/pass/*.c' -- -E '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]run/' |
    findings pass "a pass is data in, data out"
}

check_contract() {
  search 'src/*.[ch]' 'src/*.inc' -- -E '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]backend/[^"/>]*/' |
    { grep -v '^src/backend/' || true; } | findings contract "a backend is reached by its contract, backend/backend.h"
}

# Prints "file:line:code" with comments and the insides of literals taken out.
code_only() {
  awk '
    FNR == 1 { comment = 0 }
    {
      out = ""; quote = ""
      for (i = 1; i <= length($0); i++) {
        c = substr($0, i, 1); two = substr($0, i, 2)
        if (comment) { if (two == "*/") { comment = 0; i++ } }
        else if (quote != "") { if (c == "\\") i++; else if (c == quote) { quote = ""; out = out c } }
        else if (two == "/*") { comment = 1; i++ }
        else if (two == "//") break
        else { if (c == "\"" || c == "\047") quote = c; out = out c }
      }
      if (out ~ /[^[:space:]]/) print FILENAME ":" FNR ":" out
    }' "$@"
}

check_quiet() {
  local files=() file
  while IFS= read -r -d '' file; do
    if [[ $file != src/cli/* ]]; then files+=("$file"); fi
  done < <(list_files 'src/*.[ch]' 'src/*.cu' 'src/*.cuh' 'src/*.inc')
  if ((${#files[@]} == 0)); then return; fi
  local calls='(v?printf|puts|putchar|perror|abort|exit|_exit|_Exit|quick_exit)[[:space:]]*\('
  code_only "${files[@]}" |
    { grep -E "[^:A-Za-z0-9_]$calls|^[^:]*:[0-9]+:$calls|[^A-Za-z0-9_](stdout|stderr)([^A-Za-z0-9_]|$)" || true; } |
    findings quiet "library code never prints, exits or aborts"
}

# hr_run is a run directory in run.h and a run of a graph in graph.h: one of the two is to be renamed.
check_type() {
  search 'src/*.[ch]' 'include/headroom/*.h' -- -oE '^(\} hri?_[a-z0-9_]+;|(struct|union|enum) hri?_[a-z0-9_]+ \{)' |
    sed -E 's/^([^:]*:[0-9]+):(\} |struct |union |enum )([a-z0-9_]+).*/\3 \1/' | sort |
    awk '
      { file = $2; sub(/:.*/, "", file) }
      $1 == "hr_run" { next }
      $1 == name && file != first { print $2 ": [type] " name " is defined at " where " too" }
      $1 != name { name = $1; first = file; where = $2 }'
}

check_whitespace() {
  local sources=('*.[ch]' '*.cu' '*.cuh' '*.inc' '*.md' '*.sh' '*.py' '*.cmake' '*CMakeLists.txt' 'scripts/*'
    dev .ci/run .gitignore .clang-format)
  local file
  search "${sources[@]}" -- -E $'\t' | findings whitespace "a tab"
  search "${sources[@]}" -- -E '[[:space:]]+$' | findings whitespace "blanks at the end of the line"
  while IFS= read -r -d '' file; do
    if [[ -s $file && -n $(tail -c 1 "$file") ]]; then
      echo "$file:$(($(wc -l <"$file") + 1)): [whitespace] no newline at the end of the file"
    fi
  done < <(list_files "${sources[@]}" LICENSE)
}

# The brackets keep these patterns from matching themselves.
check_machine() {
  local hosts='pypi[.]org|python[h]osted|debian[.]org|ubuntu[.]com|npmjs[.]|crates[.]io|golang[.]org|anaconda[.]'
  local sources=('[!L]*' 'L[!I]*') # all but LICENSE
  search "${sources[@]}" -- -E '(^|[^A-Za-z0-9_.~/-])/([w]ork|[r]oot|[h]ome|[U]sers)(/|[^A-Za-z0-9_/-]|$)' |
    findings machine "a path of one machine"
  search "${sources[@]}" -- -iE "$hosts|pytorch[.]org/whl" | findings machine "a package registry's host"
}

# Patterns become expressions in which a * is a part of one name, and no name begins with a dot that the pattern lacks.
check_layout() {
  printf '%s\n' "${tree[@]}" | awk '
    NR == FNR && /^[^#]/ {
      pattern = $1
      gsub(/[.+]/, "\\\\&", pattern)
      gsub(/[*]/, "<>", pattern)
      gsub(/\/<>/, "/[^./][^/]*", pattern)
      gsub(/<>/, "[^/]*", pattern)
      patterns[++count] = "^" pattern "$"
    }
    NR > FNR {
      for (i = 1; i <= count; i++) if ($0 ~ patterns[i]) next
      print $0 ":1: [layout] no line of scripts/layout.txt names this file"
    }' scripts/layout.txt -
}

run_checks() {
  read_table
  check_layout
  check_floors
  check_technique
  check_pass
  check_contract
  check_quiet
  check_type
  check_whitespace
  check_machine
}

lint() {
  local file report
  while IFS= read -r -d '' file; do
    if [[ -f $file ]]; then tree+=("$file"); fi
  done < <(
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
      git ls-files -z --cached --others --exclude-standard
    else
      find . -path ./build -prune -o -type f -printf '%P\0'
    fi | sort -zu
  )
  report=$(run_checks)
  if [[ -n $report ]]; then
    printf '%s\n' "$report"
    echo "lint: $(wc -l <<<"$report") findings in ${#tree[@]} files"
    return 1
  fi
  echo "lint: ${#tree[@]} files, no findings"
}

# expect RULE FILE TEXT: a good tree in which FILE has TEXT as its second line yields a
# finding of that rule there, or on its first line; "none" expects silence.
expect() {
  local rule=$1 file=$2 text=$3 root output status=0
  root=$(mktemp -d)
  mkdir -p "$root/$(dirname "$file")" "$root/scripts" "$root/src/base"
  printf '#include <stdio.h>\n' >"$root/src/base/text.h"
  cp "$extra" "$root/src/base/extra.h"
  cp "${self%/*}/floors.txt" "${self%/*}/layout.txt" "$root/scripts/"
  printf '# first\n%b' "$text" >"$root/$file"
  output=$(GIT_CEILING_DIRECTORIES=${root%/*} "$self" --root "$root") || status=$?
  rm -rf "$root"
  cases=$((cases + 1))
  if [[ $rule == none ]]; then
    if ((status == 0)); then return; fi
  elif ((status == 1)) && [[ $output == *"$file:"[12]": [$rule] "* ]]; then
    return
  fi
  printf 'self-test: %s with %q: expected [%s], got status %d:\n%s\n' "$file" "$text" "$rule" "$status" "$output"
  wrong=$((wrong + 1))
}

self_test() {
  cases=0
  wrong=0
  extra=$(mktemp) # what src/base/extra.h of every tree holds
  expect none src/base/good.c '#include "base/text.h"\n#include "text.h"\n#include <headroom/plan.h>\nint x;\n'
  expect table scripts/floors.txt 'base: plan\n'
  expect table scripts/floors.txt 'plan base\nbase:\n'
  local path
  for path in .tmp.tmp/config.json x.tex notes/a.md src/base/a.c.orig src/base/.a.c src/main.c src/base/deep/a.c docs/.note.md docs/a.txt \
    tests/unit/core.12 tests/unit/test_a.c~ tests/cli/out.txt .headroom-abcdef/marker bench/a.o tests/gguf/llama/config.json.tmp READMEXmd; do
    expect layout "$path" 'x\n'
  done
  for path in src/base/a.h src/ops/move/cpu.c docs/a.md docs/decisions/0009-a.md tests/torture/kill.c tests/torture/kill.h bench/a.c bench/mem/a.c \
    tests/fuzz/corpus/json/07-cut tests/parity/data/a/model/model-00001-of-00002.safetensors src/report/page.css; do
    expect none "$path" 'x\n'
  done
  expect floors src/base/up.c '#include "plan/life.h"\n'
  expect floors src/base/up.c '  #  include <plan/life.h>\n'
  expect floors src/plan/lost.c '#include "life.h"\n'
  expect floors src/plan/lost.c '#include "../base/text.h"\n'
  expect floors src/other/lost.c '#include "base/text.h"\n'
  expect floors src/cli/main.c '#include "plan/place.h"\n'
  expect floors examples/plan.c '#include "base/text.h"\n'
  expect none src/ops/linear/cpu.c '#include "base/mem.h"\n'
  expect floors src/ops/linear/rule.c '#include "device/host.h"\n'
  expect floors src/backend/open.c '#include "device/host.h"\n'
  expect none src/backend/cpu/arena.c '#include "device/host.h"\n'
  expect contract src/run/executor.c '#include "backend/cpu/cpu.h"\n'
  expect none src/backend/open.c '#include "backend/cpu/cpu.h"\n'
  local word
  for word in recompute_level Offload hr_lora zero_stage quantized loss_chunk; do
    expect technique src/run/executor.c "int $word;\n"
  done
  expect none src/run/executor_lanes.c 'int explorable, zero;\n'
  expect contract src/pass/fuse.c '#include "backend/cpu/gemm.h"\n'
  expect pass src/pass/fuse.c '#include "run/executor.h"\n'
  expect none src/pass/fuse.c '#include "base/text.h"\n'
  expect quiet src/plan/loud.c 'void f(void) { printf("x"); }\n'
  expect quiet src/plan/loud.c 'puts("x");\n'
  expect quiet src/plan/loud.c '  fputs("x", stderr);\n'
  expect quiet src/plan/loud.c '  exit(1);\n'
  expect quiet src/plan/loud.c '  if (x) abort ();\n'
  expect none src/plan/still.c '/* exit(1) */ int hr_exit(int); // abort()\nchar *s = "puts(1)"; snprintf(s, 1, s);\n'
  expect none src/cli/main.c '  exit(1);\n'
  printf 'typedef struct hri_a {\n  int x;\n} hri_a;\n' >"$extra"
  expect type src/plan/twice.c 'struct hri_a {\n  int x;\n};\n'
  expect none src/plan/once.c 'struct hri_b {\n  int x;\n};\ntypedef struct hri_a hri_a;\n'
  : >"$extra"
  expect whitespace src/base/tab.c '\tint x;\n'
  expect whitespace docs/blank.md 'text \n'
  expect whitespace docs/end.md 'text'
  expect machine docs/path.md 'see /wor''k/x\n'
  expect machine docs/path.md 'see `/roo''t`\n'
  expect none docs/path.md 'the host/root, ~/work and ../root of it\n'
  expect machine docs/host.md 'from deb.debian''.org\n'
  rm -f "$extra"
  if ((wrong > 0)); then return 1; fi
  echo "lint: self-test, $cases cases as expected"
}

root=${self%/*}/..
if [[ ${1:-} == --self-test ]]; then
  self_test
  exit
fi
if [[ ${1:-} == --root ]]; then root=$2; fi
cd "$root"
lint
