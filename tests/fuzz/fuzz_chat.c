/* Chat templates of any text over conversations of any JSON: a rendering or a named refusal, nothing lost, the same
 * each time. The input is the template up to the first byte 0x1E, then the conversation; without that byte a small one
 * with tools and parts is taken. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "chat/render.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char usual[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"\\u00e9\"}]},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1.5}}}]}],"
    " \"tools\": [{\"name\": \"f\"}], \"n\": 7, \"l\": [3, 1, 2], \"s\": \"a b\", \"bos_token\": \"<s>\"}";

static void require(bool holds) {
  if (!holds) abort();
}

static bool is_text(const char *bytes, uint64_t count) {
  uint64_t i = 0;
  while (i < count) {
    size_t length = hri_utf8_sequence(bytes + i, (size_t)(count - i));
    if (length == 0) return false;
    i += length;
  }
  return true;
}

static hr_status render(const hri_template *template, const char *json, size_t bytes, hr_rendered *out) {
  static const hri_token_name token = {"eos_token", "</s>"};
  hr_error error = {0};
  hr_status status = hri_chat_render_json(template, &token, 1, json, bytes, true, out, &error);
  uint64_t i;
  if (status != HR_OK) {
    require(status == HR_ERROR_INPUT && error.message[0] && !out->text && !out->generated);
    return status;
  }
  require(out->text[out->bytes] == 0 && is_text(out->text, out->bytes));
  for (i = 0; i < out->generated_count; i++)
    require(out->generated[i].begin <= out->generated[i].end && out->generated[i].end <= out->bytes);
  return status;
}

static void render_twice(const hri_template *template, const char *json, size_t bytes) {
  hr_rendered first = {0}, second = {0};
  hr_status status = render(template, json, bytes, &first);
  require(render(template, json, bytes, &second) == status);
  if (status == HR_OK && !strstr(template->source, "strftime"))
    require(first.bytes == second.bytes && memcmp(first.text, second.text, first.bytes) == 0);
  hr_rendered_deinit(&first);
  hr_rendered_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *cut = size ? memchr(data, 0x1E, size) : NULL;
  size_t bytes = cut ? (size_t)(cut - data) : size;
  uint64_t live = hri_mem_live_bytes();
  hri_template *template = NULL;
  hr_error error = {0};
  if (hri_template_parse("t", size ? (const char *)data : "", bytes, &template, &error) == HR_OK) {
    if (cut) render_twice(template, (const char *)cut + 1, size - bytes - 1);
    else render_twice(template, usual, sizeof usual - 1);
  } else {
    require(error.code == HR_ERROR_INPUT && error.message[0]);
  }
  hri_template_free(template);
  require(hri_mem_live_bytes() == live);
  return 0;
}
