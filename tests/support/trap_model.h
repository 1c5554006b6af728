/* A model whose weights are all finite and whose loss is not once it reads one certain token: gemma2 multiplies rows of
 * the embedding by sqrt(hidden), which takes a row of 1e38 beyond fp32 and bf16 alike. The head is a matrix of its own,
 * so rows without the token train as usual. With a byte that is rare in the data a run meets one bad step; with one
 * that every row has, all steps are bad. Nothing in the program knows about it: the loader refuses values that are not
 * finite, and these are. */
#ifndef HRI_TEST_TRAP_MODEL_H
#define HRI_TEST_TRAP_MODEL_H

#include "train/session.h"

#define TRAP_MODEL                                                                                                     \
  "custom:family=gemma2,layers=2,hidden=64,heads=4,kv-heads=2,head-size=16,mlp=96,vocab=257,positions=128,tied=false"

/* Row `token` of the embedding of a loaded session becomes 1e38. */
static inline void set_trap(hri_session *s, uint32_t token) {
  const hri_job *job = &s->plan->job;
  for (size_t p = 0; p < job->params.count; p++) {
    const hri_param *param = &job->params.items[p];
    const hri_tensor *t = &job->tensors.items[param->weight];
    if (strcmp(hri_name_get(job, param->key), "token_embedding.weight") != 0) continue;
    assert_int_equal(t->dtype, HRI_F32);
    for (uint64_t c = 0; c < t->stored[1]; c++)
      ((float *)hri_executor_view(s->executor, param->weight))[token * t->stored[1] + c] = 1e38f;
    return;
  }
  fail_msg("there is no embedding");
}

/* Writes such a model into an existing directory: config.json and model.safetensors in fp32. */
static inline void make_trap_model(const char *directory, uint32_t token) {
  hri_session s = {0};
  hr_error error = {0};
  hr_job job;
  hr_job_init(&job);
  assert_int_equal(hr_model_open(TRAP_MODEL, &job.model, &error), HR_OK);
  assert_int_equal(hr_device_find("cpu", &job.device, &error), HR_OK);
  job.sequence_length = 8;
  job.threads = 1;
  if (hr_job_finish(&job, &error) != HR_OK || hri_session_plan(&s, &job, NULL, &error) != HR_OK ||
      hri_session_load(&s, NULL, NULL, &error) != HR_OK)
    fail_msg("%s", error.message);
  set_trap(&s, token);
  if (hri_session_save(&s, directory, HRI_FILE_F32, false, NULL, &error) != HR_OK) fail_msg("%s", error.message);
  hri_session_close(&s);
}

#endif
