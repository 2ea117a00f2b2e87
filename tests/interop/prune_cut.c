/* SPDX-License-Identifier: Apache-2.0 */
/* A program that tests/interop/prune.py runs: removes a random part of what can be removed.
   usage: prune_cut MODEL SMALLER MASKED FRACTION SEED [outputs]
   Prints "groups G coupled sets C removed R macs BEFORE AFTER params BEFORE AFTER seconds S", then
   for each axis of an output that lost channels "output NAME AXIS" and the indices that stay. */
#include "formats/onnx.h"
#include "prune/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}

/* Removes count coupled sets of one part of a group, at random. */
static int remove_some(pare_prune_plan *r, int group, int part, int count, bool force,
                       uint64_t *state)
{
    const pare_dependency_group *g = &r->groups->group[group];
    int *item = malloc((size_t)g->count * sizeof *item), n = 0, done = 0;
    for (int i = g->first; item && i < g->first + g->count; i++)
        if (r->groups->coupled[i].part == part) item[n++] = i;
    for (int i = 0; i < n && done < count; i++) {
        int other = i + (int)(next(state) % (uint64_t)(n - i)), swap = item[i];
        item[i] = item[other];
        item[other] = swap;
        done += pare_prune_plan_add(r, item[i], force ? 0 : 1);
    }
    free(item);
    return done;
}

static void remove_random(pare_prune_plan *r, double fraction, uint64_t *state)
{
    const pare_groups *g = r->groups;
    for (int i = 0; i < g->group_count; i++) {
        int parts = g->group[i].parts, each = (int)(fraction * g->group[i].count / parts);
        if (each == 0 && g->group[i].count / parts > 1 && fraction > 0) each = 1;
        int first = remove_some(r, i, 0, each, false, state);
        for (int p = 1; p < parts; p++) remove_some(r, i, p, first, true, state);
    }
}

static void print_outputs(const pare_prune_plan *r)
{
    const pare_groups *g = r->groups;
    for (int s = 0; s < g->slot_count; s++) {
        const pare_channel_axis *slot = &g->slot[s];
        if (!slot->value || !slot->value->is_output || r->kept[s] == slot->extent) continue;
        printf("output %s %d", slot->value->name, slot->axis);
        for (int64_t u = 0; u < slot->extent; u++) {
            int coupled = pare_groups_coupled(g, s, u);
            if (coupled < 0 || !r->removed[coupled]) printf(" %d", (int)u);
        }
        printf("\n");
    }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static pare_status work(pare_ctx *ctx, char **arg, int count)
{
    pare_groups_options options = {.outputs = count > 6 && !strcmp(arg[6], "outputs")};
    pare_onnx_write_options write = {0};
    pare_model *model, *smaller = NULL, *masked = NULL;
    pare_groups *groups = NULL;
    pare_prune_plan *removal = NULL;
    uint64_t state = strtoull(arg[5], NULL, 10) * 2654435761U + 1;
    PARE_TRY(pare_onnx_read(ctx, &model, arg[1]));
    double start = seconds();
    pare_status st = pare_prune_prepare(ctx, model);
    if (st == PARE_OK) st = pare_groups_new(ctx, &groups, model, &options);
    double end = seconds();
    if (st == PARE_OK) st = pare_prune_plan_new(ctx, &removal, groups);
    if (st == PARE_OK) {
        pare_prune_cost dense = removal->cost;
        remove_random(removal, strtod(arg[4], NULL), &state);
        printf("groups %d components %d removed %d macs %.0f %.0f params %.0f %.0f seconds %.3f\n",
               groups->group_count, groups->coupled_count, removal->count, dense.macs,
               removal->cost.macs, dense.params, removal->cost.params, end - start);
        print_outputs(removal);
        st = pare_prune_remove(ctx, &smaller, removal);
    }
    if (st == PARE_OK) st = pare_prune_masked(ctx, &masked, removal);
    if (st == PARE_OK) st = pare_onnx_write(ctx, smaller, arg[2], &write);
    if (st == PARE_OK) st = pare_onnx_write(ctx, masked, arg[3], &write);
    pare_prune_plan_free(removal);
    pare_groups_free(groups);
    pare_model_free(smaller);
    pare_model_free(masked);
    pare_model_free(model);
    return st;
}

int main(int argc, char **argv)
{
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    if (argc < 6) return 2;
    pare_status st = work(&ctx, argv, argc);
    if (st != PARE_OK) fprintf(stderr, "%s\n", ctx.message);
    return st == PARE_OK ? 0 : 1;
}
