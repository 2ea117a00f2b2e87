/* SPDX-License-Identifier: Apache-2.0 */
/* Losses that make their own gradient, as second output: CrossEntropy, and
     SoftmaxKL (student, teacher) -> loss, dstudent     attribute temperature T
   of logits [..., classes]: the mean over rows of T^2 KL(p || q), p = softmax(teacher / T),
   q = softmax(student / T) (Hinton, Vinyals, Dean 2015, "Distilling the knowledge in a neural
   network"; T^2 keeps gradients as large as at T = 1). By student it is T (q - p) / rows. */
#include "runtime/ops/grad.h"

#include <string.h>

pare_status pare_infer_softmax_kl(pare_node *node)
{
    pare_value *student, *teacher;
    const pare_shape one = {.rank = 0};
    char a[256], b[256];
    PARE_TRY(pare_infer_need(node, 0, &student));
    PARE_TRY(pare_infer_need(node, 1, &teacher));
    PARE_TRY(pare_infer_same_type(node, 0, 1));
    float temperature = pare_node_float(node, "temperature", 1);
    if (!(temperature > 0))
        return PARE_FAIL_NODE(node, INPUT, "temperature is %g, it must be above 0",
                              (double)temperature);
    if (student->shape.rank == 0)
        return PARE_FAIL_NODE(node, INPUT, "its logits are one number, expected [rows, classes]");
    if (pare_shape_known(&student->shape) && pare_shape_known(&teacher->shape) &&
        !pare_shape_equal(&student->shape, &teacher->shape))
        return PARE_FAIL_NODE(node, INPUT, "logits '%s' are %s, those of the teacher ('%s') %s",
                              student->name, pare_shape_text(&student->shape, a, sizeof a),
                              teacher->name, pare_shape_text(&teacher->shape, b, sizeof b));
    pare_infer_out(node, 0, student->dtype, &one);
    pare_infer_out(node, 1, student->dtype, &student->shape);
    return PARE_OK;
}

/* NegativeLogLikelihoodLoss (13, 22) and SoftmaxCrossEntropyLoss (13): of x (N, C, d...) and labels
   (N, d...) one number, or with reduction none one for each label; of the latter the logarithms of
   the probabilities, too. */
pare_status pare_infer_nll_loss(pare_node *node)
{
    pare_value *x, *labels;
    const pare_shape one = {.rank = 0};
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &labels));
    PARE_TRY(pare_infer_same_type(node, 0, 2));
    const char *reduction = pare_node_string(node, "reduction", "mean");
    const bool all = !strcmp(reduction, "none");
    if (!all && strcmp(reduction, "mean") != 0 && strcmp(reduction, "sum") != 0)
        return PARE_FAIL_NODE(node, INPUT, "reduction is '%s', expected none, mean or sum",
                              reduction);
    const pare_shape *s = &x->shape, *l = &labels->shape;
    const pare_value *weight = pare_node_in(node, 2);
    if (s->rank >= 0 && l->rank >= 0) {
        bool fits = s->rank >= 2 && l->rank == s->rank - 1;
        for (int i = 0; fits && i < l->rank; i++) {
            const int64_t a = s->dim[i ? i + 1 : 0], b = l->dim[i];
            fits = a < 0 || b < 0 || a == b;
        }
        if (!fits)
            return PARE_FAIL_NODE(node, INPUT,
                                  "labels '%s' do not fit '%s': expected its shape without axis 1",
                                  labels->name, x->name);
    }
    if (weight && weight->shape.rank >= 0 && s->rank >= 2 &&
        (weight->shape.rank != 1 ||
         (weight->shape.dim[0] >= 0 && s->dim[1] >= 0 && weight->shape.dim[0] != s->dim[1])))
        return PARE_FAIL_NODE(node, INPUT, "weight '%s' must have one number for each class",
                              weight->name);
    pare_infer_out(node, 0, x->dtype, all ? l : &one);
    pare_infer_out(node, 1, x->dtype, s);
    return PARE_OK;
}

/* dlogits = dloss * second output; a node made without one is computed again with it. */
pare_status pare_grad_own(pare_grad *g, const pare_node *node)
{
    pare_value *dloss = pare_grad_of(g, node->out[0]);
    pare_value *own = node->out_count > 1 ? node->out[1] : NULL;
    if (own && pare_grad_of(g, own))
        return PARE_FAIL_NODE(node, UNSUPPORTED, "its gradient has no gradient rule");
    if (node->in_count > 1 && pare_grad_wants(g, node->in[1]))
        return PARE_FAIL_NODE(node, UNSUPPORTED, "it has a gradient rule for its first input only");
    if (!dloss) return g->status;
    if (!own) {
        pare_node *again = pare_grad_begin(g, node->op_type, node->in, node->in_count, 2);
        pare_grad_attrs(g, again, node);
        pare_grad_end(g, again);
        if (g->status != PARE_OK) return g->status;
        own = again->out[1];
    }
    pare_grad_give(g, node->in[0], PARE_EMIT(g, "Mul", own, dloss));
    return g->status;
}

/* CrossEntropy (logits, labels) -> loss, dlogits: the mean over rows of -log
   softmax(logits)[label]; labels absent: each row's own largest logit. */
pare_status pare_infer_cross_entropy(pare_node *node)
{
    pare_value *x;
    const pare_shape one = {.rank = 0};
    PARE_TRY(pare_infer_need(node, 0, &x));
    if (x->shape.rank >= 0 && x->shape.rank != 2)
        return PARE_FAIL_NODE(node, INPUT, "its logits have rank %d, expected [rows, classes]",
                              x->shape.rank);
    pare_infer_out(node, 0, x->dtype, &one);
    pare_infer_out(node, 1, x->dtype, &x->shape);
    return PARE_OK;
}
