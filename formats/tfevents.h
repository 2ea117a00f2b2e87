/* SPDX-License-Identifier: Apache-2.0 */
/* Event files of TensorBoard, written while something runs. A file is a row of records: length,
   CRC-32C of the length, an event in protobuf's form, CRC-32C of the event. Each record is appended
   by one write, so that a process that is killed leaves whole ones. */
#ifndef PARE_FORMATS_TFEVENTS_H
#define PARE_FORMATS_TFEVENTS_H

#include "runtime/base/ctx.h"

typedef struct pare_tfevents pare_tfevents;

typedef struct pare_tfevents_scalar {
    const char *tag;
    double value; /* the file holds it as f32 */
} pare_tfevents_scalar;

/* Makes folder/events.out.tfevents.SECONDS.HOST.PID.0 with an event that tells TensorBoard to
   forget what earlier files of the folder have from this step on. TensorBoard reads files in the
   order of their names: SECONDS since 1970 are more than those of every file that is there.
   PARE_IO: it cannot be made or written; nothing is left. */
PARE_NODISCARD pare_status pare_tfevents_open(pare_ctx *ctx, pare_tfevents **out,
                                              const char *folder, int64_t step);
void pare_tfevents_close(pare_tfevents *events); /* NULL is allowed */

const char *pare_tfevents_path(const pare_tfevents *events);

/* Appends one record. PARE_IO: it cannot be written, and the file ends with the record before it;
   add no more then. */
PARE_NODISCARD pare_status pare_tfevents_add_scalars(pare_tfevents *events, int64_t step,
                                                     const pare_tfevents_scalar *scalars,
                                                     int count);
/* The same of a histogram of values, each times scale: 30 equal bins from the smallest to the
   largest, one where these are equal. NaN and infinities count for nothing. The file holds the tag
   as runtime/base/text.h escapes it. */
PARE_NODISCARD pare_status pare_tfevents_add_histogram(pare_tfevents *events, int64_t step,
                                                       const char *tag, const float *values,
                                                       int64_t count, double scale);

/* CRC-32C (Castagnoli) as RFC 3720, appendix B.4, has it: 0xe3069283 of "123456789". */
uint32_t pare_crc32c(const void *data, size_t bytes);

#endif
