/* Splitters, characters and normalizers against what the reference package gave (tests/parity/record_splits.py): stored
 * texts piece by piece, and digests over thousands of random texts and over all code points. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "support/cpu_seconds.h"
#include "tokenizer/normalize.h"
#include "tokenizer/split.h"
#include "tokenizer/split_internal.h"
#include "tokenizer/unicode.h"

#define SPLITS HR_TEST_DATA "/parity/splits/splits.json"
#define NORMALIZERS HR_TEST_DATA "/parity/splits/normalizers.json"

/* ---- what record_splits.py has as well: the generator of texts, and the digest ---- */

typedef struct alphabet {
  uint32_t points[512];
  uint32_t count, texts; /* texts: how many random ones */
} alphabet;

static uint32_t next_random(uint64_t *state, uint32_t bound) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((*state >> 33) % bound);
}

static size_t random_text(uint64_t *state, const alphabet *from, char out[256]) {
  uint32_t last = 0, length = 1 + next_random(state, 32);
  size_t bytes = 0;
  for (uint32_t i = 0; i < length; i++) {
    if (i == 0 || next_random(state, 4) != 0) last = from->points[next_random(state, from->count)];
    bytes += hri_utf8_encode(last, out + bytes);
  }
  return bytes;
}

/* The text of 64 code points from `begin` on; at most 64 * 36 bytes. */
static size_t point_text(uint32_t begin, char out[4096]) {
  static const char *const between[] = {"a", "1", " ", "'", "", "A"};
  size_t bytes = 0;
  for (uint32_t point = begin; point < begin + 64; point++)
    for (uint32_t i = 0; i < 6; i++) {
      bytes += hri_utf8_encode(point, out + bytes);
      if (i == 2) out[bytes++] = ' ';
      else bytes += strlen(strcpy(out + bytes, between[i]));
    }
  return bytes;
}

/* CRC-32 as zlib has it, over bytes and over 32-bit numbers, four bytes at a time. */
static uint32_t crc[4][256];

static void make_crc(void) {
  for (uint32_t i = 0; i < 256; i++) {
    crc[0][i] = i;
    for (int bit = 0; bit < 8; bit++) crc[0][i] = crc[0][i] >> 1 ^ (crc[0][i] & 1 ? 0xEDB88320u : 0);
  }
  for (uint32_t i = 0; i < 256; i++)
    for (uint32_t k = 1; k < 4; k++) crc[k][i] = crc[k - 1][i] >> 8 ^ crc[0][crc[k - 1][i] & 255];
}
static void digest_byte(uint32_t *digest, uint8_t byte) {
  uint32_t value = ~*digest;
  *digest = ~(value >> 8 ^ crc[0][(value ^ byte) & 255]);
}
static void digest_number(uint32_t *digest, uint32_t number) {
  uint32_t value = ~*digest ^ number;
  *digest = ~(crc[3][value & 255] ^ crc[2][value >> 8 & 255] ^ crc[1][value >> 16 & 255] ^ crc[0][value >> 24]);
}

static void must(hr_status status, const hr_error *error) {
  if (status != HR_OK) fail_msg("%s", error->message);
}

static hri_json open_json(const char *path) {
  hri_json root;
  hr_error error;
  must(hri_json_read(path, 64 << 20, &root, &error), &error);
  return root;
}

static const char *string_of(const hri_json *object, const char *key) {
  const char *value = NULL;
  hr_error error;
  must(hri_json_get_string(object, key, &value, &error), &error);
  return value;
}

static hri_json array_of(const hri_json *object, const char *key) {
  hri_json child;
  hr_error error;
  must(hri_json_get_array(object, key, &child, &error), &error);
  return child;
}

static alphabet read_alphabet(const hri_json *root) {
  alphabet made = {.count = 0};
  hri_json list = array_of(root, "alphabet");
  assert_true(hri_json_count(&list) <= 512);
  for (uint64_t i = 0; i < hri_json_count(&list); i++) {
    hri_json item = hri_json_item(&list, i);
    made.points[made.count++] = (uint32_t)json_integer_value(item.value);
  }
  made.texts = (uint32_t)json_integer_value(hri_json_member(root, "random_texts").value);
  assert_true(made.texts >= 1000);
  return made;
}

/* ---- splitters ---- */

static hr_status make_splitter(const hri_json *item, hri_splitter **splitter, hr_error *error) {
  const char *kind = string_of(item, "kind");
  hri_json pattern = hri_json_member(item, "pattern");
  const char *text = json_is_string(pattern.value) ? json_string_value(pattern.value) : "";
  bool invert = json_is_true(hri_json_member(item, "invert").value);
  hri_split_behavior behavior = HRI_SPLIT_ISOLATED;
  if (strcmp(kind, "Digits") == 0)
    return hri_splitter_create_class(HRI_SPLIT_DIGITS,
                                     json_is_true(pattern.value) ? HRI_SPLIT_ISOLATED : HRI_SPLIT_CONTIGUOUS, false,
                                     splitter, error);
  if (strcmp(kind, "WhitespaceSplit") == 0)
    return hri_splitter_create_class(HRI_SPLIT_SPACES, HRI_SPLIT_REMOVED, false, splitter, error);
  assert_true(
      hri_split_behavior_parse(strcmp(kind, "Punctuation") == 0 ? text : string_of(item, "behavior"), &behavior));
  if (strcmp(kind, "Punctuation") == 0)
    return hri_splitter_create_class(HRI_SPLIT_PUNCTUATION, behavior, false, splitter, error);
  if (strcmp(kind, "String") == 0)
    return hri_splitter_create_literal(text, strlen(text), behavior, invert, splitter, error);
  assert_string_equal(kind, "Regex");
  return hri_splitter_create_regex(text, strlen(text), behavior, invert, splitter, error);
}

