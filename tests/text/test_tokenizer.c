/* Tokenizers against what the reference package made of the same texts (tests/parity/record_tokenizers.py), and
 * everything that lies around: files beside them, GGUF, refusals, long pieces, threads, refused memory. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <headroom/tokenizer.h>

#include "base/file.h"
#include "base/json.h"
#include "formats/gguf.h"
#include "support/cpu_seconds.h"
#include "support/files.h"
#include "tokenizer/decimal.h"

static const char *const families[] = {"gpt2",   "roberta",    "llama3",     "qwen2",
                                       "o200k",  "smollm",     "falcon",     "byte_normalizer",
                                       "llama2", "mistral",    "gemma",      "metaspace",
                                       "clip",   "prefixed",   "clip_bytes", "behaviors",
                                       "t5",     "xlmr",       "albert",     "ties",
                                       "bert",   "bert_cased", "no_prefix",  "blanks"};
enum { FAMILY_COUNT = sizeof families / sizeof *families };

static char *data_path(const char *name, const char *end) {
  static char path[2][512];
  static int turn;
  turn ^= 1;
  (void)snprintf(path[turn], sizeof path[turn], "%s/tokenizer/%s%s", HR_TEST_DATA, name, end);
  return path[turn];
}

static hr_tokenizer *open_family(const char *name) {
  hr_tokenizer *tokenizer;
  hr_error error = {0};
  if (hr_tokenizer_open(data_path(name, ".json"), &tokenizer, &error) != HR_OK) fail_msg("%s: %s", name, error.message);
  return tokenizer;
}

static hri_json read_json(const char *path) {
  hri_json root = {0};
  hr_error error = {0};
  if (hri_json_read(path, 1 << 24, &root, &error) != HR_OK) fail_msg("%s", error.message);
  return root;
}

/* ---- the recorded texts ---- */

typedef struct text {
  char *bytes;
  uint64_t count;
} text;

static uint32_t read_texts(text **texts) {
  hri_json root = read_json(data_path("texts", ".json"));
  uint32_t count = (uint32_t)hri_json_count(&root);
  *texts = malloc(count * sizeof **texts);
  for (uint32_t i = 0; i < count; i++) {
    const char *hex = json_string_value(hri_json_item(&root, i).value);
    text *t = *texts + i;
    t->count = strlen(hex) / 2;
    t->bytes = malloc(t->count + 1); /* exact but for the NUL, so that sanitizers see reads behind it */
    for (uint64_t k = 0; k < t->count; k++) {
      unsigned byte;
      assert_int_equal(sscanf(hex + 2 * k, "%2x", &byte), 1);
      t->bytes[k] = (char)byte;
    }
  }
  hri_json_deinit(&root);
  return count;
}

static void free_texts(text *texts, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) free(texts[i].bytes);
  free(texts);
}

static uint32_t fnv(uint32_t hash, const void *data, uint64_t count) {
  const unsigned char *bytes = data;
  for (uint64_t i = 0; i < count; i++) hash = (hash ^ bytes[i]) * 0x01000193u;
  return hash;
}

static void assert_ids(const char *name, uint32_t index, const char *what, const hr_tokens *tokens,
                       const json_t *wanted) {
  char got[600] = "";
  size_t used = 0;
  bool same = tokens->count == json_array_size(wanted);
  for (uint64_t i = 0; same && i < tokens->count; i++)
    same = tokens->ids[i] == json_integer_value(json_array_get(wanted, i));
  if (same) return;
  for (uint64_t i = 0; i < tokens->count && used < sizeof got - 16; i++)
    used += (size_t)snprintf(got + used, sizeof got - used, " %d", tokens->ids[i]);
  fail_msg("%s, text %u, %s:%s, wanted %s", name, index, what, got, json_dumps(wanted, JSON_COMPACT));
}

static void encode(const hr_tokenizer *tokenizer, const text *t, uint32_t flags, hr_tokens *tokens) {
  hr_error error = {0};
  if (hr_tokenizer_encode(tokenizer, t->bytes, t->count, flags, tokens, &error) != HR_OK) fail_msg("%s", error.message);
}

static void assert_decodes(const hr_tokenizer *tokenizer, const char *name, uint32_t index, const hr_tokens *tokens,
                           uint32_t flags, const json_t *hash) {
  hr_error error = {0};
  uint64_t bytes;
  char *decoded;
  if (hr_tokenizer_decode(tokenizer, tokens->ids, tokens->count, flags, &decoded, &bytes, &error) != HR_OK)
    fail_msg("%s", error.message);
  if (fnv(0x811C9DC5u, decoded, bytes) != (uint32_t)json_integer_value(hash))
    fail_msg("%s, text %u decodes to '%s'", name, index, decoded);
  assert_int_equal(decoded[bytes], 0);
  hr_free(decoded);
}

static void check_vector(const hr_tokenizer *tokenizer, const char *name, uint32_t index, const text *t,
                         const json_t *vector, hr_tokens *tokens) {
  const json_t *ids = json_array_get(vector, 0), *plain = json_array_get(vector, 4);
  uint32_t hash = 0x811C9DC5u;
  encode(tokenizer, t, HR_ENCODE_SPECIAL, tokens);
  assert_ids(name, index, "ids", tokens, ids);
  encode(tokenizer, t, HR_ENCODE_SPECIAL | HR_ENCODE_PLAIN, tokens);
  assert_ids(name, index, "plain", tokens, plain ? plain : ids);
  encode(tokenizer, t, HR_ENCODE_SPECIAL | HR_ENCODE_OFFSETS, tokens);
  assert_ids(name, index, "ids with offsets", tokens, ids);
  for (uint64_t i = 0; i < tokens->count; i++) {
    assert_true(tokens->begin[i] <= tokens->end[i] && tokens->end[i] <= t->count);
    hash = fnv(fnv(hash, &tokens->begin[i], 4), &tokens->end[i], 4);
  }
  if (hash != (uint32_t)json_integer_value(json_array_get(vector, 1)))
    fail_msg("%s, text %u: other offsets", name, index);
  assert_decodes(tokenizer, name, index, tokens, 0, json_array_get(vector, 2));
  assert_decodes(tokenizer, name, index, tokens, HR_DECODE_SKIP_SPECIAL, json_array_get(vector, 3));
}

static void test_vectors(void **state) {
  text *texts;
  uint32_t count = read_texts(&texts);
  hr_tokens shared = {0}; /* used with one tokenizer after the other: nothing may be left over */
  (void)state;
  assert_true(count > 300);
  for (uint32_t f = 0; f < FAMILY_COUNT; f++) {
    hr_tokenizer *tokenizer = open_family(families[f]);
    hri_json vectors = read_json(data_path(families[f], ".vectors.json"));
    assert_int_equal(hri_json_count(&vectors), count);
    for (uint32_t i = 0; i < count; i++)
      check_vector(tokenizer, families[f], i, &texts[i], hri_json_item(&vectors, i).value, &shared);
    hri_json_deinit(&vectors);
    hr_tokenizer_close(tokenizer);
  }
  hr_tokens_deinit(&shared);
  free_texts(texts, count);
}

/* Words that are remembered and words that are not give the same: one long text against its parts without a memory. */
static void test_remembered_words(void **state) {
  hr_tokenizer *tokenizer = open_family("gpt2");
  char *licence;
  uint64_t bytes, at = 0;
  hr_tokens whole = {0};
  (void)state;
  assert_int_equal(hri_file_read(data_path("../../LICENSE", ""), 1 << 20, &licence, &bytes, NULL), HR_OK);
  for (int round = 0; round < 3; round++) {
    encode(tokenizer, &(text){licence, bytes}, HR_ENCODE_OFFSETS, &whole);
    at = 0;
    for (uint64_t i = 0; i < whole.count; i++) {
      uint64_t length;
      const char *content = hr_tokenizer_token(tokenizer, whole.ids[i], &length);
      assert_non_null(content);
      assert_int_equal(whole.begin[i], at);
      at = whole.end[i];
    }
    assert_int_equal(at, bytes);
  }
  for (uint64_t begin = 0, end; begin < bytes; begin = end) { /* a blank begins a piece of this pattern */
    hr_tokens part = {0};
    uint64_t first = 0;
    end = begin + 1;
    while (end < bytes &&
           !(licence[end] == ' ' && licence[end - 1] != ' ' && licence[end - 1] != '\n' && licence[end + 1] > ' '))
      end++;
    encode(tokenizer, &(text){licence + begin, end - begin}, 0, &part);
    while (whole.begin[first] < begin) first++;
    for (uint64_t i = 0; i < part.count; i++) assert_int_equal(part.ids[i], whole.ids[first + i]);
    hr_tokens_deinit(&part);
  }
  hri_free(licence);
  hr_tokens_deinit(&whole);
  hr_tokenizer_close(tokenizer);
}

/* Words of all lengths, of few characters so that many begin alike, and more of them than there is room for: what was
 * seen before gives what a first sight gives, ids and offsets. */
static uint32_t next_random(uint64_t *state, uint32_t bound) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((*state >> 33) % bound);
}

enum { MOST_WORD = 48 };
static text random_word(uint64_t *state, char room[MOST_WORD + 8]) {
  static const char *const letters[] = {"a", "b", "e", "t", "h", "\xC3\xA9", ".", "_"};
  const uint64_t wanted = 3 + next_random(state, MOST_WORD - 2);
  text made = {memcpy(room, "a ", 2), 2};
  while (made.count < wanted) {
    const char *letter = letters[next_random(state, made.count < 18 ? 2 : 8)];
    memcpy(room + made.count, letter, strlen(letter));
    made.count += strlen(letter);
  }
  return made;
}

static void assert_same_tokens(const hr_tokens *a, const hr_tokens *b, bool offsets) {
  assert_int_equal(a->count, b->count);
  assert_memory_equal(a->ids, b->ids, a->count * sizeof *a->ids);
  if (!offsets) return;
  assert_memory_equal(a->begin, b->begin, a->count * sizeof *a->begin);
  assert_memory_equal(a->end, b->end, a->count * sizeof *a->end);
}

