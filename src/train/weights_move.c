/* Three kinds of pieces:
 *   run    values that lie in the file as in the arena: read straight to their place where the types agree, else
 *          through the staging
 *   rows   rows in another order (GGUF's q and k): read through the staging, then row by row. Blocks that stay as they
 *          are lie within rows, and are moved the same ways
 *   tile   a part of a transposed tensor: a block of whole or part file rows, turned in the staging
 * The staging of a thread is cut into up to three lists: file bytes, fp32 values, and those values turned. Where the
 * arena has no address for the host, a run has one more: the values as they are in the arena, on their way through the
 * window. */
#include "train/weights_move.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include "formats/dtype.h"

enum {
  PIECE_BYTES = 1 << 20, /* most file bytes of a piece: as much as a core keeps in its own cache */
  SMALL_BYTES = 1 << 18, /* what is not worth another thread */
  SLICE_BYTES = 1 << 16, /* least staging of a thread, where there are several */
  TILE_BYTES = 3 << 19,  /* staging of a tile: three lists */
  LINE = 16              /* fp32 values in a cache line */
};

typedef enum kind { RUN = 0, ROWS, TILE } kind;

/* How a move is cut. A run: `unit` values a piece; else tiles of tile_rows x tile_columns of the arena's matrix. */
typedef struct cut {
  kind kind;
  uint64_t pieces, unit;
  uint64_t tile_rows, tile_columns, across; /* tiles side by side along the inner dimension of the file */
} cut;

typedef struct plan {
  const hri_elements *elements;
  const hri_move *moves;
  cut cuts[HRI_MOVES];
  uint64_t total; /* pieces */
  uint64_t slice; /* staging bytes of a thread, a multiple of 64 */
} plan;

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Values of a block in the file, and its bytes. */
static uint64_t block_of(const hri_move *m) { return m->codes ? 1 : hri_ggml_block(m->type); }
static uint64_t block_bytes(const hri_move *m) { return m->codes ? 1 : hri_ggml_block_bytes(m->type); }

/* Bytes of `values` values in the file; a multiple of the block, or part of a row's last piece, which ends with one. */
static uint64_t file_bytes(const hri_move *m, uint64_t values) { return values / block_of(m) * block_bytes(m); }

/* Bytes of values in the arena, and whole blocks of values that so many bytes hold. */
static uint64_t arena_bytes(const hri_move *m, uint64_t values) {
  return m->blocks ? file_bytes(m, values) : values * (m->codes ? 1 : hri_real_bytes(m->real));
}
static uint64_t values_in(const hri_move *m, uint64_t bytes) {
  return m->blocks ? bytes / block_bytes(m) * block_of(m) : bytes / arena_bytes(m, 1);
}

static bool same_type(const hri_move *m) {
  static const uint32_t same[] =
      {[HRI_REAL_F32] = HRI_GGML_F32, [HRI_REAL_BF16] = HRI_GGML_BF16, [HRI_REAL_F16] = HRI_GGML_F16};
  assert(!m->codes || (m->add == 0 && !m->finite && !m->transposed && !m->head_size));
  assert(!m->blocks || (m->add == 0 && !m->codes && !m->transposed && !m->out));
  return m->codes || m->blocks || m->type == same[m->real];
}

/* ---- cutting ---- */

static bool is_direct(const hri_move *m) { return same_type(m) && m->add == 0; }

/* Whether a run needs a list of fp32 values besides the file bytes: between two types that are not fp32, or to add to
 * a narrow one. */
static bool needs_list(const hri_move *m) {
  return m->real != HRI_REAL_F32 && m->type != HRI_GGML_F32 && !is_direct(m);
}

/* Lists of a run besides its file bytes. */
static uint64_t run_lists(const hri_move *m) { return (needs_list(m) ? 1 : 0) + (m->window->memory ? 0 : 1); }

