// SPDX-License-Identifier: Apache-2.0
// The driver's calls that make tensor maps, with the refusals of its documentation (CUDA Driver
// API, "Tensor Map Object Management"), and how the runtime hands them out.
#include "async.h"
#include <cstring>

namespace simt
{
namespace
{

// Of an element; 0: packed types, which are not emulated.
unsigned bytes_of(CUtensorMapDataType type)
{
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    return type < sizeof bytes ? bytes[type] : 0;
}

CUresult refuse(const char *call, const char *why)
{
    say("%s: %s", call, why);
    return CUDA_ERROR_INVALID_VALUE;
}

// What both ways of encoding are given.
struct request {
    const char *call;
    CUtensorMap *to;
    CUtensorMapDataType type;
    unsigned rank;
    const void *address;
    const cuuint64_t *dims, *strides;
    const cuuint32_t *steps;
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapFloatOOBfill fill;
};

unsigned span_of(CUtensorMapSwizzle swizzle)
{
    return swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : 16u << swizzle;
}

const char *tensor_wrong(const request &q)
{
    if (reinterpret_cast<uintptr_t>(q.to) % 64) return "the map is not 64-byte aligned";
    if (reinterpret_cast<uintptr_t>(q.address) % 16) return "the tensor is not 16-byte aligned";
    for (unsigned i = 0; i < q.rank; i++) {
        if (!q.dims[i] || q.dims[i] > uint64_t(1) << 32) return "a dimension is not 1 to 2^32";
        if (!q.steps[i] || q.steps[i] > 8) return "a step is not 1 to 8";
    }
    for (unsigned i = 0; i + 1 < q.rank; i++)
        if (q.strides[i] % 16 || q.strides[i] >= uint64_t(1) << 40)
            return "a stride is not a multiple of 16 below 2^40";
    if (q.fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE && q.type < CU_TENSOR_MAP_DATA_TYPE_FLOAT16)
        return "NaNs are not for integers";
    return nullptr;
}

// Neighbours that a box has.
const char *inner_wrong(const request &q, unsigned elements)
{
    const unsigned bytes = elements * bytes_of(q.type), span = span_of(q.swizzle);
    if (!elements || elements > 256) return "a box has not 1 to 256 neighbours";
    if (bytes % 16) return "a box's neighbours are not a multiple of 16 bytes";
    return span && bytes > span ? "a box's neighbours are more than the swizzle's span" : nullptr;
}

bool emulated(const request &q)
{
    return bytes_of(q.type) && q.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE &&
           q.swizzle <= CU_TENSOR_MAP_SWIZZLE_128B && q.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
}

tensor_map common(const request &q, uint64_t kind)
{
    tensor_map m = {};
    m.kind = kind;
    m.address = reinterpret_cast<uintptr_t>(q.address);
    for (unsigned i = 0; i < q.rank; i++) {
        m.last[i] = static_cast<uint32_t>(q.dims[i] - 1);
        m.step[i] = static_cast<uint8_t>(q.steps[i]);
        if (i + 1 < q.rank) m.stride[i] = q.strides[i];
    }
    m.rank = static_cast<uint8_t>(q.rank);
    m.bytes = static_cast<uint8_t>(bytes_of(q.type));
    m.span = static_cast<uint8_t>(span_of(q.swizzle));
    return m;
}

CUresult encode(const request &q, const tensor_map &m)
{
    if (!emulated(q)) {
        say("%s: a type, layout or fill that is not emulated", q.call);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    memset(q.to, 0, sizeof *q.to);
    memcpy(q.to, &m, sizeof m);
    return CUDA_SUCCESS;
}

CUresult encode_tiled(CUtensorMap *to, CUtensorMapDataType type, cuuint32_t rank, void *address,
                      const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                      const cuuint32_t *steps, CUtensorMapInterleave interleave,
                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                      CUtensorMapFloatOOBfill fill)
{
    const request q = {"cuTensorMapEncodeTiled",
                       to,
                       type,
                       rank,
                       address,
                       dims,
                       strides,
                       steps,
                       interleave,
                       swizzle,
                       fill};
    call here(q.call);
    if (here.code) return static_cast<CUresult>(here.code);
    if (rank < 1 || rank > 5) return refuse(q.call, "a rank that is not 1 to 5");
    const char *wrong = tensor_wrong(q);
    if (!wrong && bytes_of(type)) wrong = inner_wrong(q, box[0]);
    for (unsigned i = 1; i < rank && !wrong; i++)
        if (!box[i] || box[i] > 256) wrong = "a box's dimension is not 1 to 256";
    if (wrong) return refuse(q.call, wrong);
    tensor_map m = common(q, MAP_TILED);
    for (unsigned i = 0; i < rank; i++) m.box[i] = static_cast<uint16_t>(box[i]);
    return encode(q, m);
}

// Corners of a window's box: so many bits with sign as the rank leaves.
const char *corners_wrong(const request &q, const int *low, const int *high)
{
    const int most = q.rank == 3 ? 32767 : q.rank == 4 ? 127 : 15;
    for (unsigned i = 0; i < q.rank - 2; i++) {
        if (low[i] < -most - 1 || low[i] > most || high[i] < -most - 1 || high[i] > most)
            return "a corner is out of range";
        if (static_cast<int64_t>(q.dims[i + 1]) + high[i] <= low[i])
            return "the corners leave no position";
    }
    return nullptr;
}

CUresult encode_im2col(CUtensorMap *to, CUtensorMapDataType type, cuuint32_t rank, void *address,
                       const cuuint64_t *dims, const cuuint64_t *strides, const int *low,
                       const int *high, cuuint32_t channels, cuuint32_t pixels,
                       const cuuint32_t *steps, CUtensorMapInterleave interleave,
                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                       CUtensorMapFloatOOBfill fill)
{
    const request q = {"cuTensorMapEncodeIm2col",
                       to,
                       type,
                       rank,
                       address,
                       dims,
                       strides,
                       steps,
                       interleave,
                       swizzle,
                       fill};
    call here(q.call);
    if (here.code) return static_cast<CUresult>(here.code);
    if (rank < 3 || rank > 5) return refuse(q.call, "a rank that is not 3 to 5");
    const char *wrong = tensor_wrong(q);
    if (!wrong) wrong = corners_wrong(q, low, high);
    if (!wrong && bytes_of(type)) wrong = inner_wrong(q, channels);
    if (!wrong && (!pixels || pixels > 1024)) wrong = "a column has not 1 to 1024 pixels";
    if (wrong) return refuse(q.call, wrong);
    tensor_map m = common(q, MAP_IM2COL);
    m.box[0] = static_cast<uint16_t>(channels);
    m.box[1] = static_cast<uint16_t>(pixels);
    for (unsigned i = 0; i < rank - 2; i++) {
        m.low[i] = static_cast<int16_t>(low[i]);
        m.high[i] = static_cast<int16_t>(high[i]);
    }
    return encode(q, m);
}

} // namespace
} // namespace simt

using namespace simt;

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function,
                                                        unsigned version, unsigned long long,
                                                        enum cudaDriverEntryPointQueryResult *how)
{
    SIMT_CALL("cudaGetDriverEntryPointByVersion");
    *function = nullptr;
    if (!strcmp(name, "cuTensorMapEncodeTiled")) *function = reinterpret_cast<void *>(encode_tiled);
    if (!strcmp(name, "cuTensorMapEncodeIm2col"))
        *function = reinterpret_cast<void *>(encode_im2col);
    if (!strcmp(name, "cuMemGetAddressRange")) *function = address_range_entry();
    const bool known = *function, old = version < 12000;
    *how = !known ? cudaDriverEntryPointSymbolNotFound
           : old  ? cudaDriverEntryPointVersionNotSufficent
                  : cudaDriverEntryPointSuccess;
    if (!known || old) *function = nullptr;
    return cudaSuccess;
}