static void test_words_of_all_lengths(void **state) {
  static const char *const names[] = {"gpt2", "llama3", "llama2", "xlmr", "t5", "bert"};
  enum { WORDS = 40000, ASKED_EACH = 37 };
  (void)state;
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    hr_tokenizer *tokenizer = open_family(names[n]);
    hr_tokens warm = {0};
    for (uint32_t i = 0; i < 2 * WORDS; i++) {
      static uint64_t random;
      char room[MOST_WORD + 8];
      hr_tokens cold = {0};
      text word;
      if (i % WORDS == 0) random = 7; /* the same words once more */
      word = random_word(&random, room);
      encode(tokenizer, &word, i % 2 ? HR_ENCODE_OFFSETS : 0, &warm);
      if (i < WORDS || i % ASKED_EACH) continue;
      encode(tokenizer, &word, HR_ENCODE_OFFSETS, &cold);
      assert_same_tokens(&cold, &warm, i % 2);
      hr_tokens_deinit(&cold);
    }
    hr_tokens_deinit(&warm);
    hr_tokenizer_close(tokenizer);
  }
}

/* ---- long pieces ---- */

/* A megabyte of one character (or of two in turn) comes back, in time that a square would exceed a thousand times. */
static void test_long_pieces(void **state) {
  static const char *const units[] = {"a", " ", "\n", "ab", "\xE2\x96\x81", "1", "!", "\xE6\x9D\xB1"};
  static const char *const names[] = {"gpt2", "llama3", "llama2", "gemma", "xlmr"};
  enum { BYTES = 1 << 20 };
  char *bytes = malloc(BYTES + 4);
  double begin = cpu_seconds();
  (void)state;
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    hr_tokenizer *tokenizer = open_family(names[n]);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
      size_t width = strlen(units[u]), count = BYTES / width * width;
      hr_tokens tokens = {0};
      uint64_t back;
      char *decoded;
      for (size_t i = 0; i < count; i += width) memcpy(bytes + i, units[u], width);
      encode(tokenizer, &(text){bytes, count}, 0, &tokens);
      assert_true(tokens.count > 0);
      assert_int_equal(hr_tokenizer_decode(tokenizer, tokens.ids, tokens.count, 0, &decoded, &back, NULL), HR_OK);
      if (units[u][0] != '\xE2' && !(n == 4 && units[u][0] <= ' ')) { /* which the last makes blanks, or takes off */
        assert_int_equal(back, count);
        assert_memory_equal(decoded, bytes, count);
      }
      hr_free(decoded);
      hr_tokens_deinit(&tokens);
    }
    hr_tokenizer_close(tokenizer);
  }
  assert_true(cpu_seconds() - begin < 120); /* some seconds; minutes under sanitizers */
  free(bytes);
}

/* ---- files beside ---- */

static void begin_directory(const char *family) {
  char *bytes;
  uint64_t count;
  (void)make_directory(NULL);
  if (!family) return;
  assert_int_equal(hri_file_read(data_path(family, ".json"), 1 << 20, &bytes, &count, NULL), HR_OK);
  write_text("tokenizer.json", bytes);
  hri_free(bytes);
}

static hr_tokenizer *open_directory(void) {
  hr_tokenizer *tokenizer;
  hr_error error = {0};
  if (hr_tokenizer_open(directory, &tokenizer, &error) != HR_OK) fail_msg("%s", error.message);
  return tokenizer;
}

static void test_config(void **state) {
  hr_tokens tokens = {0};
  hr_tokenizer *tokenizer;
  int32_t bos, eos;
  (void)state;
  begin_directory("gpt2");
  write_text(
      "tokenizer_config.json",
      "{\"bos_token\":{\"content\":\"<|bos|>\",\"lstrip\":false},\"eos_token\":\"<|endoftext|>\",\"pad_token\":null,\"add_bos_token\":true,"
      "\"add_eos_token\":true,\"additional_special_tokens\":[\"<|extra|>\"],\"image_token\":\"<|image|>\",\"chat_template\":\"x\","
      "\"model_max_length\":1000000000000000019884624838656}"); /* transformers' word for no limit */
  write_text("special_tokens_map.json", "{\"eos_token\":{\"content\":\"<|end|>\"},\"pad_token\":\"<|endoftext|>\"}");
  tokenizer = open_directory();
  bos = hr_tokenizer_named(tokenizer, HR_TOKEN_BOS);
  eos = hr_tokenizer_named(tokenizer, HR_TOKEN_EOS);
  assert_int_equal(bos, hr_tokenizer_find(tokenizer, "<|bos|>"));
  assert_int_equal(eos, hr_tokenizer_find(tokenizer, "<|end|>"));
  assert_int_equal(hr_tokenizer_named(tokenizer, HR_TOKEN_PAD), hr_tokenizer_find(tokenizer, "<|endoftext|>"));
  assert_int_equal(hr_tokenizer_named(tokenizer, HR_TOKEN_UNK), -1);
  assert_true(bos >= 700 && eos > bos && hr_tokenizer_is_special(tokenizer, bos) &&
              hr_tokenizer_find(tokenizer, "<|extra|>") > eos);
  assert_int_equal(hr_tokenizer_size(tokenizer), hr_tokenizer_find(tokenizer, "<|extra|>") + 1);
  encode(tokenizer, &(text){"a<|extra|>", 10}, HR_ENCODE_SPECIAL, &tokens); /* the post-processor adds nothing */
  assert_int_equal(tokens.count, 2);
  assert_int_equal(tokens.ids[1], hr_tokenizer_find(tokenizer, "<|extra|>"));
  hr_tokenizer_close(tokenizer);
  /* What the map names otherwise is no token; new ids: named ones in transformers' order, the model's own, the list. */
  write_text(
      "tokenizer_config.json",
      "{\"additional_special_tokens\":[\"<not>\"],\"mask_token\":\"<4>\",\"pad_token\":\"<3>\",\"unk_token\":\"<2>\",\"bos_token\":\"<no>\","
      "\"extra_special_tokens\":{\"image_token\":\"<6>\"},\"audio_token\":\"<5>\",\"image_token\":\"<nor>\"}");
  write_text("special_tokens_map.json", "{\"bos_token\":\"<1>\",\"additional_special_tokens\":[\"<7>\"]}");
  tokenizer = open_directory();
  for (int i = 1; i <= 7; i++) {
    char content[16];
    (void)snprintf(content, sizeof content, "<%d>", i);
    assert_int_equal(hr_tokenizer_find(tokenizer, content), 699 + i);
  }
  assert_int_equal(hr_tokenizer_size(tokenizer), 707);
  assert_int_equal(hr_tokenizer_find(tokenizer, "<no>"), -1);
  hr_tokenizer_close(tokenizer);
  /* added_tokens_decoder: the map does not count, flags change, ids go by the order of ids */
  write_text(
      "tokenizer_config.json",
      "{\"eos_token\":\"<|endoftext|>\",\"added_tokens_decoder\":{\"701\":{\"content\":\"<b>\",\"special\":true,\"normalized\":false},"
      "\"700\":{\"content\":\"<a>\",\"rstrip\":true,\"normalized\":false}}}");
  tokenizer = open_directory();
  assert_int_equal(hr_tokenizer_named(tokenizer, HR_TOKEN_EOS), hr_tokenizer_find(tokenizer, "<|endoftext|>"));
  assert_int_equal(hr_tokenizer_find(tokenizer, "<a>"), 700);
  assert_int_equal(hr_tokenizer_find(tokenizer, "<b>"), 701);
  assert_true(hr_tokenizer_is_special(tokenizer, 701) && !hr_tokenizer_is_special(tokenizer, 700));
  encode(tokenizer, &(text){"<a>   <b>", 9}, HR_ENCODE_SPECIAL | HR_ENCODE_OFFSETS, &tokens);
  assert_int_equal(tokens.count, 2);
  assert_int_equal(tokens.end[0], 6);
  hr_tokenizer_close(tokenizer);
  hr_tokens_deinit(&tokens);
  assert_int_equal(remove_directory(NULL), 0);
}

/* A SentencePiece model begins a text with BOS; the file beside it may say otherwise. */
static void test_template(void **state) {
  static const struct {
    const char *config;
    uint32_t before, behind;
  } cases[] = {{"{}", 1, 0},
               {"{\"add_bos_token\":false}", 0, 0},
               {"{\"add_bos_token\":true,\"add_eos_token\":true}", 1, 1},
               {"{\"add_eos_token\":true}", 0, 1}};
  char *model;
  uint64_t count;
  (void)state;
  begin_directory(NULL);
  assert_int_equal(hri_file_read(HR_TEST_DATA "/parity/sentencepiece/plain.model", 1 << 20, &model, &count, NULL),
                   HR_OK);
  write_file("tokenizer.model", model, count);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_tokenizer *tokenizer;
    hr_tokens bare = {0}, tokens = {0};
    write_text("tokenizer_config.json", cases[i].config);
    tokenizer = open_directory();
    encode(tokenizer, &(text){"words", 5}, 0, &bare);
    encode(tokenizer, &(text){"words", 5}, HR_ENCODE_SPECIAL, &tokens);
    assert_int_equal(tokens.count, bare.count + cases[i].before + cases[i].behind);
    if (cases[i].before) assert_int_equal(tokens.ids[0], hr_tokenizer_named(tokenizer, HR_TOKEN_BOS));
    if (cases[i].behind) assert_int_equal(tokens.ids[tokens.count - 1], hr_tokenizer_named(tokenizer, HR_TOKEN_EOS));
    assert_memory_equal(tokens.ids + cases[i].before, bare.ids, bare.count * sizeof *bare.ids);
    hr_tokens_deinit(&bare);
    hr_tokens_deinit(&tokens);
    hr_tokenizer_close(tokenizer);
  }
  hri_free(model);
  assert_int_equal(remove_directory(NULL), 0);
}

/* Added tokens that are blanks themselves and take the blanks beside them along: half a megabyte of them, in linear
 * time. */
