/* SPDX-License-Identifier: Apache-2.0 */
/* TfIdfVectorizer (9) of integers: attributes and shapes. */
#include "runtime/ops/tfidf.h"
#include "runtime/ops/infer.h"

#include <inttypes.h>
#include <string.h>

int64_t pare_tfidf_end(const pare_tfidf *t, int64_t n)
{
    return n < t->lengths ? t->start[n] : t->pool_count;
}

static pare_status mode_of(const pare_node *node, pare_tfidf_mode *out)
{
    static const char *const name[] = {"TF", "IDF", "TFIDF"};
    const char *mode = pare_node_string(node, "mode", "");
    for (int i = 0; i < 3; i++)
        if (!strcmp(mode, name[i])) {
            *out = (pare_tfidf_mode)i;
            return PARE_OK;
        }
    return PARE_FAIL_NODE(node, INPUT, "mode is '%s', expected TF, IDF or TFIDF", mode);
}

/* The pool is cut into n-grams by ngram_counts. */
static pare_status check_pool(const pare_node *node, const pare_tfidf *t)
{
    int64_t ngrams = 0;
    for (int64_t n = 1; n <= t->lengths; n++) {
        const int64_t from = t->start[n - 1], to = pare_tfidf_end(t, n);
        if (from < 0 || to > t->pool_count || from > to || (to - from) % n)
            return PARE_FAIL_NODE(node, INPUT,
                                  "ngram_counts gives %" PRId64 " to %" PRId64 " of a pool of %d "
                                  "numbers to %" PRId64 "-grams",
                                  from, to, t->pool_count, n);
        ngrams += (to - from) / n;
    }
    if (t->lengths < 1 || t->start[0] != 0 || ngrams != t->ngrams)
        return PARE_FAIL_NODE(node, INPUT,
                              "ngram_counts makes %" PRId64 " n-grams of the pool, ngram_indexes "
                              "has %d",
                              ngrams, t->ngrams);
    return PARE_OK;
}

pare_status pare_tfidf_of(const pare_node *node, pare_tfidf *t)
{
    const pare_attr *weights = pare_node_attr(node, "weights");
    memset(t, 0, sizeof *t);
    PARE_TRY(mode_of(node, &t->mode));
    t->shortest = pare_node_int(node, "min_gram_length", 0);
    t->longest = pare_node_int(node, "max_gram_length", 0);
    t->skips = pare_node_int(node, "max_skip_count", 0);
    t->pool = pare_node_ints(node, "pool_int64s", &t->pool_count);
    t->start = pare_node_ints(node, "ngram_counts", &t->lengths);
    t->column = pare_node_ints(node, "ngram_indexes", &t->ngrams);
    if (pare_node_attr(node, "pool_strings"))
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "n-grams of strings (pool_strings) are not "
                              "supported, those of integers are");
    if (t->shortest < 1 || t->longest < t->shortest || t->longest > t->lengths || t->skips < 0)
        return PARE_FAIL_NODE(node, INPUT,
                              "n-grams of %" PRId64 " to %" PRId64 " tokens with %" PRId64
                              " skipped at most, ngram_counts has %d lengths",
                              t->shortest, t->longest, t->skips, t->lengths);
    PARE_TRY(check_pool(node, t));
    for (int i = 0; i < t->ngrams; i++) {
        if (t->column[i] < 0 || t->column[i] >= INT32_MAX)
            return PARE_FAIL_NODE(node, INPUT, "ngram_indexes has %" PRId64 ", which is no column",
                                  t->column[i]);
        if (t->column[i] >= t->columns) t->columns = t->column[i] + 1;
    }
    if (!weights) return PARE_OK;
    if (weights->kind != PARE_ATTR_FLOATS || weights->count != t->ngrams)
        return PARE_FAIL_NODE(node, INPUT, "weights has %d numbers for %d n-grams", weights->count,
                              t->ngrams);
    t->weight = weights->floats;
    return PARE_OK;
}

/* [C] -> [columns], [N, C] -> [N, columns]. */
pare_status pare_infer_tfidf(pare_node *node)
{
    pare_value *x;
    pare_tfidf t;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_tfidf_of(node, &t));
    if (x->dtype && x->dtype != PARE_s32 && x->dtype != PARE_s64)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "'%s' has type %s, expected s32 or s64", x->name,
                              pare_type(x->dtype)->name);
    if (x->shape.rank >= 0 && x->shape.rank != 1 && x->shape.rank != 2)
        return PARE_FAIL_NODE(node, INPUT, "'%s' has rank %d, expected 1 or 2", x->name,
                              x->shape.rank);
    pare_shape s = x->shape;
    if (s.rank > 0) {
        s.dim[s.rank - 1] = t.columns;
        s.name[s.rank - 1] = NULL;
    }
    pare_infer_out(node, 0, PARE_f32, &s);
    return PARE_OK;
}
