/* Bad input through the program: each row of the table damages one thing and states the exit code (docs/cli.md), and
 * the words that the one message must hold: the file, the field or tensor. Every message comes with a remedy, and a
 * refused run leaves nothing behind that looks like one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/child.h"

/* Names that a row's command may hold: %m the model directory, %d good data, %b the damaged file, %o the output. */
static const char *directory, *model, *data, *bad, *out;

typedef struct row {
  const char *name;
  void (*damage)(const char *a, const char *b, const char *c); /* NULL: nothing to damage */
  const char *a, *b, *c;
  const char *command; /* NULL: train the damaged model */
  int code;
  const char *says[3]; /* words of the message */
} row;

/* ---- damaging files ---- */

static char *model_file(const char *name) { return strdup(path_of("%s/%s", model, name)); }

/* Replaces `length` bytes at `at` of a text of `count` bytes; the new text is returned, the old one freed. */
static char *replace_part(char *text, size_t *count, size_t at, size_t length, const char *with) {
  size_t grown = *count - length + strlen(with);
  char *made = malloc(grown + 1);
  assert_non_null(made);
  memcpy(made, text, at);
  memcpy(made + at, with, strlen(with));
  memcpy(made + at + strlen(with), text + at + length, *count - at - length);
  made[grown] = 0;
  free(text);
  *count = grown;
  return made;
}

/* The length of the JSON value at `at`: a list, a string, or up to the next comma or bracket. */
static size_t value_length(const char *at) {
  if (*at == '[') return strcspn(at, "]") + 1;
  if (*at == '"') return strcspn(at + 1, "\"") + 2;
  return strcspn(at, ",}\n");
}

/* In the header of model.safetensors: the `field` of `tensor` becomes `value`; field NULL: the tensor is renamed. */
static void edit_tensor(const char *tensor, const char *field, const char *value) {
  char *path = model_file("model.safetensors"), *bytes, *header, *at;
  size_t count = 0, header_count = 0, data_count;
  unsigned char length[8];
  FILE *file;
  bytes = get_file(path, &count);
  assert_non_null(bytes);
  for (int k = 7; k >= 0; k--) header_count = header_count << 8 | (unsigned char)bytes[k];
  data_count = count - 8 - header_count;
  header = malloc(header_count + 1);
  assert_non_null(header);
  memcpy(header, bytes + 8, header_count);
  header[header_count] = 0;
  size_t old = header_count;
  at = strstr(header, path_of("\"%s\":", tensor));
  assert_non_null(at);
  if (field) {
    at = strstr(at, path_of("\"%s\":", field));
    assert_non_null(at);
    at += strlen(field) + 3;
    header = replace_part(header, &header_count, (size_t)(at - header), value_length(at), value);
  } else {
    header = replace_part(header, &header_count, (size_t)(at - header) + 1, strlen(tensor), value);
  }
  for (int k = 0; k < 8; k++) length[k] = (unsigned char)(header_count >> (8 * k));
  file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(length, 1, 8, file), 8);
  assert_int_equal(fwrite(header, 1, header_count, file), header_count);
  assert_int_equal(fwrite(bytes + 8 + old, 1, data_count, file), data_count);
  assert_int_equal(fclose(file), 0);
  free(header);
  free(bytes);
  free(path);
}

/* Writes the float of bit pattern `bits` (hexadecimal) at element `element` of a tensor. */
static void poke_float(const char *tensor, const char *element, const char *bits) {
  char *path = model_file("model.safetensors"), *bytes, *at;
  size_t count = 0, header = 0, begin;
  uint32_t word = (uint32_t)strtoul(bits, NULL, 16);
  bytes = get_file(path, &count);
  assert_non_null(bytes);
  for (int k = 7; k >= 0; k--) header = header << 8 | (unsigned char)bytes[k];
  at = strstr(bytes + 8, path_of("\"%s\":", tensor));
  assert_non_null(at);
  at = strstr(at, "\"data_offsets\":[");
  begin = strtoull(at + 16, NULL, 10) + 4 * strtoull(element, NULL, 10);
  memcpy(bytes + 8 + header + begin, &word, 4);
  put_file(path, bytes, count);
  free(bytes);
  free(path);
}

