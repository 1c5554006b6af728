/* Which modules a loader leaves unquantized, as transformers' should_convert_module says (5.x, quantizers/
 * quantizers_utils.py): those whose names end in the entry, and those that it matches as a regular expression from their
 * beginning up to a boundary, which is behind or before a point, or the end.
 *
 * The expressions are Python's. What they have in common with POSIX' extended ones, which the C library matches, is
 * translated (\d, \w, groups without a number, lazy repeats, whose language is that of greedy ones); the rest is refused,
 * because it would be read as something else. Whether an expression matches up to a boundary is asked of each part of the
 * name that ends in one: the longest match of that part must be all of it. */
#include "model/skip.h"

#include <ctype.h>
#include <regex.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

enum { ENTRY_BYTES = 256 };

struct hri_skip {
  const char *entry; /* borrowed from the JSON */
  regex_t regex;
};

static hr_status refuse(const hri_json *item, const char *what, hr_error *error) {
  hri_fail(error, HR_ERROR_INPUT, "%s: field %s: '%.100s' %s", item->file, item->path, json_string_value(item->value),
           what);
  return hri_hint(error, HR_ERROR_INPUT, "name the modules, or ends of their names, such as self_attn.o_proj");
}

/* The class behind a backslash; NULL: none that is known. */
static const char *class_of(char c) { return c == 'd' ? "0-9" : c == 'w' ? "A-Za-z0-9_" : NULL; }

/* A set in brackets, from behind '[' to behind ']'; NULL: it has what POSIX reads otherwise. */
static const char *put_set(hri_text *out, const char *at) {
  const char *first;
  hri_text_add(out, "[");
  if (*at == '^') hri_text_add(out, "%c", *at++);
  for (first = at; *at && (*at != ']' || at == first); at++) {
    if (*at == '[') return NULL; /* [: :] and its like */
    if (*at == '\\' && class_of(at[1])) hri_text_add(out, "%s", class_of(*++at));
    else if (*at == '\\') {
      if (!strchr("./_+*?|(){}$", at[1]) || !at[1])
        return NULL; /* what means something in a set stands elsewhere there */
      hri_text_add(out, "%c", *++at);
    } else hri_text_add(out, "%c", *at);
  }
  if (*at != ']') return NULL;
  hri_text_add(out, "]");
  return at + 1;
}

/* Behind a repeat: a lazy one has the same language, a possessive one has not. */
static const char *behind_repeat(const char *at) { return *at == '?' ? at + 1 : *at == '+' ? NULL : at; }

/* One element of the expression; the position behind it, or NULL. */
static const char *put_one(hri_text *out, const char *at) {
  char c = *at++;
  switch (c) {
  case '\\':
    if (class_of(*at)) hri_text_add(out, "[%s]", class_of(*at));
    else if (!*at || isalnum((unsigned char)*at)) return NULL;
    else hri_text_add(out, strchr(".[]{}()*+?|^$\\", *at) ? "\\%c" : "%c", *at);
    return at + 1;
  case '[': return put_set(out, at);
  case '(': hri_text_add(out, "("); return *at != '?' ? at : at[1] == ':' ? at + 2 : NULL;
  case '{': return NULL; /* counted repeats within each other let the C library take any memory */
  case '*':
  case '+':
  case '?': hri_text_add(out, "%c", c); return behind_repeat(at);
  default: hri_text_add(out, "%c", c); return at;
  }
}

hr_status hri_skip_open(const hri_json *item, hri_skip **opened, hr_error *error) {
  const char *at = json_string_value(item->value);
  hri_text text = {0};
  hri_skip *skip;
  bool failed;
  int status;
  *opened = NULL;
  if (!at || strlen(at) > ENTRY_BYTES) return hri_json_fail(item, error, "the name of a module");
  skip = hri_alloc_zero(1, sizeof *skip);
  if (!skip) return hri_fail_memory(error, sizeof *skip, "a pattern");
  skip->entry = at;
  hri_text_add(&text, "^(");
  while (at && *at) at = put_one(&text, at);
  hri_text_add(&text, ")");
  failed = text.failed;
  status = at && !failed ? regcomp(&skip->regex, text.chars, REG_EXTENDED) : REG_BADPAT;
  if (status == 0) *opened = skip;
  else hri_free(skip);
  hri_text_deinit(&text);
  if (status == 0) return HR_OK;
  return failed ? hri_fail_memory(error, 1, "a pattern")
                : refuse(item, at ? "is no regular expression" : "is a pattern of a kind that is not read", error);
}

void hri_skip_close(hri_skip *skip) {
  if (!skip) return;
  regfree(&skip->regex);
  hri_free(skip);
}

static bool is_boundary(const char *name, size_t at) { return !name[at] || name[at] == '.' || name[at - 1] == '.'; }

bool hri_skip_matches(const hri_skip *skip, const char *module) {
  size_t length = strlen(module), end = strlen(skip->entry);
  char part[128];
  if (length >= sizeof part) return false; /* names of modules are shorter (hri_module_name) */
  if (length >= end && strcmp(module + length - end, skip->entry) == 0) return true;
  for (size_t n = 1; n <= length; n++) {
    regmatch_t match;
    if (!is_boundary(module, n)) continue;
    memcpy(part, module, n);
    part[n] = 0;
    if (regexec(&skip->regex, part, 1, &match, n < length ? REG_NOTEOL : 0) == 0 && (size_t)match.rm_eo == n)
      return true;
  }
  return false;
}
