/* Ranks that write into one log interrupt each other between lines, and progress bars stand between the lines of a
 * message. A message is therefore read in a copy in which only its own rank's lines stand, and those that are nobody's.
 *
 * The neighbours may rely on this: the copy has at most HRI_OOM_TEXT_BYTES and what stood before, and costs as much;
 * the part of the line before and behind the word itself is always in it. */
#include "explain/scan_excerpt.h"

/* How many marks back and ahead lines are looked for, since those of others cost time as well. */
enum { MARKS_BACK = 40, MARKS_AHEAD = 400 };

bool hri_scan_is_of(const hri_scan_window *w, size_t m, int64_t who) {
  const hri_scan_mark *mark = &w->marks.items[m];
  return !mark->bar && (mark->who == who || mark->who < 0);
}

static bool is_own(const hri_scan_window *w, size_t m, size_t own) {
  return m == own || hri_scan_is_of(w, m, w->marks.items[own].who);
}

/* Copies up to HRI_SCAN_BEFORE bytes that stand before `at` to the beginning; returns how many. */
static size_t copy_before(hri_scan_excerpt *x, const hri_scan_window *w, size_t at, size_t own) {
  size_t left = HRI_SCAN_BEFORE, m = own;
  for (size_t end = at; left > 0 && end > 0;) {
    const size_t begin = w->marks.items[m].offset < end ? w->marks.items[m].offset : end;
    const size_t take = is_own(w, m, own) ? (end - begin < left ? end - begin : left) : 0;
    left -= take;
    memcpy(x->text + left, w->text + end - take, take);
    end = begin;
    if (m == 0 || own - m > MARKS_BACK) break;
    m--;
  }
  memmove(x->text, x->text + left, HRI_SCAN_BEFORE - left);
  return HRI_SCAN_BEFORE - left;
}

void hri_scan_excerpt_take(hri_scan_excerpt *x, const hri_scan_window *w, size_t at, size_t own) {
  size_t count = copy_before(x, w, at, own);
  x->start = count;
  for (size_t m = own; at < w->count && count < sizeof x->text && m - own <= MARKS_AHEAD; m++) {
    const size_t end = hri_scan_mark_end(w, m), room = sizeof x->text - count;
    if (is_own(w, m, own)) {
      const size_t take = end - at < room ? end - at : room;
      memcpy(x->text + count, w->text + at, take);
      count += take;
    }
    at = end;
  }
  x->count = count;
}

void hri_scan_excerpt_move(const hri_scan_excerpt *x, hri_oom_place *p) {
  const size_t before = p->at - p->line, wrapped = p->at - p->sentence, behind = p->line_end - p->at;
  if (p->tick_from < p->tick_to) {
    p->tick_to = p->tick_to - p->at + x->start;
    p->tick_from = p->at - p->tick_from < x->start ? x->start - (p->at - p->tick_from) : 0;
  }
  p->text = x->text;
  p->line = before < x->start ? x->start - before : 0;
  p->sentence = wrapped < x->start ? x->start - wrapped : 0;
  p->line_end = x->start + behind < x->count ? x->start + behind : x->count;
  p->at = x->start;
  p->count = x->count;
}

size_t hri_scan_excerpt_end(const hri_scan_excerpt *x, const hri_scan_window *w, size_t at, size_t own, size_t end) {
  size_t count = x->start;
  for (size_t m = own; at < w->count; m++) { /* as they were taken */
    const size_t next = hri_scan_mark_end(w, m), take = is_own(w, m, own) ? next - at : 0;
    if (end <= count + take) return at + (end - count);
    count += take;
    at = next;
  }
  return w->count;
}

bool hri_scan_excerpt_is_whole(const hri_scan_excerpt *x, const hri_scan_window *w, size_t at, size_t end) {
  return end > x->start && end - x->start <= w->count - at &&
         memcmp(x->text + x->start, w->text + at, end - x->start) == 0;
}
