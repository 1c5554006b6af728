/* The grammar of --lora: words between commas, each a key with a value, a flag, or more of the list before it. */
#include "model/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/automaton.h"
#include "base/number.h"
#include "base/text.h"
#include "model/params.h"

enum { DEFAULT_RANK = 8, MOST_RULES = 1024, MOST_RANK = 4096, WORD_BYTES = 256 };

/* ---- modules ---- */

static const char *leaf(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot ? dot + 1 : name;
}

/* Modules of different names only: "c_proj" is two in gpt2. */
static void module_names(const hr_model *model, hri_text *out) {
  char name[96], before[96];
  for (int k = 0; k < HR_MODULE_COUNT; k++) {
    bool again = false;
    if (!hri_module_name(model, (hr_module)k, -1, name)) continue;
    for (int j = 0; j < k; j++)
      again = again || (hri_module_name(model, (hr_module)j, -1, before) && strcmp(leaf(before), leaf(name)) == 0);
    if (!again) hri_text_add(out, "%s%s", out->length ? ", " : "", leaf(name));
  }
}

/* tuners/tuners_utils.py, check_target_module_exists. */
static bool matches(const char *name, const char *target) {
  size_t a = strlen(name), b = strlen(target);
  return a >= b && strcmp(name + a - b, target) == 0 && (a == b || name[a - b - 1] == '.');
}

bool hri_lora_add_target(const hr_model *model, const char *target, hr_lora *lora) {
  bool all = strcmp(target, "all-linear") == 0, found = false;
  char name[96];
  for (uint32_t l = 0; l < model->layer_count; l++)
    for (int k = 0; k < HR_MODULE_COUNT; k++)
      if (hri_module_name(model, (hr_module)k, (int32_t)l, name) && (all || matches(name, target))) {
        lora->modules[l] |= (uint8_t)(1u << k);
        found = true;
      }
  hri_embedding_name(model, name);
  if (all || !matches(name, target)) return found;
  lora->embedding = true;
  return true;
}

const char *hri_lora_add_pattern(const hr_model *model, const char *expression, hr_lora *lora, bool *found) {
  hri_automaton pattern;
  const char *fault = hri_automaton_compile(&pattern, expression);
  char name[96];
  *found = false;
  for (uint32_t l = 0; !fault && l < model->layer_count; l++)
    for (int k = 0; k < HR_MODULE_COUNT; k++)
      if (hri_module_name(model, (hr_module)k, (int32_t)l, name) && hri_automaton_matches(&pattern, name)) {
        lora->modules[l] |= (uint8_t)(1u << k);
        *found = true;
      }
  hri_embedding_name(model, name);
  if (!fault && hri_automaton_matches(&pattern, name)) lora->embedding = *found = true;
  return fault;
}

bool hri_lora_names_module(const hr_model *model, const char *target) {
  hr_model whole = *model;
  whole.tied_embeddings = false; /* a head that is tied is a module too */
  whole.lora = (hr_lora){0};
  for (uint32_t p = 0; p < hri_param_count(&whole); p++) {
    hri_param_spec spec;
    hri_param_get(&whole, p, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++) {
      *strrchr(spec.parts[k].name, '.') = 0; /* ".weight" */
      if (matches(spec.parts[k].name, target)) return true;
    }
  }
  return false;
}

const char *hri_lora_embedding_fault(const hr_lora *lora) {
  if (!lora->embedding) return NULL;
  if (lora->dora) return "with dora the embedding gets no adapter here";
  if (lora->saved >> HRI_SLOT_TOKEN_EMBEDDING & 1)
    return "the embedding trains whole, by modules_to_save, and has an adapter";
  return NULL;
}

/* ---- modules that train whole ---- */

static bool ends_in(const char *name, size_t length, const char *end) {
  size_t count = strlen(end);
  return count > 0 && length >= count && memcmp(name + length - count, end, count) == 0;
}

/* utils/other.py, _set_trainable: a path that ends in the name, even in the middle of a word ("norm" is all norms of
 * llama). */
