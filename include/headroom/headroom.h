/* All public headers. Reading order: status, model, device, job, plan, data, train, run, tokenizer, chat, graph, explain. */
#ifndef HEADROOM_H
#define HEADROOM_H

#include <headroom/data.h>
#include <headroom/chat.h>
#include <headroom/convert.h>
#include <headroom/device.h>
#include <headroom/explain.h>
#include <headroom/graph.h>
#include <headroom/job.h>
#include <headroom/model.h>
#include <headroom/plan.h>
#include <headroom/run.h>
#include <headroom/status.h>
#include <headroom/tokenizer.h>
#include <headroom/train.h>

#endif
