/* Files that people give by mistake, by how they begin. "Damaged" would send them after a file that is whole. */
#include <string.h>
#include <strings.h>

#include "base/rows.h"
#include "snapshot/reader.h"

enum { CSV_COMMAS = 2, SAFETENSORS_HEADER = 100 << 20 };

#define TAKE_SNAPSHOT "torch.cuda.memory._record_memory_history(), later _dump_snapshot(\"snapshot.pickle\")"
#define ABOUT_WEIGHTS                                                                                                  \
  "it holds no allocations: take a memory snapshot of the run (" TAKE_SNAPSHOT                                         \
  "), or \"headroom plan\" what a job of "                                                                             \
  "this model needs"
#define UNPACK "unpack it first, and give what is in it"
#define ABOUT_PICTURES "a picture cannot be read: give the snapshot that it was made from, or the text of the error"
#define ABOUT_TIMES                                                                                                    \
  "take a memory snapshot (" TAKE_SNAPSHOT "), or a trace of PyTorch's profiler with profile_memory=True"

/* By the first bytes alone. */
static const struct {
  const char *bytes;
  uint32_t count;
  hr_foreign what;
} starts[] = {
    {"GGUF", 4, {"a GGUF model", ABOUT_WEIGHTS, false}},
    {"\x80\2\x8a\nl\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19",
     14,
     {"a checkpoint of torch.save (its old format)", ABOUT_WEIGHTS, false}},
    {"\x89HDF\r\n\x1a\n", 8, {"an HDF5 file, most likely weights", ABOUT_WEIGHTS, false}},
    {"\x93NUMPY", 6, {"a NumPy array", ABOUT_WEIGHTS, false}},
    {"SQLite format 3",
     16,
     {"an SQLite database, most likely of Nsight Systems", "its memory events name no tensor: " ABOUT_TIMES, false}},
    {"\x89PNG", 4, {"a PNG picture", ABOUT_PICTURES, false}},
    {"\xff\xd8\xff", 3, {"a JPEG picture", ABOUT_PICTURES, false}},
    {"%PDF-", 5, {"a PDF document", "give the text of the error itself, or a memory snapshot", false}},
    {"\x7f"
     "ELF",
     4,
     {"a program, a library or a core dump", "give the text of the error, or a memory snapshot", false}},
    {"PAR1", 4, {"a Parquet file", "it is data, no recording of memory: take a snapshot (" TAKE_SNAPSHOT ")", false}},
    {"\x28\xb5\x2f\xfd", 4, {"a file compressed with zstd", UNPACK, false}},
    {"\xfd"
     "7zXZ",
     5,
     {"a file compressed with xz", UNPACK, false}},
    {"\x1f\x8b", 2, {"gzip within gzip", "undo one of the two (\"gunzip\"), and give what is in it", false}},
    {"BZh", 3, {"a file compressed with bzip2", UNPACK, false}},
};

static const hr_foreign checkpoint =
    {"a checkpoint of torch.save",
     "it holds no allocations; if a snapshot was saved with torch.save, unpack it (\"unzip\") and "
     "give the data.pkl in it; else take one: " TAKE_SNAPSHOT,
     false};
static const hr_foreign archive = {"a zip archive, not a snapshot", UNPACK, false};
static const hr_foreign safetensors = {"a safetensors file", ABOUT_WEIGHTS, false};
static const hr_foreign events = {"an event file of TensorBoard", "its curves hold no allocations: " ABOUT_TIMES,
                                  false};
static const hr_foreign page = {"an HTML page",
                                "give the data that it was made from (the snapshot; export_memory_timeline to "
                                "NAME.raw.json.gz instead of HTML), or the text of the error",
                                true};
static const hr_foreign table = {"a table with commas (CSV)",
                                 "samples of memory over time hold no allocations: " ABOUT_TIMES, true};

/* Programs log so too: an error message may stand in it. */
static const hr_foreign rows = {HRI_ROWS_ARE, HRI_ROWS_HINT, true};

static bool holds(const unsigned char *p, uint64_t count, const char *word) {
  return memmem(p, (size_t)count, word, strlen(word)) != NULL;
}

/* Eight bytes of length, and a JSON object of that length. */
static bool is_safetensors(const unsigned char *p, uint64_t count) {
  uint64_t length = 0;
  if (count < 10 || p[8] != '{') return false;
  for (int k = 0; k < 8; k++) length |= (uint64_t)p[k] << 8 * k;
  return length >= 2 && length <= SAFETENSORS_HEADER;
}

/* A record of a TFRecord file whose event states the file's version, as the first one does. */
static bool is_event_file(const unsigned char *p, uint64_t count) {
  return count >= 32 && holds(p, count < 96 ? count : 96, "brain.Event:");
}

static bool is_page(const unsigned char *p, uint64_t count) {
  uint64_t k = 0;
  while (k < count && strchr(" \t\r\n", p[k]) && p[k]) k++;
  return count - k >= 14 && (strncasecmp((const char *)p + k, "<!doctype html", 14) == 0 ||
                             strncasecmp((const char *)p + k, "<html", 5) == 0);
}

/* Two lines of text with as many commas, the first of names: JSON begins otherwise, lines of logs have colons. */
static bool is_table(const unsigned char *p, uint64_t count) {
  uint32_t commas[2] = {0}, line = 0;
  for (uint64_t k = 0; k < count && line < 2; k++) {
    if (p[k] == 0 || p[k] == '{' || (line == 0 && p[k] == ':') || (k == 0 && p[k] == '[')) return false;
    commas[line] += p[k] == ',';
    line += p[k] == '\n';
  }
  return line == 2 && commas[0] >= CSV_COMMAS && commas[0] == commas[1];
}

const hr_foreign *hri_foreign_of(const unsigned char *p, uint64_t count) {
  for (size_t k = 0; k < sizeof starts / sizeof *starts; k++)
    if (count >= starts[k].count && memcmp(p, starts[k].bytes, starts[k].count) == 0) return &starts[k].what;
  if (count >= 4 && memcmp(p, "PK\3\4", 4) == 0) return holds(p, count, "/data.pkl") ? &checkpoint : &archive;
  if (is_safetensors(p, count)) return &safetensors;
  if (is_event_file(p, count)) return &events;
  if (is_page(p, count)) return &page;
  if (hri_rows_begin((const char *)p, count)) return &rows;
  return is_table(p, count) ? &table : NULL;
}
