/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that read at computed positions or make tensors from little: Pad, Resize, Trilu,
   Range, Shape, Size, ConstantOfShape, Constant, Reshape; against the CPU's plain kernels
   (kernel_case.h compares). */
#include "tests/cpu/kernel_case.h"
#include "tests/simt/testing.h"

#include <cmocka.h>

static const pare_dtype types[] = {PARE_u8, PARE_bf16, PARE_f32, PARE_s64};

/* An input whose content the shape rule reads. */
static void constant(kernel_case *k, pare_dtype type, int rank, int64_t n, const void *data)
{
    pare_tensor *t;
    int i = k->in_count;
    memcpy(case_input(k, type, rank, &n, true, 0, 1), data,
           (size_t)n * (size_t)pare_type(type)->bits / 8);
    assert_int_equal(pare_tensor_new(k->model, &t, "c", type, rank, &n, data), PARE_OK);
    k->node->in[i]->data = t;
}

static void pads_in_every_mode(void **state)
{
    (void)state;
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    static const int64_t dims[6] = {2, 3, 1, 4, 2, 5};
    static const int64_t pads[3][12] = {{0, 2, 0, 1, 0, 7, 1, 0, 0, 3, 0, 4},
                                        {0, -1, 0, 2, 0, -2, 0, 1, 0, -1, 0, 9},
                                        {0, 0, 2, 0, 0, 0, 0, 0, 3, 0, 0, 0}};
    for (int m = 0; m < 4; m++)
        for (int t = 0; t < 4; t++)
            for (int p = 0; p < 3; p++)
                for (int given = 0; given < 2; given++) {
                    kernel_case k;
                    case_open(&k, "", "Pad", 1);
                    assert_int_equal(pare_node_set_string(k.node, "mode", modes[m]), PARE_OK);
                    case_input(&k, types[t], 6, dims, false, 0, 100);
                    constant(&k, PARE_s64, 1, 12, pads[p]);
                    if (given) case_input(&k, types[t], 0, NULL, false, 3, 9);
                    case_run_device(&k, 1);
                    case_close(&k);
                }
}

/* All that is left of the tensor is padding; a tensor that is empty. */
static void pads_of_nothing(void **state)
{
    (void)state;
    static const int64_t dims[2] = {3, 5},
                         pads[3][4] = {{-3, 1, 2, 1}, {0, 0, 0, -5}, {2, 0, -5, 0}};
    for (int p = 0; p < 3; p++) {
        kernel_case k;
        case_open(&k, "", "Pad", 1);
        case_input(&k, PARE_f32, 2, dims, false, 0, 100);
        constant(&k, PARE_s64, 1, 4, pads[p]);
        case_run_device(&k, 1);
        case_close(&k);
    }
}

static void resize(const char *mode, const char *coord, const char *rounding, pare_dtype type,
                   const float *scales, int flags)
{
    static const int64_t dims[4] = {2, 3, 5, 4};
    kernel_case k;
    case_open(&k, "", "Resize", 3);
    k.nhwc = flags & 4;
    assert_int_equal(pare_node_set_string(k.node, "mode", mode), PARE_OK);
    assert_int_equal(pare_node_set_string(k.node, "coordinate_transformation_mode", coord),
                     PARE_OK);
    assert_int_equal(pare_node_set_string(k.node, "nearest_mode", rounding), PARE_OK);
    case_set_int(&k, "antialias", flags & 1);
    case_set_int(&k, "exclude_outside", flags >> 1 & 1);
    case_input(&k, type, 4, dims, false, 0, 100);
    if (!strcmp(coord, "tf_crop_and_resize"))
        constant(&k, PARE_f32, 1, 8, (const float[]){0, 0, 0.4f, 0.2f, 1, 1, 1.3f, 0.8f});
    else
        case_input(&k, PARE_NOTYPE, 0, NULL, true, 0, 0);
    constant(&k, PARE_f32, 1, 4, scales);
    case_run_device(&k, 1);
    case_close(&k);
}

static void resizes_by_the_nearest(void **state)
{
    (void)state;
    static const char *const coords[] = {"half_pixel", "half_pixel_symmetric", "asymmetric",
                                         "align_corners", "tf_crop_and_resize"};
    static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                            "ceil"};
    static const pare_dtype numbers[] = {PARE_u8, PARE_bf16, PARE_f32, PARE_f64};
    static const float scales[2][4] = {{1, 1, 1.7f, 2}, {1, 2, 0.6f, 0.8f}};
    for (int c = 0; c < 5; c++)
        for (int r = 0; r < 4; r++)
            for (int s = 0; s < 2; s++)
                resize("nearest", coords[c], roundings[r], numbers[r], scales[s], 4 * s);
}

