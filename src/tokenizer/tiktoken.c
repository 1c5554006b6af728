#include "tokenizer/tiktoken.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "tokenizer/split_internal.h"

enum { FILE_MAX_BYTES = 256 << 20, RANKS_MAX = 1 << 22, TOKEN_MAX_BYTES = 1 << 16 };

typedef struct reader {
  const char *name, *at, *end;
  uint64_t line;
  hri_tiktoken *ranks;
  size_t token_capacity, byte_capacity;
} reader;

static hr_status fail(const reader *r, const char *what, hr_error *error) {
  (void)hri_fail(error, HR_ERROR_INPUT, "%s: line %llu: %s", r->name, (unsigned long long)r->line, what);
  return hri_hint(error, HR_ERROR_INPUT, "each line of a tiktoken file is a token in base64, a blank and its rank");
}

static int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes strict base64 (padded, unused bits zero) and appends the bytes. */
static hr_status read_token(reader *r, const char *text, size_t length, hri_tiktoken_token *token, hr_error *error) {
  hri_tiktoken *ranks = r->ranks;
  size_t padding =
      length >= 4 ? (size_t)(text[length - 1] == '=') + (text[length - 1] == '=' && text[length - 2] == '=') : 0;
  uint32_t bits = 0;
  if (length == 0 || length % 4 != 0 || length > TOKEN_MAX_BYTES) return fail(r, "the token is not base64", error);
  if (!hri_array_reserve_((void **)&ranks->bytes, &r->byte_capacity, ranks->byte_count + length / 4 * 3, 1))
    return hri_fail_memory(error, length, "the tokens of a tokenizer");
  token->at = (uint32_t)ranks->byte_count;
  for (size_t i = 0; i < length; i++) {
    int value = i < length - padding ? base64_value(text[i]) : 0;
    if (value < 0) return fail(r, "the token is not base64", error);
    bits = bits << 6 | (uint32_t)value;
    if (i % 4 != 3) continue;
    for (int shift = 16; shift >= 0; shift -= 8) ranks->bytes[ranks->byte_count++] = (uint8_t)(bits >> shift);
    bits = 0;
  }
  for (size_t i = 0; i < padding; i++)
    if (ranks->bytes[--ranks->byte_count] != 0) return fail(r, "the token is not base64", error);
  token->bytes = (uint32_t)(ranks->byte_count - token->at);
  return HR_OK;
}

static hr_status read_rank(const reader *r, const char *text, const char *end, uint32_t *rank, hr_error *error) {
  *rank = 0;
  if (text == end || (*text == '0' && end - text > 1)) return fail(r, "the rank is no number", error);
  for (; text < end; text++) {
    if (*text < '0' || *text > '9') return fail(r, "the rank is no number", error);
    *rank = *rank * 10 + (uint32_t)(*text - '0');
    if (*rank >= RANKS_MAX) return fail(r, "the rank is above 4,194,303", error);
  }
  return HR_OK;
}

static hr_status read_line(reader *r, const char *line, const char *end, hr_error *error) {
  const char *blank = memchr(line, ' ', (size_t)(end - line));
  hri_tiktoken *ranks = r->ranks;
  hri_tiktoken_token token;
  uint32_t rank;
  if (!blank) return fail(r, "no blank between token and rank", error);
  HRI_TRY(read_rank(r, blank + 1, end, &rank, error));
  HRI_TRY(read_token(r, line, (size_t)(blank - line), &token, error));
  if (rank < ranks->count && ranks->tokens[rank].bytes > 0) return fail(r, "the rank was given before", error);
  if (!hri_array_reserve_((void **)&ranks->tokens, &r->token_capacity, rank + 1, sizeof *ranks->tokens))
    return hri_fail_memory(error, rank * sizeof *ranks->tokens, "the ranks of a tokenizer");
  for (; ranks->count <= rank; ranks->count++) ranks->tokens[ranks->count] = (hri_tiktoken_token){0, 0};
  ranks->tokens[rank] = token;
  return HR_OK;
}

/* Every byte must be a token, or some text could not be written. */
static hr_status check_bytes(const char *name, const hri_tiktoken *ranks, hr_error *error) {
  bool seen[256] = {false};
  for (uint32_t i = 0; i < ranks->count; i++)
    if (ranks->tokens[i].bytes == 1) seen[ranks->bytes[ranks->tokens[i].at]] = true;
  for (uint32_t i = 0; i < 256; i++)
    if (!seen[i])
      return hri_fail(error, HR_ERROR_INPUT, "%s: no token for the byte 0x%02X among %u ranks", name, i, ranks->count);
  return HR_OK;
}

