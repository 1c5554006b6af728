#!/usr/bin/env bash
# Every public header compiles alone, twice, and before and behind every other, as C11 or as C++17; two files that include all
# of them link; the version is one. Usage: headers.sh c|c++ INCLUDE (a folder that holds headroom/). 77: there is no compiler.
set -u
language=$1 include=$(realpath "$2")
case $language in
c) compiler=${CC:-cc} flags='-xc -std=c11' ;;
c++) compiler=${CXX:-c++} flags='-xc++ -std=c++17' ;;
*) echo "headers.sh c|c++ INCLUDE"; exit 2 ;;
esac
command -v "$compiler" >/dev/null || { echo "there is no $language compiler"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags="$flags -I $include -Wall -Wextra -Wpedantic -Wshadow -Werror"
failed=0
# check NAME: the source on standard input must compile.
check() {
  # shellcheck disable=SC2086
  "$compiler" $flags -fsyntax-only - 2>"$work/err" || { echo "as $language: $1"; head -5 "$work/err"; failed=1; }
}
headers=$(cd "$include" && echo headroom/*.h)
for header in $headers; do
  printf '#include <%s>\n#include <%s>\n' "$header" "$header" | check "$header alone"
  # Before all others, and behind them: what a header lacks or leaves behind shows in one of the two.
  { printf '#include <%s>\n' "$header"; printf '#include <%s>\n' $headers; } | check "$header first"
  { for other in $headers; do [ "$other" = "$header" ] || printf '#include <%s>\n' "$other"; done; printf '#include <%s>\n' "$header"; } | check "$header last"
done
# The order of a list reversed sets every pair against the order above.
printf '#include <%s>\n' $headers >"$work/all"
tac "$work/all" | check "all in reverse"
# headroom.h is what it says: all of them.
for header in $headers; do
  case $header in headroom/headroom.h) continue ;; esac
  grep -q "#include <$header>" "$include/headroom/headroom.h" || { echo "headroom/headroom.h does not include $header"; failed=1; }
  grep -q 'Threads:' "$include/$header" || { echo "$header says nothing about threads"; failed=1; }
  awk -v file="$header" '/^[a-z].*\<hr_[a-z0-9_]+\(/ && !/^(typedef|static inline)/ { print file ": " $0 ": neither HR_API nor HR_CHECKED stands in front"; bad = 1 }
    /^HR_API hr_status / { print file ": " $0 ": a status is HR_CHECKED"; bad = 1 } END { exit bad }' "$include/$header" || failed=1
done
for file in one two; do
  { cat "$work/all"; echo "int $file(void); int $file(void) { return HR_VERSION_NUMBER; }"; } >"$work/$file.c"
  # shellcheck disable=SC2086
  "$compiler" $flags -c "$work/$file.c" -o "$work/$file.o" || failed=1
done
echo 'int one(void); int two(void); int main(void) { return one() != two(); }' >"$work/main.c"
# shellcheck disable=SC2086
"$compiler" $flags -c "$work/main.c" -o "$work/main.o" && "$compiler" "$work/main.o" "$work/one.o" "$work/two.o" -o "$work/both" && "$work/both" || { echo "two files with all headers do not link"; failed=1; }
# An unread status is a warning.
printf '#include <headroom/plan.h>\nvoid f(hr_plan **plan);\nvoid f(hr_plan **plan) { hr_plan_create(0, plan, 0); }\n' >"$work/unread"
# shellcheck disable=SC2086
"$compiler" $flags -c - -o "$work/unread.o" <"$work/unread" 2>/dev/null && { echo "a status that nobody reads is no warning"; failed=1; }
exit $failed
