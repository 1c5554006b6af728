/* SentencePiece models and tiktoken rank files: trained models with what the reference package makes of texts
 * (tests/parity/record_splits.py), and files built here field by field, sound and broken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/tokenizer.h>

#include "base/file.h"
#include "base/json.h"
#include "support/scratch.h"
#include "tokenizer/normalize.h"
#include "tokenizer/split.h"
#include "tokenizer/tiktoken.h"
#include "tokenizer/unicode.h"

#define FOLDER HR_TEST_DATA "/parity/sentencepiece/"

static void must(hr_status status, const hr_error *error) {
  if (status != HR_OK) fail_msg("%s", error->message);
}

static hri_json open_json(const char *path) {
  hri_json root;
  hr_error error;
  must(hri_json_read(path, 64 << 20, &root, &error), &error);
  return root;
}

static hri_json array_of(const hri_json *object, const char *key) {
  hri_json child;
  hr_error error;
  must(hri_json_get_array(object, key, &child, &error), &error);
  return child;
}

static const char *string_of(const hri_json *object, const char *key) {
  const char *value = NULL;
  hr_error error;
  must(hri_json_get_string(object, key, &value, &error), &error);
  return value;
}

/* CRC-32, bit by bit. */
static void digest_byte(uint32_t *digest, uint8_t byte) {
  *digest = ~*digest ^ byte;
  for (int bit = 0; bit < 8; bit++) *digest = *digest >> 1 ^ (*digest & 1 ? 0xEDB88320u : 0);
  *digest = ~*digest;
}

/* The generator of record_splits.py; its alphabet is stored with the splits. */
static uint32_t next_random(uint64_t *state, uint32_t bound) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((*state >> 33) % bound);
}

static size_t random_text(uint64_t *state, const hri_json *alphabet, char out[256]) {
  uint32_t last = 0, length = 1 + next_random(state, 32);
  size_t bytes = 0;
  for (uint32_t i = 0; i < length; i++) {
    if (i == 0 || next_random(state, 4) != 0)
      last = (uint32_t)json_integer_value(
          hri_json_item(alphabet, next_random(state, (uint32_t)hri_json_count(alphabet))).value);
    bytes += hri_utf8_encode(last, out + bytes);
  }
  return bytes;
}

/* ---- trained models ---- */

static void check_text(const hri_normalizer *normalizer, const char *name, const char *text, const char *expected,
                       const hri_json *begins) {
  hri_normal normal = {0};
  uint64_t at = 0, seen = 0;
  hr_error error;
  must(hri_normal_begin(&normal, text, strlen(text), true, &error), &error);
  must(hri_normalizer_apply(normalizer, &normal, &error), &error);
  if (normal.bytes != strlen(expected) || memcmp(normal.text, expected, normal.bytes) != 0)
    fail_msg("%s: '%s' gives '%.*s', not '%s'", name, text, (int)normal.bytes, normal.text, expected);
  for (; begins && at < normal.bytes; seen++) {
    uint32_t point, begin = normal.spans ? normal.spans[at].begin : (uint32_t)at;
    bool valid;
    if (begin != (uint32_t)json_integer_value(hri_json_item(begins, seen).value))
      fail_msg("%s: '%s': byte %u comes from %u", name, text, (unsigned)at, begin);
    at += hri_utf8_decode(normal.text + at, normal.bytes - at, &point, &valid);
  }
  hri_normal_deinit(&normal);
}

