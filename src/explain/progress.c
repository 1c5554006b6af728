/* What the log lines around a message say: how far the run had come, the framework, the phase of the step. */
#include "explain/match.h"

/* A number behind a word and blanks, ":", "=", "[", "#" or quotes; -1 when there is none. */
static int64_t count_behind(const char *text, size_t at, size_t count) {
  int64_t value = 0;
  size_t start;
  for (size_t skipped = 0; at < count && skipped < 4 && strchr(" :=[#'\"", text[at]); skipped++) at++;
  for (start = at; at < count && hri_is_digit(text[at]) && at - start < 9;) value = value * 10 + (text[at++] - '0');
  return at == start || (at < count && hri_is_letter(text[at])) ? -1 : value;
}

/* Whether a bar counts training: "  3%| | 12/400 [" without a label, or with one that says so. Bars of loading,
 * downloads and data count something else. */
static bool counts_training(const char *text, size_t percent) {
  size_t from = percent < 48 ? 0 : percent - 48, at = percent;
  bool letters = false;
  while (at > from && (hri_is_digit(text[at - 1]) || text[at - 1] == ' ')) at--;
  if (at > from && text[at - 1] != ':') return true; /* what stands there is no label */
  if (at > from) {                                   /* columns of figures are none either: "0.04  0.61: 61%" */
    size_t word = at - 1, numbers = 0;
    while (word > from && (hri_is_digit(text[word - 1]) || text[word - 1] == '.' || text[word - 1] == ' '))
      if (hri_is_digit(text[--word]) && (word == from || text[word - 1] == ' ')) numbers++;
    if (numbers >= 2) return true;
  }
  for (size_t i = from; i < at; i++) letters = letters || hri_is_letter(text[i]);
  return !letters || hri_oom_word(text, from, at, "epoch") < at || hri_oom_word(text, from, at, "train") < at ||
         hri_oom_word(text, from, at, "step") < at;
}

/* Whether a bar's bracket text[at, end) shows a rate of 100,000 and more a second: bytes of a download are counted. */
static bool counts_bytes(const char *text, size_t at, size_t end) {
  size_t rate = hri_oom_word(text, at, end, "it/s"), digits = 0;
  if (rate == end) return false;
  while (rate > at && (hri_is_digit(text[rate - 1]) || text[rate - 1] == '.'))
    digits = text[--rate] == '.' ? 0 : digits + 1;
  return digits >= 6;
}

/* Whether a bar of training has come to `least`: "7%|7  | 71/1000 [00:51<", and without its picture "7% 71/1000 [". */
static bool has_bar(const char *text, size_t count, int64_t least) {
  for (size_t at = hri_oom_word(text, 0, count, "%"); at < count; at = hri_oom_word(text, at + 1, count, "%")) {
    size_t end = at + 200 < count ? at + 200 : count, bar = at + 1, slash;
    if (at == 0 || !hri_is_digit(text[at - 1]) || bar >= count) continue;
    if (text[bar] == '|') {
      bar = hri_oom_word(text, bar + 1, end, "| ");
      if (bar == end) continue;
      bar++;
    }
    slash = hri_oom_word(text, bar, end, "/");
    if (slash < end && slash - bar < 12 && counts_training(text, at)) {
      size_t near = slash + 16 < end ? slash + 16 : end;
      if (count_behind(text, bar, count) >= least && hri_oom_word(text, slash, near, "[") < near &&
          !counts_bytes(text, slash, end))
        return true;
    }
  }
  return false;
}

/* "step 12/16 : run pip install": of a builder of images. */
static bool is_of_builder(const char *text, size_t at, size_t count) {
  static const char words[] =
      "run |copy |add |from |env |arg |workdir |cmd |entrypoint |label |user |shell |expose |volume ";
  const size_t end = at + 16 < count ? at + 16 : count, colon = hri_oom_word(text, at, end, " : ");
  return colon < end && hri_match_at(text, colon + 3, count, words);
}

/* Whether steps were done before: then the job did fit, and what fails is what grew, or a batch that is larger. */
static bool has_run(const char *text, size_t count) {
  static const struct {
    const char *word;
    int64_t least;
  } words[] = {{"epoch", 2}, {"global step", 10}, {"global_step", 10}, {"step", 10}, {"iteration", 10}, {"iter", 10}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t length = strlen(words[i].word);
    for (size_t at = hri_oom_word(text, 0, count, words[i].word); at < count;
         at = hri_oom_word(text, at + 1, count, words[i].word))
      if ((at == 0 || !hri_is_name(text[at - 1])) && !is_of_builder(text, at + length, count) &&
          count_behind(text, at + length, count) >= words[i].least)
        return true;
  }
  return has_bar(text, count, 10);
}

