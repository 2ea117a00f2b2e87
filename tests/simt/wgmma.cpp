// SPDX-License-Identifier: Apache-2.0
// Products of a group of four warps: PTX ISA, "Asynchronous warpgroup level matrix instructions".
// Sparse ones write a out in full first, so that their sums are those of dense ones.
// Each warp makes its 16 of the 64 rows, when it waits for them: operands are read from shared
// memory as it is then. From the instruction to the wait the registers of sums hold garbage and
// their values are here.
#include "async.h"
#include "simt_f8.h"
#include <cmath>
#include <cstring>

namespace simt
{
namespace
{

// DEPTH: bytes of a row, of sparse products those of a that are kept.
enum { ROWS = 16, DEPTH = 32, MOST_DEPTH = 2 * DEPTH, MOST_COLUMNS = 256, GARBAGE = 0x5ad5ad5a };

// Registers that products in flight write: words, of floats their bits.
struct sums {
    int *d[32];              // of each lane
    int count;               // of a lane
    int users;               // products
    std::vector<int> values; // (count, lane)
};

struct operand {
    unsigned start, group; // first byte; bytes from eight rows to the next eight
    unsigned span, depth;
    unsigned row(unsigned r) const { return start + r / 8 * group + r % 8 * span; }
};

struct product {
    uint64_t a, b;
    simt_operand type;
    bool adds;
    int count;   // sums of a lane
    bool sparse; // a is of 2:4
    sums *to;
    unsigned meta[32]; // of each lane
    unsigned depth(void) const { return sparse ? MOST_DEPTH : DEPTH; }
    bool same(const product &o) const
    {
        return a == o.a && b == o.b && type == o.type && adds == o.adds && count == o.count &&
               sparse == o.sparse;
    }
};

struct multiplier { // a warp
    std::vector<product> flying;
    std::vector<size_t> groups; // how many of them each committed group ends at
    std::vector<std::unique_ptr<sums>> registers;
    size_t begun, done; // products so far
    bool fenced;        // since its threads could touch sums
};
multiplier multipliers[WARPS];
std::vector<product> logs[WARPS / 4]; // of a group of warps: all must begin the same
bool used;

struct argument {
    product p;
    int *d;
    const void *pc;
    const char *file;
    int line;
};

const argument &first_of(void *const arg[32]) { return *static_cast<argument *>(arg[0]); }

void need_group(unsigned lanes, const char *what)
{
    const unsigned threads = static_cast<unsigned>(thread_count());
    if (lanes != 0xffffffffu || (simt_here.warp / 4 + 1) * 128 > threads)
        simt_fault("%s needs four whole warps", what);
}

// PTX ISA, "Matrix descriptor"; of operands along the depth, swizzled.
operand decode(uint64_t d, unsigned depth, const argument &x, unsigned warp)
{
    const unsigned swizzle = static_cast<unsigned>(d >> 62), span = 256u >> swizzle;
    const unsigned room = static_cast<unsigned>(rank_of(static_cast<int>(warp) * 32)) * SHARED_ROOM;
    const operand o = {room + (static_cast<unsigned>(d & 0x3fff) << 4),
                       static_cast<unsigned>(d >> 32 & 0x3fff) << 4, span, depth};
    if (!swizzle)
        simt_fault("wgmma at %s:%d: an operand without swizzle is not emulated", x.file, x.line);
    if (o.start / span % 8 || (d >> 49 & 7))
        simt_fault("wgmma at %s:%d: an operand at byte %u does not begin where its swizzle does",
                   x.file, x.line, o.start);
    if (o.start % span + depth > span)
        simt_fault("wgmma at %s:%d: the operand's depth leaves its span of %u bytes", x.file,
                   x.line, span);
    return o;
}

template <class F> void rows_of(const product &p, unsigned warp, const argument &x, F f)
{
    const operand a = decode(p.a, DEPTH, x, warp), b = decode(p.b, p.depth(), x, warp);
    for (unsigned r = 0; r < ROWS; r++) f(a, warp % 4 * ROWS + r);
    for (unsigned r = 0; r < static_cast<unsigned>(p.count) * 2; r++) f(b, r);
}

// Bytes that the warp reads: are they variables', and does the checker mind?
void need_operands(const product &p, const argument &x, unsigned clock)
{
    const unsigned warp = simt_here.warp;
    rows_of(p, warp, x, [&](const operand &o, unsigned r) {
        if (!shared_holds({o.row(r), o.depth}))
            simt_fault("wgmma at %s:%d: row %u of an operand at byte %u is not of a shared "
                       "variable",
                       x.file, x.line, r, o.start);
    });
    if (!check) return;
    check->view_warp();
    rows_of(p, warp, x, [&](const operand &o, unsigned r) {
        for (unsigned i = 0; i < o.depth; i += 16)
            check->async(shared_base() + swizzled(o.row(r) + i, o.span), 16, false,
                         FIRST_PRODUCT + static_cast<int>(warp / 4), clock, true, x.pc);
    });
}

// Lanes' registers begin to be written.
sums *take_registers(multiplier &w, const product &p, void *const arg[32])
{
    for (const auto &s : w.registers)
        if (s->d[0] == first_of(arg).d) return s.get();
    auto s = std::make_unique<sums>();
    s->count = p.count;
    s->values.resize(static_cast<size_t>(p.count) * 32);
    for (size_t l = 0; l < 32; l++) {
        s->d[l] = static_cast<argument *>(arg[l])->d;
        for (int i = 0; i < p.count; i++) {
            s->values[static_cast<size_t>(i) * 32 + l] = s->d[l][i];
            s->d[l][i] = GARBAGE;
        }
        forbid(s->d[l], sizeof(int) * static_cast<size_t>(p.count));
    }
    w.registers.push_back(std::move(s));
    return w.registers.back().get();
}

void give_registers(multiplier &w)
{
    for (size_t r = w.registers.size(); r-- > 0;) {
        const sums &s = *w.registers[r];
        if (s.users) continue;
        for (size_t l = 0; l < 32; l++) {
            permit(s.d[l], sizeof(int) * static_cast<size_t>(s.count));
            for (int i = 0; i < s.count; i++) s.d[l][i] = s.values[static_cast<size_t>(i) * 32 + l];
        }
        w.registers.erase(w.registers.begin() + static_cast<ptrdiff_t>(r));
        w.fenced = false;
    }
}

void do_begin(unsigned lanes, void *const arg[32])
{
    const argument &x = first_of(arg);
    multiplier &w = multipliers[simt_here.warp];
    std::vector<product> &log = logs[simt_here.warp / 4];
    need_group(lanes, "wgmma");
    used = true;
    for (int l = 1; l < 32; l++)
        if (!static_cast<argument *>(arg[l])->p.same(x.p))
            simt_fault("wgmma at %s:%d: lanes differ in its operands", x.file, x.line);
    if (!w.fenced)
        simt_fault("wgmma at %s:%d: no wgmma.fence since threads could touch its sums", x.file,
                   x.line);
    if (w.begun < log.size() && !log[w.begun].same(x.p))
        simt_fault("wgmma at %s:%d: the warps of a group differ in its operands", x.file, x.line);
    if (w.begun == log.size()) log.push_back(x.p);
    if (++w.begun == MOST_CLOCK) simt_fault("more than %d products of a block", MOST_CLOCK);
    need_operands(x.p, x, static_cast<unsigned>(w.begun));
    product p = x.p;
    for (int l = 0; l < 32; l++) p.meta[l] = static_cast<argument *>(arg[l])->p.meta[0];
    p.to = take_registers(w, p, arg);
    p.to->users++;
    w.flying.push_back(p);
}

bool is_f8(simt_operand type) { return type == SIMT_E4M3 || type == SIMT_E5M2; }

// A row's numbers, of f16 and bf16 half as many.
void numbers(int16_t *to, const unsigned char *from, unsigned bytes, bool is_unsigned, simt_operand)
{
    for (unsigned k = 0; k < bytes; k++)
        to[k] = is_unsigned ? from[k] : static_cast<int8_t>(from[k]);
}

void numbers(float *to, const unsigned char *from, unsigned bytes, bool, simt_operand type)
{
    if (is_f8(type)) {
        for (unsigned k = 0; k < bytes; k++) to[k] = simt_f8(from[k], type);
        return;
    }
    for (unsigned k = 0; k < bytes / 2; k++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * k, sizeof bits);
        to[k] = simt_half(bits, type);
    }
}

// Of row r of b's depth what row m of a keeps numbers for: two of each four neighbours, whose
// places lanes 4 (m % 8) on have. What it keeps none for, be it a NaN, is multiplied by none.
template <class NUMBER>
void choose(NUMBER (&chosen)[DEPTH], const NUMBER *row, const product &p, unsigned m)
{
    const bool bytes = sizeof(NUMBER) == sizeof(int16_t);
    for (unsigned i = 0; i < (bytes ? DEPTH : DEPTH / 2); i++) {
        const unsigned group = i / 2, lane = bytes ? group / 8 * 2 + m / 8 : group / 4;
        const unsigned in = bytes ? group % 8 : group % 4 + m / 8 * 4;
        chosen[i] = row[group * 4 + place_of(p.meta[m % 8 * 4 + lane], in, i % 2)];
    }
}

// The sum plus a row of a times a row of b, in order of depth.
int dot(const int16_t *a, const int16_t *b, unsigned bytes, int sum, simt_operand)
{
    int all = 0; // less than 2^31
    for (unsigned k = 0; k < bytes; k++) all += a[k] * b[k];
    return static_cast<int>(static_cast<unsigned>(sum) + static_cast<unsigned>(all));
}

// Of FP8 the sum and 32 products are moved to the exponent of the largest of them, 13 bits behind
// its point are kept of each, those below are cut off, and so are the sum's (DeepSeek-V3, arXiv
// 2412.19437, section 3.3.2; SageAttention2, arXiv 2411.10958): as published, not measured here.
float f8_dot(const float *a, const float *b, float sum)
{
    enum { KEPT = 13 };
    double part[DEPTH + 1], all = 0, largest = 0;
    part[DEPTH] = static_cast<double>(sum);
    for (int k = 0; k < DEPTH; k++) part[k] = static_cast<double>(a[k]) * static_cast<double>(b[k]);
    for (double v : part) {
        all += v;
        largest = std::max(largest, std::fabs(v));
    }
    if (!std::isfinite(all) || largest == 0) return static_cast<float>(all);
    const int exponent = std::ilogb(largest) - KEPT;
    const double steps = std::ldexp(1.0, -exponent);
    long long kept = 0; // steps of 2^exponent
    for (double v : part) {
        const long long whole = static_cast<long long>(v * steps); // towards 0
        kept += whole - (static_cast<double>(whole) > v * steps);  // towards less
    }
    const bool below = kept < 0;
    int more = 0; // bits above the 14
    for (kept = below ? -kept : kept; kept >> more >= 1 << (KEPT + 1);) more++;
    const double size = std::ldexp(static_cast<double>(kept >> more), exponent + more);
    return static_cast<float>(below ? -size : size);
}

float dot(const float *a, const float *b, unsigned bytes, float sum, simt_operand type)
{
    if (is_f8(type)) return f8_dot(a, b, sum);
    for (unsigned k = 0; k < bytes / 2; k++) sum += a[k] * b[k];
    return sum;
}

// Sum i of lane l: row l / 4 + 8 (i / 2 % 2) of the warp's, column 8 (i / 4) + 2 (l % 4) + i % 2.
template <class NUMBER, class SUM> void multiply(const product &p)
{
    static NUMBER a[ROWS][MOST_DEPTH], b[MOST_COLUMNS][MOST_DEPTH];
    unsigned row = 0;
    rows_of(p, simt_here.warp, {}, [&](const operand &o, unsigned r) {
        unsigned char bytes[MOST_DEPTH];
        for (unsigned i = 0; i < o.depth; i += 16)
            memcpy(bytes + i, shared_base() + swizzled(o.row(r) + i, o.span), 16);
        if (row < ROWS)
            numbers(a[row], bytes, o.depth, p.type == SIMT_U8S8, p.type);
        else
            numbers(b[row - ROWS], bytes, o.depth, p.type == SIMT_S8U8, p.type);
        row++;
    });
    NUMBER chosen[DEPTH] = {};
    for (int i = 0; i < p.count; i++)
        for (int l = 0; l < 32; l++) {
            int *d = &p.to->values[static_cast<size_t>(i * 32 + l)];
            const SUM sum = p.adds ? simt_bits<SUM>(*d) : SUM{0};
            const int m = l / 4 + i / 2 % 2 * 8;
            const NUMBER *with = b[i / 4 * 8 + l % 4 * 2 + i % 2];
            if (p.sparse) choose(chosen, with, p, static_cast<unsigned>(m));
            *d = simt_bits<int>(dot(a[m], p.sparse ? chosen : with, DEPTH, sum, p.type));
        }
}

void multiply(const product &p)
{
    if (p.type == SIMT_F16 || p.type == SIMT_BF16 || is_f8(p.type))
        multiply<float, float>(p);
    else
        multiply<int16_t, int>(p);
}

void do_fence(unsigned lanes, void *const[32])
{
    need_group(lanes, "wgmma.fence");
    multipliers[simt_here.warp].fenced = true;
}

void do_commit(unsigned lanes, void *const[32])
{
    multiplier &w = multipliers[simt_here.warp];
    need_group(lanes, "wgmma.commit_group");
    w.groups.push_back(w.flying.size());
}

void do_keep(unsigned lanes, void *const arg[32])
{
    multiplier &w = multipliers[simt_here.warp];
    const size_t keep = *static_cast<const size_t *>(arg[0]);
    need_group(lanes, "wgmma.wait_group");
    if (w.groups.size() <= keep) return;
    const size_t groups = w.groups.size() - keep, end = w.groups[groups - 1];
    for (size_t i = 0; i < end; i++) {
        multiply(w.flying[i]);
        w.flying[i].to->users--;
    }
    w.flying.erase(w.flying.begin(), w.flying.begin() + static_cast<ptrdiff_t>(end));
    w.groups.erase(w.groups.begin(), w.groups.begin() + static_cast<ptrdiff_t>(groups));
    for (size_t &g : w.groups) g -= end;
    w.done += end;
    give_registers(w);
    if (check)
        check->learn(lanes, FIRST_MULTIPLIER + static_cast<int>(simt_here.warp),
                     static_cast<unsigned>(w.done));
}

} // namespace

