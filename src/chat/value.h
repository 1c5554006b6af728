/* The values of a template: Python's, as far as templates see them.
 *
 * Templates are written against Python: what `str`, `repr`, `==`, `<`, `in`, slices and arithmetic do there is what
 * they print.
 * A value is 16 bytes and copied freely; what it refers to lies in the pool of the rendering (or of the template, or in
 * the caller's variables) and never changes, apart from namespaces, iterators, cyclers and loops. Texts are valid
 * UTF-8; positions and lengths that templates see count code points. */
#ifndef HRI_CHAT_VALUE_H
#define HRI_CHAT_VALUE_H

#include "base/text.h"
#include "chat/pool.h"

typedef enum hri_kind {
  HRI_ABSENT = 0, /* an argument that was not given; no template ever sees it */
  HRI_UNDEFINED,
  HRI_NONE,
  HRI_BOOL,
  HRI_INT,
  HRI_FLOAT,
  HRI_STRING,
  HRI_LIST,
  HRI_TUPLE,
  HRI_RANGE,
  HRI_VIEW,     /* what keys(), values() and items() give; flag: hri_view */
  HRI_ITERATOR, /* what can be gone through once: map, select, reverse, ... */
  HRI_DICT,
  HRI_NAMESPACE,
  HRI_MACRO,
  HRI_METHOD,   /* a method with its object */
  HRI_FUNCTION, /* a global function */
  HRI_LOOP,
  HRI_CYCLER,
  HRI_JOINER
} hri_kind;

typedef enum hri_view { HRI_VIEW_KEYS = 0, HRI_VIEW_VALUES, HRI_VIEW_ITEMS } hri_view;
/* Why a value is undefined, for the message when it is used. */
typedef enum hri_lack {
  HRI_LACK_NAME = 0,
  HRI_LACK_ATTRIBUTE,
  HRI_LACK_ELEMENT,
  HRI_LACK_UNSAFE,
  HRI_LACK_TEXT
} hri_lack;

typedef struct hri_value hri_value;
typedef struct hri_items hri_items;
typedef struct hri_dict hri_dict;
typedef struct hri_run hri_run;

struct hri_value {
  uint8_t kind;   /* hri_kind */
  uint8_t flag;   /* string: it is marked safe; view: hri_view; undefined: hri_lack; tuple: it is a group of groupby */
  uint8_t object; /* undefined: the hri_kind of what lacks it */
  uint8_t unused;
  uint32_t count; /* string: bytes; undefined: bytes of the name */
  union {
    bool truth;
    int64_t integer;
    double real;
    const char *chars;
    hri_items *items;
    hri_dict *dict; /* dict and namespace */
    void *other;
  } as;
};

struct hri_items { /* list, tuple, range, view, iterator */
  hri_value *at;
  uint32_t count;
  uint32_t next;             /* iterator: how many were taken */
  int64_t start, stop, step; /* range */
};

typedef struct hri_pair {
  hri_value key, value;
} hri_pair;

struct hri_dict {
  hri_pair *pairs; /* in the order of insertion */
  uint32_t count, capacity;
  uint32_t *slots;     /* pairs by the hash of a text key, index + 1, from HRI_DICT_HASHED pairs on; 0 is free */
  uint32_t slot_count; /* a power of two */
};
enum { HRI_DICT_HASHED = 16 };

static inline hri_value hri_none(void) { return (hri_value){.kind = HRI_NONE}; }
static inline hri_value hri_bool(bool truth) { return (hri_value){.kind = HRI_BOOL, .as.truth = truth}; }
static inline hri_value hri_int(int64_t integer) { return (hri_value){.kind = HRI_INT, .as.integer = integer}; }
static inline hri_value hri_float(double real) { return (hri_value){.kind = HRI_FLOAT, .as.real = real}; }
static inline hri_value hri_chars(const char *chars, size_t count) {
  return (hri_value){.kind = HRI_STRING, .count = (uint32_t)count, .as.chars = chars};
}
hri_value hri_cstring(const char *text);              /* borrowed, NUL-terminated */
bool hri_value_is(hri_value text, const char *chars); /* a text of just these characters */
static inline bool hri_is_items(hri_value value) { return value.kind >= HRI_LIST && value.kind <= HRI_ITERATOR; }

/* Python's name of the type of a value: "str", "dict", ... */
const char *hri_type_name(hri_value value);
/* Whether a value is a whole number for Python: bool and int. */
bool hri_as_integer(hri_value value, int64_t *integer);

/* ---- Making values in the pool of a rendering. MEMORY when refused, INPUT when the limit is met. ---- */
hr_status hri_take(hri_run *run, uint64_t bytes, void **memory);
hr_status hri_text_value(hri_run *run, const char *chars, size_t count, hri_value *out);
hr_status hri_items_new(hri_run *run, hri_kind kind, uint64_t count, hri_value *out); /* elements are none */
hr_status hri_dict_new(hri_run *run, uint32_t capacity, hri_dict **out);
hr_status hri_dict_put(hri_run *run, hri_dict *dict, hri_value key, hri_value value);
/* NULL when the key is not there. */
hri_value *hri_dict_find(const hri_dict *dict, hri_value key);
/* The same, counting the work. */
hr_status hri_dict_look(hri_run *run, const hri_dict *dict, hri_value key, hri_value **out);
hri_value *hri_dict_named(const hri_dict *dict, const char *key);
/* What `text` (which is emptied) holds, as a value. */
hr_status hri_text_take(hri_run *run, hri_text *text, hri_value *out);
hr_status hri_concat(hri_run *run, hri_value left, hri_value right, hri_value *out);

/* ---- Python's semantics ---- */
bool hri_truth(hri_value value);
/* For keys and names: a value of more than some hundred parts is equal to nothing. And for any values, counting the
 * work. */
bool hri_equal(hri_value left, hri_value right);
hr_status hri_equals(hri_run *run, hri_value left, hri_value right, bool *out);
bool hri_hashable(hri_value value);
/* -1, 0, 1; INPUT when the types have no order. */
hr_status hri_order(hri_run *run, hri_value left, hri_value right, const char *operator, int * out);
hr_status hri_contains(hri_run *run, hri_value container, hri_value item, bool *out);
hr_status hri_length(hri_run *run, hri_value value, int64_t *out);
/* The elements of anything that can be gone through; an iterator is used up. `*at` is borrowed. */
hr_status hri_iterate(hri_run *run, hri_value value, hri_value **at, uint32_t *count);
bool hri_iterable(hri_value value);

/* str(), repr() and json.dumps() of a value, added to `text`. */
hr_status hri_add_str(hri_run *run, hri_text *text, hri_value value);
hr_status hri_add_repr(hri_run *run, hri_text *text, hri_value value);
hr_status hri_str(hri_run *run, hri_value value, hri_value *out);
void hri_add_float(hri_text *text, double value);
typedef struct hri_json_style {
  bool ascii, sorted, indented;
  hri_value indent;    /* a text put once per level */
  hri_value item, key; /* separators */
} hri_json_style;
hr_status hri_add_json(hri_run *run, hri_text *text, hri_value value, const hri_json_style *style);

/* What is said when an undefined value is used. */
hr_status hri_fail_undefined(hri_run *run, hri_value value);

#endif
