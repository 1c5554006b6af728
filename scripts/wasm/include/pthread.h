/* For WebAssembly, which has one thread here: what base and formats use of POSIX threads. */
#ifndef HRI_WASM_PTHREAD_H
#define HRI_WASM_PTHREAD_H

typedef int pthread_once_t;
typedef int pthread_mutex_t;
#define PTHREAD_ONCE_INIT 0
#define PTHREAD_MUTEX_INITIALIZER 0

static inline int pthread_once(pthread_once_t *once, void (*call)(void)) {
  if (!*once) call();
  *once = 1;
  return 0;
}

static inline int pthread_mutex_init(pthread_mutex_t *mutex, const void *attributes) {
  (void)attributes;
  return *mutex = 0;
}
static inline int pthread_mutex_lock(pthread_mutex_t *mutex) { return *mutex = 0; }
static inline int pthread_mutex_unlock(pthread_mutex_t *mutex) { return *mutex = 0; }
static inline int pthread_mutex_destroy(pthread_mutex_t *mutex) { return *mutex = 0; }

#endif
