/* The power goes out, at every moment of a run. A run is logged once, call by call; for a moment of it, the model of a
 * disk makes trees that could be found then (disk.h), and the program must go on from each of them (world.h), with
 * nothing lost that it had said was saved before that moment.
 *
 * Stories: a run from the start; a resumed one; and one whose power goes out twice, the second time while it goes
 * on. */
#include "torture/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "torture/disk.h"

enum { SAMPLE = 800, TWICE_FULL = 1000, TWICE_SAMPLE = 60, RANDOM_WAYS = 4 };

typedef struct story {
  const char *name;
  job job;
  bool from_stopped;
  bytes log;
  char start[PATH_ROOM]; /* the tree before it */
  heard before;
  size_t count;
} story;

typedef struct moment {
  int story;
  size_t until;
  loss how;
  uint64_t random;
  bool twice;
} moment;

enum { STORIES = 4 };
typedef struct all {
  story stories[STORIES];
  moment *moments;
  size_t count;
} all;

/* ---- recording ---- */

/* The log is whole: what it makes of the tree before is the tree behind. The trail (RUN/memory) is written through a
 * map. */
static bool log_explains(const world *w, const story *s, char why[WHY_ROOM]) {
  char made[PATH_ROOM];
  disk *d;
  names real, model;
  bool same = true;
  (void)strcpy(made, pathf("%s/made", w->root));
  remove_tree(made);
  make_directory(made);
  d = disk_replay(&s->log, s->count, s->start);
  disk_see(d, made);
  disk_free(d);
  real = list_tree(w->tree);
  model = list_tree(made);
  for (size_t k = 0; same && k < real.count; k++) {
    const char *name = real.at[k];
    struct stat info;
    if (!has_name(&model, name)) same = snprintf(why, WHY_ROOM, "the log does not make %s", name) < 0;
    else if (lstat(pathf("%s/%s", w->tree, name), &info) == 0 && S_ISREG(info.st_mode) &&
             strcmp(name, "run/memory/trail") != 0 &&
             !same_bytes(pathf("%s/%s", w->tree, name), pathf("%s/%s", made, name)))
      same = snprintf(why, WHY_ROOM, "the log makes other bytes of %s", name) < 0;
  }
  if (same && real.count != model.count)
    same = snprintf(why, WHY_ROOM, "the log makes %zu names, there are %zu", model.count, real.count) < 0;
  free_names(&real);
  free_names(&model);
  remove_tree(made);
  return same;
}

static void record(story *s, world *w, const command *c) {
  static launch l;
  l = (launch){.log = pathf("%s/log", w->root)};
  launch_run(w, c, &l);
  if (!get_bytes(pathf("%s/log", w->root), &s->log)) broken("no log");
  s->count = log_count(&s->log);
  if (l.code != 0) broken("logged: exit %d: %s", l.code, l.err);
}

static void tell_story(story *s, const char *name, job j, bool from_stopped) {
  char why[WHY_ROOM];
  world w;
  command c;
  world_open(&w, 93);
  *s = (story){.name = name, .job = j, .from_stopped = from_stopped};
  (void)strcpy(s->start, pathf("%s/start-%s", base, name));
  world_lay(&w, j, from_stopped, &s->before);
  remove_tree(s->start);
  copy_tree(w.tree, s->start);
  c = from_stopped ? resume_words(&w, j, NULL) : start_words(&w, j);
  record(s, &w, &c);
  if (!log_explains(&w, s, why)) broken("%s: %s", name, why);
  remove_tree(w.root);
}

/* ---- one moment ---- */

static void lose(const world *w, const story *s, size_t until, loss how, uint64_t random) {
  disk *d = disk_replay(&s->log, until, s->start);
  remove_tree(w->tree);
  make_directory(w->tree);
  disk_lose(d, how, random, w->tree);
  disk_free(d);
}

static void hear_log(heard *h, const story *s, size_t until) {
  char *said = log_said(&s->log, until);
  hear(h, said);
  free(said);
}

static const char *name_of(const all *a, const moment *m) {
  return pathf("%s%s/%zu/%s/%llu", a->stories[m->story].name, m->twice ? "-twice" : "", m->until, loss_names[m->how],
               (unsigned long long)m->random);
}

/* Goes on from the first loss under the log, and loses again at a random moment of that. */
static bool lose_again(world *w, const story *s, const moment *m, heard *h, char why[WHY_ROOM]) {
  static launch l;
  story again = {.name = "again"};
  uint64_t random = m->random;
  command c = h->count ? resume_words(w, s->job, NULL) : start_words(w, s->job);
  (void)strcpy(again.start, pathf("%s/again", w->root));
  remove_tree(again.start);
  copy_tree(w->tree, again.start);
  l = (launch){.log = pathf("%s/log", w->root)};
  launch_run(w, &c, &l);
  if (l.code == 2 && !h->count) { /* as in recovers(): saved, not announced */
    c = resume_words(w, s->job, NULL);
    l.log = pathf("%s/log", w->root);
    launch_run(w, &c, &l);
  }
  if (l.code != 0)
    return snprintf(why, WHY_ROOM, "went on: exit %d: %.400s", l.code,
                    l.err + (strlen(l.err) > 400 ? strlen(l.err) - 400 : 0)) < 0;
  if (!get_bytes(pathf("%s/log", w->root), &again.log)) broken("no log");
  again.count = roll(&random) % (log_count(&again.log) + 1);
  hear_log(h, &again, again.count);
  lose(w, &again, again.count, (loss)(roll(&random) % LOSS_COUNT), random);
  free(again.log.at);
  return true;
}

