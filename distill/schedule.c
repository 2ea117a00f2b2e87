/* SPDX-License-Identifier: Apache-2.0 */
/* Warm-up: linear, the first step has 1 / warmup of the rate (Goyal and others 2017). Cosine:
   without restarts (Loshchilov, Hutter 2017). Step: a tenth at 50 % and at 75 % (He and others
   2016, section 4.2). The part after the warm-up is what they count. */
#include "distill/schedule.h"

#include <math.h>

double pare_schedule_rate(const pare_schedule *s, int64_t step)
{
    if (step < s->warmup) return s->rate * (double)(step + 1) / (double)s->warmup;
    int64_t length = s->steps - s->warmup;
    double done = length > 0 ? (double)(step - s->warmup) / (double)length : 1;
    if (done > 1) done = 1;
    switch (s->kind) {
    case PARE_SCHEDULE_COSINE: return s->rate * 0.5 * (1 + cos(acos(-1) * done));
    case PARE_SCHEDULE_STEP: return s->rate * (done < 0.5 ? 1 : done < 0.75 ? 0.1 : 0.01);
    case PARE_SCHEDULE_CONSTANT: break;
    }
    return s->rate;
}
