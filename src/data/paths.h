/* The files that a list of paths stands for. */
#ifndef HRI_DATA_PATHS_H
#define HRI_DATA_PATHS_H

#include "base/mem.h"

typedef HRI_ARRAY(char *) hri_path_list;

/* Files stay as they are; a directory becomes its data files (names that end in .jsonl, .json-lines, .ndjson, .json,
 * .txt, .md,
 * .text or .bin, in any case of letters, not hidden) in the order of their names, as bytes; directories inside are not
 * entered.
 * INPUT when a directory has none. Free the list also after a failure. */
hr_status hri_paths_expand(const char *const *paths, uint32_t count, hri_path_list *list, hr_error *error);
void hri_paths_free(hri_path_list *list);

#endif
