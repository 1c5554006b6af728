/* By how much what is assumed of a class is off, from what training saw of it (cost.h).
 *
 * Seen are seconds by entry of the tables, and the seconds that were assumed of the very same nodes. Their ratio is what
 * carries over: what is assumed follows the sizes and shapes of nodes (assumed.c), so that a run of short rows says
 * something of long ones, an adapter's product something of a weight's. A rate would not.
 *
 * Of an entry that was seen its ratio holds, between two of a row it is interpolated over the logarithm of the size. Of all
 * others a mean of what was seen holds, in which an entry counts by the time that it took and the less, the further it is:
 * FALL for each step of size or side, for another kind, for the other type. Arithmetic and memory traffic say nothing of
 * each other as long as there is one's own. */
#include <assert.h>
#include <math.h>
#include <stddef.h>

#include "plan/cost.h"

static const double FALL = 0.25;
/* Steps between kinds of a table, between the types, between products and attention. */
static const double KIND_STEPS = 1, TYPE_STEPS = 2, TABLE_STEPS = 3;

/* Whether column k is the one nearest to a size, or beside that one. */
static bool is_near(hri_rate_table table, uint32_t k, double size) {
  const uint32_t last = hri_rate_columns(table) - 1;
  double before = k > 1 ? hri_rate_column(table, k - 1) + hri_rate_column(table, k - 2) : -HUGE_VAL,
         behind = k + 2 <= last ? hri_rate_column(table, k + 1) + hri_rate_column(table, k + 2) : HUGE_VAL;
  return 2 * size >= before && 2 * size <= behind;
}

/* Where an entry stands among those of the tables. */
static size_t entry_of(const hr_device_rates *rates, const hri_rate_class *c, uint32_t column) {
  return (size_t)(hri_rate_row(rates, c) - (const double *)rates->tables) + column;
}

static double ratio_of(const hr_device_rates *rates, size_t entry) {
  return rates->assumed[entry] > 0 ? rates->taken[entry] / rates->assumed[entry] : 0;
}

/* The class's own, from the columns around the size; 0 where none of these was seen. */
static double own_ratio(const hr_device_rates *rates, const hri_rate_class *c) {
  double below = 0, below_at = 0;
  for (uint32_t k = 0; k < hri_rate_columns(c->table); k++) {
    const double at = hri_rate_column(c->table, k), ratio = ratio_of(rates, entry_of(rates, c, k));
    if (ratio <= 0 || !is_near(c->table, k, c->size)) continue;
    if (at >= c->size && below > 0)
      return fmax(below * pow(ratio / below, (c->size - below_at) / (at - below_at)), fmin(below, ratio));
    if (at >= c->size) return ratio;
    below = ratio;
    below_at = at;
  }
  return below;
}

/* The row of a class as a number of steps from another's. */
static double steps_between(const hri_rate_class *a, const hri_rate_class *b) {
  double steps = a->type == b->type ? 0 : TYPE_STEPS;
  if (a->table != b->table) return steps + TABLE_STEPS;
  if (a->table != HRI_RATE_PRODUCT) return steps + (a->kind == b->kind ? 0 : KIND_STEPS);
  if (a->kind % (HR_PRODUCT_KINDS / 2) != b->kind % (HR_PRODUCT_KINDS / 2)) steps += KIND_STEPS;
  if (a->kind / (HR_PRODUCT_KINDS / 2) != b->kind / (HR_PRODUCT_KINDS / 2)) steps += KIND_STEPS;
  return steps + fabs((double)a->side - (double)b->side);
}

typedef struct mean {
  double weights, logarithms, least;
} mean;

/* Another row's part in the mean. */
static void add_row(const hr_device_rates *rates, const hri_rate_class *c, const hri_rate_class *row, mean *m) {
  const double steps = steps_between(c, row);
  const uint32_t columns = hri_rate_columns(row->table);
  const double width = hri_rate_column(row->table, 1) - hri_rate_column(row->table, 0);
  for (uint32_t k = 0; k < columns; k++) {
    const size_t entry = entry_of(rates, row, k);
    const double ratio = ratio_of(rates, entry);
    double away, weight;
    if (ratio <= 0) continue;
    away = c->table == row->table ? fabs(c->size - hri_rate_column(row->table, k)) / width : 0;
    weight = rates->taken[entry] * pow(FALL, steps + away);
    m->weights += weight;
    m->logarithms += weight * log(ratio);
    m->least = fmin(m->least, ratio);
  }
}

static void add_table(const hr_device_rates *rates, const hri_rate_class *c, hri_rate_table table, mean *m) {
  const uint32_t kinds = table == HRI_RATE_PRODUCT     ? HR_PRODUCT_KINDS
                         : table == HRI_RATE_ATTENTION ? HR_ATTENTION_KINDS
                                                       : HR_STREAM_COUNT,
                 sides = table == HRI_RATE_PRODUCT ? HR_PRODUCT_SIDES : 1;
  hri_rate_class row = {.table = table};
  for (row.type = 0; row.type < HR_RATE_TYPES; row.type++)
    for (row.kind = 0; row.kind < kinds; row.kind++)
      for (row.side = 0; row.side < sides; row.side++) add_row(rates, c, &row, m);
}

static bool is_arithmetic_entry(size_t entry) {
  const size_t offset = entry % (sizeof(hr_rate_tables) / sizeof(double)) * sizeof(double);
  return offset < offsetof(hr_rate_tables, stream_bytes);
}

bool hri_seen_itself(const hr_device_rates *rates, const hri_rate_class *c) { return own_ratio(rates, c) > 0; }

double hri_seen_ratio(const hr_device_rates *rates, const hri_rate_class *c) {
  double own;
  mean m = {.least = HUGE_VAL};
  assert(rates->seen && c->table != HRI_RATE_NONE);
  own = own_ratio(rates, c);
  if (own > 0) return own;
  if (hri_is_arithmetic(c)) {
    add_table(rates, c, HRI_RATE_PRODUCT, &m);
    add_table(rates, c, HRI_RATE_ATTENTION, &m);
  } else add_table(rates, c, HRI_RATE_STREAM, &m);
  if (!(m.weights > 0)) return m.least < HUGE_VAL ? m.least : 1;
  return fmax(exp(m.logarithms / m.weights), m.least); /* a mean is not below them, but for rounding */
}

double hri_seen_least(const hr_device_rates *rates, const hri_rate_class *c) {
  const bool arithmetic = hri_is_arithmetic(c);
  double least = HUGE_VAL;
  for (size_t k = 0; k < HR_RATE_ENTRIES; k++) {
    const double ratio = ratio_of(rates, k);
    if (ratio > 0 && is_arithmetic_entry(k) == arithmetic) least = fmin(least, ratio);
  }
  return least < HUGE_VAL ? least : 1;
}
