/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/pictures/preprocess.h"

#include "tools/serve/infer_job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PIXELS = 50000000 };

/* --- the text --- */

typedef struct parser {
    pare_arena *arena;
    const char *what, *text;
    pare_preprocess_config *out;
} parser;

static pare_status fail(const parser *p, const char *clause, const char *expected)
{
    return PARE_FAIL(p->arena->ctx, INPUT, "%s: '%s': '%s': expected %s", p->what, p->text, clause,
                     expected);
}

/* Numbers with blanks between them, as many as there are: one or three. */
static pare_status parse_channels(const parser *p, const char *clause, const char *at, float *out)
{
    int count = 0;
    while (*at && count < 3) {
        char *end;
        out[count] = strtof(at, &end);
        if (end == at || (*end && *end != ' ') || !isfinite(out[count])) break;
        at = end + strspn(end, " ");
        count++;
    }
    if (*at || (count != 1 && count != 3)) return fail(p, clause, "one number or three");
    if (count == 1) out[1] = out[2] = out[0];
    p->out->is_scaled = true;
    return PARE_OK;
}

static pare_status parse_std(const parser *p, const char *clause, const char *at)
{
    PARE_TRY(parse_channels(p, clause, at, p->out->std));
    for (int c = 0; c < 3; c++)
        if (!(p->out->std[c] > 0)) return fail(p, clause, "numbers above 0");
    return PARE_OK;
}

static pare_status parse_count(const parser *p, const char *clause, const char *at, int64_t most,
                               int64_t *out)
{
    char *end;
    *out = strtoll(at, &end, 10);
    if (end != at && !*end && *out >= 1 && *out <= most) return PARE_OK;
    return fail(p, clause, "a whole number from 1");
}

static pare_status parse_layout(const parser *p, const char *clause, const char *at)
{
    p->out->layout = at;
    if (!strcmp(at, "nchw") || !strcmp(at, "nhwc")) return PARE_OK;
    return fail(p, clause, "nchw or nhwc");
}

/* A word and what follows it, without blanks around either. */
static pare_status parse_clause(const parser *p, char *clause)
{
    int64_t number;
    pare_preprocess_config *o = p->out;
    const size_t n = strcspn(clause, " ");
    const char *at = clause + n + strspn(clause + n, " ");
    const char *whole = pare_arena_strdup(p->arena, clause);
    if (!whole) return PARE_MEMORY;
    clause[n] = 0;
    if (!strcmp(clause, "mean")) return parse_channels(p, whole, at, o->mean);
    if (!strcmp(clause, "std")) return parse_std(p, whole, at);
    if (!strcmp(clause, "layout")) return parse_layout(p, whole, at);
    if (!strcmp(clause, "pixels"))
        return parse_count(p, whole, at, PARE_PICTURE_MOST_PIXELS, &o->picture.pixels);
    if (!strcmp(clause, "input") && *at) {
        o->input = at;
        return PARE_OK;
    }
    const bool is_crop = !strcmp(clause, "crop");
    if (!is_crop && strcmp(clause, "resize") != 0)
        return fail(p, whole, "resize, crop, mean, std, layout, pixels or input, and its value");
    PARE_TRY(parse_count(p, whole, at, PARE_PICTURE_MOST_SIDE, &number));
    *(is_crop ? &o->picture.crop : &o->picture.resize) = (int)number;
    return PARE_OK;
}

pare_status pare_preprocess_parse(pare_arena *arena, pare_preprocess_config *out, const char *what,
                                  const char *text)
{
    const parser p = {arena, what, text, out};
    *out = (pare_preprocess_config){
        .text = pare_arena_strdup(arena, text),
        .std = {1, 1, 1},
    };
    pare_picture_options_init(&out->picture);
    out->picture.pixels = MOST_PIXELS;
    char *at = pare_arena_strdup(arena, text);
    if (!at || !out->text) return PARE_MEMORY;
    for (char *rest; at; at = rest) {
        rest = strchr(at, ',');
        if (rest) *rest++ = 0;
        at += strspn(at, " \t\n");
        for (size_t n = strlen(at); n && strchr(" \t\n", at[n - 1]); n--) at[n - 1] = 0;
        PARE_TRY(parse_clause(&p, at));
    }
    if (out->picture.crop <= out->picture.resize) return PARE_OK;
    return PARE_FAIL(arena->ctx, INPUT, "%s: '%s': crop %d is larger than resize %d", what, text,
                     out->picture.crop, out->picture.resize);
}

/* --- the input --- */

