/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of 2:4 for tests. */
#ifndef PARE_TESTS_CUDA_SPARSE_CASE_H
#define PARE_TESTS_CUDA_SPARSE_CASE_H

#include "tests/cpu/kernel_case.h"

#include <string.h>

/* Of each four numbers `step` apart from `at` on two at random become 0, of one in eight fours all.
 */
static inline void numbers_drop(kernel_case *k, char *w, int bytes, int64_t at, int64_t step,
                                int64_t count)
{
    for (int64_t i = 0; i < count; i += 4) {
        int first = case_between(k, 0, 3), gap = case_between(k, 1, 3),
            all = case_between(k, 0, 7) == 0;
        for (int j = 0; j < 4 && i + j < count; j++)
            if (all || j == first || j == (first + gap) % 4)
                memset(w + (at + (i + j) * step) * bytes, 0, (size_t)bytes);
    }
}

#endif
