/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/graph/pattern.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { NEAR_NAMES = 5, NAME_LIMIT = 96 };

const char *pare_pattern_name(const pare_node *node)
{
    if (node->name[0]) return node->name;
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i]) return node->out[i]->name;
    return "";
}

/* A node of a body is known by its path, too. */
static bool matches(const char *pattern, const pare_node *node)
{
    if (!strncmp(pattern, "op:", 3)) return !fnmatch(pattern + 3, node->op_type, 0);
    if (!fnmatch(pattern, pare_pattern_name(node), 0)) return true;
    const char *path = node->graph->parent ? pare_node_path(node) : NULL;
    return path && !fnmatch(pattern, path, 0);
}

/* Levenshtein's distance of the first NAME_LIMIT characters. */
static int distance(const char *a, const char *b)
{
    int row[NAME_LIMIT + 1];
    int n = (int)strnlen(b, NAME_LIMIT), m = (int)strnlen(a, NAME_LIMIT);
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; i <= m; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int best = corner + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            corner = row[j];
            row[j] = best;
        }
    }
    return row[n];
}

/* What a message names for a pattern: paths, or types for op:TYPE. */
static const char *candidate(const char *pattern, const pare_node *node)
{
    if (!strncmp(pattern, "op:", 3)) return node->op_type;
    const char *path = pare_node_path(node);
    return path ? path : "";
}

static bool is_listed(const char *const *list, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i], name)) return true;
    return false;
}

/* "'a', 'b'": the names nearest to the pattern. */
static void near_names(pare_node *const *node, int node_count, const char *pattern, char *text,
                       size_t size)
{
    const char *wanted = strncmp(pattern, "op:", 3) ? pattern : pattern + 3;
    const char *near[NEAR_NAMES];
    int far[NEAR_NAMES], count = 0;
    for (int n = 0; n < node_count; n++) {
        const char *name = candidate(pattern, node[n]);
        if (!name[0] || is_listed(near, count, name)) continue;
        int d = distance(wanted, name), at = count < NEAR_NAMES ? count++ : NEAR_NAMES;
        if (at == NEAR_NAMES && d >= far[--at]) continue;
        for (; at > 0 && far[at - 1] > d; at--) near[at] = near[at - 1], far[at] = far[at - 1];
        near[at] = name;
        far[at] = d;
    }
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s'%s'", i ? ", " : "", near[i]);
}

pare_status pare_pattern_mark(const pare_model *model, pare_node *const *node, int node_count,
                              const char *option, const char *const *pattern, int count, bool value,
                              bool *chosen)
{
    for (int p = 0; p < count; p++) {
        bool found = false;
        for (int n = 0; n < node_count; n++)
            if (matches(pattern[p], node[n])) {
                chosen[n] = value;
                found = true;
            }
        if (found) continue;
        char text[600];
        near_names(node, node_count, pattern[p], text, sizeof text);
        return PARE_FAIL(model->ctx, USAGE,
                         "%s: %s '%s' matches no node; near it: %s. A pattern is a glob on node "
                         "names ('*conv1*'), or op:TYPE ('op:Gemm')",
                         model->path, option, pattern[p], text);
    }
    return PARE_OK;
}
