/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes and text in and out: ONNX files, data sets, tensors, JSON. */
#ifndef PARE_FORMATS_FORMATS_H
#define PARE_FORMATS_FORMATS_H

#include "formats/data.h"
#include "formats/file.h"
#include "formats/import.h"
#include "formats/json.h"
#include "formats/npy.h"
#include "formats/onnx.h"
#include "formats/picture.h"

#endif
