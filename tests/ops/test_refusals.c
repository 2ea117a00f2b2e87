/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes whose counts, types, shapes, attributes or values are wrong, in the words of row_case.h:
   each is refused, by the shape rule or by the kernel, with a message that says why. */
#include "tests/ops/row_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct refusal {
    row_line line;
    const char *message;
} refusal;

/* clang-format off */
static const refusal refusals[] = {
    {{"GridSample", "d2x3x7x5", "", 1}, "input 1 is missing"},
    {{"GridSample", "d2x3x7x5 u2x4x6x2", "mode=slinea", 1}, "mode is 'linea', expected linear, ... or cubic"},
    {{"GridSample", "d2x3x7x5 u2x4x6x2", "padding_mode=sconstant", 1}, "padding_mode is 'constant'"},
    {{"GridSample", "d2x3x7x5 u2x4x6x3", "", 1}, "X [2,3,7,5] and grid [2,4,6,3] are not"},
    {{"GridSample", "d2x3x7x5 u1x4x6x2", "", 1}, "grid [1,4,6,2] are not"},
    {{"GridSample", "d2x3x7x5 u2x4x6x2:s64", "", 1}, "has type s64"},
    {{"AffineGrid", "d2x2x3 i2,1,5", "", 1}, "theta [2,2,3] does not fit a size of 3 numbers"},
    {{"AffineGrid", "d2x3x4 i2,1,5,6", "", 1}, "theta [2,3,4] does not fit"},
    {{"AffineGrid", "d2x2 i2,1,5,6", "", 1}, "rank 2, expected [N,2,3]"},
    {{"RoiAlign", "d2x3x9x9 p4x4 i0,0,0", "", 1}, "are not [R,4] and [R]"},
    {{"RoiAlign", "d2x3x9x9 p4x4 i0,0,0,2", "", 1}, "batch index 2 in 'x2' is outside 2 pictures"},
    {{"RoiAlign", "d2x3x9x9 p4x4 i0,0,0,-1", "", 1}, "batch index -1"},
    {{"RoiAlign", "d2x3x9 p4x4 i0,0,0,0", "", 1}, "rank 3, expected [N,C,H,W]"},
    {{"RoiAlign", "d2x3x9x9 p1x4 i0", "mode=ssum", 1}, "mode is 'sum', expected avg, ... or max"},
    {{"RoiAlign", "d2x3x9x9 p1x4 i0", "output_height=i0", 1}, "bins of 0 x 1"},
    {{"DeformConv", "d1x2x5x5 u3x2x2x2 u1x6x4x4", "", 1}, "'x2' has shape [1,6,4,4], expected [1,8,4,4]"},
    {{"DeformConv", "d1x2x5x5 u3x2x2x2 u1x8x4x4 u2", "", 1}, "bias 'x3' has not the 3 values"},
    {{"DeformConv", "d1x2x5x5 u3x2x2x2 u1x8x4x4", "offset_group=i3", 1}, "offset_group 3 does not divide"},
    {{"DeformConv", "d1x3x5x5 u3x2x2x2 u1x8x4x4", "", 1}, "do not fit"},
    {{"Col2Im", "d1x5x5 i5,5 i1,5,1", "", 1}, "image_shape has 2 numbers, block_shape 3"},
    {{"Col2Im", "d1x5x6 i5,5 i1,5", "", 1}, "expected [N, C * 5, 5]"},
    {{"Col2Im", "d1x5x5 i5,5 i1,5", "strides=l0,1", 1}, "strides has 0, expected at least 1"},
    {{"MaxUnpool", "d1x1x2x2 p1x1x2x2:s64", "kernel_shape=l2", 1}, "kernel_shape has 1 numbers"},
    {{"MaxUnpool", "d1x1x2x2 p1x1x2x3:s64", "kernel_shape=l2,2", 1}, "its indices [1,1,2,3]"},
    {{"MaxUnpool", "d1x1x1x1 P1x1x1x1:s64", "kernel_shape=l1,1", 1}, "is outside an output of 1 elements"},
    {{"CenterCropPad", "d2x5x4 i7", "", 1}, "shape has 1 numbers for 3 axes"},
    {{"CenterCropPad", "d2x5x4 i7,-1", "axes=l0,1", 1}, "a size of -1"},
    {{"Det", "d3x4x5", "", 1}, "'x0' has shape [3,4,5], expected [...,M,M]"},
    {{"MeanVarianceNormalization", "d2x3x4", "", 1}, "rank 3, expected 4 without axes"},
    {{"BatchNormalization", "d3x4x2 p4 d4 d4 p4", "", 3}, "3 outputs without training_mode"},
    {{"Dropout", "d2x3 w2 P1:bool", "", 1}, "ratio is 2, which is no probability"},
    {{"Dropout", "d2x3:s32 w0.5 P1:bool", "", 1}, "type s32, expected floats"},
    {{"RotaryEmbedding", "d2x3x4x8 d2x4x4", "", 1}, "input 2 is missing"},
    {{"RotaryEmbedding", "d2x3x4x7 d2x4x3 d2x4x3", "", 1}, "expected an even number"},
    {{"RotaryEmbedding", "d2x3x4x8 d2x4x6 d2x4x6", "rotary_embedding_dim=i12", 1}, "12 columns of a head of 8"},
    {{"RotaryEmbedding", "d2x3x4x8 d2x4x4 d2x4x3", "", 1}, "'x2' has shape [2,4,3], expected [2,4,4]"},
    {{"RotaryEmbedding", "d2x4x24 d2x4x4 d2x4x4", "", 1}, "num_heads is missing"},
    {{"RotaryEmbedding", "d2x3x4x8 d9x4 d9x4 p2x4:s32", "", 1}, "type s32, expected s64"},
    {{"RotaryEmbedding", "d2x3x4x8 d3x4 d3x4 b2x4:s64", "", 1}, "position 3 in 'x3' is outside the 3 of 'x1'"},
    {{"RotaryEmbedding", "d2x3x4x8 d2x4x4:f16 d2x4x4", "", 1}, "must have the same type"},
    {{"TensorScatter", "d2x5x4 d2x6x4", "", 1}, "update 'x1' does not fit into 'x0'"},
    {{"TensorScatter", "d2x5x4 d2x3x4 i1,3", "", 1}, "3 places from write index 3 on do not fit into a cache of 5"},
    {{"TensorScatter", "d2x5x4 d2x3x4 i1,-1", "", 1}, "from write index -1"},
    {{"TensorScatter", "d2x5x4 d2x3x4 i1", "", 1}, "one index for each of the batch"},
    {{"TensorScatter", "d2x5x4 d2x3x4", "axis=i0", 1}, "axis 0 is the batch"},
    {{"TensorScatter", "d2x5x4 d2x3x4", "mode=sround", 1}, "expected linear or circular"},
    {{"Einsum", "d2x3 d4x5", "equation=sij,jk->ik", 1}, "has length 4, its label 3 elsewhere"},
    {{"Einsum", "d2x3 d4x5", "", 1}, "attribute 'equation' is missing"},
    {{"Einsum", "d2x3 d3x5:f64", "equation=sij,jk->ik", 1}, "must have the same type"},
    {{"DFT", "d2x7x3", "", 1}, "1 (real) or 2 (complex) numbers"},
    {{"DFT", "d2x7x2 - s2", "", 1}, "axis 2 holds real and imaginary parts"},
    {{"DFT", "d2x7x2 - s5", "", 1}, "axis 5 is outside a tensor of rank 3"},
    {{"DFT", "d2x7x2 s0", "", 1}, "a length of 0 cannot be transformed"},
    {{"DFT", "d2x7x2", "onesided=i1", 1}, "onesided needs a real signal"},
    {{"DFT", "d2x7x1", "onesided=i1 inverse=i1", 1}, "onesided needs a complex signal"},
    {{"DFT", "d2x7x1 w3:f32", "", 1}, "type f32, expected s32 or s64"},
    {{"STFT", "d2x9x1 s0 - s4", "", 1}, "frame_step is 0"},
    {{"STFT", "d2x9x1 s2 - s10", "", 1}, "a signal of 9 has no frame of 10"},
    {{"STFT", "d2x9x1 s2 d5 s4", "", 1}, "window 'x2' has 5 numbers, a frame has 4"},
    {{"STFT", "d9 s2 - s4", "", 1}, "rank 1, expected [batch,length,1 or 2]"},
    {{"HannWindow", "s-1", "", 1}, "'x0' is -1, it must be at least 0"},
    {{"HannWindow", "i4,5", "", 1}, "must be one number"},
    {{"BlackmanWindow", "s4", "output_datatype=i9", 1}, "output_datatype 9 is no type of numbers"},
    {{"MelWeightMatrix", "s0 s64 s8000 W20 W4000", "", 1}, "'x0' is 0, it must be at least 1"},
    {{"MelWeightMatrix", "s8 s64 s8000 W20 W9000", "", 1}, "outside the 33 bins"},
    {{"RandomNormal", "", "", 1}, "attribute 'shape' is missing"},
    {{"RandomNormal", "", "shape=l2,-3", 1}, "negative dimension"},
    {{"RandomNormal", "", "shape=l2 dtype=i7", 1}, "type s64, expected f32, f64, f16 or bf16"},
    {{"RandomNormal", "", "shape=l2 scale=f-1", 1}, "scale not negative"},
    {{"RandomUniform", "", "shape=l2 low=f3 high=f1", 1}, "low is 3 and high 1"},
    {{"RandomUniformLike", "d2x3:s32", "", 1}, "type s32, expected f32"},
    {{"Bernoulli", "W0.5,1.5", "", 1}, "'x0' holds 1.5, which is no probability"},
    {{"Bernoulli", "W0.5", "dtype=i8", 1}, "expected a number or bool"},
    {{"Multinomial", "d6", "", 1}, "must have shape [batch,classes]"},
    {{"Multinomial", "d2x6", "sample_size=i0", 1}, "sample_size is 0"},
    {{"Multinomial", "d2x6", "dtype=i1", 1}, "type s32 or s64"},
    {{"TfIdfVectorizer", "u9:s64", "mode=sX", 1}, "expected TF, IDF or TFIDF"},
    {{"TfIdfVectorizer", "u9:s64", "mode=sTF min_gram_length=i1 max_gram_length=i2 ngram_counts=l0 pool_int64s=l1,2 ngram_indexes=l0,1", 1}, "ngram_counts has 1 lengths"},
    {{"TfIdfVectorizer", "u9:s64", "mode=sTF min_gram_length=i1 max_gram_length=i2 ngram_counts=l0,2 pool_int64s=l1,2,3 ngram_indexes=l0,1", 1}, "to 2-grams"},
    {{"TfIdfVectorizer", "u9:s64", "mode=sTF min_gram_length=i1 max_gram_length=i1 ngram_counts=l0 pool_int64s=l1,2 ngram_indexes=l0", 1}, "makes 2 n-grams of the pool, ngram_indexes has 1"},
    {{"TfIdfVectorizer", "u9:s64", "mode=sTF min_gram_length=i1 max_gram_length=i1 ngram_counts=l0 pool_int64s=l1,1 ngram_indexes=l0,1", 1}, "the same 1-gram twice"},
    {{"TfIdfVectorizer", "u9:s64", "mode=sTF min_gram_length=i1 max_gram_length=i1 ngram_counts=l0 pool_int64s=l1,2 ngram_indexes=l0,-1", 1}, "-1, which is no column"},
    {{"TfIdfVectorizer", "d9:f32", "mode=sTF min_gram_length=i1 max_gram_length=i1 ngram_counts=l0 pool_int64s=l1 ngram_indexes=l0", 1}, "type f32, expected s32 or s64"},
    {{"AllGather", "d2x3", "axis=i1 parts=l4,3", 1}, "axis 1, part -1 of 2"},
    {{"AllGather", "d2x3", "axis=i2 parts=l4,3 part=i1", 1}, "axis 2, part 1 of 2"},
    {{"AllGather", "d2x3", "axis=i1 parts=l4,3 part=i2", 1}, "axis 1, part 2 of 2"},
    {{"AllGather", "d2x3", "axis=i1 parts=l-1,3 part=i1", 1}, "expected an axis of its input"},
    {{"AllGather", "d2x3", "axis=i1 parts=l4,3 part=i0", 1}, "part 0 has 3 of axis 1, expected 4"},
};
/* clang-format on */

static void each_says_why(void **state)
{
    int failures = 0;
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *f = &refusals[i];
        row_case r;
        bool taken = row_open(&r, &f->line, PARE_f32, false);
        for (int k = 0; taken && r.op->cpu[k]; k++)
            taken = row_run(&r, r.op->cpu[k], NULL) != ROW_FAILED;
        if (taken || !strstr(r.ctx.message, f->message) || !strstr(r.ctx.message, "node 'n'")) {
            print_error("%s \"%s\" %s: \"%s\", expected \"%s\"\n", f->line.op, f->line.operands,
                        f->line.attributes, taken ? "it runs" : r.ctx.message, f->message);
            failures++;
        }
        row_close(&r);
    }
    assert_int_equal(failures, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_says_why)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
