/* The device table and this machine as a device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <headroom/device.h>

#include "device/cpu.h"
#include "device/host.h"
#include "program/rates.h"
#include "support/scratch.h"

static const double gib = 1024.0 * 1024 * 1024;

static hr_device found(const char *name) {
  hr_device device;
  hr_error error;
  if (hr_device_find(name, &device, &error) != HR_OK) fail_msg("%s: %s", name, error.message);
  return device;
}

static void test_every_row_is_sound(void **state) {
  (void)state;
  assert_true(hr_device_count() >= 56);
  for (uint32_t i = 0; i < hr_device_count(); i++) {
    hr_device d, again;
    hr_error error;
    double reserve;
    assert_int_equal(hr_device_get(i, &d, &error), HR_OK);
    reserve = (double)(d.capacity_bytes - d.usable_bytes) / (double)d.capacity_bytes;
    if (d.usable_bytes >= d.capacity_bytes || reserve > 0.0815) /* ECC of GDDR6 takes a sixteenth */
      fail_msg("%s: usable is not a little less than built in", d.name);
    if (d.backend[0] || d.has_team || d.packs || d.usable_now || d.link_bytes_per_second < 10e9 ||
        d.memory_bytes_per_second < 160e9 || d.flops_fp32 < 5e12)
      fail_msg("%s: rates", d.name);
    if (d.flops_bf16 > 0 && d.flops_bf16 < 1.9 * d.flops_fp32) fail_msg("%s: bf16 is slower than 2 x fp32", d.name);
    if (d.flops_bf16 > 0 ? d.flops_fp16 != d.flops_bf16 : d.flops_fp16 < 3.9 * d.flops_fp32 || d.flops_tf32 > 0)
      fail_msg("%s: fp16 is bf16's rate, or, where there is no bf16, 4 x fp32 or more without tf32", d.name);
    if (d.compute_capability) { /* multiprocessors x lanes x 2 x the clock */
      double lanes = d.compute_capability <= 80 ? 64 : 128, clock = d.flops_fp32 / (d.multiprocessors * lanes * 2);
      if (!(clock > 1.35e9 && clock < 2.7e9))
        fail_msg("%s: a clock of %.2f GHz by its multiprocessors", d.name, clock / 1e9);
    }
    if (d.flops_tf32 > 0 && d.flops_tf32 > d.flops_bf16 * 0.51)
      fail_msg("%s: tf32 is faster than half of bf16", d.name);
    assert_true(d.gemm_efficiency > 0.3 && d.gemm_efficiency < 1 && d.memory_efficiency > 0.5 &&
                d.memory_efficiency < 1);
    assert_true(d.fixed_bytes == 500ull << 20 && !d.fixed_measured);
    assert_true(d.title[0] && strlen(d.source) > 10 && strlen(d.source) < sizeof d.source - 1);
    assert_non_null(strstr(d.source, "usable: ")); /* not cut */
    assert_true(strlen(d.date) == 7 && d.date[4] == '-');
    again = found(d.name);
    assert_string_equal(again.name, d.name);
    again = found(d.title);
    assert_string_equal(again.name, d.name);
    for (const char *c = d.name; *c; c++)
      assert_true(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '-');
  }
}

static void test_the_index_is_checked(void **state) {
  hr_device d;
  hr_error error;
  (void)state;
  assert_int_equal(hr_device_get(hr_device_count(), &d, &error), HR_ERROR_USAGE);
}

static void test_published_figures(void **state) {
  hr_device d = found("rtx-4090");
  (void)state;
  assert_true(d.capacity_bytes == 24ull << 30);
  assert_true((double)d.usable_bytes / gib > 23.3 && (double)d.usable_bytes / gib < 23.99);
  assert_true(d.memory_bytes_per_second == 1008e9 && d.flops_fp32 == 82.6e12 && d.flops_bf16 == 165.2e12);
  assert_true(d.library_workspace_bytes == 8519680); /* ":4096:2:16:8" in KiB */
  d = found("h100");
  assert_true((double)d.usable_bytes / gib > 79.21 && (double)d.usable_bytes / gib < 79.23);
  assert_true(d.flops_bf16 == 989e12 && d.memory_bytes_per_second == 3350e9 &&
              d.library_workspace_bytes == 32ull << 20);
  d = found("t4");
  assert_true(d.flops_bf16 == 0 && d.flops_tf32 == 0 && d.flops_fp32 == 8.1e12 && d.flops_fp16 == 65e12);
  d = found("a100-80");
  assert_true(d.memory_bytes_per_second == 2039e9 && (double)d.usable_bytes / gib < 79.16);
  d = found("h200");
  assert_true(d.capacity_bytes == 141ull << 30 && (double)d.usable_bytes / gib < 139.81);
}

