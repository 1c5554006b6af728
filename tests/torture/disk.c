/* Files and directories are nodes; a name is a cell (directory, name). Every change of names is an operation: a few
 * cells that get a node, or none. A directory has the names that are kept for certain; operations that are not wait in
 * one list, in order, until an fsync of one of their directories takes them, with the earlier ones of the same cells. A
 * file likewise has the bytes that are kept, and a list of writes and sizes since its last fsync. */
#include "torture/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "torture/shim.h"

enum { NAME_ROOM = 128, CELLS = 2, FDS = 1024, PAGE = 4096 };

const char *const loss_names[LOSS_COUNT] = {"nothing", "names", "all", "ordered", "random"};

typedef enum node_kind { NODE_FILE, NODE_DIRECTORY, NODE_LINK } node_kind;

typedef struct node node;
typedef struct entry {
  char name[NAME_ROOM];
  node *is;
} entry;
typedef struct entries {
  entry *at;
  size_t count;
} entries;

/* A write, or a size: data NULL; `grow`: at least that size. */
typedef struct change {
  uint64_t offset, count;
  const char *data;
  bool grow;
} change;
typedef struct changes {
  change *at;
  size_t count;
} changes;

struct node {
  node_kind kind;
  entries now, kept; /* a directory's */
  bytes kept_bytes;  /* a file's */
  changes since;
  char target[PATH_ROOM]; /* a link's */
  node *all;              /* list of all nodes */
};

typedef struct cell {
  node *directory;
  char name[NAME_ROOM];
  node *is;
} cell;
typedef struct operation {
  cell cells[CELLS];
  size_t count;
} operation;

struct disk {
  node *root, *all;
  node *fds[FDS];
  operation *waiting;
  size_t waiting_count;
};

/* Room for one more behind `count` items: doubled at every power of two, so that no capacity needs to be kept. */
static void *grown(void *at, size_t count, size_t size) {
  if (count & (count - 1)) return at;
  at = realloc(at, (count ? 2 * count : 1) * size);
  if (!at) broken("no memory");
  return at;
}

/* ---- nodes and names ---- */

static node *make_node(disk *d, node_kind kind) {
  node *n = calloc(1, sizeof *n);
  if (!n) broken("no memory");
  n->kind = kind;
  n->all = d->all;
  d->all = n;
  return n;
}

static node *look(const entries *list, const char *name) {
  for (size_t k = 0; k < list->count; k++)
    if (strcmp(list->at[k].name, name) == 0) return list->at[k].is;
  return NULL;
}

static void set(entries *list, const char *name, node *is) {
  for (size_t k = 0; k < list->count; k++) {
    if (strcmp(list->at[k].name, name) != 0) continue;
    if (is) list->at[k].is = is;
    else list->at[k] = list->at[--list->count];
    return;
  }
  if (!is) return;
  list->at = grown(list->at, list->count, sizeof *list->at);
  (void)snprintf(list->at[list->count].name, NAME_ROOM, "%s", name);
  list->at[list->count++].is = is;
}

/* The directory of a path below the root, and the last name; names are those of the running system. */
static node *parent_of(const disk *d, const char *path, char name[NAME_ROOM]) {
  node *at = d->root;
  const char *slash;
  for (; (slash = strchr(path, '/')); path = slash + 1) {
    char part[NAME_ROOM];
    (void)snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
    at = look(&at->now, part);
    if (!at || at->kind != NODE_DIRECTORY) broken("the log goes through %s, which is no directory", path);
  }
  (void)snprintf(name, NAME_ROOM, "%s", path);
  return at;
}

static node *find(const disk *d, const char *path) {
  char name[NAME_ROOM];
  node *parent;
  if (!path[0]) return d->root;
  parent = parent_of(d, path, name);
  return look(&parent->now, name);
}

static cell cell_of(const disk *d, const char *path, node *is) {
  cell c = {.is = is};
  c.directory = parent_of(d, path, c.name);
  return c;
}

static bool same_cell(const cell *a, const cell *b) {
  return a->directory == b->directory && strcmp(a->name, b->name) == 0;
}

static bool share_a_cell(const operation *a, const operation *b) {
  for (size_t i = 0; i < a->count; i++)
    for (size_t k = 0; k < b->count; k++)
      if (same_cell(&a->cells[i], &b->cells[k])) return true;
  return false;
}

/* One step for the running system, one operation that waits. */
static void operate(disk *d, const cell *cells, size_t count) {
  operation *o;
  d->waiting = grown(d->waiting, d->waiting_count, sizeof *d->waiting);
  o = &d->waiting[d->waiting_count++];
  o->count = count;
  for (size_t k = 0; k < count; k++) {
    o->cells[k] = cells[k];
    set(&cells[k].directory->now, cells[k].name, cells[k].is);
  }
}

