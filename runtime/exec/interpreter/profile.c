/* SPDX-License-Identifier: Apache-2.0 */
/* What the interpreter ran in the last run, by which kernels, node by node and inside bodies. */
#include "runtime/exec/interpreter/interpreter.h"

static void scope_reset(pare_scope *b)
{
    for (int i = 0; i < b->item_count; i++) {
        pare_item *item = &b->item[i];
        item->seconds = 0;
        item->turns = 0;
        for (int k = 0; k < item->body_count; k++) scope_reset(item->body[k]);
    }
}

void pare_interpreter_reset(pare_interpreter *it) { scope_reset(it->main); }

static void step_of(const pare_item *item, pare_inner_step *out)
{
    const pare_node *n = item->node;
    const pare_value *y = n->out_count ? n->out[0] : NULL;
    const char *path = pare_node_path(n);
    *out = (pare_inner_step){.seconds = item->seconds, .turns = item->turns};
    out->info = (pare_step_info){.node = path ? path : n->name,
                                 .op_type = n->op_type,
                                 .kernel = item->kernel  ? item->kernel->name
                                           : item->turns ? "interpreter"
                                                         : "",
                                 .output = y ? y->name : "",
                                 .dtype = y ? y->dtype : PARE_NOTYPE,
                                 .shape = {.rank = -1}};
    if (y) out->info.shape = y->shape;
}

static int scope_steps(const pare_scope *b, pare_inner_step *out, int most)
{
    int count = 0;
    for (int i = 0; i < b->item_count; i++) {
        const pare_item *item = &b->item[i];
        if (count < most) step_of(item, &out[count]);
        count++;
        for (int k = 0; k < item->body_count; k++) {
            const int rest = count < most ? most - count : 0;
            count += scope_steps(item->body[k], rest ? out + count : NULL, rest);
        }
    }
    return count;
}

int pare_interpreter_steps(const pare_interpreter *it, pare_inner_step *out, int most)
{
    return scope_steps(it->main, out, most);
}
