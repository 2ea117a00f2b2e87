/* SPDX-License-Identifier: Apache-2.0 */
/* The checker's clocks: who knows what of whom. A thread's clock counts its acts of telling others;
   each thread keeps the highest clock of every other that it was told, of the lanes of its warp
   always, of all threads and agents (async.h) where the block has barriers between warps. Beside
   it, the highest clock whose writes fence.proxy.async made visible to copies and products. */
#ifndef PARE_SIMT_CLOCK_H
#define PARE_SIMT_CLOCK_H

#include "async.h"

namespace simt
{

void clock_block(void);   /* begins */
void clock_barrier(void); /* of all threads */
uint16_t clock_of(unsigned thread);
/* Was thread t told what `who` did at this clock, and before? */
bool clock_knows(unsigned t, unsigned who, unsigned clock);
/* Of the running thread. */
unsigned clock_now(void);
bool clock_told(int who, unsigned clock);

void clock_warp(int warp, unsigned lanes);
void clock_meet(const int *threads, int n);
void clock_release(int barrier);
void clock_complete(int barrier, unsigned clock);
void clock_acquire(int barrier);
void clock_learn(unsigned lanes, int agent, unsigned clock);
void clock_fence(void);

/* Who begins an asynchronous access: the running thread, or the lanes of its warp, who then know
   what all of them know. */
void clock_view_thread(void);
void clock_view_warp(void);
bool clock_seen(unsigned who, unsigned clock);
bool clock_fenced(unsigned who, unsigned clock); /* its writes; of a thread */

} // namespace simt

#endif