static void resizes_by_weights(void **state)
{
    (void)state;
    static const char *const modes[] = {"linear", "cubic"};
    static const char *const coords[] = {"half_pixel", "pytorch_half_pixel", "align_corners",
                                         "tf_crop_and_resize"};
    static const pare_dtype numbers[] = {PARE_f32, PARE_f16, PARE_bf16, PARE_f64, PARE_s8, PARE_u8};
    static const float scales[3][4] = {{1, 1, 1.7f, 2}, {1, 1, 0.6f, 0.8f}, {1.5f, 2, 1, 0.5f}};
    for (int m = 0; m < 2; m++)
        for (int c = 0; c < 4; c++)
            for (int t = 0; t < 6; t++)
                for (int s = 0; s < 3; s++)
                    resize(modes[m], coords[c], "floor", numbers[t], scales[s], (t + s) % 8);
}

static void triangles(void **state)
{
    (void)state;
    static const int64_t dims[4] = {2, 1, 5, 7}, k_values[] = {0, 2, -3, 9};
    for (int t = 0; t < 4; t++)
        for (int upper = 0; upper < 2; upper++)
            for (int d = 0; d < 5; d++) {
                kernel_case k;
                case_open(&k, "", "Trilu", 1);
                case_set_int(&k, "upper", upper);
                case_input(&k, types[t], 4, dims, false, 1, 100);
                if (d < 4) *(int64_t *)case_input(&k, PARE_s64, 0, NULL, false, 0, 1) = k_values[d];
                case_run_device(&k, 1);
                case_close(&k);
            }
}

static void ranges(void **state)
{
    (void)state;
    static const pare_dtype numbers[] = {PARE_f32, PARE_f64, PARE_s16, PARE_s32, PARE_s64};
    for (int t = 0; t < 5; t++) {
        kernel_case k;
        uint64_t bits[3];
        case_open(&k, "", "Range", 1);
        for (int i = 0; i < 3; i++) {
            const float values[] = {10, t < 2 ? -3.7f : -38, t < 2 ? -0.3f : -7};
            if (numbers[t] == PARE_f64)
                memcpy(bits, &(double){(double)values[i]}, 8);
            else
                pare_type(numbers[t])->from_f32_ref(bits, values[i]);
            constant(&k, numbers[t], 0, 1, bits);
        }
        case_run_device(&k, 1);
        case_close(&k);
    }
}

static void shapes_and_constants(void **state)
{
    (void)state;
    static const int64_t dims[5] = {2, 3, 1, 4, 2}, starts[] = {0, 2, -2, 5};
    for (int s = 0; s < 4; s++) {
        kernel_case k;
        case_open(&k, "", "Shape", 1);
        case_set_int(&k, "start", starts[s]);
        case_input(&k, PARE_f32, 5, dims, false, 0, 1);
        case_run_device(&k, 1);
        case_close(&k);
    }
    kernel_case k;
    case_open(&k, "", "Size", 1);
    case_input(&k, PARE_u8, 5, dims, false, 0, 1);
    case_run_device(&k, 1);
    case_close(&k);
    case_open(&k, "", "Constant", 1);
    case_set_ints(&k, "value_ints", dims, 5);
    case_run_device(&k, 1);
    case_close(&k);
    case_open(&k, "", "ConstantOfShape", 1);
    constant(&k, PARE_s64, 1, 5, dims);
    case_run_device(&k, 1);
    case_close(&k);
}

static void reshapes_copy_where_no_plan_shares(void **state)
{
    (void)state;
    static const int64_t dims[3] = {4, 3, 5}, to[2] = {6, 10};
    for (int t = 0; t < 4; t++) {
        kernel_case k;
        case_open(&k, "", "Reshape", 1);
        case_input(&k, types[t], 3, dims, false, 0, 100);
        constant(&k, PARE_s64, 1, 2, to);
        case_run_device(&k, 1);
        case_close(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(pads_in_every_mode),
        device_test(pads_of_nothing),
        device_test(resizes_by_the_nearest),
        device_test(resizes_by_weights),
        device_test(triangles),
        device_test(ranges),
        device_test(shapes_and_constants),
        device_test(reshapes_copy_where_no_plan_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
