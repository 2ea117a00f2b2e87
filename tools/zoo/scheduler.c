/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/scheduler.h"

enum { WAITS, RUNS, DONE, FAILED, BLOCKED };

pare_status pare_zoo_scheduler_init(pare_arena *arena, pare_zoo_scheduler *turns,
                                    const pare_zoo_plan *plan, int jobs)
{
    *turns = (pare_zoo_scheduler){.plan = plan, .jobs = jobs};
    turns->state = pare_arena_alloc(arena, (size_t)plan->node_count, 1);
    return turns->state ? PARE_OK : PARE_MEMORY;
}

static bool is_ready(const pare_zoo_scheduler *t, int node)
{
    const int parent = t->plan->nodes[node].parent;
    return t->state[node] == WAITS && (parent < 0 || t->state[parent] == DONE);
}

int pare_zoo_scheduler_next(pare_zoo_scheduler *t)
{
    const int most = t->jobs > 1 ? 2 * t->jobs : 1;
    int beside = -1, alone = -1, waiting = 0;
    if (t->running == t->jobs || (t->running && t->alone)) return -1;
    while (t->first < t->plan->node_count && t->state[t->first] >= DONE) t->first++;
    for (int i = t->first; i < t->plan->node_count && (beside < 0 || waiting < most); i++) {
        if (!is_ready(t, i)) continue;
        if (!t->plan->nodes[i].alone) {
            if (beside < 0) beside = i;
        } else if (!waiting++) {
            alone = i;
        }
    }
    if (t->jobs == 1) return alone >= 0 && (beside < 0 || alone < beside) ? alone : beside;
    if (alone < 0) t->draining = false;
    if (waiting >= most || beside < 0) t->draining = alone >= 0;
    if (t->draining) return t->running ? -1 : alone;
    return beside;
}

void pare_zoo_scheduler_begin(pare_zoo_scheduler *t, int node)
{
    t->state[node] = RUNS;
    t->alone = t->plan->nodes[node].alone;
    t->running++;
}

void pare_zoo_scheduler_end(pare_zoo_scheduler *t, int node, bool done)
{
    if (t->state[node] == RUNS) t->running--;
    t->state[node] = done ? DONE : FAILED;
    for (int i = node + 1; !done && i < t->plan->node_count; i++) {
        const int parent = t->plan->nodes[i].parent;
        if (parent >= node && t->state[parent] >= FAILED && t->state[i] == WAITS)
            t->state[i] = BLOCKED;
    }
}

void pare_zoo_scheduler_leave(pare_zoo_scheduler *t, int node) { t->state[node] = BLOCKED; }

bool pare_zoo_scheduler_again(pare_zoo_scheduler *t, int node)
{
    if (t->state[node] != DONE && t->state[node] != FAILED) return false;
    t->state[node] = WAITS;
    if (node < t->first) t->first = node;
    return true;
}

bool pare_zoo_scheduler_ended(const pare_zoo_scheduler *t, int node)
{
    return t->state[node] == DONE || t->state[node] == FAILED;
}
