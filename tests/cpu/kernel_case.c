/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cpu/kernel_case.h"
#include "runtime/base/minifloat.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

void case_open(kernel_case *k, const char *domain, const char *op_type, uint64_t seed)
{
    memset(k, 0, sizeof *k);
    pare_ctx_init(&k->ctx);
    k->number = seed;
    k->seed = seed * 2 + 1;
    k->threads = 1;
    assert_int_equal(pare_model_new(&k->ctx, &k->model, "case"), PARE_OK);
    assert_int_equal(pare_model_set_opset(k->model, "", 20), PARE_OK);
    pare_value *y;
    assert_int_equal(pare_value_new(k->model->graph, &y, "y"), PARE_OK);
    assert_int_equal(
        pare_node_new(k->model->graph, &k->node, 0, op_type, domain, "n", NULL, 0, &y, 1), PARE_OK);
    k->op = pare_op_of(k->node);
    assert_non_null(k->op);
}

void case_close(kernel_case *k)
{
    for (int i = 0; i < k->in_count; i++) free(k->in[i].data);
    free(k->out.data);
    pare_model_free(k->model);
}

/* PCG-like multiply and shift (O'Neill 2014); good enough for test data. */
uint32_t case_random(kernel_case *k)
{
    k->seed = k->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(k->seed >> 33) ^ (uint32_t)(k->seed >> 17);
}

int case_between(kernel_case *k, int low, int high)
{
    return (int)(low + (int64_t)(case_random(k) % (uint64_t)((int64_t)high - low + 1)));
}

float case_float(kernel_case *k)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)(case_random(k) & 0xffffff) * 0x1p-24f;
    return (sum - 2) * 1.7f;
}

static void fill(kernel_case *k, const pare_view *v, int low, int high)
{
    int64_t n = pare_view_count(v);
    const pare_type_info *type = pare_type(v->dtype);
    for (int64_t i = 0; i < n; i++) {
        if (v->dtype == PARE_s8)
            ((int8_t *)v->data)[i] = (int8_t)case_between(k, low, high);
        else if (v->dtype == PARE_u8)
            ((uint8_t *)v->data)[i] = (uint8_t)case_between(k, low, high);
        else if (v->dtype == PARE_s32)
            ((int32_t *)v->data)[i] = case_between(k, low, high);
        else if (pare_type_is_packed(v->dtype) || pare_is_minifloat(v->dtype))
            ((uint8_t *)v->data)[i * type->bits / 8] = (uint8_t)case_random(k);
        else
            type->from_f32_ref((char *)v->data + i * (type->bits / 8), case_float(k) * (float)high);
    }
}

void *case_input(kernel_case *k, pare_dtype dtype, int rank, const int64_t *dims, bool constant,
                 int low, int high)
{
    int i = k->in_count++;
    pare_value *value = NULL;
    if (dtype == PARE_NOTYPE) {
        assert_int_equal(pare_node_set_in(k->node, i, NULL), PARE_OK);
        return NULL;
    }
    pare_shape shape = {.rank = rank};
    for (int a = 0; a < rank; a++) shape.dim[a] = dims[a];
    pare_view_set(&k->in[i], dtype, &shape, k->nhwc && !constant && rank == 4);
    size_t bytes = pare_view_bytes(&k->in[i]);
    assert_int_equal(posix_memalign(&k->in[i].data, 64, bytes + 64), 0);
    fill(k, &k->in[i], low, high);
    char name[16];
    snprintf(name, sizeof name, "x%d", i);
    assert_int_equal(pare_value_new(k->model->graph, &value, name), PARE_OK);
    pare_value_set_type(value, dtype, &shape);
    assert_int_equal(pare_node_set_in(k->node, i, value), PARE_OK);
    k->constant[i] = constant;
    return k->in[i].data;
}

void case_put(kernel_case *k, int i, int64_t at, float v)
{
    const pare_type_info *type = pare_type(k->in[i].dtype);
    type->from_f32_ref((char *)k->in[i].data + at * (type->bits / 8), v);
}

void case_coarsen(kernel_case *k, int i)
{
    const pare_type_info *type = pare_type(k->in[i].dtype);
    for (int64_t j = 0; j < pare_view_count(&k->in[i]); j++) {
        const float v = type->to_f32((const char *)k->in[i].data + j * (type->bits / 8));
        case_put(k, i, j, rintf(v * 4) / 4);
    }
}

