/* Every op of program/ops.h and what runs it on CUDA: a kernel of ours, which is linked here, or who does it instead. docs/cuda.md
 * shows the same table; HEADROOM_RECORD=1 writes it anew. */
#include "gpu/kernels.h"

#include "program/ops.h"

typedef void (*kernel)(void);
typedef struct op_state {
  const char *how; /* what the page says */
  kernel kernels[2];
} op_state;

#define ONE(name)                                                                                                      \
  {                                                                                                                    \
    "`" #name "`", { (kernel)(name), NULL }                                                                            \
  }
#define TWO(a, b)                                                                                                      \
  {                                                                                                                    \
    "`" #a "`, `" #b "`", { (kernel)(a), (kernel)(b) }                                                                 \
  }
#define PRODUCT                                                                                                        \
  {                                                                                                                    \
    "a library of products; `hri_cuda_product` for two types, and for few rows", { (kernel) hri_cuda_product, NULL }   \
  }
#define OTHERS(text)                                                                                                   \
  {                                                                                                                    \
    text, { NULL, NULL }                                                                                               \
  }

/* clang-format off */
static const op_state states[HRI_OP_COUNT] = {
    [HRI_OP_EMBED] = ONE(hri_cuda_embed), [HRI_OP_EMBED_BACKWARD] = ONE(hri_cuda_embed_backward),
    [HRI_OP_LINEAR] = PRODUCT, [HRI_OP_LINEAR_DX] = PRODUCT, [HRI_OP_LINEAR_DW] = PRODUCT,
    [HRI_OP_BIAS_GRADIENT] = ONE(hri_cuda_bias_gradient),
    [HRI_OP_LINEAR_DX_ACTIVATION] = {"a library of products; `hri_cuda_activation_backward` behind it where it has no such epilogue", {(kernel)hri_cuda_activation_backward, NULL}},
    [HRI_OP_LINEAR_DW_BIAS] = {"a library of products; `hri_cuda_bias_gradient` behind it where it has no such epilogue", {(kernel)hri_cuda_bias_gradient, NULL}},
    [HRI_OP_NORM] = TWO(hri_cuda_rmsnorm, hri_cuda_layernorm),
    [HRI_OP_NORM_BACKWARD] = TWO(hri_cuda_rmsnorm_backward, hri_cuda_layernorm_backward),
    [HRI_OP_HEAD_NORM] = ONE(hri_cuda_head_norm), [HRI_OP_HEAD_NORM_BACKWARD] = ONE(hri_cuda_head_norm_backward),
    [HRI_OP_DORA_BEGIN] = ONE(hri_cuda_row_lengths), [HRI_OP_DORA_LENGTHS] = ONE(hri_cuda_row_lengths),
    [HRI_OP_DORA] = ONE(hri_cuda_dora), [HRI_OP_DORA_BACKWARD] = ONE(hri_cuda_dora_backward),
    [HRI_OP_ADD] = ONE(hri_cuda_add), [HRI_OP_SCALE] = ONE(hri_cuda_scale),
    [HRI_OP_DROPOUT] = ONE(hri_cuda_dropout), [HRI_OP_NOISE] = ONE(hri_cuda_noise),
    [HRI_OP_ACTIVATION] = ONE(hri_cuda_activation), [HRI_OP_ACTIVATION_BACKWARD] = ONE(hri_cuda_activation_backward),
    [HRI_OP_GLU] = ONE(hri_cuda_glu), [HRI_OP_GLU_BACKWARD] = ONE(hri_cuda_glu_backward),
    [HRI_OP_ROPE] = ONE(hri_cuda_rope), [HRI_OP_ROPE_TABLE] = OTHERS("the host, once a load"),
    [HRI_OP_SOFTCAP] = ONE(hri_cuda_softcap),
    [HRI_OP_ATTENTION] = ONE(hri_cuda_attention), [HRI_OP_ATTENTION_BACKWARD] = ONE(hri_cuda_attention_backward),
    [HRI_OP_ATTENTION_FULL] = ONE(hri_cuda_attention_full),
    [HRI_OP_ATTENTION_FULL_BACKWARD] = ONE(hri_cuda_attention_full_backward),
    [HRI_OP_ATTENTION_CACHED] = ONE(hri_cuda_attention_cached),
    [HRI_OP_CROSS_ENTROPY] = ONE(hri_cuda_cross_entropy), [HRI_OP_LOSS_SUM] = ONE(hri_cuda_loss_sum),
    [HRI_OP_SQUARE_NORM] = ONE(hri_cuda_square_sum), [HRI_OP_CLIP] = ONE(hri_cuda_clip),
    [HRI_OP_FOUND_INF] = ONE(hri_cuda_found_inf), [HRI_OP_ADVANCE] = ONE(hri_cuda_advance),
    [HRI_OP_LOSS_SCALE] = ONE(hri_cuda_loss_scale),
#define UPDATE(id, ...) [HRI_OP_##id] = ONE(hri_cuda_update),
    HRI_OPTIMIZERS(UPDATE)
#undef UPDATE
    [HRI_OP_ZERO] = OTHERS("the runtime's fill"),
    [HRI_OP_COPY] = {"the runtime's copy; `hri_cuda_copy_rows` for columns", {(kernel)hri_cuda_copy_rows, NULL}},
    [HRI_OP_ACCUMULATE] = ONE(hri_cuda_accumulate), [HRI_OP_CAST] = ONE(hri_cuda_cast),
    [HRI_OP_SPLIT] = ONE(hri_cuda_split), [HRI_OP_JOIN] = ONE(hri_cuda_join),
    [HRI_OP_PACK] = OTHERS("not needed: no product reads a packed operand"),
    [HRI_OP_SELECT] = ONE(hri_cuda_select), [HRI_OP_LAST_ROW] = ONE(hri_cuda_last_row),
    [HRI_OP_QUANTIZE] = ONE(hri_cuda_quantize), [HRI_OP_DEQUANTIZE] = ONE(hri_cuda_dequantize),
    [HRI_OP_FILL] = OTHERS("copies from the host"), [HRI_OP_SINK] = OTHERS("copies to the host"),
};
/* clang-format on */

