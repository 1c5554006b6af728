/* The note: what each file was taken for, what is in it, what was ignored; one line for people. */
#include <stdio.h>
#include <string.h>

#include "data/source.h"

enum { NAMED_FILES = 3 };

/* "1,234,567 tokens"; the plural's s falls away at one. */
static void add_count(hri_text *text, uint64_t count, const char *noun) {
  char digits[24];
  int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)count);
  for (int i = 0; i < length; i++) hri_text_add(text, i > 0 && (length - i) % 3 == 0 ? ",%c" : "%c", digits[i]);
  hri_text_add(text, " %s%s", noun, count == 1 ? "" : "s");
}

static const char *const words[HR_DATA_FORMAT_COUNT] = {
    [HR_DATA_TEXT] = "text",
    [HR_DATA_LINES] = "text, a document per line",
    [HR_DATA_TEXT_FIELD] = "text",
    [HR_DATA_PROMPT] = "prompts and completions",
    [HR_DATA_MESSAGES] = "messages",
    [HR_DATA_SHAREGPT] = "ShareGPT conversations",
    [HR_DATA_ALPACA] = "Alpaca instructions",
    [HR_DATA_TOKENS] = "token ids",
    [HR_DATA_NANOGPT] = "nanoGPT token ids (uint16)",
    [HR_DATA_LLMC] = "llm.c token ids",
};

static bool same_kind(const hri_data_source *a, const hri_data_source *b) {
  return a->format == b->format && a->container == b->container;
}

/* Files of one kind, those from `first` on. */
static void add_group(hri_text *text, const hri_dataset *dataset, uint32_t first) {
  const hri_data_source *source = &dataset->sources[first];
  uint32_t count = 0, named = 0;
  for (uint32_t i = first; i < dataset->source_count; i++) {
    if (!same_kind(source, &dataset->sources[i])) continue;
    count++;
    if (named == NAMED_FILES) continue;
    hri_text_add(text, "%s%.200s", named ? ", " : "", dataset->sources[i].path);
    named++;
  }
  if (count > named) hri_text_add(text, " and %u more", count - named);
  hri_text_add(text, ": %s%s",
               source->container == HRI_JSONL        ? "JSONL of "
               : source->container == HRI_PARQUET    ? "Parquet of "
               : source->container == HRI_JSON_ARRAY ? "a JSON array of "
                                                     : "",
               words[source->format]);
}

static void add_kinds(hri_text *text, const hri_dataset *dataset) {
  for (uint32_t i = 0; i < dataset->source_count; i++) {
    uint32_t before = 0;
    while (before < i && !same_kind(&dataset->sources[before], &dataset->sources[i])) before++;
    if (before < i) continue;
    if (i > 0) hri_text_add(text, "; ");
    add_group(text, dataset, i);
  }
  hri_text_add(text, ", ");
}

/* True if some file's words became tokens here. */
static bool has_words(const hri_dataset *dataset) {
  for (uint32_t i = 0; i < dataset->source_count; i++) {
    hr_data_format format = dataset->sources[i].format;
    if (format != HR_DATA_TOKENS && format != HR_DATA_NANOGPT && format != HR_DATA_LLMC) return true;
  }
  return false;
}

static void add_tokens(hri_text *text, const hri_dataset *dataset) {
  const hri_data_found *found = &dataset->found;
  if (dataset->is_bytes) hri_text_add(text, "bytes as tokens, ");
  if (found->chat[0]) hri_text_add(text, "chat template from %s, ", found->chat);
  if (found->facts & HRI_DATA_BEGIN_ADDED)
    hri_text_add(text, "token %d at the begin of each document, ", dataset->encoder->before[0]);
  if (found->facts & HRI_DATA_END_ADDED)
    hri_text_add(text, "token %d at the end of each document, ", dataset->encoder->eos);
}