static void try_moment(world *w, const all *a, const moment *m) {
  const story *s = &a->stories[m->story];
  heard h = s->before;
  char why[WHY_ROOM], name[128];
  (void)snprintf(name, sizeof name, "%s", name_of(a, m));
  hear_log(&h, s, m->until);
  lose(w, s, m->until, m->how, m->random);
  w->inside = s->from_stopped;
  if (!nothing_lost(w, s->job, &h, why)) finding(w, name, "lost: %s", why);
  else if (m->twice && !lose_again(w, s, m, &h, why)) finding(w, name, "%s", why);
  else if (!recovers(w, s->job, &h, AFTER_POWER_LOSS, why)) finding(w, name, "%s", why);
}

static void try_case(world *w, size_t index, const void *context) {
  const all *a = context;
  try_moment(w, a, &a->moments[index]);
}

/* ---- all moments ---- */

static void add_moment(all *a, moment m) {
  if ((a->count & (a->count - 1)) == 0)
    a->moments = realloc(a->moments, (a->count ? 2 * a->count : 1) * sizeof *a->moments);
  if (!a->moments) broken("no memory");
  a->moments[a->count++] = m;
}

static void list_moments(all *a, uint64_t *state) {
  size_t most = sampled(SAMPLE);
  for (int s = 0; s < STORIES; s++)
    for (size_t until = 1; until <= a->stories[s].count; until++) {
      if (!log_changes(&a->stories[s].log, until - 1)) continue;
      for (int how = 0; how < LOSS_COUNT; how++)
        for (int k = 0; k < (how == LOSS_RANDOM ? RANDOM_WAYS : 1); k++)
          add_moment(a, (moment){.story = s, .until = until, .how = (loss)how, .random = roll(state) >> 32});
    }
  if (full) return;
  for (size_t k = 0; k < a->count && k < most; k++) {
    size_t other = k + roll(state) % (a->count - k);
    moment kept = a->moments[k];
    a->moments[k] = a->moments[other];
    a->moments[other] = kept;
  }
  if (a->count > most) a->count = most;
}

static void list_twice(all *a, uint64_t *state) {
  for (size_t k = 0; k < (full ? TWICE_FULL : sampled(TWICE_SAMPLE)); k++) {
    int s = (int)(roll(state) % STORIES);
    size_t until = 1 + roll(state) % a->stories[s].count;
    add_moment(a, (moment){.story = s,
                           .until = until,
                           .how = (loss)(roll(state) % LOSS_COUNT),
                           .random = roll(state) >> 32,
                           .twice = true});
  }
}

static void tell_stories(all *a) {
  tell_story(&a->stories[0], "fresh", JOB_FRESH, false);
  tell_story(&a->stories[1], "resumed", JOB_FRESH, true);
  tell_story(&a->stories[2], "model", JOB_MODEL, false);
  tell_story(&a->stories[3], "model-resumed", JOB_MODEL, true);
}

static void forget(all *a) {
  for (int s = 0; s < STORIES; s++) free(a->stories[s].log.at);
  free(a->moments);
}

size_t part_power(void) {
  all a = {0};
  uint64_t state = seed;
  size_t found;
  tell_stories(&a);
  list_moments(&a, &state);
  list_twice(&a, &state);
  (void)printf("power: %zu losses\n", a.count);
  found = run_cases("power", a.count, try_case, &a);
  forget(&a);
  return found;
}

/* "STORY/EVENTS/LOSS/RANDOM"; the log is recorded anew, so its events may have shifted when the program has changed. */
void case_power(world *w, const char *text) {
  all a = {0};
  moment m = {0};
  char name[32], how[16];
  unsigned long long random;
  if (sscanf(text, "%31[^/]/%zu/%15[^/]/%llu", name, &m.until, how, &random) != 4) broken("no case '%s'", text);
  m.random = random;
  m.twice = strstr(name, "-twice") != NULL;
  if (m.twice) *strstr(name, "-twice") = 0;
  while (m.how < LOSS_COUNT && strcmp(loss_names[m.how], how) != 0) m.how++;
  if (m.how == LOSS_COUNT) broken("no way '%s' to lose", how);
  tell_stories(&a);
  while (m.story < STORIES && strcmp(a.stories[m.story].name, name) != 0) m.story++;
  if (m.story == STORIES) broken("no story '%s'", name);
  try_moment(w, &a, &m);
  forget(&a);
}
