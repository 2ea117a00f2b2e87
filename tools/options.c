/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/options.h"

#include "tools/table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OPTIONS pare_common
const pare_option pare_common_options[] = {
    PARE_OPT_OUTPUT("json", "FILE", json, "write the command's facts as JSON"),
    PARE_OPT_OUTPUT("recipe", "FILE.yaml", recipe,
                    "write all options with their defaults, for pare replay"),
    PARE_OPT_SHORT('q', FLAG, "quiet", NULL, quiet,
                   "no progress and no notes, only results and errors"),
    PARE_OPT_SHORT('v', FLAG, "verbose", NULL, verbose, "say more about what is done and why"),
    PARE_OPT_TEXT("device", "auto|cpu|cuda[:N]", device, "where to compute (auto)"),
    PARE_OPT_BYTES("memory-limit", "SIZE", memory_limit, 1e6, 1e15,
                   "GPU memory to use at most: 2GB, 512MiB (all of it)"),
    PARE_OPT_INT("threads", "N", threads, 1, 4096, "threads to use (all cores)"),
    PARE_OPT_SHORT('h', FLAG, "help", NULL, help, "show this text"),
    {NULL, 0, PARE_OPTION_FLAG, NULL, 0, 0, 0, NULL},
};

/* --- nearest names --- */

/* Edit distance with transpositions of neighbours (Damerau 1964, optimal string alignment); words
   longer than the table count as far away. */
static int distance(const char *a, const char *b)
{
    enum { MOST = 40 };
    int d[MOST + 1][MOST + 1];
    size_t n = strlen(a), m = strlen(b);
    if (n > MOST || m > MOST) return MOST;
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            if (!i || !j) {
                d[i][j] = (int)(i + j);
                continue;
            }
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[n][m];
}

const char *pare_nearest(const char *word, const char *const *candidates, int count)
{
    const char *best = NULL;
    int least = 1 + (int)strlen(word) / 3;
    for (int i = 0; i < count; i++) {
        size_t n = strlen(word);
        int d = distance(word, candidates[i]);
        if (n >= 3 && !strncmp(word, candidates[i], n)) d = 1; /* the beginning of a name */
        if (d <= least && (!best || d < least)) {
            least = d;
            best = candidates[i];
        }
    }
    return best;
}

/* --- finding --- */

pare_status pare_command_find(pare_ctx *ctx, const pare_command **out, char *const *words,
                              int count, int *used)
{
    const char *names[64], *near;
    char two[256];
    int n = 0;
    snprintf(two, sizeof two, "%s%s%s", words[0], count > 1 ? " " : "", count > 1 ? words[1] : "");
    for (const pare_command *const *c = pare_commands; *c && n < 64; c++) {
        bool pair = strchr((*c)->name, ' ') != NULL;
        names[n++] = (*c)->name;
        if (strcmp((*c)->name, pair ? two : words[0]) != 0) continue;
        *used = pair ? 2 : 1;
        *out = *c;
        return PARE_OK;
    }
    near = pare_nearest(two, names, n);
    if (!near) near = pare_nearest(words[0], names, n);
    return PARE_FAIL(ctx, USAGE, "no command '%s'%s%s%s; 'pare --help' lists them", words[0],
                     near ? ", did you mean '" : "", near ? near : "", near ? "'" : "");
}

/* Former names of options; they are still accepted. */
static const struct {
    const char *old, *name;
} renamed[] = {{"warmUp", "warmup"}};

static bool is_named(const char *option, const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (strlen(renamed[i].old) == n && !strncmp(renamed[i].old, name, n))
            return !strcmp(option, renamed[i].name);
    return strlen(option) == n && !strncmp(option, name, n);
}

static const pare_option *find_in(const pare_option *table, const char *name, size_t n, char letter)
{
    for (; table && table->name; table++)
        if (letter ? table->letter == letter : is_named(table->name, name, n)) return table;
    return NULL;
}

static pare_status unknown(pare_ctx *ctx, const pare_command *command, const char *word)
{
    const char *names[96], *near;
    int n = 0;
    for (const pare_option *o = command->options; o && o->name && n < 80; o++) names[n++] = o->name;
    for (const pare_option *o = pare_common_options; o->name; o++) names[n++] = o->name;
    char bare[64];
    snprintf(bare, sizeof bare, "%.*s", (int)strcspn(word + strspn(word, "-"), "="),
             word + strspn(word, "-"));
    near = pare_nearest(bare, names, n);
    return PARE_FAIL(ctx, USAGE, "%s: no option '%s'%s%s; 'pare %s --help' lists them",
                     command->name, word, near ? ", did you mean --" : "", near ? near : "",
                     command->name);
}