static void add_facts(hri_text *text, uint32_t facts) {
  static const struct {
    uint32_t fact;
    const char *words;
  } table[] = {
      {HRI_DATA_EMPTY_FILE, "an empty file was passed over"},
      {HRI_DATA_EMPTY_ROW, "rows without tokens were passed over"},
      {HRI_DATA_MARK_DROPPED, "a byte order mark was dropped"},
      {HRI_DATA_IGNORED_MASK, "attention_mask is not used"},
      {HRI_DATA_MASK_ZEROS, "it holds zeros: padding needs labels of -100, or rows without it"},
      {HRI_DATA_IGNORED_POSITIONS,
       "position_ids are not used: positions start at 0 in each document; seq_lengths tells packed ones "
       "apart"},
      {HRI_DATA_IGNORED_TYPES, "token_type_ids are not used"},
      {HRI_DATA_LOOKS_LIKE_JSONL,
       "a file read as text looks like JSONL: name it *.jsonl, or give --format, if its rows are meant"},
      {HRI_DATA_NOT_UTF8,
       "bytes that are not UTF-8 were read as U+FFFD: of text in another encoding the letters are lost (iconv -f ISO-8859-1 -t "
       "UTF-8 FILE > NEW)"},
      {HRI_DATA_WEIGHED, "weights of answers other than 0 count as 1"},
      {HRI_DATA_SYSTEM_TWICE, "system of rows is not used where their messages begin with one of their own"},
      {HRI_DATA_SYSTEM_LOST, "system of rows is lost: this chat template refuses system messages"},
      {HRI_DATA_TOOLS_LOST,
       "tools or tool_calls of rows are lost: this chat template never writes them, and a call becomes an answer without text"},
      {HRI_DATA_PREAMBLE, "Alpaca's own preamble stands for the chat template that this model does not have"},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (facts & table[i].fact) hri_text_add(text, "; %s", table[i].words);
}

static void add_losses(hri_text *text, const hri_dataset *dataset) {
  const hri_data_found *found = &dataset->found;
  const hri_pack_result *packed = &dataset->packed;
  if (found->ignored[0]) hri_text_add(text, "; not used: %s", found->ignored);
  if (found->silent_answers > 0) {
    hri_text_add(text, "; ");
    add_count(text, found->silent_answers, "answer");
    hri_text_add(text, found->silent_answers == 1 ? " of weight 0 does not count" : " of weight 0 do not count");
  }
  if (found->split_prefixes > 0) {
    hri_text_add(text, "; in ");
    add_count(text, found->split_prefixes, "row");
    hri_text_add(
        text,
        " the prompt's last tokens are others before the completion (does it end with a blank?): labels count from the first that differs");
  }
  if (packed->cut_documents > 0 && (found->facts & HRI_DATA_HAS_LABELS || dataset->truncate != HR_TRUNCATE_SPLIT)) {
    hri_text_add(text, "; ");
    add_count(text, packed->cut_documents, "document");
    hri_text_add(text, " longer than a row: %s",
                 dataset->truncate == HR_TRUNCATE_SPLIT        ? "split"
                 : dataset->truncate == HR_TRUNCATE_KEEP_START ? "their ends left out"
                                                               : "their starts left out");
  }
  if (packed->dropped_documents > 0) {
    hri_text_add(text, "; ");
    add_count(text, packed->dropped_documents, "document");
    hri_text_add(text, " longer than a row left out");
  }
  if (found->broken_count > 0) {
    hri_text_add(text, "; ");
    add_count(text, found->broken_count, "broken row");
    hri_text_add(text, " passed over");
    for (uint64_t i = 0; i < found->broken_count && i < 3; i++)
      hri_text_add(text, "%s%s", i ? " | " : ": ", found->broken[i]);
    if (found->broken_count > 3) hri_text_add(text, " | ...");
  }
}

/* The note is for people only: when memory is refused it is short, and nothing fails. */
void hri_data_write_note(hri_dataset *dataset) {
  const hri_row_index *index = &dataset->index;
  double share = 100.0 * (1.0 - (double)index->token_count / ((double)index->row_count * (double)dataset->sequence));
  hri_text text = {0};
  dataset->is_bytes = !dataset->encoder->tokenizer && has_words(dataset);
  add_kinds(&text, dataset);
  add_tokens(&text, dataset);
  add_count(&text, dataset->found.document_count, "document");
  hri_text_add(&text, ", ");
  add_count(&text, index->token_count, "token");
  if (dataset->found.facts & HRI_DATA_HAS_LABELS) {
    hri_text_add(&text, ", ");
    add_count(&text, index->label_count, "counted label");
  }
  hri_text_add(&text, " -> ");
  add_count(&text, index->row_count, "row");
  hri_text_add(&text, " of %u", dataset->sequence);
  if (share >= 1) hri_text_add(&text, " (%.0f %% padding)", share);
  if (dataset->from_cache) hri_text_add(&text, "; tokenized before, from the cache");
  add_facts(&text, dataset->found.facts);
  add_losses(&text, dataset);
  (void)snprintf(dataset->note, sizeof dataset->note, "%s", hri_text_get(&text));
  hri_text_deinit(&text);
}
