/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/warnings.h"

#include <stdio.h>
#include <string.h>

void pare_zoo_warnings_tell(pare_ctx *ctx, pare_progress *progress, const pare_zoo *zoo,
                            const pare_zoo_node *node, int *told)
{
    static const char word[] = "warning: ";
    char line[1024];
    FILE *file = fopen(node->log, "r");
    while (file && *told <= PARE_ZOO_WARNINGS && fgets(line, sizeof line, file)) {
        if (strncmp(line, word, sizeof word - 1) != 0) continue;
        line[strcspn(line, "\n")] = 0;
        pare_progress_clear(progress);
        if ((*told)++ < PARE_ZOO_WARNINGS)
            pare_log(ctx, PARE_LOG_WARNING, "%s %s: %s: %s", zoo->models[node->model].name,
                     zoo->variants[node->variant].name, node->verb, line + sizeof word - 1);
        else
            pare_log(ctx, PARE_LOG_WARNING,
                     "steps have more warnings; they are in log.txt of their folders");
    }
    if (file) fclose(file);
}
