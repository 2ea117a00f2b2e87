/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/formats/pictures.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <jpeglib.h>
#include <png.h>

uint8_t pixel(int x, int y, int c) { return (uint8_t)((x * 37 + y * 53 + c * 91) % 256); }

void paint(pare_image *image, int width, int height)
{
    *image = (pare_image){width, height, malloc((size_t)(width * height * 3))};
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++) image->rgb[(y * width + x) * 3 + c] = pixel(x, y, c);
}

void write_png(const char *path, const pare_image *image, png_kind kind)
{
    static const png_uint_32 formats[] = {PNG_FORMAT_RGB, PNG_FORMAT_GRAY, PNG_FORMAT_RGBA};
    png_image png = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)image->width,
                     .height = (png_uint_32)image->height,
                     .format = formats[kind]};
    assert_true(png_image_write_to_file(&png, path, 0, image->rgb, 0, NULL));
}

static void compress(const char *path, const pare_image *image, const jpeg_scan_info *scans,
                     int scan_count)
{
    struct jpeg_error_mgr error;
    struct jpeg_compress_struct info = {.err = jpeg_std_error(&error)};
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    jpeg_create_compress(&info);
    jpeg_stdio_dest(&info, f);
    info.image_width = (JDIMENSION)image->width;
    info.image_height = (JDIMENSION)image->height;
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 100, TRUE);
    info.scan_info = scans;
    info.num_scans = scan_count;
    for (int i = 0; i < 3; i++)
        info.comp_info[i].h_samp_factor = info.comp_info[i].v_samp_factor = 1;
    jpeg_start_compress(&info, TRUE);
    for (int y = 0; y < image->height; y++) {
        JSAMPROW row = image->rgb + 3 * y * image->width;
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    fclose(f);
}

void write_jpeg(const char *path, const pare_image *image) { compress(path, image, NULL, 0); }

void write_jpeg_scans(const char *path, const pare_image *image)
{
    static jpeg_scan_info scans[190];
    scans[0] = (jpeg_scan_info){.comps_in_scan = 3, .component_index = {0, 1, 2}};
    for (int i = 0; i < 189; i++)
        scans[i + 1] = (jpeg_scan_info){
            .comps_in_scan = 1, .component_index = {i / 63}, .Ss = i % 63 + 1, .Se = i % 63 + 1};
    compress(path, image, scans, 190);
}
