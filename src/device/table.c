/* The devices that one can plan for: a table of published figures, and this machine.
 *
 * What a process can use is less than what is built in, and torch, nvidia-smi and the data sheet give three different
 * totals. The table takes what cudaMemGetInfo reported where that is known, else nvidia-smi's total less a reserve: 1.6
 * %, at least 256 MiB and at most 0.85 GiB, which covers every gap between the two that is known (0.24 GiB T4, 0.31 RTX
 * 3090,
 * 0.43 H100, 0.48 RTX 5090, 0.6 H200, 0.62 RTX 6000 Ada, 0.85 A100-80).
 *
 * The rates are dense, with fp32 accumulation: on GeForce bf16 = 2 x fp32 (Ampere and later), on data-centre parts 4 x
 * or more. fp16 goes as fast as bf16 where there is bf16. Volta and Turing have no bf16: their rows have a rate of fp16
 * instead, 4 x fp32 on GeForce of Turing (8 x with fp16 accumulation, which no training uses) and 8 x on the T4. Memory of the CUDA context depends on driver and version and is never tabulated as truth: 500 MiB is assumed
 * (256 to 612 MiB were seen with lazily loaded kernels). */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <headroom/device.h>

#include "base/error.h"
#include "base/number.h"
#include "base/text.h"
#include "device/cpu.h"
#include "device/gpu.h"

#define MIB (1024ull * 1024)
#define GIB (1024ull * 1024 * 1024)

/* Where figures come from: letters in a row, spelled out by source_text. */
static const struct {
  char letter;
  const char *text;
} sources[] = {
    {'M', "ml-engineering accelerator tables"},
    {'L', "Lightning throughput tables"},
    {'A', "llm-analysis configs"},
    {'H', "huggingface.js hardware table"},
    {'X', "hmc-tech specification pages"},
    {'R', "bf16 = 2 x fp32"},
    {'S', "fp16 = 4 x fp32"},
    {'T', "card databases"},
    {'d', "data sheet, unverified"},
    {'C', "codesota"},
    {'O', "total as programs on it printed it"},
    {'p', "host link assumed"},
    {'u', "total unverified"},
};

typedef struct row {
  const char *name, *title;
  const char *aliases; /* more names, separated by blanks; compared like names */
  double capacity_gib;
  double smi_mib;          /* nvidia-smi's total; 0: not known, the capacity is taken */
  double usable_gib;       /* cudaMemGetInfo's total; 0: not known */
  double gigabytes;        /* memory, 1e9 bytes per second */
  double bf16, tf32, fp32; /* 1e12 operations per second, dense; 0: not offered */
  double link;             /* PCIe, 1e9 bytes per second in one direction */
  double efficiency; /* best large bf16 GEMM over the published rate, where measured; else 0.75 (torch's roofline) */
  uint64_t workspace;
  const char *sources, *date; /* date: of the collection that the row was taken from */
  double fp16;                /* tensor rate where there is no bf16, else 0: it is bf16's */
  uint32_t capability;        /* CUDA compute capability times ten; 0: not NVIDIA's */
  uint32_t
      multiprocessors; /* of NVIDIA's data sheets; fp32 = these x 128 (64 before Ampere, and A100) x 2 x the clock */
} row;

#define OLD HRI_GPU_WORKSPACE_CLASSIC
#define NEW HRI_GPU_WORKSPACE_HOPPER

