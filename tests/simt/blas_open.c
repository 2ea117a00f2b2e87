/* SPDX-License-Identifier: Apache-2.0 */
/* pare_blas_open for the emulated device: the stubs take the libraries' place. SIMT_BLAS=absent: as
   on a machine that does not have them. */
#include "blas_table.h"
#include "runtime/cuda/gemm/blas.h"

#include <stdlib.h>
#include <string.h>

pare_status pare_blas_open(pare_ctx *ctx, pare_blas **out, const char *folders)
{
    const char *word = getenv("SIMT_BLAS");
    if (word && !strcmp(word, "absent"))
        return PARE_FAIL(ctx, UNSUPPORTED, "libcublasLt.so.13 was not found in %s",
                         folders ? folders : "the loader's path");
    pare_blas *b = pare_alloc(ctx, 1, sizeof *b);
    if (!b) return PARE_MEMORY;
    simt_blas_api(&b->api);
    *out = b;
    return PARE_OK;
}

void pare_blas_close(pare_blas *b) { pare_free(b); }
