/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that is full: the size that files may grow to, RLIM_INFINITY for any. */
#ifndef PARE_TESTS_FILE_LIMIT_H
#define PARE_TESTS_FILE_LIMIT_H

#include <sys/resource.h>

static inline void limit(rlim_t bytes)
{
    struct rlimit r;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}
#endif
