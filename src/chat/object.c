/* Attributes and methods of everything but texts, and how arguments find their parameters.
 *
 * The sandbox that transformers uses hides what would change a list or a dict, and all names that begin with '_': they
 * are there for Python, so they hide an element of that name, but what they give is undefined, and an error when it is
 * called. */
#include <string.h>

#include "chat/run.h"

/* ---- Arguments ---- */

typedef struct parameter {
  const char *name;
  size_t bytes;
  bool optional;
} parameter;

static uint32_t split_parameters(const char *text, parameter *out) {
  uint32_t count = 0;
  while (*text) {
    size_t length = strcspn(text, ",");
    bool optional = text[length - 1] == '=';
    out[count++] = (parameter){text, optional ? length - 1 : length, optional};
    text += length + (text[length] == ',');
  }
  return count;
}

static hr_status bind_arguments(hri_run *run, const char *what, const char *parameters, const hri_arguments *arguments,
                                hri_value *values) {
  parameter list[HRI_PARAMETERS];
  bool positional = *parameters == '/';
  uint32_t count = split_parameters(parameters + positional, list), i, j;
  for (i = 0; i < HRI_PARAMETERS; i++) values[i] = (hri_value){0};
  if (arguments->count > count)
    return hri_run_fail(run, "%s takes at most %u argument(s), %u given", what, count, arguments->count);
  for (i = 0; i < arguments->count; i++) values[i] = arguments->at[i];
  for (i = 0; i < arguments->named_count; i++) {
    hri_value name = arguments->named[i].name;
    for (j = 0; j < count; j++)
      if (name.count == list[j].bytes && memcmp(name.as.chars, list[j].name, name.count) == 0) break;
    if (j == count || positional)
      return hri_run_fail(run, "%s got an unexpected keyword argument '%.*s'", what, (int)name.count, name.as.chars);
    if (values[j].kind != HRI_ABSENT)
      return hri_run_fail(run, "%s got multiple values for argument '%.*s'", what, (int)name.count, name.as.chars);
    values[j] = arguments->named[i].value;
  }
  for (j = 0; j < count; j++)
    if (values[j].kind == HRI_ABSENT && !list[j].optional)
      return hri_run_fail(run, "%s lacks the argument '%.*s'", what, (int)list[j].bytes, list[j].name);
  return HR_OK;
}

hr_status hri_builtin_call(hri_run *run, const char *what, const hri_builtin *builtin, hri_value self,
                           const hri_arguments *arguments, hri_value *out) {
  hri_value values[HRI_PARAMETERS];
  if (builtin->raw) return builtin->raw(run, self, arguments, out);
  HRI_TRY(bind_arguments(run, what, builtin->parameters, arguments, values));
  return builtin->call(run, self, values, out);
}

/* ---- dict ---- */

static hr_status dict_get(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value *found;
  if (!hri_hashable(values[0])) return hri_run_fail(run, "unhashable type: '%s'", hri_type_name(values[0]));
  HRI_TRY(hri_dict_look(run, self.as.dict, values[0], &found));
  *out = found ? *found : values[1].kind == HRI_ABSENT ? hri_none() : values[1];
  return HR_OK;
}

hr_status hri_dict_view(hri_run *run, const hri_dict *dict, hri_view view, hri_value *out) {
  uint32_t i;
  HRI_TRY(hri_items_new(run, HRI_VIEW, dict->count, out));
  out->flag = (uint8_t)view;
  for (i = 0; i < dict->count; i++) {
    hri_value *at = &out->as.items->at[i];
    if (view == HRI_VIEW_KEYS) *at = dict->pairs[i].key;
    if (view == HRI_VIEW_VALUES) *at = dict->pairs[i].value;
    if (view != HRI_VIEW_ITEMS) continue;
    HRI_TRY(hri_items_new(run, HRI_TUPLE, 2, at));
    at->as.items->at[0] = dict->pairs[i].key;
    at->as.items->at[1] = dict->pairs[i].value;
  }
  return HR_OK;
}

