/* A lock file: one process at a time does something to what lies beside it.
 *
 * The file is made when it is missing, and is never renamed; while it is locked nobody unlinks it. The lock is flock's,
 * which belongs to the open file and so holds between processes and between two runs of one process, and which the
 * kernel gives back however the process ends. (POSIX fcntl locks would go with any close of the file.) File systems
 * without it (ENOLCK, ENOSYS, EOPNOTSUPP, EINVAL: some NFS and Lustre mounts) get the fallback: "PATH.exclusive", made with O_EXCL, which a killed
 * process leaves behind; hri_lock_how says so, and the refusal names the file to remove.
 *
 * The file holds one JSON line: {"headroom_lock":1,"id":"<16 hex digits>","pid":N,"started":"<UTC>","host":"..."}. The
 * id is made with the file and stays: it is the identity of what the lock protects. */
#ifndef HRI_BASE_LOCK_H
#define HRI_BASE_LOCK_H

#include "base/mem.h"

typedef struct hri_lock hri_lock;

typedef struct hri_lock_owner {
  bool known;  /* the whole line could be read */
  char id[20]; /* "" when the file is none of ours */
  char host[72];
  int64_t pid;      /* of the last holder, who may have ended */
  char started[32]; /* when it took the lock, UTC */
} hri_lock_owner;

/* Takes the lock, or refuses at once: USAGE, naming the other's host and pid, with `what` ("the run DIR") in the
 * message. After locking, the path is known to be the locked inode still. IO; MEMORY. */
hr_status hri_lock_take(const char *path, const char *what, hri_lock **lock, hr_error *error);
/* The same, but waits: `goes_on` (may be NULL) is asked at each look that finds another holding it. False: INTERRUPTED. */
hr_status hri_lock_wait(const char *path, const char *what, bool (*goes_on)(void *context, const hri_lock_owner *other),
                        void *context, hri_lock **lock, hr_error *error);
/* Whether what this lock stands for is still this process's. A person may have removed the file, and then another process
 * makes and locks its own: USAGE, naming that one. *gone: nothing is there (or a copy of the file, which nobody holds), so
 * that nobody is kept out. */
hr_status hri_lock_check(const hri_lock *lock, const char *what, bool *gone, hr_error *error);
/* NULL is fine. `remove`: also unlinks the file, while it is still locked, so that who waits for it looks again. */
void hri_lock_release(hri_lock *lock, bool remove);

const char *hri_lock_id(const hri_lock *lock);
bool hri_lock_is_new(const hri_lock *lock);     /* this call made the file */
const char *hri_lock_how(const hri_lock *lock); /* NULL: flock; else a sentence for people about the fallback */
/* What the file says, without locking anything. */
hri_lock_owner hri_lock_read(const char *path);
/* Whether somebody holds it now; looks, and leaves nothing. */
bool hri_lock_is_held(const char *path, hri_lock_owner *owner);
/* The same as an error: USAGE that names the holder, as taking the lock would; OK where nobody holds it. */
hr_status hri_lock_refuse_held(const char *path, const char *what, hr_error *error);

#endif
