/* zstd (RFC 8878): frames after each other, also skippable ones. A frame says how far it looks back; more than the
 * format's own default of 128 MiB (zstd --long=28 and above) is refused, since that much memory would be held. */
#include <zstd.h>
#include <zstd_errors.h>

#include "data/unpack.h"

enum { WINDOW_LOG = 27 };

typedef struct zstd {
  hri_unpack base;
  hri_unpack_input in;
  ZSTD_DStream *stream;
  bool open; /* inside a frame */
} zstd;

static void close_zstd(hri_unpack *self) {
  zstd *z = (zstd *)self;
  (void)ZSTD_freeDStream(z->stream);
  hri_free(z->in.bytes);
  hri_free(z);
}

static hr_status fail(const zstd *z, size_t result, hr_error *error) {
  hr_status code;
  if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation)
    return hri_fail_memory(error, 1 << WINDOW_LOG, "unpacking data");
  if (ZSTD_getErrorCode(result) != ZSTD_error_frameParameter_windowTooLarge)
    return hri_unpack_fail(&z->base, error, "%s", ZSTD_getErrorName(result));
  code = hri_fail(error, HR_ERROR_INPUT, "%s: unpacking this zstd file takes more than %d MiB of memory",
                  z->base.reader->path, 1 << (WINDOW_LOG - 20));
  return hri_hint(error, code, "unpack it first: zstd -d --long=31");
}

static hr_status more_zstd(hri_unpack *self, char *to, size_t room, size_t *got, hr_error *error) {
  zstd *z = (zstd *)self;
  ZSTD_outBuffer out = {.dst = to, .size = room};
  while (out.pos == 0) {
    ZSTD_inBuffer in;
    size_t result;
    HRI_TRY(hri_unpack_input_fill(&z->in, z->base.reader, error));
    if (z->in.ended && !z->open) return HR_OK;
    in = (ZSTD_inBuffer){.src = z->in.bytes, .size = z->in.count, .pos = z->in.next};
    result = ZSTD_decompressStream(z->stream, &out, &in);
    if (ZSTD_isError(result)) return fail(z, result, error);
    if (z->in.ended && out.pos == 0 && result > 0) return hri_unpack_fail(&z->base, error, "it ends in the middle");
    z->in.next = in.pos;
    z->open = result > 0;
  }
  *got = out.pos;
  return HR_OK;
}

hr_status hri_unpack_zstd(hri_reader *reader, hri_unpack **unpack, hr_error *error) {
  zstd *z = hri_alloc_zero(1, sizeof *z);
  if (!z) return hri_fail_memory(error, sizeof *z, "unpacking data");
  *unpack = &z->base;
  z->base = (hri_unpack){.name = "zstd", .reader = reader, .more = more_zstd, .close = close_zstd};
  HRI_TRY(hri_unpack_input_init(&z->in, reader, error));
  z->stream = ZSTD_createDStream();
  if (!z->stream || ZSTD_isError(ZSTD_DCtx_setParameter(z->stream, ZSTD_d_windowLogMax, WINDOW_LOG)))
    return hri_fail_memory(error, 1 << 17, "unpacking data");
  return HR_OK;
}
