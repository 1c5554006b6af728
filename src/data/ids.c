/* JSONL of token ids, one object per line.
 *
 * Lines are scanned as they stream through the reader's buffer and never held: a row of ten million tokens takes no
 * more memory than one of ten. Numbers go straight to the stores; fields may come in any order, so what fields say
 * together (equal lengths, documents, which labels count) is looked at when the line is complete. A line that turns out
 * wrong and is passed over leaves its numbers in the stores, where no document points at them.
 *
 * The grammar is JSON's (RFC 8259); base/json_scan.h cannot be used here, since it wants the text whole. */
#include "data/source.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"

typedef unsigned long long ull; /* for printing */

enum {
  LINE_BYTES = 64 << 20,
  TOKEN_BYTES = 64, /* in the buffer before a number or word is read: more than any valid one has */
  KEY_BYTES = 64,
  DEPTH = 64 /* of values that are passed over */
};

typedef enum field {
  FIELD_IDS = 0,
  FIELD_LABELS,
  FIELD_LENGTHS,
  FIELD_MASK,
  FIELD_POSITIONS,
  FIELD_TYPES,
  FIELD_COUNT
} field;

static const struct {
  const char *name;
  uint32_t fact; /* told to people when present */
} fields[FIELD_COUNT] = {
    [FIELD_IDS] = {"input_ids", 0},
    [FIELD_LABELS] = {"labels", HRI_DATA_HAS_LABELS},
    [FIELD_LENGTHS] = {"seq_lengths", 0},
    [FIELD_MASK] = {"attention_mask", HRI_DATA_IGNORED_MASK},
    [FIELD_POSITIONS] = {"position_ids", HRI_DATA_IGNORED_POSITIONS},
    [FIELD_TYPES] = {"token_type_ids", HRI_DATA_IGNORED_TYPES},
};

typedef struct jsonl {
  hri_dataset *dataset;
  hri_reader *in;
  hri_spool lengths;    /* uint32: seq_lengths of this line */
  uint64_t line;        /* from 1 */
  uint64_t line_begin;  /* offset in the file */
  uint64_t first_token; /* of this line, in the token store */
  uint64_t length_sum;
  uint32_t seen, given; /* bit sets of fields: named in this line; with a list, not null */
  uint64_t count[FIELD_COUNT];
} jsonl;

/* ---- Errors ---- */

static hr_status fail(const jsonl *j, hr_error *error, const char *format, ...) HRI_PRINTF(3, 4);
static hr_status fail(const jsonl *j, hr_error *error, const char *format, ...) {
  char text[400];
  va_list args;
  va_start(args, format);
  (void)hri_vsnprintf(text, sizeof text, format, args);
  va_end(args);
  hri_fail(error, HR_ERROR_INPUT, "%s:%llu: %s", j->in->path, (ull)j->line, text);
  return hri_hint(error, HR_ERROR_INPUT,
                  "each line must be one JSON object like {\"input_ids\": [5, 6, 7], \"labels\": [-100, 6, 7]}");
}

/* Copies printable ASCII up to a delimiter, other bytes as '?'; `out` has `bytes` bytes. */
static void quote(const char *from, const char *end, const char *delimiters, char *out, size_t bytes) {
  size_t i;
  for (i = 0; i + 1 < bytes && from + i < end && !strchr(delimiters, from[i]); i++)
    out[i] = from[i] >= 0x20 && from[i] < 0x7F ? from[i] : '?';
  out[i] = 0;
}

/* Says what stands at the reader's position, in words. */
static const char *found(const jsonl *j, char out[48]) {
  const char *next = j->in->next;
  unsigned char c = (unsigned char)*next;
  if (next == j->in->end) return "the end of the file";
  switch (c) {
  case '\n': return "the end of the line";
  case '"': return "a string";
  case '{': return "an object";
  case '[': return "a list";
  default: break;
  }
  if (c < 0x20 || c >= 0x7F) {
    (void)snprintf(out, 48, "the byte 0x%02x", (unsigned)c);
  } else if (strchr(",:]}", c)) {
    (void)snprintf(out, 48, "'%c'", c);
  } else {
    quote(next, j->in->end, ",:]}[{\" \t\r\n", out, 33);
  }
  return out;
}