static void test_greedy_blanks(void **state) {
  static const char *const sides[] = {"lstrip", "rstrip"};
  enum { BYTES = 1 << 19 };
  char *blanks = malloc(BYTES), json[512];
  (void)state;
  begin_directory(NULL);
  memset(blanks, ' ', BYTES);
  for (size_t i = 0; i < 2; i++) {
    hr_tokens tokens = {0};
    hr_tokenizer *tokenizer;
    (void)snprintf(
        json, sizeof json,
        "{\"added_tokens\":[{\"id\":1,\"content\":\" \",\"normalized\":false,\"%s\":true}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
        sides[i]);
    write_text("tokenizer.json", json);
    tokenizer = open_directory();
    encode(tokenizer, &(text){blanks, BYTES}, HR_ENCODE_OFFSETS, &tokens);
    assert_int_equal(tokens.count, BYTES);
    assert_int_equal(tokens.end[0], i == 0 ? 1 : BYTES);
    assert_int_equal(tokens.end[BYTES - 1], BYTES);
    hr_tokens_deinit(&tokens);
    hr_tokenizer_close(tokenizer);
  }
  free(blanks);
  assert_int_equal(remove_directory(NULL), 0);
}

/* A normalizer or a decoder of many steps that each double a text: refused as soon as it is out of proportion, and what
 * grows as real ones do is not. */
static void test_growth(void **state) {
  static const char step[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"},";
  static const int32_t ids[] = {0, 0};
  (void)state;
  begin_directory(NULL);
  for (size_t steps = 4; steps <= 64; steps += 60)
    for (size_t decodes = 0; decodes < 2; decodes++) {
      hri_text json = {0};
      hr_tokens tokens = {0};
      hr_tokenizer *tokenizer;
      hr_error error = {0};
      char *decoded = NULL;
      hr_status status;
      hri_text_add(&json, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},");
      hri_text_add(&json, decodes ? "\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
                                  : "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
      for (size_t i = 0; i < steps; i++) hri_text_add_bytes(&json, step, sizeof step - 1 - (i + 1 == steps));
      hri_text_add(&json, "]}}");
      write_text("tokenizer.json", json.chars);
      hri_text_deinit(&json);
      tokenizer = open_directory();
      status = decodes ? hr_tokenizer_decode(tokenizer, ids, 2, 0, &decoded, NULL, &error)
                       : hr_tokenizer_encode(tokenizer, "aa", 2, HR_ENCODE_OFFSETS, &tokens, &error);
      assert_int_equal(status, steps == 4 ? HR_OK : HR_ERROR_INPUT);
      if (status == HR_OK) assert_int_equal(decodes ? strlen(decoded) : tokens.count, 32);
      else assert_non_null(strstr(error.message, "grows to more than 1049"));
      hr_free(decoded);
      hr_tokens_deinit(&tokens);
      hr_tokenizer_close(tokenizer);
    }
  assert_int_equal(remove_directory(NULL), 0);
}

/* ---- GGUF ---- */

/* The model of a family as a GGUF file: tokens by id, types, merges. */
static void write_gguf(const char *family, const char *pre, const char *name) {
  hri_json root = read_json(data_path(family, ".json"));
  json_t *vocab = json_object_get(json_object_get(root.value, "model"), "vocab"),
         *merges = json_object_get(json_object_get(root.value, "model"), "merges");
  json_t *added = json_object_get(root.value, "added_tokens"), *value;
  uint32_t count = (uint32_t)json_object_size(vocab), index;
  const char **tokens, *key;
  hri_gguf_keys keys = {0};
  hri_gguf_writer *writer;
  const char *path;
  json_array_foreach(added, index, value) if (json_integer_value(json_object_get(value, "id")) >= count) count =
      (uint32_t)json_integer_value(json_object_get(value, "id")) + 1;
  tokens = calloc(count, sizeof *tokens);
  json_object_foreach(vocab, key, value) tokens[json_integer_value(value)] = key;
  json_array_foreach(added, index, value) tokens[json_integer_value(json_object_get(value, "id"))] =
      json_string_value(json_object_get(value, "content"));
  hri_gguf_put_string(&keys, "general.architecture", "llama", 5);
  hri_gguf_put_string(&keys, "tokenizer.ggml.model", "gpt2", 4);
  hri_gguf_put_string(&keys, "tokenizer.ggml.pre", pre, strlen(pre));
  hri_gguf_put_array(&keys, "tokenizer.ggml.tokens", HRI_GGUF_STRING, count);
  for (uint32_t i = 0; i < count; i++) hri_gguf_add_string(&keys, tokens[i], strlen(tokens[i]));
  hri_gguf_put_array(&keys, "tokenizer.ggml.token_type", HRI_GGUF_I32, count);
  for (uint32_t i = 0; i < count; i++) {
    int32_t type = 1;
    uint32_t k;
    json_array_foreach(added, k, value) if (json_integer_value(json_object_get(value, "id")) == i) type =
        json_is_true(json_object_get(value, "special")) ? 3 : 4;
    hri_gguf_add_i32(&keys, type);
  }
  hri_gguf_put_array(&keys, "tokenizer.ggml.merges", HRI_GGUF_STRING, json_array_size(merges));
  json_array_foreach(merges, index, value) {
    char merge[256];
    (void)snprintf(merge, sizeof merge, "%s %s", json_string_value(json_array_get(value, 0)),
                   json_string_value(json_array_get(value, 1)));
    hri_gguf_add_string(&keys, merge, strlen(merge));
  }
  hri_gguf_put_u32(&keys, "tokenizer.ggml.eos_token_id", 1);
  hri_gguf_put_bool(&keys, "tokenizer.ggml.add_bos_token", false);
  path = in_directory(name);
  (void)unlink(path); /* of a case before */
  assert_int_equal(hri_gguf_writer_open(path, &keys, NULL, 0, &writer, NULL), HR_OK);
  assert_int_equal(hri_gguf_writer_finish(writer, NULL), HR_OK);
  hri_gguf_keys_deinit(&keys);
  free(tokens);
  hri_json_deinit(&root);
}

static void test_gguf(void **state) {
  static const char *const pairs[][2] = {{"gpt2", "gpt-2"},
                                         {"smollm", "smollm"},
                                         {"qwen2", "qwen2"},
                                         {"llama3", "llama-bpe"},
                                         {"o200k", "gpt-4o"}};
  text *texts;
  uint32_t count = read_texts(&texts);
  (void)state;
  begin_directory(NULL);
  for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
    hr_tokenizer *from_json = open_family(pairs[p][0]), *tokenizer;
    hr_tokens wanted = {0}, got = {0};
    write_gguf(pairs[p][0], pairs[p][1], "model.gguf");
    tokenizer = open_directory();
    for (uint32_t i = 0; i < count; i++) {
      encode(from_json, &texts[i], 0, &wanted);
      encode(tokenizer, &texts[i], HR_ENCODE_SPECIAL, &got);
      assert_int_equal(got.count, wanted.count);
      if (got.count) assert_memory_equal(got.ids, wanted.ids, got.count * sizeof *got.ids);
    }
    assert_int_equal(hr_tokenizer_named(tokenizer, HR_TOKEN_EOS), 1);
    assert_non_null(strstr(hr_tokenizer_about(tokenizer), "model.gguf"));
    hr_tokens_deinit(&wanted);
    hr_tokens_deinit(&got);
    hr_tokenizer_close(from_json);
    hr_tokenizer_close(tokenizer);
  }
  free_texts(texts, count);
  assert_int_equal(remove_directory(NULL), 0);
}

/* A piece of a thousand characters has as many cuts; one of a million is refused before they are tried. */
static void test_long_token(void **state) {
  enum { BYTES = 1 << 20 };
  char *token = malloc(BYTES);
  const char *path;
  hri_gguf_keys keys = {0};
  hri_gguf_writer *writer;
  hr_tokenizer *tokenizer;
  hr_error error = {0};
  (void)state;
  begin_directory(NULL);
  memset(token, 'x', BYTES);
  hri_gguf_put_string(&keys, "tokenizer.ggml.model", "llama", 5);
  hri_gguf_put_array(&keys, "tokenizer.ggml.tokens", HRI_GGUF_STRING, 3);
  for (uint64_t i = 0; i < 3; i++) hri_gguf_add_string(&keys, token, i < 2 ? i + 1 : BYTES);
  hri_gguf_put_array(&keys, "tokenizer.ggml.scores", HRI_GGUF_F32, 3);
  for (uint32_t i = 0; i < 3; i++) hri_gguf_add_f32(&keys, 0);
  path = in_directory("model.gguf");
  (void)unlink(path); /* of a case before */
  assert_int_equal(hri_gguf_writer_open(path, &keys, NULL, 0, &writer, NULL), HR_OK);
  assert_int_equal(hri_gguf_writer_finish(writer, NULL), HR_OK);
  hri_gguf_keys_deinit(&keys);
  assert_int_equal(hr_tokenizer_open(path, &tokenizer, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "token 2 has 1048576 bytes"));
  free(token);
  assert_int_equal(remove_directory(NULL), 0);
}

/* ---- SentencePiece models and rank files ---- */

static void test_sentencepiece(void **state) {
  hri_json root = read_json(HR_TEST_DATA "/parity/sentencepiece/expected.json");
  hri_json cases = hri_json_member(&root, "cases"), texts = hri_json_member(&root, "texts");
  (void)state;
  assert_true(hri_json_count(&cases) >= 4);
  for (uint64_t c = 0; c < hri_json_count(&cases); c++) {
    hri_json one = hri_json_item(&cases, c), ids = hri_json_member(&one, "ids");
    const char *name = json_string_value(hri_json_member(&one, "model").value);
    hr_tokenizer *tokenizer;
    hr_tokens tokens = {0};
    hr_error error = {0};
    char path[512];
    (void)snprintf(path, sizeof path, "%s/parity/sentencepiece/%s", HR_TEST_DATA, name);
    if (hr_tokenizer_open(path, &tokenizer, &error) != HR_OK) fail_msg("%s", error.message);
    for (uint64_t i = 0; i < hri_json_count(&texts); i++) {
      const char *bytes = json_string_value(hri_json_item(&texts, i).value);
      encode(tokenizer, &(text){(char *)bytes, strlen(bytes)}, HR_ENCODE_PLAIN, &tokens);
      assert_ids(name, (uint32_t)i, "ids", &tokens, hri_json_item(&ids, i).value);
    }
    hr_tokens_deinit(&tokens);
    hr_tokenizer_close(tokenizer);
  }
  hri_json_deinit(&root);
}

/* The base64 of rank `rank`: all bytes, then the pairs (a, b) in order, then triples that begin with "   ". */
static void rank_code(uint32_t rank, char code[5]) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint32_t pair = rank - 256, bits = rank < 256 ? rank << 16 : pair << 8, padding = rank < 256 ? 2 : 1;
  if (rank >= 256 + 65536) {
    bits = (uint32_t)(0x200000 + (rank - 256 - 65536));
    padding = 0;
  }
  code[0] = digits[bits >> 18];
  code[1] = digits[bits >> 12 & 63];
  code[2] = padding < 2 ? digits[bits >> 6 & 63] : '=';
  code[3] = padding < 1 ? digits[bits & 63] : '=';
  code[4] = 0;
}

