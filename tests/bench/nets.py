# SPDX-License-Identifier: Apache-2.0
"""The nets that are measured, the images they are fed, and their quantized files."""

import sys
from pathlib import Path

import h5py
import numpy as np

from common import HERE, ROOT, call

sys.path.append(str(ROOT / "datasets" / "zoo"))
import fashion  # noqa: E402

WIDE_MEAN, WIDE_STD = np.float32([.485, .456, .406]), np.float32([.229, .224, .225])
WIDE_SIDE = 224
TRAINED_ON = 60000 - fashion.HELD_OUT  # training images; those after them are held out


class Net:
    """One float model: its file, whether it takes 28x28 or 224x224 images, whether convolutions
    do most of its work, how many images calibrate it here, whether its weights are trained."""

    def __init__(self, name, path, wide, convolutional, samples, trained=True):
        self.name, self.path, self.wide = name, Path(path), wide
        self.convolutional, self.samples, self.trained = convolutional, samples, trained


def all_nets(options):
    """Zoo first; those whose file is absent are left out, with a note."""
    zoo, models, material = options.zoo, options.models, options.material
    nets = [Net(name, zoo / f"{name}.onnx", False, name in ("cnn", "resnet", "mobilenet"), 512)
            for name in ("mlp", "cnn", "resnet", "mobilenet", "vit")]
    if material:
        nets.append(Net("squeezenet1.1", material / "squeezenet1.1" / "squeezenet1.1.onnx", True,
                        True, 64))
    if models:
        nets += [Net("resnet50", models / "resnet50.onnx", True, True, 64, False),
                 Net("mobilenet_v2", models / "mobilenet_v2.onnx", True, True, 64, False),
                 Net("vit_b_16", models / "vit_b_16.onnx", True, False, 8, False)]
    for net in nets:
        if not net.path.exists():
            print(f"left out: {net.name}: {net.path} is not there", file=sys.stderr)
    return [net for net in nets if net.path.exists() and (not options.nets
                                                          or net.name in options.nets)]


# Hard for INT8, as export_nets.py writes them: their weights are random
EXPORTED = ("mobilenetv2_100.dynamo.20", "efficientnet_b0.ts.17", "mobilenetv3_small_100.ts.20")


def exported_nets(options):
    """Those of --exports that are hard for INT8."""
    made = [Net(stem.split(".")[0], options.exports / f"{stem}.onnx", True, True, 64, False)
            for stem in EXPORTED] if options.exports else []
    return [net for net in made if net.path.exists() and (not options.nets or net.name in options.nets)]


def small_nets(options):
    return [net for net in all_nets(options) if not net.wide]


def spread(count, of):
    """count indices, evenly spaced over 0..of-1."""
    return np.linspace(0, of - 1, count).astype(int)


def narrow_images(options, split):
    return fashion.load(split, options.fashion)


def wide_pixels(options, split, count):
    """count images of a split as uint8 (count, 3, 224, 224): nearest of 8 x 8, smoothed once."""
    name = f"{split}-images-idx3-ubyte.gz"
    images = fashion.read_idx(options.fashion / name)
    images = images[spread(count, len(images))].astype(np.float32)
    at = (np.arange(WIDE_SIDE) + 0.5) * 28 / WIDE_SIDE - 0.5
    low = np.clip(np.floor(at), 0, 27).astype(int)
    high = np.minimum(low + 1, 27)
    part = np.clip(at - low, 0, 1).astype(np.float32)
    rows = images[:, low] * (1 - part)[:, None] + images[:, high] * part[:, None]
    both = rows[:, :, low] * (1 - part) + rows[:, :, high] * part
    return np.repeat(np.rint(both).astype(np.uint8)[:, None], 3, axis=1)


def normalise_wide(pixels):
    scaled = pixels.astype(np.float32) / 255
    return (scaled - WIDE_MEAN[:, None, None]) / WIDE_STD[:, None, None]


def float_images(options, net, split, count):
    """count evenly spaced images as the net takes them."""
    if net.wide:
        return normalise_wide(wide_pixels(options, split, count))
    images = narrow_images(options, split)[0]
    return images[spread(count, len(images))]


