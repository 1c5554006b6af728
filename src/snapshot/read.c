#include <string.h>

#include "base/account.h"
#include "snapshot/history_format.h"
#include "snapshot/reader.h"

static const uint64_t default_memory_bytes = 16ull << 30;
enum { LENGTH_PER_MEMORY = 16, HEAD_BYTES = 4096, HEAD_LIMIT = 1 << 20 };

/* ---- which notation ---- */

typedef enum notation { NOTATION_NONE, NOTATION_PICKLE, NOTATION_JSON, NOTATION_HISTORY } notation;

static uint64_t skip_blanks(const unsigned char *p, uint64_t count) {
  uint64_t k = count >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
  while (k < count && (p[k] == ' ' || p[k] == '\t' || p[k] == '\n' || p[k] == '\r')) k++;
  return k;
}

/* Pickles begin with their protocol, or before protocol 2 with the dict or list that a snapshot is. */
static bool begins_pickle(const unsigned char *p, uint64_t count) {
  if (count >= 2 && p[0] == 0x80) return p[1] <= 5;
  if (count >= 4 && p[0] == '(' && (p[1] == 'd' || p[1] == 'l')) return p[2] == 'p' && p[3] >= '0' && p[3] <= '9';
  return count >= 3 && (p[0] == '}' || p[0] == ']') && p[1] == 'q' && p[2] < 2;
}

static notation notation_of(const unsigned char *p, uint64_t count) {
  uint64_t blanks;
  if (begins_pickle(p, count)) return NOTATION_PICKLE;
  if (hri_history_recognise(p, count)) return NOTATION_HISTORY;
  blanks = skip_blanks(p, count);
  if (blanks < count && (p[blanks] == '{' || p[blanks] == '[')) return NOTATION_JSON;
  return NOTATION_NONE;
}

static bool contains(const unsigned char *p, uint64_t count, const char *word) {
  return memmem(p, (size_t)count, word, strlen(word)) != NULL;
}

/* "[[-1, 1, 32768, 0], ...": numbers alone, which no log begins with. */
static bool begins_timeline(const unsigned char *p, uint64_t count) {
  static const char characters[] = "[]0123456789-+.eE, \t\r\n";
  uint64_t k = 0;
  for (; k < count && p[k] && strchr(characters, p[k]); k++) continue;
  return k >= 8 && (k == count || k >= 64) && p[0] == '[' && memchr(p + 1, '[', 7);
}

static bool begins_snapshot(const unsigned char *p, uint64_t count) {
  static const char *const keys[] = {"\"segments\"",    "\"device_traces\"",       "\"total_size\"", "\"action\"",
                                     "\"traceEvents\"", "\"baseTimeNanoseconds\"", "\"ph\""};
  const notation which = notation_of(p, count);
  if (hri_foreign_of(p, count)) return false;
  if (which != NOTATION_JSON) return which != NOTATION_NONE;
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
    if (contains(p, count, keys[k])) return true;
  return begins_timeline(p, count);
}

/* The beginning of the bytes, gzip undone: a first member of 4 KiB tells enough. */
typedef struct head {
  hri_snapshot_source source;
  const unsigned char *bytes;
  uint64_t count; /* 0 when it cannot be read */
} head;

static void head_open(head *h, const void *bytes, uint64_t count) {
  hr_error error;
  *h = (head){0};
  if (hri_snapshot_source_of_memory(&h->source, bytes, count, "", HEAD_LIMIT, &error) != HR_OK) return;
  h->bytes = h->source.next;
  h->count = (uint64_t)(h->source.end - h->source.next);
  if (h->count > HEAD_BYTES) h->count = HEAD_BYTES;
}

/* Members of gzip that are empty, or the beginning of one, and nothing that is damaged: what comes behind them decides. */
static bool tells_nothing(const head *h, uint64_t count) {
  return h->source.gzip && !h->source.end_offset && !h->source.zip.avail_in && count >= HEAD_BYTES;
}

bool hr_snapshot_recognise(const void *bytes, uint64_t count) {
  head h;
  bool yes;
  head_open(&h, bytes, count);
  yes = (h.count && begins_snapshot(h.bytes, h.count)) || tells_nothing(&h, count);
  hri_snapshot_source_close(&h.source);
  return yes;
}

const hr_foreign *hr_snapshot_foreign(const void *bytes, uint64_t count) {
  head h;
  const hr_foreign *found;
  head_open(&h, bytes, count);
  found = h.count ? hri_foreign_of(h.bytes, h.count) : NULL;
  hri_snapshot_source_close(&h.source);
  return found;
}

/* ---- reading ---- */

