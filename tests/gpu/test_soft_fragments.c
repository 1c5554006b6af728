/* Fragments, copies with zero fill and conversions of the GPU in software against a table that was recorded on a card
 * (tests/gpu/fragments.txt; bench/gpu makes it by this program, built for the card). Without a table that test is skipped and
 * says so. What is sums of products agrees within what the ISA leaves open, all else to the bit.
 *
 * The table has card and date in front and for each case its name, a digest of its inputs, which are made here, and the words of
 * its result. */
#include "gpu/fragments.h"
#include "gpu/soft.h"

#include <math.h>
#include <time.h>

#include "base/real.h"
#include "base/rng.h"

typedef struct fragment_case {
  const char *name;
  fragment_op op;
  uint32_t out;   /* words of the result */
  uint32_t exact; /* products: of small whole numbers, so that every order of sums is exact */
} fragment_case;

static const fragment_case cases[] = {{"mma_bf16", FRAGMENT_MMA_BF16, 128, 1},
                                      {"mma_f16", FRAGMENT_MMA_F16, 128, 1},
                                      {"mma_tf32", FRAGMENT_MMA_TF32, 128, 1},
                                      {"mma_bf16_sums", FRAGMENT_MMA_BF16, 128, 0},
                                      {"mma_f16_sums", FRAGMENT_MMA_F16, 128, 0},
                                      {"mma_tf32_sums", FRAGMENT_MMA_TF32, 128, 0},
                                      {"ldmatrix_1", FRAGMENT_LDMATRIX_1, 128, 1},
                                      {"ldmatrix_2", FRAGMENT_LDMATRIX_2, 128, 1},
                                      {"ldmatrix_4", FRAGMENT_LDMATRIX_4, 128, 1},
                                      {"ldmatrix_1_transposed", FRAGMENT_LDMATRIX_1_TURNED, 128, 1},
                                      {"ldmatrix_2_transposed", FRAGMENT_LDMATRIX_2_TURNED, 128, 1},
                                      {"ldmatrix_4_transposed", FRAGMENT_LDMATRIX_4_TURNED, 128, 1},
                                      {"copy_4", FRAGMENT_COPY_4, 128, 1},
                                      {"copy_8", FRAGMENT_COPY_8, 128, 1},
                                      {"copy_16", FRAGMENT_COPY_16, 128, 1},
                                      {"to_bf16", FRAGMENT_TO_BF16, FRAGMENT_VALUES, 1},
                                      {"to_f16", FRAGMENT_TO_F16, FRAGMENT_VALUES, 1},
                                      {"from_f16", FRAGMENT_FROM_F16, FRAGMENT_VALUES, 1},
                                      {"to_tf32", FRAGMENT_TO_TF32, FRAGMENT_VALUES, 1},
                                      {"mul", FRAGMENT_MUL, FRAGMENT_VALUES, 1},
                                      {"add", FRAGMENT_ADD, FRAGMENT_VALUES, 1}};
enum { CASES = sizeof cases / sizeof *cases };

/* Of 16 products of normal values and one more the sum is below 64: tensor cores cut what they add at 24 bits of the largest
 * or a little more, once for each product. */
#define SUMS_AGREE (17 * 0x1p-18)

/* ---- inputs ---- */

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static uint32_t random_word(uint32_t stream, uint32_t i) {
  uint32_t words[4];
  hri_philox(17, stream, i, words);
  return words[0];
}

static float operand(const fragment_case *c, uint32_t i) {
  if (c->exact) return (float)((int)(random_word(c->op, i) % 17) - 8);
  return (float)fmax(-3, fmin(3, hri_normal(23, c->op, i)));
}

/* Words 0 to 5 of a lane are operands, two in a word but for tf32, which has 19 bits; the rest is added. */
static uint32_t mma_word(const fragment_case *c, uint32_t i) {
  float low = operand(c, 2 * i), high = operand(c, 2 * i + 1);
  if (i % FRAGMENT_MMA_IN >= 6) return bits_of(low);
  if (c->op == FRAGMENT_MMA_TF32) return bits_of(low) & 0xFFFFE000u;
  if (c->op == FRAGMENT_MMA_BF16) return (uint32_t)hri_bf16_round(high) << 16 | hri_bf16_round(low);
  return (uint32_t)hri_f16_round(high) << 16 | hri_f16_round(low);
}

