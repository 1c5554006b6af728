/* Properties of compiled jobs, over random models and strategies: the rules hold after every pass, the placement is
 * legal by an independent proof, and its gap to the live-bytes bound is small. The seed of a failure is printed;
 * HEADROOM_TEST_SEED repeats it. No kernel runs here: scratch sizes come from a fake backend. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/plan.h>

#include "base/rng.h"
#include "base/text.h"
#include "plan/compile.h"
#include "plan/place.h"
#include "plan/plan.h"
#include "program/check.h"
#include "support/random_lora.h"

#define DICE_STREAM 0
#include "support/dice.h"

/* Scratch that depends on the operands, like a library's. */
static hr_status fake_workspace(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes,
                                hr_error *error) {
  (void)self;
  (void)error;
  *bytes = node->op == HRI_OP_LINEAR || node->op == HRI_OP_LINEAR_DW
               ? 64 + hri_tensor_bytes(&job->tensors.items[hri_operands(job, node)[1].tensor]) % 4096
               : 0;
  return HR_OK;
}

/* Packed operands of most products, larger than the plain ones, that pay for some shapes. */
static hr_status fake_packing(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, bool *pays,
                              hr_error *error) {
  const hri_tensor *b = &job->tensors.items[hri_operands(job, node)[1].tensor];
  (void)self;
  (void)error;
  *bytes = node->op == HRI_OP_LINEAR && b->stored[1] % 5 == 0 ? 0 : hri_tensor_bytes(b) + 64;
  *pays = b->stored[0] % 3 != 0;
  return HR_OK;
}

static hri_backend fake_backend(void) {
  hri_backend b = {.name = "fake",
                   .team = 2,
                   .instruction_set = "none",
                   .libraries = "none",
                   .workspace = fake_workspace,
                   .packing = fake_packing};
  return b;
}

static uint32_t roll_of(void *d, uint32_t below) { return roll(d, below); }

static void random_model(dice *d, hr_model *m) {
  hr_error e = {0};
  uint32_t heads = 1 + roll(d, 4), group = 1 + roll(d, 2);
  assert_int_equal(random_family(m, roll_of, d, &e), HR_OK);
  m->layer_count = 1 + roll(d, 7);
  m->head_size = 2 * (1 + roll(d, 6));
  m->kv_head_count = heads;
  m->head_count = heads * group;
  if (m->family == HR_FAMILY_GPT2) m->kv_head_count = m->head_count;
  m->hidden_size = random_hidden_is_heads(m) ? m->head_count * m->head_size : 2 + roll(d, 40);
  m->mlp_size = 1 + roll(d, 90);
  m->vocabulary_size = 3 + roll(d, 300);
  m->tied_embeddings = m->family == HR_FAMILY_GPT2 || roll(d, 2);
  random_variations(m, roll_of, d);
  m->eos_token = m->bos_token = m->pad_token = -1;
}

static void random_job(dice *d, hr_job *job, hri_compile_options *options) {
  hr_error e = {0};
  hr_job_init(job);
  random_model(d, &job->model);
  assert_int_equal(hr_device_find("rtx-3090", &job->device, &e), HR_OK);
  job->sequence_length = 1 + roll(d, 33);
  job->micro_batch = 1 + roll(d, 4);
  job->accumulate = roll(d, 2) ? 1 : 2 + roll(d, 3);
  job->attention = (hr_attention)(roll(d, 4) == 0);
  job->optimizer = (hr_optimizer)roll(d, HR_OPTIMIZER_COUNT);
  job->clip = roll(d, 2) ? 1.0 : 0;
  if (job->clip == 0 && job->accumulate == 1 && roll(d, 2)) job->update = HR_UPDATE_IN_BACKWARD;
  job->given = HR_GIVEN_CLIP;
  job->loss_chunk = roll(d, 2) ? HR_LOSS_CHUNK_OFF : 16 + roll(d, 20);
  job->recompute.kind = (hr_recompute_kind)roll(d, 5);
  job->recompute.every = 1 + roll(d, job->model.layer_count);
  job->recompute.level_count = 1 + roll(d, job->model.layer_count);
  for (uint32_t l = 0; l < job->recompute.level_count; l++) job->recompute.levels[l] = (uint8_t)roll(d, HR_LEVEL_COUNT);
  job->with_generation = roll(d, 3) == 0;
  job->context_length = 40;
  memset(options, 0, sizeof *options);
  options->check_each = true;
  options->no_fuse = roll(d, 4) == 0;
  options->no_inplace = roll(d, 4) == 0;
  if (roll(d, 3) == 0) {
    options->offload_bytes = 1;
    options->offload_distance = 1 + roll(d, 6);
  }
  job->precision = (hr_precision)roll(d, 4);
  if (job->update == HR_UPDATE_IN_BACKWARD && job->precision == HR_PRECISION_FP16) job->precision = HR_PRECISION_BF16;
  if (job->precision == HR_PRECISION_BF16_PURE) job->moments = (hr_moments)roll(d, 2);
  job->weight_packing = (hr_weight_packing)roll(d, 4);
  if (job->update == HR_UPDATE_AFTER) job->on_nonfinite = (hr_on_nonfinite)roll(d, 2);
  if (roll(d, 3) == 0) {
    char words[512];
    random_lora(&job->model, roll_of, d, words);
    if (hri_lora_parse(words, &job->model, false, &job->model.lora, &e) != HR_OK)
      fail_msg("seed %llu: --lora %s: %s", (unsigned long long)d->seed, words, e.message);
  }
}

/* What the drawn jobs held, so that a draw that never happens is noticed. */
typedef struct census {
  uint32_t copies, masters, narrow_gradients, wide_gradients, narrow_states, packed, carried_packed, guarded, adapters,
      dropouts, shared, shares;
} census;

