/* The option table, and what turns one text into one value. */
#include "cli/options.h"

#include <stdlib.h>
#include <string.h>

#include "cli/text.h"

#define OF(n, k, c, g, o, h) .name = n, .kind = k, .commands = c, .group = g, .operand = o, .help = h
#define FIELD(k, member) .field = k, .offset = offsetof(hr_job, member)

_Static_assert(sizeof(hr_optimizer) == sizeof(unsigned) && sizeof(hr_packing) == sizeof(unsigned),
               "FIELD_ENUM copies an unsigned");

#define WORD(id, word) word,
static const char *const optimizers[] = {HR_OPTIMIZERS(WORD) NULL};
#undef WORD
static const char *const precisions[] = {"fp32", "bf16", "bf16-pure", NULL};
static const char *const moments[] = {"fp32", "bf16", NULL};
static const char *const weight_packings[] = {"auto", "off", "transient", "persistent", NULL};
static const char *const attentions[] = {"flash", "materialized", NULL};
static const char *const updates[] = {"after", "in-backward", NULL};
static const char *const on_nonfinites[] = {"stop", "skip", NULL};
static const char *const schedules[] = {"constant", "linear", "cosine", "wsd", NULL};
static const char *const packings[] = {"pack", "off", "wrapped", NULL};
static const char *const formats[] = {"auto", "text", "lines", "text-field", "prompt-completion", "messages", "sharegpt", "alpaca", "tokens", "nanogpt", "llmc", NULL};
static const char *const loss_scopes[] = {"auto", "all", "assistant", "completion", NULL};
static const char *const truncations[] = {"split", "keep-start", "keep-end", "drop", NULL};
static const char *const dtypes[] = {"source", "f32", "bf16", "f16", NULL};
static const char *const file_types[] = {"source", "f32", "f16", "bf16", "q8_0", NULL};
static const char *const colors[] = {"auto", "always", "never", NULL};
static const char *const purposes[] = {"train", "evaluate", "generate", NULL};
static const char *const dumps[] = {"program", NULL};
static const char *const group_kinds[] = {"stack", "category", "size", NULL}; /* in the order of hr_group_by */
static const char *const shells[] = {"bash", NULL};

enum { PT = FOR_PLAN | FOR_TRAIN, PTE = PT | FOR_EVALUATE, TED = FOR_TRAIN | FOR_EVALUATE | FOR_DATA };

