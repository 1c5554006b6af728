/* How other trainers call what our options do: for whoever comes from one of them and types its names. */
#ifndef CLI_PEERS_H
#define CLI_PEERS_H

/* What to write instead of another trainer's option, as words of a command line ("--lr X"), or NULL when the name is
 * none that is known. Underscores and dashes are the same, letters of any case too. */
const char *peer_option(const char *name);

#endif
