/* The public face: opening whatever holds a tokenizer, and questions about tokens. */
#include <headroom/tokenizer.h>

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "base/file.h"
#include "tokenizer/build.h"
#include "tokenizer/merges.h"
#include "tokenizer/recognize.h"

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* The only file of a directory that ends so, joined to it; NULL when there is none or more than one. */
static char *only_file(const char *directory, const char *end) {
  DIR *stream = opendir(directory);
  struct dirent *entry;
  char *found = NULL;
  bool several = false;
  if (!stream) return NULL;
  while ((entry = readdir(stream))) {
    if (!ends_with(entry->d_name, end)) continue;
    several = several || found;
    hri_free(found);
    found = hri_path_join(directory, entry->d_name);
  }
  (void)closedir(stream);
  if (several) {
    hri_free(found);
    found = NULL;
  }
  return found;
}

/* Merges of a class that is not read stand behind words: opening them says which class it is. */
static char *merges_or_words(const char *directory) {
  char *words = hri_path_join(directory, "vocab.txt");
  bool any_words = words && hri_path_exists(words);
  if (any_words && !hri_merges_known(directory)) return words;
  hri_free(words);
  return any_words || hri_merges_present(directory) ? hri_path_join(directory, "vocab.json") : NULL;
}

/* The file of a directory that holds its tokenizer, owned by the caller; NULL: it has none. A GGUF file stands last, and
 * counts only where that is asked for: beside a model it is another model, converted from that one or the other way round. */
static hr_status find_file(const char *directory, bool gguf_counts, char **path, hr_error *error) {
  static const char *const names[] = {"tokenizer.json", "tokenizer.model", "tekken.json"};
  *path = NULL;
  for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
    *path = hri_path_join(directory, names[i]);
    if (!*path) return hri_fail_memory(error, strlen(directory) + 32, directory);
    if (hri_path_exists(*path)) return HR_OK;
    hri_free(*path);
  }
  *path = only_file(directory, ".tiktoken");
  if (!*path) *path = merges_or_words(directory);
  if (!*path && gguf_counts) *path = only_file(directory, ".gguf");
  return HR_OK;
}

hr_status hri_tokenizer_find(const char *directory, char **path, hr_error *error) {
  return find_file(directory, false, path, error);
}

static hr_status find_to_open(const char *directory, char **path, hr_error *error) {
  hr_status status;
  HRI_TRY(find_file(directory, true, path, error));
  if (*path) return HR_OK;
  status =
      hri_fail(error, HR_ERROR_INPUT,
               "%s holds no tokenizer: no tokenizer.json, tokenizer.model, tekken.json, single *.tiktoken, vocab.json "
               "with merges.txt, vocab.txt or single *.gguf",
               directory);
  return hri_hint(error, status, "copy the tokenizer files of the model into its directory");
}

/* The directory of a file, "." when the path has none. */
static char *directory_of(const char *path) {
  const char *slash = strrchr(path, '/');
  char *directory = hri_strdup(slash ? path : ".");
  if (directory && slash) directory[slash == path ? 1 : slash - path] = 0;
  return directory;
}

static hr_status build_gguf(const char *path, hr_tokenizer *tokenizer, hr_error *error) {
  hri_gguf *file;
  hr_status status;
  HRI_TRY(hri_gguf_open(path, &file, error));
  status = hri_build_from_gguf(file, tokenizer, error);
  hri_gguf_close(file);
  return status;
}

/* A file called vocab.json with merges.txt beside it. */
static bool is_vocab(const char *path, const char *directory) {
  const char *slash = strrchr(path, '/');
  return strcmp(slash ? slash + 1 : path, "vocab.json") == 0 && hri_merges_present(directory);
}

