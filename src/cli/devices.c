/* headroom devices: this machine's CPU and the device table. */
#include <string.h>
#include <unistd.h>

#include <headroom/device.h>
#include <headroom/gpu.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/text.h"

enum { PATH_BYTES = 4096 };

static void rate_text(double per_second, double unit, const char *format, char out[TEXT_BYTES]) {
  if (per_second > 0) (void)snprintf(out, TEXT_BYTES, format, per_second / unit);
  else (void)snprintf(out, TEXT_BYTES, "-");
}

/* Of 16-bit types: a card's are tens and hundreds of TFLOP/s, and a processor's, below one, are no 0. */
static void narrow_rate_text(double per_second, char out[TEXT_BYTES]) {
  rate_text(per_second, 1e12, per_second < 10e12 ? "%.1f" : "%.0f", out);
}

static void print_row(const hr_device *device) {
  const char *title = device->title;
  char bandwidth[TEXT_BYTES], fp32[TEXT_BYTES], bf16[TEXT_BYTES], fp16[TEXT_BYTES];
  rate_text(device->memory_bytes_per_second, 1e9, "%.0f", bandwidth);
  rate_text(device->flops_fp32, 1e12, "%.1f", fp32);
  narrow_rate_text(device->flops_bf16, bf16);
  narrow_rate_text(device->flops_fp16, fp16);
  /* The maker says nothing that the rest of the name does not; a processor's name may be longer than any card's. */
  if (strncmp(title, "NVIDIA ", 7) == 0) title += 7;
  if (screen_columns(stdout) < SCREEN_USUAL) (void)printf("%-18s", device->name);
  else (void)printf("%-18s%-28s ", device->name, title);
  if (screen_columns(stdout) >= SCREEN_USUAL && strlen(title) > 28) (void)printf("\n%47s", "");
  (void)printf("%10s%6s%6s%5s%5s\n", SIZE_TEXT(device->usable_bytes), bandwidth, fp32, bf16, fp16);
}

static void write_row(json_writer *json, const char *key, const double *values, size_t count) {
  json_write_open_flat(json, key, '[');
  for (size_t k = 0; k < count; k++) json_write_number(json, NULL, values[k]);
  json_write_close(json, ']');
}

static void write_rates(json_writer *json, const hr_device_rates *rates) {
  json_write_open(json, "rates", '{');
  json_write_count(json, "threads", rates->threads);
  json_write_text(json, "instruction_set", rates->instruction_set);
  json_write_text(json, "libraries", rates->libraries);
  json_write_number(json, "node_seconds", rates->node_seconds);
  if (rates->card[0]) {
    json_write_text(json, "card", rates->card);
    json_write_open(json, "link_bytes_per_second", '{');
    json_write_number(json, "to_host", rates->link_bytes_per_second[HR_LINK_TO_HOST]);
    json_write_number(json, "from_host", rates->link_bytes_per_second[HR_LINK_FROM_HOST]);
    json_write_close(json, '}');
  }
  for (int type = 0; type < HR_RATE_TYPES; type++) {
    const hr_rate_tables *t = &rates->tables[type];
    json_write_open(json, type ? "bf16" : "fp32", '{');
    write_row(json, "product_flops", &t->product_flops[0][0][0],
              HR_PRODUCT_KINDS * HR_PRODUCT_SIDES * HR_PRODUCT_SIZES);
    write_row(json, "attention_flops", &t->attention_flops[0][0], HR_ATTENTION_KINDS * HR_ATTENTION_SIZES);
    write_row(json, "stream_bytes", &t->stream_bytes[0][0], HR_STREAM_COUNT * HR_STREAM_SIZES);
    json_write_close(json, '}');
  }
  json_write_close(json, '}');
}