static void count_job(const hri_job *job, census *seen) {
  for (size_t n = 0; n < job->nodes.count; n++) {
    const hri_node *node = &job->nodes.items[n];
    seen->dropouts += node->op == HRI_OP_DROPOUT;
    seen->shares += node->op == HRI_OP_LINEAR && hri_operands(job, node)[3].access == HRI_ADD;
    seen->copies += job->nodes.items[n].op == HRI_OP_COPY;
    seen->packed += job->nodes.items[n].op == HRI_OP_PACK;
    seen->guarded += hri_node_guard(job, &job->nodes.items[n]) != HRI_NONE;
    seen->carried_packed += job->nodes.items[n].op == HRI_OP_PACK && job->nodes.items[n].program == HRI_BEGIN;
  }
  for (size_t p = 0; p < job->params.count; p++) {
    const hri_param *param = &job->params.items[p];
    const hri_param_range *whole = &job->ranges.items[param->range_begin]; /* 8-bit states cut parameters into ranges */
    if (whole->master != HRI_NONE) seen->masters++;
    seen->adapters += job->storages.items[job->tensors.items[param->weight].storage].wide;
    seen->shared += job->storages.items[job->tensors.items[param->weight].storage].wide && param->part_count > 1;
    if (whole->gradient == HRI_NONE || job->tensors.items[param->weight].dtype != HRI_BF16) continue;
    if (job->tensors.items[whole->gradient].dtype == HRI_BF16) seen->narrow_gradients++;
    else seen->wide_gradients++;
    seen->narrow_states += whole->state[0] != HRI_NONE && job->tensors.items[whole->state[0]].dtype == HRI_BF16;
  }
}

static void one_seed(uint64_t seed, double *worst_gap, census *seen) {
  dice d = {seed, 0};
  hr_job spec;
  hri_compile_options options;
  hri_backend backend = fake_backend();
  hri_job job;
  hri_placement placement;
  hr_error error = {0};
  random_job(&d, &spec, &options);
  if (hri_compile(&spec, &backend, &options, &job, &error) != HR_OK) {
    print_error("seed %llu: %s\n", (unsigned long long)seed, error.message);
    fail();
  }
  count_job(&job, seen);
  if (hri_place_job(&job, 0, &placement, &error) != HR_OK || hri_placement_verify(&job, &placement, &error) != HR_OK) {
    print_error("seed %llu: %s\n", (unsigned long long)seed, error.message);
    fail();
  }
  for (int tier = 0; tier < HRI_TIER_COUNT; tier++) {
    assert_true(placement.peak_bytes[tier] >= placement.lower_bound_bytes[tier]);
    if (placement.lower_bound_bytes[tier]) {
      double gap = (double)placement.peak_bytes[tier] / (double)placement.lower_bound_bytes[tier] - 1;
      if (gap > *worst_gap) *worst_gap = gap;
    }
  }
  hri_placement_deinit(&placement);
  hri_job_deinit(&job);
}

static void random_jobs_obey_the_rules(void **state) {
  const char *one = getenv("HEADROOM_TEST_SEED");
  uint64_t count = getenv("HEADROOM_TEST_QUICK") ? 200 : 1200;
  double worst = 0;
  census seen = {0};
  (void)state;
  if (one) {
    one_seed(strtoull(one, NULL, 10), &worst, &seen);
    return;
  }
  for (uint64_t seed = 1; seed <= count; seed++) one_seed(seed, &worst, &seen);
  assert_true(seen.copies > 1000); /* the second and third lane were really there */
  assert_true(seen.masters > 100 && seen.narrow_gradients > 100 && seen.wide_gradients > 100 &&
              seen.narrow_states > 100);
  assert_true(seen.packed > 1000 && seen.carried_packed > 20 && seen.guarded > 1000);
  assert_true(seen.adapters > 500 && seen.shared > 20 && seen.dropouts > 100 && seen.shares > 500);
  print_message(
      "%llu seeds, worst placement gap %.2f %%, %u copies on other lanes, %u packed operands (%u carried), %u masters\n",
      (unsigned long long)count, 100 * worst, seen.copies, seen.packed, seen.carried_packed, seen.masters);
}

static hr_status no_workspace(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, hr_error *error) {
  (void)self, (void)job, (void)node, (void)error;
  *bytes = 0;
  return HR_OK;
}

