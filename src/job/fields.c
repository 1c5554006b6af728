/* The table. A new option of a job is a member of hr_job, one row here, and the code that uses it: parsing, help, the
 * manual page, recipes, --show-config, JSON, run.json, state.json, resume, the options that the planner says and the C
 * API are loops over the rows (headroom/field.h).
 *
 * The order of the rows is the order of help and of `plan --json`. */
#include "job/fields.h"

#include <string.h>

#define JOB(member) .home = HR_HOME_JOB, .offset = offsetof(hr_job, member)
#define JOB_PAIR(a, b) .home = HR_HOME_JOB, .offset = offsetof(hr_job, a), .second = offsetof(hr_job, b)
#define RUN(member) .home = HR_HOME_RUN, .offset = offsetof(hr_run_options, member)
#define RUN_PAIR(a, b) .home = HR_HOME_RUN, .offset = offsetof(hr_run_options, a), .second = offsetof(hr_run_options, b)
#define RANGE(a, b) .low = a, .high = b
#define COUNT(a, b) .least = a, .most = b
/* Another value gives another result, and a resume refuses it. */
#define MATHEMATICS(class) .identity = HR_IDENTITY_MATHEMATICS, .effect = HR_EFFECT_##class
#define EFFECT(class) .effect = HR_EFFECT_##class
#define ONCE .keep = HR_KEEP_NEVER

enum {
  P = HR_FOR_PLAN,
  T = HR_FOR_TRAIN,
  E = HR_FOR_EVALUATE,
  G = HR_FOR_GENERATE | HR_FOR_CHAT,
  X = HR_FOR_EXPLAIN,
  D = HR_FOR_DATA,
  M = HR_FOR_MERGE,
  J = HR_FOR_JOBS,
  MAX_ACCUMULATE = 1 << 20,
  MAX_THREADS = 4096
};

/* ---- words, in the order of the enumerators ---- */

static const char *const quantizes[] = {"none", "nf4", "fp4", "nf4+dq", "fp4+dq", "int8", "keep", NULL};
static const char *const precisions[] = {"fp32", "bf16", "bf16-pure", "fp16", "tf32", "auto", NULL};
static const char *const moments[] = {"fp32", "bf16", NULL};
static const char *const states_8bits[] = {"weights", "all", NULL};
static const char *const workspaces[] = {"auto", "none", "4MiB", "32MiB", NULL};
static const char *const weight_packings[] = {"auto", "off", "transient", "persistent", NULL};
static const char *const attentions[] = {"flash", "materialized", NULL};
#define WORD(id, word) word,
static const char *const optimizers[] = {HR_OPTIMIZERS(WORD) NULL};
#undef WORD
static const char *const updates[] = {"after", "in-backward", NULL};
static const char *const schedules[] = {"constant", "linear", "cosine", "wsd", NULL};
static const char *const on_nonfinites[] = {"stop", "skip", NULL};
static const char *const packings[] = {"pack", "off", "wrapped", NULL};
static const char *const formats[] = {"auto",     "text",     "lines",  "text-field", "prompt-completion",
                                      "messages", "sharegpt", "alpaca", "tokens",     "nanogpt",
                                      "llmc",     NULL};
static const char *const loss_scopes[] = {"auto", "all", "assistant", "completion", NULL};
static const char *const truncations[] = {"split", "keep-start", "keep-end", "drop", NULL};
static const char *const dtypes[] = {"source", "f32", "bf16", "f16", NULL};

#define LAST(words) ((int)(sizeof(words) / sizeof *(words)) - 2)
_Static_assert(LAST(precisions) == HR_PRECISION_AUTO && LAST(quantizes) == HR_QUANTIZE_KEEP &&
                   LAST(moments) == HR_MOMENTS_BF16 && LAST(states_8bits) == HR_STATES_8BIT_ALL &&
                   LAST(optimizers) == HR_OPTIMIZER_COUNT - 1 &&
                   LAST(weight_packings) == HR_WEIGHT_PACKING_PERSISTENT && LAST(workspaces) == HR_WORKSPACE_32MIB &&
                   LAST(attentions) == HR_ATTENTION_MATERIALIZED && LAST(updates) == HR_UPDATE_IN_BACKWARD &&
                   LAST(schedules) == HR_SCHEDULE_WSD && LAST(on_nonfinites) == HR_ON_NONFINITE_SKIP &&
                   LAST(packings) == HR_PACKING_WRAPPED && LAST(formats) == HR_DATA_FORMAT_COUNT - 1 &&
                   LAST(loss_scopes) == HR_LOSS_SCOPE_COMPLETION && LAST(truncations) == HR_TRUNCATE_DROP,
               "one word for each enumerator");

