/* Values and views: which bytes a tensor shows (against a map of bytes), types of blocks, further producers and their
 * rule, columns of one result on several lanes, transients, and the kernels that move columns. The gradients of all of
 * these are held against differences in test_gradients.c. No backend runs here but for the last group. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/real.h"
#include "base/rng.h"
#include "ops/cpu.h"
#include "pass/pass.h"
#include "program/check.h"
#include "program/region.h"
#include "support/team.h"

/* ---- regions against a map of bytes ---- */

enum { MAP = 512 };

static uint32_t word(uint64_t seed, uint64_t index, uint32_t below) {
  uint32_t w[4];
  hri_philox(seed, 0, index, w);
  return w[0] % below;
}

static void paint(unsigned char *map, const hri_region *r) {
  for (uint64_t row = 0; row < r->rows; row++)
    for (uint64_t i = 0; i < r->width; i++) {
      assert_true(r->begin + row * r->pitch + i < MAP);
      map[r->begin + row * r->pitch + i]++;
    }
}

static hri_region draw_region(uint64_t seed, uint64_t at) {
  static const uint64_t pitches[] = {1, 2, 7, 8, 13, 24, 24, 24, 31};
  hri_region r = {.begin = word(seed, at, 90),
                  .pitch = pitches[word(seed, at + 1, 9)],
                  .rows = 1 + word(seed, at + 2, 12)};
  r.width = 1 + word(seed, at + 3, (uint32_t)r.pitch);
  if (word(seed, at + 4, 3) == 0) r = (hri_region){.begin = r.begin, .width = 1 + word(seed, at + 3, 200), .rows = 1};
  if (r.rows == 1) r.pitch = 0;
  return r;
}

static void regions_are_exact(void **state) {
  uint32_t apart = 0, interleaved = 0;
  (void)state;
  for (uint64_t seed = 0; seed < 60000; seed++) {
    hri_region a = draw_region(seed, 0), b = draw_region(seed, 10);
    unsigned char in_a[MAP] = {0}, in_b[MAP] = {0}, left[MAP] = {0};
    hri_regions pieces = {0};
    uint64_t both = 0;
    paint(in_a, &a);
    paint(in_b, &b);
    for (int i = 0; i < MAP; i++) both += in_a[i] && in_b[i];
    if (hri_region_overlap(&a, &b) != both || hri_region_overlap(&b, &a) != both)
      fail_msg("seed %llu: %llu bytes in both, not %llu", (unsigned long long)seed,
               (unsigned long long)hri_region_overlap(&a, &b), (unsigned long long)both);
    assert_true(hri_region_subtract(&a, &b, &pieces));
    for (size_t p = 0; p < pieces.count; p++) paint(left, &pieces.items[p]);
    for (int i = 0; i < MAP; i++)
      if (left[i] != (in_a[i] && !in_b[i]))
        fail_msg("seed %llu: byte %d is %u times in what is left", (unsigned long long)seed, i, left[i]);
    apart += both == 0;
    interleaved += both == 0 && a.begin < hri_region_end(&b) && b.begin < hri_region_end(&a);
    hri_array_free(&pieces);
  }
  assert_true(apart > 1000 && interleaved > 100); /* the interesting cases were among them */
}

/* ---- types of blocks ---- */

static const hri_place here = {.program = HRI_STEP,
                               .tier = HRI_DEVICE,
                               .role = HRI_ROLE_ACTIVATION,
                               .layer = 0,
                               .unit = HRI_NONE};

