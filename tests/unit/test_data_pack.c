/* Packing (src/data/pack.c):
 *   - each token of each document is in exactly one row, in order, whatever the mode, lengths and sequence (property);
 *   - best fit is never worse than one row per document, keeps whole documents whole, and meets TRL's vector;
 *   - targets and attention never cross documents; counted labels add up;
 *   - truncation does what its name says; a million documents take no more memory than a hundred. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "data/pack.h"

typedef struct dice {
  uint64_t seed, count;
} dice;

static uint32_t roll(dice *d, uint32_t sides) {
  uint32_t word[4];
  hri_philox(d->seed, 7, d->count++, word);
  return (uint32_t)(((uint64_t)word[0] * sides) >> 32);
}

static const char *temporary(void) {
  const char *base = getenv("TMPDIR");
  return base && base[0] ? base : "/tmp";
}

/* Documents whose tokens are numbered through: place is the number of the first. */
typedef struct corpus {
  hri_spool documents, labels;
  uint64_t count, tokens;
  HRI_ARRAY(hri_document) list;
} corpus;

static void corpus_init(corpus *c) {
  memset(c, 0, sizeof *c);
  c->documents = hri_spool_init(temporary());
  c->labels = hri_spool_init(temporary());
}

static void corpus_deinit(corpus *c) {
  hri_spool_deinit(&c->documents);
  hri_spool_deinit(&c->labels);
  hri_array_free(&c->list);
}

static void corpus_add(corpus *c, uint64_t length, uint32_t flags) {
  hri_document document = {.place = c->tokens, .length = length, .flags = flags, .source = (uint32_t)(c->count % 5)};
  assert_int_equal(hri_spool_put(&c->documents, &document, sizeof document, NULL), HR_OK);
  assert_true(hri_array_push(&c->list, document));
  c->count++;
  c->tokens += length;
}

static hri_pack_rules rules_for(const corpus *c, uint32_t sequence, hr_packing packing, hr_truncate truncate) {
  hri_pack_rules rules = {.documents = &c->documents,
                          .document_count = c->count,
                          .labels = &c->labels,
                          .sequence = sequence,
                          .packing = packing,
                          .truncate = truncate};
  return rules;
}

static void pack(const hri_pack_rules *rules, hri_row_index *index, hri_pack_result *result) {
  hr_error error = {0};
  *index = hri_row_index_init(temporary());
  if (hri_pack(rules, index, result, &error) != HR_OK) fail_msg("%s", error.message);
}

static void rows_of(const hri_row_index *index, uint64_t row, hri_row range[2]) {
  assert_int_equal(hri_row_index_rows(index, row, range, 2, NULL), HR_OK);
}

static hri_piece piece_at(const hri_row_index *index, uint64_t at) {
  hri_piece piece;
  assert_int_equal(hri_row_index_pieces(index, at, &piece, 1, NULL), HR_OK);
  return piece;
}

/* Marks each token of the pieces; returns how many were seen. */
static uint64_t mark_tokens(const corpus *c, const hri_row_index *index, uint32_t sequence, uint8_t *seen) {
  uint64_t total = 0;
  for (uint64_t row = 0; row < index->row_count; row++) {
    hri_row range[2];
    uint64_t tokens = 0;
    rows_of(index, row, range);
    assert_true(range[1].first_piece > range[0].first_piece);
    for (uint64_t at = range[0].first_piece; at < range[1].first_piece; at++) {
      hri_piece piece = piece_at(index, at);
      assert_true(piece.count > 0 && piece.place + piece.count <= c->tokens);
      for (uint32_t i = 0; i < piece.count; i++) assert_int_equal(seen[piece.place + i]++, 0); /* none doubled */
      tokens += piece.count;
    }
    assert_int_equal(tokens, range[0].tokens);
    assert_true(tokens <= sequence);
    total += tokens;
  }
  return total;
}

/* Every piece lies in one document, and a document that fits into a row is whole, but for wrapped rows. */
static void check_pieces(const corpus *c, const hri_row_index *index, uint32_t sequence, bool whole) {
  uint64_t piece_count = index->piece_count;
  for (uint64_t at = 0; at < piece_count; at++) {
    hri_piece piece = piece_at(index, at);
    size_t low = 0, high = c->list.count;
    const hri_document *d;
    while (high - low > 1) {
      size_t middle = (low + high) / 2;
      if (c->list.items[middle].place <= piece.place) low = middle;
      else high = middle;
    }
    d = &c->list.items[low];
    assert_true(piece.place >= d->place && piece.place + piece.count <= d->place + d->length);
    assert_int_equal(piece.source & HRI_PIECE_SOURCE, d->source);
    assert_int_equal((piece.source & HRI_PIECE_END) != 0,
                     (d->flags & HRI_DOCUMENT_END) && piece.place + piece.count == d->place + d->length);
    if (whole && !(d->flags & (HRI_DOCUMENT_ROW | HRI_DOCUMENT_SAME_ROW)) && d->length <= sequence)
      assert_int_equal(piece.count, d->length);
  }
}

