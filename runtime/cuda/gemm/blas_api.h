/* SPDX-License-Identifier: Apache-2.0 */
/* The part of cuBLAS and cuBLASLt that pare calls. Both are opened at run time, so that neither
   their headers are needed to build nor the libraries to start; the table below holds their
   functions. Types are those of the C calling convention: handles and descriptors are pointers,
   enumerations int, statuses int (0: success). A test compares all of it with NVIDIA's headers
   where these are. */
#ifndef PARE_RUNTIME_CUDA_GEMM_BLAS_API_H
#define PARE_RUNTIME_CUDA_GEMM_BLAS_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PARE_BLAS_SUCCESS = 0,
    PARE_BLAS_NOT_INITIALIZED = 1,
    PARE_BLAS_ALLOC_FAILED = 3,
    PARE_BLAS_INVALID_VALUE = 7,
    PARE_BLAS_EXECUTION_FAILED = 13,
    PARE_BLAS_INTERNAL_ERROR = 14,
    PARE_BLAS_NOT_SUPPORTED = 15
};

enum { /* cudaDataType */
       PARE_BLAS_F32 = 0,
       PARE_BLAS_F64 = 1,
       PARE_BLAS_F16 = 2,
       PARE_BLAS_S8 = 3,
       PARE_BLAS_S32 = 10,
       PARE_BLAS_BF16 = 14,
       PARE_BLAS_E4M3 = 28
};

enum { /* cublasComputeType_t */
       PARE_BLAS_COMPUTE_F16 = 64,
       PARE_BLAS_COMPUTE_F32 = 68,
       PARE_BLAS_COMPUTE_F32_PEDANTIC = 69,
       PARE_BLAS_COMPUTE_TF32 = 77,
       PARE_BLAS_COMPUTE_S32 = 72
};

enum { PARE_BLAS_VERSION_MAJOR = 0 };                                /* libraryPropertyType */
enum { PARE_BLAS_N = 0, PARE_BLAS_T = 1 };                           /* cublasOperation_t */
enum { PARE_BLAS_MATH_DEFAULT = 0, PARE_BLAS_MATH_TF32 = 3 };        /* cublasMath_t */
enum { PARE_BLAS_POINTERS_HOST = 0, PARE_BLAS_POINTERS_DEVICE = 1 }; /* cublasPointerMode_t */
enum { PARE_BLAS_ALGO_DEFAULT = -1 };                                /* cublasGemmAlgo_t */

enum { /* cublasLtMatmulDescAttributes_t */
       PARE_LT_DESC_POINTER_MODE = 2,
       PARE_LT_DESC_TRANSA = 3,
       PARE_LT_DESC_TRANSB = 4,
       PARE_LT_DESC_EPILOGUE = 7,
       PARE_LT_DESC_BIAS_POINTER = 8,
       PARE_LT_DESC_BIAS_TYPE = 26
};
enum { /* cublasLtPointerMode_t */
       PARE_LT_POINTERS_HOST = 0,
       PARE_LT_POINTERS_DEVICE = 1,
       PARE_LT_POINTERS_ALPHA_VECTOR_BETA_HOST = 4
};
enum { /* cublasLtEpilogue_t */
       PARE_LT_EPILOGUE_NONE = 1,
       PARE_LT_EPILOGUE_RELU = 2,
       PARE_LT_EPILOGUE_BIAS = 4,
       PARE_LT_EPILOGUE_RELU_BIAS = 6,
       PARE_LT_EPILOGUE_GELU = 32,
       PARE_LT_EPILOGUE_GELU_BIAS = 36
};
enum { /* cublasLtMatrixLayoutAttribute_t */
       PARE_LT_LAYOUT_ORDER = 1,
       PARE_LT_LAYOUT_BATCH_COUNT = 5,
       PARE_LT_LAYOUT_BATCH_STRIDE = 6
};
enum { PARE_LT_ORDER_COLUMN = 0, PARE_LT_ORDER_ROW = 1 }; /* cublasLtOrder_t */
enum { /* cublasLtMatmulPreferenceAttributes_t; alignments: uint32_t, bytes */
       PARE_LT_PREFERENCE_WORKSPACE = 1,
       PARE_LT_PREFERENCE_ALIGNMENT_A = 5,
       PARE_LT_PREFERENCE_ALIGNMENT_B = 6,
       PARE_LT_PREFERENCE_ALIGNMENT_C = 7,
       PARE_LT_PREFERENCE_ALIGNMENT_D = 8
};

