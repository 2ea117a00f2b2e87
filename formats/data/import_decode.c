/* SPDX-License-Identifier: Apache-2.0 */
/* Images as pixels: decoding and resizing. PNG is read through libpng, JPEG through libjpeg. Both
   report errors by a jump, which ends inside the two functions here; what they allocate before it
   is kept where the landing side finds it. */
#include "formats/data/image.h"
#include "runtime/base/size.h"

#include <stdio.h>
#include <jerror.h>
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <string.h>
#include <jpeglib.h>

/* --- decoding --- */

int64_t pare_picture_pixels(const pare_picture_options *o)
{
    return o->pixels ? o->pixels : PARE_PICTURE_MOST_PIXELS;
}

/* A picture while it is decoded. */
typedef struct decoding {
    pare_ctx *ctx;
    const pare_picture_options *options;
    pare_image *image;
    pare_status status;
    char reason[JMSG_LENGTH_MAX]; /* of PARE_INPUT */
} decoding;

/* The pixels' memory; each takes `extra` bytes beside, of the library's. False: the status says
   why, and the reason. */
static bool image_alloc(decoding *d, uint64_t width, uint64_t height, size_t extra)
{
    const pare_picture_options *o = d->options;
    const uint64_t most = (uint64_t)pare_picture_pixels(o);
    d->status = PARE_INPUT;
    snprintf(d->reason, sizeof d->reason, "it is %llu x %llu pixels, at most %llu are read",
             (unsigned long long)width, (unsigned long long)height, (unsigned long long)most);
    if (width < 1 || height < 1 || width > INT32_MAX / 4 || height > most / width) return false;
    d->status = o->hold ? o->hold(o->user, (size_t)(width * height) * (3 + extra)) : PARE_OK;
    if (d->status != PARE_OK) return false;
    d->image->width = (int)width;
    d->image->height = (int)height;
    d->image->rgb = pare_alloc(d->ctx, (size_t)(width * height), 3);
    if (!d->image->rgb) d->status = PARE_MEMORY;
    return d->image->rgb != NULL;
}

/* The end, when the library has let go of everything. */
static pare_status finish(decoding *d, const char *what, const char *kind)
{
    if (d->status == PARE_OK) return PARE_OK;
    pare_free(d->image->rgb);
    d->image->rgb = NULL;
    if (d->status != PARE_INPUT) return d->status; /* whose message is there */
    return PARE_FAIL(d->ctx, INPUT, "%s: broken %s image: %s%s", what, kind, d->reason,
                     d->options->advice ? d->options->advice : "");
}

/* --- PNG --- */

typedef struct png_job {
    decoding common;
    const uint8_t *data;
    size_t left;
    uint8_t **row;
} png_job;

/* The first reason counts. */
static void png_failed(png_structp png, png_const_charp text)
{
    decoding *d = png_get_error_ptr(png);
    if (d->status == PARE_OK) {
        d->status = PARE_INPUT;
        snprintf(d->reason, sizeof d->reason, "%s", text);
    }
    png_longjmp(png, 1);
}

static void png_warned(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void png_take(png_structp png, png_bytep out, size_t bytes)
{
    png_job *job = png_get_io_ptr(png);
    if (bytes > job->left) png_error(png, "it is cut off");
    memcpy(out, job->data, bytes);
    job->data += bytes;
    job->left -= bytes;
}

/* Everything becomes 8-bit RGB; 16-bit samples keep their high byte. */
static void png_make_rgb(png_structp png, png_infop info)
{
    png_set_strip_16(png);
    png_set_expand(png);
    png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
}

static void png_run(png_job *job, png_structp png, png_infop info)
{
    if (setjmp(png_jmpbuf(png))) return;
    png_set_read_fn(png, job, png_take);
    png_set_user_limits(png, 1 << 20, 1 << 20);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* texts, profiles */
    png_read_info(png, info);
    png_make_rgb(png, info);
    uint32_t width = png_get_image_width(png, info), height = png_get_image_height(png, info);
    if (png_get_rowbytes(png, info) != 3 * (size_t)width) png_error(png, "its pixels are not RGB");
    if (!image_alloc(&job->common, width, height, 0)) png_error(png, "no room for its pixels");
    job->row = pare_alloc(job->common.ctx, height, sizeof *job->row);
    if (!job->row) {
        job->common.status = PARE_MEMORY;
        png_error(png, "no room for its rows");
    }
    for (uint32_t y = 0; y < height; y++)
        job->row[y] = job->common.image->rgb + 3 * (size_t)width * y;
    png_read_image(png, job->row);
    png_read_end(png, NULL);
}

static pare_status decode_png(decoding common, const char *what, const uint8_t *data, size_t bytes)
{
    png_job job = {.common = common, .data = data, .left = bytes};
    png_structp png =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, &job.common, png_failed, png_warned);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (info)
        png_run(&job, png, info);
    else
        job.common.status = PARE_FAIL(common.ctx, MEMORY, "out of memory: starting libpng");
    png_destroy_read_struct(&png, &info, NULL);
    pare_free(job.row);
    return finish(&job.common, what, "PNG");
}