static void types_of_blocks_have_exact_sizes(void **state) {
  static const struct {
    hri_dtype type;
    uint64_t block, bytes;
  } types[] = {
      {HRI_F32, 1, 4},     {HRI_BF16, 1, 2},     {HRI_I8, 1, 1},       {HRI_U4, 2, 1},
      {HRI_Q4_0, 32, 18},  {HRI_Q8_0, 32, 34},   {HRI_Q4_K, 256, 144}, {HRI_Q6_K, 256, 210},
      {HRI_Q2_K, 256, 84}, {HRI_Q3_K, 256, 110}, {HRI_IQ4_NL, 32, 18}, {HRI_IQ4_XS, 256, 136},
  };
  (void)state;
  for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
    hri_job job;
    uint64_t dims[2] = {5, 3 * types[k].block};
    hri_id whole, rows, columns;
    hri_job_init(&job);
    whole = hri_tensor_new(&job, here, hri_name(&job, "blob"), types[k].type, 2, dims, NULL);
    assert_int_equal(hri_tensor_bytes(&job.tensors.items[whole]), 15 * types[k].bytes);
    assert_int_equal(job.storages.items[job.tensors.items[whole].storage].bytes, 15 * types[k].bytes);
    rows = hri_tensor_rows(&job, whole, 2, 2);
    assert_int_equal(job.tensors.items[rows].offset, 6 * types[k].bytes);
    assert_int_equal(hri_tensor_bytes(&job.tensors.items[rows]), 6 * types[k].bytes);
    columns = hri_tensor_columns(&job, whole, types[k].block, 2 * types[k].block);
    assert_int_equal(job.tensors.items[columns].offset, types[k].bytes);
    assert_int_equal(hri_tensor_bytes(&job.tensors.items[columns]), 10 * types[k].bytes);
    rows = hri_tensor_rows(&job, columns, 1, 3);
    assert_int_equal(job.tensors.items[rows].offset, 4 * types[k].bytes);
    assert_int_equal(hri_region_of(&job.tensors.items[rows]).pitch, 3 * types[k].bytes);
    assert_true(hri_tensor_is_whole(&job, &job.tensors.items[whole]));
    assert_false(hri_tensor_is_whole(&job, &job.tensors.items[columns]));
    hri_job_deinit(&job);
  }
}

/* ---- the rules about further producers and columns ---- */

enum { ROWS = 6, WIDE = 12 };

typedef struct small {
  hri_job job;
  hri_emit emit;
  hri_id x, wide, y; /* an input [ROWS, WIDE]; wide: a copy of it; y: a copy of wide */
} small;

static hri_id node_on(small *s, hri_lane lane, hri_op op, const hri_operand *operands, uint32_t count) {
  s->emit.lane = (uint8_t)lane;
  return hri_node_append(&s->job, (uint16_t)op, s->emit, NULL, operands, count);
}

static hri_id fresh(small *s, uint64_t columns) {
  uint64_t dims[2] = {ROWS, columns};
  return hri_tensor_new(&s->job, here, hri_name(&s->job, "t%zu", s->job.tensors.count), HRI_F32, 2, dims, NULL);
}

static void small_open(small *s) {
  hri_place input = here;
  uint64_t dims[2] = {ROWS, WIDE};
  input.role = HRI_ROLE_INPUT;
  input.scope = HRI_IN(HRI_STEP);
  hri_job_init(&s->job);
  s->emit =
      (hri_emit){.program = HRI_STEP, .phase = HRI_PHASE_FORWARD, .layer = 0, .unit = HRI_NONE, .origin = HRI_NONE};
  s->x = hri_tensor_new(&s->job, input, hri_name(&s->job, "x"), HRI_F32, 2, dims, NULL);
  s->wide = fresh(s, WIDE);
  s->y = fresh(s, WIDE);
}

static void expect(const small *s, const char *complaint) {
  hr_error error = {0};
  hr_status status = hri_job_check(&s->job, &error);
  if (!complaint && status != HR_OK) fail_msg("%s", error.message);
  if (complaint && (status != HR_ERROR_INTERNAL || !strstr(error.message, complaint)))
    fail_msg("expected '%s', got '%s'", complaint, error.message);
}

/* x -> wide; columns of x added to columns of wide; wide -> y. In the given order of the last two. */
static void added(small *s, uint64_t from, bool before_reader) {
  small_open(s);
  node_on(s, HRI_COMPUTE, HRI_OP_COPY, (hri_operand[]){HRI_R(s->x), HRI_W(s->wide)}, 2);
  for (int turn = 0; turn < 2; turn++) {
    if ((turn == 0) == before_reader)
      node_on(s, HRI_COMPUTE, HRI_OP_ACCUMULATE,
              (hri_operand[]){HRI_R(hri_tensor_columns(&s->job, s->x, 0, 4)),
                              HRI_A(hri_tensor_columns(&s->job, s->wide, from, 4))},
              2);
    else node_on(s, HRI_COMPUTE, HRI_OP_COPY, (hri_operand[]){HRI_R(s->wide), HRI_W(s->y)}, 2);
  }
}

