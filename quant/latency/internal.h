/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share. */
#ifndef PARE_QUANT_LATENCY_INTERNAL_H
#define PARE_QUANT_LATENCY_INTERNAL_H

#include "quant/latency.h"
#include "runtime/exec/machine_table.h"

/* --- min_cut.c --- */

typedef struct pare_cut_edge {
    int from, to;
    int64_t forth, back; /* what is cut where `from` is on the source's side and `to` is not; and
                            the other way round */
} pare_cut_edge;

enum { PARE_CUT_NEVER = 1 << 30 }; /* times 2^20: above any sum of real capacities */
#define PARE_CUT_INFINITE ((int64_t)PARE_CUT_NEVER << 20)

/* side: (vertices) true: on the source's side of a minimum cut, the one with the fewest vertices
   there (Edmonds, Karp 1972, J. ACM 19(2)). source, sink: (vertices) capacities of the edges from
   the source and to the sink. */
PARE_NODISCARD pare_status pare_min_cut(pare_ctx *ctx, int vertices, const int64_t *source,
                                        const int64_t *sink, const pare_cut_edge *edge,
                                        int edge_count, bool *side);

/* --- assign.c --- */

/* What a tensor costs by the formats of the nodes that make and read it; 0 where they are equal,
   and none more than over a third format. */
typedef struct pare_format_edge {
    int from, to;
    int64_t convert[PARE_IN_COUNT][PARE_IN_COUNT]; /* by the format of `from`, then of `to` */
} pare_format_edge;

typedef struct pare_assignment {
    int count;                      /* vertices */
    int64_t (*cost)[PARE_IN_COUNT]; /* (count) PARE_CUT_INFINITE: cannot be; one of them can */
    pare_format_edge *edge;
    int edges;
    size_t capacity;
} pare_assignment;

/* place: (vertices) a format each, so that the sum of costs is least; the same every time. */
PARE_NODISCARD pare_status pare_assign(pare_ctx *ctx, const pare_assignment *a,
                                       pare_quant_format *place);
/* The two ways to it. *done false: the graph is too wide for the exact one. */
PARE_NODISCARD pare_status pare_assign_exactly(pare_ctx *ctx, const pare_assignment *a,
                                               pare_quant_format *place, bool *done);
PARE_NODISCARD pare_status pare_assign_by_expansion(pare_ctx *ctx, const pare_assignment *a,
                                                    pare_quant_format *place);
int64_t pare_assignment_cost(const pare_assignment *a, const pare_quant_format *place);

/* --- times.c --- */

/* All 0, each node its own head. */
PARE_NODISCARD pare_status pare_quant_times_new(pare_quant_times *out, pare_arena *arena,
                                                int count);
/* What steps (count) take, by the prepared model's nodes. */
PARE_NODISCARD pare_status pare_quant_times_attribute(pare_ctx *ctx, const pare_model *prepared,
                                                      const pare_node *const *step,
                                                      const double *seconds, int count,
                                                      pare_quant_times *out);
/* The float model as it would run without integers: on a GPU in FP16. *out is the caller's, on
   failure, too. */
PARE_NODISCARD pare_status pare_quant_make_rival(pare_ctx *ctx, const pare_model *prepared,
                                                 bool fp16, pare_model **out);
/* Compiles, tunes and runs. */
PARE_NODISCARD pare_status pare_quant_times_measure(pare_ctx *ctx, const pare_model *float_model,
                                                    const pare_model *candidate,
                                                    const pare_quant_latency_options *how,
                                                    pare_quant_times *out);
/* predict.c: the same of how->gpu, without it. */
PARE_NODISCARD pare_status pare_quant_times_predict(pare_ctx *ctx, const pare_model *float_model,
                                                    const pare_model *candidate,
                                                    const pare_quant_latency_options *how,
                                                    pare_quant_times *out);
/* For a table of times. */
json_t *pare_quant_times_json(const pare_quant_times *times);
/* False: it is none of this many nodes. */
bool pare_quant_times_parse(const json_t *json, pare_quant_times *out);
#endif
