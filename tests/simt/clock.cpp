// SPDX-License-Identifier: Apache-2.0
// Vector clocks of a block's threads (Mattern 1989), see clock.h.
#include "clock.h"
#include <cstring>

namespace simt
{
namespace
{

struct row {
    uint16_t seen[CLOCKS], fenced[MAX_THREADS];
};

uint16_t own[MAX_THREADS];      // each thread's clock
uint16_t near[MAX_THREADS][32]; // what it knows of its warp mates
bool high;                      // clocks begin again at the next barrier
bool wide;                      // far is used in this block
row *far;                       // of threads
row *gathering, *complete;      // of barriers: who arrived in this phase; in the last
row shared_view;
const row *view = &shared_view;

unsigned threads(void) { return static_cast<unsigned>(thread_count()); }

void highest(uint16_t *to, const uint16_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = from[i] > to[i] ? from[i] : to[i];
}

void lowest(uint16_t *to, const uint16_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = from[i] < to[i] ? from[i] : to[i];
}

void join(row *to, const row &from)
{
    highest(to->seen, from.seen, threads());
    highest(to->seen + FIRST_BARRIER, from.seen + FIRST_BARRIER, CLOCKS - FIRST_BARRIER);
    highest(to->fenced, from.fenced, threads());
}

// What thread t did so far is told; what it does from here on is later.
void tick(unsigned t)
{
    if (++own[t] <= 50000) return;
    high = true;
    if (wide && own[t] > MOST_CLOCK)
        simt_fault("the checker's clocks are at their end: %d steps without __syncthreads",
                   MOST_CLOCK);
}

void widen(void)
{
    if (wide) return;
    wide = true;
    if (!far) {
        far = new row[MAX_THREADS];
        gathering = new row[BARRIERS];
        complete = new row[BARRIERS];
    }
    memset(far, 0, sizeof *far * threads());
    memset(gathering, 0, sizeof *gathering * BARRIERS);
    memset(complete, 0, sizeof *complete * BARRIERS);
    for (unsigned t = 0; t < threads(); t++)
        memcpy(far[t].seen + t / 32 * 32, near[t], sizeof near[t]);
}

const row &told(unsigned t)
{
    far[t].seen[t] = own[t];
    return far[t];
}

void begin_again(void)
{
    high = false;
    memset(near, 0, sizeof near);
    for (uint16_t &c : own) c = 1;
}

void meet(const int *members, int n)
{
    row all = {};
    for (int i = 0; i < n; i++) join(&all, told(static_cast<unsigned>(members[i])));
    for (int i = 0; i < n; i++) {
        far[members[i]] = all;
        tick(static_cast<unsigned>(members[i]));
    }
}

void meet_near(int warp, unsigned lanes)
{
    uint16_t all[32] = {};
    for (int l = 0; l < 32; l++) {
        if (!(lanes >> l & 1)) continue;
        int t = warp * 32 + l;
        near[t][l] = own[t];
        highest(all, near[t], 32);
    }
    for (int l = 0; l < 32; l++)
        if (lanes >> l & 1) {
            memcpy(near[warp * 32 + l], all, sizeof all);
            tick(static_cast<unsigned>(warp * 32 + l));
        }
}

} // namespace

void clock_block(void)
{
    wide = false;
    begin_again();
}

void clock_barrier(void)
{
    if (wide) {
        int all[MAX_THREADS];
        for (int t = 0; t < static_cast<int>(threads()); t++) all[t] = t;
        meet(all, static_cast<int>(threads()));
    } else if (high)
        begin_again();
}

uint16_t clock_of(unsigned thread) { return own[thread]; }

unsigned clock_now(void) { return own[simt_here.linear]; }

bool clock_told(int who, unsigned clock)
{
    return clock_knows(simt_here.linear, static_cast<unsigned>(who), clock);
}

bool clock_knows(unsigned t, unsigned who, unsigned clock)
{
    if (wide) {
        view = &far[t];
        return clock_seen(who, clock);
    }
    return who / 32 == t / 32 && near[t][who % 32] >= clock;
}

void clock_warp(int warp, unsigned lanes)
{
    if (!wide) {
        meet_near(warp, lanes);
        return;
    }
    int members[32], n = 0;
    for (int l = 0; l < 32; l++)
        if (lanes >> l & 1) members[n++] = warp * 32 + l;
    meet(members, n);
}

void clock_meet(const int *members, int n)
{
    widen();
    meet(members, n);
}

void clock_release(int barrier)
{
    widen();
    join(&gathering[barrier], told(simt_here.linear));
    tick(simt_here.linear);
}

void clock_complete(int barrier, unsigned clock)
{
    gathering[barrier].seen[FIRST_BARRIER + barrier] = static_cast<uint16_t>(clock);
    complete[barrier] = gathering[barrier];
}

void clock_acquire(int barrier)
{
    widen();
    join(&far[simt_here.linear], complete[barrier]);
}

void clock_learn(unsigned lanes, int agent, unsigned clock)
{
    widen();
    for (unsigned l = 0; l < 32; l++)
        if (lanes >> l & 1) far[simt_here.warp * 32 + l].seen[agent] = static_cast<uint16_t>(clock);
}

void clock_fence(void)
{
    widen();
    far[simt_here.linear].fenced[simt_here.linear] = own[simt_here.linear];
    tick(simt_here.linear);
}

void clock_view_thread(void)
{
    widen();
    view = &told(simt_here.linear);
}

void clock_view_warp(void)
{
    widen();
    const unsigned first = simt_here.warp * 32;
    shared_view = told(first);
    for (unsigned l = 1; l < 32; l++) {
        const row &r = told(first + l);
        lowest(shared_view.seen, r.seen, CLOCKS);
        lowest(shared_view.fenced, r.fenced, MAX_THREADS);
    }
    view = &shared_view;
}

// What a group's product read is known to who waited for all four warps.
bool clock_seen(unsigned who, unsigned clock)
{
    if (who < FIRST_PRODUCT) return view->seen[who] >= clock;
    const uint16_t *warps = view->seen + FIRST_MULTIPLIER + (who - FIRST_PRODUCT) * 4;
    return warps[0] >= clock && warps[1] >= clock && warps[2] >= clock && warps[3] >= clock;
}

bool clock_fenced(unsigned who, unsigned clock)
{
    return who >= MAX_THREADS || view->fenced[who] >= clock;
}

} // namespace simt