/* ---- what a log's events do ---- */

static void push_change(node *n, change c) {
  n->since.at = grown(n->since.at, n->since.count, sizeof *n->since.at);
  n->since.at[n->since.count++] = c;
}

static void resize(bytes *b, uint64_t count) {
  if (count > b->count) {
    b->at = realloc(b->at, count + 1);
    if (!b->at) broken("no memory");
    memset(b->at + b->count, 0, count - b->count);
  }
  b->count = count;
}

static void apply_change(bytes *b, const change *c) {
  if (!c->data) {
    if (!c->grow || c->offset > b->count) resize(b, c->offset);
    return;
  }
  if (c->offset + c->count > b->count) resize(b, c->offset + c->count);
  memcpy(b->at + c->offset, c->data, c->count);
}

static void sync_file(node *n) {
  for (size_t k = 0; k < n->since.count; k++) apply_change(&n->kept_bytes, &n->since.at[k]);
  n->since.count = 0;
  free(n->since.at);
  n->since.at = NULL;
}

static void keep_operation(const operation *o) {
  for (size_t k = 0; k < o->count; k++) set(&o->cells[k].directory->kept, o->cells[k].name, o->cells[k].is);
}

/* Marks, with each marked operation, the earlier ones that it builds upon. */
static void close_marks(const disk *d, bool *marked) {
  for (size_t k = d->waiting_count; k-- > 0;)
    for (size_t m = 0; marked[k] && m < k; m++) marked[m] = marked[m] || share_a_cell(&d->waiting[m], &d->waiting[k]);
}

static void sync_directory(disk *d, const node *n) {
  bool *marked = calloc(d->waiting_count + 1, 1);
  size_t left = 0;
  if (!marked) broken("no memory");
  for (size_t k = 0; k < d->waiting_count; k++)
    for (size_t i = 0; i < d->waiting[k].count; i++) marked[k] = marked[k] || d->waiting[k].cells[i].directory == n;
  close_marks(d, marked);
  for (size_t k = 0; k < d->waiting_count; k++) {
    if (marked[k]) keep_operation(&d->waiting[k]);
    else d->waiting[left++] = d->waiting[k];
  }
  d->waiting_count = left;
  free(marked);
}

static void open_file(disk *d, const shim_event *e, const char *path) {
  node *n = (e->flags & O_TMPFILE) == O_TMPFILE ? make_node(d, NODE_FILE)
                                                : find(d, path); /* without a name: gone with the process */
  if (!n) {
    cell c;
    if (!(e->flags & O_CREAT)) broken("the log opens %s, which is not there", path);
    n = make_node(d, NODE_FILE);
    c = cell_of(d, path, n);
    operate(d, &c, 1);
  } else if (n->kind == NODE_FILE && (e->flags & O_TRUNC)) {
    push_change(n, (change){0});
  }
  if (e->fd >= 0 && e->fd < FDS) d->fds[e->fd] = n;
}

static void move(disk *d, const char *path, const char *other, bool exchange) {
  node *n = find(d, path), *o = find(d, other);
  cell cells[CELLS];
  if (!n || (exchange && !o)) broken("the log renames %s, which is not there", path);
  cells[0] = cell_of(d, path, exchange ? o : NULL);
  cells[1] = cell_of(d, other, n);
  operate(d, cells, 2);
}

static void make(disk *d, node_kind kind, const char *path, const char *target) {
  node *n = make_node(d, kind);
  cell c = cell_of(d, path, n);
  if (target) (void)snprintf(n->target, sizeof n->target, "%s", target);
  operate(d, &c, 1);
}

static void name_again(disk *d, node *n, const char *other) {
  cell c = cell_of(d, other, n);
  operate(d, &c, 1);
}

static void unname(disk *d, const char *path) {
  cell c = cell_of(d, path, NULL);
  operate(d, &c, 1);
}