/* So many ranks in a file of that name: of the pairs in a word the least merges. */
static void write_ranks(const char *name, uint32_t count) {
  hri_text out = {0};
  for (uint32_t rank = 0; rank < count; rank++) {
    char code[5];
    rank_code(rank, code);
    hri_text_add(&out, "%s %u\n", code, rank);
  }
  write_text(name, out.chars);
  hri_text_deinit(&out);
}

static void test_tiktoken(void **state) {
  static const char sample[] = "hippopotamus";
  uint32_t wanted[16], count = sizeof sample - 1;
  hr_tokenizer *tokenizer;
  hr_tokens tokens = {0};
  char *decoded;
  (void)state;
  begin_directory(NULL);
  write_ranks("ranks.tiktoken", 50256);
  tokenizer = open_directory();
  for (uint32_t i = 0; i < count; i++) wanted[i] = (unsigned char)sample[i];
  for (;;) {
    uint32_t best = UINT32_MAX, at = 0;
    for (uint32_t i = 0; i + 1 < count; i++) {
      uint32_t rank = wanted[i] > 255 || wanted[i + 1] > 255 ? UINT32_MAX : 256 + wanted[i] * 256 + wanted[i + 1];
      if (rank < best) best = rank, at = i;
    }
    if (best == UINT32_MAX) break;
    wanted[at] = best;
    memmove(wanted + at + 1, wanted + at + 2, (--count - at - 1) * sizeof *wanted);
  }
  assert_true(count < sizeof sample - 1);
  encode(tokenizer, &(text){(char *)sample, sizeof sample - 1}, HR_ENCODE_SPECIAL, &tokens);
  assert_int_equal(tokens.count, count);
  assert_memory_equal(tokens.ids, wanted, count * sizeof *wanted);
  assert_int_equal(hr_tokenizer_decode(tokenizer, tokens.ids, tokens.count, 0, &decoded, NULL, NULL), HR_OK);
  assert_string_equal(decoded, sample);
  assert_int_equal(hr_tokenizer_find(tokenizer, "<|endoftext|>"), 50256);
  hr_free(decoded);
  hr_tokens_deinit(&tokens);
  hr_tokenizer_close(tokenizer);
  assert_int_equal(remove_directory(NULL), 0);
}

/* ---- files whose names say something else ---- */

static void expect_ids(const hr_tokenizer *tokenizer, const char *sample, uint32_t flags, const int32_t *ids,
                       uint64_t count) {
  hr_tokens tokens = {0};
  encode(tokenizer, &(text){(char *)sample, strlen(sample)}, flags, &tokens);
  assert_int_equal(tokens.count, count);
  for (uint64_t i = 0; i < count; i++) assert_int_equal(tokens.ids[i], ids[i]);
  hr_tokens_deinit(&tokens);
}

enum { PAIR_AB = 256 + 'a' * 256 + 'b' };

/* What `tokenizers` 0.23.3 makes of these numbers; where a second one is given, that is the nearest double. */
static void test_decimals(void **state) {
  static const struct {
    const char *number;
    double read, nearest;
  } cases[] = {
      {"-15.587310070168995", -0x1.f2cb3e7cff980p+3, -0x1.f2cb3e7cff97fp+3},
      {"-3.3", -0x1.a666666666666p+1, 0},
      {"0.1", 0x1.999999999999ap-4, 0},
      {"-7.842914581298828", -0x1.f5f25p+2, 0},
      {"-1.0e1", -10, 0},
      {"1e-7", 0x1.ad7f29abcaf48p-24, 0},
      {"1.5E+3", 1500, 0},
      {"123456789012345678901.5", 0x1.ac53a7e04bcd9p+66, 0x1.ac53a7e04bcdap+66},
      {"0.12345678901234567890123", 0x1.f9add3746f65fp-4, 0},
      {"12345678901234567890123e-5", 0x1.b69b4ba630f34p+56, 0x1.b69b4ba630f35p+56},
      {"2.2250738585072011e-308", 0x1p-1022, 0x0.fffffffffffffp-1022},
      {"-4.9e-324", -0x1p-1074, 0},
      {"1.7976931348623157e308", 0x1.fffffffffffffp+1023, 0},
      {"0.0e999999999999", 0, 0},
      {"1e-999999999999", 0, 0},
      {"-0.26335983109748273", -0x1.0dae331693390p-2, 0},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const double nearest = strtod(cases[i].number, NULL), read = hri_decimal_read(cases[i].number);
    if (read != cases[i].read) fail_msg("%s is read as %a", cases[i].number, read);
    assert_true(nearest == (cases[i].nearest != 0 ? cases[i].nearest : cases[i].read));
  }
}

/* Tokens of two lengths in another order are as good but for the last bits of scores and sums: which of the paths it is
 * hangs on how the file is read. Ids by `tokenizers` 0.23.3. */
static void test_equal_paths(void **state) {
  static const char model[] =
      "{\"version\":\"1.0\",\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":false,\"vocab\":[[\"<unk>\",0.0],"
      "[\"|\",-8.85349777619422],[\"---|---|---|\",-11.841477407244323],[\"---|---|---|---|\",-10.87860733784786],"
      "[\"\xE2\x96\x81|\",-5.645886203428738],[\"\xE2\x96\x81\",-1.224831564528749],[\"z\",-15.587310070168995]]}}";
  static const int32_t ids[] = {4, 0, 1, 2, 3, 0, 1};
  hr_tokenizer *tokenizer;
  (void)state;
  begin_directory(NULL);
  write_text("tokenizer.json", model);
  tokenizer = open_directory();
  expect_ids(tokenizer, "\xE2\x96\x81|\n|---|---|---|---|---|---|---|\n|", 0, ids, 7);
  hr_tokenizer_close(tokenizer);
  assert_int_equal(remove_directory(NULL), 0);
}

/* Llama 3 and 4 call their ranks tokenizer.model; their numbers say whose they are. Qwen's text is composed first. */
static void test_ranks_by_content(void **state) {
  static const struct {
    uint32_t ranks;
    const char *name, *special;
    int32_t special_id;
  } cases[] = {{128000, "tokenizer.model", "<|eot_id|>", 128009},
               {200000, "tokenizer.model", "<|eot|>", 200008},
               {151643, "vocabulary.bin", "<|im_end|>", 151645},
               {50257, "tokenizer.model", "<|startoftranscript|>", 50258}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_tokenizer *tokenizer;
    hr_error error = {0};
    const char *path;
    begin_directory(NULL);
    write_ranks(cases[i].name, cases[i].ranks);
    path = in_directory(cases[i].name);
    if (hr_tokenizer_open(path, &tokenizer, &error) != HR_OK) fail_msg("%s", error.message);
    expect_ids(tokenizer, "ab", 0, (int32_t[]){PAIR_AB}, 1);
    expect_ids(tokenizer, cases[i].special, 0, &cases[i].special_id, 1);
    if (cases[i].ranks == 128000) expect_ids(tokenizer, "ab", HR_ENCODE_SPECIAL, (int32_t[]){128000, PAIR_AB}, 2);
    if (cases[i].ranks == 200000) expect_ids(tokenizer, "ab", HR_ENCODE_SPECIAL, (int32_t[]){200000, PAIR_AB}, 2);
    if (cases[i].ranks == 151643) /* e with an accent behind it is one character, U+00E9 */
      expect_ids(tokenizer, "e\xCC\x81", 0, (int32_t[]){256 + 0xC3 * 256 + 0xA9}, 1);
    hr_tokenizer_close(tokenizer);
    assert_int_equal(remove_directory(NULL), 0);
  }
}

/* All bytes as ranks, and the highest without a token. */
static void write_few_ranks(const char *name, uint32_t count) {
  hri_text out = {0};
  for (uint32_t rank = 0; rank < 256; rank++) {
    char code[5];
    rank_code(rank, code);
    hri_text_add(&out, "%s %u\n", code, rank);
  }
  hri_text_add(&out, "= %u\n", count - 1);
  write_text(name, out.chars);
  hri_text_deinit(&out);
}

/* Whisper's tokens behind the languages: the last ids, as the vocabulary of config.json has 99 or 100 of these; models
 * of English have the ranks of GPT-2. Without it there are 99, and GPT-2 is GPT-2. */
