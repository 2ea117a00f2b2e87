/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/argv.h"

#include "tools/zoo/plan.h"

#include <string.h>

static void add(pare_zoo_argv *w, const char *word)
{
    if (w->failed ||
        !pare_arena_grow(w->arena, &w->item, &w->capacity, w->count, sizeof *w->item)) {
        w->failed = true;
        return;
    }
    w->item[w->count++] = word;
}

void pare_zoo_argv_add(pare_zoo_argv *w, const char *first, const char *second)
{
    if (!first) w->failed = true;
    add(w, first);
    if (second) add(w, second);
}

pare_status pare_zoo_argv_end(pare_zoo_argv *w, const char ***out, int *count)
{
    const size_t n = w->count;
    add(w, NULL);
    *out = w->item;
    *count = (int)n;
    return w->failed ? PARE_MEMORY : PARE_OK;
}

/* Room of a word in single quotes: an inner ' becomes '\''. */
static size_t quoted_size(const char *word)
{
    size_t n = strlen(word) + 3;
    for (; *word; word++) n += *word == '\'' ? 3 : 0;
    return n;
}

static char *put_word(char *to, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+./:,=@%";
    if (*word && !word[strspn(word, plain)]) {
        size_t n = strlen(word);
        memcpy(to, word, n);
        return to + n;
    }
    *to++ = '\'';
    for (; *word; word++) {
        if (*word == '\'') {
            memcpy(to, "'\\'", 3);
            to += 3;
        }
        *to++ = *word;
    }
    *to++ = '\'';
    return to;
}

const char *pare_zoo_node_command(pare_arena *arena, const pare_zoo_node *node)
{
    size_t bytes = sizeof "pare";
    for (int i = 0; i < node->word_count; i++) bytes += 1 + quoted_size(node->words[i]);
    char *text = pare_arena_alloc(arena, bytes, 1), *to = text;
    if (!text) return NULL;
    to = put_word(to, "pare");
    for (int i = 0; i < node->word_count; i++) {
        *to++ = ' ';
        to = put_word(to, node->words[i]);
    }
    *to = 0;
    return text;
}
