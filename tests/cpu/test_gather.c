/* SPDX-License-Identifier: Apache-2.0 */
/* Gather, GatherElements, GatherND, ScatterElements, ScatterND, OneHot and ReverseSequence against
   loops over plain arrays, and the messages for wrong indices. */
#include "tests/cpu/kernel_case.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define DIMS(...)                                                                                  \
    (const int64_t[]) { __VA_ARGS__ }

static const pare_dtype sizes[] = {PARE_u8, PARE_bf16, PARE_f32, PARE_s64};

/* Indices of s64 or s32 in [low, high]. */
static void *indices(kernel_case *k, pare_dtype type, int rank, const int64_t *dims, int low,
                     int high)
{
    void *data = case_input(k, type, rank, dims, false, 0, 1);
    for (int64_t i = 0; i < pare_view_count(&k->in[k->in_count - 1]); i++) {
        int v = case_between(k, low, high);
        if (type == PARE_s64)
            ((int64_t *)data)[i] = v;
        else
            ((int32_t *)data)[i] = v;
    }
    return data;
}

static int64_t index_at(const kernel_case *k, int input, int64_t i)
{
    const pare_view *v = &k->in[input];
    return v->dtype == PARE_s64 ? ((const int64_t *)v->data)[i] : ((const int32_t *)v->data)[i];
}

/* The plain kernel's result, as bytes; the caller frees it. */
static char *result(kernel_case *k)
{
    case_infer(k);
    char *y = malloc(case_bytes(k) + 1);
    assert_non_null(y);
    assert_true(case_run(k, case_plain(k), y));
#ifdef CASE_DEVICE
    assert_int_equal(k->device_runs, k->op->cuda[0] ? 1 : 0);
#endif
    return y;
}

static void same_element(const kernel_case *k, const char *y, int64_t to, int input, int64_t from)
{
    size_t bytes = (size_t)pare_type(k->out.dtype)->bits / 8;
    const char *x = k->in[input].data;
    if (memcmp(y + (size_t)to * bytes, x + (size_t)from * bytes, bytes))
        fail_msg("element %lld is not %lld of input %d", (long long)to, (long long)from, input);
}

static void gather_along_every_axis(void **state)
{
    (void)state;
    const int64_t dims[4] = {3, 1, 5, 7}, at[2] = {2, 3};
    for (int t = 0; t < 4; t++)
        for (int axis = -4; axis < 4; axis++) {
            kernel_case k;
            int a = axis < 0 ? axis + 4 : axis;
            int64_t outer = 1, inner = 1, n = dims[a];
            for (int i = 0; i < a; i++) outer *= dims[i];
            for (int i = a + 1; i < 4; i++) inner *= dims[i];
            case_open(&k, "", "Gather", (uint64_t)(axis + 9));
            assert_int_equal(pare_node_set_int(k.node, "axis", axis), PARE_OK);
            case_input(&k, sizes[t], 4, dims, false, 0, 100);
            indices(&k, t % 2 ? PARE_s32 : PARE_s64, 2, at, (int)-n, (int)n - 1);
            char *y = result(&k);
            for (int64_t i = 0; i < outer * 6 * inner; i++) {
                int64_t from = index_at(&k, 1, i / inner % 6);
                if (from < 0) from += n;
                same_element(&k, y, i, 0, (i / inner / 6 * n + from) * inner + i % inner);
            }
            free(y);
            case_close(&k);
        }
}

static void gather_of_nothing_and_by_one_index(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++)
        for (int64_t n = 0; n < 2; n++) {
            kernel_case k;
            case_open(&k, "", "Gather", 3);
            case_input(&k, PARE_f32, 3, DIMS(4, 3, 33), false, 0, 9);
            indices(&k, PARE_s64, rank, &n, 2, 2);
            char *y = result(&k);
            assert_int_equal(case_bytes(&k), rank && !n ? 0 : 3 * 33 * 4);
            if (case_bytes(&k)) same_element(&k, y, 98, 0, 2 * 99 + 98);
            free(y);
            case_close(&k);
        }
}

