/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARE_RUNTIME_OPS_NORM_H
#define PARE_RUNTIME_OPS_NORM_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Has a scale or bias of LayerNormalization (17) one number for each of a row, in their order? Its
   dims, but for ones before them, are then x's from the axis on; other dims are stretched. */
bool pare_norm_factor_is_row(const int64_t *x, int rank, int axis, const int64_t *factor,
                             int factor_rank);

#ifdef __cplusplus
}
#endif
#endif