static void normalizing_is_that_of_the_reference(void **context) {
  hri_json root = open_json(FOLDER "expected.json"), cases = array_of(&root, "cases"), texts = array_of(&root, "texts");
  hri_json splits = open_json(HR_TEST_DATA "/parity/splits/splits.json"), alphabet = array_of(&splits, "alphabet");
  uint64_t count = (uint64_t)json_integer_value(hri_json_member(&splits, "random_texts").value);
  (void)context;
  assert_int_equal(hri_json_count(&cases), 10);
  assert_true(count >= 1000);
  for (uint64_t i = 0; i < hri_json_count(&cases); i++) {
    hri_json item = hri_json_item(&cases, i), normalized = array_of(&item, "normalized"),
             begins = array_of(&item, "begins");
    const char *name = string_of(&item, "model");
    hri_sentencepiece model;
    hri_normalizer *normalizer;
    hri_normal normal = {0};
    uint64_t state = 4;
    uint32_t digest = 0;
    char path[512], text[256], found[9];
    hr_error error;
    (void)snprintf(path, sizeof path, FOLDER "%s", name);
    must(hri_sentencepiece_read(path, &model, &error), &error);
    must(hri_normalizer_create(&normalizer, &error), &error);
    must(hri_normalizer_add_sentencepiece(normalizer, &model, &error), &error);
    for (uint64_t k = 0; k < hri_json_count(&texts); k++) {
      hri_json begin = hri_json_item(&begins, k);
      check_text(normalizer, name, json_string_value(hri_json_item(&texts, k).value),
                 json_string_value(hri_json_item(&normalized, k).value),
                 model.treat_whitespace_as_suffix ? NULL : &begin);
    }
    hri_sentencepiece_deinit(&model); /* the normalizer has what it needs */
    for (uint64_t k = 0; k < count; k++) {
      must(hri_normal_begin(&normal, text, random_text(&state, &alphabet, text), false, &error), &error);
      must(hri_normalizer_apply(normalizer, &normal, &error), &error);
      for (uint64_t b = 0; b < normal.bytes; b++) digest_byte(&digest, (uint8_t)normal.text[b]);
    }
    (void)snprintf(found, sizeof found, "%08x", digest);
    assert_string_equal(found, string_of(&item, "random"));
    hri_normal_deinit(&normal);
    hri_normalizer_destroy(normalizer);
  }
  hri_json_deinit(&splits);
  hri_json_deinit(&root);
}

/* The whole way from text to ids, through the public interface; text that looks like a control piece is text there. */
static void ids_are_those_of_the_reference(void **context) {
  hri_json root = open_json(FOLDER "expected.json"), cases = array_of(&root, "cases"), texts = array_of(&root, "texts");
  hri_json splits = open_json(HR_TEST_DATA "/parity/splits/splits.json"), alphabet = array_of(&splits, "alphabet");
  uint64_t count = (uint64_t)json_integer_value(hri_json_member(&splits, "random_texts").value);
  (void)context;
  for (uint64_t i = 0; i < hri_json_count(&cases); i++) {
    hri_json item = hri_json_item(&cases, i), ids = array_of(&item, "ids");
    const char *name = string_of(&item, "model");
    hr_tokenizer *tokenizer;
    hr_tokens tokens = {0};
    uint64_t state = 4;
    uint32_t digest = 0;
    char path[512], text[256], found[9];
    hr_error error;
    (void)snprintf(path, sizeof path, FOLDER "%s", name);
    must(hr_tokenizer_open(path, &tokenizer, &error), &error);
    for (uint64_t k = 0; k < hri_json_count(&texts); k++) {
      hri_json expected = hri_json_item(&ids, k);
      const char *sample = json_string_value(hri_json_item(&texts, k).value);
      must(hr_tokenizer_encode(tokenizer, sample, strlen(sample), HR_ENCODE_PLAIN, &tokens, &error), &error);
      for (uint64_t t = 0; t < tokens.count; t++)
        if (t >= hri_json_count(&expected) || tokens.ids[t] != json_integer_value(hri_json_item(&expected, t).value))
          fail_msg("%s: '%s': token %u is %d", name, sample, (unsigned)t, tokens.ids[t]);
      assert_int_equal(tokens.count, hri_json_count(&expected));
    }
    for (uint64_t k = 0; k < count; k++) {
      must(hr_tokenizer_encode(tokenizer, text, random_text(&state, &alphabet, text), HR_ENCODE_PLAIN, &tokens, &error),
           &error);
      for (uint64_t t = 0; t < tokens.count; t++)
        for (uint32_t shift = 0; shift < 32; shift += 8) digest_byte(&digest, (uint8_t)(tokens.ids[t] >> shift));
    }
    (void)snprintf(found, sizeof found, "%08x", digest);
    if (strcmp(found, string_of(&item, "random_ids")) != 0) fail_msg("%s: the digest of random ids differs", name);
    hr_tokens_deinit(&tokens);
    hr_tokenizer_close(tokenizer);
  }
  hri_json_deinit(&splits);
  hri_json_deinit(&root);
}