void products_begin(void)
{
    if (!used) return;
    used = false;
    for (multiplier &w : multipliers) w = {};
    for (auto &log : logs) log.clear();
}

void products_end(int thread)
{
    if (used && !multipliers[thread / 32].flying.empty())
        simt_fault("a thread ends with %zu products of wgmma that it never waited for",
                   multipliers[thread / 32].flying.size());
}

bool products_read(const range &r)
{
    bool reads = false;
    for (unsigned w = 0; used && w < WARPS; w++)
        for (const product &p : multipliers[w].flying)
            rows_of(p, w, {}, [&](const operand &o, unsigned row) {
                reads |= overlap(r, {o.row(row) / o.span * o.span, o.span});
            });
    return reads;
}

bool sums_cover(const void *p, size_t n)
{
    if (!used || current_thread() < 0) return false;
    const char *at = static_cast<const char *>(p);
    for (const auto &s : multipliers[simt_here.warp].registers) {
        const char *d = reinterpret_cast<const char *>(s->d[simt_here.lane]);
        if (at < d + sizeof(int) * static_cast<size_t>(s->count) && d < at + n) return true;
    }
    return false;
}

} // namespace simt

using namespace simt;

void simt_wgmma_fence(const char *file, int line)
{
    simt_collective(0xffffffffu, nullptr, do_fence, "wgmma.fence", file, line);
}