#define WORD_OF(words, value) ((unsigned)(value) <= (unsigned)LAST(words) ? (words)[value] : "unknown")
const char *hr_precision_name(hr_precision value) { return WORD_OF(precisions, value); }
const char *hr_moments_name(hr_moments value) { return WORD_OF(moments, value); }
const char *hr_states_8bit_name(hr_states_8bit value) { return WORD_OF(states_8bits, value); }
const char *hr_weight_packing_name(hr_weight_packing value) { return WORD_OF(weight_packings, value); }
const char *hr_workspace_name(hr_workspace value) { return WORD_OF(workspaces, value); }
const char *hr_optimizer_name(hr_optimizer value) { return WORD_OF(optimizers, value); }
const char *hr_attention_name(hr_attention value) { return WORD_OF(attentions, value); }
const char *hr_on_nonfinite_name(hr_on_nonfinite value) { return WORD_OF(on_nonfinites, value); }
const char *hr_schedule_name(hr_schedule value) { return WORD_OF(schedules, value); }
const char *hr_packing_name(hr_packing value) { return WORD_OF(packings, value); }
const char *hr_data_format_name(hr_data_format value) { return WORD_OF(formats, value); }
const char *hr_loss_scope_name(hr_loss_scope value) { return WORD_OF(loss_scopes, value); }
const char *hr_truncate_name(hr_truncate value) { return WORD_OF(truncations, value); }

static const char *const effects[] = {"same bits", "other rounding", "other numerics", "another algorithm", NULL};
_Static_assert(LAST(effects) == HR_EFFECT_ALGORITHM, "one word for each effect");
const char *hr_effect_name(hr_effect value) { return WORD_OF(effects, value); }

static const char *const rows_words[] = {"auto", NULL};
static const uint64_t rows_values[] = {HR_MICRO_BATCH_AUTO};

/* "false" is what some YAML writers make of off. */
static const char *const chunk_words[] = {"auto", "off", "false", NULL};
static const uint64_t chunk_values[] = {HR_LOSS_CHUNK_AUTO, HR_LOSS_CHUNK_OFF, HR_LOSS_CHUNK_OFF};
static const char *const dropout_words[] = {"config", NULL};
static const double dropout_values[] = {HR_DROPOUT_CONFIG};
static const char *const recompute_words[] = {"none", "selective", "auto", "block", "every:", "sqrt", "levels:", NULL};

/* ---- the rows ---- */

/* `attention` counts as mathematics: the two ways add in another order. So do `micro-batch` and `loss-chunk`;
 * `recompute`,
 * `update` and `weight-packing` give the same bits (tests/unit/test_bits.c). Of data the bytes are compared, not where
 * they lie; of steps the number that results (hri_steps_may_grow). */
