/* SPDX-License-Identifier: Apache-2.0 */
/* The part of cuDNN that pare calls: its graph ("backend") interface, of version 9. The library is
   opened at run time, so that neither its headers are needed to build nor the library to start.
   Types are those of the C calling convention: handles and descriptors are pointers, enumerations
   int. A test compares all of it with NVIDIA's headers where these are. */
#ifndef PARE_RUNTIME_CUDA_CONV_DNN_API_H
#define PARE_RUNTIME_CUDA_CONV_DNN_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cudnnStatus_t. A status divided by PARE_DNN_CATEGORY and multiplied by it is one of those that
   are multiples of it. */
enum {
    PARE_DNN_SUCCESS = 0,
    PARE_DNN_CATEGORY = 1000,
    PARE_DNN_NOT_INITIALIZED = 1001,
    PARE_DNN_BAD_PARAM = 2000,
    PARE_DNN_NOT_FINALIZED = 2004,
    PARE_DNN_NOT_SUPPORTED = 3000,
    PARE_DNN_INTERNAL_ERROR = 4000,
    PARE_DNN_COMPILATION_FAILED = 4001,
    PARE_DNN_HOST_ALLOCATION_FAILED = 4003,
    PARE_DNN_DEVICE_ALLOCATION_FAILED = 4004,
    PARE_DNN_EXECUTION_FAILED = 5000
};

enum { /* cudnnDataType_t */
       PARE_DNN_F32 = 0,
       PARE_DNN_F16 = 2,
       PARE_DNN_S8 = 3,
       PARE_DNN_S32 = 4,
       PARE_DNN_BF16 = 9
};

enum { PARE_DNN_CROSS_CORRELATION = 1 };                              /* cudnnConvolutionMode_t */
enum { PARE_DNN_PROPAGATE_NAN = 1 };                                  /* cudnnNanPropagation_t */
enum { PARE_DNN_POINTWISE_ADD = 0, PARE_DNN_POINTWISE_RELU = 100 };   /* cudnnPointwiseMode_t */
enum { PARE_DNN_HEURISTICS_FALLBACK = 2, PARE_DNN_HEURISTICS_A = 3 }; /* cudnnBackendHeurMode_t */

enum { /* cudnnBackendNumericalNote_t */
       PARE_DNN_NOTE_TENSOR_CORE = 0,
       PARE_DNN_NOTE_DOWN_CONVERT_INPUTS = 1,
       PARE_DNN_NOTE_REDUCED_PRECISION = 2,
       PARE_DNN_NOTE_FFT = 3,
       PARE_DNN_NOTE_NONDETERMINISTIC = 4,
       PARE_DNN_NOTE_WINOGRAD = 5,
       PARE_DNN_NOTE_WINOGRAD_4X4 = 6,
       PARE_DNN_NOTE_WINOGRAD_6X6 = 7,
       PARE_DNN_NOTE_WINOGRAD_13X13 = 8
};

enum { /* cudnnBackendBehaviorNote_t */
       PARE_DNN_BEHAVIOR_RUNTIME_COMPILATION = 0,
       PARE_DNN_BEHAVIOR_FILTER_REORDER = 1,
       PARE_DNN_BEHAVIOR_BIAS_REORDER = 2
};

enum { /* cudnnBackendDescriptorType_t */
       PARE_DNN_POINTWISE = 0,
       PARE_DNN_CONVOLUTION = 1,
       PARE_DNN_ENGINE = 2,
       PARE_DNN_ENGINE_CONFIG = 3,
       PARE_DNN_HEURISTICS = 4,
       PARE_DNN_PLAN = 5,
       PARE_DNN_OP_FORWARD = 10,
       PARE_DNN_OP_BACKWARD_FILTER = 11,
       PARE_DNN_OP_BACKWARD_DATA = 12,
       PARE_DNN_OP_POINTWISE = 13,
       PARE_DNN_GRAPH = 15,
       PARE_DNN_VARIANT_PACK = 16,
       PARE_DNN_TENSOR = 17,
       PARE_DNN_DEVICE_PROPERTIES = 38 /* 9.8 */
};

enum { /* cudnnBackendAttributeType_t */
       PARE_DNN_T_HANDLE = 0,
       PARE_DNN_T_DATA_TYPE = 1,
       PARE_DNN_T_BOOL = 2,
       PARE_DNN_T_INT64 = 3,
       PARE_DNN_T_FLOAT = 4,
       PARE_DNN_T_DOUBLE = 5,
       PARE_DNN_T_POINTER = 6,
       PARE_DNN_T_CONVOLUTION_MODE = 7,
       PARE_DNN_T_HEURISTICS_MODE = 8,
       PARE_DNN_T_NAN_PROPAGATION = 10,
       PARE_DNN_T_NUMERICAL_NOTE = 11,
       PARE_DNN_T_POINTWISE_MODE = 14,
       PARE_DNN_T_DESCRIPTOR = 15,
       PARE_DNN_T_BEHAVIOR_NOTE = 19,
       PARE_DNN_T_CHAR = 24
};