float case_lowest(pare_dtype type)
{
    return type == PARE_f16 ? -65504 : type == PARE_bf16 ? -0x1.fep127f : -FLT_MAX;
}

void case_set_int(kernel_case *k, const char *name, int64_t v)
{
    assert_int_equal(pare_node_set_int(k->node, name, v), PARE_OK);
}

void case_set_float(kernel_case *k, const char *name, float v)
{
    assert_int_equal(pare_node_set_float(k->node, name, v), PARE_OK);
}

void case_set_ints(kernel_case *k, const char *name, const int64_t *v, int n)
{
    assert_int_equal(pare_node_set_ints(k->node, name, v, n), PARE_OK);
}

void case_infer(kernel_case *k)
{
    pare_status st = k->op->infer(k->node);
    if (st != PARE_OK) fail_msg("%s", k->ctx.message);
    const pare_value *y = k->node->out[0];
    assert_true(pare_shape_known(&y->shape));
    pare_view_set(&k->out, y->dtype, &y->shape, k->nhwc && y->shape.rank == 4);
    assert_int_equal(posix_memalign(&k->out.data, 64, pare_view_bytes(&k->out) + 64), 0);
}

size_t case_bytes(const kernel_case *k) { return pare_view_bytes(&k->out); }

const pare_kernel *case_plain(const kernel_case *k)
{
    const pare_kernel *last = NULL;
    for (const pare_kernel *const *it = k->op->cpu; *it; it++) last = *it;
    assert_non_null(last);
    return last;
}

/* On host or device memory; waits for the device. */
static void execute(kernel_case *k, const pare_kernel *kernel, const pare_prep *prep,
                    const pare_view *in, pare_view *out, void *scratch)
{
    pare_arena arena;
    pare_arena_init(&arena, &k->ctx);
    pare_call call = {.ctx = &k->ctx,
                      .node = k->node,
                      .in = in,
                      .out = out,
                      .in_count = k->in_count,
                      .out_count = 1,
                      .threads = prep->device ? 1 : k->threads,
                      .state = prep->state,
                      .scratch = scratch,
                      .stream = prep->device ? prep->device->setup : NULL};
    if (kernel->bind && kernel->bind(&call, &arena) != PARE_OK)
        fail_msg("%s: %s", kernel->name, k->ctx.message);
    pare_status st = kernel->run(&call);
    if (st == PARE_OK && call.stream) st = prep->device->backend->sync(&k->ctx, call.stream);
    if (st != PARE_OK) fail_msg("%s: %s", kernel->name, k->ctx.message);
    if (kernel->unbind) kernel->unbind(call.bound);
    pare_arena_free(&arena);
}

/* Where the kernel shares a dying residual, its memory is the output's. */
static void host_execute(kernel_case *k, const pare_kernel *kernel, const pare_prep *prep, void *y)
{
    pare_view in[10], out = k->out;
    void *scratch;
    memcpy(in, k->in, sizeof in);
    if (prep->share >= 0) {
        memcpy(out.data, in[prep->share].data, case_bytes(k));
        in[prep->share].data = out.data;
    }
    assert_int_equal(posix_memalign(&scratch, 64, prep->scratch + 64), 0);
    execute(k, kernel, prep, in, &out, scratch);
    memcpy(y, out.data, case_bytes(k));
    free(scratch);
}

/* --- the same node on a device, where the tests are built with one --- */

#ifdef CASE_DEVICE
#include "runtime/cuda/gemm/blas_device.h"
#include "runtime/base/f8.h"
#include "runtime/exec/exec.h"
#include "runtime/ops/fused.h"
#include "tests/simt/emulation.h"

/* May codes be a step apart? Behind a curved activation, whose functions a real device computes
   otherwise. */
static bool is_a_step_apart(const kernel_case *k)
{
    pare_act act;
    if (pare_act_read(k->node, &act) != PARE_OK || !pare_act_is_curved(&act)) return false;
    return !simt_emulated();
}

/* A step of FP8 at v; 0 of other types. */
static double f8_step(pare_dtype type, double v)
{
    if (!pare_type_is_f8(type)) return 0;
    return type == PARE_f8e4m3 ? fabs(v) / 8 + 0x1p-9 : fabs(v) / 4 + 0x1p-16;
}