/* The most values whose staging fits into `slice`: file bytes, and `lists` fp32 lists. */
static uint64_t room(const hri_move *m, uint64_t slice, uint64_t lists) {
  uint64_t block = block_of(m), each = block_bytes(m);
  return least(slice - 128, PIECE_BYTES * (1 + 2 * lists)) / (each + lists * 4 * block) *
         block; /* 128: lists begin at multiples of 64 */
}

static void cut_run(const hri_move *m, uint64_t slice, uint32_t team, cut *c) {
  uint64_t block = block_of(m), total = m->rows * m->columns, unit;
  uint64_t share = hri_round_up(total / (4 * (uint64_t)team) + 1, most(block, 256));
  unit = is_direct(m) && m->window->memory ? values_in(m, PIECE_BYTES) : room(m, slice, run_lists(m));
  if (share < unit && team > 1) unit = most(share, least(unit, SMALL_BYTES / 4));
  c->kind = RUN;
  c->unit = unit / block * block;
  c->pieces = (total + c->unit - 1) / c->unit;
}

static void cut_rows(const hri_move *m, uint64_t slice, cut *c) {
  uint64_t values = room(m, slice, m->blocks ? 0 : 1);
  c->kind = ROWS;
  c->tile_columns = least(m->columns, values);
  c->tile_rows = least(m->rows, values / c->tile_columns);
  c->across = (m->columns + c->tile_columns - 1) / c->tile_columns;
  c->pieces = (m->rows + c->tile_rows - 1) / c->tile_rows * c->across;
}

/* The file's rows are our columns: whole file rows, if a cache line of our columns still fits, are one read. */
static void cut_tiles(const hri_move *m, uint64_t slice, uint32_t team, cut *c) {
  uint64_t values = room(m, least(slice, TILE_BYTES), 2), share = m->columns / (4 * (uint64_t)team) + 1;
  c->kind = TILE;
  c->tile_columns = most(least(values / m->rows, share) / LINE, 1) * LINE;
  c->tile_columns = least(least(c->tile_columns, m->columns), values);
  c->tile_rows = least(m->rows, values / c->tile_columns);
  c->across = (m->rows + c->tile_rows - 1) / c->tile_rows;
  c->pieces = (m->columns + c->tile_columns - 1) / c->tile_columns * c->across;
}

/* ---- runs ---- */

static hr_status refuse_value(const hri_move *m, uint64_t index, hr_error *error) {
  bool rounds = !m->out && m->real == HRI_REAL_F16 && m->type != HRI_GGML_F16;
  hr_status status = hri_fail(error, m->out ? HR_ERROR_DIVERGED : HR_ERROR_INPUT,
                              "%s: tensor %s holds a value that is not finite%s at element %llu", m->path, m->name,
                              rounds ? " in fp16, whose largest is 65504," : "", (unsigned long long)index);
  if (m->out)
    return hri_hint(
        error, status,
        "the training diverged, and this state of it is not saved; go on from the last checkpoint with a smaller learning rate");
  if (rounds) return hri_hint(error, status, "give --precision bf16, which has the range of fp32");
  return hri_hint(error, status, "the checkpoint is damaged or its training diverged; use an earlier one");
}

/* `first` is the position of the first value in the file's tensor. */
static hr_status check_finite(const plan *p, const hri_move *m, const void *values, hri_real real, uint64_t first,
                              uint64_t count, hr_error *error) {
  int64_t bad = m->finite ? p->elements->first_nonfinite(values, (int64_t)count, real, NULL) : -1;
  return bad < 0 ? HR_OK : refuse_value(m, first + (uint64_t)bad, error);
}

/* What was written as F16: infinity stands there for a value that was too large, and nobody could load the file. */
static hr_status check_fit(const hri_move *m, const uint16_t *halves, uint64_t count, hr_error *error) {
  uint16_t any = 0;
  hr_status status;
  if (m->type != HRI_GGML_F16) return HR_OK;
  for (uint64_t i = 0; i < count; i++)
    any |= (uint16_t)((halves[i] & 0x7C00) + 0x0400); /* all exponent bits: carries into the sign */
  if (!(any & 0x8000)) return HR_OK;
  status = hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s holds a value that F16 cannot hold", m->path, m->name);
  return hri_hint(error, status, "save as bf16 or f32; the last checkpoint has all values");
}