static void test_whisper(void **state) {
  static const struct {
    uint32_t ranks;
    const char *config;
    int32_t size, endoftext, yue, translate;
  } cases[] = {{50257, NULL, 51865, 50257, -1, 50358},
               {50257, "{}", 51865, 50257, -1, 50358},
               {50257, "{\"vocab_size\":51865}", 51865, 50257, -1, 50358},
               {50257, "{\"vocab_size\":51866}", 51866, 50257, 50358, 50359},
               {50257, "{\"vocab_size\":60000}", 51865, 50257, -1, 50358},
               {50256, "{\"vocab_size\":51864}", 51864, 50256, -1, 50357},
               {50256, "{\"vocab_size\":50257}", 50257, 50256, -1, -1},
               {50256, NULL, 50257, 50256, -1, -1}};
  static const char *const others[] = {"<|transcribe|>", "<|startoflm|>",    "<|startofprev|>",
                                       "<|nospeech|>",   "<|notimestamps|>", "<|0.00|>"};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_tokenizer *tokenizer;
    bool has = cases[i].translate > 0;
    begin_directory(NULL);
    write_few_ranks("multilingual.tiktoken", cases[i].ranks);
    if (cases[i].config) write_text("config.json", cases[i].config);
    tokenizer = open_directory();
    assert_int_equal(hr_tokenizer_size(tokenizer), cases[i].size);
    assert_int_equal(hr_tokenizer_find(tokenizer, "<|endoftext|>"), cases[i].endoftext);
    assert_int_equal(hr_tokenizer_find(tokenizer, "<|su|>"), has ? cases[i].endoftext + 100 : -1);
    assert_int_equal(hr_tokenizer_find(tokenizer, "<|yue|>"), cases[i].yue);
    assert_int_equal(hr_tokenizer_find(tokenizer, "<|translate|>"), cases[i].translate);
    for (int32_t k = 0; k < 6; k++)
      assert_int_equal(hr_tokenizer_find(tokenizer, others[k]), has ? cases[i].translate + 1 + k : -1);
    if (has) {
      expect_ids(tokenizer, "<|0.98|>a<|1.00|><|30.00|>", 0,
                 (int32_t[]){cases[i].size - 1501 + 49, 'a', cases[i].size - 1501 + 50, cases[i].size - 1}, 4);
      assert_true(hr_tokenizer_is_special(tokenizer, cases[i].size - 1));
    }
    hr_tokenizer_close(tokenizer);
    assert_int_equal(remove_directory(NULL), 0);
  }
}

/* A config.json that is asked must be one; where ranks are of one family alone it is not. */
static void test_whisper_config(void **state) {
  static const struct {
    const char *config, *message;
  } bad[] = {{"[]", "config.json must be an object"},
             {"{\"vocab_size\":\"51866\"}", "field 'vocab_size'"},
             {"{\"vocab_size\":-1}", "field 'vocab_size'"},
             {"{", "config.json"}};
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    hr_tokenizer *tokenizer;
    hr_error error = {0};
    begin_directory(NULL);
    write_few_ranks("multilingual.tiktoken", 50257);
    write_text("config.json", bad[i].config);
    assert_int_equal(hr_tokenizer_open(directory, &tokenizer, &error), HR_ERROR_INPUT);
    if (!strstr(error.message, bad[i].message)) fail_msg("case %zu: %s", i, error.message);
    write_few_ranks("multilingual.tiktoken", 100256);
    hr_tokenizer_close(open_directory());
    assert_int_equal(remove_directory(NULL), 0);
  }
}

/* Tekken: `specials` as JSON, NULL for none; all bytes and the first pairs. */
static void write_tekken(const char *specials, uint32_t special_count, uint32_t ranks, uint32_t size,
                         const char *pattern) {
  hri_text out = {0};
  hri_text_add(&out, "{\"vocab\":[");
  for (uint32_t rank = 0; rank < ranks; rank++) {
    char code[5];
    rank_code(rank, code);
    hri_text_add(&out, "%s{\"rank\":%u,\"token_bytes\":\"%s\",\"token_str\":\"\\u0000\"}", rank ? "," : "", rank, code);
  }
  hri_text_add(&out,
               "]%s%s,\"config\":{\"pattern\":\"%s\",\"default_vocab_size\":%u,\"default_num_special_tokens\":%u}}",
               specials ? ",\"special_tokens\":" : "", specials ? specials : "", pattern, size, special_count);
  write_text("tekken.json", out.chars);
  hri_text_deinit(&out);
}

static void test_tekken(void **state) {
  static const struct {
    const char *specials;
    uint32_t special_count, ranks, size;
    const char *pattern, *message;
  } bad[] = {{NULL, 30, 256, 287, ".+", "there are 256 ranks and 30 special tokens"},
             {NULL, 30, 300, 29, ".+", "field 'config.default_vocab_size' is 29"},
             {NULL, 30, 200, 230, ".+", "no token for the byte 0xC8"},
             {NULL, 30, 300, 330, "(", "field 'config.pattern'"},
             {"[{\"rank\":1,\"token_str\":\"<unk>\"}]", 30, 300, 330, ".+", "entry 0 must have the rank 0"},
             {"[{\"rank\":0}]", 30, 300, 330, ".+", "an entry without 'token_str'"},
             {"[{\"rank\":0,\"token_str\":\"x\"},{\"rank\":1,\"token_str\":\"x\"}]", 30, 300, 330, ".+",
              "two special tokens are called 'x'"},
             /* names of 16 million tokens would be made up */
             {NULL, 4096, 256, 4352, ".+",
              "'config.default_num_special_tokens' is 4096, but must be less than 16 times"},
             {NULL, 16776959, 256, 16777215, ".+", "'config.default_num_special_tokens' is 16776959"}};
  hr_tokenizer *tokenizer;
  (void)state;
  begin_directory(NULL);
  write_tekken(NULL, 30, 40000, 30030, "\\\\p{L}+|[^\\\\p{L}]+");
  tokenizer = open_directory();
  assert_int_equal(hr_tokenizer_size(tokenizer), 30030);
  expect_ids(tokenizer, "ab", HR_ENCODE_SPECIAL, (int32_t[]){1, 30 + PAIR_AB}, 2);
  expect_ids(tokenizer, "zz", 0, (int32_t[]){30 + 'z', 30 + 'z'}, 2); /* its pair is beyond the vocabulary's size */
  expect_ids(tokenizer, "[INST]<SPECIAL_29>", 0, (int32_t[]){3, 29}, 2);
  assert_int_equal(hr_tokenizer_named(tokenizer, HR_TOKEN_EOS), 2);
  hr_tokenizer_close(tokenizer);
  write_tekken("[{\"rank\":0,\"token_str\":\"<unk>\"},{\"rank\":1,\"token_str\":\"<s>\"}]", 30, 300, 330, ".+");
  tokenizer = open_directory();
  expect_ids(tokenizer, "a<SPECIAL_2>", HR_ENCODE_SPECIAL, (int32_t[]){1, 30 + 'a', 2}, 3);
  assert_int_equal(hr_tokenizer_find(tokenizer, "[INST]"), -1);
  hr_tokenizer_close(tokenizer);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    hr_error error = {0};
    write_tekken(bad[i].specials, bad[i].special_count, bad[i].ranks, bad[i].size, bad[i].pattern);
    assert_int_equal(hr_tokenizer_open(directory, &tokenizer, &error), HR_ERROR_INPUT);
    if (!strstr(error.message, bad[i].message)) fail_msg("case %zu: %s", i, error.message);
  }
  assert_int_equal(remove_directory(NULL), 0);
}

/* bert.json as the files that BERT came with: the same ids but for what its options change. */
static void test_words(void **state) {
  hri_json root = read_json(data_path("bert", ".json"));
  json_t *vocab = json_object_get(json_object_get(root.value, "model"), "vocab"), *id;
  const char **lines = calloc(json_object_size(vocab), sizeof *lines), *token;
  hr_tokenizer *from_json = open_family("bert"), *tokenizer;
  hr_tokens wanted = {0}, got = {0};
  hri_text out = {0};
  hr_error error = {0};
  text *texts;
  const char *path;
  uint32_t count = read_texts(&texts);
  (void)state;
  begin_directory(NULL);
  json_object_foreach(vocab, token, id) lines[json_integer_value(id)] = token;
  for (size_t i = 0; i < json_object_size(vocab); i++) hri_text_add(&out, "%s%s", lines[i], i % 2 ? "\r\n" : "\n");
  write_text("vocab.txt", out.chars);
  tokenizer = open_directory();
  for (uint32_t i = 0; i < count; i++) {
    encode(from_json, &texts[i], HR_ENCODE_SPECIAL, &wanted);
    encode(tokenizer, &texts[i], HR_ENCODE_SPECIAL, &got);
    assert_int_equal(got.count, wanted.count);
    assert_memory_equal(got.ids, wanted.ids, got.count * sizeof *got.ids);
  }
  assert_non_null(strstr(hr_tokenizer_about(tokenizer), "WordPiece, 500 tokens, vocab.txt"));
  assert_int_equal(hr_tokenizer_named(tokenizer, HR_TOKEN_UNK), 1);
  hr_tokenizer_close(tokenizer);
  write_text("tokenizer_config.json", "{\"do_lower_case\":false}");
  tokenizer = open_directory();
  expect_ids(tokenizer, "A", 0,
             (int32_t[]){hr_tokenizer_find(tokenizer, "A") < 0 ? 1 : hr_tokenizer_find(tokenizer, "A")}, 1);
  encode(from_json, &(text){"A", 1}, 0, &wanted);
  assert_int_not_equal(wanted.ids[0], 1); /* which knows it as "a" */
  hr_tokenizer_close(tokenizer);
  path = in_directory("vocab.txt");
  for (uint32_t i = 0; i < 3; i++) { /* a text is no vocabulary with a line twice */
    static const char *const others[] = {"one\ntwo\n", "a line\na line\n", "x [UNK]\n[UNK]x\nx\n"};
    write_text("vocab.txt", others[i]);
    assert_int_equal(hr_tokenizer_open(path, &tokenizer, &error), HR_ERROR_INPUT);
    assert_non_null(strstr(error.message, "no tokenizer by its content"));
  }
  write_text("vocab.txt", "[UNK]\na\n\xFF\n");
  assert_int_equal(hr_tokenizer_open(path, &tokenizer, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "line 3 is no token"));
  hri_text_deinit(&out);
  hr_tokens_deinit(&wanted);
  hr_tokens_deinit(&got);
  hr_tokenizer_close(from_json);
  free_texts(texts, count);
  free(lines);
  hri_json_deinit(&root);
  assert_int_equal(remove_directory(NULL), 0);
}

