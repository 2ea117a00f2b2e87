// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory that count arrivals and bytes: PTX ISA, "mbarrier". A phase completes
// when the last thread has arrived and as many bytes as threads expect; who waits for it sleeps
// until then.
#include "async.h"

namespace simt
{
namespace
{

struct mbarrier {
    unsigned at;
    int count;      // arrivals of a phase
    int pending;    // that the phase still waits for
    int64_t bytes;  // that it still waits for
    unsigned phase; // number of the running one
    int owner;      // the thread that set it
    bool published; // to copies
    int waiting;    // threads
};
mbarrier barriers[BARRIERS];
int barrier_count;

mbarrier *find(unsigned at)
{
    for (int i = 0; i < barrier_count; i++)
        if (barriers[i].at == at) return &barriers[i];
    return nullptr;
}

int number_of(const mbarrier *b) { return static_cast<int>(b - barriers); }

void *bytes_at(unsigned at) { return shared_base() + at; }

// The barrier there; the checker takes what threads do with it for atomic.
mbarrier *need(unsigned at, bool writes, const char *what, const char *file, int line)
{
    mbarrier *b = find(at);
    if (!b)
        simt_fault("%s at %s:%d: no barrier was set at byte %u of shared memory", what, file, line,
                   at);
    if (check) check->access(bytes_at(at), 8, writes, true, __builtin_return_address(0));
    return b;
}

void maybe_complete(mbarrier *b)
{
    if (b->pending || b->bytes > 0) return;
    if (b->bytes < 0)
        simt_fault("barrier at byte %u, phase %u: %lld bytes more have arrived than its threads "
                   "expect",
                   b->at, b->phase, static_cast<long long>(-b->bytes));
    if (boxes_arriving(number_of(b)))
        simt_fault("barrier at byte %u, phase %u completes before all bytes of its copies have "
                   "arrived: its threads expect too few",
                   b->at, b->phase);
    b->pending = b->count;
    if (check) check->complete(number_of(b), b->phase + 1);
    if (++b->phase == MOST_CLOCK) simt_fault("more than %d phases of a barrier", MOST_CLOCK);
    b->waiting = 0;
    wake(b);
}

void arrive(mbarrier *b, const char *what, const char *file, int line)
{
    if (!b->pending)
        simt_fault("%s at %s:%d: all %d arrivals of phase %u are there, it waits for bytes alone",
                   what, file, line, b->count, b->phase);
    if (check) check->release(number_of(b));
    b->pending--;
    maybe_complete(b);
}

} // namespace

void barriers_begin(void) { barrier_count = 0; }

void barriers_tell(void)
{
    for (int i = 0; i < barrier_count; i++)
        if (barriers[i].waiting)
            say("  barrier at byte %u: %d threads wait for phase %u, which lacks %d of %d arrivals "
                "and %lld bytes",
                barriers[i].at, barriers[i].waiting, barriers[i].phase, barriers[i].pending,
                barriers[i].count, static_cast<long long>(barriers[i].bytes));
}

bool barriers_touch(const range &r)
{
    for (int i = 0; i < barrier_count; i++)
        if (overlap(r, {barriers[i].at, 8})) return true;
    return false;
}

int barrier_for_copy(unsigned bar, const char *file, int line)
{
    const mbarrier *b = need(bar, false, "a copy of a box", file, line);
    if (!b->published)
        simt_fault("a copy of a box at %s:%d: its barrier was set and not published to copies",
                   file, line);
    return number_of(b);
}

unsigned barrier_phase(int number) { return barriers[number].phase; }

void barrier_bytes(int number, unsigned bytes)
{
    mbarrier *b = &barriers[number];
    b->bytes -= bytes;
    maybe_complete(b);
}

void barrier_arrival(int number)
{
    mbarrier *b = &barriers[number];
    if (!b->pending)
        simt_fault("barrier at byte %u, phase %u: products arrive where all %d arrivals are there",
                   b->at, b->phase, b->count);
    b->pending--;
    maybe_complete(b);
}

} // namespace simt

using namespace simt;

void simt_mbar_init(unsigned bar, int count, const char *file, int line)
{
    if (bar % 8 || !shared_holds({bar, 8}))
        simt_fault("simt_mbar_init at %s:%d: byte %u is not 8-byte aligned shared memory", file,
                   line, bar);
    if (count < 1 || count > (1 << 20) - 1)
        simt_fault("simt_mbar_init at %s:%d: a count of %d", file, line, count);
    if (find(bar)) simt_fault("simt_mbar_init at %s:%d: byte %u is a barrier", file, line, bar);
    if (barrier_count == CLUSTER_BARRIER)
        simt_fault("more than %d barriers of a block or cluster", CLUSTER_BARRIER);
    if (check) check->access(bytes_at(bar), 8, true, false, __builtin_return_address(0));
    forbid(bytes_at(bar), 8);
    barriers[barrier_count++] = {bar, count, count, 0, 0, current_thread(), false, 0};
}

void simt_mbar_publish(void)
{
    for (int i = 0; i < barrier_count; i++)
        if (barriers[i].owner == current_thread()) barriers[i].published = true;
    simt_fence_async();
}

void simt_mbar_wait(unsigned bar, unsigned parity, const char *file, int line)
{
    mbarrier *b = need(bar, false, "simt_mbar_wait", file, line);
    if (parity > 1) simt_fault("simt_mbar_wait at %s:%d: parity %u", file, line, parity);
    while ((b->phase & 1) == parity) {
        b->waiting++;
        sleep_on(b, "simt_mbar_wait", file, line);
    }
    if (check) check->acquire(number_of(b));
    tcgen_waited(current_thread());
}

void simt_mbar_expect(unsigned bar, unsigned bytes, const char *file, int line)
{
    mbarrier *b = need(bar, true, "simt_mbar_expect", file, line);
    tcgen_tells(current_thread(), "simt_mbar_expect", file, line);
    b->bytes += bytes;
    if (b->bytes > (1 << 20) - 1)
        simt_fault("simt_mbar_expect at %s:%d: %lld bytes in a phase", file, line,
                   static_cast<long long>(b->bytes));
    arrive(b, "simt_mbar_expect", file, line);
}

void simt_mbar_arrive(unsigned bar, const char *file, int line)
{
    tcgen_tells(current_thread(), "simt_mbar_arrive", file, line);
    arrive(need(bar, true, "simt_mbar_arrive", file, line), "simt_mbar_arrive", file, line);
}
