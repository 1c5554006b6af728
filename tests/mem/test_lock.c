/* Locks and scratch directories: one holder, whoever it is and however it ends; and nothing removed that is not
 * ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/lock.h"
#include "base/publish.h"
#include "base/scratch.h"
#include "support/fork.h"
#include "support/scratch.h"

static char directory[PATH_BYTES];

static const char *at(const char *name) { return path_of("%s/%s", directory, name); }

static void assert_file_says(const char *path, const char *wanted) {
  char *text = get_file(path, NULL);
  assert_non_null(text);
  assert_string_equal(text, wanted);
  free(text);
}

static void copy_file(const char *from, const char *to) {
  char *text = get_file(from, NULL);
  FILE *file = fopen(to, "w");
  assert_non_null(text);
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
  free(text);
}

static void test_one_holder_who_is_named(void **state) {
  char path[PATH_BYTES];
  hri_lock *a, *b;
  hr_error error = {0};
  hri_lock_owner owner;
  (void)state;
  (void)snprintf(path, sizeof path, "%s", at("lock"));
  assert_int_equal(hri_lock_take(path, "the run X", &a, &error), HR_OK);
  assert_true(hri_lock_is_new(a));
  assert_int_equal(strlen(hri_lock_id(a)), 16);
  assert_int_equal(hri_lock_take(path, "the run X", &b, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "the run X is in use"));
  assert_non_null(strstr(error.message, path_of("process %d", (int)getpid())));
  assert_true(hri_lock_is_held(path, &owner));
  assert_int_equal(owner.pid, getpid());
  hri_lock_release(a, false);
  assert_false(hri_lock_is_held(path, NULL));
  assert_int_equal(hri_lock_take(path, "the run X", &b, &error), HR_OK);
  assert_false(hri_lock_is_new(b));
  assert_string_equal(hri_lock_id(b), owner.id); /* of the run, not of the process */
  hri_lock_release(b, true);
  assert_false(hri_path_exists(path));
}

static void test_a_killed_holder_frees_it(void **state) {
  hri_lock *lock;
  hr_error error = {0};
  char path[PATH_BYTES];
  int ready[2], status;
  char one;
  pid_t pid;
  (void)state;
  (void)snprintf(path, sizeof path, "%s", at("killed"));
  assert_int_equal(pipe(ready), 0);
  pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    if (hri_lock_take(path, "it", &lock, NULL) != HR_OK || write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) (void)pause();
  }
  assert_int_equal(read(ready[0], &one, 1), 1);
  assert_int_equal(hri_lock_take(path, "it", &lock, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, path_of("process %d", (int)pid)));
  (void)kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(hri_lock_take(path, "it", &lock, &error), HR_OK);
  hri_lock_release(lock, true);
}

/* Many processes add one to a number; some of them give the file up while others wait for it. */
static void test_the_path_is_the_locked_file(void **state) {
  char path[PATH_BYTES], number[PATH_BYTES];
  enum { PROCESSES = 6, ROUNDS = 60 };
  (void)state;
  (void)snprintf(path, sizeof path, "%s", at("busy"));
  (void)snprintf(number, sizeof number, "%s", at("number"));
  put_file(number, "0", 1);
  for (int p = 0; p < PROCESSES; p++) {
    if (fork() != 0) continue;
    for (int r = 0; r < ROUNDS; r++) {
      hri_lock *lock;
      char text[32];
      FILE *file;
      if (hri_lock_wait(path, "it", NULL, NULL, &lock, NULL) != HR_OK) _exit(1);
      file = fopen(number, "r+");
      if (!file || !fgets(text, sizeof text, file)) _exit(2);
      rewind(file);
      (void)fprintf(file, "%d", atoi(text) + 1);
      (void)fclose(file);
      hri_lock_release(lock, (p + r) % 3 == 0);
    }
    _exit(0);
  }
  for (int p = 0; p < PROCESSES; p++) {
    int status;
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
  }
  assert_file_says(number, path_of("%d", PROCESSES * ROUNDS));
}

