/* SPDX-License-Identifier: Apache-2.0 */
/* Models in stages on several GPUs of one process: the bytes of one GPU, what is queued for a run,
   calls that fail, and what is refused. A machine with fewer GPUs has several stages on one. */
#include "formats/onnx.h"
#include "runtime/cuda/cuda.h"
#include "runtime/exec/batch.h"
#include "tests/passes/graph_case.h"
#include "tests/simt/testing.h"

enum { MOST = 4 };

typedef struct fixture {
    pare_ctx ctx;
    pare_device *device[MOST];
    pare_model *model;
    pare_input_shape shape;
    pare_chain_plan *one, *cut; /* the whole model, and its stages */
    pare_replicas *whole, *chains;
} fixture;

static void check(const fixture *f, pare_status st)
{
    if (st != PARE_OK) fail_msg("%s", f->ctx.message);
}

static void open_devices(fixture *f, int count)
{
    int there = 0;
    if (simt_emulated()) simt_set.devices = count;
    CUDA_OK(cudaGetDeviceCount(&there));
    for (int i = 0; i < count; i++) check(f, pare_cuda_open(&f->ctx, &f->device[i], i % there, 0));
}

static const pare_plan_options options = {.threads = 1, .deterministic = true};

/* Each pool has one replica. */
static void open_chain_as(fixture *f, int stages, const pare_plan_options *how)
{
    pare_replicas_options pool = {.threads = 1};
    check(f, pare_chain_plan_new(&f->ctx, &f->one, f->model, &f->shape, 1, how, f->device, 1));
    check(f, pare_chain_plan_new(&f->ctx, &f->cut, f->model, &f->shape, 1, how, f->device, stages));
    assert_int_equal(f->cut->count, stages);
    check(f, pare_replicas_new(&f->ctx, &f->whole, f->one->stage[0], &pool));
    pool.chain = f->cut;
    check(f, pare_replicas_new(&f->ctx, &f->chains, f->cut->stage[0], &pool));
}

static void open_chain(fixture *f, int stages) { open_chain_as(f, stages, &options); }

static void close_chain(fixture *f)
{
    pare_replicas_free(f->whole);
    pare_replicas_free(f->chains);
    pare_chain_plan_free(f->one);
    pare_chain_plan_free(f->cut);
    f->whole = f->chains = NULL;
    f->one = f->cut = NULL;
}

static void close_all(fixture *f)
{
    close_chain(f);
    pare_model_free(f->model);
    for (int i = 0; i < MOST; i++) pare_device_close(f->device[i]);
    if (simt_emulated()) simt_set.devices = 1;
}

static void open_zoo(fixture *f, const char *net, int rows)
{
    char path[64];
    (void)snprintf(path, sizeof path, "datasets/zoo/%s.onnx", net);
    const pare_input_shape shape = {"input", {.rank = 4, .dim = {rows, 1, 28, 28}}};
    f->shape = shape;
    check(f, pare_onnx_read(&f->ctx, &f->model, path));
}

static void fill(pare_runner *r, uint32_t seed)
{
    for (int i = 0; i < pare_plan_input_count(pare_runner_plan(r)); i++) {
        const pare_view x = pare_runner_input(r, i);
        for (int64_t k = 0; k < pare_view_count(&x); k++)
            ((float *)x.data)[k] = (float)(test_random(&seed) % 2001) / 1000 - 1;
    }
}

static pare_replica *whole_of(const fixture *f) { return pare_replicas_at(f->whole, 0); }

static pare_replica *chain_of(const fixture *f) { return pare_replicas_at(f->chains, 0); }

static void run(pare_replica *p, uint32_t seed)
{
    fill(p->runner, seed);
    if (pare_replica_compute(p) != PARE_OK) fail_msg("%s", p->ctx.message);
}

