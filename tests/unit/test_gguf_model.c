/* Descriptions of models in GGUF files: what keys of others mean, what is refused, what is listed as not understood; and
 * that whatever is written is read again as the same model, or refused while it is written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <headroom/tokenizer.h>

#include "support/gguf_model.h"
#include "support/random_family.h"
#include "support/scratch.h"

static const char *work;

static uint32_t plain(void *context, const hri_param_spec *spec, uint32_t k) {
  (void)context, (void)spec, (void)k;
  return HRI_GGML_F32;
}

static void preset(hr_model *m, const char *name) {
  hr_error error = {0};
  if (hr_model_open(name, m, &error) != HR_OK) fail_msg("%s", error.message);
}

/* A file of a model with more keys, as `more` puts them, opened again. */
typedef void (*more_keys)(hri_gguf_keys *keys);
static hr_status open_with(const char *name, more_keys more, hr_model *m, hr_error *error) {
  const char *path = path_of("%s/more.gguf", work);
  hri_gguf_keys keys = {{0}, 0};
  hr_status status;
  memset(error, 0, sizeof *error);
  preset(m, name);
  (void)remove(path);
  status = hri_gguf_put_model(&keys, m, 0, error);
  if (status == HR_OK && more) more(&keys);
  if (status == HR_OK) status = gguf_keys_write(path, &keys, m, 5, plain, NULL, error);
  if (status == HR_OK) status = hr_model_open(path, m, error);
  hri_gguf_keys_deinit(&keys);
  return status;
}

static void text(hri_gguf_keys *keys, const char *key, const char *value) {
  hri_gguf_put_string(keys, key, value, strlen(value));
}

/* ---- scaling of RoPE ---- */

#define LLAMA "custom:layers=2,hidden=16,heads=2,family=llama"

static void factor_alone(hri_gguf_keys *k) { hri_gguf_put_f32(k, "llama.rope.scaling.factor", 4); }
static void older_factor(hri_gguf_keys *k) { hri_gguf_put_f32(k, "llama.rope.scale_linear", 2); }
static void factor_of_one(hri_gguf_keys *k) { hri_gguf_put_f32(k, "llama.rope.scaling.factor", 1); }
static void factor_of_none(hri_gguf_keys *k) {
  factor_alone(k);
  text(k, "llama.rope.scaling.type", "none");
}
static void type_alone(hri_gguf_keys *k) { text(k, "llama.rope.scaling.type", "linear"); }
static void yarn_factor(hri_gguf_keys *k) {
  factor_alone(k);
  text(k, "llama.rope.scaling.type", "yarn");
}

/* As llama.cpp: a factor whose type is not said divides positions. */
static void a_factor_without_a_type_is_linear(void **state) {
  static const struct {
    more_keys more;
    hr_rope_scaling scaling;
    double factor;
  } rows[] = {{NULL, HR_ROPE_DEFAULT, 1},           {factor_alone, HR_ROPE_LINEAR, 4},
              {older_factor, HR_ROPE_LINEAR, 2},    {factor_of_one, HR_ROPE_DEFAULT, 1},
              {factor_of_none, HR_ROPE_DEFAULT, 1}, {type_alone, HR_ROPE_DEFAULT, 1},
              {yarn_factor, HR_ROPE_YARN, 4}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    hr_model m;
    hr_error error;
    if (open_with(LLAMA, rows[i].more, &m, &error) != HR_OK) fail_msg("row %zu: %s", i, error.message);
    assert_int_equal(m.rope.scaling, rows[i].scaling);
    if (rows[i].scaling != HR_ROPE_DEFAULT) assert_true(m.rope.factor == rows[i].factor);
    assert_string_equal(m.unread_keys, "");
  }
}

