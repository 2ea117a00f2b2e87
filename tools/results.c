/* SPDX-License-Identifier: Apache-2.0 */
/* The columns of results, and the file that rows are added to. */
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

/* Beside a row, the model's part of the facts. */
typedef struct whole {
    const json_t *facts, *first;
    const char *written;
} whole;

/* In the model's part of the facts, else in the whole. */
static void value_cell(pare_cell *cell)
{
    const whole *w = cell->extra;
    if (!pare_report_find(cell->row, cell->column->path)) cell->row = w->facts;
    pare_cell_value(cell);
}

static void facts_cell(pare_cell *cell)
{
    cell->row = ((const whole *)cell->extra)->facts;
    pare_cell_value(cell);
}

static void written_cell(pare_cell *cell)
{
    pare_text_add_csv(cell->text, ((const whole *)cell->extra)->written);
}

/* The first model's hash. */
static void reference_cell(pare_cell *cell)
{
    const whole *w = cell->extra;
    if (cell->row == w->first) return;
    cell->row = w->first;
    pare_cell_value(cell);
}

static void device_cell(pare_cell *cell)
{
    const whole *w = cell->extra;
    char label[320];
    const json_t *device = json_object_get(w->facts, "device");
    pare_text_add_csv(cell->text, pare_device_label(device, label, sizeof label));
}

#define VALUE(name, path) PARE_COLUMN(name, NULL, path, value_cell)
#define ENDS(name, path)  VALUE(name "_low", path ".0"), VALUE(name "_high", path ".1")
static const pare_column columns[] = {
    PARE_COLUMN("pare_results_1", NULL, "command", facts_cell),
    PARE_COLUMN("version", NULL, "version", facts_cell),
    PARE_COLUMN("written", NULL, NULL, written_cell), /* UTC */
    VALUE("model", "file"),
    VALUE("hash", "hash"),
    VALUE("recipe", "recipe"),
    VALUE("precision", "precision"),
    VALUE("bytes", "bytes"),
    VALUE("parameters", "parameters"),
    PARE_COLUMN("reference", NULL, "hash", reference_cell),
    VALUE("data", "data.file"),
    VALUE("samples", "data.samples"),
    VALUE("top1", "top1"),
    ENDS("top1", "top1_interval"),
    VALUE("drop", "drop"),
    ENDS("drop", "drop_interval"),
    VALUE("mcnemar_p", "mcnemar.p"),
    VALUE("kept", "kept"),
    ENDS("kept", "kept_interval"),
    VALUE("agreement", "agreement"),
    VALUE("sqnr_db", "outputs.0.sqnr_db"),
    VALUE("latency_ms", "latency_ms.median"),
    ENDS("latency", "latency_interval"),
    VALUE("p99_ms", "latency_ms.p99"),
    VALUE("speed_up", "speed_up"),
    VALUE("throughput_per_s", "throughput_per_s"),
    VALUE("runs", "runs"),
    VALUE("stable", "stable"),
    VALUE("emulated", "emulated"),
    VALUE("batch", "batch"),
    VALUE("threads", "threads"),
    VALUE("activation_bytes", "activation_bytes"),
    VALUE("peak_memory_bytes", "peak_memory_bytes"),
    PARE_COLUMN("device", NULL, NULL, device_cell),
    VALUE("driver", "device.driver"),
    {0},
};
enum { HEADER = 1024 };

static size_t header_line(char *line)
{
    size_t n = 0;
    for (const pare_column *c = columns; c->cell; c++)
        n += (size_t)snprintf(line + n, HEADER - n, "%s%s", n ? "," : "", c->title);
    return n + (size_t)snprintf(line + n, HEADER - n, "\n");
}

/* --- rows --- */

void pare_results_table(pare_text *t, const json_t *facts, const char *written)
{
    pare_grid grid;
    size_t i, k;
    json_t *one, *model;
    pare_grid_csv(&grid, t, columns);
    json_array_foreach((json_t *)facts, i, one)
    {
        const json_t *models = json_object_get(one, "models"),
                     *only = json_object_get(one, "model");
        const whole w = {one, models ? json_array_get(models, 0) : only, written};
        json_array_foreach((json_t *)models, k, model) pare_grid_row(&grid, model, &w, NULL);
        if (!models) pare_grid_row(&grid, only, &w, NULL);
    }
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