/* cublasLtMatmulAlgo_t, cublasLtMatmulHeuristicResult_t */
typedef struct pare_lt_algo {
    uint64_t data[8];
} pare_lt_algo;
typedef struct pare_lt_result {
    pare_lt_algo algo;
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
} pare_lt_result;

/* X(library, name, symbol, parameters): every function returns a status; library is lt or blas. */
#define PARE_BLAS_FUNCTIONS(X)                                                                     \
    X(lt, lt_create, cublasLtCreate, (void **handle))                                              \
    X(lt, lt_destroy, cublasLtDestroy, (void *handle))                                             \
    X(lt, lt_property, cublasLtGetProperty, (int which, int *value))                               \
    X(lt, lt_desc_create, cublasLtMatmulDescCreate, (void **desc, int compute, int scale))         \
    X(lt, lt_desc_destroy, cublasLtMatmulDescDestroy, (void *desc))                                \
    X(lt, lt_desc_set, cublasLtMatmulDescSetAttribute,                                             \
      (void *desc, int attribute, const void *value, size_t size))                                 \
    X(lt, lt_layout_create, cublasLtMatrixLayoutCreate,                                            \
      (void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld))                         \
    X(lt, lt_layout_destroy, cublasLtMatrixLayoutDestroy, (void *layout))                          \
    X(lt, lt_layout_set, cublasLtMatrixLayoutSetAttribute,                                         \
      (void *layout, int attribute, const void *value, size_t size))                               \
    X(lt, lt_preference_create, cublasLtMatmulPreferenceCreate, (void **preference))               \
    X(lt, lt_preference_destroy, cublasLtMatmulPreferenceDestroy, (void *preference))              \
    X(lt, lt_preference_set, cublasLtMatmulPreferenceSetAttribute,                                 \
      (void *preference, int attribute, const void *value, size_t size))                           \
    X(lt, lt_heuristic, cublasLtMatmulAlgoGetHeuristic,                                            \
      (void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int asked,  \
       pare_lt_result *results, int *count))                                                       \
    X(lt, lt_matmul, cublasLtMatmul,                                                               \
      (void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,  \
       void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,   \
       const pare_lt_algo *algo, void *workspace, size_t workspace_size, void *stream))            \
    X(blas, blas_create, cublasCreate_v2, (void **handle))                                         \
    X(blas, blas_destroy, cublasDestroy_v2, (void *handle))                                        \
    X(blas, blas_property, cublasGetProperty, (int which, int *value))                             \
    X(blas, blas_set_stream, cublasSetStream_v2, (void *handle, void *stream))                     \
    X(blas, blas_set_workspace, cublasSetWorkspace_v2, (void *handle, void *p, size_t size))       \
    X(blas, blas_set_math, cublasSetMathMode, (void *handle, int mode))                            \
    X(blas, blas_set_pointers, cublasSetPointerMode_v2, (void *handle, int mode))                  \
    X(blas, blas_gemm, cublasGemmEx,                                                               \
      (void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha,             \
       const void *a, int a_type, int lda, const void *b, int b_type, int ldb, const void *beta,   \
       void *c, int c_type, int ldc, int compute, int algo))                                       \
    X(blas, blas_gemm_batched, cublasGemmStridedBatchedEx,                                         \
      (void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha,             \
       const void *a, int a_type, int lda, long long a_stride, const void *b, int b_type, int ldb, \
       long long b_stride, const void *beta, void *c, int c_type, int ldc, long long c_stride,     \
       int count, int compute, int algo))

/* One pointer a function; a library that was not found leaves its own NULL. */
typedef struct pare_blas_api {
#define PARE_BLAS_FIELD(library, name, symbol, parameters) int(*name) parameters;
    PARE_BLAS_FUNCTIONS(PARE_BLAS_FIELD)
#undef PARE_BLAS_FIELD
} pare_blas_api;

#ifdef __cplusplus
}
#endif
#endif