static const option options[OPTION_COUNT] = {
    [OPTION_MODEL] = {OF("model", KIND_TEXT, FOR_JOBS, "Job", "MODEL",
                         "a preset (gpt2-124m, llama-2-7b, qwen3-8b, ...), a Hugging Face directory, a config.json or a GGUF file"),
                      .positional = true},

    [OPTION_SEQ] = {OF("seq", KIND_COUNT, PTE | FOR_DATA | FOR_EXPLAIN, "Job", "N", "tokens per row"), FIELD(FIELD_U32, sequence_length),
                    .low = 1, .given = HR_GIVEN_SEQUENCE, .zero = "the model's positions, at most 1024"},
    [OPTION_MICRO_BATCH] = {OF("micro-batch", KIND_COUNT, PTE | FOR_EXPLAIN, "Job", "N", "rows per micro-step"),
                            FIELD(FIELD_U32, micro_batch), .low = 1, .given = HR_GIVEN_MICRO_BATCH},
    [OPTION_ACCUMULATE] = {OF("accumulate", KIND_COUNT, PT | FOR_EXPLAIN, "Job", "N", "micro-steps per optimizer step"),
                           FIELD(FIELD_U32, accumulate), .low = 1, .given = HR_GIVEN_ACCUMULATE},
    [OPTION_BATCH_TOKENS] = {OF("batch-tokens", KIND_COUNT, PT, "Job", "N",
                                "tokens per optimizer step; sets --accumulate to N / (seq x micro-batch)"),
                             .low = 1, .given = HR_GIVEN_BATCH_TOKENS},
    [OPTION_DEVICE] = {OF("device", KIND_WORD, FOR_JOBS | FOR_EXPLAIN | FOR_INSPECT, "Job", "NAME",
                          "cpu, or a name of `headroom devices` (plan only); inspect: whose trace, 0 or cuda:0 (else the longest)"),
                       .initial = "cpu"},
    [OPTION_BUDGET] = {OF("budget", KIND_SIZE, FOR_JOBS | FOR_EXPLAIN, "Job", "SIZE",
                          "memory that the job may use: 6GiB, 6GB, bytes, or 90% of what is usable"),
                       .zero = "what is usable now"},
    [OPTION_PRECISION] =
        {OF("precision", KIND_CHOICE, FOR_JOBS | FOR_EXPLAIN, "Job", "TYPE",
            "fp32; bf16: with fp32 master weights; bf16-pure: without, the update rounds stochastically"),
         .choices = precisions, FIELD(FIELD_ENUM, precision), .given = HR_GIVEN_PRECISION},
    [OPTION_WEIGHT_PACKING] =
        {OF("weight-packing", KIND_CHOICE, PT, "Job", "WHEN",
            "weights rearranged for faster products: before each use (transient), once per step for all its "
            "micro-steps (persistent), where it pays (auto), or off"),
         .choices = weight_packings, FIELD(FIELD_ENUM, weight_packing), .given = HR_GIVEN_WEIGHT_PACKING},
    [OPTION_RECOMPUTE] = {OF("recompute", KIND_WORD, PT | FOR_EXPLAIN, "Job", "HOW",
                             "what the backward makes again instead of keeping it: none, selective (norms, "
                             "activations), auto (per layer, for the budget), block, every:K, sqrt, "
                             "levels:keep*4,cheap*8,..."),
                          .given = HR_GIVEN_RECOMPUTE},
    [OPTION_ATTENTION] =
        {OF("attention", KIND_CHOICE, PTE | FOR_EXPLAIN, "Job", "HOW",
            "flash: memory linear in the sequence; materialized: the score matrices, to show the difference"),
         .choices = attentions, FIELD(FIELD_ENUM, attention), .given = HR_GIVEN_ATTENTION},
    [OPTION_LOSS_CHUNK] = {OF("loss-chunk", KIND_CHUNK, PTE | FOR_EXPLAIN, "Job", "N",
                              "tokens whose logits exist at a time: auto, off or a number"),
                           FIELD(FIELD_U32, loss_chunk), .given = HR_GIVEN_LOSS_CHUNK},
    [OPTION_THREADS] = {OF("threads", KIND_COUNT, FOR_JOBS | FOR_DEVICES, "Job", "N", "CPU threads; part of the plan"),
                        FIELD(FIELD_U32, threads), .low = 1, .given = HR_GIVEN_THREADS, .zero = "the physical cores allowed"},
    [OPTION_AUTO] = {OF("auto", KIND_FLAG, PT, "Job", NULL,
                        "let the planner choose what was not given, to fit the budget in the least time"),
                     FIELD(FIELD_BOOL, automatic)},
    [OPTION_CHECK] = {OF("check", KIND_FLAG, FOR_JOBS, "Job", NULL,
                         "poison dead memory and verify guard zones while running"),
                      FIELD(FIELD_BOOL, check)},
    [OPTION_CONTEXT] = {OF("context", KIND_COUNT, FOR_PLAN | FOR_GENERATE, "Job", "N",
                           "tokens that the KV cache holds, prompt and new ones"),
                        FIELD(FIELD_U32, context_length), .low = 1,
                        .zero = "prompt + --max-tokens; for a plan the sequence length"},

    [OPTION_OPTIMIZER] = {OF("optimizer", KIND_CHOICE, PT | FOR_EXPLAIN, "Optimizer", "NAME", "how gradients change the weights"),
                          .choices = optimizers, FIELD(FIELD_ENUM, optimizer), .given = HR_GIVEN_OPTIMIZER},
    [OPTION_MOMENTS] = {OF("moments", KIND_CHOICE, PT | FOR_EXPLAIN, "Optimizer", "TYPE",
                           "of optimizer states; bf16 (rounded stochastically) goes with --precision bf16-pure"),
                        .choices = moments, FIELD(FIELD_ENUM, moments)},
    [OPTION_BETAS] = {OF("betas", KIND_BETAS, PT, "Optimizer", "B1,B2", "decay rates of AdamW's two averages")},
    [OPTION_EPS] = {OF("eps", KIND_NUMBER, PT, "Optimizer", "X", "AdamW's epsilon"), FIELD(FIELD_DOUBLE, epsilon)},
    [OPTION_WEIGHT_DECAY] = {OF("weight-decay", KIND_NUMBER, PT, "Optimizer", "X",
                                "decay of matrices and embeddings (not of biases and norms)"),
                             FIELD(FIELD_DOUBLE, weight_decay)},
    [OPTION_MOMENTUM] = {OF("momentum", KIND_NUMBER, PT, "Optimizer", "X", "of --optimizer momentum"),
                         FIELD(FIELD_DOUBLE, momentum)},
    [OPTION_UPDATE] = {OF("update", KIND_CHOICE, PT | FOR_EXPLAIN, "Optimizer", "WHEN",
                          "after the backward, or in-backward, which lets gradients die early"),
                       .choices = updates, FIELD(FIELD_ENUM, update), .given = HR_GIVEN_UPDATE},
    [OPTION_LR] = {OF("lr", KIND_NUMBER, PT, "Optimizer", "X", "learning rate at its highest"),
                   FIELD(FIELD_DOUBLE, learning_rate)},
    [OPTION_SCHEDULE] = {OF("schedule", KIND_CHOICE, PT, "Optimizer", "NAME", "course of the learning rate"),
                         .choices = schedules, FIELD(FIELD_ENUM, schedule)},
    [OPTION_WARMUP] = {OF("warmup", KIND_NUMBER, PT, "Optimizer", "X",
                          "steps of linear warm-up, or a share of the steps when below 1"),
                       FIELD(FIELD_DOUBLE, warmup)},
    [OPTION_DECAY] = {OF("decay", KIND_NUMBER, PT, "Optimizer", "X",
                         "wsd: steps of the final decay, or a share when below 1"),
                      FIELD(FIELD_DOUBLE, decay)},
    [OPTION_MIN_LR_RATIO] = {OF("min-lr-ratio", KIND_NUMBER, PT, "Optimizer", "X",
                                "floor of the schedule as a share of --lr"),
                             FIELD(FIELD_DOUBLE, min_lr_ratio)},
    [OPTION_CLIP] = {OF("clip", KIND_NUMBER, PT | FOR_EXPLAIN, "Optimizer", "X",
                        "largest global gradient norm; 0 turns clipping off"),
                     FIELD(FIELD_DOUBLE, clip), .given = HR_GIVEN_CLIP},
    [OPTION_ON_NONFINITE] = {OF("on-nonfinite", KIND_CHOICE, PT, "Optimizer", "WHAT",
                                "a step whose loss or gradients are infinite or NaN: stop the run, or skip the step, which "
                                "leaves weights and optimizer states as they are"),
                             .choices = on_nonfinites, FIELD(FIELD_ENUM, on_nonfinite)},
    [OPTION_MAX_SKIPPED] = {OF("max-skipped", KIND_COUNT, PT, "Optimizer", "N", "steps in a row that may be skipped before the run stops"),
                            FIELD(FIELD_U32, max_skipped), .low = 1},
    [OPTION_STEPS] = {OF("steps", KIND_COUNT, PT, "Optimizer", "N", "optimizer steps"), FIELD(FIELD_U64, steps),
                      .low = 1, .zero = "from --epochs"},
    [OPTION_EPOCHS] = {OF("epochs", KIND_NUMBER, PT, "Optimizer", "X",
                          "passes over the data, when --steps is not given"),
                       FIELD(FIELD_DOUBLE, epochs)},
    [OPTION_SEED] = {OF("seed", KIND_COUNT, PT | FOR_GENERATE, "Optimizer", "N",
                        "of initial weights, row order and sampling"),
                     FIELD(FIELD_U64, seed)},

    [OPTION_DATA] = {OF("data", KIND_PATHS, FOR_TRAIN | FOR_EVALUATE, "Data", "PATH...",
                        "files or directories: text, JSONL or JSON rows, token bins")},
    [OPTION_EVAL_DATA] = {OF("eval-data", KIND_PATHS, FOR_TRAIN, "Data", "PATH...",
                             "held-back files, evaluated while training")},
    [OPTION_EVAL_EVERY] = {OF("eval-every", KIND_COUNT, FOR_TRAIN, "Data", "N", "steps between evaluations"),
                           .initial = "0", .zero = "at the end"},
    [OPTION_EVAL_BATCHES] = {OF("eval-batches", KIND_COUNT, FOR_TRAIN | FOR_EVALUATE, "Data", "N",
                                "batches per evaluation at most"),
                             .initial = "0", .zero = "all"},
    [OPTION_FORMAT] = {OF("format", KIND_CHOICE, TED, "Data", "NAME", "what the files hold; auto looks at each one"),
                       .initial = "auto", .choices = formats},
    [OPTION_DOCUMENT_SEPARATOR] = {OF("document-separator", KIND_TEXT, TED, "Data", "TEXT",
                                      "where documents of a text file end (\\n, \\t, \\\\, \\xHH are understood); "
                                      "without it a file is one document")},
    [OPTION_CHAT_TEMPLATE] = {OF("chat-template", KIND_TEXT, TED | FOR_GENERATE, "Data", "PRESET|FILE",
                                 "chat template of conversations: a preset (chatml, llama3, ...) or a Jinja file, instead of the model's")},
    [OPTION_LOSS] = {OF("loss", KIND_CHOICE, TED, "Data", "WHAT",
                        "labels that count: auto (completions, the assistant's turns, all of text), all, assistant, or "
                        "completion (the last answer)"),
                     .initial = "auto", .choices = loss_scopes},
    [OPTION_TRUNCATE] = {OF("truncate", KIND_CHOICE, TED, "Data", "HOW",
                            "documents longer than a row: split over rows, shortened to their start or end, or left out"),
                         .initial = "split", .choices = truncations},
    [OPTION_SKIP_BAD] = {OF("skip-bad", KIND_FLAG, TED, "Data", NULL,
                            "pass over broken rows, name the first and count them, instead of refusing the file")},
    [OPTION_DATA_CACHE] = {OF("data-cache", KIND_PATH, TED, "Data", "DIR",
                              "keep tokenized data in DIR, and find it again (train: RUN/data-cache unless given)")},
    [OPTION_SHUFFLE] = {OF("shuffle", KIND_FLAG, PT, "Data", NULL,
                           "shuffle the rows instead of keeping the order of the files"),
                        FIELD(FIELD_BOOL, shuffle)},
    [OPTION_PACKING] = {OF("packing", KIND_CHOICE, PTE, "Data", "HOW",
                           "pack: several whole documents in a row, by best fit; wrapped: one behind the other, cut where "
                           "a row ends; off: one. Documents do not see each other"),
                        .choices = packings, FIELD(FIELD_ENUM, packing)},

    [OPTION_OUT] = {OF("out", KIND_PATH, FOR_TRAIN, "Results", "RUN",
                       "run directory to write (default with --resume: that run)")},
    [OPTION_SAVE_EVERY] = {OF("save-every", KIND_COUNT, FOR_TRAIN, "Results", "N", "steps between checkpoints"),
                           .initial = "0", .zero = "only at the end"},
    [OPTION_KEEP] = {OF("keep", KIND_COUNT, FOR_TRAIN, "Results", "N", "newest checkpoints to keep besides the best"),
                     .initial = "0", .zero = "all"},
    [OPTION_SAVE_DTYPE] = {OF("save-dtype", KIND_CHOICE, FOR_TRAIN, "Results", "TYPE",
                              "of RUN/final; source: as loaded, f32 from scratch"),
                           .initial = "source", .choices = dtypes},
    [OPTION_RESUME] = {OF("resume", KIND_PATH, FOR_TRAIN, "Results", "RUN",
                          "go on from the newest checkpoint of a run; model, data and every option come from it unless given")},
    [OPTION_FROM] = {OF("from", KIND_WORD, FOR_TRAIN, "Results", "step-N", "with --resume: go on from this checkpoint instead; later ones are moved aside")},
    [OPTION_ALLOW_DIFFERENT] = {OF("allow-different", KIND_WORD, FOR_TRAIN, "Results", "NAME,...",
                                   "with --resume: what may differ from the run although it changes the result (lr, data, steps, ...)")},
    [OPTION_SAME_BITS] = {OF("same-bits", KIND_FLAG, FOR_TRAIN, "Results", NULL,
                             "with --resume: refuse where bits may differ (another instruction set, library, version, number of threads)")},
    [OPTION_SAMPLE] = {OF("sample", KIND_TEXT, PT, "Results", "TEXT",
                          "continue TEXT after each evaluation; the plan then holds generation too")},
    [OPTION_PROFILE] = {OF("profile", KIND_PATH, FOR_TRAIN, "Results", "FILE",
                           "time every node and write a trace (JSON, for Perfetto) at the end")},
    [OPTION_RECORD_MEMORY] = {OF("record-memory", KIND_FLAG, FOR_TRAIN, "Results", NULL,
                                 "write the last steps' memory as a snapshot, RUN/memory/snapshot.pickle.gz")},

    [OPTION_PROMPT] = {OF("prompt", KIND_TEXT, FOR_GENERATE, "Generation", "TEXT",
                          "what to continue, or to answer with --chat; token ids for models without a tokenizer")},
    [OPTION_PROMPT_FILE] = {OF("prompt-file", KIND_PATH, FOR_GENERATE, "Generation", "FILE",
                               "the same from a file, - for standard input")},
    [OPTION_CHAT] = {OF("chat", KIND_FLAG, FOR_GENERATE, "Generation", NULL,
                        "the prompt is a user's message: put it into the model's chat template and answer it")},
    [OPTION_SYSTEM] = {OF("system", KIND_TEXT, FOR_GENERATE, "Generation", "TEXT", "a system message before it")},
    [OPTION_MAX_TOKENS] = {OF("max-tokens", KIND_COUNT, FOR_GENERATE, "Generation", "N", "new tokens at most"),
                           .initial = "128", .low = 1},
    [OPTION_TEMPERATURE] = {OF("temperature", KIND_NUMBER, FOR_GENERATE, "Generation", "X",
                               "0: always the most likely token"),
                            .initial = "0.8"},
    [OPTION_TOP_K] = {OF("top-k", KIND_COUNT, FOR_GENERATE, "Generation", "N", "sample among the N most likely tokens"),
                      .initial = "0", .zero = "off"},
    [OPTION_TOP_P] = {OF("top-p", KIND_NUMBER, FOR_GENERATE, "Generation", "X",
                         "sample among the most likely tokens that make up the share X"),
                      .initial = "1"},

    [OPTION_FOR] = {OF("for", KIND_CHOICE, FOR_PLAN, "Plan", "WHAT", "the command to plan"), .initial = "train",
                    .choices = purposes},
    [OPTION_FIXES] = {OF("fixes", KIND_FLAG, FOR_PLAN, "Plan", NULL,
                         "plan alternatives and list them (on by default when the job does not fit)")},
    [OPTION_TABLE] = {OF("table", KIND_WORD, FOR_PLAN, "Plan", "ROWS,COLUMNS",
                         "memory over two of them: seq,micro-batch or micro-batch,seq")},
    [OPTION_TIMELINE] = {OF("timeline", KIND_FLAG, FOR_PLAN, "Plan", NULL, "memory over the course of the job")},
    [OPTION_DUMP] = {OF("dump", KIND_CHOICE, FOR_PLAN, "Plan", "WHAT",
                        "program: every program, node, tensor and storage"),
                     .choices = dumps},
    [OPTION_FAIL_OVER] = {OF("fail-over", KIND_SIZE, FOR_PLAN, "Plan", "SIZE",
                             "exit 3 when the job needs more than SIZE (for CI)")},

    [OPTION_PROBE] = {OF("probe", KIND_FLAG, FOR_DEVICES, "Probe", NULL,
                         "measure this machine for a team of --threads and store it; plans then use it"),
                      .flag_only = true},
    [OPTION_PROBE_SECONDS] = {OF("probe-seconds", KIND_NUMBER, FOR_DEVICES, "Probe", "X",
                                 "about how long to measure; below 5 is for a rough look"),
                              .initial = "30"},

    [OPTION_DECODE] = {OF("decode", KIND_FLAG, FOR_TOKENIZE, "Tokens", NULL, "the file holds token ids; print their text")},
    [OPTION_TOKENS] = {OF("tokens", KIND_FLAG, FOR_TOKENIZE, "Tokens", NULL,
                          "each token on a line: id, bytes of the text, those bytes, the token as the tokenizer has it")},
    [OPTION_STATS] = {OF("stats", KIND_FLAG, FOR_TOKENIZE, "Tokens", NULL, "bytes, tokens, bytes per token and speed instead of ids")},
    [OPTION_SPECIAL] = {OF("special", KIND_FLAG, FOR_TOKENIZE, "Tokens", NULL,
                           "on by default; --no-special: without the tokens that the tokenizer puts around a text, and text "
                           "without special tokens")},

    [OPTION_DATA_MODEL] = {OF("model", KIND_TEXT, FOR_DATA | FOR_EXPLAIN, "Report", "MODEL",
                              "a directory, GGUF file or preset. data: its tokenizer and chat template (bytes are tokens without one); "
                              "explain: plan its job (with the options of a job) for the failing device")},
    [OPTION_EXAMPLES] = {OF("examples", KIND_COUNT, FOR_DATA, "Report", "N", "documents to show, with what does not count"),
                         .initial = "3", .zero = "none"},

    [OPTION_AT] = {OF("at", KIND_WORD, FOR_INSPECT, "Snapshot", "WHEN",
                      "the instant to look at: peak, end, oom (the last failure, else the peak), or after so many events"),
                   .initial = "oom"},
    [OPTION_TOP] = {OF("top", KIND_COUNT, FOR_INSPECT, "Snapshot", "N", "rows of each list"), .initial = "10", .low = 1},
    [OPTION_BY] = {OF("by", KIND_CHOICE, FOR_INSPECT, "Snapshot", "WHAT", "what live tensors are grouped by (else by category and by stack)"),
                   .choices = group_kinds},
    [OPTION_HTML] = {OF("html", KIND_PATH, FOR_INSPECT, "Snapshot", "OUT", "write a report for a browser, one file that needs no network")},
    [OPTION_EXPORT] = {OF("export", KIND_PATHS, FOR_INSPECT, "Snapshot", "FORMAT OUT",
                          "write chrome (trace), speedscope or collapsed (the live set as a flame graph), csv or json (all events)")},

    [OPTION_VERIFY] = {OF("verify", KIND_FLAG, FOR_INSPECT, "Snapshot", NULL, "a run directory: read every file and compare it with its digest")},

    [OPTION_TYPE] = {OF("type", KIND_CHOICE, FOR_CONVERT, "Conversion", "TYPE",
                        "of the weights; source: as they are, f16 for blocks with a scale (q8_0: GGUF only)"),
                     .initial = "source", .choices = file_types},
    [OPTION_WITHOUT_TOKENIZER] = {OF("without-tokenizer", KIND_FLAG, FOR_CONVERT, "Conversion", NULL,
                                     "leave tokenizer and chat template out")},
    [OPTION_FORCE] = {OF("force", KIND_FLAG, FOR_CONVERT, "Conversion", NULL,
                         "let what stands at the target give way, once the new one is whole")},

    [OPTION_ALLOC_CONF] = {OF("alloc-conf", KIND_TEXT, FOR_REPLAY, "Replay", "TEXT",
                              "settings as in PYTORCH_ALLOC_CONF (\"\": PyTorch's defaults)")},
    [OPTION_SEARCH] = {OF("search", KIND_FLAG, FOR_REPLAY, "Replay", NULL, "try a set of settings and sort them, the best first")},
    [OPTION_CAPACITY] = {OF("capacity", KIND_SIZE, FOR_REPLAY, "Replay", "SIZE",
                            "what the allocator may reserve"),
                         .zero = "from the recorded failure, else no limit"},
    [OPTION_EMPTY_START] = {OF("empty-start", KIND_FLAG, FOR_REPLAY, "Replay", NULL,
                               "begin with an empty allocator whatever was live before the first event")},
    [OPTION_TRACE] = {OF("trace", KIND_COUNT, FOR_REPLAY, "Replay", "N", "the device to replay, by its place in the snapshot"),
                      .zero = "the one with most events"},

    [OPTION_RECIPE] = {OF("recipe", KIND_PATH, FOR_JOBS, "General", "FILE",
                          "YAML file with the same keys as these options, and model")},
    [OPTION_SHOW_CONFIG] = {OF("show-config", KIND_FLAG, FOR_JOBS, "General", NULL,
                               "print every value and where it comes from, and stop"),
                            .flag_only = true},
    [OPTION_JSON] = {OF("json", KIND_FLAG, FOR_JOBS | FOR_DATA | FOR_DEVICES | FOR_VERSION | FOR_EXPLAIN | FOR_TOKENIZE | FOR_CONVERT | FOR_INSPECT | FOR_REPLAY,
                        "General", NULL, "print the result as JSON")},
    [OPTION_QUIET] = {OF("quiet", KIND_FLAG, FOR_JOBS, "General", NULL, "only results, warnings and errors (-q)")},
    [OPTION_COLOR] = {OF("color", KIND_CHOICE, FOR_ALL, "General", "WHEN",
                         "colour on terminals, always or never (NO_COLOR is respected)"),
                      .initial = "auto", .choices = colors},
    [OPTION_MAN] = {OF("man", KIND_FLAG, FOR_HELP, "General", NULL, "print the manual page (roff)"), .flag_only = true},
    [OPTION_COMPLETION] = {OF("completion", KIND_CHOICE, FOR_HELP, "General", "SHELL",
                              "print the completion script of a shell"),
                           .choices = shells, .flag_only = true},
    [OPTION_HELP] = {OF("help", KIND_FLAG, FOR_ALL, "General", NULL, "describe the command (-h)"), .flag_only = true},
};

