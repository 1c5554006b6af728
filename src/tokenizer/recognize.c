/* Looks at the beginning of a file, decides, and refuses by name what it knows to be something else (a pointer of Git
 * LFS, an archive, merges alone). It opens nothing for the readers, which check the whole for themselves. */
#include "tokenizer/recognize.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rows.h"
#include "base/utf8.h"
#include "tokenizer/build.h"

enum { HEAD_BYTES = 4096 };

static bool begins(const char *bytes, uint64_t count, const char *with, uint64_t length) {
  return count >= length && memcmp(bytes, with, length) == 0;
}

/* Control characters are no text; those of white space are. */
static bool is_text(const char *bytes, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    unsigned char c = (unsigned char)bytes[i];
    if (c < 0x20 && !(c >= '\t' && c <= '\r')) return false;
  }
  return true;
}

static bool is_base64(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/' || c == '=';
}

/* Whether the first line is base64, a blank and a number. A word and a number might stand in other files too, but no
 * file of words has blanks. */
static bool is_rank_line(const char *bytes, uint64_t count) {
  uint64_t at = 0, digits = 0;
  while (at < count && is_base64(bytes[at])) at++;
  if (at == 0 || at % 4 != 0 || at == count || bytes[at] != ' ') return false;
  for (at++; at < count && bytes[at] >= '0' && bytes[at] <= '9'; at++) digits++;
  return digits > 0 && (at == count || bytes[at] == '\n' || bytes[at] == '\r');
}

/* A vocabulary of words may begin with a bracket too: "[PAD]", alone in its line. */
static bool begins_json(const char *text, uint64_t count) {
  const char *end = count ? memchr(text, '\n', count) : NULL;
  if (count == 0 || (text[0] != '{' && text[0] != '[')) return false;
  if (end && end > text && end[-1] == '\r') end--;
  return !(text[0] == '[' && end && end - text > 2 && end[-1] == ']' && !memchr(text, '"', (size_t)(end - text)));
}

static hr_status refuse(const char *path, const char *what, const char *remedy, hr_error *error) {
  hr_status status = hri_fail(error, HR_ERROR_INPUT, "%s: %s", path, what);
  return hri_hint(error, status, "%s", remedy);
}

/* Files that are often met in the place of a tokenizer. */
static hr_status refuse_others(const char *path, const char *bytes, uint64_t count, hr_error *error) {
  if (count == 0) return refuse(path, "the file is empty", "fetch it again", error);
  if (begins(bytes, count, "version https://git-lfs", 23))
    return refuse(path, "a Git LFS pointer stands in the place of the file",
                  "fetch the file itself: git lfs pull, or a download tool of the hub", error);
  if (begins(bytes, count, "#version", 8))
    return refuse(path, "these are the merges of a BPE tokenizer without its vocabulary",
                  "use the tokenizer.json of the model", error);
  if (begins(bytes, count, "PK\x03\x04", 4) || begins(bytes, count, "\x1F\x8B", 2) ||
      begins(bytes, count, "\x80\x02", 2))
    return refuse(path, "an archive or a pickle is no tokenizer", "unpack it, and name the file with the tokenizer",
                  error);
  if (hri_rows_begin(bytes, count)) return refuse(path, HRI_ROWS_ARE " are no tokenizer", HRI_ROWS_HINT, error);
  return HR_OK;
}

hr_status hri_tokenizer_recognize_bytes(const char *path, const char *bytes, uint64_t count, hri_tokenizer_kind *kind,
                                        hr_error *error) {
  uint64_t at = hri_utf8_mark(bytes, count);
  HRI_TRY(refuse_others(path, bytes, count, error));
  *kind = HRI_TOKENIZER_GGUF;
  if (begins(bytes, count, "GGUF", 4)) return HR_OK;
  *kind = HRI_TOKENIZER_SENTENCEPIECE;
  if (!is_text(bytes, count)) return HR_OK;
  while (at < count && (bytes[at] == ' ' || (bytes[at] >= '\t' && bytes[at] <= '\r'))) at++;
  *kind = begins_json(bytes + at, count - at)    ? HRI_TOKENIZER_JSON
          : is_rank_line(bytes + at, count - at) ? HRI_TOKENIZER_RANKS
                                                 : HRI_TOKENIZER_WORDS;
  return HR_OK;
}

hr_status hri_tokenizer_recognize(const char *path, hri_tokenizer_kind *kind, hr_error *error) {
  char head[HEAD_BYTES];
  uint64_t bytes;
  hr_status status;
  int fd;
  HRI_TRY(hri_file_open_regular(path, &fd, &bytes, error));
  if (bytes > sizeof head) bytes = sizeof head;
  status = hri_file_pread(fd, path, head, bytes, 0, error);
  (void)close(fd);
  HRI_TRY(status);
  return hri_tokenizer_recognize_bytes(path, head, bytes, kind, error);
}

/* ---- Tekken's JSON ---- */

/* Behind the string that begins at `at` with its quote. */
static const char *behind_string(const char *at, const char *end) {
  for (at++; at < end && *at != '"'; at++)
    if (*at == '\\') at++;
  return at < end ? at + 1 : end;
}

static bool is_key(const char *at, const char *behind, const char *key) {
  size_t length = strlen(key);
  return (size_t)(behind - at) == length + 2 && memcmp(at + 1, key, length) == 0;
}

/* By the first key of the outermost object that only one of the two kinds has. Nothing is decoded: whoever reads the
 * file does that in place. */
bool hri_tekken_is(const char *bytes, uint64_t count) {
  static const char *const theirs[] = {"config", "special_tokens"};
  static const char *const others[] = {"model",          "added_tokens", "normalizer", "pre_tokenizer",
                                       "post_processor", "decoder",      "truncation", "padding"};
  const char *end = bytes + count;
  uint32_t depth = 0;
  for (const char *at = bytes; at < end;) {
    const char *behind;
    if (*at == '{' || *at == '[') depth++;
    else if ((*at == '}' || *at == ']') && depth > 0) depth--;
    if (*at != '"') {
      at++;
      continue;
    }
    behind = behind_string(at, end);
    for (size_t i = 0; depth == 1 && i < sizeof others / sizeof *others; i++)
      if (is_key(at, behind, others[i])) return false;
    for (size_t i = 0; depth == 1 && i < sizeof theirs / sizeof *theirs; i++)
      if (is_key(at, behind, theirs[i])) return true;
    at = behind;
  }
  return false;
}
