/* SPDX-License-Identifier: Apache-2.0 */
/* Which products compute capability 9.0's own instructions take, and those of 8-bit integers to
   8-bit integers. Others: wgmma_half.cu, wgmma_real.cu, wgmma_f8.cu, wgmma_swap.cu. */
#include "runtime/cuda/gemm/tcgen.h"
#include "runtime/cuda/gemm/wgmma_swap.h"
#include "runtime/cuda/gemm/wgmma_tiles.cuh"

/* Tiles of 128 x 128 below which a block a tile leaves most of a device idle: those of three in ten
   multiprocessors (40 of an H200's 132). */
static bool fills(int multiprocessors, int64_t outputs)
{
    return outputs * 33 >= (int64_t)multiprocessors * 10 * 128 * 128;
}

/* --- what fits --- */

/* Multiprocessors of a device of compute capability `major`.0, or 0. */
static int device_processors(const pare_device *device, int major)
{
    static const cudaDeviceAttr asked[] = {cudaDevAttrComputeCapabilityMajor,
                                           cudaDevAttrComputeCapabilityMinor,
                                           cudaDevAttrMultiProcessorCount};
    int is[3] = {0};
    for (int i = 0; i < 3; i++)
        if (!device || cudaDeviceGetAttribute(&is[i], asked[i], device->index) != cudaSuccess)
            return 0;
    return is[0] == major && is[1] == 0 && tiled_find() && im2col_find() ? is[2] : 0;
}

static bool byte_fits(int v) { return v >= -128 && v <= 127; }

/* Does the window never leave the picture along this axis? */
static bool window_stays(const pare_cuda_picture &in, int axis, int taps)
{
    const int out = axis ? in.out_width : in.out_height, size = axis ? in.width : in.height;
    return in.begin[axis] <= 0 &&
           (out - 1) * in.stride[axis] - in.begin[axis] + (taps - 1) * in.dilation[axis] < size;
}

/* Ranges are those of im2col maps of two window axes: corners of 8 bits with sign, offsets without;
   what is outside of the picture is 0, as X's zero point must be. */
static bool picture_fits(const pare_cuda_gemm_args &p, int32_t x_zero)
{
    const pare_cuda_picture &in = p.in;
    const int bytes = bytes_of_type(p.x_type), step = bytes == 1 ? 64 : 128;
    if (in.transposed || in.channels < 1 || in.channels * bytes % step || in.channels > in.pixel ||
        in.pixel * bytes % 16 || in.row * bytes % 16 || in.image * bytes % 16 ||
        in.kernel_width < 1)
        return false;
    const int taps[2] = {p.depth / in.channels / in.kernel_width, in.kernel_width};
    bool stays = true;
    for (int i = 0; i < 2; i++) {
        if (in.stride[i] < 1 || in.stride[i] > 2 || taps[i] > 7 ||
            (taps[i] - 1) * in.dilation[i] > 255 || !byte_fits(-in.begin[i]) ||
            !byte_fits(corner_of(in, i)))
            return false;
        stays = stays && window_stays(in, i, taps[i]);
    }
    return stays || x_zero == 0;
}

static bool matrix_fits(const pare_cuda_gemm_args &p)
{
    return p.x_step == 1 && p.x_row >= p.depth && p.x_row * bytes_of_type(p.x_type) % 16 == 0;
}

/* How a product ends. */
typedef enum end_form {
    END_OTHER,
    END_BOUNDS, /* a number of X's kind, bounded, perhaps with a residual of its kind */
    END_GELU,
    END_REAL,      /* integers become floats, perhaps with a residual of Y's type */
    END_REAL_BYTES /* f32 or f16, with a residual of 8 bits */
} end_form;