/* Packing where the bytes are free takes none: the most live bytes are those of the job without. */
static void automatic_packing_is_free(void **state) {
  uint64_t count = getenv("HEADROOM_TEST_QUICK") ? 200 : 1200;
  census seen = {0};
  (void)state;
  for (uint64_t seed = 1; seed <= count; seed++) {
    uint64_t bound[2];
    dice d = {seed, 0};
    hr_job spec;
    hri_compile_options options;
    hri_backend backend = fake_backend();
    if (seed % 2) backend.workspace = no_workspace;
    random_job(&d, &spec, &options);
    options.offload_bytes = 0; /* on one lane, where the order of the nodes decides what is live */
    for (int packed = 0; packed < 2; packed++) {
      hri_job job;
      hri_placement placement;
      hr_error error = {0};
      spec.weight_packing = packed ? HR_WEIGHT_PACKING_AUTO : HR_WEIGHT_PACKING_OFF;
      if (hri_compile(&spec, &backend, &options, &job, &error) != HR_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
      assert_int_equal(hri_placement_bound(&job, 0, &placement, &error), HR_OK);
      bound[packed] = placement.lower_bound_bytes[HRI_DEVICE];
      hri_placement_deinit(&placement);
      count_job(&job, &seen);
      hri_job_deinit(&job);
    }
    if (bound[1] > bound[0])
      fail_msg("seed %llu: %llu live bytes packed, %llu plain", (unsigned long long)seed, (unsigned long long)bound[1],
               (unsigned long long)bound[0]);
  }
  assert_true(seen.packed > 1000);
}

static bool writes_some_of(const hri_job *job, hri_id at, hri_id tensor) {
  const hri_node *node = &job->nodes.items[at];
  for (uint32_t i = 0; i < node->operand_count; i++) {
    const hri_operand *o = &hri_operands(job, node)[i];
    if (o->tensor == HRI_NONE || o->access == HRI_READ) continue;
    for (uint32_t k = 0; k < hri_piece_count(job, o->tensor); k++)
      for (uint32_t r = 0; r < hri_piece_count(job, tensor); r++)
        if (job->tensors.items[hri_piece(job, o->tensor, k)].value ==
            job->tensors.items[hri_piece(job, tensor, r)].value)
          return true;
  }
  return false;
}

/* Whether a node before `at` writes what the one there reads. */
static bool written_in(const hri_job *job, const hri_program *p, size_t at) {
  const hri_id read = hri_operands(job, &job->nodes.items[p->order.items[at]])[0].tensor;
  while (at-- > 0)
    if (writes_some_of(job, p->order.items[at], read)) return true;
  return false;
}

/* A gradient's sum of squares is taken right behind the last write of it, while it is in a cache: between the two there
 * are only others of the same write, where one node writes several. */
static void sums_of_squares_stand_behind_gradients(void **state) {
  uint32_t sums = 0;
  (void)state;
  for (uint64_t seed = 1; seed <= 100; seed++) {
    dice d = {.seed = seed};
    hr_job spec;
    hri_compile_options options;
    hri_backend backend = fake_backend();
    hri_job job;
    hr_error error = {0};
    random_job(&d, &spec, &options);
    if (hri_compile(&spec, &backend, &options, &job, &error) != HR_OK)
      fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
    for (uint32_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
      const hri_program *p = &job.programs[kind];
      uint64_t writes = 0;
      for (size_t at = 0; at < p->order.count; at++) {
        const hri_node *node = &job.nodes.items[p->order.items[at]];
        if (node->op != HRI_OP_SQUARE_NORM) {
          writes = at;
          continue;
        }
        if (!written_in(&job, p, at)) continue; /* the update is a program of its own */
        sums++;
        if (!writes_some_of(&job, p->order.items[writes], hri_operands(&job, node)[0].tensor))
          fail_msg("seed %llu, program %u: node %zu does not stand behind what it reads", (unsigned long long)seed,
                   kind, at);
      }
    }
    hri_job_deinit(&job);
  }
  assert_true(sums > 500);
}

/* ---- the checker can fail: one broken job per rule ---- */

static void compile_small_on(hri_job *job, bool offload, hr_on_nonfinite on_nonfinite) {
  dice d = {7, 0};
  hr_job spec;
  hri_compile_options options = {.check_each = true};
  hri_backend backend = fake_backend();
  hr_error error = {0};
  (void)d;
  hr_job_init(&spec);
  assert_int_equal(hr_model_open("micro-llama-bytes", &spec.model, &error), HR_OK);
  assert_int_equal(hr_device_find("rtx-3090", &spec.device, &error), HR_OK);
  spec.sequence_length = 16;
  spec.micro_batch = 2;
  spec.recompute.kind = HR_RECOMPUTE_BLOCK;
  spec.on_nonfinite = on_nonfinite;
  if (offload) {
    options.offload_bytes = 1;
    options.offload_distance = 3;
    spec.recompute.kind = HR_RECOMPUTE_NONE;
  }
  if (hri_compile(&spec, &backend, &options, job, &error) != HR_OK) {
    print_error("%s\n", error.message);
    fail();
  }
}

static void compile_small(hri_job *job, bool offload) { compile_small_on(job, offload, HR_ON_NONFINITE_STOP); }

static hri_id find_node(const hri_job *job, uint8_t program, uint16_t op, uint32_t nth, size_t *at) {
  const hri_program *p = &job->programs[program];
  for (size_t k = 0; k < p->order.count; k++)
    if (job->nodes.items[p->order.items[k]].op == op && nth-- == 0) {
      if (at) *at = k;
      return p->order.items[k];
    }
  fail();
  return HRI_NONE;
}

static void expect_rule(const hri_job *job, const char *rule) {
  hr_error error = {0};
  assert_int_equal(hri_job_check(job, &error), HR_ERROR_INTERNAL);
  if (!strstr(error.message, rule)) {
    print_error("expected %s, got: %s\n", rule, error.message);
    fail();
  }
}

static void rule_1_write_before_read(void **state) {
  hri_job job;
  size_t at;
  hri_id *order;
  hri_id id;
  (void)state;
  compile_small(&job, false);
  find_node(&job, HRI_STEP, HRI_OP_LINEAR, 2, &at); /* swap a node with its successor, which reads it */
  order = job.programs[HRI_STEP].order.items;
  id = order[at];
  order[at] = order[at + 1];
  order[at + 1] = id;
  expect_rule(&job, "rule 1");
  hri_job_deinit(&job);
}

static void rule_1_written_twice(void **state) {
  hri_job job;
  size_t at;
  (void)state;
  compile_small(&job, false);
  find_node(&job, HRI_STEP, HRI_OP_EMBED, 0, &at);
  assert_true(hri_array_push(&job.programs[HRI_STEP].order, 0u)); /* room */
  memmove(job.programs[HRI_STEP].order.items + at + 1, job.programs[HRI_STEP].order.items + at,
          (job.programs[HRI_STEP].order.count - 1 - at) * sizeof(hri_id));
  expect_rule(&job, "rule 1");
  hri_job_deinit(&job);
}

static void rule_1_overwritten(void **state) { /* merging two storages that are both alive */
  hri_job job;
  hri_merge merge;
  hr_error error = {0};
  hri_id norm, embed;
  (void)state;
  compile_small(&job, false);
  embed = find_node(&job, HRI_STEP, HRI_OP_EMBED, 0, NULL);
  norm = find_node(&job, HRI_STEP, HRI_OP_NORM, 0, NULL);
  assert_int_equal(hri_merge_init(&merge, &job, &error), HR_OK);
  hri_merge_set(&merge, job.tensors.items[hri_operands(&job, &job.nodes.items[norm])[5].tensor].storage,
                job.tensors.items[hri_operands(&job, &job.nodes.items[embed])[4].tensor].storage, 0);
  hri_merge_apply(&merge, &job);
  hri_merge_deinit(&merge);
  expect_rule(&job, "rule 1");
  hri_job_deinit(&job);
}

static void rule_1_role(void **state) {
  hri_job job;
  hri_id node;
  (void)state;
  compile_small(&job, false);
  node = find_node(&job, HRI_STEP, HRI_OP_LINEAR, 1, NULL);
  hri_operands(&job, &job.nodes.items[node])[3].access = HRI_ADD; /* an activation is not accumulated into */
  expect_rule(&job, "rule 1");
  hri_job_deinit(&job);
}

static void rule_3_missing_wait(void **state) {
  hri_job job;
  hri_id node;
  (void)state;
  compile_small(&job, true);
  node = find_node(&job, HRI_STEP, HRI_OP_COPY, 0, NULL);
  job.nodes.items[node].wait_count = 0;
  expect_rule(&job, "rule 3");
  hri_job_deinit(&job);
}

static void rule_6_site(void **state) {
  hri_job job;
  hri_id id = HRI_NONE;
  (void)state;
  compile_small(&job, false);
  for (size_t k = 0; k < job.programs[HRI_STEP].order.count; k++)
    if (job.nodes.items[job.programs[HRI_STEP].order.items[k]].origin != HRI_NONE)
      id = job.programs[HRI_STEP].order.items[k];
  assert_int_not_equal(id, HRI_NONE);
  job.nodes.items[id].site++;
  expect_rule(&job, "rule 6");
  hri_job_deinit(&job);
}

static void rule_7_shape(void **state) {
  hri_job job;
  hri_id node;
  (void)state;
  compile_small(&job, false);
  node = find_node(&job, HRI_STEP, HRI_OP_LINEAR, 0, NULL);
  job.tensors.items[hri_operands(&job, &job.nodes.items[node])[3].tensor].offset += 4;
  expect_rule(&job, "rule 7");
  hri_job_deinit(&job);
}

static void rule_7_packed(void **state) {
  static const hri_compile_options options = {.check_each = false};
  hri_backend backend = fake_backend();
  hr_error error = {0};
  hr_job spec;
  hri_job job;
  hri_id pack;
  (void)state;
  hr_job_init(&spec);
  assert_int_equal(hr_model_open("micro-llama-bytes", &spec.model, &error), HR_OK);
  assert_int_equal(hr_device_find("rtx-3090", &spec.device, &error), HR_OK);
  spec.sequence_length = 8;
  spec.weight_packing = HR_WEIGHT_PACKING_TRANSIENT;
  assert_int_equal(hri_compile(&spec, &backend, &options, &job, &error), HR_OK);
  pack = find_node(&job, HRI_STEP, HRI_OP_PACK, 0, NULL);
  job.nodes.items[pack].attr.i[1]++; /* for other rows */
  expect_rule(&job, "rule 7");
  job.nodes.items[pack].attr.i[1]--;
  job.nodes.items[pack].attr.i[0] ^= 1; /* for another kind of product */
  expect_rule(&job, "rule 7");
  job.nodes.items[pack].attr.i[0] ^= 1;
  assert_int_equal(hri_job_check(&job, &error), HR_OK);
  job.tensors.items[hri_operands(&job, &job.nodes.items[find_node(&job, HRI_STEP, HRI_OP_NORM, 0, NULL)])[0].tensor]
      .layout = HRI_PACKED; /* read by another op */
  expect_rule(&job, "rule 7");
  hri_job_deinit(&job);
}

/* ---- guards ---- */

/* A node that may be skipped reads and updates: what it leaves out is only a change. A skipped WRITE would leave its
 * readers with the bytes of whatever lay there before. */
static void guards_stand_at_ops_that_only_change_things(void **state) {
  uint32_t guarded = 0;
  (void)state;
  for (uint16_t op = 0; op < HRI_OP_COUNT; op++) {
    const char *letters = hri_rule_get(op)->operands;
    if (hri_guard_position(op) == HRI_NONE) continue;
    assert_int_equal(letters[hri_guard_position(op) + 1], 0);
    assert_int_equal(strspn(letters, "RrUu"), hri_guard_position(op));
    guarded++;
  }
  assert_int_equal(guarded, 1 + HR_OPTIMIZER_COUNT); /* advance, and each update */
}

/* All guards of the step read `flag` from now on. */
static void guard_by(hri_job *job, hri_id flag) {
  for (size_t at = 0; at < job->programs[HRI_STEP].order.count; at++) {
    hri_node *node = &job->nodes.items[job->programs[HRI_STEP].order.items[at]];
    if (hri_guard_position(node->op) != HRI_NONE) hri_operands(job, node)[hri_guard_position(node->op)].tensor = flag;
  }
}

static hri_id local_tensor(hri_job *job, hri_dtype dtype, uint64_t elements) {
  hri_place place = {.program = HRI_STEP,
                     .tier = HRI_DEVICE,
                     .role = HRI_ROLE_WORKSPACE,
                     .layer = -1,
                     .unit = HRI_NONE};
  return hri_tensor_new(job, place, hri_name(job, "flag"), dtype, 1, &elements, NULL);
}

static hri_emit step_emit(uint8_t lane) {
  return (hri_emit){.program = HRI_STEP,
                    .lane = lane,
                    .phase = HRI_PHASE_OPTIMIZER,
                    .layer = -1,
                    .unit = HRI_NONE,
                    .origin = HRI_NONE};
}

static void rule_7_guard(void **state) {
  static const struct {
    hri_dtype dtype;
    uint64_t elements;
    const char *rule;
  } flags[] = {{HRI_F32, 1, "rule 7: a guard"},
               {HRI_F64, 2, "rule 7: a guard"},
               {HRI_F64, 1, "rule 1: reads what its producer did not write"}};
  hri_job job;
  (void)state;
  compile_small(&job, false); /* at an op whose rule has none */
  hri_node_add_operand(&job, find_node(&job, HRI_STEP, HRI_OP_CLIP, 0, NULL), HRI_CONTROL_DOUBLE(&job, found_inf),
                       HRI_READ);
  expect_rule(&job, "rule 7");
  hri_job_deinit(&job);
  for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) { /* no double, two of them, and one that nobody made */
    hri_job_init(&job);
    hri_build_control(&job, HRI_IN(HRI_STEP));
    hri_node_append(&job, HRI_OP_ADVANCE, step_emit(HRI_COMPUTE), NULL,
                    (hri_operand[]){HRI_U(job.control), HRI_R(local_tensor(&job, flags[k].dtype, flags[k].elements))},
                    2);
    expect_rule(&job, flags[k].rule);
    hri_job_deinit(&job);
  }
  hri_job_init(&job); /* an op with a guard has the place for it, also without one */
  hri_build_control(&job, HRI_IN(HRI_STEP));
  hri_node_append(&job, HRI_OP_ADVANCE, step_emit(HRI_COMPUTE), NULL, (hri_operand[]){HRI_U(job.control)}, 1);
  expect_rule(&job, "rule 7: advance at 0 has 1 operands instead of 2");
  hri_job_deinit(&job);
}