/* Sums of scores that the reference begins anew again and again; the texts are those of record_splits.py. */
static void long_texts_of_the_generator(const hri_json *alphabet, const hri_json *words, hri_text texts[4]) {
  uint64_t state = 12;
  char text[256];
  for (uint32_t i = 0; i < 4000; i++) hri_text_add_bytes(&texts[0], text, random_text(&state, alphabet, text));
  for (uint32_t which = 1; which < 3; which++)
    for (uint32_t i = 0; i < 30000; i++)
      hri_text_add(&texts[which], "%s%s", i && which == 1 ? " " : "",
                   json_string_value(hri_json_item(words, next_random(&state, (uint32_t)hri_json_count(words))).value));
  for (uint32_t i = 0; i < 100000; i++) hri_text_add(&texts[3], "l");
}

static void long_texts_have_the_ids_of_the_reference(void **context) {
  hri_json root = open_json(FOLDER "expected.json"), cases = array_of(&root, "cases"), words = array_of(&root, "words");
  hri_json splits = open_json(HR_TEST_DATA "/parity/splits/splits.json"), alphabet = array_of(&splits, "alphabet");
  hri_text texts[4] = {{0}};
  (void)context;
  long_texts_of_the_generator(&alphabet, &words, texts);
  for (uint64_t i = 0; i < hri_json_count(&cases); i++) {
    hri_json item = hri_json_item(&cases, i);
    hr_tokenizer *tokenizer;
    hr_tokens tokens = {0};
    uint32_t digest = 0;
    char path[512], found[9];
    hr_error error;
    (void)snprintf(path, sizeof path, FOLDER "%s", string_of(&item, "model"));
    must(hr_tokenizer_open(path, &tokenizer, &error), &error);
    for (uint32_t which = 0; which < 4; which++) {
      must(hr_tokenizer_encode(tokenizer, hri_text_get(&texts[which]), texts[which].length, HR_ENCODE_PLAIN, &tokens,
                               &error),
           &error);
      for (uint64_t t = 0; t < tokens.count; t++)
        for (uint32_t shift = 0; shift < 32; shift += 8) digest_byte(&digest, (uint8_t)(tokens.ids[t] >> shift));
    }
    (void)snprintf(found, sizeof found, "%08x", digest);
    if (strcmp(found, string_of(&item, "long_ids")) != 0) fail_msg("%s: the digest of long texts differs", path);
    hr_tokens_deinit(&tokens);
    hr_tokenizer_close(tokenizer);
  }
  for (uint32_t which = 0; which < 4; which++) hri_text_deinit(&texts[which]);
  hri_json_deinit(&splits);
  hri_json_deinit(&root);
}

static void models_are_read_in_full(void **context) {
  hri_sentencepiece model;
  hr_error error;
  uint32_t user = 0;
  (void)context;
  must(hri_sentencepiece_read(FOLDER "plain.model", &model, &error), &error);
  assert_int_equal(model.piece_count, 420);
  assert_true(model.byte_fallback && model.add_dummy_prefix && !model.remove_extra_whitespaces &&
              model.escape_whitespaces && !model.charsmap);
  assert_true(model.unk_id == 0 && model.bos_id == 1 && model.eos_id == 2 && model.pad_id == -1);
  assert_int_equal(model.byte_ids[0x41], 3 + 0x41);
  assert_int_equal(model.pieces[3 + 0x41].type, HRI_SP_BYTE);
  assert_int_equal(model.normalizer_name_bytes, 8);
  assert_memory_equal(model.normalizer_name, "identity", 8);
  assert_true(model.pieces[300].score < 0 && model.pieces[300].score == -(float)(300 - 259));
  hri_sentencepiece_deinit(&model);
  must(hri_sentencepiece_read(FOLDER "rules.model", &model, &error), &error);
  for (uint32_t i = 0; i < model.piece_count; i++) user += model.pieces[i].type == HRI_SP_USER_DEFINED;
  assert_int_equal(user, 5);
  assert_true(!model.byte_fallback && model.remove_extra_whitespaces && model.charsmap && model.charsmap_bytes > 100);
  hri_sentencepiece_deinit(&model);
  must(hri_sentencepiece_read(FOLDER "suffix.model", &model, &error), &error);
  assert_true(model.treat_whitespace_as_suffix && model.pad_id == 3);
  hri_sentencepiece_deinit(&model);
  must(hri_sentencepiece_read(FOLDER "bare.model", &model, &error), &error);
  assert_true(!model.add_dummy_prefix && model.bos_id == -1);
  hri_sentencepiece_deinit(&model);
}

