// SPDX-License-Identifier: Apache-2.0
// Runs kernels: block after block, or cluster after cluster, their threads as fibers that switch
// only where they wait (or where the checker preempts them). Who runs next is the schedule's
// choice; five schedules bring out different orders. A barrier or collective that cannot complete
// is a fault that says who waits where.
#include "async.h"
#include <cstdarg>
#include <unistd.h>
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

simt_position simt_here;

namespace simt
{

enum state { READY, AT_BARRIER, IN_COLLECTIVE, ASLEEP, ENDED };

struct thread {
    fiber f;
    uint3 index;
    state st;
    const char *file; // where it waits
    int line;
    unsigned mask; // the collective it waits in
    void *arg;
    simt_collective_fn *fn;
    const char *name;
    const void *key; // what it sleeps on
};

static thread threads[MAX_THREADS];
static fiber host;
static const launch *kernel;
static int count, alive, current = -1; // count: threads of a block; alive: of all that run
static int cluster = 1;                // blocks that run together
static size_t blocks_left;
static unsigned waits[WARPS], lives[WARPS]; // lanes in a collective; lanes that have not ended

// --- ready threads: a list in order of becoming ready, or a bit per thread ---

static int list[MAX_THREADS];
static int list_at, list_count;
static unsigned ready[WARPS];

static bool by_bits(void) { return simt_set.schedule >= SIMT_WARP; }

static void make_ready(int t)
{
    threads[t].st = READY;
    if (by_bits())
        ready[t / 32] |= 1u << t % 32;
    else
        list[(list_at + list_count++) % MAX_THREADS] = t;
}

static int take_bit(void)
{
    bool down = simt_set.schedule == SIMT_REVERSED;
    int first = down || current < 0 ? 0 : current / 32;
    for (int i = 0; i < WARPS; i++) {
        int w = down ? WARPS - 1 - i : (first + i) % WARPS;
        if (!ready[w]) continue;
        int lane = down ? 31 - __builtin_clz(ready[w]) : __builtin_ctz(ready[w]);
        ready[w] &= ~(1u << lane);
        return w * 32 + lane;
    }
    return -1;
}

static int take_ready(void)
{
    if (by_bits()) return take_bit();
    if (!list_count) return -1;
    int &first = list[list_at], &last = list[(list_at + list_count - 1) % MAX_THREADS];
    if (simt_set.schedule == SIMT_FIFO) {
        int t = first;
        list_at = (list_at + 1) % MAX_THREADS;
        list_count--;
        return t;
    }
    if (simt_set.schedule == SIMT_RANDOM)
        std::swap(
            last,
            list[(list_at + static_cast<int>(random_number() % static_cast<unsigned>(list_count))) %
                 MAX_THREADS]);
    list_count--;
    return last;
}

// --- messages ---

void where(char *text, size_t size)
{
    if (current < 0) {
        snprintf(text, size, "the host");
        return;
    }
    const uint3 &b = simt_here.block, &t = threads[current].index;
    snprintf(text, size, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u)", kernel->name.c_str(),
             b.x, b.y, b.z, t.x, t.y, t.z);
}

static void no_one_can_run(void)
{
    const uint3 &b = simt_here.block;
    say("FAULT: no thread can continue in kernel %s, block (%u,%u,%u): divergent barrier or "
        "missing "
        "lanes",
        kernel->name.c_str(), b.x, b.y, b.z);
    for (int i = 0, shown = 0; i < thread_count() && shown < 8; i++) {
        const thread &t = threads[i];
        if (t.st == ENDED) continue;
        if (i && threads[i - 1].st == t.st && threads[i - 1].line == t.line) continue;
        say("  thread %d and on: waits at %s:%d in %s", i, t.file, t.line,
            t.st == AT_BARRIER ? "__syncthreads" : t.name);
        shown++;
    }
    barriers_tell();
    fflush(nullptr);
    _exit(SIMT_STATUS_FAULT);
}

