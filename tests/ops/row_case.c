/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ops/row_case.h"
#include "runtime/cpu/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static double uniform(row_case *r, double low, double high)
{
    r->seed = r->seed * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(r->seed >> 33) / (double)(1u << 31);
}

/* Floats of kind d stay away from where functions step or have ties. */
static double draw_float(row_case *r, char kind)
{
    if (kind == 'p') return uniform(r, 0.5, 1.5);
    if (kind == 'u') return uniform(r, -0.9, 0.9);
    if (kind == 'b') return uniform(r, 1.5, 2.5);
    for (;;) {
        double v = uniform(r, -2, 2) + uniform(r, -2, 2);
        if (fabs(2 * v - rint(2 * v)) > 0.05) return v;
    }
}

static double draw_int(row_case *r, char kind, bool is_signed)
{
    double low = kind == 'p' ? 1 : kind == 'u' ? -1 : kind == 'b' ? 2 : -4;
    double high = kind == 'u' ? 1 : kind == 'd' ? 4 : 3;
    if (!is_signed && low < 0) low = 0;
    return floor(uniform(r, low, high + 1));
}

static double draw(row_case *r, char kind, pare_dtype type, bool named)
{
    switch (type) {
    case PARE_bool: return kind == 'p' || uniform(r, 0, 1) < 0.5;
    case PARE_s8: return named ? floor(uniform(r, -128, 128)) : draw_int(r, kind, true);
    case PARE_u8: return named ? floor(uniform(r, 0, 256)) : draw_int(r, kind, false);
    case PARE_s16:
    case PARE_s32:
    case PARE_s64: return draw_int(r, kind, true);
    case PARE_u16:
    case PARE_u32:
    case PARE_u64: return draw_int(r, kind, false);
    default: return draw_float(r, kind);
    }
}

static double element(const pare_view *v, const int64_t *index)
{
    return pare_ref_get(v, pare_ref_offset(v, index));
}

static void *memory(const pare_view *v)
{
    void *data;
    assert_int_equal(posix_memalign(&data, 64, pare_view_bytes(v) + 64), 0);
    memset(data, 0, pare_view_bytes(v) + 64);
    return data;
}

static int parse_list(const char *text, double *values)
{
    int n = 0;
    while (*text) {
        char *end;
        values[n++] = strtod(text, &end);
        text = end;
        if (*text == '*') { /* 32*0.5 */
            double value = strtod(text + 1, &end);
            int count = (int)values[--n];
            while (count--) values[n++] = value;
            text = end;
        }
        if (*text) text++;
        assert_in_range(n, 1, 64);
    }
    return n;
}

static int parse_dims(const char *text, pare_shape *shape)
{
    *shape = (pare_shape){.rank = 0};
    while (*text) {
        char *end;
        shape->dim[shape->rank++] = strtoll(text, &end, 10);
        text = *end ? end + 1 : end;
    }
    return shape->rank;
}

static bool is_one_of(const char *kind, pare_dtype type)
{
    if (!strcmp(kind, "floats")) return pare_type_is_float(type);
    return type == PARE_s8 || type == PARE_s16 || type == PARE_s32 || type == PARE_s64;
}

