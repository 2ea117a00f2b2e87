/* SPDX-License-Identifier: Apache-2.0 */
/* What a job takes in several ranks, from what it takes in one: its work is cut into equal parts,
   and messages take alpha + beta * bytes seconds (Hockney 1994, Parallel Computing 20:389). */
#ifndef PARE_RUNTIME_COMM_SCALING_H
#define PARE_RUNTIME_COMM_SCALING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_network {
    double alpha; /* seconds of a message without content */
    double beta;  /* seconds a byte */
} pare_network;

/* In seconds of one rank. */
typedef struct pare_scaling_job {
    double start;       /* once, in every rank: reading, planning */
    int64_t steps;      /* 1 of a calibration */
    int64_t parts;      /* equal parts of a step's work: microbatches, runs */
    double part;        /* of one */
    double each;        /* of a step, in every rank: the optimizer */
    size_t bytes;       /* that a step reduces */
    int64_t reductions; /* messages' worth of it: buckets, tensors */
} pare_scaling_job;

/* Of pare_comm_sum_f32: by halves where the ranks are a power of two, 2 log2 P messages and
   2 (P - 1) / P of the bytes; else along the tree and back. 0 for one rank. Before each reduction
   ranks agree that none has failed, log2 P messages more. */
double pare_scaling_reduce(const pare_network *network, int ranks, size_t bytes,
                           int64_t reductions);

/* Of one step, and of the whole job. Ranks have ceil(parts / ranks) parts at most. */
double pare_scaling_step(const pare_scaling_job *job, const pare_network *network, int ranks);
double pare_scaling_seconds(const pare_scaling_job *job, const pare_network *network, int ranks);

/* Twice the ranks are worth it where they take at most so much of the time. */
#define PARE_SCALING_WORTH 0.75

#ifdef __cplusplus
}
#endif
#endif
