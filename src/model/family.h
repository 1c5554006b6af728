/* What a family of models fixes, and the sizes that make sense. Internal to src/model. */
#ifndef HRI_MODEL_FAMILY_H
#define HRI_MODEL_FAMILY_H

#include <stddef.h>

#include <headroom/model.h>

/* Sane limits: beyond every published model, and low enough that no product below overflows (parameters < 2^54, rows of
 * a fused matrix < 2^31). Layers: HR_MAX_LAYERS of headroom/job.h. */
enum {
  HRI_MODEL_MAX_LAYERS = 512,
  HRI_MODEL_MAX_HIDDEN = 1 << 20,
  HRI_MODEL_MAX_HEADS = 1 << 16,
  HRI_MODEL_MAX_HEAD_SIZE = 1 << 14,
  HRI_MODEL_MAX_MLP = 1 << 22,
  HRI_MODEL_MAX_VOCABULARY = 1 << 24,
  HRI_MODEL_MAX_POSITIONS = 1 << 26,
  HRI_MODEL_MAX_QKV_ROWS = 1 << 24
};

/* Clears `model` and sets what the family fixes (norm, activation, gating, positions, biases, tying) and the defaults
 * of its transformers configuration (epsilon, theta, init_std, tokens); sizes and names stay empty. */
void hri_family_defaults(hr_model *model, hr_family family);

/* Fills what follows from the sizes: kv_head_count, head_size and rotary_size when 0, attention_scale = head_size **
 * -0.5 when 0, and gemma's embedding_scale. */
void hri_family_derive(hr_model *model);

/* Marks the layers that slide when nobody lists them: all of them, in qwen those from `first` on, in gemma2 every
 * second, in gemma3 all but each `pattern`-th, in smollm3 those that are not rotated. */
void hri_family_windows(hr_model *model, uint64_t first, uint64_t pattern);
enum { HRI_ROPE_INTERVAL = 4 }; /* where a config does not say */
/* Marks the layers whose heads are not rotated when nobody lists them: in smollm3 each `interval`-th, elsewhere none. */
void hri_family_rope_layers(hr_model *model, uint64_t interval);
/* How much of a head is rotated where a config does not say, as a share. */
double hri_family_partial(hr_family family);

enum { HRI_WINDOW_FIRST = 28, HRI_WINDOW_PATTERN = 6 }; /* where a config does not say */

/* Where transformers' modeling code of a family has dropout beside the attention probabilities, which all drop: on the
 * embeddings (positions added), and on what attention and MLP add to the residual. */
bool hri_family_drops_embedding(hr_family family);
bool hri_family_drops_residual(hr_family family);
bool hri_family_drops_mlp(hr_family family); /* on what the MLP alone adds, or on both */

/* With which probability each place of a model drops in a training that asks for `asked` (hr_job.dropout); 0 where its family
 * has no dropout. */
typedef struct hri_dropout {
  double attention, attention_output, mlp, embedding;
} hri_dropout;
hri_dropout hri_model_dropout(const hr_model *model, double asked);

/* Whether the factor on embeddings is rounded to the type of the weights. */
bool hri_family_rounds_factor(hr_family family);

/* The family called `name` ("gpt2", "gemma3_text"); false when there is none. */
bool hri_family_find(const char *name, hr_family *family);
/* The preset of the sizes that a name from the Hub means ("meta-llama/Meta-Llama-3-8B-Instruct"); NULL: none has them. */
const char *hri_preset_of_hub(const char *name);

/* "gpt2, llama, ..." */
const char *hri_family_list(void);

/* Copies text into a field of `bytes`, cut at a whole UTF-8 character. */
void hri_model_set_text(char *out, size_t bytes, const char *text);

#endif
