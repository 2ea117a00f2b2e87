/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tests/cuda/sass.txt, which the build embeds. */
#include "runtime/eval/roofline/internal.h"

#include <stdlib.h>
#include <string.h>

extern const unsigned char pare_embedded_sass[];
const char *const pare_sass_counts = (const char *)pare_embedded_sass;

/* The value of " key=" in the line that begins there; 0: it has none. */
static double value_of(const char *line, const char *key)
{
    const size_t n = strlen(key), length = strcspn(line, "\n");
    for (const char *at = line; (at = strchr(at, ' ')) && at < line + length;) {
        at++;
        if (!strncmp(at, key, n) && at[n] == '=') return strtod(at + n + 1, NULL);
    }
    return 0;
}

/* Does the line begin with the name? */
static bool line_is_of(const char *line, const char *name)
{
    for (; *name; name++) {
        if (*name != '#') {
            if (*line++ != *name) return false;
            continue;
        }
        const size_t digits = strspn(line, "0123456789");
        if (!digits) return false;
        line += digits;
    }
    return true;
}

bool pare_sass_find(const char *counts, const char *name, pare_sass *out)
{
    const char *line = counts;
    while (line && !line_is_of(line, name)) {
        line = strchr(line, '\n');
        line = line && line[1] ? line + 1 : NULL;
    }
    if (!line) return false;
    *out =
        (pare_sass){value_of(line, "all"),    value_of(line, "loop"),   value_of(line, "mma"),
                    value_of(line, "behind"), value_of(line, "blocks"), value_of(line, "threads")};
    return true;
}
