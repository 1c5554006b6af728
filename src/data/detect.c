/* What a file holds: by its name, its first bytes, and for JSON rows the fields of the first one. */
#include "data/source.h"

#include <stdio.h>
#include <string.h>

#include "data/paths.h"
#include "data/unpack.h"

/* ---- the fields of the first rows ---- */

enum { KNOWN_FIELDS = 12, LISTED_BYTES = 160, CHOSEN = 10, REJECTED = 11 };

/* The first that a row has decides. The last two are no format: they tell preference rows apart. */
static const struct {
  const char *name;
  hr_data_format format;
} known[KNOWN_FIELDS] = {
    {"input_ids", HR_DATA_TOKENS},      {"messages", HR_DATA_MESSAGES},      {"conversations", HR_DATA_SHAREGPT},
    {"prompt", HR_DATA_PROMPT},         {"completion", HR_DATA_PROMPT},      {"instruction", HR_DATA_ALPACA},
    {"text", HR_DATA_TEXT_FIELD},       {"labels", HR_DATA_TOKENS},          {"seq_lengths", HR_DATA_TOKENS},
    {"attention_mask", HR_DATA_TOKENS}, [CHOSEN] = {"chosen", HR_DATA_AUTO}, [REJECTED] = {"rejected", HR_DATA_AUTO},
};

typedef struct names {
  uint32_t seen;             /* bit per known field */
  char listed[LISTED_BYTES]; /* all of them, for people */
} names;

/* Rows have the same fields: each name once. */
static bool is_listed(const names *n, const char *name, size_t length) {
  for (const char *at = n->listed; *at;) {
    const size_t bytes = strcspn(at, ",");
    if (bytes == length && memcmp(at, name, length) == 0) return true;
    at += bytes;
    at += strspn(at, ", ");
  }
  return false;
}

static void add_name(names *n, const char *name, size_t length) {
  char plain[LISTED_BYTES];
  const size_t used = strlen(n->listed);
  for (uint32_t k = 0; k < KNOWN_FIELDS; k++)
    if (strlen(known[k].name) == length && memcmp(known[k].name, name, length) == 0) n->seen |= 1u << k;
  if (length >= sizeof plain) return;
  for (size_t i = 0; i < length; i++) plain[i] = name[i] >= 0x20 && name[i] < 0x7F ? name[i] : '?';
  plain[length] = 0;
  if (is_listed(n, plain, length) || used + length + 3 > sizeof n->listed) return;
  (void)snprintf(n->listed + used, sizeof n->listed - used, "%s%.*s", used ? ", " : "", (int)length, plain);
}

static const char *string_end(const char *at, const char *end) {
  for (at++; at < end && *at != '"' && *at != '\n' && *at != 0; at++)
    if (*at == '\\') at++;
  return at < end && *at == '"' ? at : NULL;
}

/* Collects the names of the first object's members, as far as the text or (`lines`) its line goes; leaves behind it.
 * Tolerant: a later reader says what is wrong. Names are strings before a colon at depth 1. */
static const char *collect(const char *at, const char *end, bool lines, names *n) {
  int depth = 0;
  for (; at < end; at++) {
    if (*at == '\n' && lines) return at + 1;
    if (*at == '{' || *at == '[') depth++;
    if ((*at == '}' || *at == ']') && --depth <= 0) return at + 1;
    if (*at == '"') {
      const char *close = string_end(at, end), *after = close ? close + 1 : end;
      while (after < end && strchr(" \t\r\n", *after)) after++;
      if (!close) {
        const char *feed = lines ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        return feed ? feed : end;
      }
      if (depth == 1 && after < end && *after == ':') add_name(n, at + 1, (size_t)(close - at - 1));
      at = close;
    }
  }
  return end;
}

static hr_status unknown_fields(const char *path, const names *n, hr_error *error) {
  hr_status code = hri_fail(error, HR_ERROR_INPUT, "%s: no known fields in its first rows, but: %s", path, n->listed);
  return hri_hint(
      error, code,
      "rows have text; prompt and completion; messages; conversations; instruction and output; or input_ids: "
      "rename the fields, or give --format if they stand behind %d KiB of others",
      HRI_READER_BYTES >> 10);
}

/* Pairs of answers, with nothing else in them that could be learned: a prompt alone is none. */
static bool are_preferences(const names *n) {
  const uint32_t pair = 1u << CHOSEN | 1u << REJECTED;
  if ((n->seen & pair) != pair) return false;
  for (uint32_t k = 0; k < CHOSEN; k++)
    if (n->seen & 1u << k && strcmp(known[k].name, "prompt") != 0) return false;
  return true;
}

