/* SPDX-License-Identifier: Apache-2.0 */
/* Which steps run side by side. Every stretch of up to PARE_BRANCH_REACH steps is a candidate: its
   steps fall into groups that need nothing of each other, the groups into two sets, the longest
   group first, each into the set that takes less so far. Of all choices of stretches that do not
   overlap the one that saves the most is found front to back, as for intervals with weights. Times
   are whole nanoseconds, so that equal choices are equal on every machine. */
#include "runtime/exec/branches.h"

#include <math.h>
#include <string.h>

/* Latencies of one step at batch 1: ResNet-50 in INT8 and FP16 takes 6 and 8 us a step on an H200.
 */
static const double PRODUCT_SECONDS = 5e-6, OTHER_SECONDS = 2e-6;
/* Bytes, and multiply-adds, a second: half of what an H200's data sheet says, memory apart. */
static const double BYTES = 4e12, MACS_8_BIT = 5e14, MACS_16_BIT = 2.5e14, MACS_FLOAT = 1.5e13;

/* Products of f32 do not split their depth: a tile of 64 x 64 outputs is a block, an H200 has 132
   multiprocessors, and of them at least so many have work. */
static const double FILLING_OUTPUTS = 64 * 64 * 132.0, LEAST_SHARE = 1 / 16.0;

enum { MOST_GROUPS = 16 };

typedef struct branch_times {
    int64_t alone, work; /* ns: of a run by itself; of the whole device */
} branch_times;

/* The best choice for the steps before one. */
typedef struct branch_choice {
    int64_t saved; /* ns */
    int first;     /* of the region that ends there; -1: none does */
    uint64_t side; /* bit k: its step first + k is in the second stream */
} branch_choice;

/* Steps from `first` on, in groups. */
typedef struct branch_window {
    const pare_branch_step *step;
    const branch_times *times;
    int first, count, groups;
    int parent[PARE_BRANCH_REACH];
} branch_window;

typedef struct branch_group {
    int64_t time;
    uint64_t steps;
    bool first_stream;
} branch_group;

static double macs_rate(pare_dtype type)
{
    const int bits = pare_type(type)->bits;
    return bits == 8 ? MACS_8_BIT : bits == 16 ? MACS_16_BIT : MACS_FLOAT;
}

/* The share of the device that a product's blocks have. */
static double share_of(const pare_branch_step *s)
{
    const double filled = s->outputs / FILLING_OUTPUTS;
    if (pare_type(s->type)->bits <= 16 || filled > 1) return 1;
    return fmax(filled, LEAST_SHARE);
}

static branch_times times_of(const pare_branch_step *s)
{
    const double moving = s->bytes / BYTES, multiplying = s->macs / macs_rate(s->type);
    const double alone = fmax(moving, multiplying / share_of(s));
    const double least = s->macs > 0 ? PRODUCT_SECONDS : OTHER_SECONDS;
    return (branch_times){.alone = (int64_t)(fmax(alone, least) * 1e9),
                          .work = (int64_t)(fmax(moving, multiplying) * 1e9)};
}

static int group_of(const branch_window *w, int i)
{
    while (w->parent[i] != i) i = w->parent[i];
    return i;
}

/* The next step joins every group that it must follow. */
static void window_extend(branch_window *w)
{
    const int i = w->count++;
    w->parent[i] = i;
    w->groups++;
    for (int k = 0; k < i; k++) {
        if (!(w->step[w->first + i].after >> k & 1)) continue;
        const int other = group_of(w, i - 1 - k), own = group_of(w, i);
        if (other == own) continue;
        w->parent[own > other ? own : other] = own > other ? other : own;
        w->groups--;
    }
}

/* In order of time, the longest first. Returns how many there are. */
static int groups_sort(const branch_window *w, branch_group *out)
{
    branch_group all[PARE_BRANCH_REACH];
    int count = 0;
    memset(all, 0, sizeof all);
    for (int i = 0; i < w->count; i++) {
        branch_group *g = &all[group_of(w, i)];
        g->time += w->times[w->first + i].alone;
        g->steps |= (uint64_t)1 << i;
        g->first_stream = g->first_stream || w->step[w->first + i].first_stream;
    }
    for (int i = 0; i < w->count; i++) {
        if (!all[i].steps) continue;
        int at = count++;
        for (; at > 0 && out[at - 1].time < all[i].time; at--) out[at] = out[at - 1];
        out[at] = all[i];
    }
    return count;
}

