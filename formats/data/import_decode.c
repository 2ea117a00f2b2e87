/* SPDX-License-Identifier: Apache-2.0 */
/* Images as pixels: decoding and resizing. PNG is read through libpng, JPEG through libjpeg. Both
   report errors by a jump, which ends inside the two functions here; what they allocate before it
   is kept where the landing side finds it. */
#include "formats/data/image.h"
#include "formats/file.h"
#include "runtime/base/size.h"

#include <stdio.h>
#include <jerror.h>
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <string.h>
#include <jpeglib.h>

/* --- decoding --- */

static pare_status fail_image(pare_ctx *ctx, const char *path, const char *kind, const char *reason)
{
    return PARE_FAIL(ctx, INPUT, "%s: broken %s image: %s; mend it or take it out of the folder",
                     path, kind, reason);
}

static pare_status image_alloc(pare_ctx *ctx, pare_image *image, uint64_t width, uint64_t height)
{
    if (width < 1 || height < 1 || width > INT32_MAX / 4 || height > PARE_IMAGE_MAX_PIXELS / width)
        return PARE_INPUT;
    image->width = (int)width;
    image->height = (int)height;
    image->rgb = pare_alloc(ctx, (size_t)(width * height), 3);
    return image->rgb ? PARE_OK : PARE_MEMORY;
}

/* --- PNG --- */

typedef struct png_job {
    pare_ctx *ctx;
    pare_image *image;
    const uint8_t *data;
    size_t left;
    uint8_t **row;
    pare_status status;
    char reason[128];
} png_job;

static void png_failed(png_structp png, png_const_charp text)
{
    png_job *job = png_get_error_ptr(png);
    snprintf(job->reason, sizeof job->reason, "%s", text);
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
    if (setjmp(png_jmpbuf(png))) {
        job->status = job->status == PARE_OK ? PARE_INPUT : job->status;
        return;
    }
    png_set_read_fn(png, job, png_take);
    png_set_user_limits(png, 1 << 20, 1 << 20);
    png_read_info(png, info);
    png_make_rgb(png, info);
    uint32_t width = png_get_image_width(png, info), height = png_get_image_height(png, info);
    if (png_get_rowbytes(png, info) != 3 * (size_t)width) png_error(png, "its pixels are not RGB");
    job->status = image_alloc(job->ctx, job->image, width, height);
    if (job->status == PARE_OK && !(job->row = pare_alloc(job->ctx, height, sizeof *job->row)))
        job->status = PARE_MEMORY;
    if (job->status != PARE_OK) png_error(png, "its size is too large");
    for (uint32_t y = 0; y < height; y++) job->row[y] = job->image->rgb + 3 * (size_t)width * y;
    png_read_image(png, job->row);
    png_read_end(png, NULL);
}

static pare_status decode_png(pare_ctx *ctx, pare_image *out, const char *path, const uint8_t *data,
                              size_t bytes)
{
    png_job job = {.ctx = ctx, .image = out, .data = data, .left = bytes};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &job, png_failed, png_warned);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    *out = (pare_image){0};
    if (info)
        png_run(&job, png, info);
    else
        job.status = PARE_FAIL(ctx, MEMORY, "out of memory: starting libpng");
    png_destroy_read_struct(&png, &info, NULL);
    pare_free(job.row);
    if (job.status == PARE_OK) return PARE_OK;
    pare_free(out->rgb);
    out->rgb = NULL;
    return job.status == PARE_MEMORY ? PARE_MEMORY : fail_image(ctx, path, "PNG", job.reason);
}

/* --- JPEG --- */

typedef struct jpeg_job {
    struct jpeg_error_mgr manager; /* first: libjpeg hands out its address */
    jmp_buf landing;
    pare_ctx *ctx;
    pare_image *image;
    uint8_t *line;
    pare_status status;
    char reason[JMSG_LENGTH_MAX];
} jpeg_job;

static void jpeg_failed(j_common_ptr info)
{
    jpeg_job *job = (jpeg_job *)info->err;
    info->err->format_message(info, job->reason);
    longjmp(job->landing, 1);
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

static void jpeg_run(jpeg_job *job, struct jpeg_decompress_struct *info, const uint8_t *data,
                     size_t bytes)
{
    if (setjmp(job->landing)) {
        job->status = job->status == PARE_OK ? PARE_INPUT : job->status;
        return;
    }
    jpeg_create_decompress(info);
    jpeg_mem_src(info, data, (unsigned long)bytes);
    jpeg_read_header(info, TRUE);
    bool four = info->num_components == 4;
    info->out_color_space = four ? JCS_CMYK : JCS_RGB;
    job->status = image_alloc(job->ctx, job->image, info->image_width, info->image_height);
    if (four && job->status == PARE_OK && !(job->line = pare_alloc(job->ctx, info->image_width, 4)))
        job->status = PARE_MEMORY;
    if (job->status != PARE_OK) ERREXIT(info, JERR_WIDTH_OVERFLOW);
    jpeg_start_decompress(info);
    while (info->output_scanline < info->output_height) {
        uint8_t *row = job->image->rgb + 3 * (size_t)info->output_width * info->output_scanline;
        JSAMPROW rows[1] = {four ? job->line : row};
        jpeg_read_scanlines(info, rows, 1);
        if (four) cmyk_to_rgb(job->line, row, (int)info->output_width);
    }
    jpeg_finish_decompress(info);
}

static pare_status decode_jpeg(pare_ctx *ctx, pare_image *out, const char *path,
                               const uint8_t *data, size_t bytes)
{
    jpeg_job job = {.ctx = ctx, .image = out};
    struct jpeg_decompress_struct info = {.err = jpeg_std_error(&job.manager)};
    job.manager.error_exit = jpeg_failed;
    job.manager.emit_message = jpeg_said;
    *out = (pare_image){0};
    jpeg_run(&job, &info, data, bytes);
    jpeg_destroy_decompress(&info);
    pare_free(job.line);
    if (job.status == PARE_OK) return PARE_OK;
    pare_free(out->rgb);
    out->rgb = NULL;
    return job.status == PARE_MEMORY ? PARE_MEMORY : fail_image(ctx, path, "JPEG", job.reason);
}

/* --- either --- */

pare_status pare_image_read(pare_ctx *ctx, pare_image *out, const char *path)
{
    pare_map map;
    PARE_TRY(pare_map_open(ctx, &map, path));
    pare_status st;
    if (map.size >= 8 && !memcmp(map.data, "\x89PNG\r\n\x1a\n", 8))
        st = decode_png(ctx, out, path, map.data, map.size);
    else if (map.size >= 3 && !memcmp(map.data, "\xff\xd8\xff", 3))
        st = decode_jpeg(ctx, out, path, map.data, map.size);
    else
        st = PARE_FAIL(ctx, INPUT,
                       "%s: is neither PNG nor JPEG; mend it or take it out of the folder", path);
    pare_map_close(&map);
    return st;
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
