/* Conversion between Hugging Face directories and GGUF files, against what transformers and the gguf package make of
 * the same models (tests/gguf, recorded by tests/parity/record_gguf.py). */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <sched.h>
#include <sys/mount.h>

#include <headroom/convert.h>
#include <headroom/device.h>
#include <headroom/tokenizer.h>
#include <headroom/train.h>

#include "base/json.h"
#include "base/publish.h"
#include "convert/lexicon.h"
#include "formats/weights.h"
#include "model/gguf.h"
#include "support/child.h"

static const char *scratch;

static const char *const families[] = {"llama",      "llama-biases", "llama-llama3",
                                       "llama-yarn", "mistral",      "qwen2",
                                       "qwen3",      "phi3",         "phi3-longrope",
                                       "gemma2",     "gemma3",       "gpt2",
                                       "gemma",      "smollm3",      "granite",
                                       "olmo2",      "stablelm",     "stablelm-parallel",
                                       "phi"};
enum { FAMILIES = sizeof families / sizeof *families };

/* path_of has few buffers; these stay. */
__attribute__((format(printf, 1, 2))) static const char *kept(const char *format, ...) {
  static char paths[1024][256];
  static int used;
  va_list args;
  va_start(args, format);
  assert_true(used < 1024 && vsnprintf(paths[used], sizeof paths[used], format, args) < (int)sizeof paths[used]);
  va_end(args);
  return paths[used++];
}

static const char *recorded(const char *name) { return kept("%s/gguf/%s", HR_TEST_DATA, name); }

static hr_convert_result convert(const char *source, const char *target, const char *type) {
  hr_convert_options options = {.type = type, .replace = true};
  hr_convert_result result;
  hr_error error = {0};
  if (hr_convert(source, target, &options, &result, &error) != HR_OK)
    fail_msg("%s to %s: %s", source, target, error.message);
  return result;
}

/* Fails as it should, and leaves nothing: neither the target nor anything beside it. */
static void assert_refused(const char *source, const char *target, const char *type, hr_status want, const char *part) {
  hr_convert_options options = {.type = type};
  hr_error error = {0};
  uint64_t live = hri_mem_live_bytes();
  bool stood = hri_path_exists(target);
  assert_int_equal(hr_convert(source, target, &options, NULL, &error), want);
  assert_says(&error, part);
  assert_true(error.hint[0] != 0);
  assert_int_equal(hri_path_exists(target), stood);
  assert_no_scratch(scratch);
  assert_int_equal(hri_mem_live_bytes(), live);
}

/* ---- models made by the test ---- */

/* A llama with one layer and `vocabulary` rows; weights are sines, so that all differ. */
static void make_model(const char *directory, uint32_t vocabulary, uint32_t hidden, float largest) {
  hr_model model;
  hri_safetensor tensors[16] = {0};
  char names[16][96];
  uint32_t count = 0;
  hri_weights_writer *writer;
  hr_error error = {0};
  const char *config = kept("%s/config.json", directory);
  assert_int_equal(hri_dir_make(directory, &error), HR_OK);
  FILE *file = fopen(config, "w");
  assert_non_null(file);
  (void)fprintf(
      file,
      "{\"model_type\":\"llama\",\"vocab_size\":%u,\"num_hidden_layers\":1,\"hidden_size\":%u,\"intermediate_size\":8,"
      "\"num_attention_heads\":2,\"max_position_embeddings\":32,\"bos_token_id\":1,\"eos_token_id\":2,\"tie_word_embeddings\":true}",
      vocabulary, hidden);
  assert_int_equal(fclose(file), 0);
  if (hr_model_open(directory, &model, &error) != HR_OK) fail_msg("%s", error.message);
  for (uint32_t p = 0; p < hri_param_count(&model); p++) {
    hri_param_spec spec;
    hri_param_get(&model, p, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++, count++) {
      memcpy(names[count], spec.parts[k].name, sizeof names[count]);
      tensors[count] = (hri_safetensor){.name = names[count],
                                        .dtype = HRI_FILE_F32,
                                        .rank = spec.rank,
                                        .shape = {spec.parts[k].rows, spec.rank == 2 ? spec.dims[1] : 1}};
    }
  }
  (void)unlink(path_of("%s/model.safetensors", directory)); /* of an earlier model of the same test */
  if (hri_weights_writer_open(directory, tensors, count, 0, &writer, &error) != HR_OK) fail_msg("%s", error.message);
  for (uint32_t i = 0; i < count; i++) {
    uint64_t n = tensors[i].shape[0] * (tensors[i].rank == 2 ? tensors[i].shape[1] : 1);
    float *values = malloc(n * sizeof *values);
    for (uint64_t k = 0; k < n; k++) values[k] = largest * (float)sin((double)k + 7.0 * i);
    assert_int_equal(hri_weights_writer_write(writer, i, 0, values, n * sizeof *values, &error), HR_OK);
    free(values);
  }
  assert_int_equal(hri_weights_writer_finish(writer, NULL, &error), HR_OK);
}

/* ---- memory ---- */

/* First of all tests, because the peak of a process is counted once: 51 MB of weights, in and out. */
static void test_memory_bounded(void **state) {
  const char *directory = kept("%s/large", scratch), *file = kept("%s/large.gguf", scratch);
  uint64_t before, largest = 200000 * 64 * 4;
  (void)state;
  make_model(directory, 200000, 64, 0.5f);
  before = hri_mem_peak_bytes();
  (void)convert(directory, file, "q8_0");
  (void)convert(file, path_of("%s/large-back", scratch), "f32");
  assert_true(hri_mem_peak_bytes() >= before);
  if (hri_mem_peak_bytes() > 32u << 20)
    fail_msg("%llu bytes were held, the largest tensor has %llu", (unsigned long long)hri_mem_peak_bytes(),
             (unsigned long long)largest);
}

/* ---- families, against the reference ---- */

static hri_gguf *open_gguf(const char *path) {
  hri_gguf *file;
  hr_error error = {0};
  if (hri_gguf_open(path, &file, &error) != HR_OK) fail_msg("%s", error.message);
  return file;
}

static void assert_same_tensors(const char *got_path, const char *want_path) {
  hri_gguf *got = open_gguf(got_path), *want = open_gguf(want_path);
  for (uint32_t i = 0; i < hri_gguf_count(want); i++) {
    const hri_gguf_tensor *w = hri_gguf_tensor_get(want, i), *g;
    uint32_t index = hri_gguf_find(got, w->name);
    float a[4096], b[4096];
    if (index == HRI_GGUF_NONE) fail_msg("%s has no %s", got_path, w->name);
    g = hri_gguf_tensor_get(got, index);
    assert_memory_equal(g->dims, w->dims, sizeof w->dims);
    assert_true(g->type == HRI_GGML_F32 && w->type == HRI_GGML_F32 && w->bytes <= sizeof a);
    assert_int_equal(hri_gguf_read(got, index, 0, g->bytes, a, NULL), HR_OK);
    assert_int_equal(hri_gguf_read(want, i, 0, w->bytes, b, NULL), HR_OK);
    for (uint64_t k = 0; k < w->elements; k++) /* divisors of RoPE frequencies are computed; all else is moved */
      if (strncmp(w->name, "rope_freqs", 10) == 0 ? fabsf(a[k] - b[k]) > 1e-5f * b[k] : a[k] != b[k])
        fail_msg("%s: %s differs at %llu: %g and %g", got_path, w->name, (unsigned long long)k, (double)a[k],
                 (double)b[k]);
  }
  assert_int_equal(hri_gguf_count(got), hri_gguf_count(want));
  hri_gguf_close(got);
  hri_gguf_close(want);
}

static void test_families_to_gguf(void **state) {
  (void)state;
  for (int i = 0; i < FAMILIES; i++) {
    const char *file = kept("%s/family.gguf", scratch);
    hr_convert_result result = convert(recorded(families[i]), file, "f32");
    assert_string_equal(result.from, "Hugging Face");
    assert_string_equal(result.source_type, "bf16");
    assert_same_tensors(file, recorded(path_of("%s.gguf", families[i])));
  }
}

/* The reference's file becomes what transformers saved, byte for byte. */
static void test_families_from_gguf(void **state) {
  (void)state;
  for (int i = 0; i < FAMILIES; i++) {
    const char *directory = kept("%s/family", scratch);
    (void)convert(recorded(path_of("%s.gguf", families[i])), directory, "bf16");
    assert_same_file(path_of("%s/model.safetensors", directory),
                     recorded(path_of("%s/model.safetensors", families[i])));
  }
}

/* The keys say what config.json says; and what we write ourselves comes back. */
static void test_descriptions(void **state) {
  (void)state;
  for (int i = 0; i < FAMILIES; i++) {
    const char *sources[3] = {kept("%s/gguf/%s", HR_TEST_DATA, families[i]),
                              kept("%s/gguf/%s.gguf", HR_TEST_DATA, families[i]), kept("%s/family.gguf", scratch)};
    char *texts[3];
    hr_error error = {0};
    (void)convert(sources[0], sources[2], "f32");
    for (int k = 0; k < 3; k++) {
      hr_model model;
      if (hr_model_open(sources[k], &model, &error) != HR_OK) fail_msg("%s: %s", sources[k], error.message);
      assert_string_equal(model.directory, sources[k]);
      texts[k] = hr_model_config_text(&model, "float32");
      assert_non_null(texts[k]);
    }
    assert_string_equal(texts[1], texts[0]);
    assert_string_equal(texts[2], texts[0]);
    for (int k = 0; k < 3; k++) hr_free(texts[k]);
  }
}