/* --- JPEG --- */

/* Scans of a progressive JPEG: encoders write about ten, and each takes the time of all pixels. */
enum { MOST_SCANS = 100 };

typedef struct jpeg_job {
    struct jpeg_error_mgr manager; /* first: libjpeg hands out its address */
    struct jpeg_progress_mgr progress;
    jmp_buf landing;
    decoding common;
    uint8_t *line;
} jpeg_job;

/* The first reason counts. */
static void jpeg_failed(j_common_ptr info)
{
    jpeg_job *job = (jpeg_job *)info->err;
    if (job->common.status == PARE_OK) {
        job->common.status = PARE_INPUT;
        info->err->format_message(info, job->common.reason);
    }
    longjmp(job->landing, 1);
}

static void jpeg_goes_on(j_common_ptr info)
{
    jpeg_job *job = (jpeg_job *)info->err;
    if (((j_decompress_ptr)info)->input_scan_number <= MOST_SCANS) return;
    job->common.status = PARE_INPUT;
    snprintf(job->common.reason, sizeof job->common.reason,
             "it has more than the %d scans that are read", MOST_SCANS);
    jpeg_failed(info);
}

/* Warnings that mean lost pixels are failures; stray bytes between markers are not. */
static void jpeg_said(j_common_ptr info, int level)
{
    int code = info->err->msg_code;
    if (level < 0 &&
        (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE))
        jpeg_failed(info);
}

/* Adobe's CMYK is stored inverted: R = C * K / 255. */
static void cmyk_to_rgb(const uint8_t *in, uint8_t *out, int width)
{
    for (int x = 0; x < width; x++)
        for (int c = 0; c < 3; c++)
            out[3 * x + c] = (uint8_t)((in[4 * x + c] * in[4 * x + 3] + 127) / 255);
}

/* The pixels' memory, and what libjpeg takes for them: a file of many scans is unpacked whole. */
static bool jpeg_alloc(jpeg_job *job, struct jpeg_decompress_struct *info, bool four)
{
    const size_t extra =
        jpeg_has_multiple_scans(info) ? sizeof(JCOEF) * (size_t)info->num_components : 0;
    if (!image_alloc(&job->common, info->image_width, info->image_height, extra)) return false;
    if (four && !(job->line = pare_alloc(job->common.ctx, info->image_width, 4)))
        job->common.status = PARE_MEMORY;
    return job->common.status == PARE_OK;
}

static void jpeg_run(jpeg_job *job, struct jpeg_decompress_struct *info, const uint8_t *data,
                     size_t bytes)
{
    if (setjmp(job->landing)) return;
    jpeg_create_decompress(info);
    info->progress = &job->progress;
    jpeg_mem_src(info, data, (unsigned long)bytes);
    jpeg_read_header(info, TRUE);
    bool four = info->num_components == 4;
    info->out_color_space = four ? JCS_CMYK : JCS_RGB;
    if (!jpeg_alloc(job, info, four)) ERREXIT(info, JERR_WIDTH_OVERFLOW);
    jpeg_start_decompress(info);
    while (info->output_scanline < info->output_height) {
        uint8_t *row =
            job->common.image->rgb + 3 * (size_t)info->output_width * info->output_scanline;
        JSAMPROW rows[1] = {four ? job->line : row};
        jpeg_read_scanlines(info, rows, 1);
        if (four) cmyk_to_rgb(job->line, row, (int)info->output_width);
    }
    jpeg_finish_decompress(info);
}

static pare_status decode_jpeg(decoding common, const char *what, const uint8_t *data, size_t bytes)
{
    jpeg_job job = {.common = common, .progress.progress_monitor = jpeg_goes_on};
    struct jpeg_decompress_struct info = {.err = jpeg_std_error(&job.manager)};
    job.manager.error_exit = jpeg_failed;
    job.manager.emit_message = jpeg_said;
    jpeg_run(&job, &info, data, bytes);
    jpeg_destroy_decompress(&info);
    pare_free(job.line);
    return finish(&job.common, what, "JPEG");
}

/* --- either --- */

pare_status pare_image_decode(pare_ctx *ctx, pare_image *out, const char *what, const void *data,
                              size_t bytes, const pare_picture_options *options)
{
    const decoding d = {.ctx = ctx, .options = options, .image = out};
    *out = (pare_image){0};
    if (bytes >= 8 && !memcmp(data, "\x89PNG\r\n\x1a\n", 8))
        return decode_png(d, what, data, bytes);
    if (bytes >= 3 && !memcmp(data, "\xff\xd8\xff", 3)) return decode_jpeg(d, what, data, bytes);
    return PARE_FAIL(ctx, INPUT, "%s: is neither PNG nor JPEG%s", what,
                     options->advice ? options->advice : "");
}

