/* Several ranks side by side.
 *
 * Each file is read, inspected and given back before the next one, so that a job of many ranks takes the memory of its
 * largest snapshot (twice that, when two are compared). The rank of a file is the number behind "rank" in its name;
 * where not every name has one of its own, files are counted in the order of their names, digits as numbers.
 *
 * Which rank failed first is told by the times of their last failures: those ended them, while earlier ones were
 * answered. Each is by the rank's own clock; hosts whose clocks differ can turn the order, which is said.
 *
 * A process that is ended while it dumps leaves a file that is cut off, and traces of a profiler may lie beside the
 * snapshots. Such files are named, and the others are shown all the same. */
#include "cli/ranks.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <headroom/explain.h>

#include "cli/text.h"

/* ---- files and their ranks ---- */

static const char *name_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* "rank3.pickle", "oom_rank-3_1.pickle": the number behind the last "rank". */
static uint32_t rank_of(const char *path) {
  uint32_t rank = NO_RANK;
  for (const char *c = name_of(path); *c; c++) {
    const char *digits = c + 4;
    if (strncasecmp(c, "rank", 4) != 0) continue;
    if (*digits == '_' || *digits == '-' || *digits == '=') digits++;
    if (isdigit((unsigned char)*digits) && strspn(digits, "0123456789") < 7) rank = (uint32_t)strtoul(digits, NULL, 10);
  }
  return rank;
}

/* What a rank leaves that was ended when it began to dump, or whose disk was full: nothing, under a snapshot's name. */
static bool is_named_as_one(const char *path) {
  return rank_of(path) != NO_RANK && (strstr(name_of(path), ".pickle") || strstr(name_of(path), ".pkl"));
}

static bool is_snapshot(const char *path) {
  char first[4096];
  struct stat info;
  size_t count;
  FILE *file;
  if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || !(file = fopen(path, "rb"))) return false;
  count = fread(first, 1, sizeof first, file);
  (void)fclose(file);
  return count ? hr_snapshot_recognise(first, count) : is_named_as_one(path);
}

/* Digits count as numbers: 9 before 10. */
static int natural_order(const char *a, const char *b) {
  while (*a && *b) {
    if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
      size_t n, m;
      a += strspn(a, "0"), b += strspn(b, "0");
      n = strspn(a, "0123456789"), m = strspn(b, "0123456789");
      if (n != m) return n < m ? -1 : 1;
      for (; n > 0; n--, a++, b++)
        if (*a != *b) return *a < *b ? -1 : 1;
    } else {
      if (*a != *b) return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
      a++, b++;
    }
  }
  return (*a != 0) - (*b != 0);
}

static int row_order(const void *a, const void *b) {
  const rank_row *x = a, *y = b;
  int order;
  if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
  order = natural_order(name_of(x->path), name_of(y->path));
  return order ? order : strcmp(x->path, y->path);
}

/* The ranks of the names where each has one of its own; else places in the order of the names. */
static void number(ranks *all) {
  all->numbered = true;
  qsort(all->rows, all->count, sizeof *all->rows, row_order);
  for (uint32_t k = 0; k < all->count; k++)
    if (all->rows[k].rank == NO_RANK || (k && all->rows[k].rank == all->rows[k - 1].rank)) all->numbered = false;
  if (all->numbered) return;
  for (uint32_t k = 0; k < all->count; k++) all->rows[k].rank = 0;
  qsort(all->rows, all->count, sizeof *all->rows, row_order);
  for (uint32_t k = 0; k < all->count; k++) all->rows[k].rank = k;
}

static void take_one(ranks *all, const char *path) {
  all->rows = text_grow(all->rows, (all->count + 1) * sizeof *all->rows);
  all->rows[all->count++] = (rank_row){.path = text_copy(path, strlen(path)), .rank = rank_of(path)};
}

/* In the order of the files, so that faults are told in it. */
static void take_all(ranks *all, const char *directory) {
  char path[4096];
  struct dirent *entry;
  DIR *dir = opendir(directory);
  while (dir && (entry = readdir(dir))) {
    int length = snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
    if (entry->d_name[0] != '.' && length >= 0 && (size_t)length < sizeof path && is_snapshot(path))
      take_one(all, path);
  }
  if (dir) (void)closedir(dir);
  if (all->count) qsort(all->rows, all->count, sizeof *all->rows, row_order);
}

