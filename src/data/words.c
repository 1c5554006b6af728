#include "data/words.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "data/reader.h"
#include "formats/gguf.h"
#include "tokenizer/merges.h"
#include "tokenizer/recognize.h"

enum {
  IDENTITY_BYTES = 64 << 20,
  CONFIG_BYTES = 64 << 20
}; /* of a file: all of a tokenizer, the head of a GGUF file, which has tokenizer and template */

static bool ends_with(const char *name, const char *end) {
  size_t length = strlen(name), tail = strlen(end);
  return length > tail && strcmp(name + length - tail, end) == 0;
}

static hr_status digest_file(hri_digest *digest, const char *path, hr_error *error) {
  hri_digest unused = {0};
  hri_reader reader;
  hr_status status = hri_reader_open(&reader, path, &unused, error);
  hri_digest_add_u64(digest, reader.stamp.bytes);
  while (status == HR_OK) {
    hri_digest_add(digest, reader.next, hri_reader_left(&reader));
    reader.next = reader.end;
    if (reader.at_end || reader.offset >= IDENTITY_BYTES) break;
    status = hri_reader_fill(&reader, error);
  }
  hri_reader_close(&reader);
  return status;
}

/* What a directory has. */
typedef struct findings {
  bool tokenizer; /* any; at first one that is read before vocab.json and merges.txt */
  bool ranks;     /* which are one */
  bool words;     /* vocab.txt */
  bool chat;
} findings;

/* The files of a directory that decide; `found` tells what was there. */
static hr_status digest_directory(hri_digest *digest, const char *directory, findings *found, hr_error *error) {
  static const char *const names[] = {"tokenizer.json",        "tokenizer.model",
                                      "tokenizer_config.json", "special_tokens_map.json",
                                      "chat_template.jinja",   "added_tokens.json",
                                      "tekken.json",           "vocab.txt"};
  for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *path = hri_path_join(directory, names[i]);
    hr_status status = HR_OK;
    if (!path) return hri_fail_memory(error, strlen(directory) + 32, "the tokenizer's files");
    if (hri_path_exists(path)) {
      hri_digest_add_u64(digest, i + 1);
      status = digest_file(digest, path, error);
      found->tokenizer = found->tokenizer || i < 2 || i == 6;
      found->words = found->words || i == 7;
      found->chat = found->chat || i == 2 || i == 4;
    }
    hri_free(path);
    HRI_TRY(status);
  }
  return HR_OK;
}

static hr_status digest_tiktoken(hri_digest *digest, const char *directory, findings *found, hr_error *error) {
  DIR *list = opendir(directory);
  hr_status status = list ? HR_OK : hri_fail_errno(error, errno, "open directory", directory);
  for (const char *name;
       list && status == HR_OK && (status = hri_dir_next(list, directory, &name, error)) == HR_OK && name;) {
    char *path;
    if (!ends_with(name, ".tiktoken")) continue;
    path = hri_path_join(directory, name);
    status = path ? digest_file(digest, path, error)
                  : hri_fail_memory(error, strlen(directory) + 32, "the tokenizer's files");
    hri_free(path);
    found->tokenizer = found->ranks = true;
  }
  if (list) closedir(list);
  return status;
}

/* vocab.json and merges.txt lie beside many a tokenizer.json, and decide only where they are the tokenizer themselves. */
static hr_status digest_merges(hri_digest *digest, const char *directory, findings *found, hr_error *error) {
  char *merges, *vocab;
  hr_status status;
  if (found->tokenizer || !(found->words ? hri_merges_known(directory) : hri_merges_present(directory))) return HR_OK;
  merges = hri_path_join(directory, "merges.txt");
  vocab = hri_path_join(directory, "vocab.json");
  status = merges && vocab ? HR_OK : hri_fail_memory(error, strlen(directory) + 32, "the tokenizer's files");
  hri_digest_add_u64(digest, 9);
  if (status == HR_OK) status = digest_file(digest, vocab, error);
  hri_digest_add_u64(digest, 10);
  if (status == HR_OK) status = digest_file(digest, merges, error);
  hri_free(merges);
  hri_free(vocab);
  found->tokenizer = true;
  return status;
}

/* Whether a directory without a tokenizer was saved with one. What cannot be read says nothing here. */
static bool means_one(const char *directory) {
  char *path = hri_path_join(directory, "tokenizer_config.json");
  hri_json config = {0};
  const char *class = NULL;
  bool means = path && hri_path_exists(path) && hri_json_read(path, CONFIG_BYTES, &config, NULL) == HR_OK &&
               hri_json_get_string(&config, "tokenizer_class", &class, NULL) == HR_OK;
  hri_json_deinit(&config);
  hri_free(path);
  return means;
}