static void a_value_may_have_further_producers_before_its_readers(void **state) {
  small s;
  (void)state;
  added(&s, 4, true);
  expect(&s, NULL);
  hri_job_deinit(&s.job);
  added(&s, 4, false);
  expect(&s, "adds to what was read already");
  hri_job_deinit(&s.job);

  small_open(&s); /* into nothing: a producer must have written it */
  node_on(&s, HRI_COMPUTE, HRI_OP_ACCUMULATE, (hri_operand[]){HRI_R(s.x), HRI_A(s.wide)}, 2);
  expect(&s, "rule 1");
  hri_job_deinit(&s.job);

  small_open(&s); /* columns that nobody read may still be added to */
  node_on(&s, HRI_COMPUTE, HRI_OP_COPY, (hri_operand[]){HRI_R(s.x), HRI_W(s.wide)}, 2);
  node_on(&s, HRI_COMPUTE, HRI_OP_COPY,
          (hri_operand[]){HRI_R(hri_tensor_columns(&s.job, s.wide, 0, 4)),
                          HRI_W(hri_tensor_columns(&s.job, s.y, 8, 4))},
          2);
  node_on(&s, HRI_COMPUTE, HRI_OP_ACCUMULATE,
          (hri_operand[]){HRI_R(hri_tensor_columns(&s.job, s.x, 0, 4)),
                          HRI_A(hri_tensor_columns(&s.job, s.wide, 4, 4))},
          2);
  expect(&s, NULL);
  hri_job_deinit(&s.job);
}

static void columns_are_written_once_and_all_before_they_are_read(void **state) {
  small s;
  (void)state;
  for (int missing = 0; missing < 2; missing++) {
    small_open(&s);
    for (uint64_t k = 0; k < (missing ? 2u : 3u); k++)
      node_on(&s, HRI_COMPUTE, HRI_OP_COPY,
              (hri_operand[]){HRI_R(hri_tensor_columns(&s.job, s.x, 4 * k, 4)),
                              HRI_W(hri_tensor_columns(&s.job, s.wide, 4 * k, 4))},
              2);
    node_on(&s, HRI_COMPUTE, HRI_OP_COPY, (hri_operand[]){HRI_R(s.wide), HRI_W(s.y)}, 2);
    expect(&s, missing ? "rule 1: reads what its producer did not write" : NULL);
    hri_job_deinit(&s.job);
  }
  small_open(&s);
  node_on(&s, HRI_COMPUTE, HRI_OP_COPY, (hri_operand[]){HRI_R(s.x), HRI_W(s.wide)}, 2);
  node_on(&s, HRI_COMPUTE, HRI_OP_COPY,
          (hri_operand[]){HRI_R(hri_tensor_columns(&s.job, s.x, 0, 1)),
                          HRI_W(hri_tensor_columns(&s.job, s.wide, 11, 1))},
          2);
  expect(&s, "written twice");
  hri_job_deinit(&s.job);
}

/* Two lanes that touch neighbouring columns need no wait; one shared column is a hazard. */
static void hazards_are_exact_to_the_column(void **state) {
  (void)state;
  for (uint64_t second = 3; second < 6; second++) {
    small s;
    small_open(&s);
    node_on(&s, HRI_COMPUTE, HRI_OP_COPY,
            (hri_operand[]){HRI_R(hri_tensor_columns(&s.job, s.x, 0, 4)),
                            HRI_W(hri_tensor_columns(&s.job, s.wide, 0, 4))},
            2);
    node_on(&s, HRI_COPY_IN, HRI_OP_COPY,
            (hri_operand[]){HRI_R(hri_tensor_columns(&s.job, s.x, 0, 4)),
                            HRI_W(hri_tensor_columns(&s.job, s.wide, second, 4))},
            2);
    expect(&s, second < 4 ? "rule 3" : NULL);
    hri_job_deinit(&s.job);
  }
}

static void columns_stand_only_where_an_op_takes_them(void **state) {
  small s;
  hri_id view;
  (void)state;
  small_open(&s);
  view = hri_tensor_columns(&s.job, s.x, 0, 4);
  node_on(&s, HRI_COMPUTE, HRI_OP_CAST, (hri_operand[]){HRI_R(view), HRI_W(fresh(&s, 4))}, 2);
  expect(&s, "rule 7: a column view where the op takes none");
  hri_job_deinit(&s.job);
  small_open(&s); /* the same, made legal */
  view = hri_tensor_columns(&s.job, s.x, 0, 4);
  s.emit.lane = HRI_COMPUTE;
  hri_node_append_plain(&s.job, HRI_OP_CAST, s.emit, NULL, (hri_operand[]){HRI_R(view), HRI_W(fresh(&s, 4))}, 2);
  assert_int_equal(s.job.programs[HRI_STEP].order.count, 2);
  expect(&s, NULL);
  hri_job_deinit(&s.job);
  small_open(&s); /* the last row of columns ends inside, one more element would not */
  view = hri_tensor_columns(&s.job, s.x, 8, 4);
  s.job.tensors.items[view].offset += 4;
  node_on(&s, HRI_COMPUTE, HRI_OP_COPY, (hri_operand[]){HRI_R(view), HRI_W(fresh(&s, 4))}, 2);
  expect(&s, "rule 7: a view leaves its storage");
  hri_job_deinit(&s.job);
}