static hr_status unexpected(const jsonl *j, const char *wanted, hr_error *error) {
  char text[48];
  return fail(j, error, "expected %s, found %s", wanted, found(j, text));
}

/* ---- Characters ---- */

static hr_status check_line_length(const jsonl *j, hr_error *error) {
  if (hri_reader_position(j->in) - j->line_begin <= LINE_BYTES) return HR_OK;
  (void)fail(j, error, "the line has more than %d MiB", LINE_BYTES >> 20);
  return hri_hint(error, HR_ERROR_INPUT,
                  "write one document or packed row per line; is there a line break after each?");
}

static hr_status refill(jsonl *j, hr_error *error) {
  HRI_TRY(check_line_length(j, error));
  return hri_reader_fill(j->in, error);
}

/* Has the next TOKEN_BYTES in the buffer, or all that is left of the file. A 0 stands behind them. */
static inline hr_status look_ahead(jsonl *j, hr_error *error) {
  return hri_reader_left(j->in) < TOKEN_BYTES && !j->in->at_end ? refill(j, error) : HR_OK;
}

/* Skips blanks, but for the end of the line. *c: what stands next, -1 at the end of the file. */
static inline hr_status peek(jsonl *j, int *c, hr_error *error) {
  hri_reader *in = j->in;
  for (;;) {
    while (in->next < in->end) {
      *c = (unsigned char)*in->next;
      if (*c != ' ' && *c != '\t' && *c != '\r') return HR_OK;
      in->next++;
    }
    *c = -1;
    if (in->at_end) return HR_OK;
    HRI_TRY(refill(j, error));
  }
}

static hr_status expect(jsonl *j, char wanted, const char *name, hr_error *error) {
  int c;
  HRI_TRY(peek(j, &c, error));
  if (c != wanted) return unexpected(j, name, error);
  j->in->next++;
  return HR_OK;
}

/* ---- Integers ---- */

/* What stands where an integer is wanted is none, or one of too many digits. */
static hr_status bad_integer(const jsonl *j, field f, bool too_long, hr_error *error) {
  char text[48];
  const char *what = found(j, text);
  (void)fail(j, error, "field '%s': %s at index %llu is %s", fields[f].name, what, (ull)j->count[f],
             too_long ? "out of range" : "not an integer");
  return hri_hint(error, HR_ERROR_INPUT, "the field must be a list of plain integers like [5, 6, 7]");
}

/* Eighteen digits fit 63 bits and are more than any use here has. */
static inline hr_status scan_integer(jsonl *j, field f, int64_t *value, hr_error *error) {
  char *next, *first;
  int64_t number = 0;
  bool negative;
  HRI_TRY(look_ahead(j, error));
  next = j->in->next;
  negative = *next == '-';
  next += negative;
  for (first = next; *next >= '0' && *next <= '9' && next - first < 18; next++) number = number * 10 + (*next - '0');
  if (next == first || (*first == '0' && next - first > 1)) return bad_integer(j, f, false, error);
  if (*next == '.' || *next == 'e' || *next == 'E') return bad_integer(j, f, false, error);
  if (*next >= '0' && *next <= '9') return bad_integer(j, f, true, error);
  *value = negative ? -number : number;
  j->in->next = next;
  return HR_OK;
}

static hr_status outside(const jsonl *j, field f, int64_t value, hr_error *error) {
  ull vocabulary = (ull)j->dataset->vocabulary;
  const char *name = fields[f].name;
  if (f == FIELD_LENGTHS) {
    (void)fail(j, error, "field '%s': value %lld at index %llu is no number of tokens", name, (long long)value,
               (ull)j->count[f]);
    return hri_hint(error, HR_ERROR_INPUT, "list the number of tokens of each document in the row, each at least 1");
  }
  (void)fail(j, error, "field '%s': value %lld at index %llu is outside the vocabulary [0, %llu)%s", name,
             (long long)value, (ull)j->count[f], vocabulary, f == FIELD_LABELS ? " and not -100" : "");
  return hri_hint(error, HR_ERROR_INPUT,
                  "tokenize the data with this model's tokenizer, or name the model whose tokenizer was used");
}

