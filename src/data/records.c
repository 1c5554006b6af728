#include "data/records.h"

#include <string.h>

#include "base/json_scan.h"

void hri_records_deinit(hri_records *records) {
  hri_free(records->bytes);
  hri_free(records->raw);
  records->bytes = records->raw = NULL;
}

/* ---- one record after the other ---- */

static hr_status keep(hri_records *r, const char *bytes, size_t count, hr_error *error) {
  r->too_long = r->too_long || r->count + count > HRI_RECORD_BYTES;
  if (r->too_long) return HR_OK;
  if (!hri_array_reserve_((void **)&r->bytes, &r->capacity, r->count + count + 1, 1))
    return hri_fail_memory(error, r->count + count + 1, "a row of data");
  memcpy(r->bytes + r->count, bytes, count);
  r->count += count;
  r->bytes[r->count] = 0;
  return HR_OK;
}

static bool is_blank(const hri_records *r) { return r->count == 0 || strspn(r->bytes, " \t\r\n") == r->count; }

static hr_status next_line(hri_records *r, bool *more, hr_error *error) {
  do {
    char *end = NULL;
    r->count = 0;
    r->too_long = false;
    r->record_line = r->line;
    while (!end) {
      end = memchr(r->in->next, '\n', hri_reader_left(r->in));
      HRI_TRY(keep(r, r->in->next, (size_t)((end ? end : r->in->end) - r->in->next), error));
      r->in->next = end ? end + 1 : r->in->end;
      r->line += end != NULL;
      if (!end && r->in->at_end) break;
      if (!end) HRI_TRY(hri_reader_fill(r->in, error));
    }
    *more = r->too_long || !is_blank(r);
    if (!end) return HR_OK;
  } while (!*more);
  return HR_OK;
}

/* The next character that is no blank, not consumed; -1 at the end. */
static hr_status peek(hri_records *r, int *c, hr_error *error) {
  for (;;) {
    for (; r->in->next < r->in->end; r->in->next++) {
      *c = (unsigned char)*r->in->next;
      if (*c != ' ' && *c != '\t' && *c != '\r' && *c != '\n') return HR_OK;
      r->line += *c == '\n';
    }
    *c = -1;
    if (r->in->at_end) return HR_OK;
    HRI_TRY(hri_reader_fill(r->in, error));
  }
}

static hr_status bad_array(const hri_records *r, const char *wanted, hr_error *error) {
  hr_status code =
      hri_fail(error, HR_ERROR_INPUT, "%s:%llu: expected %s", r->in->path, (unsigned long long)r->line, wanted);
  return hri_hint(error, code, "the file must be one JSON array of rows, or one row per line");
}

/* Copies a value up to the end of its outermost bracket, or, without one, up to a comma or bracket. */
static hr_status copy_element(hri_records *r, hr_error *error) {
  bool string = false, escaped = false, done = false;
  uint32_t depth = 0;
  while (!done) {
    char *begin = r->in->next, *at = begin;
    for (; at < r->in->end && !done; at++) {
      char c = *at;
      r->line += c == '\n';
      if (string) {
        string = escaped || c != '"';
        escaped = !escaped && c == '\\';
        continue;
      }
      if ((c == ',' || c == ']' || c == '}') && depth == 0) {
        done = true;
        break;
      }
      string = c == '"';
      depth += c == '{' || c == '[';
      if (c == '}' || c == ']') done = --depth == 0;
    }
    HRI_TRY(keep(r, begin, (size_t)(at - begin), error));
    r->in->next = at;
    if (done) return HR_OK;
    if (r->in->at_end) return bad_array(r, "the rest of a row, found the end of the file", error);
    HRI_TRY(hri_reader_fill(r->in, error));
  }
  return HR_OK;
}

static hr_status next_element(hri_records *r, bool *more, hr_error *error) {
  int c;
  HRI_TRY(peek(r, &c, error));
  *more = false;
  if (!r->started && c != '[') return bad_array(r, "'['", error);
  if (r->started && c != ',' && c != ']') return bad_array(r, "',' or ']' behind a row", error);
  r->in->next++;
  if (c != ']') HRI_TRY(peek(r, &c, error));
  if (c == ']') { /* the end; of an empty array, too */
    if (!r->started) r->in->next++;
    HRI_TRY(peek(r, &c, error));
    return c == -1 ? HR_OK : bad_array(r, "the end of the file behind the array", error);
  }
  r->started = *more = true;
  r->count = 0;
  r->too_long = false;
  r->record_line = r->line;
  return copy_element(r, error);
}

hr_status hri_records_next(hri_records *records, bool *more, hr_error *error) {
  return records->is_array ? next_element(records, more, error) : next_line(records, more, error);
}