/* Sizes and offsets whose sums wrap around 2^64 are no way out of a storage. */
static void no_view_wraps_around(void **state) {
  static const struct {
    uint64_t offset, rows, columns, stride;
  } cases[] = {
      {UINT64_MAX - 15, 1, 8, 0}, /* ends at byte 16 of the next turn */
      {UINT64_MAX - 7, 2, 2, 4},
      {0, UINT64_MAX / 4 + 1 + ROWS, WIDE, 0}, /* its bytes are those of ROWS rows, modulo 2^64 */
      {0, 1ull << 62, 4, 0},                   /* of none at all */
      {0, 5, 1, 1ull << 62},                   /* rows 2^64 bytes apart */
      {0, ROWS, WIDE, 3},                      /* narrower apart than they are wide */
  };
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    small s;
    hri_id view;
    small_open(&s);
    view = hri_tensor_columns(&s.job, s.x, 0, WIDE);
    s.job.tensors.items[view].offset = s.job.tensors.items[view].value_offset = cases[k].offset;
    s.job.tensors.items[view].dims[0] = s.job.tensors.items[view].stored[0] = cases[k].rows;
    s.job.tensors.items[view].dims[1] = s.job.tensors.items[view].stored[1] = cases[k].columns;
    s.job.tensors.items[view].stride = cases[k].stride;
    node_on(&s, HRI_COMPUTE, HRI_OP_COPY, (hri_operand[]){HRI_R(view), HRI_W(s.y)}, 2);
    expect(&s, "rule 7: a view leaves its storage");
    hri_job_deinit(&s.job);
  }
}

static void no_such_op_is_an_error(void **state) {
  small s;
  (void)state;
  small_open(&s);
  node_on(&s, HRI_COMPUTE, (hri_op)60000, (hri_operand[]){HRI_R(s.x), HRI_W(s.y)}, 2);
  expect(&s, "rule 7: node at 0 has a wrong op");
  hri_job_deinit(&s.job);
}

/* A tensor of its own value in the place of another, as the passes that merge storages make it. */
static hri_id over(small *s, hri_id value, hri_id place, uint64_t offset) {
  hri_tensor t = s->job.tensors.items[value];
  t.storage = s->job.tensors.items[place].storage;
  t.offset = offset;
  assert_true(hri_array_push(&s->job.tensors, t));
  return (hri_id)s->job.tensors.count - 1;
}

/* A result may take the bytes of an operand of the same node only where the op's rule says so, and exactly those. */
static void results_lie_over_operands_only_where_the_op_allows_it(void **state) {
  small s;
  (void)state;
  small_open(&s); /* element by element: y = wide + x in the place of wide */
  node_on(&s, HRI_COMPUTE, HRI_OP_COPY, (hri_operand[]){HRI_R(s.x), HRI_W(s.wide)}, 2);
  node_on(&s, HRI_COMPUTE, HRI_OP_ADD, (hri_operand[]){HRI_R(s.wide), HRI_R(s.x), HRI_W(over(&s, s.y, s.wide, 0))}, 3);
  expect(&s, NULL);
  hri_job_deinit(&s.job);

  small_open(&s); /* a copy does not take it: threads cut it as they like */
  node_on(&s, HRI_COMPUTE, HRI_OP_COPY, (hri_operand[]){HRI_R(s.x), HRI_W(s.wide)}, 2);
  node_on(&s, HRI_COMPUTE, HRI_OP_COPY, (hri_operand[]){HRI_R(s.wide), HRI_W(over(&s, s.y, s.wide, 0))}, 2);
  expect(&s, "rule 7: written over an operand");
  hri_job_deinit(&s.job);

  small_open(&s); /* a row further on */
  s.job.storages.items[s.job.tensors.items[s.wide].storage].bytes += WIDE * 4;
  node_on(&s, HRI_COMPUTE, HRI_OP_COPY, (hri_operand[]){HRI_R(s.x), HRI_W(s.wide)}, 2);
  node_on(&s, HRI_COMPUTE, HRI_OP_ADD,
          (hri_operand[]){HRI_R(s.wide), HRI_R(s.x), HRI_W(over(&s, s.y, s.wide, WIDE * 4))}, 3);
  expect(&s, "rule 7: written over an operand");
  hri_job_deinit(&s.job);

  small_open(&s); /* scratch never does */
  node_on(&s, HRI_COMPUTE, HRI_OP_COPY, (hri_operand[]){HRI_R(s.x), HRI_W(s.wide)}, 2);
  node_on(&s, HRI_COMPUTE, HRI_OP_ADD,
          (hri_operand[]){HRI_R(s.wide), HRI_R(s.x), HRI_W(s.y), {over(&s, fresh(&s, WIDE), s.wide, 0), HRI_SCRATCH}},
          4);
  expect(&s, "rule 7: scratch over another operand");
  hri_job_deinit(&s.job);
}