/* clang-format off */
static const row rows[] = {
    {"rtx-2060", "NVIDIA GeForce RTX 2060", "rtx-2060-6 rtx-2060-6gb", 6, 6144, 0, 336, 0, 0, 6.45, 16, 0.75, OLD, "HSTdu", "2026-11", 25.8, 75, 30},
    {"rtx-2060-12", "NVIDIA GeForce RTX 2060 12GB", "rtx-2060-12gb", 12, 12288, 0, 336, 0, 0, 7.18, 16, 0.75, OLD, "HSdu", "2026-11", 28.7, 75, 34},
    {"rtx-2060-super", "NVIDIA GeForce RTX 2060 SUPER", "", 8, 8192, 0, 448, 0, 0, 7.18, 16, 0.75, OLD, "TSdu", "2026-11", 28.7, 75, 34},
    {"rtx-2070", "NVIDIA GeForce RTX 2070", "", 8, 8192, 0, 448, 0, 0, 7.46, 16, 0.75, OLD, "HSdu", "2026-11", 29.9, 75, 36},
    {"rtx-2080", "NVIDIA GeForce RTX 2080", "", 8, 8192, 0, 448, 0, 0, 10.07, 16, 0.75, OLD, "HSdu", "2026-11", 40.3, 75, 46},
    {"rtx-2080-ti", "NVIDIA GeForce RTX 2080 Ti", "", 11, 11264, 0, 616, 0, 0, 13.45, 16, 0.75, OLD, "HSdu", "2026-11", 53.8, 75, 68},
    {"rtx-3050-6", "NVIDIA GeForce RTX 3050 6GB", "rtx-3050-6gb", 6, 6144, 0, 168, 13.5, 6.77, 6.77, 16, 0.75, OLD, "Rdu", "2026-11", 0, 86, 18},
    {"rtx-3050", "NVIDIA GeForce RTX 3050", "rtx-3050-8 rtx-3050-8gb", 8, 8192, 0, 224, 18.2, 9.1, 9.1, 16, 0.75, OLD, "Rdu", "2026-11", 0, 86, 20},
    {"rtx-3060", "NVIDIA GeForce RTX 3060", "rtx-3060-12gb", 12, 12288, 0, 360, 25.5, 12.7, 12.7, 31, 0.75, OLD, "HRu", "2026-08", 0, 86, 28},
    {"rtx-3060-ti", "NVIDIA GeForce RTX 3060 Ti", "", 8, 8192, 0, 448, 32.4, 16.2, 16.2, 31, 0.75, OLD, "HRdu", "2026-11", 0, 86, 38},
    {"rtx-3070", "NVIDIA GeForce RTX 3070", "", 8, 8192, 0, 448, 40.6, 20.3, 20.3, 31, 0.75, OLD, "HRdu", "2026-11", 0, 86, 46},
    {"rtx-3070-ti", "NVIDIA GeForce RTX 3070 Ti", "", 8, 8192, 0, 608, 43.5, 21.75, 21.75, 31, 0.75, OLD, "HRTdu", "2026-11", 0, 86, 48},
    {"rtx-3080", "NVIDIA GeForce RTX 3080 10G", "rtx-3080-10gb", 10, 10240, 0, 760, 59.5, 29.8, 29.8, 31, 0.75, OLD, "LRdu", "2026-08", 0, 86, 68},
    {"rtx-3080-ti", "NVIDIA GeForce RTX 3080 Ti", "rtx-3080-ti-12gb", 12, 12288, 0, 912, 68.2, 34.1, 34.1, 31, 0.75, OLD, "HRTdu", "2026-11", 0, 86, 80},
    {"rtx-3090", "NVIDIA GeForce RTX 3090", "", 24, 24576, 23.69, 936, 71.2, 35.6, 35.6, 31, 0.75, OLD, "LRdu", "2026-08", 0, 86, 82},
    {"rtx-4060", "NVIDIA GeForce RTX 4060", "", 8, 8188, 0, 272, 30.2, 15.1, 15.1, 16, 0.75, OLD, "HRdu", "2026-11", 0, 89, 24},
    {"rtx-4060-ti", "NVIDIA GeForce RTX 4060 Ti", "rtx-4060-ti-8 rtx-4060-ti-8gb", 8, 8188, 0, 288, 44.1, 22.1, 22.1, 16, 0.75, OLD, "HRdu", "2026-11", 0, 89, 34},
    {"rtx-4060-ti-16", "NVIDIA GeForce RTX 4060 Ti 16G", "rtx-4060-ti-16gb", 16, 16380, 0, 288, 44.1, 22.1, 22.1, 16, 0.75, OLD, "HRu", "2026-08", 0, 89, 34},
    {"rtx-4070", "NVIDIA GeForce RTX 4070", "", 12, 12282, 0, 504, 58.3, 29.15, 29.15, 31, 0.75, OLD, "HRdu", "2026-11", 0, 89, 46},
    {"rtx-4070-super", "NVIDIA GeForce RTX 4070 SUPER", "", 12, 12282, 0, 504, 71, 35.5, 35.5, 31, 0.75, OLD, "HRdu", "2026-11", 0, 89, 56},
    {"rtx-4070-ti", "NVIDIA GeForce RTX 4070 Ti", "", 12, 12282, 0, 504, 80.2, 40.1, 40.1, 31, 0.75, OLD, "HRdu", "2026-11", 0, 89, 60},
    {"rtx-4070-ti-super", "NVIDIA GeForce RTX 4070 Ti Super", "", 16, 16376, 0, 672, 88.2, 44.1, 44.1, 31, 0.75, OLD, "HRu", "2026-08", 0, 89, 66},
    {"rtx-4080", "NVIDIA GeForce RTX 4080", "", 16, 16376, 0, 717, 97.5, 48.7, 48.7, 31, 0.75, OLD, "LRu", "2026-08", 0, 89, 76},
    {"rtx-4090", "NVIDIA GeForce RTX 4090", "", 24, 24564, 0, 1008, 165.2, 82.6, 82.6, 31, 0.75, OLD, "X", "2026-08", 0, 89, 128},
    {"rtx-5060", "NVIDIA GeForce RTX 5060", "", 8, 8151, 0, 448, 38.4, 19.2, 19.2, 31, 0.75, NEW, "HRdu", "2026-11", 0, 120, 30},
    {"rtx-5060-ti", "NVIDIA GeForce RTX 5060 Ti", "rtx-5060-ti-8 rtx-5060-ti-8gb", 8, 8151, 0, 448, 47.4, 23.7, 23.7, 31, 0.75, NEW, "HRdu", "2026-11", 0, 120, 36},
    {"rtx-5060-ti-16", "NVIDIA GeForce RTX 5060 Ti 16GB", "rtx-5060-ti-16gb", 16, 16311, 0, 448, 47.4, 23.7, 23.7, 31, 0.75, NEW, "HRdu", "2026-11", 0, 120, 36},
    {"rtx-5070", "NVIDIA GeForce RTX 5070", "", 12, 12227, 0, 672, 61.7, 30.85, 30.85, 63, 0.75, NEW, "HRdu", "2026-11", 0, 120, 48},
    {"rtx-5070-ti", "NVIDIA GeForce RTX 5070 Ti", "", 16, 16303, 0, 896, 87.9, 43.9, 43.9, 63, 0.75, NEW, "HRu", "2026-08", 0, 120, 70},
    {"rtx-5080", "NVIDIA GeForce RTX 5080", "", 16, 16303, 0, 960, 112.6, 56.3, 56.3, 63, 0.75, NEW, "HRXu", "2026-08", 0, 120, 84},
    {"rtx-5090", "NVIDIA GeForce RTX 5090", "", 32, 32607, 31.36, 1792, 209.5, 104.8, 104.8, 63, 0.75, NEW, "HRC", "2026-08", 0, 120, 170},
    {"t4", "NVIDIA T4", "tesla-t4", 16, 15360, 14.76, 320, 0, 0, 8.1, 16, 0.75, OLD, "Ldu", "2026-08", 65, 75, 40},
    {"v100-16", "NVIDIA V100 SXM2 16GB", "tesla-v100-16gb", 16, 16160, 15.75, 900, 0, 0, 15.7, 16, 0.75, OLD, "LAu", "2026-08", 125, 70, 80},
    {"v100-32", "NVIDIA V100 SXM2 32GB", "tesla-v100-32gb", 32, 32510, 0, 900, 0, 0, 15.7, 16, 0.75, OLD, "LAu", "2026-08", 125, 70, 80},
    {"v100-16-pcie", "NVIDIA V100 PCIe 16GB", "v100-pcie-16gb", 16, 16160, 15.78, 900, 0, 0, 14, 16, 0.75, OLD, "OTd", "2026-11", 112, 70, 80},
    {"v100-32-pcie", "NVIDIA V100 PCIe 32GB", "v100-pcie-32gb", 32, 32510, 31.74, 900, 0, 0, 14, 16, 0.75, OLD, "OTd", "2026-11", 112, 70, 80},
    {"a10", "NVIDIA A10", "", 24, 23028, 0, 600, 125, 62.5, 31.2, 31, 0.75, OLD, "LA", "2026-08", 0, 86, 72},
    {"a10g", "NVIDIA A10G", "", 24, 0, 22.05, 600, 70, 35, 35, 31, 0.75, OLD, "Od", "2026-11", 0, 86, 80},
    {"a40", "NVIDIA A40", "", 48, 46068, 0, 696, 149.7, 74.8, 37.4, 31, 0.75, OLD, "Lu", "2026-08", 0, 86, 84},
    {"rtx-a5000", "NVIDIA RTX A5000", "a5000", 24, 0, 23.54, 768, 111.1, 55.5, 27.8, 31, 0.75, OLD, "OHd", "2026-11", 0, 86, 64},
    {"rtx-a6000", "NVIDIA RTX A6000", "a6000", 48, 49140, 0, 768, 154.8, 77.4, 38.7, 31, 0.75, OLD, "ALR", "2026-08", 0, 86, 84},
    {"rtx-6000-ada", "NVIDIA RTX 6000 Ada Generation", "6000-ada", 48, 49140, 47.37, 960, 364, 182, 91.1, 31, 0.75, OLD, "HRd", "2026-08", 0, 89, 142},
    {"rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-blackwell rtx-pro-6000-ws", 96, 97887, 94.97, 1792, 503.8, 251.9, 125.95, 63, 0.75, NEW, "OXd", "2026-11", 0, 120, 188},
    {"l4", "NVIDIA L4", "", 24, 23034, 0, 300, 121, 60, 30.3, 31, 0.75, OLD, "L", "2026-08", 0, 89, 58},
    {"l40", "NVIDIA L40", "", 48, 46068, 44.40, 864, 181.05, 90.5, 90.5, 31, 0.75, OLD, "OHd", "2026-11", 0, 89, 142},
    {"l40s", "NVIDIA L40S", "", 48, 46068, 0, 864, 362, 183, 91.6, 31, 0.75, OLD, "M", "2026-08", 0, 89, 142},
    {"a100-40", "NVIDIA A100 40GB", "a100-40gb a100-sxm4-40gb a100-pcie-40gb", 40, 40960, 0, 1555, 312, 156, 19.5, 31, 0.8, OLD, "MA", "2026-08", 0, 80, 108},
    {"a100-80", "NVIDIA A100 80GB SXM", "a100-80gb a100-sxm4-80gb", 80, 81920, 79.15, 2039, 312, 156, 19.5, 31, 0.8, OLD, "MA", "2026-08", 0, 80, 108},
    {"a100-80-pcie", "NVIDIA A100 80GB PCIe", "a100-pcie-80gb a100-80gb-pcie", 80, 81920, 79.15, 1935, 312, 156, 19.5, 31, 0.8, OLD, "MA", "2026-08", 0, 80, 108},
    {"h100", "NVIDIA H100 80GB SXM", "h100-sxm h100-80 h100-80gb h100-80gb-hbm3", 80, 81559, 79.22, 3350, 989, 494.5, 67, 63, 0.8, NEW, "M", "2026-08", 0, 90, 132},
    {"h100-pcie", "NVIDIA H100 80GB PCIe", "h100-80gb-pcie", 80, 81559, 79.22, 2000, 756, 378, 51, 63, 0.8, NEW, "MA", "2026-08", 0, 90, 114},
    {"h200", "NVIDIA H200 SXM", "h200-sxm", 141, 143771, 139.80, 4800, 989, 494.5, 67, 63, 0.8, NEW, "M", "2026-08", 0, 90, 132},
    {"b200", "NVIDIA B200 SXM", "b200-sxm", 180, 183359, 178.35, 8000, 2250, 1125, 80, 63, 0.78, NEW, "M", "2026-08", 0, 100, 148},
    {"gb200", "NVIDIA GB200 (one GPU)", "", 186, 189471, 0, 8000, 2500, 1250, 80, 63, 0.73, NEW, "Mp", "2026-08", 0, 100, 148},
    /* 288e9 and 256e9 bytes: no tool's total is known, so the smaller reading of "GB" is taken. */
    {"b300", "NVIDIA B300 SXM", "b300-sxm", 268.22, 0, 0, 8000, 2250, 1125, 80, 63, 0.75, NEW, "M", "2026-08", 0, 103, 148},
    /* A process sees one of the two dies as a device of its own: half of the card's published figures. */
    {"mi250x", "AMD Instinct MI250X (one GCD)", "mi250x-gcd", 64, 0, 0, 1638.5, 191.5, 0, 23.95, 31, 0.75, NEW, "M", "2026-08", 0, 0, 0},
    {"mi300x", "AMD Instinct MI300X", "", 192, 0, 0, 5300, 1300, 654, 163, 63, 0.51, NEW, "Mu", "2026-08", 0, 0, 0},
    {"mi325x", "AMD Instinct MI325X", "", 238.42, 0, 0, 6000, 1300, 654, 163, 63, 0.6, NEW, "M", "2026-08", 0, 0, 0},
};
/* clang-format on */