static const hr_field fields[] = {
    {"model", HR_FIELD_TEXT, "Job", "MODEL",
     "a preset (gpt2-124m, llama-2-7b, qwen3-8b, ...), a Hugging Face directory, a config.json or a GGUF file", J,
     RUN(model_source), ONCE, EFFECT(ALGORITHM), .positional = true},
    {"seq", HR_FIELD_U32, "Job", "N", "tokens per row", P | T | E | D | X | M, JOB(sequence_length), COUNT(1, 0),
     .zero = "the model's positions, at most 1024", MATHEMATICS(ALGORITHM), .given = HR_GIVEN_SEQUENCE, .said = 10},
    {"micro-batch", HR_FIELD_U32, "Job", "N",
     "rows per micro-step; auto (plan, train and evaluate): as many as fit and take the least time per token",
     P | T | E | X, JOB(micro_batch), COUNT(1, 0), .words = rows_words, .word_values = rows_values,
     .number = "a whole number of rows", .initial = "1", MATHEMATICS(ROUNDING), .given = HR_GIVEN_MICRO_BATCH,
     .said = 2},
    {"accumulate", HR_FIELD_U32, "Job", "N", "micro-steps per optimizer step", P | T | X, JOB(accumulate),
     COUNT(1, MAX_ACCUMULATE), .initial = "1", MATHEMATICS(ROUNDING), .given = HR_GIVEN_ACCUMULATE, .said = 3},
    {"batch-tokens", HR_FIELD_U64, "Job", "N",
     "tokens per optimizer step; sets --accumulate to N / (seq x micro-batch), or both with --micro-batch auto", P | T,
     JOB(batch_tokens), COUNT(1, 0), EFFECT(ALGORITHM), ONCE, .given = HR_GIVEN_BATCH_TOKENS, .as_asked = true},
    {"device", HR_FIELD_DEVICE, "Job", "NAME",
     "plan, explain: cpu, cuda (the first GPU of this machine, else cuda:1), or a name of `headroom devices`; "
     "train, evaluate, generate, chat: cpu, or cuda (the first GPU of this machine, else cuda:1); "
     "inspect: whose trace, 0 or cuda:0 (else that of a failure, or the longest)",
     J | X | HR_FOR_INSPECT, JOB(device), .initial = "cpu", .as_asked = true},
    {"budget", HR_FIELD_SIZE, "Job", "SIZE", "memory that the job may use: 6GiB, 6GB, bytes, or 90% of what is usable",
     J | X, JOB_PAIR(budget_bytes, budget_share), .zero = "what is usable now", .keep = HR_KEEP_GIVEN,
     .given = HR_GIVEN_BUDGET, .as_asked = true},
    {"precision", HR_FIELD_CHOICE, "Job", "TYPE",
     "fp32; bf16 and fp16: with fp32 master weights, fp16 with a loss that is scaled; bf16-pure: without masters, the "
     "update rounds stochastically; tf32: fp32, with the time of a GPU's products in TF32, in plans for such devices; "
     "auto: bf16 on a GPU that has it, else fp32",
     J | X | M, JOB(precision), .words = precisions, .initial = "auto", MATHEMATICS(NUMERICS),
     .given = HR_GIVEN_PRECISION, .said = 9},
    {"moments", HR_FIELD_CHOICE, "Optimizer", "TYPE",
     "of optimizer states; bf16 (rounded stochastically) goes with --precision bf16-pure", P | T | X, JOB(moments),
     .words = moments, .initial = "fp32", MATHEMATICS(NUMERICS)},
    {"weight-packing", HR_FIELD_CHOICE, "Job", "WHEN",
     "weights rearranged for faster products: before each use (transient), once per step for all its micro-steps "
     "(persistent), where it pays (auto), or off",
     P | T, JOB(weight_packing), .words = weight_packings, .initial = "auto", .given = HR_GIVEN_WEIGHT_PACKING},
    {"workspace", HR_FIELD_CHOICE, "Job", "SIZE",
     "of a GPU's matrix products, which have it one after the other: none, 4MiB, 32MiB, or what is usual for the device "
     "(auto); less may be slower",
     J | X, JOB(workspace), .words = workspaces, .initial = "auto", EFFECT(ROUNDING)},
    {"recompute", HR_FIELD_RECOMPUTE, "Job", "HOW",
     "what the backward makes again instead of keeping it: none, selective (norms, activations), auto (per layer, for "
     "the budget), block, every:K, sqrt, levels:keep*4,cheap*8,...",
     P | T | X, JOB(recompute), .suggested = recompute_words, .initial = "none", .given = HR_GIVEN_RECOMPUTE,
     .said = 1},
    {"attention", HR_FIELD_CHOICE, "Job", "HOW",
     "flash: memory linear in the sequence; materialized: the score matrices, to show the difference", P | T | E | X,
     JOB(attention), .words = attentions, .initial = "flash", MATHEMATICS(ROUNDING), .given = HR_GIVEN_ATTENTION},
    {"loss-chunk", HR_FIELD_U32, "Job", "N", "tokens whose logits exist at a time: auto, off or a number",
     P | T | E | X, JOB(loss_chunk), COUNT(1, INT32_MAX), .words = chunk_words, .word_values = chunk_values,
     .number = "a whole number of tokens", .initial = "auto", MATHEMATICS(ROUNDING), .given = HR_GIVEN_LOSS_CHUNK,
     .said = 4},
    {"threads", HR_FIELD_U32, "Job", "N", "CPU threads; part of the plan", J | HR_FOR_DEVICES | M, JOB(threads),
     COUNT(1, MAX_THREADS), .zero = "the cores allowed, a CPU quota counted", .identity = HR_IDENTITY_MACHINE,
     EFFECT(ROUNDING), .keep = HR_KEEP_GIVEN, .given = HR_GIVEN_THREADS},
    {"auto", HR_FIELD_FLAG, "Job", NULL,
     "let the planner choose what was not given, to fit the budget in the least time", P | T, JOB(automatic),
     .initial = "false", EFFECT(ROUNDING), ONCE},
    {"check", HR_FIELD_FLAG, "Job", NULL, "poison dead memory and verify guard zones while running", J, JOB(check),
     .initial = "false"},
    {"context", HR_FIELD_U32, "Job", "N", "tokens that the KV cache holds, prompt and new ones", P | G,
     JOB(context_length), COUNT(1, 0),
     .zero = "prompt + --max-tokens; in a chat at most 4096, in plans the sequence length", ONCE},

    {"lora", HR_FIELD_TEXT, "Job", "r=N,...",
     "train adapters of low rank and nothing else: r=16,alpha=32,targets=q_proj,v_proj (or all-linear),dropout=0.05,"
     "rslora,dora,init=kaiming|gaussian,layers=8-15, and rank_pattern=q_proj:8, alpha_pattern=q_proj:4, bias=all|lora_only, "
     "modules_to_save=lm_head; a target may be a regular expression",
     P | T | X, JOB(lora), MATHEMATICS(ALGORITHM)},
    {"freeze", HR_FIELD_TEXT, "Job", "WHAT,...",
     "tensors that keep their values (rounded where --precision says so): embed, head, norms, biases, layers.0-15, or patterns "
     "of names (*.mlp.*)",
     P | T | X, JOB(freeze), MATHEMATICS(ALGORITHM)},
    {"train-only", HR_FIELD_TEXT, "Job", "WHAT,...", "the only tensors that are trained, in the same words", P | T | X,
     JOB(train_only), MATHEMATICS(ALGORITHM)},
    {"quantize", HR_FIELD_CHOICE, "Job", "KIND",
     "keep the frozen matrices of layers in 4 or 8 bits, as bitsandbytes does (+dq: their scales in 8 bits too); each "
     "is dequantized before each use. keep: in the blocks of the GGUF file, as they are. A model whose files are quantized is "
     "as they are",
     J | X | M, JOB(quantize), .words = quantizes, .initial = "none", MATHEMATICS(NUMERICS)},
    {"adapter", HR_FIELD_PATH, "Job", "PATH",
     "adapters to go on with, evaluate or generate with: a directory as PEFT saves it (RUN/final of a run with --lora), or "
     "a GGUF file",
     P | T | E | G, JOB(adapter), EFFECT(ALGORITHM)},
    {"optimizer", HR_FIELD_CHOICE, "Optimizer", "NAME",
     "how gradients change the weights: adamw; sgd, momentum; lion (a tenth of adamw's --lr, --betas 0.9,0.99); adamw8bit "
     "and lion8bit keep 8-bit states in blocks of 256; adafactor keeps a row and a column of a matrix (--lr 0.01)",
     P | T | X, JOB(optimizer), .words = optimizers, .initial = "adamw", MATHEMATICS(ALGORITHM),
     .given = HR_GIVEN_OPTIMIZER, .said = 5},
    {"states-8bit", HR_FIELD_CHOICE, "Optimizer", "WHAT",
     "which tensors of 4,096 elements or more have 8-bit states under adamw8bit and lion8bit: weights (not embeddings and "
     "norms, which keep 32 bits), or all",
     P | T | X, JOB(states_8bit), .words = states_8bits, .initial = "weights", MATHEMATICS(NUMERICS)},
    {"betas", HR_FIELD_PAIR, "Optimizer", "B1,B2", "decay rates of the two averages of adamw and lion", P | T,
     JOB_PAIR(beta1, beta2), RANGE(0, 1), .below_high = true, .initial = "0.9,0.999", MATHEMATICS(ALGORITHM)},
    {"eps", HR_FIELD_NUMBER, "Optimizer", "X", "adamw's epsilon", P | T, JOB(epsilon), RANGE(0, 1), .initial = "1e-8",
     MATHEMATICS(ALGORITHM)},
    {"weight-decay", HR_FIELD_NUMBER, "Optimizer", "X", "decay of matrices and embeddings (not of biases and norms)",
     P | T, JOB(weight_decay), RANGE(0, 1e3), .initial = "0", MATHEMATICS(ALGORITHM)},
    {"momentum", HR_FIELD_NUMBER, "Optimizer", "X", "of --optimizer momentum", P | T, JOB(momentum), RANGE(0, 1),
     .below_high = true, .initial = "0.9", MATHEMATICS(ALGORITHM)},
    {"adafactor-decay", HR_FIELD_NUMBER, "Optimizer", "X", "adafactor: step t enters its averages with the weight t^X",
     P | T, JOB(adafactor_decay), RANGE(-16, 0), .initial = "-0.8", MATHEMATICS(ALGORITHM)},
    /* fp32 holds the square of the first, below 1e-23 no more: 0 / sqrt(0) for a gradient of 0. */
    {"adafactor-eps", HR_FIELD_PAIR, "Optimizer", "E1,E2",
     "adafactor: the least root of a second moment, and the least root mean square that a weight counts with", P | T,
     JOB_PAIR(adafactor_epsilon, adafactor_least), RANGE(1e-18, 1), .initial = "1.1920928955078125e-07,0.001",
     MATHEMATICS(ALGORITHM)},
    {"adafactor-clip", HR_FIELD_NUMBER, "Optimizer", "X", "adafactor: largest root mean square of a tensor's update",
     P | T, JOB(adafactor_clip), RANGE(1, 1e30), .initial = "1", MATHEMATICS(ALGORITHM)},
    {"update", HR_FIELD_CHOICE, "Optimizer", "WHEN",
     "after the backward, or in-backward, which lets gradients die early, and nothing is clipped", P | T | X,
     JOB(update), .words = updates, .initial = "after", .given = HR_GIVEN_UPDATE, .said = 6},
    {"lr", HR_FIELD_NUMBER, "Optimizer", "X", "learning rate at its highest", P | T, JOB(learning_rate), RANGE(0, 1e3),
     .initial = "5e-5", MATHEMATICS(ALGORITHM)},
    {"schedule", HR_FIELD_CHOICE, "Optimizer", "NAME", "course of the learning rate", P | T, JOB(schedule),
     .words = schedules, .initial = "linear", MATHEMATICS(ALGORITHM)},
    {"warmup", HR_FIELD_NUMBER, "Optimizer", "X", "steps of linear warm-up, or a share of the steps when below 1",
     P | T, JOB(warmup), RANGE(0, 1e15), .initial = "0", MATHEMATICS(ALGORITHM)},
    {"decay", HR_FIELD_NUMBER, "Optimizer", "X", "wsd: steps of the final decay, or a share when below 1", P | T,
     JOB(decay), RANGE(0, 1e15), .initial = "0.1", MATHEMATICS(ALGORITHM)},
    {"min-lr-ratio", HR_FIELD_NUMBER, "Optimizer", "X", "floor of the schedule as a share of --lr", P | T,
     JOB(min_lr_ratio), RANGE(0, 1), .initial = "0", MATHEMATICS(ALGORITHM)},
    {"clip", HR_FIELD_NUMBER, "Optimizer", "X", "largest global gradient norm; 0 turns clipping off", P | T | X,
     JOB(clip), RANGE(0, 1e30), .initial = "1", MATHEMATICS(ALGORITHM), .given = HR_GIVEN_CLIP, .said = 7},
    {"label-smoothing", HR_FIELD_NUMBER, "Optimizer", "X",
     "share of the target spread evenly over the vocabulary, in training's loss; an evaluation's is not smoothed",
     P | T, JOB(label_smoothing), RANGE(0, 1), .below_high = true, .initial = "0", MATHEMATICS(ALGORITHM)},
    {"dropout", HR_FIELD_NUMBER, "Optimizer", "X",
     "probability of dropout while training: of attention probabilities, in gpt2, phi and phi3 also of what attention and "
     "MLP add to the residual (stablelm: MLP), in gpt2 and phi also of embeddings; config: each place as config.json says",
     P | T, JOB(dropout), RANGE(0, 1), .below_high = true, .words = dropout_words, .word_numbers = dropout_values,
     .number = "a number from 0 on and below 1", .initial = "0", MATHEMATICS(ALGORITHM)},
    {"neftune-alpha", HR_FIELD_NUMBER, "Optimizer", "X",
     "NEFTune: noise on the embeddings while training, uniform up to X / sqrt(tokens of a row x hidden size); 5 to 15 "
     "are usual",
     P | T, JOB(neftune_alpha), RANGE(0, 1e6), .initial = "0", MATHEMATICS(ALGORITHM)},
    {"on-nonfinite", HR_FIELD_CHOICE, "Optimizer", "WHAT",
     "a step whose loss or gradients are infinite or NaN: stop the run, or skip the step, which leaves weights and "
     "optimizer states as they are; with --precision fp16 this is said of the loss, and gradients are always skipped",
     P | T, JOB(on_nonfinite), .words = on_nonfinites, .initial = "stop", MATHEMATICS(ALGORITHM), .said = 8},
    {"max-skipped", HR_FIELD_U32, "Optimizer", "N", "steps in a row that may be skipped before the run stops", P | T,
     JOB(max_skipped), COUNT(1, 0), .initial = "20",
     /* so many are no bad batch: the training has diverged. Nor are they the search for a loss scale in fp16, which 16
      * halvings take from 65536 to 1. */
     .remedy = "give --on-nonfinite stop to end the run at the first such step", MATHEMATICS(ALGORITHM)},
    {"loss-scale", HR_FIELD_NUMBER, "Optimizer", "X",
     "fp16: what the loss is multiplied by at first (init_scale of torch.amp.GradScaler); a step whose gradients overflow "
     "is skipped and halves it",
     P | T, JOB(loss_scale), RANGE(1e-6, 1e30), .initial = "65536", MATHEMATICS(ALGORITHM)},
    {"growth-interval", HR_FIELD_U32, "Optimizer", "N",
     "fp16: steps in a row without overflow after which the loss scale doubles", P | T, JOB(growth_interval),
     COUNT(1, INT32_MAX), .initial = "2000", MATHEMATICS(ALGORITHM)},
    {"steps", HR_FIELD_U64, "Optimizer", "N", "optimizer steps", P | T, JOB(steps), COUNT(1, 0),
     .zero = "from --epochs", EFFECT(ALGORITHM)},
    {"epochs", HR_FIELD_NUMBER, "Optimizer", "X", "passes over the data, when --steps is not given", P | T, JOB(epochs),
     RANGE(0, 1e9), .initial = "3", EFFECT(ALGORITHM)},
    {"seed", HR_FIELD_U64, "Optimizer", "N", "of initial weights, row order and sampling", P | T | G, JOB(seed),
     .initial = "42", MATHEMATICS(ALGORITHM)},

    {"data", HR_FIELD_PATHS, "Data", "PATH...",
     "files or directories: text, JSON or Parquet rows (.gz and .zst too), token bins", T | E | M,
     RUN_PAIR(data_paths, data_path_count), EFFECT(ALGORITHM)},
    {"eval-data", HR_FIELD_PATHS, "Data", "PATH...", "held-back files, evaluated while training", T,
     RUN_PAIR(eval_paths, eval_path_count)},
    {"eval-split", HR_FIELD_SHARE, "Data", "SHARE",
     "hold back this share of the documents of --data for evaluation (1%, 0.01): chosen by their content and --seed, so "
     "the same ones in any order and whatever stands beside them",
     T, RUN(eval_share), RANGE(0, 1), .below_high = true, .initial = "0", .zero = "none", MATHEMATICS(ALGORITHM)},
    {"eval-first", HR_FIELD_FLAG, "Data", NULL,
     "on by default: with evaluation data, evaluate before the first step too", T, RUN(eval_first), .initial = "true"},
    {"eval-every", HR_FIELD_U64, "Data", "N", "steps between evaluations", T, RUN(eval_every), .initial = "0",
     .zero = "at the end"},
    {"eval-batches", HR_FIELD_U64, "Data", "N", "batches per evaluation at most", T | E, RUN(eval_batches),
     .initial = "0", .zero = "all"},
    {"format", HR_FIELD_CHOICE, "Data", "NAME", "what the files hold; auto looks at each one", T | E | D,
     RUN(data.format), .words = formats, .initial = "auto", MATHEMATICS(ALGORITHM)},
    {"document-separator", HR_FIELD_TEXT, "Data", "TEXT",
     "where documents of a text file end (\\n, \\t, \\\\, \\xHH are understood); without it a file is one document",
     T | E | D, RUN(data.document_separator), MATHEMATICS(ALGORITHM)},
    {"tokenizer", HR_FIELD_PATH, "Data", "DIR",
     "a tokenizer, and its chat template, for a model that has none (a preset, weights alone): a model's directory or "
     "GGUF file",
     T | E | D | G, RUN(data.tokenizer), EFFECT(ALGORITHM)}, /* its files are the identity `tokenizer` */
    {"chat-template", HR_FIELD_TEXT, "Data", "PRESET|FILE",
     "chat template of conversations: a preset (chatml, llama3, ...) or a Jinja file, instead of the model's",
     T | E | D | G | M, RUN(data.chat_template), EFFECT(ALGORITHM)}, /* its text is part of the identity `tokenizer` */
    {"loss", HR_FIELD_CHOICE, "Data", "WHAT",
     "labels that count: auto (completions, the assistant's turns, all of text), all, assistant, or completion (the "
     "last answer)",
     T | E | D, RUN(data.loss), .words = loss_scopes, .initial = "auto", MATHEMATICS(ALGORITHM)},
    {"truncate", HR_FIELD_CHOICE, "Data", "HOW",
     "documents longer than a row: split over rows, shortened to their start or end, or left out", T | E | D,
     RUN(data.truncate), .words = truncations, .initial = "split", MATHEMATICS(ALGORITHM)},
    {"skip-bad", HR_FIELD_FLAG, "Data", NULL,
     "pass over broken rows, name the first and count them, instead of refusing the file", T | E | D,
     RUN(data.skip_bad), .initial = "false", MATHEMATICS(ALGORITHM)},
    {"data-cache", HR_FIELD_PATH, "Data", "DIR",
     "keep tokenized data in DIR, and find it again; train: RUN/data-cache unless given", T | E | D,
     RUN(data.cache_directory)},
    {"shuffle", HR_FIELD_FLAG, "Data", NULL,
     "rows in an order of the seed (on), or as they stand in the files (off); on by default when all data are rows (JSON, "
     "JSONL), off for text and token bins",
     P | T, JOB(shuffle), .initial = "false", .zero = "on for rows (JSON, JSONL), off for text and bins",
     MATHEMATICS(ALGORITHM), .given = HR_GIVEN_SHUFFLE},
    {"packing", HR_FIELD_CHOICE, "Data", "HOW",
     "pack: several whole documents in a row, by best fit; wrapped: one behind the other, cut where a row ends; off: "
     "one. Documents do not see each other",
     P | T | E, JOB(packing), .words = packings, .initial = "pack", MATHEMATICS(ALGORITHM)},

    {"out", HR_FIELD_PATH, "Results", "RUN",
     "train: run directory to write (default with --resume: that run); merge: directory of the model to write", T | M,
     RUN(out_directory), ONCE},
    {"save-every", HR_FIELD_U64, "Results", "N", "steps between checkpoints", T, RUN(save_every), .initial = "0",
     .zero = "only at the end"},
    {"keep", HR_FIELD_U32, "Results", "N", "newest checkpoints to keep besides the best; 0: all", T, RUN(keep),
     .initial = "2", .zero = "all"},
    {"save-dtype", HR_FIELD_WORD, "Results", "TYPE", "of RUN/final; source: as loaded, f32 from scratch", T,
     RUN(save_dtype), .words = dtypes, .initial = "source"},
    {"resume", HR_FIELD_PATH, "Results", "RUN",
     "go on from the newest checkpoint of a run; model, data and every option come from it unless given", T,
     RUN(resume_directory), ONCE},
    {"from", HR_FIELD_NAME, "Results", "step-N",
     "with --resume: go on from this checkpoint instead; later ones are moved aside", T, RUN(resume_from), ONCE},
    {"allow-different", HR_FIELD_NAME, "Results", "NAME,...",
     "with --resume: what may differ from the run although it changes the result (lr, data, steps, ...)", T,
     RUN(allow_different), ONCE},
    {"same-bits", HR_FIELD_FLAG, "Results", NULL,
     "with --resume: refuse where bits may differ (another instruction set, library, version, number of threads)", T,
     RUN(same_bits), .initial = "false", ONCE},
    {"sample", HR_FIELD_TEXT, "Results", "TEXT",
     "continue TEXT after each evaluation, without evaluation data at the end; the plan then holds generation too",
     P | T, RUN(sample_prompt)},
    {"profile", HR_FIELD_PATH, "Results", "FILE", "time every node and write a trace (JSON, for Perfetto) at the end",
     T, RUN(profile_path), ONCE},
    {"record-memory", HR_FIELD_FLAG, "Results", NULL,
     "write the last steps' memory as a snapshot, RUN/memory/snapshot.pickle.gz", T, RUN(record_memory),
     .initial = "false", ONCE},
    {"measure-rates", HR_FIELD_FLAG, "Results", NULL,
     "where no probe is stored, remember how fast the steps of this run were, for the times and choices of later plans",
     T, RUN(measure_rates), .initial = "true"},
};
enum { FIELDS = sizeof fields / sizeof *fields };

