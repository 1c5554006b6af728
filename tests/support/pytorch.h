/* Jobs on cards of the table and what hr_pytorch_create says of them, for tests. */
#ifndef HRI_TEST_PYTORCH_H
#define HRI_TEST_PYTORCH_H

#include <headroom/pytorch.h>

static inline hr_job job_on(const char *model, const char *device) {
  hr_job job;
  hr_error error;
  hr_job_init(&job);
  assert_int_equal(hr_model_open(model, &job.model, &error), HR_OK);
  assert_int_equal(hr_device_find(device, &job.device, &error), HR_OK);
  return job;
}

static inline hr_pytorch_info info_with(const hr_job *job, const char *conf) {
  hr_pytorch_options options;
  hr_pytorch *pytorch;
  hr_error error;
  hr_pytorch_info info;
  hr_pytorch_options_init(&options);
  options.conf = conf;
  assert_int_equal(hr_pytorch_create(job, &options, &pytorch, &error), HR_OK);
  info = *hr_pytorch_get(pytorch);
  hr_pytorch_destroy(pytorch);
  return info;
}

#endif
