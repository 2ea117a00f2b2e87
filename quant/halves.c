/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/parts.h"

pare_status pare_quant_to_half(pare_ctx *ctx, pare_model *model, const pare_ranges *ranges,
                               const pare_quant_options *options, pare_quant_facts *facts)
{
    (void)ranges, (void)options, (void)facts;
    return PARE_FAIL(ctx, UNSUPPORTED, "%s: FP16 and BF16 are not in this build", model->path);
}
