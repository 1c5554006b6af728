/* A digest of a file, taken while its bytes pass: in any order, in pieces of any size, by several threads at once. It
 * is the same as that of one pass from front to end.
 *
 * Definition, schema 1. It is in manifests and logs of others, so it never changes silently: another definition is
 * another prefix of the text form. All arithmetic is modulo 2^64; a file has n bytes.
 *
 *   granule i = the bytes from 4096 i to min(4096 (i + 1), n), for i from 0 while 4096 i < n
 *   h_i       = XXH3_64bits(granule i): XXH3 as of xxHash 0.8.0, 64 bits, seed 0, the default secret
 *   mix(a, b) = SplitMix64: z = a + (b + 1) 0x9E3779B97F4A7C15; z = (z ^ z >> 30) 0xBF58476D1CE4E5B9;
 *               z = (z ^ z >> 27) 0x94D049BB133111EB; z ^ z >> 31
 *   digest    = mix(sum over i of mix(h_i, i), n)
 *   text      = "xxh3:" and 16 hexadecimal digits, lower case
 *
 * A sum does not mind the order; mix with the position makes it mind the place. It finds damage, not malice: who can
 * choose the bytes can choose a digest.
 *
 * Source of XXH3: Cyan4973/xxHash, doc/xxhash_spec.md. */
#ifndef HRI_FORMATS_DIGEST_H
#define HRI_FORMATS_DIGEST_H

#include "base/mem.h"

enum {
  HRI_DIGEST_GRANULE = 4096, /* of the definition */
  HRI_DIGEST_TEXT_BYTES = 22 /* "xxh3:", 16 digits, NUL */
};

typedef struct hri_file_digest hri_file_digest;

/* A digest of no bytes yet, with room for `parts` granules of which some bytes are missing (4.5 KiB each); more are
 * made room for as they come. MEMORY. */
hr_status hri_file_digest_create(uint32_t parts, hri_file_digest **digest, hr_error *error);
void hri_file_digest_destroy(hri_file_digest *digest); /* NULL is fine */

/* Adds the bytes from `offset` of the file; each byte once. May run in several threads. Pieces that begin and end at
 * multiples of HRI_DIGEST_GRANULE take no lock and cannot fail. INTERNAL: bytes were given twice (not always noticed
 * here, but at the latest by hri_file_digest_value); MEMORY. After an error the digest is of no use. */
hr_status hri_file_digest_add(hri_file_digest *digest, uint64_t offset, const void *bytes, uint64_t count,
                              hr_error *error);
/* Reads the first `bytes` bytes of an open file (`path` for errors) and adds them: to go on with a log where its digest
 * was taken of a part. IO; INPUT when the file is shorter; MEMORY. */
hr_status hri_file_digest_add_file(hri_file_digest *digest, int fd, const char *path, uint64_t bytes, hr_error *error);

uint64_t hri_file_digest_bytes(const hri_file_digest *digest); /* given so far */
/* The digest of a file of `bytes` bytes, all of them given; more may be added behind them afterwards. Not while another
 * thread adds. INTERNAL: bytes are missing, or were given twice. */
hr_status hri_file_digest_value(hri_file_digest *digest, uint64_t bytes, uint64_t *value, hr_error *error);

/* In one pass: of memory, and of a regular file with its length. IO; INPUT; MEMORY. */
uint64_t hri_file_digest_of(const void *bytes, uint64_t count);
hr_status hri_file_digest_read(const char *path, uint64_t *bytes, uint64_t *value, hr_error *error);

/* The text form, and back: false for anything that hri_file_digest_text does not write. */
void hri_file_digest_text(uint64_t value, char text[HRI_DIGEST_TEXT_BYTES]);
bool hri_file_digest_parse(const char *text, uint64_t *value);

/* ---- what was written or read ---- */

typedef struct hri_file_record {
  char name[256]; /* in its directory */
  uint64_t bytes, digest;
} hri_file_record;

typedef HRI_ARRAY(hri_file_record) hri_file_list; /* begins as {0}; hri_array_free */

/* Adds a file under the last part of its path. NULL for `list`: nobody wants to know. MEMORY. */
hr_status hri_file_list_add(hri_file_list *list, const char *path, uint64_t bytes, uint64_t digest, hr_error *error);
/* The same for a file that is read for it. */
hr_status hri_file_list_read(hri_file_list *list, const char *path, hr_error *error);
const hri_file_record *hri_file_list_find(const hri_file_list *list, const char *name); /* NULL when it is not there */

#endif
