/* SPDX-License-Identifier: Apache-2.0 */
/* Which instructions kernels may use: what the machine has, lowered to oneDNN's effective limit
   (DNNL_MAX_CPU_ISA) so that one variable rules both. */
#ifndef PARE_RUNTIME_CPU_ISA_H
#define PARE_RUNTIME_CPU_ISA_H

#include <stdbool.h>

typedef enum pare_isa { PARE_ISA_PORTABLE, PARE_ISA_AVX2, PARE_ISA_AVX512, PARE_ISA_VNNI } pare_isa;

pare_isa pare_cpu_isa(void);

#ifdef PARE_ONEDNN
pare_isa pare_onednn_isa(void);
#endif

#endif
