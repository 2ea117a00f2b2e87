/* SPDX-License-Identifier: Apache-2.0 */
/* Concats in place: the same bytes as those of plans that copy, in every order of streams and
   threads, and what is still copied. A plan whose tensors are observed copies. */
#include "runtime/cuda/cuda.h"
#include "runtime/eval/roofline.h"
#include "runtime/exec/runner.h"
#include "tests/cpu/kernel_case.h"
#include "tests/cuda/concat_net.h"
#include "tests/simt/testing.h"

#include <math.h>

typedef struct concat_trial {
    concat_net n;
    pare_device *device;
    pare_plan *plan, *copying, *host; /* in place; that copies; on the CPU */
    int64_t batch;
} concat_trial;

static void check(concat_trial *t, pare_status st)
{
    if (st != PARE_OK) fail_msg("%s", t->n.g.ctx.message);
}

static void plan_make(concat_trial *t, pare_plan **out, pare_device *device, bool copies)
{
    const pare_input_shape shape = {"x", {.rank = 4, .dim = {t->batch, 16, 8, 8}}};
    static const char *const keep[] = {"x"};
    const pare_plan_options options = {
        .threads = 1, .device = device, .keep = keep, .keep_count = copies};
    check(t, pare_plan_new(&t->n.g.ctx, out, t->n.g.model, &shape, 1, &options));
}

static void trial_open(concat_trial *t, concat_form form, concat_make make, int64_t batch)
{
    *t = (concat_trial){.batch = batch};
    concat_open(&t->n, form, make, 16, 8);
    check(t, pare_cuda_open(&t->n.g.ctx, &t->device, 0, 0));
    plan_make(t, &t->plan, t->device, false);
    plan_make(t, &t->copying, t->device, true);
    plan_make(t, &t->host, NULL, false);
}

static void trial_close(concat_trial *t)
{
    pare_plan_free(t->plan);
    pare_plan_free(t->copying);
    pare_plan_free(t->host);
    pare_device_close(t->device);
    graph_close(&t->n.g);
}

/* --- what is copied --- */

static bool copies(const char *op)
{
    return !strcmp(op, "Concat") || !strcmp(op, "QConcat") || !strcmp(op, "Split") ||
           !strcmp(op, "Slice");
}

/* Bytes that Concats, Splits and Slices write, and their steps. */
static size_t copied(const pare_plan *p, int *steps)
{
    size_t bytes = 0;
    *steps = 0;
    for (int i = 0; i < p->step_count; i++) {
        pare_step_info info;
        pare_plan_step(p, i, &info);
        if (!copies(info.op_type)) continue;
        ++*steps;
        bytes += info.bytes_out;
        if (strstr(info.op_type, "Concat")) assert_true(info.bytes_in == info.bytes_out);
    }
    return bytes;
}

/* Every part is inside its root, and no root is in another one's memory while both are alive. */
static void memory_is_right(const pare_plan *p)
{
    for (int i = 0; i < p->step_count; i++)
        for (int k = 0; k < p->step[i].out_count; k++) {
            const pare_place *y = &p->step[i].out[k];
            if (y->root < 0) continue;
            const pare_storage *r = &p->root[y->root];
            assert_true(y->at + pare_view_reach(&y->view) <= r->bytes);
            assert_true(r->first <= p->step[i].node->mark && p->step[i].node->mark <= r->last);
        }
    for (int a = 0; a < p->storage_count; a++)
        for (int b = 0; b < a; b++) {
            const pare_storage *r = &p->root[a], *q = &p->root[b];
            if (r->where != PARE_AT_BUFFER || q->where != PARE_AT_BUFFER) continue;
            assert_true(r->first > q->last || q->first > r->last ||
                        r->offset + r->bytes <= q->offset || q->offset + q->bytes <= r->offset);
        }
}

/* --- runs --- */

static void input_fill(pare_runner *r, int run)
{
    const pare_view x = pare_runner_input(r, 0);
    for (int64_t i = 0; i < pare_view_count(&x); i++) {
        const float v = (float)((i + run) * 37 % 101) / 50 - 1;
        if (x.dtype == PARE_f16)
            ((uint16_t *)x.data)[i] = pare_f32_to_f16(v);
        else
            ((float *)x.data)[i] = v;
    }
}