enum { ROW_COUNT = sizeof rows / sizeof *rows };

uint32_t hr_device_count(void) { return ROW_COUNT; }

static uint64_t to_bytes(double value, uint64_t unit) { return (uint64_t)(value * (double)unit + 0.5); }

static uint64_t usable_bytes(const row *r) {
  uint64_t whole = r->smi_mib > 0 ? to_bytes(r->smi_mib, MIB) : to_bytes(r->capacity_gib, GIB),
           reserve = whole / 1000 * 16;
  if (r->usable_gib > 0) return to_bytes(r->usable_gib, GIB);
  if (reserve < 256 * MIB) reserve = 256 * MIB;
  if (reserve > 870 * MIB) reserve = 870 * MIB;
  return whole - reserve;
}

static void source_text(const row *r, char *out, size_t bytes) {
  size_t used = 0;
  for (const char *letter = r->sources; *letter; letter++)
    for (size_t i = 0; i < sizeof sources / sizeof *sources && used < bytes; i++)
      if (sources[i].letter == *letter)
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", used ? ", " : "", sources[i].text);
  if (used >= bytes) return;
  (void)snprintf(out + used, bytes - used, "; usable: %s",
                 r->usable_gib > 0 ? "cudaMemGetInfo"
                 : r->smi_mib > 0  ? "nvidia-smi less a reserve"
                                   : "capacity less a reserve");
}