/* One operand of the line: "d2x3:s8". */
static void add_operand(row_case *r, char *word, pare_dtype tried, bool nhwc)
{
    int i = r->in_count++;
    pare_shape shape;
    pare_value *value;
    double list[64];
    char name[16], kind = *word, *type = strchr(word, ':');
    assert_in_range(i, 0, ROW_OPERANDS - 1);
    if (kind == '-') {
        r->in[i].dtype = PARE_NOTYPE;
        assert_int_equal(pare_node_set_in(r->node, i, NULL), PARE_OK);
        return;
    }
    if (type) *type++ = 0;
    if (type && (!strcmp(type, "floats") || !strcmp(type, "signed"))) {
        r->refused = r->refused || !is_one_of(type, tried);
        type = NULL;
    }
    bool listed = strchr("iswW", kind) != NULL;
    pare_dtype dtype = kind == 'i' || kind == 's' ? PARE_s64 : tried;
    if (type) dtype = pare_type_find(type);
    r->tried[i] = !type && kind != 'i' && kind != 's';
    r->constant[i] = listed || strchr("DPUBS", kind);
    if (listed)
        shape =
            (pare_shape){.rank = kind == 'i' || kind == 'W', .dim = {parse_list(word + 1, list)}};
    else
        parse_dims(word + 1, &shape);
    const bool sparse = kind == 'S';
    kind = (char)(sparse ? 'd' : kind < 'a' ? kind + 'a' - 'A' : kind);
    pare_view *v = &r->in[i];
    pare_view_set(v, dtype, &shape, nhwc && !r->constant[i]);
    v->data = memory(v);
    int64_t index[PARE_MAX_RANK] = {0}, n = 0;
    if (pare_view_count(v) > 0) do {
            double x = listed ? list[n++] : draw(r, kind, dtype, type != NULL);
            if (sparse && (index[0] + index[1]) % 4 > 1) x = 0;
            pare_ref_set(v, pare_ref_offset(v, index), x);
        } while (pare_ref_next(v, index));
    snprintf(name, sizeof name, "x%d", i);
    assert_int_equal(pare_value_new(r->model->graph, &value, name), PARE_OK);
    pare_value_set_type(value, dtype, &shape);
    assert_int_equal(pare_node_set_in(r->node, i, value), PARE_OK);
}

static void set_floats(pare_node *node, const char *name, const char *text)
{
    double list[64];
    float narrow[64];
    int n = parse_list(text, list);
    for (int i = 0; i < n; i++) narrow[i] = (float)list[i];
    pare_attr attr = {.name = name, .kind = PARE_ATTR_FLOATS, .count = n, .floats = narrow};
    assert_int_equal(pare_node_set_attr(node, &attr), PARE_OK);
}

static void set_ints(pare_node *node, const char *name, const char *text)
{
    double list[64];
    int64_t ints[64];
    int n = parse_list(text, list);
    for (int i = 0; i < n; i++) ints[i] = (int64_t)list[i];
    assert_int_equal(pare_node_set_ints(node, name, ints, n), PARE_OK);
}

static void set_strings(pare_node *node, const char *name, char *text)
{
    pare_bytes list[8];
    int n = 0;
    for (char *save, *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        assert_true(n < 8);
        list[n++] = (pare_bytes){(const uint8_t *)word, strlen(word)};
    }
    pare_attr attr = {.name = name, .kind = PARE_ATTR_STRINGS, .count = n, .strings = list};
    assert_int_equal(pare_node_set_attr(node, &attr), PARE_OK);
}

static void set_attribute(pare_node *node, char *text)
{
    char *value = strchr(text, '=');
    *value++ = 0;
    switch (*value++) {
    case 'i':
        assert_int_equal(pare_node_set_int(node, text, strtoll(value, NULL, 10)), PARE_OK);
        break;
    case 'f':
        assert_int_equal(pare_node_set_float(node, text, strtof(value, NULL)), PARE_OK);
        break;
    case 's': assert_int_equal(pare_node_set_string(node, text, value), PARE_OK); break;
    case 'g': set_floats(node, text, value); break;
    case 't': set_strings(node, text, value); break;
    default: set_ints(node, text, value);
    }
}

/* Constants are what shape rules read. */
static void give_constants(row_case *r)
{
    for (int i = 0; i < r->in_count; i++) {
        const pare_view *v = &r->in[i];
        pare_tensor *tensor;
        if (!r->constant[i]) continue;
        assert_int_equal(pare_tensor_new(r->model, &tensor, r->node->in[i]->name, v->dtype, v->rank,
                                         v->dim, v->data),
                         PARE_OK);
        r->node->in[i]->data = tensor;
    }
}

/* Shapes that depend on values: the kernel that measures says them. */
static bool measure(row_case *r)
{
    const pare_kernel *k = r->op->cpu[0];
    pare_shape shape[ROW_OUTPUTS];
    pare_call call = {.ctx = &r->ctx,
                      .node = r->node,
                      .in = r->in,
                      .in_count = r->in_count,
                      .out_count = r->out_count,
                      .threads = 1};
    if (!k->measure || k->measure(&call, shape) != PARE_OK) return false;
    if (k->unbind) k->unbind(call.bound);
    for (int i = 0; i < r->out_count; i++) r->node->out[i]->shape = shape[i];
    return true;
}

