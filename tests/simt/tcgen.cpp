// SPDX-License-Identifier: Apache-2.0
// Products by one thread, whose sums are in tensor memory: PTX ISA, "TensorCore 5th Generation
// Family Instructions". Products and arrivals of a block are a queue, of which one is done when no
// thread of the block can run: factors are read from shared memory as it is then. From the
// instruction until then sums hold garbage. Not shown: sums of products of a depth are added in
// order, in f32.
#include "async.h"
#include "runtime/cuda/device/simt_sm100.cuh"
#include <cstring>
#include <deque>

namespace simt
{
namespace
{

enum { LANES = 128, COLUMNS = 512, LEAST = 32, DEPTH = 32, MOST = 256, GARBAGE = 0x5ad5ad5a };

struct factor {
    unsigned start, group, span; // first byte; bytes from eight rows to the next eight; of a row
    unsigned row(unsigned r) const { return start + r / 8 * group + r % 8 * span; }
};

struct operation { // a product, or an arrival
    factor a, b;
    simt_tcgen_kind kind;
    unsigned columns, sums; // sums: the first of its columns
    bool adds;
    int barrier; // to arrive at; -1: a product
    const void *pc;
};

struct {
    int shown[LANES][COLUMNS], real[LANES][COLUMNS];
    int flying[COLUMNS]; // products that write the column
    int owner[COLUMNS];  // the warp that allocated it; -1: none
    std::deque<operation> queue;
    size_t told;    // of the queue's products: an arrival follows
    int multiplier; // the thread that begins products; -1: none yet
    bool used;
    bool waited[MAX_THREADS], read[MAX_THREADS]; // since the last fence of its kind
    struct {
        int thread; // one that read it last, of each quarter; -1: none
        unsigned clock;
    } reader[4][COLUMNS];
} memory;

// What thread 0 of a block of its own may do; clusters have more than one memory.
void need_one_block(const char *what, const char *file, int line)
{
    if (cluster_blocks() > 1)
        simt_fault("%s at %s:%d: in clusters it is not emulated", what, file, line);
    memory.used = true;
}

void need_fence(const char *what, const char *file, int line)
{
    if (memory.waited[current_thread()])
        simt_fault("%s at %s:%d: no simt_tcgen_fence_after since the thread waited", what, file,
                   line);
}

void need_columns(unsigned first, unsigned n, const char *what, const char *file, int line)
{
    bool own = first + n <= COLUMNS;
    for (unsigned c = first; own && c < first + n; c++) own = memory.owner[c] >= 0;
    if (!own)
        simt_fault("%s at %s:%d: columns %u to %u were not allocated", what, file, line, first,
                   first + n - 1);
}

factor decode(uint64_t d, const char *file, int line)
{
    const unsigned layout = static_cast<unsigned>(d >> 61);
    const unsigned span = layout == 2 ? 128 : layout == 4 ? 64 : layout == 6 ? 32 : 0;
    const factor f = {static_cast<unsigned>(d & 0x3fff) << 4,
                      static_cast<unsigned>(d >> 32 & 0x3fff) << 4, span};
    if (!span)
        simt_fault("tcgen05.mma at %s:%d: a factor without swizzle is not emulated", file, line);
    if ((d >> 46 & 3) != 1)
        simt_fault("tcgen05.mma at %s:%d: a factor's descriptor of version %u", file, line,
                   static_cast<unsigned>(d >> 46 & 3));
    if (f.start / span % 8 || (d >> 49 & 15))
        simt_fault(
            "tcgen05.mma at %s:%d: a factor at byte %u does not begin where its swizzle does", file,
            line, f.start);
    if (f.start % span + DEPTH > span)
        simt_fault("tcgen05.mma at %s:%d: the factor's depth leaves its span of %u bytes", file,
                   line, span);
    return f;
}

template <class F> void rows_of(const operation &w, F f)
{
    for (unsigned r = 0; r < LANES; r++) f(w.a, r);
    for (unsigned r = 0; r < w.columns; r++) f(w.b, r);
}

bool is_int(simt_tcgen_kind kind) { return kind == SIMT_TCGEN_S8 || kind == SIMT_TCGEN_U8; }

void row_read(const factor &f, unsigned r, unsigned char to[DEPTH])
{
    for (unsigned i = 0; i < DEPTH; i += 16)
        memcpy(to + i, shared_base() + swizzled(f.row(r) + i, f.span), 16);
}

void numbers(int *to, const unsigned char *from, bool is_unsigned, simt_tcgen_kind)
{
    for (int k = 0; k < DEPTH; k++) to[k] = is_unsigned ? from[k] : static_cast<int8_t>(from[k]);
}

void numbers(float *to, const unsigned char *from, bool, simt_tcgen_kind kind)
{
    if (kind == SIMT_TCGEN_E4M3 || kind == SIMT_TCGEN_E5M2) {
        for (int k = 0; k < DEPTH; k++)
            to[k] = simt_f8(from[k], kind == SIMT_TCGEN_E5M2 ? SIMT_E5M2 : SIMT_E4M3);
        return;
    }
    for (int k = 0; k < DEPTH / 2; k++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * k, sizeof bits);
        to[k] = simt_half(bits, kind == SIMT_TCGEN_BF16 ? SIMT_BF16 : SIMT_F16);
    }
}

int plus(int a, int b)
{
    return static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b));
}
float plus(float a, float b) { return a + b; }