static void try_corpus(uint64_t seed, uint32_t documents, uint32_t longest) {
  dice d = {.seed = seed};
  corpus c;
  uint32_t sequence = 1 + roll(&d, longest);
  bool open = false;
  corpus_init(&c);
  for (uint32_t i = 0; i < documents; i++) {
    uint32_t flags = roll(&d, 3) ? 0 : HRI_DOCUMENT_END;
    if (roll(&d, 10) == 0) {
      flags |= open && roll(&d, 2) ? HRI_DOCUMENT_SAME_ROW : HRI_DOCUMENT_ROW;
      open = true;
    } else {
      open = false;
    }
    corpus_add(&c, 1 + roll(&d, roll(&d, 4) ? longest : 3 * longest), flags);
  }
  for (hr_packing packing = HR_PACKING_PACK; packing <= HR_PACKING_WRAPPED; packing++) {
    hri_pack_rules rules = rules_for(&c, sequence, packing, HR_TRUNCATE_SPLIT);
    uint8_t *seen = calloc(c.tokens, 1);
    hri_row_index index;
    hri_pack_result result;
    assert_non_null(seen);
    pack(&rules, &index, &result);
    assert_int_equal(mark_tokens(&c, &index, sequence, seen), c.tokens); /* none lost */
    assert_int_equal(index.token_count, c.tokens);
    assert_int_equal(index.label_count, c.tokens - index.piece_count);
    check_pieces(&c, &index, sequence, packing != HR_PACKING_WRAPPED);
    assert_int_equal(result.dropped_tokens, 0);
    hri_row_index_deinit(&index);
    free(seen);
  }
  corpus_deinit(&c);
}

static void no_token_is_lost_or_doubled(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 200; seed++) try_corpus(seed, 60, 40);
  for (uint64_t seed = 1001; seed <= 1003; seed++) try_corpus(seed, 3 * HRI_PACK_WINDOW, 300);
}

/* ---- best fit ---- */

static uint64_t row_count(const corpus *c, uint32_t sequence, hr_packing packing) {
  hri_pack_rules rules = rules_for(c, sequence, packing, HR_TRUNCATE_SPLIT);
  hri_row_index index;
  hri_pack_result result;
  uint64_t rows;
  pack(&rules, &index, &result);
  if (packing == HR_PACKING_PACK) check_pieces(c, &index, sequence, true);
  rows = index.row_count;
  hri_row_index_deinit(&index);
  return rows;
}

static void best_fit_is_near_the_bound(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    dice d = {.seed = seed};
    corpus c;
    uint32_t sequence = 50 + roll(&d, 500);
    uint64_t rows, bound;
    corpus_init(&c);
    for (int i = 0; i < 1000; i++) corpus_add(&c, 1 + roll(&d, roll(&d, 2) ? sequence : sequence / 4), 0);
    rows = row_count(&c, sequence, HR_PACKING_PACK);
    bound = (c.tokens + sequence - 1) / sequence;
    assert_true(rows <= row_count(&c, sequence, HR_PACKING_OFF));
    assert_true(9 * rows <= 11 * bound + 9 * (c.count / 2) || rows <= c.count); /* never above one row per document */
    if (rows * 100 > bound * 111)
      fail_msg("seed %llu: %llu rows, bound %llu", (unsigned long long)seed, (unsigned long long)rows,
               (unsigned long long)bound);
    corpus_deinit(&c);
  }
}

