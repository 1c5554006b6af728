#!/usr/bin/env bash
# What is built, installed into prefixes of this test: the examples are compiled against it with pkg-config and with CMake, in another
# place than it was installed to, and run; then all of it is removed. Usage: test_install.sh PROGRAM BUILD SOURCES [COMPILER_FLAGS]
build=$2 sources=$3 flags=${4:-}
source "$(dirname "$0")/../cli/common.sh"
cc=${CC:-cc}
snapshot=$sources/tests/snapshots/real/2.15/backward-oom.pickle.gz
version=$(sed -n 's/^#define HR_VERSION "\(.*\)"/\1/p' "$sources/include/headroom/status.h")
libraries=(headroom headroom-mem headroom-text headroom-plan)

# done_by COMMAND...: it succeeds; what it said is kept in out.
done_by() {
  last=$*
  "$@" >out 2>err || fail "failed"
}

# ---- what is there ----
mkdir -p first/share/elsewhere
echo mine >first/share/elsewhere/note
done_by cmake --install "$build" --prefix "$work/first"
done_by first/bin/headroom version; expect_out "^headroom $version\$"
for name in "${libraries[@]}"; do
  last="lib$name"
  [ -f "first/lib/lib$name.a" ] || fail "there is no archive"
  [ "$(readlink "first/lib/lib$name.so")" = "lib$name.so.${version%.*}" ] || fail "lib$name.so is no link to its version"
  [ "$(readlink "first/lib/lib$name.so.${version%.*}")" = "lib$name.so.$version" ] || fail "its version is no link to the file"
  readelf -d "first/lib/lib$name.so" | grep -q "SONAME.*\[lib$name.so.${version%.*}\]" || fail "SONAME is not the version"
  readelf -d "first/lib/lib$name.so" | grep -qE 'RPATH|RUNPATH' && fail "it looks for libraries where it was built"
done
last=headers
diff -r "$sources/include/headroom" first/include/headroom >out || fail "they differ from the sources'"
for pair in bash:share/bash-completion/completions/headroom zsh:share/zsh/site-functions/_headroom \
  fish:share/fish/vendor_completions.d/headroom.fish; do
  run help --completion "${pair%%:*}"; expect_rc 0
  cmp -s out "first/${pair#*:}" || fail "first/${pair#*:} is another text"
done
run help --man; cmp -s out first/share/man/man1/headroom.1 || fail "the manual page is another text"
last='what says where'
! grep -rIlF -e "$work" -e "$build" -e "$sources" first --exclude=note || fail "files name the place that they were made in"

