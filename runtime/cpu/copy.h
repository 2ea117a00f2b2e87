/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that move data and never compute: what Transpose, Concat, Slice, Pad, Gather and their kin
   are made of. */
#ifndef PARE_RUNTIME_CPU_COPY_H
#define PARE_RUNTIME_CPU_COPY_H

#include "runtime/cpu/ref.h"
#include "runtime/ops/moves.h"

/* dst = src, same type and dims, any strides: contiguous runs by memcpy, transposes by tiles, both
   on several threads where it pays. */
void pare_copy_view(const pare_view *dst, const pare_view *src, int threads);

/* src's elements in logical row-major order become dst's: a reshape between any two orders. */
void pare_copy_reshape(const pare_view *dst, const pare_view *src, int threads);

/* Every element of dst becomes the one at value (NULL: zero). */
void pare_copy_fill(const pare_view *dst, const void *value, int threads);

/* can(): input 0's type has whole bytes. */
bool pare_copy_can(const pare_prep *prep);

#endif