/* ---- models built here ---- */

typedef struct proto {
  uint8_t bytes[16384];
  uint32_t count;
} proto;

static void put(proto *to, const void *bytes, size_t count) {
  assert_true(to->count + count <= sizeof to->bytes);
  memcpy(to->bytes + to->count, bytes, count);
  to->count += (uint32_t)count;
}
static void put_varint(proto *to, uint64_t value) {
  do {
    uint8_t byte = (uint8_t)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
    put(to, &byte, 1);
    value >>= 7;
  } while (value > 0);
}
static void put_number(proto *to, uint32_t field, uint64_t value) {
  put_varint(to, field << 3);
  put_varint(to, value);
}
static void put_bytes(proto *to, uint32_t field, const void *bytes, size_t count) {
  put_varint(to, field << 3 | 2);
  put_varint(to, count);
  put(to, bytes, count);
}
static void put_piece(proto *to, const char *text, float score, uint32_t type) {
  proto piece = {.count = 0};
  put_bytes(&piece, 1, text, strlen(text));
  put_varint(&piece, 2 << 3 | 5);
  put(&piece, &score, 4);
  if (type != HRI_SP_NORMAL) put_number(&piece, 3, type);
  put_bytes(to, 1, piece.bytes, piece.count);
}

/* A small sound model; what is asked for differs. */
typedef struct wish {
  uint64_t model_type, bos_id;
  bool no_unknown, two_unknowns, byte_fallback, one_byte, bad_byte;
  const char *charsmap, *text;
  size_t charsmap_bytes;
  uint32_t type;
  float score;
} wish;

static void build(proto *to, const wish *what) {
  proto trainer = {.count = 0}, normalizer = {.count = 0};
  to->count = 0;
  if (!what->no_unknown) put_piece(to, "<unk>", 0, HRI_SP_UNKNOWN);
  if (what->two_unknowns) put_piece(to, "<unk2>", 0, HRI_SP_UNKNOWN);
  put_piece(to, "<s>", 0, HRI_SP_CONTROL);
  put_piece(to, "</s>", 0, HRI_SP_CONTROL);
  put_piece(to, what->text ? what->text : "a", what->score, what->type ? what->type : HRI_SP_NORMAL);
  for (uint32_t i = 0; what->byte_fallback && i < 256; i++) {
    char text[8];
    (void)snprintf(text, sizeof text, "<0x%02X>", i);
    put_piece(to, text, 0, HRI_SP_BYTE);
  }
  if (what->one_byte) put_piece(to, what->bad_byte ? "<0xfg>" : "<0x00>", 0, HRI_SP_BYTE);
  put_number(&trainer, 3, what->model_type ? what->model_type : 2);
  put_number(&trainer, 35, what->byte_fallback);
  if (what->bos_id) put_number(&trainer, 41, what->bos_id);
  put_bytes(to, 2, trainer.bytes, trainer.count);
  if (what->charsmap) put_bytes(&normalizer, 2, what->charsmap, what->charsmap_bytes);
  put_bytes(to, 3, normalizer.bytes, normalizer.count);
  put_number(to, 9, 1); /* a field from the future */
}

static hr_status parse(const uint8_t *bytes, uint64_t count, hri_sentencepiece *model, hr_error *error) {
  char *copy = hri_alloc(count); /* of exactly so many bytes, for the sanitizers */
  assert_non_null(copy);
  memcpy(copy, bytes, count);
  return hri_sentencepiece_parse("x.model", copy, count, model, error);
}

/* "abc" and "d" against "ab" and "cd", both with one normal piece: the longer user-defined piece wins. The ids are those
 * that sentencepiece 0.2.3 gives for this model. */
