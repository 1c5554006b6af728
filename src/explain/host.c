/* Why a machine did not give memory to a process of ours. Unlike a pasted message, all figures are at hand and exact,
 * so the cause follows from which limit was the least. */
#include <stdio.h>

#include "explain/message.h"

static void figure(hr_oom_failure *f, hr_oom_figure which, uint64_t bytes) {
  f->figures[which] = (hr_oom_value){.state = HR_OOM_READ, .bytes = bytes};
}

/* The machine's bytes by owner; they add up to its total. Shared pages are counted for each process that has them, so
 * the other processes' sum is cut to what is left. */
static void add_shares(hr_oom_failure *f, const hr_host_facts *h) {
  uint64_t rest = h->total_bytes, parts[3] = {h->available_bytes, h->process_resident_bytes, h->other_bytes};
  static const char *const names[] = {"available", "this process", "other processes"};
  if (rest == 0) return;
  f->share_total_bytes = rest;
  for (int k = 0; k < 3; k++) {
    uint64_t bytes = parts[k] < rest ? parts[k] : rest;
    if (bytes) f->shares[f->share_count++] = (hr_oom_share){names[k], bytes};
    rest -= bytes;
  }
  if (rest)
    f->shares[f->share_count++] = (hr_oom_share){"unknown: the kernel, files in memory (tmpfs), shared memory", rest};
}

static void add_processes(hr_oom_failure *f, const hr_host_facts *h) {
  char size[32];
  for (uint32_t k = 0; k < h->other_count && k < 4; k++)
    hri_oom_line(f, "  process %d (%s) has %s", h->others[k].pid, h->others[k].name,
                 hri_size_text(h->others[k].resident_bytes, size));
}

static void judge_cap(hr_oom_failure *f, const char *limit, const char *remedy, uint64_t room, const hr_host_facts *h) {
  char a[32], b[32];
  f->cause = HR_OOM_CAP;
  f->certainty = HR_OOM_CERTAIN;
  (void)snprintf(f->verdict, sizeof f->verdict, "a limit of this process, not the machine: %s leaves %s", limit,
                 hri_size_text(room, a));
  hri_oom_line(f, "asked for %s; %s leaves %s", hri_size_text(h->requested_bytes, a), limit, hri_size_text(room, b));
  hri_oom_line(f, "the machine itself has %s available", hri_size_text(h->available_bytes, a));
  figure(f, HR_OOM_ALLOWED, room);
  hr_oom_add_advice(f, HR_OOM_ADVICE, remedy, "none", "", 0);
}

static void judge_machine(hr_oom_failure *f, const hr_host_facts *h) {
  bool others = h->other_bytes && h->requested_bytes <= h->available_bytes + h->other_bytes &&
                h->other_bytes >= h->requested_bytes - h->available_bytes;
  char a[32], b[32], c[32];
  hri_oom_line(f, "asked for %s; the machine has %s available of %s", hri_size_text(h->requested_bytes, a),
               hri_size_text(h->available_bytes, b), hri_size_text(h->total_bytes, c));
  if (!others) {
    f->cause = HR_OOM_TOO_BIG;
    f->certainty = HR_OOM_CERTAIN;
    (void)snprintf(f->verdict, sizeof f->verdict, "the job is too big for this machine by %s",
                   hri_size_text(h->requested_bytes - h->available_bytes, a));
    hri_oom_line(f, "without the %s of other processes it would still not fit", hri_size_text(h->other_bytes, a));
    return;
  }
  f->cause = HR_OOM_OTHER_PROCESS;
  f->certainty = HR_OOM_LIKELY; /* shared pages are counted more than once */
  (void)snprintf(f->verdict, sizeof f->verdict,
                 "other processes hold %s of this machine: without them the job would fit",
                 hri_size_text(h->other_bytes, a));
  hri_oom_line(f, "other processes have %s resident: with it %s would be available", hri_size_text(h->other_bytes, a),
               hri_size_text(h->available_bytes + h->other_bytes, b));
  add_processes(f, h);
  hr_oom_add_advice(f, HR_OOM_ADVICE, "end or move the processes named above, then start again", "none", "", 0);
}

/* The least of what each limit leaves is the cause where it is less than what was asked for; false where none is. */
static bool judge_limits(hr_oom_failure *f, const hr_host_facts *h) {
  const struct {
    uint64_t room;
    const char *name, *remedy;
  } caps[] = {{h->group_room_bytes, "its memory control group (container, systemd)",
               "give the container or service more memory (docker --memory, MemoryMax)"},
              {h->address_space_room_bytes, "its address-space limit (RLIMIT_AS)",
               "lift the limit: ulimit -v unlimited"},
              {h->data_room_bytes, "its data limit (RLIMIT_DATA)", "lift the limit: ulimit -d unlimited"}};
  int least = 0;
  for (int k = 1; k < 3; k++)
    if (caps[k].room < caps[least].room) least = k;
  if (h->available_bytes < h->requested_bytes && h->available_bytes < caps[least].room) judge_machine(f, h);
  else if (caps[least].room < h->requested_bytes)
    judge_cap(f, caps[least].name, caps[least].remedy, caps[least].room, h);
  else return false;
  return true;
}

static void judge_unknown(hr_oom_failure *f, const hr_host_facts *h) {
  char a[32], b[32];
  f->cause = HR_OOM_UNKNOWN;
  f->certainty = HR_OOM_UNDECIDABLE;
  f->candidates = 1u << HR_OOM_CAP | 1u << HR_OOM_OTHER_PROCESS;
  (void)snprintf(f->verdict, sizeof f->verdict, "not explained by the figures: %s were refused while %s are available",
                 hri_size_text(h->requested_bytes, a), hri_size_text(h->available_bytes, b));
  hri_oom_line(
      f,
      "strict overcommit (vm.overcommit_memory = 2), a limit on locked memory, or memory that was freed since can do that");
  hr_oom_add_advice(f, HR_OOM_ADVICE, "look at /proc/sys/vm/overcommit_memory and at CommitLimit in /proc/meminfo",
                    "none", "", 0);
}

void hr_explain_host(const hr_host_facts *h, hr_oom_failure *f) {
  *f = (hr_oom_failure){.source = "headroom",
                        .wording = "",
                        .framework = "headroom",
                        .phase = "",
                        .rank = -1,
                        .device_index = -1,
                        .event = UINT64_MAX};
  figure(f, HR_OOM_REQUESTED, h->requested_bytes);
  figure(f, HR_OOM_FREE, h->available_bytes);
  figure(f, HR_OOM_THIS_PROCESS, h->process_resident_bytes);
  if (h->total_bytes) figure(f, HR_OOM_TOTAL, h->total_bytes);
  if (h->other_bytes) figure(f, HR_OOM_OTHER_PROCESSES, h->other_bytes);
  f->process_count = h->other_count;
  add_shares(f, h);
  if (!judge_limits(f, h)) judge_unknown(f, h);
}
