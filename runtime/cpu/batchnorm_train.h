/* SPDX-License-Identifier: Apache-2.0 */
/* What the plain and the fast kernels of BatchNormalization in training share. */
#ifndef PARE_RUNTIME_CPU_BATCHNORM_TRAIN_H
#define PARE_RUNTIME_CPU_BATCHNORM_TRAIN_H

#include "runtime/ops/kernel.h"

/* mean, inv: (channels), of ops/train_batchnorm.c. */
void pare_norm_moments(const pare_view *sums, const pare_view *mean0, double epsilon, double *mean,
                       double *inv);

/* dX = f dY + p (X - mean) + q: f, p, q (channels). */
void pare_norm_slopes(const pare_view *scale, const pare_view *sums, const pare_view *gsums,
                      const double *inv, double *f, double *p, double *q);

/* Outputs 1 and 2 of BatchNormGradStats from its output 0. */
void pare_norm_weight_grads(const pare_call *call, const double *inv);

/* epsilon as state, and scratch for this many vectors of doubles, one number for each channel of
   input x. */
PARE_NODISCARD pare_status pare_norm_prepare(pare_prep *prep, int x, int vectors);

/* train_batchnorm_f32.c */
extern const pare_kernel pare_batch_norm_stats_f32, pare_batch_norm_train_f32,
    pare_batch_norm_grad_stats_f32, pare_batch_norm_grad_input_f32;

#endif