/* llama.cpp computes with both, which no configuration says. */
static void a_factor_beside_divisors_is_refused(void **state) {
  const char *path = path_of("%s/both.gguf", work);
  float ones[4] = {1, 1, 1, 8};
  hri_gguf_tensor list[64];
  hri_gguf_keys keys = {{0}, 0};
  hri_gguf_writer *writer;
  hr_model m;
  hr_error error = {0};
  gguf_tensors t;
  gguf_random r = {3, 0};
  (void)state;
  preset(&m, LLAMA);
  t = gguf_list(&m, plain, NULL);
  assert_true(t.count < 63);
  memcpy(list, t.list, t.count * sizeof *list);
  list[t.count] = (hri_gguf_tensor){.name = "rope_freqs.weight", .type = HRI_GGML_F32, .rank = 1, .dims = {4, 1, 1, 1}};
  assert_int_equal(hri_gguf_put_model(&keys, &m, 0, &error), HR_OK);
  factor_alone(&keys);
  assert_int_equal(hri_gguf_writer_open(path, &keys, list, t.count + 1, &writer, &error), HR_OK);
  assert_int_equal(gguf_write_values(writer, &t, &r, &error), HR_OK);
  assert_int_equal(hri_gguf_writer_write(writer, t.count, 0, ones, sizeof ones, &error), HR_OK);
  assert_int_equal(hri_gguf_writer_finish(writer, &error), HR_OK);
  assert_int_equal(hr_model_open(path, &m, &error), HR_ERROR_INPUT);
  if (!strstr(error.message, "linear RoPE scaling by 4 beside frequency factors (rope_freqs.weight)"))
    fail_msg("%s", error.message);
  hri_gguf_keys_deinit(&keys);
  free(t.list), free(t.parts);
}

/* ---- keys ---- */

static void not_causal(hri_gguf_keys *k) { hri_gguf_put_bool(k, "llama.attention.causal", false); }
static void causal(hri_gguf_keys *k) { hri_gguf_put_bool(k, "llama.attention.causal", true); }
static void foreign(hri_gguf_keys *k) {
  hri_gguf_put_f32(k, "llama.attention.clamp_kqv", 8);
  hri_gguf_put_u32(k, "llama.vocab_size_of_old", 3);
  hri_gguf_put_u32(k, "llamas.many", 3); /* of another name space */
  hri_gguf_put_u32(k, "llama.rope\x1b[31m", 1);
}
static void too_many(hri_gguf_keys *k) {
  char key[64];
  for (int i = 0; i < 40; i++) {
    (void)snprintf(key, sizeof key, "llama.some.thing.%d", i);
    hri_gguf_put_u32(k, key, 1);
  }
}

static void what_is_not_causal_is_refused(void **state) {
  hr_model m;
  hr_error error;
  (void)state;
  assert_int_equal(open_with(LLAMA, not_causal, &m, &error), HR_ERROR_INPUT);
  if (!strstr(error.message, "more.gguf: llama.attention.causal is false")) fail_msg("%s", error.message);
  assert_int_equal(open_with(LLAMA, causal, &m, &error), HR_OK);
  assert_string_equal(m.unread_keys, "");
}

static void unknown_keys_are_listed(void **state) {
  int listed = 0;
  hr_model m;
  hr_error error;
  (void)state;
  assert_int_equal(open_with(LLAMA, foreign, &m, &error), HR_OK);
  assert_string_equal(m.unread_keys, "llama.attention.clamp_kqv, llama.vocab_size_of_old, llama.rope?[31m");
  assert_int_equal(open_with(LLAMA, too_many, &m, &error), HR_OK);
  for (const char *c = m.unread_keys; (c = strstr(c, "llama.some.thing.")); c++) listed++;
  assert_true(listed > 8 && strstr(m.unread_keys, " and "));
  assert_int_equal(atoi(strstr(m.unread_keys, " and ") + 5) + listed, 40);
}

static void no_vocabulary(hri_gguf_keys *k) { text(k, "tokenizer.ggml.model", "none"); }

