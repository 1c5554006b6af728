/* The table of ways of products: what is written is read back, what is damaged is named by its field, and a stored way is
 * asked of the library once, when a product wants it. The library here is a list of answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/ways.h"
#include "base/error.h"

/* ---- a library ---- */

static struct {
  uint32_t chosen, checked; /* times */
  bool gone, plain;         /* it takes no way any more; it has no epilogues of the backward */
} library;

static hr_status choose(hri_gpu_products *products, const hri_gpu_product *p, uint64_t workspace_bytes,
                        hri_gpu_algorithm *algorithm, hr_error *error) {
  (void)products;
  if (library.plain && p->epilogue > HRI_GPU_BIAS) return hri_fail(error, HR_ERROR_UNSUPPORTED, "it has none");
  *algorithm = (hri_gpu_algorithm){.workspace_bytes = workspace_bytes / 2, .words = {++library.chosen, 0, ~0ull}};
  return HR_OK;
}
static hr_status check(hri_gpu_products *products, const hri_gpu_product *p, const hri_gpu_algorithm *algorithm,
                       hr_error *error) {
  (void)products, (void)p, (void)algorithm;
  library.checked++;
  return library.gone ? hri_fail(error, HR_ERROR_UNSUPPORTED, "the library does not take it") : HR_OK;
}
static const hri_gpu_product_calls calls = {.choose = choose, .check = check};
static hri_gpu_products products = {.calls = &calls};

/* Each in which one member differs. */
static hri_gpu_product product_of(int which) {
  hri_gpu_product p;
  memset(&p, 0, sizeof p);
  p.m = 8 + (which == 1), p.n = 16 + (which == 2), p.k = 24 + (which == 3);
  p.a_stride = 24 + (which == 4), p.b_stride = 16 + (which == 5), p.d_stride = 16 + (which == 6);
  p.operands = which == 7 ? HRI_REAL_F16 : HRI_REAL_BF16;
  p.result = which == 8 ? HRI_REAL_F32 : HRI_REAL_BF16;
  p.alignment = which == 9 ? 2 : 16;
  p.a_turned = which == 10, p.b_turned = which == 11, p.accumulate = which == 12, p.tf32 = which == 13;
  p.epilogue = which == 14   ? HRI_GPU_BIAS
               : which == 15 ? HRI_GPU_GELU_BACKWARD
               : which == 16 ? HRI_GPU_BIAS_GRADIENT
                             : HRI_GPU_NO_EPILOGUE;
  return p;
}
enum { PRODUCTS = 17, WORKSPACE = 4096 };

static hri_cuda_way find(hri_cuda_ways *ways, int which, uint64_t workspace_bytes, hr_status wanted, hr_error *error) {
  hri_gpu_product p = product_of(which);
  hri_cuda_way way = {0};
  assert_int_equal(hri_cuda_way_find(ways, &products, &p, workspace_bytes, &way, error), wanted);
  return way;
}

static char *text_of(const hri_cuda_ways *ways) {
  hri_text text = {0};
  hri_json_writer w = hri_json_writer_init(&text, 2);
  hri_cuda_ways_put(ways, &w);
  assert_false(text.failed);
  return text.chars;
}

static hr_status read_back(hri_cuda_ways *ways, const char *text, hr_error *error) {
  hri_json root = {0};
  hr_status status = hri_json_parse(text, strlen(text), "state.json", &root, error);
  if (status == HR_OK) status = hri_cuda_ways_take(ways, &root, error);
  hri_json_deinit(&root);
  return status;
}

/* ---- tests ---- */

static void each_product_is_chosen_once(void **state) {
  hri_cuda_ways ways = {0};
  hr_error error = {0};
  (void)state;
  library.chosen = library.checked = 0;
  for (int round = 0; round < 2; round++)
    for (int which = 0; which < PRODUCTS; which++)
      assert_int_equal(find(&ways, which, WORKSPACE, HR_OK, &error).algorithm.words[0], which + 1);
  assert_int_equal(find(&ways, 0, 2 * WORKSPACE, HR_OK, &error).algorithm.words[0], PRODUCTS + 1); /* another room */
  assert_int_equal(library.chosen, PRODUCTS + 1);
  assert_int_equal(library.checked, 0);
  hri_cuda_ways_deinit(&ways);
}

