/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows: for reports. After a failed allocation calls do nothing and the context says
 * why. */
#ifndef PARE_TOOLS_TEXT_H
#define PARE_TOOLS_TEXT_H

#include "runtime/base/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_text {
    pare_ctx *ctx;
    char *data; /* NUL-terminated once something was added; freed with pare_free */
    size_t size, capacity;
    bool failed;
} pare_text;

void pare_text_add(pare_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* As HTML text or attribute: & < > " ' are escaped. */
void pare_text_add_escaped(pare_text *text, const char *plain);

#ifdef __cplusplus
}
#endif
#endif