const option *option_get(option_id id) { return &options[id]; }

option_id option_find(const char *name, bool positional) {
  for (option_id id = 0; id < OPTION_COUNT; id++)
    if (strcmp(options[id].name, name) == 0 && (positional || !options[id].positional)) return id;
  return OPTION_COUNT;
}

/* ---- one text to one value ---- */

/* "--seq" for a flag, "HEADROOM_SEQ" and "job.yaml:3: seq" for the others. */
static const char *subject(const option *o, const char *place, char out[256]) {
  if (!place[0])
    (void)snprintf(out, 256, o->positional ? "%s" : "--%s", o->positional ? o->operand : o->name);
  else
    (void)snprintf(out, 256, "%s: %s", place, o->name);
  return out;
}

static hr_status set_flag(const option *o, value *v, const char *text, const char *where, hr_error *error) {
  static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcmp(text, words[i]) != 0) continue;
    v->flag = i % 2 == 1;
    return HR_OK;
  }
  text_fail(error, HR_ERROR_USAGE, "%s: '%s' is neither true nor false", where, text);
  return text_hint(error, HR_ERROR_USAGE, "--%s or --no-%s", o->name, o->name);
}

static hr_status set_count(const option *o, value *v, const char *text, const char *where, hr_error *error) {
  uint64_t high = o->field == FIELD_U32 ? UINT32_MAX - 1 : INT64_MAX;
  if (text_parse_count(text, o->low, high, &v->count)) return HR_OK;
  text_fail(error, HR_ERROR_USAGE, "%s: '%s' is not a whole number from %llu to %llu", where, text,
            (unsigned long long)o->low, (unsigned long long)high);
  return o->zero ? text_hint(error, HR_ERROR_USAGE, "leave --%s out for %s", o->name, o->zero) : HR_ERROR_USAGE;
}

