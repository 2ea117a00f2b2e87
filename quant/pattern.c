/* SPDX-License-Identifier: Apache-2.0 */
/* --skip and --only. */
#include "quant/internal.h"
#include "runtime/graph/pattern.h"

const char *pare_quant_node_name(const pare_node *node) { return pare_pattern_name(node); }

pare_status pare_quant_select(pare_graph *graph, const pare_quant_options *options, bool *chosen)
{
    for (int n = 0; n < graph->node_count; n++) chosen[n] = options->only_count == 0;
    PARE_TRY(pare_pattern_mark(graph, "--only", options->only, options->only_count, true, chosen));
    return pare_pattern_mark(graph, "--skip", options->skip, options->skip_count, false, chosen);
}
