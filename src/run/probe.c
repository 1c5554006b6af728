/* Measuring a device: a program of sample nodes, one for each entry of the tables that the cost model reads, run by the
 * very backend that runs jobs, through its contract. Because a sample is a node, its class, FLOPs and bytes come from
 * the same functions that later look it up; nothing can be filed under the wrong entry.
 *
 * All samples share one arena, in regions (probe.h). They lie at different places of their regions, and a round runs
 * every sample once. So they are interleaved, a slow minute of the machine hits all of them alike, and a sample finds its
 * operands in memory, as the weights of a training step are. Short ones run twice, and the second time counts: in a step
 * their operands were made a moment before. An entry is the median of its rounds, with what disturbs them that nobody can tell: a
 * run on the same machine meets it too. A round of a CPU in which others had its processors is left out, as `train` drops
 * what it saw then (train/rates.h): who measures while a compiler runs would plan by it long after.
 *
 * What a node costs besides its work: on a CPU, what one takes that has next to none. Where launches are queued, what is
 * measured of such a node (between two events of the device) says what to take off the others, and what a step pays for
 * each of its nodes is the time of whole programs of them, launched one behind the other, by the number of nodes.
 *
 * Of a CPU every sample is measured, and before that which code multiplies fastest (probe_products.c). A card may be
 * anything, the GPU in software too: a few scouts say what each sample will take, and the longest are left out where a
 * round would take too long. Of a class that has no sample left the scouts stand in. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/real.h"
#include "device/cpu.h"
#include "device/host.h"
#include "pass/pass.h"
#include "run/probe.h"

enum { PROGRAM_NODES = 256, PROGRAM_LAUNCHES = 4, PROGRAM_ROUNDS = 5 };
static const double DEFAULT_SECONDS = 30, SHORT_SAMPLE_SECONDS = 5e-4;
/* A rough look is too short to choose by; choosing takes a part of what is longer. */
static const double ROUGH_SECONDS = 5, CHOOSING_PART = 0.25;
/* What a round may take on a card, of the time that there is, and what it may take at least. */
static const double ROUND_PART = 1.0 / 3, LEAST_ROUND_SECONDS = 0.5;
static const uint64_t MOST_BYTES = UINT64_C(640) << 20;
/* What a run has resident that a probe does not use: buffers of data files and checkpoints (docs/data.md), JSON. */
static const uint64_t BUFFER_BYTES = UINT64_C(2) << 20;
/* And on a card: kernels that no sample launches (all of a generation are some 5 MiB of the library) and graphs. */
static const uint64_t CARD_BESIDE_BYTES = UINT64_C(16) << 20;

typedef hri_probe probe;
typedef hri_probe_sample sample;
typedef hri_probe_region region;

double hri_probe_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

hr_status hri_probe_create(hr_device_rates *rates, hri_backend *borrowed, hri_probe **out, hr_error *error) {
  probe *p = hri_alloc_zero(1, sizeof *p);
  *out = p;
  if (!p) return hri_fail_memory(error, sizeof *p, "the probe");
  p->rates = rates;
  p->backend = borrowed;
  p->borrows = borrowed != NULL;
  hri_job_init(&p->job);
  return HR_OK;
}

void hri_probe_destroy(hri_probe *p) {
  if (!p) return;
  if (p->base) p->backend->release(p->launches);
  if (p->base) p->backend->release(p->run);
  if (p->base) p->backend->release(p->base);
  hri_free(p->offsets);
  hri_job_deinit(&p->job);
  if (!p->borrows) hri_backend_close(p->backend);
  hri_free(p);
}

/* ---- memory ---- */

static region region_of(const probe *p, hri_operand operand) {
  const hri_tensor *t = &p->job.tensors.items[operand.tensor];
  if (p->job.storages.items[t->storage].tier == HRI_HOST) return HRI_PROBE_HOST;
  if (operand.access != HRI_READ) return HRI_PROBE_OUTPUTS;
  return t->dtype == HRI_F32 ? HRI_PROBE_INPUTS : t->dtype == HRI_BF16 ? HRI_PROBE_HALF_INPUTS : HRI_PROBE_INDICES;
}

