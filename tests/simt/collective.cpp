// SPDX-License-Identifier: Apache-2.0
// Warp collectives: shuffles, votes, reductions, ldmatrix, mma. Each lane posts a record on its own
// stack; the last one to arrive works on all records. Fragment layouts: PTX ISA, "Warp level matrix
// instructions".
#include "engine.h"
#include "simt_f8.h"
#include "simt_sm90.h"

using namespace simt;

namespace
{

// Runs f(lane, record) for the lanes that are there.
template <class R, class F> void each(unsigned lanes, void *const arg[32], F f)
{
    for (unsigned l = 0; l < 32; l++)
        if (lanes >> l & 1) f(l, *static_cast<R *>(arg[l]));
}

void need_all(unsigned lanes, const char *what)
{
    if (lanes != 0xffffffffu) simt_fault("%s needs all 32 lanes of the warp", what);
}

struct shuffle {
    void *value;
    size_t bytes;
    unsigned source;
};

void do_shuffle(unsigned lanes, void *const arg[32])
{
    uint64_t values[32];
    each<shuffle>(lanes, arg,
                  [&](unsigned l, shuffle &s) { memcpy(&values[l], s.value, s.bytes); });
    each<shuffle>(lanes, arg, [&](unsigned l, shuffle &s) {
        if (!(lanes >> s.source & 1))
            simt_fault(
                "shuffle: lane %u reads lane %u, which takes no part (not in the mask, ended "
                "or beyond the block)",
                l, s.source);
        memcpy(s.value, &values[s.source], s.bytes);
    });
}

struct vote {
    uint64_t value;
    unsigned result;
    simt_reduction how;
};

void do_ballot(unsigned lanes, void *const arg[32])
{
    unsigned ballot = 0;
    each<vote>(lanes, arg, [&](unsigned l, vote &v) { ballot |= (v.value ? 1u : 0u) << l; });
    each<vote>(lanes, arg, [&](unsigned, vote &v) { v.result = ballot; });
}

void do_match(unsigned lanes, void *const arg[32])
{
    each<vote>(lanes, arg, [&](unsigned, vote &v) {
        v.result = 0;
        each<vote>(lanes, arg,
                   [&](unsigned k, vote &o) { v.result |= (o.value == v.value ? 1u : 0u) << k; });
    });
}

unsigned reduced(simt_reduction how, unsigned a, unsigned b)
{
    int x = static_cast<int>(a), y = static_cast<int>(b);
    switch (how) {
    case SIMT_SUM: return a + b;
    case SIMT_MIN: return x < y ? a : b;
    case SIMT_MAX: return x > y ? a : b;
    case SIMT_UMIN: return a < b ? a : b;
    case SIMT_UMAX: return a > b ? a : b;
    case SIMT_BIT_AND: return a & b;
    case SIMT_BIT_OR: return a | b;
    case SIMT_BIT_XOR: return a ^ b;
    }
    return 0;
}

void do_reduce(unsigned lanes, void *const arg[32])
{
    bool first = true;
    unsigned all = 0;
    each<vote>(lanes, arg, [&](unsigned, vote &v) {
        unsigned value = static_cast<unsigned>(v.value);
        all = first ? value : reduced(v.how, all, value);
        first = false;
    });
    each<vote>(lanes, arg, [&](unsigned, vote &v) { v.result = all; });
}

// Of all collectives the one that orders memory.
void do_sync(unsigned lanes, void *const[32])
{
    if (check) check->warp(static_cast<int>(simt_here.warp), lanes);
}

void do_registers(unsigned lanes, void *const[32]) { need_all(lanes, "setmaxnreg"); }

// --- matrices ---

struct mma {
    void *d;
    const unsigned *a, *b;
    simt_operand type;
    unsigned meta;
};

// Four bytes to numbers.
void widen(int16_t *to, unsigned word, bool is_signed)
{
    for (int i = 0; i < 4; i++) {
        unsigned byte = word >> 8 * i & 0xff;
        to[i] = is_signed ? static_cast<int8_t>(byte) : static_cast<int16_t>(byte);
    }
}

int dot(const int16_t *a, const int16_t *b)
{
    int sum = 0;
    for (int k = 0; k < 32; k++) sum += a[k] * b[k];
    return sum;
}

// Lane l: g = l / 4, t = l % 4. a[r] holds row g + 8 (r % 2), bytes 4 t.. + 16 (r / 2); b[r] column
// g, bytes 4 t.. + 16 r; d[i] row g + 8 (i / 2), column 2 t + i % 2.
void do_mma_k32(unsigned lanes, void *const arg[32])
{
    need_all(lanes, "mma.sync.m16n8k32");
    int16_t a[16][32], b[8][32];
    each<mma>(lanes, arg, [&](unsigned l, mma &m) {
        unsigned g = l / 4, t = l % 4 * 4;
        for (unsigned r = 0; r < 4; r++)
            widen(&a[g + r % 2 * 8][t + r / 2 * 16], m.a[r], m.type != SIMT_U8S8);
        for (unsigned r = 0; r < 2; r++) widen(&b[g][t + r * 16], m.b[r], true);
    });
    each<mma>(lanes, arg, [&](unsigned l, mma &m) {
        for (unsigned i = 0; i < 4; i++) {
            int *d = static_cast<int *>(m.d) + i;
            int sum = dot(a[l / 4 + i / 2 * 8], b[l % 4 * 2 + i % 2]);
            *d = static_cast<int>(static_cast<unsigned>(*d) + static_cast<unsigned>(sum));
        }
    });
}

float half_of(unsigned word, unsigned i, simt_operand type)
{
    return simt_half(static_cast<uint16_t>(word >> 16 * i), type);
}

// As above with two numbers a word: a[r] holds columns 2 t.. + 8 (r / 2), b[r] rows 2 t.. + 8 r.
void do_mma_k16(unsigned lanes, void *const arg[32])
{
    need_all(lanes, "mma.sync.m16n8k16");
    float a[16][16], b[8][16];
    each<mma>(lanes, arg, [&](unsigned l, mma &m) {
        unsigned g = l / 4, t = l % 4 * 2;
        for (unsigned i = 0; i < 2; i++) {
            for (unsigned r = 0; r < 4; r++)
                a[g + r % 2 * 8][t + r / 2 * 8 + i] = half_of(m.a[r], i, m.type);
            for (unsigned r = 0; r < 2; r++) b[g][t + r * 8 + i] = half_of(m.b[r], i, m.type);
        }
    });
    each<mma>(lanes, arg, [&](unsigned l, mma &m) {
        for (unsigned i = 0; i < 4; i++) {
            const float *row = a[l / 4 + i / 2 * 8], *column = b[l % 4 * 2 + i % 2];
            float *d = static_cast<float *>(m.d) + i, sum = *d;
            for (int k = 0; k < 16; k++) sum += row[k] * column[k];
            *d = sum;
        }
    });
}

// As k32 of integers, of FP8, whose sums are those of f16: f32 in order of depth.
void do_mma_f8(unsigned lanes, void *const arg[32])
{
    need_all(lanes, "mma.sync.m16n8k32 of FP8");
    float a[16][32], b[8][32];
    each<mma>(lanes, arg, [&](unsigned l, mma &m) {
        unsigned g = l / 4, t = l % 4 * 4;
        for (unsigned i = 0; i < 4; i++) {
            for (unsigned r = 0; r < 4; r++)
                a[g + r % 2 * 8][t + r / 2 * 16 + i] =
                    simt_f8(static_cast<uint8_t>(m.a[r] >> 8 * i), m.type);
            for (unsigned r = 0; r < 2; r++)
                b[g][t + r * 16 + i] = simt_f8(static_cast<uint8_t>(m.b[r] >> 8 * i), m.type);
        }
    });
    each<mma>(lanes, arg, [&](unsigned l, mma &m) {
        for (unsigned i = 0; i < 4; i++) {
            const float *row = a[l / 4 + i / 2 * 8], *column = b[l % 4 * 2 + i % 2];
            float *d = static_cast<float *>(m.d) + i, sum = *d;
            for (int k = 0; k < 32; k++) sum += row[k] * column[k];
            *d = sum;
        }
    });
}

// One number a word: a[r] holds columns t + 4 (r / 2), b[r] rows t + 4 r.
void do_mma_k8(unsigned lanes, void *const arg[32])
{
    need_all(lanes, "mma.sync.m16n8k8");
    float a[16][8], b[8][8];
    each<mma>(lanes, arg, [&](unsigned l, mma &m) {
        unsigned g = l / 4, t = l % 4;
        for (unsigned r = 0; r < 4; r++) a[g + r % 2 * 8][t + r / 2 * 4] = simt_bits<float>(m.a[r]);
        for (unsigned r = 0; r < 2; r++) b[g][t + r * 4] = simt_bits<float>(m.b[r]);
    });
    each<mma>(lanes, arg, [&](unsigned l, mma &m) {
        for (unsigned i = 0; i < 4; i++) {
            const float *row = a[l / 4 + i / 2 * 8], *column = b[l % 4 * 2 + i % 2];
            float *d = static_cast<float *>(m.d) + i, sum = *d;
            for (int k = 0; k < 8; k++) sum += row[k] * column[k];
            *d = sum;
        }
    });
}

// Both sparse products add up in the order of dense ones. This one writes a out in full first.
// Lane l: meta is of row g + 8 (t % 2) and the eight groups of depth 32 (t / 2) on.
void do_mma_sp_k64(unsigned lanes, void *const arg[32])
{
    need_all(lanes, "mma.sp.m16n8k64");
    int16_t kept[16][32], a[16][64] = {}, b[8][64];
    each<mma>(lanes, arg, [&](unsigned l, mma &m) {
        unsigned g = l / 4, t = l % 4 * 4;
        for (unsigned r = 0; r < 4; r++) {
            widen(&kept[g + r % 2 * 8][t + r / 2 * 16], m.a[r], true);
            widen(&b[g][t + r * 16], m.b[r], m.type != SIMT_S8U8);
        }
    });
    each<mma>(lanes, arg, [&](unsigned l, mma &m) {
        unsigned row = l / 4 + l % 2 * 8, half = l % 4 / 2;
        for (unsigned i = 0; i < 16; i++)
            a[row][half * 32 + i / 2 * 4 + place_of(m.meta, i / 2, i % 2)] =
                kept[row][half * 16 + i];
    });
    each<mma>(lanes, arg, [&](unsigned l, mma &m) {
        for (unsigned i = 0; i < 4; i++) {
            int *d = static_cast<int *>(m.d) + i;
            const int16_t *row = a[l / 4 + i / 2 * 8], *column = b[l % 4 * 2 + i % 2];
            unsigned sum = static_cast<unsigned>(dot(row, column) + dot(row + 32, column + 32));
            *d = static_cast<int>(static_cast<unsigned>(*d) + sum);
        }
    });
}

// Lane l, t < 2: meta is of the four groups of depth 16 t on, of row g and above them of row g + 8.
void do_mma_sp_k32(unsigned lanes, void *const arg[32])
{
    need_all(lanes, "mma.sp.m16n8k32");
    float kept[16][16], b[8][32];
    unsigned place[16][16]; // of what is kept: what b has elsewhere is multiplied by none
    each<mma>(lanes, arg, [&](unsigned l, mma &m) {
        unsigned g = l / 4, t = l % 4 * 2;
        for (unsigned i = 0; i < 2; i++)
            for (unsigned r = 0; r < 4; r++) {
                kept[g + r % 2 * 8][t + r / 2 * 8 + i] = half_of(m.a[r], i, m.type);
                b[g][t + r * 8 + i] = half_of(m.b[r], i, m.type);
            }
    });
    each<mma>(lanes, arg, [&](unsigned l, mma &m) {
        if (l % 4 > 1) return;
        for (unsigned i = 0; i < 16; i++) {
            unsigned row = l / 4 + i / 8 * 8, half = l % 4;
            place[row][half * 8 + i % 8] =
                half * 16 + i % 8 / 2 * 4 + place_of(m.meta, i / 2, i % 2);
        }
    });
    each<mma>(lanes, arg, [&](unsigned l, mma &m) {
        for (unsigned i = 0; i < 4; i++) {
            const unsigned row = l / 4 + i / 2 * 8;
            const float *column = b[l % 4 * 2 + i % 2];
            float *d = static_cast<float *>(m.d) + i, sum = *d;
            for (int k = 0; k < 16; k++) sum += kept[row][k] * column[place[row][k]];
            *d = sum;
        }
    });
}

struct ldmatrix {
    unsigned *r;
    const void *row;
    unsigned matrices;
    bool transposed;
};

// Register m of lane l: row l / 4, columns 2 (l % 4).. of matrix m; transposed: column l / 4, rows.
void do_ldmatrix(unsigned lanes, void *const arg[32])
{
    need_all(lanes, "ldmatrix");
    unsigned matrices = static_cast<ldmatrix *>(arg[0])->matrices;
    for (unsigned m = 0; m < matrices; m++) {
        uint16_t tile[8][8];
        for (unsigned i = 0; i < 8; i++)
            memcpy(tile[i], static_cast<ldmatrix *>(arg[m * 8 + i])->row, sizeof tile[i]);
        each<ldmatrix>(lanes, arg, [&](unsigned l, ldmatrix &x) {
            unsigned a = l / 4, b = l % 4 * 2;
            uint16_t low = x.transposed ? tile[b][a] : tile[a][b];
            uint16_t high = x.transposed ? tile[b + 1][a] : tile[a][b + 1];
            x.r[m] = static_cast<unsigned>(high) << 16 | low;
        });
    }
}

} // namespace

