/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/gpu/direct.h"

const void *pare_direct_source(const pare_infer_job *job, int input, const pare_site *site)
{
    const pare_infer_tensor *t = job->input[input];
    if (t->data || !t->bytes) return NULL;
    return pare_region_there(job->source[input], site->gpu, t->place.offset);
}

void *pare_direct_target(const pare_infer_job *job, int i, const pare_site *site)
{
    return pare_region_there(job->target[i], site->last, job->wanted[i].place.offset);
}

bool pare_direct_is_pinned(const pare_infer_job *job, int input)
{
    const pare_exchange *x = job->x;
    const pare_infer_tensor *t = job->input[input];
    const uintptr_t at = (uintptr_t)t->data, body = (uintptr_t)x->body;
    if (!x->is_pinned || !t->data || t->dtype == PARE_string) return false;
    return at >= body && at - body <= x->bytes && t->bytes <= x->bytes - (at - body);
}

pare_status pare_direct_load(const pare_infer_job *job, int input, const pare_site *site,
                             void *there, void *staging, pare_replica *replica)
{
    const size_t bytes = job->input[input]->bytes;
    pare_stream *stream = pare_runner_stream(replica->runner);
    const void *source = pare_direct_source(job, input, site);
    if (source) return pare_direct_copy(replica->runner, there, source, bytes);
    const bool is_pinned = pare_direct_is_pinned(job, input);
    if (!is_pinned) PARE_TRY(pare_infer_job_rows(job, input, staging, &replica->ctx));
    const void *from = is_pinned ? job->input[input]->data : staging;
    return bytes ? stream->device->backend->upload(&replica->ctx, stream, there, from, bytes)
                 : PARE_OK;
}

pare_status pare_direct_copy(pare_runner *runner, void *to, const void *from, size_t bytes)
{
    pare_stream *stream = pare_runner_stream(runner);
    if (!bytes) return PARE_OK;
    return stream->device->sharing->copy(pare_runner_ctx(runner), stream, to, from, bytes);
}

static pare_status end_stream(pare_replica *replica, pare_stream *stream, pare_status st)
{
    pare_ctx quiet;
    if (!stream) return st;
    if (st == PARE_OK) return stream->device->backend->sync(&replica->ctx, stream);
    pare_ctx_init(&quiet);
    (void)stream->device->backend->sync(&quiet, stream);
    return st;
}

pare_status pare_direct_end(pare_replica *replica, pare_status st)
{
    st = end_stream(replica, pare_runner_stream(replica->runner), st);
    if (replica->last == replica->runner) return st;
    return end_stream(replica, pare_runner_stream(replica->last), st);
}