static double number_of(const kernel_case *k, const void *data, int64_t i)
{
    const pare_type_info *type = pare_type(k->out.dtype);
    if (pare_type_is_f8(k->out.dtype))
        return (double)pare_f8_value(k->out.dtype, ((const uint8_t *)data)[i]);
    return (double)type->to_f32((const char *)data + i * (type->bits / 8));
}

/* How far apart a device's element may be: bytes none but for those of is_a_step_apart, floats one
   unit of their type's rounding (f32: 1e-5), relative to the tensor's largest value or 1: sums in
   another order differ by what their terms' rounding is, not by their own. Codes of FP8 that follow
   sums are a step apart as well. wgmma cuts what it adds of FP8 after 14 bits, 32 numbers and their
   sum at a time: by up to 33 parts of 2^13 of the largest, half of it in the mean and of one sign,
   so that what a stage has lost grows with the number of stages as what it holds does: 2^-7 of the
   tensor's largest value. */
static void compare_device(const kernel_case *k, const char *kernel, const void *want,
                           const void *got)
{
    const bool f8 = pare_type_is_f8(k->in[0].dtype);
    const bool floats = pare_type_is_float(k->out.dtype) || (f8 && pare_type_is_f8(k->out.dtype));
    double unit = k->out.dtype == PARE_f16 ? 1e-3 : k->out.dtype == PARE_bf16 ? 8e-3 : 1e-5;
    if (f8 && strstr(kernel, "wgmma")) unit += 0x1p-7;
    if (!memcmp(want, got, case_bytes(k))) return;
    if (!floats && !is_a_step_apart(k)) fail_msg("%s: other bytes", kernel);
    double largest = 1;
    for (int64_t i = 0; i < pare_view_count(&k->out); i++) {
        double a = fabs(number_of(k, want, i));
        if (a > largest && isfinite(a)) largest = a;
    }
    for (int64_t i = 0; i < pare_view_count(&k->out); i++) {
        double a = number_of(k, want, i), b = number_of(k, got, i);
        if ((isnan(a) && isnan(b)) || a == b) continue;
        if (!(fabs(a - b) <= (floats ? unit * largest + f8_step(k->out.dtype, a) : 1)))
            fail_msg("%s: element %lld is %.9g, expected %.9g", kernel, (long long)i, b, a);
    }
}

static void device_views(kernel_case *k, pare_device *device, const pare_view *from, int count,
                         pare_view *to)
{
    for (int i = 0; i < count; i++) {
        to[i] = from[i];
        if (from[i].dtype != PARE_NOTYPE)
            assert_int_equal(pare_device_copy(&k->ctx, device, &to[i].data, from[i].data,
                                              pare_view_bytes(&from[i])),
                             PARE_OK);
    }
}

static void device_execute(kernel_case *k, const pare_kernel *kernel, const pare_prep *prep,
                           const void *want)
{
    pare_device *device = prep->device;
    pare_view in[10], out;
    void *got = malloc(case_bytes(k) + 1);
    assert_non_null(got);
    device_views(k, device, k->in, k->in_count, in);
    device_views(k, device, &k->out, 1, &out);
    const pare_backend *b = device->backend;
    void *scratch;
    assert_int_equal(b->alloc(&k->ctx, device, &scratch, prep->scratch), PARE_OK);
    execute(k, kernel, prep, in, &out, scratch);
    assert_int_equal(b->download(&k->ctx, device->setup, got, out.data, case_bytes(k)), PARE_OK);
    assert_int_equal(b->sync(&k->ctx, device->setup), PARE_OK);
    compare_device(k, kernel->name, want, got);
    b->free(device, scratch);
    for (int i = 0; i < k->in_count; i++)
        if (in[i].dtype != PARE_NOTYPE) b->free(device, in[i].data);
    b->free(device, out.data);
    free(got);
}

static pare_device *the_device;

void case_device_close(void)
{
    pare_device_close(the_device);
    the_device = NULL;
}

/* One for many cases: opening one of a real driver, and its libraries, takes long. */
static pare_device *device_open(void)
{
    static pare_ctx ctx;
    static bool closes;
    if (the_device) return the_device;
    pare_ctx_init(&ctx);
    if (pare_device_open(&ctx, &the_device, "cuda") != PARE_OK) fail_msg("%s", ctx.message);
    if (!closes) closes = !atexit(case_device_close);
    return the_device;
}

