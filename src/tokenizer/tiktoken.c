#include "tokenizer/tiktoken.h"

#include <assert.h>
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
/* Whisper's languages: older models have all but the last. */
static const char languages[][4] = {"en", "zh", "de",  "es", "ru", "ko", "fr", "ja", "pt", "tr", "pl", "ca", "nl",
                                    "ar", "sv", "it",  "id", "hi", "fi", "vi", "he", "uk", "el", "ms", "cs", "ro",
                                    "da", "hu", "ta",  "no", "th", "ur", "hr", "bg", "lt", "la", "mi", "ml", "cy",
                                    "sk", "te", "fa",  "lv", "bn", "sr", "az", "sl", "kn", "et", "mk", "br", "eu",
                                    "is", "hy", "ne",  "mn", "bs", "kk", "sq", "sw", "gl", "mr", "pa", "si", "km",
                                    "sn", "yo", "so",  "af", "oc", "ka", "be", "tg", "sd", "gu", "am", "yi", "lo",
                                    "uz", "fo", "ht",  "ps", "tk", "nn", "mt", "sa", "lb", "my", "bo", "tl", "mg",
                                    "as", "tt", "haw", "ln", "ha", "ba", "jw", "su", "yue"};
#define WHISPER(first, language_count)                                                                                 \
  {ONE("<|endoftext|>", first),                                                                                        \
   ONE("<|startoftranscript|>", (first) + 1),                                                                          \
   {"<|%l|>", (first) + 2, language_count, 0},                                                                         \
   ONE("<|translate|>", (first) + (language_count) + 2),                                                               \
   ONE("<|transcribe|>", (first) + (language_count) + 3),                                                              \
   ONE("<|startoflm|>", (first) + (language_count) + 4),                                                               \
   ONE("<|startofprev|>", (first) + (language_count) + 5),                                                             \
   ONE("<|nospeech|>", (first) + (language_count) + 6),                                                                \
   ONE("<|notimestamps|>", (first) + (language_count) + 7),                                                            \
   {"<|%t|>", (first) + (language_count) + 8, 1501, 0}}
static const hri_tiktoken_special whisper_en[] = WHISPER(50256, 99);
static const hri_tiktoken_special whisper[] = WHISPER(50257, 99);
static const hri_tiktoken_special whisper_v3[] = WHISPER(50257, 100);
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
    {"whisper of English", HRI_PATTERN_GPT2, 50256, LIST(whisper_en), NULL, NULL},
    {"whisper", HRI_PATTERN_GPT2, 50257, LIST(whisper), NULL, NULL},
    {"whisper of 100 languages", HRI_PATTERN_GPT2, 50257, LIST(whisper_v3), NULL, NULL},
    {"cl100k", HRI_PATTERN_LLAMA3, 100256, LIST(cl100k), NULL, NULL},
    {"o200k", HRI_PATTERN_O200K, 199998, LIST(o200k), NULL, NULL},
};

enum { FAMILIES = sizeof families / sizeof *families };

const hri_tiktoken_family *hri_tiktoken_family_find(uint32_t rank_count, uint64_t vocabulary) {
  const hri_tiktoken_family *found = NULL;
  for (uint32_t i = 0; i < FAMILIES; i++) {
    if (families[i].rank_count != rank_count) continue;
    if (rank_count + hri_tiktoken_special_total(&families[i]) == vocabulary) return &families[i];
    if (!found) found = &families[i];
  }
  return found;
}

bool hri_tiktoken_family_is_single(uint32_t rank_count) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < FAMILIES; i++) found += families[i].rank_count == rank_count;
  return found <= 1;
}

uint32_t hri_tiktoken_special_total(const hri_tiktoken_family *family) {
  uint32_t total = 0;
  for (uint32_t i = 0; i < family->special_count; i++) total += family->special[i].count;
  return total;
}

/* Prints what stands for the number in a name; the names are ours. */
static void put_numbered(char room[64], const char *content, const char *place, uint32_t number) {
  char part[24];
  switch (place[1]) {
  case 'l':
    assert(number < sizeof languages / sizeof *languages);
    (void)snprintf(part, sizeof part, "%s", languages[number]);
    break;
  case 't': (void)snprintf(part, sizeof part, "%u.%02u", number / 50, number % 50 * 2); break;
  default: (void)snprintf(part, sizeof part, "%u", number);
  }
  (void)snprintf(room, 64, "%.*s%s%s", (int)(place - content), content, part, place + 2);
}

hri_tiktoken_special hri_tiktoken_special_at(const hri_tiktoken_family *family, uint32_t index, char room[64]) {
  const hri_tiktoken_special *run = family->special;
  const char *place;
  for (; index >= run->count; run++) index -= run->count;
  place = strchr(run->content, '%');
  if (!place) return *run;
  put_numbered(room, run->content, place, run->number + index);
  return (hri_tiktoken_special){room, run->id + index, 1, 0};
}
