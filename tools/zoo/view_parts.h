/* SPDX-License-Identifier: Apache-2.0 */
/* What the text and the page of a zoo's summary share. */
#ifndef PARE_TOOLS_ZOO_VIEW_PARTS_H
#define PARE_TOOLS_ZOO_VIEW_PARTS_H

#include <jansson.h>

/* The text of a key, "" without. */
const char *pare_zoo_text_of(const json_t *json, const char *key);
/* The rows that are not done, class by class; to be freed. */
json_t *pare_zoo_failures(const json_t *summary);
/* The heading over how many are good. */
const char *pare_zoo_met(const json_t *summary);
/* "1.5 s", "12 min", "" of NaN; returns text. */
const char *pare_zoo_seconds(double seconds, char *text, size_t size);
#endif
