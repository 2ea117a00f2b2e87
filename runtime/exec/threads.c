/* SPDX-License-Identifier: Apache-2.0 */
/* The cores of the machine, the binding of OpenMP threads to them, and the threads of a pool of
   replicas, which last as long as the pool. Between two rounds that follow each other closely, as
   the phases of a training step do, they spin for some microseconds; then they sleep. They are
   plain threads: each may have a team of OpenMP threads of its own, which a nested parallel region
   would not keep. */
#include "runtime/cpu/isa.h"
#include "runtime/exec/exec.h"
#include "runtime/exec/replicas.h"

#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

int pare_cpu_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set)) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

/* The n-th core of a set. */
static int core_at(const cpu_set_t *set, int n)
{
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, set) && n-- == 0) return core;
    return -1;
}

static void bind_to(int core)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    (void)sched_setaffinity(0, sizeof one, &one); /* a refusal costs speed only */
}

void pare_threads_bind(int threads)
{
    cpu_set_t all;
    if (threads < 2 || sched_getaffinity(0, sizeof all, &all) || CPU_COUNT(&all) < threads) return;
#pragma omp parallel num_threads(threads)
    bind_to(core_at(&all, omp_get_thread_num()));
}

const char *pare_cpu_isa_name(void)
{
    switch (pare_cpu_isa()) {
    case PARE_ISA_PORTABLE: return "portable";
    case PARE_ISA_AVX2: return "avx2";
    case PARE_ISA_AVX512: return "avx512";
    case PARE_ISA_VNNI: return "vnni";
    }
    return "";
}

/* --- the threads of a pool --- */

enum { SPINS = 4000 };

/* Threads beside the caller's. They wait for rounds; in each round every thread calls `work`. */
struct pare_workers {
    pthread_t *thread; /* (count) */
    int count, started, spins;
    void (*work)(void *user, int worker);
    void *user;
    pthread_mutex_t lock;
    pthread_cond_t begun, ended;
    atomic_uint round;
    atomic_int working;
    bool stop; /* under the lock */
};

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool await_round(pare_workers *w, unsigned seen)
{
    for (int i = w->spins; i > 0 && atomic_load(&w->round) == seen; i--) pause_briefly();
    (void)pthread_mutex_lock(&w->lock);
    while (!w->stop && atomic_load(&w->round) == seen) (void)pthread_cond_wait(&w->begun, &w->lock);
    bool go = !w->stop;
    (void)pthread_mutex_unlock(&w->lock);
    return go;
}

typedef struct start {
    pare_workers *workers;
    int worker;
} start;

static void *thread_main(void *user)
{
    const start s = *(start *)user;
    unsigned seen = 0;
    pare_free(user);
    for (; await_round(s.workers, seen); seen++) {
        s.workers->work(s.workers->user, s.worker);
        if (atomic_fetch_sub(&s.workers->working, 1) > 1) continue;
        (void)pthread_mutex_lock(&s.workers->lock);
        (void)pthread_cond_signal(&s.workers->ended);
        (void)pthread_mutex_unlock(&s.workers->lock);
    }
    return NULL;
}

pare_status pare_workers_new(pare_ctx *ctx, pare_workers **out, int count,
                             void (*work)(void *user, int worker), void *user)
{
    pare_workers *w = pare_alloc(ctx, 1, sizeof *w);
    if (!w) return PARE_MEMORY;
    w->count = count;
    w->work = work;
    w->user = user;
    /* spinning takes a core from whoever works: only where there are enough */
    w->spins = count < pare_cpu_cores() ? SPINS : 0;
    (void)pthread_mutex_init(&w->lock, NULL); /* on Linux none of these fails */
    (void)pthread_cond_init(&w->begun, NULL);
    (void)pthread_cond_init(&w->ended, NULL);
    *out = w;
    return PARE_OK;
}

void pare_workers_free(pare_workers *w)
{
    if (!w) return;
    (void)pthread_mutex_lock(&w->lock);
    w->stop = true;
    (void)pthread_cond_broadcast(&w->begun);
    (void)pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->started; i++) (void)pthread_join(w->thread[i], NULL);
    (void)pthread_cond_destroy(&w->ended);
    (void)pthread_cond_destroy(&w->begun);
    (void)pthread_mutex_destroy(&w->lock);
    pare_free(w->thread);
    pare_free(w);
}

static pare_status workers_start(pare_ctx *ctx, pare_workers *w)
{
    if (!w->thread) w->thread = pare_alloc(ctx, (size_t)w->count, sizeof *w->thread);
    if (!w->thread) return PARE_MEMORY;
    for (; w->started < w->count; w->started++) {
        start *s = pare_alloc(ctx, 1, sizeof *s);
        if (!s) return PARE_MEMORY;
        *s = (start){w, w->started + 1};
        int e = pthread_create(&w->thread[w->started], NULL, thread_main, s);
        if (e) {
            pare_free(s);
            return PARE_FAIL(ctx, MEMORY, "no thread could be started: %s", strerror(e));
        }
    }
    return PARE_OK;
}

pare_status pare_workers_run(pare_ctx *ctx, pare_workers *w)
{
    if (w->started < w->count) PARE_TRY(workers_start(ctx, w));
    (void)pthread_mutex_lock(&w->lock);
    atomic_store(&w->working, w->count);
    atomic_fetch_add(&w->round, 1);
    (void)pthread_cond_broadcast(&w->begun);
    (void)pthread_mutex_unlock(&w->lock);
    w->work(w->user, 0);
    for (int i = w->spins; i > 0 && atomic_load(&w->working); i--) pause_briefly();
    (void)pthread_mutex_lock(&w->lock);
    while (atomic_load(&w->working)) (void)pthread_cond_wait(&w->ended, &w->lock);
    (void)pthread_mutex_unlock(&w->lock);
    return PARE_OK;
}
