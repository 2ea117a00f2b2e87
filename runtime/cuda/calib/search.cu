// SPDX-License-Identifier: Apache-2.0
// Searches of ranges: a block a tensor, rule and method; its threads try candidates side by side
// with the host's own arithmetic (range.h), and the best is the one that the host's loop would end
// with: ties are settled by the candidates' order. Prefix sums are added one after the other, as
// the host does, three at a time, for a sum of doubles is its order. Bytes moved: the counts, the
// sums twice; a candidate reads three sums at each end of a level, from cache.
#include "runtime/cuda/calib/calib.h"
#include "runtime/cuda/device/simt.h"

enum { THREADS = 256, RULES = 2, BINS = PARE_HISTOGRAM_BINS };

SIMT_INLINE float extreme(int ordered)
{
    return __int_as_float(ordered ^ ((ordered >> 31) & 0x7fffffff)) + 0.0f; // -0 is 0
}

SIMT_INLINE bool is_wanted(const pare_search &s, int what, int rule)
{
    return (s.wanted >> what & 1) && (s.rules >> rule & 1);
}

SIMT_INLINE pare_search_result *found_of(const pare_search &s, int tensor, int rule, int what)
{
    return s.result + ((int64_t)tensor * RULES + rule) * PARE_SEARCH_COUNT + what;
}

SIMT_INLINE pare_cuda_work *work_of(const pare_search &s, int tensor)
{
    return static_cast<pare_cuda_work *>(s.work) + tensor;
}

// The range of all values.
SIMT_INLINE pare_search_result whole_of(const pare_histogram_dev &t, bool symmetric)
{
    float min = extreme(t.low), max = extreme(t.high), largest = -min > max ? -min : max;
    pare_search_result f;
    f.low = symmetric ? -largest : min < 0 ? min : 0;
    f.high = symmetric ? largest : max > 0 ? max : 0;
    f.candidate = PARE_CANDIDATE_WHOLE;
    return f;
}

// --- what a block does together ---

// a, b and c (n + 1): prefix sums of the terms that terms(i, out) puts into out[0..2].
template <class F> SIMT_INLINE void sum_up(int n, double *a, double *b, double *c, F terms)
{
    SIMT_SHARED(double, tile, [THREADS][3]);
    const int me = (int)threadIdx.x, mine = me % 32 == 0 ? me / 32 : 3; // one thread in three warps
    double total = 0;
    for (int first = 0; first < n; first += THREADS) {
        const int i = first + me, here = n - first < THREADS ? n - first : THREADS;
        if (i < n) terms(i, tile[me]);
        __syncthreads();
        for (int k = 0; mine < 3 && k < here; k++) tile[k][mine] = total += tile[k][mine];
        __syncthreads();
        if (i < n) a[i + 1] = tile[me][0];
        if (i < n) b[i + 1] = tile[me][1];
        if (i < n) c[i + 1] = tile[me][2];
    }
    if (me == 0) a[0] = b[0] = c[0] = 0;
    __syncthreads();
}

// A candidate: the smaller value is better, of equals the smaller rank.
typedef struct candidate {
    double value;
    int64_t rank;
} candidate;

SIMT_INLINE bool is_better(const candidate &a, const candidate &b)
{
    return a.value < b.value || (a.value == b.value && a.rank < b.rank);
}

// The best of all threads' candidates, for all threads.
SIMT_INLINE candidate best_of(candidate mine)
{
    SIMT_SHARED(candidate, all, [THREADS]);
    const int me = (int)threadIdx.x;
    __syncthreads(); // the last one's result is read by all
    all[me] = mine;
    __syncthreads();
    for (int n = THREADS / 2; n; n /= 2) {
        if (me < n && is_better(all[me + n], all[me])) all[me] = all[me + n];
        __syncthreads();
    }
    return all[0];
}

// --- percentile ---

