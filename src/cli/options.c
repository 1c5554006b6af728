/* The options that are no fields of a job or a run; and where the values of all options lie. */
#include "cli/options.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "cli/text.h"

#define OWN(member) .home = HR_HOME_OTHER, .offset = offsetof(cli_settings, member)
#define OWN_PAIR(a, b) .home = HR_HOME_OTHER, .offset = offsetof(cli_settings, a), .second = offsetof(cli_settings, b)

static const char *const file_types[] = {"source", "f32", "f16", "bf16", "q8_0", NULL};
static const char *const block_kinds[] = {"none", "q8_0", "q6_K",   "q5_K", "q5_K_M", "q4_K", "q4_K_M",
                                          "q4_0", "nf4",  "nf4+dq", "fp4",  "fp4+dq", "int8", NULL};
static const char *const bases[] = {"original", "dequantized", NULL};
static const char *const colors[] = {"auto", "always", "never", NULL};
static const char *const purposes[] = {"train", "evaluate", "generate", NULL};
static const char *const dumps[] = {"program", NULL};
static const char *const engines[] = {"headroom",    "pytorch",         "pytorch:trainer",       "pytorch:plain",
                                      "pytorch:trl", "pytorch:axolotl", "pytorch:llama-factory", "pytorch:torchtune",
                                      NULL};
static const char *const group_kinds[] = {"stack", "category", "size", NULL};
static const char *const shells[] = {"bash", "zsh", "fish", NULL};
static const char *const tables[] = {"seq,micro-batch", "micro-batch,seq", NULL};
static const char *const instants[] = {"peak", "end", "oom", NULL};
const char *const export_names[] = {"chrome", "speedscope", "collapsed", "csv", "json", NULL};
static const uint64_t instant_values[] = {HR_AT_PEAK, HR_AT_END, HR_AT_OOM};

uint32_t options_numbers(const char *text, double *numbers, uint32_t most) {
  for (uint32_t count = 0; count < most;) {
    const size_t length = strcspn(text, ",");
    char one[64];
    if (length >= sizeof one) return 0;
    memcpy(one, text, length);
    one[length] = 0;
    if (hri_decimal_parse(one, &numbers[count++])) return 0;
    if (!text[length]) return count;
    text += length + 1;
  }
  return 0;
}

static const char *refuse_table(const char *text) {
  for (size_t k = 0; tables[k]; k++)
    if (strcmp(text, tables[k]) == 0) return NULL;
  return "not a pair of rows and columns";
}

static const char *refuse_weights(const char *text) {
  double weights[MAX_OPERANDS];
  return options_numbers(text, weights, MAX_OPERANDS) ? NULL : "no list of finite numbers with commas between them";
}

