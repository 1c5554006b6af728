/* The cases of tests/explain/cases: messages of our own making in the structure that each speaker prints, and texts that
 * hold the same words and report nothing. A line
 *
 *     %% CAUSE CERTAINTY [FIGURE=BYTES ...]      or      %% no
 *
 * begins each; the text goes on until the next. Figures that a line does not name must not be read from the text. */
#ifndef HRT_EXPLAIN_CASES_H
#define HRT_EXPLAIN_CASES_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>

#include <cmocka.h>

#include <headroom/explain.h>

typedef struct explain_case {
  const char *head, *text; /* "host_memory likely requested=1024" */
} explain_case;

enum { EXPLAIN_CASE_BYTES = 256 * 1024 };

/* Calls `visit` for each case of a file, which it reads into `buffer` of EXPLAIN_CASE_BYTES; how many there were. */
static inline size_t each_case(const char *name, char *buffer, void (*visit)(const explain_case *, void *),
                               void *context) {
  char path[1024], *next;
  size_t count, cases = 0;
  FILE *file;
  (void)snprintf(path, sizeof path, "%s/explain/cases/%s.txt", HR_TEST_DATA, name);
  file = fopen(path, "rb");
  assert_non_null(file);
  count = fread(buffer, 1, EXPLAIN_CASE_BYTES - 1, file);
  (void)fclose(file);
  assert_true(count < EXPLAIN_CASE_BYTES - 1);
  buffer[count] = 0;
  for (char *at = strstr(buffer, "\n%% "); at; at = next) {
    char *head = at + 4, *body = strchr(head, '\n');
    assert_non_null(body);
    *body++ = 0;
    next = strstr(body, "\n%% ");
    if (next) *next = 0; /* the next search begins behind it */
    visit(&(explain_case){head, body}, context);
    cases++;
  }
  return cases;
}

static inline hr_explanation *explain_text(const char *text) {
  hr_explanation *e;
  hr_error error;
  assert_int_equal(hr_explain_text(text, strlen(text), NULL, &e, &error), HR_OK);
  return e;
}

/* What a head says of one figure, "requested_bytes" as "requested=", in bytes; -1 when it is not named. */
static inline double figure_of_head(const char *head, const char *name) {
  char word[64];
  const char *at;
  (void)snprintf(word, sizeof word, " %.*s=", (int)(strlen(name) - strlen("_bytes")), name);
  at = strstr(head, word);
  return at ? strtod(at + strlen(word), NULL) : -1;
}

/* Whether a failure has the figures of the head, within the rounding of what is printed, and no others. What follows
 * from two figures counts as named only where the head names it. */
static inline bool has_figures(const hr_oom_failure *f, const char *head) {
  for (int i = 0; i < HR_OOM_FIGURE_COUNT; i++) {
    const hr_oom_value *v = &f->figures[i];
    const double want = figure_of_head(head, hr_oom_figure_name((hr_oom_figure)i));
    const double apart = (double)v->bytes - want, slack = want * 1e-6 + 2 + (double)v->slack_bytes;
    if (want < 0 && v->state == HR_OOM_READ) return false;
    if (want >= 0 && v->state != HR_OOM_READ && v->state != HR_OOM_DERIVED) return false;
    if (want >= 0 && (apart > slack || -apart > slack)) return false;
  }
  return true;
}

/* Whether the text is judged as the head says; prints what is wrong. */
static inline bool is_case_right(const explain_case *c) {
  hr_explanation *e = explain_text(c->text);
  const hr_oom_failure *f = e->failure_count ? &e->failures[e->primary] : NULL;
  char got[64];
  size_t length;
  bool right;
  if (f) (void)snprintf(got, sizeof got, "%s %s", hr_oom_cause_name(f->cause), hr_oom_certainty_name(f->certainty));
  else (void)snprintf(got, sizeof got, "no");
  length = strlen(got);
  right = strncmp(c->head, got, length) == 0 && (c->head[length] == 0 || c->head[length] == ' ');
  right = right && (!f || (has_figures(f, c->head) && f->verdict[0] && f->advice_count && f->source[0]));
  if (!right) {
    print_message("WRONG: %s (%s), not %s: %s\n", got, f ? f->source : "", c->head, c->text);
    for (int i = 0; f && i < HR_OOM_FIGURE_COUNT; i++)
      if (f->figures[i].state == HR_OOM_READ || f->figures[i].state == HR_OOM_DERIVED)
        print_message("  %s %llu\n", hr_oom_figure_name((hr_oom_figure)i), (unsigned long long)f->figures[i].bytes);
  }
  hr_explanation_destroy(e);
  return right;
}

#endif