/* A group is touched member by member by the ops that know of groups; any other would touch what lies between. */
static void groups_stand_only_where_an_op_takes_them(void **state) {
  (void)state;
  for (int broken = 0; broken < 3; broken++) {
    small s;
    hri_id rows[2], sums[2], group, places, node;
    hri_place f64 = here;
    uint64_t two = 2;
    small_open(&s);
    rows[0] = hri_tensor_rows(&s.job, s.x, 0, 2);
    rows[1] = hri_tensor_rows(&s.job, s.x, 3, 2);
    group = hri_tensor_group(&s.job, rows, 2);
    places = hri_tensor_new(&s.job, f64, hri_name(&s.job, "sums"), HRI_F64, 1, &two, NULL);
    for (uint64_t k = 0; k < 2; k++) sums[k] = hri_tensor_rows(&s.job, places, k, 1);
    if (broken == 1) s.job.tensors.items[rows[1]].offset = UINT64_MAX - 7;
    if (broken == 2) s.job.tensors.items[rows[1]].offset = s.job.tensors.items[rows[0]].offset + 4;
    node = node_on(&s, HRI_COMPUTE, HRI_OP_SQUARE_NORM,
                   (hri_operand[]){HRI_R(group), HRI_W(hri_tensor_group(&s.job, sums, 2))}, 2);
    expect(&s, broken ? "rule 7: a group whose members" : NULL);
    if (!broken) {
      uint64_t bytes = hri_tensor_bytes(&s.job.tensors.items[group]);
      s.job.nodes.items[node].op = HRI_OP_COPY;
      hri_operands(&s.job, &s.job.nodes.items[node])[1].tensor =
          hri_tensor_new(&s.job, here, hri_name(&s.job, "all"), HRI_U8, 1, &bytes, NULL);
      expect(&s, "rule 7: a group where the op takes none");
    }
    hri_job_deinit(&s.job);
  }
}

/* ---- transients ---- */

/* A weight, a transient made from it, and readers at the given positions among nodes that do not read it. */
static uint32_t copies_of(const char *readers, uint32_t *nodes) {
  small s;
  hr_error error = {0};
  uint32_t made = 0;
  hri_id deq, last = HRI_NONE;
  small_open(&s);
  deq = fresh(&s, WIDE);
  s.job.storages.items[s.job.tensors.items[deq].storage].transient = true;
  node_on(&s, HRI_COMPUTE, HRI_OP_CAST, (hri_operand[]){HRI_R(s.x), HRI_W(deq)}, 2);
  for (const char *r = readers; *r; r++) {
    if (*r == '|') s.emit.phase = HRI_PHASE_BACKWARD;
    else
      node_on(&s, HRI_COMPUTE, HRI_OP_ADD,
              (hri_operand[]){HRI_R(s.x), HRI_R(*r == 'r' ? deq : s.x), HRI_W(last = fresh(&s, WIDE))}, 3);
  }
  expect(&s, NULL);
  assert_int_equal(hri_pass_transient(&s.job, &error), HR_OK);
  expect(&s, NULL);
  *nodes = (uint32_t)s.job.programs[HRI_STEP].order.count;
  for (uint32_t at = 0; at < *nodes; at++) {
    const hri_node *n = &s.job.nodes.items[s.job.programs[HRI_STEP].order.items[at]], *next;
    if (n->op != HRI_OP_CAST) continue;
    made++;
    assert_true(at + 1 < *nodes); /* its use stands right behind it, in the same phase, and reads this very copy */
    next = &s.job.nodes.items[s.job.programs[HRI_STEP].order.items[at + 1]];
    assert_int_equal(hri_operands(&s.job, next)[1].tensor == HRI_NONE, 0);
    assert_int_equal(s.job.tensors.items[hri_operands(&s.job, next)[1].tensor].value,
                     s.job.tensors.items[hri_operands(&s.job, n)[1].tensor].value);
    if (made > 1) assert_int_equal(next->phase, n->phase);
  }
  hri_job_deinit(&s.job);
  return made;
}

