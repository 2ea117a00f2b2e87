/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets in HDF5: one dataset per model input, the first axis counts samples, optional int64
   /labels. uint8 images mean (v / 255 - mean) / std by their attributes `mean`, `std` (scalar or
   one per channel) and `layout` ("nchw", "nhwc").

   A dataset's rank says how samples become an input. With the input's rank, the dataset's first
   axis is the input's batch axis. With one axis more, every sample is a whole input: the input has
   no batch axis, and every sample runs alone. A single whole input, as a scalar or after an axis of
   1, serves every sample. */
#ifndef PARE_FORMATS_DATA_H
#define PARE_FORMATS_DATA_H

#include "runtime/base/hash.h"
#include "runtime/base/pixels.h"
#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_data pare_data;

/* What a model wants of one of its inputs, and where the user says it is (--map), if he does. */
typedef struct pare_data_input {
    const char *name;
    pare_dtype dtype;
    pare_shape shape;    /* the model's; dims of -1 take what the file has */
    const char *dataset; /* "/path" in the file, or NULL: the one named like the input, else the
                            only one that is not /labels */
} pare_data_input;

/* Opens a file and checks every input's dataset: rank, dims, type, sample counts, chunk addresses.
   Errors name file, dataset, what was expected and what to do. */
PARE_NODISCARD pare_status pare_data_open(pare_ctx *ctx, pare_data **out, const char *path,
                                          const pare_data_input *inputs, int input_count);
/* The same for a file that no one vouches for: a child process, forked from this one, makes the
   HDF5 calls, because libhdf5 1.10 does not survive every damaged file; its crash is PARE_INPUT.
   For programs that open data before they start threads. The child ends here where plain reads
   serve the data, else with pare_data_close. */
PARE_NODISCARD pare_status pare_data_open_isolated(pare_ctx *ctx, pare_data **out, const char *path,
                                                   const pare_data_input *inputs, int input_count);
void pare_data_close(pare_data *data);

int64_t pare_data_count(const pare_data *data); /* samples */
bool pare_data_has_labels(const pare_data *data);
/* (samples): class numbers from 0 on; NULL: there are none. */
const int64_t *pare_data_labels(const pare_data *data);
const char *pare_data_path(const pare_data *data);
/* Shape of one sample of input i in the model's order of axes, after an axis of 1. */
const pare_shape *pare_data_shape(const pare_data *data, int i);

/* --- how runs of a model take the samples --- */

/* Does every sample run alone, because the dataset of an input has whole inputs? An output of a run
   is then all of it the sample's; else its first axis counts the run's samples. */
bool pare_data_runs_alone(const pare_data *data);
/* Samples of one run of a model with the data's inputs: 1 where each runs alone, else the fixed
   size of the inputs' first axis; 0: any number. PARE_UNSUPPORTED: two inputs fix different
   numbers. */
PARE_NODISCARD pare_status pare_data_run_samples(pare_ctx *ctx, const pare_data *data,
                                                 const pare_model *model, int64_t *out);
/* The shape that input i has in a run of so many samples. */
pare_shape pare_data_run_shape(const pare_data *data, int i, int64_t samples);
/* Where a run that begins with this sample of a batch (pare_batch.input) has its input i. */
const void *pare_data_run_input(const pare_data *data, void *const *input, int i, int64_t sample);
/* PARE_UNSUPPORTED where an input has no batch axis; `what` needs one: "training". */
PARE_NODISCARD pare_status pare_data_need_batch(pare_ctx *ctx, const pare_data *data,
                                                const char *what);

/* Samples that one chunk of the data set holds (of its input with the largest chunks), and bytes
   that a sample takes among inflated chunks: what reading in another order than the file's costs
   (pare_reader_plan). */
int64_t pare_data_chunk_samples(const pare_data *data);
size_t pare_data_stored_bytes(const pare_data *data);

/* Leaves it to a device to make floats of stored pixels: readers opened from now on give input i as
   the file has it, a byte an element, and *out says what the bytes mean (its table is the data's).
   False, and nothing changes: these are not pixels, or the model does not take f32. */
bool pare_data_take_pixels(pare_data *data, int i, pare_pixels *out);
/* Takes that back for all inputs: readers opened from now on give floats. */
void pare_data_take_floats(pare_data *data);
/* Was that asked for input i? */
bool pare_data_has_pixels(const pare_data *data, int i, pare_pixels *out);