/* Cards that a fine-tuning is planned for: what is built in, and which came before bf16. */
static void test_small_cards(void **state) {
  static const struct {
    const char *name;
    uint32_t gib, gigabytes;
    bool bf16;
  } cards[] = {{"rtx-2060", 6, 336, false},      {"rtx-3050-6", 6, 168, true},    {"rtx-2060-super", 8, 448, false},
               {"rtx-2070", 8, 448, false},      {"rtx-2080", 8, 448, false},     {"rtx-3050", 8, 224, true},
               {"rtx-3060-ti", 8, 448, true},    {"rtx-3070", 8, 448, true},      {"rtx-3070-ti", 8, 608, true},
               {"rtx-4060", 8, 272, true},       {"rtx-4060-ti", 8, 288, true},   {"rtx-5060", 8, 448, true},
               {"rtx-5060-ti", 8, 448, true},    {"rtx-2080-ti", 11, 616, false}, {"rtx-2060-12", 12, 336, false},
               {"rtx-3060", 12, 360, true},      {"rtx-4070", 12, 504, true},     {"rtx-4070-super", 12, 504, true},
               {"rtx-4070-ti", 12, 504, true},   {"rtx-5070", 12, 672, true},     {"rtx-4060-ti-16", 16, 288, true},
               {"rtx-5060-ti-16", 16, 448, true}};
  (void)state;
  for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
    hr_device d = found(cards[i].name);
    assert_true(d.capacity_bytes == (uint64_t)cards[i].gib << 30);
    assert_true((double)d.usable_bytes > (cards[i].gib - 0.5) * gib && d.usable_bytes < d.capacity_bytes);
    assert_true(d.memory_bytes_per_second == cards[i].gigabytes * 1e9);
    assert_true((d.flops_bf16 > 0) == cards[i].bf16 && d.flops_fp16 > 0);
  }
}

static void test_spellings(void **state) {
  static const char *const spellings[][2] = {
      {"RTX 4090", "rtx-4090"},
      {"rtx4090", "rtx-4090"},
      {"NVIDIA GeForce RTX 4090", "rtx-4090"},
      {"GeForce RTX 3060", "rtx-3060"},
      {"A100-80GB", "a100-80"},
      {"A100_40", "a100-40"},
      {"H100 SXM", "h100"},
      {"Tesla T4", "t4"},
      {"RTX 2060 12GB", "rtx-2060-12"},
      {"RTX 3050 6GB", "rtx-3050-6"},
      {"RTX 4060 Ti 8GB", "rtx-4060-ti"},
      {"RTX 4060 Ti 16GB", "rtx-4060-ti-16"},
      {"Tesla-V100-16GB", "v100-16"},
      {"NVIDIA RTX A6000", "rtx-a6000"},
      {"AMD Instinct MI300X", "mi300x"},
      {"NVIDIA A100-SXM4-80GB", "a100-80"},
      {"NVIDIA H100 80GB HBM3", "h100"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
    hr_device d = found(spellings[i][0]);
    assert_string_equal(d.name, spellings[i][1]);
  }
}

static void test_unknown_names(void **state) {
  hr_device d;
  hr_error error;
  (void)state;
  assert_int_equal(hr_device_find("rtx 4091", &d, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "rtx 4091"));
  assert_non_null(strstr(error.hint, "rtx-4090"));
  assert_int_equal(hr_device_find("", &d, &error), HR_ERROR_USAGE);
  assert_int_equal(hr_device_find("nvidia", &d, &error), HR_ERROR_USAGE);
  assert_int_equal(hr_device_find("a-name-that-is-longer-than-any-device-name-could-possibly-ever-be-in-this-table", &d,
                                  &error),
                   HR_ERROR_USAGE);
  assert_int_equal(hr_device_find("cuda:0", &d, &error), HR_ERROR_UNSUPPORTED);
  assert_int_equal(hr_device_find("nothing-of-the-kind", &d, NULL), HR_ERROR_USAGE);
}

/* A name that begins those of several cards: all of them, as many as a message holds, and how many more there are. */
static void test_names_that_begin_so(void **state) {
  static const struct {
    const char *name, *message[3], *not, *hint;
  } cases[] = {
      {"a100", {"may be any of a100-40 (40 GB)", "a100-80 (80 GB)", "a100-80-pcie"}, "rtx", "a100-40"},
      {"rtx-40", {"may be any of rtx-4060 (8 GB)", "rtx-4060-ti-16 (16 GB)", "rtx-4090 (24 GB)"}, "a40", "rtx-4060"},
      {"RTX 50", {"may be any of rtx-5060 (8 GB)", "rtx-5070", "rtx-5090"}, "rtx-3050", "rtx-5060"},
      {"40", {"rtx-4060", "rtx-4080", "rtx-4090"}, "a40", "rtx-4060"},
      {"rtx", {"rtx-2060 (6 GB)", "rtx-3090", " more"}, "a100", "headroom devices"},
      {"rtx-a", {"may be any of rtx-a5000 (24 GB)", "rtx-a6000 (48 GB)", ""}, "a100", "rtx-a5000"},
      {"v100-pcie", {"may be any of v100-16-pcie (16 GB)", "v100-32-pcie (32 GB)", ""}, "h100", "v100-16-pcie"},
      {"4", {"no device '4'", "", ""}, "any of", ""},
  };
  hr_device d;
  hr_error error;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(hr_device_find(cases[i].name, &d, &error), HR_ERROR_USAGE);
    for (size_t k = 0; k < 3; k++)
      if (!strstr(error.message, cases[i].message[k])) fail_msg("%s: %s", cases[i].name, error.message);
    if (strstr(error.message, cases[i].not)) fail_msg("%s: %s", cases[i].name, error.message);
    if (!strstr(error.hint, cases[i].hint)) fail_msg("%s: %s", cases[i].name, error.hint);
  }
}

