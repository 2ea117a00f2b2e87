/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/calib/tables.h"
#include "formats/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

void tables_open(tables *t)
{
    strcpy(t->folder, "/tmp/pare_tables_XXXXXX");
    assert_non_null(mkdtemp(t->folder));
    snprintf(t->data, sizeof t->data, "%s/data.h5", t->folder);
    snprintf(t->a, sizeof t->a, "%s/a.json", t->folder);
    snprintf(t->b, sizeof t->b, "%s/b.json", t->folder);
}

int tables_close(const tables *t)
{
    unlink(t->data);
    unlink(t->a);
    unlink(t->b);
    return rmdir(t->folder);
}

void tables_assert_same(const tables *t, pare_ctx *ctx)
{
    pare_map x, y;
    assert_int_equal(pare_map_open(ctx, &x, t->a), PARE_OK);
    assert_int_equal(pare_map_open(ctx, &y, t->b), PARE_OK);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    pare_map_close(&x);
    pare_map_close(&y);
}
