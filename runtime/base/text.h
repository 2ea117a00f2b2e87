/* SPDX-License-Identifier: Apache-2.0 */
/* Text that came from a file, made printable: valid UTF-8 without control characters. Messages,
   tables, pages and JSON all show it through these functions. What models hold stays as it is. */
#ifndef PARE_RUNTIME_BASE_TEXT_H
#define PARE_RUNTIME_BASE_TEXT_H

#include <stdarg.h>
#include <stddef.h>

/* Writes at most size - 1 bytes and a NUL (size 0: nothing); returns the length of the whole text.
   Invalid bytes, control characters and marks that change the direction of text become \n, \t, \r
   or \xNN for each of their bytes; a backslash stays, so escaping twice changes nothing. Text that
   does not fit ends at a whole character. */
size_t pare_text_escape(char *out, size_t size, const char *bytes, size_t count);

/* vsnprintf with escaped text arguments (%s); the format itself is copied as it is, newlines too.
   A character of the format that equals `mark` becomes a NUL (0: none), one in an argument does
   not. Conversions: d i u x X o c e f g p s, with flags, width, precision and l, ll, z, j, t. */
size_t pare_text_format(char *out, size_t size, char mark, const char *format, va_list args);
#endif