void simt::need_ascending(unsigned meta, const char *what, const char *file, int line)
{
    for (unsigned group = 0; group < 8; group++)
        if (place_of(meta, group, 0) >= place_of(meta, group, 1))
            simt_fault("%s at %s:%d: metadata 0x%08x: places %u and %u of group %u do not ascend",
                       what, file, line, meta, place_of(meta, group, 0), place_of(meta, group, 1),
                       group);
}

void simt_shuffle(unsigned mask, void *value, size_t bytes, unsigned source, const char *file,
                  int line)
{
    shuffle s = {value, bytes, source};
    simt_collective(mask, &s, do_shuffle, "shuffle", file, line);
}

unsigned simt_ballot(unsigned mask, int predicate, const char *file, int line)
{
    vote v = {predicate ? 1u : 0u, 0, SIMT_SUM};
    simt_collective(mask, &v, do_ballot, "vote", file, line);
    return v.result;
}

unsigned simt_match(unsigned mask, uint64_t value, const char *file, int line)
{
    vote v = {value, 0, SIMT_SUM};
    simt_collective(mask, &v, do_match, "match", file, line);
    return v.result;
}

unsigned simt_reduce(unsigned mask, unsigned value, simt_reduction how, const char *file, int line)
{
    vote v = {value, 0, how};
    simt_collective(mask, &v, do_reduce, "reduce", file, line);
    return v.result;
}