static hr_status set_choice(const option *o, value *v, const char *text, const char *where, hr_error *error) {
  char list[200] = "";
  nearest search;
  nearest_begin(&search, text);
  for (uint64_t i = 0; o->choices[i]; i++) {
    size_t used = strlen(list);
    if (strcmp(text, o->choices[i]) == 0) {
      v->count = i;
      return HR_OK;
    }
    nearest_offer(&search, o->choices[i]);
    (void)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", o->choices[i]);
  }
  text_fail(error, HR_ERROR_USAGE, "%s: '%s' is not one of: %s", where, text, list);
  return nearest_end(&search) ? text_hint(error, HR_ERROR_USAGE, "--%s %s", o->name, nearest_end(&search))
                              : HR_ERROR_USAGE;
}

static hr_status set_size(value *v, const char *text, const char *where, hr_error *error) {
  const char *reason = text_parse_size(text, &v->count, &v->percent, &v->number[0]);
  if (!reason && (v->percent ? v->number[0] <= 0 : v->count == 0)) reason = "no job fits in 0 bytes";
  if (!reason) return HR_OK;
  text_fail(error, HR_ERROR_USAGE, "%s: '%s' is not a size: %s", where, text, reason);
  return text_hint(error, HR_ERROR_USAGE, "6GiB (2^30 bytes each), 6GB (10^9 bytes each), 90%%, or a number of bytes");
}

