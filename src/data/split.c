/* Holding back a share of the documents for evaluation.
 *
 * A document is held back when a digest of its tokens, its labels and the seed, read as a number below 1, lies below the
 * share. So the choice is a matter of each document alone: the same ones in another order, in other files, or beside new
 * ones, are on the same side as before; two equal documents always are, and no copy of a held-back one is trained on.
 * What it costs is that the share is met on average only. Rows that somebody else packed stay whole: their first
 * document decides.
 *
 * Both sides are rows over the documents of one data set: the held-back ones are a second index, and read through the
 * data set that they were split from. */
#include <stdio.h>

#include "base/error.h"
#include "base/number.h"
#include "data/source.h"

enum { DOCUMENTS = 256, TOKENS = 1024 };

typedef struct splitter {
  hri_dataset *from;
  double share;
  uint64_t seed;
  uint64_t *held; /* a bit for each document */
  uint64_t held_count;
} splitter;

static hr_status digest_document(const splitter *s, const hri_document *d, hri_digest *digest, hr_error *error) {
  int32_t ids[TOKENS], labels[TOKENS];
  hri_digest_add_u64(digest, s->seed);
  for (uint64_t done = 0; done < d->length;) {
    uint64_t part = d->length - done < TOKENS ? d->length - done : TOKENS;
    hri_piece piece = hri_piece_of(d, done, part);
    HRI_TRY(hri_dataset_read(s->from, &piece, ids, labels, error));
    hri_digest_add(digest, ids, (size_t)part * sizeof *ids);
    hri_digest_add(digest, labels, (size_t)part * sizeof *labels);
    done += part;
  }
  return HR_OK;
}

static hr_status choose(splitter *s, const hri_document *d, uint64_t index, bool *held, hr_error *error) {
  hri_digest digest = {0};
  if (!(d->flags & HRI_DOCUMENT_SAME_ROW)) {
    HRI_TRY(digest_document(s, d, &digest, error));
    *held = (double)(hri_digest_value(&digest) >> 11) * 0x1p-53 < s->share;
  }
  if (*held) s->held[index / 64] |= 1ull << index % 64;
  s->held_count += *held;
  return HR_OK;
}

static hr_status choose_all(splitter *s, hr_error *error) {
  hri_document documents[DOCUMENTS];
  uint64_t count = s->from->found.document_count;
  bool held = false;
  for (uint64_t first = 0; first < count; first += DOCUMENTS) {
    size_t part = count - first < DOCUMENTS ? (size_t)(count - first) : DOCUMENTS;
    HRI_TRY(hri_spool_read(&s->from->documents, first * sizeof *documents, documents, part * sizeof *documents, error));
    for (size_t i = 0; i < part; i++) HRI_TRY(choose(s, &documents[i], first + i, &held, error));
  }
  return HR_OK;
}

/* Both sides must have something to predict. */
static hr_status check_sides(const splitter *s, const hri_row_index *stay, const hri_row_index *held, hr_error *error) {
  uint64_t count = s->from->found.document_count;
  hr_status status;
  if (stay->label_count > 0 && held->label_count > 0) return HR_OK;
  status = hri_fail(error, HR_ERROR_USAGE,
                    "--eval-split %g %% holds back %llu of %llu document%s, which leaves nothing to %s", 100 * s->share,
                    (unsigned long long)s->held_count, (unsigned long long)count, count == 1 ? "" : "s",
                    held->label_count == 0 ? "evaluate" : "train on");
  if (count == 1)
    return hri_hint(error, status, "a text is one document: give --document-separator, or --eval-data FILE");
  return hri_hint(error, status, "give %s share, or name files with --eval-data",
                  held->label_count == 0 ? "a larger" : "a smaller");
}

static uint64_t mixed(uint64_t hash, const splitter *s) {
  hri_digest digest = {0};
  hri_digest_add_u64(&digest, hash);
  hri_digest_add(&digest, &s->share, sizeof s->share);
  hri_digest_add_u64(&digest, s->seed);
  return hri_digest_value(&digest);
}

static hr_status pack_side(const splitter *s, bool held, hri_row_index *index, hr_error *error) {
  hri_pack_result result;
  hri_pack_rules rules = hri_dataset_rules(s->from, s->from->packing);
  rules.held = s->held;
  rules.takes_held = held;
  *index = hri_row_index_init(s->from->directory);
  return hri_pack(&rules, index, &result, error);
}

/* The view: an index of its own, and all else of the data set that it is of. */
static hr_status make_view(const splitter *s, hri_row_index *index, hri_dataset **view, hr_error *error) {
  hri_dataset *made = hri_alloc_zero(1, sizeof *made);
  if (!made) return hri_fail_memory(error, sizeof *made, "a data set");
  made->of = s->from;
  made->fd = -1;
  made->sequence = s->from->sequence;
  made->vocabulary = s->from->vocabulary;
  made->packing = s->from->packing;
  made->documents = hri_spool_init(NULL);
  made->tokens = hri_spool_init(NULL);
  made->labels = hri_spool_init(NULL);
  made->found.document_count = s->held_count;
  made->hash = mixed(s->from->hash + 1, s);
  made->content_hash = mixed(s->from->content_hash + 1, s);
  made->words_hash = s->from->words_hash;
  made->index = *index;
  *index = hri_row_index_init(NULL);
  (void)
      hri_snprintf(made->note, sizeof made->note,
                   "held back for evaluation: %llu of %llu documents (%.2g %%), chosen by their content and seed %llu",
                   (unsigned long long)s->held_count, (unsigned long long)s->from->found.document_count,
                   100.0 * (double)s->held_count / (double)s->from->found.document_count, (unsigned long long)s->seed);
  *view = made;
  return HR_OK;
}

hr_status hri_dataset_split(hri_dataset *dataset, double share, uint64_t seed, hri_dataset **held, hr_error *error) {
  splitter s = {.from = dataset, .share = share, .seed = seed};
  hri_row_index stay = hri_row_index_init(NULL), back = hri_row_index_init(NULL);
  uint64_t words = dataset->found.document_count / 64 + 1;
  hr_status status = HR_OK;
  *held = NULL;
  s.held = hri_alloc_zero((size_t)words, sizeof *s.held);
  if (!s.held) return hri_fail_memory(error, words * sizeof *s.held, "the choice of documents");
  HRI_TRY_OUT(choose_all(&s, error));
  HRI_TRY_OUT(pack_side(&s, false, &stay, error));
  HRI_TRY_OUT(pack_side(&s, true, &back, error));
  HRI_TRY_OUT(check_sides(&s, &stay, &back, error));
  HRI_TRY_OUT(make_view(&s, &back, held, error));
  hri_row_index_deinit(&dataset->index);
  dataset->index = stay;
  stay = hri_row_index_init(NULL);
  dataset->hash = mixed(dataset->hash, &s);
out:
  hri_row_index_deinit(&stay);
  hri_row_index_deinit(&back);
  hri_free(s.held);
  return status;
}