hr_status hr_device_get(uint32_t index, hr_device *device, hr_error *error) {
  const row *r;
  if (index >= ROW_COUNT) return hri_fail(error, HR_ERROR_USAGE, "device %u: the table has %d", index, ROW_COUNT);
  r = &rows[index];
  memset(device, 0, sizeof *device);
  (void)snprintf(device->name, sizeof device->name, "%s", r->name);
  (void)snprintf(device->title, sizeof device->title, "%s", r->title);
  device->capacity_bytes = to_bytes(r->capacity_gib, GIB);
  device->usable_bytes = usable_bytes(r);
  device->memory_bytes_per_second = r->gigabytes * 1e9;
  device->flops_fp32 = r->fp32 * 1e12;
  device->flops_tf32 = r->tf32 * 1e12;
  device->flops_bf16 = r->bf16 * 1e12;
  device->flops_fp16 = (r->bf16 > 0 ? r->bf16 : r->fp16) * 1e12;
  device->link_bytes_per_second = r->link * 1e9;
  device->node_seconds = HRI_GPU_LAUNCH_SECONDS;
  device->gemm_efficiency = r->efficiency;
  device->memory_efficiency = HRI_GPU_MEMORY_EFFICIENCY;
  device->fixed_bytes = HRI_GPU_CONTEXT_BYTES;
  device->library_workspace_bytes = r->workspace;
  device->compute_capability = r->capability;
  device->multiprocessors = r->multiprocessors;
  source_text(r, device->source, sizeof device->source);
  (void)snprintf(device->date, sizeof device->date, "%s", r->date);
  return HR_OK;
}