/* Where the channels are: the axis that has 3, NCHW where both may be; 0: nowhere. */
static int channel_axis(const pare_preprocess_config *c, const pare_shape *shape)
{
    const int first = shape->rank - 3, last = shape->rank - 1;
    const bool is_first = shape->dim[first] == 3 || shape->dim[first] < 0;
    const bool is_last = shape->dim[last] == 3 || shape->dim[last] < 0;
    if (c->layout) return !strcmp(c->layout, "nchw") ? first : last;
    if (is_first && (shape->dim[first] == 3 || shape->dim[last] != 3)) return first;
    return is_last ? last : -1;
}

/* Has the input the form of pictures of this side? *last: their channels come last. */
static bool takes_pictures(const pare_served *s, const pare_port *port, bool *last)
{
    const pare_preprocess_config *c = &s->options.config.preprocess;
    const pare_shape *shape = &port->shape;
    const bool has_type = port->dtype == PARE_f32 || port->dtype == PARE_f16 ||
                          port->dtype == PARE_bf16 || port->dtype == PARE_u8;
    const bool is_whole = shape->rank == 3 && !s->options.config.max_batch;
    if (!has_type || (shape->rank != 4 && !is_whole)) return false;
    const int channels = channel_axis(c, shape);
    *last = channels == shape->rank - 1;
    for (int d = shape->rank - 3; channels >= 0 && d < shape->rank; d++) {
        const int64_t takes = d == channels ? 3 : c->picture.crop;
        if (shape->dim[d] >= 0 && shape->dim[d] != takes) return false;
    }
    return channels >= 0;
}

/* The input that pictures go to. */
static pare_status find_input(pare_served *s, int *out, bool *last)
{
    const pare_preprocess_config *c = &s->options.config.preprocess;
    const int side = c->picture.crop;
    bool is_last;
    *out = -1;
    for (int i = 0; i < s->input_count; i++) {
        if (c->input && strcmp(c->input, s->input[i].name) != 0) continue;
        if (!takes_pictures(s, &s->input[i], &is_last)) continue;
        if (*out >= 0)
            return PARE_FAIL(&s->ctx, INPUT,
                             "%s: preprocess: inputs '%s' and '%s' both have the form of pictures; "
                             "name one, as in 'input %s'",
                             s->options.path, s->input[*out].name, s->input[i].name,
                             s->input[i].name);
        *out = i;
        *last = is_last;
    }
    if (*out >= 0) return PARE_OK;
    return PARE_FAIL(&s->ctx, INPUT,
                     "%s: preprocess: %s%s%s takes pictures of 3 x %d x %d, which 'crop' says, or "
                     "%d x %d x 3, as floats or uint8",
                     s->options.path, c->input ? "input '" : "no input", c->input ? c->input : "",
                     c->input ? "' is not there, or not one that" : "", side, side, side, side);
}

static void fill_elements(pare_preprocess *p, const pare_preprocess_config *c)
{
    float table[256];
    for (int channel = 0; channel < 3; channel++) {
        pare_picture_table(table, c->mean[channel], c->std[channel]);
        for (int v = 0; v < 256; v++)
            if (p->dtype == PARE_u8)
                p->element[channel][v][0] = (uint8_t)v;
            else if (p->dtype == PARE_f32)
                memcpy(p->element[channel][v], &table[v], sizeof table[v]);
            else
                pare_type(p->dtype)->from_f32_ref(p->element[channel][v], table[v]);
    }
}

pare_status pare_preprocess_bind(pare_served *s)
{
    const pare_preprocess_config *c = &s->options.config.preprocess;
    const bool has_samples = s->options.config.max_batch > 0;
    int input;
    bool last = false;
    if (!c->text) return PARE_OK;
    PARE_TRY(find_input(s, &input, &last));
    pare_port *port = &s->input[input];
    if (port->dtype == PARE_u8 && c->is_scaled)
        return PARE_FAIL(&s->ctx, INPUT,
                         "%s: preprocess: input '%s' takes uint8, which mean and std do not change",
                         s->options.path, port->name);
    pare_preprocess *p = s->preprocess = pare_arena_alloc(&s->arena, 1, sizeof *p);
    if (!p) return PARE_MEMORY;
    *p = (pare_preprocess){.text = pare_arena_strdup(&s->arena, c->text),
                           .input = input,
                           .dtype = port->dtype,
                           .rank = port->shape.rank,
                           .picture = c->picture,
                           .size = (size_t)pare_type(port->dtype)->bits / 8};
    if (!p->text) return PARE_MEMORY;
    p->picture.last = last;
    fill_elements(p, c);
    port->dtype = PARE_string;
    if (port->shape.rank == 3) port->shape.dim[0] = 1;
    port->shape.rank = has_samples ? 2 : 1;
    if (has_samples) port->shape.dim[1] = 1;
    port->shape.name[1] = NULL;
    return PARE_OK;
}

/* --- a request --- */

