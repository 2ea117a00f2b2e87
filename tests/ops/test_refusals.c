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