static hr_status set_betas(value *v, const char *text, const char *where, hr_error *error) {
  const char *comma = strchr(text, ',');
  char first[32];
  if (comma && comma - text < (int)sizeof first) {
    memcpy(first, text, (size_t)(comma - text));
    first[comma - text] = 0;
    comma++;
    comma += strspn(comma, " ");
    if (text_parse_number(first, &v->number[0]) && text_parse_number(comma, &v->number[1])) return HR_OK;
  }
  text_fail(error, HR_ERROR_USAGE, "%s: '%s' is not two numbers with a comma between them", where, text);
  return text_hint(error, HR_ERROR_USAGE, "--betas 0.9,0.999");
}

static hr_status set_chunk(value *v, const char *text, const char *where, hr_error *error) {
  if (strcmp(text, "auto") == 0)
    v->count = HR_LOSS_CHUNK_AUTO;
  else if (strcmp(text, "off") == 0 || strcmp(text, "false") == 0)
    v->count = HR_LOSS_CHUNK_OFF; /* YAML users write off */
  else if (!text_parse_count(text, 1, INT32_MAX, &v->count))
    return text_fail(error, HR_ERROR_USAGE, "%s: '%s' is none of: auto, off, a whole number of tokens", where, text);
  return HR_OK;
}

static hr_status prefix_error(hr_status status, const char *where, hr_error *error) {
  char old[HR_ERROR_MESSAGE_BYTES];
  memcpy(old, error->message, sizeof old);
  if (strncmp(old, "--", 2) != 0) (void)snprintf(error->message, sizeof error->message, "%s: %.600s", where, old);
  return status;
}

