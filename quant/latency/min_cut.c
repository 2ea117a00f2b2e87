/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/latency/internal.h"

#include <string.h>

/* Arcs in pairs: 2i and 2i + 1 are each other's reverse. The source is vertex n, the sink n + 1. */
typedef struct network {
    int vertices, arcs;
    int *to, *next; /* (arcs) */
    int64_t *left;  /* (arcs) capacity that no flow uses yet */
    int *first;     /* (vertices) */
    int *via;       /* (vertices) the arc by which a search came; -1: it did not */
    int *queue;     /* (vertices) */
} network;

static void add_arcs(network *n, int from, int to, int64_t forth, int64_t back)
{
    const int ends[2] = {from, to};
    const int64_t capacity[2] = {forth, back};
    for (int i = 0; i < 2; i++) {
        n->to[n->arcs] = ends[1 - i];
        n->left[n->arcs] = capacity[i];
        n->next[n->arcs] = n->first[ends[i]];
        n->first[ends[i]] = n->arcs++;
    }
}

/* Shortest path with capacity left: true where it reaches the sink. */
static bool search(network *n, int source, int sink)
{
    int head = 0, tail = 0;
    for (int v = 0; v < n->vertices; v++) n->via[v] = -1;
    n->via[source] = n->arcs; /* of no arc */
    n->queue[tail++] = source;
    while (head < tail) {
        const int v = n->queue[head++];
        for (int a = n->first[v]; a >= 0; a = n->next[a]) {
            if (n->left[a] <= 0 || n->via[n->to[a]] >= 0) continue;
            n->via[n->to[a]] = a;
            if (n->to[a] == sink) return true;
            n->queue[tail++] = n->to[a];
        }
    }
    return false;
}

static void push(network *n, int source, int sink)
{
    int64_t most = INT64_MAX;
    for (int v = sink; v != source; v = n->to[n->via[v] ^ 1])
        if (n->left[n->via[v]] < most) most = n->left[n->via[v]];
    for (int v = sink; v != source; v = n->to[n->via[v] ^ 1]) {
        n->left[n->via[v]] -= most;
        n->left[n->via[v] ^ 1] += most;
    }
}

static pare_status network_new(network *n, pare_arena *arena, int vertices, int arcs)
{
    *n = (network){.vertices = vertices};
    n->to = pare_arena_alloc(arena, (size_t)arcs, sizeof *n->to);
    n->next = pare_arena_alloc(arena, (size_t)arcs, sizeof *n->next);
    n->left = pare_arena_alloc(arena, (size_t)arcs, sizeof *n->left);
    n->first = pare_arena_alloc(arena, (size_t)vertices, sizeof *n->first);
    n->via = pare_arena_alloc(arena, (size_t)vertices, sizeof *n->via);
    n->queue = pare_arena_alloc(arena, (size_t)vertices, sizeof *n->queue);
    if (!n->to || !n->next || !n->left || !n->first || !n->via || !n->queue) return PARE_MEMORY;
    for (int v = 0; v < vertices; v++) n->first[v] = -1;
    return PARE_OK;
}

pare_status pare_min_cut(pare_ctx *ctx, int vertices, const int64_t *source, const int64_t *sink,
                         const pare_cut_edge *edge, int edge_count, bool *side)
{
    pare_arena arena;
    network n;
    const int s = vertices, t = vertices + 1;
    pare_arena_init(&arena, ctx);
    pare_status st = network_new(&n, &arena, vertices + 2, 2 * (2 * vertices + edge_count) + 2);
    if (st == PARE_OK) {
        for (int v = 0; v < vertices; v++) {
            add_arcs(&n, s, v, source[v], 0);
            add_arcs(&n, v, t, sink[v], 0);
        }
        for (int e = 0; e < edge_count; e++)
            add_arcs(&n, edge[e].from, edge[e].to, edge[e].forth, edge[e].back);
        while (search(&n, s, t)) push(&n, s, t);
        for (int v = 0; v < vertices; v++) side[v] = n.via[v] >= 0;
    }
    pare_arena_free(&arena);
    return st;
}
