/* SPDX-License-Identifier: Apache-2.0 */
/* Det (22) by elimination with partial pivoting, in double (Golub and Van Loan, Matrix
   Computations, 3.4). */
#include "runtime/cpu/ref.h"

#include <math.h>

static pare_status det_prepare(pare_prep *p)
{
    const int64_t n = p->in[0].dim[p->in[0].rank - 1];
    p->scratch = (size_t)(n * n) * sizeof(double);
    return PARE_OK;
}

/* a: (n, n) row-major, overwritten. */
static double determinant(double *a, int64_t n)
{
    double product = 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[pivot * n + k])) pivot = i;
        for (int64_t j = k; pivot != k && j < n; j++) {
            const double swap = a[k * n + j];
            a[k * n + j] = a[pivot * n + j];
            a[pivot * n + j] = swap;
        }
        if (pivot != k) product = -product;
        product *= a[k * n + k];
        if (a[k * n + k] == 0) return a[k * n + k];
        for (int64_t i = k + 1; i < n; i++) {
            const double f = a[i * n + k] / a[k * n + k];
            for (int64_t j = k; j < n; j++) a[i * n + j] -= f * a[k * n + j];
        }
    }
    return product;
}

static pare_status det_run(const pare_call *c)
{
    const pare_view *x = &c->in[0];
    const int64_t n = x->dim[x->rank - 1], count = pare_view_count(&c->out[0]);
    for (int64_t i = 0; i < count; i++) {
        double *a = c->scratch;
        for (int64_t k = 0; k < n * n; k++) a[k] = pare_ref_get(x, i * n * n + k);
        pare_ref_set(&c->out[0], i, determinant(a, n));
    }
    return PARE_OK;
}

static const pare_kernel ref_det = {.name = "ref_det",
                                    .can = pare_ref_can_floats,
                                    .prepare = det_prepare,
                                    .run = det_run,
                                    .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_det[] = {&ref_det, NULL};
