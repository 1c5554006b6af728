/* What is no file in the place of one: a FIFO that nobody writes to, one whose writer never writes, an endless device,
 * a directory, a socket, links to nowhere and to themselves; in every place where the program opens what it was told
 * to, or what it finds in a model's or a run's directory. Each command ends soon, by no signal, and its message names
 * the path. */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

#include "base/file.h"
#include "formats/gguf.h"
#include "support/child.h"

typedef enum kind { FIFO = 0, SILENT_FIFO, ZERO, DIRECTORY, SOCKET, DANGLING, LOOP, KINDS } kind;
static const char *const kind_names[KINDS] = {"a FIFO",          "a FIFO with a silent writer",
                                              "/dev/zero",       "a directory",
                                              "a socket",        "a link to nowhere",
                                              "a link to itself"};

/* A place: where the thing stands, and a command that comes across it. %p the path of the thing, %m a model of bytes,
 * %w one with a tokenizer and a template, %r a run, %d data, %o an output. `ignored`: the file is optional or made
 * anew, so going on without it is fine. */
typedef struct place {
  const char *path; /* below the copied tree; NULL: a name of its own */
  const char *command;
  bool ignored;
} place;

static const place places[] = {
    {NULL, "plan %p", false},
    {NULL, "train %p -q --seq 16 --steps 1 --data %d --out %o", false},
    {NULL, "convert %p %o", false},
    {NULL, "convert %p %o.gguf", false},
    {NULL, "tokenize %p %d", false},
    {NULL, "tokenize %w %p", false},
    {NULL, "train %m -q --seq 16 --steps 1 --data %p --out %o", false},
    {NULL, "train %m -q --seq 16 --steps 1 --data %d --eval-data %p --out %o", false},
    {NULL, "generate %w -q --chat --max-tokens 2 --prompt a --chat-template %p", false},
    {NULL, "train %m -q --seq 16 --steps 1 --data %d --recipe %p --out %o", false},
    {NULL, "evaluate %m -q --seq 16 --data %p", false},
    {NULL, "data %p --model %m", false},
    {NULL, "data %d --model %p", false},
    {NULL, "generate %m -q --max-tokens 2 --prompt-file %p", false},
    {NULL, "plan gpt2-124m --recipe %p", false},
    {NULL, "explain %p", false},
    {NULL, "inspect %p", false},
    {NULL, "replay %p", false},
    {"model/config.json", "plan %m", false},
    {"model/config.json", "explain %m", false},
    {"model/model.safetensors", "train %m -q --seq 16 --steps 1 --data %d --out %o", false},
    {"model/model.safetensors", "evaluate %m -q --seq 16 --data %d", false},
    {"model/model.safetensors", "generate %m -q --max-tokens 2 --prompt a", false},
    {"model/model.safetensors", "convert %m %o", false},
    {"model/model.safetensors.index.json", "train %m -q --seq 16 --steps 1 --data %d --out %o", true},
    {"model/tokenizer.json", "generate %m -q --max-tokens 2 --prompt a", false},
    {"model/tokenizer.json", "train %m -q --seq 16 --steps 1 --data %d --out %o", false},
    {"words/tokenizer.json", "tokenize %w %d", false},
    {"model/tokenizer_config.json", "train %m -q --seq 16 --steps 1 --data %d --out %o", true},
    {"model/generation_config.json", "generate %m -q --max-tokens 2 --prompt a", true},
    {"words/chat_template.jinja", "generate %w -q --chat --max-tokens 2 --prompt a", false},
    {"run/run.json", "explain %r", false},
    {"run/run.json", "inspect %r", true},
    {"run/metrics.jsonl", "explain %r", false},
    {"run/memory/plan.pickle.gz", "inspect %r", false},
    {"run/memory/plan.pickle.gz", "explain %r", true},
    {"run/memory/trail", "explain %r", true},
    {"run/run.json", "train micro-llama-bytes -q --seq 16 --steps 2 --data %d --resume %r", true},
    {"run/metrics.jsonl", "train micro-llama-bytes -q --seq 16 --steps 2 --data %d --resume %r", false},
    {"run/checkpoints/step-000001/state.json", "train micro-llama-bytes -q --seq 16 --steps 2 --data %d --resume %r",
     false},
    {"run/checkpoints/step-000001/model.safetensors",
     "train micro-llama-bytes -q --seq 16 --steps 2 --data %d --resume %r", false},
    {"run/checkpoints/step-000001/optimizer.safetensors",
     "train micro-llama-bytes -q --seq 16 --steps 2 --data %d --resume %r", false},
    {"run/checkpoints/last", "train micro-llama-bytes -q --seq 16 --steps 2 --data %d --resume %r", true},
};

