/* SPDX-License-Identifier: Apache-2.0 */
/* Stored rows of a few samples that many readers come back to (internal to formats/): what held
   them is inflated once, however its samples are spread over the chunks. */
#ifndef PARE_FORMATS_DATA_HELD_H
#define PARE_FORMATS_DATA_HELD_H

#include "formats/data/source.h"

/* The sample's stored row of source i (its row_bytes, for as long as it is held); NULL: not held,
   or not read yet. Any thread may ask. */
const uint8_t *pare_held_row(const pare_data *data, int i, int64_t sample);
/* Keeps a copy of a row that was read, where the sample is held. */
void pare_held_keep(const pare_data *data, int i, int64_t sample, const uint8_t *row);

#endif
