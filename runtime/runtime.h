/* SPDX-License-Identifier: Apache-2.0 */
/* Models in memory and running them: status, types, the graph, operators, passes, plans, devices,
   evaluation. */
#ifndef PARE_RUNTIME_RUNTIME_H
#define PARE_RUNTIME_RUNTIME_H

#include "runtime/base/arena.h"
#include "runtime/base/ctx.h"
#include "runtime/base/hash.h"
#include "runtime/base/size.h"
#include "runtime/base/types.h"
#include "runtime/eval/eval.h"
#include "runtime/eval/pipeline.h"
#include "runtime/eval/relay.h"
#include "runtime/eval/roofline.h"
#include "runtime/exec/batch.h"
#include "runtime/exec/chain.h"
#include "runtime/exec/exec.h"
#include "runtime/exec/shards.h"
#include "runtime/exec/stages.h"
#include "runtime/exec/step_times.h"
#include "runtime/graph/graph.h"
#include "runtime/ops/kernel.h"
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"

#endif