static const char *directory, *data, *trees;
static int made, failures;

static void run(child *c, const char *program) { child_run(c, program, directory); }

/* ---- making things ---- */

/* From within its directory: an address has room for a short path alone. */
static int make_socket(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM, 0), before = open(".", O_RDONLY | O_DIRECTORY);
  const char *name = strrchr(path, '/') + 1;
  assert_true(fd >= 0 && before >= 0 && strlen(name) < sizeof address.sun_path);
  (void)strcpy(address.sun_path, name);
  assert_int_equal(chdir(path_of("%.*s", (int)(name - path), path)), 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(fchdir(before), 0);
  (void)close(before);
  return fd;
}

/* Puts the thing at `path`; the descriptor keeps it as it is (-1: none is needed). */
static int make(kind k, const char *path) {
  int fd = -1;
  switch (k) {
  case FIFO: assert_int_equal(mkfifo(path, 0600), 0); break;
  case SILENT_FIFO:
    assert_int_equal(mkfifo(path, 0600), 0);
    fd = open(path, O_RDWR | O_NONBLOCK);
    assert_true(fd >= 0);
    break;
  case ZERO: assert_int_equal(symlink("/dev/zero", path), 0); break;
  case DIRECTORY: assert_int_equal(mkdir(path, 0700), 0); break;
  case SOCKET: fd = make_socket(path); break;
  case DANGLING: assert_int_equal(symlink(path_of("%s/nowhere", directory), path), 0); break;
  default: assert_int_equal(symlink(path, path), 0); break;
  }
  return fd;
}

/* ---- the table ---- */

static void fill_in(const char *command, const char *thing, const char *tree, const char *out, char line[4096]) {
  size_t used = 0;
  for (const char *at = command; *at; at++) {
    if (*at != '%') {
      line[used++] = *at;
      continue;
    }
    at++;
    if (*at == 'p' || *at == 'd' || *at == 'o')
      used += (size_t)sprintf(line + used, "%s", *at == 'p' ? thing : *at == 'd' ? data : out);
    else used += (size_t)sprintf(line + used, "%s/%s", tree, *at == 'm' ? "model" : *at == 'w' ? "words" : "run");
  }
  line[used] = 0;
}

static void check(const place *p, kind k) {
  const char *tree = path_of("%s/%d", directory, ++made), *out = path_of("%s/out", tree);
  const char *thing = p->path ? path_of("%s/%s", tree, p->path) : path_of("%s/thing", tree);
  child copy = {.words = {"-a", trees, tree}}, c = {.deadline_seconds = 30};
  char line[4096];
  bool good;
  int fd;
  run(&copy, "/bin/cp");
  assert_int_equal(copy.code, 0);
  if (p->path) scratch_remove(thing);
  fd = make(k, thing);
  fill_in(p->command, thing, tree, out, line);
  child_words(&c, line);
  run(&c, HR_PROGRAM);
  good = c.code == 1 || c.code == 2 || c.code == 5;
  good = good && (strstr(c.err, p->path ? strrchr(p->path, '/') + 1 : "/thing") ||
                  ((p->path || k == DIRECTORY) && strstr(c.err, tree)));
  if (p->ignored && c.code == 0) good = true;
  if (!good) {
    failures++;
    print_message("%s: %s at %s: exit %d: %.300s\n", line, kind_names[k], p->path ? p->path : "%p", c.code, c.err);
  }
  if (fd >= 0) (void)close(fd);
  scratch_remove(tree);
}

static void test_no_special_file_is_waited_for(void **state) {
  (void)state;
  for (size_t n = 0; n < sizeof places / sizeof *places; n++)
    for (int k = 0; k < KINDS; k += quick() ? 3 : 1) check(&places[n], (kind)k);
  if (failures) fail_msg("%d of %zu", failures, KINDS * sizeof places / sizeof *places);
}

/* ---- output ---- */

