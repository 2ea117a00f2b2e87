/* SPDX-License-Identifier: Apache-2.0 */
/* What was measured on a machine (a processor, or a GPU with its driver), kept in a file: key ->
   JSON value. The file is a cache: it may be deleted, cut or foreign at any time, and is then
   measured again. It holds one table for each machine:
     {FORMAT: 1, "machines": {MACHINE: {KEY: value}}}
   Another driver, library or set of kernels is another machine: times of before are not taken. */
#ifndef PARE_RUNTIME_EXEC_MACHINE_TABLE_H
#define PARE_RUNTIME_EXEC_MACHINE_TABLE_H

#include "runtime/base/hash.h"
#include "runtime/graph/graph.h"
#include "runtime/device/device.h"

#include <jansson.h>

typedef struct pare_machine_table pare_machine_table;

typedef struct pare_machine_table_kind {
    const char *file;    /* in the cache's folder: "timing.json" */
    const char *format;  /* "pare_timing" */
    const char *what;    /* "a timing cache" */
    const char *without; /* what happens where the file is of no use: "kernels are timed again" */
} pare_machine_table_kind;

/* A hash of the kernels' sources and of their compiler, made by the build. */
extern const char pare_kernels_id[];

/* What numbers and times depend on: the processor with the instruction sets in force, or the device
   with its driver and its libraries; and the kernels:
     "NVIDIA H200 (sm_90), CUDA 13.0, driver 580.95.05, cuBLAS 13.1.0, cuBLASLt 13.1.0, cuDNN
   9.19.0, kernels 0011223344556677". */
enum { PARE_MACHINE_NAME = 512 };
void pare_machine_name(pare_ctx *ctx, char *out, size_t size, pare_device *device);

/* folder NULL: nothing on disk. folder and kind must outlive the table. A file of no use is a
 * warning. */
PARE_NODISCARD pare_status pare_machine_table_open(pare_ctx *ctx, pare_machine_table **out,
                                                   const char *folder, pare_device *device,
                                                   const pare_machine_table_kind *kind);
const json_t *pare_machine_table_find(const pare_machine_table *table, const char *key);
/* Takes the value over. */
PARE_NODISCARD pare_status pare_machine_table_put(pare_machine_table *table, const char *key,
                                                  json_t *value);
/* Writes what was put, beside what other processes wrote meanwhile: they take turns, by a lock on
   the folder. A failure is a warning. */
void pare_machine_table_store(pare_machine_table *table);
void pare_machine_table_free(pare_machine_table *table); /* without a write */

/* Keys are hashes of all that a measured thing may depend on; place says which of them it is. */
void pare_key_add(pare_hash *sum, int place, const void *data, size_t bytes);
void pare_key_add_attrs(pare_hash *sum, const pare_node *node);

#endif
