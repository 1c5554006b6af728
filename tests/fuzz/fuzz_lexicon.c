/* Tokenizers on their way to GGUF and back (src/convert/lexicon.h). The input is a tokenizer.json, or behind a byte 0 a
 * tokenizer_config.json beside it. What is read is put into a GGUF file, which must be read again to as many tokens, and what
 * comes of that is a directory whose tokenizer opens. Nothing may leak. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <headroom/tokenizer.h>

#include "base/file.h"
#include "convert/lexicon.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char directory[64], made[80], file_path[80];

static void require(bool holds) {
  if (!holds) abort();
}

static void remove_place(void) { (void)hri_dir_remove(directory, NULL); }

static void make_place(void) {
  if (directory[0]) return;
  (void)snprintf(directory, sizeof directory, "%s/lexicon-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  require(mkdtemp(directory) != NULL);
  require(atexit(remove_place) == 0);
  (void)snprintf(made, sizeof made, "%s/made", directory);
  (void)snprintf(file_path, sizeof file_path, "%s/file.gguf", directory);
}

static void put(const char *name, const uint8_t *bytes, size_t count) {
  char path[128];
  FILE *file;
  (void)snprintf(path, sizeof path, "%s/%s", directory, name);
  (void)unlink(path);
  if (!bytes) return;
  file = fopen(path, "w");
  require(file && fwrite(bytes, 1, count, file) == count && fclose(file) == 0);
}

static void require_told(hr_status status, const hr_error *error) {
  require(status == HR_OK || ((status == HR_ERROR_INPUT || status == HR_ERROR_UNSUPPORTED) && error->message[0]));
}

/* The keys as a file without tensors. */
static void write_file(const hri_gguf_keys *keys) {
  hri_gguf_writer *writer;
  hr_error error;
  (void)unlink(file_path);
  require(hri_gguf_writer_open(file_path, keys, NULL, 0, &writer, &error) == HR_OK);
  require(hri_gguf_writer_finish(writer, &error) == HR_OK);
}

static void go_back(uint64_t tokens) {
  hri_lexicon lexicon;
  hri_gguf *file;
  hr_tokenizer *tokenizer;
  hr_error error = {0};
  hr_status status;
  bool found = false;
  require(hri_gguf_open(file_path, &file, &error) == HR_OK);
  hri_lexicon_init(&lexicon);
  status = hri_lexicon_from_gguf(file, &lexicon, &found, &error);
  require_told(status, &error);
  require(found && (status != HR_OK || lexicon.tokens.count == tokens));
  require(hri_dir_remove(made, &error) == HR_OK && mkdir(made, 0755) == 0);
  if (status == HR_OK) {
    require(hri_lexicon_to_directory(&lexicon, made, 1024, &error) == HR_OK);
    require(hr_tokenizer_open(made, &tokenizer, &error) == HR_OK);
    hr_tokenizer_close(tokenizer);
  }
  hri_lexicon_deinit(&lexicon);
  hri_gguf_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
  size_t first = zero ? (size_t)(zero - data) : size;
  uint64_t live = hri_mem_live_bytes();
  hri_lexicon lexicon;
  hr_error error = {0};
  hr_status status;
  bool found = false;
  make_place();
  put("tokenizer.json", size > 0 ? data : (const uint8_t *)"", first);
  put("tokenizer_config.json", zero ? zero + 1 : NULL, zero ? size - first - 1 : 0);
  hri_lexicon_init(&lexicon);
  status = hri_lexicon_from_directory(directory, &lexicon, &found, &error);
  require_told(status, &error);
  if (status == HR_OK && found && lexicon.tokens.count < 1 << 16) {
    hri_gguf_keys keys = {0};
    uint32_t size_in_model = (uint32_t)lexicon.tokens.count + 3;
    require(hri_lexicon_to_gguf(&lexicon, size_in_model, &keys, &error) == HR_OK);
    write_file(&keys);
    hri_gguf_keys_deinit(&keys);
    go_back(size_in_model);
  }
  hri_lexicon_deinit(&lexicon);
  require(hri_mem_live_bytes() == live);
  return 0;
}
