/* A part of a test in a process of its own: whose limits may be lowered, that has none of the threads there were. */
#ifndef HRI_TEST_FORK_H
#define HRI_TEST_FORK_H

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* What `work` gives in a child, where it may take `seconds`; 128 + signal when one ended it. */
static inline int in_child(int (*work)(void *context), void *context, unsigned seconds) {
  int status = 0;
  pid_t child;
  (void)fflush(NULL); /* or both say what was not said yet */
  child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    (void)alarm(seconds);
    _exit(work(context));
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
