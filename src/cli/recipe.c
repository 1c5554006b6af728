/* Recipes: a flat YAML mapping of option names to scalars or lists, or of an option of words with values (lora) to a mapping
 * of these. Read with libyaml's event parser, so that every
 * mistake can name its line; nothing of YAML beyond scalars and lists of scalars is accepted. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

#include "base/file.h"
#include "cli/options.h"
#include "cli/peers.h"
#include "cli/text.h"

typedef struct recipe {
  cli_config *config;
  const char *path;
  FILE *file;
  yaml_parser_t parser;
  yaml_event_t event;
  bool event_held;
  size_t seen[MAX_OPTIONS]; /* line of the first use, 0: none */
} recipe;

static size_t line_of(const recipe *r) { return r->event.start_mark.line + 1; }

static hr_status malformed(const recipe *r, const char *what, hr_error *error) {
  return hri_fail(error, HR_ERROR_INPUT, "%s:%zu: %s", r->path, line_of(r), what);
}

static const char *scalar(const recipe *r) { return (const char *)r->event.data.scalar.value; }

static hr_status next_event(recipe *r, hr_error *error) {
  if (r->event_held) yaml_event_delete(&r->event);
  r->event_held = false;
  if (yaml_parser_parse(&r->parser, &r->event)) {
    r->event_held = true;
    if (r->event.type == YAML_SCALAR_EVENT && strlen(scalar(r)) != r->event.data.scalar.length)
      return malformed(r, "a value holds the byte 0, and options are texts that end there", error);
    return HR_OK;
  }
  if (ferror(r->file))
    return hri_fail_errno(error, errno, "read the recipe", r->path); /* to the parser "input error" */
  if (r->parser.error == YAML_MEMORY_ERROR) return hri_fail_memory(error, 0, r->path);
  return hri_fail(error, HR_ERROR_INPUT, "%s:%zu: %s%s%s", r->path, r->parser.problem_mark.line + 1,
                  r->parser.context ? r->parser.context : "", r->parser.context ? ": " : "",
                  r->parser.problem ? r->parser.problem : "it cannot be read as YAML");
}

/* An empty plain scalar or ~ leaves the option alone. */
static bool is_null(const recipe *r) {
  const char *text = scalar(r);
  if (r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
  return !*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0;
}

static bool is_key(const recipe *r, option_id id) {
  return id != option_at(r->config, &r->config->own.recipe) && !option_get(id)->flag_only;
}

static hr_status find_key(const recipe *r, option_id *id, hr_error *error) {
  const char *name = scalar(r), *peer;
  hri_near search;
  *id = option_find(name, true, r->config->command);
  if (*id < option_count() && is_key(r, *id)) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "%s:%zu: unknown key '%s'", r->path, line_of(r), name);
  peer = peer_option(name);
  if (peer && peer[0] != '-') return hri_hint(error, HR_ERROR_USAGE, "model: MODEL");
  if (peer) /* "--lr X" as a recipe has it */
    return hri_hint(error, HR_ERROR_USAGE, "%.*s: %s", (int)strcspn(peer + 2, " "), peer + 2, strchr(peer, ' ') + 1);
  hri_near_begin(&search, name);
  for (option_id each = 0; each < option_count(); each++)
    if (is_key(r, each)) hri_near_offer(&search, option_get(each)->name);
  return hri_near_end(&search) ? hri_hint(error, HR_ERROR_USAGE, "%s", hri_near_end(&search)) : HR_ERROR_USAGE;
}

static hr_status set(recipe *r, option_id id, const char *text, const char *place, hr_error *error) {
  hr_value checked;
  /* An option of another command is checked, then left alone: one recipe serves plan and train. */
  if (!(option_get(id)->commands & r->config->command))
    return hr_field_read(option_get(id), text, place, &checked, error);
  return config_set(r->config, id, text, ORIGIN_RECIPE, place, error);
}

/* [a, b] of an option that takes one text is joined by commas: betas: [0.9, 0.95]. */
static hr_status read_list(recipe *r, option_id id, const char *place, hr_error *error) {
  char joined[512] = "";
  size_t used = 0;
  bool paths = option_get(id)->kind == HR_FIELD_PATHS;
  hr_status status = next_event(r, error);
  while (status == HR_OK && r->event.type == YAML_SCALAR_EVENT) {
    if (paths) status = set(r, id, scalar(r), place, error);
    else used += (size_t)snprintf(joined + used, sizeof joined - used, "%s%s", used ? "," : "", scalar(r));
    if (used >= sizeof joined) return malformed(r, "the list is too long", error);
    if (status == HR_OK) status = next_event(r, error);
  }
  if (status != HR_OK) return status;
  if (r->event.type != YAML_SEQUENCE_END_EVENT) return malformed(r, "a list holds plain values only", error);
  return paths ? HR_OK : set(r, id, joined, place, error);
}

typedef struct joined {
  char text[2048];
  size_t used;
} joined;

static hr_status join(recipe *r, joined *j, const char *before, const char *text, hr_error *error) {
  size_t length = strlen(before) + strlen(text);
  if (j->used + length >= sizeof j->text) return malformed(r, "the mapping is too long", error);
  memcpy(j->text + j->used, before, strlen(before));
  memcpy(j->text + j->used + strlen(before), text, strlen(text) + 1);
  j->used += length;
  return HR_OK;
}

