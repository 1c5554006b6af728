/* Conversion of whole models between a Hugging Face directory and a GGUF file: weights, configuration, tokenizer and
 * chat template; and of a directory to one whose weights are quantized. Weights are streamed: beside the files' heads
 * and the tokenizer, at most the largest tensor (to be quantized: in fp32, and what becomes of it) and 64 MiB are held.
 *
 * Threads: conversions to different targets may overlap; a note comes on the calling thread. */
#ifndef HEADROOM_CONVERT_H
#define HEADROOM_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_convert_options {
  const char *type;       /* "f32", "f16", "bf16", to GGUF also "q8_0", "q6_K", "q5_K", "q5_K_M", "q4_K", "q4_K_M",
                           * "q4_0"; NULL: as the source, f16 for a quantized one */
  hr_quantize quantize;   /* not NONE: a directory becomes one that bitsandbytes reads; `type` must be NULL then */
  bool without_tokenizer; /* leave out tokenizer and template */
  bool
      replace; /* what stands at the target gives way, at the very end: a file; of directories those that hold a model's files
                             * and nothing else (docs/gguf.md) */
  void (*on_note)(void *context, const char *note); /* facts worth knowing, as they turn up; may be NULL */
  bool (*should_stop)(
      void *context); /* polled between parts of weights: true = INTERRUPTED, and nothing stays behind; may
                                       * be NULL */
  void *context;
} hr_convert_options;
/* Defaults: all zero. */
HR_API void hr_convert_options_init(hr_convert_options *options);

typedef struct hr_convert_result {
  char from[16], to[16];          /* "GGUF", "Hugging Face", "PEFT" */
  char source_type[16], type[16]; /* of most weights: "q4_1", "f16" */
  uint32_t tensor_count;          /* written */
  uint64_t parameter_count;
  uint64_t data_bytes;         /* of all tensors as written */
  uint32_t block_tensor_count; /* written in blocks of any type */
  uint32_t fallback_count;     /* of all: in another type than was asked for, as their rows are no whole blocks */
  double block_error; /* root mean square of the difference between those and their source, over that of the source */
  double worst_error; /* the same of one tensor, where it is largest ... */
  char worst_tensor[64]; /* ... and its name in the file; "": no tensor is in blocks */
  uint64_t token_count;  /* in the tokenizer that was carried over; 0: none */
  bool has_template;
  char kept
      [4096]; /* where a directory that was to be replaced is kept after all, for what came to lie in it; "": nowhere */
} hr_convert_result;

/* Converts the directory `source` to the GGUF file `target`, or the GGUF file `source` to the directory `target`; with
 * options->quantize the directory `source` to the directory `target`. A directory with adapters becomes a GGUF file of those
 * alone.
 * `options` may
 * be NULL. The target appears whole, at the end, or not at all; what a kill leaves beside it, the next conversion there
 * removes. USAGE: the target exists, or holds more than a model; the type makes no sense there;
 * INPUT: what is wrong with the source; UNSUPPORTED: what the target's format or this version cannot hold; IO;
 * MEMORY. */
HR_CHECKED hr_status hr_convert(const char *source, const char *target, const hr_convert_options *options,
                                hr_convert_result *result, hr_error *error);

#ifdef __cplusplus
}
#endif
#endif