static void gather_elements_of_six_axes(void **state)
{
    (void)state;
    const int64_t dims[6] = {2, 3, 1, 4, 2, 3}, at[6] = {2, 2, 1, 5, 1, 3};
    for (int t = 0; t < 4; t++) {
        kernel_case k;
        case_open(&k, "", "GatherElements", 4);
        assert_int_equal(pare_node_set_int(k.node, "axis", 3), PARE_OK);
        case_input(&k, sizes[t], 6, dims, false, 0, 100);
        indices(&k, PARE_s64, 6, at, -4, 3);
        char *y = result(&k);
        for (int64_t i = 0; i < 60; i++) {
            int64_t left = i, from = 0, step = 1;
            for (int a = 5; a >= 0; a--) {
                int64_t p = left % at[a];
                left /= at[a];
                if (a == 3) p = (index_at(&k, 1, i) + 4) % 4;
                from += p * step;
                step *= dims[a];
            }
            same_element(&k, y, i, 0, from);
        }
        free(y);
        case_close(&k);
    }
}

/* data (2, 3, 4, 5), one batch axis, indices (2, 6, 2) of axes 1 and 2: y (2, 6, 5). */
static void gather_nd_behind_a_batch_axis(void **state)
{
    (void)state;
    kernel_case k;
    case_open(&k, "", "GatherND", 5);
    assert_int_equal(pare_node_set_int(k.node, "batch_dims", 1), PARE_OK);
    case_input(&k, PARE_f16, 4, DIMS(2, 3, 4, 5), false, 0, 100);
    indices(&k, PARE_s64, 3, DIMS(2, 6, 2), -3, 2);
    char *y = result(&k);
    for (int64_t i = 0; i < 60; i++) {
        int64_t row = i / 5, a = index_at(&k, 1, row * 2), b = index_at(&k, 1, row * 2 + 1);
        same_element(&k, y, i, 0, ((row / 6 * 3 + (a + 3) % 3) * 4 + (b + 4) % 4) * 5 + i % 5);
    }
    free(y);
    case_close(&k);
}

/* --- scatters: floats are small integers, so that sums are exact in every type --- */

static void small_integers(const kernel_case *k, int input)
{
    const pare_view *v = &k->in[input];
    const pare_type_info *type = pare_type(v->dtype);
    for (int64_t i = 0; i < pare_view_count(v); i++)
        type->from_f32_ref((char *)v->data + i * (type->bits / 8),
                           (float)((i * 7 + input) % 5 - 1));
}

static float value(const kernel_case *k, const char *data, int64_t i)
{
    const pare_type_info *type = pare_type(k->out.dtype);
    return type->to_f32(data + i * (type->bits / 8));
}

static float reduced(const char *how, float a, float b)
{
    if (!strcmp(how, "add")) return a + b;
    if (!strcmp(how, "mul")) return a * b;
    if (!strcmp(how, "min")) return a < b ? a : b;
    return !strcmp(how, "max") ? (a > b ? a : b) : b;
}

static const char *const hows[] = {"none", "add", "mul", "min", "max"};
static const pare_dtype numbers[] = {PARE_f32, PARE_f16, PARE_bf16, PARE_f64,
                                     PARE_s8,  PARE_u16, PARE_s32,  PARE_s64};

/* Many updates of few elements: rows of 300 into rows of 4, order decides. */
static void scatter_elements_in_order(void **state)
{
    (void)state;
    for (int t = 0; t < 8; t++)
        for (int h = 0; h < 5; h++) {
            kernel_case k;
            float want[3 * 4];
            case_open(&k, "", "ScatterElements", (uint64_t)h + 1);
            assert_int_equal(pare_node_set_int(k.node, "axis", -1), PARE_OK);
            assert_int_equal(pare_node_set_string(k.node, "reduction", hows[h]), PARE_OK);
            bool product = h == 2;
            int64_t n = product ? 5 : 300;
            case_input(&k, numbers[t], 2, DIMS(3, 4), false, 0, 1);
            indices(&k, PARE_s64, 2, DIMS(2, n), -4, 3);
            case_input(&k, numbers[t], 2, DIMS(2, n), false, 0, 1);
            small_integers(&k, 0);
            small_integers(&k, 2);
            char *y = result(&k);
            for (int64_t i = 0; i < 12; i++) want[i] = value(&k, k.in[0].data, i);
            for (int64_t i = 0; i < 2 * n; i++) {
                int64_t to = i / n * 4 + (index_at(&k, 1, i) + 4) % 4;
                want[to] = reduced(hows[h], want[to], value(&k, k.in[2].data, i));
            }
            if (numbers[t] == PARE_s8 && !product && h == 1) /* wraps around */
                for (int64_t i = 0; i < 12; i++) want[i] = (float)(int8_t)(int)want[i];
            for (int64_t i = 0; i < 12; i++)
                if (value(&k, y, i) != want[i])
                    fail_msg("%s %s: element %d is %g, expected %g", pare_type(numbers[t])->name,
                             hows[h], (int)i, (double)value(&k, y, i), (double)want[i]);
            free(y);
            case_close(&k);
        }
}