static hr_status check_word(option_id id, const char *text, const char *where, hr_error *error) {
  hr_recompute recompute;
  uint64_t events;
  hr_status status;
  if (id == OPTION_RECOMPUTE) {
    status = hr_recompute_parse(text, &recompute, error);
    return status == HR_OK ? HR_OK : prefix_error(status, where, error);
  }
  if (id == OPTION_TABLE && strcmp(text, "seq,micro-batch") != 0 && strcmp(text, "micro-batch,seq") != 0) {
    text_fail(error, HR_ERROR_USAGE, "%s: '%s' is not a pair of rows and columns", where, text);
    return text_hint(error, HR_ERROR_USAGE, "--table seq,micro-batch");
  }
  if (id == OPTION_AT && strcmp(text, "peak") != 0 && strcmp(text, "end") != 0 && strcmp(text, "oom") != 0 &&
      !text_parse_count(text, 0, INT64_MAX, &events)) {
    text_fail(error, HR_ERROR_USAGE, "%s: '%s' is none of: peak, end, oom, a number of events", where, text);
    return text_hint(error, HR_ERROR_USAGE, "--at peak");
  }
  return HR_OK;
}

static void append(value *v, const char *text) {
  v->list = text_grow(v->list, (v->list_count + 1) * sizeof *v->list);
  v->list[v->list_count++] = text_copy(text, strlen(text));
}

static void clear(value *v) {
  free(v->text);
  for (uint32_t i = 0; i < v->list_count; i++)
    free(v->list[i]);
  free(v->list);
  *v = (value){0};
}