/* The file keeps its first `count` bytes; a negative count: it loses so many; "+n": it gains n bytes of rubbish. */
static void resize(const char *name, const char *count, const char *unused) {
  char *path = model_file(name), *bytes;
  size_t old = 0;
  long long change = strtoll(count, NULL, 10);
  (void)unused;
  bytes = get_file(path, &old);
  assert_non_null(bytes);
  if (count[0] == '+') {
    bytes = realloc(bytes, old + (size_t)change);
    assert_non_null(bytes);
    memset(bytes + old, 'x', (size_t)change);
    put_file(path, bytes, old + (size_t)change);
  } else {
    put_file(path, bytes, change < 0 ? old - (size_t)-change : (size_t)change);
  }
  free(bytes);
  free(path);
}

static void write_model_file(const char *name, const char *text, const char *unused) {
  char *path = model_file(name);
  (void)unused;
  put_text(path, text);
  free(path);
}

static void remove_model_file(const char *name, const char *make_directory, const char *unused) {
  char *path = model_file(name);
  (void)unused;
  assert_int_equal(unlink(path), 0);
  if (make_directory) assert_int_equal(mkdir(path, 0755), 0);
  free(path);
}

/* In config.json: the field gets another value; NULL: it is not there any more (renamed). */
static void edit_config(const char *field, const char *value, const char *unused) {
  char *path = model_file("config.json"), *text, *at;
  size_t count = 0;
  (void)unused;
  text = get_file(path, &count);
  assert_non_null(text);
  at = strstr(text, path_of("\"%s\":", field));
  if (!at) fail_msg("no %s in %s", field, text);
  if (value) {
    at += strlen(field) + 3;
    at += strspn(at, " ");
    text = replace_part(text, &count, (size_t)(at - text), value_length(at), value);
  } else {
    text = replace_part(text, &count, (size_t)(at - text) + 1, 1, "_");
  }
  put_file(path, text, count);
  free(text);
  free(path);
}

/* The damaged data file is called %b; `name` is its end. */
static void write_bad(const char *text, const char *name, const char *unused) {
  (void)unused;
  (void)name;
  put_text(bad, text);
}

static void make_bad_directory(const char *a, const char *b, const char *c) {
  (void)a;
  (void)b;
  (void)c;
  assert_int_equal(mkdir(bad, 0755), 0);
}

static void damage_shards(const char *index, const char *b, const char *c) {
  (void)b;
  (void)c;
  char *path = model_file("model.safetensors");
  assert_int_equal(unlink(path), 0);
  free(path);
  write_model_file("model.safetensors.index.json", index, NULL);
}

/* ---- the table ---- */

#define WEIGHTS "model.safetensors"
#define NORM "model.norm.weight"
#define QUERY "model.layers.1.self_attn.q_proj.weight"
#define JSONL "train micro-llama-bytes --seq 8 --steps 1 --data %b --out %o"
#define TRAIN "train micro-llama-bytes --seq 8 --steps 1 --data %d --out %o "

