/* The inspection in a few sentences, for a report that nobody gave a verdict. It states facts with their bytes; which
 * cause follows from them is the explainer's to say. */
#include "base/text.h"
#include "report/facts.h"

static double share(uint64_t part, uint64_t whole) { return whole ? 100.0 * (double)part / (double)whole : 0; }

/* Whether free memory would have served the request, by the tests of the inspection. */
static void add_fit(const hr_inspection *in, hri_text *text) {
  const hr_fragmentation *f = &in->fragmentation;
  uint64_t free_bytes = f->device_free_bytes + in->at.free_returnable_bytes + in->at.free_pinned_bytes;
  if (f->in_private_pool) free_bytes = f->device_free_bytes + f->pool_free_bytes;
  char a[32], b[32];
  if (f->request_bytes == 0) return;
  if (f->fits_block) {
    hri_text_add(text, " A free block of %s would have taken it: this memory does not explain the failure.",
                 hri_size_text(f->pool_largest_free_bytes, a));
    return;
  }
  if (f->fits_contiguous)
    hri_text_add(text, " Its pool had %s free, enough, but in pieces of at most %s.",
                 hri_size_text(f->pool_free_bytes, a), hri_size_text(f->pool_largest_free_bytes, b));
  if (f->fits_after_return && f->returnable_bytes == 0)
    hri_text_add(text, " The device reported %s free, enough for it.", hri_size_text(f->device_free_bytes, a));
  else if (f->fits_after_return)
    hri_text_add(text, " Returning the cached segments that hold nothing (%s) would have made room.",
                 hri_size_text(f->returnable_bytes, a));
  else if (f->fits_compacted && !f->fits_contiguous && f->in_private_pool)
    hri_text_add(text, " The device's free bytes (%s) and its pool's (%s) together would have been enough.",
                 hri_size_text(f->device_free_bytes, a), hri_size_text(f->pool_free_bytes, b));
  else if (f->fits_compacted && !f->fits_contiguous)
    hri_text_add(
        text, " All free bytes together would have been enough, but %s of them lie in segments that live blocks pin.",
        hri_size_text(in->at.free_pinned_bytes, a));
  else if (!f->fits_compacted && f->device_free_known && f->request_bytes > free_bytes)
    hri_text_add(text, " The memory is full: all free bytes together (%s) fall short of the request by %s.",
                 hri_size_text(free_bytes, a), hri_size_text(f->request_bytes - free_bytes, b));
}

static void add_oom(const hr_inspection *in, hri_text *text) {
  const hr_oom_event *last = &in->ooms[in->oom_count - 1];
  char a[32], b[32], c[32];
  hri_text_add(text, "Out of memory: a request of %s failed with %s live and %s reserved", hri_size_text(last->size, a),
               hri_size_text(last->live_bytes, b), hri_size_text(last->reserved_bytes, c));
  if (last->stage != HR_STAGE_UNKNOWN) hri_text_add(text, ", in %s", hr_stage_name(last->stage));
  hri_text_add(text, ".");
  if (in->oom_total > 1)
    hri_text_add(text, " It is the last of %llu such failures.", (unsigned long long)in->oom_total);
  if (in->at_event == last->event) add_fit(in, text);
}

static void add_peak(const hr_inspection *in, hri_text *text) {
  char a[32], b[32];
  if (in->event_count == 0) {
    hri_text_add(text, "No events are recorded, only the last state: %s live in %s reserved.",
                 hri_size_text(in->at.requested_bytes, a), hri_size_text(in->at.reserved_bytes, b));
    return;
  }
  hri_text_add(text, "Peak: %s live", hri_size_text(in->peak_live_bytes, a));
  if (in->peak_event != UINT64_MAX)
    hri_text_add(text, " after event %llu", (unsigned long long)in->peak_event + 1); /* as --at counts */
  if (in->peak_reserved_bytes > 0)
    hri_text_add(text, "; at most %s reserved", hri_size_text(in->peak_reserved_bytes, b));
  hri_text_add(text, ". No request failed.");
}

static void add_largest(const hr_inspection *in, hri_text *text) {
  const hr_live_group *group = in->group_count[HR_BY_CATEGORY] ? in->groups[HR_BY_CATEGORY] : NULL;
  char a[32];
  if (!group || in->at.requested_bytes == 0 || group->category >= in->category_count) return;
  hri_text_add(text, " Most of what was live then: %s, %s (%.0f %%%s).", in->categories[group->category],
               hri_size_text(group->bytes, a), share(group->bytes, in->at.requested_bytes),
               in->categories_inferred ? ", category inferred" : "");
}

static void add_growth(const hr_inspection *in, hri_text *text) {
  uint32_t i, count = 0;
  uint64_t before = 0;
  double per_step = 0;
  char a[32];
  for (i = 0; i < in->growth_count; i++) {
    if (!hr_growth_goes_on(in->growth[i].kind)) continue;
    count++;
    per_step += in->growth[i].bytes_per_step;
    before += in->growth[i].from_before;
  }
  if (count == 0 || per_step < 1) return;
  if (before) { /* the recording has too few steps to say by how much */
    hri_text_add(text, " Memory grows: of %u place%s in the program, %llu tensors are from before the recording began.",
                 count, count == 1 ? "" : "s", (unsigned long long)before);
    return;
  }
  hri_text_add(text, " Memory still grows at the end, by %s per step, from %u place%s in the program.",
               hri_size_text((uint64_t)per_step, a), count, count == 1 ? "" : "s");
}

void hri_report_verdict(const hr_inspection *in, hri_text *text) {
  if (in->oom_count > 0) add_oom(in, text);
  else add_peak(in, text);
  add_largest(in, text);
  add_growth(in, text);
}