/* Rows in pieces, through little staging, are the rows of the whole. */
static void test_pieces(void **state) {
  (void)state;
  for (int i = 0; i < FAMILIES; i++) {
    hri_gguf *file = open_gguf(recorded(path_of("%s.gguf", families[i])));
    hr_model model;
    assert_int_equal(hri_gguf_model(file, &model, NULL), HR_OK);
    for (uint32_t p = 0; p < hri_param_count(&model); p++) {
      hri_param_spec spec;
      hri_gguf_part part;
      uint32_t index;
      static float whole[4096], piece[4096];
      static char staging[HRI_GGUF_STAGING_LEAST];
      hri_param_get(&model, p, &spec);
      hri_gguf_part_of(&model, &spec, 0, &part);
      assert_int_equal(hri_gguf_part_find(file, &part, &index, NULL), HR_OK);
      assert_int_equal(hri_gguf_part_read(file, index, &part, 0, part.rows, whole, staging, sizeof staging, NULL),
                       HR_OK);
      for (uint64_t row = 0; row < part.rows; row += 5) {
        uint64_t count = part.rows - row < 5 ? part.rows - row : 5;
        assert_int_equal(hri_gguf_part_read(file, index, &part, row, count, piece, staging, sizeof staging, NULL),
                         HR_OK);
        assert_memory_equal(piece, whole + row * part.columns, count * part.columns * sizeof *piece);
      }
    }
    hri_gguf_close(file);
  }
}

static uint32_t type_of_tensor(const hri_gguf *file, const char *name) {
  return hri_gguf_tensor_get(file, hri_gguf_find(file, name))->type;
}

/* Matrices take the type; rows that fill no blocks, vectors and position tables do not. Values are the encoder's. */
static void test_types(void **state) {
  const char *q8_path = kept("%s/q8.gguf", scratch), *f32_path = kept("%s/f32.gguf", scratch);
  hri_gguf *q8, *f32;
  static float values[4096];
  static unsigned char got[16384], want[16384];
  uint64_t bytes;
  (void)state;
  (void)convert(recorded("gpt2"), q8_path, "q8_0");
  (void)convert(recorded("gpt2"), f32_path, "f32");
  q8 = open_gguf(q8_path);
  f32 = open_gguf(f32_path);
  assert_int_equal(type_of_tensor(q8, "blk.0.ffn_down.weight"), HRI_GGML_Q8_0); /* rows of 32 */
  assert_int_equal(type_of_tensor(q8, "blk.0.ffn_up.weight"), HRI_GGML_F16);    /* rows of 24 */
  assert_int_equal(type_of_tensor(q8, "blk.0.ffn_up.bias"), HRI_GGML_F32);
  assert_int_equal(type_of_tensor(q8, "position_embd.weight"), HRI_GGML_F32);
  for (uint32_t i = 0; i < hri_gguf_count(q8); i++) {
    const hri_gguf_tensor *t = hri_gguf_tensor_get(q8, i);
    assert_int_equal(hri_gguf_read(f32, hri_gguf_find(f32, t->name), 0, t->elements * 4, values, NULL), HR_OK);
    assert_int_equal(hri_gguf_read(q8, i, 0, t->bytes, got, NULL), HR_OK);
    assert_true(hri_ggml_bytes(t->type, t->elements, &bytes) && hri_ggml_from_f32(t->type, want, values, t->elements));
    assert_int_equal(bytes, t->bytes);
    assert_memory_equal(got, want, bytes);
  }
  hri_gguf_close(q8);
  hri_gguf_close(f32);
}

/* The same input gives the same bytes; the type of the source is kept when none is asked for. */
static void test_deterministic(void **state) {
  const char *a = kept("%s/a.gguf", scratch), *b = kept("%s/b.gguf", scratch);
  hr_convert_result result;
  (void)state;
  result = convert(recorded("llama"), a, NULL);
  (void)convert(recorded("llama"), b, NULL);
  assert_string_equal(result.type, "bf16");
  assert_same_file(a, b);
  result = convert(a, path_of("%s/back", scratch), NULL);
  assert_string_equal(result.type, "bf16");
  result = convert(recorded("qwen2"), a, "q8_0");
  result = convert(a, path_of("%s/back", scratch), NULL);
  assert_string_equal(result.type, "f16");
}

/* ---- tokenizers ---- */

static hri_json read_json(const char *path) {
  hri_json root = {0};
  hr_error error = {0};
  if (hri_json_read(path, 1 << 24, &root, &error) != HR_OK) fail_msg("%s", error.message);
  return root;
}

static void copy_file(const char *from, const char *to) {
  size_t count = 0;
  char *bytes = get_file(from, &count);
  assert_non_null(bytes);
  put_file(to, bytes, count);
  free(bytes);
}

static void assert_same_member(const hri_json *a, const hri_json *b, const char *key) {
  hri_json x = hri_json_member(a, key), y = hri_json_member(b, key);
  if (!json_equal(x.value, y.value))
    fail_msg("%s: %s is %s, not %s", b->file, key, json_dumps(y.value, JSON_ENCODE_ANY),
             json_dumps(x.value, JSON_ENCODE_ANY));
}

/* What comes back splits, merges and numbers as before; added tokens stand in the vocabulary, too. */
static void assert_same_tokenizer(const char *got_path, const char *want_path) {
  hri_json got = read_json(got_path), want = read_json(want_path), a, b, added = hri_json_member(&want, "added_tokens");
  const char *token;
  json_t *id;
  static const char *const parts[] = {"normalizer", "pre_tokenizer", "decoder"};
  a = hri_json_member(&want, "model");
  b = hri_json_member(&got, "model");
  for (int i = 0; i < 3; i++) assert_same_member(&want, &got, parts[i]);
  assert_same_member(&want, &got, "added_tokens");
  assert_same_member(&a, &b, "merges");
  assert_same_member(&a, &b, "unk_token");
  assert_same_member(&a, &b, "byte_fallback");
  assert_same_member(&a, &b, "fuse_unk");
  assert_same_member(&a, &b, "ignore_merges");
  json_object_foreach(json_object_get(a.value, "vocab"), token, id)
      assert_true(json_equal(json_object_get(json_object_get(b.value, "vocab"), token), id));
  for (uint64_t i = 0; i < hri_json_count(&added); i++) {
    hri_json item = hri_json_item(&added, i);
    token = json_string_value(json_object_get(item.value, "content"));
    assert_true(
        json_equal(json_object_get(json_object_get(b.value, "vocab"), token), json_object_get(item.value, "id")));
  }
  hri_json_deinit(&got);
  hri_json_deinit(&want);
}

static void test_tokenizers(void **state) {
  static const struct {
    const char *name, *model, *pre, *config;
    bool bos;
  } cases[] = {
      {"gpt2", "gpt2", "gpt-2", "{}", false},
      {"smollm", "gpt2", "smollm", "{\"bos_token\":\"<|im_start|>\",\"eos_token\":{\"content\":\"<|im_end|>\"}}",
       false},
      {"llama3", "gpt2", "llama-bpe", "{\"bos_token\":\"<|begin_of_text|>\",\"eos_token\":\"<|eot_id|>\"}", true},
      {"qwen2", "gpt2", "qwen2", "{\"add_bos_token\":false}", false},
      {"sentencepiece", "llama", "default", "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"unk_token\":\"<unk>\"}",
       true},
  };
  const char *directory = kept("%s/tokens", scratch), *file = kept("%s/tokens.gguf", scratch),
             *back = kept("%s/tokens-back", scratch);
  (void)state;
  make_model(directory, 470, 8, 0.5f);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *text = recorded(path_of("tokenizers/%s.json", cases[i].name)), *found;
    hri_gguf *gguf;
    hri_gguf_strings tokens;
    hr_convert_result result;
    bool bos = !cases[i].bos;
    copy_file(text, path_of("%s/tokenizer.json", directory));
    put_text(path_of("%s/tokenizer_config.json", directory), cases[i].config);
    result = convert(directory, file, NULL);
    assert_true(result.token_count > 300 && !result.has_template);
    gguf = open_gguf(file);
    assert_int_equal(hri_gguf_get_string(gguf, "tokenizer.ggml.model", &found, NULL, NULL), HR_OK),
        assert_string_equal(found, cases[i].model);
    assert_int_equal(hri_gguf_get_string(gguf, "tokenizer.ggml.pre", &found, NULL, NULL), HR_OK),
        assert_string_equal(found, cases[i].pre);
    assert_int_equal(hri_gguf_get_bool(gguf, "tokenizer.ggml.add_bos_token", &bos, NULL), HR_OK),
        assert_int_equal(bos, cases[i].bos);
    assert_int_equal(hri_gguf_get_strings(gguf, "tokenizer.ggml.tokens", &tokens, NULL), HR_OK),
        assert_int_equal(tokens.count, 470);
    hri_gguf_close(gguf);
    (void)convert(file, back, NULL);
    assert_same_tokenizer(path_of("%s/tokenizer.json", back), text);
  }
}

static void test_splits(void **state) {
  static const char *const names[] = {"gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2", "gpt-4o", "tekken"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const hri_lexicon_split *split = hri_lexicon_split_named(names[i]);
    assert_non_null(split);
    assert_string_equal(split->pre, names[i]);
    assert_ptr_equal(hri_lexicon_split_like(split->regex, split->digits, split->ignore_merges), split);
    assert_null(hri_lexicon_split_like(split->regex, !split->digits, true));
  }
  assert_ptr_equal(hri_lexicon_split_named("starcoder"), hri_lexicon_split_named("smollm"));
  assert_ptr_equal(hri_lexicon_split_named("llama3"), hri_lexicon_split_named("llama-bpe"));
  assert_null(hri_lexicon_split_named("deepseek-llm"));
  assert_null(hri_lexicon_split_like("\\w+", false, false));
  assert_ptr_equal(
      hri_lexicon_split_like("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
                             false, false),
      hri_lexicon_split_named("gpt-2"));
}

