/* The tests of Jinja: `value is name`. */
#include <stdio.h>
#include <string.h>

#include "chat/run.h"

typedef enum question {
  IS_DEFINED,
  IS_UNDEFINED,
  IS_NONE,
  IS_BOOLEAN,
  IS_TRUE,
  IS_FALSE,
  IS_INTEGER,
  IS_FLOAT,
  IS_NUMBER,
  IS_STRING,
  IS_MAPPING,
  IS_SEQUENCE,
  IS_ITERABLE,
  IS_CALLABLE,
  IS_ESCAPED
} question;

static bool answer(question asked, hri_value value) {
  hri_kind kind = (hri_kind)value.kind;
  switch (asked) {
  case IS_DEFINED: return kind != HRI_UNDEFINED;
  case IS_UNDEFINED: return kind == HRI_UNDEFINED;
  case IS_NONE: return kind == HRI_NONE;
  case IS_BOOLEAN: return kind == HRI_BOOL;
  case IS_TRUE: return kind == HRI_BOOL && value.as.truth;
  case IS_FALSE: return kind == HRI_BOOL && !value.as.truth;
  case IS_INTEGER: return kind == HRI_INT;
  case IS_FLOAT: return kind == HRI_FLOAT;
  case IS_NUMBER: return kind == HRI_BOOL || kind == HRI_INT || kind == HRI_FLOAT;
  case IS_STRING: return kind == HRI_STRING;
  case IS_MAPPING: return kind == HRI_DICT;
  /* what has a length and can be indexed; an undefined value has methods for both */
  case IS_SEQUENCE:
    return kind == HRI_STRING || kind == HRI_LIST || kind == HRI_TUPLE || kind == HRI_RANGE || kind == HRI_DICT ||
           kind == HRI_UNDEFINED;
  case IS_ITERABLE: return hri_iterable(value);
  case IS_CALLABLE:
    return kind == HRI_MACRO || kind == HRI_METHOD || kind == HRI_FUNCTION || kind == HRI_LOOP || kind == HRI_JOINER ||
           kind == HRI_UNDEFINED;
  case IS_ESCAPED: return kind == HRI_STRING && value.flag;
  }
  return false;
}