static void add_to(const hri_move *m, float *values, uint64_t count) {
  for (uint64_t i = 0; m->add != 0 && i < count; i++) values[i] += m->add;
}

/* File bytes to fp32, and back (never blocks of several values). */
static void decode(const plan *p, const hri_move *m, float *to, const void *raw, uint64_t count) {
  if (m->type == HRI_GGML_BF16) p->elements->cast(to, HRI_REAL_F32, raw, HRI_REAL_BF16, (int64_t)count, NULL);
  else (void)hri_ggml_to_f32(m->type, to, raw, count);
}

static void encode(const plan *p, const hri_move *m, void *raw, const float *from, uint64_t count) {
  if (m->type == HRI_GGML_F32) memcpy(raw, from, count * sizeof *from);
  else if (m->type == HRI_GGML_BF16) p->elements->cast(raw, HRI_REAL_BF16, from, HRI_REAL_F32, (int64_t)count, NULL);
  else hri_f16_from_f32(raw, from, count);
}

/* fp32 values to values as in the arena, and back. */
static void put(const plan *p, const hri_move *m, void *to, const float *from, uint64_t count) {
  if (m->real != HRI_REAL_F32) p->elements->cast(to, m->real, from, HRI_REAL_F32, (int64_t)count, NULL);
  else memcpy(to, from, count * sizeof *from);
}

static void get(const plan *p, const hri_move *m, const void *from, float *to, uint64_t count) {
  if (m->real != HRI_REAL_F32) p->elements->cast(to, HRI_REAL_F32, from, m->real, (int64_t)count, NULL);
  else memcpy(to, from, count * sizeof *to);
}

/* Blocks that stay as they are hold values that a training can have: as when they are decoded here, rounded too. */
static hr_status check_blocks(const plan *p, const hri_move *m, const void *raw, uint64_t first, uint64_t count,
                              hr_error *error) {
  enum { PIECE = 1024 };
  float values[PIECE], rounded[PIECE];
  for (uint64_t done = 0; m->finite && done < count; done += PIECE) {
    uint64_t n = least(count - done, PIECE);
    decode(p, m, values, (const unsigned char *)raw + file_bytes(m, done), n);
    put(p, m, rounded, values, n);
    HRI_TRY(check_finite(p, m, rounded, m->real, first + done, n, error));
  }
  return HR_OK;
}

/* Where a value is in the arena, and its address; NULL where it has none. */
static uint64_t byte_of(const hri_move *m, uint64_t at) {
  return m->blocks ? m->first + arena_bytes(m, at) : arena_bytes(m, m->first + at);
}
static void *place_of(const hri_move *m, uint64_t at) {
  return m->window->memory ? (unsigned char *)m->window->memory + byte_of(m, at) : NULL;
}

/* fp32 values to a place of the arena, and back, by address or through the window. */
enum { FEW = 512 };

static hr_status put_at(const plan *p, const hri_move *m, uint64_t at, const float *from, uint64_t count,
                        hr_error *error) {
  uint64_t values[FEW / 2]; /* of either type */
  void *to = place_of(m, at);
  if (to) put(p, m, to, from, count);
  for (uint64_t done = 0; !to && done < count; done += least(count - done, FEW)) {
    uint64_t n = least(count - done, FEW);
    put(p, m, values, from + done, n);
    HRI_TRY(m->window->put(m->window->context, byte_of(m, at + done), values, n * hri_real_bytes(m->real), error));
  }
  return HR_OK;
}

static hr_status get_at(const plan *p, const hri_move *m, uint64_t at, float *to, uint64_t count, hr_error *error) {
  uint64_t values[FEW / 2];
  const void *from = place_of(m, at);
  if (from) get(p, m, from, to, count);
  for (uint64_t done = 0; !from && done < count; done += least(count - done, FEW)) {
    uint64_t n = least(count - done, FEW);
    HRI_TRY(m->window->get(m->window->context, byte_of(m, at + done), values, n * hri_real_bytes(m->real), error));
    get(p, m, values, to + done, n);
  }
  return HR_OK;
}

