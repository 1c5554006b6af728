/* headroom: the program. Finds the command, collects its configuration, runs it, turns the outcome into an exit code.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <headroom/device.h>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/text.h"

/* The deepest use of it is the planner's search, some 310 KiB: jobs stand in its frames (tests/unit/test_pressure.c). */
enum { STACK_BYTES = 512 << 10 };

const cli_command commands[] = {
    {"plan", "MODEL [OPTIONS]", "what a job needs, to the byte, before it runs", HR_FOR_PLAN, 0,
     "Compiles the job and prints its memory and its predicted time. Needs no weights and reserves nothing. The "
     "options are those of "
     "`headroom train`, which runs the very same plan.\n"
     "Exit 0 when the job fits its budget, 3 when it does not; then alternatives that were each planned and do fit are "
     "listed: what keeps the results' bits first, and within each class of effect the cheapest in time.",
     "headroom plan gpt2-124m --seq 1024 --micro-batch 4\n"
     "headroom plan llama-3-8b --device rtx-4090 --recompute block\n"
     "headroom plan gpt2-124m --budget 6GiB --auto\n"
     "headroom plan llama-2-7b --device a100-80 --table seq,micro-batch\n"
     "headroom plan gpt2-124m --json | jq .tiers.device.reserved_bytes",
     command_plan},
    {"train", "MODEL --data PATH... --out RUN [OPTIONS]", "train inside a memory budget", HR_FOR_TRAIN, 0,
     "Plans the job, refuses it with exit 3 when it does not fit, else runs it and writes a run directory: run.json, "
     "metrics.jsonl, checkpoints/ and final/, a Hugging Face model. A preset or a bare config.json starts from random "
     "weights.\n"
     "Ctrl-C saves a checkpoint of the last step that is done and exits 130; a second one leaves at once.",
     "headroom train tiny-llama-bytes --data docs/*.md --out run --steps 200 --budget 1GiB\n"
     "headroom train ./my-model --data train.jsonl --eval-data held.jsonl --eval-every 100 --out run\n"
     "headroom train tiny-llama-bytes --data docs/*.md --steps 200 --resume run",
     command_train},
    {"evaluate", "MODEL --data PATH... [OPTIONS]", "mean token loss and perplexity", HR_FOR_EVALUATE, 0,
     "Prints the mean loss per counted label over all files, its exponential and the number of labels.",
     "headroom evaluate run/final --data held.txt", command_evaluate},
    {"generate", "MODEL --prompt TEXT [OPTIONS]", "continue a text", HR_FOR_GENERATE, 0,
     "Continues a prompt with a planned KV cache and writes what is new to standard output as it is made; with --chat "
     "the prompt is a user's message, and the model answers it. Byte-level models and models with a tokenizer take and "
     "give text; for others a prompt is a list of token ids, and ids are printed.",
     "headroom generate run/final --prompt 'The memory of' --max-tokens 200\n"
     "headroom generate ./SmolLM2-135M-Instruct --chat --prompt 'What is a budget?' --temperature 0\n"
     "headroom generate run/final --prompt-file - --temperature 0 < prompt.txt",
     command_generate},
    {"chat", "MODEL [OPTIONS]", "a conversation with a model", HR_FOR_CHAT, 0,
     "Reads a message per line and answers it, as `headroom generate --chat` answers one. The KV cache is kept: of each turn "
     "only what is new is computed. Ctrl-C stops an answer, Ctrl-D or /exit leaves, /reset begins anew. Answers go to standard "
     "output and all else to standard error, so that a pipe can hold the conversation.\n"
     "When the context is full the oldest messages are left out, which is said; --context makes room for more.",
     "headroom chat ./SmolLM2-135M-Instruct\n"
     "headroom chat ./base --adapter run/final --system 'Answer in one sentence.' --temperature 0\n"
     "printf 'What is a budget?\\nAnd a plan?\\n' | headroom chat ./SmolLM2-135M-Instruct --max-tokens 60 --quiet",
     command_chat},
    {"devices", "[NAME] [OPTIONS]", "the devices that a plan can be made for", HR_FOR_DEVICES, 1,
     "Lists this machine's CPU and the table of devices with their published figures; with NAME, all that is known of "
     "one.\n"
     "--probe measures this machine with the kernels that run jobs (about 30 seconds) and stores it under "
     "HEADROOM_CACHE, else ~/.cache/headroom; predicted times and fixed bytes of plans then come from it.",
     "headroom devices\nheadroom devices rtx-4090\nheadroom devices --probe", command_devices},
    {"explain", "FILE|DIR|- [OPTIONS]", "why it ran out of memory, to one cause", HR_FOR_EXPLAIN, 1,
     "Reads pasted text or a whole log (- for standard input), a memory snapshot of PyTorch, a run directory or a directory with "
     "the snapshots of several ranks (of which the first to fail is explained), and says where the device's bytes are, one cause with its certainty, the arithmetic behind it and what helps: replayed under other "
     "settings (which says how far that carries), planned for the failing device (--model and the options of a job), or unproven advice.\n"
     "A snapshot does not state the device's total: --budget or --device gives it.\n"
     "Exit 0 when something was explained, 5 when the text holds no out-of-memory message.",
     "headroom explain train.log\npython train.py 2>&1 | headroom explain -\nheadroom explain --json train.log\n"
     "headroom explain train.log --model gpt2-124m --seq 1024 --micro-batch 16\nheadroom explain snapshot.pickle\nheadroom explain run",
     command_explain},
    {"inspect", "FILE|DIR|- [OTHER] [OPTIONS]", "what is in a memory snapshot", HR_FOR_INSPECT, 2,
     "Reads a memory snapshot of PyTorch (torch.cuda.memory._dump_snapshot, any version; pickle, JSON, gzip), what its profiler left "
     "(a Chrome trace with memory events, a raw memory timeline), one of ours or a run directory, and prints what was live at the last failure or at the peak, where the reserved bytes are, whether the failing "
     "request would have fit, and what grows from step to step. Nothing in a pickle is executed. Categories that the file does "
     "not state are inferred, and marked so. With OTHER: what changed from FILE to OTHER. Of a directory with one snapshot of each "
     "rank: who is highest, what it has beyond the lowest, and who failed first.",
     "headroom inspect snapshot.pickle\nheadroom inspect snapshot.pickle --at peak --by size --top 20\n"
     "headroom inspect before.pickle after.pickle --by category\nheadroom inspect before.pickle after.pickle --html report.html\n"
     "headroom inspect snapshot.pickle --export speedscope peak.json\nheadroom inspect snapshot.pickle --json | jq .at",
     command_inspect},
    {"replay", "SNAPSHOT|- [OPTIONS]", "a recorded trace under other allocator settings", HR_FOR_REPLAY, 1,
     "Runs the recorded requests of a PyTorch memory snapshot through an allocator with PyTorch's policy: under the recorded "
     "settings, which tells how far the answer can be believed, and under those of --alloc-conf, or of --search. Says whether it "
     "would have failed and what it would have reserved.",
     "headroom replay snapshot.pickle --search\n"
     "headroom replay snapshot.pickle --alloc-conf expandable_segments:True\n"
     "headroom replay snapshot.pickle --capacity 24GiB --json",
     command_replay},
    {"convert", "SOURCE TARGET [OPTIONS]", "a model between Hugging Face and GGUF, or quantized", HR_FOR_CONVERT, 2,
     "A Hugging Face directory becomes a GGUF file, a GGUF file a Hugging Face directory: weights, configuration, tokenizer "
     "and chat template. Weights are streamed, at most the largest tensor and 64 MiB are held. The target appears when it "
     "is whole.\n"
     "A directory with adapters (RUN/final of a run with --lora) becomes a GGUF file that llama.cpp adds to a model by --lora.\n"
     "GGUF files of type F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL and IQ4_XS are read.",
     "headroom convert run/final model.gguf --quantize q4_K_M\n"
     "headroom convert SmolLM2-135M-Instruct.Q4_1.gguf ./SmolLM2-135M-Instruct --type bf16",
     command_convert},
    {"merge", "MODEL ADAPTER... --out DIR [OPTIONS]", "adapters into the weights of their model", HR_FOR_MERGE,
     MAX_OPERANDS,
     "Adds adapters, as RUN/final of a run with --lora and PEFT have them, or from GGUF files, to the weights of a Hugging Face directory: in "
     "fp32, rounded once to the type of each tensor. The result is a model like the first one: its shards, types, "
     "configuration and tokenizer. Weights are streamed, 16 MiB and the A and B of a matrix are held (with --onto "
     "dequantized a matrix as well, 7 bytes an element). DIR appears when it is whole.\n"
     "An adapter that was trained beside quantized weights (--quantize) is merged onto the original ones all the same, "
     "which is said; --onto dequantized gives the function that was trained. --data prints the loss of both functions on "
     "given rows.",
     "headroom merge ./SmolLM2-135M-Instruct run/final --out merged\n"
     "headroom merge ./base one/final two/final --weights 0.7,0.3 --out both\n"
     "headroom merge ./base run/final --onto dequantized --quantize nf4+dq --type f32 --out trained\n"
     "headroom merge ./base run/final --out merged --data held.jsonl --seq 512",
     command_merge},
    {"tokenize", "MODEL [FILE|-] [OPTIONS]", "text to token ids and back", HR_FOR_TOKENIZE, 2,
     "Prints the token ids of a file, or of standard input, as one document. MODEL is a model directory, a tokenizer.json, "
     "tokenizer.model, *.tiktoken or GGUF file; nothing but its tokenizer is read. Special tokens in the text are taken as such.",
     "headroom tokenize ./SmolLM2-135M-Instruct README.md\n"
     "echo 'Hello, world' | headroom tokenize model.gguf --tokens\n"
     "headroom tokenize model.gguf book.txt --stats\n"
     "headroom tokenize model.gguf ids.txt --decode",
     command_tokenize},
    {"data", "FILE... --model MODEL [OPTIONS]", "what is in data files, before training on them", HR_FOR_DATA, 0,
     "Reads files or directories as `headroom train` would, and prints what each was taken for, documents, tokens and counted "
     "labels, token lengths, the longest rows, what each way of packing gives, broken rows, and examples in which what does "
     "not count is marked.\n"
     "Exit 5 when there are broken rows, unless --skip-bad is given.",
     "headroom data chat.jsonl --model ./SmolLM2-135M-Instruct\n"
     "headroom data corpus/ --model gpt2-124m --document-separator '\\n\\n' --seq 512\n"
     "headroom data chat.jsonl --model ./base --chat-template chatml --json | jq .tokens",
     command_data},
    {"help", "[COMMAND|techniques] [OPTIONS]", "describe a command, or print the manual page", HR_FOR_HELP, 1,
     "Describes a command. All help, the manual page and completion come from the same table as the options "
     "themselves.\n"
     "`headroom help techniques` lists what saves memory: what each technique saves, costs and excludes, and what it does "
     "to results.",
     "headroom help train\nheadroom help techniques\nheadroom help --man > headroom.1\nheadroom help --completion bash > "
     "~/.local/share/bash-completion/completions/headroom\n"
     "headroom help --completion zsh > ~/.zfunc/_headroom\n"
     "headroom help --completion fish > ~/.config/fish/completions/headroom.fish",
     command_help},
    {"version", "[OPTIONS]", "print the version", HR_FOR_VERSION, 0,
     "Prints the version of the program and its library.", "headroom version", command_version},
};
const unsigned command_count = sizeof commands / sizeof *commands;

