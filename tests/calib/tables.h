/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of its own for a test of calibrations: data, and two tables that can be compared. */
#ifndef PARE_TESTS_CALIB_TABLES_H
#define PARE_TESTS_CALIB_TABLES_H

#include "runtime/base/ctx.h"

typedef struct tables {
    char folder[40], data[64], a[64], b[64];
} tables;

void tables_open(tables *t);
int tables_close(const tables *t); /* removes it; not 0 where files are left in it */

/* The two tables' files have the same bytes. */
void tables_assert_same(const tables *t, pare_ctx *ctx);

#endif
