/* SPDX-License-Identifier: Apache-2.0 */
/* Products whose tiles are few, by the instructions of compute capability 9.0 with operands swapped
   and depth shared by a cluster, against the CPU's plain kernels: bytes of integers are equal.
   Each case says how many of the three tiles must have taken it. Then behind other kernels in a
   recorded run. Skipped on other devices. */
#include "runtime/cuda/gemm/prepack.h"
#include "runtime/cuda/gemm/wgmma_swap.h"
#include "tests/cuda/wgmma_case.h"

enum { TILES = 3 };

/* The emulation runs no others: they have tests of their own. */
static void check(kernel_case *k, int tiles)
{
    k->only = simt_emulated() ? "wgmma_swap" : NULL;
    case_run_device(k, simt_emulated() ? 0 : 1);
    assert_int_equal(k->swap_runs, tiles);
    case_close(k);
}

static void clusters_share_depth(void **state)
{
    (void)state;
    static const struct {
        int64_t tiles, bytes;
        int cluster;
    } cases[] = {{16, 2048, 8},    {17, 2048, 4},    {16, 2047 - 128, 4},
                 {33, 1 << 20, 4}, {34, 1 << 20, 2}, {66, 512, 2},
                 {66, 384, 1},     {67, 1 << 20, 1}, {1, 16, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(pare_swap_cluster(cases[i].tiles, cases[i].bytes), cases[i].cluster);
}

/* Of clusters of 1, 2, 4 and 8; stages that are filled again; tails of rows, columns and depth. */
static const int64_t matrices[][3] = {
    /* rows, depth, columns */
    {1, 2048, 1000}, {49, 1152, 132},  {33, 528, 68},   {200, 64, 64},
    {130, 16, 4},    {288, 1200, 512}, {100, 3008, 64}, {64, 4608, 64},
};
enum { MATRICES = sizeof matrices / sizeof *matrices };

static void matrices_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * MATRICES; i++) {
        kernel_case k;
        const int64_t *c = matrices[i / 4], x[2] = {c[0], c[1]}, w[2] = {c[1], c[2]},
                      y[2] = {c[0], c[2]};
        if (case_is_quick() && i % 5) continue;
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        inputs_set(&k, i, 2, x, w, y, w[1], x[1], i % 3 == 0, z_type(i));
        check(&k, TILES);
    }
}

static void matrices_of_halves_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * MATRICES; i++) {
        kernel_case k;
        const int64_t *c = matrices[i / 4], depth = c[1] / 2 / 8 * 8, x[2] = {c[0], depth},
                      w[2] = {depth, c[2]}, y[2] = {c[0], c[2]};
        if (case_is_quick() && i % 5 != 2) continue;
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        halves_set(&k, i / 4 % 2 * 4 + i % 4, 2, x, w, y, c[2], i / 8 % 2 && !is_gelu(i));
        check(&k, TILES);
    }
}

/* Windows over borders, in steps and with gaps; taps of half a step, and depths that end there. */
typedef struct small_convolution {
    int64_t images, channels, in[2], filters, taps[2], stride, pad[2], dilation;
} small_convolution;
static const small_convolution convolutions[] = {
    {1, 64, {14, 13}, 64, {3, 3}, 1, {1, 1}, 1},  {2, 128, {9, 9}, 132, {3, 3}, 2, {1, 1}, 1},
    {1, 512, {7, 7}, 64, {3, 3}, 1, {1, 1}, 1},   {1, 192, {8, 8}, 96, {1, 1}, 2, {0, 0}, 1},
    {3, 64, {10, 11}, 48, {5, 5}, 1, {2, 2}, 1},  {1, 64, {9, 8}, 64, {7, 1}, 1, {3, 0}, 1},
    {1, 64, {20, 20}, 128, {3, 3}, 1, {2, 2}, 2}, {2, 256, {7, 7}, 64, {1, 1}, 1, {0, 0}, 1},
};
enum { CONVOLUTIONS = sizeof convolutions / sizeof *convolutions };

