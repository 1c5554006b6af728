/* gzip (RFC 1952): one member after the other, each with its checksum. Zeros behind the last one are padding, as gzip
 * itself takes them. */
#include <string.h>
#include <zlib.h>

#include "data/unpack.h"

typedef struct gzip {
  hri_unpack base;
  hri_unpack_input in;
  z_stream stream;
  bool begun;   /* the stream is to be ended */
  bool between; /* members */
} gzip;

static voidpf allocate(voidpf context, uInt count, uInt bytes) {
  (void)context;
  return hri_alloc((uint64_t)count * bytes);
}

static void release(voidpf context, voidpf memory) {
  (void)context;
  hri_free(memory);
}

static void close_gzip(hri_unpack *self) {
  gzip *g = (gzip *)self;
  if (g->begun) (void)inflateEnd(&g->stream);
  hri_free(g->in.bytes);
  hri_free(g);
}

/* Behind a member: whether another one begins. Padding is passed over. */
static hr_status next_member(gzip *g, bool *more, hr_error *error) {
  for (;;) {
    HRI_TRY(hri_unpack_input_fill(&g->in, g->base.reader, error));
    *more = !g->in.ended;
    if (g->in.ended) return HR_OK;
    if (g->in.bytes[g->in.next]) break;
    g->in.next++;
  }
  if ((unsigned char)g->in.bytes[g->in.next] != 0x1F)
    return hri_unpack_fail(&g->base, error, "something else stands behind its end");
  g->between = false;
  if (inflateReset(&g->stream) != Z_OK) return hri_unpack_fail(&g->base, error, "it cannot be read on");
  return HR_OK;
}

static hr_status inflate_some(gzip *g, hr_error *error) {
  int result;
  HRI_TRY(hri_unpack_input_fill(&g->in, g->base.reader, error));
  if (g->in.ended) return hri_unpack_fail(&g->base, error, "it ends in the middle");
  g->stream.next_in = (Bytef *)g->in.bytes + g->in.next;
  g->stream.avail_in = (uInt)(g->in.count - g->in.next);
  result = inflate(&g->stream, Z_NO_FLUSH);
  g->in.next = g->in.count - g->stream.avail_in;
  g->between = result == Z_STREAM_END;
  if (result == Z_OK || result == Z_STREAM_END) return HR_OK;
  if (result == Z_MEM_ERROR) return hri_fail_memory(error, 32768, "unpacking data");
  return hri_unpack_fail(&g->base, error, "%s", g->stream.msg ? g->stream.msg : "its parts do not fit together");
}

static hr_status more_gzip(hri_unpack *self, char *to, size_t room, size_t *got, hr_error *error) {
  gzip *g = (gzip *)self;
  g->stream.next_out = (Bytef *)to;
  g->stream.avail_out = (uInt)room;
  while (g->stream.avail_out == room) {
    bool more = true;
    if (g->between) HRI_TRY(next_member(g, &more, error));
    if (!more) break;
    HRI_TRY(inflate_some(g, error));
  }
  *got = room - g->stream.avail_out;
  return HR_OK;
}

hr_status hri_unpack_gzip(hri_reader *reader, hri_unpack **unpack, hr_error *error) {
  gzip *g = hri_alloc_zero(1, sizeof *g);
  if (!g) return hri_fail_memory(error, sizeof *g, "unpacking data");
  *unpack = &g->base;
  g->base = (hri_unpack){.name = "gzip", .reader = reader, .more = more_gzip, .close = close_gzip};
  g->stream.zalloc = allocate;
  g->stream.zfree = release;
  HRI_TRY(hri_unpack_input_init(&g->in, reader, error));
  g->begun = inflateInit2(&g->stream, 15 + 16) == Z_OK;
  return g->begun ? HR_OK : hri_fail_memory(error, 32768, "unpacking data");
}