def data_file(options, net, split, count=None):
    """The HDF5 file of a split for this net; count images, or all (28x28 only)."""
    if not net.wide:
        path = options.work / "data" / ("train.h5" if split == "train" else "test.h5")
        if not path.exists():
            call([options.pare, "data", "fashion-mnist", "-o", path.parent])
        if count is None:
            return path
        return _subset(path, options.work / "data" / f"{split}_{count}.h5",
                       lambda length: np.sort(spread(count, length)))
    path = options.work / "data" / f"{split}_wide_{count}.h5"
    if not path.exists():
        _write_wide(options, path, split, count)
    return path


def held_out_file(options, net):
    """The HDF5 file of the training images that no sample net was trained on (28x28 only)."""
    return _subset(data_file(options, net, "train"), options.work / "data" / "held_out.h5",
                   lambda length: np.arange(TRAINED_ON, length))


def _write_wide(options, path, split, count):
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with h5py.File(part, "w") as file:
        pixels = wide_pixels(options, split, count)
        images = file.create_dataset("images", data=pixels, chunks=(8, *pixels.shape[1:]),
                                     compression="gzip", compression_opts=1)
        images.attrs["mean"], images.attrs["std"] = WIDE_MEAN, WIDE_STD
        images.attrs["layout"] = "nchw"
    part.rename(path)


def _subset(source, path, rows_of):
    """The rows that rows_of names, given how many there are."""
    if not path.exists():
        part = path.with_suffix(".part")
        with h5py.File(source) as old, h5py.File(part, "w") as new:
            for name, data in old.items():
                copy = new.create_dataset(name, data=data[:][rows_of(len(data))], chunks=True,
                                          compression="gzip", compression_opts=1)
                for key, value in data.attrs.items():
                    copy.attrs[key] = value
        part.rename(path)
    return path


def raw_image_file(options, net):
    """One real image as raw floats, for the timing program."""
    path = options.work / "data" / ("wide.raw" if net.wide else "narrow.raw")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        float_images(options, net, "t10k", 4).tofile(path)
    return path


def labels(options):
    return fashion.read_idx(options.fashion / "t10k-labels-idx1-ubyte.gz").astype(np.int64)


def learned_from(options, net):
    """The file of training images that quantizers calibrate on, net.samples of them."""
    return data_file(options, net, "train", net.samples if net.wide else None)


OUR_WORDS = {"s8": (), "u8": ("--activations", "u8"), "fp16": ("--precision", "fp16"),
             "bf16": ("--precision", "bf16")}


def our_command(options, net, path, *words):
    """The command that writes our quantized file of a net."""
    return [options.pare, "quantize", net.path, "-o", path, "--quiet", "--data", learned_from(options, net),
            "--samples", net.samples, *words]


def our_file(options, net, scheme):
    """Our quantized file: scheme s8, u8, fp16, bf16; made at first use, default options."""
    path = options.work / "pare" / scheme / f"{net.name}.onnx"
    if path.exists() and path.stat().st_mtime > Path(options.pare).stat().st_mtime:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    call(our_command(options, net, path, *OUR_WORDS[scheme]))
    return path


def rival_command(options, net, path, script, *words, python=sys.executable):
    """The command by which a rival's script here writes its quantized file of a net."""
    return [python, HERE / script, net.path, path, learned_from(options, net), *words,
            "--samples", net.samples]


def rival_file(options, net, scheme, method):
    """ONNX Runtime's quantized file: scheme u8 or s8 (symmetric), method MinMax, Percentile or
    Entropy; from --rivals where it is, else made at first use."""
    name = f"ort_{scheme}_{method.lower()}"
    for folder in filter(None, (options.rivals, options.work / "rivals")):
        path = folder / name / f"{net.name}.onnx"
        if path.exists():
            return path
    path.parent.mkdir(parents=True, exist_ok=True)
    call(rival_command(options, net, path, "quantize_ort.py", "--method", method,
                       "--scheme", scheme))
    return path


def foreign_files(options, net):
    """Files that other tools quantized, by tool, where --rivals has them."""
    found = {}
    for tool in ("nncf", "modelopt"):
        path = options.rivals / tool / f"{net.name}.onnx" if options.rivals else None
        if path and path.exists():
            found[tool] = path
    return found


