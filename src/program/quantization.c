/* Layouts of quantized weights and the tables of their values (quantization.h). */
#include "program/quantization.h"

#include <string.h>

static const char *const names[HRI_QUANTIZATION_COUNT] = {"none", "nf4", "fp4", "nf4+dq", "fp4+dq", "int8", "keep"};

const char *hri_quantization_name(uint32_t kind) { return kind < HRI_QUANTIZATION_COUNT ? names[kind] : "unknown"; }

bool hri_quantization_parse(const char *text, hri_quantization *kind) {
  for (int k = 0; text && k < HRI_QUANTIZATION_COUNT; k++)
    if (strcmp(text, names[k]) == 0) {
      *kind = (hri_quantization)k;
      return true;
    }
  return false;
}

static uint64_t blocks(uint64_t count, uint64_t size) { return count / size + (count % size != 0); }

bool hri_quant_keeps(uint8_t dtype) { return hri_dtype_is_real(dtype) || (dtype >= HRI_Q4_0 && dtype <= HRI_IQ4_XS); }

/* Sizes of one part; its offsets are what lies before it. None of these is more than four times its elements, which are
 * counted. */
static bool measure(uint32_t kind, uint64_t rows, uint64_t columns, uint8_t type, hri_quant_part *p) {
  if (rows == 0 || columns == 0 || !hri_mul(rows, columns, &p->elements)) return false;
  p->rows = rows;
  p->columns = columns;
  p->type = type;
  if (kind == HRI_QUANTIZATION_KEEP) {
    if (!hri_quant_keeps(type) || columns % hri_dtype_block((hri_dtype)type) != 0) return false;
    p->code_bytes = hri_dtype_size((hri_dtype)type, p->elements);
    return p->elements <= UINT64_MAX / 8;
  }
  p->code_bytes = hri_quant_is_4bit(kind) ? blocks(p->elements, 2) : p->elements;
  p->absmax_count = hri_quant_is_4bit(kind) ? blocks(p->elements, HRI_QUANT_BLOCK) : rows;
  p->nested_count = hri_quant_is_double(kind) ? blocks(p->absmax_count, HRI_QUANT_NESTED_BLOCK) : 0;
  return true;
}

bool hri_quant_layout_make(uint32_t kind, const uint64_t *rows, const uint8_t *types, uint32_t part_count,
                           uint64_t columns, hri_quant_layout *out) {
  uint64_t elements = 0, absmax_bytes, nested_bytes;
  memset(out, 0, sizeof *out);
  if (kind == HRI_QUANTIZATION_NONE || kind >= HRI_QUANTIZATION_COUNT || part_count == 0 ||
      part_count > HRI_QUANT_PARTS || (types != NULL) != (kind == HRI_QUANTIZATION_KEEP))
    return false;
  out->part_count = part_count;
  for (uint32_t k = 0; k < part_count; k++) {
    hri_quant_part *p = &out->part[k];
    if (!measure(kind, rows[k], columns, types ? types[k] : HRI_U8, p)) return false;
    p->first = elements;
    p->codes = out->code_bytes;
    p->absmax = out->absmax_count;
    p->nested = out->nested_count;
    if (!hri_add(elements, p->elements, &elements) || elements > UINT64_MAX / 8) return false;
    out->code_bytes += p->code_bytes;
    out->absmax_count += p->absmax_count;
    out->nested_count += p->nested_count + hri_quant_is_double(kind);
  }
  return hri_mul(out->absmax_count, hri_dtype_size(hri_quant_absmax_dtype(kind), 1), &absmax_bytes) &&
         hri_mul(out->nested_count, sizeof(float), &nested_bytes) &&
         hri_add(out->code_bytes, absmax_bytes, &out->bytes) && hri_add(out->bytes, nested_bytes, &out->bytes);
}