static hr_status dict_keys(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  return hri_dict_view(run, self.as.dict, HRI_VIEW_KEYS, out);
}
static hr_status dict_values(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  return hri_dict_view(run, self.as.dict, HRI_VIEW_VALUES, out);
}
static hr_status dict_items(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  return hri_dict_view(run, self.as.dict, HRI_VIEW_ITEMS, out);
}
/* Nothing can change it, so a copy is the same. */
static hr_status itself(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)run;
  (void)values;
  *out = self;
  return HR_OK;
}

/* ---- list, tuple, range ---- */

static hr_status items_index(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  uint32_t i;
  for (i = 0; i < self.as.items->count; i++) {
    bool equal;
    HRI_TRY(hri_equals(run, self.as.items->at[i], values[0], &equal));
    if (!equal) continue;
    *out = hri_int(i);
    return HR_OK;
  }
  return hri_run_fail(run, "the value is not in the %s", hri_type_name(self));
}

static hr_status items_count(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  int64_t count = 0;
  uint32_t i;
  for (i = 0; i < self.as.items->count; i++) {
    bool equal;
    HRI_TRY(hri_equals(run, self.as.items->at[i], values[0], &equal));
    count += equal;
  }
  *out = hri_int(count);
  return HR_OK;
}

/* ---- loop ---- */

static hr_status loop_cycle(hri_run *run, hri_value self, const hri_arguments *arguments, hri_value *out) {
  const hri_loop *loop = self.as.other;
  if (arguments->count == 0 || arguments->named_count > 0) return hri_run_fail(run, "no items for cycling given");
  *out = arguments->at[loop->index % arguments->count];
  return HR_OK;
}

static hr_status loop_changed(hri_run *run, hri_value self, const hri_arguments *arguments, hri_value *out) {
  hri_loop *loop = self.as.other;
  hri_value now;
  bool equal = false;
  HRI_TRY(hri_items_new(run, HRI_TUPLE, arguments->count, &now));
  if (arguments->count > 0) memcpy(now.as.items->at, arguments->at, arguments->count * sizeof *arguments->at);
  if (loop->changed.kind != HRI_ABSENT) HRI_TRY(hri_equals(run, loop->changed, now, &equal));
  loop->changed = now;
  *out = hri_bool(!equal);
  return HR_OK;
}

/* ---- cycler ---- */

static hr_status cycler_next(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_cycler *cycler = self.as.other;
  (void)run;
  (void)values;
  *out = cycler->at[cycler->next];
  cycler->next = (cycler->next + 1) % cycler->count;
  return HR_OK;
}

static hr_status cycler_reset(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_cycler *cycler = self.as.other;
  (void)run;
  (void)values;
  cycler->next = 0;
  *out = hri_none();
  return HR_OK;
}

/* ---- Tables ---- */

static const hri_builtin dict_methods[] = {
    {"get", "/key,default=", dict_get, NULL}, {"items", "", dict_items, NULL}, {"keys", "", dict_keys, NULL},
    {"values", "", dict_values, NULL},        {"copy", "", itself, NULL},      {NULL, NULL, NULL, NULL},
};
static const hri_builtin list_methods[] = {
    {"index", "/value", items_index, NULL},
    {"count", "/value", items_count, NULL},
    {"copy", "", itself, NULL},
    {NULL, NULL, NULL, NULL},
};
static const hri_builtin tuple_methods[] = {{"index", "/value", items_index, NULL},
                                            {"count", "/value", items_count, NULL},
                                            {NULL, NULL, NULL, NULL}};
static const hri_builtin loop_methods[] = {{"cycle", NULL, NULL, loop_cycle},
                                           {"changed", NULL, NULL, loop_changed},
                                           {NULL, NULL, NULL, NULL}};
static const hri_builtin cycler_methods[] = {{"next", "", cycler_next, NULL},
                                             {"reset", "", cycler_reset, NULL},
                                             {NULL, NULL, NULL, NULL}};

