/* Settings of the framework that no option of a job stands for (hr_pytorch_options.conf): "optim=paged_adamw_8bit,use_reentrant=true",
 * by the names that TrainingArguments has where it has one. */
#ifndef HRI_PYTORCH_SETTINGS_H
#define HRI_PYTORCH_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/status.h>

typedef enum hri_torch_optim {
  HRI_OPTIM_OF_JOB = 0, /* none was named */
  HRI_OPTIM_ADAMW_TORCH,
  HRI_OPTIM_ADAMW_TORCH_FUSED,
  HRI_OPTIM_ADAMW_BNB_8BIT,
  HRI_OPTIM_PAGED_ADAMW_8BIT,
  HRI_OPTIM_SGD,
  HRI_OPTIMS
} hri_torch_optim;

typedef struct hri_torch_settings {
  hri_torch_optim optim;
  bool reentrant;
  uint32_t eval_rows, eval_batches, eval_to_host; /* per_device_eval_batch_size, 0: not named; eval_batches; ... */
  bool metrics;                                   /* compute_metrics */
} hri_torch_settings;

/* text NULL or "": defaults. USAGE names the setting, the value and what there is. */
hr_status hri_torch_settings_parse(const char *text, hri_torch_settings *out, hr_error *error);
const char *hri_torch_optim_name(hri_torch_optim optim);

#endif