/* ---- look-up ---- */

enum { PLAIN_BYTES = 64, NEAR_ROWS = 4 };

/* Letters and digits in lower case, without "nvidia", "geforce", "rtx" and the like in front: "RTX 4090" is 4090. */
static void plain_name(const char *name, size_t length, char out[PLAIN_BYTES]) {
  static const char *const noise[] = {"nvidia", "geforce", "amd", "instinct", "tesla", "rtx"};
  char *rest = out;
  size_t used = 0;
  for (size_t i = 0; i < length && used + 1 < PLAIN_BYTES; i++)
    if (isalnum((unsigned char)name[i])) out[used++] = (char)tolower((unsigned char)name[i]);
  out[used] = 0;
  for (size_t i = 0; i < sizeof noise / sizeof *noise; i++)
    // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Branch): behind what was equal comes at least the NUL
    if (strncmp(rest, noise[i], strlen(noise[i])) == 0 && rest[strlen(noise[i])]) rest += strlen(noise[i]);
  memmove(out, rest, strlen(rest) + 1);
}

static bool same_plain(const char *name, size_t length, const char *wanted) {
  char plain[PLAIN_BYTES];
  plain_name(name, length, plain);
  return strcmp(plain, wanted) == 0;
}

static bool row_is_called(const row *r, const char *wanted) {
  const char *alias = r->aliases;
  if (same_plain(r->name, strlen(r->name), wanted) || same_plain(r->title, strlen(r->title), wanted)) return true;
  while (*alias) {
    size_t length = strcspn(alias, " ");
    if (same_plain(alias, length, wanted)) return true;
    alias += length + (alias[length] == ' ');
  }
  return false;
}

