/* Adapters into the weights beside which they were trained: a model like any other, without adapters.
 *
 * Each adapted matrix becomes W + sum of w_i s_i B_i A_i (w_i: what the person gives, s_i: the adapter's alpha / rank, or
 * alpha / sqrt(rank)), in fp32 and rounded once to the type of its file. Weights are streamed: at most 16 MiB, the A and
 * B of one matrix in fp32, and with `dequantized` the matrix at hand in fp32 and in codes (5 bytes an element) are held.
 *
 * Threads: merges to different targets may overlap; a note comes on the calling thread. */
#ifndef HEADROOM_MERGE_H
#define HEADROOM_MERGE_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/job.h>
#include <headroom/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_merge_options {
  const double *weights; /* one for each adapter; NULL: 1 for all */
  const char *type;      /* of the result: "f32", "f16", "bf16"; NULL: each tensor's own */
  bool dequantized;      /* not onto the file's values, but onto what is left of them behind `quantize` and back */
  hr_quantize quantize;  /* with `dequantized`; HR_QUANTIZE_NONE: what the adapters say that they were trained beside */
  bool replace;          /* what stands at the target gives way, as for hr_convert */
  void (*on_note)(void *context, const char *note); /* facts worth knowing, as they turn up; may be NULL */
  bool (*should_stop)(
      void *context); /* polled between parts of weights: true = INTERRUPTED, and nothing stays behind; may
                                       * be NULL */
  void *context;
} hr_merge_options;
/* Defaults: all zero. */
HR_API void hr_merge_options_init(hr_merge_options *options);

typedef struct hr_merge_result {
  uint32_t tensor_count; /* written */
  uint32_t merged_count; /* those among them to which an adapter was added */
  uint64_t parameter_count;
  uint64_t data_bytes;  /* of all tensors as written */
  char type[16];        /* of most weights: "bf16" */
  hr_quantize quantize; /* through which the layers' matrices went; HR_QUANTIZE_NONE: through none */
  hr_quantize trained;  /* beside what the first adapter was trained, as far as it or the options say */
  char kept[4096];      /* as in hr_convert_result */
} hr_merge_result;

/* Merges adapters (directories as PEFT and RUN/final have them, or GGUF files) into the Hugging Face directory `model`, as the new
 * directory `target`: its shards, types, metadata, config.json and tokenizer files are those of the model. Both may be
 * NULL at the end. The target appears whole, at the end, or not at all. USAGE: the target exists or holds more than a
 * model, options that make no sense together; INPUT: what is wrong with model or adapter, by file and tensor, values
 * that are not finite or that the type does not reach; UNSUPPORTED: a GGUF model, adapters of kinds that are not
 * read; IO; MEMORY. */
HR_CHECKED hr_status hr_merge(const char *model, const char *const *adapters, uint32_t adapter_count,
                              const char *target, const hr_merge_options *options, hr_merge_result *result,
                              hr_error *error);

#ifdef __cplusplus
}
#endif
#endif
