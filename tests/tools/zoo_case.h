/* SPDX-License-Identifier: Apache-2.0 */
/* A folder with a zoo's file in it, for tests. */
#ifndef PARE_TESTS_TOOLS_ZOO_CASE_H
#define PARE_TESTS_TOOLS_ZOO_CASE_H

#include "tools/zoo/plan.h"

typedef struct zoo_case {
    pare_ctx ctx;
    pare_arena arena;
    char folder[64], path[96]; /* path: of zoo.yaml */
    pare_zoo *zoo;
    pare_zoo_plan *plan;
} zoo_case;

/* cmocka's set-up and tear-down: a folder with a.onnx, b/x.onnx, c/x.onnx, train.h5, test.h5 and
   ranges.json, none of which is what its name says. */
int zoo_case_open(void **state);
int zoo_case_close(void **state);

void zoo_case_write(zoo_case *z, const char *name, const void *data, size_t bytes);
/* Reads a text as zoo.yaml; the message of the context is that of this call. */
pare_status zoo_case_read(zoo_case *z, const char *text);
/* The same of any bytes. */
pare_status zoo_case_read_bytes(zoo_case *z, const void *data, size_t bytes);
/* Reads, and plans with out/ in the folder and these options on top. */
void zoo_case_plan(zoo_case *z, const char *text, pare_zoo_plan_options options);

#endif