static void runs_are_the_same(concat_trial *t, pare_runner *r, pare_runner *other, int run)
{
    input_fill(r, run), input_fill(other, run);
    check(t, pare_runner_run(r));
    check(t, pare_runner_run(other));
    for (int i = 0; i < pare_plan_output_count(t->plan); i++) {
        const pare_view y = pare_runner_output(r, i), z = pare_runner_output(other, i);
        assert_memory_equal(y.data, z.data, pare_view_bytes(&y));
    }
}

static double value_at(const pare_view *v, int64_t i)
{
    return (double)pare_type(v->dtype)->to_f32((const char *)v->data +
                                               i * (pare_type(v->dtype)->bits / 8));
}

/* INT8: the CPU's bytes; floats: sums in another order. */
static void host_is_near(concat_trial *t, pare_runner *r, pare_runner *host)
{
    input_fill(r, 9), input_fill(host, 9);
    check(t, pare_runner_run(r));
    check(t, pare_runner_run(host));
    for (int k = 0; k < pare_plan_output_count(t->plan); k++) {
        const pare_view y = pare_runner_output(r, k), z = pare_runner_output(host, k);
        if (t->n.form == CONCAT_INT8) assert_memory_equal(y.data, z.data, pare_view_bytes(&y));
        const double limit = t->n.form == CONCAT_F16 ? 1e-2 : 1e-4;
        for (int64_t i = 0; i < pare_view_count(&y); i++)
            assert_true(fabs(value_at(&y, i) - value_at(&z, i)) <=
                        limit * fmax(1, fabs(value_at(&z, i))));
    }
}

static pare_status look(void *user, const pare_value *value, const pare_view *view)
{
    (void)value;
    for (int64_t i = 0; i < pare_view_count(view) && pare_view_rowmajor(view); i++)
        *(double *)user += value_at(view, i);
    return PARE_OK;
}

static void order_set(int which)
{
    simt_set.streams = (simt_streams)(which % 4);
    simt_set.schedule = which < 4 ? SIMT_FIFO : which < 8 ? SIMT_REVERSED : SIMT_RANDOM;
    simt_set.seed = (uint64_t)which;
}

/* Runs step by step, recorded, played, watched; of three samples in one order. */
static void orders_give_the_same(concat_trial *t)
{
    enum { ORDERS = 12, STEP = 3 };
    const int first = t->batch > 1 || case_is_quick() ? ORDERS - STEP : 0;
    const simt_settings usual = simt_set;
    pare_runner *r, *other, *host;
    for (int order = first; order < (simt_emulated() ? ORDERS : first + 1); order += STEP) {
        double seen = 0;
        order_set(order);
        check(t, pare_runner_new(&t->n.g.ctx, &r, t->plan));
        check(t, pare_runner_new(&t->n.g.ctx, &other, t->copying));
        check(t, pare_runner_new(&t->n.g.ctx, &host, t->host));
        for (int run = 0; run < 3; run++) runs_are_the_same(t, r, other, run);
        pare_runner_observe(r, look, &seen);
        runs_are_the_same(t, r, other, 4);
        assert_true(isfinite(seen) && seen != 0);
        pare_runner_observe(r, NULL, NULL);
        if (order == first) host_is_near(t, r, host);
        pare_runner_free(r);
        pare_runner_free(other);
        pare_runner_free(host);
    }
    simt_set = usual;
}

/* `pare inspect --device` counts the same steps and bytes. */
static void prediction_has(concat_trial *t, int steps, size_t bytes)
{
    const pare_input_shape shape = {"x", {.rank = 4, .dim = {t->batch, 16, 8, 8}}};
    const pare_gpu_spec *spec;
    pare_roofline *r;
    double moved = 0;
    check(t, pare_gpu_spec_find(&t->n.g.ctx, &spec, "h200"));
    check(t, pare_roofline_new(&t->n.g.ctx, &r, t->n.g.model, &shape, 1, spec));
    for (int i = 0; i < pare_roofline_count(r); i++) {
        const pare_roofline_step *s = pare_roofline_at(r, i);
        if (!copies(s->op_type)) continue;
        steps--;
        moved += s->bytes;
    }
    assert_int_equal(steps, 0);
    assert_true(moved == 2 * (double)bytes);
    pare_roofline_free(r);
}

