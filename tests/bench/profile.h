/* SPDX-License-Identifier: Apache-2.0 */
/* Where a plan's time goes, step by step. */
#ifndef PARE_TESTS_BENCH_PROFILE_H
#define PARE_TESTS_BENCH_PROFILE_H

#include "tests/bench/side.h"

/* Runs a "pare:" side some times and writes, for each step of its plan, the median time in
   microseconds and what it does, as CSV. Fails for a side of another runtime. */
PARE_NODISCARD pare_status profile_write(pare_ctx *ctx, side *s, const char *path);

#endif