/* Before guards were operands, a flag in a storage of its own had no life: it could lie on a live gradient, and neither
 * the check nor the proof of the placement saw it. */
static void a_guard_has_a_life(void **state) {
  hri_job job;
  hri_placement placement;
  hr_error error = {0};
  size_t made, first, last;
  hri_id flag, node, gradient;
  struct hri_text text = {0};
  (void)state;
  compile_small_on(&job, false, HR_ON_NONFINITE_SKIP);
  flag = local_tensor(&job, HRI_F64, 1);
  node = find_node(&job, HRI_STEP, HRI_OP_FOUND_INF, 0, &made);
  (void)find_node(&job, HRI_STEP, HRI_OP_ADVANCE, 0, &first);
  last = job.programs[HRI_STEP].order.count - 1;
  assert_true(made < first && first < last);
  guard_by(&job, flag);
  expect_rule(&job, "rule 1: reads what its producer did not write"); /* nobody made the flag */
  hri_operands(&job, &job.nodes.items[node])[2].tensor = flag;
  assert_int_equal(hri_job_check(&job, &error), HR_OK);
  assert_int_equal(hri_place_job(&job, 0, &placement, &error), HR_OK);
  assert_int_equal(hri_placement_verify(&job, &placement, &error), HR_OK);
  node = job.programs[HRI_STEP].order.items[last];
  assert_true(hri_node_guard(&job, &job.nodes.items[node]) == flag);
  gradient = job.tensors.items[hri_operands(&job, &job.nodes.items[node])[0].tensor].storage;
  flag = job.tensors.items[flag].storage;
  assert_int_equal(placement.lives[flag].begin,
                   placement.spans[HRI_STEP].begin + 2 * made); /* all on the compute lane */
  assert_int_equal(placement.lives[flag].end, placement.spans[HRI_STEP].begin + 2 * last);
  placement.offsets[flag] = placement.offsets[gradient];
  assert_int_equal(hri_placement_verify(&job, &placement, &error), HR_ERROR_INTERNAL);
  assert_non_null(strstr(error.message, "share bytes"));
  assert_int_equal(hri_job_print(&job, false, NULL, &text, &error), HR_OK);
  assert_non_null(strstr(text.chars, " guard:flag@s"));
  hri_text_deinit(&text);
  hri_placement_deinit(&placement);
  hri_job_deinit(&job);
}