/* The file is removed while it is locked: nobody is kept out, and who comes then has it; a copy of it is nobody's. */
static void test_a_removed_lock_is_noticed(void **state) {
  char path[PATH_BYTES], saved[PATH_BYTES];
  hri_lock *a, *b;
  hr_error error = {0};
  bool gone;
  (void)state;
  (void)snprintf(path, sizeof path, "%s", at("removed"));
  (void)snprintf(saved, sizeof saved, "%s", at("saved"));
  assert_int_equal(hri_lock_take(path, "it", &a, &error), HR_OK);
  assert_int_equal(hri_lock_check(a, "it", &gone, &error), HR_OK);
  assert_false(gone);
  copy_file(path, saved);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(hri_lock_check(a, "it", &gone, &error), HR_OK);
  assert_true(gone);
  copy_file(saved, path);
  assert_int_equal(hri_lock_check(a, "it", &gone, &error), HR_OK);
  assert_true(gone);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(hri_lock_take(path, "it", &b, &error), HR_OK);
  assert_int_equal(hri_lock_check(a, "it", &gone, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, path_of("it was taken over: host ")));
  assert_non_null(strstr(error.message, path_of("process %d", (int)getpid())));
  assert_int_equal(hri_lock_check(b, "it", &gone, &error), HR_OK);
  assert_false(gone);
  hri_lock_release(b, false); /* whose process ended: the file is still its */
  assert_int_equal(hri_lock_check(a, "it", &gone, &error), HR_ERROR_USAGE);
  hri_lock_release(a, false);
  assert_true(hri_path_exists(path));
  assert_int_equal(unlink(path) | unlink(saved), 0);
}

/* As some NFS and Lustre mounts answer. */
static bool without_locks;
int flock(int fd, int operation) {
  if (!without_locks) return (int)syscall(SYS_flock, fd, operation);
  errno = ENOLCK;
  return -1;
}

/* The same where a file that was made stands for the lock: it says whose the directory is, and only its maker removes it. */
static void test_a_removed_fallback_is_noticed(void **state) {
  char path[PATH_BYTES], exclusive[PATH_BYTES], saved[PATH_BYTES];
  hri_lock *a, *b;
  hr_error error = {0};
  bool gone;
  (void)state;
  (void)snprintf(path, sizeof path, "%s", at("nfs"));
  (void)snprintf(exclusive, sizeof exclusive, "%s", at("nfs.exclusive"));
  (void)snprintf(saved, sizeof saved, "%s", at("nfs.saved"));
  without_locks = true;
  assert_int_equal(hri_lock_take(path, "it", &a, &error), HR_OK);
  assert_non_null(hri_lock_how(a));
  assert_int_equal(hri_lock_take(path, "it", &b, &error), HR_ERROR_USAGE);
  assert_int_equal(hri_lock_check(a, "it", &gone, &error), HR_OK);
  assert_false(gone);
  copy_file(path, saved);
  assert_int_equal(rename(saved, path), 0); /* the other file stands for it, and that one is still there */
  assert_int_equal(hri_lock_check(a, "it", &gone, &error), HR_OK);
  assert_false(gone);
  copy_file(exclusive, saved);
  assert_int_equal(unlink(exclusive), 0);
  assert_int_equal(hri_lock_check(a, "it", &gone, &error), HR_OK);
  assert_true(gone);
  assert_int_equal(rename(saved, exclusive), 0);
  assert_int_equal(hri_lock_check(a, "it", &gone, &error), HR_OK);
  assert_false(gone);
  assert_int_equal(unlink(exclusive), 0);
  assert_int_equal(hri_lock_take(path, "it", &b, &error), HR_OK);
  assert_int_equal(hri_lock_check(a, "it", &gone, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "it was taken over: host "));
  assert_non_null(strstr(error.message, path_of("process %d", (int)getpid())));
  hri_lock_release(a, false);
  assert_true(hri_path_exists(exclusive)); /* b's */
  assert_int_equal(hri_lock_check(b, "it", &gone, &error), HR_OK);
  assert_false(gone);
  hri_lock_release(b, true);
  assert_false(hri_path_exists(exclusive) || hri_path_exists(path));
  without_locks = false;
}