static void transients_are_made_before_each_use(void **state) {
  static const struct {
    const char *readers;
    uint32_t copies;
  } cases[] = {
      {"r", 1}, {"rr", 1}, {"r.r", 2}, {"..r", 1}, {"r..|..r.", 2}, {"rr.r|r.rrr..r", 4}, {"...", 0},
  };
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    uint32_t nodes, plain = 0;
    for (const char *r = cases[k].readers; *r; r++) plain += *r != '|';
    if (copies_of(cases[k].readers, &nodes) != cases[k].copies) fail_msg("'%s'", cases[k].readers);
    assert_int_equal(nodes, plain + cases[k].copies);
  }
}

/* Codes and scales make a transient, which makes another: both come again, the inner one first. */
static void transients_of_transients(void **state) {
  small s;
  hr_error error = {0};
  hri_id inner, outer;
  hri_op want[] = {HRI_OP_CAST, HRI_OP_COPY, HRI_OP_ADD, HRI_OP_ADD, HRI_OP_CAST, HRI_OP_COPY, HRI_OP_ADD};
  (void)state;
  small_open(&s);
  inner = fresh(&s, WIDE);
  outer = fresh(&s, WIDE);
  s.job.storages.items[s.job.tensors.items[inner].storage].transient = true;
  s.job.storages.items[s.job.tensors.items[outer].storage].transient = true;
  node_on(&s, HRI_COMPUTE, HRI_OP_CAST, (hri_operand[]){HRI_R(s.x), HRI_W(inner)}, 2);
  node_on(&s, HRI_COMPUTE, HRI_OP_COPY, (hri_operand[]){HRI_R(inner), HRI_W(outer)}, 2);
  node_on(&s, HRI_COMPUTE, HRI_OP_ADD, (hri_operand[]){HRI_R(s.x), HRI_R(outer), HRI_W(s.wide)}, 3);
  node_on(&s, HRI_COMPUTE, HRI_OP_ADD, (hri_operand[]){HRI_R(s.x), HRI_R(s.wide), HRI_W(s.y)}, 3);
  node_on(&s, HRI_COMPUTE, HRI_OP_ADD, (hri_operand[]){HRI_R(s.y), HRI_R(outer), HRI_W(fresh(&s, WIDE))}, 3);
  assert_int_equal(hri_pass_transient(&s.job, &error), HR_OK);
  expect(&s, NULL);
  assert_int_equal(s.job.programs[HRI_STEP].order.count, 7);
  for (uint32_t at = 0; at < 7; at++)
    assert_int_equal(s.job.nodes.items[s.job.programs[HRI_STEP].order.items[at]].op, want[at]);
  hri_job_deinit(&s.job);
}

static void a_transient_is_local(void **state) {
  small s;
  (void)state;
  small_open(&s);
  s.job.storages.items[s.job.tensors.items[s.x].storage].transient = true;
  node_on(&s, HRI_COMPUTE, HRI_OP_COPY, (hri_operand[]){HRI_R(s.x), HRI_W(s.wide)}, 2);
  expect(&s, "rule 7: a transient");
  hri_job_deinit(&s.job);
}

/* ---- kernels that move columns ---- */

static void tables(hri_cpu_kernels out[3], int *count) {
  memset(out, 0, 3 * sizeof *out);
  *count = 0;
  hri_move_kernels_base(&out[*count]), hri_pointwise_kernels_base(&out[(*count)++]);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    hri_move_kernels_avx2(&out[*count]), hri_pointwise_kernels_avx2(&out[(*count)++]);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    hri_move_kernels_avx512(&out[*count]), hri_pointwise_kernels_avx512(&out[(*count)++]);
#endif
}

