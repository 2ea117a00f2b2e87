/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as text (RFC 4648, section 4), with padding. */
#ifndef PARE_TOOLS_SERVE_BASE64_H
#define PARE_TOOLS_SERVE_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Characters of so many bytes, without the zero behind them. */
size_t pare_base64_length(size_t bytes);
/* Writes them and a zero. */
void pare_base64_put(char *text, const void *data, size_t bytes);
/* Reads a text of exactly so many bytes; false: it is another. */
bool pare_base64_read(void *data, size_t bytes, const char *text);
#endif
