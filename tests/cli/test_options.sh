#!/usr/bin/env bash
# docs/cli.md and the table of options: the page's last section is the table, as the help of all commands has it (HEADROOM_RECORD=1 writes
# it anew), every option that the page names anywhere exists, and defaults that its prose states are the program's.
source "$(dirname "$0")/common.sh"
page=$here/../../docs/cli.md
marker='## Every option'
run help
commands=$(awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on && /^  [a-z]/ { print $1 }' out)
[ "$(wc -w <<<"$commands")" -gt 12 ] || fail "only these commands: $commands"

# A line for each command and option: command, --name, operand, help, default; tabs between them.
for command in $commands; do
  run help "$command"; expect_rc 0
  awk -v command="$command" '
    function flush() {
      if (name == "") return
      fallback = ""
      if (match(text, / \(default: .*\)$/)) { fallback = substr(text, RSTART + 11, RLENGTH - 12); text = substr(text, 1, RSTART - 1) }
      printf "%s\t%s\t%s\t%s\t%s\n", command, name, operand, text, fallback
      name = ""
    }
    /^  --/ { flush(); name = $1; line = substr($0, length($1) + 3); operand = ""; text = ""
      if (match(line, /   *[^ ]/) && length($0) > 24) { operand = substr(line, 2, RSTART - 2); text = substr(line, RSTART + RLENGTH - 1) }
      else operand = substr(line, 2)
      next }
    /^                        [^ ]/ { sub(/^ */, ""); if (name != "") text = text (text == "" ? "" : " ") $0; next }
    { flush() }
    END { flush() }' out
done >options
[ "$(wc -l <options)" -gt 250 ] || fail "only $(wc -l <options) options of commands were read"

# The section: one row for an option of all commands that say the same of it.
{
  printf '%s\n\n' "$marker"
  echo 'As `headroom help COMMAND` says it. Most may stand in the environment and in recipes too ([above](#where-values-come-from)).'
  printf '\n| option | what it is | default | of |\n|---|---|---|---|\n'
  awk -F'\t' '
    function escape(text) { gsub(/[|]/, "\\|", text); gsub(/[*]/, "\\*", text); gsub(/</, "\\&lt;", text); return text }
    { key = $2 "\t" $3 "\t" $4 "\t" $5
      if (!(key in of)) order[++count] = key
      of[key] = of[key] (key in of && of[key] != "" ? ", " : "") $1 }
    END { for (i = 1; i <= count; i++) { split(order[i], part, "\t")
      printf "| `%s%s` | %s | %s | %s |\n", part[1], part[2] == "" ? "" : " " escape(part[2]), escape(part[3]), escape(part[4]), of[order[i]] } }
  ' options | LC_ALL=C sort -s -t' ' -k2,2
} >section
if [ -n "$record" ]; then
  { sed "/^$marker\$/,\$d" "$page" | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'; echo; cat section; } >whole && cp whole "$page"
fi
sed -n "/^$marker\$/,\$p" "$page" >stands
last='docs/cli.md'
diff -u stands section >out || fail "its last section is not the table of options (HEADROOM_RECORD=1 writes it anew)"

# ---- what the rest of the page says ----
sed "/^$marker\$/,\$d" "$page" >prose
cut -f2 options | sort -u >known
sed -n 's/^--/--no-/p' known >>known
grep -oE -- '(^|[^a-zA-Z0-9-])--[a-z][a-z0-9-]*' prose | grep -oE -- '--[a-z].*' | sort -u >named
for name in $(cat named); do grep -qx -- "$name" known || fail "it names $name, which does not exist"; done

# agrees OPTION WORD: WORD is the default of OPTION, of some command that has it.
agrees() {
  awk -F'\t' -v name="$1" -v word="$2" '$2 == name && $5 == word { found = 1 } END { exit !found }' options ||
    fail "it says that $1 is $2 by default, which is $(awk -F'\t' -v name="$1" '$2 == name { print $5 }' options | sort -u)"
}
# "`--max-skipped` (20)"; "| `--on-nonfinite stop` (default)"; and below a heading "| `--precision` |" the row "| `fp32` (default) |".
grep -oE -- '`--[a-z0-9-]+` \(-?[0-9][0-9.e-]*\)' prose | tr -d '`()' >stated
grep -oE -- '`--[a-z0-9-]+ [a-z0-9-]+` \(default\)' prose | tr -d '`' | cut -d' ' -f1,2 >>stated
awk -F'|' '/^\| `--[a-z0-9-]+` \|/ { head = $2; gsub(/[` ]/, "", head) } /^$/ { head = "" }
  head != "" && match($2, /^ `[a-z0-9-]+`.* \(default\)/) { word = $2; sub(/^ `/, "", word); sub(/`.*/, "", word); print head, word }' prose >>stated
[ "$(wc -l <stated)" -ge 8 ] || fail "only $(wc -l <stated) defaults were found in the prose"
while read -r name word; do agrees "$name" "$word"; done <stated
finish
