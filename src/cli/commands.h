/* The commands: one table from which dispatch, help, the man page and completion are made. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include <stdio.h>

#include "cli/options.h"

typedef struct command {
  const char *name, *operands, *summary;
  unsigned bit;            /* FOR_* */
  uint32_t operand_count;  /* positional arguments besides MODEL, at most */
  const char *about;       /* paragraphs, '\n' between them */
  const char *examples;    /* lines */
  /* HR_ERROR_BUDGET with an empty message: the screen said it already. */
  hr_status (*run)(config *config, hr_error *error);
} command;

extern const command commands[];
extern const unsigned command_count;
const command *command_find(const char *name);

hr_status command_plan(config *config, hr_error *error);
hr_status command_train(config *config, hr_error *error);
hr_status command_evaluate(config *config, hr_error *error);
hr_status command_generate(config *config, hr_error *error);
hr_status command_devices(config *config, hr_error *error);
hr_status command_help(config *config, hr_error *error);
hr_status command_version(config *config, hr_error *error);

/* Help of one command, or the overview when it is NULL. */
void help_command(const command *command, FILE *stream);
void help_overview(FILE *stream);

#endif