static void test_foreign_and_half_written_files(void **state) {
  static const char old[] =
      "{\"headroom_lock\":1,\"id\":\"0123456789abcdef\",\"pid\":         7,\"started\":\"2026-01-01T00:00:00Z\",\"host\":\"a\"}  \n";
  char path[PATH_BYTES];
  hri_lock *lock;
  hr_error error = {0};
  (void)state;
  (void)snprintf(path, sizeof path, "%s", at("mine"));
  put_file(path, "my notes\n", 9);
  assert_int_equal(hri_lock_take(path, "it", &lock, &error), HR_ERROR_USAGE);
  assert_file_says(path, "my notes\n");
  for (size_t cut = 43; cut < sizeof old; cut++) { /* the id survives a write that stopped anywhere behind it */
    put_file(path, old, cut);
    assert_int_equal(hri_lock_take(path, "it", &lock, &error), HR_OK);
    assert_string_equal(hri_lock_id(lock), "0123456789abcdef");
    hri_lock_release(lock, false);
  }
  put_file(path, "", 0);
  assert_int_equal(hri_lock_take(path, "it", &lock, &error), HR_OK); /* killed before its first write */
  hri_lock_release(lock, true);
  assert_int_equal(symlink("/etc/passwd", path), 0);
  assert_int_equal(hri_lock_take(path, "it", &lock, &error), HR_ERROR_IO);
}

/* ---- scratch ---- */

static void test_only_marked_and_unused_scratch_is_swept(void **state) {
  hri_scratch *used, *left;
  hr_error error = {0};
  char kept[PATH_BYTES], mine[PATH_BYTES];
  pid_t pid;
  int status;
  (void)state;
  assert_int_equal(hri_scratch_open(directory, true, &used, &error), HR_OK);
  (void)snprintf(kept, sizeof kept, "%s", hri_scratch_directory(used));
  pid = fork();
  if (pid == 0)
    _exit(hri_scratch_open(directory, false, &left, NULL) == HR_OK &&
                  hri_dir_make(path_of("%s/deep/er", hri_scratch_directory(left)), NULL) == HR_OK
              ? 0
              : 1);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  (void)snprintf(mine, sizeof mine, "%s", at(".headroom-abc123"));
  assert_int_equal(mkdir(mine, 0755), 0); /* a person's, however it is called */
  put_file(path_of("%s/thesis.tex", mine), "x", 1);
  put_file(path_of("%s/marker", mine), "y", 1);
  put_file(at(".step-000001.tmp"), "z", 1);
  assert_int_equal(hri_scratch_sweep(directory), 1); /* the child's */
  assert_true(hri_path_exists(kept));
  assert_true(hri_path_exists(path_of("%s/thesis.tex", mine)));
  assert_true(hri_path_exists(at(".step-000001.tmp")));
  assert_true(hri_scratch_is(directory, strrchr(kept, '/') + 1));
  assert_false(hri_scratch_is(directory, ".headroom-abc123"));
  hri_scratch_close(used);
  assert_false(hri_path_exists(kept));
}

static void test_replace_leaves_nothing_beside(void **state) {
  char path[PATH_BYTES], temp[PATH_BYTES];
  (void)state;
  (void)snprintf(path, sizeof path, "%s", at("small"));
  (void)snprintf(temp, sizeof temp, "%s", at(".small.tmp"));
  put_file(temp, "mine", 4); /* today's temporary name was yesterday's somebody's file */
  assert_int_equal(hri_file_replace(path, "one", 3, NULL), HR_OK);
  assert_int_equal(hri_file_replace(path, "three", 5, NULL), HR_OK);
  assert_file_says(path, "three");
  assert_file_says(temp, "mine");
  assert_int_equal(hri_file_can_replace(path, NULL), HR_OK);
  assert_int_equal(hri_scratch_sweep(directory), 0);
}

