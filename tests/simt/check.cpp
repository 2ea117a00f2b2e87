// SPDX-License-Identifier: Apache-2.0
// The checker: races, reads of memory no one wrote, accesses outside of allocations. Kernel files
// are compiled with -fsanitize=thread, whose instrumentation calls the __tsan_ functions below
// before every access; the sanitizer's own library is not linked. For each byte of shared and
// device memory the last write and two readers are kept. An access is ordered after another by a
// later launch, a barrier, what threads tell each other between barriers (clock.cpp), or program
// order; blocks of one launch are never ordered, unless one counted itself the last
// (simt_acquire_grid).
#include "clock.h"
#include <map>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

namespace simt
{
namespace
{

// Parts of access::thread, which may be an agent of async.h.
const unsigned THREAD = 0x7ff, IN_FLIGHT = 0x4000, ATOMIC = 0x8000;
struct access {
    uint32_t epoch;  // 0: never
    uint16_t thread; // and flags
    uint16_t clock;  // of that thread
};
struct cell {
    access write, read[2];
};
struct region {
    size_t bytes;
    cell *cells; // NULL: too large to watch byte by byte
    bool dead;
};

const size_t MOST_WATCHED = size_t(256) << 20;
uint32_t epoch = 1, block_epoch = 1, launch_epoch = 1, chain_epoch = 1;
cell *shared_cells;
std::map<uintptr_t, region> &regions(void)
{
    static auto *t = new std::map<uintptr_t, region>;
    return *t;
}
struct {
    uintptr_t from, to;
    cell *cells;
} recent;
uint64_t report_count;

cell *new_cells(size_t n)
{
    void *p = mmap(nullptr, n * sizeof(cell), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<cell *>(p);
}

bool in_shared(uintptr_t p) { return p - reinterpret_cast<uintptr_t>(shared_base()) < SHARED_ALL; }

// Source line of an address of this program, by addr2line where it is installed; of a wrapper that
// was inlined, its caller's.
std::string line_of(const void *pc)
{
    char command[128], text[400];
    std::string line = "an unknown line";
    snprintf(command, sizeof command, "addr2line -i -e /proc/%d/exe %p 2>/dev/null",
             static_cast<int>(getpid()),
             static_cast<const void *>(static_cast<const char *>(pc) - 1));
    FILE *f = popen(command, "r");
    while (f && fgets(text, sizeof text, f)) {
        text[strcspn(text, "\n")] = 0;
        const char *slash = strrchr(text, '/');
        if (slash) line = slash + 1;
        if (slash && strncmp(slash, "/simt_", 6)) break;
    }
    if (f) pclose(f);
    return line;
}

void against(char *text, size_t size, const access &other)
{
    const unsigned who = other.thread & THREAD;
    if (who < MAX_THREADS)
        snprintf(text, size, ", against thread %u%s", who,
                 other.epoch < block_epoch ? " of another block" : "");
    else
        snprintf(text, size, ", against %s",
                 who < FIRST_STORER       ? "a copy of a box"
                 : who < FIRST_MULTIPLIER ? "a store of a box"
                                          : "a product of wgmma");
}

void report(const char *what, uintptr_t at, const access *other, const void *pc)
{
    static auto *seen = new std::set<std::pair<const void *, std::string>>;
    report_count++;
    if (!seen->insert({pc, what}).second) return;
    char place[256], mate[64] = "";
    where(place, sizeof place);
    if (other) against(mate, sizeof mate, *other);
    say("CHECK: %s at %s, %s memory, %s%s", what, line_of(pc).c_str(),
        in_shared(at)                                         ? "shared"
        : in_device_space(reinterpret_cast<const void *>(at)) ? "device"
                                                              : "other",
        place, mate);
}

bool ordered(const access &o, unsigned t, bool shared)
{
    if (o.epoch < launch_epoch) return true;
    if (o.epoch < block_epoch) return shared;
    unsigned other = o.thread & THREAD;
    if ((o.epoch != epoch && other < MAX_THREADS) || other == t) return true;
    return clock_knows(t, other, o.clock);
}

bool both_atomic(bool atomic, const access &o) { return atomic && (o.thread & ATOMIC); }

void read_by(cell *c, const access &me)
{
    access &a = c->read[0], &b = c->read[1];
    bool other = (a.thread & THREAD) != (me.thread & THREAD) || a.epoch < block_epoch;
    bool foreign = b.epoch >= launch_epoch && b.epoch < block_epoch; // of another block: is kept
    if (other && !foreign) b = a;
    a = me;
}

void touch_byte(cell *c, uintptr_t at, bool write, bool atomic, const void *pc)
{
    unsigned t = simt_here.linear;
    bool shared = in_shared(at), reads = !write || atomic;
    access me = {epoch, static_cast<uint16_t>(t | (atomic ? ATOMIC : 0)), clock_of(t)};
    uint32_t since = shared ? block_epoch : 1;
    if (!shared && ahead_of_wait(static_cast<int>(t)) && (write || c->write.epoch >= chain_epoch))
        report(write ? "write before simt_dependency_wait"
                     : "read before simt_dependency_wait of what is written ahead",
               at, nullptr, pc);
    if ((c->write.thread & IN_FLIGHT) && c->write.epoch >= block_epoch)
        report("access to shared memory that cp.async is still writing", at, &c->write, pc);
    if (reads && c->write.epoch < since)
        report("read of memory that was never written", at, nullptr, pc);
    if (!both_atomic(atomic, c->write) && !ordered(c->write, t, shared))
        report(write ? "race of two writes" : "race: a read of what is written", at, &c->write, pc);
    if (!write) {
        read_by(c, me);
        return;
    }
    for (const access &r : c->read)
        if (!both_atomic(atomic, r) && !ordered(r, t, shared))
            report("race: a write of what is read", at, &r, pc);
    c->write = me;
}

bool same(const cell &a, const cell &b) { return !memcmp(&a, &b, sizeof a); }

// judge(i) looks at byte i and changes its cell; a byte whose cell is that of the byte before it is
// judged as that was, where nothing was found.
template <typename F> void bytewise(cell *c, size_t n, F judge)
{
    const uint64_t found = report_count;
    for (size_t i = 0; i < n;) {
        const cell before = c[i];
        judge(i);
        const cell after = c[i];
        for (i++; i < n && report_count == found && same(c[i], before); i++) c[i] = after;
    }
}

// Cells of n bytes; NULL: memory that is not watched. Reports what a kernel may not touch.
cell *cells_of(uintptr_t at, size_t n, const void *pc)
{
    const void *p = reinterpret_cast<const void *>(at);
    if (in_shared(at)) return shared_cells + (at - reinterpret_cast<uintptr_t>(shared_base()));
    if (at >= recent.from && at + n <= recent.to) return recent.cells + (at - recent.from);
    if (!in_device_space(p)) {
        if (sums_cover(p, n)) report("access to sums that wgmma is still writing", at, nullptr, pc);
        if (current_thread() >= 0 && !kernel_owns(p) && !host_pinned(p))
            report("a kernel accesses host memory", at, nullptr, pc);
        return nullptr;
    }
    auto next = regions().upper_bound(at);
    bool before = next == regions().begin();
    if (!before) --next;
    const region &r = next->second;
    size_t into = at - next->first;
    bool outside = before || into + n > r.bytes;
    if (outside) report("access outside of a device allocation", at, nullptr, pc);
    if (!outside && r.dead) report("access to device memory that was freed", at, nullptr, pc);
    if (outside || r.dead || !r.cells) return nullptr;
    recent = {next->first, next->first + r.bytes, r.cells};
    return r.cells + into;
}

void maybe_preempt(void)
{
    if (simt_set.preempt && random_number() % simt_set.preempt == 0) preempt();
}

void touch(const void *p, size_t n, bool write, bool atomic, const void *pc)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(p);
    cell *c = cells_of(at, n, pc);
    if (!c) return;
    if (current_thread() < 0) {
        report("the host accesses device memory", at, nullptr, pc);
        return;
    }
    bytewise(c, n, [&](size_t i) { touch_byte(c + i, at + i, write, atomic, pc); });
    maybe_preempt();
}

// What the compiler takes for aligned must be: the device faults where it is not.
void touch_aligned(const void *p, size_t n, bool write, const void *pc)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(p);
    if (at % n && (in_shared(at) || in_device_space(p)))
        report("misaligned access", at, nullptr, pc);
    touch(p, n, write, false, pc);
}

// --- what the engine tells ---

uint32_t on_launch(uint32_t since)
{
    launch_epoch = ++epoch;
    chain_epoch = since ? since : launch_epoch;
    return launch_epoch;
}

void on_block(void)
{
    if (!shared_cells) shared_cells = new_cells(SHARED_ALL);
    block_epoch = ++epoch;
    clock_block();
}

void on_barrier(void)
{
    epoch++;
    clock_barrier();
}

void on_acquire_grid(void) { launch_epoch = block_epoch; }

void on_allocated(void *p, size_t n)
{
    regions()[reinterpret_cast<uintptr_t>(p)] = {n, n <= MOST_WATCHED ? new_cells(n) : nullptr,
                                                 false};
    recent = {};
}

void on_freed(void *p)
{
    region &r = regions()[reinterpret_cast<uintptr_t>(p)];
    if (r.cells) munmap(r.cells, r.bytes * sizeof(cell));
    r.cells = nullptr;
    r.dead = true;
    recent = {};
}

void on_written(const void *p, size_t n)
{
    cell *c = cells_of(reinterpret_cast<uintptr_t>(p), n, nullptr);
    for (size_t i = 0; c && i < n; i++) c[i].write = {epoch, 0, 0}; // before the next launch
}

void on_in_flight(const void *p, size_t n)
{
    cell *c = shared_cells +
              (reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(shared_base()));
    for (size_t i = 0; i < n; i++)
        c[i].write.thread = static_cast<uint16_t>(c[i].write.thread | IN_FLIGHT);
}

void on_access(const void *p, size_t n, bool write, bool atomic, const void *pc)
{
    touch(p, n, write, atomic, pc);
}

// A landing copy is the one write that memory in flight expects.
void on_landing(const void *p, size_t n)
{
    cell *c = shared_cells +
              (reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(shared_base()));
    for (size_t i = 0; i < n; i++)
        c[i].write = {epoch, static_cast<uint16_t>(simt_here.linear), clock_of(simt_here.linear)};
}

// --- the asynchronous proxy: copies of boxes and products ---

// Is the access before one that clock_view() begins?
bool async_ordered(const access &o)
{
    const unsigned who = o.thread & THREAD;
    return o.epoch < block_epoch || (o.epoch != epoch && who < MAX_THREADS) ||
           clock_seen(who, o.clock);
}

void async_byte(cell *c, uintptr_t at, const access &me, bool write, const void *pc)
{
    const access &w = c->write;
    if (!write && w.epoch < block_epoch)
        report("read of memory that was never written", at, nullptr, pc);
    if (!async_ordered(w))
        report(write ? "race of two writes" : "race: a read of what is written", at, &w, pc);
    else if (w.epoch >= block_epoch && !clock_fenced(w.thread & THREAD, w.clock))
        report("a copy or product after a write without fence.proxy.async", at, &w, pc);
    if (!write) {
        read_by(c, me);
        return;
    }
    for (const access &r : c->read)
        if (!async_ordered(r)) report("race: a write of what is read", at, &r, pc);
    c->write = me;
}

void on_async(const void *p, size_t n, bool write, int who, unsigned clock, bool warp,
              const void *pc)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(p);
    cell *c = shared_cells + (at - reinterpret_cast<uintptr_t>(shared_base()));
    const access me = {epoch, static_cast<uint16_t>(who), static_cast<uint16_t>(clock)};
    if (!warp) clock_view_thread();
    bytewise(c, n, [&](size_t i) { async_byte(c + i, at + i, me, write, pc); });
}