const cli_command *command_find(const char *name) {
  for (unsigned i = 0; i < command_count; i++)
    if (strcmp(commands[i].name, name) == 0) return &commands[i];
  return NULL;
}

hr_status command_version(cli_config *config, hr_error *error) {
  json_writer json;
  (void)error;
  if (!config->own.json) {
    (void)printf("headroom %s\n", hr_version());
    return HR_OK;
  }
  json_write_begin(&json, stdout);
  json_write_text(&json, "version", hr_version());
  json_write_end(&json);
  return HR_OK;
}

static hr_status unknown_command(const char *word, hr_error *error) {
  hri_near search;
  hri_near_begin(&search, word);
  for (unsigned i = 0; i < command_count; i++) hri_near_offer(&search, commands[i].name);
  hri_fail(error, HR_ERROR_USAGE, word[0] == '-' ? "unknown option %s" : "unknown command '%s'", word);
  if (hri_near_end(&search)) return hri_hint(error, HR_ERROR_USAGE, "headroom %s", hri_near_end(&search));
  return hri_hint(error, HR_ERROR_USAGE, "headroom help");
}

/* Every refusal comes with a remedy: what is not special enough to have its own gets the general one. */
static void complete_hint(const cli_command *command, hr_status status, hr_error *error) {
  if (error->hint[0]) return;
  if (status == HR_ERROR_USAGE)
    hri_hint(error, status, "headroom help %s describes the options and their values", command->name);
  if (status == HR_ERROR_INPUT) hri_hint(error, status, "correct the file, or name another one");
}