/* Files of llama.cpp have scores and no merges: those that follow, and their order, are transformers'. */
static void test_merges_from_scores(void **state) {
  static const char *const names[] = {"gemma2", "llama"};
  (void)state;
  for (int i = 0; i < 2; i++) {
    hri_gguf *file = open_gguf(recorded(path_of("tokenizers/%s.gguf", names[i])));
    hri_lexicon lexicon;
    hri_json got, want, model;
    bool found = false;
    hri_lexicon_init(&lexicon);
    assert_int_equal(hri_lexicon_from_gguf(file, &lexicon, &found, NULL), HR_OK);
    assert_true(found && lexicon.sentencepiece);
    assert_int_equal(mkdir(path_of("%s/merges-%s", scratch, names[i]), 0755), 0);
    assert_int_equal(hri_lexicon_to_directory(&lexicon, path_of("%s/merges-%s", scratch, names[i]), 32, NULL), HR_OK);
    got = read_json(path_of("%s/merges-%s/tokenizer.json", scratch, names[i]));
    want = read_json(recorded(path_of("tokenizers/%s-model.json", names[i])));
    model = hri_json_member(&got, "model");
    assert_same_member(&want, &model, "merges");
    assert_same_member(&want, &model, "vocab");
    hri_json_deinit(&got);
    hri_json_deinit(&want);
    hri_lexicon_deinit(&lexicon);
    hri_gguf_close(file);
  }
}

/* And the other way: scores that follow from merges give these merges again, in this order. */
static void test_scores_from_merges(void **state) {
  hri_json want = read_json(recorded("tokenizers/sentencepiece.json")), model = hri_json_member(&want, "model"),
           list = hri_json_member(&model, "merges");
  const char *directory = kept("%s/scores", scratch), *path = kept("%s/scores.gguf", scratch);
  hri_gguf *file;
  hri_lexicon lexicon;
  bool found;
  size_t at = 0;
  (void)state;
  make_model(directory, 470, 8, 0.5f);
  copy_file(recorded("tokenizers/sentencepiece.json"), path_of("%s/tokenizer.json", directory));
  (void)convert(directory, path, NULL);
  file = open_gguf(path);
  hri_lexicon_init(&lexicon);
  assert_int_equal(hri_lexicon_from_gguf(file, &lexicon, &found, NULL), HR_OK);
  lexicon.merges.count = 0;
  assert_int_equal(hri_lexicon_derive_merges(&lexicon, NULL), HR_OK);
  for (uint64_t i = 0; i < hri_json_count(&list); i++) { /* between them are other splits of the same tokens */
    hri_json pair = hri_json_item(&list, i), left = hri_json_item(&pair, 0), right = hri_json_item(&pair, 1);
    for (;; at++) {
      const hri_lexicon_merge *m = &lexicon.merges.items[at];
      assert_true(at < lexicon.merges.count);
      if (m->left_bytes == json_string_length(left.value) && m->right_bytes == json_string_length(right.value) &&
          memcmp(m->left, json_string_value(left.value), m->left_bytes) == 0 &&
          memcmp(m->right, json_string_value(right.value), m->right_bytes) == 0)
        break;
    }
  }
  hri_lexicon_deinit(&lexicon);
  hri_gguf_close(file);
  hri_json_deinit(&want);
}

/* A directory with a SentencePiece model only: pieces, kinds and scores are taken as they are. */
static void test_sentencepiece_model(void **state) {
  const char *directory = kept("%s/pieces", scratch), *path = kept("%s/pieces.gguf", scratch),
             *back = kept("%s/pieces-back", scratch);
  hri_gguf *file;
  hri_gguf_strings tokens;
  hri_gguf_numbers types;
  hri_json got, model, merges;
  hr_convert_result result;
  (void)state;
  make_model(directory, 4000, 8, 0.5f);
  copy_file(kept("%s/%s", HR_TEST_DATA, "parity/sentencepiece/plain.model"), path_of("%s/tokenizer.model", directory));
  result = convert(directory, path, NULL);
  assert_true(result.token_count > 256 && result.token_count <= 4000);
  file = open_gguf(path);
  assert_int_equal(hri_gguf_get_strings(file, "tokenizer.ggml.tokens", &tokens, NULL), HR_OK);
  assert_int_equal(hri_gguf_get_numbers(file, "tokenizer.ggml.token_type", &types, NULL), HR_OK);
  assert_string_equal(hri_gguf_next(&tokens, NULL), "<unk>");
  assert_int_equal(hri_gguf_integer_at(&types, 0), HRI_LEX_UNKNOWN);
  assert_int_equal(hri_gguf_integer_at(&types, 3), HRI_LEX_BYTE);
  assert_int_equal(hri_gguf_integer_at(&types, 3999), HRI_LEX_UNUSED);
  assert_false(hri_gguf_has(file, "tokenizer.ggml.merges"));
  hri_gguf_close(file);
  (void)convert(path, back, NULL);
  got = read_json(path_of("%s/tokenizer.json", back));
  model = hri_json_member(&got, "model");
  merges = hri_json_member(&model, "merges");
  assert_true(hri_json_count(&merges) > 50);
  hri_json_deinit(&got);
}

static void test_template(void **state) {
  const char *directory = kept("%s/template", scratch), *file = kept("%s/template.gguf", scratch),
             *back = kept("%s/template-back", scratch);
  hri_json config;
  const char *text;
  (void)state;
  make_model(directory, 470, 8, 0.5f);
  copy_file(recorded("tokenizers/gpt2.json"), path_of("%s/tokenizer.json", directory));
  put_text(
      path_of("%s/tokenizer_config.json", directory),
      "{\"model_max_length\":1000000000000000019884624838656,\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"no\"},{\"name\":\"default\",\"template\":\"{{ 'yes \\u00e9' }}\"}]}");
  assert_true(convert(directory, file, NULL).has_template);
  (void)convert(file, back, NULL);
  config = read_json(path_of("%s/tokenizer_config.json", back));
  assert_int_equal(hri_json_get_string(&config, "chat_template", &text, NULL), HR_OK);
  assert_string_equal(text, "{{ 'yes \xC3\xA9' }}");
  hri_json_deinit(&config);
  put_text(path_of("%s/chat_template.jinja", directory), "the newer one");
  (void)convert(directory, file, NULL);
  (void)convert(file, back, NULL);
  config = read_json(path_of("%s/tokenizer_config.json", back));
  assert_int_equal(hri_json_get_string(&config, "chat_template", &text, NULL), HR_OK);
  assert_string_equal(text, "the newer one");
  hri_json_deinit(&config);
}

/* ---- refusals ---- */

static void test_usage(void **state) {
  const char *llama = recorded("llama"), *file = recorded("llama.gguf");
  (void)state;
  assert_refused(llama, kept("%s/new", scratch), NULL, HR_ERROR_USAGE, "its name ends in .gguf");
  assert_refused(file, kept("%s/new.gguf", scratch), NULL, HR_ERROR_USAGE, "does not end in .gguf");
  assert_refused(file, scratch, NULL, HR_ERROR_USAGE, "exists");
  assert_refused(llama, kept("%s/new.gguf", scratch), "q4_1", HR_ERROR_USAGE, "'q4_1' cannot be written to GGUF");
  assert_refused(file, kept("%s/new", scratch), "q8_0", HR_ERROR_USAGE,
                 "'q8_0' cannot be written to a Hugging Face directory");
  assert_refused(kept("%s/none", scratch), path_of("%s/new.gguf", scratch), NULL, HR_ERROR_IO, "none");
}

/* A source in the directory that gives way would go with it. */
static void test_nothing_lost(void **state) {
  const char *target = kept("%s/mine", scratch), *source = kept("%s/mine/model.gguf", scratch),
             *file = recorded("llama.gguf");
  hr_convert_options options = {.replace = true};
  hr_error error = {0};
  (void)state;
  assert_int_equal(hri_dir_make(target, &error), HR_OK);
  copy_file(file, source);
  assert_int_equal(hr_convert(source, target, &options, NULL, &error), HR_ERROR_USAGE);
  assert_says(&error, "which lies in it");
  assert_int_equal(hr_convert(file, target, &options, NULL, &error), HR_ERROR_USAGE);
  assert_says(&error, "mine holds model.gguf: it is not only a model");
  assert_same_file(source, file);
}