/* Rows as text: "[5:0+4] [...]": documents by number. */
static const char *rows_text(const corpus *c, const hri_pack_rules *rules) {
  static char text[512];
  hri_row_index index;
  hri_pack_result result;
  size_t used = 0;
  text[0] = 0;
  pack(rules, &index, &result);
  for (uint64_t row = 0; row < index.row_count; row++) {
    hri_row range[2];
    rows_of(&index, row, range);
    used += (size_t)snprintf(text + used, sizeof text - used, "%s[", row ? " " : "");
    for (uint64_t at = range[0].first_piece; at < range[1].first_piece; at++) {
      hri_piece piece = piece_at(&index, at);
      size_t k = 0;
      while (k + 1 < c->list.count && c->list.items[k + 1].place <= piece.place) k++;
      used += (size_t)snprintf(text + used, sizeof text - used, "%s%zu:%llu+%u", at > range[0].first_piece ? " " : "",
                               k, (unsigned long long)(piece.place - c->list.items[k].place), piece.count);
    }
    used += (size_t)snprintf(text + used, sizeof text - used, "]");
  }
  (void)snprintf(text + used, sizeof text - used, " cut %llu dropped %llu/%llu",
                 (unsigned long long)result.cut_documents, (unsigned long long)result.dropped_documents,
                 (unsigned long long)result.dropped_tokens);
  hri_row_index_deinit(&index);
  return text;
}

/* Lengths 5, 2, 3, 1 in rows of 4: TRL's example gives rows of 4, of 3 + 1, and of 2; here in the order of the
 * documents. */
static void rows_by_hand(void **state) {
  static const struct {
    hr_packing packing;
    hr_truncate truncate;
    const char *rows;
  } cases[] = {
      {HR_PACKING_PACK, HR_TRUNCATE_KEEP_START, "[0:0+4] [1:0+2] [2:0+3 3:0+1] cut 1 dropped 0/1"},
      {HR_PACKING_PACK, HR_TRUNCATE_KEEP_END, "[0:1+4] [1:0+2] [2:0+3 3:0+1] cut 1 dropped 0/1"},
      {HR_PACKING_PACK, HR_TRUNCATE_SPLIT, "[0:0+4] [0:4+1 2:0+3] [1:0+2 3:0+1] cut 1 dropped 0/0"},
      {HR_PACKING_PACK, HR_TRUNCATE_DROP, "[1:0+2] [2:0+3 3:0+1] cut 0 dropped 1/5"},
      {HR_PACKING_WRAPPED, HR_TRUNCATE_SPLIT, "[0:0+4] [0:4+1 1:0+2 2:0+1] [2:1+2 3:0+1] cut 1 dropped 0/0"},
      {HR_PACKING_WRAPPED, HR_TRUNCATE_DROP, "[1:0+2 2:0+2] [2:2+1 3:0+1] cut 0 dropped 1/5"},
      {HR_PACKING_OFF, HR_TRUNCATE_SPLIT, "[0:0+4] [0:4+1] [1:0+2] [2:0+3] [3:0+1] cut 1 dropped 0/0"},
      {HR_PACKING_OFF, HR_TRUNCATE_KEEP_END, "[0:1+4] [1:0+2] [2:0+3] [3:0+1] cut 1 dropped 0/1"},
  };
  corpus c;
  (void)state;
  corpus_init(&c);
  corpus_add(&c, 5, 0);
  corpus_add(&c, 2, 0);
  corpus_add(&c, 3, 0);
  corpus_add(&c, 1, 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hri_pack_rules rules = rules_for(&c, 4, cases[i].packing, cases[i].truncate);
    assert_string_equal(rows_text(&c, &rules), cases[i].rows);
  }
  corpus_deinit(&c);
}

/* Rows that somebody else packed share with nothing, and what stands before and after them is not mixed. */
static void ready_rows_stay_alone(void **state) {
  corpus c;
  hri_pack_rules rules;
  (void)state;
  corpus_init(&c);
  corpus_add(&c, 1, 0);
  corpus_add(&c, 1, HRI_DOCUMENT_ROW);
  corpus_add(&c, 2, HRI_DOCUMENT_SAME_ROW);
  corpus_add(&c, 1, HRI_DOCUMENT_ROW);
  corpus_add(&c, 1, 0);
  corpus_add(&c, 2, 0);
  rules = rules_for(&c, 4, HR_PACKING_PACK, HR_TRUNCATE_SPLIT);
  assert_string_equal(rows_text(&c, &rules), "[0:0+1] [1:0+1 2:0+2] [3:0+1] [4:0+1 5:0+2] cut 0 dropped 0/0");
  rules = rules_for(&c, 4, HR_PACKING_WRAPPED, HR_TRUNCATE_SPLIT);
  assert_string_equal(rows_text(&c, &rules), "[0:0+1] [1:0+1 2:0+2] [3:0+1] [4:0+1 5:0+2] cut 0 dropped 0/0");
  rules = rules_for(&c, 4, HR_PACKING_OFF, HR_TRUNCATE_SPLIT);
  assert_string_equal(rows_text(&c, &rules), "[0:0+1] [1:0+1 2:0+2] [3:0+1] [4:0+1] [5:0+2] cut 0 dropped 0/0");
  corpus_deinit(&c);
}