/* An empty case, and the shapes of X, W and Y. */
static void small_open(kernel_case *k, const small_convolution *c, int i, int64_t x[4],
                       int64_t w[4], int64_t y[4])
{
    const int64_t ends[4] = {c->pad[0], c->pad[1], c->pad[0], c->pad[1]};
    case_open(k, "pare", "FusedConv", (uint64_t)i + 1);
    k->nhwc = true;
    x[0] = y[0] = c->images;
    x[1] = w[1] = c->channels;
    w[0] = y[1] = c->filters;
    for (int a = 0; a < 2; a++) {
        x[2 + a] = c->in[a];
        w[2 + a] = c->taps[a];
        y[2 + a] = (c->in[a] + 2 * c->pad[a] - (c->taps[a] - 1) * c->dilation - 1) / c->stride + 1;
    }
    case_set_ints(k, "strides", (int64_t[]){c->stride, c->stride}, 2);
    case_set_ints(k, "dilations", (int64_t[]){c->dilation, c->dilation}, 2);
    case_set_ints(k, "pads", ends, 4);
}

static void convolutions_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * CONVOLUTIONS; i++) {
        kernel_case k;
        int64_t x[4], w[4], y[4];
        const small_convolution *c = &convolutions[i / 4];
        const bool is_padded = c->pad[0] + c->pad[1] > 0;
        if (case_is_quick() && i % 5) continue;
        small_open(&k, c, i, x, w, y);
        inputs_set(&k, i, 4, x, w, y, w[0], w[1] * w[2] * w[3], !is_padded && i % 3 == 0,
                   z_type(i));
        check(&k, TILES);
    }
}

static void convolutions_of_halves_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * CONVOLUTIONS; i++) {
        kernel_case k;
        int64_t x[4], w[4], y[4];
        const small_convolution *c = &convolutions[i / 2];
        const int how = i / 2 % 2 * 4 + i % 3; /* no GELU */
        if (case_is_quick() && i % 5 != 1) continue;
        small_open(&k, c, i, x, w, y);
        halves_set(&k, how, 4, x, w, y, w[0], i % 2);
        check(&k, TILES);
    }
}

/* --- integers in real units: floats, with and without a residual; bytes behind a GELU --- */

static void real_units_agree(void **state)
{
    (void)state;
    static const pare_dtype floats[] = {PARE_f32, PARE_f16, PARE_bf16};
    static const char *const acts[] = {"none", "relu", "clip"};
    enum { NOTHING, OF_Y, BYTES, GELU, HOWS };
    for (int i = 0; i < 6 * HOWS; i++) {
        kernel_case k;
        const int64_t *c = matrices[i % MATRICES], x[2] = {c[0], c[1]}, w[2] = {c[1], c[2]},
                      y[2] = {c[0], c[2]};
        const int how = i % HOWS;
        const pare_dtype y_type = floats[i / HOWS % 3];
        const pare_dtype z = how == OF_Y ? y_type : how == BYTES ? x_type(i / 5) : PARE_NOTYPE;
        if (case_is_quick() && i % 5 > 1) continue;
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        operands_set(&k, i, 2, x, w, y, c[2], c[1], true, z);
        case_set_float(&k, "z_scale", how == BYTES ? 0.3f : 1);
        case_set_int(&k, "to", how != GELU ? PARE_f32 : i / HOWS % 2 ? PARE_u8 : PARE_s8);
        if (how != GELU) case_set_int(&k, "output_dtype", y_type);
        if (how == GELU) case_set_int(&k, "y_zero_point", i / HOWS % 2 ? 11 : 0);
        const char *act = how == GELU ? "gelu" : acts[i / 2 % 3];
        assert_int_equal(pare_node_set_string(k.node, "activation", act), PARE_OK);
        if (!strcmp(act, "clip")) {
            case_set_float(&k, "alpha", -2);
            case_set_float(&k, "beta", 5);
        }
        const bool none = how == BYTES && y_type == PARE_bf16; /* bytes to add to bf16 */
        check(&k, how == GELU ? TILES : !none);
    }
}

/* What they must leave to others: many tiles, channels that no box is, padding that is not 0,
   epilogues of other forms, residuals of floats, columns that are not in fours, all where a device
   is smaller than a cluster. */
static void others_are_left(void **state)
{
    (void)state;
    const simt_settings usual = simt_set;
    for (int i = 0; i < 6 + simt_emulated(); i++) {
        kernel_case k;
        const int64_t side = i == 0 ? 270 : 10, filters = i == 5 ? 62 : 64,
                      x[4] = {1, i == 1 ? 96 : 64, side, side}, w[4] = {filters, x[1], 1, 1},
                      y[4] = {1, filters, side + 2, side + 2};
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        k.nhwc = true;
        inputs_set(&k, 0, 4, x, w, y, w[0], x[1], i == 2, i == 4 ? PARE_f32 : PARE_NOTYPE);
        case_set_ints(&k, "pads", (int64_t[]){1, 1, 1, 1}, 4);
        if (i == 3)
            assert_int_equal(pare_node_set_string(k.node, "activation", "leaky_relu"), PARE_OK);
        if (i == 6) simt_set.multiprocessors = 3;
        check(&k, 0);
        simt_set = usual;
    }
}

