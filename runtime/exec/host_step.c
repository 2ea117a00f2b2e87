/* SPDX-License-Identifier: Apache-2.0 */
/* A device's step that the CPU runs: inputs come down, the CPU's first kernel that can runs on
   them, outputs go up. It serves what has no kernel on the device, so that every model runs there:
   convolutions over three axes or with weights that are no constants, functions of one f64 tensor,
   the indices of MaxPool. NonZero's length is known for constants only, of which folding leaves
   none: a kernel of the device would never run. */
#include "runtime/exec/plan.h"

typedef struct host_state {
    const pare_kernel *kernel; /* the CPU's */
    void *state;
    size_t scratch;
} host_state;

typedef struct host_bound {
    const pare_kernel *kernel;
    pare_call call; /* the CPU kernel's, on host memory */
} host_bound;

static const pare_kernel *cpu_kernel(const pare_prep *prep)
{
    const pare_op *op = pare_op_of(prep->node);
    for (const pare_kernel *const *k = op ? op->cpu : NULL; k && *k; k++)
        if (!(*k)->can || (*k)->can(prep)) return *k;
    return NULL;
}

static pare_prep cpu_prep(const pare_prep *prep)
{
    pare_prep cpu = *prep;
    cpu.device = NULL;
    cpu.dying = 0;
    return cpu;
}

static bool host_can(const pare_prep *prep)
{
    pare_prep cpu = cpu_prep(prep);
    return cpu_kernel(&cpu) != NULL;
}

static pare_status host_prepare(pare_prep *prep)
{
    host_state *s = pare_arena_alloc(prep->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    pare_prep cpu = cpu_prep(prep);
    s->kernel = cpu_kernel(&cpu);
    PARE_TRY(pare_kernel_prepare(s->kernel, &cpu));
    s->state = cpu.state;
    s->scratch = cpu.scratch;
    prep->state = s;
    prep->packed = ~0u; /* constants are read where they are: on the host */
    return PARE_OK;
}

static void host_release(void *state)
{
    host_state *s = state;
    if (s && s->kernel->release) s->kernel->release(s->state);
}

/* Where the bytes of input i are on the host before the step runs: only a constant's do. */
static void *constant_of(const pare_node *node, int i)
{
    const pare_value *v = node->in[i];
    return v && v->data ? (void *)v->data->data : NULL;
}

static pare_status view_host(const pare_view *view, void *constant, pare_arena *arena,
                             pare_view *out)
{
    *out = *view;
    out->data = constant;
    if (constant || view->dtype == PARE_NOTYPE) return PARE_OK;
    out->data = pare_arena_alloc(arena, pare_view_bytes(view) + 64, 1);
    return out->data ? PARE_OK : PARE_MEMORY;
}

static pare_status host_bind(pare_call *call, pare_arena *arena)
{
    const host_state *s = call->state;
    host_bound *b = pare_arena_alloc(arena, 1, sizeof *b);
    pare_view *in = pare_arena_alloc(arena, (size_t)call->in_count + 1, sizeof *in);
    pare_view *out = pare_arena_alloc(arena, (size_t)call->out_count + 1, sizeof *out);
    void *scratch = pare_arena_alloc(arena, s->scratch + 64, 1);
    if (!b || !in || !out || !scratch) return PARE_MEMORY;
    for (int i = 0; i < call->in_count; i++)
        PARE_TRY(view_host(&call->in[i], constant_of(call->node, i), arena, &in[i]));
    for (int i = 0; i < call->out_count; i++)
        PARE_TRY(view_host(&call->out[i], NULL, arena, &out[i]));
    b->kernel = s->kernel;
    b->call = *call;
    b->call.in = in;
    b->call.out = out;
    b->call.stream = NULL;
    b->call.state = s->state;
    b->call.scratch = scratch;
    if (s->kernel->bind) PARE_TRY(s->kernel->bind(&b->call, arena));
    call->bound = b;
    return PARE_OK;
}

static void host_unbind(void *bound)
{
    host_bound *b = bound;
    if (b && b->kernel->unbind) b->kernel->unbind(b->call.bound);
}

static pare_status host_run(const pare_call *call)
{
    host_bound *b = call->bound;
    const pare_backend *device = call->stream->device->backend;
    for (int i = 0; i < call->in_count; i++)
        if (call->in[i].dtype != PARE_NOTYPE && !constant_of(call->node, i))
            PARE_TRY(device->download(call->ctx, call->stream, b->call.in[i].data, call->in[i].data,
                                      pare_view_bytes(&call->in[i])));
    PARE_TRY(device->sync(call->ctx, call->stream));
    PARE_TRY(b->kernel->run(&b->call));
    for (int i = 0; i < call->out_count; i++)
        if (call->out[i].dtype != PARE_NOTYPE)
            PARE_TRY(device->upload(call->ctx, call->stream, call->out[i].data, b->call.out[i].data,
                                    pare_view_bytes(&call->out[i])));
    return PARE_OK;
}

const pare_kernel pare_host_step = {.name = "host",
                                    .can = host_can,
                                    .prepare = host_prepare,
                                    .bind = host_bind,
                                    .run = host_run,
                                    .unbind = host_unbind,
                                    .release = host_release,
                                    .flags = PARE_KERNEL_HOST};
