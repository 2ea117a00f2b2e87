/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/progress.h"

#include <string.h>
#include <unistd.h>

const char *pare_duration_text(double seconds, char *text, int size)
{
    long s = seconds > 0 ? (long)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(text, (size_t)size, "%ldh%02ldm", s / 3600, s / 60 % 60);
    else if (s >= 60)
        snprintf(text, (size_t)size, "%ldm%02lds", s / 60, s % 60);
    else
        snprintf(text, (size_t)size, "%lds", s);
    return text;
}

void pare_progress_begin(pare_progress *progress, FILE *file, bool quiet, const char *label,
                         const char *unit)
{
    memset(progress, 0, sizeof *progress);
    progress->file = quiet ? NULL : file;
    progress->terminal = progress->file && isatty(fileno(file));
    progress->label = label;
    progress->unit = unit;
    progress->start = progress->shown = pare_seconds();
}

/* "250/s", "2.5/s", or of slow work "40s each". */
static const char *rate_text(double rate, char *text, int size)
{
    char each[32];
    if (rate > 0 && rate < 0.1)
        snprintf(text, (size_t)size, "%s each", pare_duration_text(1 / rate, each, sizeof each));
    else
        snprintf(text, (size_t)size, "%.*f/s", rate < 10 ? 1 : 0, rate);
    return text;
}

void pare_progress_line(const pare_progress *progress, double now, int64_t done, int64_t all,
                        bool bar, char *text, int size)
{
    enum { CELLS = 24 };
    const double passed = now - progress->start, ours = (double)(done - progress->from);
    const double rate = passed > 0 ? ours / passed : 0;
    char left[32] = "?", pace[48], cells[CELLS + 4] = "";
    rate_text(rate, pace, sizeof pace);
    if (rate > 0 && all > 0) pare_duration_text((double)(all - done) / rate, left, sizeof left);
    if (bar && all > 0) {
        int full = (int)((double)done / (double)all * CELLS);
        cells[0] = '[';
        for (int i = 0; i < CELLS; i++) cells[1 + i] = i < full ? '#' : '.';
        memcpy(cells + 1 + CELLS, "] ", 3);
    }
    if (all > 0)
        snprintf(text, (size_t)size, "%s %s%lld/%lld %s, %d %%, %s, %s left%s", progress->label,
                 cells, (long long)done, (long long)all, progress->unit,
                 (int)(100 * (double)done / (double)all), pace, left, progress->note);
    else
        snprintf(text, (size_t)size, "%s %lld %s, %s%s", progress->label, (long long)done,
                 progress->unit, pace, progress->note);
}

void pare_progress_step(void *user, int64_t done, int64_t all)
{
    pare_progress *progress = user;
    if (!progress->file) return;
    double now = pare_seconds(), pause = progress->terminal ? 0.1 : 10;
    if (now - progress->shown < pause) return;
    char line[240];
    pare_progress_line(progress, now, done, all, progress->terminal, line, sizeof line);
    int width = (int)strlen(line), gap = progress->width > width ? progress->width - width : 0;
    if (progress->terminal)
        fprintf(progress->file, "\r%s%*s", line, gap, "");
    else
        fprintf(progress->file, "%s\n", line);
    fflush(progress->file);
    progress->width = width;
    progress->shown = now;
}

void pare_progress_clear(pare_progress *progress)
{
    if (!progress->file || !progress->terminal || !progress->width) return;
    fprintf(progress->file, "\r%*s\r", progress->width, "");
    fflush(progress->file);
    progress->width = 0;
}

void pare_progress_end(pare_progress *progress)
{
    pare_progress_clear(progress);
    progress->file = NULL;
}