/* What a kill left in the middle of writing goes with the next write beside it, and with the check before one. */
static int die_while_replacing(void *context) {
  hri_scratch *s;
  (void)context;
  if (hri_scratch_open(directory, false, &s, NULL) != HR_OK ||
      hri_file_write_new(path_of("%s/file", hri_scratch_directory(s)), "half", 4, NULL) != HR_OK)
    return 1;
  return kill(getpid(), SIGKILL);
}

static void test_replace_clears_what_a_kill_left(void **state) {
  (void)state;
  for (int check = 0; check < 2; check++) {
    assert_int_equal(in_child(die_while_replacing, NULL, 60), 128 + SIGKILL);
    assert_int_equal(check ? hri_file_can_replace(at("next"), NULL) : hri_file_replace(at("next"), "x", 1, NULL),
                     HR_OK);
    assert_no_scratch(directory);
  }
}

/* Processes that make scratch directories while others sweep: none is taken away from who made it, and none stays. */
static void test_sweeping_beside_makers(void **state) {
  enum { PROCESSES = 6, ROUNDS = 300 };
  (void)state;
  for (int p = 0; p < PROCESSES; p++) {
    if (fork() != 0) continue;
    for (int r = 0; r < ROUNDS; r++) {
      hri_scratch *s;
      char path[4096];
      (void)hri_scratch_sweep(directory);
      if (hri_scratch_open(directory, false, &s, NULL) != HR_OK || hri_scratch_path(s, "file", path, NULL) != HR_OK)
        _exit(1);
      if (hri_file_write_new(path, "x", 1, NULL) != HR_OK || !hri_path_exists(path)) _exit(2);
      hri_scratch_close(s);
    }
    _exit(0);
  }
  for (int p = 0; p < PROCESSES; p++) {
    int status;
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
  }
  assert_no_scratch(directory);
}