static void assert_same_outputs(const fixture *f)
{
    const int count = pare_plan_output_count(f->one->stage[0]);
    assert_int_equal(count, pare_plan_output_count(f->cut->stage[f->cut->count - 1]));
    for (int i = 0; i < count; i++) {
        const pare_view a = pare_runner_output(whole_of(f)->last, i),
                        b = pare_runner_output(chain_of(f)->last, i);
        assert_int_equal(pare_view_bytes(&a), pare_view_bytes(&b));
        assert_int_equal(a.rank, b.rank);
        if (pare_view_bytes(&a)) assert_memory_equal(a.data, b.data, pare_view_bytes(&a));
    }
}

/* Step by step, recorded, played. */
static void run_both(const fixture *f)
{
    for (uint32_t turn = 1; turn <= 4; turn++) {
        run(whole_of(f), turn);
        run(chain_of(f), turn);
        assert_same_outputs(f);
    }
    assert_true(pare_replica_is_recorded(chain_of(f)));
}

static void stages_give_the_bytes_of_one_gpu(void **state)
{
    static const char *const nets[] = {"mlp", "cnn", "vit"};
    static const int fewest[] = {2, 2, 3}, most[] = {3, MOST, 3};
    (void)state;
    for (int n = 0; n < 3; n++)
        for (int stages = fewest[n]; stages <= most[n]; stages++) {
            fixture f = {0};
            pare_ctx_init(&f.ctx);
            open_devices(&f, stages);
            open_zoo(&f, nets[n], 2);
            open_chain(&f, stages);
            run_both(&f);
            close_all(&f);
        }
}

/* A library's handle is of the GPU on which its products run. */
static void libraries_work_on_each_gpu(void **state)
{
    fixture f = {0};
    const pare_plan_options free_sums = {.threads = 1};
    (void)state;
    pare_ctx_init(&f.ctx);
    open_devices(&f, 3);
    open_zoo(&f, "mlp", 64);
    open_chain_as(&f, 3, &free_sums);
    run_both(&f);
    assert_true(!simt_emulated() || simt_calls_of("cublasLtMatmul") > 0);
    close_all(&f);
}

/* x and a go to the last stage past the others, a and x themselves are outputs, and so is what the
   first stage alone makes; c is computed by the host; k and v are weights under other names, of
   which a node reads one. */
static void add_nodes(graph_case *g)
{
    static const int64_t dims[] = {3, 5}, five[] = {5};
    static const float w[] = {1, -2, 3, -4, 5};
    static const float u[] = {2, 4, 6, 8, 10};
    graph_open(g, 21);
    graph_input(g, "x", PARE_f32, 2, dims);
    graph_floats(g, "w", 1, five, w);
    graph_floats(g, "u", 1, five, u);
    graph_node(g, "Identity", "u", "k");
    graph_node(g, "Identity", "w", "v");
    graph_node(g, "Mul", "x w", "a");
    graph_node(g, "Sigmoid", "a", "b");
    pare_node *wide = graph_node(g, "Cast", "b", "wide");
    assert_int_equal(pare_node_set_int(wide, "to", 11), PARE_OK);
    graph_node(g, "Tan", "wide", "t");
    pare_node *back = graph_node(g, "Cast", "t", "c");
    assert_int_equal(pare_node_set_int(back, "to", 1), PARE_OK);
    graph_node(g, "Sum", "c a x", "d");
    graph_node(g, "MatMul", "d d_t", "y");
    graph_node(g, "Transpose", "d", "d_t");
    graph_output(g, "y");
    graph_output(g, "a");
    graph_output(g, "x");
    graph_output(g, "b");
    graph_output(g, "k");
    graph_output(g, "v");
}

static void open_nodes(fixture *f, graph_case *g)
{
    const pare_input_shape shape = {"x", {.rank = 2, .dim = {3, 5}}};
    f->shape = shape;
    add_nodes(g);
    f->model = g->model;
}

static void close_nodes(fixture *f, graph_case *g)
{
    f->model = NULL;
    close_all(f);
    graph_close(g);
}