/* A name of a kernel stands beside its function. */
static void every_op_has_a_state(void **state) {
  (void)state;
  for (uint16_t op = 0; op < HRI_OP_COUNT; op++) {
    if (!states[op].how) fail_msg("%s: nobody says what runs it on CUDA", hri_op_name(op));
    assert_true((strstr(states[op].how, "hri_cuda_") != NULL) == (states[op].kernels[0] != NULL));
  }
}

#define BEGIN "<!-- ops -->\n"
#define END "<!-- ops end -->\n"

static char *read_all(const char *path) {
  FILE *file = fopen(path, "rb");
  char *text;
  long size;
  assert_non_null(file);
  assert_int_equal(fseek(file, 0, SEEK_END), 0);
  size = ftell(file);
  rewind(file);
  text = take((size_t)size + 1);
  assert_int_equal(fread(text, 1, (size_t)size, file), (size_t)size);
  (void)fclose(file);
  return text;
}

/* The page between its marks. */
static void page_shows_them(void **state) {
  static const char path[] = HR_TEST_DATA "/../docs/cuda.md";
  char *page = read_all(path), *begin = strstr(page, BEGIN), *end = strstr(page, END), *table = take(1 << 16);
  int at = sprintf(table, "%s\n| op | on CUDA |\n|---|---|\n", BEGIN);
  (void)state;
  assert_non_null(begin);
  assert_non_null(end);
  for (uint16_t op = 0; op < HRI_OP_COUNT; op++)
    at += sprintf(table + at, "| %s | %s |\n", hri_op_name(op), states[op].how ? states[op].how : "");
  at += sprintf(table + at, "\n");
  if (getenv("HEADROOM_RECORD")) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    (void)fprintf(file, "%.*s%s%s", (int)(begin - page), page, table, end);
    (void)fclose(file);
  } else if ((size_t)(end - begin) != (size_t)at || memcmp(begin, table, (size_t)at) != 0) {
    fail_msg("docs/cuda.md shows other kernels: HEADROOM_RECORD=1 %s writes them", "test_cuda_ops");
  }
  give_all();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_op_has_a_state), cmocka_unit_test(page_shows_them)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