/* elements: that Concats still write for a sample, in place and where everything is copied. */
static void net_is_in_place(concat_form form, concat_make make, int64_t batch, int steps,
                            int64_t elements, int64_t all)
{
    static const size_t size[CONCAT_FORMS] = {4, 2, 1};
    concat_trial t;
    int left;
    trial_open(&t, form, make, batch);
    memory_is_right(t.plan);
    assert_int_equal(copied(t.plan, &left), size[form] * (size_t)(batch * elements));
    assert_int_equal(left, steps);
    prediction_has(&t, steps, size[form] * (size_t)(batch * elements));
    assert_int_equal(copied(t.copying, &left), size[form] * (size_t)(batch * all));
    assert_true(pare_plan_activation_bytes(t.plan) <= pare_plan_activation_bytes(t.copying) ||
                t.plan->branches);
    orders_give_the_same(&t);
    trial_close(&t);
}

enum { PIXELS = 64 };

static void forms_are_in_place(concat_make make, int steps, int64_t channels, int64_t all)
{
    for (int form = 0; form < CONCAT_FORMS; form++)
        for (int64_t batch = 1; batch <= 3; batch += 2)
            if (!case_is_quick() || batch / 2 == form % 2)
                net_is_in_place((concat_form)form, make, batch, steps, channels * PIXELS,
                                all * PIXELS);
}

static void an_inception(void **state)
{
    (void)state;
    forms_are_in_place(concat_inception, 0, 0, 96);
}

static void a_fire_module(void **state)
{
    (void)state;
    forms_are_in_place(concat_fire, 0, 0, 64);
}

/* Concats of all that was made before: parts of the longest one. */
static void a_dense_block(void **state)
{
    (void)state;
    forms_are_in_place(concat_dense, 0, 0, 48 + 64 + 80);
}

static void concats_of_concats(void **state)
{
    (void)state;
    forms_are_in_place(concat_nested, 0, 0, 48 + 64 + 80);
}

static void a_residual_and_a_part_that_is_added(void **state)
{
    (void)state;
    forms_are_in_place(concat_chain, 0, 0, 64 + 80);
}

static void a_split_and_a_concat(void **state)
{
    (void)state;
    forms_are_in_place(concat_split, 0, 0, 64 + 96);
    forms_are_in_place(concat_halves, 0, 0, 64);
}

/* What a Concat joins of a Slice is copied, once. */
static void slices_and_concats(void **state)
{
    (void)state;
    forms_are_in_place(concat_slices, 0, 0, 32 + 48 + 32 + 16);
    forms_are_in_place(concat_shuffle, 1, 32, 32 + 32 + 64);
}

static void one_tensor_twice(void **state)
{
    (void)state;
    forms_are_in_place(concat_twice, 1, 32, 80);
}

static void one_tensor_in_two_concats(void **state)
{
    (void)state;
    forms_are_in_place(concat_two, 1, 32, 96);
}

/* Parts of 8 and 24 bytes a pixel are copied, the one of 32 begins at 32 and is not. */
static void parts_that_are_not_aligned(void **state)
{
    (void)state;
    for (int64_t batch = 1; batch <= 3; batch += 2) {
        net_is_in_place(CONCAT_INT8, concat_odd, batch, 1, 32 * PIXELS, 64 * PIXELS);
        net_is_in_place(CONCAT_F16, concat_odd, batch, 0, 0, 64 * PIXELS);
        net_is_in_place(CONCAT_F32, concat_odd, batch, 0, 0, 64 * PIXELS);
    }
}

static void a_part_of_another_scale(void **state)
{
    (void)state;
    for (int64_t batch = 1; batch <= 3; batch += 2)
        net_is_in_place(CONCAT_INT8, concat_scales, batch, 1, 16 * PIXELS, 48 * PIXELS);
}