/* --- resizing --- */

/* Bilinear with antialiasing: out(i) = sum over j of w((j + 0.5 - centre) / scale) in(j), centre =
   (i + 0.5) * ratio, scale = max(ratio, 1), w the triangle on [-1, 1], weights scaled to sum 1.
   Rounded to 8 bits after each direction, as common image libraries do. */

/* The weights of one output position: taps of them from position first. */
typedef struct filter {
    int taps; /* room for each position */
    int *first, *count;
    float *weight; /* (positions, taps) */
} filter;

static void filter_free(filter *f)
{
    pare_free(f->first);
    pare_free(f->count);
    pare_free(f->weight);
}

static void filter_fill(filter *f, int from, int to)
{
    double ratio = (double)from / to, scale = ratio > 1 ? ratio : 1;
    for (int i = 0; i < to; i++) {
        double centre = (i + 0.5) * ratio, sum = 0;
        int first = (int)(centre - scale + 0.5), last = (int)(centre + scale + 0.5);
        first = first < 0 ? 0 : first;
        last = last > from ? from : last;
        float *weight = f->weight + (size_t)i * (size_t)f->taps;
        for (int j = first; j < last; j++) {
            double w = 1 - fabs((j + 0.5 - centre) / scale);
            weight[j - first] = (float)(w > 0 ? w : 0);
            sum += w > 0 ? w : 0;
        }
        for (int j = 0; j < last - first; j++) weight[j] = (float)(weight[j] / sum);
        f->first[i] = first;
        f->count[i] = last - first;
    }
}

static pare_status filter_make(pare_ctx *ctx, filter *f, int from, int to)
{
    double ratio = (double)from / to;
    f->taps = 2 * (int)ceil(ratio > 1 ? ratio : 1) + 2;
    f->first = pare_alloc(ctx, (size_t)to, sizeof *f->first);
    f->count = pare_alloc(ctx, (size_t)to, sizeof *f->count);
    f->weight = pare_alloc(ctx, (size_t)to * (size_t)f->taps, sizeof *f->weight);
    if (!f->first || !f->count || !f->weight) return PARE_MEMORY;
    filter_fill(f, from, to);
    return PARE_OK;
}

static uint8_t round_pixel(float v) { return (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v + 0.5f); }

/* (height, from, 3) -> (height, to, 3) */
static void resize_rows(const filter *f, const uint8_t *in, int height, int from, int to,
                        uint8_t *out)
{
    for (int y = 0; y < height; y++, in += 3 * (size_t)from)
        for (int i = 0; i < to; i++, out += 3) {
            const uint8_t *p = in + 3 * (size_t)f->first[i];
            const float *w = f->weight + (size_t)i * (size_t)f->taps;
            float sum[3] = {0};
            for (int j = 0; j < f->count[i]; j++, p += 3)
                for (int c = 0; c < 3; c++) sum[c] += w[j] * (float)p[c];
            for (int c = 0; c < 3; c++) out[c] = round_pixel(sum[c]);
        }
}

/* (from, line) -> (to, line); sum: line floats */
static void resize_columns(const filter *f, const uint8_t *in, int to, size_t line, float *sum,
                           uint8_t *out)
{
    for (int i = 0; i < to; i++, out += line) {
        const float *w = f->weight + (size_t)i * (size_t)f->taps;
        memset(sum, 0, line * sizeof *sum);
        for (int j = 0; j < f->count[i]; j++) {
            const uint8_t *p = in + (size_t)(f->first[i] + j) * line;
            for (size_t x = 0; x < line; x++) sum[x] += w[j] * (float)p[x];
        }
        for (size_t x = 0; x < line; x++) out[x] = round_pixel(sum[x]);
    }
}

pare_status pare_image_resize(pare_ctx *ctx, pare_image *out, const pare_image *in, int width,
                              int height)
{
    filter across = {0}, down = {0};
    size_t line = 3 * (size_t)width;
    *out = (pare_image){.width = width, .height = height};
    uint8_t *middle = pare_alloc(ctx, (size_t)in->height, line);
    float *sum = pare_alloc(ctx, line, sizeof *sum);
    out->rgb = pare_alloc(ctx, (size_t)height, line);
    pare_status st = middle && sum && out->rgb ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) st = filter_make(ctx, &across, in->width, width);
    if (st == PARE_OK) st = filter_make(ctx, &down, in->height, height);
    if (st == PARE_OK) {
        resize_rows(&across, in->rgb, in->height, in->width, width, middle);
        resize_columns(&down, middle, height, line, sum, out->rgb);
    } else {
        pare_free(out->rgb);
        out->rgb = NULL;
    }
    filter_free(&across);
    filter_free(&down);
    pare_free(middle);
    pare_free(sum);
    return st;
}