hr_status hri_records_keep_raw(hri_records *r, hr_error *error) {
  if (!hri_array_reserve_((void **)&r->raw, &r->raw_capacity, r->count + 1, 1))
    return hri_fail_memory(error, r->count + 1, "a row of data");
  memcpy(r->raw, r->bytes, r->count);
  return HR_OK;
}

/* ---- columns ---- */

static const char *const names[HRI_COLUMN_COUNT] = {
    [HRI_TEXT] = "text",
    [HRI_PROMPT] = "prompt",
    [HRI_COMPLETION] = "completion",
    [HRI_MESSAGES] = "messages",
    [HRI_CONVERSATIONS] = "conversations",
    [HRI_INSTRUCTION] = "instruction",
    [HRI_INPUT] = "input",
    [HRI_OUTPUT] = "output",
    [HRI_SYSTEM] = "system",
    [HRI_HISTORY] = "history",
    [HRI_TOOLS] = "tools",
};

const char *hri_column_name(hri_column column) { return names[column]; }

/* What scanning one record needs. */
typedef struct scanner {
  hri_json_scan scan;
  const char *begin; /* of the record */
  hri_fields *fields;
  hri_wanted wanted;
} scanner;

/* Begins a value: its place in the raw record and its kind; null is missing. */
static hri_slice value_begin(scanner *s, char *kind) {
  *kind = hri_json_scan_peek(&s->scan);
  return (hri_slice){.begin = (size_t)(s->scan.next - s->begin)};
}

static void value_end(const scanner *s, hri_slice *slice) { slice->end = (size_t)(s->scan.next - s->begin); }

static hr_status scan_any(scanner *s, hri_slice *slice, char *kind, hr_error *error) {
  *slice = value_begin(s, kind);
  HRI_TRY(hri_json_scan_skip(&s->scan, error));
  value_end(s, slice);
  return HR_OK;
}

/* "weight": 0 or 1, as OpenAI's fine-tuning has it, also as false or "0". What is neither counts as 1, and is said. */
static hr_status scan_weight(scanner *s, hri_turn *turn, hr_error *error) {
  const char kind = hri_json_scan_peek(&s->scan);
  bool is_integer;
  int64_t integer = 0;
  double real;
  char *text;
  if (kind == '"') {
    HRI_TRY(hri_json_scan_string(&s->scan, &text, error));
    turn->silent |= strcmp(text, "0") == 0;
    turn->weighed |= strcmp(text, "0") != 0 && strcmp(text, "1") != 0;
    return HR_OK;
  }
  if (kind != '-' && (kind < '0' || kind > '9')) {
    turn->silent |= kind == 'f';
    turn->weighed |= kind == '{' || kind == '[';
    return hri_json_scan_skip(&s->scan, error);
  }
  HRI_TRY(hri_json_scan_number(&s->scan, &is_integer, &integer, &real, error));
  if (is_integer) real = (double)integer;
  turn->silent |= real == 0;
  turn->weighed |= real != 0 && real != 1;
  return HR_OK;
}

/* {"role": ..., "content": ...}, or from and value. */
static hr_status scan_message(scanner *s, hri_turn *turn, hr_error *error) {
  bool has_content = false;
  char kind, *key, *role;
  turn->object = value_begin(s, &kind);
  HRI_TRY(hri_json_scan_object(&s->scan, error));
  for (;;) {
    HRI_TRY(hri_json_scan_key(&s->scan, &key, error));
    if (!key) break;
    if (strcmp(key, "role") == 0 || strcmp(key, "from") == 0) {
      turn->sharegpt = key[0] == 'f';
      HRI_TRY(hri_json_scan_string(&s->scan, &role, error));
      turn->role = role;
    } else if (strcmp(key, "content") == 0 || strcmp(key, "value") == 0) {
      HRI_TRY(scan_any(s, &turn->content, &kind, error));
      has_content = true;
    } else if (strcmp(key, "weight") == 0) {
      HRI_TRY(scan_weight(s, turn, error));
    } else if (strcmp(key, "tool_calls") == 0) {
      hri_slice calls;
      HRI_TRY(scan_any(s, &calls, &kind, error));
      turn->calls = memchr(s->begin + calls.begin, '{', calls.end - calls.begin) != NULL; /* no empty list */
    } else if (strcmp(key, "train") == 0) {
      turn->silent |= hri_json_scan_peek(&s->scan) == 'f';
      HRI_TRY(hri_json_scan_skip(&s->scan, error));
    } else {
      HRI_TRY(hri_json_scan_skip(&s->scan, error));
    }
  }
  value_end(s, &turn->object);
  if (!turn->role) return hri_json_scan_fail(&s->scan, error, "a message has no role (or from)");
  if (turn->sharegpt && !has_content) return hri_json_scan_fail(&s->scan, error, "a message has no value");
  return HR_OK;
}

