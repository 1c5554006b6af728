# Shared by tests that hold a page to what it shows: in its indented blocks each line "$ command" is run, in one shell, and what it prints
# is compared with the lines below it. A line "..." there stands for any lines; times and rates of what was measured while the command ran
# (train, evaluate, generate, data) are not compared. HEADROOM_RECORD=1 writes the page anew; what "..." hides stays hidden.
# Usage: source common.sh and this; check_page PAGE [EXPRESSION], of which only commands that match are run.

# A place like the root of the sources, in which pages may write; and the program by its name.
page_place=$work/place
mkdir -p "$page_place" "$work/bin" "$work/samples"
for name in docs examples tests; do ln -sfn "$(cd "$here/../.." && pwd)/$name" "$page_place/$name"; done
ln -sfn "$program" "$work/bin/headroom"

# samples/N.cmd, N.want and N.lines (the first line of the output, and the one behind it) of a page.
page_samples() {
  rm -f "$work"/samples/*
  awk -v to="$work/samples/" '
    function close_sample(i) {
      if (!open) return
      while (last >= first && text[last] == "") last--
      while (first <= last && text[first] == "") first++
      printf "" >(to count ".want")
      for (i = first; i <= last; i++) print text[i] >(to count ".want")
      print first, last + 1 >(to count ".lines")
      close(to count ".want"); close(to count ".lines"); close(to count ".cmd")
      open = 0
    }
    /^    \$ / || more { if (!more) { close_sample(); count++ }
      line = substr($0, more ? 5 : 7); more = line ~ /\\$/
      print line >(to count ".cmd")
      open = 1; first = NR + 1; last = NR
      next }
    /^    / || /^$/ { if (open) text[last = NR] = substr($0, 5); next }
    { close_sample() }
    END { close_sample() }' "$1"
}

# Where something was measured, its figure and the blanks beside it.
page_normal() {
  case $1 in
  *headroom\ train* | *headroom\ evaluate* | *headroom\ generate* | *headroom\ data*)
    sed -E -e 's/[0-9]+(\.[0-9]+)? ([kMG] )?(tokens|tok)\/s/RATE/g; s/[0-9]+(\.[0-9]+)? [kMGT]?(B|FLOP)\/s/RATE/g' \
      -e 's/[0-9]+(\.[0-9]+)? (ns|us|ms|s|min)([^a-zA-Z]|$)/TIME\3/g; s/took [-+][0-9]+ %/took SHARE/' \
      -e '/RATE|TIME/s/  +/ /g' "$2" ;;
  *) cat "$2" ;;
  esac
}

# page_match WANT GOT: equal, "..." apart.
page_match() {
  awk '
    NR == FNR { want[++wants] = $0; next }
    { got[++gots] = $0 }
    function fits(w, g) {
      for (; w <= wants; w++) {
        if (want[w] == "...") {
          for (; g <= gots + 1; g++) if (fits(w + 1, g)) return 1
          return 0
        }
        if (g > gots || want[w] != got[g++]) return 0
      }
      return g == gots + 1
    }
    END { exit !fits(1, 1) }' "$1" "$2"
}

# page_elide WANT GOT: GOT with "..." in place of lines, as many before the first and behind the last as WANT has; fails for more than one.
page_elide() {
  local hidden head tail
  hidden=$(grep -cFx '...' "$1")
  if [ "$hidden" -eq 0 ]; then cat "$2" && return; fi
  head=$(grep -nFx '...' "$1" | head -1 | cut -d: -f1)
  tail=$(($(wc -l <"$1") - $(grep -nFx '...' "$1" | tail -1 | cut -d: -f1)))
  head -n $((head - 1)) "$2"
  echo ...
  tail -n "$tail" "$2"
  [ "$hidden" -eq 1 ]
}

# page_rewrite PAGE: the samples' got in their places, from the last on, so that line numbers hold.
page_rewrite() {
  local n first behind
  cp "$1" "$work/page"
  for n in $(ls "$work/samples" | sed -n 's/\.got$//p' | sort -rn); do
    read -r first behind <"$work/samples/$n.lines"
    if page_match <(page_normal "$(cat "$work/samples/$n.cmd")" "$work/samples/$n.want") "$work/samples/$n.normal"; then continue; fi
    if ! page_elide "$work/samples/$n.want" "$work/samples/$n.got" >"$work/elided"; then
      fail "more than one place is hidden: write this one by hand: $(cat "$work/samples/$n.cmd")"
      continue
    fi
    { head -n $((first - 1)) "$work/page"; sed 's/^\(.\)/    \1/' "$work/elided"; tail -n +"$behind" "$work/page"; } >"$work/page.new"
    mv "$work/page.new" "$work/page"
  done
  cp "$work/page" "$1"
}

check_page() {
  local page=$1 only=${2:-.} n command status=0 checked=0 samples=$work/samples
  page_samples "$page"
  cd "$page_place" || exit 1
  for n in $(ls "$samples" | sed -n 's/\.cmd$//p' | sort -n); do
    command=$(cat "$samples/$n.cmd")
    if ! grep -qE -- "$only" <<<"$command"; then continue; fi
    (exit "$status")
    PATH=$work/bin:$PATH eval "$command" >"$work/said" 2>&1 </dev/null
    status=$?
    awk 'NF { for (; blank > 0; blank--) print ""; print; some = 1; next } some { blank++ }' "$work/said" >"$samples/$n.got" # as blocks begin and end
    checked=$((checked + 1))
    page_normal "$command" "$samples/$n.got" >"$samples/$n.normal"
    if [ -n "$record" ]; then continue; fi
    last="$(basename "$page"): $command"
    page_match <(page_normal "$command" "$samples/$n.want") "$samples/$n.normal" ||
      { cp "$samples/$n.got" "$work/out"; fail "the page shows something else: $(diff "$samples/$n.want" "$samples/$n.got" | head -20)"; }
  done
  cd "$work" || exit 1
  last=$(basename "$page")
  [ "$checked" -gt 0 ] || fail "no command of it was run"
  if [ -n "$record" ]; then page_rewrite "$page"; fi
}
