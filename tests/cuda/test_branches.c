/* SPDX-License-Identifier: Apache-2.0 */
/* Nets with branches, in two streams against one: the same bytes, whatever runs first, and no
   memory that both write. Planted: forks and joins without waits, memory that both write. */
#include "formats/onnx.h"
#include "runtime/cuda/cuda.h"
#include "runtime/exec/replicas.h"
#include "tests/cuda/branch_net.h"
#include "tests/cuda/product_case.h"
#include "tests/simt/testing.h"

enum { RUNS = 4 };

static bool touches(const pare_step *s, int root)
{
    for (int i = 0; i < s->in_count; i++)
        if (s->in[i].root == root) return true;
    for (int i = 0; i < s->out_count; i++)
        if (s->out[i].root == root) return true;
    return false;
}

/* Does a step write what the other touches? Of one root: parts of a Concat may be apart. */
static bool writes(const pare_step *s, const pare_step *other)
{
    bool writes = false;
    for (int i = 0; i < s->out_count; i++) {
        for (int k = 0; k < other->in_count; k++)
            writes = writes || pare_places_overlap(&s->out[i], &other->in[k]);
        for (int k = 0; k < other->out_count; k++)
            writes = writes || pare_places_overlap(&s->out[i], &other->out[k]);
    }
    return writes;
}

