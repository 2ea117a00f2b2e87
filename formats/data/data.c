/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a data set: finds each input's dataset, checks it against the model, reads the labels. */
#include "formats/data/source.h"
#include "runtime/base/size.h"

#include <string.h>

/* --- which dataset --- */

static pare_status only_dataset(pare_ctx *ctx, const pare_h5_file *file, const char *input,
                                int input_count, char **out)
{
    char *joined = NULL, *first = NULL;
    int count = 0;
    PARE_TRY(pare_h5_names(ctx, file, &joined, &first, &count));
    pare_status st = PARE_OK;
    if (count == 1 && input_count == 1) {
        *out = first;
        first = NULL;
    } else {
        st = PARE_FAIL(ctx, INPUT,
                       "%s: no dataset is named like the model's input '%s'; the file has "
                       "%s; choose one with --map %s=/dataset",
                       file->path, input, count ? joined : "none outside of groups but for labels",
                       input);
    }
    pare_free(joined);
    pare_free(first);
    return st;
}

static pare_status find_dataset(pare_ctx *ctx, const pare_h5_file *file,
                                const pare_data_input *input, int input_count, char **out)
{
    const char *wanted = input->dataset ? input->dataset : input->name;
    size_t size = strlen(wanted) + 2;
    char *path = pare_alloc(ctx, size, 1);
    if (!path) return PARE_MEMORY;
    if (wanted[0] != '/') path[0] = '/';
    strcat(path, wanted);
    bool has = false;
    pare_status st = wanted[0] ? pare_h5_has(ctx, file, path, &has) : PARE_OK;
    if (st == PARE_OK && has) {
        *out = path;
        return PARE_OK;
    }
    if (st == PARE_OK && input->dataset)
        st = PARE_FAIL(ctx, INPUT, "%s: dataset '%s' (--map for input '%s') is missing or damaged",
                       file->path, path, input->name);
    pare_free(path);
    return st == PARE_OK ? only_dataset(ctx, file, input->name, input_count, out) : st;
}

/* --- one input --- */

static pare_status hash_meaning(pare_ctx *ctx, pare_data_source *s)
{
    const pare_h5_image *image = &s->set.image;
    size_t name = strlen(s->name) + 1, layout = sizeof image->layout;
    size_t mean = (size_t)image->mean_count * sizeof(float);
    size_t std = (size_t)image->std_count * sizeof(float);
    uint8_t *text = pare_alloc(ctx, name + layout + mean + std + sizeof(int32_t), 1), *at = text;
    if (!text) return PARE_MEMORY;
    int32_t dtype = s->set.dtype;
    memcpy(at, s->name, name);
    memcpy(at += name, image->layout, layout);
    at += layout;
    if (mean) memcpy(at, image->mean, mean);
    if (std) memcpy(at + mean, image->std, std);
    memcpy(at + mean + std, &dtype, sizeof dtype);
    s->meaning = pare_hash_bytes(text, name + layout + mean + std + sizeof dtype);
    pare_free(text);
    return PARE_OK;
}

static pare_status open_source(pare_data *d, const pare_data_input *input, int input_count,
                               pare_data_source *s)
{
    char *path = NULL;
    s->dtype = input->dtype;
    if (!(s->name = pare_strdup(d->ctx, input->name))) return PARE_MEMORY;
    PARE_TRY(find_dataset(d->ctx, &d->file, input, input_count, &path));
    pare_status st = pare_h5_set_open(d->ctx, &s->set, &d->file, path);
    pare_free(path);
    PARE_TRY(st);
    d->serial |= s->set.serial;
    PARE_TRY(pare_data_fit(d->ctx, s, &input->shape));
    if (s->set.dim[0] == 0)
        return PARE_FAIL(d->ctx, INPUT, "%s: dataset '%s': has 0 samples, expected at least one",
                         d->file.path, s->set.name);
    s->shared = s->whole && s->set.dim[0] == 1;
    return hash_meaning(d->ctx, s);
}

/* All have as many samples, but for single inputs that serve every sample. */
static pare_status count_samples(pare_data *d)
{
    for (int i = 1; i < d->source_count; i++)
        if (d->source[d->counted].shared && !d->source[i].shared) d->counted = i;
    const pare_h5_set *by = &d->source[d->counted].set;
    d->count = by->dim[0];
    for (int i = 0; i < d->source_count; i++) {
        const pare_data_source *s = &d->source[i];
        if (!s->shared && s->set.dim[0] != d->count)
            return PARE_FAIL(d->ctx, INPUT,
                             "%s: dataset '%s': has %lld samples, but '%s' has %lld; they "
                             "must be equal",
                             d->file.path, s->set.name, (long long)s->set.dim[0], by->name,
                             (long long)d->count);
    }
    return PARE_OK;
}

/* --- labels --- */

static pare_status decode_labels(pare_data *d, const pare_h5_set *set)
{
    size_t group = (size_t)set->group_rows * set->row_bytes;
    pare_h5_scratch scratch = {0};
    uint8_t *rows = pare_alloc(d->ctx, group, 1);
    pare_status st = rows ? PARE_OK : PARE_MEMORY;
    for (int64_t g = 0; st == PARE_OK && g < set->group_count; g++) {
        int64_t first = g * set->group_rows, n = d->count - first;
        if (n > set->group_rows) n = set->group_rows;
        st = set->serial ? pare_h5_read_rows(d->ctx, set, first, n, rows)
                         : pare_h5_read_group(d->ctx, set, &scratch, g, rows);
        if (st == PARE_OK) pare_data_read_ints(set->dtype, rows, n, d->label + first);
    }
    pare_free(rows);
    pare_h5_scratch_free(&scratch);
    return st;
}