void simt_sync_warp(unsigned mask, const char *file, int line)
{
    simt_collective(mask, nullptr, do_sync, "__syncwarp", file, line);
}

void simt_set_registers(int count, const char *file, int line)
{
    if (count < 24 || count > 256 || count % 8)
        simt_fault("setmaxnreg at %s:%d: %d is not a multiple of 8 from 24 to 256", file, line,
                   count);
    simt_collective(0xffffffffu, nullptr, do_registers, "setmaxnreg", file, line);
}

void simt_mma_k32(int d[4], const unsigned a[4], const unsigned b[2], simt_operand type,
                  const char *file, int line)
{
    mma m = {d, a, b, type, 0};
    simt_collective(0xffffffffu, &m, do_mma_k32, type == SIMT_U8S8 ? "mma u8 s8" : "mma s8 s8",
                    file, line);
}

void simt_mma_k16(float d[4], const unsigned a[4], const unsigned b[2], simt_operand type,
                  const char *file, int line)
{
    mma m = {d, a, b, type, 0};
    simt_collective(0xffffffffu, &m, do_mma_k16, type == SIMT_F16 ? "mma f16" : "mma bf16", file,
                    line);
}

void simt_mma_f8(float d[4], const unsigned a[4], const unsigned b[2], simt_operand type,
                 const char *file, int line)
{
    mma m = {d, a, b, type, 0};
    simt_collective(0xffffffffu, &m, do_mma_f8, type == SIMT_E4M3 ? "mma e4m3" : "mma e5m2", file,
                    line);
}

