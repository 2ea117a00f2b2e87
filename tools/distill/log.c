/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/distill/log.h"
#include "formats/json.h"
#include "tools/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pare_status fail_write(const pare_distill_log *log)
{
    return PARE_FAIL(log->tool->ctx, IO, "%s: cannot be written: %s", log->path, strerror(errno));
}

void pare_distill_log_open(pare_distill_log *log, pare_tool *tool, const char *path,
                           const char *tensorboard)
{
    *log = (pare_distill_log){.tool = tool,
                              .path = path,
                              .good = -1,
                              .tensorboard = {.ctx = tool->ctx, .folder = tensorboard},
                              .score = {.loss = -1}};
    pare_progress_begin(&log->bar, stderr, tool->common->quiet, "distill", "steps");
}

/* After the lines of steps before this one. */
static pare_status open_file(pare_distill_log *log, int64_t step)
{
    if (step && access(log->path, F_OK))
        pare_log(log->tool->ctx, PARE_LOG_WARNING,
                 "%s: is not there any more; it begins with step %lld", log->path, (long long)step);
    if (step) PARE_TRY(pare_json_lines_cut(log->tool->ctx, log->path, step - 1));
    log->file = fopen(log->path, step ? "a" : "w");
    return log->file ? PARE_OK : fail_write(log);
}

/* The first event is of step 0, or of the step after a checkpoint. */
static pare_status begin(pare_distill_log *log, const pare_distill_event *e)
{
    const int64_t done = e->step ? e->step - 1 : 0;
    log->begun = true;
    log->start = pare_seconds();
    log->seen = e->samples;
    log->bar.from = done;
    if (e->step && !log->tool->common->quiet)
        pare_print(stderr, "training continues after step %lld of %lld\n", (long long)done,
                   (long long)e->steps);
    return log->path ? open_file(log, e->step) : PARE_OK;
}

json_t *pare_distill_score_json(const pare_distill_score *score)
{
    json_t *row = json_pack("{s:f}", "loss", score->loss);
    if (score->agreement >= 0)
        json_object_set_new(row, "agreement", json_real(100 * score->agreement));
    if (score->top1 >= 0) json_object_set_new(row, "top1", json_real(100 * score->top1));
    return row;
}

json_t *pare_distill_zeros_json(const char *const *name, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(list, json_string(name[i]));
    return list;
}

const char *pare_distill_score_text(const pare_distill_score *score, char *text, size_t size)
{
    int n = snprintf(text, size, "loss %.4g", score->loss);
    if (score->agreement >= 0)
        n += snprintf(text + n, size - (size_t)n, ", agreement %.2f %%", 100 * score->agreement);
    if (score->top1 >= 0)
        snprintf(text + n, size - (size_t)n, ", top-1 %.2f %%", 100 * score->top1);
    return text;
}

static json_t *line_of(const pare_distill_event *e)
{
    json_t *row = json_pack("{s:I, s:f}", "step", (json_int_t)e->step, "epoch", e->epoch);
    if (e->step)
        json_object_update_new(row, json_pack("{s:f, s:f, s:f}", "loss", e->loss, "lr",
                                              e->learning_rate, "gradient_norm", e->norm));
    else if (e->zero_count)
        json_object_set_new(row, "zeros_kept", pare_distill_zeros_json(e->zeros, e->zero_count));
    if (e->loss_scale > 0)
        json_object_update_new(row, json_pack("{s:f, s:I}", "loss_scale", e->loss_scale, "skipped",
                                              (json_int_t)e->skipped));
    if (e->score) {
        json_object_set_new(row, "held_out", pare_distill_score_json(e->score));
        json_object_set_new(row, "best", json_boolean(e->best));
    }
    return row;
}

/* The line is with the system when the next step begins: a log that is cut off ends with a whole
   line of a step that was done. */
static pare_status write_line(pare_distill_log *log, const pare_distill_event *event)
{
    json_t *row = line_of(event);
    char *text = row ? json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(row);
    if (!text) return PARE_FAIL(log->tool->ctx, MEMORY, "%s: out of memory", log->path);
    bool good = fprintf(log->file, "%s\n", text) >= 0 && !fflush(log->file);
    free(text);
    if (!good) return fail_write(log);
    log->good = ftello(log->file);
    return PARE_OK;
}

/* A disk that is full ends the log, not the training. */
static pare_status give_up(pare_distill_log *log, int64_t step)
{
    pare_ctx *ctx = log->tool->ctx;
    (void)fclose(log->file);
    log->file = NULL;
    const bool cut = log->good >= 0 && !truncate(log->path, log->good);
    pare_log(ctx, PARE_LOG_WARNING, "%s; training continues, the log ends before step %lld%s",
             ctx->message, (long long)step, cut ? "" : ", in the midst of a line");
    pare_ctx_clear(ctx);
    return PARE_OK;
}

static void show(pare_distill_log *log, const pare_distill_event *e)
{
    pare_progress *bar = &log->bar;
    int n = snprintf(bar->note, sizeof bar->note, ", %.0f samples/s, loss %.3g",
                     log->seconds > 0 ? (double)log->samples / log->seconds : 0.0, e->loss);
    if (log->score.agreement > 0)
        n += snprintf(bar->note + n, sizeof bar->note - (size_t)n, ", agreement %.2f %%",
                      100 * log->score.agreement);
    if (log->score.top1 > 0)
        snprintf(bar->note + n, sizeof bar->note - (size_t)n, ", top-1 %.2f %%",
                 100 * log->score.top1);
    pare_progress_step(bar, e->step, e->steps);
}

pare_status pare_distill_log_event(void *user, const pare_distill_event *event)
{
    pare_distill_log *log = user;
    if (event->score) log->score = *event->score;
    if (!log->begun) PARE_TRY(begin(log, event));
    log->seconds = pare_seconds() - log->start;
    log->samples = event->samples - log->seen;
    if (event->step) show(log, event);
    PARE_TRY(pare_tensorboard_add(&log->tensorboard, event));
    if (!log->file) return PARE_OK;
    const bool first = log->good < 0;
    pare_status st = write_line(log, event);
    return st == PARE_IO && !first ? give_up(log, event->step) : st;
}

pare_status pare_distill_log_close(pare_distill_log *log)
{
    pare_progress_end(&log->bar);
    pare_tensorboard_close(&log->tensorboard);
    FILE *file = log->file;
    log->file = NULL;
    return !file || !fclose(file) ? PARE_OK : fail_write(log);
}