/* In the embedding, the first in its file: it is copied beside the layers that are quantized. */
static void test_what_is_copied_is_finite(void **state) {
  const char *directory = kept("%s/bad-copy", scratch), *target = kept("%s/bad-nf4", scratch);
  const float bads[] = {INFINITY, -NAN};
  static const char *const said[] = {"inf", "nan"};
  hr_convert_options options;
  hr_error error;
  uint64_t header;
  FILE *file;
  (void)state;
  make_model(directory, 64, 8, 0.5f);
  hr_convert_options_init(&options);
  for (size_t k = 0; k < sizeof bads / sizeof *bads; k++) {
    char expected[120];
    (void)snprintf(expected, sizeof expected,
                   "tensor model.embed_tokens.weight has %s at row 3, column 5, which is not finite", said[k]);
    file = fopen(path_of("%s/model.safetensors", directory), "r+b");
    assert_non_null(file);
    assert_int_equal(fread(&header, sizeof header, 1, file), 1);
    assert_int_equal(fseek(file, (long)(sizeof header + header + (3 * 8 + 5) * sizeof *bads), SEEK_SET), 0);
    assert_int_equal(fwrite(&bads[k], sizeof *bads, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    for (options.quantize = HR_QUANTIZE_NF4; options.quantize <= HR_QUANTIZE_INT8; options.quantize++) {
      assert_int_equal(hr_convert(directory, target, &options, NULL, &error), HR_ERROR_INPUT);
      assert_says(&error, expected);
      assert_false(hri_path_exists(target));
      assert_no_scratch(scratch);
    }
  }
}

static void test_bad_weights(void **state) {
  const char *directory = kept("%s/bad", scratch), *target = kept("%s/bad.gguf", scratch);
  (void)state;
  make_model(directory, 64, 8, 70000.0f);
  assert_refused(directory, target, "f16", HR_ERROR_INPUT, "which f16 does not reach");
  (void)convert(directory, target, "bf16");
  assert_int_equal(unlink(target), 0);
  make_model(directory, 64, 8, 3.4e38f);
  assert_refused(directory, target, "bf16", HR_ERROR_INPUT, "which bf16 does not reach");
  make_model(directory, 64, 8, INFINITY);
  assert_refused(directory, target, "f32", HR_ERROR_INPUT, "not finite");
  make_model(directory, 64, 32, 1e7f);
  assert_refused(directory, target, "q8_0", HR_ERROR_INPUT, "which q8_0 does not reach");
  make_model(directory, 64, 8, 0.5f);
  put_text(
      path_of("%s/config.json", directory),
      "{\"model_type\":\"llama\",\"vocab_size\":65,\"num_hidden_layers\":1,\"hidden_size\":8,\"intermediate_size\":8,"
      "\"num_attention_heads\":2,\"max_position_embeddings\":32,\"tie_word_embeddings\":true}");
  assert_refused(directory, target, NULL, HR_ERROR_INPUT,
                 "embed_tokens.weight has shape [64, 8] and config.json asks for [65, 8]");
  put_text(
      path_of("%s/config.json", directory),
      "{\"model_type\":\"llama\",\"vocab_size\":64,\"num_hidden_layers\":1,\"hidden_size\":8,\"intermediate_size\":8,"
      "\"num_attention_heads\":2,\"max_position_embeddings\":32,\"tie_word_embeddings\":false}");
  assert_refused(directory, target, NULL, HR_ERROR_INPUT, "the tensor lm_head.weight is missing");
  assert_int_equal(unlink(path_of("%s/model.safetensors", directory)), 0);
  assert_refused(directory, target, NULL, HR_ERROR_INPUT, "holds no weights");
}

static void test_bad_tokenizer(void **state) {
  const char *directory = kept("%s/badtok", scratch), *target = kept("%s/badtok.gguf", scratch),
             *json = kept("%s/tokenizer.json", directory);
  static const struct {
    const char *text, *message;
    hr_status status;
  } cases[] = {
      {"{", "tokenizer.json", HR_ERROR_INPUT},
      {"{}", "model.vocab is missing", HR_ERROR_INPUT},
      {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "Unigram", HR_ERROR_UNSUPPORTED},
      {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "the id 0 belongs to 'a' and to 'b'",
       HR_ERROR_INPUT},
      {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999},\"merges\":[]}}", "the id 99999999 is too large",
       HR_ERROR_INPUT},
      {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"ab\"]}}", "two parts", HR_ERROR_INPUT},
      {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"b\",\"c\"]]}}", "two parts",
       HR_ERROR_INPUT},
      {"{\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
       "pre_tokenizer: Whitespace", HR_ERROR_UNSUPPORTED},
      {"{\"normalizer\":{\"type\":\"NFKC\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
       "normalizer: NFKC", HR_ERROR_UNSUPPORTED},
      {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":64},\"merges\":[]}}",
       "the tokenizer has 65 tokens, the model's vocabulary 64", HR_ERROR_INPUT},
      /* a split that drops what it finds; digits that are looked for among mapped bytes; blanks that become something
       * else */
      {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| "
       "?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Removed\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
       "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
       "pre_tokenizer: Split", HR_ERROR_UNSUPPORTED},
      {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":false},{\"type\":\"Digits\",\"individual_digits\":true}]},"
       "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
       "a part behind ByteLevel", HR_ERROR_UNSUPPORTED},
      {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"``\"},\"content\":\"x\"},\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"a\":0},\"merges\":[]}}",
       "normalizer: Replace", HR_ERROR_UNSUPPORTED},
      {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x\"},\"behavior\":\"Isolated\"},\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"a\":0},\"merges\":[]}}",
       "pre_tokenizer: Split", HR_ERROR_UNSUPPORTED},
  };
  hr_convert_options options = {.without_tokenizer = true};
  hr_error error = {0};
  (void)state;
  make_model(directory, 64, 8, 0.5f);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put_text(json, cases[i].text);
    assert_refused(directory, target, NULL, cases[i].status, cases[i].message);
  }
  assert_int_equal(hr_convert(directory, target, &options, NULL, &error), HR_OK);
}

/* The tokenizer keys of a GGUF file with `count` tokens. */
static hr_status read_keys(const char *model, const char *const *tokens, const uint64_t *bytes, uint32_t count,
                           uint32_t bos, hri_lexicon *lexicon, hri_gguf **file, hr_error *error) {
  const char *path = path_of("%s/lexicon.gguf", scratch);
  hri_gguf_keys keys = {0};
  hri_gguf_writer *writer;
  bool found;
  hri_gguf_put_string(&keys, "tokenizer.ggml.model", model, strlen(model));
  hri_gguf_put_string(&keys, "tokenizer.ggml.pre", "llama-bpe", 9);
  hri_gguf_put_array(&keys, "tokenizer.ggml.tokens", HRI_GGUF_STRING, count);
  for (uint32_t i = 0; i < count; i++) hri_gguf_add_string(&keys, tokens[i], bytes[i]);
  hri_gguf_put_u32(&keys, "tokenizer.ggml.bos_token_id", bos);
  (void)unlink(path); /* of a case before */
  assert_int_equal(hri_gguf_writer_open(path, &keys, NULL, 0, &writer, error), HR_OK);
  assert_int_equal(hri_gguf_writer_finish(writer, error), HR_OK);
  hri_gguf_keys_deinit(&keys);
  assert_int_equal(hri_gguf_open(path, file, error), HR_OK);
  hri_lexicon_init(lexicon);
  return hri_lexicon_from_gguf(*file, lexicon, &found, error);
}

static void test_bad_lexicon(void **state) {
  static const char *const tokens[] = {"a", "b", "a", "a\0b", "\xFF", "a", "a\0b", "a\0c", "\0"};
  static const uint64_t bytes[] = {1, 1, 1, 3, 1, 1, 3, 3, 1};
  static const struct {
    uint32_t first, count, bos;
    hr_status status;
    const char *message;
  } cases[] = {
      {0, 2, 1, HR_OK, ""},
      {0, 2, UINT32_MAX, HR_OK, ""},
      {0, 2, 2, HR_ERROR_INPUT, "bos_token_id' is 2, but there are 2 tokens"},
      {0, 0, 0, HR_ERROR_INPUT, "but there are 0 tokens"},
      {0, 3, 0, HR_ERROR_INPUT, "element 2 has the same text as another one"},
      {5, 4, 1, HR_OK, ""}, /* they differ behind the NUL */
      {4, 1, 0, HR_ERROR_INPUT, "element 0 is no UTF-8 text"},
  };
  (void)state;
  for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
    uint32_t k = (uint32_t)(i / 2), first = cases[k].first;
    hri_lexicon lexicon;
    hri_gguf *file;
    hr_error error = {0};
    assert_int_equal(read_keys(i % 2 ? "llama" : "gpt2", tokens + first, bytes + first, cases[k].count, cases[k].bos,
                               &lexicon, &file, &error),
                     cases[k].status);
    if (cases[k].status != HR_OK) assert_says(&error, cases[k].message);
    else assert_true(lexicon.add_bos); /* of both kinds, where the file does not say */
    if (cases[k].status == HR_OK) assert_int_equal(lexicon.named[HRI_LEXICON_BOS], cases[k].bos == 1 ? 1 : -1);
    hri_lexicon_deinit(&lexicon);
    hri_gguf_close(file);
  }
}

static char noted[400];
static void remember_note(void *context, const char *text) {
  (void)context;
  (void)snprintf(noted, sizeof noted, "%s", text);
}

/* Tokens of the model with U+0000 go both ways as they are, and text with it has the same ids on both sides. */
static void test_zeros(void **state) {
  static const char json[] =
      "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"},\"model\":{\"type\":\"BPE\","
      "\"byte_fallback\":true,\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"\\u0000\":3,\"a\\u0000\":4,\"a\\u0000b\":5},"
      "\"merges\":[[\"a\",\"\\u0000\"],\"a\\u0000 b\"]}}";
  static const char text[] = "\0ba\0b\0";
  const char *directory = kept("%s/zeros", scratch), *file = kept("%s/zeros.gguf", scratch),
             *back = kept("%s/zeros-back", scratch);
  const char *const places[] = {directory, file, back};
  hr_convert_options options;
  hr_error error = {0};
  (void)state;
  hr_convert_options_init(&options);
  options.on_note = remember_note;
  make_model(directory, 64, 8, 0.5f);
  put_text(path_of("%s/tokenizer.json", directory), json);
  noted[0] = 0;
  if (hr_convert(directory, file, &options, NULL, &error) != HR_OK) fail_msg("%s", error.message);
  assert_non_null(strstr(noted, "the token 3, and maybe others, holds U+0000"));
  if (hr_convert(file, back, &options, NULL, &error) != HR_OK) fail_msg("%s", error.message);
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    static const int32_t want[] = {3, 2, 5, 3};
    hr_tokenizer *tokenizer;
    hr_tokens tokens = {0};
    if (hr_tokenizer_open(places[i], &tokenizer, &error) != HR_OK) fail_msg("%s", error.message);
    assert_int_equal(hr_tokenizer_encode(tokenizer, text, sizeof text - 1, HR_ENCODE_PLAIN, &tokens, &error), HR_OK);
    assert_int_equal(tokens.count, 4);
    assert_memory_equal(tokens.ids, want, sizeof want);
    hr_tokens_deinit(&tokens);
    hr_tokenizer_close(tokenizer);
  }
}