static bool overlap(const pare_storage *a, const pare_storage *b)
{
    return a->where == PARE_AT_BUFFER && b->where == PARE_AT_BUFFER && a->bytes && b->bytes &&
           a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Two steps of a region in different streams: neither writes what the other touches, by name or by
   address. */
static void steps_are_apart(const pare_plan *p, const pare_step *a, const pare_step *b)
{
    assert_false(writes(a, b) || writes(b, a));
    for (int r = 0; r < p->storage_count; r++) {
        if (!touches(a, r)) continue;
        for (int q = 0; q < p->storage_count; q++)
            if (q != r && touches(b, q)) assert_false(overlap(&p->root[r], &p->root[q]));
    }
}

static int sets_share_nothing(const pare_plan *p)
{
    int first = 0, regions = 0;
    bool inside = false;
    for (int i = 0; i < p->step_count; i++) {
        const pare_step *s = &p->step[i];
        if (s->forks) first = i, inside = true, regions++;
        assert_false(s->side && !inside);
        assert_false(inside && s->kernel->flags & PARE_KERNEL_HOST);
        for (int k = first; inside && k < i; k++)
            if (p->step[k].side != s->side) steps_are_apart(p, &p->step[k], s);
        if (s->joins) inside = false;
    }
    assert_false(inside);
    return regions;
}

static void plans_make(branch_net *n)
{
    pare_plan_options options = {.threads = 1, .device = n->device};
    branch_check(n, pare_plan_new(&n->g.ctx, &n->plan, n->g.model, &n->shape, 1, &options));
    options.one_stream = true;
    branch_check(n, pare_plan_new(&n->g.ctx, &n->plain, n->g.model, &n->shape, 1, &options));
    assert_int_equal(sets_share_nothing(n->plain), 0);
}

static void close_all(branch_net *n)
{
    pare_plan_free(n->plan);
    pare_plan_free(n->plain);
    pare_device_close(n->device);
    graph_close(&n->g);
}

static pare_status look(void *user, const pare_value *value, const pare_view *view)
{
    (void)value, (void)view;
    ++*(int *)user;
    return PARE_OK;
}

/* The orders that the emulation knows, and seeds of the random ones. */
static void order_set(int which)
{
    simt_set.streams = (simt_streams)(which % 4);
    simt_set.schedule = which < 4 ? SIMT_FIFO : which < 8 ? SIMT_REVERSED : SIMT_RANDOM;
    simt_set.seed = (uint64_t)which;
}
enum { ORDERS = 16 };

/* Runs that are not recorded, are recorded, played, watched, and played again. */
static void orders_give_the_same(branch_net *n)
{
    const simt_settings usual = simt_set;
    for (int order = 0; order < (simt_emulated() ? ORDERS : 1); order += case_apart()) {
        pare_runner *r, *plain;
        double times[64];
        int seen = 0;
        order_set(order);
        branch_check(n, pare_runner_new(&n->g.ctx, &r, n->plan));
        branch_check(n, pare_runner_new(&n->g.ctx, &plain, n->plain));
        for (int run = 0; run < RUNS; run++) assert_true(branch_is_right(n, r, plain, run));
        pare_runner_observe(r, look, &seen);
        assert_true(branch_is_right(n, r, plain, 5));
        assert_true(seen >= pare_plan_step_count(n->plan));
        pare_runner_observe(r, NULL, NULL);
        pare_runner_profile(r, times);
        assert_true(branch_is_right(n, r, plain, 6));
        pare_runner_profile(r, NULL);
        assert_true(branch_is_right(n, r, plain, 7));
        pare_runner_free(r);
        pare_runner_free(plain);
    }
    simt_set = usual;
}

static void net_is_as_in_one_stream(void (*make)(branch_net *), int regions)
{
    branch_net n;
    make(&n);
    branch_check(&n, pare_cuda_open(&n.g.ctx, &n.device, 0, 0));
    plans_make(&n);
    assert_int_equal(sets_share_nothing(n.plan), regions);
    orders_give_the_same(&n);
    close_all(&n);
}

static void a_shortcut(void **state)
{
    (void)state;
    net_is_as_in_one_stream(make_shortcut, 1);
}

static void branches_of_an_inception(void **state)
{
    (void)state;
    net_is_as_in_one_stream(make_inception, 1);
}

static void branches_of_a_squeeze(void **state)
{
    (void)state;
    net_is_as_in_one_stream(make_squeeze, 1);
}

static void forks_in_branches(void **state)
{
    (void)state;
    net_is_as_in_one_stream(make_nested, 1);
}

static void branches_that_end_in_outputs(void **state)
{
    (void)state;
    net_is_as_in_one_stream(make_ends, 1);
}

static void another_shape_at_a_fork(void **state)
{
    (void)state;
    net_is_as_in_one_stream(make_alias, 1);
}

static void a_step_in_place_at_a_fork(void **state)
{
    (void)state;
    net_is_as_in_one_stream(make_in_place, 1);
}

static void a_step_of_the_host_in_a_branch(void **state)
{
    (void)state;
    net_is_as_in_one_stream(make_host, 2);
}

static void scratch_in_branches(void **state)
{
    (void)state;
    net_is_as_in_one_stream(make_scratch, 1);
}

/* A kernel that is bound to a stream stays in the first one, watched or not. */
static void a_kernel_that_is_bound_to_a_stream(void **state)
{
    (void)state;
    branch_net n;
    int bound = 0, sides = 0;
    make_bound(&n);
    branch_check(&n, pare_cuda_open(&n.g.ctx, &n.device, 0, 0));
    plans_make(&n);
    assert_int_equal(sets_share_nothing(n.plan), 1);
    for (int i = 0; i < n.plan->step_count; i++) {
        const pare_step *s = &n.plan->step[i];
        bound += s->kernel->bind != NULL;
        sides += s->side;
        assert_false(s->kernel->bind && s->side);
    }
    if (simt_emulated() && !getenv("SIMT_BLAS")) assert_int_equal(bound, 1); /* it may be absent */
    if (bound) assert_int_equal(sides, 3);
    orders_give_the_same(&n);
    close_all(&n);
}

static void a_region_that_takes_too_much_memory_is_left_out(void **state)
{
    (void)state;
    branch_net n;
    make_large(&n);
    branch_check(&n, pare_cuda_open(&n.g.ctx, &n.device, 0, 0));
    plans_make(&n);
    assert_int_equal(sets_share_nothing(n.plan), 0);
    assert_false(n.plan->branches);
    assert_int_equal(pare_plan_activation_bytes(n.plan), pare_plan_activation_bytes(n.plain));
    close_all(&n);
}

static void the_sample_resnet(void **state)
{
    (void)state;
    branch_net n = {.shape = {"input", {.rank = 4, .dim = {1, 1, 28, 28}}}};
    pare_ctx_init(&n.g.ctx);
    branch_check(&n, pare_onnx_read(&n.g.ctx, &n.g.model, "datasets/zoo/resnet.onnx"));
    branch_check(&n, pare_cuda_open(&n.g.ctx, &n.device, 0, 0));
    plans_make(&n);
    assert_int_equal(sets_share_nothing(n.plan), 2);
    pare_runner *r, *plain;
    branch_check(&n, pare_runner_new(&n.g.ctx, &r, n.plan));
    branch_check(&n, pare_runner_new(&n.g.ctx, &plain, n.plain));
    for (int run = 0; run < 3; run++) assert_true(branch_is_right(&n, r, plain, run));
    pare_runner_free(r);
    pare_runner_free(plain);
    close_all(&n);
}

/* A runner, and runs that are not recorded, are recorded and played; the N-th call of CUDA fails.
   Whether that was told; a runner that was made gives what is right at its next run. */
static bool fails_at(branch_net *n, pare_runner *plain, uint64_t call)
{
    pare_runner *r = NULL;
    simt_fail_at(call, cudaErrorLaunchFailure, false);
    pare_status st = pare_runner_new(&n->g.ctx, &r, n->plan);
    for (int run = 0; run < 3 && st == PARE_OK; run++) {
        branch_input(r, run);
        st = pare_runner_run(r);
    }
    simt_fail_at(0, 0, false);
    if (st != PARE_OK) assert_true(n->g.ctx.message[0]);
    pare_ctx_clear(&n->g.ctx);
    for (int run = 0; run < 3 && r; run++) assert_true(branch_is_right(n, r, plain, run));
    pare_runner_free(r);
    return st != PARE_OK;
}

static void every_call_that_fails_is_told(void **state)
{
    (void)state;
    branch_net n;
    pare_runner *plain;
    int told = 0, calls;
    if (!simt_emulated()) skip();
    make_shortcut(&n);
    branch_check(&n, pare_cuda_open(&n.g.ctx, &n.device, 0, 0));
    plans_make(&n);
    branch_check(&n, pare_runner_new(&n.g.ctx, &plain, n.plain));
    const uint64_t before = simt_calls();
    assert_false(fails_at(&n, plain, 0));
    calls = (int)(simt_calls() - before);
    for (int call = 1; call <= calls; call += case_apart()) {
        told += fails_at(&n, plain, (uint64_t)call);
        (void)cudaGetLastError(); /* of a call that releases something, which no one looks at */
    }
    assert_true(told * case_apart() > 50);
    pare_runner_free(plain);
    close_all(&n);
}

/* A timeline has every step in one stream; recordings that marks part have one, too. */
static void timelines_and_marks_have_one_stream(void **state)
{
    (void)state;
    branch_net n;
    pare_runner *r, *plain;
    pare_timeline *t;
    pare_step_mark mark = {.step = 1};
    make_shortcut(&n);
    branch_check(&n, pare_cuda_open(&n.g.ctx, &n.device, 0, 0));
    plans_make(&n);
    branch_check(&n, pare_runner_new(&n.g.ctx, &r, n.plan));
    branch_check(&n, pare_runner_new(&n.g.ctx, &plain, n.plain));
    for (int run = 0; run < 3; run++) assert_true(branch_is_right(&n, r, plain, run));
    assert_true(r->device->apart);
    branch_check(&n, pare_timeline_new(&n.g.ctx, &t, n.device));
    pare_runner_trace(r, t, 0);
    assert_true(branch_is_right(&n, r, plain, 3));
    assert_false(r->device->apart);
    pare_runner_trace(r, NULL, 0);
    branch_check(&n, pare_timeline_read(t));
    assert_int_equal(pare_timeline_count(t), pare_plan_step_count(n.plan) + 2);
    pare_timeline_free(t);
    branch_check(&n, n.device->streams->event_open(&n.g.ctx, n.device, &mark.event));
    pare_runner_mark(r, &mark, 1);
    for (int run = 0; run < 3; run++) assert_true(branch_is_right(&n, r, plain, run));
    assert_false(r->device->apart);
    pare_runner_mark(r, NULL, 0);
    n.device->streams->event_close(mark.event);
    for (int run = 0; run < 3; run++) assert_true(branch_is_right(&n, r, plain, run));
    assert_true(r->device->apart);
    pare_runner_free(r);
    pare_runner_free(plain);
    close_all(&n);
}

/* Two runners of one plan at once have four streams. */
static void two_runners_have_branches_at_once(void **state)
{
    (void)state;
    branch_net n;
    pare_runner *r, *other, *plain;
    make_shortcut(&n);
    branch_check(&n, pare_cuda_open(&n.g.ctx, &n.device, 0, 0));
    plans_make(&n);
    branch_check(&n, pare_runner_new(&n.g.ctx, &r, n.plan));
    branch_check(&n, pare_runner_new(&n.g.ctx, &other, n.plan));
    branch_check(&n, pare_runner_new(&n.g.ctx, &plain, n.plain));
    for (int run = 0; run < RUNS; run++) {
        branch_input(other, run + 1);
        branch_check(&n, pare_runner_start(other));
        assert_true(branch_is_right(&n, r, plain, run));
        branch_check(&n, pare_runner_wait(other));
        assert_true(branch_is_right(&n, r, plain, run + 1));
        const pare_view y = pare_runner_output(r, 0), z = pare_runner_output(other, 0);
        assert_memory_equal(y.data, z.data, pare_view_bytes(&y));
    }
    pare_runner_free(r);
    pare_runner_free(other);
    pare_runner_free(plain);
    close_all(&n);
}

/* --- memory that is limited --- */

/* Plans, and so many runners of one of them, on a device of so many bytes; false: they were not
   granted. */
static bool limited_open(branch_net *n, size_t bytes, bool one_stream, int count,
                         pare_replicas **pool)
{
    const pare_replicas_options all = {
        .threads = count, .items = count, .each = true, .concurrent = true};
    *pool = NULL;
    n->plan = n->plain = NULL;
    n->device = NULL;
    pare_status st = pare_cuda_open(&n->g.ctx, &n->device, 0, bytes);
    const pare_plan_options options = {.threads = 1, .device = n->device, .one_stream = one_stream};
    if (st == PARE_OK) st = pare_plan_new(&n->g.ctx, &n->plan, n->g.model, &n->shape, 1, &options);
    if (st == PARE_OK) st = pare_replicas_new(&n->g.ctx, pool, n->plan, &all);
    if (st != PARE_OK) assert_int_equal(st, PARE_MEMORY);
    pare_ctx_clear(&n->g.ctx);
    return st == PARE_OK;
}

static void limited_close(branch_net *n, pare_replicas *pool)
{
    pare_replicas_free(pool);
    pare_plan_free(n->plan);
    pare_device_close(n->device);
}

/* The fewest bytes that runners in one stream are granted. */
static size_t least_bytes(branch_net *n, int count)
{
    size_t low = 0, high = 1 << 24;
    while (high - low > 1) {
        const size_t bytes = low + (high - low) / 2;
        pare_replicas *pool;
        if (limited_open(n, bytes, true, count, &pool))
            high = bytes;
        else
            low = bytes;
        limited_close(n, pool);
    }
    return high;
}

static void runs_are_right(branch_net *n, pare_replicas *pool)
{
    pare_runner *plain;
    pare_device *whole;
    branch_check(n, pare_cuda_open(&n->g.ctx, &whole, 0, 0));
    const pare_plan_options options = {.threads = 1, .device = whole, .one_stream = true};
    branch_check(n, pare_plan_new(&n->g.ctx, &n->plain, n->g.model, &n->shape, 1, &options));
    branch_check(n, pare_runner_new(&n->g.ctx, &plain, n->plain));
    for (int i = 0; i < pare_replicas_count(pool); i++)
        for (int run = 0; run < RUNS; run++)
            assert_true(branch_is_right(n, pare_replicas_at(pool, i)->runner, plain, run));
    pare_runner_free(plain);
    pare_plan_free(n->plain);
    pare_device_close(whole);
}

static void fits_as_in_one_stream(void (*make)(branch_net *), int count)
{
    branch_net n;
    pare_replicas *pool;
    make(&n);
    const size_t least = least_bytes(&n, count);
    assert_true(limited_open(&n, least, false, count, &pool));
    assert_true(n.plan->branches);
    for (int i = 0; i < count; i++) assert_true(pare_replicas_at(pool, i)->runner->single);
    runs_are_right(&n, pool);
    limited_close(&n, pool);
    assert_true(limited_open(&n, 1 << 24, false, count, &pool));
    for (int i = 0; i < count; i++) assert_false(pare_replicas_at(pool, i)->runner->single);
    limited_close(&n, pool);
    assert_false(limited_open(&n, least - 1, false, count, &pool));
    limited_close(&n, pool);
    graph_close(&n.g);
}

static void a_net_without_memory_for_branches_runs(void **state)
{
    (void)state;
    fits_as_in_one_stream(make_shortcut, 1);
    fits_as_in_one_stream(make_scratch, 1);
}

static void all_runners_have_one_stream_or_none(void **state)
{
    (void)state;
    fits_as_in_one_stream(make_inception, 3);
}

/* A runner by itself, which no pool makes. */
static void a_runner_alone_has_one_stream_then(void **state)
{
    (void)state;
    branch_net n;
    pare_replicas *pool;
    pare_runner *r;
    make_inception(&n);
    const size_t least = least_bytes(&n, 1);
    assert_true(limited_open(&n, least, false, 1, &pool));
    pare_replicas_free(pool);
    branch_check(&n, pare_runner_new(&n.g.ctx, &r, n.plan));
    assert_true(r->single);
    assert_string_equal(n.g.ctx.message, "");
    pare_runner_free(r);
    limited_close(&n, NULL);
    graph_close(&n.g);
}

/* --- planted --- */

static const pare_stream_table *real;
static int left_out; /* the wait that is left out, counted down; 0: none */

static pare_status wait_or_not(pare_ctx *ctx, pare_stream *stream, pare_event *event)
{
    if (left_out && !--left_out) return PARE_OK;
    return real->event_wait(ctx, stream, event);
}

typedef void (*plant_fn)(branch_net *, pare_runner *);

/* Is what was planted seen, in some order, by a run step by step or by a recorded one? All memory
   was written by a run before. */
static bool is_caught(branch_net *n, plant_fn plant, bool recorded)
{
    const simt_settings usual = simt_set;
    bool caught = false;
    for (int order = 0; order < ORDERS && !caught; order++) {
        pare_runner *r, *plain;
        order_set(order);
        branch_check(n, pare_runner_new(&n->g.ctx, &r, n->plan));
        branch_check(n, pare_runner_new(&n->g.ctx, &plain, n->plain));
        assert_true(branch_is_right(n, r, plain, 0));
        r->device->warm = recorded;
        plant(n, r);
        for (int run = 1; run < RUNS && !caught; run++) caught = !branch_is_right(n, r, plain, run);
        left_out = 0;
        pare_runner_free(r);
        pare_runner_free(plain);
    }
    simt_set = usual;
    return caught;
}

static void leave_nothing(branch_net *n, pare_runner *r) { (void)n, (void)r; }
static void leave_fork(branch_net *n, pare_runner *r) { (void)n, (void)r, left_out = 1; }
static void leave_join(branch_net *n, pare_runner *r) { (void)n, (void)r, left_out = 2; }

static void one_scratch(branch_net *n, pare_runner *r)
{
    for (int i = 0; i < n->plan->step_count; i++) r->call[i].scratch = r->scratch;
}

/* What the first step of the second stream writes is moved onto what the first step of a region
   writes. */
static void one_tensor(branch_net *n, pare_runner *r)
{
    const pare_view *from = NULL;
    const void *to = NULL;
    for (int i = 0; i < n->plan->step_count && !to; i++) {
        const pare_step *s = &n->plan->step[i];
        if (s->forks) from = &r->call[i].out[0];
        if (!s->side || !from) continue;
        to = r->call[i].out[0].data;
        for (int k = 0; k < n->plan->step_count; k++) {
            for (int j = 0; j < r->call[k].in_count; j++)
                if (r->call[k].in[j].data == to)
                    ((pare_view *)&r->call[k].in[j])->data = from->data;
            if (r->call[k].out[0].data == to) ((pare_view *)&r->call[k].out[0])->data = from->data;
        }
    }
    assert_non_null(to);
}

static void planted_in(void (*make)(branch_net *), plant_fn plant, bool in_recordings)
{
    branch_net n;
    if (!simt_emulated()) skip();
    make(&n);
    branch_check(&n, pare_cuda_open(&n.g.ctx, &n.device, 0, 0));
    static pare_stream_table table;
    real = n.device->streams;
    table = *real;
    table.event_wait = wait_or_not;
    n.device->streams = &table;
    plans_make(&n);
    assert_false(is_caught(&n, leave_nothing, false));
    assert_true(is_caught(&n, plant, false));
    if (in_recordings) assert_true(is_caught(&n, plant, true));
    n.device->streams = real;
    close_all(&n);
}

static void a_fork_that_is_not_waited_for_is_seen(void **state)
{
    (void)state;
    planted_in(make_shortcut, leave_fork, true);
}

static void a_join_that_is_not_waited_for_is_seen(void **state)
{
    (void)state;
    planted_in(make_shortcut, leave_join, true);
}

static void a_tensor_that_branches_share_is_seen(void **state)
{
    (void)state;
    planted_in(make_shortcut, one_tensor, true);
}

static void scratch_that_branches_share_is_seen(void **state)
{
    (void)state;
    planted_in(make_scratch, one_scratch, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(a_shortcut),
        device_test(branches_of_an_inception),
        device_test(branches_of_a_squeeze),
        device_test(forks_in_branches),
        device_test(branches_that_end_in_outputs),
        device_test(another_shape_at_a_fork),
        device_test(a_step_in_place_at_a_fork),
        device_test(a_step_of_the_host_in_a_branch),
        device_test(scratch_in_branches),
        device_test(a_kernel_that_is_bound_to_a_stream),
        device_test(a_region_that_takes_too_much_memory_is_left_out),
        device_test(the_sample_resnet),
        device_test(every_call_that_fails_is_told),
        device_test(timelines_and_marks_have_one_stream),
        device_test(two_runners_have_branches_at_once),
        device_test(a_net_without_memory_for_branches_runs),
        device_test(all_runners_have_one_stream_or_none),
        device_test(a_runner_alone_has_one_stream_then),
        device_test(a_fork_that_is_not_waited_for_is_seen),
        device_test(a_join_that_is_not_waited_for_is_seen),
        device_test(a_tensor_that_branches_share_is_seen),
        device_test(scratch_that_branches_share_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
