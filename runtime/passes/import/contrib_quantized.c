/* SPDX-License-Identifier: Apache-2.0 */
/* ONNX Runtime's quantized operators in Q/DQ form: what their inputs mean as numbers, the float
   operator, and the quantization of its result. Formulas: ONNX Runtime's ContribOperators.md. */
#include "runtime/passes/import/contrib.h"

#include <inttypes.h>
#include <string.h>

static pare_value *in(const pare_contrib *c, int i) { return pare_node_in(c->node, i); }

/* An input that has no meaning without. */
static pare_value *need(pare_contrib *c, int i)
{
    if (c->status == PARE_OK && !in(c, i)) CONTRIB_FAIL(c, INPUT, "its input %d is missing", i);
    return in(c, i);
}

pare_value *pare_contrib_dequantize(pare_contrib *c, pare_value *q, pare_value *scale,
                                    pare_value *zero, int64_t axis)
{
    const bool one = scale && scale->shape.rank >= 0 && pare_shape_count(&scale->shape) == 1;
    pare_value *x = OP(c, "DequantizeLinear", q, scale, zero);
    if (!one) pare_contrib_int(c, "axis", axis);
    return x;
}

/* What inputs i, i + 1 and i + 2 say. */
static pare_value *real(pare_contrib *c, int i, int64_t axis)
{
    need(c, i), need(c, i + 1);
    return c->status == PARE_OK
               ? pare_contrib_dequantize(c, in(c, i), in(c, i + 1), in(c, i + 2), axis)
               : NULL;
}

/* Output 0 is x by the scale and zero point of inputs i and i + 1. Without a zero point it has the
   type of input `like`. */
static void quantize(pare_contrib *c, pare_value *x, int i, int like)
{
    need(c, i);
    OP_TO(c, 0, "QuantizeLinear", x, in(c, i), in(c, i + 1));
    const pare_dtype type = in(c, like) ? in(c, like)->dtype : PARE_NOTYPE;
    if (!in(c, i + 1) && type) pare_contrib_int(c, "output_dtype", (int64_t)type);
}

/* --- products --- */

static bool one_number(const pare_value *v)
{
    return v && v->shape.rank >= 0 && pare_shape_count(&v->shape) == 1;
}

/* The s32 bias has the scale alpha * s_a * s_b. */
static pare_value *gemm_bias(pare_contrib *c, float alpha)
{
    if (!in(c, 6)) return NULL;
    pare_value *scale = OP(c, "Mul", in(c, 1), in(c, 4));
    if (alpha != 1) scale = OP(c, "Mul", scale, pare_contrib_number(c, in(c, 1), alpha));
    if (one_number(in(c, 1)) && one_number(in(c, 4)))
        scale = OP(c, "Reshape", scale, pare_contrib_ints(c, NULL, 0));
    pare_value *y = OP(c, "DequantizeLinear", in(c, 6), scale);
    if (!one_number(in(c, 4))) pare_contrib_int(c, "axis", -1);
    return y;
}

void pare_contrib_q_gemm(pare_contrib *c)
{
    const float alpha = pare_node_float(c->node, "alpha", 1);
    const bool trans_b = pare_node_int(c->node, "transB", 0) != 0, q = in(c, 7) != NULL;
    if (q != (in(c, 8) != NULL)) {
        CONTRIB_FAIL(c, INPUT,
                     "scale and zero point of the result, inputs 7 and 8, come together or "
                     "not at all");
        return;
    }
    pare_value *a = real(c, 0, 1), *b = real(c, 3, trans_b ? 0 : 1);
    pare_value *bias = gemm_bias(c, alpha);
    pare_value *y = OP_TO(c, q ? -1 : 0, "Gemm", a, b, bias);
    pare_contrib_copy(c, "alpha transA transB");
    if (q) quantize(c, y, 7, 0);
}

void pare_contrib_q_conv(pare_contrib *c)
{
    const bool last = pare_node_int(c->node, "channels_last", 0) != 0;
    pare_value *x = in(c, 0);
    if (last) x = pare_contrib_channels_first(c, x);
    pare_value *y = OP_TO(c, last ? -1 : 0, "QLinearConv", x, in(c, 1), in(c, 2), in(c, 3),
                          in(c, 4), in(c, 5), in(c, 6), in(c, 7), in(c, 8));
    pare_contrib_copy(c, "auto_pad dilations group kernel_shape pads strides");
    if (last) pare_contrib_channels_last(c, 0, y);
}

