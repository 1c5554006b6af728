/* The commands: one table from which dispatch, help, the man page and completion are made. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include <stdio.h>

#include "cli/options.h"

typedef struct cli_command {
  const char *name, *operands, *summary;
  unsigned bit;           /* FOR_* */
  uint32_t operand_count; /* positional arguments besides MODEL, at most */
  const char *about;      /* paragraphs, '\n' between them */
  const char *examples;   /* lines */
  /* HR_ERROR_BUDGET with an empty message: the screen said it already. */
  hr_status (*run)(cli_config *config, hr_error *error);
} cli_command;

extern const cli_command commands[];
extern const unsigned command_count;
const cli_command *command_find(const char *name);

hr_status command_plan(cli_config *config, hr_error *error);
hr_status command_train(cli_config *config, hr_error *error);
hr_status command_evaluate(cli_config *config, hr_error *error);
hr_status command_generate(cli_config *config, hr_error *error);
hr_status command_chat(cli_config *config, hr_error *error);
hr_status command_devices(cli_config *config, hr_error *error);
hr_status command_explain(cli_config *config, hr_error *error);
hr_status command_inspect(cli_config *config, hr_error *error);
hr_status command_replay(cli_config *config, hr_error *error);
hr_status command_convert(cli_config *config, hr_error *error);
hr_status command_merge(cli_config *config, hr_error *error);
hr_status command_data(cli_config *config, hr_error *error);
hr_status command_tokenize(cli_config *config, hr_error *error);
hr_status command_help(cli_config *config, hr_error *error);
hr_status command_version(cli_config *config, hr_error *error);

void help_command(const cli_command *command, FILE *stream);
void help_overview(FILE *stream);
void help_techniques(FILE *stream);
extern const char help_techniques_topic[]; /* what `help` knows beside the commands */
/* The completion script of a shell: bash, zsh or fish. */
void help_completion(const char *shell);

/* What the help of one command says of an option: a clause of its row that begins with names of commands ("inspect: whose trace")
 * is of those alone, and loses the names. */
enum { HELP_BYTES = 512 };
char *option_help(const hr_field *field, unsigned command, char out[HELP_BYTES]);

#endif
