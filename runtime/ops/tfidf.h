/* SPDX-License-Identifier: Apache-2.0 */
/* What shape rule and kernel of TfIdfVectorizer (9) read of the node. */
#ifndef PARE_RUNTIME_OPS_TFIDF_H
#define PARE_RUNTIME_OPS_TFIDF_H

#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pare_tfidf_mode { PARE_TF, PARE_IDF, PARE_TFIDF } pare_tfidf_mode;

/* N-grams of length n are pool[start[n - 1] .. start[n]), n numbers each, in order of column[]. */
typedef struct pare_tfidf {
    pare_tfidf_mode mode;
    int64_t shortest, longest, skips; /* n-grams to count; most tokens left out in between */
    const int64_t *pool, *start, *column;
    const float *weight; /* of the n-grams; NULL: 1 */
    int pool_count, lengths, ngrams;
    int64_t columns; /* of the output: the largest column and 1 */
} pare_tfidf;

/* Fails where attributes are missing or contradict each other. */
PARE_NODISCARD pare_status pare_tfidf_of(const pare_node *node, pare_tfidf *out);

/* Where the n-grams of length n end in the pool. */
int64_t pare_tfidf_end(const pare_tfidf *t, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