/* The constant is copied; an output is in the order of its file, and a copy of what is a part. */
static void inputs_outputs_and_constants(void **state)
{
    (void)state;
    net_is_in_place(CONCAT_F32, concat_ends, 1, 1, 16 * PIXELS, 64 * PIXELS);
    net_is_in_place(CONCAT_F16, concat_ends, 1, 1, 16 * PIXELS, 64 * PIXELS);
}

/* Of one sample a part is a stretch of the whole, under any shape; of three only what no other
   shape is made of has rows apart. */
static void sequences_under_another_shape(void **state)
{
    enum { PART = 128 * 32 };
    (void)state;
    net_is_in_place(CONCAT_F32, concat_rows, 1, 0, 0, 3 * PART);
    net_is_in_place(CONCAT_F16, concat_rows, 1, 0, 0, 3 * PART);
    net_is_in_place(CONCAT_F32, concat_rows, 3, 1, 2 * PART, 3 * PART);
}

/* Kernels chosen by the stopwatch, which gives them tensors with gaps. */
static void a_tuned_plan(void **state)
{
    (void)state;
    concat_trial t;
    const pare_input_shape shape = {"x", {.rank = 4, .dim = {3, 16, 8, 8}}};
    int left;
    trial_open(&t, CONCAT_INT8, concat_fire, 3);
    pare_plan_free(t.plan);
    const pare_plan_options options = {.threads = 1, .device = t.device, .tune = true};
    check(&t, pare_plan_new(&t.n.g.ctx, &t.plan, t.n.g.model, &shape, 1, &options));
    memory_is_right(t.plan);
    assert_int_equal(copied(t.plan, &left), 0);
    orders_give_the_same(&t);
    trial_close(&t);
}

/* --- kernels --- */

enum { BEFORE = 16, GAP = 48, EMPTY = 0x5a, TENSORS = 8 };

/* Tensors of a step in memory of their own, pictures behind BEFORE bytes and with GAP bytes between
   pixels, or dense. */
typedef struct laid_out {
    pare_view view[TENSORS], call[TENSORS]; /* for can and prepare; on the device */
    char *bytes[TENSORS];
    void *memory[TENSORS];
    size_t before[TENSORS], size[TENSORS];
} laid_out;

static size_t element_of(const pare_view *v) { return (size_t)pare_type(v->dtype)->bits / 8; }

/* Calls each(byte of the tensor, number of the element in the order of its indices). */
static void elements_each(const pare_view *v, char *bytes,
                          void (*each)(const pare_view *, char *, int64_t, void *), void *user)
{
    const int64_t count = pare_view_count(v);
    for (int64_t i = 0; i < count; i++) {
        int64_t left = i, at = 0;
        for (int a = v->rank - 1; a >= 0; a--) {
            at += left % v->dim[a] * v->stride[a];
            left /= v->dim[a];
        }
        each(v, bytes + at * (int64_t)element_of(v), i, user);
    }
}

static void element_make(const pare_view *v, char *to, int64_t i, void *user)
{
    const int code = (int)((i * 7919 + *(int *)user) % 251) - 125;
    if (v->data)
        memcpy(to, (const char *)v->data + i * (int64_t)element_of(v), element_of(v));
    else if (element_of(v) == 1)
        *to = (char)code;
    else
        pare_type(v->dtype)->from_f32_ref(to, (float)code / 100);
}

/* Takes it away: what is left was never written. */
static void element_take(const pare_view *v, char *from, int64_t i, void *user)
{
    memcpy((char *)user + i * (int64_t)element_of(v), from, element_of(v));
    memset(from, EMPTY, element_of(v));
}

