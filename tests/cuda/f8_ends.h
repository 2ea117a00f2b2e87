/* SPDX-License-Identifier: Apache-2.0 */
/* How products of FP8 end in tests of kernels for compute capability 9.0 and 10.0. */
#ifndef PARE_TESTS_CUDA_F8_ENDS_H
#define PARE_TESTS_CUDA_F8_ENDS_H

#include "tests/cpu/f8_case.h"

static const struct {
    f8_end end;
    bool pictures; /* taken of them, too */
} f8_ends[] = {
    {{PARE_f8e4m3, PARE_f8e4m3, PARE_NOTYPE, "none", true, false}, true},
    {{PARE_f8e4m3, PARE_f8e4m3, PARE_f8e4m3, "relu", true, true}, true},
    {{PARE_f8e4m3, PARE_f8e4m3, PARE_NOTYPE, "gelu", true, false}, false},
    {{PARE_f8e4m3, PARE_f32, PARE_NOTYPE, "clip", false, false}, false},
    {{PARE_f8e4m3, PARE_f32, PARE_f32, "none", true, true}, false},
    {{PARE_f8e4m3, PARE_f32, PARE_f8e4m3, "relu", true, false}, false},
    {{PARE_f8e4m3, PARE_f16, PARE_NOTYPE, "none", true, false}, false},
    {{PARE_f8e4m3, PARE_f16, PARE_f16, "none", false, false}, false},
    {{PARE_f8e4m3, PARE_f16, PARE_f8e4m3, "none", true, false}, false},
    {{PARE_f8e4m3, PARE_bf16, PARE_NOTYPE, "none", true, true}, false},
    {{PARE_f8e4m3, PARE_bf16, PARE_bf16, "relu", false, false}, false},
    {{PARE_f8e5m2, PARE_f8e5m2, PARE_NOTYPE, "clip", true, false}, false},
    {{PARE_f8e5m2, PARE_f32, PARE_NOTYPE, "none", true, true}, false},
    {{PARE_f8e5m2, PARE_f16, PARE_NOTYPE, "relu", false, false}, false},
    {{PARE_f8e5m2, PARE_bf16, PARE_NOTYPE, "none", true, false}, false},
};
enum { ENDS = sizeof f8_ends / sizeof *f8_ends };

#endif