static const row rows[] = {
    /* weights */
    {"cut by a byte", resize, WEIGHTS, "-1", NULL, NULL, 5, {WEIGHTS}},
    {"cut in the middle", resize, WEIGHTS, "70000", NULL, NULL, 5, {WEIGHTS}},
    {"cut in the header", resize, WEIGHTS, "300", NULL, NULL, 5, {WEIGHTS}},
    {"cut in the length", resize, WEIGHTS, "5", NULL, NULL, 5, {WEIGHTS}},
    {"empty", resize, WEIGHTS, "0", NULL, NULL, 5, {WEIGHTS}},
    {"too long", resize, WEIGHTS, "+256", NULL, NULL, 5, {WEIGHTS}},
    {"no safetensors",
     write_model_file,
     WEIGHTS,
     "PK\3\4 this is a zip file of another kind",
     NULL,
     NULL,
     5,
     {WEIGHTS}},
    {"header of rubbish", write_model_file, WEIGHTS, "\20\1\1\1\1\1\1\1{\"a\":1}", NULL, NULL, 5, {WEIGHTS}},
    {"weights are a directory", remove_model_file, WEIGHTS, "yes", NULL, NULL, 5, {WEIGHTS}},
    {"overlapping tensors", edit_tensor, NORM, "data_offsets", "[0,256]", NULL, 5, {WEIGHTS, NORM}},
    {"offsets out of the file", edit_tensor, NORM, "data_offsets", "[99999744,100000000]", NULL, 5, {WEIGHTS, NORM}},
    {"offsets backwards", edit_tensor, NORM, "data_offsets", "[256,0]", NULL, 5, {WEIGHTS, NORM}},
    {"missing and unknown tensor", edit_tensor, NORM, NULL, "model.norm.wait", NULL, 5, {WEIGHTS, NORM}},
    {"tensor twice", edit_tensor, "model.layers.0.input_layernorm.weight", NULL, NORM, NULL, 5, {WEIGHTS, NORM}},
    {"other shape, same bytes", edit_tensor, QUERY, "shape", "[32,128]", NULL, 5, {WEIGHTS, QUERY, "[32, 128]"}},
    {"other rank", edit_tensor, NORM, "shape", "[8,8]", NULL, 5, {WEIGHTS, NORM}},
    {"other size", edit_tensor, NORM, "shape", "[63]", NULL, 5, {WEIGHTS, NORM}},
    {"integers", edit_tensor, NORM, "dtype", "\"I32\"", NULL, 5, {WEIGHTS, NORM, "I32"}},
    {"unknown dtype", edit_tensor, NORM, "dtype", "\"F33\"", NULL, 5, {WEIGHTS, NORM, "F33"}},
    {"other dtype, other bytes", edit_tensor, NORM, "dtype", "\"F16\"", NULL, 5, {WEIGHTS, NORM}},
    {"NaN", poke_float, QUERY, "77", "7fc00000", NULL, 5, {WEIGHTS, QUERY, "77"}},
    {"NaN, converted",
     poke_float,
     QUERY,
     "77",
     "7fc00000",
     "convert %m %o.gguf",
     5,
     {"model: tensor", QUERY, "not finite"}},
    {"infinity",
     poke_float,
     "model.embed_tokens.weight",
     "1000",
     "ff800000",
     NULL,
     5,
     {WEIGHTS, "model.embed_tokens.weight", "1000"}},
    {"index of a missing shard",
     damage_shards,
     "{\"metadata\":{},\"weight_map\":{\"model.norm.weight\":\"model-00001-of-00002.safetensors\"}}",
     NULL,
     NULL,
     NULL,
     5,
     {"model-00001-of-00002.safetensors"}},
    {"index out of the directory",
     damage_shards,
     "{\"weight_map\":{\"model.norm.weight\":\"../../secret.safetensors\"}}",
     NULL,
     NULL,
     NULL,
     5,
     {"index.json"}},
    {"index without a map", damage_shards, "{\"metadata\":{}}", NULL, NULL, NULL, 5, {"index.json", "weight_map"}},

    /* config.json */
    {"no config.json", remove_model_file, "config.json", NULL, NULL, NULL, 5, {"config.json"}},
    {"empty config.json", write_model_file, "config.json", "", NULL, NULL, 5, {"config.json"}},
    {"cut config.json", resize, "config.json", "-20", NULL, NULL, 5, {"config.json"}},
    {"config.json is a list", write_model_file, "config.json", "[1]", NULL, NULL, 5, {"config.json"}},
    {"no model_type", edit_config, "model_type", NULL, NULL, NULL, 5, {"config.json", "model_type"}},
    {"unknown model_type", edit_config, "model_type", "\"bert\"", NULL, NULL, 5, {"config.json", "model_type", "bert"}},
    {"no hidden_size", edit_config, "hidden_size", NULL, NULL, NULL, 5, {"config.json", "hidden_size"}},
    {"hidden_size 0", edit_config, "hidden_size", "0", NULL, NULL, 5, {"config.json", "hidden_size"}},
    {"hidden_size a word", edit_config, "hidden_size", "\"64\"", NULL, NULL, 5, {"config.json", "hidden_size"}},
    {"hidden_size a fraction", edit_config, "hidden_size", "64.5", NULL, NULL, 5, {"config.json", "hidden_size"}},
    {"layers below zero", edit_config, "num_hidden_layers", "-2", NULL, NULL, 5, {"config.json", "num_hidden_layers"}},
    {"a billion layers",
     edit_config,
     "num_hidden_layers",
     "1000000000",
     NULL,
     NULL,
     5,
     {"config.json", "num_hidden_layers"}},
    {"more layers than weights", edit_config, "num_hidden_layers", "3", NULL, NULL, 5, {WEIGHTS, "model.layers.2."}},
    {"fewer layers than weights", edit_config, "num_hidden_layers", "1", NULL, NULL, 5, {WEIGHTS, "model.layers.1."}},
    {"absurd vocabulary",
     edit_config,
     "vocab_size",
     "99999999999999999999",
     NULL,
     NULL,
     5,
     {"config.json", "vocab_size"}},
    {"a billion words", edit_config, "vocab_size", "1000000000", NULL, NULL, 5, {"config.json", "vocab_size"}},
    {"other vocabulary", edit_config, "vocab_size", "300", NULL, NULL, 5, {WEIGHTS, "embed_tokens"}},
    {"heads that do not divide",
     edit_config,
     "num_key_value_heads",
     "3",
     NULL,
     NULL,
     5,
     {"config.json", "num_key_value_heads"}},
    {"activation that is not there",
     edit_config,
     "hidden_act",
     "\"tanhshrink\"",
     NULL,
     NULL,
     5,
     {"config.json", "hidden_act", "tanhshrink"}},
    {"epsilon below zero", edit_config, "rms_norm_eps", "-1", NULL, NULL, 5, {"config.json", "rms_norm_eps"}},

    /* data */
    {"id out of range",
     write_bad,
     "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[1,257]}\n",
     NULL,
     NULL,
     JSONL,
     5,
     {"bad.jsonl", "input_ids", "257"}},
    {"id below zero", write_bad, "{\"input_ids\":[1,-2,3]}\n", NULL, NULL, JSONL, 5, {"bad.jsonl", "input_ids", "-2"}},
    {"id a fraction", write_bad, "{\"input_ids\":[1,2.5,3]}\n", NULL, NULL, JSONL, 5, {"bad.jsonl", "input_ids"}},
    {"ids a string", write_bad, "{\"input_ids\":\"abc\"}\n", NULL, NULL, JSONL, 5, {"bad.jsonl", "input_ids"}},
    {"no ids", write_bad, "{\"labels\":[1,2]}\n", NULL, NULL, JSONL, 5, {"bad.jsonl", "input_ids"}},
    {"fields of nothing", write_bad, "{\"txt\":\"abc\"}\n", NULL, NULL, JSONL, 5, {"bad.jsonl", "txt", "messages"}},
    {"rows of two kinds",
     write_bad,
     "{\"text\":\"abc\"}\n{\"prompt\":\"abc\"}\n",
     NULL,
     NULL,
     JSONL,
     5,
     {"bad.jsonl:2", "text", "--skip-bad"}},
    {"a conversation without a template",
     write_bad,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n",
     NULL,
     NULL,
     JSONL,
     5,
     {"bad.jsonl:1", "chat template", "chatml"}},
    {"an empty conversation",
     write_bad,
     "{\"messages\":[]}\n",
     NULL,
     NULL,
     JSONL " --chat-template chatml",
     5,
     {"bad.jsonl:1", "messages", "empty"}},
    {"ragged labels",
     write_bad,
     "{\"input_ids\":[1,2,3],\"labels\":[1,2]}\n",
     NULL,
     NULL,
     JSONL,
     5,
     {"bad.jsonl", "labels"}},
    {"label out of range",
     write_bad,
     "{\"input_ids\":[1,2,3],\"labels\":[1,2,257]}\n",
     NULL,
     NULL,
     JSONL,
     5,
     {"bad.jsonl", "labels", "257"}},
    {"label below -100",
     write_bad,
     "{\"input_ids\":[1,2,3],\"labels\":[1,-101,2]}\n",
     NULL,
     NULL,
     JSONL,
     5,
     {"bad.jsonl", "labels", "-101"}},
    {"no label that counts",
     write_bad,
     "{\"input_ids\":[1,2,3],\"labels\":[-100,-100,-100]}\n",
     NULL,
     NULL,
     JSONL,
     5,
     {"bad.jsonl"}},
    {"lengths that do not add up",
     write_bad,
     "{\"input_ids\":[1,2,3],\"seq_lengths\":[1,1]}\n",
     NULL,
     NULL,
     JSONL,
     5,
     {"bad.jsonl", "seq_lengths"}},
    {"a cut line", write_bad, "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[1,2", NULL, NULL, JSONL, 5, {"bad.jsonl", "2"}},
    {"no JSON", write_bad, "hello\n", NULL, NULL, JSONL, 5, {"bad.jsonl", "1"}},
    {"empty file", write_bad, "", NULL, NULL, JSONL, 5, {"bad.jsonl"}},
    {"blank lines", write_bad, "\n\n \n", NULL, NULL, JSONL, 5, {"bad.jsonl"}},
    {"a directory", make_bad_directory, NULL, NULL, NULL, JSONL, 5, {"bad.jsonl"}},
    {"no file", NULL, NULL, NULL, NULL, JSONL, 1, {"bad.jsonl"}},
    {"text for a model that is not byte-level",
     NULL,
     NULL,
     NULL,
     NULL,
     "train custom:layers=1,hidden=8,heads=1,vocab=100,positions=16 --seq 8 --steps 1 --data %d --out %o",
     5,
     {"data.txt"}},
    {"bad held-back data",
     write_bad,
     "{\"input_ids\":[999]}\n",
     NULL,
     NULL,
     TRAIN "--eval-data %b",
     5,
     {"bad.jsonl", "999"}},

    /* options */
    {"unknown option", NULL, NULL, NULL, NULL, TRAIN "--budgt 1GiB", 2, {"--budgt", "--budget"}},
    {"unknown command", NULL, NULL, NULL, NULL, "trian micro-llama-bytes", 2, {"trian", "train"}},
    {"unknown model",
     NULL,
     NULL,
     NULL,
     NULL,
     "train micro-lama-bytes --data %d --out %o",
     2,
     {"micro-lama-bytes", "micro-llama-bytes"}},
    {"no model", NULL, NULL, NULL, NULL, "train --data %d --out %o", 2, {"MODEL"}},
    {"no data", NULL, NULL, NULL, NULL, "train micro-llama-bytes --out %o", 2, {"--data"}},
    {"no output", NULL, NULL, NULL, NULL, "train micro-llama-bytes --data %d", 2, {"--out"}},
    {"output that is a file",
     NULL,
     NULL,
     NULL,
     NULL,
     "train micro-llama-bytes --data %d --out %d",
     2,
     {"no directory", "--out"}},
    {"output below a file",
     NULL,
     NULL,
     NULL,
     NULL,
     "train micro-llama-bytes --data %d --out %d/run",
     2,
     {"below a file", "--out"}},
    {"output that is a device",
     NULL,
     NULL,
     NULL,
     NULL,
     "train micro-llama-bytes --data %d --out /dev/null",
     2,
     {"/dev/null", "--out"}},
    {"log for nobody", NULL, NULL, NULL, NULL, TRAIN "--log-json /nonexistent/x", 1, {"/nonexistent/x", "path"}},
    {"budget 0", NULL, NULL, NULL, NULL, TRAIN "--budget 0", 2, {"--budget"}},
    {"budget below zero", NULL, NULL, NULL, NULL, TRAIN "--budget -1GiB", 2, {"--budget"}},
    {"budget of nonsense", NULL, NULL, NULL, NULL, TRAIN "--budget 12XB", 2, {"--budget", "12XB"}},
    {"budget too small", NULL, NULL, NULL, NULL, TRAIN "--budget 1MiB", 3, {"budget", "peak"}},
    {"no steps", NULL, NULL, NULL, NULL, TRAIN "--steps 0", 2, {"--steps"}},
    {"sequence 0", NULL, NULL, NULL, NULL, TRAIN "--seq 0", 2, {"--seq"}},
    {"sequence beyond the positions",
     NULL,
     NULL,
     NULL,
     NULL,
     "train micro-gpt2-bytes --seq 100000 --steps 1 --data %d --out %o",
     2,
     {"--seq", "positions"}},
    {"learning rate of no number", NULL, NULL, NULL, NULL, TRAIN "--lr nan", 2, {"--lr"}},
    {"learning rate below zero", NULL, NULL, NULL, NULL, TRAIN "--lr -1", 2, {"--lr"}},
    {"unknown recompute", NULL, NULL, NULL, NULL, TRAIN "--recompute some", 2, {"--recompute", "some"}},
    {"options that exclude each other", NULL, NULL, NULL, NULL, TRAIN "--update in-backward --clip 1", 2, {"clip"}},
    {"evaluation without data", NULL, NULL, NULL, NULL, TRAIN "--eval-every 1", 2, {"--eval-data"}},
    {"a device that runs nothing here", NULL, NULL, NULL, NULL, TRAIN "--device rtx-4090", 2, {"--device"}},
    {"unknown device", NULL, NULL, NULL, NULL, TRAIN "--device rtx-409", 2, {"rtx-409", "rtx-4090"}},
    {"resume of nothing",
     NULL,
     NULL,
     NULL,
     NULL,
     "train micro-llama-bytes --seq 8 --steps 1 --data %d --resume %o",
     2,
     {"run", "no run directory"}},
    {"recipe with an unknown key",
     write_bad,
     "model: micro-llama-bytes\nmicrobatch: 3\n",
     NULL,
     NULL,
     "train --recipe %b --data %d --out %o",
     2,
     {"bad.jsonl", "microbatch", "micro-batch"}},
    {"recipe of no YAML",
     write_bad,
     "model: \"abc",
     NULL,
     NULL,
     "train --recipe %b --data %d --out %o",
     5,
     {"bad.jsonl", "quoted"}},
    {"evaluate damaged weights",
     poke_float,
     NORM,
     "3",
     "7f800000",
     "evaluate %m --data %d --seq 8",
     5,
     {WEIGHTS, NORM}},
    {"generate with damaged weights", poke_float, NORM, "3", "7f800000", "generate %m --prompt a", 5, {WEIGHTS, NORM}},
    {"generate without a prompt", NULL, NULL, NULL, NULL, "generate %m", 2, {"--prompt"}},
};

