/* Answers token by token (src/cli/speech.h): what is said piece by piece is what the tokens say together, and a token costs
 * the same behind any number of others, whatever a model makes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/speech.h"
#include "support/cpu_seconds.h"

static hr_tokenizer *open_tokenizer(const char *name) {
  char path[4096];
  hr_error error;
  hr_tokenizer *tokenizer = NULL;
  (void)snprintf(path, sizeof path, "%s/tokenizer/%s.json", HR_TEST_DATA, name);
  if (hr_tokenizer_open(path, &tokenizer, &error) != HR_OK) fail_msg("%s", error.message);
  return tokenizer;
}

/* All that a listener says of tokens, in new memory. */
static char *hear(const hr_tokenizer *tokenizer, const int32_t *tokens, size_t count) {
  const cli_speech speech = {.tokenizer = (hr_tokenizer *)(uintptr_t)tokenizer};
  cli_listener listener = {.speech = &speech};
  char *text = calloc(count + 1, 64);
  size_t used = 0, bytes;
  assert_non_null(text);
  for (size_t i = 0; i <= count; i++) {
    char *fresh = i < count ? listener_take(&listener, tokens[i], &bytes) : listener_rest(&listener, &bytes);
    assert_true(used + bytes < (count + 1) * 64);
    memcpy(text + used, fresh, bytes);
    used += bytes;
    free(fresh);
  }
  listener_close(&listener);
  return text;
}

static void assert_said(const hr_tokenizer *tokenizer, const int32_t *tokens, size_t count, const char *text) {
  char *said = hear(tokenizer, tokens, count);
  assert_string_equal(said, text);
  free(said);
}

/* ---- what is said ---- */

static const char *const names[] = {"gpt2", "llama2", "gemma", "smollm", "bert", "t5"};

static void test_pieces_are_the_whole(void **state) {
  static const char *const texts[] = {
      "Hello, world", " two  blanks \n\n and lines",
      "\xE2\x82\xAC 5 \xF0\x9F\x98\x80\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80 end",
      "\xE6\xBC\xA2\xE5\xAD\x97\xE3\x81\xA8\xE3\x81\x8B\xE3\x81\xAA \xD7\x90 \xF0\x90\x8D\x88\xF0\x90\x8D\x88\xF0\x90\x8D\x88\xF0\x90\x8D\x88"};
  (void)state;
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    hr_tokenizer *tokenizer = open_tokenizer(names[n]);
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
      hr_tokens tokens = {0};
      hr_error error;
      char *whole = NULL;
      uint64_t bytes;
      assert_int_equal(hr_tokenizer_encode(tokenizer, texts[t], strlen(texts[t]), 0, &tokens, &error), HR_OK);
      assert_int_equal(hr_tokenizer_decode(tokenizer, tokens.ids, tokens.count, HR_DECODE_SKIP_SPECIAL, &whole, &bytes,
                                           &error),
                       HR_OK);
      assert_said(tokenizer, tokens.ids, tokens.count, whole);
      hr_free(whole);
      hr_tokens_deinit(&tokens);
    }
    hr_tokenizer_close(tokenizer);
  }
}

/* The id of one byte from 7f on: in gpt2's alphabet those from a1 to ac and from ae on are their own characters, and those
 * before are characters from U+0121 on. */
static int32_t byte_id(const hr_tokenizer *tokenizer, unsigned byte) {
  const unsigned point = byte > 0xa0 ? byte : byte - 0x7f + 0x121;
  char content[8];
  int32_t id;
  (void)snprintf(content, sizeof content, "<0x%02X>", byte);
  id = hr_tokenizer_find(tokenizer, content);
  if (id >= 0) return id;
  (void)snprintf(content, sizeof content, "%c%c", (int)(0xC0 | point >> 6), (int)(0x80 | (point & 0x3f)));
  id = hr_tokenizer_find(tokenizer, content);
  assert_true(id >= 0);
  return id;
}

static void test_characters_behind_broken_ones(void **state) {
  static const unsigned char euro[] = {0xE2, 0x82, 0xAC};
  hr_tokenizer *tokenizer = open_tokenizer("gpt2");
  int32_t tokens[64];
  char text[256];
  (void)state;
  for (size_t broken = 0; broken < 24; broken++) {
    size_t count = 0, used = 0;
    for (; count < broken; count++) {
      tokens[count] = byte_id(tokenizer, 0xFF);
      memcpy(text + used, "\xEF\xBF\xBD", 3);
      used += 3;
    }
    for (size_t k = 0; k < sizeof euro; k++) tokens[count++] = byte_id(tokenizer, euro[k]);
    tokens[count++] = hr_tokenizer_find(tokenizer, "!");
    memcpy(text + used, "\xE2\x82\xAC!", 5);
    assert_said(tokenizer, tokens, count, text);
  }
  hr_tokenizer_close(tokenizer);
}

/* ---- what it costs ---- */

static double seconds_for(const hr_tokenizer *tokenizer, int32_t token, size_t count, const char *each) {
  int32_t *tokens = malloc(count * sizeof *tokens);
  size_t length = strlen(each);
  double begun;
  char *said;
  assert_non_null(tokens);
  for (size_t i = 0; i < count; i++) tokens[i] = token;
  begun = cpu_seconds();
  said = hear(tokenizer, tokens, count);
  begun = cpu_seconds() - begun;
  assert_int_equal(strlen(said), count * length);
  for (size_t i = 0; i < count; i++) assert_memory_equal(said + i * length, each, length);
  free(said);
  free(tokens);
  return begun;
}

/* Broken bytes without end, and tokens without text: quadratic, eight times as many took 64 times as long. */
static void test_time_grows_with_the_tokens(void **state) {
  enum { FEW = 1000, TIMES = 8 };
  (void)state;
  for (size_t n = 0; n < 2; n++) {
    hr_tokenizer *tokenizer = open_tokenizer(names[n]);
    const struct {
      int32_t token;
      const char *text;
    } cases[] = {{byte_id(tokenizer, 0xFF), "\xEF\xBF\xBD"}, {0, ""}};
    for (size_t k = 0; k < 2; k++) {
      double few = seconds_for(tokenizer, cases[k].token, FEW, cases[k].text);
      assert_true(seconds_for(tokenizer, cases[k].token, FEW * TIMES, cases[k].text) < 3 * TIMES * few + 0.05);
    }
    hr_tokenizer_close(tokenizer);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pieces_are_the_whole),
      cmocka_unit_test(test_characters_behind_broken_ones),
      cmocka_unit_test(test_time_grows_with_the_tokens),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