/* Adds the pieces of a text to a digest. */
static void digest_pieces(hri_split *split, const hri_splitter *splitter, const char *text, size_t bytes,
                          uint32_t *digest) {
  hri_split_piece pieces[16];
  uint32_t count;
  hr_error error;
  must(hri_split_begin(split, splitter, text, bytes, &error), &error);
  do {
    must(hri_split_next(split, pieces, 16, &count, &error), &error);
    for (uint32_t i = 0; i < count; i++) {
      digest_number(digest, pieces[i].begin);
      digest_number(digest, pieces[i].end);
    }
  } while (count > 0);
}

static void check_stored(const hri_json *item, const hri_splitter *splitter, const char *text,
                         const hri_json *expected) {
  hri_split split = {0};
  hri_split_piece pieces[512];
  uint32_t count = 0, more;
  hr_error error;
  must(hri_split_begin(&split, splitter, text, strlen(text), &error), &error);
  do {
    must(hri_split_next(&split, pieces + count, 512 - count, &more, &error), &error);
    count += more;
  } while (more > 0);
  for (uint32_t i = 0; i < count * 2; i++) {
    hri_json want = hri_json_item(expected, i);
    uint32_t have = i % 2 ? pieces[i / 2].end : pieces[i / 2].begin;
    if (i >= hri_json_count(expected) || have != (uint32_t)json_integer_value(want.value))
      fail_msg("%s %s: text '%s': piece %u is %u..%u", item->path, string_of(item, "kind"), text, i / 2,
               pieces[i / 2].begin, pieces[i / 2].end);
  }
  if (count * 2 != hri_json_count(expected)) fail_msg("%s: text '%s': %u pieces", item->path, text, count);
  hri_split_end(&split);
}

static void check_digest(const hri_json *item, const char *key, uint32_t digest) {
  char text[9];
  (void)snprintf(text, sizeof text, "%08x", digest);
  if (strcmp(text, string_of(item, key)) != 0)
    fail_msg("%s (%s): the digest '%s' differs", item->path, json_string_value(hri_json_member(item, "pattern").value),
             key);
}

static void check_case(const hri_json *item, const hri_json *texts, const alphabet *from) {
  hri_splitter *splitter;
  hri_split split = {0};
  hri_json stored = array_of(item, "pieces");
  uint64_t state = 1;
  uint32_t digest = 0;
  char text[4096];
  hr_error error;
  must(make_splitter(item, &splitter, &error), &error);
  assert_int_equal(hri_json_count(&stored), hri_json_count(texts));
  for (uint64_t i = 0; i < hri_json_count(texts); i++) {
    hri_json expected = hri_json_item(&stored, i);
    check_stored(item, splitter, json_string_value(hri_json_item(texts, i).value), &expected);
  }
  for (uint32_t i = 0; i < from->texts; i++)
    digest_pieces(&split, splitter, text, random_text(&state, from, text), &digest);
  check_digest(item, "random", digest);
  if (hri_json_has(item, "points")) {
    digest = 0;
    for (uint32_t begin = 0; begin < HRI_UNICODE_END; begin += 64)
      if (begin < 0xD800 || begin >= 0xE000) digest_pieces(&split, splitter, text, point_text(begin, text), &digest);
    check_digest(item, "points", digest);
  }
  hri_split_end(&split);
  hri_splitter_destroy(splitter);
}

static void splits_are_those_of_the_reference(void **context) {
  hri_json root = open_json(SPLITS), cases = array_of(&root, "cases"), texts = array_of(&root, "texts");
  alphabet from = read_alphabet(&root);
  (void)context;
  assert_true(hri_json_count(&cases) >= 50);
  for (uint64_t i = 0; i < hri_json_count(&cases); i++) {
    hri_json item = hri_json_item(&cases, i);
    check_case(&item, &texts, &from);
  }
  hri_json_deinit(&root);
}

/* The code written for a pattern and PCRE2 give the same pieces, however many are asked for at a time. */
static void known_patterns_are_what_pcre2_matches(void **context) {
  static const char *const names[] = {"gpt2", "llama3", "cl100k", "qwen2", "o200k", "tekken"};
  hri_json root = open_json(SPLITS);
  alphabet from = read_alphabet(&root);
  (void)context;
  for (uint32_t n = 0; n < 6; n++) {
    const char *pattern = hri_split_pattern_named(names[n]);
    hri_splitter *known, *other;
    hri_split split = {0};
    char wrapped[512], text[256];
    uint64_t state = 77;
    hr_error error;
    assert_non_null(pattern);
    (void)snprintf(wrapped, sizeof wrapped, "(?:%s){1}", pattern);
    must(hri_splitter_create_regex(pattern, strlen(pattern), HRI_SPLIT_ISOLATED, false, &known, &error), &error);
    must(hri_splitter_create_regex(wrapped, strlen(wrapped), HRI_SPLIT_ISOLATED, false, &other, &error), &error);
    assert_string_equal(hri_splitter_about(known), n == 2 ? "llama3" : names[n]);
    assert_non_null(strstr(hri_splitter_about(other), "PCRE2"));
    for (uint32_t i = 0; i < 4000; i++) {
      size_t bytes = random_text(&state, &from, text);
      hri_split one = {0};
      hri_split_piece piece;
      uint32_t count;
      uint32_t a = 0, b = 0, c = 0;
      digest_pieces(&split, known, text, bytes, &a);
      digest_pieces(&split, other, text, bytes, &b);
      must(hri_split_begin(&one, known, text, bytes, &error), &error);
      for (;;) {
        must(hri_split_next(&one, &piece, 1, &count, &error), &error);
        if (count == 0) break;
        digest_number(&c, piece.begin);
        digest_number(&c, piece.end);
      }
      if (a != b || a != c) fail_msg("%s: text %u '%.*s'", names[n], i, (int)bytes, text);
    }
    hri_split_end(&split);
    hri_splitter_destroy(known);
    hri_splitter_destroy(other);
  }
  assert_null(hri_split_pattern_named("gpt3"));
  hri_json_deinit(&root);
}

