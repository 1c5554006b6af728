/* Files and trees for the torture tests. Unlike tests/support these run in worker processes, where a failed preparation
 * cannot be a failed cmocka assertion: it says so and ends the process. */
#ifndef HRI_TORTURE_FILES_H
#define HRI_TORTURE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "support/roll.h"

enum { PATH_ROOM = 1024 };

typedef struct bytes {
  char *at; /* with a NUL behind; free */
  size_t count;
} bytes;

typedef struct names { /* paths relative to a root, sorted */
  char **at;
  size_t count;
} names;

/* Ends the process: the test itself cannot go on. */
__attribute__((format(printf, 1, 2), noreturn)) void broken(const char *format, ...);
/* printf into one of 64 static buffers. */
__attribute__((format(printf, 1, 2))) const char *pathf(const char *format, ...);

bool there(const char *path); /* links are not followed */
bool is_directory(const char *path);
bool get_bytes(const char *path, bytes *out); /* false: no such file */
void put_bytes(const char *path, const void *from, size_t count);
void put_string(const char *path, const char *text);
bool same_bytes(const char *path, const char *other);
void make_directory(const char *path);
void remove_tree(const char *path);
void copy_tree(const char *from, const char *to);
/* All entries below `root`, directories with a slash at the end. */
names list_tree(const char *root);
void free_names(names *list);
bool has_name(const names *list, const char *name);

/* Numbers that are the same for the same seed; `state` is any number. */

#endif