uint32_t hr_field_count(void) { return FIELDS; }
const hr_field *hr_field_get(uint32_t index) { return index < FIELDS ? &fields[index] : NULL; }

const hr_field *hr_field_find(const char *name) {
  for (uint32_t k = 0; k < FIELDS; k++)
    if (strcmp(fields[k].name, name) == 0) return &fields[k];
  return NULL;
}

const hr_field *hri_field_filed(uint32_t index) {
  for (int home = HR_HOME_JOB; home <= HR_HOME_RUN; home++)
    for (uint32_t k = 0; k < FIELDS; k++)
      if ((int)fields[k].home == home && index-- == 0) return &fields[k];
  return NULL;
}

bool hri_field_is_kept(const hr_field *f, const hr_job *job) {
  return f->keep == HR_KEEP || (f->keep == HR_KEEP_GIVEN && (job->given & f->given) != 0);
}

bool hri_field_is_default(const hr_field *f, const void *home) {
  char has[HR_FIELD_TEXT_BYTES], wanted[HR_FIELD_TEXT_BYTES];
  hr_value value;
  hr_field_load(f, home, &value);
  hr_field_text(f, &value, has, sizeof has);
  if (!f->initial || hr_field_read(f, f->initial, NULL, &value, NULL) != HR_OK) return false;
  return strcmp(has, hr_field_text(f, &value, wanted, sizeof wanted)) == 0;
}