/* Dumps name the guard where there is one, and are those of before where there is none. */
static void dumps_show_guards(void **state) {
  (void)state;
  for (int skip = 0; skip < 2; skip++)
    for (int json = 0; json < 2; json++) {
      struct hri_text text = {0};
      hr_error error = {0};
      hri_job job;
      compile_small_on(&job, false, (hr_on_nonfinite)skip);
      assert_int_equal(hri_job_print(&job, json, NULL, &text, &error), HR_OK);
      assert_int_equal(strstr(text.chars, json ? "\"guard\"" : " guard:control.found_inf@s") != NULL, skip);
      assert_int_equal(strstr(text.chars, "found_inf") != NULL, skip);
      hri_text_deinit(&text);
      hri_job_deinit(&job);
    }
}

/* A guard on another lane than the node that makes its flag is a hazard like any other. */
static void rule_3_guard(void **state) {
  hri_job job;
  hr_error error = {0};
  hri_id found, clip, advance;
  (void)state;
  compile_small_on(&job, false, HR_ON_NONFINITE_SKIP);
  found = find_node(&job, HRI_STEP, HRI_OP_FOUND_INF, 0, NULL);
  clip = find_node(&job, HRI_STEP, HRI_OP_CLIP, 0, NULL);
  advance = find_node(&job, HRI_STEP, HRI_OP_ADVANCE, 0, NULL);
  job.nodes.items[found].lane = HRI_HOST_LANE;
  hri_node_add_wait(&job, found, clip);
  expect_rule(&job, "rule 3");
  hri_node_add_wait(&job, advance, found);
  assert_int_equal(hri_job_check(&job, &error), HR_OK);
  hri_job_deinit(&job);
}