bool hri_quant_layout_of(const hri_attr *attr, uint64_t columns, hri_quant_layout *out) {
  uint64_t rows[HRI_QUANT_PARTS];
  uint8_t types[HRI_QUANT_PARTS] = {0};
  uint32_t count = 0;
  bool kept = attr->i[0] == HRI_QUANTIZATION_KEEP;
  for (uint32_t k = 0; k < HRI_QUANT_PARTS; k++) {
    if (attr->i[1 + k] < 0 || (attr->i[1 + k] > 0 && count < k)) return false;
    if (kept && (attr->i[4 + k] < 0 || attr->i[4 + k] >= HRI_DTYPE_COUNT)) return false;
    types[k] = (uint8_t)attr->i[4 + k];
    if (attr->i[1 + k] > 0) rows[count++] = (uint64_t)attr->i[1 + k];
  }
  return attr->i[0] > 0 && attr->i[0] < HRI_QUANTIZATION_COUNT &&
         hri_quant_layout_make((uint32_t)attr->i[0], rows, kept ? types : NULL, count, columns, out);
}

uint64_t hri_quant_scratch_bytes(uint32_t kind, const hri_quant_layout *layout) {
  uint64_t most = 0;
  for (uint32_t k = 0; k < layout->part_count; k++)
    if (layout->part[k].absmax_count > most) most = layout->part[k].absmax_count;
  return hri_quant_is_double(kind) ? most * sizeof(float) : 0;
}

/* ---- values ---- */