void simt_mma_k8(float d[4], const unsigned a[4], const unsigned b[2], simt_operand type,
                 const char *file, int line)
{
    mma m = {d, a, b, type, 0};
    if ((a[0] | a[1] | a[2] | a[3] | b[0] | b[1]) & 0x1fffu)
        simt_fault("mma tf32 at %s:%d: a factor has bits that TF32 has not", file, line);
    simt_collective(0xffffffffu, &m, do_mma_k8, "mma tf32", file, line);
}

void simt_mma_sp_k64(int d[4], const unsigned a[4], const unsigned b[4], unsigned meta,
                     simt_operand type, const char *file, int line)
{
    mma m = {d, a, b, type, meta};
    need_ascending(meta, "mma.sp", file, line);
    simt_collective(0xffffffffu, &m, do_mma_sp_k64,
                    type == SIMT_S8U8 ? "sparse mma s8 u8" : "sparse mma s8 s8", file, line);
}

void simt_mma_sp_k32(float d[4], const unsigned a[4], const unsigned b[4], unsigned meta,
                     simt_operand type, const char *file, int line)
{
    mma m = {d, a, b, type, meta};
    if (simt_here.lane % 4 < 2) need_ascending(meta, "mma.sp", file, line);
    simt_collective(0xffffffffu, &m, do_mma_sp_k32,
                    type == SIMT_F16 ? "sparse mma f16" : "sparse mma bf16", file, line);
}

void simt_ldmatrix(unsigned *r, const void *row, int matrices, bool transposed, const char *file,
                   int line)
{
    ldmatrix x = {r, row, static_cast<unsigned>(matrices), transposed};
    if (simt_here.lane < 8 * x.matrices) {
        const unsigned char *at = static_cast<const unsigned char *>(row);
        if (reinterpret_cast<uintptr_t>(row) % 16)
            simt_fault("ldmatrix at %s:%d: the row is not 16-byte aligned", file, line);
        if (at < shared_base() || at + 16 > shared_base() + SHARED_ALL)
            simt_fault("ldmatrix at %s:%d: the row is not in shared memory", file, line);
        if (check) check->access(row, 16, false, false, __builtin_return_address(0));
    }
    simt_collective(0xffffffffu, &x, do_ldmatrix, transposed ? "ldmatrix.trans" : "ldmatrix", file,
                    line);
}
