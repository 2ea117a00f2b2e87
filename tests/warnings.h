/* SPDX-License-Identifier: Apache-2.0 */
/* What a test hears of warnings: how many, and the last one. */
#ifndef PARE_TESTS_WARNINGS_H
#define PARE_TESTS_WARNINGS_H

#include "runtime/base/ctx.h"

#include <stdio.h>

static int warnings;
static char warning[4096];

static void on_log(void *user, pare_log_level level, const char *line)
{
    (void)user;
    if (level != PARE_LOG_WARNING) return;
    warnings++;
    snprintf(warning, sizeof warning, "%s", line);
}

static inline void hear_warnings(pare_ctx *ctx)
{
    ctx->log = on_log;
    warnings = 0;
    warning[0] = 0;
}

#endif
