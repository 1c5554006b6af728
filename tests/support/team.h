/* Teams for kernels: one of each size, started when it is first asked for and kept for the process. */
#ifndef HRI_TEST_TEAM_H
#define HRI_TEST_TEAM_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "team/team.h"

/* NULL, the caller alone, for one thread. */
static inline hri_team *team_of(int threads) {
  enum { MOST = 256 };
  static hri_team *teams[MOST + 1];
  static pid_t owner;
  hr_error error;
  if (owner != getpid()) memset(teams, 0, sizeof teams); /* a child of a fork has no threads */
  owner = getpid();
  if (threads <= 1) return NULL;
  if (threads > MOST || (!teams[threads] && (hri_team_create((uint32_t)threads, &teams[threads], &error) != HR_OK ||
                                             hri_team_start(teams[threads], &error) != HR_OK))) {
    (void)fprintf(stderr, "no team of %d threads\n", threads);
    abort();
  }
  return teams[threads];
}

#endif