// Upper edge of the bin, from the far end of the given signs' bins, at which more than `cut` values
// are passed; 0 where it is none.
SIMT_INLINE float end_of(const pare_histogram_dev_bins *t, bool positive, bool negative, double cut)
{
    enum { SHARE = BINS / THREADS };
    SIMT_SHARED(unsigned long long, part, [THREADS]);
    const int me = (int)threadIdx.x;
    negative = negative && t->histogram.negative;
    unsigned long long sum = 0;
    for (int i = BINS - SHARE * (me + 1); i < BINS - SHARE * me; i++)
        sum += (positive ? t->slot[0][1 + i] : 0) + (negative ? t->slot[1][1 + i] : 0);
    __syncthreads();
    part[me] = sum;
    __syncthreads();
    unsigned long long passed = 0;
    int share = 0;
    while (share < THREADS && (double)(passed + part[share]) <= cut) passed += part[share++];
    for (int i = BINS - SHARE * share - 1; i >= 0; i--) {
        passed += (positive ? t->slot[0][1 + i] : 0) + (negative ? t->slot[1][1 + i] : 0);
        if ((double)passed > cut) return pare_bin_edge(t->histogram.first, i + 1);
    }
    passed += (positive ? t->slot[0][0] : 0) + (negative ? t->slot[1][0] : 0);
    return (double)passed > cut ? pare_bin_edge(t->histogram.first, 0) : 0;
}

static __global__ void __launch_bounds__(THREADS) find_percentile(pare_search s)
{
    const int tensor = (int)blockIdx.x, which = (int)blockIdx.y, rule = (int)blockIdx.z;
    if (!is_wanted(s, PARE_SEARCH_PERCENT + which, rule)) return; // the whole block
    const pare_histogram_dev_bins *t = s.histogram + tensor;
    const bool symmetric = rule == 1;
    const double n = (double)(t->histogram.count - t->histogram.nan - t->histogram.inf);
    const double cut = pare_percentile_cut(n, s.percent[which], symmetric);
    pare_search_result f = whole_of(t->histogram, symmetric);
    if (symmetric) {
        float end = end_of(t, true, true, cut);
        if (end < f.high) f.high = end;
        f.low = -f.high;
    } else {
        float up = end_of(t, true, false, cut), down = -end_of(t, false, true, cut);
        if (up < f.high) f.high = up;
        if (down > f.low) f.low = down + 0.0f; // -0 becomes 0
    }
    if (threadIdx.x == 0) *found_of(s, tensor, rule, PARE_SEARCH_PERCENT + which) = f;
}

// --- entropy ---

// Counts of the grid's bins, and how many there are up to the last one in use.
SIMT_INLINE int make_grid(const pare_histogram_dev_bins *t, bool positive, bool negative,
                          unsigned long long *grid)
{
    SIMT_SHARED(int, used, [1]);
    const int me = (int)threadIdx.x;
    for (int i = me; i < PARE_GRID_BINS; i += THREADS) grid[i] = 0;
    if (me == 0) used[0] = 0;
    __syncthreads();
    for (int sign = 0; sign < 2; sign++)
        for (int i = me; i <= BINS && (sign ? negative && t->histogram.negative : positive);
             i += THREADS) {
            unsigned long long n = t->slot[sign][i];
            int at = i ? pare_grid_place(t->histogram.first, t->histogram.top, i - 1) : 0;
            if (n == 0) continue;
            atomicAdd(&grid[at], n);
            atomicMax(&used[0], at + 1);
        }
    __syncthreads();
    int n = used[0];
    __syncthreads(); // read before the next grid's is cleared
    return n;
}

// The best end of a range that begins at bin 0; ties take the larger range.
SIMT_INLINE int search_one_end(const pare_entropy_sums &s, int levels)
{
    candidate best;
    best.value = INFINITY;
    best.rank = -s.n;
    for (int last = levels + (int)threadIdx.x; last <= s.n; last += THREADS) {
        candidate c;
        c.value = pare_entropy_of(&s, 0, last, levels);
        c.rank = -last;
        if (is_better(c, best)) best = c;
    }
    return -(int)best_of(best).rank;
}

typedef struct ends {
    int first, last;
    double best;
} ends;

