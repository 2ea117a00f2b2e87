# SPDX-License-Identifier: Apache-2.0
"""INT8 models that were trained: the checker takes them, they are standard ONNX whose nodes, names and constants'
types are those of the file that pare quantize makes; ONNX Runtime gives the same integers and classes; a float
student that nothing is learnt from comes out as pare quantize writes it, byte for byte but for the manifest; kept
zeros are kept."""
import json
import pathlib
import tempfile

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from _lib import ZOO, check, finish, ort_session, pare, pare_outputs, report

rng = np.random.default_rng(5)
SAMPLES = 256


def data(path):
    x = np.clip(rng.standard_normal((SAMPLES, 1, 28, 28)).astype(np.float32), -0.81, 2.02)
    with h5py.File(path, 'w') as f:
        f.create_dataset('input', data=x, chunks=(16, 1, 28, 28), compression='gzip')
        f.create_dataset('filler', data=np.zeros(4096, np.uint8))
    return x


def train(net, student, source, out, *options):
    """Facts of a short training on a teacher's outputs."""
    facts = out.with_suffix('.json')
    pare('distill', '--teacher', ZOO / f'{net}.onnx', '--student', student, '--data', source, '--val', source, '--qat', 'int8',
         '-o', out, '--batch', '16', '--quiet', '--json', facts, *options)
    return json.loads(facts.read_text())


def without_manifest(path):
    model = onnx.load(path)
    del model.metadata_props[:]
    return model.SerializeToString()


def form(path):
    """What training may not change: nodes, names, types and sizes of constants."""
    graph = onnx.load(path).graph
    return ([(n.op_type, n.domain, n.name, tuple(n.input), tuple(n.output)) for n in graph.node],
            [(i.name, i.data_type, tuple(i.dims)) for i in graph.initializer])


def integers(path, into):
    """The file with the integers after every QuantizeLinear of a computed tensor as outputs; their names."""
    model = onnx.load(path)
    made = {o for n in model.graph.node for o in n.output}
    types = {i.name: i.data_type for i in model.graph.initializer}
    names = []
    for node in model.graph.node:
        if node.op_type == 'QuantizeLinear' and node.input[0] in made:
            kind = types[node.input[2]] if len(node.input) > 2 else TensorProto.UINT8
            model.graph.output.append(helper.make_tensor_value_info(node.output[0], kind, None))
            names.append(node.output[0])
    onnx.save(model, into)
    return names


def apart(path, x, folder):
    """Steps between our integers and ONNX Runtime's: of the first tensor, and the share of all that differ."""
    shown = folder / 'integers.onnx'
    names = integers(path, shown)
    mine = pare_outputs(shown, {'input': x})
    its = dict(zip(names, ort_session(shown, literal=True).run(names, {'input': x})))
    steps = [np.abs(mine[n].astype(int) - its[n].astype(int)) for n in names]
    return steps[0], sum(int((s > 0).sum()) for s in steps) / sum(s.size for s in steps)


def compare(name, out, plain, x, folder):
    """Where integers are apart, not many more of them than in the file of pare quantize (roundings to the other side of
    a tie, which the layers after carry on)."""
    onnx.checker.check_model(str(out), full_check=True)
    pare('check', out, '--quiet')
    got = pare_outputs(out, {'input': x})['logits']
    expected = ort_session(out, literal=True).run(None, {'input': x})[0]
    far = np.abs(got - expected).max() / np.abs(expected).max()
    check(f'{name}/outputs', far < 0.05, f'apart by {far:.4f}')
    check(f'{name}/classes', (got.argmax(1) == expected.argmax(1)).mean() >= 0.96, 'other classes')
    first, differ = apart(out, x, folder)
    check(f'{name}/first-integers', first.max() <= 1 and first.mean() <= 2e-4, f'{first.max()} steps, {first.mean():.1e} on average')
    _, usual = apart(plain, x, folder)
    check(f'{name}/all-integers', differ <= 3 * usual + 0.002, f'{100 * differ:.2f} % differ, {100 * usual:.2f} % before')


def one(net, word, options, x, folder, source):
    name, model = f'{net}/{word}', folder / f'{net}.onnx'
    plain, out, still = folder / 'plain.onnx', folder / 'out.onnx', folder / 'still.onnx'
    learn = ['--steps', '8', '--lr', '1e-4', '--loss', 'mse']
    pare('prune', ZOO / f'{net}.onnx', '-o', model, '--macs', '0.8', '--quiet')
    pare('quantize', model, '-o', plain, '--data', source, '--quiet', *options)
    train(net, model, source, still, '--steps', '1', '--lr', '0', *options)
    check(f'{name}/untrained', without_manifest(plain) == without_manifest(still), 'it is not what pare quantize writes')
    facts = train(net, model, source, out, *learn, *options)
    check(f'{name}/learnt', facts['best_step'] > 0 and facts['after']['loss'] < facts['before']['loss'], str(facts['after']))
    check(f'{name}/form', form(out) == form(plain), 'other nodes or constants than before the training')
    check(f'{name}/trained', without_manifest(out) != without_manifest(plain), 'nothing changed')
    keys = {p.key: p.value for p in onnx.load(out).metadata_props}
    check(f'{name}/manifest', {'pare.version', 'pare.recipe', 'pare.ranges_hash', 'pare.source_hash', 'pare.data_hash'} <= keys.keys()
          and 'qat=int8' in keys['pare.recipe'], str(keys))
    compare(name, out, plain, x, folder)
    if net not in ('mlp', 'cnn'):
        return
    again = folder / 'again.onnx'
    facts = train(net, plain, source, again, *learn, '--qat-scales', 'fixed')
    check(f'{name}/calibrated/form', form(again) == form(plain), 'other nodes or constants than before the training')
    check(f'{name}/calibrated/learnt', facts['best_step'] > 0, str(facts['after']))
    compare(f'{name}/calibrated', again, plain, x, folder)


def zeros(folder, source):
    """A pruned student's zeros, and those of the same student quantized."""
    sparse, quantized = folder / 'sparse.onnx', folder / 'quantized.onnx'
    pare('prune', ZOO / 'mlp.onnx', '-o', sparse, '--sparsity', '0.6', '--quiet')
    pare('quantize', sparse, '-o', quantized, '--data', source, '--quiet')
    gone = {n: a == 0 for n, a in weights(sparse).items()}
    for word, student, options, kept in (('float', sparse, [], True), ('int8', quantized, ['--zeros', 'keep'], True),
                                         ('int8-trained', quantized, [], False)):
        out = folder / 'zeros.onnx'
        train('mlp', student, source, out, '--steps', '12', '--lr', '3e-4', '--loss', 'mse', *options)
        stay = all((a[gone[n.removesuffix('_quantized')]] == 0).all() for n, a in weights(out).items())
        check(f'zeros/{word}', stay == kept, 'kept' if stay else 'lost')


def weights(path):
    return {i.name: numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer if len(i.dims) > 1}


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    source = folder / 'data.h5'
    x = data(source)[:32]
    for net, word in (('mlp', 's8'), ('mlp', 'u8'), ('cnn', 's8'), ('cnn', 'u8'), ('resnet', 's8'), ('mobilenet', 'u8'), ('vit', 's8')):
        try:
            one(net, word, ['--activations', word], x, folder, source)
        except Exception as error:  # the test continues with the next file
            report('FAIL', f'{net}/{word}', str(error).splitlines()[-1][:300])
    zeros(folder, source)
finish()
