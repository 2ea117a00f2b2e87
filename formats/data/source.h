/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of an open data set, shared by data.c, convert.c and reader.c. */
#ifndef PARE_FORMATS_DATA_SOURCE_H
#define PARE_FORMATS_DATA_SOURCE_H

#include "formats/data.h"
#include "formats/data/hdf5.h"

/* One model input and the dataset it is read from. A sample is transposed as a matrix (rows,
   columns)
   -> (columns, rows) where the file's memory order is not the model's, then converted one by one.
 */
typedef struct pare_data_source {
    char *name;
    pare_h5_set set;
    pare_dtype dtype;      /* the model's */
    bool whole;            /* a row is a whole input: the input has no batch axis */
    bool shared;           /* and there is one, which serves every sample */
    pare_shape shape;      /* one sample as the model takes it, after an axis of 1 */
    int64_t count;         /* elements of one sample */
    size_t bytes;          /* of one sample as readers give it */
    bool raw;              /* they give stored pixels */
    int64_t rows, columns; /* of the transposition; rows 0: none */
    float *table; /* (channels, 256): what a pixel means; NULL where values are taken as is */
    int64_t channels, inner; /* channel of element i: i / inner % channels */
    pare_hash meaning;       /* of name, type, attributes: part of every sample's hash */
} pare_data_source;

typedef struct pare_held pare_held;

struct pare_data {
    pare_ctx *ctx;
    pare_h5_file file;
    pare_data_source *source;
    int source_count;
    bool serial; /* a source needs H5Dread */
    int64_t count;
    int counted;     /* the source that says how many */
    int64_t *label;  /* (count) or NULL */
    pare_held *held; /* NULL: no sample is */
};

/* Decides how the source's samples become the model's: whole or in a batch, shape, order, pixel
   table. wanted: the model's shape. */
PARE_NODISCARD pare_status pare_data_fit(pare_ctx *ctx, pare_data_source *source,
                                         const pare_shape *wanted);

/* Converts one sample from raw (set.row_bytes, little-endian) to out; mixed: row_bytes of scratch.
 */
PARE_NODISCARD pare_status pare_data_convert(pare_ctx *ctx, const pare_data_source *source,
                                             int64_t sample, const uint8_t *raw, uint8_t *mixed,
                                             void *out);

/* Reads stored integers as int64. */
void pare_data_read_ints(pare_dtype dtype, const uint8_t *raw, int64_t count, int64_t *out);

#endif
