/* SPDX-License-Identifier: Apache-2.0 */
/* A side that runs in ONNX Runtime, through its C interface: one exported function gives a table of
   functions that only ever grows at its end. No header comes with the Python package's library, so
   the few entries used are named here by their place in the published table, which has been fixed
   since version 1 of that interface. */
#include "runtime/base/ctx.h"
#include "tests/bench/side.h"

#include <dlfcn.h>
#include <stdlib.h>

enum {
    GET_ERROR_MESSAGE = 2,
    CREATE_ENV = 3,
    CREATE_SESSION = 7,
    RUN = 9,
    CREATE_SESSION_OPTIONS = 10,
    SET_LOG_SEVERITY = 22,
    SET_INTRA_OP_THREADS = 24,
    CREATE_TENSOR_WITH_DATA = 49,
    GET_TENSOR_DATA = 51,
    GET_ELEMENT_TYPE = 60,
    GET_ELEMENT_COUNT = 64,
    GET_TENSOR_INFO = 65,
    CREATE_CPU_MEMORY_INFO = 69,
    RELEASE_ENV = 92,
    RELEASE_STATUS = 93,
    RELEASE_MEMORY_INFO = 94,
    RELEASE_SESSION = 95,
    RELEASE_VALUE = 96,
    RELEASE_TENSOR_INFO = 99,
    RELEASE_SESSION_OPTIONS = 100
};

enum { LOG_ERROR = 3, DEVICE_ALLOCATOR = 0, DEFAULT_MEMORY = 0 };

typedef void (*any_fn)(void);
typedef void *(*create_env_fn)(int level, const char *name, void **out);
typedef void *(*make_fn)(void **out);
typedef void *(*set_int_fn)(void *object, int value);
typedef void *(*create_session_fn)(void *env, const char *path, const void *options, void **out);
typedef void *(*memory_info_fn)(int allocator, int memory, void **out);
typedef void *(*create_tensor_fn)(const void *info, void *data, size_t bytes, const int64_t *dims,
                                  size_t rank, int type, void **out);
typedef void *(*run_fn)(void *session, const void *options, const char *const *in_name,
                        const void *const *in, size_t in_count, const char *const *out_name,
                        size_t out_count, void **out);
typedef void *(*get_pointer_fn)(const void *value, void **out);
typedef void *(*get_size_fn)(const void *info, size_t *out);
typedef void *(*get_int_fn)(const void *info, int *out);
typedef const char *(*message_fn)(const void *status);
typedef void (*release_fn)(void *object);

typedef struct api_base {
    const any_fn *(*get_api)(uint32_t version);
    const char *(*version)(void);
} api_base;

typedef struct ort_state {
    void *library;
    const any_fn *api;
    void *env, *options, *session, *memory;
    const char **in_name, **out_name;
    void **in, **out; /* tensors; out are made by the first run and written by the later ones */
} ort_state;

static void release(ort_state *o, int slot, void *object)
{
    if (object) ((release_fn)o->api[slot])(object);
}

/* Turns a status of ONNX Runtime into one of ours. */
static pare_status check(side *s, void *status)
{
    ort_state *o = s->state;
    if (!status) return PARE_OK;
    pare_status st = PARE_FAIL(s->ctx, INPUT, "%s: onnxruntime: %s", s->path,
                               ((message_fn)o->api[GET_ERROR_MESSAGE])(status));
    release(o, RELEASE_STATUS, status);
    return st;
}

static pare_status open_library(side *s, ort_state *o, const char *path)
{
    if (!path) return PARE_FAIL(s->ctx, INPUT, "%s: --ort must name libonnxruntime.so", s->path);
    o->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!o->library) return PARE_FAIL(s->ctx, INPUT, "%s: %s", path, dlerror());
    const api_base *(*get_base)(void);
    *(void **)&get_base = dlsym(o->library, "OrtGetApiBase");
    o->api = get_base ? get_base()->get_api(1) : NULL;
    if (!o->api) return PARE_FAIL(s->ctx, INPUT, "%s: not ONNX Runtime: no OrtGetApiBase", path);
    return PARE_OK;
}