/* Moved aside for something that never came: back at its name, whether this process ends in order or not. */
static void test_what_is_aside_comes_back(void **state) {
  static const char *const ends[] = {"closed", "killed", "taken"};
  (void)state;
  for (int how = 0; how < 3; how++) {
    char name[PATH_BYTES], thesis[PATH_BYTES + 16];
    int status;
    pid_t pid;
    (void)snprintf(name, sizeof name, "%s", at(ends[how]));
    (void)snprintf(thesis, sizeof thesis, "%s/thesis.tex", name);
    assert_int_equal(mkdir(name, 0755), 0);
    put_text(thesis, "x");
    pid = fork();
    if (pid == 0) {
      char aside[PATH_BYTES * 4];
      hri_scratch *s;
      if (hri_scratch_open(directory, false, &s, NULL) != HR_OK ||
          hri_scratch_set_aside(s, ends[how], aside, NULL) != HR_OK || hri_path_exists(name))
        _exit(1);
      if (how == 2 && mkdir(name, 0755) != 0) _exit(2);
      if (how == 0) hri_scratch_close(s);
      _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(hri_scratch_sweep(directory), how > 0);
    assert_int_equal(hri_path_exists(thesis), how < 2);
    assert_no_scratch(directory);
  }
}

/* Somebody moves the folder in which a file is being made: what is begun goes all the same, and what stands where it was stays, whatever
 * its name. */
static void test_a_scratch_is_found_where_its_folder_went(void **state) {
  for (int aside = 0; aside < 2; aside++) {
    char name[64], old[PATH_BYTES * 4];
    hri_scratch *s;
    (void)state;
    assert_int_equal(mkdir(at("folder"), 0755), 0);
    put_text(at("folder/model"), "somebody's");
    assert_int_equal(hri_scratch_open(at("folder"), true, &s, NULL), HR_OK);
    (void)snprintf(name, sizeof name, "%s", strrchr(hri_scratch_directory(s), '/') + 1);
    assert_int_equal(hri_dir_make(path_of("%s/deep/er", hri_scratch_directory(s)), NULL), HR_OK);
    if (aside) assert_int_equal(hri_scratch_set_aside(s, "model", old, NULL), HR_OK);
    assert_int_equal(rename(at("folder"), at("folder.set-aside-1")), 0);
    assert_int_equal(mkdir(at("folder"), 0755), 0);
    assert_int_equal(mkdir(at(path_of("folder/%s", name)), 0755), 0);
    put_text(at(path_of("folder/%s/marker", name)), "mine");
    hri_scratch_close(s);
    assert_no_scratch(at("folder.set-aside-1"));
    assert_file_says(at("folder.set-aside-1/model"), "somebody's");
    assert_file_says(at(path_of("folder/%s/marker", name)), "mine");
    assert_int_equal(hri_dir_remove(at("folder"), NULL), HR_OK);
    assert_int_equal(hri_dir_remove(at("folder.set-aside-1"), NULL), HR_OK);
  }
}

/* Or moves it at any moment while the scratch is begun: whether there is one then or not, none stays. */
static void test_a_folder_may_go_while_a_scratch_is_begun(void **state) {
  enum { ROUNDS = 400, MOST_US = 400 };
  (void)state;
  for (int r = 0; r < ROUNDS; r++) {
    hri_scratch *s;
    int status;
    pid_t pid;
    assert_int_equal(mkdir(at("folder"), 0755), 0);
    pid = fork();
    if (pid == 0) {
      (void)usleep((useconds_t)(r * 7919 % MOST_US));
      _exit(rename(at("folder"), at("folder.set-aside-1")) != 0);
    }
    if (hri_scratch_open(at("folder"), true, &s, NULL) == HR_OK) hri_scratch_close(s);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_no_scratch(at("folder.set-aside-1"));
    assert_int_equal(hri_dir_remove(at("folder.set-aside-1"), NULL), HR_OK);
  }
}

static bool is_kind(const char *path, mode_t kind) {
  struct stat info;
  return lstat(path, &info) == 0 && (info.st_mode & S_IFMT) == kind;
}

/* A device or a pipe gets the bytes and stays what it is; a link to a file stays too, and so does the file. Devices
 * are named by links: a mistake here must not cost them. */
static void test_what_is_no_file_is_not_replaced(void **state) {
  char link[PATH_BYTES], text[16] = "";
  hr_error error = {0};
  int reader;
  (void)state;
  assert_int_equal(mkdir(at("ends"), 0755), 0);
  assert_int_equal(mkfifo(at("ends/pipe"), 0600), 0);
  assert_int_equal(hri_file_can_replace(at("ends/pipe"), NULL), HR_OK);
  assert_int_equal(hri_file_replace(at("ends/pipe"), "x", 1, &error), HR_ERROR_IO); /* nobody reads */
  reader = open(at("ends/pipe"), O_RDONLY | O_NONBLOCK);
  assert_int_equal(hri_file_replace(at("ends/pipe"), "piped", 5, NULL), HR_OK);
  assert_int_equal(read(reader, text, sizeof text), 5);
  assert_string_equal(text, "piped");
  close(reader);
  assert_true(is_kind(at("ends/pipe"), S_IFIFO));
  (void)snprintf(link, sizeof link, "%s", at("ends/device"));
  assert_int_equal(symlink("/dev/full", link), 0);
  assert_int_equal(hri_file_can_replace(link, NULL), HR_OK);
  assert_int_equal(hri_file_replace(link, "x", 1, &error), HR_ERROR_IO);
  assert_true(is_kind(link, S_IFLNK));
  (void)snprintf(link, sizeof link, "%s", at("ends/link"));
  assert_int_equal(symlink("../target", link), 0);
  for (int there = 0; there < 2; there++) { /* to nowhere; to a file */
    assert_int_equal(hri_file_can_replace(link, &error), HR_ERROR_USAGE);
    assert_int_equal(hri_file_replace(link, "new", 3, &error), HR_ERROR_USAGE);
    assert_non_null(strstr(error.message, "it is a link"));
    assert_true(is_kind(link, S_IFLNK));
    if (there) assert_file_says(at("target"), "somebody's");
    put_text(at("target"), "somebody's");
  }
  assert_int_equal(hri_file_replace(at("ends"), "x", 1, &error), HR_ERROR_USAGE);
  assert_no_scratch(at("ends"));
  assert_int_equal(hri_dir_remove(at("ends"), NULL), HR_OK);
}

static void test_without_descriptors_nothing_stays(void **state) {
  (void)state;
  for (rlim_t spare = 0; spare < 6; spare++) {
    int status;
    pid_t pid;
    assert_int_equal(mkdir(at("starved"), 0755), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
      hri_scratch *s;
      int next = open("/dev/null", O_RDONLY);
      struct rlimit most = {(rlim_t)next + spare, (rlim_t)next + spare};
      if (next < 0 || close(next) != 0 || setrlimit(RLIMIT_NOFILE, &most) != 0) _exit(3);
      if (hri_scratch_open(at("starved"), true, &s, NULL) != HR_OK) _exit(1);
      hri_scratch_close(s);
      _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), spare < 3 ? 1 : 0); /* parent, marker, and the directory to sync it */
    assert_int_equal(rmdir(at("starved")), 0);                /* it is empty */
  }
}