/* Of factors of FP8; of E5M2 matrices with bounds alone. */
static end_form end_of_f8(const pare_cuda_gemm_args &p)
{
    const pare_epilogue &e = p.epilogue;
    const bool alone = e.z_type == PARE_NOTYPE, e4m3 = p.x_type == PARE_f8e4m3;
    if (!e4m3 && (!alone || p.picture || !act_is_bounds(e.act))) return END_OTHER;
    if (p.y_type == p.x_type && e.act.kind == PARE_ACT_GELU) return alone ? END_GELU : END_OTHER;
    if (!act_is_bounds(e.act)) return END_OTHER;
    if (p.y_type == p.x_type) return alone || e.z_type == p.x_type ? END_BOUNDS : END_OTHER;
    if (alone || e.z_type == p.y_type) return END_REAL;
    return e.z_type == p.x_type && p.y_type != PARE_bf16 ? END_REAL_BYTES : END_OTHER;
}

/* Sums twice leave registers for few tiles. */
static bool f8_tile_suits(const pare_cuda_gemm_args &p, end_form end)
{
    if (p.picture && end != END_BOUNDS) return false;
    switch (p.tile) {
    case PARE_CUDA_128X128: return p.columns > 64;
    case PARE_CUDA_128X64: return !p.picture;
    case PARE_CUDA_256X64: return p.picture && p.columns <= 64;
    default: return false;
    }
}

static end_form end_of_product(const pare_cuda_gemm_args &p)
{
    const pare_epilogue &e = p.epilogue;
    const bool integer = pare_type_is_int8(p.x_type), bytes = pare_type_is_int8(p.y_type);
    const bool alone = e.z_type == PARE_NOTYPE;
    const tile_epilogue alike = epilogue_of(p); /* p.z is not known yet */
    if (alike == EPILOGUE_CLAMP || alike == EPILOGUE_BOUNDS)
        return alone || (integer ? pare_type_is_int8(e.z_type) : e.z_type == p.y_type) ? END_BOUNDS
                                                                                       : END_OTHER;
    if (e.act.kind == PARE_ACT_GELU && alone && integer == bytes) return END_GELU;
    if (integer && !bytes && act_is_bounds(e.act) && (alone || e.z_type == p.y_type))
        return END_REAL;
    if (integer && !bytes && act_is_bounds(e.act) && pare_type_is_int8(e.z_type) &&
        p.y_type != PARE_bf16)
        return END_REAL_BYTES;
    return END_OTHER;
}

/* The same of weights of 2:4 (wgmma_sparse.cu), whose four groups take 128 x 256 of a matrix of
   many columns. Little depth leaves nothing to save. */
static bool sparse_tile_suits(const pare_cuda_gemm_args &p, end_form end)
{
    const bool bounds = end == END_BOUNDS, alone = p.epilogue.z_type == PARE_NOTYPE;
    if (p.depth * bytes_of_type(p.x_type) <= 64) return false;
    if (!bounds && (p.picture || p.columns <= 64)) return false;
    switch (p.tile) {
    case PARE_CUDA_128X128: return p.columns > 64;
    case PARE_CUDA_256X128:
        return p.columns > 64 && !(end == END_REAL_BYTES && p.y_type == PARE_f32);
    case PARE_CUDA_256X64: return bounds && p.columns <= 64;
    case PARE_CUDA_256X128_4WG:
        return (bounds || end == END_GELU) && p.columns > 64 && (!p.picture || alone);
    default: return false;
    }
}

/* Does the tile suit the product? Wide ones are for many columns, small steps for little depth; the
   largest leaves no registers for a residual or a GELU, f32 no memory for bytes to add. Two blocks
   of the smallest share a processor, and four groups share the large one: where epilogues are long,
   one computes while another waits or multiplies. Four leave windows with a residual no registers.
 */
static bool tile_suits(const pare_cuda_gemm_args &p, end_form end)
{
    const bool small = p.depth * bytes_of_type(p.x_type) <= 64, bounds = end == END_BOUNDS;
    if (!bounds && (p.picture || small || p.columns <= 64)) return false;
    if (small && !pare_type_is_int8(p.x_type)) return false;
    switch (p.tile) {
    case PARE_CUDA_128X128: return p.columns > 64;
    case PARE_CUDA_256X128:
        return bounds && p.columns > 64 && (p.picture || !small) &&
               p.epilogue.z_type == PARE_NOTYPE;
    case PARE_CUDA_128X192:
        return p.columns > 128 && !p.picture && !small &&
               !(end == END_REAL_BYTES && p.y_type == PARE_f32);
    case PARE_CUDA_128X64: return !p.picture && (p.columns <= 64 || small || !bounds);
    case PARE_CUDA_256X64: return bounds && p.columns <= 64;
    case PARE_CUDA_256X128_4WG:
        return (bounds || end == END_GELU) && p.columns > 64 &&
               (!p.picture || p.epilogue.z_type == PARE_NOTYPE);
    default: return false;
    }
}

