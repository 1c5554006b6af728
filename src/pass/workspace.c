/* Gives each node the scratch that its backend asks for, as a storage that lives for this node alone. */
#include <assert.h>

#include "pass/pass.h"

hr_status hri_pass_workspace(hri_job *job, const hri_backend *backend, hr_error *error) {
  job->current_pass = HRI_PASS_WORKSPACE;
  job->team = backend->team;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    const hri_program *p = &job->programs[kind];
    for (size_t at = 0; at < p->order.count; at++) {
      hri_id id = p->order.items[at], scratch;
      uint64_t bytes = 0;
      hri_place place = {.program = (uint8_t)kind,
                         .tier = HRI_DEVICE,
                         .role = HRI_ROLE_WORKSPACE,
                         .layer = job->nodes.items[id].layer,
                         .unit = job->nodes.items[id].unit};
      HRI_TRY(backend->workspace(backend->self, job, &job->nodes.items[id], &bytes, error));
      if (bytes == 0) continue;
      assert(hri_operand_find(job, &job->nodes.items[id], HRI_SCRATCH, 0) ==
             HRI_NONE); /* transfers come with their staging and ask for nothing */
      scratch = hri_tensor_new(job, place, hri_name(job, "scratch.%s", hri_op_name(job->nodes.items[id].op)), HRI_U8, 1,
                               &bytes, NULL);
      hri_node_add_operand(job, id, scratch, HRI_SCRATCH);
    }
  }
  return hri_job_ok(job, error);
}