/* Merges that make no token are refused by the file's name, not written into a directory that nobody opens. */
static void test_foreign_merges(void **state) {
  const char *directory = kept("%s/merges", scratch), *file = kept("%s/merges.gguf", scratch),
             *back = kept("%s/merges-back", scratch);
  hr_convert_options options = {.without_tokenizer = true};
  hr_error error = {0};
  size_t count = 0;
  char *bytes, *merge;
  (void)state;
  make_model(directory, 64, 8, 0.5f);
  put_text(path_of("%s/tokenizer.json", directory),
           "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
           "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}");
  if (hr_convert(directory, file, NULL, NULL, &error) != HR_OK) fail_msg("%s", error.message);
  bytes = get_file(file, &count);
  merge = memmem(bytes, count, "a b", 3);
  assert_non_null(merge);
  merge[2] = 'x';
  put_file(file, bytes, count);
  free(bytes);
  assert_refused(file, back, NULL, HR_ERROR_INPUT, "merges.gguf: merge 0 ('a' with 'x')");
  assert_int_equal(hr_convert(file, back, &options, NULL, &error), HR_OK);
}

/* An id that has no token but a name: other programs' files may begin texts with one. */
static void test_named_padding(void **state) {
  static const char *const texts[] = {"a", "b", "[PAD2]", "[PAD3]"};
  const char *directory = kept("%s/padding", scratch);
  hri_lexicon lexicon;
  hr_tokenizer *tokenizer;
  hr_tokens ids = {0};
  hr_error error = {0};
  (void)state;
  hri_lexicon_init(&lexicon);
  lexicon.pre = "gpt-2";
  lexicon.add_bos = true;
  lexicon.named[HRI_LEXICON_BOS] = 2;
  for (size_t i = 0; i < 4; i++) {
    hri_lexicon_token token = {texts[i], (uint32_t)strlen(texts[i]), i < 2 ? HRI_LEX_NORMAL : HRI_LEX_UNUSED, 0};
    assert_true(hri_array_push(&lexicon.tokens, token));
  }
  assert_int_equal(hri_dir_make(directory, &error), HR_OK);
  assert_int_equal(hri_lexicon_to_directory(&lexicon, directory, 64, &error), HR_OK);
  if (hr_tokenizer_open(directory, &tokenizer, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(hr_tokenizer_encode(tokenizer, "ab", 2, HR_ENCODE_SPECIAL, &ids, &error), HR_OK);
  assert_true(ids.count == 3 && ids.ids[0] == 2 && ids.ids[1] == 0);
  hr_tokens_deinit(&ids);
  hr_tokenizer_close(tokenizer);
  hri_lexicon_deinit(&lexicon);
}

/* Gemma's runs of blanks, which files have as blanks and tokenizer.json as what merges make: the same ids either way. */
static void test_runs_of_blanks(void **state) {
  static const char *const texts[] = {"a  b", "t   t", " the", "  in    the  ", "         ", "he in"};
  const char *path = recorded("tokenizers/gemma2.gguf"), *directory = kept("%s/runs", scratch);
  hri_lexicon lexicon;
  hri_gguf *file;
  hr_tokenizer *from_file, *from_directory;
  hr_error error = {0};
  uint32_t runs = 0;
  bool found;
  (void)state;
  assert_int_equal(hri_gguf_open(path, &file, &error), HR_OK);
  hri_lexicon_init(&lexicon);
  assert_int_equal(hri_lexicon_from_gguf(file, &lexicon, &found, &error), HR_OK);
  assert_int_equal(hri_dir_make(directory, &error), HR_OK);
  assert_int_equal(hri_lexicon_to_directory(&lexicon, directory, 64, &error), HR_OK);
  if (hr_tokenizer_open(path, &from_file, &error) != HR_OK) fail_msg("%s", error.message);
  if (hr_tokenizer_open(directory, &from_directory, &error) != HR_OK) fail_msg("%s", error.message);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    hr_tokens a = {0}, b = {0};
    size_t bytes = strlen(texts[i]);
    assert_int_equal(hr_tokenizer_encode(from_file, texts[i], bytes, HR_ENCODE_SPECIAL, &a, &error), HR_OK);
    assert_int_equal(hr_tokenizer_encode(from_directory, texts[i], bytes, HR_ENCODE_SPECIAL, &b, &error), HR_OK);
    if (a.count != b.count || memcmp(a.ids, b.ids, a.count * sizeof *a.ids) != 0)
      fail_msg("other ids of '%s'", texts[i]);
    for (uint64_t k = 0; k < a.count; k++) runs += a.ids[k] == 6 || a.ids[k] == 7;
    hr_tokens_deinit(&a);
    hr_tokens_deinit(&b);
  }
  assert_true(runs > 4);
  hr_tokenizer_close(from_file);
  hr_tokenizer_close(from_directory);
  hri_lexicon_deinit(&lexicon);
  hri_gguf_close(file);
}

/* Cutting a token in all ways takes the square of its length. */
static void test_long_token(void **state) {
  hri_lexicon lexicon;
  hri_lexicon_token token = {.type = HRI_LEX_NORMAL};
  char *text = malloc(2001);
  hr_error error = {0};
  (void)state;
  memset(text, 'x', 2000);
  text[2000] = 0;
  hri_lexicon_init(&lexicon);
  lexicon.sentencepiece = true;
  token.text = text;
  for (token.bytes = 1; token.bytes <= 2000; token.bytes += token.bytes == 1 ? 1 : 1998)
    assert_true(hri_array_push(&lexicon.tokens, token));
  assert_int_equal(hri_lexicon_derive_merges(&lexicon, &error), HR_ERROR_INPUT);
  assert_says(&error, "token 2 has 2000 bytes");
  hri_lexicon_deinit(&lexicon);
  free(text);
}

/* Every allocation fails once: nothing is left in memory or on disk. */
static void torture(const char *source, const char *target) {
  hr_status status = HR_ERROR_MEMORY;
  for (uint64_t n = 1; status != HR_OK; n += 1 + n / 16) {
    uint64_t live = hri_mem_live_bytes();
    hr_error error = {0};
    hri_mem_fail_after(n);
    status = hr_convert(source, target, NULL, NULL, &error);
    hri_mem_fail_after(0);
    assert_int_equal(hri_mem_live_bytes(), live);
    if (status == HR_OK) break;
    if (status != HR_ERROR_MEMORY) fail_msg("allocation %llu: %s", (unsigned long long)n, error.message);
    assert_false(hri_path_exists(target));
    assert_no_scratch(scratch);
  }
}

static void test_memory_refused(void **state) {
  const char *directory = kept("%s/torture", scratch), *file = kept("%s/torture.gguf", scratch);
  (void)state;
  make_model(directory, 470, 8, 0.5f);
  copy_file(recorded("tokenizers/sentencepiece.json"), path_of("%s/tokenizer.json", directory));
  torture(directory, file);
  torture(file, kept("%s/torture-back", scratch));
}

/* ---- stopping on request ---- */

static bool stop_at(void *context) {
  uint64_t *left = context;
  return (*left)-- == 0;
}

/* Asked to stop at the n-th question, for every n, it leaves nothing, nor a directory above the target; not asked, it
 * finishes. Returns how often it asks. */
static uint64_t assert_stops(const char *source, const char *target, hr_quantize quantize) {
  const char *above = kept("%s/above", scratch);
  hr_convert_options options;
  uint64_t asked = 0;
  hr_error error;
  hr_status status = HR_ERROR_INTERRUPTED;
  hr_convert_options_init(&options);
  options.quantize = quantize;
  options.should_stop = stop_at;
  for (uint64_t n = 0; status == HR_ERROR_INTERRUPTED; n++) {
    uint64_t left = n;
    options.context = &left;
    status = hr_convert(source, target, &options, NULL, &error);
    asked = n;
    if (status == HR_OK) break;
    if (status != HR_ERROR_INTERRUPTED) fail_msg("stopped at question %llu: %s", (unsigned long long)n, error.message);
    assert_false(hri_path_exists(target));
    assert_false(hri_path_exists(above));
    assert_no_scratch(scratch);
  }
  assert_true(asked > 3 && hri_path_exists(target));
  return asked;
}

/* PEFT's adapter, with its base where the tests lie and not where they ran when it was recorded. */
static const char *adapter_here(void) {
  static const char recorded_at[] = "tests/parity/data", from[] = HR_TEST_DATA "/parity/peft/llama/adapter";
  const char *directory = kept("%s/adapter", scratch);
  char *bytes, *at;
  uint64_t count;
  hr_error error;
  FILE *file;
  assert_int_equal(hri_dir_make(directory, &error), HR_OK);
  copy_file(kept("%s/adapter_model.safetensors", from), kept("%s/adapter_model.safetensors", directory));
  assert_int_equal(hri_file_read(kept("%s/adapter_config.json", from), 1 << 20, &bytes, &count, &error), HR_OK);
  at = strstr(bytes, recorded_at);
  assert_non_null(at);
  file = fopen(kept("%s/adapter_config.json", directory), "w");
  assert_non_null(file);
  (void)fprintf(file, "%.*s%s%s", (int)(at - bytes), bytes, HR_TEST_DATA "/parity/data", at + strlen(recorded_at));
  assert_int_equal(fclose(file), 0);
  hri_free(bytes);
  return directory;
}

/* The scales of scales are known when all matrices were quantized once: that pass asks too. */
static void test_stopped(void **state) {
  uint64_t once, twice;
  (void)state;
  (void)assert_stops(recorded("llama"), kept("%s/stopped.gguf", scratch), HR_QUANTIZE_NONE);
  (void)assert_stops(recorded("llama.gguf"), kept("%s/stopped", scratch), HR_QUANTIZE_NONE);
  (void)assert_stops(recorded("llama"), kept("%s/stopped-int8", scratch), HR_QUANTIZE_INT8);
  (void)assert_stops(adapter_here(), kept("%s/stopped-lora.gguf", scratch), HR_QUANTIZE_NONE);
  once = assert_stops(recorded("llama"), kept("%s/stopped-nf4", scratch), HR_QUANTIZE_NF4);
  twice = assert_stops(recorded("llama"), kept("%s/stopped-dq", scratch), HR_QUANTIZE_NF4_DQ);
  assert_true(twice >= once + 7);
  (void)assert_stops(recorded("llama.gguf"), kept("%s/above/two/stopped", scratch), HR_QUANTIZE_NONE);
}

/* ---- threads that the system refuses ---- */

static bool no_threads;
static int refused_threads;

/* This program's stands before the C library's. */
int pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*start)(void *), void *context) {
  int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = NULL;
  if (no_threads) {
    refused_threads++;
    return EAGAIN;
  }
  *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
  return real(id, attributes, start, context);
}