/* A card that is not in the table is told what is near it, with its memory: its own series first, and no other name as if it were a
 * slip of the fingers. */
static void test_cards_that_are_not_there(void **state) {
  static const struct {
    const char *name, *near, *hint;
  } cases[] = {
      {"rtx-3090-ti", "near it are rtx-3090 (24 GB), rtx-3060-ti (8 GB), rtx-3070-ti (8 GB), rtx-3080-ti (12 GB)",
       "--device rtx-3090"},
      {"3090 Ti", "near it is rtx-3090 (24 GB)", "--device rtx-3090"},
      {"a30", "near it are a10 (24 GB), a40 (48 GB)", "--budget SIZE"},
      {"h100-nvl", "near it is h100 (80 GB)", "--budget SIZE"},
      {"v100s", "near it are v100-16 (16 GB), v100-32 (32 GB), v100-16-pcie (16 GB), v100-32-pcie (32 GB)",
       "--device v100-16"},
      {"mi100", "near it is mi300x (192 GB)", "--device mi300x"},
      {"b100", "near it are b200 (180 GB), b300 (268 GB)", "--device b200"},
      {"cpuu", "there is no device 'cpuu'", "did you mean cpu?"},
      {"RTX PRO 6000 Blackwell Max-Q Workstation Edition", "no cards of laptops and of Max-Q design",
       "--device rtx-pro-6000 --budget"},
  };
  hr_device d;
  hr_error error;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(hr_device_find(cases[i].name, &d, &error), HR_ERROR_USAGE);
    if (!strstr(error.message, cases[i].near)) fail_msg("%s: %s", cases[i].name, error.message);
    if (!strstr(error.hint, cases[i].hint)) fail_msg("%s: %s", cases[i].name, error.hint);
  }
}

/* Totals as programs on such a card printed them ("total capacity of 44.40 GiB", get_device_properties), and multiprocessors. */
static void test_totals_as_printed(void **state) {
  static const struct {
    const char *name;
    double usable_gib;
    uint32_t multiprocessors, capability;
  } cards[] = {{"NVIDIA RTX A5000", 23.54, 64, 86},
               {"NVIDIA L40", 44.40, 142, 89},
               {"NVIDIA A10G", 22.05, 80, 86},
               {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 94.97, 188, 120},
               {"Tesla V100-PCIE-16GB", 15.78, 80, 70},
               {"Tesla V100-PCIE-32GB", 31.74, 80, 70}};
  (void)state;
  for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
    hr_device d = found(cards[i].name);
    assert_true((double)d.usable_bytes / gib > cards[i].usable_gib - 0.001 &&
                (double)d.usable_bytes / gib < cards[i].usable_gib + 0.001);
    assert_int_equal(d.multiprocessors, cards[i].multiprocessors);
    assert_int_equal(d.compute_capability, cards[i].capability);
  }
  assert_string_equal(found("NVIDIA GeForce RTX 3080 Ti").name, "rtx-3080-ti");
}