static const float nf4[HRI_QUANT_VALUES] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};
static const float nf4_bounds[HRI_QUANT_VALUES - 1] = {
    -0x1.b239bp-1f,  -0x1.38a4ep-1f,  -0x1.d709p-2f,  -0x1.5bd4ecp-2f, -0x1.e079d8p-3f,
    -0x1.1a7178p-3f, -0x1.74f0e2p-5f, 0x1.45f5fep-5f, 0x1.ec90c4p-4f,  0x1.a0cfcp-3f,
    0x1.2b05a8p-2f,  0x1.8ea7f2p-2f,  0x1.00da08p-1f, 0x1.491b5ep-1f,  0x1.b913b4p-1f,
};
static const uint8_t nf4_order[HRI_QUANT_VALUES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* 0, 1/16, 8, 12, 4, 6, 2, 3, over 12. */
static const float fp4[HRI_QUANT_VALUES] = {
    0.0f, 0x1.555556p-8f,  0x1.555556p-1f,  1.0f,  0x1.555556p-2f,  0.5f,  0x1.555556p-3f,  0.25f,
    0.0f, -0x1.555556p-8f, -0x1.555556p-1f, -1.0f, -0x1.555556p-2f, -0.5f, -0x1.555556p-3f, -0.25f,
};
static const float fp4_bounds[HRI_QUANT_VALUES - 1] = {
    -0x1.aaaaacp-1f, -0x1.2aaaacp-1f, -0x1.aaaaacp-2f, -0x1.2aaaacp-2f,
    -0x1.aaaaacp-3f, -0x1.6p-4f,      -0x1.555556p-9f, 0.0f,
    0x1.555556p-9f,  0x1.6p-4f,       0x1.aaaaacp-3f,  0x1.2aaaacp-2f,
    0x1.aaaaacp-2f,  0x1.2aaaacp-1f,  0x1.aaaaacp-1f,
};
static const uint8_t fp4_order[HRI_QUANT_VALUES] = {11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3};

/* For i = 0 .. 6 the middles of 2^i equal cells of [0.1, 1], times 10^(i - 6), with both signs; 0 and 1. Written out, as
 * the cells' borders are those of an fp32 linspace whose last bits depend on how it was computed. */
static const float dynamic_map[HRI_QUANT_MAP] = {
    -0x1.fc6666p-1f,  -0x1.f53334p-1f,  -0x1.ee000p-1f,   -0x1.e6ccccp-1f,
    -0x1.df999ap-1f,  -0x1.d86666p-1f,  -0x1.d13334p-1f,  -0x1.ca000p-1f,
    -0x1.c2ccccp-1f,  -0x1.bb999ap-1f,  -0x1.b46666p-1f,  -0x1.ad3334p-1f,
    -0x1.a6000p-1f,   -0x1.9eccccp-1f,  -0x1.97999ap-1f,  -0x1.906666p-1f,
    -0x1.893334p-1f,  -0x1.82000p-1f,   -0x1.7accccp-1f,  -0x1.73999ap-1f,
    -0x1.6c6668p-1f,  -0x1.653334p-1f,  -0x1.5e000p-1f,   -0x1.56ccccp-1f,
    -0x1.4f999ap-1f,  -0x1.486668p-1f,  -0x1.413334p-1f,  -0x1.3a000p-1f,
    -0x1.32ccccp-1f,  -0x1.2b999ap-1f,  -0x1.246668p-1f,  -0x1.1d3334p-1f,
    -0x1.16000p-1f,   -0x1.0eccccp-1f,  -0x1.079998p-1f,  -0x1.006666p-1f,
    -0x1.f26664p-2f,  -0x1.e4000p-2f,   -0x1.d59998p-2f,  -0x1.c73334p-2f,
    -0x1.b8ccccp-2f,  -0x1.aa6666p-2f,  -0x1.9c000p-2f,   -0x1.8d9998p-2f,
    -0x1.7f3334p-2f,  -0x1.70ccccp-2f,  -0x1.626666p-2f,  -0x1.54000p-2f,
    -0x1.459998p-2f,  -0x1.373334p-2f,  -0x1.28ccccp-2f,  -0x1.1a6668p-2f,
    -0x1.0c000p-2f,   -0x1.fb3332p-3f,  -0x1.de6666p-3f,  -0x1.c1999ap-3f,
    -0x1.a4ccccp-3f,  -0x1.88000p-3f,   -0x1.6b3334p-3f,  -0x1.4e6666p-3f,
    -0x1.31999ap-3f,  -0x1.14ccccp-3f,  -0x1.f0000p-4f,   -0x1.b66668p-4f,
    -0x1.93d70ap-4f,  -0x1.8851eep-4f,  -0x1.7ccccep-4f,  -0x1.7147aep-4f,
    -0x1.65c29p-4f,   -0x1.5a3d7p-4f,   -0x1.4eb854p-4f,  -0x1.433334p-4f,
    -0x1.37ae14p-4f,  -0x1.2c28f6p-4f,  -0x1.20a3d6p-4f,  -0x1.151ebap-4f,
    -0x1.09999ap-4f,  -0x1.fc28f6p-5f,  -0x1.e51ebap-5f,  -0x1.ce147ap-5f,
    -0x1.b70a3ep-5f,  -0x1.a0000p-5f,   -0x1.88f5c2p-5f,  -0x1.71eb86p-5f,
    -0x1.5ae146p-5f,  -0x1.43d70ap-5f,  -0x1.2ccccep-5f,  -0x1.15c29p-5f,
    -0x1.fd70a4p-6f,  -0x1.cf5c2ap-6f,  -0x1.a147aep-6f,  -0x1.733334p-6f,
    -0x1.451ebap-6f,  -0x1.170a3ep-6f,  -0x1.d1eb86p-7f,  -0x1.75c29p-7f,
    -0x1.3e76c8p-7f,  -0x1.2c083p-7f,   -0x1.19999ap-7f,  -0x1.072b02p-7f,
    -0x1.e978d4p-8f,  -0x1.c49ba6p-8f,  -0x1.9fbe76p-8f,  -0x1.7ae148p-8f,
    -0x1.56041ap-8f,  -0x1.3126e8p-8f,  -0x1.0c49bap-8f,  -0x1.ced914p-9f,
    -0x1.851eb8p-9f,  -0x1.3b645ap-9f,  -0x1.e353f8p-10f, -0x1.4fdf3ap-10f,
    -0x1.eecbfep-11f, -0x1.b3d07cp-11f, -0x1.78d50p-11f,  -0x1.3dd982p-11f,
    -0x1.02de02p-11f, -0x1.8fc506p-12f, -0x1.19ce0ap-12f, -0x1.47ae16p-13f,
    -0x1.743e96p-14f, -0x1.15df66p-14f, -0x1.6f0068p-15f, -0x1.64840cp-16f,
    -0x1.040bfep-17f, -0x1.b43528p-19f, -0x1.27476ep-21f, 0.0f,
    0x1.27476ep-21f,  0x1.b43528p-19f,  0x1.040bfep-17f,  0x1.64840cp-16f,
    0x1.6f0068p-15f,  0x1.15df66p-14f,  0x1.743e96p-14f,  0x1.47ae16p-13f,
    0x1.19ce0ap-12f,  0x1.8fc506p-12f,  0x1.02de02p-11f,  0x1.3dd982p-11f,
    0x1.78d50p-11f,   0x1.b3d07cp-11f,  0x1.eecbfep-11f,  0x1.4fdf3ap-10f,
    0x1.e353f8p-10f,  0x1.3b645ap-9f,   0x1.851eb8p-9f,   0x1.ced914p-9f,
    0x1.0c49bap-8f,   0x1.3126e8p-8f,   0x1.56041ap-8f,   0x1.7ae148p-8f,
    0x1.9fbe76p-8f,   0x1.c49ba6p-8f,   0x1.e978d4p-8f,   0x1.072b02p-7f,
    0x1.19999ap-7f,   0x1.2c083p-7f,    0x1.3e76c8p-7f,   0x1.75c29p-7f,
    0x1.d1eb86p-7f,   0x1.170a3ep-6f,   0x1.451ebap-6f,   0x1.733334p-6f,
    0x1.a147aep-6f,   0x1.cf5c2ap-6f,   0x1.fd70a4p-6f,   0x1.15c29p-5f,
    0x1.2ccccep-5f,   0x1.43d70ap-5f,   0x1.5ae146p-5f,   0x1.71eb86p-5f,
    0x1.88f5c2p-5f,   0x1.a0000p-5f,    0x1.b70a3ep-5f,   0x1.ce147ap-5f,
    0x1.e51ebap-5f,   0x1.fc28f6p-5f,   0x1.09999ap-4f,   0x1.151ebap-4f,
    0x1.20a3d6p-4f,   0x1.2c28f6p-4f,   0x1.37ae14p-4f,   0x1.433334p-4f,
    0x1.4eb854p-4f,   0x1.5a3d7p-4f,    0x1.65c29p-4f,    0x1.7147aep-4f,
    0x1.7ccccep-4f,   0x1.8851eep-4f,   0x1.93d70ap-4f,   0x1.b66668p-4f,
    0x1.f0000p-4f,    0x1.14ccccp-3f,   0x1.31999ap-3f,   0x1.4e6666p-3f,
    0x1.6b3334p-3f,   0x1.88000p-3f,    0x1.a4ccccp-3f,   0x1.c1999ap-3f,
    0x1.de6666p-3f,   0x1.fb3332p-3f,   0x1.0c000p-2f,    0x1.1a6668p-2f,
    0x1.28ccccp-2f,   0x1.373334p-2f,   0x1.459998p-2f,   0x1.54000p-2f,
    0x1.626666p-2f,   0x1.70ccccp-2f,   0x1.7f3334p-2f,   0x1.8d9998p-2f,
    0x1.9c000p-2f,    0x1.aa6666p-2f,   0x1.b8ccccp-2f,   0x1.c73334p-2f,
    0x1.d59998p-2f,   0x1.e4000p-2f,    0x1.f26664p-2f,   0x1.006666p-1f,
    0x1.079998p-1f,   0x1.0eccccp-1f,   0x1.16000p-1f,    0x1.1d3334p-1f,
    0x1.246668p-1f,   0x1.2b999ap-1f,   0x1.32ccccp-1f,   0x1.3a000p-1f,
    0x1.413334p-1f,   0x1.486668p-1f,   0x1.4f999ap-1f,   0x1.56ccccp-1f,
    0x1.5e000p-1f,    0x1.653334p-1f,   0x1.6c6668p-1f,   0x1.73999ap-1f,
    0x1.7accccp-1f,   0x1.82000p-1f,    0x1.893334p-1f,   0x1.906666p-1f,
    0x1.97999ap-1f,   0x1.9eccccp-1f,   0x1.a6000p-1f,    0x1.ad3334p-1f,
    0x1.b46666p-1f,   0x1.bb999ap-1f,   0x1.c2ccccp-1f,   0x1.ca000p-1f,
    0x1.d13334p-1f,   0x1.d86666p-1f,   0x1.df999ap-1f,   0x1.e6ccccp-1f,
    0x1.ee000p-1f,    0x1.f53334p-1f,   0x1.fc6666p-1f,   1.0f,
};

const float *hri_quant_values(uint32_t kind) { return hri_quant_is_nf4(kind) ? nf4 : fp4; }
const float *hri_quant_bounds(uint32_t kind) { return hri_quant_is_nf4(kind) ? nf4_bounds : fp4_bounds; }
const uint8_t *hri_quant_order(uint32_t kind) { return hri_quant_is_nf4(kind) ? nf4_order : fp4_order; }
const float *hri_quant_map(void) { return dynamic_map; }
