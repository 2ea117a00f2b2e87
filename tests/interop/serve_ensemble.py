# SPDX-License-Identifier: Apache-2.0
"""Pictures, labels and ensembles of pare serve against Triton's own HTTP client: pixels are those of a data set of the
same pictures, classes have labels, steps run in batches, and a model that goes makes its ensembles unready."""
import io
import json
import os
import struct
import sys
import tempfile
import threading
import zlib

import h5py
import numpy as np
from onnx import TensorProto, helper

from _lib import check, finish, pare, report

try:
    import tritonclient.http as triton
    import tritonclient.utils.shared_memory as shm
    from tritonclient.utils import serialize_byte_tensor
except ImportError as why:
    report('SKIP', 'serve_ensemble', f'needs tritonclient[http]: {why}')
    sys.exit(0)
try:
    from PIL import Image
except ImportError:
    Image = None
from _serve import Server, inputs_of, refuses, rng, save

SIDE = 8
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
SCALED = 'resize 10, crop 8, mean 0.485 0.456 0.406, std 0.229 0.224 0.225'


def png(pixels):
    """The pixels (height, width, 3) as a PNG file."""
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    height, width, _ = pixels.shape
    rows = b''.join(b'\0' + row.tobytes() for row in pixels)
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)) +
            chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


def jpeg(pixels, **how):
    made = io.BytesIO()
    Image.fromarray(pixels).save(made, 'JPEG', **how)
    return made.getvalue()


def make_pictures():
    """name -> bytes, of different sizes and kinds."""
    def some(height, width):
        return rng.integers(0, 256, (height, width, 3), np.uint8)
    pictures = {'a.png': png(some(12, 20)), 'b.png': png(some(31, 9)), 'c.png': png(some(3, 3))}
    if not Image:
        report('SKIP', 'jpeg', 'needs Pillow')
        return pictures
    pictures |= {'d.jpg': jpeg(some(40, 64), quality=80), 'e.jpg': jpeg(some(17, 17), progressive=True)}
    grey = io.BytesIO()
    Image.fromarray(some(11, 14)).convert('LA').save(grey, 'PNG')
    cmyk = io.BytesIO()
    Image.fromarray(some(13, 12)).convert('CMYK').save(cmyk, 'JPEG')
    return pictures | {'f.png': grey.getvalue(), 'g.jpg': cmyk.getvalue()}


def of_data_set(folder, pictures):
    """What a data set of the pictures gives a model: (N, 3, SIDE, SIDE) floats."""
    os.makedirs(os.path.join(folder, 'set', 'x'))
    for name, content in pictures.items():
        with open(os.path.join(folder, 'set', 'x', name), 'wb') as f:
            f.write(content)
    path = os.path.join(folder, 'set.h5')
    pare('data', 'import', '-q', '-o', path, '--images', os.path.join(folder, 'set'), '--resize', 10, '--crop', SIDE)
    with h5py.File(path) as f:
        pixels = f['input'][:].astype(np.float32)
    return (pixels / np.float32(255) - MEAN[:, None, None]) / STD[:, None, None]


def config(folder, name, text):
    os.makedirs(os.path.join(folder, name), exist_ok=True)
    with open(os.path.join(folder, name, 'config.pbtxt'), 'w', encoding='utf-8') as f:
        f.write(text)