/* A conversion has no number of threads that anybody asked for: refused some, it does without, and makes the same. */
static void test_threads_refused(void **state) {
  static const struct {
    hr_quantize quantize;
    const char *type, *ending, *weights;
  } cases[] = {{HR_QUANTIZE_NONE, "q8_0", ".gguf", ""}, {HR_QUANTIZE_NF4_DQ, NULL, "", "/model.safetensors"}};
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    const char *targets[2] = {kept("%s/threads%s", scratch, cases[k].ending),
                              kept("%s/alone%s", scratch, cases[k].ending)};
    hr_convert_options options;
    hr_error error;
    hr_convert_options_init(&options);
    options.quantize = cases[k].quantize;
    options.type = cases[k].type;
    refused_threads = 0;
    for (int turn = 0; turn < 2; turn++) {
      hr_status status;
      no_threads = turn == 1;
      status = hr_convert(recorded("llama"), targets[turn], &options, NULL, &error);
      no_threads = false;
      if (status != HR_OK) fail_msg("%s", error.message);
    }
    assert_int_equal(refused_threads > 0, hr_device_cpu_threads() > 1);
    assert_same_file(kept("%s%s", targets[0], cases[k].weights), kept("%s%s", targets[1], cases[k].weights));
  }
}

/* ---- keys of GGUF that make no model ---- */

static void test_bad_keys(void **state) {
  static const struct {
    const char *architecture, *missing, *message;
    hr_status status;
  } cases[] = {
      {"llama", "", "", HR_OK},
      {"mamba", "", "general.architecture is 'mamba'", HR_ERROR_INPUT},
      {"llama", "llama.block_count", "the key 'llama.block_count' is missing", HR_ERROR_INPUT},
      {"llama", "llama.attention.head_count", "the key 'llama.attention.head_count' is missing", HR_ERROR_INPUT},
      {"llama", "llama.context_length", "the key 'llama.context_length' is missing", HR_ERROR_INPUT},
  };
  static const char *const sizes[] = {"llama.block_count", "llama.context_length", "llama.embedding_length",
                                      "llama.feed_forward_length", "llama.attention.head_count"};
  static const uint32_t values[] = {1, 32, 8, 8, 2};
  const hri_gguf_tensor embedding = {.name = "token_embd.weight", .type = HRI_GGML_F32, .rank = 2, .dims = {8, 4}};
  static const float zeros[32];
  const char *path = kept("%s/keys.gguf", scratch), *numbers = kept("%s/numbers.gguf", scratch);
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hri_gguf_keys keys = {0};
    hri_gguf_writer *writer;
    hr_error error = {0};
    hr_model model;
    hri_gguf_put_string(&keys, "general.architecture", cases[i].architecture, strlen(cases[i].architecture));
    for (int k = 0; k < 5; k++)
      if (strcmp(sizes[k], cases[i].missing) != 0) hri_gguf_put_u32(&keys, sizes[k], values[k]);
    (void)unlink(path); /* of a case before */
    assert_int_equal(hri_gguf_writer_open(path, &keys, &embedding, 1, &writer, &error), HR_OK);
    assert_int_equal(hri_gguf_writer_write(writer, 0, 0, zeros, sizeof zeros, &error), HR_OK);
    assert_int_equal(hri_gguf_writer_finish(writer, &error), HR_OK);
    hri_gguf_keys_deinit(&keys);
    assert_int_equal(hr_model_open(path, &model, &error), cases[i].status);
    if (cases[i].status != HR_OK) assert_says(&error, cases[i].message);
  }
  { /* an embedding the wrong way round: 4 rows of 8 elements were wanted */
    const hri_gguf_tensor swapped = {.name = "token_embd.weight", .type = HRI_GGML_F32, .rank = 2, .dims = {4, 8}};
    hri_gguf_keys keys = {0};
    hri_gguf_writer *writer;
    hr_error error = {0};
    hri_gguf_put_string(&keys, "general.architecture", "llama", 5);
    for (int k = 0; k < 5; k++) hri_gguf_put_u32(&keys, sizes[k], values[k]);
    assert_int_equal(hri_gguf_writer_open(numbers, &keys, &swapped, 1, &writer, &error), HR_OK);
    assert_int_equal(hri_gguf_writer_write(writer, 0, 0, zeros, sizeof zeros, &error), HR_OK);
    assert_int_equal(hri_gguf_writer_finish(writer, &error), HR_OK);
    hri_gguf_keys_deinit(&keys);
    assert_refused(numbers, kept("%s/swapped", scratch), NULL, HR_ERROR_INPUT,
                   "token_embd.weight has 8 rows of 4 elements; a model of this description has 4 of 8");
  }
  for (int i = 0; i < 6; i++) { /* what would be computed otherwise is refused; "no such token" is not */
    static const char *const messages[] = {"rope.dimension_count",     "attention.scale",
                                           "rope.scaling.attn_factor", "sliding_window_pattern",
                                           "sliding_window_pattern",   ""};
    hri_gguf_keys keys = {0};
    hri_gguf_writer *writer;
    hr_error error = {0};
    hr_model model;
    int32_t tokens[HR_MAX_STOP_TOKENS];
    uint32_t count = 9;
    hri_gguf_put_string(&keys, "general.architecture", "llama", 5);
    for (int k = 0; k < 5; k++) hri_gguf_put_u32(&keys, sizes[k], values[k]);
    hri_gguf_put_u32(&keys, "llama.rope.dimension_count", i == 0 ? 2 : 4);
    hri_gguf_put_f32(&keys, "llama.attention.scale", i == 1 ? 0.25 : 0.5);
    hri_gguf_put_f32(&keys, "llama.rope.scaling.attn_factor", i == 2 ? 2 : 1);
    hri_gguf_put_u32(&keys, "llama.attention.sliding_window", 16);
    if (i == 3) hri_gguf_put_u32(&keys, "llama.attention.sliding_window_pattern", 4);
    if (i >= 4)
      hri_gguf_put_array(&keys, "llama.attention.sliding_window_pattern", HRI_GGUF_I32, 1),
          hri_gguf_add_i32(&keys, i == 5);
    hri_gguf_put_u32(&keys, "tokenizer.ggml.eot_token_id", UINT32_MAX);
    (void)unlink(numbers); /* of a case before */
    assert_int_equal(hri_gguf_writer_open(numbers, &keys, &embedding, 1, &writer, &error), HR_OK);
    assert_int_equal(hri_gguf_writer_write(writer, 0, 0, zeros, sizeof zeros, &error), HR_OK);
    assert_int_equal(hri_gguf_writer_finish(writer, &error), HR_OK);
    hri_gguf_keys_deinit(&keys);
    assert_int_equal(hr_model_open(numbers, &model, &error), i < 5 ? HR_ERROR_INPUT : HR_OK);
    if (i < 5) assert_says(&error, messages[i]);
    else assert_int_equal(hr_stop_tokens(&model, tokens, &count, &error), HR_OK), assert_int_equal(count, 0);
  }
  {
    hri_gguf_keys keys = {0};
    hri_gguf_writer *writer;
    hr_error error = {0};
    hr_model model;
    hri_gguf_put_u32(&keys, "split.count", 3);
    assert_int_equal(hri_gguf_writer_open(path_of("%s/part.gguf", scratch), &keys, NULL, 0, &writer, &error), HR_OK);
    assert_int_equal(hri_gguf_writer_finish(writer, &error), HR_OK);
    hri_gguf_keys_deinit(&keys);
    assert_int_equal(hr_model_open(path_of("%s/part.gguf", scratch), &model, &error), HR_ERROR_INPUT);
    assert_says(&error, "is one of 3 parts");
  }
  assert_refused(path, kept("%s/keys", scratch), NULL, HR_ERROR_INPUT, "the key 'llama.context_length' is missing");
}

