/* From values as a pickle or a JSON text brings them to the records of a snapshot.
 *
 * Both readers push values onto one stack and say when a dict or a list is complete. There is no object tree: a dict
 * whose keys are those of an event becomes a 48-byte event at once, a dict of a frame an interned frame, a list of
 * frames an interned stack; what is left of each is a tagged 8-byte value. So a file of ten million events needs little
 * more than the events, and what refers to a thing twice (a pickle's memo) costs nothing more.
 *
 * A container is open until it is put into another one or referred to, and then finished for good: only what contains
 * itself would change a container after that, and it is refused. So every value stands for finished things, and nothing
 * here recurses. */
#ifndef HRI_SNAPSHOT_DECODE_H
#define HRI_SNAPSHOT_DECODE_H

#include "base/json_scan.h"
#include "snapshot/build.h"

/* The tag in the low HRI_VALUE_TAG_BITS bits, the payload above. Indexes go into arrays of the decoder or the
 * snapshot. */
typedef uint64_t hri_decoded;
enum { HRI_VALUE_TAG_BITS = 5, HRI_VALUE_SMALL_BITS = 64 - HRI_VALUE_TAG_BITS };
typedef enum hri_value_tag {
  HRI_VALUE_NONE = 0, /* also an empty dict: it states nothing */
  HRI_VALUE_BOOL,
  HRI_VALUE_INT,        /* payload in two's complement */
  HRI_VALUE_WIDE,       /* int of 64 bits: index into wides, times two, plus one when it is above INT64_MAX */
  HRI_VALUE_REAL,       /* index into wides: the bits of a double */
  HRI_VALUE_STRING,     /* index of a string */
  HRI_VALUE_PAIR,       /* index into wides: two integers */
  HRI_VALUE_SMALL_PAIR, /* first << 29 | second */
  HRI_VALUE_OPAQUE,     /* whatever no snapshot needs */
  HRI_VALUE_UNFINISHED, /* only in a memo: a container that is open */
  HRI_VALUE_NEW_LIST,   /* open and empty: memo slot + 1, or 0 */
  HRI_VALUE_NEW_DICT,
  HRI_VALUE_OPEN_LIST, /* index of an open container */
  HRI_VALUE_OPEN_DICT,
  HRI_VALUE_LIST,  /* finished list of records or of lists: index into lists */
  HRI_VALUE_FRAME, /* records from here on */
  HRI_VALUE_STACK,
  HRI_VALUE_EVENT,
  HRI_VALUE_BLOCK,
  HRI_VALUE_SEGMENT,
  HRI_VALUE_ANNOTATION,
  HRI_VALUE_HISTORY,
  HRI_VALUE_DIVISIONS, /* roundup_power2_divisions: index into wides, 16 values */
  HRI_VALUE_SETTINGS,
  HRI_VALUE_TOP
} hri_value_tag;

static inline hri_decoded hri_value_make(hri_value_tag tag, uint64_t payload) {
  return payload << HRI_VALUE_TAG_BITS | (uint64_t)tag;
}
static inline hri_value_tag hri_value_tag_of(hri_decoded v) {
  return (hri_value_tag)(v & ((1u << HRI_VALUE_TAG_BITS) - 1));
}
static inline uint64_t hri_value_payload(hri_decoded v) { return v >> HRI_VALUE_TAG_BITS; }

typedef struct hri_values {
  hri_decoded *items;
  uint64_t count, capacity;
} hri_values;

/* The items of a list: `first`, `first` + 1, ... (by payload) while `run` > 0, else `items`. */
typedef struct hri_value_list {
  hri_decoded first;
  uint64_t run;
  hri_values items;
  bool used; /* it is part of the snapshot; a second use would multiply what it holds */
} hri_value_list;

typedef struct hri_open_container {
  hri_value_list list; /* of a dict: key, value, key, value, ... */
  uint32_t *frames;    /* of a list that began with frames: these, and nothing in `list` */
  uint64_t frame_count, frame_capacity;
  bool mixed;         /* it began with frames, and other things followed */
  uint64_t memo;      /* memo slot + 1, or 0 */
  uint64_t next_free; /* index + 1 */
} hri_open_container;

typedef struct hri_history_entry {
  uint64_t real_size;
  uint32_t stack;
} hri_history_entry;

typedef struct hri_read_block {
  hr_block block;
  bool has_address, has_requested;
} hri_read_block;