static void happen(disk *d, const shim_event *e, const char *path, const char *other, const char *data) {
  node *n = e->fd >= 0 && e->fd < FDS ? d->fds[e->fd] : NULL;
  switch ((shim_event_kind)e->kind) {
  case SHIM_EVENT_OPEN: open_file(d, e, path); break;
  case SHIM_EVENT_CLOSE: d->fds[e->fd] = NULL; break;
  case SHIM_EVENT_DUP: d->fds[e->fd] = d->fds[e->offset]; break;
  case SHIM_EVENT_WRITE: push_change(n, (change){.offset = e->offset, .count = e->data_bytes, .data = data}); break;
  case SHIM_EVENT_SIZE: push_change(e->fd >= 0 ? n : find(d, path), (change){.offset = e->offset}); break;
  case SHIM_EVENT_GROW: push_change(n, (change){.offset = e->offset, .grow = true}); break;
  case SHIM_EVENT_SYNC:
    if (n && n->kind == NODE_FILE) sync_file(n);
    else if (n) sync_directory(d, n);
    break;
  case SHIM_EVENT_RENAME: move(d, path, other, false); break;
  case SHIM_EVENT_EXCHANGE: move(d, path, other, true); break;
  case SHIM_EVENT_LINK: name_again(d, e->fd >= 0 ? n : find(d, path), other); break;
  case SHIM_EVENT_SYMLINK: make(d, NODE_LINK, other, path); break;
  case SHIM_EVENT_UNLINK:
  case SHIM_EVENT_RMDIR: unname(d, path); break;
  case SHIM_EVENT_MKDIR: make(d, NODE_DIRECTORY, path, NULL); break;
  case SHIM_EVENT_SAY: break;
  }
}

/* ---- the log ---- */

/* The event at `*at`, which moves behind it; false at the end. */
static bool next_event(const bytes *log, size_t *at, shim_event *e, const char **more) {
  if (*at + sizeof *e > log->count) return false;
  memcpy(e, log->at + *at, sizeof *e);
  *more = log->at + *at + sizeof *e;
  *at += sizeof *e + (size_t)e->path_bytes + e->other_bytes + e->data_bytes;
  return *at <= log->count;
}

size_t log_count(const bytes *log) {
  size_t count = 0;
  shim_event e;
  const char *more;
  for (size_t at = 0; next_event(log, &at, &e, &more);) count++;
  return count;
}

bool log_changes(const bytes *log, size_t event) {
  shim_event e;
  const char *more;
  for (size_t at = 0, k = 0; next_event(log, &at, &e, &more); k++)
    if (k == event)
      return e.kind != SHIM_EVENT_CLOSE && e.kind != SHIM_EVENT_DUP &&
             !(e.kind == SHIM_EVENT_OPEN && !(e.flags & (O_CREAT | O_TRUNC)));
  return false;
}

char *log_said(const bytes *log, size_t until) {
  char *text = calloc(1, log->count + 1);
  size_t used = 0;
  shim_event e;
  const char *more;
  if (!text) broken("no memory");
  for (size_t at = 0, k = 0; k < until && next_event(log, &at, &e, &more); k++) {
    if (e.kind != SHIM_EVENT_SAY) continue;
    memcpy(text + used, more, e.data_bytes);
    used += e.data_bytes;
  }
  return text;
}

/* ---- a tree that is there already, and was synced long ago ---- */

static void import(disk *d, node *to, const char *path) {
  DIR *directory = opendir(path);
  struct dirent *found;
  while (directory && (found = readdir(directory))) {
    char child[PATH_ROOM];
    struct stat info;
    node *n;
    if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0) continue;
    if (snprintf(child, sizeof child, "%s/%s", path, found->d_name) >= PATH_ROOM || lstat(child, &info) != 0)
      broken("cannot look at %s", child);
    n = make_node(d, S_ISDIR(info.st_mode) ? NODE_DIRECTORY : S_ISLNK(info.st_mode) ? NODE_LINK : NODE_FILE);
    if (n->kind == NODE_FILE && !get_bytes(child, &n->kept_bytes)) broken("cannot read %s", child);
    if (n->kind == NODE_LINK && readlink(child, n->target, PATH_ROOM - 1) < 0) broken("cannot read %s", child);
    if (n->kind == NODE_DIRECTORY) import(d, n, child);
    set(&to->now, found->d_name, n);
    set(&to->kept, found->d_name, n);
  }
  if (directory) (void)closedir(directory);
}

disk *disk_replay(const bytes *log, size_t until, const char *start) {
  disk *d = calloc(1, sizeof *d);
  shim_event e;
  const char *more;
  if (!d) broken("no memory");
  d->root = make_node(d, NODE_DIRECTORY);
  import(d, d->root, start);
  for (size_t at = 0, k = 0; k < until && next_event(log, &at, &e, &more); k++) {
    char path[PATH_ROOM], other[PATH_ROOM];
    if (e.path_bytes >= PATH_ROOM || e.other_bytes >= PATH_ROOM) broken("a path of the log is too long");
    (void)snprintf(path, sizeof path, "%.*s", (int)e.path_bytes, more);
    (void)snprintf(other, sizeof other, "%.*s", (int)e.other_bytes, more + e.path_bytes);
    happen(d, &e, path, other, more + e.path_bytes + e.other_bytes);
  }
  return d;
}