// The best place of one end, the other fixed, as calib/range_entropy.c looks for it.
SIMT_INLINE void search_end(const pare_entropy_sums &s, int zero, bool upper, ends *e)
{
    const int room = upper ? s.n - zero : zero;
    int from = 0, to = room, found = upper ? e->last - zero : zero - e->first;
    for (int stride = PARE_ENTROPY_STRIDE; stride >= 1; stride /= PARE_ENTROPY_STRIDE) {
        candidate best;
        best.value = e->best;
        best.rank = -found;
        for (int i = from + stride * (int)threadIdx.x; i <= to; i += stride * THREADS) {
            int a = upper ? e->first : zero - i, b = upper ? zero + i : e->last;
            candidate c;
            c.rank = -i;
            if (b - a < PARE_ENTROPY_LEVELS) continue;
            c.value = pare_entropy_of(&s, a, b, PARE_ENTROPY_LEVELS);
            if (is_better(c, best)) best = c;
        }
        best = best_of(best);
        e->best = best.value;
        found = -(int)best.rank;
        from = found > PARE_ENTROPY_STRIDE ? found - PARE_ENTROPY_STRIDE : 0;
        to = found + PARE_ENTROPY_STRIDE < room ? found + PARE_ENTROPY_STRIDE : room;
    }
    if (upper)
        e->last = zero + found;
    else
        e->first = zero - found;
}

SIMT_INLINE void search_both_ends(const pare_entropy_sums &s, int zero, ends *e)
{
    e->first = 0;
    e->last = s.n;
    e->best = pare_entropy_of(&s, 0, s.n, PARE_ENTROPY_LEVELS); // each thread for itself
    for (int round = 0; round < PARE_ENTROPY_ROUNDS; round++) {
        int first = e->first, last = e->last;
        search_end(s, zero, true, e);
        search_end(s, zero, false, e);
        if (first == e->first && last == e->last) break;
    }
}

// Sums of the grid's bins: of one grid, or the second one turned round before the first.
SIMT_INLINE pare_entropy_sums sum_grid(pare_cuda_search_grid *g, int up, int down)
{
    pare_entropy_sums s;
    s.bin = g->bin;
    s.count = g->count;
    s.used = g->used;
    s.log = g->log;
    s.n = down + up;
    sum_up(s.n, g->count, g->used, g->log, [&](int i, double *term) {
        double c = (double)(i < down ? g->grid[1][down - 1 - i] : g->grid[0][i - down]);
        g->bin[i] = c;
        term[0] = c;
        term[1] = c > 0;
        term[2] = pare_c_log_c(c);
    });
    return s;
}

static __global__ void __launch_bounds__(THREADS, 1) find_entropy(pare_search s)
{
    const int tensor = (int)blockIdx.x, rule = (int)blockIdx.y;
    if (!is_wanted(s, PARE_SEARCH_ENTROPY, rule)) return;
    const pare_histogram_dev_bins *t = s.histogram + tensor;
    const double width = pare_grid_width(t->histogram.top);
    pare_cuda_search_grid *g = &work_of(s, tensor)->grid[rule];
    pare_search_result f = whole_of(t->histogram, rule == 1);
    const bool both = rule == 0 && f.low < 0 && f.high > 0;
    int up = make_grid(t, true, !both, g->grid[0]);
    int down = both ? make_grid(t, false, true, g->grid[1]) : 0;
    pare_entropy_sums sums = sum_grid(g, up, down);
    if (both && sums.n >= PARE_ENTROPY_LEVELS) {
        ends e;
        search_both_ends(sums, down, &e);
        float high = (float)((e.last - down) * width), low = (float)((e.first - down) * width);
        if (high < f.high) f.high = high;
        if (low > f.low) f.low = low;
    } else if (!both) {
        int levels = rule == 1 ? PARE_ENTROPY_SYMMETRIC : PARE_ENTROPY_LEVELS;
        float end = (float)(search_one_end(sums, levels) * width);
        float largest = f.high > -f.low ? f.high : -f.low;
        if (largest < end) end = largest;
        if (f.high > 0) f.high = end;
        if (f.low < 0) f.low = -end;
    }
    if (threadIdx.x == 0) *found_of(s, tensor, rule, PARE_SEARCH_ENTROPY) = f;
}

