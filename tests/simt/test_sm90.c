/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver's calls for tensor maps refuse, and how they are found: CUDA Driver API, "Tensor
   Map Object Management". What copies and products do with maps is in defects_sm90.cu and in
   tests/gpu/selftest_sm90.cu. */
#include "testing.h"

#include <cuda.h>

typedef CUresult tiled_encoder(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                               const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                               const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
typedef CUresult im2col_encoder(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                const cuuint64_t *, const cuuint64_t *, const int *, const int *,
                                cuuint32_t, cuuint32_t, const cuuint32_t *, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill);

/* A request that is right, of which each case spoils one part. */
typedef struct request {
    unsigned map, address; /* how far from aligned */
    CUtensorMapDataType type;
    cuuint32_t rank;
    cuuint64_t dims[5], strides[4];
    cuuint32_t box[5], steps[5]; /* im2col: channels, pixels */
    int low[3], high[3];
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapFloatOOBfill fill;
} request;

static void *entry(const char *name, unsigned version)
{
    void *found = &found;
    enum cudaDriverEntryPointQueryResult how;
    CUDA_OK(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &how));
    assert_true((how == cudaDriverEntryPointSuccess) == (found != NULL));
    return found;
}

static CUresult encode(const request *r, bool im2col)
{
    static _Alignas(128) char maps[256], tensor[256]; /* no one reads it: any memory will do */
    CUtensorMap *map = (CUtensorMap *)(void *)(maps + r->map);
    void *at = tensor + r->address;
    if (!im2col) {
        tiled_encoder *tiled = (tiled_encoder *)entry("cuTensorMapEncodeTiled", 12000);
        return tiled(map, r->type, r->rank, at, r->dims, r->strides, r->box, r->steps,
                     r->interleave, r->swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, r->fill);
    }
    im2col_encoder *windows = (im2col_encoder *)entry("cuTensorMapEncodeIm2col", 12000);
    return windows(map, r->type, r->rank, at, r->dims, r->strides, r->low, r->high, r->box[0],
                   r->box[1], r->steps, r->interleave, r->swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                   r->fill);
}

static const request right = {
    .type = CU_TENSOR_MAP_DATA_TYPE_UINT8,
    .rank = 4,
    .dims = {96, 9, 7, 3},
    .strides = {96, 9 * 96, 63 * 96},
    .box = {64, 16, 1, 1},
    .steps = {1, 1, 1, 1},
    .low = {-1, -1},
    .high = {-1, 0},
    .swizzle = CU_TENSOR_MAP_SWIZZLE_64B,
};

#define REFUSED(way, part, ...)                                                                    \
    do {                                                                                           \
        request r = right;                                                                         \
        r.part = __VA_ARGS__;                                                                      \
        assert_int_equal(encode(&r, way), CUDA_ERROR_INVALID_VALUE);                               \
    } while (0)

static void what_the_driver_forbids_is_refused(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        assert_int_equal(encode(&right, way), CUDA_SUCCESS);
        REFUSED(way, map, 16);
        REFUSED(way, address, 8);
        REFUSED(way, rank, 6);
        REFUSED(way, dims[2], 0);
        REFUSED(way, dims[0], ((cuuint64_t)1 << 32) + 1);
        REFUSED(way, strides[1], 9 * 96 + 8);
        REFUSED(way, strides[2], (cuuint64_t)1 << 40);
        REFUSED(way, steps[1], 0);
        REFUSED(way, steps[2], 9);
        REFUSED(way, box[0], 0);
        REFUSED(way, box[0], 272);
        REFUSED(way, box[0], 24);
        REFUSED(way, box[0], 80); /* wider than the swizzle */
        REFUSED(way, box[1], 0);
        REFUSED(way, fill, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);
    }
    REFUSED(false, rank, 0);
    REFUSED(false, box[1], 257);
    REFUSED(true, rank, 2);
    REFUSED(true, box[1], 1025);
    REFUSED(true, low[0], -129);
    REFUSED(true, low[1], 128);
    REFUSED(true, high[0], 128);
    REFUSED(true, high[1], -129);
    REFUSED(true, high[0], -10); /* before the first corner */
}

static void what_is_not_emulated_is_said_to_be(void **state)
{
    (void)state;
    request r = right;
    r.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B;
    assert_int_equal(encode(&r, false), CUDA_ERROR_NOT_SUPPORTED);
    r = right;
    r.type = CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B;
    assert_int_equal(encode(&r, true), CUDA_ERROR_NOT_SUPPORTED);
}

static void calls_are_found_by_name_and_version_and_fail_on_demand(void **state)
{
    (void)state;
    void *found;
    enum cudaDriverEntryPointQueryResult how;
    assert_null(entry("cuTensorMapEncode", 12000));
    assert_null(entry("cuTensorMapEncodeTiled", 11080));
    simt_fail_at(1, cudaErrorUnknown, false);
    CUDA_IS(cudaErrorUnknown, cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                               12000, cudaEnableDefault, &how));
    (void)cudaGetLastError();
    for (int way = 0; way < 2; way++) {
        simt_fail_at(2, cudaErrorMemoryAllocation, false);
        assert_int_equal(encode(&right, way), CUDA_ERROR_OUT_OF_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(what_the_driver_forbids_is_refused),
        device_test(what_is_not_emulated_is_said_to_be),
        device_test(calls_are_found_by_name_and_version_and_fail_on_demand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