/* Numbers at the edges of the types, ties, and any. The operands of sums and products are finite: NaNs of processors differ. */
static uint32_t value_word(const fragment_case *c, uint32_t i) {
  static const uint32_t edges[] = {0,          0x80000000, 1,          0x007FFFFF, 0x00800000, 0x3F808000, 0x3F818000,
                                   0xBF808000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF, 0x7F7F8000, 0x7F800000, 0xFF800000,
                                   0x7FC00000, 0x7F800001, 0xFFC12345, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x477FF001,
                                   0x33800000, 0x33000000, 0x33000001, 0x33C00000, 0x387FC000, 0x387FE000, 0x38800000,
                                   0x3F801000, 0x3F800FFF, 0x3F803000, 0x3F801001, 0x7F7FF000, 0x7F7FEFFF};
  uint32_t word = random_word(100, i);
  bool finite = c->op == FRAGMENT_MUL || c->op == FRAGMENT_ADD;
  if (c->op == FRAGMENT_FROM_F16) return i % FRAGMENT_VALUES * 64 + word % 64;
  if (i < sizeof edges / sizeof *edges && !finite) return edges[i];
  if (i % 3 == 1) return bits_of((float)ldexp(hri_normal(29, c->op, i), (int)(word % 45) - 28));
  if (i % 3 == 2) return (word & 0x807FF000u) | (127 - 26 + word % 43) << 23; /* ties of narrow types */
  return finite && (word & 0x7F800000u) == 0x7F800000u ? word ^ 0x10000000u : word;
}

static uint32_t input_word(const fragment_case *c, uint32_t i) {
  if (c->op <= FRAGMENT_MMA_TF32) return mma_word(c, i);
  if (c->op >= FRAGMENT_TO_BF16) return value_word(c, i);
  if (c->op <= FRAGMENT_LDMATRIX_4_TURNED && i >= FRAGMENT_MATRICES) return (i * 5 + 3) % 32; /* which row */
  return random_word(c->op, i);
}

static uint32_t digest_of(const uint32_t *words) {
  uint32_t digest = 2166136261u;
  for (uint32_t i = 0; i < FRAGMENT_WORDS; i++) digest = (digest ^ words[i]) * 16777619u;
  return digest;
}

/* Makes the inputs and has them run; the digest of the inputs. */
static uint32_t run_case(soft_test *t, const fragment_case *c, uint32_t *result) {
  static uint32_t in[FRAGMENT_WORDS];
  uint32_t *out = soft_memory(t, sizeof in);
  for (uint32_t i = 0; i < FRAGMENT_WORDS; i++) in[i] = input_word(c, i);
  assert_int_equal(fragment_run(c->op, soft_upload(t, in, sizeof in), out, t->stream), 0);
  soft_clean(t);
  soft_download(t, result, out, c->out * sizeof *out);
  return digest_of(in);
}

/* ---- the table ---- */

static void record(soft_test *t, const char *path) {
  uint32_t words[FRAGMENT_WORDS];
  hri_gpu_info info;
  char date[16];
  time_t now = time(NULL);
  FILE *file = fopen(path, "w");
  if (!file) fail_msg("%s cannot be written", path);
  assert_int_equal(t->gpu->calls->info(t->gpu, &info, NULL), HR_OK);
  (void)strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
  (void)fprintf(file, "# %s, compute capability %u.%u, %s\n", info.name, info.major, info.minor, date);
  for (int k = 0; k < CASES; k++) {
    uint32_t digest = run_case(t, &cases[k], words);
    (void)fprintf(file, "%s %08x %u\n", cases[k].name, digest, cases[k].out);
    for (uint32_t i = 0; i < cases[k].out; i++) (void)fprintf(file, "%08x%s", words[i], i % 8 == 7 ? "\n" : " ");
  }
  assert_int_equal(fclose(file), 0);
}