static inline hr_status take_value(jsonl *j, field f, int64_t value, hr_error *error) {
  hri_dataset *dataset = j->dataset;
  bool in_vocabulary = (uint64_t)value < dataset->vocabulary; /* a negative one is far above */
  uint32_t stored = (uint32_t)value;
  switch (f) {
  case FIELD_IDS:
    if (!in_vocabulary) return outside(j, f, value, error);
    return hri_spool_put(&dataset->tokens, &stored, sizeof stored, error);
  case FIELD_LABELS:
    if (!in_vocabulary && value != HRI_LABEL_IGNORED) return outside(j, f, value, error);
    stored = in_vocabulary ? stored + HRI_STORED_FIRST : HRI_STORED_IGNORED;
    return hri_spool_put(&dataset->labels, &stored, sizeof stored, error);
  case FIELD_LENGTHS:
    if (value < 1 || value > LINE_BYTES) return outside(j, f, value, error);
    j->length_sum += stored;
    return hri_spool_put(&j->lengths, &stored, sizeof stored, error);
  case FIELD_MASK:
    if (value == 0) dataset->found.facts |= HRI_DATA_MASK_ZEROS;
    return HR_OK;
  default: return HR_OK;
  }
}

/* ---- Fields ---- */

static hr_status begin_list(jsonl *j, field f, bool *is_null, hr_error *error) {
  char text[48];
  int c;
  HRI_TRY(peek(j, &c, error));
  HRI_TRY(look_ahead(j, error));
  *is_null = f != FIELD_IDS && strncmp(j->in->next, "null", 4) == 0; /* as good as missing */
  if (*is_null) {
    j->in->next += 4;
    return HR_OK;
  }
  if (c != '[')
    return fail(j, error, "field '%s' must be a list of integers, found %s", fields[f].name, found(j, text));
  j->in->next++;
  j->given |= 1u << f;
  j->dataset->found.facts |= fields[f].fact;
  return f == FIELD_LABELS ? hri_spool_grow(&j->dataset->labels, j->first_token * sizeof(uint32_t), error) : HR_OK;
}

static hr_status scan_list(jsonl *j, field f, hr_error *error) {
  int64_t value = 0;
  bool is_null;
  int c;
  HRI_TRY(begin_list(j, f, &is_null, error));
  if (is_null) return HR_OK;
  HRI_TRY(peek(j, &c, error));
  while (c != ']') {
    HRI_TRY(peek(j, &c, error));
    HRI_TRY(scan_integer(j, f, &value, error));
    HRI_TRY(take_value(j, f, value, error));
    j->count[f]++;
    HRI_TRY(peek(j, &c, error));
    if (c == ',') {
      j->in->next++;
    } else if (c != ']') {
      char text[48];
      return fail(j, error, "field '%s': expected ',' or ']' after index %llu, found %s", fields[f].name,
                  (ull)j->count[f] - 1, found(j, text));
    }
  }
  j->in->next++;
  return HR_OK;
}

/* ---- Values of other fields: checked roughly and passed over ---- */

/* Up to and with the closing quote; the opening one is taken already. */
static hr_status skip_string(jsonl *j, hr_error *error) {
  hri_reader *in = j->in;
  for (;; in->next++) {
    if (in->next == in->end && !in->at_end) HRI_TRY(refill(j, error));
    if (in->next == in->end || *in->next == '\n') return unexpected(j, "the rest of a string", error);
    if (*in->next == '"') break;
    if (*in->next != '\\') continue;
    in->next++; /* whatever is escaped */
    if (in->next == in->end && !in->at_end) HRI_TRY(refill(j, error));
    if (in->next == in->end || *in->next == '\n') return unexpected(j, "the rest of a string", error);
  }
  in->next++;
  return HR_OK;
}

