/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/results.h"

#include "tools/cpu_info.h"
#include "tools/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Where a column's value is found: in the model's part of the facts, else in the whole. */
typedef struct column {
    const char *name, *path;
} column;

static const column columns[] = {
    {"pare_results_1", NULL}, /* the command */
    {"version", NULL},
    {"written", NULL}, /* UTC */
    {"model", "file"},
    {"hash", "hash"},
    {"recipe", "recipe"},
    {"precision", "precision"},
    {"bytes", "bytes"},
    {"parameters", "parameters"},
    {"reference", NULL}, /* the first model's hash */
    {"data", "data.file"},
    {"samples", "data.samples"},
    {"top1", "top1"},
    {"top1_low", "top1_interval.0"},
    {"top1_high", "top1_interval.1"},
    {"drop", "drop"},
    {"drop_low", "drop_interval.0"},
    {"drop_high", "drop_interval.1"},
    {"mcnemar_p", "mcnemar.p"},
    {"kept", "kept"},
    {"kept_low", "kept_interval.0"},
    {"kept_high", "kept_interval.1"},
    {"agreement", "agreement"},
    {"sqnr_db", "outputs.0.sqnr_db"},
    {"latency_ms", "latency_ms.median"},
    {"latency_low", "latency_interval.0"},
    {"latency_high", "latency_interval.1"},
    {"p99_ms", "latency_ms.p99"},
    {"speed_up", "speed_up"},
    {"throughput_per_s", "throughput_per_s"},
    {"runs", "runs"},
    {"stable", "stable"},
    {"emulated", "emulated"},
    {"batch", "batch"},
    {"threads", "threads"},
    {"activation_bytes", "activation_bytes"},
    {"peak_memory_bytes", "peak_memory_bytes"},
    {"device", NULL},
    {"driver", "device.driver"},
};
enum { COLUMNS = sizeof columns / sizeof *columns, HEADER = 1024 };

static size_t header_line(char *line)
{
    size_t n = 0;
    for (int c = 0; c < COLUMNS; c++)
        n += (size_t)snprintf(line + n, HEADER - n, "%s%s", c ? "," : "", columns[c].name);
    return n + (size_t)snprintf(line + n, HEADER - n, "\n");
}

/* --- rows --- */

void pare_results_value(pare_text *t, const json_t *value)
{
    if (json_is_string(value))
        pare_text_add_csv(t, json_string_value(value));
    else if (json_is_integer(value))
        pare_text_add(t, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        pare_text_add(t, "%.9g", json_real_value(value));
    else if (json_is_boolean(value))
        pare_text_add(t, json_is_true(value) ? "true" : "false");
}

static void add_row(pare_text *t, const json_t *facts, const json_t *model, const json_t *first,
                    const char *written)
{
    char label[320];
    for (int c = 0; c < COLUMNS; c++) {
        const char *path = columns[c].path;
        const json_t *value = path ? pare_report_find(model, path) : NULL;
        if (path && !value) value = pare_report_find(facts, path);
        if (c) pare_text_add(t, ",");
        if (c == 0)
            value = json_object_get(facts, "command");
        else if (!strcmp(columns[c].name, "version"))
            value = json_object_get(facts, "version");
        else if (!strcmp(columns[c].name, "written"))
            pare_text_add_csv(t, written);
        else if (!strcmp(columns[c].name, "device"))
            pare_text_add_csv(
                t, pare_device_label(json_object_get(facts, "device"), label, sizeof label));
        else if (!strcmp(columns[c].name, "reference") && model != first)
            value = json_object_get(first, "hash");
        pare_results_value(t, value);
    }
    pare_text_add(t, "\n");
}

static void add_rows(pare_text *t, const json_t *facts, const char *written)
{
    const json_t *models = json_object_get(facts, "models"), *first = json_array_get(models, 0);
    size_t i;
    json_t *model;
    json_array_foreach((json_t *)models, i, model) add_row(t, facts, model, first, written);
    if (!models) {
        first = json_object_get(facts, "model");
        add_row(t, facts, first, first, written);
    }
}

void pare_results_table(pare_text *t, const json_t *facts, const char *written)
{
    char line[HEADER];
    size_t i;
    json_t *one;
    header_line(line);
    pare_text_add(t, "%s", line);
    json_array_foreach((json_t *)facts, i, one) add_rows(t, one, written);
}

/* --- the file --- */

static pare_status fail(pare_ctx *ctx, const char *path)
{
    return PARE_FAIL(ctx, IO, "%s: cannot be written: %s", path, strerror(errno));
}

/* Does the file begin as it must? *size 0: it is empty. */
static pare_status check_header(pare_ctx *ctx, const char *path, int fd, off_t *size)
{
    char wanted[HEADER], there[HEADER];
    struct stat info;
    const size_t n = header_line(wanted);
    if (fstat(fd, &info)) return fail(ctx, path);
    if (!S_ISREG(info.st_mode))
        return PARE_FAIL(ctx, INPUT, "%s: is no regular file, which rows can be added to", path);
    *size = info.st_size;
    if (!info.st_size) return PARE_OK;
    if (pread(fd, there, n, 0) == (ssize_t)n && !memcmp(there, wanted, n)) return PARE_OK;
    return PARE_FAIL(ctx, INPUT,
                     "%s: line 1: has other columns than this version writes (pare_results_1,"
                     "version,written,...); give another file, nothing was added",
                     path);
}

pare_status pare_results_check(pare_ctx *ctx, const char *path)
{
    off_t size;
    const int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0) return PARE_OK;
    const pare_status st =
        flock(fd, LOCK_SH) ? fail(ctx, path) : check_header(ctx, path, fd, &size);
    close(fd);
    return st;
}