/* The lists of a thread's staging. */
typedef struct lists {
  void *raw;
  float *values, *turned;
} lists;

static lists lists_of(const hri_move *m, unsigned char *slice, uint64_t values) {
  uint64_t raw = hri_round_up(file_bytes(m, values), 64);
  return (lists){slice, (float *)(slice + raw), (float *)(slice + raw + hri_round_up(4 * values, 64))};
}

/* Reads values to `to`, of the arena's type. */
static hr_status read_values(const plan *p, const hri_move *m, uint64_t first, uint64_t count, lists l, void *to,
                             hr_error *error) {
  bool direct = is_direct(m);
  HRI_TRY(m->bytes(m, file_bytes(m, first), file_bytes(m, count), direct ? to : l.raw, error));
  if (m->blocks) return check_blocks(p, m, to, first, count, error);
  if (!direct && m->real == HRI_REAL_F32 && m->type == HRI_GGML_BF16 &&
      m->add == 0) { /* the narrow values are quicker to look at */
    HRI_TRY(check_finite(p, m, l.raw, HRI_REAL_BF16, first, count, error));
    decode(p, m, to, l.raw, count);
    return HR_OK;
  }
  if (!direct && m->real == HRI_REAL_F32) {
    decode(p, m, to, l.raw, count);
    add_to(m, to, count);
  } else if (!direct) {
    float *values = needs_list(m) ? l.values : l.raw; /* fp32 in the file: converted where it is */
    if (values != l.raw) decode(p, m, values, l.raw, count);
    add_to(m, values, count);
    put(p, m, to, values, count);
  }
  return check_finite(p, m, to, m->real, first, count, error);
}

/* Where the values of a run are while they are moved: in the arena, or in a list of their own. */
static void *run_place(const hri_move *m, lists l, uint64_t first) {
  void *place = place_of(m, first);
  return place ? place : needs_list(m) ? (void *)l.turned : (void *)l.values;
}

static hr_status read_run(const plan *p, const hri_move *m, uint64_t first, uint64_t count, unsigned char *slice,
                          hr_error *error) {
  lists l = lists_of(m, slice, count);
  void *to = run_place(m, l, first);
  HRI_TRY(read_values(p, m, first, count, l, to, error));
  return m->window->memory ? HR_OK
                           : m->window->put(m->window->context, byte_of(m, first), to, arena_bytes(m, count), error);
}

static hr_status write_run(const plan *p, const hri_move *m, uint64_t first, uint64_t count, unsigned char *slice,
                           hr_error *error) {
  lists l = lists_of(m, slice, count);
  void *from = run_place(m, l, first);
  if (!m->window->memory)
    HRI_TRY(m->window->get(m->window->context, byte_of(m, first), from, arena_bytes(m, count), error));
  HRI_TRY(check_finite(p, m, from, m->real, first, count,
                       error)); /* before an F16 that does not fit is looked for: it is infinite too */
  if (!is_direct(m)) {
    if (m->real == HRI_REAL_F32) {
      encode(p, m, l.raw, from, count);
    } else if (m->type == HRI_GGML_F32) {
      get(p, m, from, l.raw, count);
    } else {
      get(p, m, from, l.values, count);
      encode(p, m, l.raw, l.values, count);
    }
  }
  HRI_TRY(check_fit(m, l.raw, count, error));
  return m->bytes(m, file_bytes(m, first), file_bytes(m, count), is_direct(m) ? from : l.raw, error);
}

/* ---- rows in another order ---- */

/* Where file row `row` stands in the arena: in a head of D rows the file's row 2 i + h is our row h D/2 + i (llama.cpp
 * turns neighbouring pairs, Hugging Face's files pair the halves). */
