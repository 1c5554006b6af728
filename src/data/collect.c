/* What the readers of the formats add to a data set: tokens, documents, broken rows, ignored columns. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "data/source.h"

/* Keeps the longest documents, the first of equals in front. */
static void note_longest(hri_data_found *found, const hri_document *document) {
  uint32_t at = found->longest_count;
  while (at > 0 && found->longest[at - 1].length < document->length) at--;
  if (at == HR_DATA_LONGEST) return;
  if (found->longest_count < HR_DATA_LONGEST) found->longest_count++;
  memmove(found->longest + at + 1, found->longest + at, (found->longest_count - at - 1) * sizeof *found->longest);
  found->longest[at] = *document;
}

hr_status hri_data_add_document(hri_dataset *dataset, hri_document document, uint64_t labels, hr_error *error) {
  hri_data_found *found = &dataset->found;
  found->document_count++;
  found->token_count += document.length;
  found->label_count += labels;
  hri_data_current(dataset)->documents++;
  note_longest(found, &document);
  return hri_spool_put(&dataset->documents, &document, sizeof document, error);
}

hr_status hri_data_go_on(const hri_dataset *dataset, hr_error *error) {
  const hri_dataset_options *o = dataset->options;
  if (!o->should_stop || !o->should_stop(o->stop_context)) return HR_OK;
  return hri_fail(error, HR_ERROR_INTERRUPTED, "stopped while %s was read", hri_data_current(dataset)->path);
}

hr_status hri_data_put_ids(hri_dataset *dataset, const int32_t *ids, uint64_t count, hr_error *error) {
  const uint64_t most = HRI_SPOOL_BYTES / sizeof *ids;
  while (count > 0) {
    uint64_t part = count < most ? count : most;
    HRI_TRY(hri_spool_put(&dataset->tokens, ids, part * sizeof *ids, error));
    ids += part;
    count -= part;
  }
  return HR_OK;
}

hr_status hri_data_put_end(hri_dataset *dataset, uint64_t first, hr_error *error) {
  const hri_encoder *e = dataset->encoder;
  int32_t last = -1;
  HRI_TRY(hri_data_put_ids(dataset, e->after, e->after_count, error));
  if (e->eos < 0) return HR_OK;
  if (hri_data_store_count(dataset) > first)
    HRI_TRY(
        hri_spool_read(&dataset->tokens, hri_spool_size(&dataset->tokens) - sizeof last, &last, sizeof last, error));
  if (last == e->eos) return HR_OK;
  dataset->found.facts |= HRI_DATA_END_ADDED;
  return hri_data_put_ids(dataset, &e->eos, 1, error);
}

static hr_status put_counted(hri_dataset *dataset, uint64_t first, const uint8_t *counted, uint64_t count,
                             hr_error *error) {
  HRI_TRY(hri_spool_grow(&dataset->labels, first * sizeof(uint32_t), error));
  for (uint64_t i = 0; i < count; i++) {
    uint32_t stored = counted[i] ? HRI_STORED_SAME : HRI_STORED_IGNORED;
    HRI_TRY(hri_spool_put(&dataset->labels, &stored, sizeof stored, error));
  }
  return HR_OK;
}

hr_status hri_data_add_tokens(hri_dataset *dataset, const int32_t *ids, const uint8_t *counted, uint64_t count,
                              uint64_t line, hr_error *error) {
  hri_document document = {.place = hri_data_store_count(dataset),
                           .length = count,
                           .source = dataset->current,
                           .line = line};
  uint64_t labels = count - 1;
  if (count == 0) {
    dataset->found.facts |= HRI_DATA_EMPTY_ROW;
    dataset->found.empty_count++;
    return HR_OK;
  }
  HRI_TRY(hri_data_put_ids(dataset, ids, count, error));
  if (counted) {
    labels = 0;
    for (uint64_t i = 1; i < count; i++) labels += counted[i] != 0;
    document.flags = HRI_DOCUMENT_LABELS;
    dataset->found.facts |= HRI_DATA_HAS_LABELS;
    HRI_TRY(put_counted(dataset, document.place, counted, count, error));
  }
  return hri_data_add_document(dataset, document, labels, error);
}

/* Whoever wrote the reason knew the row, or its template, and not that a row can be left out. */
static void offer_skipping(hr_error *error) {
  const size_t used = strlen(error->hint);
  if (strstr(error->hint, "--skip-bad")) return;
  (void)snprintf(error->hint + used, sizeof error->hint - used,
                 "%swhere the row is at fault, --skip-bad passes over it", used ? "; " : "");
}

hr_status hri_data_broken(hri_dataset *dataset, hr_status status, const hr_error *reason, hr_error *error) {
  hri_data_found *found = &dataset->found;
  if (status != HR_ERROR_INPUT || !dataset->options->skip_bad) {
    if (error) *error = *reason;
    if (error) hri_plain_text(error->message, ""); /* reasons quote data */
    if (error && status == HR_ERROR_INPUT) offer_skipping(error);
    return status;
  }
  if (found->broken_count < HR_DATA_BROKEN) {
    char *line = found->broken[found->broken_count];
    (void)snprintf(line, HRI_DATA_BROKEN_BYTES, "%.240s", reason->message);
    if (strncmp(reason->hint, "did you mean", strlen("did you mean")) == 0) /* short, and all there is to it */
      (void)snprintf(line + strlen(line), HRI_DATA_BROKEN_BYTES - strlen(line), " (%.70s)", reason->hint);
    else (void)snprintf(line, HRI_DATA_BROKEN_BYTES, "%.319s", reason->message);
    hri_plain_text(found->broken[found->broken_count], "");
  }
  found->broken_count++;
  return HR_OK;
}

hr_status hri_data_mend(hri_dataset *dataset, hr_error *error) {
  uint64_t labels = hri_spool_size(&dataset->labels), tokens = hri_spool_size(&dataset->tokens);
  return labels > tokens ? hri_spool_grow(&dataset->tokens, labels, error) : HR_OK;
}

void hri_data_ignore(hri_dataset *dataset, const char *name) {
  char *list = dataset->found.ignored;
  size_t used = strlen(list), length = strlen(name);
  if (used + length + 3 > HRI_DATA_IGNORED_BYTES || length == 0) return;
  for (const char *at = list; (at = strstr(at, name)); at++) /* named before? */
    if ((at == list || at[-1] == ' ') && (at[length] == 0 || at[length] == ',')) return;
  (void)snprintf(list + used, HRI_DATA_IGNORED_BYTES - used, "%s%s", used ? ", " : "", name);
  hri_plain_text(list + used, "");
}
