/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/tfevents.h"
#include "formats/tfevents.pb-c.h"
#include "runtime/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "events.out.tfevents."
enum { BINS = 30, HEAD = 12, TAIL = 4 }; /* BINS: what TensorBoard shows of a histogram */

struct pare_tfevents {
    pare_ctx *ctx;
    char *path;
    int fd;
    off_t good; /* bytes of whole records */
    uint8_t *record;
    size_t capacity;
};

/* --- records --- */

/* Bit by bit: a record is short, and its write takes longer. */
uint32_t pare_crc32c(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* A CRC that is itself among bytes with a CRC is stored masked (TFRecord's format). */
static uint32_t masked_crc(const void *data, size_t bytes)
{
    const uint32_t crc = pare_crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static pare_status fail_write(const pare_tfevents *t, const char *path, int code)
{
    return PARE_FAIL(t->ctx, IO, "%s: cannot be written: %s", path, strerror(code));
}

/* A part of a record is taken back. */
static pare_status append(pare_tfevents *t, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        const ssize_t n = write(t->fd, t->record + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            const int code = errno;
            if (done && ftruncate(t->fd, t->good))
                return PARE_FAIL(t->ctx, IO, "%s: cannot be written: %s, in the midst of a record",
                                 t->path, strerror(code));
            return fail_write(t, t->path, code);
        }
        done += (size_t)n;
    }
    t->good += (off_t)bytes;
    return PARE_OK;
}

static pare_status reserve(pare_tfevents *t, size_t bytes)
{
    if (bytes <= t->capacity) return PARE_OK;
    uint8_t *record = pare_alloc(t->ctx, 2 * bytes, 1);
    if (!record) return PARE_MEMORY;
    pare_free(t->record);
    t->record = record;
    t->capacity = 2 * bytes;
    return PARE_OK;
}

/* Numbers are little-endian, as on every machine that this runs on. */
static pare_status write_event(pare_tfevents *t, Tfevents__Event *event)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    event->has_wall_time = event->has_step = true;
    event->wall_time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    const uint64_t length = tfevents__event__get_packed_size(event);
    const size_t size = (size_t)length;
    PARE_TRY(reserve(t, HEAD + size + TAIL));
    tfevents__event__pack(event, t->record + HEAD);
    const uint32_t of_length = masked_crc(&length, sizeof length);
    const uint32_t of_event = masked_crc(t->record + HEAD, size);
    memcpy(t->record, &length, sizeof length);
    memcpy(t->record + sizeof length, &of_length, sizeof of_length);
    memcpy(t->record + HEAD + size, &of_event, sizeof of_event);
    return append(t, HEAD + size + TAIL);
}

static ProtobufCBinaryData bytes_of(const char *text)
{
    return (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
}

static pare_status write_values(pare_tfevents *t, int64_t step, Tfevents__Value **values,
                                size_t count)
{
    Tfevents__Event event = TFEVENTS__EVENT__INIT;
    Tfevents__Summary summary = TFEVENTS__SUMMARY__INIT;
    summary.n_value = count;
    summary.value = values;
    event.step = step;
    event.summary = &summary;
    return write_event(t, &event);
}

/* --- the file --- */

/* The seconds in the name of the folder's last event file; -1: there is none. */
static int64_t last_seconds(const char *folder)
{
    int64_t last = -1, seconds;
    int end;
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir))
        if (sscanf(e->d_name, PREFIX "%" SCNd64 ".%n", &seconds, &end) == 1 && seconds > last)
            last = seconds;
    if (dir) closedir(dir);
    return last;
}