static void tensors_pass_stages_that_do_not_read_them(void **state)
{
    (void)state;
    for (int stages = 2; stages <= MOST; stages++) {
        graph_case g;
        fixture f = {0};
        pare_ctx_init(&f.ctx);
        open_devices(&f, stages);
        open_nodes(&f, &g);
        open_chain(&f, stages);
        run_both(&f);
        close_nodes(&f, &g);
    }
}

static void count_links(void *user, pare_log_level level, const char *line)
{
    if (level == PARE_LOG_INFO && strstr(line, "copies go by the host")) ++*(int *)user;
}

/* Bytes go by the host where no GPU reaches another one's memory; that is said once of each pair.
 */
static void gpus_without_a_link_give_the_same(void **state)
{
    fixture f = {0};
    int said = 0;
    (void)state;
    if (!simt_emulated()) skip();
    pare_ctx_init(&f.ctx);
    f.ctx.log = count_links;
    f.ctx.log_user = &said;
    simt_set.peers = false;
    open_devices(&f, 3);
    open_zoo(&f, "cnn", 1);
    open_chain(&f, 3);
    run_both(&f);
    close_chain(&f);
    open_chain(&f, 3);
    assert_int_equal(said, 2);
    simt_set.peers = true;
    close_all(&f);
}

static void a_gpu_can_have_several_stages(void **state)
{
    fixture f = {0};
    (void)state;
    pare_ctx_init(&f.ctx);
    if (simt_emulated()) simt_set.devices = 1;
    for (int i = 0; i < 3; i++) check(&f, pare_cuda_open(&f.ctx, &f.device[i], 0, 0));
    open_zoo(&f, "cnn", 1);
    open_chain(&f, 3);
    run_both(&f);
    close_all(&f);
}

/* A played run: a graph on each GPU, a copy up, one down, one to each next GPU, and no wait. */
static void a_run_is_queued_on_all_gpus(void **state)
{
    fixture f = {0};
    (void)state;
    if (!simt_emulated()) skip();
    pare_ctx_init(&f.ctx);
    open_devices(&f, 3);
    open_zoo(&f, "cnn", 1);
    open_chain(&f, 3);
    pare_replica *p = chain_of(&f);
    for (uint32_t turn = 0; turn < 2; turn++) run(p, turn);
    const uint64_t waits = simt_calls_of("cudaStreamSynchronize"),
                   copies = simt_calls_of("cudaMemcpyAsync"),
                   peers = simt_calls_of("cudaMemcpyPeerAsync"),
                   graphs = simt_calls_of("cudaGraphLaunch");
    check(&f, pare_chain_start(p->chain));
    assert_int_equal(simt_calls_of("cudaStreamSynchronize"), waits);
    assert_int_equal(simt_calls_of("cudaMemcpyAsync"), copies + 2);
    assert_int_equal(simt_calls_of("cudaMemcpyPeerAsync"), peers + 2);
    assert_int_equal(simt_calls_of("cudaGraphLaunch"), graphs + 3);
    check(&f, pare_chain_wait(p->chain));
    assert_int_equal(simt_calls_of("cudaStreamSynchronize"), waits + 3);
    close_all(&f);
}

/* Several chains of one plan, whose runs overlap. */
static void chains_run_side_by_side(void **state)
{
    fixture f = {0};
    pare_replicas *pool;
    (void)state;
    pare_ctx_init(&f.ctx);
    open_devices(&f, 3);
    open_zoo(&f, "cnn", 1);
    open_chain(&f, 3);
    const pare_replicas_options pair = {.items = 2, .each = true, .chain = f.cut};
    check(&f, pare_replicas_new(&f.ctx, &pool, f.cut->stage[0], &pair));
    for (uint32_t turn = 0; turn < 6; turn++) {
        for (int i = 0; i < 2; i++) {
            fill(pare_replicas_at(pool, i)->runner, turn + 7u * (uint32_t)i);
            check(&f, pare_chain_start(pare_replicas_at(pool, i)->chain));
        }
        for (int i = 1; i >= 0; i--) {
            pare_replica *p = pare_replicas_at(pool, i);
            check(&f, pare_chain_wait(p->chain));
            run(whole_of(&f), turn + 7u * (uint32_t)i);
            const pare_view a = pare_runner_output(whole_of(&f)->last, 0),
                            b = pare_runner_output(p->last, 0);
            assert_memory_equal(a.data, b.data, pare_view_bytes(&a));
        }
    }
    pare_replicas_free(pool);
    close_all(&f);
}