/* Holds the stored rows of these samples in memory (pare_data_stored_bytes each) once they are
   read, for readers that come back to them; only what HDF5 alone can read is read anew. One list at
   a time: it takes the place of another. No reader may be open. */
PARE_NODISCARD pare_status pare_data_hold(pare_data *data, const int64_t *samples, int64_t n);
void pare_data_release(pare_data *data);

/* n sample indices, evenly spaced over [first, last), ascending: the default choice of samples. */
void pare_data_spread(int64_t first, int64_t last, int64_t n, int64_t *out);

/* A reader decodes samples[0..n) in that order, ahead of the caller, on its own threads. */
typedef struct pare_reader pare_reader;
PARE_NODISCARD pare_status pare_reader_open(pare_ctx *ctx, pare_reader **out, pare_data *data,
                                            const int64_t *samples, int64_t n, int batch,
                                            int threads);
/* The same for an order that is computed as the reading continues, and comes back to chunks. */
typedef struct pare_reader_plan {
    /* Gives the samples of positions first .. first + count - 1; asked from the first position on,
       each once, ahead of what was taken, by the thread that opens the reader and takes batches. */
    pare_status (*order)(void *user, int64_t first, int64_t count, int64_t *out);
    void *user;
    int64_t n;    /* positions in all */
    int64_t keep; /* inflated chunks of so many samples are kept, the last used ones */
} pare_reader_plan;
PARE_NODISCARD pare_status pare_reader_open_plan(pare_ctx *ctx, pare_reader **out, pare_data *data,
                                                 const pare_reader_plan *plan, int batch,
                                                 int threads);
typedef struct pare_batch {
    int64_t first;         /* position of its first sample in samples[] */
    int count;             /* samples in it: batch, fewer in the last, 0 after the last */
    const int64_t *sample; /* (count): their indices */
    void *const *input; /* (input_count) dense row-major, of the model's dtype; or stored pixels */
    const int64_t *label; /* (count), or NULL */
} pare_batch;
/* The next batch, valid until the following call. NaN or Inf in a float sample: PARE_INPUT. */
PARE_NODISCARD pare_status pare_reader_next(pare_reader *reader, pare_batch *out);
/* Waits for the batch that the next call will give, without taking it: both it and the one taken
   last are valid until that call. One of 0 samples: there is none, or it cannot be read, which that
   call tells. */
void pare_reader_peek(pare_reader *reader, pare_batch *out);
/* Hash of what was read so far: an order-free sum of one hash per sample (raw stored bytes). */
pare_hash pare_reader_hash(const pare_reader *reader);
/* Most memory its ring, groups and scratch take. */
size_t pare_reader_bytes(const pare_reader *reader);
void pare_reader_close(pare_reader *reader);

/* Writes data sets sample by sample; the file appears when closed with commit. */
typedef struct pare_data_writer pare_data_writer;
typedef struct pare_data_column {
    const char *name; /* "/input" */
    pare_dtype dtype;
    pare_shape shape;        /* of one sample, without the batch axis */
    bool varies;             /* samples have shapes of their own; shape is the first one's */
    const float *mean, *std; /* uint8 images: one per channel, or NULL */
    int channels;            /* of mean and std */
    const char *layout;      /* "nchw", "nhwc" or NULL */
} pare_data_column;
PARE_NODISCARD pare_status pare_data_create(pare_ctx *ctx, pare_data_writer **out, const char *path,
                                            const pare_data_column *columns, int column_count);
/* Appends count samples; data: one dense row-major block per column. */
PARE_NODISCARD pare_status pare_data_append(pare_data_writer *writer, const void *const *data,
                                            int64_t count);
/* The same with shape[c]: (count) of the samples of a column that varies; NULL of others. Where all
   samples have one shape the column becomes a dataset like any other; where they differ, or are
   empty, a group with a dataset for each sample, named 0, 1, 2, ... */
PARE_NODISCARD pare_status pare_data_append_varied(pare_data_writer *writer,
                                                   const void *const *data,
                                                   const pare_shape *const *shape, int64_t count);
PARE_NODISCARD pare_status pare_data_commit(pare_data_writer *writer);
void pare_data_discard(pare_data_writer *writer); /* NULL is allowed */

#ifdef __cplusplus
}
#endif
#endif
