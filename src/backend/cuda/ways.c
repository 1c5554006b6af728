/* The table of ways (ways.h), and its JSON: one object for each way,
 *
 *   {"m": 768, "n": 3072, "k": 1024, "strides": [768, 3072, 768], "operands": "bf16", "result": "fp32", "alignment": 16,
 *    "turned": "a", "accumulate": false, "epilogue": "none", "tf32": false, "workspace": 33554432, "takes": 0,
 *    "way": "00112233..."}
 *
 * where `workspace` is what it might have, `takes` what it takes of it, and `way` are the library's words in
 * hexadecimal, or "apart" where the library has no such epilogue. */
#include "backend/cuda/ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "ops/cuda_demand.h"

enum { WORDS = sizeof((hri_gpu_algorithm *)0)->words / sizeof(uint64_t), WORD_DIGITS = 16, MOST_WAYS = 1 << 14 };

static const char *const reals[] = {[HRI_REAL_F32] = "fp32", [HRI_REAL_BF16] = "bf16", [HRI_REAL_F16] = "fp16"};
static const char *const epilogues[] = {[HRI_GPU_NO_EPILOGUE] = "none",
                                        [HRI_GPU_BIAS] = "bias",
                                        [HRI_GPU_GELU_BACKWARD] = "gelu_backward",
                                        [HRI_GPU_BIAS_GRADIENT] = "bias_gradient"};
static const char *const turned[] = {"none", "a", "b", "both"};

/* ---- finding ---- */

static bool same_product(const hri_gpu_product *x, const hri_gpu_product *y) {
  return x->m == y->m && x->n == y->n && x->k == y->k && x->a_stride == y->a_stride && x->b_stride == y->b_stride &&
         x->d_stride == y->d_stride && x->operands == y->operands && x->result == y->result &&
         x->alignment == y->alignment && x->a_turned == y->a_turned && x->b_turned == y->b_turned &&
         x->accumulate == y->accumulate && x->epilogue == y->epilogue && x->tf32 == y->tf32;
}

/* What is not possible any more is for the person to decide: other ways have other bits. */
static hr_status gone(const hri_gpu_product *p, const char *why, hr_error *error) {
  (void)hri_fail(error, HR_ERROR_USAGE,
                 "the run computes products of %lld x %lld x %lld (%s) in a way that is not possible any more: %s",
                 (long long)p->m, (long long)p->n, (long long)p->k, reals[p->operands], why);
  return hri_hint(
      error, HR_ERROR_USAGE,
      "go on with the --workspace and the library of the run, or --allow-different ways: from there on bits "
      "may differ");
}

static hr_status confirm(hri_cuda_way *way, hri_gpu_products *products, uint64_t workspace_bytes, hr_error *error) {
  char why[256], wants[32], has[32];
  hr_error told = {0};
  if (way->algorithm.workspace_bytes > workspace_bytes) {
    (void)snprintf(why, sizeof why, "it takes %s of workspace, and the plan has %s for it",
                   hri_size_text(way->algorithm.workspace_bytes, wants), hri_size_text(workspace_bytes, has));
    return gone(&way->product, why, error);
  }
  if (!way->apart && products->calls->check(products, &way->product, &way->algorithm, &told) != HR_OK)
    return gone(&way->product, told.message, error);
  way->stored = false;
  way->workspace_bytes = workspace_bytes;
  return HR_OK;
}

hr_status hri_cuda_way_find(hri_cuda_ways *ways, hri_gpu_products *products, const hri_gpu_product *product,
                            uint64_t workspace_bytes, hri_cuda_way *found, hr_error *error) {
  hri_cuda_way made = {.workspace_bytes = workspace_bytes};
  hr_error lacks = {0};
  hr_status status;
  for (size_t k = 0; k < ways->list.count; k++) {
    hri_cuda_way *way = &ways->list.items[k];
    if (!same_product(&way->product, product) || (!way->stored && way->workspace_bytes != workspace_bytes)) continue;
    if (way->stored) HRI_TRY(confirm(way, products, workspace_bytes, error));
    *found = *way;
    return HR_OK;
  }
  made.product = *product;
  status = products->calls->choose(products, product, workspace_bytes, &made.algorithm, &lacks);
  made.apart = status == HR_ERROR_UNSUPPORTED && hri_cuda_may_lack(product);
  if (status != HR_OK && !made.apart) {
    if (error) *error = lacks;
    return status;
  }
  if (!hri_array_push(&ways->list, made)) return hri_fail_memory(error, sizeof made, "the way of a product");
  *found = made;
  return HR_OK;
}

void hri_cuda_ways_deinit(hri_cuda_ways *ways) { hri_array_free(&ways->list); }

/* ---- as JSON ---- */

static void put_words(hri_json_writer *w, const hri_gpu_algorithm *algorithm) {
  char text[WORDS * WORD_DIGITS + 1];
  for (int k = 0; k < WORDS; k++)
    (void)snprintf(text + k * WORD_DIGITS, WORD_DIGITS + 1, "%016llx", (unsigned long long)algorithm->words[k]);
  hri_json_field_string(w, "way", text);
}