static void what_is_written_is_read_back(void **state) {
  hri_cuda_ways ways = {0}, again = {0};
  hr_error error = {0};
  char *text, *same;
  (void)state;
  library.chosen = library.checked = 0;
  library.plain = true; /* the last two are apart, and have a product alone */
  for (int which = 0; which < PRODUCTS; which++) find(&ways, which, WORKSPACE, HR_OK, &error);
  text = text_of(&ways);
  assert_int_equal(read_back(&again, text, &error), HR_OK);
  same = text_of(&again);
  assert_string_equal(text, same);
  library.plain = false; /* it has them now: the run computes as it began */
  library.chosen = 100;
  for (int round = 0; round < 2; round++)
    for (int which = 0; which < PRODUCTS; which++) {
      hri_cuda_way was = find(&ways, which, WORKSPACE, HR_OK, &error),
                   is = find(&again, which, WORKSPACE, HR_OK, &error);
      assert_memory_equal(&was.algorithm, &is.algorithm, sizeof is.algorithm);
      assert_int_equal(was.apart, is.apart);
      assert_int_equal(is.apart, which > 14);
    }
  assert_int_equal(library.chosen, 100);
  assert_int_equal(library.checked, PRODUCTS - 2); /* once each, and nothing of what is apart */
  hri_free(text);
  hri_free(same);
  hri_cuda_ways_deinit(&ways);
  hri_cuda_ways_deinit(&again);
}

/* Only when a product wants it: what nobody asks for is kept as it is. */
static void a_way_that_is_gone_is_refused(void **state) {
  hri_cuda_ways ways = {0}, again = {0};
  hr_error error = {0};
  char *text;
  (void)state;
  find(&ways, 0, WORKSPACE, HR_OK, &error);
  text = text_of(&ways);
  assert_int_equal(read_back(&again, text, &error), HR_OK);
  find(&again, 0, WORKSPACE / 4, HR_ERROR_USAGE, &error);
  assert_string_equal(
      error.message, "the run computes products of 8 x 16 x 24 (bf16) in a way that is not possible any more: it takes "
                     "2.00 KiB of workspace, and the plan has 1.00 KiB for it");
  library.gone = true;
  find(&again, 0, WORKSPACE, HR_ERROR_USAGE, &error);
  assert_non_null(strstr(error.message, "not possible any more: the library does not take it"));
  assert_non_null(strstr(error.hint, "--allow-different ways"));
  find(&again, 1, WORKSPACE, HR_OK, &error); /* a new one is chosen */
  library.gone = false;
  find(&again, 0, WORKSPACE / 2, HR_OK, &error); /* enough for what it takes */
  hri_free(text);
  hri_cuda_ways_deinit(&ways);
  hri_cuda_ways_deinit(&again);
}

static void what_is_damaged_is_named(void **state) {
  static const struct {
    const char *old, *now, *told;
  } damages[] = {
      {"\"m\": 8", "\"m\": -8", "[0].m"},
      {"\"n\": 16", "\"n\": \"16\"", "[0].n"},
      {"\"strides\": [24, 16, 16]", "\"strides\": [24, 16]", "[0].strides"},
      {"\"strides\": [24, 16, 16]", "\"strides\": [24, 16, 1.5]", "[0].strides[2]"},
      {"\"operands\": \"bf16\"", "\"operands\": \"fp8\"", "[0].operands"},
      {"\"result\": \"bf16\"", "\"result\": 3", "[0].result"},
      {"\"alignment\": 16", "\"alignment\": 32", "[0].alignment"},
      {"\"turned\": \"none\"", "\"turned\": \"c\"", "[0].turned"},
      {"\"accumulate\": false", "\"accumulate\": 0", "[0].accumulate"},
      {"\"epilogue\": \"none\"", "\"epilogue\": \"relu\"", "[0].epilogue"},
      {"\"tf32\": false", "\"tf\": false", "[0].tf32"},
      {"\"workspace\": 4096", "\"workspace\": -1", "[0].workspace"},
      {"\"takes\": 2048", "\"takes\": null", "[0].takes"},
      {"\"way\": \"0", "\"way\": \"", "[0].way"},
      {"\"way\": \"0", "\"way\": \"g", "[0].way"},
      {"\"way\": \"", "\"way\": \"apart\", \"was\": \"", "[0].way"}, /* a product that no library lacks */
  };
  hri_cuda_ways ways = {0};
  hr_error error = {0};
  char *text;
  (void)state;
  find(&ways, 0, WORKSPACE, HR_OK, &error);
  text = text_of(&ways);
  for (size_t k = 0; k < sizeof damages / sizeof *damages; k++) {
    hri_cuda_ways into = {0};
    char damaged[2048], *at = strstr(text, damages[k].old);
    if (!at) fail_msg("there is no %s in %s", damages[k].old, text);
    (void)snprintf(damaged, sizeof damaged, "%.*s%s%s", (int)(at - text), text, damages[k].now,
                   at + strlen(damages[k].old));
    assert_int_equal(read_back(&into, damaged, &error), HR_ERROR_INPUT);
    if (!strstr(error.message, damages[k].told) || !strstr(error.message, "state.json"))
      fail_msg("%s: %s", damages[k].now, error.message);
    hri_cuda_ways_deinit(&into);
  }
  hri_free(text);
  hri_cuda_ways_deinit(&ways);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_product_is_chosen_once),
                                     cmocka_unit_test(what_is_written_is_read_back),
                                     cmocka_unit_test(a_way_that_is_gone_is_refused),
                                     cmocka_unit_test(what_is_damaged_is_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