enum { /* cudnnBackendAttributeName_t; of convolutions: FORWARD + W and so on */
       PARE_DNN_POINTWISE_MODE = 0,
       PARE_DNN_POINTWISE_MATH = 1,
       PARE_DNN_POINTWISE_NAN = 2,
       PARE_DNN_POINTWISE_LOWER = 3,
       PARE_DNN_POINTWISE_UPPER = 4,
       PARE_DNN_CONVOLUTION_COMPUTE = 100,
       PARE_DNN_CONVOLUTION_MODE = 101,
       PARE_DNN_CONVOLUTION_DILATIONS = 102,
       PARE_DNN_CONVOLUTION_STRIDES = 103,
       PARE_DNN_CONVOLUTION_POST_PADDINGS = 104,
       PARE_DNN_CONVOLUTION_PRE_PADDINGS = 105,
       PARE_DNN_CONVOLUTION_AXES = 106,
       PARE_DNN_HEURISTICS_MODE = 200,
       PARE_DNN_HEURISTICS_GRAPH = 201,
       PARE_DNN_HEURISTICS_RESULTS = 202,
       PARE_DNN_HEURISTICS_DEVICE = 204, /* 9.8 */
       PARE_DNN_CONFIG_ENGINE = 300,
       PARE_DNN_PLAN_HANDLE = 400,
       PARE_DNN_PLAN_CONFIG = 401,
       PARE_DNN_PLAN_WORKSPACE = 402,
       PARE_DNN_PLAN_DEVICE = 407, /* 9.8 */
       PARE_DNN_FORWARD = 700,
       PARE_DNN_BACKWARD_DATA = 706,
       PARE_DNN_BACKWARD_FILTER = 712,
       PARE_DNN_OP_POINTWISE_OF = 750,
       PARE_DNN_OP_POINTWISE_X = 751,
       PARE_DNN_OP_POINTWISE_B = 752,
       PARE_DNN_OP_POINTWISE_Y = 753,
       PARE_DNN_GRAPH_HANDLE = 800,
       PARE_DNN_GRAPH_OPS = 801,
       PARE_DNN_TENSOR_ALIGNMENT = 900,
       PARE_DNN_TENSOR_TYPE = 901,
       PARE_DNN_TENSOR_DIMS = 902,
       PARE_DNN_TENSOR_STRIDES = 903,
       PARE_DNN_TENSOR_ID = 906,
       PARE_DNN_TENSOR_VIRTUAL = 907,
       PARE_DNN_PACK_IDS = 1000,
       PARE_DNN_PACK_POINTERS = 1001,
       PARE_DNN_PACK_WORKSPACE = 1003,
       PARE_DNN_ENGINE_NUMERICAL_NOTE = 1303,
       PARE_DNN_ENGINE_BEHAVIOR_NOTE = 1305,
       PARE_DNN_DEVICE_JSON = 2702 /* 9.8 */
};

/* Behind PARE_DNN_FORWARD, BACKWARD_DATA and BACKWARD_FILTER. What is third last and last is named
   as in the forward convolution: W or its gradient, X or its gradient, Y's gradient. */
enum {
    PARE_DNN_OF_ALPHA = 0,
    PARE_DNN_OF_BETA = 1,
    PARE_DNN_OF_CONVOLUTION = 2,
    PARE_DNN_OF_W = 3,
    PARE_DNN_OF_X = 4,
    PARE_DNN_OF_Y = 5
};

enum { PARE_DNN_VERSION_MAJOR = 0 }; /* libraryPropertyType */
enum { PARE_DNN_MOST_NOTES = 32 };   /* of an engine, more than version 9 has */

/* X(returns, name, symbol, parameters): int is a status. */
#define PARE_DNN_FUNCTIONS(X)                                                                      \
    X(int, property, cudnnGetProperty, (int which, int *value))                                    \
    X(int, create, cudnnCreate, (void **handle))                                                   \
    X(int, destroy, cudnnDestroy, (void *handle))                                                  \
    X(int, set_stream, cudnnSetStream, (void *handle, void *stream))                               \
    X(const char *, text, cudnnGetErrorString, (int status))                                       \
    X(void, last_error, cudnnGetLastErrorString, (char *text, size_t size))                        \
    X(int, make, cudnnBackendCreateDescriptor, (int type, void **descriptor))                      \
    X(int, drop, cudnnBackendDestroyDescriptor, (void *descriptor))                                \
    X(int, set, cudnnBackendSetAttribute,                                                          \
      (void *descriptor, int name, int type, int64_t count, const void *values))                   \
    X(int, get, cudnnBackendGetAttribute,                                                          \
      (void *descriptor, int name, int type, int64_t asked, int64_t *count, void *values))         \
    X(int, finalize, cudnnBackendFinalize, (void *descriptor))                                     \
    X(int, execute, cudnnBackendExecute, (void *handle, void *plan, void *pack))

typedef struct pare_dnn_api {
#define PARE_DNN_FIELD(returns, name, symbol, parameters) returns(*name) parameters;
    PARE_DNN_FUNCTIONS(PARE_DNN_FIELD)
#undef PARE_DNN_FIELD
} pare_dnn_api;

#ifdef __cplusplus
}
#endif
#endif