/* ["question", "answer"] */
static hr_status scan_pair(scanner *s, hri_turn *turn, hr_error *error) {
  hri_slice *parts[2] = {&turn->content, &turn->answer};
  bool more;
  HRI_TRY(hri_json_scan_array(&s->scan, error));
  for (int i = 0;; i++) {
    char kind;
    HRI_TRY(hri_json_scan_element(&s->scan, &more, error));
    if (more != (i < 2)) return hri_json_scan_fail(&s->scan, error, "history must hold pairs of question and answer");
    if (!more) return HR_OK;
    HRI_TRY(scan_any(s, parts[i], &kind, error));
    if (kind != '"') return hri_json_scan_fail(&s->scan, error, "history must hold pairs of strings");
  }
}

static hr_status scan_turns(scanner *s, bool pairs, hri_cell *cell, hr_error *error) {
  bool more;
  cell->first_turn = s->fields->turns.count;
  HRI_TRY(hri_json_scan_array(&s->scan, error));
  for (;;) {
    hri_turn turn = {0};
    HRI_TRY(hri_json_scan_element(&s->scan, &more, error));
    if (!more) return HR_OK;
    HRI_TRY(pairs ? scan_pair(s, &turn, error) : scan_message(s, &turn, error));
    if (!hri_array_push(&s->fields->turns, turn)) return hri_fail_memory(error, sizeof turn, "a row of data");
    cell->turn_count++;
  }
}

static hr_status scan_cell(scanner *s, hri_column column, hr_error *error) {
  hri_cell *cell = &s->fields->cells[column];
  bool lists = column == HRI_MESSAGES || column == HRI_CONVERSATIONS || column == HRI_HISTORY || column == HRI_TOOLS;
  bool strings = !lists || column == HRI_TOOLS;
  if (cell->kind) return hri_json_scan_fail(&s->scan, error, "the field '%s' stands twice", names[column]);
  cell->raw = value_begin(s, &cell->kind);
  if (cell->kind == 'n') {
    cell->kind = 0;
    return hri_json_scan_skip(&s->scan, error);
  }
  lists = lists || column == HRI_PROMPT || column == HRI_COMPLETION;
  if (cell->kind == '"' && strings) {
    HRI_TRY(hri_json_scan_string(&s->scan, &cell->text, error));
  } else if (cell->kind == '[' && lists && column != HRI_TOOLS) {
    HRI_TRY(scan_turns(s, column == HRI_HISTORY, cell, error));
  } else if ((cell->kind == '[' || cell->kind == '{') && column == HRI_TOOLS) {
    HRI_TRY(hri_json_scan_skip(&s->scan, error));
  } else {
    return hri_json_scan_fail(&s->scan, error, "field '%s' must be %s", names[column],
                              lists && strings ? "a string or a list of messages"
                              : lists          ? "a list"
                                               : "a string");
  }
  value_end(s, &cell->raw);
  return HR_OK;
}

/* A string; of two the last, as Python reads them. *other: it is something else, which is passed over. */
static hr_status scan_beside(scanner *s, hri_column column, bool *other, hr_error *error) {
  hri_cell *cell = &s->fields->cells[column];
  char kind = hri_json_scan_peek(&s->scan);
  *cell = (hri_cell){0};
  *other = kind != '"' && kind != 'n';
  return *other ? hri_json_scan_skip(&s->scan, error) : scan_cell(s, column, error);
}

static hr_status scan_column(scanner *s, hri_column column, bool *ignored, hr_error *error) {
  const uint32_t bit = 1u << column;
  *ignored = column == HRI_COLUMN_COUNT || !((s->wanted.columns | s->wanted.beside) & bit);
  if (*ignored) return hri_json_scan_skip(&s->scan, error);
  return s->wanted.beside & bit ? scan_beside(s, column, ignored, error) : scan_cell(s, column, error);
}

hr_status hri_fields_read(hri_fields *fields, hri_records *records, hri_wanted wanted,
                          void (*ignore)(void *context, const char *name), void *context, hr_error *error) {
  scanner s = {.scan = hri_json_scan_init(records->bytes, records->count, records->in->path, ""),
               .begin = records->bytes,
               .fields = fields,
               .wanted = wanted};
  s.scan.line = records->record_line;
  memset(fields->cells, 0, sizeof fields->cells);
  fields->turns.count = 0;
  HRI_TRY(hri_json_scan_object(&s.scan, error));
  for (;;) {
    hri_column column = 0;
    bool ignored;
    char *key;
    HRI_TRY(hri_json_scan_key(&s.scan, &key, error));
    if (!key) break;
    while (column < HRI_COLUMN_COUNT && strcmp(key, names[column]) != 0) column++;
    HRI_TRY(scan_column(&s, column, &ignored, error));
    if (ignored) ignore(context, key);
  }
  return hri_json_scan_end(&s.scan, error);
}
