/* What a program sees that knows <headroom/text.h> and is linked with libheadroom-text alone: a template is rendered,
 * its text encoded and decoded again, and what cannot be opened is refused in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/text.h>

static void a_turn_goes_to_ids_and_back(void **state) {
  static const char messages[] = "[{\"role\": \"user\", \"content\": \"Gr\\u00fc\\u00df Gott, 12345!\"}]";
  static const char expected[] = "<|im_start|>user\nGr\xC3\xBC\xC3\x9F Gott, 12345!<|im_end|>\n<|im_start|>assistant\n";
  hr_error error = {0};
  hr_tokenizer *tokenizer;
  hr_chat *chat;
  hr_rendered turn;
  hr_tokens tokens = {0};
  char *back;
  uint64_t bytes;
  (void)state;
  if (hr_tokenizer_open(HR_TEST_DATA "/tokenizer/smollm.json", &tokenizer, &error) != HR_OK)
    fail_msg("%s", error.message);
  assert_int_equal(hr_chat_open("chatml", tokenizer, &chat, &error), HR_OK);
  assert_int_equal(hr_chat_render(chat, messages, strlen(messages), true, &turn, &error), HR_OK);
  assert_string_equal(turn.text, expected);
  assert_int_equal(hr_tokenizer_encode(tokenizer, turn.text, turn.bytes, HR_ENCODE_OFFSETS, &tokens, &error), HR_OK);
  assert_true(tokens.count > 8 && tokens.count < turn.bytes);
  assert_int_equal(tokens.end[tokens.count - 1], turn.bytes);
  assert_int_equal(hr_tokenizer_decode(tokenizer, tokens.ids, tokens.count, 0, &back, &bytes, &error), HR_OK);
  assert_int_equal(bytes, sizeof expected - 1);
  assert_string_equal(back, expected);
  hr_free(back);
  hr_tokens_deinit(&tokens);
  hr_rendered_deinit(&turn);
  hr_chat_close(chat);
  hr_tokenizer_close(tokenizer);
}

static void what_is_not_there_is_refused(void **state) {
  hr_error error = {0};
  hr_tokenizer *tokenizer = NULL;
  hr_chat *chat = NULL;
  (void)state;
  assert_int_not_equal(hr_tokenizer_open(HR_TEST_DATA "/tokenizer/none.json", &tokenizer, &error), HR_OK);
  assert_non_null(strstr(error.message, "none.json"));
  assert_int_equal(hr_chat_open("chatmk", NULL, &chat, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.hint, "chatml"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_turn_goes_to_ids_and_back),
                                     cmocka_unit_test(what_is_not_there_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