static void view_lay_out(concat_trial *t, laid_out *l, int i, const pare_view *v, bool apart,
                         int made)
{
    const pare_backend *b = t->device->backend;
    pare_view *to = &l->view[i];
    *to = *v;
    if (v->dtype == PARE_NOTYPE) return;
    apart = apart && v->rank == 4 && !v->data && v->stride[1] == 1 && v->dim[1] > 4;
    l->before[i] = apart ? BEFORE : 0;
    for (int a = 0; a < 4 && apart; a++)
        if (a != 1)
            to->stride[a] = v->stride[a] / v->dim[1] * (v->dim[1] + GAP / (int64_t)element_of(v));
    l->size[i] = l->before[i] + pare_view_reach(to) + (apart ? GAP : 0);
    l->bytes[i] = malloc(l->size[i]);
    assert_non_null(l->bytes[i]);
    memset(l->bytes[i], EMPTY, l->size[i]);
    if (made >= 0) elements_each(to, l->bytes[i] + l->before[i], element_make, &made);
    check(t, b->alloc(&t->n.g.ctx, t->device, &l->memory[i], l->size[i]));
    check(t, b->upload(&t->n.g.ctx, t->device->setup, l->memory[i], l->bytes[i], l->size[i]));
    l->call[i] = *to;
    l->call[i].data = (char *)l->memory[i] + l->before[i];
}

static void laid_out_free(concat_trial *t, laid_out *l)
{
    for (int i = 0; i < TENSORS; i++) {
        free(l->bytes[i]);
        if (l->memory[i]) t->device->backend->free(t->device, l->memory[i]);
    }
}

/* What comes out is brought down and taken; nothing else was written. */
static void result_take(concat_trial *t, laid_out *l, int i, char *result)
{
    const pare_backend *b = t->device->backend;
    check(t, b->download(&t->n.g.ctx, t->device->setup, l->bytes[i], l->memory[i], l->size[i]));
    check(t, b->sync(&t->n.g.ctx, t->device->setup));
    elements_each(&l->view[i], l->bytes[i] + l->before[i], element_take, result);
    for (size_t k = 0; k < l->size[i]; k++) assert_int_equal((unsigned char)l->bytes[i][k], EMPTY);
}

/* False: the kernel does not take tensors that lie so. */
static bool kernel_run(concat_trial *t, const pare_kernel *k, const pare_step *s, bool apart,
                       char *result)
{
    laid_out l = {0};
    pare_arena arena;
    pare_arena_init(&arena, &t->n.g.ctx);
    assert_true(s->in_count < TENSORS && s->out_count == 1);
    for (int i = 0; i < s->in_count; i++) view_lay_out(t, &l, i, &s->in[i].view, apart, i);
    view_lay_out(t, &l, s->in_count, &s->out[0].view, apart, -1);
    pare_prep prep = {.ctx = &t->n.g.ctx,
                      .node = s->node,
                      .in = l.view,
                      .out = l.view + s->in_count,
                      .in_count = s->in_count,
                      .out_count = 1,
                      .threads = 1,
                      .parts = apart,
                      .arena = &arena,
                      .device = t->device,
                      .share = -1};
    const bool can = pare_kernel_serves(k, &prep);
    if (can) {
        void *scratch = NULL;
        check(t, pare_kernel_prepare(k, &prep));
        check(t, t->device->backend->alloc(&t->n.g.ctx, t->device, &scratch, prep.scratch + 1));
        const pare_call call = {.ctx = &t->n.g.ctx,
                                .node = s->node,
                                .in = l.call,
                                .out = l.call + s->in_count,
                                .in_count = s->in_count,
                                .out_count = 1,
                                .threads = 1,
                                .state = prep.state,
                                .scratch = scratch,
                                .stream = t->device->setup};
        check(t, k->run(&call));
        result_take(t, &l, s->in_count, result);
        t->device->backend->free(t->device, scratch);
        if (k->release) k->release(prep.state);
    }
    laid_out_free(t, &l);
    pare_arena_free(&arena);
    return can;
}

/* Kernels: all, and by wgmma those of many tiles and those of few. */
typedef struct kernel_counts {
    int all, wgmma, swap;
} kernel_counts;