/* Every kernel of the device that takes the node, against the plain kernel's result. */
static void device_check(kernel_case *k, const pare_prep *plain, const void *want)
{
    pare_device *device = device_open();
    for (const pare_kernel *const *it = k->op->cuda; *it; it++) {
        if (k->only && !strstr((*it)->name, k->only)) continue;
        if (k->without && strstr((*it)->name, k->without)) continue;
        pare_prep prep = *plain;
        prep.device = device;
        prep.dying = prep.packed = 0;
        prep.scratch = 0;
        prep.state = NULL;
        if ((*it)->can && !(*it)->can(&prep)) continue;
        if ((*it)->prepare && (*it)->prepare(&prep) != PARE_OK)
            fail_msg("%s: %s", (*it)->name, k->ctx.message);
        device_execute(k, *it, &prep, want);
        const bool tcgen = strstr((*it)->name, "tcgen") != NULL,
                   swap = strstr((*it)->name, "wgmma_swap") != NULL,
                   wgmma = !swap && strstr((*it)->name, "wgmma") != NULL;
        k->device_runs += !tcgen && !swap && !wgmma;
        k->wgmma_runs += wgmma;
        k->tcgen_runs += tcgen;
        k->swap_runs += swap;
        k->library_runs += !strncmp((*it)->name, "cublas", 6);
        if ((*it)->release) (*it)->release(prep.state);
    }
}

bool case_has_libraries(void)
{
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    return pare_cuda_blas_find(&ctx, device_open()) != NULL;
}

void case_check_libraries(kernel_case *k, int ours, int theirs)
{
    const bool some = theirs && case_has_libraries(), real = !simt_emulated();
    const int least = !some ? 0 : real ? 1 : theirs, most = some && real ? INT32_MAX : least;
    case_run_device(k, ours);
    const int own = k->device_runs - k->library_runs;
    if (own != ours || k->library_runs < least || k->library_runs > most)
        fail_msg("%s of %s, case %llu: %d of our kernels and %d ways of the libraries took it, "
                 "expected %d and %d%s",
                 k->node->op_type, pare_type(k->in[0].dtype)->name, (unsigned long long)k->number,
                 own, k->library_runs, ours, least, most > least ? " or more" : "");
    case_close(k);
}
#else
static void device_check(kernel_case *k, const pare_prep *plain, const void *want)
{
    (void)k, (void)plain, (void)want;
}
#endif

bool case_run(kernel_case *k, const pare_kernel *kernel, void *y)
{
    pare_arena arena;
    pare_arena_init(&arena, &k->ctx);
    pare_view in[10], out = k->out;
    memcpy(in, k->in, sizeof in);
    for (int i = 0; i < k->in_count; i++)
        if (!k->constant[i]) in[i].data = NULL;
    out.data = NULL;
    pare_prep prep = {.ctx = &k->ctx,
                      .node = k->node,
                      .in = in,
                      .out = &out,
                      .in_count = k->in_count,
                      .out_count = 1,
                      .threads = k->threads,
                      .deterministic = k->deterministic,
                      .dying = k->dying,
                      .arena = &arena,
                      .share = -1};
    bool takes = !kernel->can || kernel->can(&prep);
    if (takes) {
        if (kernel->prepare && kernel->prepare(&prep) != PARE_OK)
            fail_msg("%s: %s", kernel->name, k->ctx.message);
        host_execute(k, kernel, &prep, y);
        if (kernel == case_plain(k)) device_check(k, &prep, y);
        if (kernel->release) kernel->release(prep.state);
    }
    pare_arena_free(&arena);
    return takes;
}

void case_run_device(kernel_case *k, int kernels)
{
    case_infer(k);
    void *y = malloc(case_bytes(k) + 1);
    assert_non_null(y);
    assert_true(case_run(k, case_plain(k), y));
    if (k->device_runs < kernels)
        fail_msg("%s of %s: %d of the device's kernels took it, expected %d", k->node->op_type,
                 pare_type(k->in[0].dtype)->name, k->device_runs, kernels);
    free(y);
}

void case_check_device(kernel_case *k, int kernels)
{
    case_run_device(k, kernels);
    case_close(k);
}

bool case_is_quick(void)
{
    const char *word = getenv("PARE_EXACT");
    return word && !strcmp(word, "quick");
}

int case_apart(void)
{
    const char *number = getenv("PARE_APART");
    return !case_is_quick() ? 1 : number ? atoi(number) : 5;
}