void hri_oom_closed_bar(const char *text, size_t count, hri_oom_message *message) {
  static const char *const last[] = {"unallocated", "in total by pytorch", " cached"};
  size_t from, end;
  if (count > 1400) count = 1400;
  from = count;
  for (size_t i = 0; i < sizeof last / sizeof *last && from == count; i++) from = hri_oom_word(text, 0, count, last[i]);
  end = count - from < 450 ? count : from + 450;
  end = hri_oom_word(text, from, end, "out of memory");
  end = hri_oom_word(text, from, end, "traceback (most recent");
  if (has_bar(text + from, end - from, 10)) message->has_run = true;
}

/* Where an optimizer's step calls back for the loss, as in each step of Lightning and of L-BFGS: what runs is the model then, and no part
 * of the optimizer. `from` where it does not. */
static size_t find_closure(const char *text, size_t from, size_t count) {
  static const char steps[] = "optimizer.step(|torch/optim/", calls[] = "_wrap_closure|closure()|in closure";
  size_t last = count, call;
  for (size_t at = hri_match_first(text, from, count, steps); at < count;
       at = hri_match_first(text, at + 1, count, steps))
    last = at;
  call = hri_match_first(text, last, count, calls);
  return call < count ? call : from;
}

void hri_oom_context(const char *text, size_t count, hri_oom_message *message) {
  static const char *const frameworks[][2] = {{"deepspeed", "deepspeed"},
                                              {"fullyshardeddataparallel", "fsdp"},
                                              {"fsdp", "fsdp"},
                                              {"vllm/", "vllm"},
                                              {"sglang/", "sglang"},
                                              {"axolotl", "axolotl"},
                                              {"llamafactory", "llama-factory"},
                                              {"torchtune", "torchtune"},
                                              {"torchtitan", "torchtitan"},
                                              {"megatron", "megatron"},
                                              {"lightning", "lightning"},
                                              {"comfy", "comfyui"},
                                              {"transformers/trainer.py", "transformers"},
                                              {"transformers/", "transformers"},
                                              {"accelerate/", "accelerate"},
                                              {"diffusers/", "diffusers"}};
  static const char *const phases[][2] =
      {{"optimizer.step(", "optimizer"},      {"torch/optim/", "optimizer"},     {".backward(", "backward"},
       {"run_backward", "backward"},          {"evaluation_loop", "evaluation"}, {"prediction_step", "evaluation"},
       {"generation/utils.py", "generation"}, {".generate(", "generation"},      {"cross_entropy", "loss"},
       {"from_pretrained", "loading"},        {"load_state_dict", "loading"},    {"in convert return t.to(", "loading"},
       {"lambda t: t.cuda(", "loading"}};
  /* Only the last traceback is this failure's. */
  size_t from = 0;
  for (size_t at = hri_oom_word(text, 0, count, "traceback (most recent"); at < count;
       at = hri_oom_word(text, at + 1, count, "traceback (most recent"))
    from = at;
  for (size_t i = 0; i < sizeof frameworks / sizeof *frameworks && !message->failure.framework[0]; i++)
    if (hri_oom_word(text, 0, count, frameworks[i][0]) < count) message->failure.framework = frameworks[i][1];
  const size_t running = find_closure(text, from, count);
  for (size_t i = 0; i < sizeof phases / sizeof *phases && !message->failure.phase[0]; i++)
    if (hri_oom_word(text, running, count, phases[i][0]) < count) message->failure.phase = phases[i][1];
  message->has_run = message->has_run || has_run(text, count);
  message->capturing = hri_oom_word(text, from, count, "torch/cuda/graphs.py") < count ||
                       hri_oom_word(text, from, count, "use_mem_pool") < count ||
                       hri_oom_word(text, from, count, "capture_begin") < count ||
                       hri_oom_word(text, from, count, "capture cuda graph failed") < count;
  if (message->kind == HRI_OOM_BARE && hri_oom_word(text, from, count, "pin_memory") < count)
    message->kind = HRI_OOM_PINNED;
}