static void test_nothing_is_published_over(void **state) {
  static const char *const kinds[] = {"file", "directory"};
  (void)state;
  for (int k = 0; k < 8; k++) {
    char made[PATH_BYTES], path[PATH_BYTES];
    bool from_dir = k & 1, onto_dir = k & 2;
    hr_error error = {0};
    (void)snprintf(made, sizeof made, "%s", at(path_of("made-%d", k)));
    (void)snprintf(path, sizeof path, "%s", at(path_of("path-%d", k)));
    hri_publish_plainly(k & 4);
    if (from_dir) assert_int_equal(mkdir(made, 0755), 0);
    else put_text(made, "new");
    if (onto_dir) assert_int_equal(mkdir(path, 0755), 0);
    else put_text(path, "old");
    assert_int_equal(hri_publish_new(made, path, &error), HR_ERROR_USAGE);
    assert_non_null(strstr(error.message, "exists"));
    if (hri_path_is_dir(path) != onto_dir || !hri_path_exists(made))
      fail_msg("a %s moved onto a %s", kinds[from_dir], kinds[onto_dir]);
    assert_int_equal(hri_dir_remove(path, NULL), HR_OK);
    assert_int_equal(hri_publish_new(made, path, &error), HR_OK);
    assert_true(hri_path_exists(path) && !hri_path_exists(made));
  }
  hri_publish_plainly(false);
  assert_int_equal(hri_publish_room(directory, 1, NULL), HR_OK);
  assert_int_equal(hri_publish_room(directory, UINT64_MAX, NULL), HR_ERROR_IO);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_holder_who_is_named),
      cmocka_unit_test(test_a_killed_holder_frees_it),
      cmocka_unit_test(test_the_path_is_the_locked_file),
      cmocka_unit_test(test_a_removed_lock_is_noticed),
      cmocka_unit_test(test_a_removed_fallback_is_noticed),
      cmocka_unit_test(test_foreign_and_half_written_files),
      cmocka_unit_test(test_only_marked_and_unused_scratch_is_swept),
      cmocka_unit_test(test_replace_leaves_nothing_beside),
      cmocka_unit_test(test_replace_clears_what_a_kill_left),
      cmocka_unit_test(test_sweeping_beside_makers),
      cmocka_unit_test(test_what_is_aside_comes_back),
      cmocka_unit_test(test_a_scratch_is_found_where_its_folder_went),
      cmocka_unit_test(test_a_folder_may_go_while_a_scratch_is_begun),
      cmocka_unit_test(test_what_is_no_file_is_not_replaced),
      cmocka_unit_test(test_without_descriptors_nothing_stays),
      cmocka_unit_test(test_nothing_is_published_over),
  };
  int failed;
  (void)snprintf(directory, sizeof directory, "%s", scratch_make("lock"));
  failed = cmocka_run_group_tests(tests, NULL, NULL);
  scratch_remove(directory);
  return failed;
}