/* a of quantized inputs by b, whose scales and zero points are of its columns, and a bias. */
static void product(pare_contrib *c, pare_value *a, pare_value *b, pare_value *bias)
{
    pare_value *y = OP_TO(c, bias ? -1 : 0, "MatMul", a, b);
    if (bias) OP_TO(c, 0, "Add", y, bias);
}

void pare_contrib_dynamic_quantize_matmul(pare_contrib *c)
{
    pare_value *q = pare_contrib_op_new(c, -1, "DynamicQuantizeLinear", c->node->in, 1, 3);
    pare_value *scale = pare_contrib_made(c, 1), *zero = pare_contrib_made(c, 2);
    pare_value *a = OP(c, "DequantizeLinear", q, scale, zero);
    need(c, 1), need(c, 2);
    product(c, a, pare_contrib_dequantize(c, in(c, 1), in(c, 2), in(c, 3), -1), in(c, 4));
}

void pare_contrib_matmul_integer_to_float(pare_contrib *c)
{
    for (int i = 1; i < 4; i++) need(c, i);
    if (c->status != PARE_OK) return;
    const pare_shape *s = &in(c, 2)->shape;
    if (s->rank > 1 || (s->rank == 1 && s->dim[0] != 1)) {
        CONTRIB_FAIL(c, UNSUPPORTED, "scale '%s' of A must be one number", in(c, 2)->name);
        return;
    }
    pare_value *a = OP(c, "DequantizeLinear", in(c, 0), in(c, 2), in(c, 4));
    product(c, a, pare_contrib_dequantize(c, in(c, 1), in(c, 3), in(c, 5), -1), in(c, 6));
}

/* --- element by element --- */

void pare_contrib_q_binary(pare_contrib *c)
{
    const bool add = !strcmp(c->node->op_type, "QLinearAdd");
    pare_value *a = real(c, 0, 1), *b = real(c, 3, 1);
    quantize(c, OP(c, add ? "Add" : "Mul", a, b), 6, 0);
}

void pare_contrib_q_unary(pare_contrib *c)
{
    const bool leaky = !strcmp(c->node->op_type, "QLinearLeakyRelu");
    pare_value *y = OP(c, leaky ? "LeakyRelu" : "Sigmoid", real(c, 0, 1));
    if (leaky) pare_contrib_copy(c, "alpha");
    quantize(c, y, 3, 0);
}

void pare_contrib_q_where(pare_contrib *c)
{
    pare_value *a = real(c, 1, 1), *b = real(c, 4, 1);
    quantize(c, OP(c, "Where", in(c, 0), a, b), 7, 1);
}

/* Before opset 13 all axes from `axis` on were one. */
void pare_contrib_q_softmax(pare_contrib *c)
{
    const int64_t opset = pare_node_int(c->node, "opset", 0);
    const int64_t axis = pare_node_int(c->node, "axis", -1);
    const int rank = in(c, 0)->shape.rank;
    if (opset < 1) {
        CONTRIB_FAIL(c, INPUT, "attribute 'opset' is missing");
        return;
    }
    pare_value *x = real(c, 0, 1);
    if (opset < 13 && axis != -1 && axis != rank - 1) {
        if (rank < 0) {
            CONTRIB_FAIL(c, UNSUPPORTED,
                         "the rank of '%s' is unknown, which attribute 'opset' of "
                         "%" PRId64 " needs",
                         in(c, 0)->name, opset);
            return;
        }
        pare_value *shape = OP(c, "Shape", x), *flat = OP(c, "Flatten", x);
        pare_contrib_int(c, "axis", axis);
        flat = OP(c, "Softmax", flat);
        pare_contrib_int(c, "axis", 1);
        quantize(c, OP(c, "Reshape", flat, shape), 3, 0);
        return;
    }
    pare_value *y = OP(c, "Softmax", x);
    pare_contrib_int(c, "axis", axis);
    quantize(c, y, 3, 0);
}

/* --- several, fewer --- */

void pare_contrib_q_concat(pare_contrib *c)
{
    enum { MOST = 256 };
    pare_value *parts[MOST];
    const int count = (c->node->in_count - 2) / 3;
    if (c->node->in_count != 2 + 3 * count || count > MOST) {
        CONTRIB_FAIL(c, INPUT, "it has %d inputs, expected 2 and 3 a tensor, at most %d tensors",
                     c->node->in_count, MOST);
        return;
    }
    for (int i = 0; i < count; i++) parts[i] = real(c, 2 + 3 * i, 1);
    pare_value *y = pare_contrib_op_new(c, -1, "Concat", parts, count, 1);
    pare_contrib_copy(c, "axis");
    quantize(c, y, 0, 2);
}