/* Digests of the pieces of random texts by two splitters must be the same. */
static void compare_on_texts(const char *pattern, const hri_splitter *one, const hri_splitter *other,
                             const alphabet *from, uint64_t *state, uint32_t texts) {
  hri_split split = {0};
  char text[256];
  for (uint32_t i = 0; i < texts; i++) {
    size_t bytes = random_text(state, from, text);
    uint32_t a = 0, b = 0;
    digest_pieces(&split, one, text, bytes, &a);
    digest_pieces(&split, other, text, bytes, &b);
    if (a != b) fail_msg("regex '%s': text '%.*s' is split another way than by PCRE2", pattern, (int)bytes, text);
  }
  hri_split_end(&split);
}

/* A pattern as it stands, and within a named group, which PCRE2 alone takes. True when ours took it. */
static bool same_as_pcre2(const char *pattern, const alphabet *from, uint64_t *state, uint32_t texts) {
  char wrapped[1100];
  bool ours = false;
  (void)snprintf(wrapped, sizeof wrapped, "(?<all>%s)", pattern);
  for (uint32_t i = 0; i < 2; i++) { /* pieces at once; matches one by one */
    hri_split_behavior behavior = i ? HRI_SPLIT_REMOVED : HRI_SPLIT_ISOLATED;
    hri_splitter *one, *other;
    hr_error error;
    must(hri_splitter_create_regex(pattern, strlen(pattern), behavior, i, &one, &error), &error);
    must(hri_splitter_create_regex(wrapped, strlen(wrapped), behavior, i, &other, &error), &error);
    assert_non_null(strstr(hri_splitter_about(other), "PCRE2"));
    ours = strcmp(hri_splitter_about(one), "runs") == 0;
    if (ours) compare_on_texts(pattern, one, other, from, state, texts);
    hri_splitter_destroy(one);
    hri_splitter_destroy(other);
  }
  return ours;
}

/* What pre-tokenizers are made of, put together at random: alternatives of one to three elements. */
static void random_pattern(uint64_t *state, char out[1024]) {
  static const char *const classes[] = {" ",
                                        "\\s",
                                        "\\S",
                                        "\\p{L}",
                                        "\\p{N}",
                                        "\\p{Lu}",
                                        "\\P{M}",
                                        "\\d",
                                        "x",
                                        "\\r",
                                        "'",
                                        "[\\r\\n]",
                                        "[^\\r\\n\\p{L}\\p{N}]",
                                        "[^\\s\\p{L}\\p{N}]",
                                        "[\\p{L}\\p{M}]",
                                        "[\\p{P}\\p{S}]",
                                        "[A-Za-z]",
                                        "[!-/:-@\\[-`{|}~]",
                                        "[^(\\s|[.,!?\u2026\u3002])]",
                                        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]",
                                        "[^\\p{Ll}\u00e9]",
                                        "[a\\-c_]"};
  static const char *const times[] = {"", "", "?", "*", "+", "+", "++", "?+", "*+", "{1,3}", "{2}", "{2,}", "{0,9}"};
  static const char *const ends[] = {"",
                                     "",
                                     "",
                                     "",
                                     "(?!\\S)",
                                     "(?=[\\p{L}x])",
                                     "(?!\\r)",
                                     "(?:[sdmt]|ll|ve)",
                                     "(?:\\p{Lu}|\\s+x)?",
                                     "(?i:'s|(?:\\.|x+)k?)?",
                                     "(?i:s|Re)",
                                     "(?i:[sk]|'t)"};
  uint32_t alternatives = 1 + next_random(state, 5);
  size_t used = 0;
  for (uint32_t i = 0; i < alternatives; i++) {
    uint32_t elements = 1 + next_random(state, 3);
    if (i) out[used++] = '|';
    for (uint32_t k = 0; k < elements; k++)
      used += (size_t)snprintf(out + used, 1024 - used, "%s%s",
                               classes[next_random(state, sizeof classes / sizeof *classes)],
                               times[next_random(state, sizeof times / sizeof *times)]);
    used += (size_t)snprintf(out + used, 1024 - used, "%s", ends[next_random(state, sizeof ends / sizeof *ends)]);
  }
}