static void write_default_team(json_writer *json) {
  hr_cpu_team team;
  hr_device_cpu_team(&team);
  json_write_open(json, "team", '{');
  json_write_count(json, "default_threads", team.threads);
  json_write_count(json, "processors", team.processors);
  json_write_count(json, "cores", team.cores);
  if (team.quota_cpus > 0) json_write_number(json, "quota_cpus", team.quota_cpus);
  else json_write_null(json, "quota_cpus");
  json_write_close(json, '}');
}

static void write_device(json_writer *json, const char *key, const hr_device *device) {
  json_write_open(json, key, '{');
  json_write_text(json, "name", device->name);
  json_write_text(json, "title", device->title);
  json_write_bool(json, "is_cpu", strcmp(device->backend, "cpu") == 0);
  json_write_count(json, "capacity_bytes", device->capacity_bytes);
  json_write_count(json, "usable_bytes", device->usable_bytes);
  json_write_count(json, "fixed_bytes", device->fixed_bytes);
  json_write_bool(json, "fixed_measured", device->fixed_measured);
  json_write_count(json, "library_workspace_bytes", device->library_workspace_bytes);
  json_write_number(json, "memory_bytes_per_second", device->memory_bytes_per_second);
  json_write_number(json, "core_memory_bytes_per_second", device->core_memory_bytes_per_second);
  json_write_number(json, "link_bytes_per_second", device->link_bytes_per_second);
  json_write_number(json, "flops_fp32", device->flops_fp32);
  json_write_number(json, "flops_tf32", device->flops_tf32);
  json_write_number(json, "flops_bf16", device->flops_bf16);
  json_write_number(json, "flops_fp16", device->flops_fp16);
  if (device->has_team && device->usable_now) write_default_team(json);
  json_write_number(json, "gemm_efficiency", device->gemm_efficiency);
  json_write_number(json, "memory_efficiency", device->memory_efficiency);
  json_write_number(json, "node_seconds", device->node_seconds);
  json_write_text(json, "source", device->source);
  json_write_text(json, "date", device->date);
  if (device->rates.threads) write_rates(json, &device->rates);
  if (device->rates_problem[0]) json_write_text(json, "rates_problem", device->rates_problem);
  json_write_close(json, '}');
}

static void print_rate(const char *label, double per_second, double unit, const char *unit_text) {
  if (per_second > 0) (void)printf("%-18s %.4g %s\n", label, per_second / unit, unit_text);
}

static void print_line(const char *kind, const char *side, const double *rates, size_t count) {
  bool any = false;
  for (size_t k = 0; k < count; k++) any = any || rates[k] > 0;
  if (!any) return;
  (void)printf("  %-16s%-6s", kind, side);
  for (size_t k = 0; k < count; k++) {
    char text[TEXT_BYTES];
    rate_text(rates[k], 1e9, "%.0f", text);
    (void)printf("%8s", text);
  }
  (void)printf("\n");
}

/* Of a card: the tables hold for it, this driver and this library; copies each way. */
static void print_card(const hr_device_rates *rates) {
  (void)printf("%-18s here on %s, for %s\n", "measured", rates->date, rates->card);
  print_rate("to the host", rates->link_bytes_per_second[HR_LINK_TO_HOST], 1e9, "GB/s");
  print_rate("from the host", rates->link_bytes_per_second[HR_LINK_FROM_HOST], 1e9, "GB/s");
}

/* A team of threads is a CPU's. */
static void print_products_title(const hr_device_rates *rates, const char *type) {
  (void)printf("\nGFLOP/s of matrix products, %s, %s", type, rates->instruction_set);
  if (!rates->card[0]) (void)printf(", %u threads", rates->threads);
  (void)printf("\n%-24s%8s%8s%8s%8s  FLOPs\n", "kind, least side", "2^24", "2^28", "2^31", "2^34");
}

