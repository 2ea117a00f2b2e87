/* SPDX-License-Identifier: Apache-2.0 */
/* The emulation's cuDNN: what is right is computed, and each planted mistake is refused where the
   real library would refuse it, or would do wrong. */
#include "dnn_table.h"
#include "testing.h"

#include <string.h>

static pare_dnn_api api;

typedef enum mistake {
    NOTHING,
    NO_TYPE,         /* a tensor without its type */
    FEW_STRIDES,     /* as many as axes are needed */
    WRONG_ELEMENT,   /* floats where doubles are asked for */
    WRONG_ATTRIBUTE, /* one of another descriptor */
    SET_LATE,        /* after finalize */
    OPEN_PART,       /* a tensor that is not finalized goes into an operation */
    WRONG_SHAPE,     /* Y is one wider than the window makes it */
    LOOSE_STEP,      /* a step reads a tensor that none made */
    SAME_NAME,       /* two tensors in memory have one name */
    NO_HANDLE,       /* of the graph */
    OWN_CONFIG,      /* a config that heuristics did not give */
    LAST_OF_BUILD = OWN_CONFIG,
    MISSING_NAME, /* the pack lacks the bias */
    OTHER_NAME,   /* and has one that the graph has not */
    ODD_ADDRESS,  /* not aligned as was said */
    MISTAKES
} mistake;

enum { X, W, Y, BIAS, OUT, TENSORS };
enum { SIDE = 4, CHANNELS = 2, FILTERS = 3 };

typedef struct graph_parts {
    mistake with;
    void *handle, *made[64], *tensor[TENSORS], *graph, *plan;
    int count, refused; /* the first status that was not success */
} graph_parts;

static void *make(graph_parts *g, int type)
{
    void *d = NULL;
    assert_int_equal(api.make(type, &d), 0);
    return g->made[g->count++] = d;
}

static void ask(graph_parts *g, int status)
{
    if (!g->refused) g->refused = status;
}

static void set(graph_parts *g, void *d, int name, int type, int64_t count, const void *v)
{
    ask(g, api.set(d, name, type, count, v));
}

static void set_int(graph_parts *g, void *d, int name, int type, int v)
{
    set(g, d, name, type, 1, &v);
}

static void tensor_make(graph_parts *g, int which, const int64_t dim[4], bool is_virtual)
{
    const int64_t id = g->with == SAME_NAME && which == BIAS ? X + 1 : which + 1, aligned = 16;
    const int64_t strides[4] = {dim[1] * dim[2] * dim[3], 1, dim[1] * dim[3], dim[1]};
    void *d = g->tensor[which] = make(g, PARE_DNN_TENSOR);
    set(g, d, PARE_DNN_TENSOR_ID, PARE_DNN_T_INT64, 1, &id);
    if (g->with != NO_TYPE) set_int(g, d, PARE_DNN_TENSOR_TYPE, PARE_DNN_T_DATA_TYPE, PARE_DNN_F32);
    set(g, d, PARE_DNN_TENSOR_DIMS, PARE_DNN_T_INT64, g->with == FEW_STRIDES ? 5 : 4,
        (const int64_t[]){dim[0], dim[1], dim[2], dim[3], 1});
    set(g, d, PARE_DNN_TENSOR_STRIDES, PARE_DNN_T_INT64, 4, strides);
    set(g, d, PARE_DNN_TENSOR_ALIGNMENT, PARE_DNN_T_INT64, 1, &aligned);
    if (is_virtual) set(g, d, PARE_DNN_TENSOR_VIRTUAL, PARE_DNN_T_BOOL, 1, &is_virtual);
    if (g->with == WRONG_ATTRIBUTE)
        set_int(g, d, PARE_DNN_POINTWISE_MODE, PARE_DNN_T_POINTWISE_MODE, PARE_DNN_POINTWISE_ADD);
    if (g->with != OPEN_PART || which != W) ask(g, api.finalize(d));
    if (g->with == SET_LATE) set(g, d, PARE_DNN_TENSOR_ID, PARE_DNN_T_INT64, 1, &id);
}