static void runs_are_what_pcre2_matches(void **context) {
  static const char *const ours[] = {
      "\\p{N}{1,3}",
      "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"
      "\\s+(?!\\S)|\\s+",
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n/]*|"
      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
      "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
      "[\\p{P}\\$\\+<=>\\^~\\|]+",
      " ?[^(\\s|[.,!?\\u2026\\u3002\\uFF0c])]+|\\u4e00",
      "[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+",
      "x*\\S*x",
      "a?a?a?a?a?a?a?a?b",
      "\\p{L}{2,40}(?!x)|\\p{L}+\\p{N}?",
      "(?:a|b)c",
      "(?:\\p{L}+(?:'s|\\p{N}{2}(?i:st|K)?)?|x(?:y|x+(?!y)))\\s?",
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
      "\\p{N}{1,2}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  };
  /* what may match nothing, looks back, is lazy, repeats a repeat, or has too many states */
  static const char *const others[] =
      {"x*",    "a|",         "(?<=a)b",     "a+?b",    "a{2}+",      "\\w+",          "[ab]{0,9}a[ab]{12}",
       "(ab)+", "^a",         "a.",          "[a&&b]",  "\\ba",       "[^\\P{L}]",     "(?i)a",
       "a??",   "(?:a|b)+c",  "[[:alpha:]]", "\\x41",   "\\p{Greek}", "[[[[[[a]]]]]]", "(?!a)",
       "[\\w]", "(?:a|b)??c", "(?:a|b)?+c",  "(?:a|)b", "(?:a|b*)"};
  hri_json root = open_json(SPLITS);
  alphabet from = read_alphabet(&root);
  uint64_t state = 78;
  uint32_t taken = 0;
  (void)context;
  for (uint32_t i = 0; i < sizeof ours / sizeof *ours; i++)
    if (!same_as_pcre2(ours[i], &from, &state, 1500)) fail_msg("'%s' goes through PCRE2", ours[i]);
  for (uint32_t i = 0; i < sizeof others / sizeof *others; i++)
    if (same_as_pcre2(others[i], &from, &state, 0)) fail_msg("'%s' is taken as runs", others[i]);
  for (uint32_t i = 0; i < 300; i++) {
    char pattern[1024];
    random_pattern(&state, pattern);
    taken += same_as_pcre2(pattern, &from, &state, 60);
  }
  if (taken < 50) fail_msg("only %u of 300 patterns are taken as runs", taken);
  hri_json_deinit(&root);
}

/* Invalid UTF-8 is no part of the contract, but must be read in bounds: copies of exactly the bytes, for the
 * sanitizers. */
static void any_bytes_are_covered(void **context) {
  const char *const patterns[] = {hri_split_pattern_named("gpt2"),
                                  hri_split_pattern_named("llama3"),
                                  hri_split_pattern_named("qwen2"),
                                  hri_split_pattern_named("o200k"),
                                  "\\p{N}{1,2}",
                                  "[^\\r\\n\\p{L}\u3002]?\\p{L}+| ?[^\\s\\p{L}]+"};
  uint64_t state = 5;
  (void)context;
  for (uint32_t n = 0; n < sizeof patterns / sizeof *patterns; n++) {
    const char *pattern = patterns[n];
    hri_splitter *splitter;
    hr_error error;
    must(hri_splitter_create_regex(pattern, strlen(pattern), HRI_SPLIT_ISOLATED, false, &splitter, &error), &error);
    for (uint32_t i = 0; i < 20000; i++) {
      size_t bytes = 1 + next_random(&state, 12);
      char *text = malloc(bytes);
      uint32_t at = 0, count;
      hri_split split = {0};
      hri_split_piece piece;
      for (size_t k = 0; k < bytes; k++)
        text[k] = (char)(next_random(&state, 3) ? 0x80 + next_random(&state, 128) : 0x20 + next_random(&state, 90));
      must(hri_split_begin(&split, splitter, text, bytes, &error), &error);
      for (;;) {
        must(hri_split_next(&split, &piece, 1, &count, &error), &error);
        if (count == 0) break;
        assert_int_equal(piece.begin, at);
        assert_true(piece.end > at && piece.end <= bytes);
        at = piece.end;
      }
      assert_int_equal(at, bytes);
      free(text);
    }
    hri_splitter_destroy(splitter);
  }
}

/* Megabytes of one character, or of two in turn, take well under a second; quadratic time would take hours. */
static void a_long_run_takes_linear_time(void **context) {
  static const char *const units[] = {"a",        "A",   " ",         "\n",           "!",
                                      "1",        "'",   "\xC3\xA9",  "\xE4\xB8\x80", "\xCC\x81",
                                      "\xCA\xB0", " \n", "A\xCA\xB0", "\t ",          "a ",
                                      "/"};
  static const char *const names[] = {"gpt2", "llama3", "qwen2", "o200k", "tekken"};
  static const char *const runs[] =
      {"\\p{N}{1,3}",
       "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,2}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"};
  enum { BYTES = 4 << 20 };
  char *text = malloc(BYTES);
  (void)context;
  assert_non_null(text);
  for (uint32_t u = 0; u < sizeof units / sizeof *units; u++) {
    size_t width = strlen(units[u]);
    for (size_t i = 0; i + width <= BYTES; i += width) memcpy(text + i, units[u], width);
    for (uint32_t n = 0; n < 12; n++) {
      size_t bytes = (n < 5 || n > 9 ? BYTES : BYTES / 8) / width * width; /* by hand, through PCRE2, by states */
      hri_splitter *splitter;
      hri_split split = {0};
      char pattern[512];
      uint32_t digest = 0;
      double begin;
      hr_error error;
      (void)snprintf(pattern, sizeof pattern, n < 5 || n > 9 ? "%s" : "(?:%s){1}",
                     n < 10 ? hri_split_pattern_named(names[n % 5]) : runs[n - 10]);
      must(hri_splitter_create_regex(pattern, strlen(pattern), HRI_SPLIT_ISOLATED, false, &splitter, &error), &error);
      begin = cpu_seconds();
      digest_pieces(&split, splitter, text, bytes, &digest);
      if (cpu_seconds() - begin > 20) fail_msg("%s took %.1f s for '%s'", pattern, cpu_seconds() - begin, units[u]);
      hri_split_end(&split);
      hri_splitter_destroy(splitter);
    }
  }
  free(text);
}