// --- squared error ---

SIMT_INLINE pare_error_sums errors_of(const pare_search &s, int tensor)
{
    const pare_histogram_dev &t = s.histogram[tensor].histogram;
    pare_cuda_work *w = work_of(s, tensor);
    pare_error_sums e;
    e.count = w->count;
    e.sum = w->sum;
    e.square = w->square;
    e.zero = t.negative ? BINS : 0;
    e.bins = e.zero + 1 + BINS;
    e.first = t.first;
    e.min = extreme(t.low);
    e.max = extreme(t.high);
    return e;
}

static __global__ void __launch_bounds__(THREADS) sum_errors(pare_search s)
{
    const pare_histogram_dev_bins *t = s.histogram + blockIdx.x;
    const pare_error_sums e = errors_of(s, (int)blockIdx.x);
    sum_up(e.bins, e.count, e.sum, e.square, [&](int i, double *term) {
        int sign = i < e.zero, bin = sign ? e.zero - 1 - i : i - e.zero - 1;
        unsigned long long n = bin < 0 ? t->histogram.zero + t->slot[0][0] : t->slot[sign][1 + bin];
        if (bin < 0 && t->histogram.negative) n += t->slot[1][0];
        double v = bin < 0 || n == 0 ? 0 : pare_bin_middle(e.first, e.min, e.max, sign, bin);
        term[0] = (double)n;
        term[1] = (double)n * v;
        term[2] = (double)n * v * v;
    });
}

typedef struct pair {
    int low, high; // candidates
} pair;

SIMT_INLINE double pair_cost(const pare_search &s, const pare_error_sums &e,
                             const pare_search_result &whole, pair p, bool symmetric, double weight)
{
    float low = pare_range_end(s.decay, whole.low, p.low);
    float high = pare_range_end(s.decay, whole.high, p.high);
    return pare_range_cost(&e, low, high, symmetric, weight);
}

// Both ends by the same candidate; the first of equals.
SIMT_INLINE pair search_equal(const pare_search &s, const pare_error_sums &e,
                              const pare_search_result &whole, bool symmetric, double weight)
{
    candidate best;
    best.value = INFINITY;
    best.rank = 0;
    for (int i = (int)threadIdx.x; i < PARE_RANGE_ENDS; i += THREADS) {
        pair p = {i, i};
        candidate c;
        c.value = pair_cost(s, e, whole, p, symmetric, weight);
        c.rank = i;
        if (is_better(c, best)) best = c;
    }
    int i = (int)best_of(best).rank;
    pair p = {i, i};
    return p;
}

// Every pair of ends on a coarse scale, then the finer neighbours of the best.
SIMT_INLINE pair search_pairs(const pare_search &s, const pare_error_sums &e,
                              const pare_search_result &whole, double weight)
{
    int step = PARE_RANGE_FINE / PARE_RANGE_COARSE;
    const int coarse = PARE_RANGE_ENDS / step;
    candidate best;
    best.value = INFINITY;
    best.rank = 0;
    for (int i = (int)threadIdx.x; i < coarse * coarse; i += THREADS) {
        pair p = {i / coarse * step, i % coarse * step};
        candidate c;
        c.value = pair_cost(s, e, whole, p, false, weight);
        c.rank = i;
        if (is_better(c, best)) best = c;
    }
    best = best_of(best);
    pair at = {(int)best.rank / coarse * step, (int)best.rank % coarse * step};
    for (; step >= 1; step /= 2)
        for (int round = 0; round < PARE_RANGE_ROUNDS; round++) {
            const int me = (int)threadIdx.x;
            pair p = {at.low + (me / 3 - 1) * step, at.high + (me % 3 - 1) * step};
            candidate c;
            c.value = INFINITY;
            c.rank = me;
            if (me < 9 && p.low >= 0 && p.high >= 0)
                c.value = pair_cost(s, e, whole, p, false, weight);
            c = best_of(c);
            if (!(c.value < best.value)) break;
            best.value = c.value;
            at.low += ((int)c.rank / 3 - 1) * step;
            at.high += ((int)c.rank % 3 - 1) * step;
        }
    return at;
}

