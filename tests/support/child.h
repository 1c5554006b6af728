/* Running the program as a person does: as a child process, under limits, with what it says captured. */
#ifndef HRI_TEST_CHILD_H
#define HRI_TEST_CHILD_H

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "support/scratch.h"

enum { CHILD_WORDS = 64, CHILD_TEXT_BYTES = 32768 };

typedef struct child {
  /* in */
  const char *words[CHILD_WORDS]; /* arguments behind the program's name, NULL at the end */
  uint64_t address_space_bytes;   /* RLIMIT_AS; 0: none */
  uint64_t data_bytes;            /* RLIMIT_DATA; 0: none */
  uint64_t stack_bytes;           /* RLIMIT_STACK; 0: as it is */
  uint64_t file_bytes;            /* RLIMIT_FSIZE; 0: none */
  unsigned deadline_seconds;      /* a child that takes longer ends with 128 + SIGALRM; 0: none */
  uint64_t kill_after_us;         /* kill -9 after this time unless it has ended; 0: never */
  /* out */
  int code; /* exit code, or 128 + signal */
  uint64_t peak_resident_bytes, user_us;
  char out[CHILD_TEXT_BYTES], err[CHILD_TEXT_BYTES];
} child;

/* Splits `line` at blanks into words (kept in a static buffer); behind what is there. */
static inline void child_words(child *c, const char *line) {
  static char buffers[32][4096];
  static int used;
  char *text = buffers[used++ % 32], *save = NULL;
  int n = 0;
  assert_true(strlen(line) < 4096);
  (void)strcpy(text, line);
  while (c->words[n]) n++;
  for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
    assert_true(n < CHILD_WORDS - 1);
    c->words[n++] = word;
  }
  c->words[n] = NULL;
}

static inline void child_limit(int resource, uint64_t bytes) {
  struct rlimit limit = {bytes, bytes};
  if (bytes && setrlimit(resource, &limit) != 0) _exit(126);
}

static inline void child_exec(const child *c, const char *program, const char *out, const char *err) {
  const char *words[CHILD_WORDS + 2] = {program};
  int to = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600), talk = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  for (int i = 0; c->words[i]; i++) words[i + 1] = c->words[i];
  if (to < 0 || talk < 0 || dup2(to, 1) < 0 || dup2(talk, 2) < 0) _exit(126);
  (void)close(to);
  (void)close(talk);
  (void)alarm(c->deadline_seconds);
  child_limit(RLIMIT_FSIZE, c->file_bytes);
  child_limit(RLIMIT_CORE, 1); /* a crash is reported, not stored */
  child_limit(RLIMIT_STACK, c->stack_bytes);
  child_limit(RLIMIT_DATA, c->data_bytes);
  child_limit(RLIMIT_AS, c->address_space_bytes);
  (void)execv(program, (char *const *)words);
  _exit(126);
}

static inline void child_text(const char *path, char out[CHILD_TEXT_BYTES]) {
  size_t count = 0;
  char *text = get_file(path, &count);
  if (count >= CHILD_TEXT_BYTES) count = CHILD_TEXT_BYTES - 1;
  if (text) memcpy(out, text, count);
  out[count] = 0;
  free(text);
}

/* Waits for the child; kills it when its time is over. */
static inline void child_wait(child *c, pid_t pid) {
  struct rusage usage;
  int status = 0;
  if (c->kill_after_us) {
    struct timespec pause = {(time_t)(c->kill_after_us / 1000000), (long)(c->kill_after_us % 1000000) * 1000};
    (void)nanosleep(&pause, NULL);
    (void)kill(pid, SIGKILL); /* a child that has ended is still there to be waited for: the number is its own */
  }
  while (wait4(pid, &status, 0, &usage) < 0) assert_int_equal(errno, EINTR);
  c->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  c->peak_resident_bytes = (uint64_t)usage.ru_maxrss * 1024;
  c->user_us = (uint64_t)usage.ru_utime.tv_sec * 1000000 + (uint64_t)usage.ru_utime.tv_usec;
}

/* Runs `program`; its output goes through files in `directory`. */
static inline void child_run(child *c, const char *program, const char *directory) {
  char out[PATH_BYTES], err[PATH_BYTES];
  pid_t pid;
  assert_true(snprintf(out, sizeof out, "%s/.stdout", directory) < PATH_BYTES &&
              snprintf(err, sizeof err, "%s/.stderr", directory) < PATH_BYTES);
  (void)fflush(NULL);
  pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) child_exec(c, program, out, err);
  child_wait(c, pid);
  child_text(out, c->out);
  child_text(err, c->err);
}

/* The whole number behind the first `key` in a JSON text, e.g. "\"fixed_bytes\":". */
static inline uint64_t number_behind(const char *text, const char *key) {
  const char *at = strstr(text, key);
  if (!at) fail_msg("no %s in: %.300s", key, text);
  return strtoull(at + strlen(key), NULL, 10);
}

#endif
