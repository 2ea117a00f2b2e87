/* SPDX-License-Identifier: Apache-2.0 */
/* The samples a command works on: a data set opened for a model, and which of its samples in which
   order. */
#ifndef PARE_TOOLS_SOURCE_H
#define PARE_TOOLS_SOURCE_H

#include "formats/data.h"
#include "tools/options.h"

typedef struct pare_source_options {
    const char *data, *range; /* range: "A:B", samples A to B - 1 */
    int64_t samples;          /* -1: the command's own number */
    int64_t batch, shuffle;   /* shuffle: seed, -1: none */
    pare_list map;            /* "INPUT=/path" */
} pare_source_options;

#define PARE_SOURCE_DEFAULTS                                                                       \
    {                                                                                              \
        .samples = -1, .batch = 64, .shuffle = -1                                                  \
    }

/* Rows for a command whose OPTIONS have a pare_source_options named source. */
#define PARE_SOURCE_ROWS(how_many)                                                                 \
    PARE_OPT_FILE("data", "F.h5", source.data,                                                     \
                  "data set: HDF5, one dataset per model input, first axis samples"),              \
        PARE_OPT_INT("samples", "N", source.samples, 0, 1e15, how_many),                           \
        PARE_OPT_TEXT("range", "A:B", source.range, "take samples from A to B-1 only"),            \
        PARE_OPT_INT("batch", "N", source.batch, 1, 65536,                                         \
                     "samples read and run side by side (64); changes no result"),                 \
        PARE_OPT_INT("shuffle", "SEED", source.shuffle, 0, 9e15,                                   \
                     "change the order of the samples; changes no result"),                        \
        PARE_OPT_LIST("map", "INPUT=/path", source.map,                                            \
                      "dataset in the file for a model input (the one of its name)")

typedef struct pare_source {
    pare_data *data;
    int64_t *samples, count; /* indices in the order of reading */
    const pare_data_input *inputs;
    int input_count;
    pare_ctx *ctx;
} pare_source;

/* Opens the data for a model and chooses samples, evenly spaced: options->samples of them, else
   `own`; own -1: all. 0 samples are PARE_INPUT. */
PARE_NODISCARD pare_status pare_source_open(pare_tool *tool, pare_source *out,
                                            const pare_model *model,
                                            const pare_source_options *options, int64_t own);
/* The same for a command that opens more than one: all of them come before pare_tool_open_device,
   which this one leaves to the caller. */
PARE_NODISCARD pare_status pare_source_open_first(pare_tool *tool, pare_source *out,
                                                  const pare_model *model,
                                                  const pare_source_options *options, int64_t own);
/* The same for a model that is elsewhere: its inputs, which must outlive the source and are given
   their datasets here; path names the model in messages. */
PARE_NODISCARD pare_status pare_source_open_inputs(pare_tool *tool, pare_source *out,
                                                   const char *path, pare_data_input *inputs,
                                                   int count, const pare_source_options *options,
                                                   int64_t own);
/* Fails where the shape for an input holds no samples although the model does not say so: "0
   samples". Nothing would run, and few models can be planned for it. */
PARE_NODISCARD pare_status pare_check_samples(pare_ctx *ctx, const pare_model *model,
                                              const char *input, const pare_shape *shape);

/* Fails where ranks have other data under this name. */
PARE_NODISCARD pare_status pare_check_same_data(pare_tool *tool, const char *path);

/* Puts the samples in ascending order: sums of floats depend on the order, and --shuffle changes no
   result. */
void pare_source_sort(pare_source *source);

void pare_source_close(pare_source *source);

/* What was read, for facts: file, samples, range. */
json_t *pare_source_json(const pare_source *source, const pare_source_options *options);

/* Inputs that must be given: those without an initializer. The list lives in the arena; NULL with
   the message set. */
pare_value **pare_model_inputs(pare_arena *arena, const pare_model *model, int *count);
#endif