/* Of 8 bits to 8 bits, by the first tile; its tensors are to be set. */
static pare_cuda_gemm_args product_of(int64_t rows, int columns, int depth)
{
    pare_cuda_gemm_args p;
    pare_cuda_gemm_init(&p, PARE_s8, PARE_s8);
    p.rows = rows, p.columns = columns, p.depth = depth;
    p.x_row = p.w_row = depth, p.y_row = columns;
    p.epilogue = (pare_epilogue){
        .to = PARE_s8, .z_type = PARE_NOTYPE, .y_scale = 1, .z_scale = 1, .low = -128, .high = 127};
    p.tile = PARE_CUDA_32X64;
    return p;
}

/* --- a recorded run: Y of each product is X of the next one --- */

enum { LINKS = 3, LINK_ROWS = 40, SIDE = 512 };
typedef int8_t link_x[LINK_ROWS][SIDE];
typedef int8_t link_w[SIDE][SIDE];

static int8_t link_sum(const int8_t *x, const int8_t *w)
{
    int sum = 0;
    for (int k = 0; k < SIDE; k++) sum += x[k] * w[k];
    return (int8_t)fminf(fmaxf(rintf((float)sum / 16), -128), 127);
}

static void links_compute(link_x y, link_x x, link_w *w)
{
    link_x from;
    memcpy(y, x, sizeof from);
    for (int i = 0; i < LINKS; i++) {
        memcpy(from, y, sizeof from);
        for (int r = 0; r < LINK_ROWS; r++)
            for (int c = 0; c < SIDE; c++) y[r][c] = link_sum(from[r], w[i][c]);
    }
}

/* The first by mma.sync, whose tiles may still store while the next ones read W. */
static cudaGraph_t links_record(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    cudaGraph_t graph;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CUDA_OK(pare_cuda_gemm_launch(&p[0], stream));
    for (int i = 1; i < LINKS; i++) CUDA_OK(pare_cuda_swap_launch(&p[i], stream));
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    return graph;
}

/* Played twice, of other numbers: what the first left is not read again. */
static void links_play(cudaGraph_t graph, cudaStream_t stream, const pare_cuda_gemm_args *p,
                       link_w *w)
{
    static link_x x, y, expected;
    cudaGraphExec_t exec;
    const uint64_t before = simt_dependents();
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < LINK_ROWS * SIDE; i++)
            x[i / SIDE][i % SIDE] = (int8_t)((i * 7919 + run * 31) % 251 - 125);
        CUDA_OK(cudaMemcpy((void *)p[0].x, x, sizeof x, cudaMemcpyHostToDevice));
        CUDA_OK(cudaGraphLaunch(exec, stream));
        CUDA_OK(cudaStreamSynchronize(stream));
        CUDA_OK(cudaMemcpy(y, p[LINKS - 1].y, sizeof y, cudaMemcpyDeviceToHost));
        links_compute(expected, x, w);
        assert_memory_equal(y, expected, sizeof y);
    }
    if (simt_emulated()) assert_true(simt_dependents() - before >= 2 * (LINKS - 1));
    CUDA_OK(cudaGraphExecDestroy(exec));
}

static void a_recorded_run_waits_for_x(void **state)
{
    (void)state;
    static link_w w[LINKS];
    static float scale[SIDE];
    static const int32_t shift[SIDE];
    pare_cuda_gemm_args p[LINKS];
    cudaStream_t stream;
    uint64_t random = 1;
    for (int i = 0; i < LINKS * SIDE * SIDE; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        w[i / SIDE / SIDE][i / SIDE % SIDE][i % SIDE] = (int8_t)((int)(random >> 33) % 3 - 1);
    }
    for (int i = 0; i < SIDE; i++) scale[i] = 1 / 16.0f;
    void *room[LINKS + 1], *weights = device_copy(w, sizeof w),
                           *scales = device_copy(scale, sizeof scale),
                           *shifts = device_copy(shift, sizeof shift);
    for (int i = 0; i <= LINKS; i++) room[i] = device_copy(NULL, sizeof(link_x));
    for (int i = 0; i < LINKS; i++) {
        p[i] = product_of(LINK_ROWS, SIDE, SIDE);
        p[i].x = room[i], p[i].w = (char *)weights + i * (int)sizeof *w, p[i].y = room[i + 1];
        p[i].scale = scales, p[i].shift = shifts;
    }
    p[0].tile = PARE_CUDA_64X64;
    p[0].copy = PARE_CUDA_CHUNK;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaGraph_t graph = links_record(p, stream);
    links_play(graph, stream, p, w);
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaStreamDestroy(stream));
    for (int i = 0; i <= LINKS; i++) CUDA_OK(cudaFree(room[i]));
    CUDA_OK(cudaFree(weights)), CUDA_OK(cudaFree(scales)), CUDA_OK(cudaFree(shifts));
}

