/* SPDX-License-Identifier: Apache-2.0 */
/* Removing channels and weights: dependency groups and plans, scores, targets, latency, and the
   pruner that does all of it. */
#ifndef PARE_PRUNE_PRUNE_H
#define PARE_PRUNE_PRUNE_H

#include "prune/latency.h"
#include "prune/plan.h"
#include "prune/pruner.h"
#include "prune/score.h"
#include "prune/target.h"

#endif
