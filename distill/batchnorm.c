/* SPDX-License-Identifier: Apache-2.0 */
#include "distill/batchnorm.h"

bool pare_batchnorm_is_statistic(const pare_node *node, int input)
{
    return pare_node_is(node, "BatchNormalization") && (input == 3 || input == 4);
}

static void follow(const pare_weights *w, int place, int64_t channel, double batch, double momentum)
{
    if (place < 0) return;
    float *running = w->value + w->item[place].at + channel;
    *running = (float)((double)*running * momentum + batch * (1 - momentum));
}

void pare_batchnorm_follow(const pare_batchnorm *norm, const pare_weights *weights,
                           const pare_runner *runner)
{
    const double *sums = pare_runner_output(runner, norm->sums).data;
    const pare_type_info *type = pare_type(norm->mean0->dtype);
    if (norm->mean < 0 && norm->variance < 0) return;
    for (int64_t c = 0; c < norm->channels; c++) {
        const char *at = (const char *)norm->mean0->data + c * (type->bits / 8);
        double mean, variance;
        pare_trained_norm_moments(sums, norm->channels, c, (double)type->to_f32(at), &mean,
                                  &variance);
        follow(weights, norm->mean, c, mean, norm->momentum);
        follow(weights, norm->variance, c, variance, norm->momentum);
    }
}