/* ---- what is refused ---- */

static const struct {
  const char *pattern, *message;
} bad_patterns[] = {
    {"(a", "a group without an end at byte 2"},
    {"a)", "a closing parenthesis without a group at byte 1"},
    {"[a", "a class without an end"},
    {"[b-a]", "a range that runs backwards at byte 1"},
    {"*a", "PCRE2 says"},
    {"(?<=a+)b", "PCRE2 says"},
    {"\\p{Nonsense}", "PCRE2 says"},
    {"\\pL", "a property without braces"},
    {"\\p{L", "a property without an end"},
    {"[[:nonsense:]]", "an unknown class"},
    {"\\", "an escape without a character"},
    {"(?x)a b", "the option x, which is not supported, at byte 2"},
    {"(?~a)", "a kind of group that is not supported"},
    {"\\xFF", "a byte that is no character"},
    {"\\u12", "no character number"},
    {"\\x{110000}", "no character number"},
    {"a\\yb", "a border of text segments"},
    {"\\X", "a cluster of characters, whose rules differ between versions of Unicode"},
    {"\\G[a-z]+", "the place where a search begins"},
    {"{2}", "nothing to repeat"},
    {"[a&&]", "an empty class"},
    {"(?#a", "a comment without an end"},
    {"\\k<a", "a reference without a name"},
    {"\xFF", "invalid UTF-8 at byte 0"},
    {"[[[[[[[[[[[[[[[[[[[a]]]]]]]]]]]]]]]]]]]", "classes nested too deeply"},
};

static void bad_patterns_are_named(void **context) {
  char deep[200];
  hri_splitter *splitter;
  hr_error error;
  (void)context;
  for (uint32_t i = 0; i < sizeof bad_patterns / sizeof *bad_patterns; i++) {
    uint64_t live = hri_mem_live_bytes();
    const char *pattern = bad_patterns[i].pattern;
    assert_int_equal(hri_splitter_create_regex(pattern, strlen(pattern), HRI_SPLIT_ISOLATED, false, &splitter, &error),
                     HR_ERROR_INPUT);
    assert_null(splitter);
    if (!strstr(error.message, bad_patterns[i].message) || !strstr(error.message, "regex '"))
      fail_msg("'%s': %s", pattern, error.message);
    assert_true(error.hint[0]);
    assert_int_equal(hri_mem_live_bytes(), live);
  }
  memset(deep, '(', sizeof deep);
  assert_int_equal(hri_splitter_create_regex(deep, sizeof deep, HRI_SPLIT_ISOLATED, false, &splitter, &error),
                   HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "groups nested too deeply"));
}

/* What the reference's Unicode has and that of PCRE2 10.42 has not, or has elsewhere: one character, which is a match. */
static void newer_characters_are_in_their_sets(void **context) {
  static const struct {
    const char *pattern;
    uint32_t in, out;
  } cases[] = {{"\\p{Han}", 0x31350, 0x3131},   {"[\\p{Han}]", 0x2ebf0, 0x3041},    {"[^\\p{Han}]", 0x3041, 0x31350},
               {"\\p{Latin}", 0x1df25, 0x3b1},  {"\\p{Cyrillic}", 0x1e030, 'a'},    {"\\p{Arabic}", 0x10efc, 'a'},
               {"\\p{Hiragana}", 0x1b132, 'a'}, {"\\p{Katakana}", 0x1b155, 0x3041}, {"\\p{Alphabetic}", 0x363, 0x300},
               {"[[:alnum:]]", 0xc04, 0x300},   {"\\p{Lowercase}", 0x10fc, 0x10a0}, {"\\p{Emoji}", 0x1fae8, 'a'},
               {"\\p{Cn}", 0x378, 0x31350},     {"\\P{Cn}", 0x31350, 0x378},        {"\\p{C}", 0x200b, 0x31350},
               {"[^\\p{C}]", 0x31350, 0xe000},  {"[\\0-\\037]", 0x1f, ' '}};
  (void)context;
  for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[16];
    const size_t first = hri_utf8_encode(cases[i].in, text),
                 bytes = first + hri_utf8_encode(cases[i].out, text + first);
    hri_splitter *splitter;
    hri_split split = {0};
    hri_split_piece pieces[4];
    uint32_t count;
    hr_error error;
    must(hri_splitter_create_regex(cases[i].pattern, strlen(cases[i].pattern), HRI_SPLIT_REMOVED, false, &splitter,
                                   &error),
         &error);
    must(hri_split_begin(&split, splitter, text, bytes, &error), &error);
    must(hri_split_next(&split, pieces, 4, &count, &error), &error);
    if (count != 1 || pieces[0].begin != first || pieces[0].end != bytes)
      fail_msg("%s: U+%04X must be in it, U+%04X not", cases[i].pattern, cases[i].in, cases[i].out);
    hri_split_end(&split);
    hri_splitter_destroy(splitter);
  }
}