/* Two nodes on two lanes that touch different fields of the control block are free of each other; who touches the whole
 * block is not. */
static void fields_of_the_control_block_are_apart(void **state) {
  hri_job job;
  hr_error error = {0};
  hri_id host, compute, advance;
  (void)state;
  hri_job_init(&job);
  hri_build_control(&job, HRI_IN(HRI_STEP));
  host = hri_node_append(&job, HRI_OP_FOUND_INF, step_emit(HRI_HOST_LANE), NULL,
                         (hri_operand[]){HRI_R(HRI_CONTROL_DOUBLE(&job, loss_sum)),
                                         HRI_R(HRI_CONTROL_DOUBLE(&job, grad_norm)),
                                         HRI_W(HRI_CONTROL_DOUBLE(&job, found_inf))},
                         3);
  compute = hri_node_append(&job, HRI_OP_FOUND_INF, step_emit(HRI_COMPUTE), NULL,
                            (hri_operand[]){HRI_R(HRI_CONTROL_DOUBLE(&job, loss_sum)),
                                            HRI_R(HRI_CONTROL_DOUBLE(&job, inv_tokens)),
                                            HRI_W(HRI_CONTROL_DOUBLE(&job, clip_scale))},
                            3);
  assert_int_equal(hri_job_check(&job, &error), HR_OK); /* both read loss_sum, each writes 8 bytes of its own */
  hri_operands(&job, &job.nodes.items[compute])[1].tensor = HRI_CONTROL_DOUBLE(&job, found_inf);
  expect_rule(&job, "rule 3");
  hri_operands(&job, &job.nodes.items[compute])[1].tensor = HRI_CONTROL_DOUBLE(&job, inv_tokens);
  advance = hri_node_append(&job, HRI_OP_ADVANCE, step_emit(HRI_COMPUTE), NULL,
                            (hri_operand[]){HRI_U(job.control), HRI_ABSENT}, 2);
  expect_rule(&job, "rule 3");
  hri_node_add_wait(&job, advance, host);
  assert_int_equal(hri_job_check(&job, &error), HR_OK);
  hri_job_deinit(&job);
}

static void placement_proof_can_fail(void **state) {
  hri_job job;
  hri_placement placement;
  hr_error error = {0};
  (void)state;
  compile_small(&job, true);
  assert_int_equal(hri_place_job(&job, 0, &placement, &error), HR_OK);
  assert_int_equal(hri_placement_verify(&job, &placement, &error), HR_OK);
  for (size_t s = 0; s < job.storages.count; s++) { /* beyond the arena, and between two places */
    const uint8_t tier = job.storages.items[s].tier;
    const uint64_t kept = placement.offsets[s], beyond = hri_round_up(placement.peak_bytes[tier], HRI_STORAGE_ALIGN);
    if (job.storages.items[s].dead || placement.lives[s].begin > placement.lives[s].end) continue;
    placement.offsets[s] = beyond;
    assert_int_equal(hri_placement_verify(&job, &placement, &error), HR_ERROR_INTERNAL);
    assert_non_null(strstr(error.message, "is misplaced"));
    placement.offsets[s] = beyond + 1;
    placement.peak_bytes[tier] += 1 << 30;
    assert_int_equal(hri_placement_verify(&job, &placement, &error), HR_ERROR_INTERNAL);
    placement.offsets[s] = kept;
    placement.peak_bytes[tier] -= 1 << 30;
  }
  assert_int_equal(hri_placement_verify(&job, &placement, &error), HR_OK);
  for (size_t s = 0; s < job.storages.count; s++) placement.offsets[s] = 0; /* everything on top of each other */
  assert_int_equal(hri_placement_verify(&job, &placement, &error), HR_ERROR_INTERNAL);
  assert_non_null(strstr(error.message, "share bytes while both may be alive"));
  hri_placement_deinit(&placement);
  hri_job_deinit(&job);
}

/* Every allocation of a compile may fail: a clean MEMORY error, nothing leaked. */
static void allocation_failures_are_clean(void **state) {
  hr_job spec;
  hri_compile_options options = {.offload_bytes = 1, .offload_distance = 2};
  hri_backend backend = fake_backend();
  hr_error error = {0};
  uint64_t before = hri_mem_live_bytes(), n = 1;
  (void)state;
  hr_job_init(&spec);
  assert_int_equal(hr_model_open("micro-llama-bytes", &spec.model, &error), HR_OK);
  assert_int_equal(hr_device_find("rtx-3090", &spec.device, &error), HR_OK);
  spec.sequence_length = 8;
  spec.recompute.kind = HR_RECOMPUTE_EVERY;
  spec.recompute.every = 2;
  spec.precision = HR_PRECISION_BF16;
  spec.weight_packing = HR_WEIGHT_PACKING_TRANSIENT;
  spec.on_nonfinite = HR_ON_NONFINITE_SKIP;
  for (;; n++) {
    hri_job job;
    hri_placement placement = {0};
    hr_status status;
    hri_mem_fail_after(n);
    status = hri_compile(&spec, &backend, &options, &job, &error);
    if (status == HR_OK) status = hri_place_job(&job, 0, &placement, &error);
    hri_mem_fail_after(0);
    hri_placement_deinit(&placement);
    hri_job_deinit(&job);
    assert_int_equal(hri_mem_live_bytes(), before);
    if (status == HR_OK) break;
    assert_int_equal(status, HR_ERROR_MEMORY);
    assert_true(n < 10000);
  }
  print_message("%llu allocations failed in turn\n", (unsigned long long)(n - 1));
}

