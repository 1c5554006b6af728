/* Which bytes are whose, before it is asked why there were too few. A message lists processes by ids that may be
 * another namespace's, its figures are rounded and may add up to more than the device has: here they become one
 * account.
 *
 * The neighbours may rely on this: no process is counted for this one and for another, and the shares of a device whose
 * total is known add up to it exactly; what the figures leave open is a share of its own and no one's. */
#include "explain/cause_parts.h"

/* Sums the listed processes, leaving out one that must be this very process under another id: with all that this
 * process reserves, it would not fit into what is used. */
static void sum_processes(hri_oom_message *m) {
  hr_oom_failure *f = &m->failure;
  hr_oom_value *v = f->figures;
  bool used_known = hri_oom_known(&v[HR_OOM_TOTAL]) && hri_oom_known(&v[HR_OOM_FREE]);
  uint64_t used = hri_oom_less(v[HR_OOM_TOTAL].bytes, v[HR_OOM_FREE].bytes);
  uint64_t mine = hri_oom_known(&v[HR_OOM_THIS_PROCESS]) ? v[HR_OOM_THIS_PROCESS].bytes : 0;
  const uint64_t least_context = 64ull << 20;
  uint64_t sum = 0, slack = 0;
  if (hri_oom_known(&v[HR_OOM_RESERVED]) && v[HR_OOM_RESERVED].bytes > mine) mine = v[HR_OOM_RESERVED].bytes;
  if (hri_oom_known(&v[HR_OOM_ALLOCATED]) && v[HR_OOM_ALLOCATED].bytes > mine) mine = v[HR_OOM_ALLOCATED].bytes;
  if (mine < least_context) mine = least_context; /* whoever asked a device for memory has a context on it */
  for (uint32_t i = 0; i < m->process_count; i++) {
    uint64_t margin = v[HR_OOM_TOTAL].slack_bytes + v[HR_OOM_FREE].slack_bytes + m->process_slack[i] +
                      v[HR_OOM_RESERVED].slack_bytes + v[HR_OOM_THIS_PROCESS].slack_bytes;
    if (used_known && m->processes[i] + mine > used + margin) {
      hri_oom_line(f,
                   "a listed process with %s is this very process under another id: %s + %s would exceed the %s in use",
                   HRI_OOM_SIZE(m->processes[i]), HRI_OOM_SIZE(m->processes[i]), HRI_OOM_SIZE(mine),
                   HRI_OOM_SIZE(used));
      if (!hri_oom_known(&v[HR_OOM_THIS_PROCESS]))
        v[HR_OOM_THIS_PROCESS] = (hr_oom_value){HR_OOM_DERIVED, m->processes[i], m->process_slack[i]};
      continue;
    }
    sum += m->processes[i];
    slack += m->process_slack[i];
    f->process_count++;
  }
  if (f->process_count > 0) v[HR_OOM_OTHER_PROCESSES] = (hr_oom_value){HR_OOM_DERIVED, sum, slack};
}

/* Where the text lists all processes by their ids in another namespace, this one is among them: the one whose bytes are
 * what it reserves and a context, if no other is like it. */
static void find_mine(hri_oom_message *m) {
  const uint64_t context = 2ull << 30;
  hr_oom_value *v = m->failure.figures;
  uint32_t mine = m->process_count, alike = 0;
  if (v[HR_OOM_THIS_PROCESS].state != HR_OOM_ABSENT || m->process_count < 2 || !hri_oom_known(&v[HR_OOM_RESERVED]))
    return;
  for (uint32_t i = 0; i < m->process_count; i++) {
    uint64_t least = v[HR_OOM_RESERVED].bytes,
             has = m->processes[i] + m->process_slack[i] + v[HR_OOM_RESERVED].slack_bytes;
    if (has < least || has - least > context) continue;
    alike++;
    mine = i;
  }
  if (alike != 1) return;
  hri_oom_line(&m->failure, "of the listed processes the one with %s is this one: it alone can hold the %s reserved",
               HRI_OOM_SIZE(m->processes[mine]), HRI_OOM_SIZE(v[HR_OOM_RESERVED].bytes));
  v[HR_OOM_THIS_PROCESS] = (hr_oom_value){HR_OOM_DERIVED, m->processes[mine], m->process_slack[mine]};
  m->process_count--;
  m->processes[mine] = m->processes[m->process_count];
  m->process_slack[mine] = m->process_slack[m->process_count];
}

