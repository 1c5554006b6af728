/* Conversations are prepared as transformers does it before a template sees them (tokenization_utils_base.py,
 * apply_chat_template; utils/chat_template_utils.py): members of a message that are null are dropped, and what a model
 * thought is found under each of the names that templates read. */
#include "chat/render.h"

#include <string.h>

#include "chat/run.h"

static hr_status to_value(hri_run *run, json_t *json, hri_value *out);

static hr_status to_list(hri_run *run, json_t *json, hri_value *out) {
  size_t i, count = json_array_size(json);
  HRI_TRY(hri_items_new(run, HRI_LIST, count, out));
  for (i = 0; i < count; i++) HRI_TRY(to_value(run, json_array_get(json, i), &out->as.items->at[i]));
  return HR_OK;
}

static hr_status to_dict(hri_run *run, json_t *json, bool drop_null, hri_dict **out) {
  void *at;
  hri_value value;
  HRI_TRY(hri_dict_new(run, json_object_size(json) < 64 ? (uint32_t)json_object_size(json) : 0, out));
  for (at = json_object_iter(json); at; at = json_object_iter_next(json, at)) {
    if (drop_null && json_is_null(json_object_iter_value(at))) continue;
    HRI_TRY(to_value(run, json_object_iter_value(at), &value));
    HRI_TRY(hri_dict_put(run, *out, hri_cstring(json_object_iter_key(at)), value));
  }
  return HR_OK;
}

/* Texts stay where they are: the tree outlives the values. Its depth is limited by the reader. */
static hr_status to_value(hri_run *run, json_t *json, hri_value *out) {
  hri_dict *dict;
  switch (json_typeof(json)) {
  case JSON_NULL: *out = hri_none(); return HR_OK;
  case JSON_TRUE:
  case JSON_FALSE: *out = hri_bool(json_is_true(json)); return HR_OK;
  case JSON_INTEGER: *out = hri_int(json_integer_value(json)); return HR_OK;
  case JSON_REAL: *out = hri_float(json_real_value(json)); return HR_OK;
  case JSON_STRING: *out = hri_chars(json_string_value(json), json_string_length(json)); return HR_OK;
  case JSON_ARRAY: return to_list(run, json, out);
  case JSON_OBJECT: break;
  }
  HRI_TRY(to_dict(run, json, false, &dict));
  *out = (hri_value){.kind = HRI_DICT, .as.dict = dict};
  return HR_OK;
}

/* What was thought goes under `reasoning_content`, and under `thinking`, in front, unless the message has that. */
static hr_status alias_reasoning(hri_run *run, hri_dict **message) {
  static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
  const hri_value *reasoning = NULL;
  hri_value value;
  hri_dict *made;
  uint32_t i;
  for (i = 0; i < 3 && !reasoning; i++) reasoning = hri_dict_named(*message, names[i]);
  if (!reasoning) return HR_OK;
  value = *reasoning;
  HRI_TRY(hri_dict_new(run, (*message)->count + 2, &made));
  HRI_TRY(hri_dict_put(run, made, hri_cstring("thinking"), value));
  for (i = 0; i < (*message)->count; i++)
    HRI_TRY(hri_dict_put(run, made, (*message)->pairs[i].key, (*message)->pairs[i].value));
  HRI_TRY(hri_dict_put(run, made, hri_cstring("reasoning_content"), value));
  *message = made;
  return HR_OK;
}

static hr_status load_messages(hri_run *run, const hri_json *list, hri_value *out) {
  uint64_t i, count = hri_json_count(list);
  hri_dict *message;
  if (!json_is_array(list->value)) return hri_json_fail(list, run->error, "an array of messages");
  if (count == 0) return hri_json_fail(list, run->error, "an array of at least one message");
  HRI_TRY(hri_items_new(run, HRI_LIST, count, out));
  for (i = 0; i < count; i++) {
    hri_json item = hri_json_item(list, i);
    if (!json_is_object(item.value)) return hri_json_fail(&item, run->error, "an object with role and content");
    HRI_TRY(to_dict(run, item.value, true, &message));
    HRI_TRY(alias_reasoning(run, &message));
    out->as.items->at[i] = (hri_value){.kind = HRI_DICT, .as.dict = message};
  }
  return HR_OK;
}

/* tools and documents: null, or arrays of objects. */
static hr_status check_list(const hri_json *list, hr_error *error) {
  uint64_t i;
  if (json_is_null(list->value)) return HR_OK;
  if (!json_is_array(list->value)) return hri_json_fail(list, error, "an array of objects, or null");
  for (i = 0; i < hri_json_count(list); i++) {
    hri_json item = hri_json_item(list, i);
    if (!json_is_object(item.value)) return hri_json_fail(&item, error, "an object");
  }
  return HR_OK;
}

static hr_status load_variables(hri_run *run, const hri_json *root, hri_dict *variables) {
  void *at;
  for (at = json_object_iter(root->value); at; at = json_object_iter_next(root->value, at)) {
    const char *name = json_object_iter_key(at);
    hri_json member = hri_json_member(root, name);
    hri_value value;
    if (strcmp(name, "messages") == 0) continue;
    if (strcmp(name, "add_generation_prompt") == 0)
      return hri_json_fail(&member, run->error, "left out (it is an argument of the call)");
    if (strcmp(name, "tools") == 0 || strcmp(name, "documents") == 0) HRI_TRY(check_list(&member, run->error));
    HRI_TRY(to_value(run, member.value, &value));
    HRI_TRY(hri_dict_put(run, variables, hri_cstring(name), value));
  }
  return HR_OK;
}

static hr_status load(hri_run *run, const hri_json *root, bool prompt, const hri_token_name *tokens, size_t token_count,
                      hri_dict **out) {
  hri_json list = json_is_object(root->value) ? hri_json_member(root, "messages") : *root;
  hri_value messages;
  size_t i;
  HRI_TRY(hri_dict_new(run, 16, out));
  HRI_TRY(load_messages(run, &list, &messages));
  HRI_TRY(hri_dict_put(run, *out, hri_cstring("messages"), messages));
  HRI_TRY(hri_dict_put(run, *out, hri_cstring("tools"), hri_none()));
  HRI_TRY(hri_dict_put(run, *out, hri_cstring("documents"), hri_none()));
  HRI_TRY(hri_dict_put(run, *out, hri_cstring("add_generation_prompt"), hri_bool(prompt)));
  for (i = 0; i < token_count; i++)
    HRI_TRY(hri_dict_put(run, *out, hri_cstring(tokens[i].name), hri_cstring(tokens[i].text)));
  return json_is_object(root->value) ? load_variables(run, root, *out) : HR_OK;
}

hr_status hri_chat_render_json(const hri_template *template, const hri_token_name *tokens, size_t token_count,
                               const char *json, uint64_t bytes, bool prompt, hr_rendered *out, hr_error *error) {
  hri_run loader = {.template = template, .pool = {.limit = UINT64_MAX}, .error = error};
  hri_json root = {0};
  hri_dict *variables;
  hr_status status;
  HRI_TRY(hri_json_parse(json, bytes, "the conversation", &root, error));
  status = load(&loader, &root, prompt, tokens, token_count, &variables);
  if (status == HR_OK) status = hri_template_render(template, variables, out, error);
  hri_pool_deinit(&loader.pool);
  hri_json_deinit(&root);
  return status;
}

void hr_rendered_deinit(hr_rendered *rendered) {
  if (!rendered) return;
  hri_free(rendered->text);
  hri_free(rendered->generated);
  memset(rendered, 0, sizeof *rendered);
}
