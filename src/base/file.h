/* Files: whole reads with a limit, read-only maps, and atomic writes (temp, fsync, rename, fsync of the directory). */
#ifndef HRI_BASE_FILE_H
#define HRI_BASE_FILE_H

#include <dirent.h>

#include "base/mem.h"

/* Opens a file to read it, for the caller to close. What is no regular file (a FIFO, a device, a directory, a socket, a
 * link to nowhere) is refused with INPUT and never waited for, whoever may write to it. `bytes`: its size; may be
 * NULL. */
hr_status hri_file_open_regular(const char *path, int *fd, uint64_t *bytes, hr_error *error);

/* Reads a whole file of at most `limit` bytes; the result is NUL-terminated and owned by the caller (hri_free). */
hr_status hri_file_read(const char *path, uint64_t limit, char **bytes, uint64_t *count, hr_error *error);

/* Full pread/pwrite loops with errors that name the path. */
hr_status hri_file_pread(int fd, const char *path, void *to, uint64_t bytes, uint64_t offset, hr_error *error);
hr_status hri_file_pwrite(int fd, const char *path, const void *from, uint64_t bytes, uint64_t offset, hr_error *error);
hr_status hri_file_write_all(int fd, const char *path, const void *from, uint64_t bytes, hr_error *error);

/* Makes a new file as long as it will be, zeros throughout. Reserving the space is a courtesy of the file system: where
 * it has none, the file is only sized, and a full disk shows when the data is written. */
hr_status hri_file_reserve(int fd, const char *path, uint64_t bytes, hr_error *error);

/* A file of a directory that nobody reads yet, because it takes its place only when all is in it: the file grows under
 * its own name, is synced once, and costs no rename and no sync of its directory, which is the caller's to do once for
 * all files. */
/* Makes it; one that is there is an error that names it. The descriptor is the caller's until hri_file_finish. */
hr_status hri_file_create(const char *path, int *fd, hr_error *error);
/* Syncs and closes it, and returns `so_far`: how its writing went, told in *error already. After any failure the file
 * is gone: a second sync of one that failed would report success for pages that the kernel dropped. */
hr_status hri_file_finish(int fd, const char *path, hr_status so_far, hr_error *error);
/* The three steps for bytes in memory. */
hr_status hri_file_write_new(const char *path, const void *bytes, uint64_t count, hr_error *error);

/* Whether a file may take the name `path`. `*special`: a device or a pipe stands there, which is written to and never
 * replaced. USAGE for a name that is none, a directory, and a link to a file or to nowhere: what it leads to is somebody's,
 * and so is the link (/dev/stdout is one). */
hr_status hri_file_name_check(const char *path, bool *special, hr_error *error);
/* Opens such a device or pipe; a FIFO that nobody reads is refused, not waited for. */
hr_status hri_special_open(const char *path, int *fd, hr_error *error);
/* Writes a small file atomically: the old or the new content is on disk, never a mixture. It grows in a scratch
 * directory beside it. A device or a pipe is written to. */
hr_status hri_file_replace(const char *path, const void *bytes, uint64_t count, hr_error *error);
/* Whether that could be done now: USAGE when `path` names no file, IO when its directory takes none. Leaves nothing. */
hr_status hri_file_can_replace(const char *path, hr_error *error);

hr_status hri_dir_make(const char *path, hr_error *error); /* mkdir -p; each new entry is synced */
/* Takes away what hri_dir_make made of `path`, from below, as far as nothing else is in it: `above_bytes` of it were there
 * (what hri_path_nearest gave, 0 for "."). */
void hri_dir_unmake(const char *path, size_t above_bytes);
hr_status hri_dir_sync(const char *path, hr_error *error); /* fsync of a directory, where the file system can */
bool hri_dir_syncs_are_weak(void);                         /* a file system could not, at some time in this process */
/* The names in a directory but "." and "..": NULL behind the last one. A directory that cannot be read to its end is an
 * error: what it hides must not be taken for absent. */
hr_status hri_dir_next(DIR *dir, const char *path, const char **name, hr_error *error);
hr_status hri_dir_remove(const char *path, hr_error *error); /* rm -r of a tree of ours; missing is fine */
/* What stands before the last slash of a path, "." when there is none, into `out` (4096 bytes). */
void hri_path_parent(const char *path, char out[4096]);
/* The nearest directory at or above a path that is there, into `out` (4096 bytes). */
void hri_path_nearest(const char *path, char out[4096]);
/* The one absolute name of a place, there or yet to be made, into `out` (4096 bytes): links are followed as far as it is
 * there, and what is not is taken as it is spelled, without "." and "..". False when it is too long, or nobody can say. */
bool hri_path_settle(const char *path, char out[4096]);
/* Whether a place is a directory or in it, by their settled names. */
bool hri_path_inside(const char *path, const char *dir);
/* "dir/name" into a buffer of 4096 bytes; USAGE when it is too long. */
hr_status hri_path_at(char path[4096], const char *dir, const char *name, hr_error *error);
/* "dir/name" in a new string; NULL when memory is refused. */
char *hri_path_join(const char *dir, const char *name);
bool hri_path_exists(const char *path); /* a link to nowhere does exist: reading it fails by its name */
bool hri_path_is_dir(const char *path);

/* Turns errno into an error that names the path and a remedy, and keeps the number in system_error. */
hr_status hri_fail_errno(hr_error *error, int number, const char *verb, const char *path);
/* Whether it says that the file system has no room: what another minute may change. */
bool hri_is_full(const hr_error *error);
/* The hint of an error without another directory at its end, which a run that has one cannot take. */
void hri_hint_in_place(const hr_error *error, char out[HR_ERROR_HINT_BYTES]);
#ifdef __clang_analyzer__
#define hri_fail_errno(error, number, verb, path)                                                                      \
  hri_failure(hri_fail_errno((error), (number), (verb), (path)), HR_ERROR_IO)
#endif

#endif