static void test_no_special_file_is_written_into_and_waited_for(void **state) {
  static const char *const commands[] =
      {"inspect %r --html %p", "train micro-llama-bytes -q --seq 16 --steps 1 --data %d --out %o --profile %p"};
  (void)state;
  for (size_t n = 0; n < sizeof commands / sizeof *commands; n++)
    for (int k = 0; k < KINDS; k++) {
      const place p = {NULL, commands[n], true};
      if (k != ZERO && k != SILENT_FIFO)
        check(&p, (kind)k); /* the one takes everything, the other fills up: a reader that never reads */
    }
  if (failures) fail_msg("%d in all", failures);
}

/* ---- streams ---- */

/* What the shell makes itself is read: standard input, and pipes without a name. */
static void stream(const char *line, int code, const char *words) {
  child c = {.deadline_seconds = 30, .words = {"-c", path_of("%s", line)}};
  run(&c, "/bin/bash");
  if (c.code != code || (words && !strstr(c.out, words) && !strstr(c.err, words)))
    fail_msg("%s: exit %d: %s%s", line, c.code, c.out, c.err);
}

static void test_streams_of_the_caller_are_read(void **state) {
  const char *log = path_of("%s/log.txt", directory);
  (void)state;
  put_text(
      log,
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.10 GiB is free.\n");
  stream(path_of("%s explain - < %s", HR_PROGRAM, log), 0, "2.00 GiB");
  stream(path_of("cat %s | %s explain -", log, HR_PROGRAM), 0, "2.00 GiB");
  stream(path_of("%s explain <(cat %s)", HR_PROGRAM, log), 0, "2.00 GiB");
  stream(path_of("%s plan gpt2-124m --show-config --recipe <(echo seq: 77)", HR_PROGRAM), 0, "77");
  stream(path_of("%s explain - < /dev/zero", HR_PROGRAM), 5, "device");
  stream(path_of("%s plan gpt2-124m --recipe - < %s", HR_PROGRAM, directory), 1,
         "cannot read the recipe -: Is a directory");
  stream(path_of("%s plan gpt2-124m --recipe - <&-", HR_PROGRAM), 1, "cannot read the recipe -: Bad file descriptor");
  stream(path_of("%s explain - < /dev/null", HR_PROGRAM), 5, "no out-of-memory message");
  stream(path_of("%s generate %s/words -q --prompt-file - < /dev/zero", HR_PROGRAM, trees), 5, "device");
  stream(path_of("%s tokenize %s/words - < /dev/zero", HR_PROGRAM, trees), 5, "device");
}

static void make_words(void) {
  child c = {0}, move = {0}, copy = {0};
  child_words(
      &c,
      path_of(
          "train custom:family=llama,layers=1,hidden=16,heads=2,kv-heads=1,mlp=16,vocab=700,positions=64,tied -q --seq 16 --steps 1 --data %s --out %s/made",
          data, directory));
  run(&c, HR_PROGRAM);
  if (c.code != 0) fail_msg("%s", c.err);
  child_words(&move, path_of("%s/made/final %s/words", directory, trees));
  run(&move, "/bin/mv");
  child_words(&copy, path_of("%s/tokenizer/gpt2.json %s/words/tokenizer.json", HR_TEST_DATA, trees));
  run(&copy, "/bin/cp");
  put_text(path_of("%s/words/chat_template.jinja", trees), "{% for m in messages %}{{ m.content }}{% endfor %}");
}

/* Models, and a run that can be resumed. */
static int set_up(void **state) {
  child c = {0}, copy = {0};
  (void)state;
  directory = scratch_make("special");
  data = strdup(path_of("%s/data.txt", directory));
  trees = strdup(path_of("%s/trees", directory));
  if (!data || !trees) return -1;
  put_words(data, 3000, 1);
  assert_int_equal(mkdir(trees, 0755), 0);
  child_words(&c, path_of("train micro-llama-bytes -q --seq 16 --steps 2 --save-every 1 --data %s --out %s/run", data,
                          trees));
  run(&c, HR_PROGRAM);
  if (c.code != 0) fail_msg("%s", c.err);
  child_words(&copy, path_of("-a %s/run/final %s/model", trees, trees));
  run(&copy, "/bin/cp");
  make_words();
  scratch_remove(path_of("%s/run/checkpoints/step-000002", trees)); /* so that there is something to resume */
  scratch_remove(path_of("%s/run/checkpoints/last", trees));
  scratch_remove(path_of("%s/run/checkpoints/best", trees));
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  scratch_remove(directory);
  return 0;
}

/* ---- a disk that fails ---- */

/* Takes the place of libc's: fails at the sync of this number. */
static int syncs_until_fault;
int fsync(int fd) {
  int (*real)(int);
  void *symbol = dlsym(RTLD_NEXT, "fsync");
  memcpy(&real, &symbol, sizeof real);
  if (syncs_until_fault == 0 || --syncs_until_fault > 0) return real(fd);
  errno = EIO;
  return -1;
}

/* Who reads the error finds the file whole: what failed came behind its name, and both are told. */
static void test_what_is_there_after_an_error_is_told(void **state) {
  const char *path = path_of("%s/published", directory);
  enum { OF_THE_FILE = 1, OF_ITS_DIRECTORY };
  (void)state;
  put_text(path, "old");
  for (int failing = OF_THE_FILE; failing <= OF_ITS_DIRECTORY; failing++) {
    hr_error error = {0};
    size_t count;
    char *now;
    syncs_until_fault = failing;
    assert_int_equal(hri_file_replace(path, "new", 3, &error), HR_ERROR_IO);
    assert_int_equal(syncs_until_fault, 0);
    assert_non_null(strstr(error.message, path));
    assert_int_equal(strstr(error.message, "was put in its place whole") != NULL, failing == OF_ITS_DIRECTORY);
    now = get_file(path, &count);
    assert_string_equal(now, failing == OF_ITS_DIRECTORY ? "new" : "old");
    free(now);
  }
}

/* The same, as on a file server that goes away. */
static bool servers_gone;
int fstat(int fd, struct stat *info) {
  int (*real)(int, struct stat *);
  void *symbol = dlsym(RTLD_NEXT, "fstat");
  memcpy(&real, &symbol, sizeof real);
  if (!servers_gone) return real(fd, info);
  errno = EIO;
  return -1;
}

/* It is not taken for one that is there and is no regular file: `convert` would make a config.json of its own instead. */
static void test_a_failing_disk_is_no_bad_file(void **state) {
  hr_error error = {0};
  uint64_t bytes;
  int fd;
  hr_status status;
  (void)state;
  servers_gone = true;
  status = hri_file_open_regular(data, &fd, &bytes, &error);
  servers_gone = false;
  assert_int_equal(status, HR_ERROR_IO);
  assert_int_equal(fd, -1);
  assert_non_null(strstr(error.message, data));
  assert_non_null(strstr(error.hint, "dmesg"));
}

/* The same: a file system of the network that lets signals interrupt it. */
static unsigned interruptions;
ssize_t pread(int fd, void *to, size_t count, off_t offset) {
  ssize_t (*real)(int, void *, size_t, off_t);
  void *symbol = dlsym(RTLD_NEXT, "pread");
  memcpy(&real, &symbol, sizeof real);
  if (interruptions == 0) return real(fd, to, count, offset);
  interruptions--;
  errno = EINTR;
  return -1;
}

/* A file is known by its first bytes, and one whose reading was interrupted is still that file. */
static void test_an_interrupted_look_is_made_again(void **state) {
  const char *path = path_of("%s/interrupted", directory);
  (void)state;
  put_text(path, "GGUF and more");
  interruptions = 2;
  assert_true(hri_gguf_is(path));
  assert_int_equal(interruptions, 0);
}

/* What the system refuses has a remedy that can work: permissions are none where a file system cannot be written. */
static void test_refusals_have_their_remedy(void **state) {
  static const struct {
    int number;
    const char *remedy;
  } cases[] = {{EROFS, "name a place elsewhere"}, {EACCES, "check the permissions"}, {ENOENT, "check the path"}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_error error = {0};
    assert_int_equal(hri_fail_errno(&error, cases[i].number, "open", "run/lock"), HR_ERROR_IO);
    assert_non_null(strstr(error.message, "run/lock"));
    assert_non_null(strstr(error.hint, cases[i].remedy));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refusals_have_their_remedy),
      cmocka_unit_test(test_what_is_there_after_an_error_is_told),
      cmocka_unit_test(test_a_failing_disk_is_no_bad_file),
      cmocka_unit_test(test_an_interrupted_look_is_made_again),
      cmocka_unit_test(test_no_special_file_is_waited_for),
      cmocka_unit_test(test_no_special_file_is_written_into_and_waited_for),
      cmocka_unit_test(test_streams_of_the_caller_are_read),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
