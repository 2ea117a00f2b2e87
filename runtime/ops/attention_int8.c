/* SPDX-License-Identifier: Apache-2.0 */
/* pare.QAttention: its attributes, and what a GPU has a kernel for. */
#include "runtime/ops/attention.h"

static pare_status positive(const pare_node *node, const char *name, float *out)
{
    *out = pare_node_float(node, name, 1);
    if (*out > 0 && isfinite(*out)) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "%s is %g, expected a positive number", name, (double)*out);
}

/* A zero point that codes of input i may have. */
static pare_status zero_of(const pare_node *node, int i, const char *name, int32_t *out)
{
    const pare_value *x = pare_node_in(node, i);
    const int64_t zero = pare_node_int(node, name, 0);
    if (!x || !pare_type_is_int8(x->dtype))
        return PARE_FAIL_NODE(node, INPUT, "input %d is of type %s, expected s8 or u8", i,
                              x ? pare_type(x->dtype)->name : "none");
    const int low = x->dtype == PARE_s8 ? -128 : 0;
    *out = (int32_t)zero;
    if (zero >= low && zero <= low + 255) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "%s is %lld, which is no %s", name, (long long)zero,
                          pare_type(x->dtype)->name);
}

pare_status pare_q_attention_read(const pare_node *node, pare_q_attention *out)
{
    const pare_act none = {.kind = PARE_ACT_NONE};
    const pare_value *mask = pare_node_in(node, 3);
    pare_quant_args q;
    float v_scale;
    PARE_TRY(positive(node, "scale", &out->scale));
    PARE_TRY(zero_of(node, 0, "q_zero_point", &out->q_zero));
    PARE_TRY(zero_of(node, 1, "k_zero_point", &out->k_zero));
    PARE_TRY(zero_of(node, 2, "v_zero_point", &out->v_zero));
    PARE_TRY(positive(node, "p_scale", &out->p_scale));
    PARE_TRY(positive(node, "v_scale", &v_scale));
    PARE_TRY(pare_quant_read(node, &q));
    const int64_t steps = pare_node_int(node, "p_steps", 255);
    if (steps < 0 || steps > 255)
        return PARE_FAIL_NODE(node, INPUT, "p_steps is %lld, expected 0 to 255", (long long)steps);
    if (mask && mask->dtype != PARE_f32)
        return PARE_FAIL_NODE(node, INPUT, "mask '%s' is of type %s, expected f32", mask->name,
                              pare_type(mask->dtype)->name);
    out->p_steps = (float)steps;
    pare_epilogue_init(&out->epilogue, &q, &none, PARE_NOTYPE);
    out->m = pare_epilogue_scale(&out->epilogue, out->p_scale, v_scale);
    return PARE_OK;
}

/* --- what the kernel takes --- */

enum { CHUNK = 16, MOST_DEPTH = 128, MOST_SHARED = 96 * 1024 };
/* Keys that 96 KiB of shared memory hold: rows of K or V, wide ones and others. */
enum { MOST_KEYS = 1024, MOST_KEYS_WIDE = 512, WIDE = 64 };

/* Steps so small that what a mask takes away might be one. */
#define LEAST_SCALE 1e-10f
/* Scores so large that a mask of -1e30 would not take a key away: sums are below 2^23. */
#define MOST_SCALE 1e20f

/* Are rows of bytes together, in chunks, and all of them at multiples of `aligned`? */
static bool rows_lie(const pare_view *v, int64_t aligned)
{
    const int last = v->rank - 1;
    bool well = (v->stride[last] == 1 || v->dim[last] == 1) && v->dim[last] % CHUNK == 0 &&
                v->dim[last] <= MOST_DEPTH;
    for (int i = 0; i < last; i++) well = well && (v->dim[i] == 1 || v->stride[i] % aligned == 0);
    return well;
}

