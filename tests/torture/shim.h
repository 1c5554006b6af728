/* What the preloaded library (shim.c) and the tests agree on: kinds of calls, ways to fail, the page of counts, the
 * log.
 *
 * The library looks only at calls that the program makes on files of two areas: below the tree (where the run directory
 * is) and below the input (data, model). Environment:
 *
 *   HEADROOM_SHIM_TREE=DIR, HEADROOM_SHIM_INPUT=DIR    real, absolute paths of the areas
 *   HEADROOM_SHIM_COUNTS=FILE   a file of sizeof(shim_counts) bytes, mapped and counted in while the program runs, so
 *                               that the counts are there however it ends
 *   HEADROOM_SHIM_FAULT=AREA/KIND/N/WAY[/ERRNO]        what befalls the N-th call (from 1) of a kind, e.g.
 *   tree/write/3/fail/28;
 *                               WAY of shim_ways, ERRNO a number
 *   HEADROOM_SHIM_TELL=1        prints the stack of the call that it befalls
 *   HEADROOM_SHIM_LOG=FILE      every change of the tree is appended as events, in the order in which they happened */
#ifndef HRI_TORTURE_SHIM_H
#define HRI_TORTURE_SHIM_H

#include <stdatomic.h>
#include <stdint.h>

/* MEMORY and LIBRARY: mmap without a file, by the program itself and by libraries. */
typedef enum shim_area {
  SHIM_TREE,
  SHIM_INPUT,
  SHIM_MEMORY,
  SHIM_LIBRARY,
  SHIM_AREAS,
  SHIM_NOWHERE = SHIM_AREAS
} shim_area;

/* A kind, and the kind as which the kernel sees it: calls of libc that make the same system call are counted together
 * there. */
/* clang-format off */
#define SHIM_KINDS(X) \
  X(write, write) X(pwrite, pwrite) X(writev, writev) X(pwritev, pwritev) \
  X(read, read) X(pread, pread) X(readv, readv) X(preadv, preadv) \
  X(open, open) X(opendir, open) X(mkostemp, open) X(close, close) X(closedir, close) \
  X(fsync, fsync) X(fdatasync, fdatasync) X(sync_file_range, sync_file_range) \
  X(fallocate, fallocate) X(ftruncate, ftruncate) X(truncate, truncate) \
  X(rename, rename) X(renameat2, rename) X(link, link) X(symlink, symlink) X(unlink, unlink) X(rmdir, rmdir) \
  X(mkdir, mkdir) X(mkdtemp, mkdir) X(flock, flock) X(dup, dup) X(mmap, mmap) X(copy_file_range, copy_file_range) X(sendfile, sendfile) \
  X(readdir, readdir) X(stat, stat) X(readlink, readlink)
/* clang-format on */

#define SHIM_NAME(name, kernel) SHIM_##name,
typedef enum shim_kind { SHIM_KINDS(SHIM_NAME) SHIM_KIND_COUNT } shim_kind;
#undef SHIM_NAME

/* PASS is no fault; FAIL: it fails and nothing has happened, and so does ON, with every later call of the kind (a disk
 * stays full);
 * SHORT: half of the bytes; BEFORE, AFTER: kill -9 around the call; HALF: half of the bytes, then kill -9. */
#define SHIM_WAYS(X) X(pass) X(fail) X(on) X(short) X(before) X(after) X(half)
#define SHIM_NAME(name) SHIM_WAY_##name,
typedef enum shim_way { SHIM_WAYS(SHIM_NAME) SHIM_WAY_COUNT } shim_way;
#undef SHIM_NAME

static const char *const shim_areas[SHIM_AREAS] = {"tree", "input", "memory", "library"};
#define SHIM_NAME(name, kernel) #name,
static const char *const shim_kinds[SHIM_KIND_COUNT] = {SHIM_KINDS(SHIM_NAME)};
#undef SHIM_NAME
#define SHIM_NAME(name) #name,
static const char *const shim_ways[SHIM_WAY_COUNT] = {SHIM_WAYS(SHIM_NAME)};
#undef SHIM_NAME

typedef struct shim_counts {
  _Atomic uint64_t calls[SHIM_AREAS][SHIM_KIND_COUNT];
  _Atomic uint64_t hits; /* how often the fault has struck */
} shim_counts;

/* ---- the log ----
 * Events one behind the other, each a shim_event and then its bytes: path, other path, data. Paths are relative to the
 * tree, "" is the tree itself, and links in them are resolved. Only calls that succeeded are logged, with what they
 * really did. */
typedef enum shim_event_kind {
  SHIM_EVENT_OPEN,     /* fd, flags, path: a file or directory */
  SHIM_EVENT_CLOSE,    /* fd */
  SHIM_EVENT_DUP,      /* fd, offset: the descriptor that it is another of */
  SHIM_EVENT_WRITE,    /* fd, offset, data */
  SHIM_EVENT_SIZE,     /* path or (fd >= 0) fd, offset: the new size */
  SHIM_EVENT_GROW,     /* fd, offset: at least this size from now on */
  SHIM_EVENT_SYNC,     /* fd: a file's data and size, or a directory's entries */
  SHIM_EVENT_RENAME,   /* path -> other */
  SHIM_EVENT_EXCHANGE, /* path <-> other */
  SHIM_EVENT_LINK,     /* path or (fd >= 0) fd -> other, another name */
  SHIM_EVENT_SYMLINK,  /* other, pointing at path (any text) */
  SHIM_EVENT_UNLINK,   /* path */
  SHIM_EVENT_RMDIR,    /* path */
  SHIM_EVENT_MKDIR,    /* path */
  SHIM_EVENT_SAY       /* data: what the program printed on standard error */
} shim_event_kind;

typedef struct shim_event {
  uint32_t kind, path_bytes, other_bytes, data_bytes;
  int32_t fd, flags;
  uint64_t offset;
} shim_event;

#endif