/* Lower case, blanks and underscores as "-". */
static void dashed_name(const char *name, char out[PLAIN_BYTES]) {
  size_t i;
  for (i = 0; name[i] && i + 1 < PLAIN_BYTES; i++)
    out[i] = (char)(name[i] == ' ' || name[i] == '_' ? '-' : tolower((unsigned char)name[i]));
  out[i] = 0;
}

/* Whether a name of a row begins so: "rtx-40" as it is spelt, "v100-pcie" of another of its names, "a100" and "40" without what
 * all cards of a maker are called. One digit is too little to mean something. */
static bool begins_row(const row *r, const char *dashed, const char *wanted) {
  char plain[PLAIN_BYTES];
  size_t length = strlen(dashed);
  if (strncmp(r->name, dashed, length) == 0) return true;
  if (strncmp(dashed, "rtx", 3) == 0 || (!isalpha((unsigned char)wanted[0]) && strlen(wanted) < 2)) return false;
  for (const char *alias = r->aliases; *alias; alias += strcspn(alias, " "), alias += *alias == ' ')
    if (strncmp(alias, dashed, length) == 0) return true;
  plain_name(r->name, strlen(r->name), plain);
  return strncmp(plain, wanted, strlen(wanted)) == 0;
}

/* A name that begins those of several rows, "a100", is none of them: what they hold differs. */
static hr_status ambiguous_device(const char *name, const char *wanted, hr_error *error) {
  enum { LIST_BYTES = 320, MORE_BYTES = 20 };
  char list[LIST_BYTES + MORE_BYTES] = "", dashed[PLAIN_BYTES];
  size_t used = 0;
  uint32_t count = 0, listed = 0, first = 0;
  dashed_name(name, dashed);
  for (uint32_t i = 0; i < ROW_COUNT; i++) {
    char one[48];
    if (!begins_row(&rows[i], dashed, wanted)) continue;
    if (count++ == 0) first = i;
    (void)hri_snprintf(one, sizeof one, "%s%s (%.0f GB)", count > 1 ? ", " : "", rows[i].name, rows[i].capacity_gib);
    if (listed + 1 < count || used + strlen(one) >= LIST_BYTES) continue;
    used += (size_t)snprintf(list + used, sizeof list - used, "%s", one);
    listed++;
  }
  if (count == 0) return HR_OK;
  if (listed < count) (void)snprintf(list + used, sizeof list - used, " and %u more", count - listed);
  if (count == 1) {
    hri_fail(error, HR_ERROR_USAGE, "there is no device '%.80s'; near it is %s", name, list);
    return hri_hint(error, HR_ERROR_USAGE, "--device %s, if that is meant; with --budget SIZE for another card",
                    rows[first].name);
  }
  hri_fail(error, HR_ERROR_USAGE, "device '%.80s' may be any of %s", name, list);
  return hri_hint(error, HR_ERROR_USAGE, "--device %s, or another of them%s", rows[first].name,
                  listed < count ? "; `headroom devices` lists them" : "");
}