/* What each kind has, what the sandbox hides of it, and what Python has but this evaluator has not. */
static const struct {
  hri_kind kind;
  const hri_builtin *methods;
  const char *hidden, *lacking; /* names with a blank on both sides */
} kinds[] = {
    {HRI_STRING, hri_str_methods, "",
     " casefold encode expandtabs format_map isidentifier isnumeric istitle maketrans swapcase translate "},
    {HRI_DICT, dict_methods, " clear pop popitem setdefault update ", " fromkeys "},
    {HRI_LIST, list_methods, " append clear pop reverse insert sort extend remove ", ""},
    {HRI_TUPLE, tuple_methods, "", ""},
    {HRI_RANGE, tuple_methods, "", ""},
    {HRI_LOOP, loop_methods, "", ""},
    {HRI_CYCLER, cycler_methods, "", " items pos "},
    {HRI_JOINER, NULL, "", " sep used "},
    {HRI_INT, NULL, "",
     " real imag numerator denominator conjugate bit_length bit_count to_bytes from_bytes as_integer_ratio "},
    {HRI_BOOL, NULL, "",
     " real imag numerator denominator conjugate bit_length bit_count to_bytes from_bytes as_integer_ratio "},
    {HRI_FLOAT, NULL, "", " real imag conjugate hex fromhex is_integer as_integer_ratio "},
    {HRI_VIEW, NULL, "", " isdisjoint mapping "},
    {HRI_ITERATOR, NULL, "", " send throw close "},
    {HRI_MACRO, NULL, "", " arguments catch_kwargs catch_varargs caller explicit_caller "},
};

static bool listed(const char *names, const char *name, size_t bytes) {
  const char *at;
  if (bytes == 0) return false;
  for (at = names; (at = strchr(at, ' ')); at++)
    if (strncmp(at + 1, name, bytes) == 0 && at[bytes + 1] == ' ') return true;
  return false;
}

/* Names with underscores that every Python object has, as far as templates try them. */
static bool dunder(const char *name, size_t bytes) {
  static const char names[] =
      " __class__ __dict__ __doc__ __init__ __new__ __repr__ __str__ __getattribute__ __setattr__ __delattr__ __eq__ __ne__"
      " __lt__ __le__ __gt__ __ge__ __hash__ __dir__ __format__ __reduce__ __reduce_ex__ __sizeof__ __subclasshook__"
      " __init_subclass__ __len__ __getitem__ __contains__ __iter__ __add__ __mul__ __call__ ";
  return bytes > 4 && name[0] == '_' && name[1] == '_' && listed(names, name, bytes);
}

static hri_value undefined_like(hri_lack lack, hri_value object, const char *name, size_t bytes) {
  return (hri_value){.kind = HRI_UNDEFINED,
                     .flag = (uint8_t)lack,
                     .object = object.kind,
                     .count = (uint32_t)bytes,
                     .as.chars = name};
}

static bool is(const char *name, size_t bytes, const char *wanted) {
  return bytes == strlen(wanted) && memcmp(name, wanted, bytes) == 0;
}

static hri_value neighbour(const hri_loop *loop, int64_t index) {
  static const char before[] = "there is no previous item", behind[] = "there is no next item";
  if (index >= 0 && index < loop->count) return loop->at[index];
  return undefined_like(HRI_LACK_TEXT, hri_none(), index < 0 ? before : behind,
                        index < 0 ? sizeof before - 1 : sizeof behind - 1);
}