#define SIMPLE_TEST(name, asked)                                                                                       \
  static hr_status name(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {                       \
    (void)run;                                                                                                         \
    (void)values;                                                                                                      \
    *out = hri_bool(answer(asked, self));                                                                              \
    return HR_OK;                                                                                                      \
  }
SIMPLE_TEST(test_defined, IS_DEFINED)
SIMPLE_TEST(test_undefined, IS_UNDEFINED)
SIMPLE_TEST(test_none, IS_NONE)
SIMPLE_TEST(test_boolean, IS_BOOLEAN)
SIMPLE_TEST(test_true, IS_TRUE)
SIMPLE_TEST(test_false, IS_FALSE)
SIMPLE_TEST(test_integer, IS_INTEGER)
SIMPLE_TEST(test_float, IS_FLOAT)
SIMPLE_TEST(test_number, IS_NUMBER)
SIMPLE_TEST(test_string, IS_STRING)
SIMPLE_TEST(test_mapping, IS_MAPPING)
SIMPLE_TEST(test_sequence, IS_SEQUENCE)
SIMPLE_TEST(test_iterable, IS_ITERABLE)
SIMPLE_TEST(test_callable, IS_CALLABLE)
SIMPLE_TEST(test_escaped, IS_ESCAPED)

static hr_status remainder_is(hri_run *run, hri_value self, hri_value divisor, int64_t wanted, hri_value *out) {
  hri_value rest;
  bool equal;
  HRI_TRY(hri_binary(run, HRI_MODULO, self, divisor, &rest));
  HRI_TRY(hri_equals(run, rest, hri_int(wanted), &equal));
  *out = hri_bool(equal);
  return HR_OK;
}

static hr_status test_odd(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  return remainder_is(run, self, hri_int(2), 1, out);
}
static hr_status test_even(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  return remainder_is(run, self, hri_int(2), 0, out);
}
static hr_status test_divisibleby(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return remainder_is(run, self, values[0], 0, out);
}

static hr_status cased(hri_run *run, hri_value self, bool upper, hri_value *out) {
  HRI_TRY(hri_str(run, self, &self));
  HRI_TRY(hri_run_steps(run, 1 + self.count / 8));
  *out = hri_bool(hri_all_cased(self, upper));
  return HR_OK;
}
static hr_status test_lower(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  return cased(run, self, false, out);
}
static hr_status test_upper(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  return cased(run, self, true, out);
}

/* Python's `is`. Whether two equal texts or numbers are one object there is nobody's promise. */
static hr_status test_sameas(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  bool simple = self.kind == HRI_NONE || self.kind == HRI_BOOL,
       plain = self.kind == HRI_STRING || self.kind == HRI_INT || self.kind == HRI_FLOAT;
  bool equal = false;
  if (self.kind == values[0].kind && (simple || plain)) HRI_TRY(hri_equals(run, self, values[0], &equal));
  else if (self.kind == values[0].kind) equal = self.kind != HRI_UNDEFINED && self.as.other == values[0].as.other;
  if (plain && equal) return hri_run_unsupported(run, "the identity of two equal texts or numbers");
  *out = hri_bool(equal);
  return HR_OK;
}

/* Jinja looks a name up in its table of filters, and of tests. */
static hr_status need_key(hri_run *run, hri_value key) {
  return hri_hashable(key) ? HR_OK : hri_run_fail(run, "unhashable type: '%s'", hri_type_name(key));
}

static hr_status test_filter(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  HRI_TRY(need_key(run, self));
  *out = hri_bool(self.kind == HRI_STRING &&
                  (hri_filter_find(self.as.chars, self.count) || hri_filter_lacking(self.as.chars, self.count)));
  return HR_OK;
}

static const hri_builtin *find_test(const char *name, size_t bytes);

static hr_status test_test(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  HRI_TRY(need_key(run, self));
  *out = hri_bool(self.kind == HRI_STRING && find_test(self.as.chars, self.count));
  return HR_OK;
}

#define COMPARING_TEST(name, operator)                                                                                 \
  static hr_status name(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {                       \
    bool result;                                                                                                       \
    HRI_TRY(hri_compare(run, operator, self, values[0], &result));                                                     \
    *out = hri_bool(result);                                                                                           \
    return HR_OK;                                                                                                      \
  }
COMPARING_TEST(test_eq, HRI_EQUAL)
COMPARING_TEST(test_ne, HRI_UNEQUAL)
COMPARING_TEST(test_lt, HRI_LESS)
COMPARING_TEST(test_le, HRI_LESS_EQUAL)
COMPARING_TEST(test_gt, HRI_GREATER)
COMPARING_TEST(test_ge, HRI_GREATER_EQUAL)
COMPARING_TEST(test_in, HRI_IN)

static const hri_builtin tests[] = {
    {"defined", "", test_defined, NULL},    {"undefined", "", test_undefined, NULL},
    {"none", "", test_none, NULL},          {"string", "", test_string, NULL},
    {"mapping", "", test_mapping, NULL},    {"iterable", "", test_iterable, NULL},
    {"sequence", "", test_sequence, NULL},  {"number", "", test_number, NULL},
    {"integer", "", test_integer, NULL},    {"float", "", test_float, NULL},
    {"boolean", "", test_boolean, NULL},    {"true", "", test_true, NULL},
    {"false", "", test_false, NULL},        {"callable", "", test_callable, NULL},
    {"escaped", "", test_escaped, NULL},    {"odd", "", test_odd, NULL},
    {"even", "", test_even, NULL},          {"divisibleby", "num", test_divisibleby, NULL},
    {"lower", "", test_lower, NULL},        {"upper", "", test_upper, NULL},
    {"sameas", "other", test_sameas, NULL}, {"filter", "", test_filter, NULL},
    {"test", "", test_test, NULL},          {"in", "seq", test_in, NULL},
    {"eq", "/other", test_eq, NULL},        {"equalto", "/other", test_eq, NULL},
    {"==", "/other", test_eq, NULL},        {"ne", "/other", test_ne, NULL},
    {"!=", "/other", test_ne, NULL},        {"lt", "/other", test_lt, NULL},
    {"lessthan", "/other", test_lt, NULL},  {"<", "/other", test_lt, NULL},
    {"le", "/other", test_le, NULL},        {"<=", "/other", test_le, NULL},
    {"gt", "/other", test_gt, NULL},        {"greaterthan", "/other", test_gt, NULL},
    {">", "/other", test_gt, NULL},         {"ge", "/other", test_ge, NULL},
    {">=", "/other", test_ge, NULL},
};

static const hri_builtin *find_test(const char *name, size_t bytes) {
  size_t i;
  for (i = 0; i < sizeof tests / sizeof *tests; i++)
    if (strlen(tests[i].name) == bytes && memcmp(tests[i].name, name, bytes) == 0) return &tests[i];
  return NULL;
}

hr_status hri_test_apply(hri_run *run, hri_value name, hri_value self, const hri_arguments *arguments, bool *out) {
  const hri_builtin *test = name.kind == HRI_STRING ? find_test(name.as.chars, name.count) : NULL;
  char what[48];
  hri_value result;
  if (name.kind != HRI_STRING)
    return hri_run_fail(run, "the name of a test must be a text, not %s", hri_type_name(name));
  if (!test)
    return hri_run_fail(run, "no test named '%.*s'", (int)(name.count < 100 ? name.count : 100), name.as.chars);
  (void)snprintf(what, sizeof what, "the test '%s'", test->name);
  HRI_TRY(hri_builtin_call(run, what, test, self, arguments, &result));
  *out = hri_truth(result);
  return HR_OK;
}
