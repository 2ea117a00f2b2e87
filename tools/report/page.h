/* SPDX-License-Identifier: Apache-2.0 */
/* What pages of reports share: head and style, light and dark, and cells of their tables. Facts are
   those of facts.schema.json. */
#ifndef PARE_TOOLS_REPORT_PAGE_H
#define PARE_TOOLS_REPORT_PAGE_H

#include "tools/text.h"

#include <jansson.h>

void pare_page_begin(pare_text *t, const char *title);
/* Closes the page, writes it and frees the text. */
PARE_NODISCARD pare_status pare_page_end(pare_text *t, const char *path);
/* Writes and frees the text as it is. */
PARE_NODISCARD pare_status pare_page_write(pare_text *t, const char *path);

/* Is a picture asked for, by the file's name? */
bool pare_page_is_picture(const char *path);
/* Begins a picture that is alone, to be ended by "</svg>" and pare_page_write. */
void pare_page_picture(pare_text *t, int width, int height);

/* Two digits with a sign, a true minus, and no sign on what rounds to zero. */
void pare_page_signed(pare_text *t, double value);
/* Table cells: empty where the number is not there. path: of pare_report_number. */
void pare_page_cell(pare_text *t, const json_t *model, const char *path, const char *kind,
                    int digits, const char *unit);
void pare_page_latency(pare_text *t, const json_t *model);
void pare_page_drop(pare_text *t, const json_t *model);
void pare_page_factor(pare_text *t, double factor); /* "2.1x" */
/* "bad" or "good", or "" where a drop's interval holds zero. */
const char *pare_page_verdict(const json_t *model);
/* "1,000 samples of test.h5" from facts of samples. */
void pare_page_samples(pare_text *t, const json_t *data);
/* ", on NVIDIA H200 ..." from facts of a device; nothing for the CPU. */
void pare_page_device(pare_text *t, const json_t *device);
/* "2 threads", "the GPU" into text; returns text. */
const char *pare_page_place(const json_t *device, double threads, char *text, size_t size);
#endif