uint64_t reports_so_far(void) { return report_count; }

const checker mine = {on_launch,    on_block,      on_barrier,      clock_warp,    on_acquire_grid,
                      on_allocated, on_freed,      on_written,      on_access,     on_in_flight,
                      on_landing,   clock_release, clock_complete,  clock_acquire, clock_meet,
                      clock_fence,  clock_learn,   clock_view_warp, on_async,      clock_now,
                      clock_told,   reports_so_far};

__attribute__((constructor)) void install(void) { check = &mine; }

// A process with reports does not end well.
__attribute__((destructor)) void finish(void)
{
    if (!report_count) return;
    say("CHECK: %llu reports in all", static_cast<unsigned long long>(report_count));
    fflush(nullptr);
    _exit(SIMT_STATUS_REPORTS);
}

} // namespace
} // namespace simt

// --- what the compiler's instrumentation calls ---

extern "C" {

#define SIMT_PC __builtin_return_address(0)
#define SIMT_HOOKS(n)                                                                              \
    void __tsan_read##n(void *p) { simt::touch_aligned(p, n, false, SIMT_PC); }                    \
    void __tsan_write##n(void *p) { simt::touch_aligned(p, n, true, SIMT_PC); }                    \
    void __tsan_unaligned_read##n(void *p) { simt::touch(p, n, false, false, SIMT_PC); }           \
    void __tsan_unaligned_write##n(void *p) { simt::touch(p, n, true, false, SIMT_PC); }           \
    void __tsan_volatile_read##n(void *p) { simt::touch_aligned(p, n, false, SIMT_PC); }           \
    void __tsan_volatile_write##n(void *p) { simt::touch_aligned(p, n, true, SIMT_PC); }           \
    void __tsan_read_write##n(void *p)                                                             \
    {                                                                                              \
        simt::touch(p, n, false, false, SIMT_PC);                                                  \
        simt::touch(p, n, true, false, SIMT_PC);                                                   \
    }
SIMT_HOOKS(1)
SIMT_HOOKS(2)
SIMT_HOOKS(4)
SIMT_HOOKS(8)
SIMT_HOOKS(16)

void __tsan_read_range(void *p, size_t n) { simt::touch(p, n, false, false, SIMT_PC); }
void __tsan_write_range(void *p, size_t n) { simt::touch(p, n, true, false, SIMT_PC); }
void *__tsan_memcpy(void *to, const void *from, size_t n)
{
    simt::touch(from, n, false, false, SIMT_PC);
    simt::touch(to, n, true, false, SIMT_PC);
    return memcpy(to, from, n);
}
void *__tsan_memmove(void *to, const void *from, size_t n)
{
    simt::touch(from, n, false, false, SIMT_PC);
    simt::touch(to, n, true, false, SIMT_PC);
    return memmove(to, from, n);
}
void *__tsan_memset(void *p, int value, size_t n)
{
    simt::touch(p, n, true, false, SIMT_PC);
    return memset(p, value, n);
}
// Of the guards of a launcher's static variables.
uint8_t __tsan_atomic8_load(const volatile uint8_t *p, int)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
}