/* ---- running it ---- */

static void restore(const char *template) {
  child copy = {.words = {"-r", template, model}};
  scratch_remove(model);
  scratch_remove(bad);
  scratch_remove(out);
  child_run(&copy, "/bin/cp", directory);
  assert_int_equal(copy.code, 0);
}

static const char *substitute(const char *command) {
  static char line[4096];
  size_t used = 0;
  for (; *command; command++) {
    const char *with = NULL;
    if (*command == '%') with = command[1] == 'm' ? model : command[1] == 'd' ? data : command[1] == 'b' ? bad : out;
    if (with) {
      used += (size_t)snprintf(line + used, sizeof line - used, "%s", with);
      command++;
    } else {
      line[used++] = *command;
    }
    assert_true(used < sizeof line - 1);
  }
  line[used] = 0;
  return line;
}

static int occurrences(const char *text, const char *word) {
  int count = 0;
  for (const char *at = text; (at = strstr(at, word)); at++) count++;
  return count;
}

/* True when all holds; else says what does not, so that one run of the test shows every bad row. */
static bool check_row(const row *r) {
  child c = {.words = {NULL}};
  bool good = true;
  if (r->damage) r->damage(r->a, r->b, r->c);
  child_words(&c, substitute(r->command ? r->command : "train %m --seq 8 --steps 1 --data %d --out %o"));
  child_run(&c, HR_PROGRAM, directory);
  if (c.code != r->code) good = false;
  for (int k = 0; k < 3 && r->says[k]; k++)
    if (!strstr(c.err, r->says[k])) good = false;
  if (occurrences(c.err, "headroom: ") != 1 || !strstr(c.err, "\n  try: ")) good = false;
  if (exists(path_of("%s/final", out)) || exists(path_of("%s/checkpoints/last", out))) good = false;
  if (!good)
    print_message("%s: exit %d, wanted %d and '%s' '%s' '%s':\n%s%s\n", r->name, c.code, r->code, r->says[0],
                  r->says[1] ? r->says[1] : "", r->says[2] ? r->says[2] : "", c.err, c.out);
  return good;
}