bool ranks_find(const char *path, ranks *all) {
  static const char *const of_runs[] = {"run.json", "../run.json", "memory/snapshot.pickle.gz",
                                        "memory/plan.pickle.gz"};
  char file[4096];
  struct stat info;
  *all = (ranks){.first_failed = NO_RANK};
  if (strcmp(path, "-") == 0 || stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return false; /* "-": a stream */
  for (size_t k = 0; k < sizeof of_runs / sizeof *of_runs; k++) {
    (void)snprintf(file, sizeof file, "%.4000s/%s", path, of_runs[k]);
    if (stat(file, &info) == 0) return false;
  }
  take_all(all, path);
  return all->count > 0;
}

/* ---- what each says ---- */

static hr_status summarise(reading *r, uint64_t at, rank_row *row, hr_error *error) {
  inspect_side side = {0};
  hr_inspect_options how;
  hr_status status;
  reading_about(r, row->path);
  status = hr_snapshot_read(row->path, &r->limits, &side.snapshot, error);
  hr_inspect_options_init(&how);
  how.at = at;
  if (status == HR_OK) {
    how.trace = hr_explain_trace(side.snapshot);
    status = hr_inspect(side.snapshot, &how, &side.inspection, error);
    if (status == HR_ERROR_USAGE) (void)hri_context(error, status, "%s: ", row->path); /* no such instant */
  }
  if (status == HR_OK) {
    const hr_inspection *p = side.inspection;
    row->device = p->device;
    row->peak_live_bytes = p->peak_live_bytes;
    row->peak_reserved_bytes = p->peak_reserved_bytes;
    row->live_bytes = p->at.requested_bytes;
    row->reserved_bytes = p->at.reserved_bytes;
    row->failed = p->oom_count > 0;
    if (row->failed) row->failed_us = p->ooms[p->oom_count - 1].time_us;
    if (row->failed) row->failed_bytes = p->ooms[p->oom_count - 1].size;
  }
  inspect_close(&side);
  return status;
}

/* Failures without a time are put last: nothing tells when they were. */
static bool failed_before(const rank_row *a, const rank_row *b) {
  if ((a->failed_us != 0) != (b->failed_us != 0)) return a->failed_us != 0;
  return a->failed_us < b->failed_us;
}

/* A file's own fault, not a lack of memory or a fault of ours. */
static bool is_of_file(hr_status status) { return status == HR_ERROR_INPUT || status == HR_ERROR_IO; }

static void pass_over(ranks *all, rank_row *row, const char *message) {
  all->unread = text_grow(all->unread, (all->unread_count + 1) * sizeof *all->unread);
  all->unread[all->unread_count++] = (unread_file){.path = row->path, .message = text_copy(message, strlen(message))};
  row->path = NULL;
}

/* Keeps the rows that can be read; the first fault where none can. */
static hr_status read_rows(reading *r, uint64_t at, ranks *all, hr_error *error) {
  const uint32_t count = all->count;
  hr_error first = {0};
  all->count = 0;
  for (uint32_t k = 0; k < count; k++) {
    rank_row row = all->rows[k];
    hr_status status;
    all->rows[k].path = NULL;
    status = summarise(r, at, &row, error);
    if (status == HR_OK) all->rows[all->count++] = row;
    else if (!is_of_file(status)) {
      free(row.path);
      for (uint32_t rest = k + 1; rest < count; rest++) free(all->rows[rest].path);
      return status;
    } else {
      if (all->unread_count == 0) first = *error;
      pass_over(all, &row, error->message);
    }
  }
  if (all->count) return HR_OK;
  *error = first;
  return first.code;
}

static void find_places(ranks *all) {
  for (uint32_t k = 0; k < all->count; k++) {
    const rank_row *row = &all->rows[k];
    if (row->peak_live_bytes > all->rows[all->highest].peak_live_bytes) all->highest = k;
    if (row->peak_live_bytes < all->rows[all->lowest].peak_live_bytes) all->lowest = k;
    if (row->failed && (all->first_failed == NO_RANK || failed_before(row, &all->rows[all->first_failed])))
      all->first_failed = k;
  }
}

hr_status ranks_read(reading *r, const char *directory, uint64_t at, ranks *all, hr_error *error) {
  HRI_TRY(read_rows(r, at, all, error));
  number(all);
  find_places(all);
  reading_about(r, directory);
  return HR_OK;
}

void ranks_free(ranks *all) {
  for (uint32_t k = 0; k < all->count; k++) free(all->rows[k].path);
  for (uint32_t k = 0; k < all->unread_count; k++) free(all->unread[k].path), free(all->unread[k].message);
  free(all->rows);
  free(all->unread);
  *all = (ranks){0};
}

/* ---- text and JSON ---- */

/* "first", "199 s later": by the recorded times. */
static const char *failure_text(const ranks *all, const rank_row *row, char out[48]) {
  const rank_row *first = all->first_failed == NO_RANK ? row : &all->rows[all->first_failed];
  if (!row->failed) return "-";
  if (!row->failed_us) return "yes, no time";
  if (row == first) return "first";
  (void)snprintf(out, 48, "%s later", SECONDS_TEXT((double)(row->failed_us - first->failed_us) / 1e6));
  return out;
}

static void print_unread(const ranks *all) {
  for (uint32_t k = 0; k < all->unread_count; k++) {
    char line[HR_ERROR_MESSAGE_BYTES + 16];
    (void)snprintf(line, sizeof line, "not read: %s", all->unread[k].message);
    if (k == 0) (void)printf("\n");
    screen_wrap(stdout, 2, line);
  }
}

void ranks_print(const ranks *all) {
  char line[200];
  (void)printf("%u rank%s%s\n\n", all->count, all->count == 1 ? "" : "s",
               all->numbered ? "" : " (counted in the order of the files: not every name has a rank of its own)");
  (void)printf("%5s %10s %10s %10s  %-15s %s\n", "rank", "peak live", "live then", "reserved", "failed", "file");
  for (uint32_t k = 0; k < all->count; k++) {
    const rank_row *row = &all->rows[k];
    char failed[48];
    (void)printf("%5u %10s %10s %10s  %-15s %s\n", row->rank, SIZE_TEXT(row->peak_live_bytes),
                 SIZE_TEXT(row->live_bytes), SIZE_TEXT(row->reserved_bytes), failure_text(all, row, failed),
                 name_of(row->path));
  }
  print_unread(all);
  (void)printf("\n");
  if (all->first_failed != NO_RANK && all->rows[all->first_failed].failed_us) {
    const rank_row *first = &all->rows[all->first_failed];
    (void)snprintf(line, sizeof line, "rank %u failed first, at a request of %s (each by its own clock%s)", first->rank,
                   SIZE_TEXT(first->failed_bytes), all->unread_count ? ", of those that could be read" : "");
    screen_wrap(stdout, 0, line);
  }
}

static void write_place(const ranks *all, json_writer *json, const char *key, uint32_t place) {
  if (place == NO_RANK) json_write_null(json, key);
  else json_write_count(json, key, all->rows[place].rank);
}

void ranks_write(const ranks *all, json_writer *json) {
  json_write_bool(json, "ranks_numbered", all->numbered);
  write_place(all, json, "highest_rank", all->highest);
  write_place(all, json, "lowest_rank", all->lowest);
  write_place(all, json, "first_failed_rank", all->first_failed);
  json_write_open(json, "ranks", '[');
  for (uint32_t k = 0; k < all->count; k++) {
    const rank_row *row = &all->rows[k];
    json_write_open_flat(json, NULL, '{');
    json_write_count(json, "rank", row->rank);
    json_write_text(json, "file", name_of(row->path));
    json_write_integer(json, "device", row->device);
    json_write_count(json, "peak_live_bytes", row->peak_live_bytes);
    json_write_count(json, "peak_reserved_bytes", row->peak_reserved_bytes);
    json_write_count(json, "live_bytes", row->live_bytes);
    json_write_count(json, "reserved_bytes", row->reserved_bytes);
    json_write_bool(json, "failed", row->failed);
    if (row->failed) json_write_count(json, "failed_bytes", row->failed_bytes);
    if (row->failed_us) json_write_integer(json, "failed_time_us", row->failed_us);
    else json_write_null(json, "failed_time_us");
    json_write_close(json, '}');
  }
  json_write_close(json, ']');
  json_write_open(json, "unread", '[');
  for (uint32_t k = 0; k < all->unread_count; k++) {
    json_write_open_flat(json, NULL, '{');
    json_write_text(json, "file", name_of(all->unread[k].path));
    json_write_text(json, "message", all->unread[k].message);
    json_write_close(json, '}');
  }
  json_write_close(json, ']');
}

/* ---- inspect DIR ---- */

/* What the highest and the lowest are compared by: that of --by, else category and stack. */
static const struct {
  hr_group_by by;
  const char *title, *key;
} shown[] = {{HR_BY_CATEGORY, "category", "by_category"},
             {HR_BY_STACK, "stack", "by_stack"},
             {HR_BY_SIZE, "size", "by_size"}};
enum { SHOWN = sizeof shown / sizeof *shown };

static bool is_shown(const cli_config *config, hr_group_by by) {
  return config_chosen(config, &config->own.by) ? config->own.by == by : by != HR_BY_SIZE;
}

static hr_status print_all(const cli_config *config, const ranks *all, const inspect_side *sides, hr_error *error) {
  const rank_row *low = &all->rows[all->lowest], *high = &all->rows[all->highest];
  hr_status status = HR_OK;
  char titles[2][24], line[200];
  ranks_print(all);
  if (low == high) {
    (void)printf("all peaks are alike: %s\n", SIZE_TEXT(high->peak_live_bytes));
    return HR_OK;
  }
  (void)snprintf(line, sizeof line, "rank %u is highest: %s live at its peak, %s more than rank %u, the lowest",
                 high->rank, SIZE_TEXT(high->peak_live_bytes), SIZE_TEXT(high->peak_live_bytes - low->peak_live_bytes),
                 low->rank);
  screen_wrap(stdout, 0, line);
  (void)snprintf(titles[0], sizeof titles[0], "rank %u", low->rank);
  (void)snprintf(titles[1], sizeof titles[1], "rank %u", high->rank);
  for (unsigned k = 0; k < SHOWN && status == HR_OK; k++) {
    if (!is_shown(config, shown[k].by)) continue;
    (void)printf("\nlive by %s%s\n", shown[k].title,
                 shown[k].by == HR_BY_CATEGORY && sides[1].inspection->categories_inferred ? " (inferred)" : "");
    status = inspect_print_difference(config, sides, shown[k].by, titles[0], titles[1], error);
  }
  return status;
}

static hr_status write_all(const cli_config *config, const ranks *all, const inspect_side *sides, hr_error *error) {
  json_writer json;
  hr_status status = HR_OK;
  json_write_begin(&json, stdout);
  ranks_write(all, &json);
  for (unsigned k = 0; k < SHOWN && status == HR_OK && all->lowest != all->highest; k++)
    if (is_shown(config, shown[k].by))
      status = inspect_write_difference(config, sides, shown[k].by, &json, shown[k].key, error);
  json_write_end(&json);
  return status;
}

hr_status ranks_inspect(const cli_config *config, reading *r, const char *directory, ranks *all, hr_error *error) {
  inspect_side sides[2] = {{0}};
  hr_status status = ranks_read(r, directory, config->own.at, all, error);
  if (status == HR_OK && all->lowest != all->highest) {
    status = inspect_open(config, r, all->rows[all->lowest].path, &sides[0], error);
    if (status == HR_OK) status = inspect_open(config, r, all->rows[all->highest].path, &sides[1], error);
  }
  if (status == HR_OK)
    status = config->own.json ? write_all(config, all, sides, error) : print_all(config, all, sides, error);
  inspect_close(&sides[0]);
  inspect_close(&sides[1]);
  return status;
}