/* What a region of the window's steps saves in ns, and which are in its second stream. */
static int64_t window_saves(const branch_window *w, uint64_t *side)
{
    branch_group group[MOST_GROUPS];
    int64_t set[2] = {0}, work = 0, longest;
    *side = 0;
    if (w->groups < 2 || w->groups > MOST_GROUPS) return 0;
    const int count = groups_sort(w, group);
    for (int i = 0; i < count; i++)
        if (group[i].first_stream) set[0] += group[i].time;
    for (int i = 0; i < count; i++) {
        if (group[i].first_stream) continue;
        const int to = set[1] < set[0];
        set[to] += group[i].time;
        if (to) *side |= group[i].steps;
    }
    for (int i = 0; i < w->count; i++) work += w->times[w->first + i].work;
    longest = set[0] > set[1] ? set[0] : set[1];
    if (work > longest) longest = work;
    return set[0] + set[1] - longest - (int64_t)(PARE_BRANCH_SECONDS * 1e9);
}

/* Of equal choices the one with the longest regions: steps of the second stream begin the soonest,
   and what takes longer than it was taken to has the most room. */
static void regions_search(const pare_branch_step *step, const branch_times *times, int count,
                           branch_choice *best)
{
    for (int end = 0; end <= count; end++) best[end] = (branch_choice){.first = -1};
    for (int first = 0; first < count; first++) {
        if (first && best[first - 1].saved > best[first].saved)
            best[first] = (branch_choice){.saved = best[first - 1].saved, .first = -1};
        branch_window w = {.step = step, .times = times, .first = first};
        while (w.count < PARE_BRANCH_REACH && first + w.count < count &&
               !step[first + w.count].alone) {
            uint64_t side;
            window_extend(&w);
            const int64_t saved = window_saves(&w, &side);
            branch_choice *b = &best[first + w.count];
            if (saved > 0 && best[first].saved + saved > b->saved)
                *b = (branch_choice){best[first].saved + saved, first, side};
        }
    }
    if (count && best[count - 1].saved > best[count].saved)
        best[count] = (branch_choice){.saved = best[count - 1].saved, .first = -1};
}

static void regions_mark(pare_branch_step *step, int count, const branch_choice *best)
{
    int regions = 0;
    for (int i = 0; i < count; i++) step[i].region = -1, step[i].side = false;
    for (int end = count; end > 0;) {
        const branch_choice *b = &best[end];
        if (b->first < 0) {
            end--;
            continue;
        }
        for (int i = b->first; i < end; i++) {
            step[i].region = regions;
            step[i].side = b->side >> (i - b->first) & 1;
        }
        regions++;
        end = b->first;
    }
    for (int i = 0; i < count; i++) /* they were met last to first */
        if (step[i].region >= 0) step[i].region = regions - 1 - step[i].region;
}

pare_status pare_branches_choose(pare_ctx *ctx, pare_branch_step *step, int count)
{
    branch_times *times = pare_alloc(ctx, (size_t)count + 1, sizeof *times);
    branch_choice *best = pare_alloc(ctx, (size_t)count + 1, sizeof *best);
    const pare_status st = times && best ? PARE_OK : PARE_MEMORY;
    for (int i = 0; st == PARE_OK && i < count; i++) times[i] = times_of(&step[i]);
    if (st == PARE_OK) {
        regions_search(step, times, count, best);
        regions_mark(step, count, best);
    }
    pare_free(times);
    pare_free(best);
    return st;
}

/* --- of a plan --- */

static bool uses(const pare_place *place, int count, const pare_place *other)
{
    for (int i = 0; i < count; i++)
        if (pare_places_overlap(&place[i], other)) return true;
    return false;
}

/* Does one of the two write what the other reads or writes? Places are compared, not tensors: what
   lies on another's memory, under another shape or in its place, counts. Parts of one Concat have
   nothing in common. */
static bool in_order(const pare_step *a, const pare_step *b)
{
    for (int i = 0; i < a->out_count; i++) {
        const pare_place *y = &a->out[i];
        if (uses(b->in, b->in_count, y) || uses(b->out, b->out_count, y)) return true;
    }
    for (int i = 0; i < b->out_count; i++)
        if (uses(a->in, a->in_count, &b->out[i])) return true;
    return false;
}

static void step_read(const pare_plan *p, int i, pare_branch_step *out)
{
    const pare_step *s = &p->step[i];
    pare_step_info info;
    pare_plan_step(p, i, &info);
    *out =
        (pare_branch_step){.macs = info.macs,
                           .outputs = s->out_count ? (double)pare_view_count(&s->out[0].view) : 0,
                           .bytes = (double)info.bytes_in + (double)info.bytes_out,
                           .type = s->in_count ? s->in[0].view.dtype : info.dtype,
                           .alone = s->kernel->flags & PARE_KERNEL_HOST || s->gathers,
                           .first_stream = s->kernel->bind != NULL};
    for (int k = 0; k < PARE_BRANCH_REACH && k < i; k++)
        if (in_order(s, &p->step[i - 1 - k])) out->after |= (uint64_t)1 << k;
}