/* Whose limit it was: what refuses memory says nothing about itself. */
static void complete_memory_hint(hr_status status, hr_error *error) {
  uint64_t room;
  const char *limit = hr_host_limit_now(&room);
  if (status != HR_ERROR_MEMORY || error->hint[0]) return;
  hri_hint(error, status, "%s leaves %s: raise it, or give the job less", limit, SIZE_TEXT(room));
}

static hr_status run_command(const cli_command *command, int count, char **words, hr_error *error) {
  cli_config config;
  hr_status status;
  config_init(&config, command->bit);
  status = config_arguments(&config, count, words, error);
  if (status == HR_OK && config.own.help) {
    screen_init(config.own.color);
    help_command(command, stdout);
    config_deinit(&config);
    return HR_OK;
  }
  if (status == HR_OK) status = config_environment(&config, error);
  if (status == HR_OK) status = config_recipe(&config, error);
  screen_init(config.own.color);
  config_environment_unknown();
  if (status == HR_OK) status = command->run(&config, error);
  complete_hint(command, status, error);
  complete_memory_hint(status, error);
  config_deinit(&config);
  return status;
}

/* A result that did not arrive is a failure, whatever the command thought of it. */
static hr_status close_output(hr_status status, hr_error *error) {
  struct rlimit limit;
  struct stat info;
  int failed;
  screen_flush(stdout);
  failed = screen_failure();
  if ((!failed && !ferror(stdout)) || status != HR_OK) return status;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && fstat(STDOUT_FILENO, &info) == 0 && S_ISREG(info.st_mode) &&
      (rlim_t)info.st_size >= limit.rlim_cur) {
    hri_fail(error, HR_ERROR_IO,
             "cannot write to standard output: the file-size limit (ulimit -f) allows no more than %llu bytes",
             (unsigned long long)limit.rlim_cur);
    return hri_hint(error, HR_ERROR_IO, "lift it with ulimit -f unlimited");
  }
  if (failed) (void)hri_fail_errno(error, failed, "write to", "standard output");
  else (void)hri_fail(error, HR_ERROR_IO, "cannot write to standard output");
  return hri_hint(error, HR_ERROR_IO, "check the disk or the program that reads the output");
}

