/* The door of libheadroom-text: what turns text into what a model reads, and back, without the rest of Headroom.
 *
 * tokenizer.h opens tokenizer.json, SentencePiece models, tiktoken ranks and GGUF files and gives the ids of the
 * programs that made them; chat.h renders Jinja chat templates without Python. The library is an archive of its own
 * (libheadroom-text.a) that needs libc, jansson, PCRE2 and utf8proc, and it is contained in libheadroom;
 * docs/libraries.md says how it is built.
 *
 * Threads: as tokenizer.h and chat.h say. */
#ifndef HEADROOM_TEXT_H
#define HEADROOM_TEXT_H

#include <headroom/chat.h>
#include <headroom/status.h>
#include <headroom/tokenizer.h>

#endif