static void *convolution_make(graph_parts *g)
{
    const int64_t axes = 2, one[2] = {1, 1}, none[2] = {0};
    const float alpha = 1, beta = 0;
    void *window = make(g, PARE_DNN_CONVOLUTION), *op = make(g, PARE_DNN_OP_FORWARD);
    set(g, window, PARE_DNN_CONVOLUTION_AXES, PARE_DNN_T_INT64, 1, &axes);
    set_int(g, window, PARE_DNN_CONVOLUTION_COMPUTE, PARE_DNN_T_DATA_TYPE, PARE_DNN_F32);
    set_int(g, window, PARE_DNN_CONVOLUTION_MODE, PARE_DNN_T_CONVOLUTION_MODE,
            PARE_DNN_CROSS_CORRELATION);
    set(g, window, PARE_DNN_CONVOLUTION_PRE_PADDINGS, PARE_DNN_T_INT64, 2, none);
    set(g, window, PARE_DNN_CONVOLUTION_POST_PADDINGS, PARE_DNN_T_INT64, 2, none);
    set(g, window, PARE_DNN_CONVOLUTION_STRIDES, PARE_DNN_T_INT64, 2, one);
    set(g, window, PARE_DNN_CONVOLUTION_DILATIONS, PARE_DNN_T_INT64, 2, one);
    ask(g, api.finalize(window));
    set(g, op, PARE_DNN_FORWARD + PARE_DNN_OF_ALPHA,
        g->with == WRONG_ELEMENT ? PARE_DNN_T_DOUBLE : PARE_DNN_T_FLOAT, 1, &alpha);
    set(g, op, PARE_DNN_FORWARD + PARE_DNN_OF_BETA, PARE_DNN_T_FLOAT, 1, &beta);
    set(g, op, PARE_DNN_FORWARD + PARE_DNN_OF_CONVOLUTION, PARE_DNN_T_DESCRIPTOR, 1, &window);
    set(g, op, PARE_DNN_FORWARD + PARE_DNN_OF_W, PARE_DNN_T_DESCRIPTOR, 1, &g->tensor[W]);
    set(g, op, PARE_DNN_FORWARD + PARE_DNN_OF_X, PARE_DNN_T_DESCRIPTOR, 1, &g->tensor[X]);
    set(g, op, PARE_DNN_FORWARD + PARE_DNN_OF_Y, PARE_DNN_T_DESCRIPTOR, 1, &g->tensor[Y]);
    ask(g, api.finalize(op));
    return op;
}

static void *addition_make(graph_parts *g)
{
    void *of = make(g, PARE_DNN_POINTWISE), *op = make(g, PARE_DNN_OP_POINTWISE);
    void *const x = g->with == LOOSE_STEP ? g->tensor[OUT] : g->tensor[Y];
    set_int(g, of, PARE_DNN_POINTWISE_MODE, PARE_DNN_T_POINTWISE_MODE, PARE_DNN_POINTWISE_ADD);
    set_int(g, of, PARE_DNN_POINTWISE_MATH, PARE_DNN_T_DATA_TYPE, PARE_DNN_F32);
    ask(g, api.finalize(of));
    set(g, op, PARE_DNN_OP_POINTWISE_OF, PARE_DNN_T_DESCRIPTOR, 1, &of);
    set(g, op, PARE_DNN_OP_POINTWISE_X, PARE_DNN_T_DESCRIPTOR, 1, &x);
    set(g, op, PARE_DNN_OP_POINTWISE_B, PARE_DNN_T_DESCRIPTOR, 1, &g->tensor[BIAS]);
    set(g, op, PARE_DNN_OP_POINTWISE_Y, PARE_DNN_T_DESCRIPTOR, 1, &g->tensor[OUT]);
    ask(g, api.finalize(op));
    return op;
}

static void *config_find(graph_parts *g)
{
    void *h = make(g, PARE_DNN_HEURISTICS), *config[8];
    int64_t count = 0;
    set(g, h, PARE_DNN_HEURISTICS_GRAPH, PARE_DNN_T_DESCRIPTOR, 1, &g->graph);
    set_int(g, h, PARE_DNN_HEURISTICS_MODE, PARE_DNN_T_HEURISTICS_MODE,
            PARE_DNN_HEURISTICS_FALLBACK);
    ask(g, api.finalize(h));
    for (int i = 0; i < 8; i++) config[i] = make(g, PARE_DNN_ENGINE_CONFIG);
    ask(g, api.get(h, PARE_DNN_HEURISTICS_RESULTS, PARE_DNN_T_DESCRIPTOR, 8, &count, config));
    if (!g->refused) assert_true(count > 0);
    return g->with == OWN_CONFIG ? config[7] : config[0];
}

/* A convolution of one pixel and its bias, with a plan of the fallback's first engine. */
static void graph_build(graph_parts *g)
{
    const int64_t wide = g->with == WRONG_SHAPE;
    tensor_make(g, X, (const int64_t[]){1, CHANNELS, SIDE, SIDE}, false);
    tensor_make(g, W, (const int64_t[]){FILTERS, CHANNELS, 1, 1}, false);
    tensor_make(g, Y, (const int64_t[]){1, FILTERS, SIDE, SIDE + wide}, true);
    tensor_make(g, BIAS, (const int64_t[]){1, FILTERS, 1, 1}, false);
    tensor_make(g, OUT, (const int64_t[]){1, FILTERS, SIDE, SIDE + wide}, false);
    if (g->refused) return;
    void *ops[2] = {convolution_make(g), addition_make(g)};
    g->graph = make(g, PARE_DNN_GRAPH);
    if (g->with != NO_HANDLE)
        set(g, g->graph, PARE_DNN_GRAPH_HANDLE, PARE_DNN_T_HANDLE, 1, &g->handle);
    set(g, g->graph, PARE_DNN_GRAPH_OPS, PARE_DNN_T_DESCRIPTOR, 2, ops);
    ask(g, api.finalize(g->graph));
    if (g->refused) return;
    void *config = config_find(g);
    g->plan = make(g, PARE_DNN_PLAN);
    set(g, g->plan, PARE_DNN_PLAN_HANDLE, PARE_DNN_T_HANDLE, 1, &g->handle);
    set(g, g->plan, PARE_DNN_PLAN_CONFIG, PARE_DNN_T_DESCRIPTOR, 1, &config);
    ask(g, api.finalize(g->plan));
}

