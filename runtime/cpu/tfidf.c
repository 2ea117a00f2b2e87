/* SPDX-License-Identifier: Apache-2.0 */
/* TfIdfVectorizer (9) of integers. A row's n-grams of every length and distance between tokens are
   looked up in the pool, whose n-grams of one length are sorted, and counted. To its column an
   n-gram gives its count (TF), its weight where it was found (IDF), or their product (TFIDF). */
#include "runtime/cpu/ref.h"
#include "runtime/ops/tfidf.h"

#include <inttypes.h>
#include <string.h>

typedef struct tfidf {
    pare_tfidf t;
    int64_t *order; /* n-grams (their number over all lengths), those of each length sorted */
} tfidf;

static int compare(const int64_t *a, const int64_t *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
}

/* Tokens of number k among the n-grams of length n. */
static const int64_t *tokens(const pare_tfidf *t, int64_t n, int64_t k)
{
    return t->pool + t->start[n - 1] + k * n;
}

/* Bottom-up merge sort of `count` n-grams of length n. */
static void sort(const pare_tfidf *t, int64_t n, int64_t *list, int64_t *spare, int64_t count)
{
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t from = 0; from < count; from += 2 * width) {
            const int64_t mid = from + width < count ? from + width : count;
            const int64_t end = from + 2 * width < count ? from + 2 * width : count;
            int64_t i = from, j = mid;
            for (int64_t k = from; k < end; k++) {
                const bool left = i < mid && (j >= end || compare(tokens(t, n, list[i]),
                                                                  tokens(t, n, list[j]), n) <= 0);
                spare[k] = left ? list[i++] : list[j++];
            }
        }
        memcpy(list, spare, (size_t)count * sizeof *list);
    }
}

static pare_status tfidf_prepare(pare_prep *p)
{
    tfidf *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    PARE_TRY(pare_tfidf_of(p->node, &s->t));
    const size_t room = (size_t)s->t.ngrams + 1;
    int64_t *spare = pare_arena_alloc(p->arena, room, sizeof *spare);
    int64_t *list = s->order = pare_arena_alloc(p->arena, room, sizeof *list);
    if (!spare || !list) return PARE_MEMORY;
    for (int64_t n = 1; n <= s->t.lengths; n++) {
        const int64_t count = (pare_tfidf_end(&s->t, n) - s->t.start[n - 1]) / n;
        for (int64_t k = 0; k < count; k++) list[k] = k;
        sort(&s->t, n, list, spare, count);
        for (int64_t k = 1; k < count; k++)
            if (!compare(tokens(&s->t, n, list[k - 1]), tokens(&s->t, n, list[k]), n))
                return PARE_FAIL_NODE(p->node, INPUT,
                                      "its pool has the same %" PRId64 "-gram twice", n);
        list += count;
    }
    p->scratch = (room + (size_t)s->t.longest) * sizeof(int64_t);
    p->state = s;
    return PARE_OK;
}

/* The number of an n-gram, -1 where the pool does not have it; first: n-grams of shorter ones. */
static int64_t ngram_of(const tfidf *s, int64_t n, int64_t first, const int64_t *gram)
{
    const pare_tfidf *t = &s->t;
    int64_t low = 0, high = (pare_tfidf_end(t, n) - t->start[n - 1]) / n;
    while (low < high) {
        const int64_t mid = low + (high - low) / 2, k = s->order[first + mid];
        const int order = compare(gram, tokens(t, n, k), n);
        if (!order) return first + k;
        if (order < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return -1;
}

/* Counts the n-grams of length n of a row of `count` tokens at `at`, `distance` apart. */
static void count_ngrams(const pare_call *c, int64_t n, int64_t first, int64_t distance, int64_t at,
                         int64_t count)
{
    const tfidf *s = c->state;
    const pare_view *x = &c->in[0];
    const int64_t step = x->stride[x->rank - 1], starts = count - (n - 1) * distance;
    int64_t *counts = c->scratch, *gram = counts + s->t.ngrams;
    for (int64_t i = 0; i < starts; i++) {
        for (int64_t k = 0; k < n; k++)
            gram[k] = pare_ref_get_int(x, at + (i + k * distance) * step);
        const int64_t found = ngram_of(s, n, first, gram);
        if (found >= 0) counts[found]++;
    }
}

/* Columns of a row from the counts of its n-grams. */
static void weigh(const pare_tfidf *t, const int64_t *counts, float *row)
{
    for (int64_t i = 0; i < t->ngrams; i++) {
        const float weight = t->mode != PARE_TF && t->weight ? t->weight[i] : 1;
        const int64_t n = t->mode == PARE_IDF ? counts[i] > 0 : counts[i];
        row[t->column[i]] += (float)n * weight;
    }
}

static pare_status tfidf_run(const pare_call *c)
{
    const pare_tfidf *t = &((const tfidf *)c->state)->t;
    const pare_view *x = &c->in[0];
    const int64_t count = x->dim[x->rank - 1], rows = x->rank == 2 ? x->dim[0] : 1;
    float *y = c->out[0].data;
    if (pare_view_count(&c->out[0])) memset(y, 0, pare_view_bytes(&c->out[0]));
    for (int64_t r = 0; r < rows; r++) {
        int64_t first = 0;
        memset(c->scratch, 0, (size_t)t->ngrams * sizeof(int64_t));
        for (int64_t n = 1; n <= t->longest; n++) {
            const int64_t last = n == 1 ? 1 : t->skips < count ? t->skips + 1 : count;
            for (int64_t distance = 1; n >= t->shortest && distance <= last; distance++)
                count_ngrams(c, n, first, distance, x->rank == 2 ? r * x->stride[0] : 0, count);
            first += (pare_tfidf_end(t, n) - t->start[n - 1]) / n;
        }
        weigh(t, c->scratch, y + r * t->columns);
    }
    return PARE_OK;
}

static const pare_kernel ref_tfidf = {
    .name = "ref_tfidf", .prepare = tfidf_prepare, .run = tfidf_run, .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_tfidf[] = {&ref_tfidf, NULL};