const char *hri_lora_add_saved(const hr_model *model, const char *name, hr_lora *lora) {
  uint32_t found = 0, missed = 0;
  hr_model whole = *model;
  whole.tied_embeddings = false; /* a head that is tied is a module too */
  whole.lora = (hr_lora){0};
  for (uint32_t p = 0; p < hri_param_count(&whole); p++) {
    hri_param_spec spec;
    uint32_t before = found;
    hri_param_get(&whole, p, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++)
      if (ends_in(spec.parts[k].name, (size_t)(strrchr(spec.parts[k].name, '.') - spec.parts[k].name), name))
        found |= 1u << spec.slot;
      else missed |= 1u << spec.slot;
    for (int k = 0; k < HR_MODULE_COUNT && found != before; k++)
      if (hri_module_slot((hr_module)k, NULL) == spec.slot)
        return "it is a linear module of the layers, which get adapters";
  }
  if (!found) return "the model has no such module";
  if (found & missed) return "it is a module of some layers and not of others";
  lora->saved |= found;
  return NULL;
}

/* ---- ranks and alphas of their own ---- */

/* utils/other.py, get_pattern_key: re.match(rf"(.*\.)?({key})$", path). */
static const char *compile_rule(hri_automaton *pattern, const char *key) {
  char expression[512];
  int length = snprintf(expression, sizeof expression, "(.*\\.)?(%s)$", key);
  return length < (int)sizeof expression ? hri_automaton_compile(pattern, expression) : "it is too long";
}

bool hri_lora_kind(hr_lora *lora, uint32_t rank, double alpha, uint8_t *kind) {
  *kind = 0;
  if (rank == lora->rank && alpha == lora->alpha) return true;
  for (uint8_t k = 0; k < HR_LORA_KINDS; k++) {
    hr_lora_kind *own = &lora->own[k];
    if (own->rank == 0) *own = (hr_lora_kind){rank, alpha};
    *kind = (uint8_t)(k + 1);
    if (own->rank == rank && own->alpha == alpha) return true;
  }
  return false;
}

/* rule_of[layer][module]: the first of `count` rules that matches, count: none. */
static const char *match_rules(const hr_model *model, const hr_lora *lora, hri_lora_rule *rules, uint32_t count,
                               uint16_t (*rule_of)[HR_MODULE_COUNT], uint32_t *bad) {
  hri_automaton pattern;
  const char *fault = count <= MOST_RULES ? NULL : "there are more than 1,024 entries";
  *bad = 0;
  for (uint32_t l = 0; l < model->layer_count; l++)
    for (int k = 0; k < HR_MODULE_COUNT; k++) rule_of[l][k] = (uint16_t)count;
  for (uint32_t i = 0; !fault && i < count; i++) {
    *bad = i;
    fault = compile_rule(&pattern, rules[i].key);
    for (uint32_t l = 0; !fault && l < model->layer_count; l++)
      for (int k = 0; k < HR_MODULE_COUNT; k++) {
        char name[96];
        if (rule_of[l][k] != count || !(lora->modules[l] >> k & 1) ||
            !hri_module_name(model, (hr_module)k, (int32_t)l, name) || !hri_automaton_matches(&pattern, name))
          continue;
        rule_of[l][k] = (uint16_t)i;
        rules[i].used = true;
      }
  }
  return fault;
}

/* The first of `count` rules that the embedding's path matches; count: none. */
static const char *match_embedding(const hr_model *model, hri_lora_rule *rules, uint32_t count, uint32_t *rule,
                                   uint32_t *bad) {
  hri_automaton pattern;
  char name[96];
  hri_embedding_name(model, name);
  for (*rule = 0; *rule < count; ++*rule) {
    const char *fault = compile_rule(&pattern, rules[*rule].key);
    *bad = *rule;
    if (fault) return fault;
    if (!hri_automaton_matches(&pattern, name)) continue;
    rules[*rule].used = true;
    break;
  }
  return NULL;
}

static const char *apply_to_embedding(const hr_model *model, hr_lora *lora, hri_lora_rule *rules, uint32_t ranks,
                                      uint32_t alphas, uint32_t *bad) {
  uint32_t own = 0, own_alpha = 0;
  const char *fault = match_embedding(model, rules, ranks, &own, bad);
  if (fault) return fault;
  fault = match_embedding(model, rules + ranks, alphas, &own_alpha, bad);
  *bad += ranks;
  if (fault) return fault;
  *bad = own < ranks ? own : ranks + own_alpha;
  return hri_lora_kind(lora, own < ranks ? (uint32_t)rules[own].value : lora->rank,
                       own_alpha < alphas ? rules[ranks + own_alpha].value : lora->alpha, &lora->embedding_kind)
             ? NULL
             : "adapters have at most 64 pairs of rank and alpha";
}