static void put_way(hri_json_writer *w, const hri_cuda_way *way) {
  const hri_gpu_product *p = &way->product;
  char strides[80];
  hri_json_begin_object(w);
  hri_json_flat(w);
  hri_json_field_i64(w, "m", p->m);
  hri_json_field_i64(w, "n", p->n);
  hri_json_field_i64(w, "k", p->k);
  (void)snprintf(strides, sizeof strides, "[%lld, %lld, %lld]", (long long)p->a_stride, (long long)p->b_stride,
                 (long long)p->d_stride);
  hri_json_key(w, "strides");
  hri_json_put_plain(w, strides);
  hri_json_field_string(w, "operands", reals[p->operands]);
  hri_json_field_string(w, "result", reals[p->result]);
  hri_json_field_u64(w, "alignment", p->alignment);
  hri_json_field_string(w, "turned", turned[p->a_turned + 2 * p->b_turned]);
  hri_json_field_bool(w, "accumulate", p->accumulate);
  hri_json_field_string(w, "epilogue", epilogues[p->epilogue]);
  hri_json_field_bool(w, "tf32", p->tf32);
  hri_json_field_u64(w, "workspace", way->workspace_bytes);
  hri_json_field_u64(w, "takes", way->algorithm.workspace_bytes);
  if (way->apart) hri_json_field_string(w, "way", "apart");
  else put_words(w, &way->algorithm);
  hri_json_end_object(w);
}

void hri_cuda_ways_put(const hri_cuda_ways *ways, hri_json_writer *w) {
  hri_json_begin_array(w);
  for (size_t k = 0; k < ways->list.count; k++) put_way(w, &ways->list.items[k]);
  hri_json_end_array(w);
}

/* One of `count` words. */
static hr_status get_word(const hri_json *object, const char *key, const char *const *words, int count, int *value,
                          hr_error *error) {
  hri_json member = hri_json_member(object, key);
  const char *text;
  HRI_TRY(hri_json_get_string(object, key, &text, error));
  for (int k = 0; k < count; k++)
    if (strcmp(words[k], text) == 0) return *value = k, HR_OK;
  return hri_json_fail(&member, error, "a word that this version writes");
}

static hr_status get_strides(const hri_json *object, hri_gpu_product *p, hr_error *error) {
  int64_t *to[3] = {&p->a_stride, &p->b_stride, &p->d_stride};
  hri_json strides;
  HRI_TRY(hri_json_get_array(object, "strides", &strides, error));
  if (hri_json_count(&strides) != 3) return hri_json_fail(&strides, error, "three numbers");
  for (int k = 0; k < 3; k++) {
    hri_json item = hri_json_item(&strides, (uint64_t)k);
    if (!json_is_integer(item.value)) return hri_json_fail(&item, error, "a number of elements");
    *to[k] = json_integer_value(item.value);
  }
  return HR_OK;
}

static hr_status get_words(const hri_json *object, hri_cuda_way *way, hr_error *error) {
  hri_json member = hri_json_member(object, "way");
  const char *text;
  HRI_TRY(hri_json_get_string(object, "way", &text, error));
  way->apart = hri_cuda_may_lack(&way->product) && strcmp(text, "apart") == 0;
  if (way->apart) return HR_OK;
  if (strlen(text) != WORDS * WORD_DIGITS || strspn(text, "0123456789abcdef") != WORDS * WORD_DIGITS)
    return hri_json_fail(&member, error, "%d hexadecimal digits", WORDS * WORD_DIGITS);
  for (int k = 0; k < WORDS; k++) {
    char word[WORD_DIGITS + 1] = {0};
    memcpy(word, text + k * WORD_DIGITS, WORD_DIGITS);
    way->algorithm.words[k] = strtoull(word, NULL, 16);
  }
  return HR_OK;
}

static hr_status get_way(const hri_json *object, hri_cuda_way *way, hr_error *error) {
  hri_gpu_product *p = &way->product;
  int operands = 0, result = 0, turns = 0, epilogue = 0;
  uint64_t alignment;
  HRI_TRY(hri_json_get_i64(object, "m", 0, INT64_MAX, &p->m, error));
  HRI_TRY(hri_json_get_i64(object, "n", 0, INT64_MAX, &p->n, error));
  HRI_TRY(hri_json_get_i64(object, "k", 0, INT64_MAX, &p->k, error));
  HRI_TRY(get_strides(object, p, error));
  HRI_TRY(get_word(object, "operands", reals, 3, &operands, error));
  HRI_TRY(get_word(object, "result", reals, 3, &result, error));
  HRI_TRY(hri_json_get_u64(object, "alignment", 1, 16, &alignment, error));
  HRI_TRY(get_word(object, "turned", turned, 4, &turns, error));
  HRI_TRY(hri_json_get_bool(object, "accumulate", &p->accumulate, error));
  HRI_TRY(get_word(object, "epilogue", epilogues, 4, &epilogue, error));
  HRI_TRY(hri_json_get_bool(object, "tf32", &p->tf32, error));
  HRI_TRY(hri_json_get_u64(object, "workspace", 0, INT64_MAX, &way->workspace_bytes, error));
  HRI_TRY(hri_json_get_u64(object, "takes", 0, INT64_MAX, &way->algorithm.workspace_bytes, error));
  p->operands = (hri_real)operands;
  p->result = (hri_real)result;
  p->alignment = (uint32_t)alignment;
  p->a_turned = turns & 1;
  p->b_turned = turns & 2;
  p->epilogue = (hri_gpu_epilogue)epilogue;
  return get_words(object, way, error);
}

hr_status hri_cuda_ways_take(hri_cuda_ways *ways, const hri_json *array, hr_error *error) {
  uint64_t count = hri_json_count(array);
  if (count > MOST_WAYS) return hri_json_fail(array, error, "at most %d ways of products", MOST_WAYS);
  for (uint64_t k = 0; k < count; k++) {
    hri_json item = hri_json_item(array, k);
    hri_cuda_way way = {.stored = true};
    HRI_TRY(get_way(&item, &way, error));
    if (!hri_array_push(&ways->list, way)) return hri_fail_memory(error, sizeof way, "the way of a product");
  }
  return HR_OK;
}