# ---- built against a utf8proc in a place of its own ----
mkdir -p own/pkgconfig
sed "s|^libdir=.*|libdir=$work/own|" "$(pkg-config --variable=pcfiledir libutf8proc)/libutf8proc.pc" >own/pkgconfig/libutf8proc.pc
ln -s "$(pkg-config --variable=libdir libutf8proc)"/libutf8proc.* own
export PKG_CONFIG_PATH=$work/own/pkgconfig
done_by pkg-config --libs libutf8proc; expect_out "^-L$work/own -lutf8proc"
done_by cmake -S "$sources" -B own/build
last='a library in a place of its own'
grep -q '^Libs.private:.* -lutf8proc' own/build/generated/headroom.pc || fail "it is not named"
! grep -F -e "$work" own/build/generated/*.pc >out || fail "the place where it was built is named"

# ---- pkg-config, in another place ----
mv first second
export PKG_CONFIG_PATH=$work/second/lib/pkgconfig LD_LIBRARY_PATH=$work/second/lib
# compile NAME PACKAGE: an example against a package's shared library
compile() {
  # shellcheck disable=SC2046,SC2086 # flags are words
  done_by $cc $flags -std=c11 -Wall -Wextra -Wpedantic -Werror -o "$1-$2" "$sources/examples/$1.c" $(pkg-config --cflags --libs "$2")
  readelf -d "$1-$2" | grep -q "NEEDED.*\[lib$2.so.${version%.*}\]" || fail "$1 is not linked with lib$2.so"
}
for name in "${libraries[@]}"; do
  done_by pkg-config --modversion "$name"; expect_out "^$version\$"
  [ "$(pkg-config --variable=prefix "$name" | xargs realpath)" = "$work/second" ] || fail "$name.pc is not where it says"
  pkg-config --cflags "$name" | grep -q -- -D && fail "$name.pc defines something for who uses it: $(pkg-config --cflags "$name")"
done
for source in "$sources"/examples/*.c; do
  name=$(basename "$source" .c)
  compile "$name" headroom
  done_by "./$name-headroom" $([ "$name" = explain_a_snapshot ] && echo "$snapshot")
done
compile caching_allocator headroom-mem
done_by ./caching_allocator-headroom-mem
compile explain_a_snapshot headroom-mem
done_by ./explain_a_snapshot-headroom-mem "$snapshot"; expect_out 'PYTORCH_ALLOC_CONF=expandable_segments:True'
compile plan_a_job headroom-plan
done_by ./plan_a_job-headroom-plan gpt2-124m rtx-3060
cat >chat.c <<'C'
#include <headroom/text.h>
#include <stdio.h>
#include <string.h>
int main(void) {
  const char *messages = "[{\"role\": \"user\", \"content\": \"Hello\"}]";
  hr_error error;
  hr_chat *chat;
  hr_rendered turn;
  if (hr_chat_open("chatml", NULL, &chat, &error) != HR_OK) return 1;
  if (hr_chat_render(chat, messages, strlen(messages), true, &turn, &error) != HR_OK) return 1;
  fwrite(turn.text, 1, turn.bytes, stdout);
  hr_rendered_deinit(&turn);
  hr_chat_close(chat);
  return 0;
}
C
# The archive: its own dependencies come from the .pc file.
# shellcheck disable=SC2046,SC2086
done_by $cc $flags -o chat $(pkg-config --cflags headroom-text) chat.c "$work/second/lib/libheadroom-text.a" \
  $(pkg-config --static --libs headroom-text | sed 's/-lheadroom-text//')
done_by ./chat; expect_out '^<.im_start.>user$'; expect_out '^Hello'
readelf -d chat | grep -q libheadroom && fail "an archive was asked for"

# The guide to the library, in the place that the installed files were moved to.
source "$here/pages.sh"
awk '/^    [$] cat small.c/ { on = 1; next } on && /^(    [$]|[^ ])/ { exit } on { print substr($0, 5) }' "$sources/docs/guides/library.md" >"$page_place/small.c"
check_page "$sources/docs/guides/library.md"

# ---- CMake ----
mkdir project
{
  echo 'cmake_minimum_required(VERSION 3.22)
project(example C)
find_package(Headroom 0.1 REQUIRED COMPONENTS static)
add_executable(plan plan_a_job.c)
target_link_libraries(plan Headroom::headroom)
add_executable(plan_static plan_a_job.c)
target_link_libraries(plan_static Headroom::headroom-static)
add_executable(allocator caching_allocator.c)
target_link_libraries(allocator Headroom::mem)
find_package(Headroom 99 QUIET)
if(Headroom_FOUND)
  message(FATAL_ERROR "0.1 was taken for 99")
endif()'
} >project/CMakeLists.txt
cp "$sources"/examples/{plan_a_job,caching_allocator}.c project
done_by cmake -S project -B project/build -DCMAKE_PREFIX_PATH="$work/second" -DCMAKE_C_FLAGS="$flags" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
grep -qi utf8proc project/build/compile_commands.json && fail "what an archive is made of is defined for who uses it"
done_by cmake --build project/build
unset LD_LIBRARY_PATH
for name in plan plan_static allocator; do done_by "project/build/$name"; done
last=plan_static
readelf -d project/build/plan_static | grep -q libheadroom && fail "an archive was asked for"
cmp -s <(project/build/plan) <(project/build/plan_static) || fail "the two libraries plan differently"
sed -i 's/COMPONENTS static/COMPONENTS sttaic/' project/CMakeLists.txt
last='a component that does not exist'
cmake -S project -B project/other -DCMAKE_PREFIX_PATH="$work/second" >out 2>&1 && fail "it was found"
grep -q "not 'sttaic'" out || fail "the reason is not said"

# ---- removing it ----
done_by cmake --install "$build" --prefix "$work/second" # once more: what the first time wrote stays known
done_by bash "$sources/scripts/uninstall.sh" second
[ "$(find second -type f -o -type l)" = second/share/elsewhere/note ] || fail "what is left: $(find second | head)"
[ "$(find second | wc -l)" -eq 4 ] || fail "folders are left: $(find second -type d)"
last='uninstall where nothing is'
bash "$sources/scripts/uninstall.sh" second >out 2>err && fail "it removes what is not there"
grep -q 'nothing of Headroom is installed' err || fail "the reason is not said"
done_by cmake --install "$build" --prefix "$work/third"
echo '../second/share/elsewhere/note' >>third/share/headroom/manifest.txt
last='a manifest that points outside'
bash "$sources/scripts/uninstall.sh" third >out 2>err && fail "it is followed"
[ -f second/share/elsewhere/note ] && [ -x third/bin/headroom ] || fail "something was removed"
sed -i '$d' third/share/headroom/manifest.txt
done_by bash "$sources/scripts/uninstall.sh" third
[ ! -e third ] || fail "folders are left: $(find third)"
finish
