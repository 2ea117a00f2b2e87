/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/clock.h"

#include <time.h>

double pare_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void pare_sleep_ms(int ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    (void)nanosleep(&time, NULL);
}
