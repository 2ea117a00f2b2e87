/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures that tests make, written by libpng and libjpeg. */
#ifndef PARE_TESTS_FORMATS_PICTURES_H
#define PARE_TESTS_FORMATS_PICTURES_H

#include "formats/data/image.h"

/* What paint paints. */
uint8_t pixel(int x, int y, int c);
/* Free rgb with free. */
void paint(pare_image *image, int width, int height);

/* gray: one byte a pixel instead of three; alpha: four. Else RGB. */
typedef enum png_kind { PNG_OF_RGB, PNG_OF_GRAY, PNG_OF_RGBA } png_kind;
void write_png(const char *path, const pare_image *image, png_kind kind);
/* Of quality 100, no channel is halved. */
void write_jpeg(const char *path, const pare_image *image);
/* Of 190 scans: each coefficient of each component is one. */
void write_jpeg_scans(const char *path, const pare_image *image);
#endif