static hr_status read_value(option_id id, value *v, const char *text, const char *where, hr_error *error) {
  const option *o = &options[id];
  hr_status status = HR_OK;
  if (!text[0] && o->kind != KIND_TEXT) return text_fail(error, HR_ERROR_USAGE, "%s: the value is empty", where);
  switch (o->kind) {
  case KIND_FLAG:
    return set_flag(o, v, text, where, error);
  case KIND_COUNT:
    return set_count(o, v, text, where, error);
  case KIND_SIZE:
    return set_size(v, text, where, error);
  case KIND_CHOICE:
    return set_choice(o, v, text, where, error);
  case KIND_BETAS:
    return set_betas(v, text, where, error);
  case KIND_CHUNK:
    return set_chunk(v, text, where, error);
  case KIND_NUMBER:
    if (text_parse_number(text, &v->number[0])) return HR_OK;
    return text_fail(error, HR_ERROR_USAGE, "%s: '%s' is not a number", where, text);
  case KIND_PATHS:
    append(v, text);
    return HR_OK;
  case KIND_WORD:
    status = check_word(id, text, where, error);
    break;
  case KIND_TEXT:
  case KIND_PATH:
    break;
  }
  if (status == HR_OK) v->text = text_copy(text, strlen(text));
  return status;
}

hr_status config_set(cli_config *config, option_id id, const char *text, origin from, const char *place,
                     hr_error *error) {
  value *old = &config->values[id], next = {0};
  char where[256];
  hr_status status;
  bool more = options[id].kind == KIND_PATHS && old->origin == from;
  if (more) return read_value(id, old, text, subject(&options[id], place, where), error);
  status = read_value(id, &next, text, subject(&options[id], place, where), error);
  if (status != HR_OK || old->origin > from) { /* a weaker origin is read all the same, so that mistakes show */
    clear(&next);
    return status;
  }
  clear(old);
  *old = next;
  old->origin = from;
  (void)snprintf(old->place, sizeof old->place, "%s", place);
  return HR_OK;
}

/* ---- the job's fields ---- */

static void load_field(const option *o, const hr_job *job, value *v) {
  const char *at = (const char *)job + o->offset;
  uint32_t word;
  switch (o->field) {
  case FIELD_U32:
  case FIELD_ENUM:
    memcpy(&word, at, sizeof word);
    v->count = word;
    break;
  case FIELD_U64:
    memcpy(&v->count, at, sizeof v->count);
    break;
  case FIELD_DOUBLE:
    memcpy(&v->number[0], at, sizeof(double));
    break;
  case FIELD_BOOL:
    memcpy(&v->flag, at, sizeof v->flag);
    break;
  case FIELD_NONE:
    break;
  }
}

static void store_field(const option *o, const value *v, hr_job *job) {
  char *at = (char *)job + o->offset;
  uint32_t word = (uint32_t)v->count;
  switch (o->field) {
  case FIELD_U32:
  case FIELD_ENUM:
    memcpy(at, &word, sizeof word);
    break;
  case FIELD_U64:
    memcpy(at, &v->count, sizeof v->count);
    break;
  case FIELD_DOUBLE:
    memcpy(at, &v->number[0], sizeof(double));
    break;
  case FIELD_BOOL:
    memcpy(at, &v->flag, sizeof v->flag);
    break;
  case FIELD_NONE:
    break;
  }
}

void config_take_job(cli_config *config, const hr_job *job) {
  char text[OPTION_VALUE_BYTES];
  value *recompute = &config->values[OPTION_RECOMPUTE];
  if (job != &config->job) config->job = *job;
  for (option_id id = 0; id < OPTION_COUNT; id++)
    load_field(&options[id], job, &config->values[id]);
  config->values[OPTION_BETAS].number[0] = job->beta1;
  config->values[OPTION_BETAS].number[1] = job->beta2;
  hr_recompute_text(&job->recompute, job->model.layer_count, text, sizeof text);
  free(recompute->text);
  recompute->text = text_copy(text, strlen(text));
}

void config_init(cli_config *config, unsigned command) {
  hr_error error;
  memset(config, 0, sizeof *config);
  config->command = command;
  hr_job_init(&config->job);
  for (option_id id = 0; id < OPTION_COUNT; id++)
    if (options[id].initial) (void)config_set(config, id, options[id].initial, ORIGIN_DEFAULT, "", &error);
  config_take_job(config, &config->job);
  for (option_id id = 0; id < OPTION_COUNT; id++)
    if (options[id].field || id == OPTION_BETAS || id == OPTION_RECOMPUTE || options[id].kind == KIND_FLAG)
      config->values[id].origin = ORIGIN_DEFAULT;
}

void config_deinit(cli_config *config) {
  for (option_id id = 0; id < OPTION_COUNT; id++)
    clear(&config->values[id]);
}

static hr_status fill_budget(cli_config *config, hr_error *error) {
  const value *v = &config->values[OPTION_BUDGET];
  hr_job *job = &config->job;
  if (!config_chosen(config, OPTION_BUDGET)) return HR_OK;
  job->budget_given = true;
  job->budget_bytes = v->percent ? (uint64_t)(v->number[0] * (double)job->device.usable_bytes) : v->count;
  if (job->budget_bytes > 0) return HR_OK;
  return text_fail(error, HR_ERROR_USAGE, "--budget: the share comes to 0 bytes of %s", job->device.name);
}

