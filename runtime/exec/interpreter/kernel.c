/* SPDX-License-Identifier: Apache-2.0 */
/* One node by a kernel. Its shape rule is asked with the shapes of its inputs. Inputs whose content
   the rule asked for in vain are given to it as constants, and what is prepared then holds for that
   content only. The last resort is to give it the content of all inputs. */
#include "runtime/base/size.h"
#include "runtime/exec/interpreter/interpreter.h"
#include "runtime/exec/plan.h"

#include <stdlib.h>
#include <string.h>

struct pare_prepared {
    pare_arena arena;
    const pare_kernel *kernel;
    void *state;
    size_t scratch;
    pare_view *in, *out;         /* data NULL but of the model's constants and of content */
    pare_tensor **content;       /* (in_count): copies; NULL: the input may hold anything */
    const pare_kernel *measured; /* by it: the shapes of outputs hold for this run only */
    void *found;                 /* by measuring */
    unsigned long long used;
};

void pare_prepared_free(pare_prepared *p)
{
    if (!p) return;
    if (p->kernel && p->kernel->release && p->state) p->kernel->release(p->state);
    if (p->found && p->measured->unbind) p->measured->unbind(p->found);
    pare_arena_free(&p->arena);
    pare_free(p);
}

static bool is_constant(const pare_value *v) { return v->is_init && v->data; }

/* --- looking it up --- */

static bool view_equal(const pare_view *a, const pare_view *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim);
}

static bool serves(const pare_prepared *p, const pare_view *in, int count)
{
    if (!p || p->measured) return false;
    for (int i = 0; i < count; i++) {
        if (!view_equal(&p->in[i], &in[i])) return false;
        const pare_tensor *t = p->content[i];
        if (t && t->bytes && memcmp(t->data, in[i].data, t->bytes)) return false;
    }
    return true;
}

static pare_prepared *find(pare_item *item, const pare_view *in)
{
    for (int i = 0; i < PARE_PREPARED_KEPT; i++)
        if (serves(item->prepared[i], in, item->node->in_count)) return item->prepared[i];
    return NULL;
}

/* In the place of the one that was not used for the longest time. */
static void keep(pare_item *item, pare_prepared *p)
{
    int oldest = 0;
    for (int i = 0; i < PARE_PREPARED_KEPT; i++) {
        if (!item->prepared[i]) {
            oldest = i;
            break;
        }
        if (item->prepared[i]->used < item->prepared[oldest]->used) oldest = i;
    }
    pare_prepared_free(item->prepared[oldest]);
    item->prepared[oldest] = p;
}

/* --- the node as rules and kernels see it --- */

static void node_enter(pare_node *node, const pare_prepared *p)
{
    for (int i = 0; i < node->in_count; i++) {
        pare_value *v = node->in[i];
        if (!v || is_constant(v)) continue;
        v->dtype = p->in[i].dtype;
        v->shape = pare_view_shape(&p->in[i]);
        v->asked = false;
        if (p->content[i]) v->data = p->content[i];
    }
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i] && p->out[i].dtype) {
            node->out[i]->dtype = p->out[i].dtype;
            node->out[i]->shape = pare_view_shape(&p->out[i]);
        }
}

static void node_leave(pare_node *node)
{
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i] && !node->in[i]->is_init) node->in[i]->data = NULL;
}

static pare_status content_keep(pare_prepared *p, const pare_node *node, int i,
                                const pare_view *view)
{
    pare_tensor *t = pare_arena_alloc(&p->arena, 1, sizeof *t);
    int64_t *dims = pare_arena_memdup(&p->arena, view->dim, sizeof view->dim);
    if (!t || !dims) return PARE_MEMORY;
    size_t bytes = pare_view_bytes(view);
    t->name = node->in[i]->name;
    t->dtype = view->dtype;
    t->rank = view->rank;
    t->dims = dims;
    t->count = pare_view_count(view);
    t->bytes = bytes;
    t->data = pare_arena_memdup(&p->arena, view->data, bytes);
    if (bytes && !t->data) return PARE_MEMORY;
    p->content[i] = t;
    p->in[i].data = (void *)t->data;
    return PARE_OK;
}

/* --- shapes --- */

static bool shapes_known(const pare_node *node)
{
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i] && (!node->out[i]->dtype || !pare_shape_known(&node->out[i]->shape)))
            return false;
    return true;
}

static const pare_kernel *measuring(const pare_op *op)
{
    const pare_kernel *const *k = op->cpu;
    while (*k && !(*k)->measure) k++;
    return *k;
}

/* The content of inputs that the rule asked for and did not get; *more: there was one. */
static pare_status asked_give(pare_prepared *p, const pare_node *node, const pare_view *in,
                              bool *more)
{
    *more = false;
    for (int i = 0; i < node->in_count; i++) {
        const pare_value *v = node->in[i];
        if (!v || p->content[i] || is_constant(v) || !v->asked) continue;
        PARE_TRY(content_keep(p, node, i, &in[i]));
        *more = true;
    }
    return PARE_OK;
}

