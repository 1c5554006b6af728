/* Damage: in a run that was killed in the middle, a bit of a file flips, a file is cut, grows, vanishes, is that of
 * another checkpoint; or an extra file appears. Going on must either give the bytes and metrics of the undisturbed run,
 * or be refused with exit 5 and the file's name. Where it is the newest checkpoint that is damaged, --from the older
 * one must then go on to those bytes. `inspect RUN --verify` must tell any damage inside of a checkpoint. */
#include "torture/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SAMPLE = 600, FULL = 6000 };

typedef enum harm { HARM_FLIP, HARM_CUT, HARM_GROW, HARM_REMOVE, HARM_FOREIGN, HARM_EXTRA, HARM_COUNT } harm;
static const char *const harm_names[HARM_COUNT] = {"flip", "cut", "grow", "remove", "foreign", "extra"};

typedef struct damage {
  job job;
  char file[PATH_ROOM];
  harm how;
  uint64_t at;
} damage; /* at: a bit's number, or a length */

typedef struct damages {
  damage *at;
  size_t count;
} damages;

static const char newest[] = "checkpoints/step-000004/", older[] = "checkpoints/step-000002/";

/* ---- which ---- */

static void push(damages *list, job j, const char *file, harm how, uint64_t at) {
  damage *d;
  if ((list->count & (list->count - 1)) == 0)
    list->at = realloc(list->at, (list->count ? 2 * list->count : 1) * sizeof *list->at);
  if (!list->at) broken("no memory");
  d = &list->at[list->count++];
  *d = (damage){.job = j, .how = how, .at = at};
  (void)snprintf(d->file, sizeof d->file, "%s", file);
}

/* The header's length and text, the first and last bytes of what follows, and anywhere. */
static void push_flips(damages *list, job j, const char *file, const bytes *b, size_t count, uint64_t *state) {
  uint64_t header = 8;
  size_t n = 0;
  for (int k = 7; k >= 0 && b->count > 8; k--) header = header << 8 | (unsigned char)b->at[k];
  header = header % (b->count + 1);
  {
    const uint64_t places[] =
        {0, 1, 7, 8, 9, 8 + header / 2, 8 + header, 9 + header, b->count / 2, b->count - 1, b->count - 2};
    for (size_t k = 0; k < sizeof places / sizeof *places && n < count; k++)
      if (places[k] < b->count) push(list, j, file, HARM_FLIP, places[k] * 8 + roll(state) % 8), n++;
  }
  for (; n < count && b->count; n++) push(list, j, file, HARM_FLIP, roll(state) % (8 * b->count));
}

static void push_file(damages *list, job j, const char *file, size_t flips, size_t cuts, uint64_t *state) {
  bytes b;
  if (!get_bytes(pathf("%s/stopped-%d/%s", base, j, file), &b)) return; /* a directory or a link */
  push_flips(list, j, file, &b, flips, state);
  for (size_t k = 0; k < cuts && b.count; k++)
    push(list, j, file, HARM_CUT, k == 0 ? 0 : k == 1 ? b.count - 1 : k == 2 ? b.count / 2 : roll(state) % b.count);
  push(list, j, file, HARM_GROW, 1);
  push(list, j, file, HARM_GROW, 4096);
  push(list, j, file, HARM_REMOVE, 0);
  if (strncmp(file, newest, strlen(newest)) == 0) push(list, j, file, HARM_FOREIGN, 0);
  free(b.at);
}

static void list_job(damages *list, job j, size_t most, uint64_t *state) {
  names files = list_tree(pathf("%s/stopped-%d", base, j));
  size_t regular = 0, each;
  for (size_t k = 0; k < files.count; k++) regular += files.at[k][strlen(files.at[k]) - 1] != '/';
  each = most / (regular ? regular : 1);
  for (size_t k = 0; k < files.count; k++)
    if (files.at[k][strlen(files.at[k]) - 1] != '/')
      push_file(list, j, files.at[k], each * 2 / 3 + 1, each / 3 + 1, state);
  push(list, j, "checkpoints/step-000004/extra.bin", HARM_EXTRA, 0);
  push(list, j, "checkpoints/step-000004/.extra", HARM_EXTRA, 0);
  push(list, j, "checkpoints/step-000009/state.json", HARM_EXTRA, 0);
  push(list, j, "extra.json", HARM_EXTRA, 0);
  push(list, j, "checkpoints/best", HARM_REMOVE, 0);
  push(list, j, "checkpoints/last", HARM_REMOVE, 0);
  push(list, j, "checkpoints/last", HARM_FOREIGN, 0);
  push(list, j, "checkpoints/best", HARM_FOREIGN, 0);
  free_names(&files);
}

static damages list_damages(void) {
  uint64_t state = seed;
  damages list = {0};
  list_job(&list, JOB_FRESH, (full ? FULL : sampled(SAMPLE)) * 2 / 3, &state);
  list_job(&list, JOB_MODEL, (full ? FULL : sampled(SAMPLE)) / 3, &state);
  return list;
}

static void do_damage(const world *w, const damage *d) {
  const char *path = pathf("%s/%s", w->run, d->file), *slash = strrchr(path, '/');
  bytes b = {0};
  if (d->how == HARM_EXTRA) {
    make_directory(pathf("%.*s", (int)(slash - path), path));
    put_string(path, "{}\n");
    return;
  }
  if (d->how == HARM_REMOVE || d->how == HARM_FOREIGN) remove_tree(path);
  if (d->how == HARM_REMOVE) return;
  if (d->how == HARM_FOREIGN && strncmp(d->file, newest, strlen(newest)) == 0) {
    copy_tree(pathf("%s/%s%s", w->run, older, d->file + strlen(newest)), path);
    return;
  }
  if (d->how == HARM_FOREIGN) { /* a link */
    if (symlink("step-000001", path) != 0) broken("cannot make %s", path);
    return;
  }
  if (!get_bytes(path, &b)) broken("no %s", path);
  if (d->how == HARM_FLIP) b.at[d->at / 8] = (char)(b.at[d->at / 8] ^ (1 << d->at % 8));
  if (d->how == HARM_CUT) b.count = d->at;
  put_bytes(path, b.at, b.count);
  if (d->how == HARM_GROW && truncate(path, (off_t)(b.count + d->at)) != 0) broken("cannot lengthen %s", path);
  free(b.at);
}