/* The measured tables in short: one line per kind, small to large. */
static void print_rates(const hr_device_rates *rates) {
  static const char *const kinds[HR_PRODUCT_KINDS] = {"forward",         "dx",         "dw",
                                                      "forward, packed", "dx, packed", "dw, packed"};
  static const char *const sides[] = {"64", "256", "1024"}, *const ways[] = {"forward", "backward"},
                           *const types[] = {"fp32", "bf16"};
  if (rates->card[0]) print_card(rates);
  (void)printf("%-18s %s\n", "code", rates->libraries);
  for (size_t type = 0; type < HR_RATE_TYPES; type++) {
    const hr_rate_tables *t = &rates->tables[type];
    print_products_title(rates, types[type]);
    for (size_t kind = 0; kind < HR_PRODUCT_KINDS; kind++)
      for (size_t side = 0; side < HR_PRODUCT_SIDES; side++)
        print_line(kinds[kind], sides[side], t->product_flops[kind][side], HR_PRODUCT_SIZES);
    (void)printf("%-24s%8s%8s%8s%8s  tokens\n", "attention", "64", "256", "1024", "4096");
    for (size_t way = 0; way < HR_ATTENTION_KINDS; way++)
      print_line(ways[way], "", t->attention_flops[way], HR_ATTENTION_SIZES);
  }
  (void)printf("%-18s %.2g us per node\n\n", "overhead", rates->node_seconds * 1e6);
}

static void print_team(void) {
  hr_cpu_team team;
  char reason[128];
  hr_device_cpu_team(&team);
  (void)printf("%-18s %u (%s)\n", "threads", team.threads, hr_cpu_team_reason(&team, reason, sizeof reason));
}

static void print_one(const hr_device *device) {
  (void)printf("%s%s%s  %s\n\n", screen_style(stdout, STYLE_BOLD), device->name, screen_style(stdout, STYLE_PLAIN),
               device->title);
  (void)printf("%-18s %s (%llu bytes)\n", "built in", SIZE_TEXT(device->capacity_bytes),
               (unsigned long long)device->capacity_bytes);
  (void)printf("%-18s %s (%llu bytes)%s\n", "usable", SIZE_TEXT(device->usable_bytes),
               (unsigned long long)device->usable_bytes, device->usable_now ? ", now" : "");
  (void)printf("%-18s %s (runtime, libraries, context; %s)\n", "fixed", SIZE_TEXT(device->fixed_bytes),
               device->fixed_measured ? "measured on this machine" : "assumed");
  if (device->library_workspace_bytes)
    (void)printf("%-18s %s\n", "library workspace", SIZE_TEXT(device->library_workspace_bytes));
  if (device->has_team) print_team();
  print_rate("memory", device->memory_bytes_per_second, 1e9, "GB/s");
  print_rate("host link", device->link_bytes_per_second, 1e9, "GB/s, one direction");
  print_rate("fp32", device->flops_fp32, 1e12, "TFLOP/s");
  print_rate("tf32", device->flops_tf32, 1e12, "TFLOP/s, dense");
  print_rate("bf16", device->flops_bf16, 1e12, "TFLOP/s, dense");
  print_rate("fp16", device->flops_fp16, 1e12, "TFLOP/s, dense");
  if (device->flops_fp16 > 0 && device->flops_bf16 <= 0)
    (void)printf("%-18s none: the device came before bf16 and has fp16 instead\n", "bf16");
  if (device->rates.seen)
    (void)printf("%-18s of earlier training runs, the last on %s; what these had none of is assumed\n", "rates",
                 device->rates.date);
  if (device->rates.threads) print_rates(&device->rates);
  else
    (void)printf("%-18s %.0f %% of the rate for matrix products, %.0f %% of the bandwidth\n", "assumed reachable",
                 device->gemm_efficiency * 100, device->memory_efficiency * 100);
  if (device->rates_problem[0]) {
    char text[1024];
    (void)snprintf(text, sizeof text, "not taken: %s", device->rates_problem);
    screen_hang(stdout, 19, "stored probe", text);
  }
  if (!device->source[0]) return;
  (void)printf("%-18s ", "source");
  (void)printf("%s%s%s%s\n", device->source, device->date[0] ? " (" : "", device->date, device->date[0] ? ")" : "");
}