bool in_kernel(void) { return kernel != nullptr; }
bool in_last_block(void) { return blocks_left == 0; }

extern "C" const char __executable_start, end; // by the linker: this program's code and variables

bool kernel_owns(const void *p)
{
    const char *at = static_cast<const char *>(p);
    const char *args = static_cast<const char *>(kernel->arguments.get());
    return on_fiber_stacks(p) || (at >= args && at < args + kernel->argument_bytes) ||
           (at >= &__executable_start && at < &end);
}
int current_thread(void) { return current; }
int thread_count(void) { return count * cluster; }
int cluster_blocks(void) { return cluster; }
int rank_of(int thread) { return thread / count; }
int current_rank(void) { return current < 0 ? 0 : rank_of(current); }

// --- switching ---

static unsigned first_block; // along x, of those that run

static void set_current(int t)
{
    current = t;
    simt_here.thread = threads[t].index;
    simt_here.block.x = first_block + static_cast<unsigned>(t / count);
    simt_here.linear = static_cast<unsigned>(t);
    simt_here.lane = static_cast<unsigned>(t) % 32;
    simt_here.warp = static_cast<unsigned>(t) / 32;
}

// A copy of a box, or a product: which is first, the schedule chooses.
static bool one_lands(void)
{
    const bool both = boxes_wait() && tcgen_waits();
    const bool late = simt_set.schedule == SIMT_RANDOM ? both && random_number() % 2
                                                       : simt_set.schedule == SIMT_REVERSED ||
                                                             simt_set.schedule == SIMT_NEWEST;
    return late ? tcgen_land() || boxes_land() : boxes_land() || tcgen_land();
}

static void leave(bool dying)
{
    thread &me = threads[current];
    int next = take_ready();
    while (next < 0 && alive && (one_lands() || dependent_release())) next = take_ready();
    if (next < 0) {
        if (alive) no_one_can_run();
        boxes_end();
        tcgen_end();
        fiber_switch(&me.f, &host, dying);
        return;
    }
    bool same = &threads[next] == &me;
    set_current(next);
    if (!same) fiber_switch(&me.f, &threads[next].f, dying);
}

void preempt(void)
{
    if (current < 0) return;
    make_ready(current);
    leave(false);
}

void sleep_on(const void *key, const char *name, const char *file, int line)
{
    thread &t = threads[current];
    t.st = ASLEEP;
    t.key = key;
    t.name = name;
    t.file = file;
    t.line = line;
    leave(false);
}

void wake(const void *key)
{
    for (int i = 0; i < thread_count(); i++)
        if (threads[i].st == ASLEEP && threads[i].key == key) make_ready(i);
}

// --- barriers ---

enum { GROUP = 128, NAMED = 16 }; // threads of a named barrier; barriers, the first a block's own
struct named_barrier {
    int waiting, threads[GROUP];
};

struct block_barrier {
    int waiting;
    int votes, result; // threads whose predicate holds; what the last barrier found
    simt_vote vote;
};

static struct resident { // a block that runs
    int alive;
    block_barrier barrier;
    named_barrier named[NAMED];
} residents[MOST_CLUSTER];

static resident &mine(void) { return residents[current_rank()]; }
bool block_has_ended(int rank) { return residents[rank].alive == 0; }

static void meet_all(int from)
{
    int all[MAX_THREADS];
    for (int i = 0; i < count; i++) all[i] = from + i;
    check->meet(all, count);
}

