/* A terminal breaks a line where its width ends, amid a word or a number, and who copies its text takes the break
 * along. Whether that happened only the lines around can tell: words that prose is filled with end anywhere, and a
 * program's own lines may be long by chance.
 *
 * The neighbours may rely on this: what it says rests on widths and on how lines begin and end, and a line that begins
 * as a record, an exception or a kill does is never taken for the rest of another. */
#include "explain/scan_wrap.h"

#include <string.h>

#include "explain/line.h"
#include "explain/match.h"
#include "explain/report.h"
#include "explain/wording.h"

enum { LEAST = 60 }; /* columns of a terminal */

/* Whether the raw line begins with a label, as an exception does. */
static bool is_labelled(const char *line, size_t count) {
  size_t end = 0;
  while (end < count && !hri_line_is_blank(line[end])) end++;
  return end > 0 && line[end - 1] == ':';
}

/* Whether it begins as a record does, or tells of a kill: it is no rest of another. */
static bool begins_anew(const char *line, size_t count) {
  return hri_line_reports_kill(line, count, 0) || hri_line_shape(line, count, 0) & (HRI_OOM_LEVEL | HRI_OOM_DATED);
}

/* Whether the line may go on with what the one right before ended with. */
static bool could_go_on(const hri_scan_wrap *w, const char *line, size_t count, uint64_t number) {
  return count > 0 && number == w->last_number + 1 && !hri_line_is_blank(w->last_end) && !hri_line_is_blank(line[0]) &&
         !begins_anew(line, count);
}

/* Lines that begin alike are a program's, each for itself. */
static bool begins_alike(const hri_scan_wrap *w, const char *line, size_t count) {
  return count >= sizeof w->last_head && memcmp(line, w->last_head, sizeof w->last_head) == 0;
}

/* Words beside which figures stand. */
static const char figure_words[] =
    "tried to allocate|trying to allocate|has a total capacity|total capacity|already allocated|reserved in total by|"
    "memory in use|this process has|including non-pytorch|of the allocated memory|is allocated by pytorch|"
    "is reserved by pytorch|but unallocated|in private pools|max allowed|other allocations|hardware limit|required:|"
    "memory limit exceeded";

/* Whether words of memory begin before text[seam] and end behind it. */
static bool has_words_over(const char *text, size_t seam, size_t count) {
  for (size_t at = 0; at < seam; at++) {
    const hri_oom_head *head = hri_oom_head_at(text, at, count);
    if (head && at + strlen(head->words) > seam) return true;
  }
  return hri_match_over(text, seam, count, figure_words);
}

/* Whether words of memory ("... out_of_d", "evice_memory") stand where the line goes on at once, and none where a blank
 * stands between. */
static bool completes_words(const hri_scan_window *window, const char *line, size_t count) {
  enum { SIDE = 48 };
  const size_t end = hri_scan_text_end(window), seam = end < SIDE ? end : SIDE;
  const size_t taken = count < SIDE ? count : SIDE;
  char text[2 * SIDE + 1];
  memcpy(text, window->text + end - seam, seam);
  for (size_t i = 0; i < taken; i++) text[seam + i] = hri_line_lower(line[i]);
  if (!has_words_over(text, seam, seam + taken)) return false;
  memmove(text + seam + 1, text + seam, taken);
  text[seam] = ' ';
  return !has_words_over(text, seam, seam + 1 + taken);
}

static uint16_t widest_of(const hri_scan_wrap *w) {
  uint16_t most = 0;
  for (unsigned i = 0; i < HRI_SCAN_WIDTHS; i++) most = w->widths[i] > most ? w->widths[i] : most;
  return most;
}

/* Whether the lines before, as wide as `most` at the most, were broken by that width; `last` is where the present one stands.
 * One more that goes on is as wide, or the present one where the one before speaks of memory; and none that goes on is
 * nearly as wide. */
static bool has_width(const hri_scan_wrap *w, unsigned last, uint16_t most) {
  enum { NEARLY = 10 };
  unsigned widest = 0, nearly = 0;
  for (unsigned i = 0; i < HRI_SCAN_WIDTHS; i++) {
    widest += w->widths[i] == most && (w->opens[i] || (i == last && w->last_speaks));
    nearly += w->opens[i] && w->widths[i] < most && w->widths[i] + NEARLY > most;
  }
  return widest >= 2 && nearly == 0;
}

/* Whether the last lines, as wide as `most` at the most, fill a terminal: several are as wide as that. Prose and tables have
 * such lines too, so neither side of the break is what a table is drawn with. */
static bool fills(const hri_scan_wrap *w, char next, uint16_t most) {
  enum { SEVERAL = 3 };
  static const char drawn[] = "+|-=#*>~^";
  unsigned same = 0;
  for (unsigned i = 0; i < HRI_SCAN_WIDTHS; i++) same += w->widths[i] == most;
  return same >= SEVERAL && !strchr(drawn, next) && !strchr(drawn, w->last_end);
}

bool hri_scan_wrap_goes_on(hri_scan_wrap *w, const hri_scan_window *window, const char *line, size_t count,
                           uint64_t number) {
  enum { PROOF_LINES = 40 };
  const unsigned last = w->count % HRI_SCAN_WIDTHS, previous = (last + HRI_SCAN_WIDTHS - 1) % HRI_SCAN_WIDTHS;
  const bool could = could_go_on(w, line, count, number);
  const bool own = is_labelled(line, count) || begins_alike(w, line, count);
  const bool joins = could && count > 3 && hri_is_name(w->last_end) && hri_is_name(hri_line_lower(line[0]));
  uint16_t width = 0, most;
  bool full, goes_on;
  for (size_t i = 0; i < count; i++) width = (uint16_t)(width + ((line[i] & 0xc0) != 0x80));
  w->widths[last] = width;
  w->opens[last] = false;
  w->opens[previous] = joins;
  w->count++;
  most = could ? widest_of(w) : 0;
  full = most >= LEAST && w->widths[previous] == most && !own; /* the line before is as wide as any of the last */
  goes_on = (full && ((joins && has_width(w, last, most)) || fills(w, line[0], most))) ||
            (joins && !own && number < w->proven_until && w->widths[previous] == w->proven);
  if (!goes_on && could && w->widths[previous] >= LEAST && completes_words(window, line, count)) {
    goes_on = true;
    w->proven = w->widths[previous];
    w->proven_until = number + PROOF_LINES;
  }
  memcpy(w->last_head, line, count < sizeof w->last_head ? count : sizeof w->last_head);
  w->last_end = (char)(count > 0 ? hri_line_lower(line[count - 1]) : ' ');
  w->last_number = number;
  w->last_speaks = hri_match_part(line, 0, count, "memory|alloc");
  return goes_on;
}

void hri_scan_wrap_forget(hri_scan_wrap *w) {
  w->last_end = ' ';
  w->last_number = UINT64_MAX - 1;
}