void hri_oom_find_owners(hri_oom_message *m) {
  find_mine(m);
  sum_processes(m);
}

/* The device's bytes by owner; exactly the total. What rounding or spilling adds comes off the largest share. */
void hri_oom_divide(hr_oom_failure *f) {
  const hr_oom_value *v = f->figures;
  uint64_t total = v[HR_OOM_TOTAL].bytes, sum = 0, excess;
  uint64_t pools = v[HR_OOM_PRIVATE_POOLS].bytes;
  bool mine = hri_oom_known(&v[HR_OOM_THIS_PROCESS]);
  if (!hri_oom_known(&v[HR_OOM_TOTAL])) return;
  f->share_total_bytes = total;
  hri_oom_share(f, "live tensors of this process", hri_oom_less(v[HR_OOM_ALLOCATED].bytes, pools));
  hri_oom_share(f, "private pools of this process", pools);
  hri_oom_share(f, "reserved by this process, not allocated", v[HR_OOM_UNALLOCATED].bytes);
  if (mine)
    hri_oom_share(f, "this process outside the allocator",
                  hri_oom_less(v[HR_OOM_THIS_PROCESS].bytes, v[HR_OOM_RESERVED].bytes));
  hri_oom_share(f, "other processes listed", v[HR_OOM_OTHER_PROCESSES].bytes);
  hri_oom_share(f, "free", v[HR_OOM_FREE].bytes);
  for (uint32_t i = 0; i < f->share_count; i++) sum += f->shares[i].bytes;
  hri_oom_share(f,
                mine ? "unknown: processes not listed, driver"
                     : "unknown: other processes, this one's context and libraries",
                hri_oom_less(total, sum));
  for (excess = f->excess_bytes = hri_oom_less(sum, total); excess > 0;) {
    uint32_t largest = 0;
    uint64_t take;
    for (uint32_t i = 1; i < f->share_count; i++)
      if (f->shares[i].bytes > f->shares[largest].bytes) largest = i;
    take = f->shares[largest].bytes < excess ? f->shares[largest].bytes : excess;
    f->shares[largest].bytes -= take;
    excess -= take;
  }
}

hri_oom_ledger hri_oom_ledger_of(const hr_oom_value *v) {
  hri_oom_ledger l = {.total = v[HR_OOM_TOTAL].bytes,
                      .free = v[HR_OOM_FREE].bytes,
                      .requested = v[HR_OOM_REQUESTED].bytes,
                      .allocated = v[HR_OOM_ALLOCATED].bytes,
                      .unallocated = v[HR_OOM_UNALLOCATED].bytes,
                      .reserved = v[HR_OOM_RESERVED].bytes,
                      .mine = v[HR_OOM_THIS_PROCESS].bytes,
                      .others = v[HR_OOM_OTHER_PROCESSES].bytes,
                      .pools = v[HR_OOM_PRIVATE_POOLS].bytes,
                      .knows_requested = hri_oom_known(&v[HR_OOM_REQUESTED]),
                      .knows_total = hri_oom_known(&v[HR_OOM_TOTAL]),
                      .knows_free = hri_oom_known(&v[HR_OOM_FREE]),
                      .knows_allocated = hri_oom_known(&v[HR_OOM_ALLOCATED]),
                      .knows_unallocated = hri_oom_known(&v[HR_OOM_UNALLOCATED]),
                      .knows_mine = hri_oom_known(&v[HR_OOM_THIS_PROCESS])};
  l.request_slack = v[HR_OOM_TOTAL].slack_bytes + v[HR_OOM_REQUESTED].slack_bytes;
  l.held_slack = v[HR_OOM_TOTAL].slack_bytes + v[HR_OOM_ALLOCATED].slack_bytes;
  l.live_slack = l.held_slack + v[HR_OOM_REQUESTED].slack_bytes + v[HR_OOM_PRIVATE_POOLS].slack_bytes;
  l.fit_slack = v[HR_OOM_FREE].slack_bytes + v[HR_OOM_REQUESTED].slack_bytes;
  l.slack = l.live_slack + v[HR_OOM_FREE].slack_bytes;
  return l;
}