const char *hri_lora_apply(const hr_model *model, hr_lora *lora, hri_lora_rule *rules, uint32_t ranks, uint32_t alphas,
                           uint32_t *bad) {
  uint16_t of[HR_MAX_LAYERS][HR_MODULE_COUNT], of_alpha[HR_MAX_LAYERS][HR_MODULE_COUNT];
  const char *fault = match_rules(model, lora, rules, ranks, of, bad);
  if (fault) return fault;
  fault = match_rules(model, lora, rules + ranks, alphas, of_alpha, bad);
  *bad += ranks;
  for (uint32_t l = 0; !fault && l < model->layer_count; l++)
    for (int k = 0; k < HR_MODULE_COUNT && !fault; k++) {
      uint32_t own = of[l][k], own_alpha = ranks + of_alpha[l][k];
      if (!(lora->modules[l] >> k & 1)) continue;
      *bad = own < ranks ? own : own_alpha; /* to be named if the kind is one too many */
      if (!hri_lora_kind(lora, own < ranks ? (uint32_t)rules[own].value : lora->rank,
                         own_alpha < ranks + alphas ? rules[own_alpha].value : lora->alpha, &lora->kinds[l][k]))
        fault = "adapters have at most 64 pairs of rank and alpha";
    }
  if (!fault && lora->embedding) fault = apply_to_embedding(model, lora, rules, ranks, alphas, bad);
  if (*bad >= ranks + alphas) *bad = ranks + alphas ? ranks + alphas - 1 : 0; /* the kind one too many has no rule */
  return fault;
}

/* What PEFT takes in a family without target_modules (peft/utils/constants.py): q and v; the one fused product; in phi
 * the MLP too. */
static void default_targets(const hr_model *model, hr_lora *lora) {
  static const hr_module modules[] = {HR_MODULE_Q, HR_MODULE_V, HR_MODULE_MLP_GATE, HR_MODULE_MLP_DOWN};
  int count = model->family == HR_FAMILY_PHI ? 4 : 2;
  char name[96];
  for (int k = 0; k < count; k++)
    if (hri_module_name(model, modules[k], -1, name)) (void)hri_lora_add_target(model, name, lora);
}

static hr_status unknown_target(const hr_model *model, const char *word, hr_error *error) {
  hri_text names = {0};
  hr_status status;
  module_names(model, &names);
  status =
      hri_fail(error, HR_ERROR_USAGE, "--lora: a %s model has no module '%.60s'", hr_family_name(model->family), word);
  (void)hri_hint(error, status, "targets are %s, %s, or all-linear", hri_text_get(&names),
                 model->family == HR_FAMILY_GPT2 ? "wte" : "embed_tokens");
  hri_text_deinit(&names);
  return status;
}

/* ---- words ---- */

typedef enum key {
  KEY_NONE = 0,
  KEY_RANK,
  KEY_ALPHA,
  KEY_TARGETS,
  KEY_DROPOUT,
  KEY_INIT,
  KEY_LAYERS,
  KEY_RANK_PATTERN,
  KEY_ALPHA_PATTERN,
  KEY_BIAS,
  KEY_SAVED,
  KEY_COUNT
} key;
static const char *const keys[KEY_COUNT] = {[KEY_RANK] = "r",
                                            [KEY_ALPHA] = "alpha",
                                            [KEY_TARGETS] = "targets",
                                            [KEY_DROPOUT] = "dropout",
                                            [KEY_INIT] = "init",
                                            [KEY_LAYERS] = "layers",
                                            [KEY_RANK_PATTERN] = "rank_pattern",
                                            [KEY_ALPHA_PATTERN] = "alpha_pattern",
                                            [KEY_BIAS] = "bias",
                                            [KEY_SAVED] = "modules_to_save"};
static bool is_list(key k) {
  return k == KEY_TARGETS || k == KEY_LAYERS || k == KEY_RANK_PATTERN || k == KEY_ALPHA_PATTERN || k == KEY_SAVED;
}

enum { RULES = 32 };
/* What the words so far say. */
typedef struct draft {
  const hr_model *model;
  hr_lora lora;
  bool layers[HR_MAX_LAYERS];
  hri_lora_rule rules[2][RULES]; /* of ranks; of alphas */
  char keys[2][RULES][WORD_BYTES];
  uint32_t counts[2];
  key list; /* whose list a bare word goes on with */
  uint32_t seen;
} draft;