/* What is no tokenizer is refused with what it is; a mark of Windows' editors is passed over. */
static void test_content(void **state) {
  static const char *const bad[][2] = {{"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
                                        "a Git LFS pointer"},
                                       {"#version: 0.2\na b\n", "the merges of a BPE tokenizer without its vocabulary"},
                                       {"PK\x03\x04", "an archive"},
                                       {"YQ== 0\nYg== 1\n", "no token for the byte 0x00"},
                                       {"YQ== 0\nfoo bar\n", "line 2"},
                                       {"\x0A\x7F\x01", "the length of a field goes beyond"}};
  const char *path;
  char *json;
  uint64_t count;
  hri_text marked = {0};
  hr_tokenizer *tokenizer;
  (void)state;
  begin_directory(NULL);
  path = in_directory("tokenizer.model");
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    hr_error error = {0};
    write_text("tokenizer.model", bad[i][0]);
    assert_int_equal(hr_tokenizer_open(path, &tokenizer, &error), HR_ERROR_INPUT);
    if (!strstr(error.message, bad[i][1]) || !strstr(error.message, path)) fail_msg("case %zu: %s", i, error.message);
  }
  assert_int_equal(hri_file_read(data_path("gpt2", ".json"), 1 << 20, &json, &count, NULL), HR_OK);
  hri_text_add(&marked, "\xEF\xBB\xBF%s", json);
  write_text("tokenizer.model", marked.chars);
  tokenizer = open_directory();
  assert_true(hr_tokenizer_find(tokenizer, "<|endoftext|>") >= 0);
  hr_tokenizer_close(tokenizer);
  hri_text_deinit(&marked);
  hri_free(json);
  assert_int_equal(remove_directory(NULL), 0);
}

/* The vocabulary and the merges of a family as vocab.json and merges.txt, its added tokens as added_tokens_decoder. */
static void write_merges(const char *family, const char *class_name) {
  hri_json root = read_json(data_path(family, ".json"));
  json_t *model = json_object_get(root.value, "model"), *merges = json_object_get(model, "merges"),
         *added = json_object_get(root.value, "added_tokens"), *one;
  hri_text vocab = {0}, lines = {0}, config = {0};
  hri_json_writer w = hri_json_writer_init(&vocab, 0), c = hri_json_writer_init(&config, 0);
  char id[16];
  size_t i;
  hri_json_put_tree(&w, json_object_get(model, "vocab"));
  hri_text_add(&lines, "#version: 0.2\r\n");
  json_array_foreach(merges, i, one) hri_text_add(&lines, "%s %s\n", json_string_value(json_array_get(one, 0)),
                                                  json_string_value(json_array_get(one, 1)));
  hri_json_begin_object(&c);
  if (class_name) hri_json_field_string(&c, "tokenizer_class", class_name);
  hri_json_key(&c, "added_tokens_decoder");
  hri_json_begin_object(&c);
  json_array_foreach(added, i, one) {
    (void)snprintf(id, sizeof id, "%d", (int)json_integer_value(json_object_get(one, "id")));
    hri_json_key(&c, id);
    hri_json_put_tree(&c, one);
  }
  hri_json_end_object(&c);
  hri_json_end_object(&c);
  write_text("vocab.json", vocab.chars);
  write_text("merges.txt", lines.chars);
  write_text("tokenizer_config.json", config.chars);
  hri_text_deinit(&vocab);
  hri_text_deinit(&lines);
  hri_text_deinit(&config);
  hri_json_deinit(&root);
}

/* vocab.json and merges.txt give the ids of the tokenizer.json that they were taken out of; the class says which way. */
static void test_merges(void **state) {
  static const char *const cases[][3] = {{"gpt2", "GPT2Tokenizer", NULL},
                                         {"gpt2", "CodeGenTokenizerFast", NULL},
                                         {"gpt2", NULL, "{\"model_type\":\"gpt2\"}"},
                                         {"qwen2", "Qwen2Tokenizer", NULL},
                                         {"qwen2", NULL, "{\"model_type\":\"qwen3\"}"}};
  text *texts;
  uint32_t count = read_texts(&texts);
  hr_tokens a = {0}, b = {0};
  hr_tokenizer *read, *family;
  hr_error error = {0};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    begin_directory(NULL);
    write_merges(cases[i][0], cases[i][1]);
    if (cases[i][2]) write_text("config.json", cases[i][2]);
    assert_true(hr_tokenizer_present(directory));
    read = open_directory();
    family = open_family(cases[i][0]);
    for (uint32_t k = 0; k < count; k++) {
      encode(family, &texts[k], HR_ENCODE_SPECIAL, &a);
      encode(read, &texts[k], HR_ENCODE_SPECIAL, &b);
      assert_same_tokens(&a, &b, false);
    }
    assert_int_equal(hr_tokenizer_named(read, HR_TOKEN_EOS), hr_tokenizer_find(family, "<|endoftext|>"));
    assert_int_equal(hr_tokenizer_named(read, HR_TOKEN_BOS), i < 3 ? hr_tokenizer_find(family, "<|endoftext|>") : -1);
    hr_tokenizer_close(family);
    hr_tokenizer_close(read);
    if (i == 0) {
      write_text("tokenizer_config.json",
                 "{\"tokenizer_class\":\"GPT2Tokenizer\",\"add_prefix_space\":true,\"eos_token\":null,"
                 "\"bos_token\":\"<s>\",\"add_bos_token\":true}");
      read = open_directory();
      assert_int_equal(hr_tokenizer_named(read, HR_TOKEN_EOS), -1);
      encode(read, &(text){"the", 3}, HR_ENCODE_SPECIAL, &a);
      encode(read, &(text){"<s> the", 7}, 0, &b);
      assert_same_tokens(&a, &b, false);
      hr_tokenizer_close(read);
      write_text("merges.txt", "\xC4\xA0 t\nh e x\n");
      assert_int_equal(hr_tokenizer_open(directory, &read, &error), HR_ERROR_INPUT);
      assert_non_null(strstr(error.message, "merges.txt: line 2 is no merge"));
      write_text("merges.txt", "\xC4\xA0 qqq\n");
      assert_int_equal(hr_tokenizer_open(directory, &read, &error), HR_ERROR_INPUT);
      assert_non_null(strstr(error.message, "the second is not in the vocabulary"));
      write_text("tokenizer_config.json", "{\"tokenizer_class\":\"CLIPTokenizer\"}");
      assert_int_equal(hr_tokenizer_open(directory, &read, &error), HR_ERROR_INPUT);
      assert_non_null(strstr(error.message, "tokenizer_class 'CLIPTokenizer'"));
      write_text("tokenizer_config.json", "{}");
      assert_int_equal(hr_tokenizer_open(directory, &read, &error), HR_ERROR_INPUT);
      assert_non_null(strstr(error.message, "no tokenizer_class"));
      write_text("vocab.txt", "[UNK]\nthe\n"); /* of another kind, which a class that is not read may mean */
      for (uint32_t k = 0; k < 3; k++) {
        static const char *const classes[] = {"{}", "{\"tokenizer_class\":\"BertTokenizer\"}",
                                              "{\"tokenizer_class\":\"GPT2Tokenizer\"}"};
        write_text("tokenizer_config.json", classes[k]);
        if (k == 2) write_text("merges.txt", "#version: 0.2\n");
        read = open_directory();
        assert_int_equal(strstr(hr_tokenizer_about(read), "vocab.txt") != NULL, k < 2);
        hr_tokenizer_close(read);
      }
    }
    assert_int_equal(remove_directory(NULL), 0);
  }
  hr_tokens_deinit(&a);
  hr_tokens_deinit(&b);
  free_texts(texts, count);
}

/* Tokens may hold U+0000; what Unigram does not know is trimmed by its own blanks. Ids and offsets are the reference's. */
static void test_null_and_blanks(void **state) {
  static const char json[] =
      "{\"post_processor\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true},\"model\":{\"type\":"
      "\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0.0],[\"a\",-1.0],[\"\\u0000\",-2.0],[\"b\\u0000a\",-1.5]]}}";
  static const char numbered[] =
      "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\\u0000\":0,\"a\":1,\"\\u0000b\":2,\"b\":3,\"a\\u0000b\":4},"
      "\"merges\":[[\"\\u0000\",\"b\"],\"a \\u0000b\"]}}";
  static const struct {
    const char *text;
    uint64_t bytes;
    uint32_t count, ids[3], ends[6];
  } cases[] = {{"a\xE3\x80\x80", 4, 2, {1, 0}, {0, 1, 4, 4}},
               {"\xE3\x80\x80\xE3\x80\x80"
                "a",
                7,
                2,
                {0, 1},
                {6, 6, 6, 7}},
               {"a\xE2\x80\x83\xC3\xA9 a", 8, 3, {1, 0, 1}, {0, 1, 4, 6, 7, 8}},
               {"\0a", 2, 2, {2, 1}, {0, 1, 1, 2}},
               {"ab\0a\0", 5, 3, {1, 3, 2}, {0, 1, 1, 4, 4, 5}}};
  hr_tokens tokens = {0};
  hr_tokenizer *tokenizer;
  uint64_t bytes;
  (void)state;
  begin_directory(NULL);
  write_text("tokenizer.json", json);
  tokenizer = open_directory();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(hr_tokenizer_encode(tokenizer, cases[i].text, cases[i].bytes, HR_ENCODE_OFFSETS, &tokens, NULL),
                     HR_OK);
    assert_int_equal(tokens.count, cases[i].count);
    for (uint32_t k = 0; k < cases[i].count; k++)
      if ((uint32_t)tokens.ids[k] != cases[i].ids[k] || tokens.begin[k] != cases[i].ends[2 * k] ||
          tokens.end[k] != cases[i].ends[2 * k + 1])
        fail_msg("case %zu, token %u: %d at %u to %u", i, k, tokens.ids[k], tokens.begin[k], tokens.end[k]);
  }
  hr_tokenizer_close(tokenizer);
  write_text("tokenizer.json", numbered);
  tokenizer = open_directory();
  assert_int_equal(hr_tokenizer_encode(tokenizer, "\0a\0", 3, 0, &tokens, NULL), HR_OK);
  assert_int_equal(tokens.count, 3);
  assert_true(tokens.ids[0] == 0 && tokens.ids[1] == 1 && tokens.ids[2] == 0);
  assert_int_equal(hr_tokenizer_encode(tokenizer, "\0\0ba\0ba", 7, 0, &tokens, NULL),
                   HR_OK); /* the parts of merges too */
  assert_int_equal(tokens.count, 4);
  assert_true(tokens.ids[0] == 0 && tokens.ids[1] == 2 && tokens.ids[2] == 4 && tokens.ids[3] == 1);
  assert_memory_equal(hr_tokenizer_token(tokenizer, 2, &bytes), "\0b", 3);
  assert_int_equal(bytes, 2);
  hr_tokens_deinit(&tokens);
  hr_tokenizer_close(tokenizer);
  assert_int_equal(remove_directory(NULL), 0);
}