def make_repository(folder):
    """pixels gives the pixels it gets; twice and square are of floats; colors are the means of channels, with labels;
    picture_colors is pixels, then colors; diamond is twice and square side by side, then their sum."""
    f = TensorProto.FLOAT
    square = ['n', 3, SIDE, SIDE]
    save(folder, 'pixels', [helper.make_node('Identity', ['image'], ['same'])], [('image', f, square)], [('same', f, square)])
    config(folder, 'pixels', 'max_batch_size: 16 dynamic_batching { max_queue_delay_microseconds: 2000 }\n'
           'input { name: "image" data_type: TYPE_STRING dims: 1 }\n'
           f'parameters {{ key: "preprocess" value {{ string_value: "{SCALED}" }} }}')
    save(folder, 'colors', [helper.make_node('GlobalAveragePool', ['x'], ['m']), helper.make_node('Flatten', ['m'], ['y'])],
         [('x', f, square)], [('y', f, ['n', 3])])
    labels = 'output { name: "%s" data_type: TYPE_FP32 dims: 3 label_filename: "labels.txt" }'
    config(folder, 'colors', 'max_batch_size: 16 dynamic_batching { }' + labels % 'y')
    config(folder, 'picture_colors', 'platform: "ensemble" max_batch_size: 8\n'
           'input { name: "picture" data_type: TYPE_STRING dims: 1 }\n' + labels % 'color' + '''
           output { name: "pixels" data_type: TYPE_FP32 dims: [3, 8, 8] }
           ensemble_scheduling { step [
             { model_name: "colors" model_version: 1
               input_map { key: "x" value: "pixels" } output_map { key: "y" value: "color" } },
             { model_name: "pixels" model_version: -1
               input_map { key: "image" value: "picture" } output_map { key: "same" value: "pixels" } } ] }''')
    for name in 'colors', 'picture_colors':
        with open(os.path.join(folder, name, 'labels.txt'), 'w', encoding='utf-8') as out:
            out.write('red\ngrün\nblue\n')
    row = ['n', 4]
    save(folder, 'twice', [helper.make_node('Add', ['a', 'a'], ['y'])], [('a', f, row)], [('y', f, row)])
    save(folder, 'square', [helper.make_node('Mul', ['a', 'a'], ['y'])], [('a', f, row)], [('y', f, row)])
    save(folder, 'sum', [helper.make_node('Add', ['a', 'b'], ['y'])], [('a', f, row), ('b', f, row)], [('y', f, row)])
    config(folder, 'diamond', '''max_batch_size: 8
        input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "z" data_type: TYPE_FP32 dims: 4 }
        ensemble_scheduling { step [
          { model_name: "twice" input_map { key: "a" value: "x" } output_map { key: "y" value: "t" } },
          { model_name: "square" input_map { key: "a" value: "x" } output_map { key: "y" value: "s" } },
          { model_name: "sum" input_map [ { key: "a" value: "t" }, { key: "b" value: "s" } ]
            output_map { key: "y" value: "z" } } ] }''')


def infer(client, model, arrays, outputs=None, binary=True):
    return client.infer(model, inputs_of(triton, arrays, binary_data=True), outputs=[
        triton.InferRequestedOutput(name, binary_data=binary, class_count=classes)
        for name, classes in (outputs or {}).items()] or None)


def strings(contents):
    return np.array([[one] for one in contents], object)


def pixels(server, pictures, want):
    client = server.client
    meta = client.get_model_metadata('pixels')
    check('picture_metadata', meta['inputs'] == [{'name': 'image', 'datatype': 'BYTES', 'shape': [-1, 1]}], meta)
    text = client.get_model_config('pixels')['parameters']['preprocess']['string_value']
    check('picture_config', text == SCALED, text)
    got = infer(client, 'pixels', {'image': strings(pictures.values())}).as_numpy('same')
    check('pixels_of_a_batch', got.tobytes() == want.tobytes(), 'they differ from those of pare data import')
    for i, (name, content) in enumerate(pictures.items()):
        got = infer(client, 'pixels', {'image': strings([content])}).as_numpy('same')
        check(f'pixels_{name}', got.tobytes() == want[i].tobytes(), 'they differ from those of pare data import')
    status, _, body = server.raw('POST', '/v2/models/pixels/infer', pictures['a.png'],
                                 {'Inference-Header-Content-Length': '0'})
    got = np.float32(json.loads(body)['outputs'][0]['data']) if status == 200 else np.zeros(0)
    check('pixels_of_a_body', np.array_equal(got, want[0].ravel()), body[:200])
    content = pictures['a.png']
    for name, wrong, words in [
            ('cut', content[:-20], 'picture 1: broken PNG image'), ('text', b'no picture', 'picture 1: is neither PNG'),
            ('empty', b'', 'picture 1: is neither PNG'),
            ('bomb', png(np.zeros((1, 1, 3), np.uint8)).replace(struct.pack('>II', 1, 1), struct.pack('>II', 60000, 60000)),
             'picture 1: broken PNG image')]:
        refuses(f'picture_{name}', words, lambda w=wrong: infer(client, 'pixels', {'image': strings([content, w])}))


def labels(server):
    client = server.client
    x = np.zeros((2, 3, SIDE, SIDE), np.float32)
    x[0, 1], x[1, 2] = 1, 2
    for binary in False, True:
        got = infer(client, 'colors', {'x': x}, {'y': 2}, binary).as_numpy('y')
        got = [[one.decode() if isinstance(one, bytes) else one for one in row] for row in got]
        check(f'labels_binary_{binary}', [row[0].split(':')[1:] for row in got] == [['1', 'grün'], ['2', 'blue']], got)