static key key_of(const char *word, size_t length) {
  for (int k = 1; k < KEY_COUNT; k++)
    if (strlen(keys[k]) == length && memcmp(keys[k], word, length) == 0) return (key)k;
  return KEY_NONE;
}

static bool number(const char *text, double low, double high, double *out) {
  return !hri_decimal_parse(text, out) && *out >= low && *out <= high;
}

static bool whole(const char *text, size_t length, uint32_t most, uint32_t *out) {
  uint64_t value = 0;
  if (length == 0 || length > 9) return false;
  for (size_t k = 0; k < length; k++) {
    if (text[k] < '0' || text[k] > '9') return false;
    value = value * 10 + (uint64_t)(text[k] - '0');
  }
  *out = (uint32_t)value;
  return value <= most;
}

/* "8-15" or "20". */
static hr_status take_layers(draft *d, const char *word, hr_error *error) {
  const char *dash = strchr(word, '-');
  uint32_t first = 0, last, end = d->model->layer_count - 1;
  bool good = whole(word, dash ? (size_t)(dash - word) : strlen(word), end, &first);
  last = first;
  if (good && dash) good = whole(dash + 1, strlen(dash + 1), end, &last) && last >= first;
  if (!good)
    return hri_fail(error, HR_ERROR_USAGE, "--lora: layers=%.40s is not a layer or a range such as 0-%u of this model",
                    word, end);
  for (uint32_t l = first; l <= last; l++) d->layers[l] = true;
  return HR_OK;
}

/* A name has letters, digits, _, - and dots; what has anything else is an expression. */
static bool is_expression(const char *word) { return strpbrk(word, "\\*+?[](){}|^$") != NULL; }

static hr_status take_target(draft *d, const char *word, hr_error *error) {
  bool found = false;
  const char *fault = NULL;
  if (is_expression(word)) fault = hri_lora_add_pattern(d->model, word, &d->lora, &found);
  else found = hri_lora_add_target(d->model, word, &d->lora);
  if (fault) return hri_fail(error, HR_ERROR_USAGE, "--lora: targets=%.100s is no regular expression: %s", word, fault);
  return found ? HR_OK : unknown_target(d->model, word, error);
}

/* "q_proj:8": a name or an expression as PEFT's keys are, and behind the last colon a number. */
static hr_status take_rule(draft *d, int which, const char *word, hr_error *error) {
  const char *colon = strrchr(word, ':'), *name = keys[which ? KEY_ALPHA_PATTERN : KEY_RANK_PATTERN];
  uint32_t at = d->counts[which], rank = 0;
  hri_lora_rule *rule = &d->rules[which][at < RULES ? at : 0];
  double value = 0;
  bool good = colon && colon > word &&
              (which ? number(colon + 1, 1e-6, 1e6, &value)
                     : whole(colon + 1, strlen(colon + 1), MOST_RANK, &rank) && rank > 0);
  if (!good)
    return hri_fail(error, HR_ERROR_USAGE, "--lora: %s=%.80s is not a module and its %s, such as %s", name, word,
                    which ? "alpha" : "rank, from 1 to 4096", which ? "o_proj:4" : "q_proj:8");
  if (at == RULES) return hri_fail(error, HR_ERROR_USAGE, "--lora: %s has more than %d entries", name, RULES);
  (void)snprintf(d->keys[which][at], WORD_BYTES, "%.*s", (int)(colon - word), word);
  *rule = (hri_lora_rule){.key = d->keys[which][at], .value = which ? value : rank};
  d->counts[which]++;
  return HR_OK;
}

static hr_status take_saved(draft *d, const char *word, hr_error *error) {
  const char *fault = hri_lora_add_saved(d->model, word, &d->lora);
  hr_status status;
  if (!fault) return HR_OK;
  status = hri_fail(error, HR_ERROR_USAGE, "--lora: modules_to_save=%.60s: %s", word, fault);
  return hri_hint(error, status, "embeddings, norms and the head can train whole: %s",
                  d->model->family == HR_FAMILY_GPT2 ? "wte, wpe, ln_1, ln_2, ln_f, lm_head"
                                                     : "embed_tokens, input_layernorm, model.norm, lm_head");
}