/* As llama.cpp's converter writes a model without a vocabulary. */
static void none_is_no_tokenizer(void **state) {
  static const more_keys rows[] = {NULL, no_vocabulary};
  (void)state;
  for (int i = 0; i < 2; i++) {
    hr_model m;
    hr_error error;
    hr_tokenizer *tokenizer = NULL;
    assert_int_equal(open_with(LLAMA, rows[i], &m, &error), HR_OK);
    assert_false(hr_tokenizer_present(m.directory));
    assert_int_equal(hr_tokenizer_open(m.directory, &tokenizer, &error), HR_ERROR_INPUT);
    assert_true(strstr(error.message, "more.gguf has no tokenizer") && strstr(error.hint, "token ids"));
  }
}

/* ---- writer and reader ---- */

typedef struct dice {
  gguf_random random;
} dice;
static uint32_t roll(void *d, uint32_t below) { return gguf_draw(&((dice *)d)->random) % below; }

static bool near(double a, double b) { return fabs(a - b) <= 1e-6 * (fabs(a) + fabs(b)); }

/* What of a description decides what is computed. */
static const char *differing(const hr_model *a, const hr_model *b) {
  const hr_rope *x = &a->rope, *y = &b->rope;
  if (a->layer_count != b->layer_count || a->hidden_size != b->hidden_size || a->mlp_size != b->mlp_size)
    return "sizes";
  if (a->head_count != b->head_count || a->kv_head_count != b->kv_head_count || a->head_size != b->head_size)
    return "heads";
  if (a->qkv_bias != b->qkv_bias || a->attention_output_bias != b->attention_output_bias || a->mlp_bias != b->mlp_bias)
    return "biases";
  if (a->tied_embeddings != b->tied_embeddings) return "head";
  if (!near(a->norm_epsilon, b->norm_epsilon)) return "norm_epsilon";
  if (!near(a->attention_scale, b->attention_scale)) return "attention_scale";
  if (!near(a->attention_softcap, b->attention_softcap) || !near(a->logit_softcap, b->logit_softcap)) return "softcap";
  if (a->sliding_window != b->sliding_window || memcmp(a->sliding, b->sliding, sizeof a->sliding) != 0)
    return "sliding";
  if (a->learned_positions) return b->learned_positions ? NULL : "positions";
  if (a->rotary_size != b->rotary_size || x->scaling != y->scaling) return "rope";
  if (!near(x->theta, y->theta) || (x->scaling != HR_ROPE_DEFAULT && !near(x->factor, y->factor))) return "rope values";
  for (uint32_t i = 0; i < x->factor_count; i++)
    if (!near(x->long_factors[i], y->long_factors[i]) || !near(x->short_factors[i], y->short_factors[i]))
      return "factors";
  return a->has_local_rope && !near(a->local_rope.theta, b->local_rope.theta) ? "local_rope" : NULL;
}

/* Every tensor is where the description that was read asks for it, and there are no others. */
static void hold_tensors(const char *path, const hr_model *m, int round) {
  hri_gguf *file;
  hr_error error = {0};
  uint32_t found = 0, index;
  assert_int_equal(hri_gguf_open(path, &file, &error), HR_OK);
  for (uint32_t p = 0; p < hri_param_count(m); p++) {
    hri_param_spec spec;
    hri_param_get(m, p, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++, found++) {
      hri_gguf_part part;
      hri_gguf_part_of(m, &spec, k, &part);
      if (hri_gguf_part_find(file, &part, &index, &error) != HR_OK) fail_msg("round %d: %s", round, error.message);
    }
  }
  assert_int_equal(found, hri_gguf_count(file));
  hri_gguf_close(file);
}

/* Divisors and factors are tensors, which the test's writer has not. */
static bool has_extra(const hr_model *m) {
  float values[HR_MAX_ROPE_PAIRS];
  const char *name;
  uint32_t count;
  return hri_gguf_extra(m, 0, &name, values, &count);
}

