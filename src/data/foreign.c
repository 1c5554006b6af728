/* Files whose bytes are certainly not the text or the rows that they would be taken for: another format, known by its
 * first bytes or by its name, or text in another encoding. Read as they stand they would train a model on noise and say
 * nothing, so they are refused with the reason and what to do. */
#include <string.h>

#include "data/paths.h"
#include "data/source.h"

static const struct {
  const char *magic, *name, *remedy;
} foreign[] = {
    {"\x1F\x8B", "gzip", "unpack it first"},
    {"\x28\xB5\x2F\xFD", "zstd", "unpack it first"},
    {"\xFD"
     "7zXZ",
     "xz", "unpack it first"},
    {"BZh91AY&SY", "bzip2", "unpack it first"},
    {"PK\x03\x04", "zip", "unpack it first"},
    {"PAR1", "Parquet", "unpack it first"}, /* inside another one; else it was taken for rows */
    {"PARE", "Parquet file with encryption,", "write it without encryption"},
    {"ARROW1", "Arrow", "write its rows as JSONL first"},
    {"\x93NUMPY", "NumPy", "write its token ids as JSONL with \"input_ids\", or bare with .tofile('x.bin')"},
};
enum { TAR_AT = 257 }; /* where the headers of tar's files have their magic */

static hr_status refuse(const hri_reader *reader, const char *name, const char *remedy, hr_error *error) {
  hr_status code = hri_fail(error, HR_ERROR_INPUT, "%s is a %s file, not text", reader->path, name);
  return hri_hint(error, code, "%s", remedy);
}

static hr_status check_magic(const hri_reader *reader, hr_error *error) {
  size_t left = hri_reader_left(reader);
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    size_t length = strlen(foreign[i].magic);
    if (left >= length && memcmp(reader->next, foreign[i].magic, length) == 0)
      return refuse(reader, foreign[i].name, foreign[i].remedy, error);
  }
  if (left >= TAR_AT + 5 && memcmp(reader->next + TAR_AT, "ustar", 5) == 0)
    return refuse(reader, "tar", "unpack it first", error);
  return HR_OK;
}

/* ---- UTF-16 and UTF-32 ---- */

enum { LOOKED_AT = 4096, UNITS_LEAST = 16 };

static bool is_plain(unsigned char c) { return (c >= 0x20 && c < 0x7F) || c == '\t' || c == '\r' || c == '\n'; }

/* Without a mark it is certain only for text of mostly Latin letters: nine of ten units are a printable character of
 * ASCII and a zero, the zeros all on the same side, and no unit is 0. Whatever else has zeros stays a file of bytes. */
static bool looks_wide(const unsigned char *bytes, size_t count, size_t zero_at) {
  size_t units = (count < LOOKED_AT ? count : LOOKED_AT) / 2, plain = 0;
  for (size_t i = 0; i < units; i++) {
    unsigned char high = bytes[2 * i + zero_at], low = bytes[2 * i + 1 - zero_at];
    if (high == 0 && !is_plain(low)) return false;
    plain += high == 0;
  }
  return units >= UNITS_LEAST && plain * 10 >= units * 9;
}

static const char *wide_encoding(const hri_reader *reader) {
  const unsigned char *at = (const unsigned char *)reader->next;
  size_t left = hri_reader_left(reader);
  if (left >= 4 && memcmp(at, "\xFF\xFE\0\0", 4) == 0) return "UTF-32";
  if (left >= 4 && memcmp(at, "\0\0\xFE\xFF", 4) == 0) return "UTF-32";
  if (left >= 2 && (memcmp(at, "\xFF\xFE", 2) == 0 || memcmp(at, "\xFE\xFF", 2) == 0)) return "UTF-16";
  if (looks_wide(at, left, 1)) return "UTF-16LE";
  if (looks_wide(at, left, 0)) return "UTF-16BE";
  return NULL;
}

static hr_status check_encoding(const hri_reader *reader, hr_error *error) {
  const char *encoding = wide_encoding(reader);
  hr_status code;
  if (!encoding) return HR_OK;
  code = hri_fail(error, HR_ERROR_INPUT, "%s is text in %.6s%s; data is read as UTF-8", reader->path, encoding,
                  encoding[6] ? " without a byte order mark" : "");
  return hri_hint(error, code, "write it as UTF-8 first: iconv -f %s -t UTF-8 FILE > NEW", encoding);
}

/* ---- tables ---- */

/* By the name: what stands in such a file is text, too. */
static hr_status check_table(const hri_dataset *dataset, const char *path, hr_error *error) {
  static const char *const with_commas[] = {".csv", NULL}, *const with_tabs[] = {".tsv", NULL};
  bool commas = hri_path_ends(path, with_commas);
  hr_status code;
  if (dataset->options->format != HR_DATA_AUTO || (!commas && !hri_path_ends(path, with_tabs))) return HR_OK;
  code = hri_fail(error, HR_ERROR_INPUT,
                  "%s is a table: as text a model would learn its %s, its quotes and the names of its columns", path,
                  commas ? "commas" : "tabs");
  return hri_hint(
      error, code,
      "write its rows as JSONL: python3 -c \"import pandas; pandas.read_csv('F'%s).to_json('F.jsonl', orient='records', lines=True)\"; "
      "or --format text if the characters themselves are meant",
      commas ? "" : ", sep='\\t'");
}

hr_status hri_data_check_foreign(const hri_dataset *dataset, const hri_reader *reader, hr_error *error) {
  HRI_TRY(check_magic(reader, error));
  HRI_TRY(check_encoding(reader, error));
  return check_table(dataset, reader->path, error);
}
