/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a loss: terms between commas. */
#include "distill/distill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static pare_status refuse(const pare_arena *arena, const char *text, const char *why)
{
    return PARE_FAIL(arena->ctx, USAGE,
                     "--loss %s: %s; expected terms of kl:T, feature:NAME, mse, cosine, ce between "
                     "commas, each with *WEIGHT after it or without",
                     text, why);
}

static bool parse_number(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && isfinite(*out) && *out > 0;
}

/* "NAME" or "NAME=OTHER" */
static pare_status parse_feature(pare_arena *arena, char *names, const char *text,
                                 pare_distill_term *out)
{
    char *other = strchr(names, '=');
    if (other) *other++ = 0;
    out->student = names;
    out->teacher = other ? other : names;
    if (!*out->student || !*out->teacher) return refuse(arena, text, "a tensor's name is missing");
    return PARE_OK;
}

/* The word of a term, already without its weight. */
static pare_status parse_word(pare_arena *arena, char *word, const char *text,
                              pare_distill_term *out)
{
    static const struct {
        const char *word;
        pare_term_kind kind;
    } plain[] = {{"mse", PARE_TERM_MSE},
                 {"cosine", PARE_TERM_COSINE},
                 {"ce", PARE_TERM_CE},
                 {"kl", PARE_TERM_KL}};
    out->temperature = 2;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (!strcmp(word, plain[i].word)) {
            out->kind = plain[i].kind;
            return PARE_OK;
        }
    if (!strncmp(word, "feature:", 8)) {
        out->kind = PARE_TERM_FEATURE;
        return parse_feature(arena, word + 8, text, out);
    }
    out->kind = PARE_TERM_KL;
    if (strncmp(word, "kl:", 3)) return refuse(arena, text, "there is no such term");
    return parse_number(word + 3, &out->temperature)
               ? PARE_OK
               : refuse(arena, text, "kl's temperature is no number above 0");
}

static pare_status parse_term(pare_arena *arena, char *word, const char *text,
                              pare_distill_term *out)
{
    char *star = strrchr(word, '*');
    *out = (pare_distill_term){.weight = 1};
    if (star) {
        *star = 0;
        if (!parse_number(star + 1, &out->weight))
            return refuse(arena, text, "a term's weight is no number above 0");
    }
    return parse_word(arena, word, text, out);
}

pare_status pare_distill_parse_loss(pare_arena *arena, const char *text, pare_distill_loss *out)
{
    char *word = pare_arena_strdup(arena, text);
    int count = 1;
    for (const char *c = text; *c; c++) count += *c == ',';
    *out = (pare_distill_loss){0};
    pare_distill_term *term = pare_arena_alloc(arena, (size_t)count, sizeof *term);
    if (!word || !term) return PARE_MEMORY;
    for (int i = 0; i < count; i++) {
        char *comma = strchr(word, ',');
        if (comma) *comma = 0;
        PARE_TRY(parse_term(arena, word, text, &term[i]));
        if (comma) word = comma + 1;
    }
    *out = (pare_distill_loss){term, count};
    return PARE_OK;
}