static hr_status loop_member(hri_run *run, hri_loop *loop, const char *name, size_t bytes, bool *found,
                             hri_value *out) {
  int64_t index = loop->index;
  *found = true;
  if (is(name, bytes, "index")) return *out = hri_int(index + 1), HR_OK;
  if (is(name, bytes, "index0")) return *out = hri_int(index), HR_OK;
  if (is(name, bytes, "first")) return *out = hri_bool(index == 0), HR_OK;
  if (is(name, bytes, "depth")) return *out = hri_int((int64_t)loop->depth0 + 1), HR_OK;
  if (is(name, bytes, "depth0")) return *out = hri_int(loop->depth0), HR_OK;
  if (is(name, bytes, "previtem")) return *out = neighbour(loop, index - 1), HR_OK;
  if (is(name, bytes, "last") || is(name, bytes, "nextitem")) {
    HRI_TRY(hri_loop_fill(run, loop, loop->index + 2));
    *out = name[0] == 'l' ? hri_bool(index + 1 >= loop->count) : neighbour(loop, index + 1);
    return HR_OK;
  }
  if (is(name, bytes, "length") || is(name, bytes, "revindex") || is(name, bytes, "revindex0")) {
    HRI_TRY(hri_loop_fill(run, loop, UINT32_MAX));
    *out = hri_int(name[0] == 'l' ? loop->count : (int64_t)loop->count - index - (bytes == 9));
    return HR_OK;
  }
  *found = false;
  return HR_OK;
}

/* Attributes that are values rather than methods. */
static hr_status find_member(hri_run *run, hri_value self, const char *name, size_t bytes, bool *found,
                             hri_value *out) {
  const hri_cycler *cycler;
  hri_value *value;
  switch ((hri_kind)self.kind) {
  case HRI_NAMESPACE:
    HRI_TRY(hri_dict_look(run, self.as.dict, hri_chars(name, bytes), &value));
    if (value) *out = *value;
    *found = value != NULL;
    return HR_OK;
  case HRI_LOOP: return loop_member(run, self.as.other, name, bytes, found, out);
  case HRI_CYCLER:
    cycler = self.as.other;
    *found = is(name, bytes, "current");
    *out = cycler->at[cycler->next];
    return HR_OK;
  case HRI_TUPLE: /* a group of the filter groupby */
    *found = self.flag && (is(name, bytes, "grouper") || is(name, bytes, "list"));
    if (*found) *out = self.as.items->at[name[0] == 'l'];
    return HR_OK;
  case HRI_RANGE:
    *found = is(name, bytes, "start") || is(name, bytes, "stop") || is(name, bytes, "step");
    *out = hri_int(is(name, bytes, "start")  ? self.as.items->start
                   : is(name, bytes, "stop") ? self.as.items->stop
                                             : self.as.items->step);
    return HR_OK;
  case HRI_MACRO:
    *found = is(name, bytes, "name");
    if (*found) *out = run->template->names.items[((hri_macro *)self.as.other)->node->name];
    return HR_OK;
  default: return HR_OK;
  }
}

static hr_status make_method(hri_run *run, hri_value self, const hri_builtin *builtin, hri_value *out) {
  hri_method *method;
  void *memory;
  HRI_TRY(hri_take(run, sizeof *method, &memory));
  method = memory;
  *method = (hri_method){self, builtin};
  *out = (hri_value){.kind = HRI_METHOD, .as.other = method};
  return HR_OK;
}

hr_status hri_method_find(hri_run *run, hri_value self, const char *name, size_t bytes, bool *found, hri_value *out) {
  const hri_builtin *method;
  size_t i;
  *found = false;
  HRI_TRY(find_member(run, self, name, bytes, found, out));
  if (*found) return HR_OK;
  *found = true;
  if (dunder(name, bytes)) return *out = undefined_like(HRI_LACK_UNSAFE, self, name, bytes), HR_OK;
  for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (kinds[i].kind != self.kind) continue;
    /* those of Markup escape their arguments */
    if (self.kind == HRI_STRING && self.flag &&
        listed(" join replace center ljust rjust zfill partition rpartition format ", name, bytes))
      return hri_run_unsupported(run, "'%.*s' of a text marked safe", (int)bytes, name);
    for (method = kinds[i].methods; method && method->name; method++)
      if (is(name, bytes, method->name)) return make_method(run, self, method, out);
    if (listed(kinds[i].hidden, name, bytes)) return *out = undefined_like(HRI_LACK_UNSAFE, self, name, bytes), HR_OK;
    if (listed(kinds[i].lacking, name, bytes))
      return hri_run_unsupported(run, "'%.*s' of a %s", (int)bytes, name, hri_type_name(self));
  }
  *found = false;
  return HR_OK;
}