static pare_status measure(pare_interpreter *it, const pare_item *item, pare_prepared *p,
                           const pare_view *in, const pare_kernel *kernel)
{
    const pare_node *n = item->node;
    pare_shape *shape = pare_arena_alloc(&p->arena, (size_t)n->out_count + 1, sizeof *shape);
    if (!shape) return PARE_MEMORY;
    pare_call call = {.ctx = it->ctx,
                      .node = n,
                      .in = in,
                      .in_count = n->in_count,
                      .out_count = n->out_count,
                      .threads = it->threads};
    p->measured = kernel;
    pare_status st = kernel->measure(&call, shape);
    p->found = call.bound;
    for (int i = 0; i < n->out_count && st == PARE_OK; i++)
        if (n->out[i]) n->out[i]->shape = shape[i];
    return st;
}

static pare_status fail_unknown(const pare_node *n)
{
    char text[256];
    for (int i = 0; i < n->out_count; i++)
        if (n->out[i] && (!n->out[i]->dtype || !pare_shape_known(&n->out[i]->shape)))
            return PARE_FAIL_NODE(n, UNSUPPORTED, "the shape of tensor '%s' is not known: %s",
                                  n->out[i]->name,
                                  pare_shape_text(&n->out[i]->shape, text, sizeof text));
    return PARE_OK;
}

static pare_status shapes_find(pare_interpreter *it, const pare_item *item, pare_prepared *p,
                               const pare_view *in)
{
    const pare_kernel *kernel = measuring(item->op);
    for (bool more = true; more;) {
        node_enter(item->node, p);
        PARE_TRY(pare_op_infer(item->node));
        if (shapes_known(item->node)) return PARE_OK;
        if (kernel) return measure(it, item, p, in, kernel);
        PARE_TRY(asked_give(p, item->node, in, &more));
    }
    return fail_unknown(item->node);
}

/* --- preparing --- */

static pare_status kernel_find(const pare_interpreter *it, const pare_item *item,
                               const pare_prep *prep, const pare_kernel **out)
{
    for (const pare_kernel *const *k = item->op->cpu; *k; k++)
        if ((!it->reference || (*k)->flags & (PARE_KERNEL_REF | PARE_KERNEL_ALIAS)) &&
            (!(*k)->can || (*k)->can(prep))) {
            *out = *k;
            return PARE_OK;
        }
    const pare_value *x = prep->in_count ? prep->node->in[0] : NULL;
    return PARE_FAIL_NODE(prep->node, UNSUPPORTED, "no kernel takes type %s",
                          x ? pare_type(x->dtype)->name : "?");
}

static pare_status output_view(const pare_node *node, const pare_value *v, pare_view *out)
{
    char text[256];
    size_t bytes;
    const int64_t count = pare_shape_count(&v->shape);
    const bool sized = pare_type(v->dtype)->bits > 0;
    if (count < 0 || (sized && !pare_type_bytes(v->dtype, count, &bytes)))
        return PARE_FAIL_NODE(node, INPUT, "the size of tensor '%s' %s overflows", v->name,
                              pare_shape_text(&v->shape, text, sizeof text));
    pare_view_set(out, v->dtype, &v->shape, false);
    return PARE_OK;
}

static pare_status prepare(pare_interpreter *it, pare_item *item, pare_prepared *p,
                           const pare_view *in)
{
    const pare_node *n = item->node;
    PARE_TRY(shapes_find(it, item, p, in));
    for (int i = 0; i < n->out_count; i++)
        if (n->out[i]) PARE_TRY(output_view(n, n->out[i], &p->out[i]));
    node_enter(item->node, p);
    pare_prep prep = {.ctx = it->ctx,
                      .node = n,
                      .in = p->in,
                      .out = p->out,
                      .in_count = n->in_count,
                      .out_count = n->out_count,
                      .threads = it->threads,
                      .arena = &p->arena,
                      .share = -1};
    PARE_TRY(kernel_find(it, item, &prep, &p->kernel));
    if (p->kernel->flags & PARE_KERNEL_ALIAS) return PARE_OK;
    pare_status st = pare_kernel_prepare(p->kernel, &prep);
    p->state = st == PARE_OK ? prep.state : NULL;
    p->scratch = prep.scratch;
    return st;
}

static pare_status prepared_new(pare_interpreter *it, pare_item *item, const pare_view *in,
                                bool all, pare_prepared **out)
{
    const pare_node *n = item->node;
    pare_prepared *p = pare_alloc(it->ctx, 1, sizeof *p);
    if (!p) return PARE_MEMORY;
    pare_arena_init(&p->arena, it->ctx);
    p->in = pare_arena_alloc(&p->arena, (size_t)n->in_count + 1, sizeof *p->in);
    p->out = pare_arena_alloc(&p->arena, (size_t)n->out_count + 1, sizeof *p->out);
    p->content = pare_arena_alloc(&p->arena, (size_t)n->in_count + 1, sizeof *p->content);
    pare_status st = p->in && p->out && p->content ? PARE_OK : PARE_MEMORY;
    for (int i = 0; i < n->in_count && st == PARE_OK; i++) {
        if (!n->in[i]) continue;
        p->in[i] = in[i];
        if (is_constant(n->in[i])) continue;
        p->in[i].data = NULL;
        if (all) st = content_keep(p, n, i, &in[i]);
    }
    if (st == PARE_OK) st = prepare(it, item, p, in);
    node_leave(item->node);
    if (st != PARE_OK) {
        pare_prepared_free(p);
        return st;
    }
    *out = p;
    return PARE_OK;
}

