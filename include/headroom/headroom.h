/* All public headers, in the order in which they are best read; with status.h, which says what holds for all. text.h is
 * all of libheadroom-text, alloc to report are libheadroom-mem; both build alone.
 *
 * Threads: status.h has the rule, each header what it adds. */
#ifndef HEADROOM_H
#define HEADROOM_H

#include <headroom/status.h>

#include <headroom/model.h>
#include <headroom/device.h>
#include <headroom/gpu.h>
#include <headroom/job.h>
#include <headroom/field.h>
#include <headroom/plan.h>
#include <headroom/data.h>
#include <headroom/train.h>
#include <headroom/run.h>
#include <headroom/tokenizer.h>
#include <headroom/chat.h>
#include <headroom/text.h>
#include <headroom/convert.h>
#include <headroom/merge.h>
#include <headroom/graph.h>
#include <headroom/pytorch.h>

#include <headroom/alloc.h>
#include <headroom/snapshot.h>
#include <headroom/inspect.h>
#include <headroom/replay.h>
#include <headroom/explain.h>
#include <headroom/report.h>

#endif
