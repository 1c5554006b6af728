/* Runs a fuzz target over stored inputs, without libFuzzer, so that the corpus is part of the ordinary tests:
 * fuzz_replay_X DIRECTORY|FILE ... A property that does not hold aborts; a path without any input is a failure. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned ran;

static int run_file(const char *path) {
  FILE *file = fopen(path, "rb");
  uint8_t *bytes = NULL;
  size_t count;
  long size;
  if (!file) {
    perror(path);
    return 1;
  }
  if (fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0) {
    perror(path);
    fclose(file);
    return 1;
  }
  count = (size_t)size;
  /* exactly as long as the input, so that sanitizers see a step beyond */
  bytes = malloc(count ? count : 1);
  if (!bytes || fread(bytes, 1, count, file) != count) {
    perror(path);
    free(bytes);
    fclose(file);
    return 1;
  }
  fclose(file);
  printf("%s\n", path); /* the last line before a crash names the input */
  fflush(stdout);
  (void)LLVMFuzzerTestOneInput(bytes, count);
  free(bytes);
  ran++;
  return 0;
}

static int run_path(const char *path) {
  struct stat info;
  struct dirent **entries;
  int i, count, failed = 0;
  if (stat(path, &info) != 0) {
    perror(path);
    return 1;
  }
  if (!S_ISDIR(info.st_mode)) return run_file(path);
  count = scandir(path, &entries, NULL, alphasort);
  if (count < 0) {
    perror(path);
    return 1;
  }
  for (i = 0; i < count; i++) {
    char child[4096];
    if (entries[i]->d_name[0] != '.') {
      if (snprintf(child, sizeof child, "%s/%s", path, entries[i]->d_name) >= (int)sizeof child) failed = 1;
      else failed |= run_path(child);
    }
    free(entries[i]);
  }
  free(entries);
  return failed;
}

int main(int count, char **arguments) {
  int i, failed = 0;
  for (i = 1; i < count; i++) {
    unsigned before = ran;
    failed |= run_path(arguments[i]);
    if (ran != before) continue;
    fprintf(stderr, "%s holds no input\n", arguments[i]);
    failed = 1;
  }
  if (count < 2) {
    fprintf(stderr, "usage: %s DIRECTORY|FILE ...\n", arguments[0]);
    return 2;
  }
  printf("%u inputs replayed\n", ran);
  return failed;
}