/* --- failures --- */

/* Each call of a run fails once; the next run has its bytes. */
static void a_failed_run_leaves_nothing_behind(void **state)
{
    fixture f = {0};
    int told = 0, stage, gpu, seen[3] = {0};
    (void)state;
    if (!simt_emulated()) skip();
    pare_ctx_init(&f.ctx);
    open_devices(&f, 3);
    open_zoo(&f, "mlp", 1);
    open_chain(&f, 3);
    pare_replica *p = chain_of(&f);
    run(whole_of(&f), 1);
    for (int i = 0; i < 3; i++) run(p, 1);
    const uint64_t before = simt_calls();
    run(p, 1);
    const uint64_t calls = simt_calls() - before;
    for (uint64_t n = 1; n <= calls; n++) {
        pare_ctx_clear(&p->ctx);
        fill(p->runner, 1);
        simt_fail_at(n, 719, false);
        const pare_status st = pare_replica_compute(p);
        simt_fail_at(0, 0, false);
        if (st != PARE_OK) {
            assert_int_equal(st, PARE_DEVICE);
            assert_non_null(strstr(p->ctx.message, "mlp.onnx"));
            if (sscanf(p->ctx.message, "stage %d on GPU %d: ", &stage, &gpu) != 2 || stage != gpu)
                fail_msg("%s", p->ctx.message);
            seen[stage]++;
            told++;
        }
        pare_ctx_clear(&p->ctx);
        run(p, 1);
        assert_same_outputs(&f);
    }
    assert_true(told > (int)calls / 2);
    assert_true(seen[0] && seen[1] && seen[2]);
    close_all(&f);
}

/* Makes a chain over the devices, whose n-th call fails with this code, and releases it. */
static pare_status make_chain(fixture *f, pare_device *const *device, uint64_t n, int code)
{
    pare_chain_plan *cut = NULL;
    pare_chain *chain = NULL;
    pare_ctx_clear(&f->ctx);
    simt_fail_at(n, code, false);
    pare_status st =
        pare_chain_plan_new(&f->ctx, &cut, f->model, &f->shape, 1, &options, device, 2);
    if (st == PARE_OK) st = pare_chain_new(&f->ctx, &chain, cut);
    simt_fail_at(0, 0, false);
    pare_chain_free(chain);
    pare_chain_plan_free(cut);
    return st;
}

/* Each call of making a chain fails once, and all that was made is released: out of memory (2) and
   a lost GPU (719), with GPUs whose link is known and with ones that ask for it first. */
static void a_chain_that_fails_to_be_made_is_released(void **state)
{
    fixture f = {0};
    char before[256], after[256];
    int lost = 0;
    (void)state;
    if (!simt_emulated()) skip();
    pare_ctx_init(&f.ctx);
    open_devices(&f, 3);
    open_zoo(&f, "mlp", 1);
    open_chain(&f, 3); /* libraries are there */
    (void)simt_live(before, sizeof before);
    pare_device *const back[2] = {f.device[2], f.device[1]};
    for (int i = 0; i < 2; i++) {
        const int code = i ? 719 : 2;
        pare_status st = PARE_DEVICE;
        for (uint64_t n = 1; st != PARE_OK; n++) {
            st = make_chain(&f, i ? back : f.device, n, code);
            if (st != PARE_OK) {
                assert_true(st == PARE_MEMORY || st == PARE_DEVICE);
                assert_true(f.ctx.message[0] != 0);
                lost += st == PARE_DEVICE;
            }
            (void)simt_live(after, sizeof after);
            assert_string_equal(after, before);
            if (n > 4000) fail_msg("it never succeeds");
        }
    }
    assert_true(lost > 0);
    pare_ctx_clear(&f.ctx);
    close_all(&f);
}

