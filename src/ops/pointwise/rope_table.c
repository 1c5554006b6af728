#include "ops/pointwise/rope_table.h"

#include <math.h>

typedef struct tables {
  const double *inverse;
  int64_t pairs, positions;
  double factor;
  float *cosines, *sines;
} tables;

static void fill_pairs(void *context, int64_t begin, int64_t end, int thread) {
  const tables *t = context;
  (void)thread;
  for (int64_t pair = begin; pair < end; pair++) {
    for (int64_t position = 0; position < t->positions; position++) {
      float angle = (float)position * (float)t->inverse[pair];
      t->cosines[position * t->pairs + pair] = (float)cos((double)angle) * (float)t->factor;
      t->sines[position * t->pairs + pair] = (float)sin((double)angle) * (float)t->factor;
    }
  }
}

void hri_rope_table(const double *inverse, int64_t pairs, double factor, int64_t positions, float *cosines,
                    float *sines, hri_team *team) {
  tables t = {.inverse = inverse,
              .pairs = pairs,
              .positions = positions,
              .factor = factor,
              .cosines = cosines,
              .sines = sines};
  hri_team_each(team, pairs, 1, fill_pairs, &t);
}