/* The steps' marks, and what scratch each stream needs. */
static void regions_take(pare_plan *p, const pare_branch_step *chosen)
{
    p->scratch_bytes = p->side_scratch_bytes = 0;
    p->branches = false;
    for (int i = 0; i < p->step_count; i++) {
        pare_step *s = &p->step[i];
        const int region = chosen ? chosen[i].region : -1;
        s->side = region >= 0 && chosen[i].side;
        s->forks = region >= 0 && (i == 0 || chosen[i - 1].region != region);
        s->joins = region >= 0 && (i + 1 == p->step_count || chosen[i + 1].region != region);
        p->branches = p->branches || s->side;
        size_t *scratch = s->side ? &p->side_scratch_bytes : &p->scratch_bytes;
        if (s->scratch > *scratch) *scratch = s->scratch;
    }
}

/* What is alive anywhere in a region stays so for all of it. */
static void lifetimes_extend(pare_plan *p)
{
    int first = 0;
    for (int i = 0; i < p->step_count; i++) {
        if (p->step[i].forks) first = p->step[i].position;
        if (!p->step[i].joins) continue;
        const int last = p->step[i].position;
        for (int r = 0; r < p->storage_count; r++) {
            pare_storage *root = &p->root[r];
            if (root->where != PARE_AT_BUFFER || root->first > last || root->last < first) continue;
            if (root->first > first) root->first = first;
            if (root->last < last) root->last = last;
        }
    }
}

/* Plans memory again, with the regions; *more: that takes too much more. before: bytes without. */
static pare_status regions_place(pare_plan *p, size_t before, bool *more)
{
    lifetimes_extend(p);
    PARE_TRY(pare_memory_plan(p->ctx, p));
    const size_t after = pare_plan_activation_bytes(p), granted = before / 4 + ((size_t)16 << 20);
    *more = after > before && after - before > granted;
    pare_log(p->ctx, PARE_LOG_DEBUG, "branches: %zu bytes for activations, %zu without%s", after,
             before, *more ? ": too many, so that there are none" : "");
    return PARE_OK;
}

static void regions_tell(const pare_plan *p)
{
    for (int i = 0; i < p->step_count; i++)
        if (p->step[i].side)
            pare_log(p->ctx, PARE_LOG_DEBUG, "branches: %s %s is in the second stream",
                     p->step[i].node->op_type, p->step[i].node->name);
}

/* Memory as it is without regions, for runners that have no room for them. */
static pare_status single_keep(pare_plan *p, const pare_storage *root, const pare_single *was)
{
    pare_single *s = pare_arena_alloc(&p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    *s = *was;
    s->offset = pare_arena_alloc(&p->arena, (size_t)p->storage_count + 1, sizeof *s->offset);
    if (!s->offset) return PARE_MEMORY;
    for (int i = 0; i < p->storage_count; i++) s->offset[i] = root[i].offset;
    p->single = s;
    return PARE_OK;
}

static pare_status branches_find(pare_plan *p, pare_branch_step *chosen, pare_storage *kept)
{
    bool more = false;
    for (int i = 0; i < p->step_count; i++) step_read(p, i, &chosen[i]);
    PARE_TRY(pare_branches_choose(p->ctx, chosen, p->step_count));
    PARE_TRY(pare_memory_plan(p->ctx, p));
    const size_t before = pare_plan_activation_bytes(p);
    const pare_single single = {.buffer_bytes = p->buffer_bytes, .scratch_bytes = p->scratch_bytes};
    regions_take(p, chosen);
    if (!p->branches) return PARE_OK;
    memcpy(kept, p->root, (size_t)p->storage_count * sizeof *kept);
    PARE_TRY(regions_place(p, before, &more));
    if (!more) {
        regions_tell(p);
        return single_keep(p, kept, &single);
    }
    memcpy(p->root, kept, (size_t)p->storage_count * sizeof *kept);
    regions_take(p, NULL);
    return pare_memory_plan(p->ctx, p);
}

/* Observers and parts of a model want the steps in one stream, and canonical execution has several
   runners side by side. */
static bool may_branch(const pare_plan_options *o)
{
    return o->device && !o->one_stream && !o->deterministic && !o->reference && !o->keep_all &&
           !o->keep_count && o->stages < 2 && o->shards < 2;
}

pare_status pare_branches_place(pare_plan *p)
{
    if (!may_branch(&p->options)) return pare_memory_plan(p->ctx, p);
    pare_branch_step *chosen = pare_alloc(p->ctx, (size_t)p->step_count + 1, sizeof *chosen);
    pare_storage *kept = pare_alloc(p->ctx, (size_t)p->storage_count + 1, sizeof *kept);
    const pare_status st = chosen && kept ? branches_find(p, chosen, kept) : PARE_MEMORY;
    pare_free(chosen);
    pare_free(kept);
    return st;
}