static void open_barrier(void)
{
    const thread *first = nullptr;
    block_barrier &barrier = mine().barrier;
    const int from = current_rank() * count;
    for (int i = from; i < from + count; i++) {
        const thread &t = threads[i];
        if (t.st == AT_BARRIER && !first) first = &t;
        if (t.st == AT_BARRIER &&
            (t.line != first->line || (t.file != first->file && strcmp(t.file, first->file))))
            simt_fault("threads of a block meet in different barriers: %s:%d and %s:%d",
                       first->file, first->line, t.file, t.line);
    }
    if (mine().alive != count)
        simt_fault("__syncthreads at %s:%d is reached by %d of %d threads, the others have ended",
                   first->file, first->line, mine().alive, count);
    barrier.waiting = 0;
    barrier.result = barrier.vote == SIMT_COUNT ? barrier.votes
                     : barrier.vote == SIMT_AND ? barrier.votes == count
                                                : barrier.votes > 0;
    barrier.votes = 0;
    if (check && cluster == 1) check->barrier();
    if (check && cluster > 1) meet_all(from);
    for (int i = from; i < from + count; i++) make_ready(i);
}

static void end_thread(void)
{
    int w = current / 32;
    copies_end(current);
    stores_end(current);
    products_end(current);
    dependent_thread_ends(current);
    threads[current].st = ENDED;
    alive--;
    if (--mine().alive == 0) cluster_block_ends();
    lives[w] &= ~(1u << current % 32);
}

// --- warp collectives: the last lane to arrive computes for all; arguments are on their stacks ---

static bool complete(int w, int self)
{
    thread &me = threads[self];
    unsigned lanes = me.mask & lives[w];
    if ((waits[w] & lanes) != lanes) return false;
    void *arg[32] = {};
    for (int l = 0; l < 32; l++) {
        if (!(lanes >> l & 1)) continue;
        const thread &t = threads[w * 32 + l];
        if (t.mask != me.mask) return false; // it takes part in another one first
        if (t.fn != me.fn || (t.name != me.name && strcmp(t.name, me.name)))
            simt_fault("lanes of a warp meet in different collectives: %s at %s:%d and %s at %s:%d",
                       t.name, t.file, t.line, me.name, me.file, me.line);
        arg[l] = t.arg;
    }
    me.fn(lanes, arg);
    waits[w] &= ~lanes;
    for (int l = 0; l < 32; l++)
        if (lanes >> l & 1 && w * 32 + l != current) make_ready(w * 32 + l);
    return true;
}

static void end_fiber(void)
{
    int w = current / 32;
    end_thread();
    for (int l = 0; l < 32; l++) // a lane that ends may complete what its mates wait for
        if (waits[w] >> l & 1 && complete(w, w * 32 + l)) break;
    if (mine().barrier.waiting && mine().barrier.waiting == mine().alive) open_barrier();
    leave(true);
}

static void run_thread(void)
{
    fiber_entered();
    kernel->run(kernel->arguments.get());
    end_fiber();
}

// --- kernels ---

static void begin_block(void)
{
    shared_begin(kernel->shared);
    copies_begin(thread_count());
    barriers_begin();
    boxes_begin();
    products_begin();
    tcgen_begin();
    cluster_begin();
    dependent_block(thread_count());
    for (resident &r : residents) {
        r.alive = count;
        r.barrier = {};
        for (named_barrier &n : r.named) n.waiting = 0;
    }
    alive = thread_count();
    list_at = list_count = 0;
    for (int w = 0; w < WARPS; w++) {
        int lanes = alive - w * 32;
        waits[w] = ready[w] = 0;
        lives[w] = lanes >= 32 ? ~0u : lanes > 0 ? (1u << lanes) - 1 : 0;
    }
    if (check) check->block();
    for (int i = 0; i < alive; i++) {
        fiber_prepare(&threads[i].f, run_thread);
        make_ready(i);
    }
}

// The block of this number, the first of its cluster.
static void run_block(size_t number)
{
    const dim3 &g = kernel->grid;
    simt_here.block = {static_cast<unsigned>(number % g.x),
                       static_cast<unsigned>(number / g.x % g.y),
                       static_cast<unsigned>(number / (static_cast<size_t>(g.x) * g.y))};
    first_block = simt_here.block.x;
    begin_block();
    int first = take_ready();
    set_current(first);
    fiber_switch(&host, &threads[first].f, false);
    current = -1;
}

