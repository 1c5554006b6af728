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

bool hri_base64_decode(const char *text, size_t length, uint8_t **out, size_t *capacity, uint64_t *count,
                       bool *refused) {
  size_t padding =
      length >= 4 ? (size_t)(text[length - 1] == '=') + (text[length - 1] == '=' && text[length - 2] == '=') : 0;
  uint32_t bits = 0;
  *refused = false;
  if (length == 0 || length % 4 != 0) return false;
  *refused = !hri_array_reserve_((void **)out, capacity, *count + length / 4 * 3, 1);
  if (*refused) return false;
  for (size_t i = 0; i < length; i++) {
    int value = i < length - padding ? base64_value(text[i]) : 0;
    if (value < 0) return false;
    bits = bits << 6 | (uint32_t)value;
    if (i % 4 != 3) continue;
    for (int shift = 16; shift >= 0; shift -= 8) (*out)[(*count)++] = (uint8_t)(bits >> shift);
    bits = 0;
  }
  for (size_t i = 0; i < padding; i++)
    if ((*out)[--*count] != 0) return false;
  return true;
}

static hr_status read_token(reader *r, const char *text, size_t length, hri_tiktoken_token *token, hr_error *error) {
  hri_tiktoken *ranks = r->ranks;
  bool refused;
  token->at = (uint32_t)ranks->byte_count;
  token->bytes = 0;
  if (length == 1 && text[0] == '=') return HR_OK; /* a rank without token, as whisper's last */
  if (length > TOKEN_MAX_BYTES) return fail(r, "the token has more than 64 KiB", error);
  if (!hri_base64_decode(text, length, &ranks->bytes, &r->byte_capacity, &ranks->byte_count, &refused))
    return refused ? hri_fail_memory(error, length, "the tokens of a tokenizer")
                   : fail(r, "the token is not base64", error);
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

hr_status hri_tiktoken_check_bytes(const char *name, const hri_tiktoken *ranks, hr_error *error) {
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
  if (status == HR_OK) status = hri_tiktoken_check_bytes(name, ranks, error);
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

#define ONE(content, id) {content, id, 1, 0}
/* Names as of Llama 3.1 to 3.3; 3.0 has reserved tokens in place of those for padding, messages and Python. */
static const hri_tiktoken_special llama3[] = {ONE("<|begin_of_text|>", 128000),
                                              ONE("<|end_of_text|>", 128001),
                                              {"<|reserved_special_token_%u|>", 128002, 2, 0},
                                              ONE("<|finetune_right_pad_id|>", 128004),
                                              {"<|reserved_special_token_%u|>", 128005, 1, 2},
                                              ONE("<|start_header_id|>", 128006),
                                              ONE("<|end_header_id|>", 128007),
                                              ONE("<|eom_id|>", 128008),
                                              ONE("<|eot_id|>", 128009),
                                              ONE("<|python_tag|>", 128010),
                                              {"<|reserved_special_token_%u|>", 128011, 245, 3}};
static const hri_tiktoken_special llama4[] = {ONE("<|begin_of_text|>", 200000),
                                              ONE("<|end_of_text|>", 200001),
                                              ONE("<|fim_prefix|>", 200002),
                                              ONE("<|fim_middle|>", 200003),
                                              ONE("<|fim_suffix|>", 200004),
                                              ONE("<|header_start|>", 200005),
                                              ONE("<|header_end|>", 200006),
                                              ONE("<|eom|>", 200007),
                                              ONE("<|eot|>", 200008),
                                              ONE("<|step|>", 200009),
                                              {"<|text_post_train_reserved_special_token_%u|>", 200010, 6, 0},
                                              ONE("<|python_start|>", 200016),
                                              ONE("<|python_end|>", 200017),
                                              ONE("<|finetune_right_pad|>", 200018),
                                              {"<|text_post_train_reserved_special_token_%u|>", 200019, 61, 8},
                                              ONE("<|image_start|>", 200080),
                                              ONE("<|image_end|>", 200081),
                                              {"<|vision_reserved_special_token_%u|>", 200082, 2, 0},
                                              ONE("<|tile_x_separator|>", 200084),
                                              ONE("<|tile_y_separator|>", 200085),
                                              {"<|vision_reserved_special_token_%u|>", 200086, 4, 2},
                                              ONE("<|image|>", 200090),
                                              {"<|vision_reserved_special_token_%u|>", 200091, 1, 6},
                                              ONE("<|patch|>", 200092),
                                              {"<|vision_reserved_special_token_%u|>", 200093, 1041, 7},
                                              {"<|reasoning_reserved_special_token_%u|>", 201134, 8, 0},
                                              ONE("<|reasoning_thinking_start|>", 201142),
                                              ONE("<|reasoning_thinking_end|>", 201143),
                                              {"<|reserved_special_token_%u|>", 201144, 904, 0}};
static const hri_tiktoken_special qwen[] = {ONE("<|endoftext|>", 151643),
                                            ONE("<|im_start|>", 151644),
                                            ONE("<|im_end|>", 151645),
                                            {"<|extra_%u|>", 151646, 205, 0}};
static const hri_tiktoken_special gpt2[] = {ONE("<|endoftext|>", 50256)};
/* The multilingual ranks. Behind these 99 languages models of 100 languages differ, and the file does not say which it
 * belongs to: the tokens for tasks and times have no names here. */
static const hri_tiktoken_special whisper[] = {ONE("<|endoftext|>", 50257), ONE("<|startoftranscript|>", 50258),
                                               ONE("<|en|>", 50259),        ONE("<|zh|>", 50260),
                                               ONE("<|de|>", 50261),        ONE("<|es|>", 50262),
                                               ONE("<|ru|>", 50263),        ONE("<|ko|>", 50264),
                                               ONE("<|fr|>", 50265),        ONE("<|ja|>", 50266),
                                               ONE("<|pt|>", 50267),        ONE("<|tr|>", 50268),
                                               ONE("<|pl|>", 50269),        ONE("<|ca|>", 50270),
                                               ONE("<|nl|>", 50271),        ONE("<|ar|>", 50272),
                                               ONE("<|sv|>", 50273),        ONE("<|it|>", 50274),
                                               ONE("<|id|>", 50275),        ONE("<|hi|>", 50276),
                                               ONE("<|fi|>", 50277),        ONE("<|vi|>", 50278),
                                               ONE("<|he|>", 50279),        ONE("<|uk|>", 50280),
                                               ONE("<|el|>", 50281),        ONE("<|ms|>", 50282),
                                               ONE("<|cs|>", 50283),        ONE("<|ro|>", 50284),
                                               ONE("<|da|>", 50285),        ONE("<|hu|>", 50286),
                                               ONE("<|ta|>", 50287),        ONE("<|no|>", 50288),
                                               ONE("<|th|>", 50289),        ONE("<|ur|>", 50290),
                                               ONE("<|hr|>", 50291),        ONE("<|bg|>", 50292),
                                               ONE("<|lt|>", 50293),        ONE("<|la|>", 50294),
                                               ONE("<|mi|>", 50295),        ONE("<|ml|>", 50296),
                                               ONE("<|cy|>", 50297),        ONE("<|sk|>", 50298),
                                               ONE("<|te|>", 50299),        ONE("<|fa|>", 50300),
                                               ONE("<|lv|>", 50301),        ONE("<|bn|>", 50302),
                                               ONE("<|sr|>", 50303),        ONE("<|az|>", 50304),
                                               ONE("<|sl|>", 50305),        ONE("<|kn|>", 50306),
                                               ONE("<|et|>", 50307),        ONE("<|mk|>", 50308),
                                               ONE("<|br|>", 50309),        ONE("<|eu|>", 50310),
                                               ONE("<|is|>", 50311),        ONE("<|hy|>", 50312),
                                               ONE("<|ne|>", 50313),        ONE("<|mn|>", 50314),
                                               ONE("<|bs|>", 50315),        ONE("<|kk|>", 50316),
                                               ONE("<|sq|>", 50317),        ONE("<|sw|>", 50318),
                                               ONE("<|gl|>", 50319),        ONE("<|mr|>", 50320),
                                               ONE("<|pa|>", 50321),        ONE("<|si|>", 50322),
                                               ONE("<|km|>", 50323),        ONE("<|sn|>", 50324),
                                               ONE("<|yo|>", 50325),        ONE("<|so|>", 50326),
                                               ONE("<|af|>", 50327),        ONE("<|oc|>", 50328),
                                               ONE("<|ka|>", 50329),        ONE("<|be|>", 50330),
                                               ONE("<|tg|>", 50331),        ONE("<|sd|>", 50332),
                                               ONE("<|gu|>", 50333),        ONE("<|am|>", 50334),
                                               ONE("<|yi|>", 50335),        ONE("<|lo|>", 50336),
                                               ONE("<|uz|>", 50337),        ONE("<|fo|>", 50338),
                                               ONE("<|ht|>", 50339),        ONE("<|ps|>", 50340),
                                               ONE("<|tk|>", 50341),        ONE("<|nn|>", 50342),
                                               ONE("<|mt|>", 50343),        ONE("<|sa|>", 50344),
                                               ONE("<|lb|>", 50345),        ONE("<|my|>", 50346),
                                               ONE("<|bo|>", 50347),        ONE("<|tl|>", 50348),
                                               ONE("<|mg|>", 50349),        ONE("<|as|>", 50350),
                                               ONE("<|tt|>", 50351),        ONE("<|haw|>", 50352),
                                               ONE("<|ln|>", 50353),        ONE("<|ha|>", 50354),
                                               ONE("<|ba|>", 50355),        ONE("<|jw|>", 50356),
                                               ONE("<|su|>", 50357)};
static const hri_tiktoken_special cl100k[] = {ONE("<|endoftext|>", 100257), ONE("<|fim_prefix|>", 100258),
                                              ONE("<|fim_middle|>", 100259), ONE("<|fim_suffix|>", 100260),
                                              ONE("<|endofprompt|>", 100276)};
static const hri_tiktoken_special o200k[] = {ONE("<|endoftext|>", 199999), ONE("<|endofprompt|>", 200018)};
#define LIST(specials) specials, sizeof specials / sizeof *specials

static const hri_tiktoken_family families[] = {
    {"llama3", HRI_PATTERN_LLAMA3, 128000, LIST(llama3), "<|begin_of_text|>", NULL},
    {"llama4", HRI_PATTERN_O200K, 200000, LIST(llama4), "<|begin_of_text|>", NULL},
    {"qwen", HRI_PATTERN_QWEN2, 151643, LIST(qwen), NULL, "{\"type\":\"NFC\"}"},
    {"gpt2", HRI_PATTERN_GPT2, 50256, LIST(gpt2), NULL, NULL},
    {"whisper", HRI_PATTERN_GPT2, 50257, LIST(whisper), NULL, NULL},
    {"cl100k", HRI_PATTERN_LLAMA3, 100256, LIST(cl100k), NULL, NULL},
    {"o200k", HRI_PATTERN_O200K, 199998, LIST(o200k), NULL, NULL},
};

const hri_tiktoken_family *hri_tiktoken_family_find(uint32_t rank_count) {
  for (uint32_t i = 0; i < sizeof families / sizeof *families; i++)
    if (families[i].rank_count == rank_count) return &families[i];
  return NULL;
}

uint32_t hri_tiktoken_special_total(const hri_tiktoken_family *family) {
  uint32_t total = 0;
  for (uint32_t i = 0; i < family->special_count; i++) total += family->special[i].count;
  return total;
}

/* Prints the one %u of a name; the names are ours. */
static void put_numbered(char room[64], const char *content, uint32_t number) {
  const char *place = strstr(content, "%u");
  (void)snprintf(room, 64, "%.*s%u%s", (int)(place - content), content, number, place + 2);
}

hri_tiktoken_special hri_tiktoken_special_at(const hri_tiktoken_family *family, uint32_t index, char room[64]) {
  const hri_tiktoken_special *run = family->special;
  for (; index >= run->count; run++) index -= run->count;
  if (!strstr(run->content, "%u")) return *run;
  put_numbered(room, run->content, run->number + index);
  return (hri_tiktoken_special){room, run->id + index, 1, 0};
}