/* --- the launcher alone --- */

/* Of each kind and epilogue. */
static void forms_are_refused(pare_cuda_gemm_args p)
{
    static const pare_dtype types[] = {PARE_s8, PARE_f16};
    for (int i = 0; i < 8; i++) {
        p.x_type = types[i & 1];
        p.epilogue.act.kind = i & 2 ? PARE_ACT_GELU : PARE_ACT_NONE;
        p.epilogue.real = i & 4;
        CUDA_IS(cudaErrorInvalidValue, pare_cuda_swap_launch(&p, NULL));
    }
}

/* Sums of 2048 times 1 times 2, a 128th of which is 32, by clusters of 8. Its
   calls fail in turn; what maps refuse is an invalid value. */
static void failing_calls_are_passed_on(void **state)
{
    (void)state;
    enum { ROWS = 70, DEPTH = 2048, COLUMNS = 16, FIRST_MAP = 2, LAST_MAP = 3 };
    if (!simt_emulated()) skip();
    const int calls = simt_set.dependent ? 8 : 6; /* a kernel ahead: of it, and of the code */
    static int8_t x[ROWS * DEPTH], w[COLUMNS * DEPTH], y[ROWS * COLUMNS];
    float scale[COLUMNS];
    int32_t shift[COLUMNS] = {0};
    pare_cuda_gemm_args p = product_of(ROWS, COLUMNS, DEPTH);
    memset(x, 1, sizeof x);
    memset(w, 2, sizeof w);
    for (int i = 0; i < COLUMNS; i++) scale[i] = 1 / 128.0f;
    void *to = device_copy(NULL, sizeof y),
         *from[4] = {device_copy(x, sizeof x), device_copy(w, sizeof w),
                     device_copy(scale, sizeof scale), device_copy(shift, sizeof shift)};
    p.x = from[0], p.w = from[1], p.scale = from[2], p.shift = from[3], p.y = to;
    p.tile = PARE_CUDA_256X128; /* has no such kernel */
    forms_are_refused(p);
    p.tile = PARE_CUDA_32X64;
    CUDA_OK(pare_cuda_swap_launch(&p, NULL));
    for (int n = 1; n <= calls; n++) {
        simt_fail_at((uint64_t)n, cudaErrorLaunchFailure, false);
        const cudaError_t e = pare_cuda_swap_launch(&p, NULL);
        simt_fail_at(0, 0, false);
        const bool map = n >= FIRST_MAP && n <= LAST_MAP;
        assert_int_equal(e, map ? cudaErrorInvalidValue : cudaErrorLaunchFailure);
        (void)cudaGetLastError();
    }
    simt_fail_at((uint64_t)calls + 1, cudaErrorLaunchFailure, false);
    CUDA_OK(pare_cuda_swap_launch(&p, NULL));
    simt_fail_at(0, 0, false);
    p.rows = 0;
    CUDA_OK(pare_cuda_swap_launch(&p, NULL));
    device_fetch(y, to, sizeof y);
    for (int i = 0; i < ROWS * COLUMNS; i++) assert_int_equal(y[i], 32);
    for (int i = 0; i < 4; i++) CUDA_OK(cudaFree(from[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clusters_share_depth),
        device_test(matrices_agree),
        device_test(convolutions_agree),
        device_test(matrices_of_halves_agree),
        device_test(convolutions_of_halves_agree),
        device_test(real_units_agree),
        device_test(others_are_left),
        device_test(a_recorded_run_waits_for_x),
        device_test(failing_calls_are_passed_on),
    };
    int major = 0, minor = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) != cudaSuccess ||
        major != 9 || minor != 0) {
        printf("SKIP: no device of compute capability 9.0\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
