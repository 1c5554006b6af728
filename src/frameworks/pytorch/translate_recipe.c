/* The translation (translate.h) for torchtune's recipes, whose models and loop are its own: it has no autocast, clips nothing unless it is told to,
 * and says a setting by the keys of its configurations. */
#include "frameworks/pytorch/torchtune.h"
#include "frameworks/pytorch/translate.h"

static void set_batch(const hr_job *job, hri_torch_job *t) {
  t->model = &job->model;
  t->batch = job->micro_batch;
  t->tokens = job->sequence_length;
  t->accumulate = job->accumulate;
  t->steps = 2;
  t->ranks = 1;
  t->capability = job->device.compute_capability;
  t->recipe.runs = true;
  if (job->model.attention_softcap > 0) t->attention = HRI_TORCH_EAGER; /* Gemma2Attention's own products */
}

static void set_precision(const hr_job *job, hri_torch_translation *out) {
  bool half = job->precision == HR_PRECISION_BF16 || job->precision == HR_PRECISION_BF16_PURE;
  out->job.weights = half ? HRI_BF16 : HRI_F32;
  hri_torch_say(out, "dtype=%s", half ? "bf16" : "fp32");
  if (job->precision == HR_PRECISION_BF16)
    hri_torch_say_unlike(out, "weights, gradients and states are bf16: its recipes have no autocast");
  if (job->precision == HR_PRECISION_TF32) hri_torch_say_unlike(out, "tf32 is not its recipes' to set");
}

static void set_optimizer(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hr_job *job = asked->job;
  hri_torch_set_optimizer(out, hri_torch_stack_optim(asked->stack, job, asked->settings), false);
  out->job.recipe.in_backward = job->update == HR_UPDATE_IN_BACKWARD;
  out->job.clip = job->clip > 0 && (job->given & HR_GIVEN_CLIP);
  hri_torch_say(out, "%s%s", out->job.recipe.in_backward ? " in the backward" : "",
                out->job.clip ? "" : ", no clipping");
}

static void set_model(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hr_lora *lora = &asked->job->model.lora;
  out->job.checkpoint = asked->settings->checkpointing;
  if (out->job.checkpoint) hri_torch_say(out, ", activation checkpointing");
  out->job.quantized = hri_torch_quantized_as(asked->job->quantize);
  if (out->job.quantized) hri_torch_say(out, ", base in NF4Tensor");
  if (lora->rank)
    hri_torch_say(out, ", %sadapters of rank %u in the type of the weights", lora->dora ? "DoRA's " : "", lora->rank);
}

static void set_loss(const hri_recipe_settings *s, hri_torch_translation *out) {
  hri_torch_recipe *recipe = &out->job.recipe;
  recipe->chunks = s->whole_loss ? 0 : s->chunks > 0 ? s->chunks : HRI_TUNE_CHUNKS;
  if (recipe->chunks) hri_torch_say(out, ", the loss in %u chunks", recipe->chunks);
  else hri_torch_say(out, ", the loss of whole logits in fp32");
  recipe->packed = s->packed;
  if (recipe->packed) hri_torch_say(out, ", packed rows by flex_attention");
}

static void say_unlike(const hr_job *job, hri_torch_translation *out) {
  const hr_model *m = &job->model;
  bool window = m->sliding_window > 0 && m->family != HR_FAMILY_GEMMA2 && job->sequence_length > m->sliding_window;
  if (job->recompute.kind != HR_RECOMPUTE_BLOCK && job->recompute.kind != HR_RECOMPUTE_NONE)
    hri_torch_say_unlike(out, "activation checkpointing is of every layer");
  if (job->attention == HR_ATTENTION_MATERIALIZED && (job->given & HR_GIVEN_ATTENTION) && m->attention_softcap <= 0)
    hri_torch_say_unlike(out, "attention is scaled_dot_product_attention");
  if (window) hri_torch_say_unlike(out, "attention has no window");
  if (job->given & HR_GIVEN_LOSS_CHUNK) hri_torch_say_unlike(out, "chunks of the loss are loss.num_output_chunks");
  hri_torch_say_left_out(out, job);
}

void hri_torch_translate_recipe(const hri_torch_asked *asked, hri_torch_translation *out) {
  set_batch(asked->job, &out->job);
  set_precision(asked->job, out);
  set_optimizer(asked, out);
  set_model(asked, out);
  set_loss(&asked->settings->recipe, out);
  say_unlike(asked->job, out);
}
