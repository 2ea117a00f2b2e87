/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/rank_sum.h"

bool pare_rank_sum_halves(int size) { return !(size & (size - 1)); }

size_t pare_rank_sum_room(int size, size_t count)
{
    return pare_rank_sum_halves(size) ? count - count / 2 : count;
}

/* The way back of a step: what was sent comes, what came is sent. */
static pare_rank_sum_step reverse_of(const pare_rank_sum_step *s)
{
    return (pare_rank_sum_step){.other = s->other,
                                .give_at = s->take_at,
                                .give = s->take,
                                .take_at = s->give_at,
                                .take = s->give};
}

static int plan_halves(pare_rank_sum_step *step, int rank, int size, size_t count)
{
    size_t at = 0, all = count; /* the part that this rank has before a step */
    int n = 0;
    for (long apart = 1; apart < size; apart *= 2) {
        const size_t low = all / 2, high = all - low;
        const bool upper = rank & apart;
        step[n++] = (pare_rank_sum_step){.other = rank ^ (int)apart,
                                         .give_at = upper ? at : at + low,
                                         .give = upper ? low : high,
                                         .take_at = upper ? at + low : at,
                                         .take = upper ? high : low,
                                         .add = true};
        at = step[n - 1].take_at;
        all = step[n - 1].take;
    }
    return n;
}

static int plan_tree(pare_rank_sum_step *step, int rank, int size, size_t count)
{
    int n = 0;
    for (long apart = 1; apart < size; apart *= 2) {
        if (rank % (2 * apart)) {
            step[n++] = (pare_rank_sum_step){.other = (int)(rank - apart), .give = count};
            break;
        }
        if (rank + apart < size)
            step[n++] =
                (pare_rank_sum_step){.other = (int)(rank + apart), .take = count, .add = true};
    }
    return n;
}

int pare_rank_sum_plan(pare_rank_sum_step step[PARE_RANK_SUM_STEPS], int rank, int size,
                       size_t count, int *adding)
{
    const int n = pare_rank_sum_halves(size) ? plan_halves(step, rank, size, count)
                                             : plan_tree(step, rank, size, count);
    for (int i = 0; i < n; i++) step[n + i] = reverse_of(&step[n - 1 - i]);
    *adding = n;
    return 2 * n;
}