static double gap_of(const hr_plan *plan) {
  const hr_tier_plan *device = &hr_plan_get(plan)->tiers[HR_TIER_DEVICE];
  return (double)device->peak_bytes / (double)device->lower_bound_bytes - 1;
}

/* Every preset x strategy, with the scratch of a real backend: the placement is at most 1.5 % above the live-bytes
 * bound. */
static void placement_gap_of_presets(void **state) {
  static const char *const recompute[] = {"none",  "levels:cheap", "levels:mlp", "levels:attention",
                                          "block", "every:2",      "sqrt"};
  static const char *const devices[] = {"h100", "cpu"};
  double worst = 0;
  uint32_t plans = 0;
  char where[256] = "";
  (void)state;
  for (uint32_t preset = 0; preset < hr_model_preset_count(); preset++)
    for (size_t r = 0; r < sizeof recompute / sizeof *recompute; r++)
      for (int kind = 0; kind < 3; kind++) { /* one micro-step, accumulation, update in the backward */
        hr_error error = {0};
        hr_plan *plan = NULL;
        hr_job job;
        double gap;
        hr_job_init(&job);
        assert_int_equal(hr_model_open(hr_model_preset_name(preset), &job.model, &error), HR_OK);
        if (getenv("HEADROOM_TEST_QUICK") && job.model.layer_count > 12) continue;
        assert_int_equal(hr_device_find(devices[(preset + r) % 2], &job.device, &error), HR_OK);
        assert_int_equal(hr_recompute_parse(recompute[r], &job.recompute, &error), HR_OK);
        job.micro_batch = 2;
        job.sequence_length = 256;
        job.accumulate = kind == 1 ? 2 : 1;
        job.clip = kind == 2 ? 0 : 1;
        job.given = HR_GIVEN_CLIP;
        job.update = kind == 2 ? HR_UPDATE_IN_BACKWARD : HR_UPDATE_AFTER;
        if (hr_job_finish(&job, &error) != HR_OK || hr_plan_create(&job, &plan, &error) != HR_OK)
          fail_msg("%s", error.message);
        gap = gap_of(plan);
        plans++;
        if (gap > worst) {
          worst = gap;
          (void)snprintf(where, sizeof where, "%s on %s, recompute %s, kind %d", job.model.name, job.device.name,
                         recompute[r], kind);
        }
        hr_plan_destroy(plan);
      }
  print_message("%u plans, worst placement gap %.2f %% (%s)\n", plans, 100 * worst, where);
  assert_true(worst <= 0.015);
}

/* Deep models have thousands of storages, so that the allowance ends after some rounds of all that are large. */
static void deep_models_are_placed_close(void **state) {
  static const struct {
    const char *device;
    hr_precision precision;
    hr_optimizer optimizer;
    uint32_t sequence, rows, chunk;
  } jobs[] = {{"rtx-4090", HR_PRECISION_BF16, HR_OPTIMIZER_SGD, 1024, 2, 300},
              {"h200", HR_PRECISION_FP16, HR_OPTIMIZER_ADAMW, 128, 16, 64},
              {"h200", HR_PRECISION_BF16, HR_OPTIMIZER_ADAMW8BIT, 128, 16, 1024}};
  (void)state;
  for (size_t k = 0; k < sizeof jobs / sizeof *jobs; k++) {
    hr_error error = {0};
    hr_plan *plan = NULL;
    hr_job job;
    hr_job_init(&job);
    assert_int_equal(hr_model_open("gpt2-xl", &job.model, &error), HR_OK);
    assert_int_equal(hr_device_find(jobs[k].device, &job.device, &error), HR_OK);
    job.precision = jobs[k].precision;
    job.optimizer = jobs[k].optimizer;
    job.sequence_length = jobs[k].sequence;
    job.micro_batch = jobs[k].rows;
    job.loss_chunk = jobs[k].chunk;
    if (hr_job_finish(&job, &error) != HR_OK || hr_plan_create(&job, &plan, &error) != HR_OK)
      fail_msg("%s", error.message);
    print_message("job %zu: placement gap %.3f %%\n", k, 100 * gap_of(plan));
    assert_true(gap_of(plan) <= 0.005);
    hr_plan_destroy(plan);
  }
}

/* ---- windows ---- */

/* FLOPs of attention count the pairs that are seen, and of a cache what the window leaves of it. */
static void windowed_attention_counts_what_is_seen(void **state) {
  hri_job job;
  (void)state;
  hri_job_init(&job);
  for (int64_t t = 1; t < 12; t++)
    for (int64_t window = 0; window < 14; window++) {
      hri_node node = {.op = HRI_OP_ATTENTION, .attr = {.i = {2, t, 3, 1, 5, window}}};
      uint64_t pairs = 0;
      for (int64_t q = 0; q < t; q++)
        for (int64_t k = 0; k <= q; k++) pairs += window == 0 || q - k < window;
      assert_true(hri_node_flops(&job, &node) == 4.0 * 2 * 3 * 5 * (double)pairs);
      node.op = HRI_OP_ATTENTION_BACKWARD;
      assert_true(hri_node_flops(&job, &node) == 2.5 * 4 * 2 * 3 * 5 * (double)pairs);
      node = (hri_node){.op = HRI_OP_ATTENTION_CACHED, .attr = {.i = {1, 1, 3, 1, 5, window, t}}};
      assert_true(hri_node_flops(&job, &node) == 4.0 * 3 * 5 * (double)(window > 0 && window < t ? window : t));
    }
  hri_job_deinit(&job);
}

