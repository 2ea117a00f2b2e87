/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/scaling_facts.h"

json_t *pare_scaling_json(const pare_scaling_job *job)
{
    return json_pack("{s:f, s:I, s:I, s:f, s:f, s:I, s:I}", "start_s", job->start, "steps",
                     (json_int_t)job->steps, "parts", (json_int_t)job->parts, "part_s", job->part,
                     "each_s", job->each, "bytes", (json_int_t)job->bytes, "reductions",
                     (json_int_t)job->reductions);
}

bool pare_scaling_of_json(const json_t *facts, pare_scaling_job *out)
{
    json_int_t steps, parts, bytes, reductions;
    *out = (pare_scaling_job){0};
    if (json_unpack((json_t *)facts, "{s:F, s:I, s:I, s:F, s:F, s:I, s:I}", "start_s", &out->start,
                    "steps", &steps, "parts", &parts, "part_s", &out->part, "each_s", &out->each,
                    "bytes", &bytes, "reductions", &reductions))
        return false;
    out->steps = steps;
    out->parts = parts;
    out->bytes = (size_t)bytes;
    out->reductions = reductions;
    const json_int_t most = (json_int_t)1 << 50;
    return steps > 0 && steps <= most && parts > 0 && parts <= most && bytes >= 0 &&
           bytes <= most && reductions >= 0 && reductions <= most && out->start >= 0 &&
           out->part >= 0 && out->each >= 0;
}
