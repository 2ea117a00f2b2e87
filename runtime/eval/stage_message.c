/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/eval/stage_message.h"
#include "runtime/base/size.h"

#include <string.h>

enum { ALIGN = 64 };

static size_t aligned(const pare_value *v)
{
    size_t bytes;
    const bool fits = pare_type_bytes(v->dtype, pare_shape_count(&v->shape), &bytes);
    return fits ? pare_align_up(bytes, ALIGN) : 0;
}

size_t pare_stage_bytes_in(const pare_plan *plan)
{
    size_t bytes = 0;
    for (int i = 0; i < pare_plan_input_count(plan); i++)
        bytes += aligned(pare_plan_input(plan, i));
    return bytes;
}

size_t pare_stage_bytes_out(const pare_plan *plan)
{
    size_t bytes = 0;
    for (int i = 0; i < pare_plan_output_count(plan); i++)
        bytes += aligned(pare_plan_output(plan, i));
    return bytes;
}

void pare_stage_read(pare_runner *runner, const char *message)
{
    const pare_plan *plan = pare_runner_plan(runner);
    for (int i = 0; i < pare_plan_input_count(plan); i++) {
        pare_runner_set_input(runner, i, message);
        message += aligned(pare_plan_input(plan, i));
    }
}

void pare_stage_write(const pare_runner *runner, char *message)
{
    const pare_plan *plan = pare_runner_plan(runner);
    for (int i = 0; i < pare_plan_output_count(plan); i++) {
        const pare_view y = pare_runner_output(runner, i);
        const size_t bytes = pare_view_bytes(&y);
        if (bytes) memcpy(message, y.data, bytes);
        message += aligned(pare_plan_output(plan, i));
    }
}