/* ---- refusals ---- */

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[[\"a\",\"b\"]]}"

static const struct {
  const char *json, *message;
} refused[] = {
    {"", "the file is empty"},
    {" ", "no JSON"},
    {"[]", "expected an object, found '['"},
    {"{}", "field 'model' is missing"},
    {"{\"version\":\"2.0\"," MODEL "}", "field 'version' is '2.0'"},
    {"{" MODEL "," MODEL "}", "field 'model' is there twice"},
    {"{" MODEL "} x", "expected the end"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1.0],[\"b\"]]}}", "token 'b' has no score"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[]]}}", "a token must have a score"},
    {"{\"model\":{\"vocab\":[[\"a\",-1.0,2]]}}", "token 'a' has more than a score"},
    {"{\"model\":{\"vocab\":[[\"a\",-1.0],[\"a\",-2]]}}", "token 'a' is in the vocabulary twice"},
    {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",-1.0]]}}", "field 'model.unk_id' is 1"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":{\"a\":0}}}",
     "field 'model.vocab' must be a list of tokens with scores"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":[[\"a\",-1.0]]}}", "must be an object of tokens and ids"},
    {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1.0]]}}",
     "'Unigram' behind ByteLevel is not supported"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", "field 'model.unk_token': '[UNK]' is not in the vocabulary"},
    {"{\"model\":{\"max_input_chars_per_word\":3,\"unk_token\":\"u\",\"vocab\":{}}}", "'u' is not in the vocabulary"},
    {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}", "the model 'WordLevel' is not supported"},
    {"{\"model\":{\"vocab\":{\"a\":0}}}", "the model 'WordLevel' is not supported; BPE, Unigram and WordPiece are"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "field 'model.merges' is missing"},
    {"{\"model\":{\"type\":\"BPE\",\"merges\":[]}}", "field 'model.vocab' is missing"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "the vocabulary is empty"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"x\":16777215},\"merges\":[]}}",
     "token 'x' has the id 16777215, but the vocabulary has 2 tokens; from 1048576 on an id is less than 16 times their number"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"x\":1048576},\"merges\":[]}}", "has the id 1048576"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"x\":16777216},\"merges\":[]}}", "at most 16777215 is supported"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}",
     "token 'a' is in the vocabulary twice"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}",
     "tokens 'a' and 'b' have the same id 0"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4294967296},\"merges\":[]}}", "token 'a' has the id 4294967296"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "expected a non-negative integer"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}}",
     "merge 0 ('a' with 'b'): the result is not in the vocabulary"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "the second is not in the vocabulary"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"b\":0},\"merges\":[\"a b\"]}}", "the first is not in the vocabulary"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"ab\"]}}", "must be two parts"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b c\"]}}", "must be two parts"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", "must have two parts"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\":0,\"\xE2\x96\x81\":1},\"merges\":[[\"\",\"\xE2\x96\x81\"]]}}",
     "merge 0 has an empty part"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"b\",\"c\"]]}}", "must have two parts"},
    {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}}",
     "field 'model.dropout' is set"},
    {"{\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":{\"a\":0},\"merges\":[]}}",
     "field 'model.unk_token': 'u' is not in the vocabulary"},
    {"{\"model\":{\"type\":\"BPE\",\"fuse_unk\":1,\"vocab\":{\"a\":0},\"merges\":[]}}", "expected true or false"},
    {"{\"added_tokens\":[{\"id\":3,\"content\":\" \",\"normalized\":true}],\"normalizer\":{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}," MODEL
     "}",
     "nothing is left of the added token ' ' when it is normalized"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a \\u0000\"]}}",
     "the second is not in the vocabulary"},
    {"{\"added_tokens\":[{\"id\":5}]," MODEL "}", "an added token without content"},
    {"{\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":1}," MODEL "}", "normalizer.lowercase"},
    {"{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}," MODEL "}",
     "normalizer: field 'precompiled_charsmap' of 3 bytes is malformed"},
    {"{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"A\"}," MODEL "}", "is not base64"},
    {"{\"normalizer\":{\"type\":\"Odd\"}," MODEL "}", "the normalizer 'Odd' is not supported"},
    {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"NFC\"}]}," MODEL "}",
     "normalizer.normalizers[0]"},
    {"{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," MODEL "}",
     "field 'pre_tokenizer': pre-tokenizer 'UnicodeScripts' is not supported"},
    {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"Metaspace\"}]}," MODEL
     "}",
     "pre_tokenizer.pretokenizers[1]' changes text after ByteLevel"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}," MODEL "}",
     "pre_tokenizer.pattern"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Odd\"}," MODEL "}",
     "is 'Odd'"},
    {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"__\"}," MODEL "}", "must be one character"},
    {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"odd\"}," MODEL "}", "prepend_scheme' is 'odd'"},
    {"{\"pre_tokenizer\":7," MODEL "}", "pre_tokenizer"},
    {"{\"post_processor\":{\"type\":\"BertProcessing\"}," MODEL "}", "post_processor.cls"},
    {"{\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\",0],\"sep\":[\"z\",9]}," MODEL "}",
     "post_processor.sep' must be a token of the vocabulary and its id"},
    {"{\"post_processor\":{\"type\":\"Odd\"}," MODEL "}", "post-processor 'Odd' is not supported"},
    {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}," MODEL "}", "the sequence A once"},
    {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}]}," MODEL
     "}",
     "field 'post_processor.special_tokens' is missing"},
    {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{}}," MODEL
     "}",
     "post_processor.special_tokens.x"},
    {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"x\":{\"ids\":[9]}}}," MODEL
     "}",
     "the id of a token of the vocabulary"},
    {"{\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"x\":{\"ids\":[0]}}},{\"type\":\"BertProcessing\",\"cls\":[\"a\",0],\"sep\":[\"a\",0]}]}," MODEL
     "}",
     "post_processor.processors[1]' adds tokens behind a template"},
    {"{\"added_tokens\":[{\"id\":9,\"content\":\"x\"}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":2},\"merges\":[]}}",
     "the added token 'x' would get the id 2, which is that of 'b'"},
    {"{\"decoder\":{\"type\":\"CTC\"}," MODEL "}", "decoder 'CTC' is not supported"},
    {"{\"decoder\":{\"type\":\"BPEDecoder\",\"suffix\":\"\"}," MODEL "}", "suffix is not empty"},
};

/* Ids with holes are a vocabulary like others, in whatever order they come: those of a model that was pruned. */
static void test_sparse_ids(void **state) {
  enum { TOKENS = 70000, APART = 16 };
  hri_text json = {0};
  hr_tokenizer *tokenizer;
  (void)state;
  begin_directory(NULL);
  hri_text_add(&json, "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
  for (uint32_t k = TOKENS; k-- > 0;) hri_text_add(&json, "\"t%u\":%u%s", k, APART * k, k ? "," : "}}}");
  write_text("tokenizer.json", json.chars);
  tokenizer = open_directory();
  assert_int_equal(hr_tokenizer_size(tokenizer), APART * (TOKENS - 1) + 1);
  for (uint32_t k = 0; k < TOKENS; k += TOKENS - 1) {
    char name[16];
    (void)snprintf(name, sizeof name, "t%u", k);
    assert_int_equal(hr_tokenizer_find(tokenizer, name), APART * k);
  }
  hr_tokenizer_close(tokenizer);
  hri_text_deinit(&json);
  write_text("tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0,\"x\":1048575}}}");
  tokenizer = open_directory();
  assert_int_equal(hr_tokenizer_size(tokenizer), 1048576);
  hr_tokenizer_close(tokenizer);
  assert_int_equal(remove_directory(NULL), 0);
}

static void test_refusals(void **state) {
  (void)state;
  begin_directory(NULL);
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    hr_tokenizer *tokenizer;
    hr_error error = {0};
    hr_status status;
    write_text("tokenizer.json", refused[i].json);
    status = hr_tokenizer_open(directory, &tokenizer, &error);
    if (status != HR_ERROR_INPUT || tokenizer) fail_msg("case %zu (%s): status %d", i, refused[i].json, status);
    if (!strstr(error.message, refused[i].message))
      fail_msg("case %zu: '%s' is not in '%s'", i, refused[i].message, error.message);
    assert_non_null(strstr(error.message, "tokenizer.json"));
  }
  write_text("tokenizer.json", "{" MODEL "}"); /* and what they are made of is fine */
  hr_tokenizer_close(open_directory());
  assert_int_equal(remove_directory(NULL), 0);
}