static pare_status prepared_get(pare_interpreter *it, pare_item *item, const pare_view *in,
                                pare_prepared **out)
{
    *out = find(item, in);
    if (*out) return PARE_OK;
    pare_status st = prepared_new(it, item, in, false, out);
    if (st == PARE_INPUT || st == PARE_UNSUPPORTED) {
        pare_ctx_clear(it->ctx);
        st = prepared_new(it, item, in, true, out);
    }
    if (st == PARE_OK) keep(item, *out);
    return st;
}

/* --- running --- */

static pare_status scratch_reserve(pare_interpreter *it, size_t bytes)
{
    if (bytes <= it->scratch_bytes) return PARE_OK;
    free(it->scratch);
    it->scratch_bytes = 0;
    it->scratch = aligned_alloc(64, pare_align_up(bytes, 64));
    if (!it->scratch)
        return PARE_FAIL(it->ctx, MEMORY,
                         "%s: out of memory: %zu bytes for scratch were not granted",
                         it->model->path, bytes);
    it->scratch_bytes = bytes;
    return PARE_OK;
}

static pare_status kernel_call(pare_interpreter *it, pare_item *item, pare_prepared *p,
                               const pare_view *in, const pare_view *out)
{
    pare_arena arena;
    PARE_TRY(scratch_reserve(it, p->scratch));
    pare_call call = {.ctx = it->ctx,
                      .node = item->node,
                      .in = in,
                      .out = out,
                      .in_count = item->node->in_count,
                      .out_count = item->node->out_count,
                      .threads = it->threads,
                      .state = p->state,
                      .bound = p->found,
                      .scratch = it->scratch};
    p->found = NULL;
    pare_arena_init(&arena, it->ctx);
    pare_status st = p->kernel->bind ? p->kernel->bind(&call, &arena) : PARE_OK;
    if (st == PARE_OK) {
        st = p->kernel->run(&call);
        if (p->kernel->unbind) p->kernel->unbind(call.bound);
    }
    pare_arena_free(&arena);
    return st;
}

static pare_status outputs_make(pare_interpreter *it, pare_item *item, const pare_prepared *p,
                                pare_view *out)
{
    const pare_node *n = item->node;
    for (int i = 0; i < n->out_count; i++) {
        pare_object y;
        if (!n->out[i]) continue;
        const pare_shape shape = pare_view_shape(&p->out[i]);
        if (p->kernel->flags & PARE_KERNEL_ALIAS) {
            y = pare_object_hold(pare_item_in(it, item, 0));
            pare_view_set(&y.view, p->out[i].dtype, &shape, false);
        } else {
            pare_status st = pare_object_tensor(it->ctx, &y, p->out[i].dtype, &shape);
            if (st != PARE_OK) {
                char title[512];
                return pare_fail_prefix(it->ctx, st, "%s", pare_node_title(n, title, sizeof title));
            }
        }
        out[i] = y.view;
        pare_item_give(it, item, i, y);
    }
    return PARE_OK;
}

pare_status pare_item_run(pare_interpreter *it, pare_item *item)
{
    pare_node *n = item->node;
    enum { MOST = 32 };
    pare_view few_in[MOST] = {0}, few_out[MOST] = {0}, *in = few_in, *out = few_out;
    pare_arena arena;
    pare_prepared *p;
    pare_arena_init(&arena, it->ctx);
    if (n->in_count > MOST) in = pare_arena_alloc(&arena, (size_t)n->in_count, sizeof *in);
    if (n->out_count > MOST) out = pare_arena_alloc(&arena, (size_t)n->out_count, sizeof *out);
    pare_status st = in && out ? PARE_OK : PARE_MEMORY;
    for (int i = 0; i < n->in_count && st == PARE_OK; i++) {
        const pare_object *x;
        if (item->in[i] < 0) continue;
        st = pare_item_tensor(it, item, i, &x);
        if (st == PARE_OK) in[i] = x->view;
    }
    if (st == PARE_OK) st = prepared_get(it, item, in, &p);
    if (st == PARE_OK) item->kernel = p->kernel;
    if (st == PARE_OK) st = outputs_make(it, item, p, out);
    if (st == PARE_OK && !(p->kernel->flags & PARE_KERNEL_ALIAS)) {
        p->used = ++it->clock;
        node_enter(n, p);
        st = kernel_call(it, item, p, in, out);
        node_leave(n);
    }
    pare_arena_free(&arena);
    return st;
}
