/* The page is a template with places in double braces; the data is one script element that no browser runs, as base64.
 *
 * Names in a snapshot may be anything. They reach the page in two ways only: escaped (title, verdict, sections), and
 * within the compressed data, from where the script puts them into text nodes. The content security policy admits the
 * one script and the one style sheet by their hashes and no connection to anywhere. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "report/columns.h"
#include "report/facts.h"
#include "report/sha256.h"

/* Made from src/report/page.* by scripts/embed.cmake. */
extern const unsigned char hri_page_html[], hri_page_css[];
extern const size_t hri_page_html_bytes, hri_page_css_bytes;
#define PART(name)                                                                                                     \
  extern const unsigned char hri_page_##name##_js[];                                                                   \
  extern const size_t hri_page_##name##_js_bytes;
#define PARTS(each)                                                                                                    \
  each(data) each(model) each(draw) each(timeline) each(live) each(flame) each(segments) each(spans) each(table)       \
      each(facts) each(against) each(main)
PARTS(PART)

typedef struct report {
  const hr_inspection *in;
  const hr_report_options *options;
  hri_report_columns columns;
  hri_report_tables tables;
  hri_text script, verdict;
  hr_error *error;
} report;

static hr_status join_script(hri_text *script, hr_error *error) {
#define ADD(name) hri_text_add_bytes(script, (const char *)hri_page_##name##_js, hri_page_##name##_js_bytes);
  PARTS(ADD)
  return script->failed ? hri_fail_memory(error, script->length, "the report's script") : HR_OK;
}

static void put_hash(hri_page *page, const char *directive, const void *bytes, size_t count) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint8_t digest[33] = {0}; /* 32 and a zero that fills the last group */
  char text[44];
  uint32_t i;
  hri_sha256(bytes, count, digest);
  for (i = 0; i < 43; i++) {
    uint32_t bits = (uint32_t)(digest[i * 6 / 8] << 8 | digest[i * 6 / 8 + 1]);
    text[i] = digits[bits >> (10 - i * 6 % 8) & 63];
  }
  text[43] = '=';
  hri_page_put(page, directive, strlen(directive));
  hri_page_put(page, text, sizeof text);
}

static void put_policy(report *r, hri_page *page) {
  static const char start[] = "default-src 'none'; base-uri 'none'; form-action 'none'", end[] = "'";
  hri_page_put(page, start, sizeof start - 1);
  put_hash(page, "; style-src 'sha256-", hri_page_css, hri_page_css_bytes);
  put_hash(page, "'; script-src 'sha256-", r->script.chars, r->script.length);
  hri_page_put(page, end, sizeof end - 1);
}

/* A browser reads the data as one string: of at most 2^29 - 24 letters in V8's (Chromium, Node), twice that in others. */
enum { BROWSERS_MOST = (1 << 29) - 24 };

static void put_data(report *r, hri_page *page) {
  hri_text json = {0};
  hr_status status = hri_report_facts(r->in, r->columns.lives, r->options, &r->tables, &json, r->error);
  if (status == HR_OK) {
    hri_page_data_begin(page, BROWSERS_MOST);
    hri_page_u64(page, json.length);
    hri_page_data(page, json.chars, json.length);
    hri_page_u64(page, r->columns.addresses.base >> 32);
    hri_page_u64(page, r->columns.addresses.base & UINT32_MAX);
    hri_page_u64(page, r->columns.addresses.shift);
    hri_page_i64(page, (uint64_t)r->columns.first_time_us);
    hri_report_columns_put(&r->columns, &r->tables, page);
    hri_page_data_end(page);
  }
  hri_text_deinit(&json);
  hri_page_fail(page, status, r->error);
}

static const char *title_of(const report *r) {
  return r->options && r->options->title ? r->options->title : "Memory report";
}

static void put_words(hri_page *page, const char *tags) { hri_page_put(page, tags, strlen(tags)); }

static void put_note(hri_page *page, const hr_report_note *note) {
  put_words(page, "<li>");
  hri_page_put_text(page, note->text);
  if (note->more && note->more[0]) {
    put_words(page, "<small>");
    hri_page_put_text(page, note->more);
    put_words(page, "</small>");
  }
  put_words(page, "</li>");
}