/* --batch-tokens: the sequence may still come from the model, so a finished copy says what a row holds. */
static hr_status fill_batch_tokens(cli_config *config, hr_error *error) {
  uint64_t tokens = config->values[OPTION_BATCH_TOKENS].count, per_step;
  hr_job probe = config->job;
  hr_status status;
  if (!config_chosen(config, OPTION_BATCH_TOKENS)) return HR_OK;
  if (!config_chosen(config, OPTION_ACCUMULATE)) probe.accumulate = 1;
  status = hr_job_finish(&probe, error);
  if (status != HR_OK) return status;
  per_step = (uint64_t)probe.sequence_length * probe.micro_batch;
  if (config_chosen(config, OPTION_ACCUMULATE)) {
    if (tokens == per_step * probe.accumulate) return HR_OK;
    text_fail(error, HR_ERROR_USAGE, "--batch-tokens %llu is not seq %u x micro-batch %u x accumulate %u = %llu",
              (unsigned long long)tokens, probe.sequence_length, probe.micro_batch, probe.accumulate,
              (unsigned long long)(per_step * probe.accumulate));
    return text_hint(error, HR_ERROR_USAGE, "leave --batch-tokens or --accumulate out");
  }
  if (tokens % per_step != 0 || tokens / per_step > UINT32_MAX - 1) {
    uint64_t below = tokens / per_step * per_step;
    text_fail(error, HR_ERROR_USAGE, "--batch-tokens %llu is no multiple of seq %u x micro-batch %u = %llu tokens",
              (unsigned long long)tokens, probe.sequence_length, probe.micro_batch, (unsigned long long)per_step);
    return text_hint(error, HR_ERROR_USAGE, "--batch-tokens %llu", (unsigned long long)(below ? below : per_step));
  }
  config->job.accumulate = (uint32_t)(tokens / per_step);
  return HR_OK;
}

static hr_status open_model(cli_config *config, hr_error *error) {
  const value *data = &config->values[OPTION_DATA];
  const char *source = config_text(config, OPTION_MODEL);
  if (source && source[0]) return hr_model_open(source, &config->job.model, error);
  text_fail(error, HR_ERROR_USAGE, "no MODEL is given");
  if (data->list_count > 1)
    return text_hint(error, HR_ERROR_USAGE, "put MODEL first; --data takes all that follows it");
  return text_hint(error, HR_ERROR_USAGE, "a preset such as gpt2-124m, a directory, or a config.json");
}

hr_status config_job(cli_config *config, hr_purpose purpose, hr_error *error) {
  hr_job *job = &config->job;
  hr_status status = open_model(config, error);
  if (status == HR_OK) status = hr_device_find(config_text(config, OPTION_DEVICE), &job->device, error);
  if (status != HR_OK) return status;
  job->purpose = purpose;
  for (option_id id = 0; id < OPTION_COUNT; id++) {
    store_field(&options[id], &config->values[id], job);
    if (config_chosen(config, id) && (options[id].commands & config->command)) job->given |= options[id].given;
  }
  job->beta1 = config->values[OPTION_BETAS].number[0];
  job->beta2 = config->values[OPTION_BETAS].number[1];
  job->with_generation = purpose == HR_PURPOSE_TRAIN && config_text(config, OPTION_SAMPLE);
  status = hr_recompute_parse(config_text(config, OPTION_RECOMPUTE), &job->recompute, error);
  if (status == HR_OK) status = fill_budget(config, error);
  if (status == HR_OK) status = fill_batch_tokens(config, error);
  config->asked = *job;
  if (status == HR_OK) status = hr_job_finish(job, error);
  if (status != HR_OK) return status;
  config_take_job(config, job);
  config->job_ready = true;
  return HR_OK;
}

/* ---- values as text ---- */

static void size_value(const value *v, char out[OPTION_VALUE_BYTES]) {
  if (v->percent)
    (void)snprintf(out, OPTION_VALUE_BYTES, "%.10g%%", v->number[0] * 100);
  else
    (void)snprintf(out, OPTION_VALUE_BYTES, "%llu", (unsigned long long)v->count);
}

char *config_value_text(const cli_config *config, option_id id, char out[OPTION_VALUE_BYTES]) {
  const option *o = &options[id];
  const value *v = &config->values[id];
  char first[TEXT_BYTES], second[TEXT_BYTES];
  size_t used = 0;
  out[0] = 0;
  if (v->origin == ORIGIN_UNSET) return out;
  switch (o->kind) {
  case KIND_FLAG:
    (void)strcpy(out, v->flag ? "true" : "false");
    break;
  case KIND_COUNT:
    (void)snprintf(out, OPTION_VALUE_BYTES, "%llu", (unsigned long long)v->count);
    break;
  case KIND_NUMBER:
    (void)text_number(v->number[0], out);
    break;
  case KIND_SIZE:
    size_value(v, out);
    break;
  case KIND_CHOICE:
    (void)strcpy(out, o->choices[v->count]);
    break;
  case KIND_BETAS:
    (void)snprintf(out, OPTION_VALUE_BYTES, "%s,%s", text_number(v->number[0], first),
                   text_number(v->number[1], second));
    break;
  case KIND_CHUNK:
    if (v->count == HR_LOSS_CHUNK_AUTO)
      (void)strcpy(out, "auto");
    else if (v->count == HR_LOSS_CHUNK_OFF)
      (void)strcpy(out, "off");
    else
      (void)snprintf(out, OPTION_VALUE_BYTES, "%llu", (unsigned long long)v->count);
    break;
  case KIND_PATHS:
    for (uint32_t i = 0; i < v->list_count && used + 1 < OPTION_VALUE_BYTES; i++)
      used += (size_t)snprintf(out + used, OPTION_VALUE_BYTES - used, "%s%s", i ? " " : "", v->list[i]);
    break;
  case KIND_TEXT:
  case KIND_PATH:
  case KIND_WORD:
    (void)snprintf(out, OPTION_VALUE_BYTES, "%s", v->text ? v->text : "");
    break;
  }
  return out;
}
