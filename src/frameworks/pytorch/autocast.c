/* Autocast (autocast.h). */
#include "frameworks/pytorch/autocast.h"

#include "frameworks/pytorch/aten.h"

/* cached_cast */
hri_ten *hri_autocast_lower(hri_torch *t, hri_ten *x) {
  bool cached = x->parameter && x->requires_grad && x->type == HRI_F32;
  hri_ten *cast;
  if (t->autocast == HRI_F32 || x->type == t->autocast || x->type > HRI_F16) return hri_ten_keep(x);
  if (cached && x->cast) return hri_ten_keep(x->cast);
  cast = hri_aten_to(t, x, t->autocast);
  if (cached && !t->stopped) {
    x->cast = hri_ten_keep(cast);
    if (!hri_array_push(&t->casts, x)) t->failed = true;
  }
  return cast;
}

hri_ten *hri_autocast_fp32(hri_torch *t, hri_ten *x) {
  return t->autocast == HRI_F32 ? hri_ten_keep(x) : hri_aten_to(t, x, HRI_F32);
}

void hri_autocast_exit(hri_torch *t) {
  for (size_t i = 0; i < t->casts.count; i++) hri_ten_set(t, &t->casts.items[i]->cast, NULL);
  t->casts.count = 0;
}
