/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/base64.h"

#include <string.h>

static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t pare_base64_length(size_t bytes) { return (bytes + 2) / 3 * 4; }

/* Three bytes are four digits; where bytes are missing, so are as many digits. */
void pare_base64_put(char *text, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    for (size_t at = 0; at < bytes; at += 3) {
        const size_t left = bytes - at < 3 ? bytes - at : 3;
        unsigned group = 0;
        for (size_t i = 0; i < 3; i++) group = group << 8 | (i < left ? from[at + i] : 0u);
        for (unsigned i = 0; i < 4; i++)
            *text++ = i <= left ? digit[group >> (18 - 6 * i) & 63] : '=';
    }
    *text = 0;
}

static int value_of(char c)
{
    const char *at = c ? strchr(digit, c) : NULL;
    return at ? (int)(at - digit) : -1;
}

bool pare_base64_read(void *data, size_t bytes, const char *text)
{
    unsigned char *to = data;
    if (strlen(text) != pare_base64_length(bytes)) return false;
    for (size_t at = 0; at < bytes; at += 3, text += 4) {
        const size_t left = bytes - at < 3 ? bytes - at : 3;
        unsigned group = 0;
        for (size_t i = 0; i < 4; i++) {
            const int value = i <= left ? value_of(text[i]) : text[i] == '=' ? 0 : -1;
            if (value < 0) return false;
            group = group << 6 | (unsigned)value;
        }
        for (size_t i = 0; i < left; i++) to[at + i] = (unsigned char)(group >> (16 - 8 * i));
    }
    return true;
}