/* A pattern of runs that looks to the end of the text at each letter: a message, and soon. */
static void looking_in_vain_is_an_error(void **context) {
  static const char pattern[] = "\\p{L}+x|\\p{N}";
  enum { BYTES = 4 << 20 };
  char *text = malloc(BYTES);
  hri_splitter *splitter;
  hri_split split = {0};
  hri_split_piece piece;
  uint32_t count;
  hr_error error;
  double begin = cpu_seconds();
  (void)context;
  assert_non_null(text);
  memset(text, 'a', BYTES);
  for (uint32_t i = 0; i < 2; i++) { /* all at once, and match by match */
    const hri_split_behavior behavior = i ? HRI_SPLIT_REMOVED : HRI_SPLIT_ISOLATED;
    must(hri_splitter_create_regex(pattern, sizeof pattern - 1, behavior, false, &splitter, &error), &error);
    assert_string_equal(hri_splitter_about(splitter), "runs");
    must(hri_split_begin(&split, splitter, text, BYTES, &error), &error);
    assert_int_equal(hri_split_next(&split, &piece, 1, &count, &error), HR_ERROR_INPUT);
    assert_non_null(strstr(error.message, "looks ahead in vain"));
    must(hri_split_begin(&split, splitter, text, 1000, &error), &error);
    assert_int_equal(hri_split_next(&split, &piece, 1, &count, &error), HR_OK);
    assert_int_equal(piece.end, 1000);
    hri_split_end(&split);
    hri_splitter_destroy(splitter);
  }
  if (cpu_seconds() - begin > 20) fail_msg("it took %.1f s", cpu_seconds() - begin);
  free(text);
}

/* A pattern of PCRE2's that looks to the end of a number at each three digits: a message, and soon; and the same pieces
 * as before where it may. */
static void looking_far_is_bounded(void **context) {
  static const char pattern[] = "\\d{1,3}(?=(\\d{3})*\\b)";
  enum { BYTES = 1 << 18, FINE = 40000 };
  char *text = malloc(BYTES);
  hri_splitter *splitter;
  hri_split split = {0};
  hri_split_piece piece;
  uint32_t count, pieces = 0;
  hr_error error;
  double begin = cpu_seconds();
  (void)context;
  assert_non_null(text);
  memset(text, '7', BYTES);
  must(hri_splitter_create_regex(pattern, sizeof pattern - 1, HRI_SPLIT_ISOLATED, false, &splitter, &error), &error);
  assert_non_null(strstr(hri_splitter_about(splitter), "PCRE2"));
  must(hri_split_begin(&split, splitter, text, FINE, &error), &error);
  do {
    must(hri_split_next(&split, &piece, 1, &count, &error), &error);
    if (count) assert_int_equal(piece.end, 1 + 3 * pieces);
    pieces += count;
  } while (count);
  assert_int_equal(pieces, 1 + FINE / 3);
  must(hri_split_begin(&split, splitter, text, BYTES, &error), &error);
  for (count = 1; count && hri_split_next(&split, &piece, 1, &count, &error) == HR_OK;) continue;
  assert_int_equal(count, 0);
  if (!strstr(error.message, "looks ahead in vain too often")) fail_msg("%s", error.message);
  if (cpu_seconds() - begin > 60) fail_msg("it took %.1f s", cpu_seconds() - begin);
  hri_split_end(&split);
  hri_splitter_destroy(splitter);
  free(text);
}

/* Where a match ends, and that there is none, does not hang on how much of the text it saw at first. */
static void windows_change_nothing(void **context) {
  static const char *const patterns[] = {"\\d{1,3}(?=(\\d{3})*\\b)",
                                         "(?=(\\d{3})+(?!\\d))",
                                         "(?:\\s+$|\\p{L}+\\b){1}",
                                         "(a|ab)(c|bcd)?(?!d)",
                                         "(?<=\\p{L})(?=\\d)",
                                         "(\\w)\\1*$",
                                         "(?:[^x]*x|.)",
                                         "\\b",
                                         "(?:\\r\\n|\\s)*\\S\\z",
                                         "^.{3}|(.+)(?=\\1)",
                                         "(?i:stra(?:ss|ß)e|\\d)*",
                                         "$"};
  static const char *const parts[] = {"a", "ab", "bcd",  "1",   "123", " ",  "\n", "\r\n",
                                      "x", "ß",  "Stra", "sse", "東",  "😀", "-"};
  const uint32_t usual = hri_regex_window;
  uint64_t state = 5;
  (void)context;
  for (uint32_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
    hri_splitter *splitter;
    hri_split split = {0};
    hr_error error;
    must(hri_splitter_create_regex(patterns[p], strlen(patterns[p]), HRI_SPLIT_ISOLATED, false, &splitter, &error),
         &error);
    assert_non_null(strstr(hri_splitter_about(splitter), "PCRE2"));
    for (uint32_t i = 0; i < 1500; i++) {
      char text[512] = "";
      uint32_t whole = 0;
      for (uint32_t n = next_random(&state, 40); n-- > 0;)
        (void)strcat(text, parts[next_random(&state, sizeof parts / sizeof *parts)]);
      digest_pieces(&split, splitter, text, strlen(text), &whole);
      for (uint32_t window = 1; window < 12; window += window) {
        uint32_t digest = 0;
        hri_regex_window = window;
        digest_pieces(&split, splitter, text, strlen(text), &digest);
        hri_regex_window = usual;
        if (digest != whole)
          fail_msg("regex '%s': a window of %u bytes changes the pieces of '%s'", patterns[p], window, text);
      }
    }
    hri_split_end(&split);
    hri_splitter_destroy(splitter);
  }
}

static void limits_of_matching_are_errors(void **context) {
  static const char pattern[] = "(?:a|aa|aaa)*(?:a|aa)*$(?<=b)";
  hri_splitter *splitter;
  hri_split split = {0};
  hri_split_piece piece;
  uint32_t count;
  char text[64];
  hr_error error;
  (void)context;
  memset(text, 'a', sizeof text);
  must(hri_splitter_create_regex(pattern, sizeof pattern - 1, HRI_SPLIT_ISOLATED, false, &splitter, &error), &error);
  must(hri_split_begin(&split, splitter, text, sizeof text, &error), &error);
  assert_int_equal(hri_split_next(&split, &piece, 1, &count, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "match limit exceeded"));
  assert_int_equal(hri_split_begin(&split, splitter, "a\xC3", 2, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "not valid UTF-8 at byte 1"));
  hri_split_end(&split);
  hri_splitter_destroy(splitter);
}

