/* The files that a list of paths stands for. */
#ifndef HRI_DATA_PATHS_H
#define HRI_DATA_PATHS_H

#include "base/mem.h"

typedef HRI_ARRAY(char *) hri_path_list;

/* Where the ending of a name begins that says what is in the file: ".jsonl" of "a.jsonl", and of "a.jsonl.gz", whose
 * compression the bytes tell. *bytes (may be NULL) is its length, 6 in both cases. NULL: there is none. */
const char *hri_path_ending(const char *path, size_t *bytes);
/* Whether it is one of a list with NULL at its end, in any case of letters. */
bool hri_path_ends(const char *path, const char *const *endings);

/* Files stay as they are; a directory becomes its data files (names that end in .jsonl, .json-lines, .ndjson, .json,
 * .txt, .md or .text, also with .gz or .zst behind it, or in .parquet or .bin; in any case of letters, not hidden) in the order of their names, as bytes; directories inside are not
 * entered.
 * INPUT when a directory has none. Free the list also after a failure. */
hr_status hri_paths_expand(const char *const *paths, uint32_t count, hri_path_list *list, hr_error *error);
void hri_paths_free(hri_path_list *list);

#endif
