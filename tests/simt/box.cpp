// SPDX-License-Identifier: Apache-2.0
// Copies of boxes by tensor maps: PTX ISA, "cp.async.bulk.tensor", "Tensor dimension, size and
// format", "Im2col mode". What is loaded lands as late as it can, when no thread of the block can
// run, in an order that the schedule chooses; until then there is garbage. What is stored is read
// when the thread waits for it.
#include "async.h"
#include <algorithm>
#include <cstring>

namespace simt
{
namespace
{

struct copy {
    tensor_map map;
    unsigned at;   // its bytes in shared memory
    int place[5];  // coordinates of its first element
    int offset[3]; // im2col: from positions to elements
    int barrier;   // that counts its bytes
    const void *pc;
    bool constant; // of memory that no kernel ahead writes
};

std::vector<copy> arriving;
struct storer { // a thread that stores boxes
    int thread;
    std::vector<copy> copies;
    size_t committed; // of them
    unsigned groups;  // committed so far
};
storer storers[STORERS];
int storer_count;

storer *find(int thread)
{
    for (int i = 0; i < storer_count; i++)
        if (storers[i].thread == thread) return &storers[i];
    return nullptr;
}

storer *find_or_make(int thread)
{
    if (storer *s = find(thread)) return s;
    if (storer_count == STORERS) simt_fault("more than %d threads store boxes", STORERS);
    storer *s = &storers[storer_count++];
    s->thread = thread;
    s->copies.clear();
    s->committed = s->groups = 0;
    return s;
}

int agent_of(const storer *s) { return FIRST_STORER + static_cast<int>(s - storers); }

unsigned box_bytes(const tensor_map &m)
{
    unsigned n = m.bytes;
    for (int i = 0; i < (m.kind == MAP_IM2COL ? 2 : m.rank); i++) n *= m.box[i];
    return n;
}

// A box's runs of neighbours: where they are in the box, and what of them is in the tensor.
struct run {
    unsigned at;    // the first byte of the run in the box
    unsigned into;  // bytes before what is there
    unsigned bytes; // that are there; 0: none
    char *global;   // the first of them
};

run run_at(const copy &c, unsigned number, const int64_t *place)
{
    const tensor_map &m = c.map;
    run r = {number * m.box[0] * m.bytes, 0, 0, reinterpret_cast<char *>(m.address)};
    for (int i = 1; i < m.rank; i++) {
        if (place[i] < 0 || place[i] > m.last[i]) return r;
        r.global += place[i] * static_cast<int64_t>(m.stride[i - 1]);
    }
    const int64_t first = place[0] < 0 ? 0 : place[0];
    const int64_t end = std::min(place[0] + m.box[0], int64_t(m.last[0]) + 1);
    if (end <= first) return r;
    r.into = static_cast<unsigned>(first - place[0]) * m.bytes;
    r.bytes = static_cast<unsigned>(end - first) * m.bytes;
    r.global += first * m.bytes;
    return r;
}

template <class F> void tiled_runs(const copy &c, F f)
{
    const tensor_map &m = c.map;
    unsigned runs = 1;
    for (int i = 1; i < m.rank; i++) runs *= m.box[i];
    for (unsigned n = 0; n < runs; n++) {
        int64_t place[5] = {c.place[0]};
        unsigned rest = n;
        for (int i = 1; i < m.rank; rest /= m.box[i], i++)
            place[i] = int64_t(c.place[i]) + rest % m.box[i];
        f(run_at(c, n, place));
    }
}

// Positions walk through the box between the corners, in steps, from image to image.
template <class F> void im2col_runs(const copy &c, F f)
{
    const tensor_map &m = c.map;
    int64_t position[5], place[5];
    for (int i = 0; i < m.rank; i++) position[i] = place[i] = c.place[i];
    for (unsigned n = 0; n < m.box[1]; n++) {
        for (int i = 1; i < m.rank; i++)
            place[i] = position[i] + (i < m.rank - 1 ? c.offset[i - 1] : 0);
        f(run_at(c, n, place));
        for (int i = 1; i < m.rank; i++) {
            position[i] += i < m.rank - 1 ? m.step[i] : 1;
            if (i == m.rank - 1 || position[i] <= int64_t(m.last[i]) + m.high[i - 1]) break;
            position[i] = m.low[i - 1];
        }
    }
}

template <class F> void runs(const copy &c, F f)
{
    if (c.map.kind == MAP_IM2COL)
        im2col_runs(c, f);
    else
        tiled_runs(c, f);
}

void need_device(const run &r)
{
    if (!device_covers(r.global, r.bytes))
        simt_fault("a box of a tensor map has %u bytes outside of device memory", r.bytes);
}

// f(shared, i): where byte i of the run is, 16 bytes on.
template <class F> void chunks(const copy &c, const run &r, F f)
{
    for (unsigned i = 0; i < c.map.box[0] * c.map.bytes; i += 16)
        f(shared_base() + swizzled(c.at + r.at + i, c.map.span), i);
}

void land(const copy &c)
{
    runs(c, [&](const run &r) {
        unsigned char bytes[256 * 8] = {};
        if (r.bytes) {
            need_device(r);
            memcpy(bytes + r.into, r.global, r.bytes);
        }
        for (unsigned i = 0; i < r.bytes && c.constant && memory_is_inverted(); i++)
            bytes[r.into + i] ^= 0xff;
        chunks(c, r, [&](unsigned char *to, unsigned i) { memcpy(to, bytes + i, 16); });
    });
    barrier_bytes(c.barrier, box_bytes(c.map));
}

void store(const copy &c)
{
    runs(c, [&](const run &r) {
        unsigned char bytes[256 * 8];
        if (!r.bytes) return;
        need_device(r);
        chunks(c, r, [&](const unsigned char *from, unsigned i) { memcpy(bytes + i, from, 16); });
        memcpy(r.global, bytes + r.into, r.bytes);
    });
}

// A copy of the map, which must be one of this kind.
tensor_map map_read(const CUtensorMap *map, uint64_t kind, const char *file, int line)
{
    tensor_map m;
    if (reinterpret_cast<uintptr_t>(map) % 64)
        simt_fault("the tensor map at %s:%d is not 64-byte aligned", file, line);
    memcpy(&m, map, sizeof m);
    if (m.kind != kind)
        simt_fault("what %s:%d takes for a tensor map is none, or of the other kind", file, line);
    if (m.span && m.box[0] * m.bytes != m.span)
        simt_fault("%s:%d: boxes narrower than the swizzle's span are not emulated", file, line);
    for (int i = 1; i < m.rank && kind == MAP_TILED; i++)
        if (m.step[i] != 1) simt_fault("%s:%d: boxes with steps are not emulated", file, line);
    return m;
}

range bytes_of(const copy &c) { return {c.at, box_bytes(c.map)}; }

void need_place(const copy &c, const char *file, int line)
{
    const range r = bytes_of(c);
    if (c.at % 128) simt_fault("a box at %s:%d: byte %u is not 128-byte aligned", file, line, c.at);
    if (!shared_holds(r))
        simt_fault("a box at %s:%d: %u bytes at byte %u are not of a shared variable", file, line,
                   r.bytes, r.from);
    if (barriers_touch(r)) simt_fault("a box at %s:%d: a barrier is in its place", file, line);
    for (const copy &other : arriving)
        if (overlap(r, bytes_of(other)))
            simt_fault("a box at %s:%d: another copy is on its way to its place", file, line);
}

// Shared memory that something in flight reads may not be overwritten.
void need_unread(const copy &c, const char *file, int line)
{
    const range r = bytes_of(c);
    if (products_read(r) || tcgen_reads(r))
        simt_fault("a copy at %s:%d overwrites an operand of a product that was not waited for", file,
                   line);
    for (int i = 0; i < storer_count; i++)
        for (const copy &other : storers[i].copies)
            if (overlap(r, bytes_of(other)))
                simt_fault("a copy at %s:%d overwrites what a store still reads", file, line);
}

void begin_load(copy c, unsigned bar, const char *file, int line)
{
    c.barrier = barrier_for_copy(bar, file, line);
    need_place(c, file, line);
    need_unread(c, file, line);
    const range r = bytes_of(c);
    if (check) {
        constants_are_read(c.constant);
        runs(c, [&](const run &u) {
            if (u.bytes) check->access(u.global, u.bytes, false, false, c.pc);
        });
        constants_are_read(false);
        check->async(shared_base() + r.from, r.bytes, true, FIRST_BARRIER + c.barrier,
                     barrier_phase(c.barrier) + 1, false, c.pc);
    }
    memset(shared_base() + r.from, 0xf3, r.bytes);
    arriving.push_back(c);
}

void wait_for_stores(void)
{
    storer *s = find(current_thread());
    if (!s) return;
    for (size_t i = 0; i < s->committed; i++) store(s->copies[i]);
    s->copies.erase(s->copies.begin(), s->copies.begin() + static_cast<ptrdiff_t>(s->committed));
    s->committed = 0;
    if (check) check->learn(1u << simt_here.lane, agent_of(s), s->groups);
}

} // namespace

void boxes_begin(void)
{
    arriving.clear();
    storer_count = 0;
}

void boxes_end(void)
{
    if (!arriving.empty())
        simt_fault("a block ends before %zu copies of boxes have arrived", arriving.size());
}

void stores_end(int thread)
{
    const storer *s = find(thread);
    if (s && !s->copies.empty())
        simt_fault("a thread ends with %zu stores of boxes that it never waited for",
                   s->copies.size());
}

bool boxes_wait(void) { return !arriving.empty(); }

bool boxes_arriving(int barrier)
{
    for (const copy &c : arriving)
        if (c.barrier == barrier) return true;
    return false;
}

bool boxes_land(void)
{
    if (arriving.empty()) return false;
    const bool newest = simt_set.schedule == SIMT_NEWEST || simt_set.schedule == SIMT_REVERSED;
    size_t i = newest ? arriving.size() - 1 : 0;
    if (simt_set.schedule == SIMT_RANDOM) i = random_number() % arriving.size();
    const copy c = arriving[i];
    arriving.erase(arriving.begin() + static_cast<ptrdiff_t>(i));
    land(c);
    return true;
}

} // namespace simt