/* --- values --- */

static pare_status parse_choice(pare_ctx *ctx, const char *what, const pare_option *o,
                                const char *text, int *out)
{
    const char *at = o->value;
    size_t n = strlen(text);
    for (int i = 0;; i++) {
        size_t len = strcspn(at, "|");
        if (len == n && !strncmp(at, text, n)) {
            *out = i;
            return PARE_OK;
        }
        if (!at[len]) break;
        at += len + 1;
    }
    return PARE_FAIL(ctx, USAGE, "%s: expected one of %s", what, o->value);
}

static pare_status parse_number(pare_ctx *ctx, const char *what, const pare_option *o,
                                const char *text, void *field)
{
    char *end;
    bool whole = o->kind == PARE_OPTION_INT;
    errno = 0;
    long long i = whole ? strtoll(text, &end, 10) : 0;
    double value = whole ? (double)i : strtod(text, &end);
    if (errno || end == text || *end || !(value >= o->low && value <= o->high))
        return PARE_FAIL(ctx, USAGE, "%s: expected %s from %.16g to %.16g", what,
                         whole ? "a whole number" : "a number", o->low, o->high);
    if (whole)
        *(int64_t *)field = i;
    else
        *(double *)field = value;
    return PARE_OK;
}

/* Decimal and binary units, in any case; a bare number is refused, for it could be either of bytes
   and of MB. */