/* A laptop's card has its desktop namesake's name and another memory; false: nothing in `dashed` says that it is one. The
 * words are cut off. */
static bool cut_laptop(char *dashed) {
  static const char *const words[] = {"laptop", "mobile", "with-max-q", "max-q"};
  for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
    char *at = strstr(dashed, words[k]);
    if (!at) continue;
    while (at > dashed && at[-1] == '-') at--;
    *at = 0;
    return true;
  }
  return false;
}

/* How far a name is from one of the table, as it is spelt or without what all cards of a maker are called; UINT_MAX: too far. */
static unsigned distance_of(const char *dashed, const char *plain, const char *row_name) {
  const struct {
    const char *word, *candidate;
  } pairs[] = {{dashed, row_name}, {plain, row_name}};
  unsigned best = UINT_MAX;
  for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
    hri_near search;
    hri_near_begin(&search, pairs[k].word);
    hri_near_offer(&search, pairs[k].candidate);
    if (hri_near_end(&search) && search.distance < best) best = search.distance;
  }
  return best;
}

/* Whether a name goes on from a row's behind a dash. */
static bool is_parted(const char *dashed, const char *row_name) {
  const size_t length = strlen(row_name);
  return strncmp(dashed, row_name, length) == 0 && dashed[length] == '-';
}

/* Of the rows that a longer name begins with, the longest: "rtx-3090" of "rtx-3090-ti", which is another card and no slip.
 * A number that goes on is another number, but not where a dash parts them, "rtx-4060-8gb". ROW_COUNT: none. */
static size_t row_within(const char *dashed, const char *plain) {
  size_t found = ROW_COUNT, longest = 1; /* one letter says nothing */
  for (size_t i = 0; i < ROW_COUNT; i++) {
    char own[PLAIN_BYTES];
    size_t length;
    plain_name(rows[i].name, strlen(rows[i].name), own);
    length = strlen(own);
    if (length <= longest) continue;
    if (!is_parted(dashed, rows[i].name) &&
        (strncmp(plain, own, length) != 0 ||
         (isdigit((unsigned char)own[length - 1]) && isdigit((unsigned char)plain[length]))))
      continue;
    found = i;
    longest = length;
  }
  return found;
}

/* The row that is meant: the one of this name, as nvidia-smi has it or shorter; of a laptop's card, which is not in the table, the
 * one that is spelt almost so. NULL: none. */
static const char *laptop_row(const char *dashed) {
  const char *names[ROW_COUNT];
  char plain[PLAIN_BYTES];
  plain_name(dashed, strlen(dashed), plain);
  for (size_t i = 0; i < ROW_COUNT; i++) {
    if (row_is_called(&rows[i], plain)) return rows[i].name;
    names[i] = rows[i].name;
  }
  return hri_nearest(dashed, names, ROW_COUNT);
}

/* Whether a name goes on from what several cards are called together, in front of their first dash: "v100s" from "v100". */
static bool goes_on_from(const char *plain, const char *row_name) {
  const size_t length = strcspn(row_name, "-");
  return row_name[length] && isdigit((unsigned char)row_name[length - 1]) && strncmp(plain, row_name, length) == 0 &&
         !isdigit((unsigned char)plain[length]);
}

/* Whether two names have the same letters in front of their number: "mi100" and "mi300x", but not "h100". */
static bool same_series(const char *plain, const char *row_name) {
  char own[PLAIN_BYTES];
  size_t length = 0;
  plain_name(row_name, strlen(row_name), own);
  while (isalpha((unsigned char)own[length])) length++;
  return strncmp(plain, own, length) == 0 && !isalpha((unsigned char)plain[length]);
}

/* Rows that a name, which is none of them, is near to: what it goes on from, then those that are as near as any; of its own series
 * alone, where there are such. */
