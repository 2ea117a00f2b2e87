/* SPDX-License-Identifier: Apache-2.0 */
/* Memory descriptors of convolutions, forward and backward. Only files onednn*.c include this. */
#ifndef PARE_RUNTIME_CPU_ONEDNN_CONV_H
#define PARE_RUNTIME_CPU_ONEDNN_CONV_H

#include "runtime/cpu/onednn/onednn.h"

/* Dense N, C, spatial or N, spatial, C; false for anything else. */
bool pare_dnnl_image_desc(const pare_view *v, dnnl_memory_desc_t *out);

/* W (M, C / g, ...), with groups (g, M / g, C / g, ...); any: in the order the primitive likes. */
bool pare_dnnl_weight_desc(const pare_view *w, int64_t group, bool any, dnnl_memory_desc_t *out);

#endif