/* An added token of `bytes` letters and a "b", beside "aab" and "aabbb"; the name of what it is written to is given. */
static void write_added(uint32_t bytes) {
  char *json = malloc(bytes + 1024), *letters = malloc(bytes + 1);
  assert_non_null(json);
  assert_non_null(letters);
  memset(letters, 'a', bytes);
  letters[bytes] = 0;
  (void)snprintf(
      json, bytes + 1024,
      "{\"added_tokens\":[{\"id\":3,\"content\":\"%sb\"},{\"id\":4,\"content\":\"aab\"},{\"id\":5,\"content\":\"aabbb\"}]," MODEL
      "}",
      letters);
  write_text("tokenizer.json", json);
  free(letters);
  free(json);
}

/* At each place of a text as much may be looked at as the longest added token has, which is why that is bounded. */
static void test_long_added_tokens(void **state) {
  enum { LETTERS = 8 << 20, MOST = 1024 };
  char *letters = malloc(LETTERS);
  hr_tokens tokens = {0};
  hr_tokenizer *tokenizer;
  hr_error error;
  double begin;
  (void)state;
  assert_non_null(letters);
  memset(letters, 'a', LETTERS);
  begin_directory(NULL);
  write_added(MOST - 1);
  tokenizer = open_directory();
  expect_ids(tokenizer, "aabbaabbbaaba", 0, (const int32_t[]){4, 1, 5, 4, 0}, 5);
  begin = cpu_seconds();
  assert_int_equal(hr_tokenizer_encode(tokenizer, letters, LETTERS, 0, &tokens, &error), HR_OK);
  assert_int_equal(tokens.count, LETTERS);
  if (cpu_seconds() - begin > 20) fail_msg("it took %.1f s", cpu_seconds() - begin);
  hr_tokenizer_close(tokenizer);
  write_added(MOST);
  assert_int_equal(hr_tokenizer_open(directory, &tokenizer, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "has 1025 bytes, at most 1024 are supported"));
  assert_non_null(strstr(error.message, "tokenizer.json"));
  hr_tokens_deinit(&tokens);
  free(letters);
  assert_int_equal(remove_directory(NULL), 0);
}

/* Text with a character that the model has no token for, where it has none for unknown ones either: the reference fails on
 * these, bytes to fall back to or not; ids of our own would be other ones. */
static void test_unknown_without_token(void **state) {
  static const struct {
    const char *json, *fine, *refused, *message;
  } cases[] = {
      {"{\"model\":{\"type\":\"Unigram\",\"byte_fallback\":true,\"vocab\":[[\"a\",-1.0],[\"ab\",-1.0],[\"<0x63>\",-9.0]]}}",
       "aa", "ac", "no token for 'c', and none for unknown characters"},
      {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1.0],[\"ab\",-1.0]]}}", "a", "ab",
       "no token for 'b', and none for unknown characters"},
      {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":{\"a\":0,\"\u0120\":1},"
       "\"merges\":[]}}",
       "a a", "ab", "no token for 'b', and model.unk_token is not in its vocabulary"},
  };
  hr_tokens tokens = {0};
  (void)state;
  begin_directory(NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_error error = {0};
    hr_tokenizer *tokenizer;
    write_text("tokenizer.json", cases[i].json);
    tokenizer = open_directory();
    assert_int_equal(hr_tokenizer_encode(tokenizer, cases[i].fine, strlen(cases[i].fine), 0, &tokens, &error), HR_OK);
    assert_int_equal(hr_tokenizer_encode(tokenizer, cases[i].refused, strlen(cases[i].refused), 0, &tokens, &error),
                     HR_ERROR_INPUT);
    if (!strstr(error.message, cases[i].message)) fail_msg("case %zu: %s", i, error.message);
    hr_tokenizer_close(tokenizer);
  }
  hr_tokens_deinit(&tokens);
  assert_int_equal(remove_directory(NULL), 0);
}

static void test_misuse(void **state) {
  hr_tokenizer *tokenizer;
  hr_tokens tokens = {0};
  hr_error error = {0};
  char *decoded;
  (void)state;
  begin_directory(NULL);
  assert_int_equal(hr_tokenizer_open(directory, &tokenizer, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "holds no tokenizer"));
  assert_int_equal(hr_tokenizer_open("/nowhere/at/all.json", &tokenizer, &error), HR_ERROR_IO);
  assert_int_equal(hr_tokenizer_open("vocab.txt", &tokenizer, &error), HR_ERROR_IO);
  assert_int_equal(remove_directory(NULL), 0);
  tokenizer = open_family("gpt2");
  assert_int_equal(hr_tokenizer_encode(tokenizer, "x", (uint64_t)1 << 32, 0, &tokens, &error), HR_ERROR_USAGE);
  assert_int_equal(hr_tokenizer_decode(tokenizer, (int32_t[]){1, 700}, 2, 0, &decoded, NULL, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "has no id 700"));
  assert_null(decoded);
  assert_int_equal(hr_tokenizer_decode(tokenizer, (int32_t[]){-1}, 1, 0, &decoded, NULL, &error), HR_ERROR_INPUT);
  assert_null(hr_tokenizer_token(tokenizer, 700, NULL));
  assert_null(hr_tokenizer_token(tokenizer, -1, NULL));
  assert_int_equal(hr_tokenizer_find(tokenizer, "no such token"), -1);
  assert_int_equal(hr_tokenizer_decode(tokenizer, NULL, 0, 0, &decoded, NULL, &error), HR_OK);
  assert_string_equal(decoded, "");
  hr_free(decoded);
  hr_tokenizer_close(tokenizer);
  hr_tokenizer_close(NULL);
}

/* ---- threads and memory ---- */

typedef struct worker {
  const hr_tokenizer *tokenizer;
  const text *texts;
  uint32_t count;
  uint64_t hash;
} worker;

static void *work(void *context) {
  worker *w = context;
  hr_tokens tokens = {0};
  for (uint32_t round = 0; round < 3; round++)
    for (uint32_t i = 0; i < w->count; i++) {
      if (hr_tokenizer_encode(w->tokenizer, w->texts[i].bytes, w->texts[i].count, HR_ENCODE_SPECIAL, &tokens, NULL) !=
          HR_OK)
        return NULL;
      w->hash = w->hash * 31 + fnv(0x811C9DC5u, tokens.ids, tokens.count * sizeof *tokens.ids);
    }
  hr_tokens_deinit(&tokens);
  return NULL;
}

static void test_threads(void **state) {
  static const char *const names[] = {"llama3", "clip_bytes", "llama2", "xlmr", "ties", "bert"};
  text *texts;
  uint32_t count = read_texts(&texts);
  (void)state;
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    hr_tokenizer *tokenizer = open_family(names[n]);
    worker workers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
      workers[i] = (worker){tokenizer, texts, count, 0};
      assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) (void)pthread_join(threads[i], NULL);
    for (int i = 1; i < 4; i++) assert_true(workers[i].hash == workers[0].hash);
    assert_true(workers[0].hash != 0);
    hr_tokenizer_close(tokenizer);
  }
  free_texts(texts, count);
}

/* Every allocation of opening, encoding and decoding fails once: MEMORY, nothing lost, and the next try is well. */
static void torture(const char *name) {
  const text sample =
      {"Hello <s> w\xC3\xB6rld <|im_start|> \xFF  123 supercalifragilistic words and   a mask <mask> don't", 80};
  uint64_t live = hri_mem_live_bytes();
  for (uint64_t nth = 1;; nth++) {
    hr_tokenizer *tokenizer = NULL;
    hr_tokens tokens = {0};
    char *decoded = NULL;
    hr_error error = {0};
    hr_status status;
    hri_mem_fail_after(nth);
    status = hr_tokenizer_open(data_path(name, ".json"), &tokenizer, &error);
    if (status == HR_OK)
      status = hr_tokenizer_encode(tokenizer, sample.bytes, sample.count, HR_ENCODE_SPECIAL | HR_ENCODE_OFFSETS,
                                   &tokens, &error);
    if (status == HR_OK)
      status = hr_tokenizer_encode(tokenizer, sample.bytes, sample.count, HR_ENCODE_SPECIAL, &tokens, &error);
    if (status == HR_OK) status = hr_tokenizer_decode(tokenizer, tokens.ids, tokens.count, 0, &decoded, NULL, &error);
    hri_mem_fail_after(0);
    hr_free(decoded);
    hr_tokens_deinit(&tokens);
    hr_tokenizer_close(tokenizer);
    if (hri_mem_live_bytes() != live)
      fail_msg("%s: %llu bytes lost when allocation %llu fails", name,
               (unsigned long long)(hri_mem_live_bytes() - live), (unsigned long long)nth);
    if (status == HR_OK) return;
    if (status != HR_ERROR_MEMORY)
      fail_msg("%s: status %d when allocation %llu fails: %s", name, status, (unsigned long long)nth, error.message);
  }
}

static void test_refused_memory(void **state) {
  static const char *const names[] = {"roberta", "llama2", "byte_normalizer", "metaspace", "t5", "xlmr", "bert"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) torture(names[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_vectors),
      cmocka_unit_test(test_remembered_words),
      cmocka_unit_test(test_words_of_all_lengths),
      cmocka_unit_test(test_long_pieces),
      cmocka_unit_test(test_config),
      cmocka_unit_test(test_template),
      cmocka_unit_test(test_greedy_blanks),
      cmocka_unit_test(test_growth),
      cmocka_unit_test(test_long_token),
      cmocka_unit_test(test_gguf),
      cmocka_unit_test(test_sentencepiece),
      cmocka_unit_test(test_tiktoken),
      cmocka_unit_test(test_decimals),
      cmocka_unit_test(test_equal_paths),
      cmocka_unit_test(test_ranks_by_content),
      cmocka_unit_test(test_whisper),
      cmocka_unit_test(test_whisper_config),
      cmocka_unit_test(test_tekken),
      cmocka_unit_test(test_words),
      cmocka_unit_test(test_content),
      cmocka_unit_test(test_merges),
      cmocka_unit_test(test_null_and_blanks),
      cmocka_unit_test(test_long_added_tokens),
      cmocka_unit_test(test_unknown_without_token),
      cmocka_unit_test(test_sparse_ids),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_misuse),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_refused_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
