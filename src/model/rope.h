/* Inverse frequencies of the rotary embedding, for every kind of scaling. */
#ifndef HRI_MODEL_ROPE_H
#define HRI_MODEL_ROPE_H

#include <headroom/model.h>

/* Fills inverse [rotary_size / 2] and the factor on cosines and sines. max_positions is the model's; `longest` is the
 * longest sequence that the table is made for, on which dynamic and longrope depend. Source: transformers
 * modeling_rope_utils.py, which computes in fp32: the values are fp32 numbers, rounded where it rounds. */
void hri_rope_frequencies(const hr_rope *rope, uint32_t rotary_size, uint32_t max_positions, uint64_t longest,
                          double *inverse, double *factor);

#endif
