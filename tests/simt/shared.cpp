// SPDX-License-Identifier: Apache-2.0
// Shared memory of the running blocks: variables are in a room each with forbidden gaps between
// them and begin as garbage (NaN as floats). cp.async leaves garbage too: its data lands only when
// the thread waits for it, read from the source as it is then.
#include "async.h"
#include <sys/mman.h>

namespace simt
{

enum { GAP = 64, VARIABLES = 64 };

static unsigned char *rooms;
static size_t dynamic_size;
static struct shared_room { // of a block
    size_t top, fixed;
    void *dynamic_at;
    struct {
        const void *key;
        void *at;
        size_t bytes;
    } variables[VARIABLES];
    int variable_count;
} blocks[MOST_CLUSTER];

static shared_room &mine(void) { return blocks[current_rank()]; }

unsigned char *shared_base(void)
{
    if (rooms) return rooms;
    void *p = mmap(nullptr, SHARED_ALL, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) abort();
    rooms = static_cast<unsigned char *>(p);
    return rooms;
}

// Forbids the rooms of this cluster's blocks, and of the one before, which may have had more.
void shared_begin(size_t dynamic)
{
    static int before;
    const int now = cluster_blocks(), most = now > before ? now : before;
    forbid(shared_base(), static_cast<size_t>(most) * SHARED_ROOM);
    before = now;
    for (shared_room &b : blocks) {
        b.top = b.fixed = 0;
        b.variable_count = 0;
        b.dynamic_at = nullptr;
    }
    dynamic_size = dynamic;
}

static void *place(size_t bytes, size_t align)
{
    unsigned char *room = rooms + static_cast<size_t>(current_rank()) * SHARED_ROOM;
    size_t at = (mine().top + GAP + align - 1) / align * align;
    if (at + bytes + GAP > SHARED_ROOM) simt_fault("shared memory is full: %zu bytes more", bytes);
    mine().top = at + bytes;
    permit(room + at, bytes);
    memset(room + at, simt_set.schedule % 2 ? 0xff : 0xf5, bytes);
    return room + at;
}

static bool in_shared(const void *p, size_t bytes)
{
    const unsigned char *at = static_cast<const unsigned char *>(p);
    return at >= rooms && at + bytes <= rooms + SHARED_ALL;
}

bool shared_holds(const range &r)
{
    if (r.from / SHARED_ROOM >= MOST_CLUSTER) return false;
    const unsigned char *at = rooms + r.from;
    const shared_room &b = blocks[r.from / SHARED_ROOM];
    auto within = [&](const void *variable, size_t bytes) {
        const unsigned char *from = static_cast<const unsigned char *>(variable);
        return from && at >= from && at + r.bytes <= from + bytes;
    };
    bool held = within(b.dynamic_at, dynamic_size);
    for (int i = 0; i < b.variable_count && !held; i++)
        held = within(b.variables[i].at, b.variables[i].bytes);
    return held;
}

// --- cp.async ---

struct copy {
    void *to;
    const void *from;
    int bytes, present;
    const void *pc;
};
struct flight {
    std::vector<copy> copies;
    std::vector<size_t> groups; // how many copies each committed group ends at
};
static flight flights[MAX_THREADS];

void copies_begin(int threads)
{
    for (int i = 0; i < threads; i++) {
        flights[i].copies.clear();
        flights[i].groups.clear();
    }
}

void copies_end(int t)
{
    if (!flights[t].copies.empty())
        simt_fault("a thread ends with %zu cp.async copies that it never waited for",
                   flights[t].copies.size());
}

static void land(const copy &c)
{
    if (c.present) memcpy(c.to, c.from, static_cast<size_t>(c.present));
    memset(static_cast<char *>(c.to) + c.present, 0, static_cast<size_t>(c.bytes - c.present));
    if (!check) return;
    if (c.present) check->access(c.from, static_cast<size_t>(c.present), false, false, c.pc);
    check->landing(c.to, static_cast<size_t>(c.bytes));
}

} // namespace simt

using namespace simt;

void *simt_shared_variable(const void *key, size_t bytes, size_t align, const char *name)
{
    shared_room &b = mine();
    for (int i = 0; i < b.variable_count; i++)
        if (b.variables[i].key == key) return b.variables[i].at;
    b.fixed += bytes;
    if (b.fixed > SHARED_STATIC)
        simt_fault("shared variable %s: %zu bytes are more than %d of a kernel's own", name,
                   b.fixed, SHARED_STATIC);
    if (b.fixed + dynamic_size > SHARED_MOST)
        simt_fault("shared variable %s: with %zu dynamic bytes more than %d", name, dynamic_size,
                   SHARED_MOST);
    if (b.variable_count == VARIABLES) simt_fault("more than %d shared variables", VARIABLES);
    b.variables[b.variable_count] = {key, place(bytes, align < 16 ? 16 : align), bytes};
    return b.variables[b.variable_count++].at;
}

void *simt_shared_dynamic(size_t align)
{
    shared_room &b = mine();
    if (!b.dynamic_at) b.dynamic_at = place(dynamic_size, align);
    return b.dynamic_at;
}

unsigned simt_shared_address(const void *p)
{
    if (!in_shared(p, 0)) simt_fault("simt_shared_address: not in shared memory");
    return static_cast<unsigned>(static_cast<const unsigned char *>(p) - rooms);
}

void simt_cp_async(void *to, const void *from, int bytes, int present)
{
    uintptr_t both = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
    if (both % static_cast<unsigned>(bytes))
        simt_fault("cp.async of %d bytes: an address is not aligned to them", bytes);
    if (!in_shared(to, static_cast<size_t>(bytes)))
        simt_fault("cp.async: the destination is not shared memory");
    if (present < 0 || present > bytes) simt_fault("cp.async: %d of %d bytes", present, bytes);
    const void *pc = __builtin_return_address(0);
    if (check) {
        if (present) check->access(from, static_cast<size_t>(present), false, false, pc);
        check->access(to, static_cast<size_t>(bytes), true, false, pc);
        check->in_flight(to, static_cast<size_t>(bytes));
    }
    memset(to, 0xf3, static_cast<size_t>(bytes));
    flights[simt_here.linear].copies.push_back({to, from, bytes, present, pc});
}

void simt_cp_async_commit(void)
{
    flight &f = flights[simt_here.linear];
    f.groups.push_back(f.copies.size());
}

void simt_cp_async_keep(int keep)
{
    flight &f = flights[simt_here.linear];
    size_t stay = static_cast<size_t>(keep);
    if (f.groups.size() <= stay) return;
    size_t done = f.groups.size() - stay, end = f.groups[done - 1];
    for (size_t i = 0; i < end; i++) land(f.copies[i]);
    f.copies.erase(f.copies.begin(), f.copies.begin() + static_cast<ptrdiff_t>(end));
    f.groups.erase(f.groups.begin(), f.groups.begin() + static_cast<ptrdiff_t>(done));
    for (size_t &g : f.groups) g -= end;
}
