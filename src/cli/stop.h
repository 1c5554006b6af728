/* Requests to stop that come as signals: from a person, a terminal that closes, a session or a batch system that ends. */
#ifndef CLI_STOP_H
#define CLI_STOP_H

#include <stdbool.h>

typedef bool stop_test(void *context);

/* From now on Ctrl-C (SIGINT), SIGTERM, SIGHUP, SIGXCPU, SIGUSR1 and SIGUSR2 ask the work at hand to stop. `words` are
 * written to standard error at once, as they are; NULL: where that is a terminal, a line feed behind its "^C". Signals
 * that are ignored stay so, but with `in_background` SIGINT does not: shells set that for every & of a script.
 *
 * Another Ctrl-C leaves at once (exit 130), half a second after the first request or later. Until then it is the same
 * request: timeout(1) sends its signal to the process and to its group, a terminal that closes sends SIGHUP itself and
 * through its shell, launchers pass on a Ctrl-C that the program got already. None of the others ever leaves at once,
 * since nobody presses them twice.
 *
 * The function says whether a request came, for should_stop. */
stop_test *stop_begin(const char *words, bool in_background);

#endif
