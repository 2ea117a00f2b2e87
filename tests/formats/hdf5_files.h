/* SPDX-License-Identifier: Apache-2.0 */
/* HDF5 files for the tests of data sets, made by the HDF5 library itself; element() is what fills
   them. One path for all, in a folder of the program's own. */
#ifndef PARE_TESTS_FORMATS_HDF5_FILES_H
#define PARE_TESTS_FORMATS_HDF5_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "formats/data.h"

#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pare_ctx ctx;
static char folder[] = "/tmp/pare_data_XXXXXX", path[64];

/* HDF5 1.10 loses memory of its own when a damaged file is refused. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libhdf5"; }

/* --- making files --- */

typedef struct make {
    hid_t type; /* in the file */
    int rank;
    hsize_t dim[4], chunk[4]; /* chunk[0] 0: contiguous, or compact */
    bool shuffle, deflate, fletcher, compact, latest;
    const char *name;
} make;

/* Element i of the dataset (row-major) as the tests fill it. */
static inline int element(size_t i) { return (int)(i * 37 % 251); }

static inline size_t count_of(const make *m)
{
    size_t n = 1;
    for (int i = 0; i < m->rank; i++) n *= m->dim[i];
    return n;
}

static inline hid_t file_new(bool latest)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (latest) H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    assert_true(file >= 0);
    return file;
}

static inline hid_t dataset_new(hid_t file, const make *m)
{
    hid_t space = H5Screate_simple(m->rank, m->dim, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
    if (m->compact) H5Pset_layout(plist, H5D_COMPACT);
    if (m->chunk[0]) H5Pset_chunk(plist, m->rank, m->chunk);
    if (m->shuffle) H5Pset_shuffle(plist);
    if (m->deflate) H5Pset_deflate(plist, 6);
    if (m->fletcher) H5Pset_fletcher32(plist);
    hid_t d = H5Dcreate2(file, m->name, m->type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    assert_true(d >= 0);
    H5Pclose(plist);
    H5Sclose(space);
    return d;
}

static inline void dataset_fill(hid_t file, const make *m)
{
    hid_t d = dataset_new(file, m);
    size_t n = count_of(m);
    int *values = malloc((n + 1) * sizeof *values);
    for (size_t i = 0; i < n; i++) values[i] = element(i);
    assert_true(H5Dwrite(d, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    free(values);
    H5Dclose(d);
}

static inline void attribute(hid_t file, const char *dataset, const char *name, const float *v,
                             hsize_t n)
{
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t a = H5Acreate_by_name(file, dataset, name, H5T_IEEE_F32LE, space, H5P_DEFAULT,
                                H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(a, H5T_NATIVE_FLOAT, v) >= 0);
    H5Aclose(a);
    H5Sclose(space);
}

static inline void text_attribute(hid_t file, const char *dataset, const char *name,
                                  const char *text)
{
    hid_t space = H5Screate(H5S_SCALAR),
          type = H5Tcopy(H5T_C_S1); /* variable length, as h5py does */
    H5Tset_size(type, H5T_VARIABLE);
    hid_t a =
        H5Acreate_by_name(file, dataset, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(a, type, &text) >= 0);
    H5Aclose(a);
    H5Tclose(type);
    H5Sclose(space);
}

static inline void write_file(const make *m)
{
    hid_t file = file_new(m->latest);
    dataset_fill(file, m);
    H5Fclose(file);
}

static inline pare_data_input wants(pare_dtype dtype, int rank, int64_t a, int64_t b, int64_t c)
{
    return (pare_data_input){"input", dtype, {rank, {-1, a, b, c}, {0}}, NULL};
}

static inline void fails_with(const pare_data_input *input, int count, const char *words)
{
    pare_data *d = NULL;
    pare_ctx_clear(&ctx);
    assert_int_not_equal(pare_data_open(&ctx, &d, path, input, count), PARE_OK);
    if (!strstr(ctx.message, words)) print_error("message: %s\n", ctx.message);
    assert_non_null(strstr(ctx.message, words));
    assert_non_null(strstr(ctx.message, "t.h5"));
}

static inline uint8_t *slurp(size_t *size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(1 << 20);
    *size = fread(data, 1, 1 << 20, f);
    fclose(f);
    return data;
}

static inline void spit(const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    fwrite(data, 1, size, f);
    fclose(f);
}

static inline int set_up(void **state)
{
    (void)state;
    pare_ctx_init(&ctx);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/t.h5", folder);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails where something was left behind */
}

#endif