static hr_status take_bias(draft *d, const char *word, hr_error *error) {
  static const char *const words[HR_LORA_BIAS_COUNT] = {"none", "all", "lora_only"};
  for (int k = 0; k < HR_LORA_BIAS_COUNT; k++)
    if (strcmp(word, words[k]) == 0) {
      d->lora.bias = (hr_lora_bias)k;
      return HR_OK;
    }
  return hri_fail(error, HR_ERROR_USAGE, "--lora: bias=%.40s; it is none, all or lora_only", word);
}

static hr_status take(draft *d, key k, const char *value, hr_error *error) {
  hr_lora *lora = &d->lora;
  switch (k) {
  case KEY_RANK:
    if (whole(value, strlen(value), MOST_RANK, &lora->rank) && lora->rank > 0) return HR_OK;
    return hri_fail(error, HR_ERROR_USAGE, "--lora: r=%.40s; a rank is from 1 to %d", value, MOST_RANK);
  case KEY_ALPHA:
    if (number(value, 1e-6, 1e6, &lora->alpha)) return HR_OK;
    return hri_fail(error, HR_ERROR_USAGE, "--lora: alpha=%.40s is not a number from 1e-6 to 1e6", value);
  case KEY_DROPOUT:
    if (number(value, 0, 1, &lora->dropout) && lora->dropout < 1) return HR_OK;
    return hri_fail(error, HR_ERROR_USAGE, "--lora: dropout=%.40s is not a probability from 0 to below 1", value);
  case KEY_INIT:
    lora->gaussian = strcmp(value, "gaussian") == 0;
    if (lora->gaussian || strcmp(value, "kaiming") == 0) return HR_OK;
    return hri_fail(error, HR_ERROR_USAGE, "--lora: init=%.40s; it is kaiming or gaussian", value);
  case KEY_TARGETS: return take_target(d, value, error);
  case KEY_RANK_PATTERN: return take_rule(d, 0, value, error);
  case KEY_ALPHA_PATTERN: return take_rule(d, 1, value, error);
  case KEY_BIAS: return take_bias(d, value, error);
  case KEY_SAVED: return take_saved(d, value, error);
  default: return take_layers(d, value, error);
  }
}

/* "16" is a rank, "target=.." a slip, "rank=.." and "target_modules=.." PEFT's. */
static hr_status not_understood(const char *word, hr_error *error) {
  const char *equals = strchr(word, '='), *near;
  char name[32];
  hri_near search;
  hr_status status = hri_fail(error, HR_ERROR_USAGE, "--lora: '%.60s' is not understood", word);
  uint32_t rank;
  if (whole(word, strlen(word), MOST_RANK, &rank)) return hri_hint(error, status, "--lora r=%u", rank);
  if (equals && (size_t)(equals - word) < sizeof name) {
    (void)snprintf(name, sizeof name, "%.*s", (int)(equals - word), word);
    hri_near_begin(&search, name);
    for (int k = 0; k < KEY_COUNT; k++)
      if (keys[k]) hri_near_offer(&search, keys[k]);
    near = strcmp(name, "rank") == 0             ? keys[KEY_RANK]
           : strcmp(name, "target_modules") == 0 ? keys[KEY_TARGETS]
                                                 : hri_near_end(&search);
    if (near) return hri_hint(error, status, "did you mean %s%.40s?", near, equals);
  }
  return hri_hint(error, status,
                  "words are r=N, alpha=X, targets=NAME,..., dropout=P, rslora, dora, init=kaiming|gaussian, "
                  "layers=A-B,..., rank_pattern=NAME:N,..., alpha_pattern=NAME:X,..., bias=none|all|lora_only, "
                  "modules_to_save=NAME,...");
}

/* One word between commas. */
static hr_status take_word(draft *d, const char *word, hr_error *error) {
  const char *equals = strchr(word, '=');
  key k = equals ? key_of(word, (size_t)(equals - word)) : KEY_NONE;
  if (strcmp(word, "rslora") == 0 || strcmp(word, "dora") == 0) {
    *(word[0] == 'd' ? &d->lora.dora : &d->lora.rslora) = true;
    d->list = KEY_NONE;
    return HR_OK;
  }
  if (k != KEY_NONE) {
    if (d->seen >> k & 1) return hri_fail(error, HR_ERROR_USAGE, "--lora: %s is given twice", keys[k]);
    d->seen |= 1u << k;
    d->list = k;
    return take(d, k, equals + 1, error);
  }
  if (is_list(d->list) && (!equals || is_expression(word))) return take(d, d->list, word, error);
  return not_understood(word, error);
}