def ensembles(server, pictures, want):
    client = server.client
    listed = client.get_model_config('picture_colors')
    check('ensemble_config', listed['platform'] == 'ensemble' and listed['max_batch_size'] == 8 and
          listed['ensemble_scheduling']['step'][1]['input_map'] == {'image': 'picture'}, listed)
    check('ensemble_metadata', client.get_model_metadata('picture_colors')['platform'] == 'ensemble')
    some = list(pictures.values())
    got = infer(client, 'picture_colors', {'picture': strings(some)})
    check('ensemble_pixels', got.as_numpy('pixels').tobytes() == want.tobytes(), 'another result')
    alone = infer(client, 'colors', {'x': want}).as_numpy('y')
    check('ensemble_color', got.as_numpy('color').tobytes() == alone.tobytes(), 'another result')
    got = infer(client, 'picture_colors', {'picture': strings(some[:1])}, {'color': 1}).as_numpy('color')
    best = int(alone[0].argmax())
    check('ensemble_label', got[0, 0].decode().endswith(f':{best}:' + ['red', 'grün', 'blue'][best]), got)
    refuses('ensemble_failure', "model 'picture_colors': step 1: model 'pixels'|picture 0",
            lambda: infer(client, 'picture_colors', {'picture': strings([b'x'])}))
    refuses('ensemble_samples', 'expected 1 to 8', lambda: infer(client, 'diamond', {'x': np.zeros((9, 4), np.float32)}))


def concurrency(server):
    """Steps of many clients run together, and every client gets its own result."""
    broken = []

    def work(t):
        with triton.InferenceServerClient(server.url) as client:
            for i in range(40):
                x = np.float32([[t, i, t * i, 1]] * (1 + i % 3)) / 8
                got = infer(client, 'diamond', {'x': x}).as_numpy('z')
                if got.tobytes() != (x + x + x * x).tobytes():
                    broken.append((t, i))
    workers = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    check('concurrent_results', not broken, broken[:3])
    for name in 'diamond', 'twice', 'square', 'sum':
        stats = server.client.get_inference_statistics(name)['model_stats'][0]
        count = stats['inference_stats']['success']['count']
        check(f'concurrent_{name}', count == 320, stats)


def shared_memory(server, pictures, want):
    """Inputs and outputs of ensembles in shared memory, numbers and strings."""
    client = server.client
    x = rng.standard_normal((3, 4)).astype(np.float32)
    content = strings([pictures['a.png']])
    packed = len(content[0, 0]) + 4
    regions = {'x': x.nbytes, 'z': x.nbytes, 'picture': packed, 'pixels': want[0].nbytes}
    handles = {}
    for name, size in regions.items():
        handles[name] = shm.create_shared_memory_region(name, f'/pare_{os.getpid()}_{name}', size)
        client.register_system_shared_memory(name, f'/pare_{os.getpid()}_{name}', size)
    shm.set_shared_memory_region(handles['x'], [x])
    shm.set_shared_memory_region(handles['picture'], [serialize_byte_tensor(content)])
    for model, name, array, out, result in [
            ('diamond', 'x', x, 'z', x + x + x * x), ('picture_colors', 'picture', content, 'pixels', want[:1])]:
        given = triton.InferInput(name, list(array.shape), 'BYTES' if array.dtype == object else 'FP32')
        given.set_shared_memory(name, regions[name])
        asked = triton.InferRequestedOutput(out)
        asked.set_shared_memory(out, regions[out])
        client.infer(model, [given], outputs=[asked])
        got = shm.get_contents_as_numpy(handles[out], np.float32, list(result.shape))
        check(f'shared_memory_{model}', got.tobytes() == result.tobytes(), 'another result')
    client.unregister_system_shared_memory()
    for handle in handles.values():
        shm.destroy_shared_memory_region(handle)


def unloading(server):
    client = server.client
    client.unload_model('square')
    check('unready', not client.is_model_ready('diamond') and client.is_model_ready('picture_colors'))
    index = {one['name']: one for one in client.get_model_repository_index()}
    check('unready_reason', index['diamond']['state'] == 'UNAVAILABLE' and 'square' in index['diamond']['reason'], index)
    refuses('unready_infer', 'diamond', lambda: infer(client, 'diamond', {'x': np.zeros((1, 4), np.float32)}))
    refuses('unready_load', "step 1: model 'square' is not ready", lambda: client.load_model('diamond'))
    client.load_model('square')
    check('ready_again', client.is_model_ready('diamond'))
    x = np.float32([[1, 2, 3, 4]])
    got = infer(client, 'diamond', {'x': x}).as_numpy('z')
    check('ready_again_result', got.tobytes() == (x + x + x * x).tobytes(), got)


with tempfile.TemporaryDirectory() as made:
    repository = os.path.join(made, 'models')
    make_repository(repository)
    files = make_pictures()
    wanted = of_data_set(made, files)
    main = Server(repository, '--max-delay', '1000', '--shared-memory')
    main.client = triton.InferenceServerClient(main.url, network_timeout=60.0)
    pixels(main, files, wanted)
    labels(main)
    ensembles(main, files, wanted)
    concurrency(main)
    shared_memory(main, files, wanted)
    unloading(main)
    check('end', main.stop() == 0, main.process.stderr.read())
finish()