static void graph_execute(graph_parts *g, float *const data[TENSORS])
{
    void *workspace = NULL;
    int64_t id[] = {X + 1, W + 1, OUT + 1, BIAS + 1};
    void *address[] = {data[X], data[W], data[OUT], data[BIAS]}, *pack;
    if (g->with == OTHER_NAME) id[3] = Y + 1;
    if (g->with == ODD_ADDRESS) address[3] = data[BIAS] + 1;
    pack = make(g, PARE_DNN_VARIANT_PACK);
    const int count = g->with == MISSING_NAME ? 3 : 4;
    set(g, pack, PARE_DNN_PACK_IDS, PARE_DNN_T_INT64, count, id);
    set(g, pack, PARE_DNN_PACK_POINTERS, PARE_DNN_T_POINTER, count, address);
    set(g, pack, PARE_DNN_PACK_WORKSPACE, PARE_DNN_T_POINTER, 1, &workspace);
    ask(g, api.finalize(pack));
    ask(g, api.execute(g->handle, g->plan, pack));
}

static void graph_close(graph_parts *g)
{
    while (g->count) assert_int_equal(api.drop(g->made[--g->count]), 0);
    assert_int_equal(api.destroy(g->handle), 0);
}

static void attempt(graph_parts *g, mistake with, float out[SIDE * SIDE * FILTERS])
{
    float x[SIDE * SIDE * CHANNELS], w[FILTERS * CHANNELS] = {1, 0, 0, 1, 2, -1},
                                                 bias[8] = {5, 6, 7};
    for (int i = 0; i < SIDE * SIDE * CHANNELS; i++) x[i] = (float)i;
    *g = (graph_parts){.with = with};
    assert_int_equal(api.create(&g->handle), 0);
    graph_build(g);
    if (!g->refused && with <= LAST_OF_BUILD && with != NOTHING)
        fail_msg("mistake %d passed", with);
    if (!g->refused) {
        float *const data[TENSORS] = {device_copy(x, sizeof x), device_copy(w, sizeof w), NULL,
                                      device_copy(bias, sizeof bias),
                                      device_copy(NULL, sizeof(float) * SIDE * SIDE * FILTERS)};
        graph_execute(g, data);
        device_fetch(out, data[OUT], sizeof(float) * SIDE * SIDE * FILTERS);
        for (int i = 0; i < TENSORS; i++)
            if (i != OUT && i != Y) CUDA_OK(cudaFree(data[i]));
    }
    graph_close(g);
}

static void what_is_right_is_computed(void **state)
{
    (void)state;
    graph_parts g;
    float out[SIDE * SIDE * FILTERS];
    attempt(&g, NOTHING, out);
    assert_int_equal(g.refused, 0);
    for (int i = 0; i < SIDE * SIDE; i++) {
        const float a = (float)(2 * i), b = a + 1;
        assert_float_equal(out[3 * i], a + 5, 0);
        assert_float_equal(out[3 * i + 1], b + 6, 0);
        assert_float_equal(out[3 * i + 2], 2 * a - b + 7, 0);
    }
}

static void each_mistake_is_refused(void **state)
{
    (void)state;
    float out[SIDE * SIDE * FILTERS];
    for (int m = NOTHING + 1; m < MISTAKES; m++) {
        graph_parts g;
        char last[256] = "";
        attempt(&g, (mistake)m, out);
        api.last_error(last, sizeof last);
        if (g.refused / PARE_DNN_CATEGORY * PARE_DNN_CATEGORY != PARE_DNN_BAD_PARAM || !last[0])
            fail_msg("mistake %d gives status %d: %s", m, g.refused, last);
    }
}

static void nothing_is_made_while_a_stream_records(void **state)
{
    (void)state;
    cudaStream_t stream;
    cudaGraph_t recorded;
    void *handle = NULL;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    assert_int_not_equal(api.create(&handle), 0);
    (void)cudaStreamEndCapture(stream, &recorded);
    (void)cudaGetLastError();
    CUDA_OK(cudaStreamDestroy(stream));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(what_is_right_is_computed),
        device_test(each_mistake_is_refused),
        device_test(nothing_is_made_while_a_stream_records),
    };
    simt_dnn_api(&api);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