/* One use of everything that allocates; what is refused leaves nothing behind. */
static hr_status use_all(hr_error *error) {
  static const char pattern[] = "\\w+|[\\p{L}&&[^a]]|\\d{2}+", text[] = "Hell\xC3\xB6 w\xCC\x81rld 12 \xFF";
  hri_splitter *splitter = NULL;
  hri_normalizer *normalizer = NULL;
  hri_split split = {0};
  hri_normal normal = {0};
  hri_split_piece pieces[8];
  uint32_t count;
  hr_status status =
      hri_splitter_create_regex(pattern, sizeof pattern - 1, HRI_SPLIT_CONTIGUOUS, false, &splitter, error);
  if (status == HR_OK) status = hri_normalizer_create(&normalizer, error);
  if (status == HR_OK) status = hri_normalizer_add(normalizer, HRI_NORMALIZE_NFKD, error);
  if (status == HR_OK) status = hri_normalizer_add_replace(normalizer, "l+", 2, false, "L", 1, error);
  if (status == HR_OK) status = hri_normalizer_add_prepend(normalizer, "x", 1, error);
  if (status == HR_OK) status = hri_normal_begin(&normal, text, sizeof text - 1, true, error);
  if (status == HR_OK) status = hri_normalizer_apply(normalizer, &normal, error);
  if (status == HR_OK) status = hri_split_begin(&split, splitter, normal.text, normal.bytes, error);
  if (status == HR_OK) status = hri_split_next(&split, pieces, 8, &count, error);
  hri_split_end(&split);
  hri_normal_deinit(&normal);
  hri_normalizer_destroy(normalizer);
  hri_splitter_destroy(splitter);
  return status;
}

static void refused_memory_is_an_error(void **context) {
  uint64_t live = hri_mem_live_bytes();
  uint32_t n = 1;
  hr_error error;
  (void)context;
  for (;; n++) {
    hr_status status;
    hri_mem_fail_after(n);
    status = use_all(&error);
    hri_mem_fail_after(0);
    assert_int_equal(hri_mem_live_bytes(), live);
    if (status == HR_OK) break;
    assert_int_equal(status, HR_ERROR_MEMORY);
    assert_true(n < 2000);
  }
  assert_true(n > 15);
}

/* ---- normalizers ---- */

/* Adds a normalized text and, per character, the span of input to the digest. */
static void digest_normal(const hri_normalizer *normalizer, hri_normal *normal, const char *text, size_t bytes,
                          uint32_t *digest) {
  hr_error error;
  must(hri_normal_begin(normal, text, bytes, true, &error), &error);
  must(hri_normalizer_apply(normalizer, normal, &error), &error);
  for (uint64_t i = 0; i < normal->bytes; i++) digest_byte(digest, (uint8_t)normal->text[i]);
  for (uint64_t i = 0; i < normal->bytes;) {
    uint32_t point;
    bool valid;
    size_t width = hri_utf8_decode(normal->text + i, normal->bytes - i, &point, &valid);
    assert_true(valid);
    digest_number(digest, normal->spans ? normal->spans[i].begin : (uint32_t)i);
    digest_number(digest, normal->spans ? normal->spans[i + width - 1].end : (uint32_t)(i + width));
    i += width;
  }
}

static void check_normal(const hri_json *item, const hri_normalizer *normalizer, const char *text, const char *expected,
                         const hri_json *spans) {
  hri_normal normal = {0}, plain = {0};
  hr_error error;
  uint64_t seen = 0;
  must(hri_normal_begin(&normal, text, strlen(text), true, &error), &error);
  must(hri_normalizer_apply(normalizer, &normal, &error), &error);
  must(hri_normal_begin(&plain, text, strlen(text), false, &error), &error);
  must(hri_normalizer_apply(normalizer, &plain, &error), &error);
  if (normal.bytes != strlen(expected) || memcmp(normal.text, expected, normal.bytes) != 0)
    fail_msg("%s: '%s' gives '%.*s', not '%s'", item->path, text, (int)normal.bytes, normal.text, expected);
  assert_int_equal(plain.bytes, normal.bytes);
  assert_memory_equal(plain.text, normal.text, normal.bytes);
  assert_null(plain.spans);
  assert_true(normal.changed == (normal.spans != NULL));
  for (uint64_t i = 0; i < normal.bytes; seen += 2) {
    uint32_t point;
    bool valid;
    size_t width = hri_utf8_decode(normal.text + i, normal.bytes - i, &point, &valid);
    hri_split_piece span = normal.spans ? normal.spans[i] : (hri_split_piece){(uint32_t)i, (uint32_t)(i + width)};
    if (span.begin != (uint32_t)json_integer_value(hri_json_item(spans, seen).value) ||
        span.end != (uint32_t)json_integer_value(hri_json_item(spans, seen + 1).value))
      fail_msg("%s: '%s': byte %u stands for %u..%u", item->path, text, (unsigned)i, span.begin, span.end);
    i += width;
  }
  assert_int_equal(seen, hri_json_count(spans));
  hri_normal_deinit(&normal);
  hri_normal_deinit(&plain);
}