static void test_this_machine(void **state) {
  hr_device d = found("CPU");
  (void)state;
  assert_true(strcmp(d.backend, "cpu") == 0 && d.has_team && d.packs && d.usable_now);
  assert_string_equal(d.name, "cpu");
  assert_true(d.title[0] != 0);
  assert_true(d.usable_bytes > 16ull << 20 && d.usable_bytes <= d.capacity_bytes);
  assert_true(hr_device_cpu_threads() >= 1 && hr_device_cpu_threads() <= 4096);
  assert_true(d.flops_fp32 >= 20e9 * hr_device_cpu_threads());
  assert_true(d.link_bytes_per_second == 0 && d.fixed_bytes > 0 && d.memory_bytes_per_second > 0);
  assert_true(d.gemm_efficiency > 0 && d.gemm_efficiency <= 1);
}

/* A user of many groups: the lines of memory in /proc/self/status stand behind those groups. */
static void test_memory_behind_many_groups(void **state) {
  const char *machine = scratch_make("groups");
  char *text = malloc(100000);
  size_t used;
  (void)state;
  assert_non_null(text);
  used = (size_t)sprintf(text, "Name:\theadroom\nVmRSSX:\t1 kB\nGroups:\t");
  for (unsigned group = 0; group < 5000; group++) used += (size_t)sprintf(text + used, "%u ", 1234500000 + group);
  (void)sprintf(
      text + used,
      "\nNStgid:\t7\nVmPeak:\t  900 kB\nVmSize:\t     800 kB\nVmHWM:\t 400 kB\nVmRSS:\t     300 kB\nVmData:\t 200 kB\n");
  assert_int_equal(mkdir(path_of("%s/proc", machine), 0700), 0);
  assert_int_equal(mkdir(path_of("%s/proc/self", machine), 0700), 0);
  put_text(path_of("%s/proc/self/status", machine), text);
  hri_host_set_root(machine);
  const uint64_t found[] = {hri_host_resident_bytes(), hri_host_peak_resident_bytes(), hri_host_address_space_bytes(),
                            hri_host_data_bytes()};
  hri_host_set_root(NULL);
  free(text);
  scratch_remove(machine);
  static const uint64_t kib[] = {300, 400, 800, 200};
  for (unsigned k = 0; k < 4; k++) assert_int_equal(found[k], kib[k] * 1024);
  assert_true(hri_host_resident_bytes() > 0);
}

/* By make, family and features; measured ones stand in docs/decisions/0011. */
static void test_assumed_rates_follow_the_processor(void **state) {
  static const struct {
    hri_cpu_facts facts;
    double flops, factor;
  } cases[] = {{{HRI_CPU_AMD, HRI_CPU_AVX512, 0x1A, 0x02, true, false}, 258e9, 2},  /* Zen 5: EPYC 9005 */
               {{HRI_CPU_AMD, HRI_CPU_AVX512, 0x1A, 0x44, true, false}, 258e9, 2},  /* desktop */
               {{HRI_CPU_AMD, HRI_CPU_AVX512, 0x1A, 0x24, true, false}, 105e9, 2},  /* notebook */
               {{HRI_CPU_AMD, HRI_CPU_AVX512, 0x1A, 0x02, false, false}, 258e9, 0}, /* its levels below */
               {{HRI_CPU_AMD, HRI_CPU_AVX2, 0x1A, 0x02, false, false}, 130e9, 0},
               {{HRI_CPU_AMD, HRI_CPU_AVX512, 0x19, 0x11, true, false}, 105e9, 2}, /* Zen 4: EPYC 9004 */
               {{HRI_CPU_AMD, HRI_CPU_AVX2, 0x19, 0x01, false, false}, 60e9, 0},   /* Zen 3 */
               {{HRI_CPU_INTEL, HRI_CPU_AVX512, 6, 0x8F, true, true}, 170e9, 6},   /* Sapphire Rapids */
               {{HRI_CPU_INTEL, HRI_CPU_AVX512, 6, 0x8F, true, false}, 170e9, 1},  /* its tiles withheld */
               {{HRI_CPU_INTEL, HRI_CPU_AVX512, 6, 0x55, false, false}, 100e9, 0}, /* Skylake */
               {{HRI_CPU_INTEL, HRI_CPU_AVX2, 6, 0x4F, false, false}, 60e9, 0},
               {{HRI_CPU_OTHER, HRI_CPU_NEON, 0, 0, false, false}, 30e9, 0},
               {{HRI_CPU_OTHER, HRI_CPU_BASE, 0, 0, false, false}, 15e9, 0}};
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    double flops, factor;
    hri_cpu_assumed(&cases[k].facts, &flops, &factor);
    if (flops != cases[k].flops || factor != cases[k].factor) fail_msg("row %zu: %g, %g", k, flops, factor);
  }
}