/* Slices of (5) into data (2, 3, 5) by pairs of indices. */
static void scatter_nd_in_order(void **state)
{
    (void)state;
    for (int h = 0; h < 5; h++) {
        kernel_case k;
        float want[30];
        case_open(&k, "", "ScatterND", (uint64_t)h + 1);
        assert_int_equal(pare_node_set_string(k.node, "reduction", hows[h]), PARE_OK);
        case_input(&k, PARE_f32, 3, DIMS(2, 3, 5), false, 0, 1);
        indices(&k, PARE_s64, 3, DIMS(2, 4, 2), -2, 1);
        case_input(&k, PARE_f32, 3, DIMS(2, 4, 5), false, 0, 1);
        small_integers(&k, 0);
        small_integers(&k, 2);
        char *y = result(&k);
        memcpy(want, k.in[0].data, sizeof want);
        for (int64_t i = 0; i < 40; i++) {
            int64_t a = index_at(&k, 1, i / 5 * 2), b = index_at(&k, 1, i / 5 * 2 + 1);
            int64_t to = ((a + 2) % 2 * 3 + (b + 3) % 3) * 5 + i % 5;
            want[to] = reduced(hows[h], want[to], ((const float *)k.in[2].data)[i]);
        }
        assert_memory_equal(y, want, sizeof want);
        free(y);
        case_close(&k);
    }
}

static void scatter_of_nothing_copies(void **state)
{
    (void)state;
    kernel_case k;
    case_open(&k, "", "ScatterElements", 2);
    case_input(&k, PARE_u8, 2, DIMS(3, 5), false, 0, 200);
    indices(&k, PARE_s64, 2, DIMS(0, 5), 0, 0);
    case_input(&k, PARE_u8, 2, DIMS(0, 5), false, 0, 200);
    char *y = result(&k);
    assert_memory_equal(y, k.in[0].data, 15);
    free(y);
    case_close(&k);
}

static void one_hot_on_every_axis(void **state)
{
    (void)state;
    static const pare_dtype index[] = {PARE_s64, PARE_s32, PARE_f32};
    for (int t = 0; t < 4; t++)
        for (int axis = 0; axis < 3; axis++) {
            kernel_case k;
            int64_t depth = 4, inner = axis == 0 ? 6 : axis == 1 ? 3 : 1;
            case_open(&k, "", "OneHot", 3);
            assert_int_equal(pare_node_set_int(k.node, "axis", axis), PARE_OK);
            pare_dtype type = index[t % 3];
            if (type == PARE_f32) {
                float *at = case_input(&k, type, 2, DIMS(2, 3), false, 0, 1);
                for (int i = 0; i < 6; i++) at[i] = (float)case_between(&k, -6, 5) + 0.5f;
            } else {
                indices(&k, type, 2, DIMS(2, 3), -6, 5);
            }
            int64_t *n = case_input(&k, PARE_s64, 0, NULL, true, 0, 1);
            *n = depth;
            pare_tensor *constant;
            assert_int_equal(pare_tensor_new(k.model, &constant, "x1", PARE_s64, 0, NULL, n),
                             PARE_OK);
            k.node->in[1]->data = constant;
            case_input(&k, sizes[t], 1, DIMS(2), false, 0, 100);
            char *y = result(&k);
            for (int64_t i = 0; i < 24; i++) {
                int64_t at = i / inner / depth * inner + i % inner;
                int64_t hot = type == PARE_f32 ? (int64_t)((const float *)k.in[0].data)[at]
                                               : index_at(&k, 0, at);
                if (hot < 0) hot += depth;
                same_element(&k, y, i, 2, hot == i / inner % depth);
            }
            free(y);
            case_close(&k);
        }
}