template <class NUMBER> void multiply(const operation &w)
{
    static NUMBER a[LANES][DEPTH], b[MOST][DEPTH];
    const bool halves = w.kind == SIMT_TCGEN_F16 || w.kind == SIMT_TCGEN_BF16;
    const int depth = halves ? DEPTH / 2 : DEPTH;
    unsigned char bytes[DEPTH];
    for (unsigned r = 0; r < LANES; r++)
        row_read(w.a, r, bytes), numbers(a[r], bytes, w.kind == SIMT_TCGEN_U8, w.kind);
    for (unsigned r = 0; r < w.columns; r++)
        row_read(w.b, r, bytes), numbers(b[r], bytes, false, w.kind);
    for (unsigned r = 0; r < LANES; r++)
        for (unsigned c = 0; c < w.columns; c++) {
            int *d = &memory.real[r][w.sums + c];
            NUMBER sum = w.adds ? simt_bits<NUMBER>(*d) : NUMBER{0};
            for (int k = 0; k < depth; k++) sum = plus(sum, a[r][k] * b[c][k]);
            *d = simt_bits<int>(sum);
        }
}

void begin(operation w, unsigned what, const char *file, int line)
{
    if (is_int(w.kind)) w.kind = what >> 7 & 7 ? SIMT_TCGEN_S8 : SIMT_TCGEN_U8;
    const unsigned asked = simt_tcgen_descriptor(w.kind, static_cast<int>(w.columns));
    if (what != asked || w.columns % 16 || w.columns < 16 || w.columns > MOST)
        simt_fault("tcgen05.mma at %s:%d: descriptor %#x is not of this kind, 128 rows and 16 to "
                   "256 columns",
                   file, line, what);
    need_columns(w.sums, w.columns, "tcgen05.mma", file, line);
    rows_of(w, [&](const factor &f, unsigned r) {
        if (!shared_holds({f.row(r), DEPTH}))
            simt_fault("tcgen05.mma at %s:%d: row %u of a factor at byte %u is not of a shared "
                       "variable",
                       file, line, r, f.start);
    });
    for (unsigned c = w.sums; check && c < w.sums + w.columns; c++)
        for (auto &quarter : memory.reader) {
            if (quarter[c].thread >= 0 && !check->told(quarter[c].thread, quarter[c].clock))
                simt_fault("tcgen05.mma at %s:%d overwrites sums that a thread may still read",
                           file, line);
            quarter[c].thread = -1;
        }
    for (unsigned c = w.sums; c < w.sums + w.columns; c++)
        if (!memory.flying[c]++)
            for (auto &lane : memory.shown) lane[c] = GARBAGE;
    memory.queue.push_back(w);
}

