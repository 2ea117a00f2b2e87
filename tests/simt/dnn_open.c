/* SPDX-License-Identifier: Apache-2.0 */
/* pare_dnn_open for the emulated device: the stub takes the library's place where
   SIMT_DNN=present; few machines have it. */
#include "dnn_table.h"
#include "runtime/cuda/conv/dnn.h"

#include <stdlib.h>
#include <string.h>

pare_status pare_dnn_open(pare_ctx *ctx, pare_dnn_api *out)
{
    const char *word = getenv("SIMT_DNN");
    if (!word || strcmp(word, "present"))
        return PARE_FAIL(ctx, UNSUPPORTED, "libcudnn.so.9 was not found");
    simt_dnn_api(out);
    return PARE_OK;
}