static pare_status open_session(side *s, ort_state *o, int threads)
{
    PARE_TRY(check(s, ((create_env_fn)o->api[CREATE_ENV])(LOG_ERROR, "bench", &o->env)));
    PARE_TRY(check(s, ((make_fn)o->api[CREATE_SESSION_OPTIONS])(&o->options)));
    PARE_TRY(check(s, ((set_int_fn)o->api[SET_LOG_SEVERITY])(o->options, LOG_ERROR)));
    PARE_TRY(check(s, ((set_int_fn)o->api[SET_INTRA_OP_THREADS])(o->options, threads)));
    return check(
        s, ((create_session_fn)o->api[CREATE_SESSION])(o->env, s->path, o->options, &o->session));
}

static pare_status bind_tensors(side *s, ort_state *o)
{
    size_t in_count = (size_t)s->input_count, out_count = (size_t)s->output_count;
    o->in_name = pare_alloc(s->ctx, in_count, sizeof *o->in_name);
    o->out_name = pare_alloc(s->ctx, out_count, sizeof *o->out_name);
    o->in = pare_alloc(s->ctx, in_count, sizeof *o->in);
    o->out = pare_alloc(s->ctx, out_count, sizeof *o->out);
    if (!o->in_name || !o->out_name || !o->in || !o->out) return PARE_MEMORY;
    PARE_TRY(check(s, ((memory_info_fn)o->api[CREATE_CPU_MEMORY_INFO])(
                          DEVICE_ALLOCATOR, DEFAULT_MEMORY, &o->memory)));
    for (int i = 0; i < s->input_count; i++) {
        const side_input *in = &s->input[i];
        o->in_name[i] = in->name;
        PARE_TRY(check(s, ((create_tensor_fn)o->api[CREATE_TENSOR_WITH_DATA])(
                              o->memory, in->data, in->bytes, in->shape.dim, (size_t)in->shape.rank,
                              (int)in->dtype, &o->in[i])));
    }
    for (int i = 0; i < s->output_count; i++) o->out_name[i] = s->model->graph->out.item[i]->name;
    return PARE_OK;
}

static pare_status load(side *s, const side_options *options)
{
    ort_state *o = pare_alloc(s->ctx, 1, sizeof *o);
    if (!o) return PARE_MEMORY;
    s->state = o;
    PARE_TRY(open_library(s, o, options->library));
    PARE_TRY(open_session(s, o, options->threads));
    return bind_tensors(s, o);
}

static pare_status run(side *s)
{
    ort_state *o = s->state;
    return check(s, ((run_fn)o->api[RUN])(o->session, NULL, o->in_name, (const void *const *)o->in,
                                          (size_t)s->input_count, o->out_name,
                                          (size_t)s->output_count, o->out));
}

static const float *output(side *s, int i, int64_t *count)
{
    ort_state *o = s->state;
    void *info = NULL, *data = NULL;
    size_t elements = 0;
    int type = 0;
    if (check(s, ((get_pointer_fn)o->api[GET_TENSOR_INFO])(o->out[i], &info))) return NULL;
    bool known = !check(s, ((get_size_fn)o->api[GET_ELEMENT_COUNT])(info, &elements)) &&
                 !check(s, ((get_int_fn)o->api[GET_ELEMENT_TYPE])(info, &type)) &&
                 !check(s, ((get_pointer_fn)o->api[GET_TENSOR_DATA])(o->out[i], &data));
    release(o, RELEASE_TENSOR_INFO, info);
    *count = (int64_t)elements;
    return known && type == PARE_f32 ? data : NULL;
}

/* The library stays mapped: its worker threads may still be on their way out. */
static void unload(side *s)
{
    ort_state *o = s->state;
    if (o->api) {
        for (int i = 0; o->in && i < s->input_count; i++) release(o, RELEASE_VALUE, o->in[i]);
        for (int i = 0; o->out && i < s->output_count; i++) release(o, RELEASE_VALUE, o->out[i]);
        release(o, RELEASE_MEMORY_INFO, o->memory);
        release(o, RELEASE_SESSION, o->session);
        release(o, RELEASE_SESSION_OPTIONS, o->options);
        release(o, RELEASE_ENV, o->env);
    }
    pare_free(o->in_name);
    pare_free(o->out_name);
    pare_free(o->in);
    pare_free(o->out);
    pare_free(o);
}

const side_calls side_ort_calls = {load, run, output, unload};