using namespace simt;

void simt_tma_prefetch(const CUtensorMap *map, const char *file, int line)
{
    tensor_map m;
    memcpy(&m, map, sizeof m);
    map_read(map, m.kind == MAP_IM2COL ? MAP_IM2COL : MAP_TILED, file, line);
}

static void load(unsigned to, const CUtensorMap *map, unsigned bar, int x, int y, bool constant,
                 const void *pc, const char *file, int line)
{
    copy c = {map_read(map, MAP_TILED, file, line), to, {x, y}, {}, 0, pc, constant};
    if (c.map.rank != 2) simt_fault("a box at %s:%d: a map of rank %d", file, line, c.map.rank);
    begin_load(c, bar, file, line);
}

void simt_tma_load(unsigned to, const CUtensorMap *map, unsigned bar, int x, int y,
                   const char *file, int line)
{
    load(to, map, bar, x, y, false, __builtin_return_address(0), file, line);
}

void simt_tma_load_constant(unsigned to, const CUtensorMap *map, unsigned bar, int x, int y,
                            const char *file, int line)
{
    load(to, map, bar, x, y, true, __builtin_return_address(0), file, line);
}

void simt_tma_load_im2col(unsigned to, const CUtensorMap *map, unsigned bar, int channel, int w,
                          int h, int n, int right, int down, const char *file, int line)
{
    copy c = {map_read(map, MAP_IM2COL, file, line), to,   {channel, w, h, n}, {right, down}, 0,
              __builtin_return_address(0),           false};
    if (c.map.rank != 4) simt_fault("a box at %s:%d: a map of rank %d", file, line, c.map.rank);
    if (right < 0 || right > 255 || down < 0 || down > 255)
        simt_fault("a box at %s:%d: offsets %d and %d are not of 8 bits", file, line, right, down);
    begin_load(c, bar, file, line);
}

void simt_fence_async(void)
{
    if (check) check->fence_async();
}

void simt_tma_store(const CUtensorMap *map, unsigned from, int x, int y, const char *file, int line)
{
    const copy c = {map_read(map, MAP_TILED, file, line), from, {x, y}, {}, 0,
                    __builtin_return_address(0),          false};
    if (c.map.rank != 2) simt_fault("a box at %s:%d: a map of rank %d", file, line, c.map.rank);
    need_place(c, file, line);
    storer *s = find_or_make(current_thread());
    if (check) {
        runs(c, [&](const run &u) {
            if (u.bytes) check->access(u.global, u.bytes, true, false, c.pc);
        });
        const range r = bytes_of(c);
        check->async(shared_base() + r.from, r.bytes, false, agent_of(s), s->groups + 1, false,
                     c.pc);
    }
    s->copies.push_back(c);
}

void simt_tma_store_commit(void)
{
    storer *s = find_or_make(current_thread());
    s->committed = s->copies.size();
    if (++s->groups == MOST_CLOCK) simt_fault("more than %d groups of stores", MOST_CLOCK);
}

void simt_tma_store_wait_read(void) { wait_for_stores(); }

void simt_tma_store_wait(void) { wait_for_stores(); }
