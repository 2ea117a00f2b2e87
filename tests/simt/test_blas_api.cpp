// SPDX-License-Identifier: Apache-2.0
// runtime/cuda/gemm/blas_api.h against NVIDIA's headers: built and run where a toolkit has them. Every
// function must have the same parameters as the calling convention sees them: pointers with
// pointers, integers and enumerations with those of the same size.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cstddef>
#include <cstdio>
#include "runtime/cuda/gemm/blas_api.h"
#include "same_call.h"

namespace
{

static_assert(same_call<int (*)(int, void *), cublasStatus_t (*)(cublasOperation_t, int *)>::value,
              "");
static_assert(!same_call<int (*)(int, void *), int (*)(long long, void *)>::value, "");
static_assert(!same_call<int (*)(int), int (*)(int, int)>::value, "");

// In C++ the headers overload two functions; these are the ones that the library exports.
namespace exported
{
typedef cublasStatus_t gemm(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                            const void *, const void *, cudaDataType, int, const void *,
                            cudaDataType, int, const void *, void *, cudaDataType, int,
                            cublasComputeType_t, cublasGemmAlgo_t);
typedef cublasStatus_t batched(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                               const void *, const void *, cudaDataType, int, long long,
                               const void *, cudaDataType, int, long long, const void *, void *,
                               cudaDataType, int, long long, int, cublasComputeType_t,
                               cublasGemmAlgo_t);
extern decltype(static_cast<gemm *>(&::cublasGemmEx)) cublasGemmEx;
extern decltype(static_cast<batched *>(&::cublasGemmStridedBatchedEx)) cublasGemmStridedBatchedEx;
#define SAME_CALL(library, name, symbol, parameters)                                               \
    static_assert(same_call<decltype(pare_blas_api::name), std::decay_t<decltype(symbol)>>::value, \
                  #symbol);
PARE_BLAS_FUNCTIONS(SAME_CALL)
} // namespace exported

#define SAME(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs), #ours)
SAME(PARE_BLAS_SUCCESS, CUBLAS_STATUS_SUCCESS);
SAME(PARE_BLAS_NOT_INITIALIZED, CUBLAS_STATUS_NOT_INITIALIZED);
SAME(PARE_BLAS_ALLOC_FAILED, CUBLAS_STATUS_ALLOC_FAILED);
SAME(PARE_BLAS_INVALID_VALUE, CUBLAS_STATUS_INVALID_VALUE);
SAME(PARE_BLAS_EXECUTION_FAILED, CUBLAS_STATUS_EXECUTION_FAILED);
SAME(PARE_BLAS_INTERNAL_ERROR, CUBLAS_STATUS_INTERNAL_ERROR);
SAME(PARE_BLAS_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(PARE_BLAS_F32, CUDA_R_32F);
SAME(PARE_BLAS_F64, CUDA_R_64F);
SAME(PARE_BLAS_F16, CUDA_R_16F);
SAME(PARE_BLAS_S8, CUDA_R_8I);
SAME(PARE_BLAS_S32, CUDA_R_32I);
SAME(PARE_BLAS_BF16, CUDA_R_16BF);
SAME(PARE_BLAS_E4M3, CUDA_R_8F_E4M3);
SAME(PARE_BLAS_COMPUTE_F16, CUBLAS_COMPUTE_16F);
SAME(PARE_BLAS_COMPUTE_F32, CUBLAS_COMPUTE_32F);
SAME(PARE_BLAS_COMPUTE_F32_PEDANTIC, CUBLAS_COMPUTE_32F_PEDANTIC);
SAME(PARE_BLAS_COMPUTE_TF32, CUBLAS_COMPUTE_32F_FAST_TF32);
SAME(PARE_BLAS_COMPUTE_S32, CUBLAS_COMPUTE_32I);
SAME(PARE_BLAS_VERSION_MAJOR, MAJOR_VERSION);
SAME(PARE_BLAS_VERSION_MAJOR + 1, MINOR_VERSION);
SAME(PARE_BLAS_VERSION_MAJOR + 2, PATCH_LEVEL);
SAME(PARE_BLAS_N, CUBLAS_OP_N);
SAME(PARE_BLAS_T, CUBLAS_OP_T);
SAME(PARE_BLAS_MATH_DEFAULT, CUBLAS_DEFAULT_MATH);
SAME(PARE_BLAS_MATH_TF32, CUBLAS_TF32_TENSOR_OP_MATH);
SAME(PARE_BLAS_POINTERS_HOST, CUBLAS_POINTER_MODE_HOST);
SAME(PARE_BLAS_POINTERS_DEVICE, CUBLAS_POINTER_MODE_DEVICE);
SAME(PARE_BLAS_ALGO_DEFAULT, CUBLAS_GEMM_DEFAULT);
SAME(PARE_LT_DESC_POINTER_MODE, CUBLASLT_MATMUL_DESC_POINTER_MODE);
SAME(PARE_LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(PARE_LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(PARE_LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(PARE_LT_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(PARE_LT_DESC_BIAS_TYPE, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
SAME(PARE_LT_POINTERS_HOST, CUBLASLT_POINTER_MODE_HOST);
SAME(PARE_LT_POINTERS_DEVICE, CUBLASLT_POINTER_MODE_DEVICE);
SAME(PARE_LT_POINTERS_ALPHA_VECTOR_BETA_HOST, CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST);
SAME(PARE_LT_EPILOGUE_NONE, CUBLASLT_EPILOGUE_DEFAULT);
SAME(PARE_LT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU);
SAME(PARE_LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(PARE_LT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS);
SAME(PARE_LT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU);
SAME(PARE_LT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS);
SAME(PARE_LT_LAYOUT_ORDER, CUBLASLT_MATRIX_LAYOUT_ORDER);
SAME(PARE_LT_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(PARE_LT_LAYOUT_BATCH_STRIDE, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(PARE_LT_ORDER_COLUMN, CUBLASLT_ORDER_COL);
SAME(PARE_LT_ORDER_ROW, CUBLASLT_ORDER_ROW);
SAME(PARE_LT_PREFERENCE_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(PARE_LT_PREFERENCE_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(PARE_LT_PREFERENCE_ALIGNMENT_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(PARE_LT_PREFERENCE_ALIGNMENT_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(PARE_LT_PREFERENCE_ALIGNMENT_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);

static_assert(sizeof(pare_lt_algo) == sizeof(cublasLtMatmulAlgo_t), "");
static_assert(sizeof(pare_lt_result) == sizeof(cublasLtMatmulHeuristicResult_t), "");
#define SAME_PLACE(ours, theirs)                                                                   \
    static_assert(offsetof(pare_lt_result, ours) ==                                                \
                      offsetof(cublasLtMatmulHeuristicResult_t, theirs),                           \
                  #ours)
SAME_PLACE(algo, algo);
SAME_PLACE(workspace, workspaceSize);
SAME_PLACE(status, state);
SAME_PLACE(waves, wavesCount);
SAME_PLACE(reserved, reserved);

#define COUNT(library, name, symbol, parameters) +1

} // namespace

int main()
{
    int functions = 0 PARE_BLAS_FUNCTIONS(COUNT);
    printf("%d functions of cuBLAS and cuBLASLt are declared as version %d declares them\n",
           functions, CUBLAS_VERSION);
    return functions == 23 ? 0 : 1;
}