static const struct {
    const char *name;
    double bytes;
} units[] = {{"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
             {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
enum { UNITS = sizeof units / sizeof *units };

double pare_bytes_parse(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    for (int i = 0; end != text && i < UNITS; i++)
        if (!strcasecmp(end, units[i].name)) return value * units[i].bytes;
    return NAN;
}

/* One always is exact: a number of KiB has a finite binary fraction, which 17 digits give back. */
const char *pare_bytes_exact(int64_t bytes, char *text, size_t size)
{
    enum { DIGITS = 17 };
    char one[32];
    *text = 0;
    for (int i = 0; i < UNITS; i++) {
        for (int digits = 1; digits <= DIGITS; digits++) {
            snprintf(one, sizeof one, "%.*g%s", digits, (double)bytes / units[i].bytes,
                     units[i].name);
            if (strchr(one, 'e') || pare_bytes_parse(one) != (double)bytes) continue;
            if (!*text || strlen(one) < strlen(text)) snprintf(text, size, "%s", one);
            break;
        }
    }
    return text;
}

static pare_status parse_bytes(pare_ctx *ctx, const char *what, const pare_option *o,
                               const char *text, int64_t *out)
{
    double bytes = pare_bytes_parse(text);
    if (!(bytes >= o->low && bytes <= o->high)) {
        char low[32], high[32];
        return PARE_FAIL(
            ctx, USAGE, "%s: expected a size from %s to %s with its unit: 512MB, 1.5GB, 2GiB", what,
            pare_bytes_text(o->low, low, sizeof low), pare_bytes_text(o->high, high, sizeof high));
    }
    *out = (int64_t)bytes;
    return PARE_OK;
}

/* A list is as long as the next power of two. */
static pare_status append(pare_arena *arena, pare_list *list, const char *text)
{
    const size_t n = (size_t)list->count;
    if (!(n & (n - 1))) {
        const char **more = pare_arena_alloc(arena, n ? 2 * n : 1, sizeof *more);
        if (!more) return PARE_MEMORY;
        if (n) memcpy(more, list->item, n * sizeof *more);
        list->item = more;
    }
    list->item[list->count++] = text;
    return PARE_OK;
}

pare_status pare_option_set(pare_arena *arena, const char *what, const pare_option *o,
                            void *options, const char *text)
{
    void *field = (char *)options + o->offset;
    switch (o->kind) {
    case PARE_OPTION_FLAG: *(bool *)field = true; return PARE_OK;
    case PARE_OPTION_INT:
    case PARE_OPTION_REAL: return parse_number(arena->ctx, what, o, text, field);
    case PARE_OPTION_BYTES: return parse_bytes(arena->ctx, what, o, text, field);
    case PARE_OPTION_CHOICE: return parse_choice(arena->ctx, what, o, text, field);
    case PARE_OPTION_LIST: return append(arena, field, text);
    case PARE_OPTION_TEXT:
    case PARE_OPTION_FILE:
    case PARE_OPTION_OUTPUT:
    case PARE_OPTION_FOLDER: *(const char **)field = text; return PARE_OK;
    }
    return PARE_OK;
}

/* --- words --- */

const pare_option *pare_option_find(const pare_command *command, const char *word,
                                    const char **value)
{
    const pare_option *o;
    const bool whole = word[1] == '-';
    const char *name = whole ? word + 2 : NULL;
    const size_t n = whole ? strcspn(name, "=") : 0;
    *value = whole ? name[n] ? name + n + 1 : NULL : word[2] ? word + 2 : NULL;
    o = find_in(command->options, name, n, whole ? 0 : word[1]);
    return o ? o : find_in(pare_common_options, name, n, whole ? 0 : word[1]);
}

/* A word that begins with "--" is an option, but in a list one that no row has is a value: of words
   for another program. */
static bool is_value(const pare_command *command, const pare_option *o, const char *word)
{
    if (strncmp(word, "--", 2) != 0) return true;
    const size_t n = strcspn(word + 2, "=");
    return o->kind == PARE_OPTION_LIST && n > 0 && !find_in(command->options, word + 2, n, 0) &&
           !find_in(pare_common_options, word + 2, n, 0);
}

/* One option with its value, which is in the same word or is the next one; *i moves along. */
static pare_status take(pare_arena *arena, const pare_command *command, void *options,
                        char *const *words, int count, int *i)
{
    const char *word = words[*i], *value;
    const pare_option *o = pare_option_find(command, word, &value);
    if (!o) return unknown(arena->ctx, command, word);
    if (o->kind == PARE_OPTION_FLAG && value)
        return PARE_FAIL(arena->ctx, USAGE, "%s: --%s takes no value", command->name, o->name);
    if (o->kind != PARE_OPTION_FLAG && !value) {
        if (*i + 1 >= count || !is_value(command, o, words[*i + 1]))
            return PARE_FAIL(arena->ctx, USAGE, "%s: --%s needs a value: --%s %s", command->name,
                             o->name, o->name, o->value);
        value = words[++*i];
    }
    if (value && !*value)
        return PARE_FAIL(arena->ctx, USAGE, "%s: --%s was given nothing, expected --%s %s",
                         command->name, o->name, o->name, o->value);
    PARE_TRY(append(arena, &((pare_common *)options)->given, o->name));
    const char *what =
        value ? pare_arena_printf(arena, "%s: --%s %s", command->name, o->name, value) : "";
    return what ? pare_option_set(arena, what, o, options, value) : PARE_MEMORY;
}

static pare_status check_arguments(pare_ctx *ctx, const pare_command *command,
                                   const pare_list *list)
{
    for (int i = 0; i < list->count; i++)
        if (!*list->item[i])
            return PARE_FAIL(ctx, USAGE, "%s: argument %d is empty; usage: pare %s %s",
                             command->name, i + 1, command->name, command->arguments);
    if (list->count >= command->min && (command->max < 0 || list->count <= command->max))
        return PARE_OK;
    if (list->count > command->max && command->max >= 0)
        return PARE_FAIL(ctx, USAGE, "%s: '%s' is one argument too many; usage: pare %s %s",
                         command->name, list->item[command->max], command->name,
                         command->arguments);
    return PARE_FAIL(ctx, USAGE, "%s: an argument is missing; usage: pare %s %s", command->name,
                     command->name, command->arguments);
}

pare_status pare_options_parse(pare_arena *arena, const pare_command *command, void *options,
                               pare_list *arguments, char *const *words, int count)
{
    bool only_arguments = false;
    if (command->defaults)
        memcpy(options, command->defaults, command->size);
    else
        memset(options, 0, command->size);
    *arguments = (pare_list){0};
    for (int i = 0; i < count; i++) {
        if (!only_arguments && !strcmp(words[i], "--"))
            only_arguments = true;
        else if (!only_arguments && words[i][0] == '-' && words[i][1])
            PARE_TRY(take(arena, command, options, words, count, &i));
        else
            PARE_TRY(append(arena, arguments, words[i]));
    }
    if (((pare_common *)options)->help) return PARE_OK;
    return check_arguments(arena->ctx, command, arguments);
}