static void begin_kernel(const launch &k)
{
    static int made;
    kernel = &k;
    count = static_cast<int>(k.block.x * k.block.y * k.block.z);
    cluster = static_cast<int>(k.cluster);
    for (; made < thread_count(); made++) fiber_make(&threads[made].f, made);
    for (int i = 0; i < thread_count(); i++) {
        unsigned t = static_cast<unsigned>(i % count);
        threads[i].index = {t % k.block.x, t / k.block.x % k.block.y, t / (k.block.x * k.block.y)};
    }
    simt_here.grid_dim = k.grid;
    simt_here.block_dim = k.block;
    dependent_begin();
}

void run_kernel(const launch &k)
{
    size_t blocks = static_cast<size_t>(k.grid.x) * k.grid.y * k.grid.z / k.cluster;
    std::vector<uint32_t> order(blocks);
    for (size_t i = 0; i < blocks; i++)
        order[i] = static_cast<uint32_t>(simt_set.schedule == SIMT_REVERSED ? blocks - 1 - i : i);
    for (size_t i = blocks; simt_set.schedule == SIMT_RANDOM && i-- > 1;)
        std::swap(order[i], order[random_number() % (i + 1)]);
    begin_kernel(k);
    for (size_t i = 0; i < blocks; i++) {
        blocks_left = blocks - 1 - i;
        run_block(order[i] * static_cast<size_t>(k.cluster));
    }
    kernel = nullptr;
    dependent_end();
    device_check_edges();
}

#ifdef SIMT_ASAN
// Adds to a sanitizer's report which thread of which kernel it is about.
static void add_position(const char *)
{
    char text[256];
    where(text, sizeof text);
    say("the report above is from %s", text);
}
__attribute__((constructor)) static void set_report_callback(void)
{
    __asan_set_error_report_callback(add_position);
}
#endif

} // namespace simt

using namespace simt;

void simt_fault(const char *format, ...)
{
    char text[1024], place[256];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    where(place, sizeof place);
    say("FAULT: %s; in %s", text, place);
    fflush(nullptr);
    _exit(SIMT_STATUS_FAULT);
}

int simt_barrier(simt_vote vote, int predicate, const char *file, int line)
{
    thread &t = threads[current];
    block_barrier &barrier = mine().barrier;
    t.st = AT_BARRIER;
    t.file = file;
    t.line = line;
    barrier.vote = vote;
    barrier.votes += predicate != 0;
    if (++barrier.waiting == mine().alive) open_barrier();
    leave(false);
    return barrier.result;
}

void simt_sync_group(int id, const char *file, int line)
{
    if (id < 1 || id >= NAMED)
        simt_fault("simt_sync_group at %s:%d: barrier %d is not 1 to 15", file, line, id);
    named_barrier &n = mine().named[id];
    n.threads[n.waiting++] = current;
    if (n.waiting < GROUP) {
        sleep_on(&n, "simt_sync_group", file, line);
        return;
    }
    n.waiting = 0;
    if (check) check->meet(n.threads, GROUP);
    wake(&n);
}

void simt_collective(unsigned mask, void *arg, simt_collective_fn *fn, const char *name,
                     const char *file, int line)
{
    thread &t = threads[current];
    int w = current / 32, lane = current % 32;
    if (!(mask >> lane & 1))
        simt_fault("%s at %s:%d: lane %d is not in the mask %08x it gives", name, file, line, lane,
                   mask);
    waits[w] |= 1u << lane;
    t.st = IN_COLLECTIVE;
    t.mask = mask;
    t.arg = arg;
    t.fn = fn;
    t.name = name;
    t.file = file;
    t.line = line;
    if (complete(w, current))
        t.st = READY;
    else
        leave(false);
}

void simt_acquire_grid(void)
{
    if (!in_last_block())
        simt_fault("simt_acquire_grid in a block that is not the last: others have not run yet");
    if (check) check->acquire_grid();
}