static hr_status preferences(const char *path, hr_error *error) {
  hr_status code = hri_fail(
      error, HR_ERROR_INPUT,
      "%s: preference rows, each with a better (chosen) and a worse answer (rejected), as DPO learns from them; Headroom learns from single answers",
      path);
  return hri_hint(
      error, code,
      "to learn the better answers, rename chosen: to messages where it is a list of them, to completion where it is text beside a prompt");
}

static hr_status detect_rows(hri_data_source *source, const char *at, const char *end, hr_error *error) {
  names n = {0};
  source->format = HR_DATA_TOKENS; /* whose reader says best what stands there instead of rows */
  for (int tries = 0; tries < 16 && n.seen == 0; tries++) { /* the first rows may be broken */
    while (at < end && *at != '{') at++;
    if (at == end) break;
    at = collect(at, end, source->container != HRI_JSON_ARRAY, &n);
  }
  if (are_preferences(&n)) return preferences(source->path, error);
  for (uint32_t k = 0; k < CHOSEN; k++) {
    if (!(n.seen & 1u << k)) continue;
    source->format = known[k].format;
    return HR_OK;
  }
  return n.listed[0] ? unknown_fields(source->path, &n, error) : HR_OK;
}

/* ---- the file ---- */

static uint32_t read_u32(const char *at) {
  const unsigned char *b = (const unsigned char *)at;
  return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static hri_container container_of(const char *at, const char *end) {
  if (end - at >= 3 && memcmp(at, "\xEF\xBB\xBF", 3) == 0) at += 3;
  while (at < end && strchr(" \t\r\n", *at)) at++;
  return at < end && *at == '[' ? HRI_JSON_ARRAY : HRI_JSONL;
}

static hr_status packed_bin(const char *path, const char *form, hr_error *error) {
  hr_status code =
      hri_fail(error, HR_ERROR_INPUT, "%s: token bins are read in place, and this one is a %s file", path, form);
  return hri_hint(error, code, "unpack it first");
}

static hr_status rows_as_text(const char *path, const char *form, hr_error *error) {
  hr_status code = hri_fail(error, HR_ERROR_INPUT, "%s: the rows of a %s file are no plain text", path, form);
  return hri_hint(error, code, "leave --format away, or name one of rows, such as text-field");
}

bool hri_data_is_bin(const hri_dataset *dataset, const char *path) {
  static const char *const bin[] = {".bin", NULL};
  hr_data_format format = dataset->options->format;
  return format == HR_DATA_NANOGPT || format == HR_DATA_LLMC || (format == HR_DATA_AUTO && hri_path_ends(path, bin));
}

hr_status hri_data_detect(const hri_dataset *dataset, hri_data_source *source, const hri_reader *reader,
                          hr_error *error) {
  static const char *const json[] = {".jsonl", ".json-lines", ".ndjson", ".json", NULL};
  const char *at = reader->next, *end = reader->end;
  hr_data_format format = dataset->options->format;
  bool is_bin = hri_data_is_bin(dataset, source->path);
  source->format = format;
  source->container = HRI_PLAIN;
  source->unpacked = reader->unpack != NULL;
  if (is_bin && source->unpacked) return packed_bin(source->path, reader->unpack->name, error);
  if (is_bin) {
    uint32_t magic = end - at >= 4 ? read_u32(at) : 0;
    source->container = HRI_BIN;
    if (format == HR_DATA_AUTO)
      source->format = magic == 20240520 || magic == 20240801 ? HR_DATA_LLMC : HR_DATA_NANOGPT;
    return HR_OK;
  }
  HRI_TRY(hri_data_check_foreign(dataset, reader, error));
  if (reader->unpack && reader->unpack->rows) {
    source->container = HRI_PARQUET;
    if (format == HR_DATA_TEXT || format == HR_DATA_LINES)
      return rows_as_text(source->path, reader->unpack->name, error);
    return format == HR_DATA_AUTO ? detect_rows(source, at, end, error) : HR_OK;
  }
  if (format == HR_DATA_TEXT || format == HR_DATA_LINES) return HR_OK;
  if (format == HR_DATA_AUTO && !hri_path_ends(source->path, json)) {
    source->format = HR_DATA_TEXT;
    return HR_OK;
  }
  source->container = container_of(at, end);
  return format == HR_DATA_AUTO ? detect_rows(source, at, end, error) : HR_OK;
}
