/* What optimizers keep, and how parameters lie: the table of states, segments, parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "program/ops.h"

/* ---- the table of states ---- */

static void every_optimizer_has_a_row_that_fits_its_op(void **state) {
  (void)state;
  for (uint32_t kind = 0; kind < HR_OPTIMIZER_COUNT; kind++) {
    const hri_optimizer *row = hri_optimizer_get(kind);
    const char *letters = hri_rule_get(row->op)->operands;
    bool narrow = false;
    assert_string_equal(hri_op_name(row->op), hr_optimizer_name((hr_optimizer)kind));
    assert_int_equal(hri_optimizer_of(row->op), kind);
    assert_int_equal(strlen(letters), 5 + row->tensor_count);
    assert_int_equal(strncmp(letters, "RRU", 3), 0);
    assert_string_equal(letters + 3 + row->tensor_count, "ug");
    assert_true(row->tensor_count <= HRI_STATE_TENSORS);
    for (uint32_t k = 0; k < row->tensor_count; k++) {
      assert_int_equal(letters[3 + k], 'U');
      assert_non_null(row->tensors[k].name);
      assert_int_equal(HRI_SEGMENT_ALIGN_ELEMENTS % row->tensors[k].per, 0); /* parts begin with a whole entry */
      assert_true(!row->tensors[k].narrow || row->tensors[k].dtype == HRI_F32);
      for (uint32_t j = 0; j < k; j++) assert_string_not_equal(row->tensors[j].name, row->tensors[k].name);
      narrow = narrow || row->tensors[k].narrow;
    }
    assert_int_equal(hri_state_bytes(kind, 1000, true) < hri_state_bytes(kind, 1000, false), narrow);
  }
  assert_int_equal(hri_optimizer_of(HRI_OP_LINEAR), HRI_NONE);
  assert_int_equal(hri_state_bytes(HR_OPTIMIZER_ADAMW, 1000, false), 8000);
  assert_int_equal(hri_state_bytes(HR_OPTIMIZER_ADAMW, 1000, true), 4000);
  assert_int_equal(hri_state_bytes(HR_OPTIMIZER_MOMENTUM, 3, false), 12);
  assert_int_equal(hri_state_bytes(HR_OPTIMIZER_SGD, 1000, false), 0);
}

/* The arithmetic of states with scales: codes of one byte, and an fp32 scale for each begun block of 256. */
static void entries_are_shared_by_blocks(void **state) {
  static const hri_state_tensor codes = {"codes", HRI_U8, false, 1}, scales = {"absmax", HRI_F32, false, 256};
  static const uint64_t elements[] = {0, 1, 255, 256, 257, 1u << 20, UINT64_MAX}, blocks[] = {0, 1, 1, 1, 2, 4096, (uint64_t)1 << 56};
  (void)state;
  for (size_t k = 0; k < sizeof elements / sizeof *elements; k++) {
    assert_int_equal(hri_state_entries(&codes, elements[k]), elements[k]);
    assert_int_equal(hri_state_entries(&scales, elements[k]), blocks[k]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_optimizer_has_a_row_that_fits_its_op),
      cmocka_unit_test(entries_are_shared_by_blocks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