static uint64_t our_row(const hri_move *m, uint64_t row) {
  uint64_t size = m->head_size, in = row % size;
  return row - in + in % 2 * (size / 2) + in / 2;
}

/* Rows of blocks, as they are, to their places. */
static hr_status place_rows(const plan *p, const hri_move *m, uint64_t row, uint64_t rows, uint64_t column,
                            uint64_t columns, const unsigned char *raw, hr_error *error) {
  const uint64_t bytes = file_bytes(m, columns);
  for (uint64_t r = 0; r < rows; r++) {
    const unsigned char *from = raw + r * bytes;
    uint64_t at = our_row(m, row + r) * m->columns + column;
    void *to = place_of(m, at);
    if (to) memcpy(to, from, bytes);
    else HRI_TRY(m->window->put(m->window->context, byte_of(m, at), from, bytes, error));
  }
  return check_blocks(p, m, raw, row * m->columns + column, rows * columns, error);
}

static hr_status read_rows(const plan *p, const hri_move *m, const cut *c, uint64_t piece, unsigned char *slice,
                           hr_error *error) {
  uint64_t row = piece / c->across * c->tile_rows, column = piece % c->across * c->tile_columns;
  uint64_t rows = least(m->rows - row, c->tile_rows), columns = least(m->columns - column, c->tile_columns);
  lists l = lists_of(m, slice, rows * columns);
  HRI_TRY(m->bytes(m, file_bytes(m, row * m->columns + column), file_bytes(m, rows * columns), l.raw, error));
  if (m->blocks) return place_rows(p, m, row, rows, column, columns, l.raw, error);
  decode(p, m, l.values, l.raw, rows * columns);
  add_to(m, l.values, rows * columns);
  for (uint64_t r = 0; r < rows; r++)
    HRI_TRY(put_at(p, m, our_row(m, row + r) * m->columns + column, l.values + r * columns, columns, error));
  return check_finite(p, m, l.values, HRI_REAL_F32, row * m->columns + column, rows * columns, error);
}

/* ---- a file's values without the arena ---- */

/* The file's row of ours: our_row backwards. */
static uint64_t file_row(const hri_move *m, uint64_t row) {
  uint64_t size = m->head_size, in = row % size;
  return row - in + in % (size / 2) * 2 + in / (size / 2);
}

/* Blocks are decoded whole: a request may begin and end within one, as nobody cuts a list of fp32 by them. */
static hr_status get_original(void *context, uint64_t offset, void *to, uint64_t bytes, hr_error *error) {
  enum { PIECE = 2048 };
  const hri_move *m = context;
  uint64_t block = block_of(m), at = offset / sizeof(float), end = at + bytes / sizeof(float);
  unsigned char raw[PIECE * sizeof(float)];
  float values[PIECE], *out = to;
  assert(block <= PIECE && !m->out && !m->codes);
  while (at < end) {
    uint64_t row = m->head_size ? at / m->columns : 0, in = m->head_size ? at % m->columns : at;
    uint64_t from = (m->head_size ? file_row(m, row) * m->columns : 0) + in, skip = from % block;
    uint64_t n = least(m->head_size ? least(m->columns - in, end - at) : end - at, PIECE - skip);
    uint64_t whole = hri_round_up(skip + n, block);
    HRI_TRY(m->bytes(m, file_bytes(m, from - skip), file_bytes(m, whole), raw, error));
    (void)hri_ggml_to_f32(m->type, values, raw, whole);
    for (uint64_t i = 0; i < n; i++) out[i] = m->add != 0 ? values[skip + i] + m->add : values[skip + i];
    out += n;
    at += n;
  }
  return HR_OK;
}

hri_window hri_move_originals(const hri_move *m) {
  return (hri_window){.context = (void *)(uintptr_t)m, .get = get_original};
}

/* ---- tiles ---- */