static bool infer(row_case *r, bool nhwc)
{
    if (r->refused || pare_op_infer(r->node) != PARE_OK) return false;
    if (!pare_shape_known(&r->node->out[0]->shape) && !measure(r)) return false;
    for (int i = 0; i < r->out_count; i++) {
        const pare_value *y = r->node->out[i];
        if (!pare_shape_known(&y->shape) || y->dtype == PARE_NOTYPE) return false;
        pare_view_set(&r->out[i], y->dtype, &y->shape, nhwc);
        r->out[i].data = memory(&r->out[i]);
    }
    return true;
}

bool row_open(row_case *r, const row_line *line, pare_dtype type, bool nhwc)
{
    char operands[256], attributes[256], *rest;
    pare_value *y[ROW_OUTPUTS];
    memset(r, 0, sizeof *r);
    pare_ctx_init(&r->ctx);
    pare_arena_init(&r->arena, &r->ctx);
    r->seed = 7;
    r->op = pare_op_find("", line->op);
    const char *domain = r->op ? "" : PARE_DOMAIN;
    if (!r->op) r->op = pare_op_find(PARE_DOMAIN, line->op);
    assert_non_null(r->op);
    r->out_count = line->outputs;
    assert_int_equal(pare_model_new(&r->ctx, &r->model, "row"), PARE_OK);
    assert_int_equal(pare_model_set_opset(r->model, "", r->op->last), PARE_OK);
    for (int i = 0; i < line->outputs; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        assert_int_equal(pare_value_new(r->model->graph, &y[i], name), PARE_OK);
    }
    assert_int_equal(pare_node_new(r->model->graph, &r->node, 0, line->op, domain, "n", NULL, 0, y,
                                   line->outputs),
                     PARE_OK);
    snprintf(operands, sizeof operands, "%s", line->operands);
    snprintf(attributes, sizeof attributes, "%s", line->attributes);
    for (char *w = strtok_r(operands, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        add_operand(r, w, type, nhwc);
    for (char *w = strtok_r(attributes, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        set_attribute(r->node, w);
    give_constants(r);
    return infer(r, nhwc);
}

void row_close(row_case *r)
{
    for (int i = 0; i < r->in_count; i++) free(r->in[i].data);
    for (int i = 0; i < r->out_count; i++) free(r->out[i].data);
    pare_model_free(r->model);
    pare_arena_free(&r->arena);
    pare_ctx_clear(&r->ctx);
}

void row_copy_values(row_case *r, const row_case *from)
{
    for (int i = 0; i < r->in_count; i++) {
        const pare_view *a = &from->in[i], *b = &r->in[i];
        int64_t index[PARE_MAX_RANK] = {0};
        if (!r->tried[i] || !pare_view_count(a)) continue;
        do pare_ref_set(b, pare_ref_offset(b, index), element(a, index));
        while (pare_ref_next(a, index));
    }
    give_constants(r);
    if (!r->op->cpu[0]->measure) return;
    for (int i = 0; i < r->out_count; i++) free(r->out[i].data);
    assert_true(infer(r, false));
}

/* --- on a device --- */

static void to_device(row_case *r, pare_device *device, const pare_view *from, int count,
                      pare_view *to)
{
    for (int i = 0; i < count; i++) {
        to[i] = from[i];
        if (from[i].dtype == PARE_NOTYPE) continue;
        assert_int_equal(pare_device_copy(&r->ctx, device, &to[i].data, from[i].data,
                                          pare_view_bytes(&from[i]) + 64),
                         PARE_OK);
    }
}

static void from_device(row_case *r, pare_device *device, pare_view *in, pare_view *out)
{
    const pare_backend *b = device->backend;
    for (int i = 0; i < r->out_count; i++)
        assert_int_equal(b->download(&r->ctx, device->setup, r->out[i].data, out[i].data,
                                     pare_view_bytes(&r->out[i])),
                         PARE_OK);
    assert_int_equal(b->sync(&r->ctx, device->setup), PARE_OK);
    for (int i = 0; i < r->out_count; i++) b->free(device, out[i].data);
    for (int i = 0; i < r->in_count; i++)
        if (in[i].dtype != PARE_NOTYPE) b->free(device, in[i].data);
}

/* --- a kernel --- */

static void *scratch_of(row_case *r, const pare_prep *prep)
{
    void *scratch;
    if (!prep->device)
        assert_int_equal(posix_memalign(&scratch, 64, prep->scratch + 64), 0);
    else
        assert_int_equal(
            prep->device->backend->alloc(&r->ctx, prep->device, &scratch, prep->scratch), PARE_OK);
    return scratch;
}

static pare_status execute(row_case *r, const pare_kernel *kernel, const pare_prep *prep)
{
    pare_device *device = prep->device;
    pare_view in[ROW_OPERANDS], out[ROW_OUTPUTS];
    memcpy(in, r->in, sizeof in);
    memcpy(out, r->out, sizeof out);
    if (device) to_device(r, device, r->in, r->in_count, in);
    if (device) to_device(r, device, r->out, r->out_count, out);
    void *scratch = scratch_of(r, prep);
    pare_call call = {.ctx = &r->ctx,
                      .node = r->node,
                      .in = in,
                      .out = out,
                      .in_count = r->in_count,
                      .out_count = r->out_count,
                      .threads = prep->threads,
                      .state = prep->state,
                      .scratch = scratch,
                      .stream = device ? device->setup : NULL};
    pare_status st = kernel->bind ? kernel->bind(&call, &r->arena) : PARE_OK;
    if (st == PARE_OK) st = kernel->run(&call);
    if (st == PARE_OK && device) st = device->backend->sync(&r->ctx, device->setup);
    if (kernel->unbind) kernel->unbind(call.bound);
    if (device) from_device(r, device, in, out);
    if (device)
        device->backend->free(device, scratch);
    else
        free(scratch);
    return st;
}

row_result row_run(row_case *r, const pare_kernel *kernel, pare_device *device)
{
    pare_view in[ROW_OPERANDS], out[ROW_OUTPUTS];
    memcpy(in, r->in, sizeof in);
    memcpy(out, r->out, sizeof out);
    for (int i = 0; i < r->in_count; i++)
        if (!r->constant[i]) in[i].data = NULL;
    for (int i = 0; i < r->out_count; i++) out[i].data = NULL;
    pare_prep prep = {.ctx = &r->ctx,
                      .node = r->node,
                      .in = in,
                      .out = out,
                      .in_count = r->in_count,
                      .out_count = r->out_count,
                      .threads = 1,
                      .arena = &r->arena,
                      .device = device,
                      .share = -1};
    if (kernel->can && !kernel->can(&prep)) return ROW_REFUSED;
    pare_status st = kernel->prepare ? kernel->prepare(&prep) : PARE_OK;
    if (st == PARE_OK && kernel->flags & PARE_KERNEL_ALIAS) /* the operand's memory: nothing runs */
        for (int i = 0; i < r->out_count; i++)
            memcpy(r->out[i].data, r->in[i].data, pare_view_bytes(&r->out[i]));
    else if (st == PARE_OK)
        st = execute(r, kernel, &prep);
    if (kernel->release) kernel->release(prep.state);
    if (st == PARE_OK) return ROW_RAN;
    print_error("%s: %s\n", kernel->name, r->ctx.message);
    return ROW_FAILED;
}

static bool near(double want, double got, double limit)
{
    return (isnan(want) && isnan(got)) || want == got || fabs(want - got) <= limit;
}

bool row_compare(const row_case *want, const row_case *got, double unit, int steps,
                 const char *what)
{
    for (int i = 0; i < want->out_count; i++) {
        const pare_view *a = &want->out[i], *b = &got->out[i];
        int64_t index[PARE_MAX_RANK] = {0}, k = 0;
        double largest = 1, limit = steps;
        assert_true(a->rank == b->rank && pare_view_count(a) == pare_view_count(b));
        if (!pare_view_count(a)) continue;
        do {
            double v = fabs(element(a, index));
            if (isfinite(v) && v > largest) largest = v;
        } while (pare_ref_next(a, index));
        if (pare_type_is_float(b->dtype)) limit = unit * largest;
        memset(index, 0, sizeof index);
        do {
            double v = element(a, index), w = element(b, index);
            k++;
            if (near(v, w, limit)) continue;
            print_error("%s: element %lld of output %d is %.9g, expected %.9g\n", what,
                        (long long)k - 1, i, w, v);
            return false;
        } while (pare_ref_next(a, index));
    }
    return true;
}