/* What is assumed of a team does not depend on how many cores there are besides, nor on what a probe found. */
static void test_assumed_figures_are_of_the_team(void **state) {
  const hri_cpu_facts server = {HRI_CPU_AMD, HRI_CPU_AVX512, 0x1A, 0x02, true, false};
  hr_device many = found("cpu"), probed = many;
  hr_assumed_figures a, b;
  (void)state;
  many.rated_threads = 8;
  many.flops_fp32 = 8 * 258e9;
  many.flops_bf16 = 16 * 258e9;
  hri_cpu_assumed_memory(&server, 8, &many.memory_bytes_per_second, &many.core_memory_bytes_per_second);
  assert_true(many.memory_bytes_per_second == 270e9);
  for (uint32_t team = 1; team <= 8; team++) {
    hr_device own = many;
    own.rated_threads = team;
    own.flops_fp32 = team * 258e9;
    own.flops_bf16 = team * 516e9;
    hri_cpu_assumed_memory(&server, team, &own.memory_bytes_per_second, &own.core_memory_bytes_per_second);
    a = hri_assumed_figures(&many, team);
    b = hri_assumed_figures(&own, team);
    if (!hri_same_figures(&a, &b))
      fail_msg("%u of 8 threads: %g B/s, not %g", team, a.memory_bytes_per_second, b.memory_bytes_per_second);
  }
  probed.flops_fp32 = probed.flops_bf16 = probed.memory_bytes_per_second = 1;
  probed.rated_threads = 77;
  hri_cpu_assume(&probed);
  many = found("cpu");
  a = hri_assumed_figures(&many, 1);
  b = hri_assumed_figures(&probed, 1);
  assert_true(hri_same_figures(&a, &b));
  assert_string_equal(probed.source, many.source);
}

/* A level below what the processor has is no faster, and has no products of bf16 where it lacks the instruction. */
static void test_assumed_rates_follow_the_level(void **state) {
  static const char *const levels[] = {"base", "avx2", "avx512", "avx512bf16", ""};
  double before = 0;
  (void)state;
  for (size_t k = 0; k < sizeof levels / sizeof *levels; k++) {
    hr_device d;
    assert_int_equal(setenv("HEADROOM_ISA", levels[k], 1), 0);
    d = found("cpu");
    if (d.flops_fp32 < before) fail_msg("%s is slower than the level below it", levels[k]);
    if (k < 3) assert_true(d.flops_bf16 == 0);
    if (k == 0) assert_true(d.flops_fp32 <= 30e9 * d.rated_threads);
    before = d.flops_fp32;
  }
  assert_int_equal(unsetenv("HEADROOM_ISA"), 0);
}

static void test_an_address_space_limit_bounds_what_is_usable(void **state) {
  struct rlimit before, lower;
  hr_device d;
  (void)state;
#if defined(__SANITIZE_ADDRESS__) /* it needs terabytes of address space */
  skip();
#endif
  assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
  lower = before;
  lower.rlim_cur = 1ull << 30;
  assert_int_equal(setrlimit(RLIMIT_AS, &lower), 0);
  d = found("cpu");
  assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
  assert_true(d.usable_bytes <= 1ull << 30);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_row_is_sound),
      cmocka_unit_test(test_the_index_is_checked),
      cmocka_unit_test(test_published_figures),
      cmocka_unit_test(test_small_cards),
      cmocka_unit_test(test_spellings),
      cmocka_unit_test(test_unknown_names),
      cmocka_unit_test(test_names_that_begin_so),
      cmocka_unit_test(test_cards_that_are_not_there),
      cmocka_unit_test(test_totals_as_printed),
      cmocka_unit_test(test_this_machine),
      cmocka_unit_test(test_memory_behind_many_groups),
      cmocka_unit_test(test_assumed_rates_follow_the_processor),
      cmocka_unit_test(test_assumed_rates_follow_the_level),
      cmocka_unit_test(test_assumed_figures_are_of_the_team),
      cmocka_unit_test(test_an_address_space_limit_bounds_what_is_usable),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