static float get(const void *x, hri_real real, int64_t i) {
  return real == HRI_REAL_BF16 ? hri_bf16_widen(((const hri_bf16 *)x)[i]) : ((const float *)x)[i];
}
static void put(void *x, hri_real real, int64_t i, float value) {
  if (real == HRI_REAL_BF16) ((hri_bf16 *)x)[i] = hri_bf16_round(value);
  else ((float *)x)[i] = value;
}

/* Every pair of types, written and added, odd widths and strides: the exact sum of the two, rounded once, and not a
 * byte beside the columns. */
static void accumulate_is_exact_and_touches_its_columns_only(void **state) {
  hri_cpu_kernels kernels[3];
  int count;
  (void)state;
  tables(kernels, &count);
  for (int isa = 0; isa < count; isa++)
    for (uint64_t k = 0; k < 400; k++) {
      hri_real xr = k & 1 ? HRI_REAL_BF16 : HRI_REAL_F32, yr = k & 2 ? HRI_REAL_BF16 : HRI_REAL_F32;
      bool adds = k & 4;
      int64_t columns = 1 + word(k, 1, 70), rows = 1 + word(k, 2, 9), xs = columns + word(k, 3, 20),
              ys = columns + word(k, 4, 20), n = rows * (xs > ys ? xs : ys);
      float *x = calloc((size_t)n, 4), *y = calloc((size_t)n, 4), *want = calloc((size_t)n, 4);
      for (int64_t i = 0; i < n; i++)
        put(x, xr, i, (float)word(k, 100 + (uint64_t)i, 2001) / 64 - 15),
            put(y, yr, i, (float)word(k, 9000 + (uint64_t)i, 2001) / 64 - 15);
      memcpy(want, y, (size_t)n * 4);
      for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
          put(want, yr, r * ys + c, (adds ? get(y, yr, r * ys + c) : 0) + get(x, xr, r * xs + c));
      kernels[isa].accumulate(y, yr, ys, x, xr, xs, rows, columns, adds, team_of(1 + (int)(k % 3)));
      if (memcmp(y, want, (size_t)n * 4)) fail_msg("level %d, case %llu", isa, (unsigned long long)k);
      free(x), free(y), free(want);
    }
}

static void columns_are_copied(void **state) {
  hri_cpu_kernels kernels[3];
  int count;
  (void)state;
  tables(kernels, &count);
  for (int isa = 0; isa < count; isa++)
    for (uint64_t k = 0; k < 200; k++) {
      int64_t width = 1 + word(k, 1, 300), rows = 1 + word(k, 2, 9), from = width + word(k, 3, 20),
              to = width + word(k, 4, 20), n = rows * (from > to ? from : to);
      unsigned char *x = malloc((size_t)n), *y = malloc((size_t)n), *want = malloc((size_t)n);
      for (int64_t i = 0; i < n; i++)
        x[i] = (unsigned char)word(k, 100 + (uint64_t)i, 256), y[i] = want[i] = (unsigned char)i;
      for (int64_t r = 0; r < rows; r++) memcpy(want + r * to, x + r * from, (size_t)width);
      kernels[isa].copy_rows(y, to, x, from, width, rows, team_of(1 + (int)(k % 3)));
      assert_memory_equal(y, want, (size_t)n);
      free(x), free(y), free(want);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(regions_are_exact),
      cmocka_unit_test(types_of_blocks_have_exact_sizes),
      cmocka_unit_test(a_value_may_have_further_producers_before_its_readers),
      cmocka_unit_test(columns_are_written_once_and_all_before_they_are_read),
      cmocka_unit_test(hazards_are_exact_to_the_column),
      cmocka_unit_test(columns_stand_only_where_an_op_takes_them),
      cmocka_unit_test(no_view_wraps_around),
      cmocka_unit_test(no_such_op_is_an_error),
      cmocka_unit_test(results_lie_over_operands_only_where_the_op_allows_it),
      cmocka_unit_test(groups_stand_only_where_an_op_takes_them),
      cmocka_unit_test(transients_are_made_before_each_use),
      cmocka_unit_test(transients_of_transients),
      cmocka_unit_test(a_transient_is_local),
      cmocka_unit_test(accumulate_is_exact_and_touches_its_columns_only),
      cmocka_unit_test(columns_are_copied),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
