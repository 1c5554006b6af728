/* PyTorch's caching allocator without PyTorch or a GPU: requests on fake addresses, its statistics, a snapshot of it,
 * and the question whether other settings would have helped.
 *
 * Introduces: hr_alloc_fake_hooks, hr_alloc_create, hr_alloc_set_label, hr_alloc_malloc, hr_alloc_free,
 * hr_alloc_summary, hr_alloc_snapshot, hr_replay_search. */
#include <stdio.h>

#include <headroom/alloc.h>
#include <headroom/replay.h>

enum { MIB = 1 << 20 };

static int fail(const hr_error *error) {
  (void)fprintf(stderr, "%s\n", error->message);
  return hr_status_exit_code(error->code);
}

static hr_status take(hr_alloc *alloc, const char *name, uint64_t mebibytes, uint64_t *address, hr_error *error) {
  hr_alloc_label label = {.category = "activation", .phase = "forward", .name = name, .layer = -1};
  hr_status status = hr_alloc_set_label(alloc, &label, error);
  return status == HR_OK ? hr_alloc_malloc(alloc, mebibytes * MIB, 0, address, error) : status;
}

/* 60 MiB are used once as a whole, then in three parts, of which the last one stays: what is free is pinned. */
static hr_status work(hr_alloc *alloc, hr_error *error) {
  uint64_t whole, part[3];
  hr_status status = take(alloc, "whole", 60, &whole, error);
  if (status == HR_OK) status = hr_alloc_free(alloc, whole, error);
  for (int k = 0; status == HR_OK && k < 3; k++) status = take(alloc, "part", 20, &part[k], error);
  for (int k = 0; status == HR_OK && k < 2; k++) status = hr_alloc_free(alloc, part[k], error);
  return status == HR_OK ? take(alloc, "large", 70, &whole, error) : status;
}

static hr_status show(hr_alloc *alloc, hr_error *error) {
  hr_alloc_stats stats;
  hr_snapshot *snapshot = NULL;
  hr_replay replay;
  hr_replay_result *results = NULL;
  uint32_t count;
  char *text = NULL, sentence[256];
  hr_status status;
  hr_alloc_get_stats(alloc, &stats);
  status = hr_alloc_summary(&stats, 0, true, &text, error);
  if (status == HR_OK) (void)printf("%s\n", text);
  hr_free(text);
  if (status == HR_OK) status = hr_alloc_snapshot(alloc, &snapshot, error); /* hr_snapshot_write makes a file of it */
  if (status == HR_OK) status = hr_replay_search(snapshot, NULL, &replay, &results, &count, error);
  if (status == HR_OK) {
    hr_replay_sentence(&replay, &results[0], sentence, sizeof sentence);
    (void)printf("PYTORCH_ALLOC_CONF=%s: %s\n", results[0].alloc_conf, sentence);
  }
  hr_free(results);
  hr_snapshot_destroy(snapshot);
  return status;
}

int main(void) {
  hr_alloc_hooks hooks;
  hr_alloc_config config = hr_alloc_config_default();
  hr_alloc *alloc = NULL;
  hr_error error;
  hr_status status = hr_alloc_fake_hooks((uint64_t)100 * MIB, &hooks, &error);
  if (status != HR_OK) return fail(&error);
  status = hr_alloc_create(&hooks, &config, &alloc, &error);
  if (status == HR_OK) status = hr_alloc_history_start(alloc, NULL, &error);
  if (status == HR_OK) status = work(alloc, &error);
  if (status == HR_ERROR_MEMORY) { /* as it should: 70 MiB are free, but not in one piece */
    (void)printf("%s\n", error.message);
    status = show(alloc, &error);
  }
  hr_alloc_destroy(alloc);
  hr_alloc_hooks_destroy(&hooks);
  return status == HR_OK ? 0 : fail(&error);
}
