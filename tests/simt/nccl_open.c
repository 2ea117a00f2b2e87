/* SPDX-License-Identifier: Apache-2.0 */
/* pare_nccl_open for the emulated device: the stub takes the library's place. SIMT_NCCL=absent: as
   on a machine that does not have it. */
#include "nccl_table.h"
#include "runtime/cuda/comm/nccl.h"

#include <stdlib.h>
#include <string.h>

pare_status pare_nccl_open(pare_ctx *ctx, pare_nccl_api *out, int *version)
{
    const char *word = getenv("SIMT_NCCL");
    if (word && !strcmp(word, "absent"))
        return PARE_FAIL(ctx, UNSUPPORTED, "libnccl.so.2 was not found");
    simt_nccl_api(out);
    const int status = out->version(version);
    if (status) return PARE_FAIL(ctx, UNSUPPORTED, "ncclGetVersion failed: %s", out->text(status));
    return PARE_OK;
}
