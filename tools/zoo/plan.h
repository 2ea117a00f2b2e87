/* SPDX-License-Identifier: Apache-2.0 */
/* What a zoo's work is: a tree of nodes. A task is a model's way through the steps of a variant and
   a last step, validate; where two tasks begin with equal steps they share these nodes. */
#ifndef PARE_TOOLS_ZOO_PLAN_H
#define PARE_TOOLS_ZOO_PLAN_H

#include "runtime/base/arena.h"
#include "runtime/base/hash.h"
#include "tools/zoo/file.h"

typedef struct pare_zoo_node {
    char key[33];         /* 32 hex digits: what decides its result, and nothing else */
    int parent;           /* node before it; -1: it starts from the model. Always a smaller index */
    int model, variant;   /* of the first task that needs it */
    const char *verb;     /* "prune", "distill", "quantize", "validate" */
    const char **words;   /* as they are after "pare", the verb first; NULL-ended */
    int word_count;       /* without the NULL */
    const char *folder;   /* out/steps/<key> */
    const char *output;   /* the model it writes; NULL: none (validate) */
    const char *facts;    /* what --json writes */
    const char *log;      /* for what it prints */
    bool alone;           /* measures latency: nothing may run beside it */
    int ranks;            /* processes that share it, 1 or more: the fewest of the variants' */
    const char *launcher; /* words that start them, before -n RANKS */
} pare_zoo_node;

typedef struct pare_zoo_task {
    int model, variant;
    const int *nodes; /* places in the plan's nodes, in order; the last is validate */
    int node_count;   /* at least 2 */
    const char *link; /* out/models/MODEL.VARIANT.onnx, to be made of the output of the node before
                         validate, which reads it there. No two tasks have one link */
} pare_zoo_task;

typedef struct pare_zoo_plan {
    pare_zoo_node *nodes;
    int node_count; /* in the order to do them: task after task, a node after its parent */
    pare_zoo_task *tasks;
    int task_count; /* model after model, the variants of each in the file's order */
} pare_zoo_plan;

typedef struct pare_zoo_plan_options {
    const char *out;     /* folder of the zoo's results; it need not be there */
    const char *cache;   /* folder for what steps share, of those that have --cache; NULL: none */
    const char *append;  /* --append of each validation; NULL: none is given */
    const char *device;  /* --device of each step; NULL: none is given */
    int64_t threads;     /* --threads of each step; 0: none is given */
    const char *machine; /* name of the device that steps run on; NULL: the CPU */
    const char *isa;     /* instruction set that steps run on; NULL: this processor's */
    const char *version; /* NULL: PARE_VERSION */
    bool batch;          /* in a batch system's job: the zoo's own launcher starts ranks */
} pare_zoo_plan_options;

/* In the arena. A key is the hash of version, instruction set and machine, the key of the node
   before it (or the content of the model's file with its external data), the command, its options
   and the content of every file they name. Threads, ranks, folders, tables, limits and goals
   are no part of it. A model that cannot be read gets keys from the file's bytes: its first step
   says what is wrong. PARE_INPUT: tasks whose links would have one name; PARE_IO: a data set that
   cannot be read. */
PARE_NODISCARD pare_status pare_zoo_plan_make(pare_arena *arena, pare_zoo_plan **out,
                                              const pare_zoo *zoo,
                                              const pare_zoo_plan_options *options);

/* The command line of a node as a shell takes it, quoted where needed: "pare prune a.onnx ...", of
   several ranks "mpirun -n 4 pare ...". In the arena; NULL with the message set. */
const char *pare_zoo_node_command(pare_arena *arena, const pare_zoo_node *node);

/* --- a command line that grows in an arena --- */

/* Begins with its arena and zeros. After a failed allocation calls do nothing. */
typedef struct pare_zoo_argv {
    pare_arena *arena;
    const char **item;
    size_t count, capacity;
    bool failed;
} pare_zoo_argv;

/* One word or two; the second NULL: none. The first is NULL where its allocation failed. */
void pare_zoo_argv_add(pare_zoo_argv *words, const char *first, const char *second);

/* The words with a NULL after them. PARE_MEMORY where one call failed. */
PARE_NODISCARD pare_status pare_zoo_argv_end(pare_zoo_argv *words, const char ***out, int *count);
#endif