static void user_defined_pieces_are_worth_their_bytes(void **context) {
  static const struct {
    const char *text;
    float score;
    uint32_t type;
  } pieces[] = {{"<unk>", 0, HRI_SP_UNKNOWN}, {"<s>", 0, HRI_SP_CONTROL},      {"</s>", 0, HRI_SP_CONTROL},
                {"ab", -1, HRI_SP_NORMAL},    {"d", -1, HRI_SP_NORMAL},        {"a", -7, HRI_SP_NORMAL},
                {"b", -7, HRI_SP_NORMAL},     {"abc", 0, HRI_SP_USER_DEFINED}, {"cd", 0, HRI_SP_USER_DEFINED}};
  const char *root = scratch_make("sentencepiece"), *path = path_of("%s/user.model", root);
  hr_tokenizer *tokenizer;
  hr_tokens tokens = {0};
  proto model = {.count = 0}, trainer = {.count = 0}, normalizer = {.count = 0};
  hr_error error;
  (void)context;
  for (uint32_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
    put_piece(&model, pieces[i].text, pieces[i].score, pieces[i].type);
  put_number(&trainer, 3, 1);    /* unigram */
  put_number(&normalizer, 3, 0); /* no blank in front */
  put_bytes(&model, 2, trainer.bytes, trainer.count);
  put_bytes(&model, 3, normalizer.bytes, normalizer.count);
  put_file(path, model.bytes, model.count);
  must(hr_tokenizer_open(path, &tokenizer, &error), &error);
  must(hr_tokenizer_encode(tokenizer, "abcd", 4, HR_ENCODE_PLAIN, &tokens, &error), &error);
  assert_int_equal(tokens.count, 2);
  assert_true(tokens.ids[0] == 7 && tokens.ids[1] == 4);
  hr_tokens_deinit(&tokens);
  hr_tokenizer_close(tokenizer);
  scratch_remove(root);
}

static const struct {
  wish wish;
  const char *message;
} bad_models[] = {
    {{.model_type = 3}, "x.model: field 'trainer_spec.model_type' is word: BPE and unigram are supported"},
    {{.model_type = 4}, "is char"},
    {{.model_type = 9}, "is unknown"},
    {{.no_unknown = true}, "none of the 3 pieces is the unknown piece"},
    {{.two_unknowns = true}, "pieces 0 and 1 are both unknown"},
    {{.one_byte = true}, "there are byte pieces, but"},
    {{.byte_fallback = true, .one_byte = true}, "piece 260 is a byte, but its text is '<0x00>'"},
    {{.one_byte = true, .bad_byte = true}, "piece 4 is a byte, but its text is '<0xfg>'"},
    {{.bos_id = 4}, "field 'trainer_spec.bos_id' is 4, but there are 4 pieces"},
    {{.text = "\xFF"}, "piece, byte 2"},
    {{.text = ""}, "a piece without text"},
    {{.type = 7}, "a piece of unknown type"},
    {{.score = -__builtin_nanf("")}, "whose score is no number"},
};

static void bad_models_are_named(void **context) {
  hri_sentencepiece model;
  proto bytes;
  wish sound = {.bos_id = 1};
  hr_error error;
  uint64_t live = hri_mem_live_bytes();
  (void)context;
  build(&bytes, &sound);
  must(parse(bytes.bytes, bytes.count, &model, &error), &error);
  assert_int_equal(model.piece_count, 4);
  hri_sentencepiece_deinit(&model);
  for (uint32_t i = 0; i < sizeof bad_models / sizeof *bad_models; i++) {
    build(&bytes, &bad_models[i].wish);
    assert_int_equal(parse(bytes.bytes, bytes.count, &model, &error), HR_ERROR_INPUT);
    if (!strstr(error.message, bad_models[i].message) && !(i == 9 && strstr(error.message, "not UTF-8")))
      fail_msg("'%s' is not in '%s'", bad_models[i].message, error.message);
    assert_null(model.file);
    assert_int_equal(hri_mem_live_bytes(), live);
  }
  /* every prefix: an error, or a model that lost its last fields */
  build(&bytes, &sound);
  for (uint32_t cut = 0; cut < bytes.count; cut++) {
    hr_status status = parse(bytes.bytes, cut, &model, &error);
    assert_true(status == HR_OK || status == HR_ERROR_INPUT);
    hri_sentencepiece_deinit(&model);
  }
  assert_int_equal(hri_mem_live_bytes(), live);
}

static void broken_fields_are_refused(void **context) {
  static const struct {
    const char *bytes;
    uint32_t count;
    const char *message;
  } cases[] = {
      {"\x00\x01", 2, "malformed field"}, /* field number 0 */
      {"\x0A\x7F", 2, "the length of a field goes beyond its message"},
      {"\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 11, "the length of a field goes beyond its message"},
      {"\x48\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02", 11, "malformed number"}, /* more than 64 bits */
      {"\x48", 1, "malformed number"},
      {"\x4D\x00\x00", 3, "a field is cut off"},
      {"\x4B", 1, "a field of unknown type"},
      {"\x08\x01", 2, "a known field has another type"},         /* piece as a number */
      {"\x0A\x02\x08\x01", 4, "a known field has another type"}, /* its text as a number */
      {"\x12\x02\x1A\x00", 4, "trainer_spec, byte 2: a known field"},
      {"\x1A\x02\x0D\x00", 4, "normalizer_spec, byte 2"},
  };
  hri_sentencepiece model;
  hr_error error;
  (void)context;
  for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(parse((const uint8_t *)cases[i].bytes, cases[i].count, &model, &error), HR_ERROR_INPUT);
    if (!strstr(error.message, cases[i].message)) fail_msg("%u: '%s'", i, error.message);
  }
  assert_int_equal(hri_sentencepiece_read(HR_TEST_DATA "/no.model", &model, &error), HR_ERROR_IO);
}

/* Rules whose trie or texts are broken: refused when the sizes are wrong; a trie that points anywhere is harmless. */
static void broken_rules_do_no_harm(void **context) {
  static const char *const sizes[] = {"",
                                      "\x04",
                                      "\x04\x00\x00\x00",
                                      "\x00\x00\x00\x00x",
                                      "\x03\x00\x00\x00"
                                      "abcx",
                                      "\x04\x00\x00\x00"
                                      "abcd",
                                      "\x04\x00\x00\x00"
                                      "abcdx"};
  static const uint32_t bytes[] = {1, 1, 4, 5, 8, 8, 9};
  uint64_t state = 6;
  hri_normalizer *normalizer;
  hr_error error;
  (void)context;
  must(hri_normalizer_create(&normalizer, &error), &error);
  for (uint32_t i = 0; i < 7; i++) {
    hri_sentencepiece rules = {.charsmap = sizes[i], .charsmap_bytes = bytes[i]};
    assert_int_equal(hri_normalizer_add_sentencepiece(normalizer, &rules, &error), HR_ERROR_INPUT);
    assert_non_null(strstr(error.message, "precompiled_charsmap"));
  }
  assert_true(hri_normalizer_is_empty(normalizer));
  hri_normalizer_destroy(normalizer);
  for (uint32_t n = 0; n < 300; n++) {
    uint8_t map[4 + 64 * 4 + 8] = {0, 1, 0, 0};
    hri_normal normal = {0};
    for (uint32_t i = 4; i + 1 < sizeof map; i++)
      map[i] = (uint8_t)(next_random(&state, 3) ? next_random(&state, 256) : 0);
    must(hri_normalizer_create(&normalizer, &error), &error);
    must(hri_normalizer_add_sentencepiece(normalizer,
                                          &(hri_sentencepiece){.charsmap = (const char *)map,
                                                               .charsmap_bytes = sizeof map},
                                          &error),
         &error);
    for (uint32_t k = 0; k < 20; k++) {
      char text[8];
      for (uint32_t b = 0; b < 8; b++) text[b] = (char)next_random(&state, 256);
      must(hri_normal_begin(&normal, text, 8, true, &error), &error);
      must(hri_normalizer_apply(normalizer, &normal, &error), &error);
    }
    hri_normal_deinit(&normal);
    hri_normalizer_destroy(normalizer);
  }
}

static void refused_memory_is_an_error(void **context) {
  uint64_t live = hri_mem_live_bytes();
  uint32_t n = 1;
  (void)context;
  for (;; n++) {
    hri_sentencepiece model = {0};
    hri_normalizer *normalizer = NULL;
    hr_error error;
    hr_status status;
    hri_mem_fail_after(n);
    status = hri_sentencepiece_read(FOLDER "rules.model", &model, &error);
    if (status == HR_OK) status = hri_normalizer_create(&normalizer, &error);
    if (status == HR_OK) status = hri_normalizer_add_sentencepiece(normalizer, &model, &error);
    hri_mem_fail_after(0);
    hri_normalizer_destroy(normalizer);
    hri_sentencepiece_deinit(&model);
    assert_int_equal(hri_mem_live_bytes(), live);
    if (status == HR_OK) break;
    assert_int_equal(status, HR_ERROR_MEMORY);
  }
  assert_true(n > 8);
}

/* ---- tiktoken ---- */

static void put_base64(char *out, const uint8_t *bytes, size_t count) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < count; i += 3) {
    uint32_t bits = (uint32_t)bytes[i] << 16 | (i + 1 < count ? (uint32_t)bytes[i + 1] << 8 : 0) |
                    (i + 2 < count ? bytes[i + 2] : 0);
    *out++ = digits[bits >> 18];
    *out++ = digits[bits >> 12 & 63];
    *out++ = i + 1 < count ? digits[bits >> 6 & 63] : '=';
    *out++ = i + 2 < count ? digits[bits & 63] : '=';
  }
  *out = 0;
}