/* ---- what becomes of it ---- */

static const char *last_part(const char *text, size_t most) {
  return text + (strlen(text) > most ? strlen(text) - most : 0);
}

static const char *base_name(const char *file) {
  const char *slash = strrchr(file, '/');
  return slash ? slash + 1 : file;
}

/* Of a file that should not be there, its directory may be named as well. */
static bool is_named(const damage *d, const char *said) {
  const char *slash = strrchr(d->file, '/');
  if (strstr(said, base_name(d->file))) return true;
  if (strcmp(base_name(d->file), "manifest.json") == 0 && strstr(said, "has the manifest of")) return true;
  return d->how == HARM_EXTRA && slash && strstr(said, pathf("%.*s", (int)(slash - d->file), d->file));
}

/* A directory without a run, or a lock that is none, is a wrong word on the command line. */
static bool is_usage(const damage *d, const launch *l) {
  return l->code == 2 && ((strcmp(d->file, "lock") == 0 && strstr(l->err, "/lock")) ||
                          (strcmp(d->file, "run.json") == 0 && d->how == HARM_REMOVE && strstr(l->err, "run.json")));
}

static bool in_newest(const damage *d) { return strncmp(d->file, newest, strlen(newest)) == 0; }

static bool in_checkpoint(const damage *d) { return in_newest(d) || strncmp(d->file, older, strlen(older)) == 0; }

/* The user asked for the older checkpoint. */
static void try_older(const world *w, const damage *d, const char *name) {
  static launch l;
  command c = resume_words(w, d->job, "step-000002");
  char why[WHY_ROOM];
  l = (launch){0};
  launch_run(w, &c, &l);
  if (l.code == 2 && strstr(l.err, "--from")) remark("--from is not known: damaged checkpoints cannot be passed over");
  else if (l.code != 0) finding(w, name, "--from step-000002: exit %d: %s", l.code, last_part(l.err, 300));
  else if (!same_as_undisturbed(w, d->job, why)) finding(w, name, "--from step-000002: exit 0, but %s", why);
}

static void try_verify(const world *w, const char *name) {
  static launch l;
  command c = {{HR_PROGRAM, "inspect", w->run, "--verify"}};
  l = (launch){0};
  launch_run(w, &c, &l);
  if (l.code == 2 && strstr(l.err, "--verify")) remark("inspect --verify is not known");
  else if (l.code != 5) finding(w, name, "inspect --verify: exit %d, wanted 5: %s", l.code, last_part(l.err, 300));
}

static void try_one(world *w, const damage *d) {
  static launch l;
  char name[PATH_ROOM + 64], why[WHY_ROOM];
  command c;
  heard h;
  (void)snprintf(name, sizeof name, "%s:%s:%s:%llu", d->job == JOB_FRESH ? "fresh" : "model", harm_names[d->how],
                 d->file, (unsigned long long)d->at);
  world_lay(w, d->job, true, &h);
  if (strncmp(d->file, older, strlen(older)) == 0) w->except = "step-000002/";
  do_damage(w, d);
  if (in_checkpoint(d) && d->how != HARM_EXTRA &&
      !same_bytes(pathf("%s/%s", w->run, d->file), pathf("%s/stopped-%d/%s", base, d->job, d->file)))
    try_verify(w, name);
  c = resume_words(w, d->job, NULL);
  l = (launch){0};
  launch_run(w, &c, &l);
  if (!ended_well(&l, why) || l.signal) {
    finding(w, name, "%s", why);
  } else if (l.code == 0) {
    remark("damages that made no difference");
    if (!same_as_undisturbed(w, d->job, why)) finding(w, name, "SILENT: exit 0, but %s", why);
  } else if (is_usage(d, &l)) {
    remark("damages that were refused");
  } else if (l.code != 5) {
    finding(w, name, "exit %d, wanted 0 or 5: %s", l.code, last_part(l.err, 300));
  } else {
    remark("damages that were refused");
    if (!is_named(d, l.err)) finding(w, name, "exit 5 does not name the file: %s", last_part(l.err, 300));
    if (in_newest(d)) try_older(w, d, name);
  }
}

static void try_case(world *w, size_t index, const void *context) {
  try_one(w, &((const damages *)context)->at[index]);
}

size_t part_flips(void) {
  damages list = list_damages();
  size_t found;
  (void)printf("flips: %zu damages\n", list.count);
  found = run_cases("flips", list.count, try_case, &list);
  free(list.at);
  return found;
}

/* "JOB:HARM:FILE:NUMBER" */
void case_flips(world *w, const char *text) {
  damage d = {0};
  char name[16], how[16], file[512];
  unsigned long long at;
  if (sscanf(text, "%15[^:]:%15[^:]:%511[^:]:%llu", name, how, file, &at) != 4) broken("no case '%s'", text);
  while (d.how < HARM_COUNT && strcmp(harm_names[d.how], how) != 0) d.how++;
  if (d.how == HARM_COUNT) broken("no harm '%s'", how);
  d.at = at;
  d.job = strcmp(name, "model") == 0 ? JOB_MODEL : JOB_FRESH;
  (void)strcpy(d.file, file);
  try_one(w, &d);
}