static __global__ void __launch_bounds__(THREADS, 1) find_least_error(pare_search s)
{
    const int tensor = (int)blockIdx.x, rule = (int)blockIdx.y;
    const int what = PARE_SEARCH_ERROR + (int)blockIdx.z;
    if (!is_wanted(s, what, rule)) return;
    const pare_error_sums e = errors_of(s, tensor);
    const double weight = what == PARE_SEARCH_WEIGHED ? s.clip_weight : 1;
    const bool symmetric = rule == 1;
    pare_search_result f = whole_of(s.histogram[tensor].histogram, symmetric);
    pair at = !symmetric && f.low < 0 && f.high > 0 ? search_pairs(s, e, f, weight)
                                                    : search_equal(s, e, f, symmetric, weight);
    f.low = pare_range_end(s.decay, f.low, at.low);
    f.high = pare_range_end(s.decay, f.high, at.high);
    if (threadIdx.x == 0) *found_of(s, tensor, rule, what) = f;
}

// --- of all methods' ranges the one of least error ---

static __global__ void __launch_bounds__(THREADS) find_best(pare_search s)
{
    const int tensor = (int)blockIdx.x, rule = (int)blockIdx.y, me = (int)threadIdx.x;
    const int slots[PARE_CANDIDATE] = {-1, PARE_SEARCH_PERCENT, PARE_SEARCH_PERCENT + 1,
                                       PARE_SEARCH_ENTROPY, PARE_SEARCH_WEIGHED};
    if (!is_wanted(s, PARE_SEARCH_AUTO, rule)) return;
    const pare_error_sums e = errors_of(s, tensor);
    const pare_search_result whole = whole_of(s.histogram[tensor].histogram, rule == 1);
    candidate c;
    c.value = INFINITY;
    c.rank = me;
    if (me < PARE_CANDIDATE) {
        pare_search_result f = me ? *found_of(s, tensor, rule, slots[me]) : whole;
        c.value = pare_range_cost(&e, f.low, f.high, rule == 1, s.clip_weight);
    }
    c = best_of(c);
    if (me) return;
    pare_search_result f = c.rank ? *found_of(s, tensor, rule, slots[c.rank]) : whole;
    f.candidate = (int)c.rank;
    *found_of(s, tensor, rule, PARE_SEARCH_AUTO) = f;
}

// Each launch trusts what the one before it wrote: after a failure none follows.
static cudaError_t search_errors(const pare_search *s, cudaStream_t stream)
{
    const unsigned tensors = (unsigned)s->tensors;
    SIMT_LAUNCH(sum_errors, dim3(tensors), dim3(THREADS), 0, stream, *s);
    cudaError_t error = cudaGetLastError();
    if (error) return error;
    SIMT_LAUNCH(find_least_error, dim3(tensors, RULES, 2), dim3(THREADS), 0, stream, *s);
    error = cudaGetLastError();
    if (error || !(s->wanted >> PARE_SEARCH_AUTO & 1)) return error;
    SIMT_LAUNCH(find_best, dim3(tensors, RULES), dim3(THREADS), 0, stream, *s);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_search(const pare_search *s, cudaStream_t stream)
{
    const unsigned tensors = (unsigned)s->tensors;
    const unsigned of_percents = ((1u << PARE_SEARCH_PERCENTS) - 1) << PARE_SEARCH_PERCENT;
    const unsigned of_errors =
        1u << PARE_SEARCH_ERROR | 1u << PARE_SEARCH_WEIGHED | 1u << PARE_SEARCH_AUTO;
    if (s->wanted & of_percents)
        SIMT_LAUNCH(find_percentile, dim3(tensors, PARE_SEARCH_PERCENTS, RULES), dim3(THREADS), 0,
                    stream, *s);
    if (s->wanted >> PARE_SEARCH_ENTROPY & 1)
        SIMT_LAUNCH(find_entropy, dim3(tensors, RULES), dim3(THREADS), 0, stream, *s);
    cudaError_t error = cudaGetLastError();
    return error || !(s->wanted & of_errors) ? error : search_errors(s, stream);
}
