/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that does one task after the other: what would hold up those who ask for it. */
#ifndef PARE_TOOLS_SERVE_TASKS_H
#define PARE_TOOLS_SERVE_TASKS_H

#include "runtime/base/ctx.h"

/* The caller's memory until its work begins, which may free it. */
typedef struct pare_task {
    struct pare_task *next;
    void (*work)(void *user);
    void *user;
} pare_task;

typedef struct pare_tasks pare_tasks;

PARE_NODISCARD pare_status pare_tasks_new(pare_ctx *ctx, pare_tasks **out);
/* Does what is left, then ends the thread. NULL is fine. */
void pare_tasks_free(pare_tasks *tasks);
/* Any thread may add. */
void pare_tasks_add(pare_tasks *tasks, pare_task *task, void (*work)(void *user), void *user);
#endif
