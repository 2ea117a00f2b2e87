/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/tasks.h"

#include <pthread.h>

struct pare_tasks {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pare_task *first, **end; /* under the lock */
    bool stop;
};

/* The next task; NULL: there will be none. */
static pare_task *next_task(pare_tasks *t)
{
    (void)pthread_mutex_lock(&t->lock);
    while (!t->first && !t->stop) (void)pthread_cond_wait(&t->changed, &t->lock);
    pare_task *one = t->first;
    if (one && !(t->first = one->next)) t->end = &t->first;
    (void)pthread_mutex_unlock(&t->lock);
    return one;
}

static void *tasks_main(void *user)
{
    for (pare_task *one; (one = next_task(user));) one->work(one->user);
    return NULL;
}

pare_status pare_tasks_new(pare_ctx *ctx, pare_tasks **out)
{
    pare_tasks *t = pare_alloc(ctx, 1, sizeof *t);
    if (!t) return PARE_MEMORY;
    t->end = &t->first;
    (void)pthread_mutex_init(&t->lock, NULL); /* on Linux neither fails */
    (void)pthread_cond_init(&t->changed, NULL);
    if (pthread_create(&t->thread, NULL, tasks_main, t)) {
        pare_free(t);
        return PARE_FAIL(ctx, MEMORY, "no thread for tasks");
    }
    *out = t;
    return PARE_OK;
}

void pare_tasks_free(pare_tasks *t)
{
    if (!t) return;
    (void)pthread_mutex_lock(&t->lock);
    t->stop = true;
    (void)pthread_cond_signal(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
    (void)pthread_join(t->thread, NULL);
    (void)pthread_cond_destroy(&t->changed);
    (void)pthread_mutex_destroy(&t->lock);
    pare_free(t);
}

void pare_tasks_add(pare_tasks *t, pare_task *task, void (*work)(void *user), void *user)
{
    *task = (pare_task){NULL, work, user};
    (void)pthread_mutex_lock(&t->lock);
    *t->end = task;
    t->end = &task->next;
    (void)pthread_cond_signal(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
}