static pare_status check_labels(pare_data *d, const pare_h5_set *set)
{
    bool column = !set->scalar && (set->rank == 1 || (set->rank == 2 && set->dim[1] == 1));
    if (!column)
        return PARE_FAIL(d->ctx, INPUT,
                         "%s: dataset '/labels': has %d axes, expected one: a class "
                         "number per sample",
                         d->file.path, set->scalar ? 0 : set->rank);
    if (pare_type_is_float(set->dtype) || set->dtype == PARE_u64)
        return PARE_FAIL(d->ctx, INPUT, "%s: dataset '/labels': has type %s, expected int64",
                         d->file.path, pare_type(set->dtype)->name);
    if (set->dim[0] != d->count)
        return PARE_FAIL(d->ctx, INPUT,
                         "%s: dataset '/labels': has %lld labels for %lld samples of "
                         "'%s'",
                         d->file.path, (long long)set->dim[0], (long long)d->count,
                         d->source[d->counted].set.name);
    d->label = pare_alloc(d->ctx, (size_t)d->count, sizeof *d->label);
    if (!d->label) return PARE_MEMORY;
    PARE_TRY(decode_labels(d, set));
    for (int64_t i = 0; i < d->count; i++)
        if (d->label[i] < 0)
            return PARE_FAIL(d->ctx, INPUT,
                             "%s: dataset '/labels': sample %lld has label %lld, "
                             "expected a class number from 0",
                             d->file.path, (long long)i, (long long)d->label[i]);
    return PARE_OK;
}

static pare_status open_labels(pare_data *d)
{
    pare_h5_set set;
    bool has;
    PARE_TRY(pare_h5_has(d->ctx, &d->file, "/labels", &has));
    if (!has) return PARE_OK;
    for (int i = 0; i < d->source_count; i++)
        if (!strcmp(d->source[i].set.name, "/labels")) return PARE_OK; /* it is an input's data */
    PARE_TRY(pare_h5_set_open(d->ctx, &set, &d->file, "/labels"));
    pare_status st = check_labels(d, &set);
    pare_h5_set_close(&set);
    return st;
}

/* --- the whole --- */

static pare_status open_all(pare_data *d, const char *path, const pare_data_input *inputs,
                            int count, bool apart)
{
    PARE_TRY(pare_h5_open(d->ctx, &d->file, path, apart));
    if (count < 1) return PARE_FAIL(d->ctx, INPUT, "%s: the model has no inputs to feed", path);
    d->source = pare_alloc(d->ctx, (size_t)count, sizeof *d->source);
    if (!d->source) return PARE_MEMORY;
    for (int i = 0; i < count; i++) d->source[i].set.id = d->source[i].set.memory_type = -1;
    d->source_count = count;
    for (int i = 0; i < count; i++) PARE_TRY(open_source(d, &inputs[i], count, &d->source[i]));
    PARE_TRY(count_samples(d));
    PARE_TRY(open_labels(d));
    if (!d->serial) pare_h5_release(&d->file);
    return PARE_OK;
}

static pare_status open_data(pare_ctx *ctx, pare_data **out, const char *path,
                             const pare_data_input *inputs, int input_count, bool apart)
{
    pare_data *d = pare_alloc(ctx, 1, sizeof *d);
    if (!d) return PARE_MEMORY;
    d->ctx = ctx;
    d->file = (pare_h5_file){.fd = -1, .id = -1};
    pare_status st = open_all(d, path, inputs, input_count, apart);
    if (st != PARE_OK) {
        pare_data_close(d);
        return st;
    }
    *out = d;
    return PARE_OK;
}

pare_status pare_data_open(pare_ctx *ctx, pare_data **out, const char *path,
                           const pare_data_input *inputs, int input_count)
{
    return open_data(ctx, out, path, inputs, input_count, false);
}

pare_status pare_data_open_isolated(pare_ctx *ctx, pare_data **out, const char *path,
                                    const pare_data_input *inputs, int input_count)
{
    return open_data(ctx, out, path, inputs, input_count, true);
}

void pare_data_close(pare_data *data)
{
    if (!data) return;
    pare_data_release(data);
    for (int i = 0; i < data->source_count; i++) {
        pare_data_source *s = &data->source[i];
        pare_h5_set_close(&s->set);
        pare_free(s->table);
        pare_free(s->name);
    }
    pare_h5_close(&data->file);
    pare_free(data->source);
    pare_free(data->label);
    pare_free(data);
}

int64_t pare_data_count(const pare_data *data) { return data->count; }

bool pare_data_has_labels(const pare_data *data) { return data->label != NULL; }

const int64_t *pare_data_labels(const pare_data *data) { return data->label; }

const char *pare_data_path(const pare_data *data) { return data->file.path; }

const pare_shape *pare_data_shape(const pare_data *data, int i) { return &data->source[i].shape; }

int64_t pare_data_chunk_samples(const pare_data *data)
{
    int64_t rows = 1;
    for (int i = 0; i < data->source_count; i++)
        if (data->source[i].set.group_rows > rows) rows = data->source[i].set.group_rows;
    return rows;
}

size_t pare_data_stored_bytes(const pare_data *data)
{
    size_t bytes = 0;
    for (int i = 0; i < data->source_count; i++) bytes += data->source[i].set.row_bytes;
    return bytes;
}

void pare_data_spread(int64_t first, int64_t last, int64_t n, int64_t *out)
{
    /* sample i is at first + floor(i * span / n), computed without a product that may overflow
     */
    int64_t span = last - first, whole = n > 0 ? span / n : 0, part = n > 0 ? span % n : 0,
            carry = 0;
    for (int64_t i = 0, at = first; i < n; i++) {
        out[i] = at;
        at += whole;
        carry += part;
        if (carry >= n) {
            carry -= n;
            at++;
        }
    }
}
