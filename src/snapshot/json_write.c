/* The same layout as JSON, which PyTorch's viewer reads too. JSON has no references: each event repeats its stack, so
 * this is for small snapshots and for other programs. */
#include "base/json.h"
#include "snapshot/layout.h"
#include "snapshot/sink.h"

typedef struct json_layout {
  hri_layout_out out; /* first: the calls get the whole */
  const hr_snapshot *s;
  hri_snapshot_sink *sink;
  hri_text text;
  hri_json_writer writer;
} json_layout;

static json_layout *self(hri_layout_out *out) { return (json_layout *)(void *)out; }

static void flush(json_layout *j) {
  if (j->text.failed) hri_sink_fail(j->sink, hri_fail_memory(j->sink->error, j->text.length, "JSON text"));
  hri_sink_put(j->sink, hri_text_get(&j->text), j->text.length);
  j->text.length = 0;
}

static void begin_map(hri_layout_out *out) { hri_json_begin_object(&self(out)->writer); }
static void end_map(hri_layout_out *out) { hri_json_end_object(&self(out)->writer); }
static void begin_list(hri_layout_out *out) { hri_json_begin_array(&self(out)->writer); }
static void end_list(hri_layout_out *out) { hri_json_end_array(&self(out)->writer); }
static void item(hri_layout_out *out) {
  if (self(out)->text.length >= HRI_SINK_PIECE_BYTES) flush(self(out));
}
static void put_key(hri_layout_out *out, hri_word key) { hri_json_key(&self(out)->writer, hri_word_text(key)); }
static void put_word(hri_layout_out *out, hri_word word) {
  hri_json_put_string(&self(out)->writer, hri_word_text(word));
}
static void put_u64(hri_layout_out *out, uint64_t value) { hri_json_put_u64(&self(out)->writer, value); }
static void put_i64(hri_layout_out *out, int64_t value) { hri_json_put_i64(&self(out)->writer, value); }
static void put_double(hri_layout_out *out, double value) { hri_json_put_double(&self(out)->writer, value); }
static void put_bool(hri_layout_out *out, bool value) { hri_json_put_bool(&self(out)->writer, value); }
static void put_pair(hri_layout_out *out, uint64_t first, uint64_t second) {
  begin_list(out);
  put_u64(out, first);
  put_u64(out, second);
  end_list(out);
}
static void put_string(hri_layout_out *out, uint32_t string) {
  hri_json_put_string(&self(out)->writer, hr_snapshot_string(self(out)->s, string));
}
static bool refer(hri_layout_out *out, hri_shared what, uint32_t index) {
  (void)out, (void)what, (void)index;
  return false;
}
static bool failed(hri_layout_out *out) { return self(out)->text.failed || self(out)->sink->status != HR_OK; }

static const hri_layout_out calls = {begin_map, end_map,  begin_list, item,    end_list,
                                     put_key,   put_word, put_u64,    put_i64, put_double,
                                     put_bool,  put_pair, put_string, refer,   failed};

void hri_layout_put_json(const hr_snapshot *snapshot, hri_snapshot_sink *sink) {
  json_layout j = {.out = calls, .s = snapshot, .sink = sink};
  j.writer = hri_json_writer_init(&j.text, 0);
  hri_layout_walk(snapshot, &j.out);
  hri_text_add_bytes(&j.text, "\n", 1);
  flush(&j);
  hri_text_deinit(&j.text);
}