static void sequences_are_reversed(void **state)
{
    (void)state;
    for (int t = 0; t < 4; t++)
        for (int batch = 0; batch < 2; batch++) {
            kernel_case k;
            int64_t dims[3] = {batch ? 5 : 3, batch ? 3 : 5, 2}, n[3] = {5, 1, 3};
            case_open(&k, "", "ReverseSequence", 3);
            assert_int_equal(pare_node_set_int(k.node, "batch_axis", batch), PARE_OK);
            assert_int_equal(pare_node_set_int(k.node, "time_axis", 1 - batch), PARE_OK);
            case_input(&k, sizes[t], 3, dims, false, 0, 100);
            memcpy(indices(&k, PARE_s64, 1, DIMS(3), 0, 0), n, sizeof n);
            char *y = result(&k);
            for (int64_t b = 0; b < 3; b++)
                for (int64_t s = 0; s < 5; s++)
                    for (int64_t i = 0; i < 2; i++) {
                        int64_t from = s < n[b] ? n[b] - 1 - s : s;
                        same_element(&k, y, (batch ? s * 3 + b : b * 5 + s) * 2 + i, 0,
                                     (batch ? from * 3 + b : b * 5 + from) * 2 + i);
                    }
            free(y);
            case_close(&k);
        }
}

/* --- wrong indices --- */

/* Runs the graph and expects the message, on the CPU and where there is one on the device; then
   runs with good indices, which must pass. */
static void wrong_then_right(graph_case *g, pare_device *device, int64_t wrong, int64_t right,
                             const char *message)
{
    pare_plan *plan;
    pare_runner *runner;
    const pare_plan_options options = {.threads = 1, .device = device};
    if (pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, &options) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    assert_int_equal(pare_runner_new(&g->ctx, &runner, plan), PARE_OK);
    for (int run = 0; run < 4; run++) { /* the later ones may be recorded */
        pare_view x = pare_runner_input(runner, 0), i = pare_runner_input(runner, 1);
        memset(x.data, 0, pare_view_bytes(&x));
        for (int64_t n = 0; n < pare_view_count(&i); n++) ((int64_t *)i.data)[n] = right;
        if (run % 2 == 0) ((int64_t *)i.data)[0] = wrong;
        pare_status st = pare_runner_run(runner);
        assert_int_equal(st, run % 2 == 0 ? PARE_INPUT : PARE_OK);
        if (st != PARE_OK && !strstr(g->ctx.message, message))
            fail_msg("'%s', expected '%s'", g->ctx.message, message);
    }
    pare_runner_free(runner);
    pare_plan_free(plan);
}

static void wrong(const char *op, int index_rank, const int64_t *index_dims, bool updates,
                  int64_t wrong_value, const char *message)
{
    graph_case g;
    graph_open(&g, 19);
    graph_input(&g, "x", PARE_f32, 2, DIMS(3, 4));
    graph_input(&g, "i", PARE_s64, index_rank, index_dims);
    if (updates) graph_input(&g, "u", PARE_f32, 2, DIMS(3, 4));
    graph_node(&g, "Relu", "x", "r");
    graph_node(&g, op, updates ? "r i u" : "r i", "y");
    graph_output(&g, "y");
    wrong_then_right(&g, NULL, wrong_value, 1, message);
#ifdef CASE_DEVICE
    pare_device *device;
    if (pare_device_open(&g.ctx, &device, "cuda") != PARE_OK) fail_msg("%s", g.ctx.message);
    wrong_then_right(&g, device, wrong_value, 1, message);
    pare_device_close(device);
#endif
    graph_close(&g);
}

static void a_wrong_index_is_named(void **state)
{
    (void)state;
    wrong("Gather", 1, DIMS(2), false, 3, "(Gather): index 3 is outside an axis of length 3");
    wrong("Gather", 1, DIMS(2), false, -4, "(Gather): index -4 is outside an axis of length 3");
    wrong("GatherElements", 2, DIMS(3, 4), false, 3,
          "(GatherElements): index 3 is outside an axis");
    wrong("GatherND", 2, DIMS(2, 2), false, 5, "(GatherND): index 5 is outside");
    wrong("ScatterElements", 2, DIMS(3, 4), true, 1000000000000,
          "(ScatterElements): index 1000000000000 is outside");
    wrong("ScatterND", 2, DIMS(3, 1), true, -1000000000000,
          "(ScatterND): index -1000000000000 is outside");
    wrong("ReverseSequence", 1, DIMS(4), false, 4, "a length of 4 is outside [0, 3]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_along_every_axis),
        cmocka_unit_test(gather_of_nothing_and_by_one_index),
        cmocka_unit_test(gather_elements_of_six_axes),
        cmocka_unit_test(gather_nd_behind_a_batch_axis),
        cmocka_unit_test(scatter_elements_in_order),
        cmocka_unit_test(scatter_nd_in_order),
        cmocka_unit_test(scatter_of_nothing_copies),
        cmocka_unit_test(one_hot_on_every_axis),
        cmocka_unit_test(sequences_are_reversed),
        cmocka_unit_test(a_wrong_index_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