static void put_sections(const report *r, hri_page *page) {
  uint32_t number = 1, count = r->options ? r->options->section_count : 0;
  for (uint32_t k = 0; k < count; k++) {
    const hr_report_section *section = &r->options->sections[k];
    bool numbered = k >= r->options->numbered_from;
    char tag[32];
    put_words(page, "<h3>");
    hri_page_put_text(page, section->title);
    (void)snprintf(tag, sizeof tag, numbered ? "</h3><ol start=\"%u\">" : "</h3><ul>", number);
    put_words(page, tag);
    for (uint32_t n = 0; n < section->note_count; n++) put_note(page, &section->notes[n]);
    put_words(page, numbered ? "</ol>" : "</ul>");
    if (numbered) number += section->note_count;
  }
}

static void put_place(report *r, hri_page *page, const char *name, size_t length) {
#define IS(text) (length == sizeof text - 1 && memcmp(name, text, length) == 0)
  if (IS("title")) hri_page_put_text(page, title_of(r));
  else if (IS("policy")) put_policy(r, page);
  else if (IS("style")) hri_page_put(page, hri_page_css, hri_page_css_bytes);
  else if (IS("verdict")) hri_page_put_text(page, hri_text_get(&r->verdict));
  else if (IS("sections")) put_sections(r, page);
  else if (IS("version")) hri_page_put_text(page, hr_version());
  else if (IS("script")) hri_page_put(page, r->script.chars, r->script.length);
  else if (IS("data")) put_data(r, page);
}

static void put_template(report *r, hri_page *page) {
  const char *next = (const char *)hri_page_html, *end = next + hri_page_html_bytes;
  while (next < end && !hri_page_failed(page)) {
    const char *open = strstr(next, "{{"), *close = open ? strstr(open, "}}") : NULL;
    if (!close) break;
    hri_page_put(page, next, (size_t)(open - next));
    put_place(r, page, open + 2, (size_t)(close - open - 2));
    next = close + 2;
  }
  hri_page_put(page, next, (size_t)(end - next));
}

static int64_t first_time(const hri_lives *lives) {
  uint64_t i;
  for (i = 0; i < lives->event_count; i++)
    if (lives->events[i].flags & HR_EVENT_HAS_TIME) return lives->events[i].time_us;
  return 0;
}

static hr_status write_page(report *r, const char *path) {
  hri_page *page;
  HRI_TRY(hri_page_begin(path, &page, r->error));
  put_template(r, page);
  return hri_page_end(page, r->error);
}

static hr_status write_report(report *r, const hri_lives *lives, const char *path) {
  hri_state start = {0};
  hr_status status;
  HRI_TRY(hri_state_at(lives, HRI_NEVER, &start, r->error));
  r->columns = (hri_report_columns){.in = r->in,
                                    .lives = lives,
                                    .start = &start,
                                    .addresses = hri_report_addresses_of(lives, &start)};
  r->columns.first_time_us = first_time(lives);
  status = write_page(r, path);
  hri_state_deinit(&start);
  return status;
}

void hr_report_options_init(hr_report_options *options) { *options = (hr_report_options){0}; }

hr_status hr_report_html(const hr_inspection *in, const hr_report_options *options, const char *path, hr_error *error) {
  const hri_lives *lives = hri_inspection_lives(in);
  report r = {.in = in, .options = options, .error = error};
  hr_status status;
  if (lives->event_count > INT32_MAX - 2)
    return hri_fail(error, HR_ERROR_UNSUPPORTED, "a report shows at most %d events, and this trace has %llu",
                    INT32_MAX - 2, (unsigned long long)lives->event_count);
  HRI_TRY_OUT(hri_report_tables_init(&r.tables, in->snapshot, error));
  HRI_TRY_OUT(join_script(&r.script, error));
  if (options && options->verdict) hri_text_add(&r.verdict, "%s", options->verdict);
  else hri_report_verdict(in, &r.verdict);
  if (r.verdict.failed) {
    status = hri_fail_memory(error, r.verdict.length, "the report's verdict");
    goto out;
  }
  status = write_report(&r, lives, path);
out:
  hri_text_deinit(&r.script);
  hri_text_deinit(&r.verdict);
  hri_report_tables_deinit(&r.tables);
  return status;
}
