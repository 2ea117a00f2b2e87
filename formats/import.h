/* SPDX-License-Identifier: Apache-2.0 */
/* Importers: IDX, NPY and folders of images to an HDF5 data set (data.h). Samples are streamed;
   memory does not grow with their number. The file appears when all of it is written. */
#ifndef PARE_FORMATS_IMPORT_H
#define PARE_FORMATS_IMPORT_H

#include "runtime/base/ctx.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_import_options {
    const char *name;        /* of the dataset; NULL: "input" */
    const float *mean, *std; /* of uint8 data, one per channel; NULL: 0 and 1 */
    int channels;            /* of mean and std: 1, or as many as the data has */
    const char *layout;      /* how images are stored: "nchw" (also NULL) or "nhwc" */
    int resize, crop;        /* images: shorter side after resizing, side of the centre square */
    int threads;             /* that decode images; 0: one */
    void (*progress)(void *user, int64_t done, int64_t all);
    void *progress_user;
} pare_import_options;

/* One thread, mean 0, std 1. */
void pare_import_options_init(pare_import_options *out);

/* IDX files (.gz allowed), values then labels; labels may be NULL. Images (N, H, W) get a channel
   axis: (N, 1, H, W). PARE_INPUT: not IDX, cut, different counts. */
PARE_NODISCARD pare_status pare_import_idx(pare_ctx *ctx, const char *path, const char *values,
                                           const char *labels, const pare_import_options *options);

/* NPY files, values (N, ...) then integer labels (N); labels may be NULL. */
PARE_NODISCARD pare_status pare_import_npy(pare_ctx *ctx, const char *path, const char *values,
                                           const char *labels, const pare_import_options *options);

/* A folder of class folders of PNG and JPEG files: uint8 RGB. A label is the number of its folder
   in byte order of names. The shorter side is resized (bilinear, antialiased), the centre is cut
   out. A broken image is named. */
PARE_NODISCARD pare_status pare_import_images(pare_ctx *ctx, const char *path, const char *folder,
                                              const pare_import_options *options);

/* Fashion-MNIST from Debian's package dataset-fashion-mnist (or another folder with its four files;
   NULL: where the package puts them): folder/train.h5 and folder/test.h5, dataset `input`
   uint8 (N, 1, 28, 28) with mean 0.2860 and std 0.3530. The folder is made where it is missing. */
PARE_NODISCARD pare_status pare_data_fashion_mnist(pare_ctx *ctx, const char *folder,
                                                   const char *source,
                                                   const pare_import_options *options);

#ifdef __cplusplus
}
#endif
#endif