void simt_wgmma_commit(const char *file, int line)
{
    simt_collective(0xffffffffu, nullptr, do_commit, "wgmma.commit_group", file, line);
}

void simt_wgmma_keep(int groups, const char *file, int line)
{
    size_t keep = static_cast<size_t>(groups);
    simt_collective(0xffffffffu, &keep, do_keep, "wgmma.wait_group", file, line);
}

static void begin(const product &p, void *d, const void *pc, const char *what, const char *file,
                  int line)
{
    argument x = {p, static_cast<int *>(d), pc, file, line};
    simt_collective(0xffffffffu, &x, do_begin, what, file, line);
}

void simt_wgmma(void *d, int count, uint64_t a, uint64_t b, simt_operand type, int add,
                const char *file, int line)
{
    static const char *const names[] = {"wgmma s8 s8", "wgmma u8 s8", "wgmma f16",  "wgmma bf16",
                                        "wgmma s8 u8", nullptr,       "wgmma e4m3", "wgmma e5m2"};
    begin({a, b, type, add != 0, count, false, nullptr, {}}, d, __builtin_return_address(0),
          names[type], file, line);
}

void simt_wgmma_sp(void *d, int count, uint64_t a, uint64_t b, unsigned meta, simt_operand type,
                   int add, const char *file, int line)
{
    static const char *const names[] = {"wgmma.sp s8 s8", "", "wgmma.sp f16", "wgmma.sp bf16",
                                        "wgmma.sp s8 u8"};
    const bool bytes = type == SIMT_S8S8 || type == SIMT_S8U8;
    if (bytes || simt_here.lane % 4 < 2) need_ascending(meta, names[type], file, line);
    begin({a, b, type, add != 0, count, true, nullptr, {meta}}, d, __builtin_return_address(0),
          names[type], file, line);
}