/* gemma-like layers slide in turn, with the tables that belong to them; nobody else has a window. */
static void layers_have_their_windows_and_tables(void **state) {
  hr_job spec;
  hri_job job;
  hri_forward forwards[HRI_PROGRAM_COUNT];
  hr_error e = {0};
  uint32_t sliding = 0, full = 0;
  hri_id tables[2] = {HRI_NONE, HRI_NONE};
  (void)state;
  hr_job_init(&spec);
  assert_int_equal(hr_model_open("custom:layers=8,hidden=16,heads=2,family=gemma3_text", &spec.model, &e), HR_OK);
  assert_int_equal(hr_device_find("rtx-3090", &spec.device, &e), HR_OK);
  spec.model.sliding_window = 3;
  spec.sequence_length = 8;
  assert_int_equal(hr_job_finish(&spec, &e), HR_OK);
  hri_job_init(&job);
  assert_int_equal(hri_build(&job, &spec, forwards, &e), HR_OK);
  assert_int_equal(job.ropes.count, 2);
  assert_true(job.ropes.items[0].inverse[1] < job.ropes.items[1].inverse[1]); /* theta 1e6 and 1e4 */
  for (size_t n = 0; n < job.nodes.count; n++) {
    const hri_node *node = &job.nodes.items[n];
    bool slides = node->layer >= 0 && spec.model.sliding[node->layer];
    if (node->op == HRI_OP_ROPE) {
      hri_id table = hri_operands(&job, node)[2].tensor;
      if (tables[slides] == HRI_NONE) tables[slides] = table;
      assert_int_equal(tables[slides], table);
    }
    if (node->op != HRI_OP_ATTENTION) continue;
    assert_int_equal(node->attr.i[5], slides ? 3 : 0);
    assert_int_equal(slides, node->layer != 5);
    sliding += slides;
    full += !slides;
  }
  assert_true(sliding > 0 && full > 0 && tables[0] != tables[1]);
  hri_job_deinit(&job);
}

/* ---- dropout ---- */

/* Each place has its own probability, in forward and backward; where it is 0 there is no node. */
static void dropout_has_its_places(void **state) {
  static const struct {
    const char *family;
    double attention_output, mlp, embedding; /* of what the model asks for */
  } cases[] = {{"gpt2", 1, 1, 1}, {"phi3", 1, 1, 0}, {"phi", 1, 1, 1}, {"stablelm", 0, 1, 0}, {"llama", 0, 0, 0}};
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (uint32_t set = 0; set < 8; set++) {
      const hr_dropout asked = {set & 1 ? 0.125 : 0, set & 2 ? 0.25 : 0, set & 4 ? 0.5 : 0};
      const double want[3] = {0.25 * 2 * !!(set & 2) * (cases[c].attention_output + cases[c].mlp), /* 2 layers */
                              0.5 * !!(set & 4) * cases[c].embedding, 0.125 * 2 * (set & 1)};
      double found[2][3] = {{0}};
      char source[80];
      hr_job spec;
      hr_plan *plan = NULL;
      hr_error e = {0};
      hr_job_init(&spec);
      (void)snprintf(source, sizeof source, "custom:layers=2,hidden=16,heads=2,mlp=24,vocab=40,family=%s",
                     cases[c].family);
      assert_int_equal(hr_model_open(source, &spec.model, &e), HR_OK);
      assert_int_equal(hr_device_find("rtx-3090", &spec.device, &e), HR_OK);
      spec.model.dropout = asked;
      spec.dropout = HR_DROPOUT_CONFIG;
      spec.sequence_length = 8;
      if (hr_job_finish(&spec, &e) != HR_OK || hri_plan_create(&spec, NULL, &plan, &e) != HR_OK)
        fail_msg("%s: %s", cases[c].family, e.message);
      for (size_t n = 0; n < plan->job.nodes.count; n++) {
        const hri_node *node = &plan->job.nodes.items[n];
        const bool backward = node->phase == HRI_PHASE_BACKWARD, attention = hri_rule_get(node->op)->attention;
        if (node->op == HRI_OP_DROPOUT) found[backward][node->layer < 0] += node->attr.f[0];
        if (attention && node->program == HRI_STEP) found[backward][2] += node->attr.f[2];
      }
      for (int backward = 0; backward < 2; backward++)
        for (int k = 0; k < 3; k++)
          if (found[backward][k] != want[k])
            fail_msg("%s, set %u, backward %d, place %d: %g, not %g", cases[c].family, set, backward, k,
                     found[backward][k], want[k]);
      hr_plan_destroy(plan);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rule_1_write_before_read),
      cmocka_unit_test(rule_1_written_twice),
      cmocka_unit_test(rule_1_overwritten),
      cmocka_unit_test(rule_1_role),
      cmocka_unit_test(rule_3_missing_wait),
      cmocka_unit_test(rule_6_site),
      cmocka_unit_test(rule_7_shape),
      cmocka_unit_test(rule_7_packed),
      cmocka_unit_test(placement_proof_can_fail),
      cmocka_unit_test(guards_stand_at_ops_that_only_change_things),
      cmocka_unit_test(rule_7_guard),
      cmocka_unit_test(a_guard_has_a_life),
      cmocka_unit_test(dumps_show_guards),
      cmocka_unit_test(rule_3_guard),
      cmocka_unit_test(fields_of_the_control_block_are_apart),
      cmocka_unit_test(allocation_failures_are_clean),
      cmocka_unit_test(random_jobs_obey_the_rules),
      cmocka_unit_test(automatic_packing_is_free),
      cmocka_unit_test(sums_of_squares_stand_behind_gradients),
      cmocka_unit_test(placement_gap_of_presets),
      cmocka_unit_test(deep_models_are_placed_close),
      cmocka_unit_test(windowed_attention_counts_what_is_seen),
      cmocka_unit_test(layers_have_their_windows_and_tables),
      cmocka_unit_test(dropout_has_its_places),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
