/* Reads ModelProto. Every length is checked against what is left; unknown fields are skipped, groups and malformed
 * fields are refused. Of a field that occurs twice the last counts, as protobuf has it. */
#include "tokenizer/sentencepiece.h"

#include <string.h>

#include "base/file.h"
#include "tokenizer/unicode.h"

enum { FILE_MAX_BYTES = 256 << 20, PIECES_MAX = 1 << 22 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* wire types */
enum { MODEL_UNIGRAM = 1, MODEL_BPE, MODEL_WORD, MODEL_CHAR };

/* A message that is being read. */
typedef struct message {
  const char *name; /* for errors: the file, and which message */
  const char *part;
  const uint8_t *base, *at, *end; /* base: of the file */
} message;

typedef struct field {
  uint32_t number, type;
  uint64_t value;       /* of VARINT and FIXED */
  const uint8_t *bytes; /* of BYTES, `value` long */
  const uint8_t *start;
} field;

/* What the specs say, before it is checked. */
typedef struct specs {
  uint64_t model_type, unk_id, bos_id, eos_id, pad_id;
} specs;

static hr_status fail(const message *from, const uint8_t *at, const char *what, hr_error *error) {
  (void)hri_fail(error, HR_ERROR_INPUT, "%s: %s, byte %llu: %s", from->name, from->part,
                 (unsigned long long)(at - from->base), what);
  return hri_hint(error, HR_ERROR_INPUT, "this is not a whole SentencePiece model; fetch the file again");
}

static bool read_varint(message *from, uint64_t *value) {
  *value = 0;
  for (uint32_t shift = 0; shift < 64 && from->at < from->end; shift += 7) {
    uint8_t byte = *from->at++;
    if (shift == 63 && byte > 1) return false;
    *value |= (uint64_t)(byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

static hr_status read_field(message *from, field *to, hr_error *error) {
  uint64_t tag;
  size_t fixed;
  to->start = from->at;
  if (!read_varint(from, &tag) || tag >> 3 == 0 || tag >> 3 > (1u << 29) - 1)
    return fail(from, to->start, "malformed field", error);
  to->number = (uint32_t)(tag >> 3);
  to->type = (uint32_t)(tag & 7);
  to->value = 0;
  to->bytes = NULL;
  switch (to->type) {
  case VARINT: return read_varint(from, &to->value) ? HR_OK : fail(from, to->start, "malformed number", error);
  case BYTES:
    if (!read_varint(from, &to->value) || to->value > (uint64_t)(from->end - from->at))
      return fail(from, to->start, "the length of a field goes beyond its message", error);
    to->bytes = from->at;
    from->at += to->value;
    return HR_OK;
  case FIXED32:
  case FIXED64:
    fixed = to->type == FIXED32 ? 4 : 8;
    if ((size_t)(from->end - from->at) < fixed) return fail(from, to->start, "a field is cut off", error);
    for (size_t i = 0; i < fixed; i++) to->value |= (uint64_t)from->at[i] << (8 * i);
    from->at += fixed;
    return HR_OK;
  default: return fail(from, to->start, "a field of unknown type", error);
  }
}

static message inside(const message *from, const field *of, const char *part) {
  return (message){from->name, part, from->base, of->bytes, of->bytes + of->value};
}

/* The fields that are known must have the type that the format gives them. */
static hr_status expect(const message *from, const field *found, uint32_t type, hr_error *error) {
  return found->type == type
             ? HR_OK
             : fail(from, found->start, "a known field has another type than the format gives it", error);
}

static hr_status read_piece(const message *from, const field *of, hri_sp_piece *piece, hr_error *error) {
  message m = inside(from, of, "piece");
  uint64_t type = HRI_SP_NORMAL;
  memset(piece, 0, sizeof *piece);
  while (m.at < m.end) {
    field f;
    HRI_TRY(read_field(&m, &f, error));
    if (f.number == 1) {
      HRI_TRY(expect(&m, &f, BYTES, error));
      piece->text = (const char *)f.bytes;
      piece->bytes = (uint32_t)f.value;
    } else if (f.number == 2) {
      uint32_t bits = (uint32_t)f.value;
      HRI_TRY(expect(&m, &f, FIXED32, error));
      memcpy(&piece->score, &bits, sizeof bits);
    } else if (f.number == 3) {
      HRI_TRY(expect(&m, &f, VARINT, error));
      type = f.value;
    }
  }
  if (type < HRI_SP_NORMAL || type > HRI_SP_BYTE) return fail(from, of->start, "a piece of unknown type", error);
  if (piece->bytes == 0) return fail(from, of->start, "a piece without text", error);
  if (hri_utf8_valid(piece->text, piece->bytes) != piece->bytes)
    return fail(from, of->start, "a piece that is not UTF-8", error);
  if (memchr(piece->text, 0, piece->bytes)) return fail(from, of->start, "a piece with a zero byte", error);
  if (piece->score != piece->score) return fail(from, of->start, "a piece whose score is no number", error);
  piece->type = (hri_sp_type)type;
  return HR_OK;
}

static hr_status read_trainer_spec(const message *from, const field *of, hri_sentencepiece *model, specs *said,
                                   hr_error *error) {
  message m = inside(from, of, "trainer_spec");
  while (m.at < m.end) {
    field f;
    uint64_t *number;
    HRI_TRY(read_field(&m, &f, error));
    switch (f.number) {
    case 3: number = &said->model_type; break;
    case 40: number = &said->unk_id; break;
    case 41: number = &said->bos_id; break;
    case 42: number = &said->eos_id; break;
    case 43: number = &said->pad_id; break;
    case 24:
      HRI_TRY(expect(&m, &f, VARINT, error));
      model->treat_whitespace_as_suffix = f.value != 0;
      continue;
    case 35:
      HRI_TRY(expect(&m, &f, VARINT, error));
      model->byte_fallback = f.value != 0;
      continue;
    default: continue;
    }
    HRI_TRY(expect(&m, &f, VARINT, error));
    *number = f.value;
  }
  return HR_OK;
}

static hr_status read_normalizer_spec(const message *from, const field *of, hri_sentencepiece *model, hr_error *error) {
  message m = inside(from, of, "normalizer_spec");
  while (m.at < m.end) {
    field f;
    HRI_TRY(read_field(&m, &f, error));
    if (f.number < 1 || f.number > 5) continue;
    HRI_TRY(expect(&m, &f, f.number <= 2 ? BYTES : VARINT, error));
    switch (f.number) {
    case 1:
      model->normalizer_name = (const char *)f.bytes;
      model->normalizer_name_bytes = (uint32_t)f.value;
      break;
    case 2:
      model->charsmap = f.value > 0 ? (const char *)f.bytes : NULL;
      model->charsmap_bytes = (uint32_t)f.value;
      break;
    case 3: model->add_dummy_prefix = f.value != 0; break;
    case 4: model->remove_extra_whitespaces = f.value != 0; break;
    default: model->escape_whitespaces = f.value != 0; break;
    }
  }
  return HR_OK;
}

static hr_status read_model(message *m, hri_sentencepiece *model, specs *said, hr_error *error) {
  HRI_ARRAY(hri_sp_piece) pieces = {0};
  hr_status status = HR_OK;
  while (status == HR_OK && m->at < m->end) {
    field f;
    hri_sp_piece piece;
    HRI_TRY_OUT(read_field(m, &f, error));
    if (f.number < 1 || f.number > 3) continue; /* self_test_data, denormalizer_spec: not for encoding */
    HRI_TRY_OUT(expect(m, &f, BYTES, error));
    if (f.number == 2) status = read_trainer_spec(m, &f, model, said, error);
    else if (f.number == 3) status = read_normalizer_spec(m, &f, model, error);
    else if (pieces.count == PIECES_MAX) status = fail(m, f.start, "more than 4,194,304 pieces", error);
    else {
      HRI_TRY_OUT(read_piece(m, &f, &piece, error));
      if (!hri_array_push(&pieces, piece)) status = hri_fail_memory(error, sizeof piece, "the pieces of a tokenizer");
    }
  }
out:
  model->pieces = pieces.items;
  model->piece_count = (uint32_t)pieces.count;
  return status;
}

/* ---- checks ---- */

static hr_status check_type(const char *name, const specs *said, hr_error *error) {
  static const char *const names[] = {"unigram", "bpe", "word", "char"};
  if (said->model_type == MODEL_BPE || said->model_type == MODEL_UNIGRAM) return HR_OK;
  (void)hri_fail(error, HR_ERROR_INPUT, "%s: field 'trainer_spec.model_type' is %s: BPE and unigram are supported",
                 name, said->model_type - 1 < 4 ? names[said->model_type - 1] : "unknown");
  return hri_hint(error, HR_ERROR_INPUT, "use another model, or prepare token ids with its own tools");
}

/* An id of the specs: its place if a piece is there, -1 for "none". */
static hr_status check_id(const char *name, const hri_sentencepiece *model, const char *field_name, uint64_t said,
                          int32_t *id, hr_error *error) {
  int64_t value = (int64_t)said;
  *id = -1;
  if (value < 0) return HR_OK;
  if (value >= model->piece_count)
    return hri_fail(error, HR_ERROR_INPUT, "%s: field 'trainer_spec.%s' is %lld, but there are %u pieces", name,
                    field_name, (long long)value, model->piece_count);
  *id = (int32_t)value;
  return HR_OK;
}

/* "<0x41>": the byte, -1 for any other text. */
static int byte_of_piece(const hri_sp_piece *piece) {
  int value = 0;
  if (piece->bytes != 6 || memcmp(piece->text, "<0x", 3) != 0 || piece->text[5] != '>') return -1;
  for (int i = 3; i < 5; i++) {
    char c = piece->text[i];
    if (c >= '0' && c <= '9') value = value * 16 + (c - '0');
    else if (c >= 'A' && c <= 'F') value = value * 16 + (c - 'A' + 10);
    else return -1;
  }
  return value;
}

/* Byte pieces, and the unknown piece: exactly one, as SentencePiece itself demands. */
static hr_status check_pieces(const char *name, hri_sentencepiece *model, hr_error *error) {
  int32_t unknown = -1;
  uint32_t bytes = 0;
  for (uint32_t i = 0; i < 256; i++) model->byte_ids[i] = -1;
  for (uint32_t i = 0; i < model->piece_count; i++) {
    const hri_sp_piece *piece = &model->pieces[i];
    if (piece->type == HRI_SP_BYTE) {
      int byte = byte_of_piece(piece);
      if (byte < 0 || model->byte_ids[byte] >= 0)
        return hri_fail(error, HR_ERROR_INPUT, "%s: piece %u is a byte, but its text is '%.*s'", name, i,
                        (int)piece->bytes, piece->text);
      model->byte_ids[byte] = (int32_t)i;
      bytes++;
    } else if (piece->type == HRI_SP_UNKNOWN) {
      if (unknown >= 0)
        return hri_fail(error, HR_ERROR_INPUT, "%s: pieces %d and %u are both unknown pieces", name, unknown, i);
      unknown = (int32_t)i;
    }
  }
  if (unknown < 0)
    return hri_fail(error, HR_ERROR_INPUT, "%s: none of the %u pieces is the unknown piece", name, model->piece_count);
  if (bytes > 0 && !model->byte_fallback)
    return hri_fail(error, HR_ERROR_INPUT, "%s: there are byte pieces, but 'trainer_spec.byte_fallback' is false",
                    name);
  if (model->byte_fallback && bytes != 256)
    return hri_fail(error, HR_ERROR_INPUT, "%s: 'trainer_spec.byte_fallback' needs 256 byte pieces, found %u", name,
                    bytes);
  model->unk_id = unknown;
  return HR_OK;
}

static hr_status check(const char *name, hri_sentencepiece *model, const specs *said, hr_error *error) {
  int32_t unk;
  HRI_TRY(check_type(name, said, error));
  model->unigram = said->model_type == MODEL_UNIGRAM;
  HRI_TRY(check_pieces(name, model, error));
  HRI_TRY(check_id(name, model, "unk_id", said->unk_id, &unk, error));
  HRI_TRY(check_id(name, model, "bos_id", said->bos_id, &model->bos_id, error));
  HRI_TRY(check_id(name, model, "eos_id", said->eos_id, &model->eos_id, error));
  return check_id(name, model, "pad_id", said->pad_id, &model->pad_id, error);
}

hr_status hri_sentencepiece_parse(const char *name, char *bytes, uint64_t count, hri_sentencepiece *model,
                                  hr_error *error) {
  message whole = {name, "model", (const uint8_t *)bytes, (const uint8_t *)bytes, (const uint8_t *)bytes + count};
  specs said = {.model_type = MODEL_UNIGRAM,
                .unk_id = 0,
                .bos_id = 1,
                .eos_id = 2,
                .pad_id = UINT64_MAX}; /* defaults of the format */
  hr_status status;
  *model = (hri_sentencepiece){.file = bytes,
                               .add_dummy_prefix = true,
                               .remove_extra_whitespaces = true,
                               .escape_whitespaces = true};
  if (count > FILE_MAX_BYTES)
    status = hri_fail(error, HR_ERROR_INPUT, "%s: %llu bytes is too long for a SentencePiece model", name,
                      (unsigned long long)count);
  else status = read_model(&whole, model, &said, error);
  if (status == HR_OK) status = check(name, model, &said, error);
  if (status != HR_OK) hri_sentencepiece_deinit(model);
  return status;
}

hr_status hri_sentencepiece_read(const char *path, hri_sentencepiece *model, hr_error *error) {
  char *bytes = NULL;
  uint64_t count = 0;
  memset(model, 0, sizeof *model);
  HRI_TRY(hri_file_read(path, FILE_MAX_BYTES, &bytes, &count, error));
  return hri_sentencepiece_parse(path, bytes, count, model, error);
}

void hri_sentencepiece_deinit(hri_sentencepiece *model) {
  hri_free(model->pieces);
  hri_free(model->file);
  memset(model, 0, sizeof *model);
}