static hr_status show_one(const cli_config *config, hr_error *error) {
  hr_device device;
  json_writer json;
  hr_status status = hr_device_find(config->operands[0], &device, error);
  if (status != HR_OK) return status;
  if (!config->own.json) {
    print_one(&device);
    return HR_OK;
  }
  json_write_begin(&json, stdout);
  write_device(&json, "device", &device);
  json_write_end(&json);
  return HR_OK;
}

/* ---- the GPUs of this machine ---- */

/* Who has none is told why. */
static void print_gpus(void) {
  hr_local_gpu gpu;
  hr_error error = {0};
  char number[16], text[HR_ERROR_MESSAGE_BYTES + 64];
  uint32_t count = 0;
  for (; hr_device_local(count, &gpu, &error) == HR_OK; count++) {
    if (count == 0) (void)printf("\nGPUs of this machine\n");
    (void)snprintf(number, sizeof number, "  %u", count);
    (void)snprintf(text, sizeof text, "%s, %s, compute capability %u.%u, %u multiprocessors", gpu.title,
                   SIZE_TEXT(gpu.total_bytes), gpu.compute_capability / 10, gpu.compute_capability % 10,
                   gpu.multiprocessors);
    screen_hang(stdout, 5, number, text);
    (void)snprintf(text, sizeof text, count ? "train on it with --device cuda:%u" : "train on it with --device cuda",
                   count);
    screen_wrap(stdout, 5, text);
  }
  if (count > 0) return;
  (void)snprintf(text, sizeof text, "no GPU of this machine can be seen: %s", error.message);
  (void)printf("\n");
  screen_wrap(stdout, 0, text);
}

static void write_gpus(json_writer *json) {
  hr_local_gpu gpu;
  hr_error error = {0};
  uint32_t count = 0;
  json_write_open(json, "gpus", '[');
  for (; hr_device_local(count, &gpu, &error) == HR_OK; count++) {
    json_write_open(json, NULL, '{');
    json_write_text(json, "title", gpu.title);
    if (gpu.name[0]) json_write_text(json, "name", gpu.name);
    else json_write_null(json, "name");
    json_write_count(json, "compute_capability", gpu.compute_capability);
    json_write_count(json, "multiprocessors", gpu.multiprocessors);
    json_write_count(json, "total_bytes", gpu.total_bytes);
    json_write_close(json, '}');
  }
  json_write_close(json, ']');
  if (count == 0) json_write_text(json, "gpus_missing", error.message);
  else json_write_null(json, "gpus_missing");
}

/* ---- --probe ---- */

typedef struct probe_screen {
  bool shown;
  int percent;
} probe_screen;

static void on_progress(void *context, double share) {
  probe_screen *screen = context;
  int percent = (int)(share * 100);
  if (!screen->shown || percent == screen->percent) return;
  screen->percent = percent;
  (void)fprintf(stderr, "\rmeasuring %3d %%", percent);
}

/* This machine's CPU, or a GPU of it. */
static hr_status find_measurable(const cli_config *config, hr_device *device, hr_error *error) {
  HRI_TRY(hr_device_find(config->operand_count ? config->operands[0] : "cpu", device, error));
  if (device->backend[0] && (device->has_team || !config->job.threads)) return HR_OK;
  if (device->backend[0])
    return hri_fail(error, HR_ERROR_USAGE, "--threads is a team on the CPU; %s has none", device->name);
  (void)
      hri_fail(error, HR_ERROR_USAGE,
               "--probe measures this machine: its CPU, which takes no name, or a GPU of it; %s is a row of the table",
               device->name);
  return hri_hint(error, HR_ERROR_USAGE, "headroom devices --probe, or headroom devices cuda --probe");
}