/* to[c][r] = from[r][c] for a block of 4 x 4, rows `to_step` and `from_step` values apart. */
static void turn4(float *restrict to, uint64_t to_step, const float *restrict from, uint64_t from_step) {
#ifdef __SSE__
  __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + from_step), c = _mm_loadu_ps(from + 2 * from_step),
         d = _mm_loadu_ps(from + 3 * from_step);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(to, a);
  _mm_storeu_ps(to + to_step, b);
  _mm_storeu_ps(to + 2 * to_step, c);
  _mm_storeu_ps(to + 3 * to_step, d);
#else
  for (uint64_t c = 0; c < 4; c++)
    for (uint64_t r = 0; r < 4; r++) to[c * to_step + r] = from[r * from_step + c];
#endif
}

/* to[columns][rows] = the transpose of from[rows][columns], a cache line of columns at a time. */
static void turn(float *restrict to, const float *restrict from, uint64_t rows, uint64_t columns) {
  uint64_t whole = rows / 4 * 4;
  for (uint64_t begin = 0; begin < columns; begin += LINE) {
    uint64_t end = least(begin + LINE, columns), c;
    for (uint64_t r = 0; r < whole; r += 4) {
      for (c = begin; c + 4 <= end; c += 4) turn4(to + c * rows + r, rows, from + r * columns + c, columns);
      for (; c < end; c++)
        for (uint64_t k = 0; k < 4; k++) to[c * rows + r + k] = from[(r + k) * columns + c];
    }
    for (uint64_t r = whole; r < rows; r++)
      for (c = begin; c < end; c++) to[c * rows + r] = from[r * columns + c];
  }
}

/* The values of a tile in the order of the file: `columns` part rows of the file's `m->rows` values each. */
static hr_status check_tile(const plan *p, const hri_move *m, const float *values, uint64_t row, uint64_t rows,
                            uint64_t column, uint64_t columns, hr_error *error) {
  int64_t bad = m->finite ? p->elements->first_nonfinite(values, (int64_t)(rows * columns), HRI_REAL_F32, NULL) : -1;
  return bad < 0 ? HR_OK
                 : refuse_value(m, (column + (uint64_t)bad / rows) * m->rows + row + (uint64_t)bad % rows, error);
}

/* The file bytes of a tile: one call when it has whole file rows, else one for each. */
static hr_status tile_bytes(const hri_move *m, uint64_t row, uint64_t rows, uint64_t column, uint64_t columns,
                            void *raw, hr_error *error) {
  uint64_t each = file_bytes(m, rows);
  if (rows == m->rows) return m->bytes(m, file_bytes(m, column * m->rows), columns * each, raw, error);
  for (uint64_t c = 0; c < columns; c++)
    HRI_TRY(m->bytes(m, file_bytes(m, (column + c) * m->rows + row), each, (unsigned char *)raw + c * each, error));
  return HR_OK;
}

static hr_status move_tile(const plan *p, const hri_move *m, const cut *c, uint64_t piece, unsigned char *slice,
                           hr_error *error) {
  uint64_t column = piece / c->across * c->tile_columns, row = piece % c->across * c->tile_rows;
  uint64_t rows = least(m->rows - row, c->tile_rows), columns = least(m->columns - column, c->tile_columns);
  lists l = lists_of(m, slice, rows * columns);
  float *values = m->type == HRI_GGML_F32 ? l.raw : l.values;
  if (m->out) {
    for (uint64_t r = 0; r < rows; r++)
      HRI_TRY(get_at(p, m, (row + r) * m->columns + column, l.turned + r * columns, columns, error));
    turn(values, l.turned, rows, columns);
    HRI_TRY(check_tile(p, m, values, row, rows, column, columns, error));
    if (values != l.raw) encode(p, m, l.raw, values, rows * columns);
    HRI_TRY(check_fit(m, l.raw, rows * columns, error));
    return tile_bytes(m, row, rows, column, columns, l.raw, error);
  }
  HRI_TRY(tile_bytes(m, row, rows, column, columns, l.raw, error));
  if (values != l.raw) decode(p, m, values, l.raw, rows * columns);
  add_to(m, values, rows * columns);
  HRI_TRY(check_tile(p, m, values, row, rows, column, columns, error));
  turn(l.turned, values, columns, rows);
  for (uint64_t r = 0; r < rows; r++)
    HRI_TRY(put_at(p, m, (row + r) * m->columns + column, l.turned + r * columns, columns, error));
  return HR_OK;
}