/* What hri_tokenizer_is_models goes by: a GGUF file inside of the directory is another model. */
static hr_status digest_place(hri_digest *digest, const char *place, findings *found, hr_error *error) {
  HRI_TRY(digest_directory(digest, place, found, error));
  HRI_TRY(digest_tiktoken(digest, place, found, error));
  HRI_TRY(digest_merges(digest, place, found, error));
  found->tokenizer = found->tokenizer || found->words;
  return HR_OK;
}

static hr_status open_model(hri_words *words, hri_digest *digest, const char *place, hr_error *error) {
  findings found = {0};
  struct stat info;
  if (stat(place, &info) != 0) {
    if (errno != ENOENT)
      return hri_fail_errno(error, errno, "look at", place); /* not to be taken for a model without a tokenizer */
  } else if (S_ISDIR(info.st_mode)) {
    HRI_TRY(digest_place(digest, place, &found, error));
    if (!found.tokenizer && means_one(place)) words->lacking = place;
  } else if (hri_gguf_is(place)) {
    HRI_TRY(digest_file(digest, place, error));
    found.tokenizer = found.chat = hr_tokenizer_present(place);
  }
  if (found.chat) words->chat = place;
  if (found.tokenizer) HRI_TRY(hr_tokenizer_open(place, &words->tokenizer, error));
  /* what stands behind ranks may be config.json's to say, of which nothing else counts here */
  if (found.ranks) hri_digest_add_u64(digest, hr_tokenizer_size(words->tokenizer));
  return HR_OK;
}

/* The bytes behind a name; a preset has none. */
static hr_status digest_template(hri_digest *digest, const char *path, hr_error *error) {
  findings ignored = {0};
  if (hri_path_is_dir(path)) return digest_directory(digest, path, &ignored, error);
  return hri_path_exists(path) ? digest_file(digest, path, error) : HR_OK;
}

/* The directory or file that a model's tokenizer and chat template are looked for in. */
static hr_status find_place(const hr_model *model, const char *tokenizer, const char **place, hr_error *error) {
  *place = tokenizer ? tokenizer : model->directory;
  if (!tokenizer) return HR_OK;
  if (model->directory[0] && strcmp(tokenizer, model->directory) != 0 && hri_tokenizer_is_models(model->directory)) {
    hri_fail(error, HR_ERROR_USAGE, "--tokenizer %s: %s has a tokenizer of its own", tokenizer, model->directory);
    return hri_hint(error, HR_ERROR_USAGE, "leave --tokenizer out: its weights were made for that one");
  }
  if ((hri_path_is_dir(tokenizer) || hri_gguf_is(tokenizer)) && hri_tokenizer_is_models(tokenizer)) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--tokenizer %s: there is no tokenizer", tokenizer);
  return hri_hint(
      error, HR_ERROR_USAGE,
      "name a directory with tokenizer.json, tokenizer.model, a *.tiktoken file or vocab.json and merges.txt, "
      "or a GGUF file by its own name");
}

hr_status hr_data_tokenizer(const hr_model *model, const char *tokenizer, const char **place, hr_error *error) {
  HRI_TRY(find_place(model, tokenizer, place, error));
  if (!hri_tokenizer_is_models(*place)) *place = "";
  return HR_OK;
}

hr_status hri_words_open(hri_words *words, const hr_model *model, const hr_data_options *options, hr_error *error) {
  const char *chat_template = options->chat_template, *place;
  hri_digest digest = {0};
  *words = (hri_words){0};
  HRI_TRY(find_place(model, options->tokenizer, &place, error));
  if (place[0]) HRI_TRY(open_model(words, &digest, place, error));
  if (chat_template) {
    words->chat = chat_template;
    words->chat_given = true;
    hri_digest_add(&digest, chat_template, strlen(chat_template));
    HRI_TRY(digest_template(&digest, chat_template, error));
  }
  words->identity = hri_digest_value(&digest);
  return HR_OK;
}

void hri_words_close(hri_words *words) {
  hr_tokenizer_close(words->tokenizer);
  words->tokenizer = NULL;
}

hri_dataset_options hri_words_options(const hri_words *words, const hr_model *model, const hr_data_options *options) {
  hri_dataset_options made = {
      .format = options->format,
      .separator = options->document_separator,
      .vocabulary = model->vocabulary_size,
      .eos_token = model->eos_token,
      .truncate = options->truncate,
      .loss = options->loss,
      .skip_bad = options->skip_bad,
      .tokenizer = words->tokenizer,
      .lacking = words->lacking,
      .chat = words->chat,
      .chat_given = words->chat_given,
      .identity = words->identity,
      .store_directory = options->cache_directory,
      .on_note = options->on_note,
      .note_context = options->context,
  };
  return made;
}