static void what_is_written_is_read(void **state) {
  const char *path = path_of("%s/random.gguf", work), *what;
  uint32_t written[HR_FAMILY_COUNT] = {0}, refused = 0;
  dice d = {{2026, 0}};
  (void)state;
  for (int round = 0; round < 220; round++) {
    hr_model m, back, usual;
    hr_error error = {0};
    hr_status status;
    assert_int_equal(random_family(&m, roll, &d, &error), HR_OK);
    m.layer_count = 1 + roll(&d, 8);
    if (m.family == HR_FAMILY_SMOLLM3) hri_family_rope_layers(&m, HRI_ROPE_INTERVAL - roll(&d, 2));
    m.head_size = 2 * (1 + roll(&d, 6));
    m.kv_head_count = 1 + roll(&d, 2);
    m.head_count = m.kv_head_count * (1 + roll(&d, 2));
    m.hidden_size = roll(&d, 2) || m.family == HR_FAMILY_GPT2 || m.family == HR_FAMILY_STABLELM
                        ? m.head_count * m.head_size
                        : 2 + roll(&d, 30);
    if (m.family == HR_FAMILY_GPT2) m.kv_head_count = m.head_count;
    m.mlp_size = 1 + roll(&d, 40);
    m.tied_embeddings = m.family == HR_FAMILY_GPT2 || roll(&d, 2);
    random_variations(&m, roll, &d);
    hri_family_defaults(&usual, m.family);
    if (roll(&d, 4)) m.activation = usual.activation; /* another one is refused */
    if (m.has_local_rope && roll(&d, 4)) m.local_rope = (hr_rope){.theta = 50, .factor = 1};
    if (has_extra(&m)) continue;
    (void)remove(path);
    status = gguf_model_write(path, &m, 1, plain, NULL, &error);
    if (status == HR_ERROR_UNSUPPORTED) {
      assert_true(strstr(error.message, "GGUF cannot express") && error.hint[0]);
      refused++;
      continue;
    }
    assert_int_equal(status, HR_OK);
    if (hr_model_open(path, &back, &error) != HR_OK)
      fail_msg("round %d, %s: %s", round, hr_family_name(m.family), error.message);
    what = differing(&m, &back);
    if (what) fail_msg("round %d, %s: another %s", round, hr_family_name(m.family), what);
    assert_string_equal(back.unread_keys, "");
    hold_tensors(path, &back, round);
    written[m.family]++;
  }
  for (int f = 0; f < HR_FAMILY_COUNT; f++)
    if (written[f] < 1) fail_msg("%u files of %s", written[f], hr_family_name((hr_family)f));
  assert_true(refused > 10);
}

static void what_llama_cpp_has_no_place_for_is_refused(void **state) {
  hri_gguf_keys keys = {{0}, 0};
  hr_model m;
  hr_error error = {0};
  (void)state;
  preset(&m, "custom:layers=2,hidden=8,heads=2,family=gemma3_text");
  m.qkv_bias = m.attention_output_bias = true;
  assert_int_equal(hri_gguf_put_model(&keys, &m, 0, &error), HR_ERROR_UNSUPPORTED);
  assert_non_null(strstr(error.message, "biases of attention in this family"));
  preset(&m, "custom:layers=2,hidden=8,heads=2,family=phi3");
  m.head_count = m.kv_head_count = 3;
  assert_int_equal(hri_gguf_put_model(&keys, &m, 0, &error), HR_ERROR_UNSUPPORTED);
  assert_non_null(strstr(error.message, "head_dim"));
  hri_gguf_keys_deinit(&keys);
}

static int set_up(void **state) {
  (void)state;
  work = scratch_make("gguf-model");
  return 0;
}
static int tear_down(void **state) {
  (void)state;
  scratch_remove(work);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_factor_without_a_type_is_linear),
      cmocka_unit_test(a_factor_beside_divisors_is_refused),
      cmocka_unit_test(what_is_not_causal_is_refused),
      cmocka_unit_test(unknown_keys_are_listed),
      cmocka_unit_test(none_is_no_tokenizer),
      cmocka_unit_test(what_is_written_is_read),
      cmocka_unit_test(what_llama_cpp_has_no_place_for_is_refused),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