/* ---- as files have them ---- */

void hri_field_escape(const char *text, hri_text *out) {
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c == '\\') hri_text_add(out, "\\\\");
    else if (*c < 0x20 || *c >= 0x7f) hri_text_add(out, "\\x%02x", *c);
    else hri_text_add(out, "%c", *c);
  }
}

bool hri_field_text(const hr_field *f, const void *home, uint32_t index, hri_text *out) {
  char text[HR_FIELD_TEXT_BYTES];
  const char *long_text = text;
  hr_value value;
  hr_field_load(f, home, &value);
  if (f->kind == HR_FIELD_SIZE) value.number[0] = 0;
  if (index >= (f->kind == HR_FIELD_PATHS ? value.list_count : 1)) return false;
  if (f->kind == HR_FIELD_PATHS) long_text = value.list[index];
  else if (f->kind == HR_FIELD_WORD || f->kind == HR_FIELD_TEXT || f->kind == HR_FIELD_NAME || f->kind == HR_FIELD_PATH)
    long_text = value.text; /* of any length */
  else hr_field_text(f, &value, text, sizeof text);
  if (!long_text) return false;
  hri_text_add_bytes(out, long_text, strlen(long_text));
  return true;
}

/* ---- names that a resume may allow to differ ---- */

const hri_special hri_specials[HRI_SPECIALS] = {
    {"model", HR_IDENTITY_MATHEMATICS, "the description of the model"},
    {"data", HR_IDENTITY_MATHEMATICS, "the bytes of the training data"},
    {"tokenizer", HR_IDENTITY_MATHEMATICS, "the tokenizer and the chat template"},
    {"eval-data", HR_IDENTITY_MATHEMATICS, "the bytes of the evaluation data"},
    {"metrics", HR_IDENTITY_MATHEMATICS, "the text of metrics.jsonl up to the checkpoint"},
    {"ways", HR_IDENTITY_MACHINE, "how a GPU's library computes each product"},
};

bool hri_identity_is_name(const char *name) {
  const hr_field *f = hr_field_find(name);
  for (int k = 0; k < HRI_SPECIALS; k++)
    if (strcmp(hri_specials[k].name, name) == 0) return true;
  return strcmp(name, "steps") == 0 || (f && f->identity == HR_IDENTITY_MATHEMATICS);
}

void hri_identity_names(hri_text *out) {
  for (int k = 0; k < HRI_SPECIALS; k++) hri_text_add(out, "%s%s", k ? ", " : "", hri_specials[k].name);
  hri_text_add(out, ", steps");
  for (uint32_t k = 0; k < FIELDS; k++)
    if (hri_field_filed(k)->identity == HR_IDENTITY_MATHEMATICS) hri_text_add(out, ", %s", hri_field_filed(k)->name);
}