void finish(const operation &w)
{
    if (w.barrier >= 0) {
        barrier_arrival(w.barrier);
        return;
    }
    if (is_int(w.kind))
        multiply<int>(w);
    else
        multiply<float>(w);
    for (unsigned c = w.sums; c < w.sums + w.columns; c++)
        if (!--memory.flying[c])
            for (int l = 0; l < LANES; l++) memory.shown[l][c] = memory.real[l][c];
}

// The checker: reads of the products that no arrival followed yet are told by this one.
void reads_tell(int barrier)
{
    for (; memory.told < memory.queue.size(); memory.told++) {
        const operation &w = memory.queue[memory.told];
        if (w.barrier >= 0) continue;
        rows_of(w, [&](const factor &f, unsigned r) {
            for (unsigned i = 0; i < DEPTH; i += 16)
                check->async(shared_base() + swizzled(f.row(r) + i, f.span), 16, false,
                             FIRST_BARRIER + barrier, barrier_phase(barrier) + 1, false, w.pc);
        });
    }
}

struct argument {
    int *d;
    unsigned at;
    const char *file;
    int line;
};

void do_read(unsigned lanes, void *const arg[32])
{
    const argument &x = *static_cast<argument *>(arg[0]);
    const unsigned first = x.at >> 16, column = x.at & 0xffff;
    if (lanes != 0xffffffffu) simt_fault("tcgen05.ld at %s:%d needs a whole warp", x.file, x.line);
    for (int l = 1; l < 32; l++)
        if (static_cast<argument *>(arg[l])->at != x.at)
            simt_fault("tcgen05.ld at %s:%d: lanes differ in its address", x.file, x.line);
    if (first != simt_here.warp % 4 * 32)
        simt_fault("tcgen05.ld at %s:%d: warp %u reads lanes from %u on, which are another's",
                   x.file, x.line, simt_here.warp, first);
    need_columns(column, 32, "tcgen05.ld", x.file, x.line);
    for (unsigned l = 0; l < 32; l++)
        memcpy(static_cast<argument *>(arg[l])->d, &memory.shown[first + l][column],
               32 * sizeof(int));
    for (unsigned c = column; check && c < column + 32; c++)
        memory.reader[first / 32][c] = {current_thread(), check->now()};
}

struct request {
    unsigned n, at; // columns; in shared memory, or the address
    const char *file;
    int line;
};

void do_take(unsigned lanes, void *const arg[32])
{
    const request &x = *static_cast<request *>(arg[0]);
    unsigned first = 0;
    if (lanes != 0xffffffffu || x.n < LEAST || x.n > COLUMNS || (x.n & (x.n - 1)))
        simt_fault("tcgen05.alloc at %s:%d of %u columns: it needs a whole warp and a power of two "
                   "from 32 to 512",
                   x.file, x.line, x.n);
    while (first < COLUMNS && memory.owner[first] >= 0) first++;
    if (first + x.n > COLUMNS)
        simt_fault("tcgen05.alloc at %s:%d waits for ever: %u columns are taken", x.file, x.line,
                   first);
    for (unsigned c = first; c < first + x.n; c++) {
        memory.owner[c] = static_cast<int>(simt_here.warp);
        for (int l = 0; l < LANES; l++) memory.shown[l][c] = memory.real[l][c] = GARBAGE;
    }
    if (!shared_holds({x.at, 4}) || x.at % 4)
        simt_fault("tcgen05.alloc at %s:%d: byte %u is no word of shared memory", x.file, x.line,
                   x.at);
    if (check) check->access(shared_base() + x.at, 4, true, false, __builtin_return_address(0));
    memcpy(shared_base() + x.at, &first, 4);
}

void do_give(unsigned lanes, void *const arg[32])
{
    const request &x = *static_cast<request *>(arg[0]);
    if (lanes != 0xffffffffu)
        simt_fault("tcgen05.dealloc at %s:%d needs a whole warp", x.file, x.line);
    need_columns(x.at, x.n, "tcgen05.dealloc", x.file, x.line);
    for (unsigned c = x.at; c < x.at + x.n; c++) {
        if (memory.owner[c] != static_cast<int>(simt_here.warp))
            simt_fault("tcgen05.dealloc at %s:%d by a warp that did not allocate", x.file, x.line);
        if (memory.flying[c])
            simt_fault("tcgen05.dealloc at %s:%d of columns that products still write", x.file,
                       x.line);
        memory.owner[c] = -1;
    }
}

} // namespace