#ifndef HRI_TEST_CARD

static float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static bool agree(const fragment_case *c, uint32_t got, uint32_t expected) {
  return got == expected || (!c->exact && fabs((double)float_of(got) - (double)float_of(expected)) <= SUMS_AGREE);
}

/* What differs from the table; false: nothing. */
static bool differs(FILE *file, char *what, size_t bytes) {
  uint32_t got[FRAGMENT_WORDS], digest, count, word;
  char head[256], name[32];
  if (!fgets(head, sizeof head, file) || head[0] != '#')
    return snprintf(what, bytes, "it does not begin with a card") > 0;
  head[strcspn(head, "\n")] = 0;
  for (int k = 0; k < CASES; k++) {
    const fragment_case *c = &cases[k];
    soft_test t = soft_open((uint64_t)k);
    uint32_t mine = run_case(&t, c, got);
    soft_close(&t);
    if (fscanf(file, "%31s %x %u", name, &digest, &count) != 3 || strcmp(name, c->name) != 0 || count != c->out)
      return snprintf(what, bytes, "it has no case %s of %u words", c->name, c->out) > 0;
    if (digest != mine) return snprintf(what, bytes, "%s was recorded of other inputs: record it anew", c->name) > 0;
    for (uint32_t i = 0; i < c->out; i++) {
      if (fscanf(file, "%x", &word) != 1) return snprintf(what, bytes, "%s ends at word %u", c->name, i) > 0;
      if (!agree(c, got[i], word))
        return snprintf(what, bytes, "%s, word %u: %08x in software, %08x on %s", c->name, i, got[i], word, head) > 0;
    }
  }
  return false;
}

static void as_on_a_card(void **state) {
  const char *path = HR_TEST_DATA "/gpu/fragments.txt";
  char what[512];
  FILE *file = fopen(path, "r");
  (void)state;
  if (!file) {
    print_message("%s is not there: no table was recorded on a card yet\n", path);
    skip();
  }
  if (differs(file, what, sizeof what)) fail_msg("%s: %s", path, what);
  (void)fclose(file);
}

/* The way of the table: what the software wrote is what it reads, and a wrong word is seen, as are rows of another input. */
static void there_and_back(void **state) {
  const char *path = "fragments-soft.txt";
  char what[512] = "";
  soft_test t = soft_open(3);
  (void)state;
  record(&t, path);
  soft_close(&t);
  FILE *file = fopen(path, "r+");
  assert_non_null(file);
  if (differs(file, what, sizeof what)) fail_msg("%s", what);
  static const struct {
    const char *at, *said;
  } faults[] = {{"ldmatrix_4 ", "ldmatrix_4, word 0"}, {"to_f16 ", "to_f16, word 0"}};
  for (int k = 0; k < 2; k++) {
    char line[256];
    long place = 0;
    int first;
    rewind(file);
    while (fgets(line, sizeof line, file) && strncmp(line, faults[k].at, strlen(faults[k].at)) != 0) {}
    place = ftell(file);
    first = fgetc(file);
    assert_int_equal(fseek(file, place, SEEK_SET), 0);
    (void)fputc(first == '1' ? '2' : '1', file);
    rewind(file);
    assert_true(differs(file, what, sizeof what));
    if (strncmp(what, faults[k].said, strlen(faults[k].said)) != 0) fail_msg("said: %s", what);
    assert_int_equal(fseek(file, place, SEEK_SET), 0);
    (void)fputc(first, file);
  }
  (void)fclose(file);
  (void)remove(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_on_a_card), cmocka_unit_test(there_and_back)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static const char *table;
static void recorded(void **state) {
  soft_test t = soft_open(0);
  (void)state;
  record(&t, table);
  soft_close(&t);
}

/* The table is written to the file that is named. */
int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(recorded)};
  if (argc != 2) return (void)fprintf(stderr, "usage: card_fragments TABLE\n"), 2;
  table = argv[1];
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
