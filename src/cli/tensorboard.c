/* A file is a sequence of records, as TensorFlow's TFRecord has them:
 *
 *   length of the data, 8 bytes | masked CRC of those | data | masked CRC of the data, 4 bytes each, little-endian
 *
 * The data are protocol buffers: Event { 1: wall_time double, 2: step varint, 3: file_version text, 5: Summary }, with
 * Summary { 1: Value, repeated } and Value { 1: tag text, 2: simple_value float }. The CRC is that of Castagnoli, rotated
 * by 15 bits with a constant added, so that a CRC of data that hold CRCs stays one. */
#include "cli/tensorboard.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

/* ---- bytes ---- */

enum { EVENT_BYTES = 4096 };

typedef struct message {
  unsigned char bytes[EVENT_BYTES];
  size_t count;
} message;

static void put(message *m, const void *bytes, size_t count) {
  if (count > sizeof m->bytes - m->count) return; /* a dozen values of short names never come near */
  memcpy(m->bytes + m->count, bytes, count);
  m->count += count;
}

static void put_little(message *m, uint64_t value, unsigned bytes) {
  unsigned char out[8];
  for (unsigned i = 0; i < bytes; i++) out[i] = (unsigned char)(value >> 8 * i);
  put(m, out, bytes);
}

static void put_varint(message *m, uint64_t value) {
  for (; value >= 0x80; value >>= 7) put_little(m, (value & 0x7f) | 0x80, 1);
  put_little(m, value, 1);
}

/* The kinds of protocol buffers that are used here. */
enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

static void put_key(message *m, unsigned field, unsigned kind) { put_varint(m, field << 3 | kind); }

static void put_double(message *m, unsigned field, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_key(m, field, FIXED64);
  put_little(m, bits, 8);
}

static void put_float(message *m, unsigned field, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_key(m, field, FIXED32);
  put_little(m, bits, 4);
}

static void put_bytes(message *m, unsigned field, const void *bytes, size_t count) {
  put_key(m, field, LENGTH);
  put_varint(m, count);
  put(m, bytes, count);
}

/* ---- records ---- */

static uint32_t crc32c(const unsigned char *bytes, size_t count) {
  uint32_t crc = UINT32_MAX;
  for (size_t i = 0; i < count; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82F63B78u & (0u - (crc & 1)));
  }
  return ~crc;
}

static uint32_t masked(const unsigned char *bytes, size_t count) {
  uint32_t crc = crc32c(bytes, count);
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static double now(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_REALTIME, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static hr_status failed(const tensorboard *b, hr_error *error) {
  return hri_fail_errno(error, errno, "write", b->path);
}

static hr_status write_record(tensorboard *b, const message *data, hr_error *error) {
  message head = {.count = 0}, tail = {.count = 0};
  put_little(&head, data->count, 8);
  put_little(&head, masked(head.bytes, 8), 4);
  put_little(&tail, masked(data->bytes, data->count), 4);
  if (fwrite(head.bytes, 1, head.count, b->file) == head.count &&
      fwrite(data->bytes, 1, data->count, b->file) == data->count &&
      fwrite(tail.bytes, 1, tail.count, b->file) == tail.count)
    return HR_OK;
  return failed(b, error);
}

hr_status tensorboard_open(tensorboard *b, const char *directory, hr_error *error) {
  static const char version[] = "brain.Event:2";
  char host[128] = "", name[256];
  message event = {.count = 0};
  hri_path_nearest(directory, b->path);
  b->above_bytes = strcmp(b->path, ".") == 0 ? 0 : strlen(b->path);
  b->used = false;
  HRI_TRY(hri_dir_make(directory, error));
  if (gethostname(host, sizeof host - 1) != 0 || !host[0]) (void)strcpy(host, "host");
  (void)snprintf(name, sizeof name, "events.out.tfevents.%.0f.%s.%ld", now(), host, (long)getpid());
  HRI_TRY(hri_path_at(b->path, directory, name, error));
  b->file = fopen(b->path, "we");
  if (!b->file) {
    (void)hri_fail_errno(error, errno, "create", b->path);
    hri_dir_unmake(directory, b->above_bytes);
    return error->code;
  }
  put_double(&event, 1, now());
  put_bytes(&event, 3, version, strlen(version));
  HRI_TRY(write_record(b, &event, error));
  return fflush(b->file) == 0 ? HR_OK : failed(b, error);
}

static void put_scalar(message *summary, const char *tag, double number) {
  message value = {.count = 0};
  if (!isfinite(number)) return; /* there is none */
  put_bytes(&value, 1, tag, strlen(tag));
  put_float(&value, 2, (float)number);
  put_bytes(summary, 1, value.bytes, value.count);
}

static void put_step(message *summary, const hr_metrics *m) {
  put_scalar(summary, "train/loss", m->loss);
  put_scalar(summary, "train/grad_norm", m->grad_norm);
  put_scalar(summary, "train/loss_scale", m->loss_scale);
  put_scalar(summary, "train/learning_rate", m->learning_rate);
  put_scalar(summary, "train/epoch", m->epoch);
  put_scalar(summary, "train/tokens_per_second", m->tokens_per_second);
  put_scalar(summary, "train/step_seconds", m->step_seconds);
  put_scalar(summary, "memory/process_resident_bytes", (double)m->process_resident_bytes);
  put_scalar(summary, "memory/device_reserved_bytes", (double)m->device_reserved_bytes);
  put_scalar(summary, "memory/device_budget_bytes", (double)m->device_budget_bytes);
}

hr_status tensorboard_put(tensorboard *b, const hr_metrics *m, bool evaluation, hr_error *error) {
  message event = {.count = 0}, summary = {.count = 0};
  double time = now();
  if (!b->file) return HR_OK;
  b->used = true;
  if (evaluation) {
    put_scalar(&summary, "eval/loss", m->eval_loss);
    put_scalar(&summary, "eval/perplexity", exp(m->eval_loss));
  } else {
    put_step(&summary, m);
  }
  put_double(&event, 1, time);
  put_key(&event, 2, VARINT);
  put_varint(&event, m->step);
  put_bytes(&event, 5, summary.bytes, summary.count);
  HRI_TRY(write_record(b, &event, error));
  if (!evaluation && time - b->flushed < 1 && time >= b->flushed) return HR_OK;
  b->flushed = time;
  return fflush(b->file) == 0 ? HR_OK : failed(b, error);
}

/* Of a run that was refused nothing stays. */
hr_status tensorboard_close(tensorboard *b, hr_error *error) {
  char directory[4096];
  FILE *file = b->file;
  hr_status status;
  b->file = NULL;
  if (!file) return HR_OK;
  status = fclose(file) == 0 ? HR_OK : failed(b, error);
  if (b->used || unlink(b->path) != 0) return status;
  hri_path_parent(b->path, directory);
  hri_dir_unmake(directory, b->above_bytes);
  return status;
}
