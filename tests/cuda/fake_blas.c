/* SPDX-License-Identifier: Apache-2.0 */
/* A library with the names of cuBLAS and cuBLASLt, each function of which answers with its place in
   the list; FAKE_WITHOUT leaves one out. */
#include "runtime/cuda/gemm/blas_api.h"

enum {
#define NUMBER(library, name, symbol, parameters) NUMBER_##symbol,
    PARE_BLAS_FUNCTIONS(NUMBER)
#undef NUMBER
};

#ifdef FAKE_WITHOUT
#define cublasSetMathMode cublasSetMathMode_of_another_version
#endif

/* Called without arguments: they are of no use here. */
#define FAKE(library, name, symbol, parameters)                                                    \
    int symbol(void);                                                                              \
    int symbol(void) { return 100 + NUMBER_##symbol; }
PARE_BLAS_FUNCTIONS(FAKE)