typedef struct hri_read_segment {
  hr_segment segment;
  hri_decoded blocks;
  uint64_t stated[3];      /* allocated_size, active_size, requested_size; UINT64_MAX: not stated */
  bool typed, has_address; /* segment_type, address were stated */
} hri_read_segment;

/* The lists of a whole snapshot; HRI_VALUE_NONE where there is none. */
typedef struct hri_read_top {
  hri_decoded segments, traces, settings, annotations, host_segments, host_traces;
} hri_read_top;

/* Keys and constants that mean something. Each is the string of the same index in the snapshot being read. */
typedef enum hri_key {
  HRI_KEY_NONE = 0,
  HRI_KEY_ACTION,
  HRI_KEY_ADDR,
  HRI_KEY_DEVICE_FREE,
  HRI_KEY_SIZE,
  HRI_KEY_STREAM,
  HRI_KEY_TIME_US,
  HRI_KEY_FRAMES,
  HRI_KEY_COMPILE_CONTEXT,
  HRI_KEY_USER_METADATA,
  HRI_KEY_POOL_ID,
  HRI_KEY_CATEGORY,
  HRI_KEY_FILENAME,
  HRI_KEY_NAME,
  HRI_KEY_LINE,
  HRI_KEY_ADDRESS,
  HRI_KEY_REQUESTED_SIZE,
  HRI_KEY_STATE,
  HRI_KEY_HISTORY,
  HRI_KEY_REAL_SIZE,
  HRI_KEY_DEVICE,
  HRI_KEY_TOTAL_SIZE,
  HRI_KEY_SEGMENT_TYPE,
  HRI_KEY_SEGMENT_POOL_ID,
  HRI_KEY_IS_EXPANDABLE,
  HRI_KEY_BLOCKS,
  HRI_KEY_ALLOCATED_SIZE,
  HRI_KEY_ACTIVE_SIZE,
  HRI_KEY_STAGE,
  HRI_KEY_SEGMENTS,
  HRI_KEY_DEVICE_TRACES,
  HRI_KEY_ALLOCATOR_SETTINGS,
  HRI_KEY_EXTERNAL_ANNOTATIONS,
  HRI_KEY_HOST_SEGMENTS,
  HRI_KEY_HOST_TRACES,
  HRI_KEY_HEADROOM,
  HRI_KEY_CUDA_ALLOC_CONF,
  HRI_KEY_ALLOC_CONF,
  HRI_KEY_MAX_SPLIT_SIZE,
  HRI_KEY_GC_THRESHOLD,
  HRI_KEY_EXPANDABLE_SEGMENTS,
  HRI_KEY_ROUNDUP_DIVISIONS,
  HRI_KEY_IGNORED, /* from here to LAST_KEY: keys known and not needed */
  HRI_KEY_LAST_KEY = HRI_KEY_IGNORED + 13,
  HRI_KEY_FIRST_ACTION, /* nine, in the order of hr_trace_action */
  HRI_KEY_ALLOCATED = HRI_KEY_FIRST_ACTION + 9,
  HRI_KEY_PENDING_FREE,
  HRI_KEY_AWAITING_FREE,
  HRI_KEY_INACTIVE,
  HRI_KEY_LARGE,
  HRI_KEY_START,
  HRI_KEY_END,
  HRI_KEY_NOT_AVAILABLE,
  HRI_KEY_COUNT
} hri_key;
_Static_assert(HRI_KEY_LAST_KEY < 64, "the keys of a dict are one mask");

typedef struct hri_snapshot_decoder {
  hri_snapshot_builder builder;
  const char *name;          /* of the file, for errors */
  uint64_t at;               /* where the reader is, in bytes */
  const hri_json_scan *scan; /* for JSON: tells line and column instead */
  hr_error *error;

  hri_values stack;
  hri_values memo;
  hri_values wides; /* 64-bit payloads */
  hri_open_container *open;
  uint64_t open_count, open_capacity, open_free; /* open_free: index + 1 of the first unused one */
  hri_value_list *lists;                         /* [0] is empty */
  uint64_t list_count, list_capacity;
  hri_read_block *blocks;
  uint64_t block_count, block_capacity;
  hri_read_segment *segments;
  uint64_t segment_count, segment_capacity;
  hr_annotation *annotations;
  uint64_t annotation_count, annotation_capacity;
  hri_history_entry *histories;
  uint64_t history_count, history_capacity;
  hr_snapshot_settings *settings;
  uint64_t settings_count, settings_capacity;
  hri_read_top *tops;
  uint64_t top_count, top_capacity;
  hri_decoded last_pool; /* and the index of that pool: almost always the same again */
  uint32_t last_pool_index;
  uint64_t event_keys, block_keys, segment_keys, top_keys; /* words seen as keys, as masks: they tell the version */
  uint64_t event_keys_not;                                 /* those that some event lacks */
  bool seen_map;                                           /* an action of expandable segments */
  bool complete; /* the builder holds the snapshot already, there is no value to make it from */
} hri_snapshot_decoder;

