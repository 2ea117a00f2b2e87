/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/passes/train/qat_levels.h"
#include "runtime/passes/train/fake_quantize.h"

#include <string.h>

/* splitmix64 (Steele, Lea, Flood 2014) as a number in (-0.5, 0.5). */
static float offset_of(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    z ^= z >> 31;
    return ((float)(z >> 41) + 0.5f) * 0x1p-23f - 0.5f;
}

static void spread(const pare_fake *f, const pare_tensor *t, const pare_tensor *scale,
                   const pare_tensor *zero, uint64_t *state, float *to)
{
    const pare_qat_grid g = pare_qat_grid_of(t, f->axis);
    const float *from = t->data, *s = scale->data;
    for (int64_t o = 0; o < g.outer; o++)
        for (int64_t c = 0; c < g.channels; c++)
            for (int64_t k = 0, i = pare_fake_at(&g, o, c); k < g.inner; k++, i++) {
                const int z = pare_qat_zero(zero, c);
                const float moved = from[i] + offset_of(state) * s[c];
                const bool same = pare_qat_level(moved, s[c], z, f->low, f->high) ==
                                  pare_qat_level(from[i], s[c], z, f->low, f->high);
                to[i] = same && from[i] != 0 ? moved : from[i];
            }
}

static pare_status spread_weight(pare_model *model, const pare_fake *f, uint64_t *state)
{
    pare_value *v = pare_graph_find_own(model->graph, f->tensor);
    const pare_tensor *t = v->data, *zero = NULL;
    const pare_tensor *scale = pare_graph_find_own(model->graph, f->scale)->data;
    if (f->zero) zero = pare_graph_find_own(model->graph, f->zero)->data;
    float *to = pare_alloc(model->ctx, (size_t)t->count, sizeof *to);
    pare_tensor *made;
    if (!to) return PARE_MEMORY;
    spread(f, t, scale, zero, state, to);
    pare_status st = pare_tensor_new(model, &made, t->name, PARE_f32, t->rank, t->dims, to);
    pare_free(to);
    return st == PARE_OK ? pare_value_set_init(v, made) : st;
}

pare_status pare_pass_qat_init(pare_model *trained, const pare_fakes *fakes, uint64_t seed)
{
    uint64_t state = seed;
    for (int i = 0; i < fakes->count; i++) {
        const pare_fake *f = &fakes->item[i];
        const bool integers = f->kind == PARE_FAKE_WEIGHT && strcmp(f->tensor, f->file_tensor) != 0;
        if (integers && !f->from_f32) PARE_TRY(spread_weight(trained, f, &state));
    }
    return PARE_OK;
}