/* Without attention.key_length a head has embedding_length / head_count elements, and here none. */
static void test_heads_without_elements(void **state) {
  static const char *const sizes[] = {"llama.block_count", "llama.context_length", "llama.embedding_length",
                                      "llama.feed_forward_length", "llama.attention.head_count"};
  static const uint32_t values[] = {1, 32, 8, 8, 9};
  static const float zeros[32];
  const hri_gguf_tensor embedding = {.name = "token_embd.weight", .type = HRI_GGML_F32, .rank = 2, .dims = {8, 4}};
  const char *path = kept("%s/heads.gguf", scratch);
  hri_gguf_keys keys = {0};
  hri_gguf_writer *writer;
  hr_error error = {0};
  hr_model model;
  (void)state;
  hri_gguf_put_string(&keys, "general.architecture", "llama", 5);
  for (int k = 0; k < 5; k++) hri_gguf_put_u32(&keys, sizes[k], values[k]);
  hri_gguf_put_u32(&keys, "llama.rope.dimension_count", 4);
  assert_int_equal(hri_gguf_writer_open(path, &keys, &embedding, 1, &writer, &error), HR_OK);
  assert_int_equal(hri_gguf_writer_write(writer, 0, 0, zeros, sizeof zeros, &error), HR_OK);
  assert_int_equal(hri_gguf_writer_finish(writer, &error), HR_OK);
  hri_gguf_keys_deinit(&keys);
  assert_int_equal(hr_model_open(path, &model, &error), HR_ERROR_INPUT);
  assert_says(&error,
              "key 'llama.attention.head_count' is 9, more heads than the 8 elements of 'llama.embedding_length'");
}

/* ---- nothing lost: kills, other people's files, others at work, full disks ---- */

/* A directory of its own for each test, with files of a person's whose names conversions once took, or might be taken
 * to use. */
static const char *const others[] = {"out.tmp",      "out.old",          ".out.tmp",
                                     "out.gguf.tmp", ".headroom-abcdef", "out.replaced"};

static const char *new_place(void) {
  static int number;
  const char *place = kept("%s/place-%d", scratch, number++);
  assert_int_equal(mkdir(place, 0755), 0);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    const char *path = path_of("%s/%s", place, others[i]);
    assert_int_equal(mkdir(path, 0755), 0);
    put_text(path_of("%s/config.json", path), "mine");
  }
  return place;
}

static bool is_other(const char *name) {
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strcmp(name, others[i]) == 0) return true;
  return false;
}

/* The place holds what it was made with, and `target` (NULL: nothing). `left`: scratch directories may lie there,
 * too. */
static void assert_holds(const char *place, const char *target, bool left) {
  DIR *dir = opendir(place);
  assert_non_null(dir);
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || is_other(entry->d_name)) continue;
    if (target && strcmp(entry->d_name, target) == 0) continue;
    if (left && strncmp(entry->d_name, ".headroom-", 10) == 0) continue;
    fail_msg("%s/%s was left", place, entry->d_name);
  }
  closedir(dir);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    char *text = get_file(path_of("%s/%s/config.json", place, others[i]), NULL);
    assert_non_null(text);
    assert_string_equal(text, "mine");
    free(text);
  }
}

/* A whole model: one of `count` that it may be. Returns which. */
static int assert_whole(const char *path, const char *const *wanted, int count) {
  bool directory = hri_path_is_dir(path);
  size_t got_bytes = 0, want_bytes = 0;
  char *got = get_file(directory ? path_of("%s/model.safetensors", path) : path, &got_bytes);
  int which = -1;
  assert_non_null(got);
  if (directory)
    assert_true(exists(path_of("%s/config.json", path)) && exists(path_of("%s/generation_config.json", path)));
  for (int i = 0; i < count && which < 0; i++) {
    char *want = get_file(directory ? path_of("%s/model.safetensors", wanted[i]) : wanted[i], &want_bytes);
    assert_non_null(want);
    if (got_bytes == want_bytes && memcmp(got, want, got_bytes) == 0) which = i;
    free(want);
  }
  free(got);
  if (which < 0) fail_msg("%s is none of the models that it may be", path);
  return which;
}

static uint64_t now_us(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static int run_convert(const char *source, const char *target, const char *options, uint64_t kill_after_us) {
  static child c;
  memset(&c, 0, sizeof c);
  c.kill_after_us = kill_after_us;
  child_words(&c, "convert");
  child_words(&c, source);
  child_words(&c, target);
  child_words(&c, options);
  child_run(&c, HR_PROGRAM, scratch);
  return c.code;
}

/* Kills at random moments: what stands at the target is a whole model or nothing, and the next call leaves that and
 * nothing else.
 * With --force, what stood there before is there until the new one is. */
static void kill_often(const char *source, const char *name, const char *const wanted[2]) {
  static const char *const types[2] = {"--type f16 --force", "--type bf16 --force"};
  const char *place = new_place(), *target = kept("%s/%s", place, name);
  uint64_t begin = now_us(), whole;
  int rounds = quick() ? 6 : 30, before = -1;
  assert_int_equal(run_convert(source, target, types[0], 0), 0);
  whole = now_us() - begin;
  assert_int_equal(assert_whole(target, wanted, 2), 0);
  for (int i = 0; i < rounds; i++) {
    if (i % 3 == 0) scratch_remove(target);
    before = exists(target) ? assert_whole(target, wanted, 2) : -1;
    (void)run_convert(source, target, types[i % 2], 1000 + (uint64_t)rand() % (whole * 5 / 4));
    assert_holds(place, name, true);
    if (exists(target)) (void)assert_whole(target, wanted, 2);
    else assert_int_equal(before, -1); /* what stood there is never missing */
    assert_int_equal(run_convert(source, target, types[i % 2], 0), 0);
    assert_int_equal(assert_whole(target, wanted, 2), i % 2);
    assert_holds(place, name, false);
  }
}

/* The models of the first test: 51 MB, and what they become. */
static void test_kills(void **state) {
  const char *directory = kept("%s/large", scratch), *file = kept("%s/large.gguf", scratch);
  const char *files[2] = {kept("%s/large-f16.gguf", scratch), kept("%s/large-bf16.gguf", scratch)};
  const char *directories[2] = {kept("%s/large-f16", scratch), kept("%s/large-bf16", scratch)};
  static const char *const types[2] = {"f16", "bf16"};
  (void)state;
  srand(7);
  for (int i = 0; i < 2; i++) {
    (void)convert(directory, files[i], types[i]);
    (void)convert(file, directories[i], types[i]);
  }
  kill_often(directory, "out.gguf", files);
  kill_often(file, "out", directories);
}

static void test_force_keeps_what_is_no_model(void **state) {
  static const char *const names[] =
      {"x.tex", "notes/a.txt", ".git/config", "model-1-of-2.safetensors", "model.safetensors.tmp", "tokenizer.notes"};
  const char *place = new_place(), *target = kept("%s/out", place), *file = recorded("llama.gguf"),
             *want[1] = {kept("%s/llama-f32", scratch)};
  hr_convert_options options = {.replace = true};
  hr_error error = {0};
  (void)state;
  (void)convert(file, want[0], "f32");
  (void)convert(file, target, "bf16");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *path = kept("%s/%s", target, names[i]);
    char *text;
    if (strchr(names[i], '/'))
      assert_int_equal(hri_dir_make(path_of("%.*s", (int)(strrchr(path, '/') - path), path), &error), HR_OK);
    put_text(path, "years of work");
    options.type = "f32";
    assert_int_equal(hr_convert(file, target, &options, NULL, &error), HR_ERROR_USAGE);
    assert_says(&error, "it is not only a model, and --force would remove it");
    text = get_file(path, NULL);
    assert_string_equal(text, "years of work");
    free(text);
    assert_int_equal(hri_dir_remove(strchr(names[i], '/') ? path_of("%.*s", (int)(strrchr(path, '/') - path), path)
                                                          : path,
                                    &error),
                     HR_OK);
  }
  assert_int_equal(symlink("/etc/passwd", path_of("%s/vocab.json", target)), 0);
  assert_int_equal(hr_convert(file, target, &options, NULL, &error), HR_ERROR_USAGE);
  assert_int_equal(unlink(path_of("%s/vocab.json", target)), 0);
  put_text(path_of("%s/model-00001-of-00002.safetensors", target), "a shard");
  put_text(path_of("%s/qwen.tiktoken", target), "");
  assert_int_equal(hr_convert(file, target, &options, NULL, &error), HR_OK);
  (void)assert_whole(target, want, 1);
  assert_false(exists(path_of("%s/qwen.tiktoken", target)));
  assert_int_equal(unlink(path_of("%s/config.json", target)), 0); /* a vocab.json alone is not a model */
  assert_int_equal(hr_convert(file, target, &options, NULL, &error), HR_ERROR_USAGE);
  assert_says(&error, "no config.json");
  assert_holds(place, "out", false);
}

/* What comes to lie in the directory while its successor is made. */
static void add_file(void *context, const char *note) {
  if (strstr(note, "has no tokenizer")) put_text(path_of("%s/late.tex", (const char *)context), "years of work");
}