void disk_free(disk *d) {
  for (node *n = d->all, *next; n; n = next) {
    next = n->all;
    free(n->now.at);
    free(n->kept.at);
    free(n->kept_bytes.at);
    free(n->since.at);
    free(n);
  }
  free(d->waiting);
  free(d);
}

/* ---- losing ---- */

static bytes copy_of(const bytes *b) {
  bytes copy = {malloc(b->count + 1), b->count};
  if (!copy.at) broken("no memory");
  if (b->count) memcpy(copy.at, b->at, b->count);
  return copy;
}

static bytes seen_bytes(const node *n) {
  bytes b = copy_of(&n->kept_bytes);
  for (size_t k = 0; k < n->since.count; k++) apply_change(&b, &n->since.at[k]);
  return b;
}

/* All writes, but of the last one only a part. */
static bytes torn_bytes(const node *n, uint64_t *random) {
  bytes b = copy_of(&n->kept_bytes);
  for (size_t k = 0; k < n->since.count; k++) {
    change c = n->since.at[k];
    if (k + 1 == n->since.count && c.data) c.count = roll(random) % (c.count + 1);
    if (c.data || k + 1 < n->since.count || roll(random) % 2) apply_change(&b, &c);
  }
  return b;
}

/* Each page as it was or as it was to be; the size likewise. */
static bytes mixed_bytes(const node *n, uint64_t *random) {
  bytes b = copy_of(&n->kept_bytes), to_be = seen_bytes(n);
  if (roll(random) % 2) resize(&b, to_be.count);
  for (size_t page = 0; page < b.count; page += PAGE) {
    size_t end = page + PAGE < b.count ? page + PAGE : b.count;
    if (end > to_be.count) end = to_be.count;
    if (end > page && roll(random) % 2) memcpy(b.at + page, to_be.at + page, end - page);
  }
  free(to_be.at);
  return b;
}

static bytes lost_bytes(const node *n, loss how, uint64_t *random) {
  if (how == LOSS_ALL) return torn_bytes(n, random);
  if (how != LOSS_RANDOM) return copy_of(&n->kept_bytes);
  switch (roll(random) % 4) {
  case 0: return copy_of(&n->kept_bytes);
  case 1: return seen_bytes(n);
  case 2: return torn_bytes(n, random);
  default: return mixed_bytes(n, random);
  }
}

/* Which of the waiting operations are found. */
static void choose(const disk *d, loss how, uint64_t *random, bool *marked) {
  size_t until = how == LOSS_ORDERED                    ? roll(random) % (d->waiting_count + 1)
                 : how == LOSS_NAMES || how == LOSS_ALL ? d->waiting_count
                                                        : 0;
  for (size_t k = 0; k < d->waiting_count; k++) marked[k] = how == LOSS_RANDOM ? roll(random) % 2 : k < until;
  if (how != LOSS_RANDOM) return;
  /* kept only with all that it builds upon: what was lost takes along what comes later on the same names */
  for (size_t k = 0; k < d->waiting_count; k++)
    for (size_t m = 0; marked[k] && m < k; m++) marked[k] = marked[m] || !share_a_cell(&d->waiting[m], &d->waiting[k]);
}

static void write_tree(const node *n, const char *path, bool kept, loss how, uint64_t *random) {
  const entries *list = kept ? &n->kept : &n->now;
  for (size_t k = 0; k < list->count; k++) {
    const node *child = list->at[k].is;
    char name[PATH_ROOM];
    if (snprintf(name, sizeof name, "%s/%s", path, list->at[k].name) >= PATH_ROOM)
      broken("the path %.80s... is too long", name);
    if (child->kind == NODE_DIRECTORY) {
      make_directory(name);
      write_tree(child, name, kept, how, random);
    } else if (child->kind == NODE_LINK) {
      if (symlink(child->target, name) != 0) broken("cannot make the link %s", name);
    } else {
      bytes b = kept ? lost_bytes(child, how, random) : seen_bytes(child);
      put_bytes(name, b.at, b.count);
      free(b.at);
    }
  }
}

void disk_see(const disk *d, const char *root) { write_tree(d->root, root, false, LOSS_ALL, NULL); }

void disk_lose(disk *d, loss how, uint64_t random, const char *root) {
  bool *marked = calloc(d->waiting_count + 1, 1);
  if (!marked) broken("no memory");
  choose(d, how, &random, marked);
  for (size_t k = 0; k < d->waiting_count; k++)
    if (marked[k]) keep_operation(&d->waiting[k]);
  write_tree(d->root, root, true, how, &random);
  free(marked);
}