static hr_status build_from_file(const char *path, hr_tokenizer *tokenizer, hr_error *error) {
  hri_tokenizer_kind kind;
  char *directory;
  hr_status status = HR_OK;
  HRI_TRY(hri_tokenizer_recognize(path, &kind, error));
  if (kind == HRI_TOKENIZER_GGUF) return build_gguf(path, tokenizer, error);
  directory = directory_of(path);
  if (!directory) return hri_fail_memory(error, strlen(path) + 1, path);
  if (is_vocab(path, directory)) {
    status = hri_build_from_merges(directory, tokenizer, error);
    hri_free(directory);
    return status;
  }
  switch (kind) {
  case HRI_TOKENIZER_JSON: status = hri_build_from_json(path, tokenizer, error); break;
  case HRI_TOKENIZER_RANKS: status = hri_build_from_tiktoken(path, directory, tokenizer, error); break;
  case HRI_TOKENIZER_SENTENCEPIECE: status = hri_build_from_sentencepiece(path, tokenizer, error); break;
  case HRI_TOKENIZER_WORDS: status = hri_build_from_words(path, directory, tokenizer, error); break;
  case HRI_TOKENIZER_GGUF: break;
  }
  if (status == HR_OK)
    status = hri_build_config(directory, kind != HRI_TOKENIZER_JSON && kind != HRI_TOKENIZER_WORDS, tokenizer, error);
  hri_free(directory);
  return status;
}

hr_status hr_tokenizer_open(const char *path, hr_tokenizer **tokenizer, hr_error *error) {
  char *found = NULL;
  hr_status status;
  if (!path || !tokenizer)
    return hri_fail(error, HR_ERROR_USAGE, "hr_tokenizer_open needs a path and a place for the tokenizer");
  *tokenizer = NULL;
  if (hri_path_is_dir(path)) HRI_TRY(find_to_open(path, &found, error));
  status = hri_build_begin(found ? found : path, tokenizer, error);
  if (status == HR_OK) status = build_from_file(found ? found : path, *tokenizer, error);
  if (status == HR_OK) status = hri_build_finish(*tokenizer, error);
  hri_free(found);
  if (status == HR_OK) return HR_OK;
  hr_tokenizer_close(*tokenizer);
  *tokenizer = NULL;
  return status;
}

/* Of a GGUF file that has none (made without it, or an adapter); of what cannot be read, opening it says why. */
static bool lacks(const char *path) {
  hri_gguf *file;
  bool found;
  if (!hri_gguf_is(path) || hri_gguf_open(path, &file, NULL) != HR_OK) return false;
  found = hri_gguf_has_tokenizer(file);
  hri_gguf_close(file);
  return !found;
}

static bool is_present(const char *path, bool gguf_counts) {
  char *found = NULL;
  struct stat info;
  bool present;
  if (stat(path, &info) != 0)
    return errno != ENOENT && errno != ENOTDIR; /* opening it will say why it cannot be looked at */
  if (!S_ISDIR(info.st_mode)) return !lacks(path);
  present = find_file(path, gguf_counts, &found, NULL) != HR_OK || (found && !lacks(found));
  hri_free(found);
  return present;
}

bool hr_tokenizer_present(const char *path) { return is_present(path, true); }
bool hri_tokenizer_is_models(const char *path) { return is_present(path, false); }

const char *hr_tokenizer_about(const hr_tokenizer *tokenizer) { return tokenizer->about; }

uint32_t hr_tokenizer_size(const hr_tokenizer *tokenizer) { return tokenizer->vocab.size; }

int32_t hr_tokenizer_find(const hr_tokenizer *tokenizer, const char *content) {
  return (int32_t)hri_vocab_find(&tokenizer->vocab, content, strlen(content)); /* none is -1 */
}

const char *hr_tokenizer_token(const hr_tokenizer *tokenizer, int32_t id, uint64_t *bytes) {
  bool has = id >= 0 && hri_vocab_has(&tokenizer->vocab, (uint32_t)id);
  if (bytes) *bytes = has ? tokenizer->vocab.bytes[id] : 0;
  return has ? hri_vocab_content(&tokenizer->vocab, (uint32_t)id) : NULL;
}

bool hr_tokenizer_is_special(const hr_tokenizer *tokenizer, int32_t id) {
  return id >= 0 && hri_vocab_has(&tokenizer->vocab, (uint32_t)id) && (tokenizer->vocab.flags[id] & HRI_TOKEN_SPECIAL);
}

int32_t hr_tokenizer_named(const hr_tokenizer *tokenizer, hr_named_token which) {
  return (uint32_t)which < HR_TOKEN_NAMED_COUNT ? tokenizer->named[which] : -1;
}