/* Cuts off a line without an end. */
static pare_status mend(pare_ctx *ctx, const char *path, int fd, off_t *size)
{
    const off_t was = *size;
    char last = '\n';
    while (*size && pread(fd, &last, 1, *size - 1) == 1 && last != '\n') (*size)--;
    if (*size == was) return PARE_OK;
    if (ftruncate(fd, *size)) return fail(ctx, path);
    pare_log(ctx, PARE_LOG_WARNING, "%s: its last line was unfinished and is cut off (%lld bytes)",
             path, (long long)(was - *size));
    return PARE_OK;
}

static pare_status write_rows(pare_ctx *ctx, const char *path, int fd, size_t header,
                              const pare_text *all)
{
    off_t size = 0;
    if (flock(fd, LOCK_EX)) return fail(ctx, path);
    PARE_TRY(check_header(ctx, path, fd, &size));
    PARE_TRY(mend(ctx, path, fd, &size));
    const size_t skip = size ? header : 0;
    const ssize_t n = write(fd, all->data + skip, all->size - skip);
    if (n == (ssize_t)(all->size - skip)) return PARE_OK;
    if (n >= 0) errno = ENOSPC;
    const pare_status st = fail(ctx, path);
    if (n > 0 && ftruncate(fd, size)) return st; /* the next writer cuts it off */
    return st;
}

pare_status pare_results_append(pare_ctx *ctx, const char *path, const json_t *facts)
{
    char line[HEADER], written[32];
    pare_text all = {.ctx = ctx};
    const time_t now = time(NULL);
    struct tm utc;
    if (!path) return PARE_OK;
    gmtime_r(&now, &utc);
    strftime(written, sizeof written, "%Y-%m-%dT%H:%M:%SZ", &utc);
    const size_t header = header_line(line);
    json_t *list = json_pack("[O]", facts);
    pare_results_table(&all, list, written);
    json_decref(list);
    pare_status st = all.failed ? PARE_MEMORY : PARE_OK;
    const int fd =
        st == PARE_OK ? open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666) : -1;
    if (st == PARE_OK && fd < 0) st = fail(ctx, path);
    if (st == PARE_OK) st = write_rows(ctx, path, fd, header, &all);
    if (fd >= 0 && close(fd) && st == PARE_OK) st = fail(ctx, path); /* frees the lock */
    pare_free(all.data);
    return st;
}