/* Places the operands of one node, each in its region from the region's start. Nodes overlap: they run one by one. */
static void place_node(probe *p, const hri_node *n, uint64_t used[HRI_PROBE_REGIONS]) {
  memset(used, 0, HRI_PROBE_REGIONS * sizeof *used);
  for (uint32_t k = 0; k < n->operand_count; k++) {
    hri_operand o = hri_operands(&p->job, n)[k];
    region r;
    if (o.tensor == HRI_NONE) continue;
    r = region_of(p, o);
    p->offsets[p->job.tensors.items[o.tensor].storage] = used[r];
    used[r] += hri_round_up(p->job.storages.items[p->job.tensors.items[o.tensor].storage].bytes, HRI_STORAGE_ALIGN);
  }
}

/* Seconds of one execution by what the scouts saw. */
static double expected(const probe *p, const sample *s) {
  return hri_node_seconds(&p->job, &p->job.nodes.items[s->node], p->expected);
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Leaves out the longest samples until one round of the others is expected to end in time. */
static void cut_by_time(probe *p) {
  double sorted[HRI_PROBE_SAMPLES], sum = 0, longest = 0;
  uint32_t kept = 0;
  p->job.team = p->backend->team;
  for (uint32_t k = 0; k < p->sample_count; k++) sorted[k] = expected(p, &p->samples[k]);
  qsort(sorted, p->sample_count, sizeof *sorted, ascending);
  for (uint32_t k = 0; k < p->sample_count && sum + sorted[k] <= p->limit_seconds; k++) sum += longest = sorted[k];
  for (uint32_t k = 0; k < p->sample_count; k++)
    if (expected(p, &p->samples[k]) <= longest) p->samples[kept++] = p->samples[k];
  p->sample_count = kept;
}

/* Whether regions of such sizes can be had. */
static bool has_room(const probe *p, const uint64_t bytes[HRI_PROBE_REGIONS]) {
  uint64_t total = 0;
  for (int r = 0; r < HRI_PROBE_HOST; r++) total += bytes[r];
  return total <= p->limit_bytes &&
         (bytes[HRI_PROBE_HOST] == 0 || bytes[HRI_PROBE_HOST] <= hri_host_memory_now().usable_bytes / 4);
}

/* The size of the regions; samples that would need more than the machine has are left out. */
static hr_status place_all(probe *p, hr_error *error) {
  uint32_t kept = 0;
  p->offsets = hri_alloc_zero(p->job.storages.count, sizeof *p->offsets);
  if (!p->offsets) return hri_fail_memory(error, p->job.storages.count * sizeof *p->offsets, "the probe");
  if (p->expected) cut_by_time(p);
  for (uint32_t k = 0; k < p->sample_count; k++) {
    uint64_t used[HRI_PROBE_REGIONS], grown[HRI_PROBE_REGIONS];
    place_node(p, &p->job.nodes.items[p->samples[k].node], used);
    for (int r = 0; r < HRI_PROBE_REGIONS; r++) grown[r] = used[r] > p->region_bytes[r] ? used[r] : p->region_bytes[r];
    if (!has_room(p, grown)) continue;
    memcpy(p->region_bytes, grown, sizeof grown);
    p->samples[kept++] = p->samples[k];
  }
  p->sample_count = kept;
  return HR_OK;
}

/* Where sample k begins in a region of which it uses `used`: spread by the golden ratio. */
static uint64_t spread(const probe *p, uint32_t k, region r, uint64_t used) {
  double place = 0.6180339887498949 * (double)(k + 1), part = place - (double)(uint64_t)place;
  return (uint64_t)(part * (double)(p->region_bytes[r] - used)) / HRI_STORAGE_ALIGN * HRI_STORAGE_ALIGN;
}

/* Regions begin behind each other, so offsets move by their begin and by the place of their sample; integers stay at
 * the start, where the zeros are few. */
static void place_regions(probe *p) {
  uint64_t total = 0;
  for (int r = 0; r < HRI_PROBE_HOST; r++) {
    p->region_begin[r] = total;
    total += p->region_bytes[r];
  }
  p->arena_bytes = total;
  for (uint32_t k = 0; k < p->sample_count; k++) {
    const hri_node *n = &p->job.nodes.items[p->samples[k].node];
    uint64_t used[HRI_PROBE_REGIONS];
    place_node(p, n, used);
    for (uint32_t i = 0; i < n->operand_count; i++) {
      hri_operand o = hri_operands(&p->job, n)[i];
      region r = o.tensor == HRI_NONE ? HRI_PROBE_INDICES : region_of(p, o);
      if (o.tensor != HRI_NONE)
        p->offsets[p->job.tensors.items[o.tensor].storage] +=
            p->region_begin[r] + (r == HRI_PROBE_INDICES ? 0 : spread(p, k, r, used[r]));
    }
  }
}

/* A tensor that shows a whole region, to write its numbers through. */
static hr_status show_region(probe *p, region r, hri_id *shown, hr_error *error) {
  hri_place place = {.program = HRI_STEP,
                     .tier = HRI_DEVICE,
                     .role = HRI_ROLE_ACTIVATION,
                     .layer = -1,
                     .unit = HRI_NONE};
  hri_id id = hri_tensor_new(&p->job, place, 0, HRI_U8, 2, (uint64_t[]){1, p->region_bytes[r]}, NULL);
  uint64_t *offsets = hri_alloc_zero(p->job.storages.count, sizeof *offsets);
  HRI_TRY(hri_job_ok(&p->job, error));
  if (!offsets) return hri_fail_memory(error, p->job.storages.count * sizeof *offsets, "the probe");
  memcpy(offsets, p->offsets, (p->job.storages.count - 1) * sizeof *offsets);
  offsets[p->job.storages.count - 1] = p->region_begin[r];
  hri_free(p->offsets);
  p->offsets = offsets;
  *shown = id;
  return HR_OK;
}

static float number(uint64_t k) {
  uint32_t mixed = (uint32_t)k * 2654435761u;
  return (float)(mixed ^ mixed >> 15) / 4294967296.0f - 0.5f;
}

/* Numbers in [-0.5, 0.5). */
static hr_status fill_region(probe *p, hri_id shown, region r, hri_real real, hr_error *error) {
  enum { PIECE = 4096 };
  float values[PIECE]; /* of either type */
  uint64_t each = hri_real_bytes(real), count = p->region_bytes[r] / each;
  for (uint64_t done = 0; done < count; done += PIECE) {
    uint64_t n = count - done < PIECE ? count - done : PIECE;
    for (uint64_t k = 0; k < n; k++) hri_real_put(values, (int64_t)k, number(done + k), real);
    HRI_TRY(p->backend->write(p->base, shown, done * each, values, n * each, error));
  }
  return HR_OK;
}

/* ---- runs ---- */

static void after_node(void *context, const hri_job *job, hri_id node, double seconds) {
  probe *p = context;
  (void)job;
  (void)node;
  p->samples[p->sample_of[p->at++]].last = seconds;
}

hr_status hri_probe_prepare(probe *p, uint32_t begin, uint32_t end, bool all_twice, void *beside, void **run,
                            hr_error *error) {
  hri_program *program = &p->job.programs[HRI_STEP];
  hri_work work = {.job = &p->job,
                   .offsets = p->offsets,
                   .arena_bytes = {[HRI_DEVICE] = p->arena_bytes, [HRI_HOST] = p->region_bytes[HRI_PROBE_HOST]},
                   .programs = HRI_IN(HRI_STEP),
                   .beside = beside,
                   .after_node = after_node,
                   .context = p,
                   .times = true};
  program->order.count = 0;
  for (uint32_t k = begin; k < end; k++)
    for (int turn = 0; turn <= (all_twice || p->samples[k].twice); turn++) {
      p->sample_of[program->order.count] = k;
      hri_order_push(&p->job, HRI_STEP, p->samples[k].node);
    }
  HRI_TRY(hri_job_ok(&p->job, error));
  return p->backend->prepare(p->backend->self, &work, run, error);
}

hr_status hri_probe_launch(probe *p, void *run, hr_error *error) {
  hri_mark mark;
  p->at = 0;
  HRI_TRY(p->backend->launch(run, HRI_STEP, &mark, error));
  return p->backend->wait(run, mark, error);
}

hr_status hri_probe_lay_out(probe *p, hr_error *error) {
  HRI_TRY(hri_job_ok(&p->job, error));
  HRI_TRY(hri_pass_workspace(&p->job, p->backend, error));
  HRI_TRY(place_all(p, error));
  place_regions(p);
  for (region r = HRI_PROBE_INPUTS; r <= HRI_PROBE_HALF_INPUTS; r++)
    if (p->region_bytes[r]) HRI_TRY(show_region(p, r, &p->shown[r], error));
  return HR_OK;
}

hr_status hri_probe_fill(probe *p, hr_error *error) {
  HRI_TRY(p->backend->reserve(p->base, error));
  HRI_TRY(fill_region(p, p->shown[HRI_PROBE_INPUTS], HRI_PROBE_INPUTS, HRI_REAL_F32,
                      error)); /* nothing where a region is empty */
  return fill_region(p, p->shown[HRI_PROBE_HALF_INPUTS], HRI_PROBE_HALF_INPUTS, HRI_REAL_BF16, error);
}

/* ---- fixed bytes ---- */

/* What of the device this process has once everything ran. Where a card's driver does not show it, as in a container, what
 * is free less than before. 0: nobody tells. */
static uint64_t held_bytes(const probe *p) {
  const hri_backend *b = p->backend;
  uint64_t held = b->held_bytes(b->self), left;
  if (held || !b->device.usable_now || !b->free_bytes) return held;
  left = b->free_bytes(b->self);
  return left < b->device.usable_bytes ? b->device.usable_bytes - left : 0;
}

/* Less the arena, with room for what runs have besides. */
static void fix(probe *p) {
  bool beside_host = p->backend->held_bytes != NULL;
  uint64_t held = beside_host ? held_bytes(p) : hri_host_resident_bytes(),
           own = p->backend->reserved_bytes(p->base, HRI_DEVICE), rest = held > own ? held - own : 0;
  if (beside_host && rest == 0) return;
  p->rates->fixed_bytes = hri_round_up(rest + (beside_host ? CARD_BESIDE_BYTES : BUFFER_BYTES), 1u << 20);
}

/* ---- measuring ---- */

double hri_probe_median(double *seconds, uint32_t count) {
  qsort(seconds, count, sizeof *seconds, ascending);
  return count % 2 ? seconds[count / 2] : (seconds[count / 2 - 1] + seconds[count / 2]) / 2;
}

/* The first round, not counted: code is loaded, and it shows which samples are short. */
static hr_status warm_up(probe *p, hr_error *error) {
  HRI_TRY(hri_probe_launch(p, p->base, error));
  for (uint32_t k = 0; k < p->sample_count; k++) p->samples[k].twice = p->samples[k].last < SHORT_SAMPLE_SECONDS;
  HRI_TRY(hri_probe_prepare(p, 0, p->sample_count, false, p->base, &p->run, error));
  return p->backend->reserve(p->run, error);
}

/* Whether others had the processors since `before`, in a round that took so long. A team of more threads than there are
 * processors, or than a quota of the container's grants, waits for its own. */
static bool was_busy(const probe *p, const hri_host_load *before, double seconds) {
  const hri_host_load now = hri_host_load_now();
  hri_host_load taken = {0};
  hr_cpu_team usual;
  if (!p->backend->device.has_team) return false;
  hr_device_cpu_team(&usual);
  hri_host_load_add(&taken, before, &now);
  if (p->backend->team > usual.processors || (usual.quota_cpus > 0 && p->backend->team > usual.quota_cpus))
    taken.waited_seconds = 0;
  return hri_host_load_disturbs(&taken, p->backend->team, seconds);
}

/* Leaves the rounds out in which others had the processors, where enough are left; else all of them count, which is what
 * there is to know of a machine that is always shared, and the rates say so. */
static void choose_rounds(probe *p, const bool busy[HRI_PROBE_ROUNDS], uint32_t least) {
  hr_device_rates *r = p->rates;
  uint32_t kept = 0;
  r->busy_counted = r->busy_rounds > 0 && r->rounds - r->busy_rounds < least;
  if (r->busy_counted) return;
  for (uint32_t round = 0; round < r->rounds; round++) {
    if (busy[round]) continue;
    for (uint32_t k = 0; k < p->sample_count; k++) p->samples[k].seconds[kept] = p->samples[k].seconds[round];
    kept++;
  }
  p->round_count = kept;
}

/* Until the time is over: at least so many rounds, and up to twice as many while fewer than these were quiet. */
static hr_status measure(probe *p, double begin, const hr_probe_options *options, hr_error *error) {
  double limit = options->seconds, round = 0;
  uint32_t least = limit < ROUGH_SECONDS ? 1 : HRI_PROBE_LEAST_ROUNDS, most = limit < ROUGH_SECONDS ? 1 : 2 * least;
  hr_device_rates *r = p->rates;
  bool busy[HRI_PROBE_ROUNDS] = {false};
  while (r->rounds < HRI_PROBE_ROUNDS &&
         (r->rounds < least || (r->rounds - r->busy_rounds < least && r->rounds < most) ||
          hri_probe_now() - begin + round < limit)) {
    const hri_host_load before = hri_host_load_now();
    double start = hri_probe_now(), share;
    HRI_TRY(hri_probe_launch(p, p->run, error));
    round = hri_probe_now() - start;
    for (uint32_t k = 0; k < p->sample_count; k++) p->samples[k].seconds[r->rounds] = p->samples[k].last;
    busy[r->rounds] = was_busy(p, &before, round);
    r->busy_rounds += busy[r->rounds++];
    share = (hri_probe_now() - begin) / limit;
    if (options->on_progress) options->on_progress(options->context, share < 1 ? share : 1);
  }
  p->round_count = r->rounds;
  choose_rounds(p, busy, least);
  return HR_OK;
}

/* Rates are of the work alone: the overhead, which a prediction adds to every node, is taken off first, as it was measured
 * of the node that has nothing else. */
static void file_rates(probe *p) {
  double overhead = 0;
  for (uint32_t k = 0; k < p->sample_count; k++)
    if (!p->samples[k].entry) overhead = hri_probe_median(p->samples[k].seconds, p->round_count);
  if (!p->launches) p->rates->node_seconds = overhead;
  for (uint32_t k = 0; k < p->sample_count; k++) {
    double seconds;
    if (!p->samples[k].entry) continue;
    seconds = hri_probe_median(p->samples[k].seconds, p->round_count);
    seconds = seconds > 2 * overhead ? seconds - overhead : seconds / 2;
    *p->samples[k].entry = seconds > 0 ? p->samples[k].work / seconds : 0;
  }
}

/* ---- launches ---- */

/* A program of nodes that have next to no work, as a step has nodes: a graph, where the backend makes one. */
static hr_status prepare_launches(probe *p, hr_error *error) {
  hri_program *program = &p->job.programs[HRI_STEP];
  hri_work work = {.job = &p->job,
                   .offsets = p->offsets,
                   .arena_bytes = {[HRI_DEVICE] = p->arena_bytes, [HRI_HOST] = p->region_bytes[HRI_PROBE_HOST]},
                   .programs = HRI_IN(HRI_STEP),
                   .beside = p->base};
  program->order.count = 0;
  for (int k = 0; k < PROGRAM_NODES; k++) hri_order_push(&p->job, HRI_STEP, p->overhead);
  HRI_TRY(hri_job_ok(&p->job, error));
  HRI_TRY(p->backend->prepare(p->backend->self, &work, &p->launches, error));
  return p->backend->reserve(p->launches, error);
}

/* Some of them, queued one behind the other, until the last is over. */
static hr_status launch_some(probe *p, double *seconds, hr_error *error) {
  double begin = hri_probe_now();
  hri_mark mark = 0;
  for (int k = 0; k < PROGRAM_LAUNCHES; k++) HRI_TRY(p->backend->launch(p->launches, HRI_STEP, &mark, error));
  HRI_TRY(p->backend->wait(p->launches, mark, error));
  *seconds = hri_probe_now() - begin;
  return HR_OK;
}

static hr_status measure_launches(probe *p, hr_error *error) {
  double seconds[PROGRAM_ROUNDS];
  HRI_TRY(prepare_launches(p, error));
  HRI_TRY(launch_some(p, &seconds[0], error)); /* not counted */
  for (int k = 0; k < PROGRAM_ROUNDS; k++) HRI_TRY(launch_some(p, &seconds[k], error));
  p->rates->node_seconds = hri_probe_median(seconds, PROGRAM_ROUNDS) / (PROGRAM_LAUNCHES * PROGRAM_NODES);
  return HR_OK;
}

/* ---- scouts ---- */

static hr_status run_scouts(probe *p, hr_error *error) {
  hri_probe_add_scouts(p);
  HRI_TRY(hri_probe_lay_out(p, error));
  HRI_TRY(hri_probe_prepare(p, 0, p->sample_count, true, NULL, &p->base, error));
  HRI_TRY(hri_probe_fill(p, error));
  HRI_TRY(hri_probe_launch(p, p->base, error));
  for (uint32_t k = 0; k < p->sample_count; k++) p->samples[k].seconds[0] = p->samples[k].last;
  p->round_count = 1;
  file_rates(p);
  return HR_OK;
}

/* The device by rates that a few small samples saw. */
static hr_status scout(const probe *beside, hr_device *device, hr_error *error) {
  probe *p;
  hr_status status;
  *device = beside->backend->device;
  device->rates = (hr_device_rates){.threads = beside->backend->team};
  HRI_TRY(hri_probe_create(&device->rates, beside->backend, &p, error));
  p->limit_bytes = beside->limit_bytes;
  status = run_scouts(p, error);
  hri_probe_destroy(p);
  return status;
}

/* A row without any measurement gets what the scouts saw of its class. */
static void fill_rows(double *to, const double *from, size_t rows, size_t columns) {
  for (size_t row = 0; row < rows; row++, to += columns, from += columns) {
    bool any = false;
    for (size_t k = 0; k < columns; k++) any = any || to[k] > 0;
    if (!any) memcpy(to, from, columns * sizeof *to);
  }
}

static void fill_tables(hr_device_rates *rates, const hr_device_rates *seen) {
  for (int type = 0; type < HR_RATE_TYPES; type++) {
    hr_rate_tables *to = &rates->tables[type];
    const hr_rate_tables *from = &seen->tables[type];
    fill_rows(&to->product_flops[0][0][0], &from->product_flops[0][0][0], HR_PRODUCT_KINDS * HR_PRODUCT_SIDES,
              HR_PRODUCT_SIZES);
    fill_rows(&to->attention_flops[0][0], &from->attention_flops[0][0], HR_ATTENTION_KINDS, HR_ATTENTION_SIZES);
    fill_rows(&to->stream_bytes[0][0], &from->stream_bytes[0][0], HR_STREAM_COUNT, HR_STREAM_SIZES);
  }
}

/* ---- the whole ---- */

static void describe(hr_device_rates *rates, const hri_backend *b) {
  time_t seconds = time(NULL);
  struct tm day;
  rates->threads = b->team;
  memcpy(rates->instruction_set, b->instruction_set, sizeof rates->instruction_set);
  memcpy(rates->libraries, b->libraries, sizeof rates->libraries);
  memcpy(rates->card, b->device.rates.card, sizeof rates->card);
  if (gmtime_r(&seconds, &day)) (void)strftime(rates->date, sizeof rates->date, "%Y-%m-%d", &day);
}

static bool is_cpu(const hr_probe_options *o) { return !o->device || strcmp(o->device, "cpu") == 0; }

/* The CPU, with the products that runs will have: those that win here, or what is stored or shipped. */
static hr_status open_cpu(probe *p, const hr_probe_options *o, hr_error *error) {
  uint32_t threads = o->threads ? o->threads : hr_device_cpu_threads();
  hr_device device;
  hri_device_cpu(&device);
  p->limit_bytes = hri_host_memory_now().usable_bytes / 2;
  if (p->limit_bytes > MOST_BYTES) p->limit_bytes = MOST_BYTES;
  if (o->seconds >= ROUGH_SECONDS)
    HRI_TRY(hri_probe_choose_products(p->rates, threads, o->seconds * CHOOSING_PART, p->limit_bytes, device.products,
                                      error));
  return hri_backend_open(&device, threads, &p->backend, error);
}

static hr_status open_card(probe *p, const hr_probe_options *o, hr_error *error) {
  hr_device device;
  HRI_TRY(hr_device_find(o->device, &device, error));
  if (!device.backend[0]) {
    (void)hri_fail(error, HR_ERROR_USAGE,
                   "%s is a row of the table, not a device of this machine: it cannot be measured", device.name);
    return hri_hint(error, HR_ERROR_USAGE, "cuda is the first GPU of this machine, cuda:1 the second");
  }
  if (o->threads)
    return hri_fail(error, HR_ERROR_USAGE, "threads are %u: %s has no team of threads", o->threads, device.name);
  p->limit_bytes = device.usable_bytes / 2 < MOST_BYTES ? device.usable_bytes / 2 : MOST_BYTES;
  return hri_backend_open(&device, 1, &p->backend, error);
}

static hr_status run_samples(probe *p, double begin, const hr_probe_options *o, hr_error *error) {
  hri_probe_add_samples(p);
  HRI_TRY(hri_probe_lay_out(p, error));
  HRI_TRY(hri_probe_prepare(p, 0, p->sample_count, true, NULL, &p->base, error));
  HRI_TRY(hri_probe_fill(p, error));
  HRI_TRY(warm_up(p, error));
  HRI_TRY(measure(p, begin, o, error));
  if (p->backend->ahead) HRI_TRY(measure_launches(p, error)); /* its program takes the place of the samples' */
  fix(p);
  file_rates(p);
  if (p->expected) fill_tables(p->rates, &p->expected->rates);
  describe(p->rates, p->backend);
  return HR_OK;
}

static hr_status run(probe *p, const hr_probe_options *o, hr_error *error) {
  double begin = hri_probe_now(), part = o->seconds * ROUND_PART;
  hr_device expected;
  if (is_cpu(o)) {
    HRI_TRY(open_cpu(p, o, error));
  } else {
    HRI_TRY(open_card(p, o, error));
    HRI_TRY(scout(p, &expected, error));
    p->expected = &expected;
    p->limit_seconds = part > LEAST_ROUND_SECONDS ? part : LEAST_ROUND_SECONDS;
  }
  return run_samples(p, begin, o, error);
}

void hr_probe_options_init(hr_probe_options *options) { *options = (hr_probe_options){0}; }

hr_status hr_device_probe(const hr_probe_options *options, hr_device_rates *rates, hr_error *error) {
  hr_probe_options o = {0};
  probe *p;
  hr_status status;
  if (options) o = *options;
  if (!(o.seconds > 0)) o.seconds = DEFAULT_SECONDS;
  memset(rates, 0, sizeof *rates);
  HRI_TRY(hri_probe_create(rates, NULL, &p, error));
  status = run(p, &o, error);
  hri_probe_destroy(p);
  if (status != HR_OK) memset(rates, 0, sizeof *rates);
  return status;
}