void tcgen_begin(void)
{
    static bool clean = false;
    if (clean && !memory.used) return;
    clean = true;
    memory.used = false;
    memory.queue.clear();
    memory.told = 0;
    memory.multiplier = -1;
    for (int c = 0; c < COLUMNS; c++) {
        memory.flying[c] = 0, memory.owner[c] = -1;
        for (auto &quarter : memory.reader) quarter[c].thread = -1;
    }
    memset(memory.waited, 0, sizeof memory.waited);
    memset(memory.read, 0, sizeof memory.read);
}

void tcgen_end(void)
{
    if (!memory.used) return;
    if (!memory.queue.empty())
        simt_fault("a block ends before %zu products and arrivals of tcgen05", memory.queue.size());
    for (int owner : memory.owner)
        if (owner >= 0) simt_fault("a block ends with columns of tensor memory that are not freed");
}

bool tcgen_waits(void) { return !memory.queue.empty(); }

bool tcgen_land(void)
{
    if (memory.queue.empty()) return false;
    const operation w = memory.queue.front();
    memory.queue.pop_front();
    if (memory.told) memory.told--;
    finish(w);
    return true;
}

bool tcgen_reads(const range &r)
{
    bool reads = false;
    for (const operation &w : memory.queue)
        if (w.barrier < 0)
            rows_of(w, [&](const factor &f, unsigned row) {
                reads |= overlap(r, {f.row(row) / f.span * f.span, f.span});
            });
    return reads;
}

void tcgen_waited(int thread) { memory.waited[thread] = memory.used; }

void tcgen_tells(int thread, const char *what, const char *file, int line)
{
    if (memory.read[thread])
        simt_fault("%s at %s:%d: no simt_tcgen_fence_before since the thread read tensor memory",
                   what, file, line);
}

} // namespace simt

using namespace simt;

void simt_tmem_take(int columns, unsigned to, const char *file, int line)
{
    request x = {static_cast<unsigned>(columns), to, file, line};
    need_one_block("tcgen05.alloc", file, line);
    simt_collective(0xffffffffu, &x, do_take, "tcgen05.alloc", file, line);
}

void simt_tmem_give(int columns, unsigned at, const char *file, int line)
{
    request x = {static_cast<unsigned>(columns), at, file, line};
    simt_collective(0xffffffffu, &x, do_give, "tcgen05.dealloc", file, line);
}

void simt_tmem_read(void *d, unsigned at, const char *file, int line)
{
    argument x = {static_cast<int *>(d), at, file, line};
    need_fence("tcgen05.ld", file, line);
    memory.read[current_thread()] = true;
    simt_collective(0xffffffffu, &x, do_read, "tcgen05.ld", file, line);
}

void simt_tcgen_fence_before(void) { memory.read[current_thread()] = false; }
void simt_tcgen_fence_after(void) { memory.waited[current_thread()] = false; }

void simt_tcgen_begin(simt_tcgen_kind kind, unsigned sums, uint64_t a, uint64_t b, unsigned what,
                      bool add, const char *file, int line)
{
    need_one_block("tcgen05.mma", file, line);
    need_fence("tcgen05.mma", file, line);
    if (memory.multiplier >= 0 && memory.multiplier != current_thread())
        simt_fault("tcgen05.mma at %s:%d: products by two threads of a block are not emulated",
                   file, line);
    memory.multiplier = current_thread();
    begin({decode(a, file, line), decode(b, file, line), kind, (what >> 17 & 63) * 8, sums, add, -1,
           __builtin_return_address(0)},
          what, file, line);
}

void simt_tcgen_commit(unsigned bar, const char *file, int line)
{
    need_one_block("tcgen05.commit", file, line);
    const int barrier = barrier_for_copy(bar, file, line);
    if (check) {
        reads_tell(barrier);
        check->release(barrier);
    }
    memory.queue.push_back({{}, {}, SIMT_TCGEN_S8, 0, 0, false, barrier, nullptr});
    memory.told = memory.queue.size();
}