hr_status hri_tiktoken_parse(const char *name, const char *text, uint64_t count, hri_tiktoken *ranks, hr_error *error) {
  reader r = {.name = name, .at = text, .end = text + count, .ranks = ranks};
  hr_status status = HR_OK;
  memset(ranks, 0, sizeof *ranks);
  while (status == HR_OK && r.at < r.end) {
    const char *end = memchr(r.at, '\n', (size_t)(r.end - r.at)), *next = end ? end + 1 : r.end;
    if (!end) end = r.end;
    r.line++;
    if (end > r.at && end[-1] == '\r') end--;
    if (end > r.at) status = read_line(&r, r.at, end, error);
    r.at = next;
  }
  if (status == HR_OK) status = check_bytes(name, ranks, error);
  if (status != HR_OK) hri_tiktoken_deinit(ranks);
  return status;
}

hr_status hri_tiktoken_read(const char *path, hri_tiktoken *ranks, hr_error *error) {
  char *text = NULL;
  uint64_t count = 0;
  hr_status status;
  memset(ranks, 0, sizeof *ranks);
  HRI_TRY(hri_file_read(path, FILE_MAX_BYTES, &text, &count, error));
  status = hri_tiktoken_parse(path, text, count, ranks, error);
  hri_free(text);
  return status;
}

void hri_tiktoken_deinit(hri_tiktoken *ranks) {
  hri_free(ranks->tokens);
  hri_free(ranks->bytes);
  memset(ranks, 0, sizeof *ranks);
}

/* ---- families ---- */

/* Names as of Llama 3.1 to 3.3; 3.0 has reserved tokens in place of those for padding, messages and Python. */
static const hri_tiktoken_special llama3[] =
    {{"<|begin_of_text|>", 128000},   {"<|end_of_text|>", 128001},   {"<|finetune_right_pad_id|>", 128004},
     {"<|start_header_id|>", 128006}, {"<|end_header_id|>", 128007}, {"<|eom_id|>", 128008},
     {"<|eot_id|>", 128009},          {"<|python_tag|>", 128010}};
static const hri_tiktoken_special qwen2[] = {{"<|endoftext|>", 151643},
                                             {"<|im_start|>", 151644},
                                             {"<|im_end|>", 151645}};
static const hri_tiktoken_special gpt2[] = {{"<|endoftext|>", 50256}};
static const hri_tiktoken_special cl100k[] = {{"<|endoftext|>", 100257},
                                              {"<|fim_prefix|>", 100258},
                                              {"<|fim_middle|>", 100259},
                                              {"<|fim_suffix|>", 100260},
                                              {"<|endofprompt|>", 100276}};
static const hri_tiktoken_special o200k[] = {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}};
#define LIST(specials) specials, sizeof specials / sizeof *specials

static const hri_tiktoken_family families[] = {
    {"llama3", HRI_PATTERN_LLAMA3, 128000, LIST(llama3), 128256, true, "<|begin_of_text|>"},
    {"qwen2", HRI_PATTERN_QWEN2, 151643, LIST(qwen2), 151646, false, NULL},
    {"gpt2", HRI_PATTERN_GPT2, 50256, LIST(gpt2), 50257, false, NULL},
    {"cl100k", HRI_PATTERN_LLAMA3, 100256, LIST(cl100k), 100277, false, NULL},
    {"o200k", HRI_PATTERN_O200K, 199998, LIST(o200k), 200019, false, NULL},
};

const hri_tiktoken_family *hri_tiktoken_family_find(uint32_t rank_count) {
  for (uint32_t i = 0; i < sizeof families / sizeof *families; i++)
    if (families[i].rank_count == rank_count) return &families[i];
  return NULL;
}

uint32_t hri_tiktoken_special_total(const hri_tiktoken_family *family) {
  return family->reserves ? family->total_count - family->rank_count : family->special_count;
}

hri_tiktoken_special hri_tiktoken_special_at(const hri_tiktoken_family *family, uint32_t index, char room[64]) {
  uint32_t id = family->rank_count + index, named = 0;
  if (!family->reserves) return family->special[index];
  for (; named < family->special_count && family->special[named].id <= id; named++)
    if (family->special[named].id == id) return family->special[named];
  (void)snprintf(room, 64, "<|reserved_special_token_%u|>", index - named);
  return (hri_tiktoken_special){room, id};
}
