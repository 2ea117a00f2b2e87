/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/token.h"

#include "formats/file.h"

#include <string.h>

pare_status pare_token_read(pare_arena *arena, const char **out, const char *path)
{
    static const char blanks[] = " \t\r\n";
    pare_map map;
    *out = NULL;
    if (!path) return PARE_OK;
    PARE_TRY(pare_map_open(arena->ctx, &map, path));
    const char *text = pare_arena_strndup(arena, (const char *)map.data, map.size);
    const bool is_text = text && strlen(text) == map.size;
    pare_map_close(&map);
    if (!text) return PARE_MEMORY;
    text += strspn(text, blanks);
    const size_t n = strcspn(text, blanks);
    if (!is_text || !n || text[n + strspn(text + n, blanks)])
        return PARE_FAIL(arena->ctx, INPUT, "%s: expected one word, the token", path);
    *out = pare_arena_strndup(arena, text, n);
    return *out ? PARE_OK : PARE_MEMORY;
}