static void test_force_keeps_what_came_late(void **state) {
  const char *place = new_place(), *target = kept("%s/out", place), *file = recorded("llama.gguf"),
             *old = kept("%s/out.replaced-2", place);
  const char *models[2] = {kept("%s/late-f32", scratch), kept("%s/late-bf16", scratch)};
  hr_convert_options options = {.replace = true,
                                .type = "f32",
                                .on_note = add_file,
                                .context = (void *)(uintptr_t)target};
  hr_convert_result result;
  hr_error error = {0};
  char *text;
  (void)state;
  (void)convert(file, models[0], "f32");
  (void)convert(file, models[1], "bf16");
  (void)convert(file, target, "bf16");
  if (hr_convert(file, target, &options, &result, &error) != HR_OK) fail_msg("%s", error.message);
  assert_string_equal(result.kept, old);
  assert_int_equal(assert_whole(target, models, 2), 0);
  assert_int_equal(assert_whole(old, models, 2), 1);
  text = get_file(path_of("%s/late.tex", old), NULL);
  assert_string_equal(text, "years of work");
  free(text);
  scratch_remove(old);
  assert_holds(place, "out", false);
}

/* A link at the target gives way alone. */
static void test_links_are_not_followed(void **state) {
  const char *place = new_place(), *file = recorded("llama.gguf"), *target = kept("%s/out", place),
             *held = kept("%s/held", scratch);
  (void)state;
  assert_int_equal(mkdir(held, 0755), 0);
  put_text(path_of("%s/thesis.tex", held), "x");
  assert_int_equal(symlink(held, target), 0);
  (void)convert(file, target, "f32");
  assert_true(exists(path_of("%s/thesis.tex", held)));
  assert_false(exists(path_of("%s/thesis.tex", target)));
  assert_true(exists(path_of("%s/config.json", target)));
  assert_holds(place, "out", false);
  assert_refused(file, kept("%s/.", held), NULL, HR_ERROR_USAGE, "no name that a model could take");
}

/* On file systems that only have rename. */
static void test_plain_renames(void **state) {
  const char *place = new_place(), *file = recorded("llama.gguf"), *target = kept("%s/out", place),
             *want[1] = {kept("%s/llama-f32", scratch)};
  const char *again = kept("%s/out.gguf", place);
  (void)state;
  hri_publish_plainly(true);
  (void)convert(file, want[0], "f32");
  (void)convert(file, target, "bf16");
  (void)convert(file, target, "f32");
  (void)assert_whole(target, want, 1);
  assert_refused(file, target, NULL, HR_ERROR_USAGE, "exists");
  assert_holds(place, "out", false);
  scratch_remove(target);
  assert_int_equal(hr_convert(recorded("llama"), again, NULL, NULL, NULL), HR_OK);
  assert_refused(recorded("llama"), again, NULL, HR_ERROR_USAGE, "exists");
  assert_holds(place, "out.gguf", false);
  hri_publish_plainly(false);
}

/* Two at once: each in its own scratch; one of both stands, whole. Returns how many succeeded. */
static int two_at_once(const char *source, const char *target, const char *const types[2]) {
  pid_t pids[2];
  int good = 0, status;
  (void)fflush(NULL);
  for (int k = 0; k < 2; k++) {
    child c = {0};
    pids[k] = fork();
    assert_true(pids[k] >= 0);
    if (pids[k] != 0) continue;
    child_words(&c, "convert");
    child_words(&c, source);
    child_words(&c, target);
    child_words(&c, types[k]);
    child_exec(&c, HR_PROGRAM, "/dev/null", path_of("%s/.err-%d", scratch, k));
  }
  for (int k = 0; k < 2; k++) {
    assert_int_equal(waitpid(pids[k], &status, 0), pids[k]);
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2));
    good += WEXITSTATUS(status) == 0;
  }
  return good;
}

static void test_two_at_once(void **state) {
  static const char *const forced[2] = {"--type f16 --force", "--type bf16 --force"}, *const polite[2] =
                                                                                          {"--type f16", "--type bf16"};
  const char *file = kept("%s/large.gguf", scratch), *directory = kept("%s/large", scratch);
  const char *files[2] = {kept("%s/large-f16.gguf", scratch), kept("%s/large-bf16.gguf", scratch)};
  const char *directories[2] = {kept("%s/large-f16", scratch), kept("%s/large-bf16", scratch)};
  const char *place = new_place(), *target = kept("%s/out", place), *made = kept("%s/out.gguf", place);
  (void)state;
  for (int round = 0; round < (quick() ? 2 : 6); round++) {
    assert_int_equal(two_at_once(file, target, forced), 2);
    (void)assert_whole(target, directories, 2);
    assert_holds(place, "out", false);
  }
  scratch_remove(target);
  assert_int_equal(two_at_once(file, target, polite), 1);
  (void)assert_whole(target, directories, 2);
  assert_holds(place, "out", false);
  scratch_remove(target);
  assert_int_equal(two_at_once(directory, made, polite), 1);
  (void)assert_whole(made, files, 2);
  assert_holds(place, "out.gguf", false);
}

/* In a name space of its own: exit 77 where mounting is not allowed. */
static void full_disk(const char *disk, unsigned megabytes, const char *source, const char *name, bool fits) {
  static child c;
  char options[32];
  DIR *dir;
  (void)snprintf(options, sizeof options, "size=%um", megabytes);
  if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("headroom-test", disk, "tmpfs", 0, options) != 0)
    _exit(77);
  put_text(path_of("%s/other", disk), "mine");
  child_words(&c, path_of("convert %s %s/%s --type f32", source, disk, name));
  child_run(&c, HR_PROGRAM, scratch);
  if (c.code != (fits ? 0 : 1) || exists(path_of("%s/%s", disk, name)) != fits || !exists(path_of("%s/other", disk)) ||
      (!fits && !strstr(c.err, "free"))) {
    (void)fprintf(stderr, "%s on %u MB: exit %d: %s\n", name, megabytes, c.code, c.err);
    _exit(2);
  }
  dir = opendir(disk);
  for (struct dirent *entry; dir && (entry = readdir(dir));)
    if (entry->d_name[0] == '.' && entry->d_name[1] == 'h') _exit(3); /* a scratch directory */
  _exit(0);
}

static void test_full_disk(void **state) {
  static const unsigned sizes[] = {1, 20, 48, 80}; /* the weights are 51.2 MB; 48 MiB are 50.3 MB */
  const char *directory = kept("%s/large", scratch), *file = kept("%s/large.gguf", scratch),
             *disk = kept("%s/disk", scratch);
  (void)state;
  for (size_t k = 0; k < 2 * sizeof sizes / sizeof *sizes; k++) {
    int status;
    pid_t pid;
    (void)hri_dir_make(disk, NULL);
    (void)fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
      full_disk(disk, sizes[k / 2], k % 2 ? file : directory, k % 2 ? "out" : "out.gguf", sizes[k / 2] == 80);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
      print_message("no mounts allowed here\n");
      skip();
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
  }
}

/* A disk that is full without having said so: every write beyond a limit fails. */
static void test_failed_writes(void **state) {
  static const uint64_t limits[] = {1, 4096, 1 << 20, 30 << 20};
  const char *place = new_place();
  (void)state;
  for (size_t k = 0; k < 2 * sizeof limits / sizeof *limits; k++) {
    static child c;
    const char *name = k % 2 ? "out" : "out.gguf";
    memset(&c, 0, sizeof c);
    c.file_bytes = limits[k / 2];
    child_words(&c, path_of("convert %s/%s %s/%s --type f32", scratch, k % 2 ? "large.gguf" : "large", place, name));
    child_run(&c, HR_PROGRAM, scratch);
    assert_int_equal(c.code, 1);
    assert_holds(place, NULL, false);
  }
}

static int setup(void **state) {
  (void)state;
  scratch = scratch_make("convert");
  return 0;
}

static int teardown(void **state) {
  (void)state;
  scratch_remove(scratch);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory_bounded),
      cmocka_unit_test(test_families_to_gguf),
      cmocka_unit_test(test_families_from_gguf),
      cmocka_unit_test(test_descriptions),
      cmocka_unit_test(test_pieces),
      cmocka_unit_test(test_types),
      cmocka_unit_test(test_deterministic),
      cmocka_unit_test(test_tokenizers),
      cmocka_unit_test(test_splits),
      cmocka_unit_test(test_merges_from_scores),
      cmocka_unit_test(test_scores_from_merges),
      cmocka_unit_test(test_sentencepiece_model),
      cmocka_unit_test(test_template),
      cmocka_unit_test(test_usage),
      cmocka_unit_test(test_bad_weights),
      cmocka_unit_test(test_what_is_copied_is_finite),
      cmocka_unit_test(test_nothing_lost),
      cmocka_unit_test(test_bad_lexicon),
      cmocka_unit_test(test_runs_of_blanks),
      cmocka_unit_test(test_foreign_merges),
      cmocka_unit_test(test_named_padding),
      cmocka_unit_test(test_long_token),
      cmocka_unit_test(test_bad_tokenizer),
      cmocka_unit_test(test_memory_refused),
      cmocka_unit_test(test_stopped),
      cmocka_unit_test(test_threads_refused),
      cmocka_unit_test(test_bad_keys),
      cmocka_unit_test(test_heads_without_elements),
      cmocka_unit_test(test_zeros),
      cmocka_unit_test(test_kills),
      cmocka_unit_test(test_force_keeps_what_is_no_model),
      cmocka_unit_test(test_force_keeps_what_came_late),
      cmocka_unit_test(test_links_are_not_followed),
      cmocka_unit_test(test_plain_renames),
      cmocka_unit_test(test_two_at_once),
      cmocka_unit_test(test_full_disk),
      cmocka_unit_test(test_failed_writes),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