/* The stack grows when it is touched, and the kernel ends the process where the heap has taken the last of the address
 * space by then. So it grows now, behind a proof that there is room. */
static __attribute__((noinline)) void grow_stack(void) {
  volatile char room[STACK_BYTES / 4 * 3];
  for (size_t at = sizeof room; at > 0; at -= 4096) room[at - 1] = 0; /* downwards, page by page, as it grows */
}

static hr_status take_stack(hr_error *error) {
  void *proof = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (proof != MAP_FAILED) {
    (void)munmap(proof, STACK_BYTES);
    grow_stack();
    return HR_OK;
  }
  hri_fail(error, HR_ERROR_BUDGET,
           "the limits of address space and data (ulimit -v, RLIMIT_AS; ulimit -d, RLIMIT_DATA) "
           "leave less than %u KiB for the stack",
           STACK_BYTES >> 10);
  return hri_hint(error, HR_ERROR_BUDGET, "lift them: ulimit -v unlimited, ulimit -d unlimited");
}

/* Of the three streams one may be closed (`2>&-`), and the next file that is opened would get its number: a model or a run
 * would hold what was meant for the screen. So /dev/null takes it, opened the other way round: using it fails as before. */
static void hold_streams(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* A file that may not grow is an error that names it, not a signal. And the stack of this thread, which parsers of
 * nested input use, is asked for where the limit is lower and may be raised. */
static hr_status prepare_process(hr_error *error) {
  struct rlimit stack;
  (void)signal(SIGXFSZ, SIG_IGN);
  if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= STACK_BYTES) /* RLIM_INFINITY is the largest number */
    return take_stack(error);
  stack.rlim_cur = STACK_BYTES;
  if (stack.rlim_max >= STACK_BYTES && setrlimit(RLIMIT_STACK, &stack) == 0) return take_stack(error);
  hri_fail(error, HR_ERROR_BUDGET, "the stack limit (ulimit -s, RLIMIT_STACK) leaves less than %u KiB",
           STACK_BYTES >> 10);
  return hri_hint(error, HR_ERROR_BUDGET, "raise it: ulimit -s 8192");
}

int main(int count, char **words) {
  const cli_command *command = NULL;
  hr_error error = {0};
  hr_status status;
  hold_streams();
  status = prepare_process(&error);
  if (status != HR_OK) {
    text_print_error(&error);
    return hr_status_exit_code(status);
  }
  screen_init(COLOR_AUTO);
  if (count < 2) {
    help_overview(stderr);
    return hr_status_exit_code(HR_ERROR_USAGE);
  }
  if (strcmp(words[1], "--help") == 0 || strcmp(words[1], "-h") == 0) command = command_find("help");
  else if (strcmp(words[1], "--version") == 0) command = command_find("version");
  else command = command_find(words[1]);
  status = command ? run_command(command, count - 2, words + 2, &error) : unknown_command(words[1], &error);
  status = close_output(status, &error);
  if (status != HR_OK && error.message[0]) text_print_error(&error);
  return hr_status_exit_code(status);
}