/* Up to the next comma that stands in no bracket. */
static size_t word_length(const char *at) {
  size_t length = 0;
  int depth = 0;
  for (; at[length] && (at[length] != ',' || depth > 0); length++) {
    if (at[length] == '\\' && at[length + 1]) length++;
    else if (strchr("([{", at[length])) depth++;
    else if (strchr(")]}", at[length])) depth--;
  }
  return length;
}

/* What the words say together. */
static hr_status settle(draft *d, bool quantized, hr_error *error) {
  hri_lora_rule rules[2 * RULES] = {0};
  uint32_t ranks = d->counts[0], alphas = d->counts[1], bad;
  const char *fault;
  bool any = d->lora.embedding;
  for (uint32_t l = 0; l < d->model->layer_count; l++) any = any || d->lora.modules[l] != 0;
  if (!any && quantized) (void)hri_lora_add_target(d->model, "all-linear", &d->lora);
  else if (!any) default_targets(d->model, &d->lora);
  if (d->lora.embedding &&
      (d->seen >> KEY_LAYERS & 1)) /* as for PEFT, to which layers= would mean: not the embedding */
    return hri_fail(error, HR_ERROR_USAGE, "--lora: targets= names the embedding, and layers= only what is in layers");
  any = d->lora.embedding;
  for (uint32_t l = 0; l < d->model->layer_count; l++) {
    if ((d->seen >> KEY_LAYERS & 1) && !d->layers[l]) d->lora.modules[l] = 0;
    any = any || d->lora.modules[l] != 0;
  }
  if (!any) return hri_fail(error, HR_ERROR_USAGE, "--lora: targets= and layers= name no module together");
  memcpy(rules, d->rules[0], ranks * sizeof *rules);
  memcpy(rules + ranks, d->rules[1], alphas * sizeof *rules);
  fault = hri_lora_apply(d->model, &d->lora, rules, ranks, alphas, &bad);
  for (uint32_t k = 0; !fault && k < ranks + alphas; k++)
    if (!rules[k].used) bad = k, fault = "it matches no module that gets an adapter, or another entry before it does";
  if (!fault) return hri_lora_check(d->model, &d->lora, error);
  return hri_fail(error, HR_ERROR_USAGE, "--lora: %s=%.80s: %s",
                  keys[bad < ranks ? KEY_RANK_PATTERN : KEY_ALPHA_PATTERN], rules[bad].key, fault);
}

hr_status hri_lora_parse(const char *text, const hr_model *model, bool quantized, hr_lora *out, hr_error *error) {
  draft d = {.model = model, .lora = {.rank = DEFAULT_RANK, .alpha = DEFAULT_RANK}};
  for (const char *at = text; *at;) {
    char word[WORD_BYTES];
    size_t length = word_length(at);
    if (length == 0 || length >= sizeof word)
      return hri_fail(error, HR_ERROR_USAGE, "--lora: '%.60s' has an empty or overlong word", text);
    memcpy(word, at, length);
    word[length] = 0;
    HRI_TRY(take_word(&d, word, error));
    at += length;
    if (*at == ',' && !*++at) return hri_fail(error, HR_ERROR_USAGE, "--lora: '%.60s' ends in a comma", text);
  }
  HRI_TRY(settle(&d, quantized, error));
  *out = d.lora;
  return HR_OK;
}

/* ---- checks ---- */

hr_status hri_lora_check(const hr_model *model, const hr_lora *lora, hr_error *error) {
  char name[96];
  for (uint32_t l = 0; l < model->layer_count; l++)
    for (int k = 0; k < HR_MODULE_COUNT; k++)
      if ((lora->modules[l] >> k & 1) && !hri_module_name(model, (hr_module)k, -1, name))
        return hri_fail(error, HR_ERROR_USAGE, "--lora: a %s model has no module %d", hr_family_name(model->family), k);
  if (hri_lora_embedding_fault(lora))
    return hri_fail(error, HR_ERROR_USAGE, "--lora: %s", hri_lora_embedding_fault(lora));
  if (lora->rank > MOST_RANK || !(lora->alpha > 0) || !isfinite(lora->alpha) ||
      !(lora->dropout >= 0 && lora->dropout < 1))
    return hri_fail(error, HR_ERROR_USAGE, "--lora: rank %u, alpha %g, dropout %g make no adapter", lora->rank,
                    lora->alpha, lora->dropout);
  return HR_OK;
}