void pare_contrib_q_pool(pare_contrib *c)
{
    const bool last = pare_node_int(c->node, "channels_last", 0) != 0;
    const bool global = !strcmp(c->node->op_type, "QLinearGlobalAveragePool");
    pare_value *x = real(c, 0, 1);
    if (last) x = pare_contrib_channels_first(c, x);
    pare_value *y = OP(c, global ? "GlobalAveragePool" : "AveragePool", x);
    pare_contrib_copy(c, "auto_pad ceil_mode count_include_pad kernel_shape pads strides");
    if (last) y = pare_contrib_channels_last(c, -1, y);
    quantize(c, y, 3, 0);
}

void pare_contrib_q_reduce_mean(pare_contrib *c)
{
    int count;
    const int64_t *axes = pare_node_ints(c->node, "axes", &count);
    pare_value *x = real(c, 0, 1);
    pare_value *y = OP(c, "ReduceMean", x, axes ? pare_contrib_ints(c, axes, count) : NULL);
    pare_contrib_copy(c, "keepdims");
    quantize(c, y, 3, 0);
}

/* --- MatMulNBits --- */

typedef struct nbits {
    int64_t k, n, block, blocks, blob; /* blob: bytes of a block */
    int bits;
} nbits;

static int level(const uint8_t *row, int64_t i, int bits)
{
    return bits == 8 ? row[i] : (row[i / 2] >> (i % 2 ? 4 : 0)) & 15;
}

static void level_set(uint8_t *to, int64_t i, int bits, int value)
{
    if (bits == 8)
        to[i] = (uint8_t)value;
    else
        to[i / 2] = (uint8_t)(to[i / 2] | value << (i % 2 ? 4 : 0));
}

/* rows x columns levels, `stride` bytes a row, as a constant (columns, rows). */
static pare_value *turned(pare_contrib *c, const char *suffix, const uint8_t *from, int64_t rows,
                          int64_t columns, int64_t stride, int bits)
{
    pare_ctx *ctx = c->node->graph->model->ctx;
    const int64_t dims[] = {columns, rows};
    uint8_t *to = c->status == PARE_OK ? pare_alloc(ctx, (size_t)(rows * columns) + 1, 1) : NULL;
    if (!to) {
        if (c->status == PARE_OK) c->status = PARE_MEMORY;
        return NULL;
    }
    for (int64_t k = 0; k < columns; k++)
        for (int64_t n = 0; n < rows; n++)
            level_set(to, k * rows + n, bits, level(from + n * stride, k, bits));
    pare_value *v = pare_contrib_constant(c, suffix, bits == 8 ? PARE_u8 : PARE_u4, 2, dims, to);
    pare_free(to);
    return v;
}

/* A constant input of this many elements (u8), or a message. */
static const uint8_t *levels(pare_contrib *c, int i, const char *what, int64_t count)
{
    const pare_value *v = need(c, i);
    if (c->status != PARE_OK) return NULL;
    if (!v->data || v->data->dtype != PARE_u8)
        CONTRIB_FAIL(c, UNSUPPORTED, "%s '%s' must be constant u8 levels", what, v->name);
    else if (v->data->count != count)
        CONTRIB_FAIL(c, INPUT, "%s '%s' has %" PRId64 " bytes, expected %" PRId64, what, v->name,
                     v->data->count, count);
    return c->status == PARE_OK ? v->data->data : NULL;
}

static bool nbits_of(pare_contrib *c, nbits *b)
{
    *b = (nbits){.k = pare_node_int(c->node, "K", 0),
                 .n = pare_node_int(c->node, "N", 0),
                 .block = pare_node_int(c->node, "block_size", 0),
                 .bits = (int)pare_node_int(c->node, "bits", 4)};
    if (b->bits != 4 && b->bits != 8)
        CONTRIB_FAIL(c, UNSUPPORTED, "attribute 'bits' is %d, expected 4 or 8", b->bits);
    else if (b->k < 1 || b->n < 1 || b->block < 2 || b->block % 2 || b->k > 1 << 24 ||
             b->n > 1 << 24 || b->block > 1 << 20)
        CONTRIB_FAIL(c, INPUT,
                     "attributes K, N and block_size are %" PRId64 ", %" PRId64 ", %" PRId64
                     ", expected positive ones and an even block",
                     b->k, b->n, b->block);
    else if (in(c, 4))
        CONTRIB_FAIL(c, UNSUPPORTED, "input 4, g_idx '%s', is not supported", in(c, 4)->name);
    else
        b->blocks = (b->k + b->block - 1) / b->block, b->blob = b->block * b->bits / 8;
    return c->status == PARE_OK;
}