static void test_bad_input(void **state) {
  const char *template = strdup(path_of("%s/template/final", directory));
  child c = {.words = {"train", "micro-llama-bytes", "-q", "--seq", "8", "--steps", "1", "--data", data, "--out",
                       path_of("%s/template", directory)}};
  int wrong = 0;
  (void)state;
  assert_non_null(template);
  child_run(&c, HR_PROGRAM, directory);
  if (c.code != 0) fail_msg("%s", c.err);
  restore(template);
  c = (child){.words = {NULL}};
  child_words(&c, substitute("train %m --seq 8 --steps 1 --data %d --out %o"));
  child_run(&c, HR_PROGRAM, directory);
  if (c.code != 0) fail_msg("the undamaged model: %s", c.err); /* what is refused below is refused for its damage */
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    restore(template);
    wrong += !check_row(&rows[k]);
  }
  free((void *)(uintptr_t)template);
  assert_int_equal(wrong, 0);
}

static int set_up(void **state) {
  (void)state;
  directory = scratch_make("bad");
  model = strdup(path_of("%s/final-model", directory));
  data = strdup(path_of("%s/data.txt", directory));
  bad = strdup(path_of("%s/bad.jsonl", directory));
  out = strdup(path_of("%s/run", directory));
  put_words(data, 3000, 3);
  return model && data && bad && out ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  scratch_remove(directory);
  free((void *)(uintptr_t)model);
  free((void *)(uintptr_t)data);
  free((void *)(uintptr_t)bad);
  free((void *)(uintptr_t)out);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bad_input),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