/* What the rates are of, where it is not all that was measured, or not what the machine does alone. */
static void print_rounds(const hr_device_rates *rates) {
  char text[256];
  if (rates->busy_rounds == 0) return;
  (void)snprintf(text, sizeof text, "%u, in %u of them others had the processors: %s", rates->rounds,
                 rates->busy_rounds,
                 rates->busy_counted
                     ? "too few were quiet, so all count, and rates may be low; measure again when other "
                       "programs are closed, or with fewer --threads"
                     : "left out");
  screen_hang(stdout, 19, "rounds", text);
}

static hr_status probe(cli_config *config, hr_error *error) {
  hr_probe_options options;
  probe_screen screen = {.shown = isatty(STDERR_FILENO) == 1};
  char path[PATH_BYTES];
  hr_device device;
  hr_device_rates rates;
  hr_status status;
  json_writer json;
  HRI_TRY(find_measurable(config, &device, error));
  hr_probe_options_init(&options);
  options.device = device.name;
  options.seconds = config->own.probe_seconds;
  options.threads = config->job.threads;
  options.on_progress = on_progress;
  options.context = &screen;
  HRI_TRY(hr_device_can_store(error)); /* what was measured for nothing is known too late */
  status = hr_device_probe(&options, &rates, error);
  if (screen.shown) (void)fprintf(stderr, "\r               \r");
  if (status == HR_OK) status = hr_device_store(&rates, path, sizeof path, error);
  if (status != HR_OK) return status;
  (void)hr_device_load(&device, rates.threads);
  if (config->own.json) {
    json_write_begin(&json, stdout);
    json_write_text(&json, "path", path);
    json_write_count(&json, "rounds", rates.rounds);
    json_write_count(&json, "busy_rounds", rates.busy_rounds);
    json_write_bool(&json, "busy_counted", rates.busy_counted);
    write_device(&json, "device", &device);
    json_write_end(&json);
  } else {
    print_one(&device);
    print_rounds(&rates);
    (void)fputs("stored in ", stdout);
    screen_name(stdout, path);
    (void)fputc('\n', stdout);
  }
  return HR_OK;
}

hr_status command_devices(cli_config *config, hr_error *error) {
  const void *const of_probes[] = {&config->own.probe_seconds, &config->job.threads};
  hr_device device;
  json_writer json;
  hr_status status;
  bool as_json = config->own.json;
  if (config->own.probe) return probe(config, error);
  HRI_TRY(config_refuse_idle(config, of_probes, 2, "without --probe", "add --probe, or leave it out", error));
  if (config->operand_count > 0) return show_one(config, error);
  status = hr_device_find("cpu", &device, error);
  if (status != HR_OK) return status;
  if (as_json) {
    json_write_begin(&json, stdout);
    json_write_open(&json, "devices", '[');
    write_device(&json, NULL, &device);
  } else {
    (void)printf("%-18s%*s%10s%6s%6s%5s%5s\n", "name", screen_columns(stdout) < SCREEN_USUAL ? 0 : 29, "", "usable",
                 "GB/s", "fp32", "bf16", "fp16");
    print_row(&device);
  }
  for (uint32_t i = 0; i < hr_device_count(); i++) {
    status = hr_device_get(i, &device, error);
    if (status != HR_OK) return status;
    if (as_json) write_device(&json, NULL, &device);
    else print_row(&device);
  }
  if (as_json) {
    json_write_close(&json, ']');
    write_gpus(&json);
    json_write_end(&json);
  } else {
    print_gpus();
    (void)printf("\n");
    screen_wrap(stdout, 0,
                "usable: what a process can have; fp32, bf16, fp16: dense TFLOP/s as published.\n"
                "Jobs run on the cpu and on GPUs of this machine; for the rows of the table they are planned.\n"
                "`headroom devices NAME` tells more, with the source of each figure.");
  }
  return HR_OK;
}