/* The same of compute capability 10.0 (tcgen_tiles.cuh), whose sums take no registers. The widest
   tile leaves no memory for floats of four bytes; FP8 has steps of 128 bytes alone. */
static bool tcgen_tile_suits(const pare_cuda_gemm_args &p, end_form end)
{
    const bool bounds = end == END_BOUNDS, f8 = pare_type_is_f8(p.x_type);
    if (p.picture && (!bounds || (f8 && p.in.channels % 128))) return false;
    switch (p.tile) {
    case PARE_CUDA_128X64: return true;
    case PARE_CUDA_128X128: return p.columns > 64;
    case PARE_CUDA_128X256:
        return p.columns > 128 && !f8 &&
               (bounds || (end == END_GELU && !pare_type_is_int8(p.x_type)));
    default: return false;
    }
}

/* Are rows of Y, rows of bytes that are added, and a lane's four columns where tensor maps and
   copies want them? */
static bool columns_fit(const pare_cuda_gemm_args &p, end_form end)
{
    const int bytes = bytes_of_type(p.y_type);
    return p.columns > 0 && p.columns * bytes % 16 == 0 && p.y_row * bytes % 16 == 0 &&
           (end != END_REAL_BYTES || p.y_row % 16 == 0);
}

static bool operands_fit(const pare_prep *prep, const pare_cuda_gemm_args &p, int32_t x_zero)
{
    return p.x_type != PARE_f32 && (pare_type_is_int8(p.x_type) || !prep->deterministic) &&
           p.batches == 1 && p.depth >= 1 && p.rows <= INT32_MAX - BAND_ROWS &&
           (p.picture ? picture_fits(p, x_zero) : matrix_fits(p));
}

typedef bool (*tile_rule)(const pare_cuda_gemm_args &p, end_form end);

static bool product_fits(const pare_prep *prep, const pare_cuda_gemm_args *product,
                         const pare_epilogue *e, int32_t x_zero, pare_cuda_tiling tile,
                         tile_rule suits, int major)
{
    pare_cuda_gemm_args p = *product;
    p.tile = tile;
    p.epilogue = *e;
    const end_form end = pare_type_is_f8(p.x_type) ? end_of_f8(p) : end_of_product(p);
    if (end == END_OTHER || !columns_fit(p, end) || !operands_fit(prep, p, x_zero) ||
        !suits(p, end))
        return false;
    const int processors = device_processors(prep->device, major);
    return processors > 0 && fills(processors, p.rows * p.columns);
}

/* Four columns are stored at once, and as many bytes are added. Integers in real units have the
   middle tile alone. A device holds the largest cluster: two of its blocks a multiprocessor. */
extern "C" bool pare_cuda_swap_fits(const pare_prep *prep, const pare_cuda_gemm_args *product,
                                    const pare_epilogue *e, int32_t x_zero, pare_cuda_tiling tile)
{
    pare_cuda_gemm_args p = *product;
    if (pare_type_is_f8(p.x_type)) return false;
    p.epilogue = *e;
    const end_form end = end_of_product(p);
    const bool real = end == END_REAL || end == END_REAL_BYTES;
    return end != END_OTHER && (end == END_BOUNDS || !p.picture) &&
           (!real || tile == PARE_CUDA_64X64) && p.rows > 0 && p.columns > 0 &&
           p.columns % 4 == 0 && p.y_row % 4 == 0 && operands_fit(prep, p, x_zero) &&
           pare_swap_tiles(&p, tile) <= PARE_SWAP_MOST_TILES &&
           2 * device_processors(prep->device, 9) >= PARE_SWAP_MOST_CLUSTER;
}

