/* Which modules a loader leaves unquantized, as transformers' should_convert_module says (5.x, quantizers/
 * quantizers_utils.py): those whose names end in the entry, and those that it matches as a regular expression from their
 * beginning up to a boundary, which is behind or before a point, or the end. */
#include "model/skip.h"

#include <string.h>

#include "base/automaton.h"
#include "base/mem.h"

enum { ENTRY_BYTES = 256 };

struct hri_skip {
  const char *entry; /* borrowed from the JSON */
  hri_automaton pattern;
};

hr_status hri_skip_open(const hri_json *item, hri_skip **opened, hr_error *error) {
  const char *entry = json_string_value(item->value), *fault;
  hri_skip *skip;
  *opened = NULL;
  if (!entry || strlen(entry) > ENTRY_BYTES) return hri_json_fail(item, error, "the name of a module");
  skip = hri_alloc_zero(1, sizeof *skip);
  if (!skip) return hri_fail_memory(error, sizeof *skip, "a pattern");
  skip->entry = entry;
  fault = hri_automaton_compile(&skip->pattern, entry);
  if (!fault) {
    *opened = skip;
    return HR_OK;
  }
  hri_free(skip);
  hri_fail(error, HR_ERROR_INPUT, "%s: field %s: '%.100s' is not read as a regular expression: %s", item->file,
           item->path, entry, fault);
  return hri_hint(error, HR_ERROR_INPUT, "name the modules, or ends of their names, such as self_attn.o_proj");
}

void hri_skip_close(hri_skip *skip) { hri_free(skip); }

/* Between modules: no name begins with a point, so the first character is behind the first boundary. */
static bool is_boundary(const char *name, size_t at) {
  return at > 0 && (!name[at] || name[at] == '.' || name[at - 1] == '.');
}

bool hri_skip_matches(const hri_skip *skip, const char *module) {
  size_t length = strlen(module), end = strlen(skip->entry);
  if (length >= end && strcmp(module + length - end, skip->entry) == 0) return true;
  return hri_automaton_begins(&skip->pattern, module, is_boundary);
}
