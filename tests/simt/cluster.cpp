// SPDX-License-Identifier: Apache-2.0
// Clusters of blocks: PTX ISA, "barrier.cluster", "mapa", "ld.shared::cluster". All threads of a
// cluster run together. Its barrier is one of all of them. What a block reads of another's shared
// memory is a fault where that block has ended, and, under the checker, where its last thread was
// not told of the read: then the block could have ended before.
#include "async.h"
#include <cstring>

namespace simt
{
namespace
{

bool arrived[MAX_THREADS]; // and has not waited since
int arrivals;
unsigned phase; // the running one
unsigned phase_of[MAX_THREADS];
unsigned last_read[MOST_CLUSTER][MAX_THREADS]; // of a block, by a thread: its clock, 0: never
bool read_at_all;

void meet(unsigned, void *const[32]) {}

// The instructions are .aligned.
void need_warp(const char *what, const char *file, int line)
{
    simt_collective(0xffffffffu, nullptr, meet, what, file, line);
}

} // namespace

void cluster_begin(void)
{
    memset(arrived, 0, sizeof arrived);
    if (read_at_all) memset(last_read, 0, sizeof last_read);
    arrivals = 0;
    phase = 0;
    read_at_all = false;
}

void cluster_block_ends(void)
{
    if (!check || !read_at_all) return;
    for (int t = 0; t < thread_count(); t++) {
        const unsigned clock = last_read[current_rank()][t];
        if (clock && t != current_thread() && !check->told(t, clock))
            simt_fault("a block of a cluster ends while thread %d of the cluster may still read "
                       "its shared memory",
                       t);
    }
}

} // namespace simt

using namespace simt;

int simt_cluster_rank(void) { return current_rank(); }
int simt_cluster_size(void) { return cluster_blocks(); }

void simt_cluster_arrive(const char *file, int line)
{
    const int me = current_thread();
    need_warp("barrier.cluster.arrive", file, line);
    if (arrived[me])
        simt_fault("simt_cluster_arrive at %s:%d: the thread arrived before, and has not waited",
                   file, line);
    arrived[me] = true;
    phase_of[me] = phase;
    if (check) check->release(CLUSTER_BARRIER);
    if (++arrivals < thread_count()) return;
    arrivals = 0;
    if (++phase == MOST_CLOCK) simt_fault("more than %d barriers of a cluster", MOST_CLOCK);
    if (check) check->complete(CLUSTER_BARRIER, phase);
    wake(&phase);
}

void simt_cluster_wait(const char *file, int line)
{
    const int me = current_thread();
    need_warp("barrier.cluster.wait", file, line);
    if (!arrived[me])
        simt_fault("simt_cluster_wait at %s:%d: the thread has not arrived", file, line);
    while (phase_of[me] == phase) sleep_on(&phase, "simt_cluster_wait", file, line);
    arrived[me] = false;
    if (check) check->acquire(CLUSTER_BARRIER);
}

void simt_cluster_read(void *to, unsigned at, int rank, const char *file, int line)
{
    const unsigned from = at % SHARED_ROOM + static_cast<unsigned>(rank) * SHARED_ROOM;
    if (rank < 0 || rank >= cluster_blocks())
        simt_fault("simt_cluster_load at %s:%d: block %d of a cluster of %d", file, line, rank,
                   cluster_blocks());
    if (from % 16 || !shared_holds({from, 16}))
        simt_fault("simt_cluster_load at %s:%d: byte %u is not 16-byte aligned shared memory of "
                   "block %d",
                   file, line, at % SHARED_ROOM, rank);
    if (block_has_ended(rank))
        simt_fault("simt_cluster_load at %s:%d: block %d of the cluster has ended", file, line,
                   rank);
    if (check) {
        check->access(shared_base() + from, 16, false, false, __builtin_return_address(0));
        if (rank != current_rank()) last_read[rank][current_thread()] = check->now();
        read_at_all = true;
    }
    memcpy(to, shared_base() + from, 16);
}
