/* SPDX-License-Identifier: Apache-2.0 */
/* Reading chunks of a damaged HDF5 file. The input is the file, and at its end, read backwards,
   what the HDF5 library would say of a dataset in it: element size, rank, filters, dims, chunk
   dims, then address, size and mask of each chunk. Whatever passes the checks is read: a status,
   and on failure a message. (The library itself is not fuzzed: 1.10 does not survive it.) */
#define _GNU_SOURCE
#include "formats/data/hdf5.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void expect(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

typedef struct tail {
    const uint8_t *data;
    size_t left;
} tail;

static unsigned take(tail *t) { return t->left ? t->data[--t->left] : 0; }

static void describe(tail *t, pare_h5_set *set)
{
    set->element = (size_t)1 << take(t) % 4;
    set->rank = 1 + (int)(take(t) % 4);
    unsigned filters = take(t);
    set->deflate = (int)(filters & 3) - 1;
    set->shuffle = (int)(filters >> 2 & 3) - 1;
    set->contiguous = filters >> 7;
    set->row_bytes = set->element;
    for (int i = 0; i < set->rank; i++) {
        set->dim[i] = 1 + take(t) % 16;
        set->chunk[i] = set->contiguous && i ? set->dim[i] : 1 + take(t) % 16;
        if (i) set->row_bytes *= (size_t)set->dim[i];
    }
}

static pare_status list(pare_ctx *ctx, tail *t, pare_h5_set *set)
{
    int64_t n = set->group_count * set->group_chunks;
    set->chunks = pare_alloc(ctx, (size_t)n, sizeof *set->chunks);
    if (!set->chunks) return PARE_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        pare_h5_chunk *c = &set->chunks[i];
        c->address = take(t) | (uint64_t)take(t) << 8;
        c->size = take(t) | take(t) << 8;
        c->mask = take(t);
        uint64_t plain = set->chunk_bytes, rows = (uint64_t)(set->dim[0] - i * set->chunk[0]);
        if (set->contiguous && rows < (uint64_t)set->chunk[0]) plain = rows * set->row_bytes;
        if (c->size) PARE_TRY(pare_h5_check_chunk(ctx, set, c, c->size, i, plain));
    }
    return PARE_OK;
}

static pare_status read_all(pare_ctx *ctx, pare_h5_set *set)
{
    pare_h5_scratch scratch = {0};
    uint8_t *rows = pare_alloc(ctx, (size_t)set->group_rows, set->row_bytes);
    pare_status st = rows ? PARE_OK : PARE_MEMORY;
    for (int64_t g = 0; st == PARE_OK && g < set->group_count; g++)
        st = pare_h5_read_group(ctx, set, &scratch, g, rows);
    pare_h5_scratch_free(&scratch);
    pare_free(rows);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pare_ctx ctx;
    tail t = {data, size};
    pare_h5_file file = {.path = "fuzz.h5", .fd = memfd_create("fuzz", 0), .size = size, .id = -1};
    pare_h5_set set = {.file = &file, .name = "/input", .dtype = PARE_u8, .id = -1};
    pare_ctx_init(&ctx);
    expect(file.fd >= 0 && write(file.fd, data, size) == (ssize_t)size, "no memory file");
    describe(&t, &set);
    expect(pare_h5_measure(&set), "small sizes are refused");
    pare_status st = list(&ctx, &t, &set);
    if (st == PARE_OK) st = read_all(&ctx, &set);
    expect(st == PARE_OK || ctx.message[0], "a failure without a message");
    pare_free(set.chunks);
    close(file.fd);
    return 0;
}