/* Each kernel of the step that takes parts makes the same of tensors with gaps as of dense ones. */
static void kernels_are_right(concat_trial *t, const pare_step *s, kernel_counts *count)
{
    const size_t bytes = pare_view_bytes(&s->out[0].view);
    char *dense = malloc(bytes), *apart = malloc(bytes);
    assert_true(dense && apart);
    for (const pare_kernel *const *k = pare_op_of(s->node)->cuda; *k; k++) {
        if (!((*k)->flags & PARE_KERNEL_PARTS) || !kernel_run(t, *k, s, false, dense)) continue;
        if (!kernel_run(t, *k, s, true, apart)) continue;
        if (memcmp(dense, apart, bytes))
            fail_msg("%s of '%s' differs", (*k)->name, s->node->out[0]->name);
        const bool swap = strstr((*k)->name, "_wgmma_swap_");
        count->all++;
        count->swap += swap;
        count->wgmma += !swap && strstr((*k)->name, "_wgmma_");
    }
    free(dense), free(apart);
}

static void kernels_take_parts_of(concat_form form, concat_make make, int channels, int side,
                                  kernel_counts least)
{
    concat_trial t = {.batch = 1};
    const pare_input_shape shape = {"x", {.rank = 4, .dim = {1, channels, side, side}}};
    kernel_counts count = {0};
    concat_open(&t.n, form, make, channels, side);
    check(&t, pare_cuda_open(&t.n.g.ctx, &t.device, 0, 0));
    const pare_plan_options options = {.threads = 1, .device = t.device};
    check(&t, pare_plan_new(&t.n.g.ctx, &t.plan, t.n.g.model, &shape, 1, &options));
    for (int i = 0; i < t.plan->step_count; i++)
        if (t.plan->step[i].out_count == 1) kernels_are_right(&t, &t.plan->step[i], &count);
    if (count.all < least.all || count.wgmma < least.wgmma || count.swap < least.swap)
        fail_msg("%d kernels take parts, %d and %d by wgmma, expected %d, %d and %d", count.all,
                 count.wgmma, count.swap, least.all, least.wgmma, least.swap);
    pare_plan_free(t.plan);
    pare_device_close(t.device);
    graph_close(&t.n.g);
}

/* Of the emulated device all; others have another size, or no wgmma. */
static kernel_counts expected(kernel_counts emulated, int other)
{
    return simt_emulated() ? emulated : (kernel_counts){.all = other};
}

static void kernels_with_gaps_between_rows(void **state)
{
    (void)state;
    static const kernel_counts operators[CONCAT_FORMS] = {{20, 0, 0}, {38, 5, 12}, {46, 6, 9}},
                               stems[CONCAT_FORMS] = {{7, 0, 0}, {9, 0, 0}, {10, 0, 0}};
    static const int stems_elsewhere[CONCAT_FORMS] = {1, 9, 10};
    for (int form = 0; form < CONCAT_FORMS; form++) {
        kernels_take_parts_of((concat_form)form, concat_operators, 64, 14,
                              expected(operators[form], 14));
        kernels_take_parts_of((concat_form)form, concat_stem, 3, 20,
                              expected(stems[form], stems_elsewhere[form]));
    }
}

/* Tiles that want many rows for each multiprocessor, those of compute capability 9.0 among them. */
static void tiles_with_gaps_between_rows(void **state)
{
    (void)state;
    const simt_settings usual = simt_set;
    simt_set.multiprocessors = 12;
    const int side = simt_emulated() ? 30 : 94;
    kernels_take_parts_of(CONCAT_INT8, concat_tiles, 64, side,
                          expected((kernel_counts){26, 6, 9}, 12));
    kernels_take_parts_of(CONCAT_F16, concat_tiles, 64, side,
                          expected((kernel_counts){19, 5, 9}, 8));
    simt_set = usual;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(an_inception),
        device_test(a_fire_module),
        device_test(a_dense_block),
        device_test(concats_of_concats),
        device_test(a_residual_and_a_part_that_is_added),
        device_test(a_split_and_a_concat),
        device_test(slices_and_concats),
        device_test(one_tensor_twice),
        device_test(one_tensor_in_two_concats),
        device_test(parts_that_are_not_aligned),
        device_test(a_part_of_another_scale),
        device_test(inputs_outputs_and_constants),
        device_test(sequences_under_another_shape),
        device_test(a_tuned_plan),
        device_test(kernels_with_gaps_between_rows),
        device_test(tiles_with_gaps_between_rows),
    };
    if (!device_is_present()) return 77;
    return cmocka_run_group_tests_name("concat", tests, NULL, NULL);
}