/* All bytes as ranks 0..255, then `more`. */
static void build_ranks(char out[8192], const char *more) {
  size_t used = 0;
  for (uint32_t i = 0; i < 256; i++) {
    uint8_t byte = (uint8_t)i;
    char text[8];
    put_base64(text, &byte, 1);
    used += (size_t)snprintf(out + used, 8192 - used, "%s %u\n", text, i);
  }
  (void)snprintf(out + used, 8192 - used, "%s", more);
}

static void rank_files_are_read(void **context) {
  static const struct {
    const char *more, *message;
  } bad[] = {
      {"aGU=", "line 257: no blank"},
      {"aGU= x\n", "line 257: the rank is no number"},
      {"aGU= 01\n", "the rank is no number"},
      {"aGU= \n", "the rank is no number"},
      {"aGU= 255\n", "the rank was given before"},
      {"aGU= 4194304\n", "the rank is above"},
      {"aGU 256\n", "not base64"},
      {"aG!= 256\n", "not base64"},
      {"aGV= 256\n", "not base64"},
      {"a=== 256\n", "not base64"},
      {" 256\n", "not base64"},
      {"====\n", "no blank"},
      {"aG=1 256\n", "not base64"},
  };
  hri_tiktoken ranks;
  char text[8192];
  hr_error error;
  (void)context;
  build_ranks(text, "aGU= 256\r\n\nbGxvIHc= 258\n= 259\n");
  must(hri_tiktoken_parse("r.tiktoken", text, strlen(text), &ranks, &error), &error);
  assert_int_equal(ranks.count, 260);
  assert_true(ranks.tokens[257].bytes == 0 && ranks.tokens[259].bytes == 0);
  assert_int_equal(ranks.tokens[258].bytes, 5);
  assert_memory_equal(ranks.bytes + ranks.tokens[256].at, "he", 2);
  assert_memory_equal(ranks.bytes + ranks.tokens[258].at, "llo w", 5);
  for (uint32_t i = 0; i < 256; i++) assert_true(ranks.tokens[i].bytes == 1 && ranks.bytes[ranks.tokens[i].at] == i);
  hri_tiktoken_deinit(&ranks);
  for (uint32_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    build_ranks(text, bad[i].more);
    assert_int_equal(hri_tiktoken_parse("r.tiktoken", text, strlen(text), &ranks, &error), HR_ERROR_INPUT);
    if (!strstr(error.message, bad[i].message) || !strstr(error.message, "r.tiktoken"))
      fail_msg("%u: '%s'", i, error.message);
    assert_null(ranks.tokens);
  }
  assert_int_equal(hri_tiktoken_parse("r.tiktoken", "aGU= 0\n", 7, &ranks, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "no token for the byte 0x00"));
}