/* ---- side by side ---- */

static hr_status move_piece(const plan *p, uint64_t piece, unsigned char *slice, hr_error *error) {
  const hri_move *m = p->moves;
  const cut *c = p->cuts;
  uint64_t first;
  for (; piece >= c->pieces; m++) piece -= c++->pieces;
  if (c->kind == ROWS) return read_rows(p, m, c, piece, slice, error);
  if (c->kind == TILE) return move_tile(p, m, c, piece, slice, error);
  first = piece * c->unit;
  return (m->out ? write_run : read_run)(p, m, first, least(m->rows * m->columns - first, c->unit), slice, error);
}

typedef struct crew {
  const plan *plan;
  unsigned char *staging; /* a slice for each item of the loop */
  _Atomic int64_t next;   /* piece */
  _Atomic int64_t failed; /* the first piece that did; INT64_MAX: none */
  pthread_mutex_t mutex;  /* of what follows, and of writing `failed` */
  hr_status status;
  hr_error *error;
} crew;

static void fail_piece(crew *c, int64_t piece, hr_status status, const hr_error *error) {
  pthread_mutex_lock(&c->mutex);
  if (piece < c->failed) {
    c->failed = piece;
    c->status = status;
    if (c->error) *c->error = *error;
  }
  pthread_mutex_unlock(&c->mutex);
}

/* Moves pieces through one slice of the staging until none is left. They are handed out in rising order, so all before
 * the first one that fails are moved, whoever moves them. */
static void move_pieces(void *context, int64_t begin, int64_t end, int thread) {
  crew *c = context;
  (void)end, (void)thread;
  for (;;) {
    hr_error own;
    hr_status status;
    int64_t piece = atomic_fetch_add(&c->next, 1);
    if (piece >= (int64_t)c->plan->total || piece > atomic_load(&c->failed)) break;
    status = move_piece(c->plan, (uint64_t)piece, c->staging + (uint64_t)begin * c->plan->slice, &own);
    if (status != HR_OK) fail_piece(c, piece, status, &own);
  }
}

static hr_status run_crew(const plan *p, unsigned char *staging, uint32_t slices, hr_error *error) {
  crew c = {.plan = p,
            .staging = staging,
            .failed = INT64_MAX,
            .mutex = PTHREAD_MUTEX_INITIALIZER,
            .status = HR_OK,
            .error = error};
  hri_team_each(p->elements->team, slices, 1, move_pieces, &c);
  (void)pthread_mutex_destroy(&c.mutex);
  return c.status;
}

hr_status hri_moves_run(const hri_elements *elements, const hri_move *moves, uint32_t count, void *staging,
                        uint64_t staging_bytes, hr_error *error) {
  plan p = {.elements = elements, .moves = moves};
  uint64_t bytes = 0, team;
  for (uint32_t k = 0; k < count; k++) bytes += arena_bytes(&moves[k], moves[k].rows * moves[k].columns);
  team = least((uint64_t)hri_team_threads(elements->team),
               most(least(bytes / SMALL_BYTES, staging_bytes / SLICE_BYTES), 1));
  p.slice = staging_bytes / team / 64 * 64;
  for (uint32_t k = 0; k < count; k++) {
    const hri_move *m = &moves[k];
    if (m->transposed && m->columns > 1) cut_tiles(m, p.slice, (uint32_t)team, &p.cuts[k]);
    else if (m->head_size) cut_rows(m, p.slice, &p.cuts[k]);
    else cut_run(m, p.slice, (uint32_t)team, &p.cuts[k]);
    p.total += p.cuts[k].pieces;
  }
  return run_crew(&p, staging, (uint32_t)team, error);
}
