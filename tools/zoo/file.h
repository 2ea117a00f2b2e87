/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a zoo: which models, which variants of each, on which data, within which limits, for
   which goals. */
#ifndef PARE_TOOLS_ZOO_FILE_H
#define PARE_TOOLS_ZOO_FILE_H

#include "tools/options.h"

/* One option of a step, as its command's own table read it. */
typedef struct pare_zoo_option {
    const pare_option *row;
    const char *value; /* NULL of a flag; of a FILE seen from where pare was started */
} pare_zoo_option;

typedef struct pare_zoo_step {
    const pare_command *command; /* prune, distill or quantize */
    const pare_zoo_option *options;
    int option_count;
    const char *text; /* as it is in the file: "prune --macs 0.5" */
    int line;
    bool takes_data; /* it gets the zoo's data: it names none of its own and can use them */
    bool trains;     /* it is kept while it runs, and continues after a kill */
    bool times;      /* it measures latency, so that nothing may run beside it */
    bool shares;     /* several processes can share it */
} pare_zoo_step;

typedef struct pare_zoo_variant {
    const char *name; /* letters, digits and "_-+."; no two of one name */
    const pare_zoo_step *steps;
    int step_count; /* at least 1 */
    int ranks;      /* processes of each step that shares, 1 or more */
    int gpus;       /* that a batch system is asked for on each node; 0: none */
    int nodes;      /* machines, 1 or more; ranks are a multiple of it */
} pare_zoo_variant;

/* Paths are seen from where pare was started, not from the zoo's file. */
typedef struct pare_zoo_model {
    const char *name; /* stem of its file; where two share it, with as much of the path before
                         it as tells them apart: "resnet50-model". No two of one name */
    const char *file; /* exists */
    const char *data, *test; /* data NULL: none */
} pare_zoo_model;

typedef struct pare_zoo_limits {
    double seconds;       /* of each step; 0: none */
    int64_t memory_bytes; /* 0: none */
} pare_zoo_limits;

/* What a variant must reach; negative: no such goal. */
typedef struct pare_zoo_goals {
    double drop;     /* points of top-1 lost at most */
    double latency;  /* of one sample at most, in ms */
    double speed_up; /* times the original's at least */
    int64_t size;    /* of the file at most, in bytes */
} pare_zoo_goals;

typedef struct pare_zoo {
    const char *name; /* the file's stem where it says none */
    const char *file; /* its path */
    const pare_zoo_model *models;
    int model_count; /* at least 1; in the order of the file, of a pattern in that of strcmp */
    const pare_zoo_variant *variants;
    int variant_count; /* at least 1 */
    pare_zoo_limits limits;
    pare_zoo_goals goals;
    int64_t samples;      /* of test; -1: all */
    bool latency;         /* validate measures it */
    bool any_accuracy;    /* validate takes models near chance, too */
    const char *launcher; /* words that start ranks in a batch system's job; NULL: mpirun */
    const char **slurm;
    int slurm_count; /* words for sbatch */
} pare_zoo;

/* Reads and checks all of it before any work: *out lives in the arena. PARE_INPUT with one message
   "FILE:LINE: what, expected": text that is no YAML, an alias, an unknown or doubled key, a value
   of another type, no model or variant, a pattern that matches no file, a model named twice, two
   variants of one name, a step that its command would refuse, an option that the zoo sets itself, a
   data set that is missing. PARE_IO: the file cannot be read. */
PARE_NODISCARD pare_status pare_zoo_read(pare_arena *arena, pare_zoo **out, const char *path);
#endif