static void normalizers_are_those_of_the_reference(void **context) {
  hri_json splits = open_json(SPLITS), root = open_json(NORMALIZERS), cases = array_of(&root, "cases"),
           texts = array_of(&splits, "texts");
  alphabet from = read_alphabet(&splits);
  (void)context;
  assert_true(hri_json_count(&cases) >= 15);
  for (uint64_t i = 0; i < hri_json_count(&cases); i++) {
    hri_json item = hri_json_item(&cases, i), what = hri_json_member(&item, "normalizer"),
             after = array_of(&item, "texts"), spans = array_of(&item, "spans");
    hri_normalizer *normalizer;
    hri_normal normal = {0};
    uint64_t state = 2;
    uint32_t digest = 0;
    char text[4096];
    hr_error error;
    must(hri_normalizer_create(&normalizer, &error), &error);
    must(hri_normalizer_read(normalizer, &what, &error), &error);
    assert_int_equal(hri_normalizer_is_empty(normalizer), i + 2 >= hri_json_count(&cases)); /* the last two cases */
    for (uint64_t k = 0; k < hri_json_count(&texts); k++) {
      hri_json span = hri_json_item(&spans, k);
      check_normal(&item, normalizer, json_string_value(hri_json_item(&texts, k).value),
                   json_string_value(hri_json_item(&after, k).value), &span);
    }
    for (uint32_t k = 0; k < from.texts; k++)
      digest_normal(normalizer, &normal, text, random_text(&state, &from, text), &digest);
    check_digest(&item, "random", digest);
    digest = 0;
    for (uint32_t begin = hri_json_has(&item, "points") ? 0 : HRI_UNICODE_END; begin < HRI_UNICODE_END; begin += 64)
      if (begin < 0xD800 || begin >= 0xE000) digest_normal(normalizer, &normal, text, point_text(begin, text), &digest);
    if (hri_json_has(&item, "points")) check_digest(&item, "points", digest);
    hri_normal_deinit(&normal);
    hri_normalizer_destroy(normalizer);
  }
  hri_json_deinit(&root);
  hri_json_deinit(&splits);
}

static void invalid_bytes_become_the_replacement(void **context) {
  hri_json root = open_json(NORMALIZERS), bytes = array_of(&root, "repair_bytes");
  hri_normal normal = {0};
  uint64_t state = 3;
  uint32_t digest = 0;
  hr_error error;
  (void)context;
  for (uint32_t i = 0; i < 6000; i++) {
    char text[16];
    uint32_t length = 1 + next_random(&state, 12), covered = 0;
    for (uint32_t k = 0; k < length; k++)
      text[k] =
          (char)json_integer_value(hri_json_item(&bytes, next_random(&state, (uint32_t)hri_json_count(&bytes))).value);
    must(hri_normal_begin(&normal, text, length, true, &error), &error);
    assert_true(normal.changed == (hri_utf8_valid(text, length) != length));
    for (uint64_t k = 0; k < normal.bytes; k++) digest_byte(&digest, (uint8_t)normal.text[k]);
    for (uint64_t k = 0; normal.spans && k < normal.bytes; k++) { /* spans cover the input in order */
      assert_true(normal.spans[k].begin == covered || (k > 0 && normal.spans[k].end == covered));
      covered = normal.spans[k].end;
    }
    assert_true(!normal.spans || covered == length);
  }
  check_digest(&root, "repaired", digest);
  hri_normal_deinit(&normal);
  hri_json_deinit(&root);
}

static void read_fails(const char *json, const char *message) {
  hri_json root;
  hri_normalizer *normalizer;
  hr_error error;
  must(hri_json_parse(json, strlen(json), "tokenizer.json", &root, &error), &error);
  must(hri_normalizer_create(&normalizer, &error), &error);
  assert_int_equal(hri_normalizer_read(normalizer, &root, &error), HR_ERROR_INPUT);
  if (!strstr(error.message, message) || !strstr(error.message, "tokenizer.json"))
    fail_msg("'%s' is not in '%s'", message, error.message);
  hri_normalizer_destroy(normalizer);
  hri_json_deinit(&root);
}

static void bad_normalizers_are_named(void **context) {
  (void)context;
  read_fails("{\"type\":\"Odd\"}", "the normalizer 'Odd' is not supported");
  read_fails("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"ByteLevel\"}]}",
             "'normalizers[1]': the normalizer 'ByteLevel'");
  read_fails("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!\"}", "'precompiled_charsmap' is not base64");
  read_fails("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}", "field 'pattern': regex '('");
  read_fails("{\"type\":\"Replace\",\"pattern\":{\"Other\":\"(\"},\"content\":\"\"}", "pattern.Regex");
  read_fails("{\"type\":\"Strip\",\"strip_left\":1}", "strip_left");
  read_fails("{\"type\":3}", "type");
  read_fails("[]", "object");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(splits_are_those_of_the_reference),
      cmocka_unit_test(known_patterns_are_what_pcre2_matches),
      cmocka_unit_test(runs_are_what_pcre2_matches),
      cmocka_unit_test(any_bytes_are_covered),
      cmocka_unit_test(a_long_run_takes_linear_time),
      cmocka_unit_test(bad_patterns_are_named),
      cmocka_unit_test(newer_characters_are_in_their_sets),
      cmocka_unit_test(looking_in_vain_is_an_error),
      cmocka_unit_test(looking_far_is_bounded),
      cmocka_unit_test(windows_change_nothing),
      cmocka_unit_test(limits_of_matching_are_errors),
      cmocka_unit_test(refused_memory_is_an_error),
      cmocka_unit_test(normalizers_are_those_of_the_reference),
      cmocka_unit_test(invalid_bytes_become_the_replacement),
      cmocka_unit_test(bad_normalizers_are_named),
  };
  make_crc();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