static size_t near_rows(const char *dashed, size_t found[NEAR_ROWS]) {
  char plain[PLAIN_BYTES];
  unsigned least = UINT_MAX, distances[ROW_COUNT];
  size_t count = 0, within;
  bool series = false;
  plain_name(dashed, strlen(dashed), plain);
  within = row_within(dashed, plain);
  if (within < ROW_COUNT) found[count++] = within;
  for (size_t i = 0; i < ROW_COUNT && within == ROW_COUNT && count < NEAR_ROWS; i++)
    if (goes_on_from(plain, rows[i].name)) found[count++] = i;
  if (within == ROW_COUNT && count > 0) return count;
  for (size_t i = 0; i < ROW_COUNT; i++) {
    const bool same = same_series(plain, rows[i].name);
    distances[i] = distance_of(dashed, plain, rows[i].name);
    if (distances[i] == UINT_MAX || (series && !same)) continue;
    if (distances[i] < least || same > series) least = distances[i];
    series = same;
  }
  for (size_t i = 0; i < ROW_COUNT && least < UINT_MAX && count < NEAR_ROWS; i++)
    if (i != within && distances[i] == least && same_series(plain, rows[i].name) == series) found[count++] = i;
  return count;
}

static hr_status unknown_laptop(const char *name, const char *dashed, hr_error *error) {
  const char *near = laptop_row(dashed);
  hri_fail(error, HR_ERROR_USAGE, "there is no device '%.80s': the table has no cards of laptops and of Max-Q design",
           name);
  return hri_hint(error, HR_ERROR_USAGE, "--device %s --budget SIZE%s, with the memory that yours has, such as 8GiB",
                  near ? near : "NAME",
                  near ? "" : ", the NAME of a card of its generation that `headroom devices` lists");
}

static hr_status unknown_device(const char *name, hr_error *error) {
  char dashed[PLAIN_BYTES], plain[PLAIN_BYTES], list[NEAR_ROWS * 32] = "";
  size_t found[NEAR_ROWS], count, used = 0;
  dashed_name(name, dashed);
  if (cut_laptop(dashed)) return unknown_laptop(name, dashed, error);
  plain_name(dashed, strlen(dashed), plain);
  count = near_rows(dashed, found);
  if (count == 0) {
    bool cpu = distance_of(dashed, plain, "cpu") < UINT_MAX;
    hri_fail(error, HR_ERROR_USAGE, "there is no device '%.80s'", name);
    if (cpu) return hri_hint(error, HR_ERROR_USAGE, "did you mean cpu?");
    return hri_hint(error, HR_ERROR_USAGE,
                    "cpu, or one of the table, for example rtx-4090, l4, a100-80, h100; `headroom devices` lists them");
  }
  for (size_t k = 0; k < count; k++)
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%s (%.0f GB)", k ? ", " : "", rows[found[k]].name,
                             rows[found[k]].capacity_gib);
  hri_fail(error, HR_ERROR_USAGE, "there is no device '%.80s'; near it %s %s", name, count > 1 ? "are" : "is", list);
  return hri_hint(
      error, HR_ERROR_USAGE,
      "--device %s, if that is meant; with --budget SIZE for a card of its generation that has other memory",
      rows[found[0]].name);
}

const char *hr_cpu_team_reason(const hr_cpu_team *team, char *out, uint32_t out_bytes) {
  if (team->quota_cpus > 0 && team->quota_cpus < team->cores)
    (void)hri_snprintf(out, out_bytes, "a quota of %.4g CPU%s", team->quota_cpus, team->quota_cpus > 1 ? "s" : "");
  else if (team->cores < team->processors)
    (void)snprintf(out, out_bytes, "the cores of the %u processors that this process may use", team->processors);
  else (void)snprintf(out, out_bytes, "the cores that this process may use");
  return out;
}

hr_status hri_device_find(const char *name, hr_device *device, hr_error *error) {
  char wanted[PLAIN_BYTES];
  if (!name || !*name) return hri_fail(error, HR_ERROR_USAGE, "the device has no name");
  plain_name(name, strlen(name), wanted);
  if (strcmp(wanted, "cpu") == 0) {
    hri_device_cpu(device);
    return HR_OK;
  }
  for (uint32_t i = 0; i < ROW_COUNT; i++)
    if (row_is_called(&rows[i], wanted)) return hr_device_get(i, device, error);
  HRI_TRY(ambiguous_device(name, wanted, error));
  return unknown_device(name, error);
}