/* The values of a word: [a, b] as a,b and {a: 1, b: 2} as a:1,b:2. The opening event is there. */
static hr_status join_values(recipe *r, joined *j, hr_error *error) {
  bool map = r->event.type == YAML_MAPPING_START_EVENT;
  yaml_event_type_t end = map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
  hr_status status = next_event(r, error);
  for (bool first = true; status == HR_OK && r->event.type == YAML_SCALAR_EVENT; first = false) {
    status = join(r, j, first ? "=" : ",", scalar(r), error);
    if (status == HR_OK) status = next_event(r, error);
    if (status == HR_OK && map) {
      if (r->event.type != YAML_SCALAR_EVENT) return malformed(r, "a mapping in a mapping holds plain values", error);
      status = join(r, j, ":", scalar(r), error);
      if (status == HR_OK) status = next_event(r, error);
    }
  }
  if (status == HR_OK && r->event.type != end) return malformed(r, "a list holds plain values only", error);
  return status;
}

/* {r: 16, targets: [q_proj, v_proj], rslora: true} of an option of words: r=16,targets=q_proj,v_proj,rslora. */
static hr_status read_words(recipe *r, option_id id, const char *place, hr_error *error) {
  joined j = {.used = 0};
  hr_status status = next_event(r, error);
  while (status == HR_OK && r->event.type == YAML_SCALAR_EVENT) {
    size_t before = j.used;
    status = join(r, &j, j.used ? "," : "", scalar(r), error);
    if (status == HR_OK) status = next_event(r, error);
    if (status != HR_OK) break;
    if (r->event.type == YAML_SEQUENCE_START_EVENT || r->event.type == YAML_MAPPING_START_EVENT)
      status = join_values(r, &j, error);
    else if (r->event.type != YAML_SCALAR_EVENT) return malformed(r, "a word has a value", error);
    else if (is_null(r) || strcmp(scalar(r), "false") == 0) j.text[j.used = before] = 0;
    else if (strcmp(scalar(r), "true") != 0) status = join(r, &j, "=", scalar(r), error);
    if (status == HR_OK) status = next_event(r, error);
  }
  if (status != HR_OK) return status;
  if (r->event.type != YAML_MAPPING_END_EVENT) return malformed(r, "a word is plain text", error);
  return j.used ? set(r, id, j.text, place, error) : HR_OK;
}

/* Whether an option is given as words with values: r=N,... */
static bool takes_words(option_id id) {
  const hr_field *field = option_get(id);
  return field->kind == HR_FIELD_TEXT && field->operand && strchr(field->operand, '=');
}

static hr_status read_pair(recipe *r, hr_error *error) {
  option_id id;
  char place[160];
  size_t line = line_of(r);
  hr_status status;
  if (r->event.type != YAML_SCALAR_EVENT) return malformed(r, "a key is the name of an option", error);
  status = find_key(r, &id, error);
  if (status != HR_OK) return status;
  if (r->seen[id]) {
    hri_fail(error, HR_ERROR_USAGE, "%s:%zu: '%s' stands in line %zu already", r->path, line, scalar(r), r->seen[id]);
    return HR_ERROR_USAGE;
  }
  r->seen[id] = line;
  (void)snprintf(place, sizeof place, "%.140s:%zu", r->path, line);
  status = next_event(r, error);
  if (status != HR_OK) return status;
  if (r->event.type == YAML_SCALAR_EVENT) return is_null(r) ? HR_OK : set(r, id, scalar(r), place, error);
  if (r->event.type == YAML_SEQUENCE_START_EVENT) return read_list(r, id, place, error);
  if (r->event.type == YAML_MAPPING_START_EVENT && takes_words(id)) return read_words(r, id, place, error);
  return malformed(r, "a recipe is flat: keys with values or lists of values", error);
}

static hr_status read_document(recipe *r, hr_error *error) {
  hr_status status = next_event(r, error); /* stream start */
  if (status == HR_OK) status = next_event(r, error);
  if (status != HR_OK || r->event.type == YAML_STREAM_END_EVENT) return status; /* an empty file sets nothing */
  status = next_event(r, error);
  if (status == HR_OK && r->event.type == YAML_SCALAR_EVENT && is_null(r)) return HR_OK; /* only comments */
  if (status == HR_OK && r->event.type != YAML_MAPPING_START_EVENT)
    return malformed(r, "a recipe is a mapping of option names to values", error);
  if (status == HR_OK) status = next_event(r, error);
  while (status == HR_OK && r->event.type != YAML_MAPPING_END_EVENT) {
    status = read_pair(r, error);
    if (status == HR_OK) status = next_event(r, error);
  }
  if (status == HR_OK) status = next_event(r, error); /* document end */
  if (status == HR_OK) status = next_event(r, error);
  if (status == HR_OK && r->event.type != YAML_STREAM_END_EVENT)
    return malformed(r, "a recipe holds one document", error);
  return status;
}

hr_status config_recipe(cli_config *config, hr_error *error) {
  recipe r = {.config = config, .path = config->own.recipe};
  hr_status status;
  if (!r.path) return HR_OK;
  r.file = text_open(r.path, "the recipe", error);
  if (!r.file) return error->code;
  if (!yaml_parser_initialize(&r.parser)) status = hri_fail_memory(error, 0, r.path);
  else {
    yaml_parser_set_input_file(&r.parser, r.file);
    status = read_document(&r, error);
    if (r.event_held) yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
  }
  text_close(r.file);
  return status;
}