/* A number, true, false, null. */
static hr_status skip_word(jsonl *j, hr_error *error) {
  char *next;
  HRI_TRY(look_ahead(j, error));
  for (next = j->in->next; *next && strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", *next); next++) continue;
  if (next == j->in->next) return unexpected(j, "a value", error);
  j->in->next = next;
  return HR_OK;
}

static hr_status skip_value(jsonl *j, uint32_t depth, hr_error *error) {
  char close;
  int c;
  HRI_TRY(peek(j, &c, error));
  if (c == '"') {
    j->in->next++;
    return skip_string(j, error);
  }
  if (c != '[' && c != '{') return skip_word(j, error);
  if (depth == DEPTH) return fail(j, error, "values are nested deeper than %d levels", DEPTH);
  close = c == '[' ? ']' : '}';
  j->in->next++;
  HRI_TRY(peek(j, &c, error));
  while (c != close) {
    if (close == '}') {
      HRI_TRY(expect(j, '"', "a field name in quotes", error));
      HRI_TRY(skip_string(j, error));
      HRI_TRY(expect(j, ':', "':'", error));
    }
    HRI_TRY(skip_value(j, depth + 1, error));
    HRI_TRY(peek(j, &c, error));
    if (c == ',') j->in->next++;
    else if (c != close) return unexpected(j, close == ']' ? "',' or ']'" : "',' or '}'", error);
  }
  j->in->next++;
  return HR_OK;
}

/* A field's name in quotes. Names with escapes or of more than KEY_BYTES are none of ours: FIELD_COUNT. */
static hr_status scan_name(jsonl *j, field *f, hr_error *error) {
  char name[KEY_BYTES];
  const char *begin, *end;
  int c;
  HRI_TRY(peek(j, &c, error));
  if (c != '"') return unexpected(j, "a field name in quotes", error);
  j->in->next++;
  HRI_TRY(look_ahead(j, error));
  begin = j->in->next;
  quote(begin, j->in->end, "\"\n", name, sizeof name);
  end = begin + strlen(name);
  if (*end == '\n' || (*end == 0 && strlen(name) + 1 < sizeof name))
    return fail(j, error, "the field name '%s' does not end", name);
  for (*f = 0; *f < FIELD_COUNT; ++*f)
    if (strcmp(name, fields[*f].name) == 0) break;
  if (*f == FIELD_COUNT || *end != '"') {
    *f = FIELD_COUNT;
    hri_data_ignore(j->dataset, name);
    return skip_string(j, error);
  }
  if (j->seen & 1u << *f) return fail(j, error, "the field '%s' stands twice", name);
  j->seen |= 1u << *f;
  j->in->next += end + 1 - begin;
  return HR_OK;
}

static hr_status scan_object(jsonl *j, hr_error *error) {
  field f = FIELD_IDS;
  int c;
  HRI_TRY(expect(j, '{', "an object", error));
  HRI_TRY(peek(j, &c, error));
  while (c != '}') {
    HRI_TRY(scan_name(j, &f, error));
    HRI_TRY(expect(j, ':', "':'", error));
    HRI_TRY(f == FIELD_COUNT ? skip_value(j, 0, error) : scan_list(j, f, error));
    HRI_TRY(peek(j, &c, error));
    if (c == ',') j->in->next++;
    else if (c != '}') return unexpected(j, "',' or '}'", error);
  }
  j->in->next++;
  HRI_TRY(peek(j, &c, error));
  if (c != '\n' && c != -1) return unexpected(j, "the end of the line", error);
  return check_line_length(j, error);
}

/* ---- Rows ---- */

static hr_status check_fields(const jsonl *j, hr_error *error) {
  ull count = (ull)j->count[FIELD_IDS];
  if (!(j->given & 1u << FIELD_IDS)) return fail(j, error, "the field 'input_ids' is missing");
  if (j->given & 1u << FIELD_LABELS && j->count[FIELD_LABELS] != j->count[FIELD_IDS]) {
    (void)fail(j, error, "field 'labels' has %llu values, 'input_ids' has %llu", (ull)j->count[FIELD_LABELS], count);
    return hri_hint(error, HR_ERROR_INPUT, "give one label per token, not shifted; -100 where none counts");
  }
  if (j->given & 1u << FIELD_LENGTHS && j->length_sum != j->count[FIELD_IDS]) {
    (void)fail(j, error, "field 'seq_lengths' adds up to %llu, 'input_ids' has %llu values", (ull)j->length_sum, count);
    return hri_hint(error, HR_ERROR_INPUT,
                    "list the number of tokens of each document in the row; together they are all of it");
  }
  return HR_OK;
}

/* How many of `count` labels from element `first` of the store are not ignored. */
static hr_status count_labels(const hri_dataset *dataset, uint64_t first, uint64_t count, uint64_t *total,
                              hr_error *error) {
  uint32_t stored[512];
  while (count > 0) {
    size_t part = count < 512 ? (size_t)count : 512, i;
    HRI_TRY(hri_spool_read(&dataset->labels, first * sizeof *stored, stored, part * sizeof *stored, error));
    for (i = 0; i < part; i++) *total += stored[i] != HRI_STORED_IGNORED;
    first += part;
    count -= part;
  }
  return HR_OK;
}

static hr_status add_document(jsonl *j, uint64_t place, uint64_t count, uint32_t flags, hr_error *error) {
  hri_document document = {.place = place,
                           .length = count,
                           .source = j->dataset->current,
                           .flags = flags,
                           .line = j->line};
  uint64_t labels = count - 1;
  if (j->given & 1u << FIELD_LABELS) {
    document.flags |= HRI_DOCUMENT_LABELS;
    labels = 0;
    HRI_TRY(count_labels(j->dataset, place + 1, count - 1, &labels, error));
  }
  return hri_data_add_document(j->dataset, document, labels, error);
}

static hr_status add_packed_row(jsonl *j, hr_error *error) {
  uint64_t place = j->first_token, i;
  uint32_t length;
  for (i = 0; i < j->count[FIELD_LENGTHS]; i++, place += length) {
    HRI_TRY(hri_spool_read(&j->lengths, i * sizeof length, &length, sizeof length, error));
    HRI_TRY(add_document(j, place, length, i == 0 ? HRI_DOCUMENT_ROW : HRI_DOCUMENT_SAME_ROW, error));
  }
  return HR_OK;
}

static hr_status add_line(jsonl *j, hr_error *error) {
  HRI_TRY(check_fields(j, error));
  if (j->count[FIELD_IDS] == 0) {
    j->dataset->found.facts |= HRI_DATA_EMPTY_ROW;
    j->dataset->found.empty_count++;
    return HR_OK;
  }
  if (j->given & 1u << FIELD_LENGTHS) return add_packed_row(j, error);
  return add_document(j, j->first_token, j->count[FIELD_IDS], 0, error);
}

static void begin_line(jsonl *j) {
  j->line++;
  j->line_begin = hri_reader_position(j->in);
  j->first_token = hri_data_store_count(j->dataset);
  j->seen = j->given = 0;
  j->length_sum = 0;
  memset(j->count, 0, sizeof j->count);
  hri_spool_rewind(&j->lengths);
}

static hr_status read_row(jsonl *j, hr_error *error) {
  HRI_TRY(scan_object(j, error));
  return add_line(j, error);
}

/* The rest of a line that was left in the middle. */
static hr_status skip_line(jsonl *j, hr_error *error) {
  hri_reader *in = j->in;
  for (;;) {
    char *end = memchr(in->next, '\n', hri_reader_left(in));
    in->next = end ? end : in->end;
    if (end || in->at_end) return hri_data_mend(j->dataset, error);
    HRI_TRY(hri_reader_fill(in, error));
  }
}

static hr_status read_lines(jsonl *j, hr_error *error) {
  int c;
  for (;;) {
    begin_line(j);
    HRI_TRY(peek(j, &c, error));
    if (c == -1) return HR_OK;
    HRI_TRY(hri_data_go_on(j->dataset, error));
    if (c != '\n') { /* empty lines are passed over */
      hr_error reason = {0};
      hr_status status = read_row(j, &reason);
      if (status != HR_OK) {
        HRI_TRY(hri_data_broken(j->dataset, status, &reason, error));
        HRI_TRY(skip_line(j, error));
      }
    }
    if (j->in->next < j->in->end) j->in->next++;
  }
}

hr_status hri_data_read_ids(hri_dataset *dataset, hri_reader *reader, hr_error *error) {
  jsonl j = {.dataset = dataset, .in = reader, .lengths = hri_spool_init(dataset->directory)};
  hr_status status = read_lines(&j, error);
  hri_spool_deinit(&j.lengths);
  return status;
}

hr_status hri_data_read_ids_record(hri_dataset *dataset, const char *path, char *bytes, size_t count, uint64_t line,
                                   hr_error *error) {
  hri_reader memory = hri_reader_memory(path, bytes, count);
  jsonl j = {.dataset = dataset, .in = &memory, .lengths = hri_spool_init(dataset->directory)};
  hr_status status;
  begin_line(&j);
  j.line = line;
  status = read_row(&j, error);
  hri_spool_deinit(&j.lengths);
  return status;
}