/* Levels in blocks along K: (N, blocks, block), 4 bits low nibble first. Without zero points the
   middle level is 0. */
void pare_contrib_matmul_nbits(pare_contrib *c)
{
    nbits b;
    if (!nbits_of(c, &b)) return;
    const int64_t row = (b.blocks * b.bits + 7) / 8;
    const uint8_t *q = levels(c, 1, "B", b.n * b.blocks * b.blob), *z = NULL;
    if (c->status == PARE_OK && in(c, 3)) z = levels(c, 3, "zero points", b.n * row);
    need(c, 2);
    if (c->status != PARE_OK) return;
    pare_value *w = turned(c, "weight", q, b.n, b.k, b.blocks * b.blob, b.bits), *zero;
    if (z) {
        zero = turned(c, "zero_point", z, b.n, b.blocks, row, b.bits);
    } else {
        uint8_t *middle =
            pare_arena_alloc(&c->node->graph->model->arena, (size_t)(b.n * b.blocks) + 1, 1);
        if (!middle) {
            c->status = PARE_MEMORY;
            return;
        }
        memset(middle, b.bits == 8 ? 0x80 : 0x88, (size_t)(b.n * b.blocks));
        const int64_t dims[] = {b.blocks, b.n};
        zero = pare_contrib_constant(c, "zero_point", b.bits == 8 ? PARE_u8 : PARE_u4, 2, dims,
                                     middle);
    }
    pare_value *scale = RESHAPE(c, -1, in(c, 2), b.n, b.blocks);
    scale = TRANSPOSE(c, -1, scale, 1, 0);
    w = OP(c, "DequantizeLinear", w, scale, zero);
    pare_contrib_int(c, "axis", 0);
    pare_contrib_int(c, "block_size", b.block);
    pare_value *y = OP_TO(c, in(c, 5) ? -1 : 0, "MatMul", in(c, 0), w);
    if (in(c, 5)) OP_TO(c, 0, "Add", y, in(c, 5));
}

/* --- GatherBlockQuantized --- */

/* u8 levels of 4 bits, the low ones first, as a u4 constant with twice as long a last axis. */
static pare_value *unpacked(pare_contrib *c, const char *suffix, const pare_value *v)
{
    int64_t dims[PARE_MAX_RANK];
    if (c->status != PARE_OK) return NULL;
    if (!v->data || v->data->rank < 1) {
        CONTRIB_FAIL(c, UNSUPPORTED, "'%s' must be constant", v->name);
        return NULL;
    }
    memcpy(dims, v->data->dims, (size_t)v->data->rank * sizeof *dims);
    dims[v->data->rank - 1] *= 2;
    return pare_contrib_constant(c, suffix, PARE_u4, v->data->rank, dims, v->data->data);
}

/* Without zero points u8 levels are around the middle one. */
static pare_value *middle_levels(pare_contrib *c, int bits)
{
    const uint8_t level = bits == 8 ? 128 : 8;
    pare_value *one = pare_contrib_constant(c, "middle", PARE_u8, 0, NULL, &level);
    pare_value *all = OP(c, "Expand", one, OP(c, "Shape", in(c, 2)));
    if (bits == 8) return all;
    all = OP(c, "Cast", all);
    pare_contrib_int(c, "to", PARE_u4);
    return all;
}

/* Rows of a table of levels in blocks along quantize_axis. */
void pare_contrib_gather_block_quantized(pare_contrib *c)
{
    const bool bytes = in(c, 0)->dtype == PARE_u8;
    const int bits = (int)pare_node_int(c->node, "bits", 4);
    pare_value *q = in(c, 0), *zero = in(c, 3);
    need(c, 1), need(c, 2);
    if (c->status == PARE_OK && bits != 4 && (bits != 8 || !bytes))
        CONTRIB_FAIL(c, UNSUPPORTED, "attribute 'bits' is %d, expected 4, or 8 for u8", bits);
    if (bytes && bits == 4) q = unpacked(c, "levels", q);
    if (bytes && bits == 4 && zero) zero = unpacked(c, "zero_point", zero);
    if (bytes && !zero) zero = middle_levels(c, bits);
    pare_value *table = OP(c, "DequantizeLinear", q, in(c, 2), zero);
    pare_contrib_int(c, "axis", pare_node_int(c->node, "quantize_axis", 1));
    pare_contrib_int(c, "block_size", pare_node_int(c->node, "block_size", 128));
    OP_TO(c, 0, "Gather", table, in(c, 1));
    pare_contrib_int(c, "axis", pare_node_int(c->node, "gather_axis", 0));
}
