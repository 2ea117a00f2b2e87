/* SPDX-License-Identifier: Apache-2.0 */
/* Stored pixels at the start of a quantized net on a device: its first QuantizeLinear reads them
   and writes the first convolution's order, with the bytes of the floats that were not made. */
#include "runtime/exec/exec.h"
#include "tests/passes/graph_case.h"
#include "tests/simt/testing.h"

#include <math.h>

enum { SAMPLES = 3, MOST = SAMPLES * 4 * 9 * 16, OUTPUTS = SAMPLES * 6 * 9 * 16 };

typedef struct picture {
    int channels, height, width;
    bool channels_last, one_table;
    bool read_twice; /* as floats, too */
} picture;

typedef struct fixture {
    graph_case g;
    pare_device *device;
    pare_plan *plan;
    float table[4 * 256];
    uint8_t raw[MOST];
} fixture;

static void check(fixture *f, pare_status st)
{
    if (st != PARE_OK) fail_msg("%s", f->g.ctx.message);
}

static int64_t pixels_of(const picture *p) { return (int64_t)p->channels * p->height * p->width; }

/* x -> Q -> DQ -> Conv with a quantized weight; perhaps Relu of x beside it. */
static void net_make(fixture *f, const picture *p)
{
    float w[6 * 4];
    const float step = 0.031f, w_step = 0.01f;
    for (int i = 0; i < 24; i++) w[i] = (float)(i * 7 % 13) / 13 - 0.4f;
    graph_case *g = &f->g;
    graph_open(g, 21);
    graph_input(g, "x", PARE_f32, 4, (int64_t[]){SAMPLES, p->channels, p->height, p->width});
    graph_floats(g, "s", 0, NULL, &step);
    graph_floats(g, "ws", 0, NULL, &w_step);
    graph_floats(g, "w", 4, (int64_t[]){6, p->channels, 1, 1}, w);
    assert_int_equal(
        pare_node_set_int(graph_node(g, "QuantizeLinear", "x s", "xq"), "output_dtype", PARE_s8),
        0);
    assert_int_equal(
        pare_node_set_int(graph_node(g, "QuantizeLinear", "w ws", "wq"), "output_dtype", PARE_s8),
        0);
    graph_node(g, "DequantizeLinear", "xq s", "xd");
    graph_node(g, "DequantizeLinear", "wq ws", "wd");
    graph_node(g, "Conv", "xd wd", "y");
    graph_output(g, "y");
    if (p->read_twice) {
        graph_node(g, "Relu", "x", "r");
        graph_output(g, "r");
    }
}

static void open_all(fixture *f, const picture *p)
{
    net_make(f, p);
    check(f, pare_device_open(&f->g.ctx, &f->device, "cuda"));
    const pare_plan_options options = {.threads = 1, .device = f->device};
    check(f, pare_plan_new(&f->g.ctx, &f->plan, f->g.model, NULL, 0, &options));
    for (int i = 0; i < 4 * 256; i++)
        f->table[i] = ((float)(i % 256) / 255.0f - 0.45f) / (0.2f + 0.1f * (float)(i / 256));
    for (int i = 0; i < MOST; i++) f->raw[i] = (uint8_t)(i * 77 + i / 5);
}

static void close_all(fixture *f)
{
    pare_plan_free(f->plan);
    pare_device_close(f->device);
    graph_close(&f->g);
}

static pare_pixels pixels_for(const fixture *f, const picture *p)
{
    const int64_t positions = (int64_t)p->height * p->width;
    pare_pixels out = {.table = f->table,
                       .channels = p->one_table ? 1 : p->channels,
                       .inner = positions,
                       .count = pixels_of(p)};
    if (p->one_table) out.inner = out.count;
    if (p->channels_last) out.rows = positions, out.columns = p->channels;
    return out;
}

/* What the pixels are, by the formula of pixels.h. */
static void floats_make(const fixture *f, const picture *p, float *to)
{
    const pare_pixels q = pixels_for(f, p);
    for (int64_t s = 0; s < SAMPLES; s++)
        for (int64_t i = 0; i < q.count; i++) {
            int64_t place = q.rows ? i % q.rows * q.columns + i / q.rows : i;
            to[s * q.count + i] =
                q.table[i / q.inner % q.channels * 256 + f->raw[s * q.count + place]];
        }
}

static uint64_t run(fixture *f, pare_runner *r, float *y)
{
    const uint64_t launches = simt_calls_of("launch");
    check(f, pare_runner_run(r));
    pare_view out = pare_runner_output(r, 0);
    assert_true(pare_view_count(&out) <= OUTPUTS);
    memcpy(y, out.data, pare_view_bytes(&out));
    return simt_calls_of("launch") - launches;
}