bool pare_preprocess_takes(const pare_served *s, int input, pare_dtype dtype, int rank,
                           const int64_t *dim)
{
    const int64_t count = s->input[input].shape.dim[0];
    return s->preprocess && s->preprocess->input == input && dtype == PARE_u8 && rank == 4 &&
           dim[3] == 3 && (count < 0 || dim[0] == count);
}

/* What a job's pictures take while they are decoded. */
typedef struct holding {
    pare_exchange *x;
    size_t bytes;
} holding;

static pare_status hold(void *user, size_t bytes)
{
    holding *h = user;
    if (!pare_exchange_hold(h->x, bytes)) return PARE_MEMORY;
    h->bytes += bytes;
    return PARE_OK;
}

/* Pixels to elements, channel by channel or pixel by pixel. */
static void convert(const pare_preprocess *p, const uint8_t *pixel, uint8_t *out)
{
    const size_t area = (size_t)p->picture.crop * (size_t)p->picture.crop;
    for (size_t i = 0; i < 3 * area; i++, out += p->size) {
        const size_t channel = p->picture.last ? i % 3 : i / area;
        memcpy(out, p->element[channel][pixel[i]], p->size);
    }
}

static pare_status decode(const pare_infer_job *job, int64_t i, uint8_t *pixel)
{
    const pare_preprocess *p = job->served->preprocess;
    const pare_infer_tensor *t = job->input[p->input];
    pare_ctx *ctx = &job->x->ctx;
    char what[512];
    holding h = {.x = job->x};
    pare_picture_options options = p->picture;
    options.hold = hold;
    options.user = &h;
    snprintf(what, sizeof what, "model '%s': input '%s': picture %lld", job->served->name, t->name,
             (long long)i);
    pare_status st;
    if (t->dtype == PARE_string) {
        const pare_bytes *file = (const pare_bytes *)t->data + i;
        st = pare_picture_decode(ctx, pixel, what, file->data, file->size, &options);
    } else {
        const uint8_t *rgb = (const uint8_t *)t->data + t->bytes / (size_t)t->dim[0] * (size_t)i;
        st = pare_picture_fit(ctx, pixel, what, rgb, t->dim[2], t->dim[1], &options);
    }
    pare_exchange_let_go(job->x, h.bytes);
    return st;
}

static pare_status decode_all(pare_infer_job *job, int64_t count, uint8_t *pixel)
{
    const pare_preprocess *p = job->served->preprocess;
    const size_t elements = 3 * (size_t)p->picture.crop * (size_t)p->picture.crop;
    for (int64_t i = 0; i < count; i++) {
        PARE_TRY(decode(job, i, pixel));
        convert(p, pixel, (uint8_t *)job->pixels + (size_t)i * elements * p->size);
    }
    return PARE_OK;
}

/* The tensor of what the model takes. */
static pare_status describe(pare_infer_job *job, int64_t count, size_t bytes)
{
    const pare_preprocess *p = job->served->preprocess;
    const int side = p->picture.crop;
    pare_infer_tensor *t = pare_arena_alloc(&job->x->arena, 1, sizeof *t);
    if (!t) return PARE_MEMORY;
    *t = (pare_infer_tensor){.name = job->input[p->input]->name,
                             .dtype = p->dtype,
                             .rank = p->rank,
                             .data = job->pixels,
                             .bytes = bytes};
    int64_t *dim = t->dim;
    if (p->rank == 4) *dim++ = count;
    dim[0] = p->picture.last ? side : 3;
    dim[1] = side;
    dim[2] = p->picture.last ? 3 : side;
    job->input[p->input] = t;
    return PARE_OK;
}

pare_status pare_preprocess_run(pare_infer_job *job)
{
    const pare_preprocess *p = job->served->preprocess;
    if (!p || job->pixels) return PARE_OK;
    const int64_t count = job->input[p->input]->dim[0];
    const size_t one = 3 * (size_t)p->picture.crop * (size_t)p->picture.crop;
    const size_t bytes = (size_t)count * one * p->size;
    if (!pare_exchange_hold(job->x, bytes + one)) return PARE_MEMORY;
    uint8_t *pixel = pare_alloc(&job->x->ctx, one, 1);
    job->pixels = pixel ? aligned_alloc(PARE_BODY_ALIGN, (bytes + PARE_BODY_ALIGN) /
                                                             PARE_BODY_ALIGN * PARE_BODY_ALIGN)
                        : NULL;
    pare_status st = PARE_OK;
    if (!job->pixels)
        st = PARE_FAIL(&job->x->ctx, MEMORY, "out of memory: %zu bytes for pictures", bytes);
    if (st == PARE_OK) st = decode_all(job, count, pixel);
    if (st == PARE_OK) st = describe(job, count, bytes);
    pare_free(pixel);
    return st;
}