static hr_status fail_notation(const hri_snapshot_source *source, const hr_foreign *foreign, hr_error *error) {
  hr_status code;
  if (source->next == source->end) {
    code = hri_fail(error, HR_ERROR_INPUT, "%s is empty", source->name);
    return hri_hint(error, code, "take the snapshot anew with torch.cuda.memory._dump_snapshot");
  }
  if (foreign) {
    code = hri_fail(error, HR_ERROR_INPUT, "%s is %s", source->name, foreign->name);
    return hri_hint(error, code, "%s", foreign->hint);
  }
  code = hri_fail(error, HR_ERROR_INPUT,
                  "%s is no memory snapshot: it begins neither like a pickle nor like JSON (first byte 0x%02x)",
                  source->name, (unsigned)*source->next);
  return hri_hint(
      error, code,
      "snapshots come from torch.cuda.memory._dump_snapshot; for the text of an error, use \"headroom explain\"");
}

/* A file of ours: its reader wants it whole. */
static hr_status read_history(hri_snapshot_source *source, const char *name, hr_snapshot **snapshot, hr_error *error) {
  char *bytes;
  uint64_t count;
  HRI_TRY(hri_snapshot_source_whole(source, &bytes, &count, error));
  return hri_history_parse(bytes, count, name, snapshot, error);
}

/* Files that were joined, or one that was opened to append, hold several snapshots, of which the first is the oldest: what is
 * said of it would pass for what is said of the failure. What else stands behind is nobody's snapshot and left alone. */
static hr_status refuse_several(hri_snapshot_source *source, hr_error *error) {
  hr_status code;
  if (hri_snapshot_source_want(source, 2, NULL) != HR_OK || source->end - source->next < 2) return HR_OK;
  if (source->next[0] != 0x80 || source->next[1] < 2 || source->next[1] > 5) return HR_OK;
  code = hri_fail(error, HR_ERROR_INPUT,
                  "%s: byte %llu: behind the end of a pickle another one begins: these are several snapshots",
                  source->name, (unsigned long long)hri_snapshot_source_offset(source));
  return hri_hint(error, code, "give each a file of its own: in Python, pickle.load(file) reads one after the other");
}

static hr_status read_all(hri_snapshot_source *source, const char *name, hr_snapshot **snapshot, hr_error *error) {
  hri_snapshot_decoder d = {0};
  hri_decoded whole = HRI_VALUE_NONE;
  const hr_foreign *foreign;
  hr_status status;
  notation which;
  HRI_TRY(hri_snapshot_source_want(source, HEAD_BYTES, error));
  foreign = hri_foreign_of(source->next, (uint64_t)(source->end - source->next));
  which = notation_of(source->next, (uint64_t)(source->end - source->next));
  if (foreign || which == NOTATION_NONE) return fail_notation(source, foreign, error);
  if (which == NOTATION_HISTORY) return read_history(source, name, snapshot, error);
  HRI_TRY_OUT(hri_snapshot_decoder_init(&d, name, error));
  HRI_TRY_OUT(which == NOTATION_PICKLE ? hri_read_pickle(&d, source, &whole) : hri_read_json(&d, source, &whole));
  d.at = hri_snapshot_source_offset(source);
  if (!d.complete) HRI_TRY_OUT(hri_snapshot_decoder_end(&d, whole, source->end_offset, snapshot));
  if (d.complete) {
    d.builder.snapshot->byte_count = source->end_offset;
    HRI_TRY_OUT(hri_snapshot_build_end(&d.builder, snapshot, error));
  }
  if (which == NOTATION_PICKLE) status = refuse_several(source, error);
  if (status != HR_OK) {
    hr_snapshot_destroy(*snapshot);
    *snapshot = NULL;
  }
out:
  hri_snapshot_decoder_deinit(&d);
  return status;
}

static uint64_t limit_of(const hr_snapshot_limits *limits) {
  return limits && limits->memory_bytes ? limits->memory_bytes : default_memory_bytes;
}

static uint64_t length_limit(uint64_t limit) {
  return limit > UINT64_MAX / LENGTH_PER_MEMORY ? UINT64_MAX : limit * LENGTH_PER_MEMORY;
}

void hr_snapshot_limits_init(hr_snapshot_limits *limits) { *limits = (hr_snapshot_limits){0}; }

hr_status hr_snapshot_read(const char *path, const hr_snapshot_limits *limits, hr_snapshot **snapshot,
                           hr_error *error) {
  const uint64_t limit = limit_of(limits);
  hri_snapshot_source source;
  hri_account account;
  hr_status status;
  *snapshot = NULL;
  hri_account_begin(&account, limit);
  status = hri_snapshot_source_open(&source, path, length_limit(limit), error);
  if (status == HR_OK) status = read_all(&source, path, snapshot, error);
  hri_snapshot_source_close(&source);
  return hri_account_end(&account, status, path, error);
}

hr_status hr_snapshot_parse(const void *bytes, uint64_t count, const char *name, const hr_snapshot_limits *limits,
                            hr_snapshot **snapshot, hr_error *error) {
  const uint64_t limit = limit_of(limits);
  hri_snapshot_source source;
  hri_account account;
  hr_status status;
  *snapshot = NULL;
  hri_account_begin(&account, limit);
  status = hri_snapshot_source_of_memory(&source, bytes, count, name, length_limit(limit), error);
  if (status == HR_OK) status = read_all(&source, name, snapshot, error);
  hri_snapshot_source_close(&source);
  return hri_account_end(&account, status, name, error);
}