/* The bytes of a run on floats; how many kernels it launched. */
static uint64_t run_floats(fixture *f, const picture *p, float *y)
{
    pare_runner *r;
    check(f, pare_runner_new(&f->g.ctx, &r, f->plan));
    floats_make(f, p, pare_runner_input(r, 0).data);
    uint64_t launches = run(f, r, y);
    pare_runner_free(r);
    return launches;
}

static void runs_agree(fixture *f, const picture *p, pare_runner *r)
{
    float want[OUTPUTS] = {0}, got[OUTPUTS] = {0};
    const pare_pixels pixels = pixels_for(f, p);
    const uint64_t launches = run_floats(f, p, want);
    check(f, pare_runner_take_pixels(r, 0, &pixels));
    for (int i = 0; i < 3; i++) { /* step by step, recorded, played */
        memset(got, 0, sizeof got);
        const pare_view raw = pare_runner_input(r, 0);
        assert_int_equal(raw.dtype, PARE_u8);
        memcpy(raw.data, f->raw, (size_t)(SAMPLES * pixels.count));
        const uint64_t now = run(f, r, got);
        if (i == 0 && simt_emulated()) assert_int_equal(now, launches + p->read_twice);
        assert_memory_equal(got, want, sizeof want);
    }
}

static int steps_of(const fixture *f, const char *kernel)
{
    int count = 0;
    for (int i = 0; i < pare_plan_step_count(f->plan); i++) {
        pare_step_info step;
        pare_plan_step(f->plan, i, &step);
        count += !strcmp(step.kernel, kernel);
    }
    return count;
}

static void pixels_are_quantized_in_the_order_of_the_net(void **state)
{
    (void)state;
    static const picture pictures[] = {
        {3, 8, 8, false, false, false}, {3, 8, 8, true, false, false},
        {3, 5, 7, false, false, false}, {3, 5, 7, true, false, false},
        {4, 9, 16, false, true, false}, {4, 9, 16, true, true, false},
        {1, 4, 8, false, false, false}, {1, 5, 5, false, true, false},
        {3, 8, 8, false, false, true},
    };
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++) {
        const picture *p = &pictures[i];
        fixture f = {0};
        pare_runner *r;
        open_all(&f, p);
        assert_int_equal(steps_of(&f, "cuda_quantize_nhwc"), p->channels > 1);
        assert_int_equal(steps_of(&f, "cuda_quantize"), p->channels == 1);
        check(&f, pare_runner_new(&f.g.ctx, &r, f.plan));
        runs_agree(&f, p, r);
        f.table[7] += 0.5f; /* another table in a runner whose work is recorded */
        runs_agree(&f, p, r);
        pare_runner_free(r);
        close_all(&f);
    }
}

/* Of the input, which an observer sees, floats are made. */
static pare_status see(void *user, const pare_value *value, const pare_view *view,
                       pare_stream *stream)
{
    fixture *f = user;
    const pare_backend *b = f->device->backend;
    if (strcmp(value->name, "x") != 0) return PARE_OK;
    float seen[MOST], want[MOST];
    const picture p = {.channels = 3, .height = 5, .width = 7};
    floats_make(f, &p, want);
    PARE_TRY(b->download(&f->g.ctx, stream, seen, view->data, pare_view_bytes(view)));
    PARE_TRY(b->sync(&f->g.ctx, stream));
    assert_memory_equal(seen, want, pare_view_bytes(view));
    f->raw[MOST - 1] = 0; /* it was here */
    return PARE_OK;
}

static void an_observer_sees_floats(void **state)
{
    (void)state;
    const picture p = {.channels = 3, .height = 5, .width = 7};
    fixture f = {0};
    pare_runner *r;
    open_all(&f, &p);
    const pare_pixels pixels = pixels_for(&f, &p);
    f.raw[MOST - 1] = 1;
    check(&f, pare_runner_new(&f.g.ctx, &r, f.plan));
    check(&f, pare_runner_take_pixels(r, 0, &pixels));
    pare_runner_observe_device(r, see, &f);
    memcpy(pare_runner_input(r, 0).data, f.raw, (size_t)(SAMPLES * pixels.count));
    check(&f, pare_runner_run(r));
    assert_int_equal(f.raw[MOST - 1], 0);
    pare_runner_free(r);
    close_all(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(pixels_are_quantized_in_the_order_of_the_net),
        device_test(an_observer_sees_floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