hr_status hri_snapshot_decoder_init(hri_snapshot_decoder *d, const char *name, hr_error *error);
void hri_snapshot_decoder_deinit(hri_snapshot_decoder *d);

/* Room for `want` items of `each` bytes; false when memory is refused. */
bool hri_snapshot_decoder_grow(void **items, uint64_t *capacity, uint64_t want, uint64_t each);
#define HRI_DECODER_GROW(items, capacity, want)                                                                        \
  hri_snapshot_decoder_grow((void **)&(items), &(capacity), (want), sizeof *(items))
static inline bool hri_values_push(hri_values *to, hri_decoded v) {
  if (to->count == to->capacity && !HRI_DECODER_GROW(to->items, to->capacity, to->count + 1)) return false;
  to->items[to->count++] = v;
  return true;
}

/* INPUT at the place where the reader is; MEMORY. */
hr_status hri_snapshot_decoder_fail(const hri_snapshot_decoder *d, const char *format, ...) HRI_PRINTF(2, 3);
hr_status hri_snapshot_decoder_fail_memory(const hri_snapshot_decoder *d);

/* Values. They fail with MEMORY only. */
hr_status hri_value_of_integer(hri_snapshot_decoder *d, uint64_t bits, bool negative, hri_decoded *value);
hr_status hri_value_of_real(hri_snapshot_decoder *d, double real, hri_decoded *value);
/* Bytes that are not UTF-8 become U+FFFD. */
hr_status hri_value_of_string(hri_snapshot_decoder *d, const char *chars, uint64_t count, hri_decoded *value);
/* Two integers make a pair; anything else is opaque. */
hr_status hri_value_of_tuple(hri_snapshot_decoder *d, const hri_decoded *items, uint64_t count, hri_decoded *value);

/* What an integer is as 64 bits; false when it is none. A real that is whole counts. */
bool hri_value_integer(const hri_snapshot_decoder *d, hri_decoded v, uint64_t *bits, bool *negative);
bool hri_value_pair(const hri_snapshot_decoder *d, hri_decoded v, uint64_t pair[2]);
/* "a list", "the string 'x'": for errors. */
const char *hri_value_text(const hri_snapshot_decoder *d, hri_decoded v, char out[80]);

/* Finishes what is put into a container; `key` is the dict's key it stands behind (0: none). Its memo slot follows. */
hr_status hri_value_finish(hri_snapshot_decoder *d, hri_decoded *value, hri_key key);
/* Appends finished or open values to a list; *list changes from NEW_LIST to OPEN_LIST. */
hr_status hri_list_append(hri_snapshot_decoder *d, hri_decoded *list, hri_decoded *items, uint64_t count);
/* Adds count pairs (key, value, ...) to a dict; *dict becomes the record that they make, or OPEN_DICT. */
hr_status hri_dict_add(hri_snapshot_decoder *d, hri_decoded *dict, hri_decoded *pairs, uint64_t count);
void hri_value_drop(hri_snapshot_decoder *d, hri_decoded value); /* taken from the stack and thrown away */

/* Makes the record that a dict of finished pairs is; OPAQUE when it is none. (records.c) */
hr_status hri_record_of_dict(hri_snapshot_decoder *d, const hri_decoded *pairs, uint64_t count, hri_decoded *record);

uint64_t hri_list_count(const hri_value_list *list);
static inline hri_decoded hri_list_item(const hri_value_list *list, uint64_t index) {
  return list->run ? list->first + (index << HRI_VALUE_TAG_BITS) : list->items.items[index];
}

/* Puts the snapshot together from the value that the whole file is. (assemble.c) */
hr_status hri_snapshot_decoder_end(hri_snapshot_decoder *d, hri_decoded whole, uint64_t byte_count,
                                   hr_snapshot **snapshot);

#endif