/* Families by the number of their ranks; ids and names of special tokens are single, and stand behind the ranks. */
static void families_name_their_tokens(void **context) {
  static const struct {
    uint32_t ranks, vocabulary, specials;
    bool whole; /* no holes between the ranks and the last special token */
  } families[] = {{128000, 0, 256, true},     {200000, 0, 2048, true},    {151643, 0, 208, true},
                  {50256, 0, 1, true},        {50256, 51864, 1608, true}, {50257, 0, 1608, true},
                  {50257, 51866, 1609, true}, {100256, 0, 5, false},      {199998, 0, 2, false},
                  {50257, 51865, 1608, true}};
  static const struct {
    uint32_t specials, id;
    const char *name;
  } names[] = {{256, 128000, "<|begin_of_text|>"},
               {256, 128002, "<|reserved_special_token_0|>"},
               {256, 128005, "<|reserved_special_token_2|>"},
               {256, 128009, "<|eot_id|>"},
               {256, 128255, "<|reserved_special_token_247|>"},
               {2048, 200008, "<|eot|>"},
               {2048, 200079, "<|text_post_train_reserved_special_token_68|>"},
               {2048, 201133, "<|vision_reserved_special_token_1047|>"},
               {2048, 201143, "<|reasoning_thinking_end|>"},
               {2048, 202047, "<|reserved_special_token_903|>"},
               {208, 151645, "<|im_end|>"},
               {208, 151850, "<|extra_204|>"},
               {1609, 50258, "<|startoftranscript|>"},
               {1609, 50259, "<|en|>"},
               {1609, 50357, "<|su|>"},
               {1609, 50358, "<|yue|>"},
               {1609, 50359, "<|translate|>"},
               {1609, 50363, "<|nospeech|>"},
               {1609, 50364, "<|notimestamps|>"},
               {1609, 50365, "<|0.00|>"},
               {1609, 50366, "<|0.02|>"},
               {1609, 50415, "<|1.00|>"},
               {1609, 51865, "<|30.00|>"}};
  char room[64], seen[2048][64];
  uint32_t found = 0;
  (void)context;
  for (uint32_t i = 0; i < sizeof families / sizeof *families; i++) {
    const hri_tiktoken_family *family = hri_tiktoken_family_find(families[i].ranks, families[i].vocabulary);
    hri_splitter *splitter;
    hr_error error;
    assert_non_null(family);
    assert_int_equal(hri_tiktoken_special_total(family), families[i].specials);
    must(hri_splitter_create_regex(family->pattern, strlen(family->pattern), HRI_SPLIT_ISOLATED, false, &splitter,
                                   &error),
         &error);
    assert_null(strstr(hri_splitter_about(splitter), "PCRE2"));
    hri_splitter_destroy(splitter);
    for (uint32_t k = 0; k < families[i].specials; k++) {
      hri_tiktoken_special special = hri_tiktoken_special_at(family, k, room);
      assert_true(special.id >= family->rank_count);
      if (families[i].whole) assert_int_equal(special.id, family->rank_count + k);
      (void)snprintf(seen[k], sizeof seen[k], "%s", special.content);
      for (uint32_t before = 0; before < k; before++) assert_string_not_equal(seen[before], seen[k]);
      for (uint32_t n = 0; n < sizeof names / sizeof *names; n++) {
        if (names[n].specials != families[i].specials || names[n].id != special.id) continue;
        assert_string_equal(special.content, names[n].name);
        found++;
      }
    }
  }
  assert_int_equal(found, sizeof names / sizeof *names);
  assert_null(hri_tiktoken_family_find(1000, 51865));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(normalizing_is_that_of_the_reference),
      cmocka_unit_test(ids_are_those_of_the_reference),
      cmocka_unit_test(long_texts_have_the_ids_of_the_reference),
      cmocka_unit_test(models_are_read_in_full),
      cmocka_unit_test(user_defined_pieces_are_worth_their_bytes),
      cmocka_unit_test(bad_models_are_named),
      cmocka_unit_test(broken_fields_are_refused),
      cmocka_unit_test(broken_rules_do_no_harm),
      cmocka_unit_test(refused_memory_is_an_error),
      cmocka_unit_test(rank_files_are_read),
      cmocka_unit_test(families_name_their_tokens),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