/* --- what is planned --- */

/* A model whose weights are in no GPU as a whole. */
static void weights_are_spread(void **state)
{
    fixture f = {0};
    pare_chain_plan *whole;
    pare_status st = PARE_MEMORY;
    (void)state;
    if (!simt_emulated()) skip();
    pare_ctx_init(&f.ctx);
    open_devices(&f, 3);
    open_zoo(&f, "vit", 1);
    const size_t kept = simt_set.memory;
    for (simt_set.memory = 300000; st == PARE_MEMORY; simt_set.memory += 50000) {
        pare_ctx_clear(&f.ctx);
        st = pare_chain_plan_new(&f.ctx, &f.cut, f.model, &f.shape, 1, &options, f.device, 3);
        if (st == PARE_MEMORY) assert_non_null(strstr(f.ctx.message, "on GPU "));
    }
    check(&f, st);
    pare_chain_plan_free(f.cut);
    f.cut = NULL;
    simt_set.memory *= 2;
    assert_int_equal(
        pare_chain_plan_new(&f.ctx, &whole, f.model, &f.shape, 1, &options, f.device, 1),
        PARE_MEMORY);
    simt_set.memory = kept;
    close_all(&f);
}

static void assert_refused(fixture *f, pare_device *const *device, int count,
                           const pare_plan_options *how, pare_status status, const char *words)
{
    pare_chain_plan *none;
    pare_ctx_clear(&f->ctx);
    assert_int_equal(
        pare_chain_plan_new(&f->ctx, &none, f->model, &f->shape, 1, how, device, count), status);
    if (!strstr(f->ctx.message, words)) fail_msg("%s", f->ctx.message);
    pare_ctx_clear(&f->ctx);
}

static void what_is_no_chain_is_refused(void **state)
{
    fixture f = {0};
    pare_device *const cpu[2] = {0};
    pare_backend of_others = {0};
    pare_plan_options narrow = options;
    (void)state;
    pare_ctx_init(&f.ctx);
    open_devices(&f, MOST);
    pare_device other = *f.device[1];
    other.backend = &of_others;
    pare_device *const half[2] = {f.device[0], NULL}, *const mixed[2] = {f.device[0], &other};
    open_zoo(&f, "mlp", 1);
    assert_refused(&f, f.device, MOST, &options, PARE_UNSUPPORTED,
                   "mlp.onnx: 4 stages were asked for, but the graph has only 3 nodes that run");
    assert_refused(&f, cpu, 2, &options, PARE_UNSUPPORTED, "mlp.onnx: stages are on GPUs");
    assert_refused(&f, half, 2, &options, PARE_UNSUPPORTED, "mlp.onnx: stages are on GPUs");
    assert_refused(&f, mixed, 2, &options, PARE_UNSUPPORTED, "mlp.onnx: stages are on GPUs");
    narrow.stage_weights = 1000;
    assert_refused(&f, f.device, 2, &narrow, PARE_UNSUPPORTED, "2 stages of at most 1000 bytes");
    f.shape.shape.dim[2] = 27;
    assert_refused(&f, f.device, 2, &options, PARE_INPUT, "mlp.onnx");
    close_all(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(stages_give_the_bytes_of_one_gpu),
        device_test(libraries_work_on_each_gpu),
        device_test(tensors_pass_stages_that_do_not_read_them),
        device_test(gpus_without_a_link_give_the_same),
        device_test(a_gpu_can_have_several_stages),
        device_test(a_run_is_queued_on_all_gpus),
        device_test(chains_run_side_by_side),
        device_test(a_failed_run_leaves_nothing_behind),
        device_test(a_chain_that_fails_to_be_made_is_released),
        device_test(weights_are_spread),
        device_test(what_is_no_chain_is_refused),
    };
    return device_is_present() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