static void labels_are_counted_without_first_ones(void **state) {
  static const uint32_t stored[] = {HRI_STORED_SAME,      HRI_STORED_IGNORED, HRI_STORED_SAME,
                                    HRI_STORED_FIRST + 9, HRI_STORED_SAME,    HRI_STORED_IGNORED};
  corpus c;
  hri_pack_rules rules;
  hri_row_index index;
  hri_pack_result result;
  hri_row row;
  (void)state;
  corpus_init(&c);
  corpus_add(&c, 3, HRI_DOCUMENT_LABELS); /* the first label does not count, the second is ignored */
  corpus_add(&c, 3, HRI_DOCUMENT_LABELS); /* the third is ignored */
  assert_int_equal(hri_spool_put(&c.labels, stored, sizeof stored, NULL), HR_OK);
  rules = rules_for(&c, 8, HR_PACKING_PACK, HR_TRUNCATE_SPLIT);
  pack(&rules, &index, &result);
  assert_int_equal(index.row_count, 1);
  assert_int_equal(hri_row_index_rows(&index, 0, &row, 1, NULL), HR_OK);
  assert_int_equal(row.labels, 2);
  assert_int_equal(index.label_count, 2);
  hri_row_index_deinit(&index);
  corpus_deinit(&c);
}

static void a_million_documents_take_bounded_memory(void **state) {
  enum { COUNT = 1000000, SEQUENCE = 2048 };
  dice d = {.seed = 3};
  corpus c = {.documents = hri_spool_init(temporary()), .labels = hri_spool_init(temporary())};
  hri_pack_rules rules;
  hri_row_index index;
  hri_pack_result result;
  uint64_t live, bound;
  (void)state;
  for (int i = 0; i < COUNT; i++) {
    hri_document document = {.place = c.tokens, .length = 1 + roll(&d, SEQUENCE / 2)};
    assert_int_equal(hri_spool_put(&c.documents, &document, sizeof document, NULL), HR_OK);
    c.count++;
    c.tokens += document.length;
  }
  live = hri_mem_live_bytes();
  rules = rules_for(&c, SEQUENCE, HR_PACKING_PACK, HR_TRUNCATE_SPLIT);
  pack(&rules, &index, &result);
  bound = (c.tokens + SEQUENCE - 1) / SEQUENCE;
  assert_true(hri_mem_peak_bytes() <= live + 700 * 1024);
  assert_true(index.row_count <= bound + bound / 500); /* within 0.2 % of full rows */
  hri_row_index_deinit(&index);
  corpus_deinit(&c);
}

static void refused_memory_is_a_clean_error(void **state) {
  corpus c;
  uint64_t live, refused = 0;
  (void)state;
  corpus_init(&c);
  for (int i = 0; i < 100; i++) corpus_add(&c, 1 + (uint64_t)i % 7, 0);
  live = hri_mem_live_bytes();
  for (uint64_t nth = 1;; nth++, refused++) {
    hri_pack_rules rules = rules_for(&c, 8, HR_PACKING_PACK, HR_TRUNCATE_SPLIT);
    hri_row_index index = hri_row_index_init(temporary());
    hri_pack_result result;
    hr_error error = {0};
    hr_status status;
    hri_mem_fail_after(nth);
    status = hri_pack(&rules, &index, &result, &error);
    hri_mem_fail_after(0);
    hri_row_index_deinit(&index);
    assert_int_equal(hri_mem_live_bytes(), live);
    if (status == HR_OK) break;
    assert_int_equal(status, HR_ERROR_MEMORY);
  }
  assert_true(refused >= 6);
  corpus_deinit(&c);
}

#define TEST(name) cmocka_unit_test(name)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_million_documents_take_bounded_memory), /* first: the heap's peak is the process's */
      TEST(no_token_is_lost_or_doubled),
      TEST(best_fit_is_near_the_bound),
      TEST(rows_by_hand),
      TEST(ready_rows_stay_alone),
      TEST(labels_are_counted_without_first_ones),
      TEST(refused_memory_is_a_clean_error),
  };
  return cmocka_run_group_tests_name("data_pack", tests, NULL, NULL);
}
