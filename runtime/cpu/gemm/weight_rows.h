/* SPDX-License-Identifier: Apache-2.0 */
/* The vector loop of weight_panel.c. */
#ifndef PARE_RUNTIME_CPU_GEMM_WEIGHT_ROWS_H
#define PARE_RUNTIME_CPU_GEMM_WEIGHT_ROWS_H

#include "runtime/cpu/gemm/weight_panel.h"

#if defined(__x86_64__)
/* As many of `panels` as go together; says how many. */
int64_t pare_weight_rows_avx2(const pare_weight_panel *p, const pare_weight_rows *a, int64_t panel,
                              int64_t panels);
#endif

#endif
