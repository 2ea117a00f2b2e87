/* SPDX-License-Identifier: Apache-2.0 */
/* All of libpare for a C program: cc $(pkg-config --cflags pare) app.c $(pkg-config --static --libs
   pare). The order is that of the work: files and data in, a graph, a run, ranges, a quantized
   or pruned graph, a trained one. */
#ifndef PARE_PARE_H
#define PARE_PARE_H

#include "runtime/base/arena.h"
#include "runtime/base/ctx.h"
#include "runtime/base/hash.h"
#include "runtime/base/size.h"
#include "runtime/base/types.h"

#include "runtime/graph/graph.h"

#include "runtime/ops/kernel.h"
#include "runtime/ops/ops.h"

#include "formats/data.h"
#include "formats/file.h"
#include "formats/formats.h"
#include "formats/import.h"
#include "formats/json.h"
#include "formats/npy.h"
#include "formats/onnx.h"

#include "runtime/eval/eval.h"
#include "runtime/exec/batch.h"
#include "runtime/exec/exec.h"
#include "runtime/exec/step_times.h"
#include "runtime/passes/passes.h"

#include "calib/calib.h"
#include "distill/distill.h"
#include "distill/qat.h"
#include "prune/latency.h"
#include "prune/prune.h"
#include "prune/pruner.h"
#include "prune/score.h"
#include "prune/target.h"
#include "quant/quant.h"

#endif
