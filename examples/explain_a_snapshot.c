/* A memory snapshot of PyTorch (torch.cuda.memory._dump_snapshot) to its peak, one cause and what was proven to help.
 *
 *     explain_a_snapshot [snapshot.pickle]
 *
 * Introduces: hr_snapshot_read, hr_explain_trace, hr_inspect, hr_inspect_text, hr_replay_search,
 * hr_explain_snapshot. */
#include <stdio.h>

#include <headroom/explain.h>

static hr_status explain(const hr_snapshot *snapshot, hr_error *error) {
  hr_inspect_options look;
  hr_replay_options how;
  hr_oom_evidence evidence = {0};
  hr_inspection *inspection = NULL;
  hr_explanation *explanation = NULL;
  hr_replay replay;
  hr_replay_result *results = NULL;
  char *text = NULL;
  hr_status status;
  hr_inspect_options_init(&look);
  hr_replay_options_init(&how);
  look.trace = how.trace = hr_explain_trace(snapshot);
  status = hr_inspect(snapshot, &look, &inspection, error);
  if (status == HR_OK) status = hr_inspect_text(inspection, 3, 1u << HR_BY_CATEGORY, &text, error);
  if (status == HR_OK) (void)printf("%s\n", text);
  evidence.inspection = inspection;
  if (status == HR_OK && hr_replay_search(snapshot, &how, &replay, &results, &evidence.result_count, error) == HR_OK) {
    evidence.replay = &replay; /* without a replay (a snapshot of a profiler, say) nothing is proven, and that is all */
    evidence.results = results;
  }
  if (status == HR_OK) status = hr_explain_snapshot(&evidence, NULL, &explanation, error);
  if (status == HR_OK) {
    const hr_oom_failure *f = &explanation->failures[explanation->primary];
    (void)printf("%s (%s): %s\n", hr_oom_cause_name(f->cause), hr_oom_certainty_name(f->certainty), f->verdict);
    for (uint32_t k = 0; k < f->advice_count; k++)
      (void)printf("  %s: %s\n", hr_oom_basis_name(f->advice[k].basis), f->advice[k].text);
  }
  hr_explanation_destroy(explanation);
  hr_free(results);
  hr_free(text);
  hr_inspection_destroy(inspection);
  return status;
}

int main(int argc, char **argv) {
  hr_snapshot *snapshot = NULL;
  hr_error error = {0};
  hr_status status;
  if (argc < 2) {
    (void)printf("usage: %s snapshot.pickle\n", argv[0]);
    return 0;
  }
  status = hr_snapshot_read(argv[1], NULL, &snapshot, &error);
  if (status == HR_OK) status = explain(snapshot, &error);
  hr_snapshot_destroy(snapshot);
  if (status != HR_OK) (void)fprintf(stderr, "%s\n  try: %s\n", error.message, error.hint);
  return hr_status_exit_code(status);
}