static pare_status make_file(pare_tfevents *t, const char *folder)
{
    const size_t n = strlen(folder), size = n + 512;
    char host[256] = "host";
    (void)gethostname(host, sizeof host - 1);
    const int64_t now = (int64_t)time(NULL), last = last_seconds(folder);
    t->path = pare_alloc(t->ctx, size, 1);
    if (!t->path) return PARE_MEMORY;
    snprintf(t->path, size, "%s%s" PREFIX "%" PRId64 ".%s.%ld.0", folder,
             n && folder[n - 1] == '/' ? "" : "/", last < now || last == INT64_MAX ? now : last + 1,
             host, (long)getpid());
    t->fd = open(t->path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return t->fd < 0 ? fail_write(t, t->path, errno) : PARE_OK;
}

static pare_status write_start(pare_tfevents *t, int64_t step)
{
    Tfevents__Event version = TFEVENTS__EVENT__INIT, start = TFEVENTS__EVENT__INIT;
    Tfevents__SessionLog session = TFEVENTS__SESSION_LOG__INIT;
    version.has_file_version = true;
    version.file_version = bytes_of("brain.Event:2");
    session.has_status = true;
    session.status = TFEVENTS__SESSION_LOG__STATUS__START;
    start.step = step;
    start.session_log = &session;
    PARE_TRY(write_event(t, &version));
    return write_event(t, &start);
}

pare_status pare_tfevents_open(pare_ctx *ctx, pare_tfevents **out, const char *folder, int64_t step)
{
    pare_tfevents *t = pare_alloc(ctx, 1, sizeof *t);
    if (!t) return PARE_MEMORY;
    *t = (pare_tfevents){.ctx = ctx, .fd = -1};
    pare_status st = make_file(t, folder);
    if (st == PARE_OK) {
        st = write_start(t, step);
        if (st != PARE_OK) unlink(t->path);
    }
    if (st == PARE_OK)
        *out = t;
    else
        pare_tfevents_close(t);
    return st;
}

void pare_tfevents_close(pare_tfevents *t)
{
    if (!t) return;
    if (t->fd >= 0) close(t->fd);
    pare_free(t->record);
    pare_free(t->path);
    pare_free(t);
}

const char *pare_tfevents_path(const pare_tfevents *events) { return events->path; }

/* --- what is in it --- */

pare_status pare_tfevents_add_scalars(pare_tfevents *t, int64_t step,
                                      const pare_tfevents_scalar *scalars, int count)
{
    enum { MOST = 16 };
    Tfevents__Value value[MOST], *list[MOST];
    if (count > MOST) {
        PARE_TRY(pare_tfevents_add_scalars(t, step, scalars, MOST));
        return pare_tfevents_add_scalars(t, step, scalars + MOST, count - MOST);
    }
    for (int i = 0; i < count; i++) {
        tfevents__value__init(&value[i]);
        value[i].has_tag = value[i].has_simple_value = true;
        value[i].tag = bytes_of(scalars[i].tag);
        value[i].simple_value = (float)scalars[i].value;
        list[i] = &value[i];
    }
    return write_values(t, step, list, (size_t)count);
}

typedef struct histogram {
    double least, most, count, sum, squares;
    int bins;
    double limit[BINS], in[BINS];
} histogram;

static void measure(histogram *h, const float *values, int64_t count, double scale)
{
    for (int64_t i = 0; i < count; i++) {
        const double v = (double)values[i] * scale;
        if (!isfinite(v)) continue;
        if (!h->count || v < h->least) h->least = v;
        if (!h->count || v > h->most) h->most = v;
        h->count++;
        h->sum += v;
        h->squares += v * v;
    }
}

/* Bin i holds least + i width <= v < least + (i + 1) width, the last one the largest, too. */
static void fill(histogram *h, const float *values, int64_t count, double scale)
{
    const double width = (h->most - h->least) / BINS;
    h->bins = width > 0 ? BINS : h->count > 0;
    for (int i = 0; i < h->bins; i++) h->limit[i] = h->least + (i + 1) * width;
    if (h->bins) h->limit[h->bins - 1] = h->most;
    if (h->bins == 1) h->in[0] = h->count;
    for (int64_t i = 0; h->bins > 1 && i < count; i++) {
        const double v = (double)values[i] * scale;
        if (!isfinite(v)) continue;
        const int bin = (int)((v - h->least) / width);
        h->in[bin < BINS ? bin : BINS - 1]++;
    }
}

static pare_status add_histogram(pare_tfevents *t, int64_t step, const char *tag, histogram *h)
{
    Tfevents__Value value = TFEVENTS__VALUE__INIT;
    Tfevents__Histogram histo = TFEVENTS__HISTOGRAM__INIT;
    histo.has_min = histo.has_max = histo.has_num = histo.has_sum = histo.has_sum_squares = true;
    histo.min = h->least;
    histo.max = h->most;
    histo.num = h->count;
    histo.sum = h->sum;
    histo.sum_squares = h->squares;
    histo.n_bucket_limit = histo.n_bucket = (size_t)h->bins;
    histo.bucket_limit = h->limit;
    histo.bucket = h->in;
    value.has_tag = true;
    value.tag = bytes_of(tag);
    value.histo = &histo;
    return write_values(t, step, (Tfevents__Value *[]){&value}, 1);
}

pare_status pare_tfevents_add_histogram(pare_tfevents *t, int64_t step, const char *tag,
                                        const float *values, int64_t count, double scale)
{
    const size_t n = pare_text_escape(NULL, 0, tag, strlen(tag));
    histogram h = {0};
    char *shown = pare_alloc(t->ctx, n + 1, 1);
    if (!shown) return PARE_MEMORY;
    pare_text_escape(shown, n + 1, tag, strlen(tag));
    measure(&h, values, count, scale);
    fill(&h, values, count, scale);
    const pare_status st = add_histogram(t, step, shown, &h);
    pare_free(shown);
    return st;
}