extern "C" bool pare_cuda_wgmma_fits(const pare_prep *prep, const pare_cuda_gemm_args *p,
                                     const pare_epilogue *e, int32_t x_zero, pare_cuda_tiling tile)
{
    return product_fits(prep, p, e, x_zero, tile,
                        pare_type_is_f8(p->x_type) ? f8_tile_suits : tile_suits, 9);
}

extern "C" bool pare_cuda_tcgen_fits(const pare_prep *prep, const pare_cuda_gemm_args *p,
                                     const pare_epilogue *e, int32_t x_zero, pare_cuda_tiling tile)
{
    return pare_cuda_tcgen_built && product_fits(prep, p, e, x_zero, tile, tcgen_tile_suits, 10) &&
           pare_cuda_tcgen_is_right(prep);
}

extern "C" bool pare_cuda_wgmma_sparse_fits(const pare_prep *prep, const pare_cuda_gemm_args *p,
                                            const pare_epilogue *e, int32_t x_zero,
                                            pare_cuda_tiling tile)
{
    return !pare_type_is_f8(p->x_type) &&
           product_fits(prep, p, e, x_zero, tile, sparse_tile_suits, 9);
}

/* --- launchers --- */

/* Steps of 64 bytes where depth, or a tap's, is not in whole ones of 128. */
template <int KIND, bool PICTURE, bool RESIDUAL>
static cudaError_t tile_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
#define LAUNCH(MI, BN, KB, DEEP, ...)                                                              \
    variant_launch<                                                                                \
        variant<KIND, PARE_s8, false, RESIDUAL, PICTURE, MI, BN, KB, DEEP, __VA_ARGS__>>(p,        \
                                                                                         stream)
    const bool narrow = PICTURE ? p->in.channels % 128 != 0 : p->depth <= 64;
    if (p->tile == PARE_CUDA_256X64) return LAUNCH(2, 64, 64, 8, 1);
    if (p->tile == PARE_CUDA_128X128 && narrow) return LAUNCH(1, 128, 64, 12, 1);
    if (p->tile == PARE_CUDA_128X128) return LAUNCH(1, 128, 128, 6, 1);
    if constexpr (PICTURE && !RESIDUAL)
        if (p->tile == PARE_CUDA_256X128 && narrow) return LAUNCH(2, 128, 64, 8, 1);
    if constexpr (!RESIDUAL)
        if (p->tile == PARE_CUDA_256X128) return LAUNCH(2, 128, 128, 4, 1);
    if constexpr (!(PICTURE && RESIDUAL)) {
        if (p->tile == PARE_CUDA_256X128_4WG && narrow) return LAUNCH(1, 128, 64, 8, 1, 4);
        if (p->tile == PARE_CUDA_256X128_4WG) return LAUNCH(1, 128, 128, 4, 1, 4);
    }
    if constexpr (!PICTURE) {
        if (p->tile == PARE_CUDA_128X192) return LAUNCH(1, 192, 128, 5, 1);
        if (p->tile == PARE_CUDA_128X64) return LAUNCH(1, 64, 64, 6, 2);
    }
    return cudaErrorInvalidValue;
#undef LAUNCH
}

template <int KIND>
static cudaError_t form_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->picture)
        return p->z ? tile_choose<KIND, true, true>(p, stream)
                    : tile_choose<KIND, true, false>(p, stream);
    return p->z ? tile_choose<KIND, false, true>(p, stream)
                : tile_choose<KIND, false, false>(p, stream);
}

extern "C" cudaError_t pare_cuda_wgmma_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->rows == 0 || p->columns == 0) return cudaSuccess;
    if (pare_type_is_f8(p->x_type)) return pare_cuda_wgmma_f8_launch(p, stream);
    if (!pare_type_is_int8(p->x_type)) return pare_cuda_wgmma_half_launch(p, stream);
    if (p->epilogue.real) return pare_cuda_wgmma_real_launch(p, stream);
    return p->x_type == PARE_s8 ? form_choose<PARE_s8>(p, stream) : form_choose<PARE_u8>(p, stream);
}