bool pare_q_attention_fits(const pare_attention_views *x, const pare_q_attention *a)
{
    const int r = x->y.rank;
    if (r < 2 || r > 5 || x->q.rank != r || x->k.rank != r || x->v.rank != r) return false;
    const int64_t keys = x->k.dim[r - 2];
    return rows_lie(&x->q, CHUNK) && rows_lie(&x->k, CHUNK) && rows_lie(&x->v, CHUNK) &&
           rows_lie(&x->y, CHUNK / 4) && keys >= 1 &&
           keys <= (pare_q_attention_is_wide(x) ? MOST_KEYS_WIDE : MOST_KEYS) &&
           x->q.dim[r - 2] <= INT32_MAX / 2 && a->p_scale > LEAST_SCALE && a->scale < MOST_SCALE &&
           (a->p_steps == 255 || a->p_steps == 127 || a->p_scale * (a->p_steps + 0.25f) > 1);
}

int pare_q_attention_slice(int keys, int slices)
{
    return ((keys + slices - 1) / slices + 15) / 16 * 16;
}

enum { MOST_GROUPS = 8, FEW_BLOCKS = 66 /* half of an H100's multiprocessors */ };

bool pare_q_attention_is_wide(const pare_attention_views *x)
{
    const int last = x->y.rank - 1;
    return x->q.dim[last] > WIDE || x->y.dim[last] > WIDE;
}

/* Blocks of as many groups as share K and V well; of fewer, and more slices, where blocks would
   leave most of a device idle. */
pare_q_attention_blocks pare_q_attention_blocks_of(int64_t heads, int queries, int keys, bool wide)
{
    const int warps = wide ? PARE_Q_ATTENTION_WARPS / 2 : PARE_Q_ATTENTION_WARPS;
    const int all = (queries + PARE_Q_ATTENTION_QUERIES - 1) / PARE_Q_ATTENTION_QUERIES;
    pare_q_attention_blocks b = {.slices =
                                     (keys + PARE_Q_ATTENTION_KEYS - 1) / PARE_Q_ATTENTION_KEYS};
    int most = warps / b.slices;
    if (most > MOST_GROUPS) most = MOST_GROUPS;
    b.blocks = (all + most - 1) / most;
    for (; most > 1 && heads * b.blocks <= FEW_BLOCKS; b.blocks = (all + most - 1) / most)
        most /= 2;
    b.groups = b.blocks ? (all + b.blocks - 1) / b.blocks : 1;
    while (heads * b.blocks <= FEW_BLOCKS && b.slices * 2 * b.groups <= warps &&
           keys > b.slices * (PARE_Q_ATTENTION_KEYS / 4))
        b.slices *= 2;
    b.slice = pare_q_attention_slice(keys, b.slices);
    return b;
}

/* Q, K and V, of which the sums come where K and V were; a mask's row and what zero points add to
   keys; the same of queries; maxima and sums of slices. Rows end with 16 bytes of their own. */
static size_t shared_of(const pare_q_attention_blocks *b, int depth, int factors)
{
    const size_t queries = (size_t)(b->groups * PARE_Q_ATTENTION_QUERIES),
                 keys = (size_t)pare_q_attention_rows(b->slice, b->slices),
                 row = (size_t)depth + CHUNK, brought = (size_t)factors * keys * row,
                 sums = queries * ((size_t)depth + 4) * sizeof(int32_t);
    return queries * row + (brought > sums ? brought : sums) + keys * 2 * sizeof(float) +
           queries * sizeof(int32_t) + (size_t)b->slices * queries * 2 * sizeof(float);
}

bool pare_q_attention_in_turn(const pare_q_attention_blocks *b, int depth)
{
    return shared_of(b, depth, 2) > MOST_SHARED;
}

size_t pare_q_attention_shared(const pare_q_attention_blocks *b, int depth)
{
    return shared_of(b, depth, pare_q_attention_in_turn(b, depth) ? 1 : 2);
}