static const hr_field rows[] = {
    {"prompt", HR_FIELD_TEXT, "Generation", "TEXT",
     "what to continue, or to answer with --chat; token ids for models without a tokenizer", HR_FOR_GENERATE,
     OWN(prompt)},
    {"prompt-file", HR_FIELD_PATH, "Generation", "FILE", "the same from a file, - for standard input", HR_FOR_GENERATE,
     OWN(prompt_file)},
    {"chat", HR_FIELD_FLAG, "Generation", NULL,
     "the prompt is a user's message: put it into the model's chat template and answer it", HR_FOR_GENERATE, OWN(chat)},
    {"system", HR_FIELD_TEXT, "Generation", "TEXT", "a system message before it", HR_FOR_GENERATE | HR_FOR_CHAT,
     OWN(system)},
    {"render", HR_FIELD_FLAG, "Generation", NULL,
     "print what the chat template makes of the conversation, on standard error, before it is answered",
     HR_FOR_GENERATE | HR_FOR_CHAT, OWN(render)},
    {"max-tokens", HR_FIELD_U64, "Generation", "N",
     "new tokens at most (chat: of an answer; as many as the context holds unless it is given)",
     HR_FOR_GENERATE | HR_FOR_CHAT, OWN(max_tokens), .least = 1, .initial = "128"},
    {"stop", HR_FIELD_PATHS, "Generation", "TEXT",
     "end before this text (\\n, \\t, \\xHH and \\\\ name bytes); may be given several times",
     HR_FOR_GENERATE | HR_FOR_CHAT, OWN_PAIR(stop, stop_count), .one_each = true},
    {"temperature", HR_FIELD_NUMBER, "Generation", "X", "0: always the most likely token",
     HR_FOR_GENERATE | HR_FOR_CHAT, OWN(temperature), .low = 0, .high = INFINITY, .initial = "0.8"},
    {"top-k", HR_FIELD_U32, "Generation", "N", "sample among the N most likely tokens", HR_FOR_GENERATE | HR_FOR_CHAT,
     OWN(top_k), .initial = "0", .zero = "off"},
    {"top-p", HR_FIELD_NUMBER, "Generation", "X", "sample among the most likely tokens that make up the share X",
     HR_FOR_GENERATE | HR_FOR_CHAT, OWN(top_p), .low = 0, .high = 1, .above_low = true, .initial = "1"},
    {"min-p", HR_FIELD_NUMBER, "Generation", "X",
     "leave out tokens less likely than X times the most likely one (0: none)", HR_FOR_GENERATE | HR_FOR_CHAT,
     OWN(min_p), .low = 0, .high = 1, .initial = "0"},
    {"repetition-penalty", HR_FIELD_NUMBER, "Generation", "X",
     "divide the scores of tokens that occurred by X, multiply negative ones (1: off)", HR_FOR_GENERATE | HR_FOR_CHAT,
     OWN(repetition_penalty), .low = 0, .high = INFINITY, .above_low = true, .initial = "1"},

    {"for", HR_FIELD_CHOICE, "Plan", "WHAT", "the command to plan", HR_FOR_PLAN, OWN(purpose), .words = purposes,
     .initial = "train"},
    {"fixes", HR_FIELD_FLAG, "Plan", NULL, "plan alternatives and list them (on by default when the job does not fit)",
     HR_FOR_PLAN, OWN(fixes), .zero = "on when the job does not fit"},
    {"table", HR_FIELD_NAME, "Plan", "ROWS,COLUMNS", "memory over two of them: seq,micro-batch or micro-batch,seq",
     HR_FOR_PLAN, OWN(table), .suggested = tables, .refuses = refuse_table, .remedy = "--table seq,micro-batch"},
    {"timeline", HR_FIELD_FLAG, "Plan", NULL, "memory over the course of the job", HR_FOR_PLAN, OWN(timeline)},
    {"dump", HR_FIELD_WORD, "Plan", "WHAT", "program: every program, node, tensor and storage", HR_FOR_PLAN, OWN(dump),
     .words = dumps},
    {"engine", HR_FIELD_WORD, "Plan", "NAME",
     "whose memory: headroom's, or what PyTorch would need for the job, run by transformers' Trainer (pytorch), a loop "
     "of one's own (pytorch:plain), or pytorch:trl, axolotl, llama-factory with their defaults, or a recipe of torchtune's (pytorch:torchtune)",
     HR_FOR_PLAN, OWN(engine), .words = engines, .initial = "headroom"},
    {"engine-conf", HR_FIELD_TEXT, "Plan", "TEXT",
     "--engine pytorch: settings that no option of a job stands for, by the names of TrainingArguments (of torchtune's configurations): "
     "optim=paged_adamw_8bit,use_reentrant=true (docs/pytorch.md)",
     HR_FOR_PLAN, OWN(engine_conf)},
    {"ranks", HR_FIELD_U32, "Plan", "N",
     "--engine pytorch: so many processes with a GPU each, which share the job by DistributedDataParallel, or as "
     "--engine-conf says; the plan is of one of them",
     HR_FOR_PLAN, OWN(ranks), .least = 1, .initial = "1"},
    {"snapshot", HR_FIELD_PATH, "Plan", "FILE",
     "--engine pytorch: write its two steps as a memory snapshot, for PyTorch's viewer and `headroom inspect`",
     HR_FOR_PLAN, OWN(snapshot)},
    {"fail-over", HR_FIELD_SIZE, "Plan", "SIZE", "exit 3 when the job needs more than SIZE (for CI)", HR_FOR_PLAN,
     OWN_PAIR(fail_over_bytes, fail_over_share)},

    {"probe", HR_FIELD_FLAG, "Probe", NULL,
     "measure the CPU for a team of --threads, or with NAME cuda a GPU; plans then use it", HR_FOR_DEVICES, OWN(probe),
     .flag_only = true},
    {"probe-seconds", HR_FIELD_NUMBER, "Probe", "X", "about how long to measure; below 5 is for a rough look",
     HR_FOR_DEVICES, OWN(probe_seconds), .low = 0, .high = INFINITY, .above_low = true, .initial = "30"},

    {"model", HR_FIELD_TEXT, "Report", "MODEL",
     "data: a directory, GGUF file or preset, for its tokenizer and chat template (bytes are tokens without one); "
     "explain: a directory, GGUF file or preset whose job is planned (with the options of a job) for the failing device",
     HR_FOR_DATA | HR_FOR_EXPLAIN, OWN(model)},
    {"examples", HR_FIELD_U64, "Report", "N", "documents to show, with what does not count", HR_FOR_DATA, OWN(examples),
     .initial = "3", .zero = "none"},

    {"decode", HR_FIELD_FLAG, "Tokens", NULL, "the file holds token ids; print their text", HR_FOR_TOKENIZE,
     OWN(decode)},
    {"tokens", HR_FIELD_FLAG, "Tokens", NULL,
     "each token on a line: id, bytes of the text, those bytes, the token as the tokenizer has it", HR_FOR_TOKENIZE,
     OWN(tokens)},
    {"stats", HR_FIELD_FLAG, "Tokens", NULL, "bytes, tokens, bytes per token and speed instead of ids", HR_FOR_TOKENIZE,
     OWN(stats)},
    {"special", HR_FIELD_FLAG, "Tokens", NULL,
     "on by default; --no-special: without the tokens that the tokenizer puts around a text, and text without special "
     "tokens",
     HR_FOR_TOKENIZE, OWN(special), .initial = "true"},

    {"at", HR_FIELD_U64, "Snapshot", "WHEN",
     "the instant to look at: peak, end, oom (the last failure, else the peak), or after so many events",
     HR_FOR_INSPECT, OWN(at), .words = instants, .word_values = instant_values, .number = "a number of events",
     .remedy = "--at peak", .initial = "oom"},
    {"top", HR_FIELD_U32, "Snapshot", "N", "rows of each list", HR_FOR_INSPECT, OWN(top), .least = 1, .initial = "10"},
    {"by", HR_FIELD_CHOICE, "Snapshot", "WHAT", "what live tensors are grouped by (else by category and by stack)",
     HR_FOR_INSPECT, OWN(by), .words = group_kinds},
    {"wide", HR_FIELD_FLAG, "Snapshot", NULL, "lines of any length, with more of each stack", HR_FOR_INSPECT,
     OWN(wide)},
    {"html", HR_FIELD_PATH, "Snapshot", "OUT", "write a report for a browser, one file that needs no network",
     HR_FOR_INSPECT, OWN(html)},
    {"export", HR_FIELD_PATHS, "Snapshot", "FORMAT OUT",
     "write chrome (trace), speedscope or collapsed (the live set as a flame graph), csv or json (all events)",
     HR_FOR_INSPECT, OWN_PAIR(export, export_count), .suggested = export_names},
    {"verify", HR_FIELD_FLAG, "Snapshot", NULL, "a run directory: read every file and compare it with its digest",
     HR_FOR_INSPECT, OWN(verify)},

    {"type", HR_FIELD_WORD, "Conversion", "TYPE",
     "of the weights; source: as they are, f16 for blocks with a scale (q8_0: GGUF only)",
     HR_FOR_CONVERT | HR_FOR_MERGE, OWN(type), .words = file_types, .initial = "source"},
    {"quantize", HR_FIELD_WORD, "Conversion", "KIND",
     "q8_0 to q4_0: a GGUF file with all matrices in such blocks, _M with some in more bits, as llama.cpp mixes them; also of "
     "another GGUF file. nf4, fp4, int8, and +dq: a directory as bitsandbytes has it",
     HR_FOR_CONVERT, OWN(quantized), .words = block_kinds, .initial = "none"},
    {"without-tokenizer", HR_FIELD_FLAG, "Conversion", NULL, "leave tokenizer and chat template out", HR_FOR_CONVERT,
     OWN(without_tokenizer)},
    {"force", HR_FIELD_FLAG, "Conversion", NULL, "let what stands at the target give way, once the new one is whole",
     HR_FOR_CONVERT | HR_FOR_MERGE, OWN(force)},
    {"onto", HR_FIELD_WORD, "Merge", "WHAT",
     "original: the weights in the model's files; dequantized: what is left of them behind --quantize and back, beside "
     "which the adapter was trained (without --quantize: as the adapter says)",
     HR_FOR_MERGE, OWN(onto), .words = bases, .initial = "original"},
    {"weights", HR_FIELD_NAME, "Merge", "X,X", "one factor for each adapter, in their order (without it 1 for all)",
     HR_FOR_MERGE, OWN(weights), .refuses = refuse_weights, .remedy = "--weights 0.7,0.3"},

    {"alloc-conf", HR_FIELD_TEXT, "Replay", "TEXT",
     "settings as in PYTORCH_ALLOC_CONF (\"\": PyTorch's defaults); plan: with --engine pytorch",
     HR_FOR_REPLAY | HR_FOR_PLAN, OWN(alloc_conf)},
    {"search", HR_FIELD_FLAG, "Replay", NULL, "try a set of settings and sort them, the best first", HR_FOR_REPLAY,
     OWN(search)},
    {"capacity", HR_FIELD_SIZE, "Replay", "SIZE", "what the allocator may reserve", HR_FOR_REPLAY, OWN(capacity_bytes),
     .zero = "from the recorded failure, else no limit"},
    {"empty-start", HR_FIELD_FLAG, "Replay", NULL,
     "begin with an empty allocator whatever was live before the first event", HR_FOR_REPLAY, OWN(empty_start)},
    {"trace", HR_FIELD_U32, "Replay", "N", "the device to replay, by its place in the snapshot", HR_FOR_REPLAY,
     OWN(trace), .zero = "that which failed, else the one with most events"},

    {"max-memory", HR_FIELD_SIZE, "Report", "SIZE",
     "what reading the file and working on it may take: 6GiB, 6GB, bytes, or a share of what this process can still get; "
     "beyond it exit 5",
     HR_FOR_INSPECT | HR_FOR_EXPLAIN | HR_FOR_REPLAY, OWN_PAIR(max_memory_bytes, max_memory_share), .initial = "50%"},

    {"log-json", HR_FIELD_PATH, "Results", "FILE",
     "write each line of metrics.jsonl as it comes to FILE, - for standard output", HR_FOR_TRAIN, OWN(log_json),
     .flag_only = true},
    {"tensorboard", HR_FIELD_PATH, "Results", "[DIR]",
     "write event files for TensorBoard (RUN/tensorboard without DIR)", HR_FOR_TRAIN, OWN(tensorboard),
     .alone = "RUN/tensorboard", .flag_only = true},
    {"metrics-file", HR_FIELD_PATH, "Results", "FILE",
     "keep the latest figures in FILE as Prometheus' textfile collector reads them (replaced as a whole)", HR_FOR_TRAIN,
     OWN(metrics_file), .flag_only = true},

    {"recipe", HR_FIELD_PATH, "General", "FILE", "YAML file with the same keys as these options, and model",
     HR_FOR_JOBS, OWN(recipe)},
    {"show-config", HR_FIELD_FLAG, "General", NULL, "print every value and where it comes from, and stop", HR_FOR_JOBS,
     OWN(show_config), .flag_only = true},
    {"json", HR_FIELD_FLAG, "General", NULL, "print the result as JSON", HR_FOR_ALL & ~HR_FOR_HELP & ~HR_FOR_CHAT,
     OWN(json)},
    {"quiet", HR_FIELD_FLAG, "General", NULL, "only results, warnings and errors (-q)", HR_FOR_JOBS, OWN(quiet)},
    {"color", HR_FIELD_CHOICE, "General", "WHEN", "colour on terminals, always or never (NO_COLOR is respected)",
     HR_FOR_ALL, OWN(color), .words = colors, .initial = "auto"},
    {"man", HR_FIELD_FLAG, "General", NULL, "print the manual page (roff)", HR_FOR_HELP, OWN(man), .flag_only = true},
    {"completion", HR_FIELD_WORD, "General", "SHELL", "print the completion script of a shell", HR_FOR_HELP,
     OWN(completion), .words = shells, .flag_only = true},
    {"help", HR_FIELD_FLAG, "General", NULL, "describe the command (-h)", HR_FOR_ALL, OWN(help), .flag_only = true},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- all options ---- */

uint32_t option_count(void) { return hr_field_count() + ROWS; }

void options_grouped(option_id order[MAX_OPTIONS]) {
  uint32_t used = 0;
  bool taken[MAX_OPTIONS] = {false};
  for (option_id first = 0; first < option_count(); first++) {
    if (taken[first]) continue;
    for (option_id id = first; id < option_count(); id++) {
      if (strcmp(option_get(id)->group, option_get(first)->group) != 0) continue;
      order[used++] = id;
      taken[id] = true;
    }
  }
  assert(used == option_count());
}
const hr_field *option_get(option_id id) {
  return id < hr_field_count() ? hr_field_get(id) : &rows[id - hr_field_count()];
}

option_id option_find(const char *name, bool positional, unsigned command) {
  option_id found = option_count();
  for (option_id id = 0; id < option_count(); id++) {
    const hr_field *o = option_get(id);
    if (strcmp(o->name, name) != 0 || (!positional && o->positional)) continue;
    if (o->commands & command) return id;
    if (found == option_count()) found = id;
  }
  return found;
}

static const void *home_of(const cli_config *config, const hr_field *o) {
  if (o->home == HR_HOME_JOB) return o->as_asked && config->job_ready ? &config->asked : &config->job;
  return o->home == HR_HOME_RUN ? (const void *)&config->run : &config->own;
}

option_id option_at(const cli_config *config, const void *member) {
  const char *const homes[] = {[HR_HOME_JOB] = (const char *)&config->job,
                               [HR_HOME_RUN] = (const char *)&config->run,
                               [HR_HOME_OTHER] = (const char *)&config->own};
  option_id id = 0;
  while (id < option_count() && homes[option_get(id)->home] + option_get(id)->offset != (const char *)member) id++;
  assert(id < option_count()); /* the member has no row */
  return id;
}

/* ---- values ---- */

static void clear(setting *s) {
  free(s->text);
  for (uint32_t i = 0; i < s->list_count; i++) free(s->list[i]);
  free(s->list);
  *s = (setting){0};
}

/* Keeps what a value borrows. */
static void own_texts(const hr_field *o, setting *s, hr_value *value) {
  if (o->kind == HR_FIELD_TEXT || o->kind == HR_FIELD_NAME || o->kind == HR_FIELD_PATH)
    value->text = s->text = text_copy(value->text, strlen(value->text));
  if (o->kind != HR_FIELD_PATHS) return;
  s->list = text_grow(s->list, (s->list_count + 1) * sizeof *s->list);
  s->list[s->list_count++] = text_copy(value->text, strlen(value->text));
  value->list = (const char *const *)s->list;
  value->list_count = s->list_count;
}

hr_status config_set(cli_config *config, option_id id, const char *text, origin from, const char *place,
                     hr_error *error) {
  const hr_field *o = option_get(id);
  setting *s = &config->settings[id];
  bool more = o->kind == HR_FIELD_PATHS && s->origin == from;
  hr_value value;
  hr_status status = hr_field_read(o, text, place, &value, error);
  if (status != HR_OK || s->origin > from)
    return status; /* a weaker origin is read all the same, so that mistakes show */
  if (!more) clear(s);
  own_texts(o, s, &value);
  s->origin = from;
  (void)snprintf(s->place, sizeof s->place, "%s", place);
  hr_field_store(o, &value, (void *)(uintptr_t)home_of(config, o));
  return HR_OK;
}

void config_init(cli_config *config, unsigned command) {
  hr_error error;
  assert(option_count() <= MAX_OPTIONS);
  memset(config, 0, sizeof *config);
  config->command = command;
  hr_job_init(&config->job);
  hr_run_options_init(&config->run);
  for (option_id id = 0; id < option_count(); id++) {
    const hr_field *o = option_get(id);
    bool counts = o->kind == HR_FIELD_U32 || o->kind == HR_FIELD_U64;
    hr_status status = o->initial ? config_set(config, id, o->initial, ORIGIN_DEFAULT, "", &error) : HR_OK;
    assert(status == HR_OK); /* else its own row refuses a default */
    (void)status;
    if (o->kind == HR_FIELD_FLAG || (counts && o->zero)) config->settings[id].origin = ORIGIN_DEFAULT;
  }
}

void config_deinit(cli_config *config) {
  for (option_id id = 0; id < option_count(); id++) clear(&config->settings[id]);
}

/* ---- the job ---- */

static void warn_unread(const char *source, const char *keys) {
  char text[HR_ERROR_MESSAGE_BYTES];
  if (!keys[0]) return;
  (void)snprintf(text, sizeof text, "%.200s: not understood, and left out of account: %s", source, keys);
  screen_say(stderr, STYLE_WARN, "warning:", text);
}

static hr_status open_model(cli_config *config, hr_error *error) {
  const char *source = config->run.model_source;
  if (source && source[0]) {
    HRI_TRY(hr_model_open(source, &config->job.model, error));
    warn_unread(source, config->job.model.unread_keys);
    return HR_OK;
  }
  hri_fail(error, HR_ERROR_USAGE, "no MODEL is given");
  if (config->run.data_path_count > 1)
    return hri_hint(error, HR_ERROR_USAGE, "put MODEL first; --data takes all that follows it");
  return hri_hint(error, HR_ERROR_USAGE, "a preset such as gpt2-124m, a directory, or a config.json");
}

hr_status config_job(cli_config *config, hr_purpose purpose, hr_error *error) {
  hr_job *job = &config->job;
  hr_status status = open_model(config, error);
  if (status != HR_OK) return status;
  job->purpose = purpose;
  job->with_generation = purpose == HR_PURPOSE_TRAIN && config->run.sample_prompt;
  for (option_id id = 0; id < option_count(); id++)
    if (config->settings[id].origin > ORIGIN_DEFAULT && (option_get(id)->commands & config->command))
      job->given |= option_get(id)->given;
  config->asked = *job;
  status = hr_job_finish(job, error);
  config->job_ready = status == HR_OK;
  return status;
}

/* ---- values as text ---- */

void config_value(const cli_config *config, option_id id, hr_value *value) {
  hr_field_load(option_get(id), home_of(config, option_get(id)), value);
}

char *config_value_text(const cli_config *config, option_id id, char out[OPTION_VALUE_BYTES]) {
  hr_value value;
  out[0] = 0;
  if (config->settings[id].origin == ORIGIN_UNSET) return out;
  config_value(config, id, &value);
  return hr_field_text(option_get(id), &value, out, OPTION_VALUE_BYTES);
}
