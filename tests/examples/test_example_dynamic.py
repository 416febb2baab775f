"""Networks whose path depends on values: their paths, their losses, canvases, and the program."""

import sys

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

import gluon_edbatch as edb
from example.common import checkpoint as checkpoints
from example.dynamic.blockdrop import _reward
from example.dynamic.canvas import END, LONGEST, SIDE, WORDS, caption_text, draw_canvases
from example.dynamic.compiled import likeness
from example.dynamic.data import images_of, read_splits
from example.dynamic.network import ALWAYS, NEVER
from example.dynamic.networks import NETWORKS, SAMPLE, build, draw_samples, samples
from example.dynamic.task import Figures
from example.dynamic.train import main

CRITERION = gluon.loss.SoftmaxCrossEntropyLoss()
EXITS = ['mobilenet', 'vgg', 'resnet', 'wideresnet']
SKIPPING = ['skipnet-recurrent', 'skipnet-feedforward']
SPEAKING = ['caption-resnext', 'caption-googlenet']
FEW = {name: {'each': 1} for name in (*SKIPPING, 'blockdrop')}  # blocks a stage


def tiny(name, **sizes):
    """With narrow layers; as deep as the table's, unless `sizes` say so."""
    net = build(name, width=4 if name in SPEAKING else 2, **sizes)
    net.hybridize()
    return net


@pytest.fixture(scope='module')
def digits():
    return read_splits(SAMPLE)


def minibatch(name, digits, count):
    chosen = draw_samples(name, digits['train'], 'train', count)
    return mx.nd.array(images_of(chosen)), [sample.target for sample in chosen]


def disturb(net):
    """Statistics as if it had been trained, so that what they are used for shows."""
    for name, param in net.collect_params().items():
        if name.endswith('running_mean'):
            param.set_data(mx.nd.random.normal(0, 0.1, shape=param.shape))


# --- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize('name', NETWORKS)
def test_each_path_can_be_forced(name):
    net, (x, *_) = tiny(name), samples(name, count=1)
    disturb(net)
    free = net(x)
    for path in net.paths():
        net.force(path)
        result = net(x)
        if name in SPEAKING:
            caption, likelihood = result
            assert len(caption) == path and likelihood.shape == (1,)
            continue
        scores, units = result
        always = {'blockdrop': 0}.get(name, 1)  # blocks that always run
        assert units == (path if name in EXITS else always + sum(path))
        assert scores.shape == (1, 10) and np.isfinite(scores.asnumpy()).all()
    net.release()
    for again, before in zip(net(x), free):
        if isinstance(before, mx.nd.NDArray):
            again, before = again.asnumpy().tolist(), before.asnumpy().tolist()
        assert again == before


@pytest.mark.parametrize('name', NETWORKS)
def test_paths_take_each_branch_both_ways(name):
    net = tiny(name, **FEW.get(name, {}))
    if name in SPEAKING:
        assert net.paths() == list(range(1, LONGEST + 3))
        return
    taken = []
    for path in net.paths():
        net.force(path)
        taken.append(net.thresholds)
    assert all(set(branch) == {ALWAYS, NEVER} for branch in zip(*taken))


@pytest.mark.parametrize('name', NETWORKS)
def test_parameters_have_the_same_names_again(name):
    """A trainer keeps its states by their order."""
    one, other = ([each.split('_', 1)[1] for each in tiny(name).collect_params()] for _ in range(2))
    assert one == other and len(set(one)) == len(one)


@pytest.mark.parametrize('name, path', [('vgg', 0), ('vgg', 8), ('blockdrop', [True]),
                                        ('caption-resnext', 0)])  # fmt: skip
def test_there_is_no_such_path(name, path):
    with pytest.raises(ValueError, match='not [0-9]'):
        tiny(name).force(path)


@pytest.mark.parametrize('name', [*EXITS, *SKIPPING, 'blockdrop'])
def test_threshold(name):
    (x, *_), at_once = samples(name, count=1), 1 if name in EXITS else None
    assert tiny(name, threshold=ALWAYS)(x)[1] == (at_once or tiny(name).most)
    low = {'blockdrop': 0}.get(name, 1)
    assert tiny(name, threshold=NEVER)(x)[1] == (tiny(name).most if at_once else low)


# --- losses --------------------------------------------------------------------------------------


def entropy(scores, target):
    return CRITERION(scores, mx.nd.array([target])).asnumpy()


@pytest.mark.parametrize('name', EXITS)
def test_loss_is_of_all_exits(name, digits):
    net, (x, (target,)) = tiny(name), minibatch(name, digits, 1)
    disturb(net)
    expected = 0
    for path, share in zip(net.paths(), (0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1)):
        net.force(path)
        expected += share * entropy(net(x)[0], target)
    found = net.losses(x, [target], CRITERION).asnumpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize('name', SKIPPING)
def test_gates_are_as_hard_in_training(name, digits):
    """A gate that is nearly shut skips the block, with its share of the price."""
    net, (x, (target,)) = tiny(name, each=2, price=0.0), minibatch(name, digits, 1)
    disturb(net)
    parts = [net.recurrent.decide] if name == SKIPPING[0] else [net.gates[1].features[-1]]
    for part in parts:
        part.bias.set_data(mx.nd.array([-0.5]))
    scores, ran = net(x)
    assert ran < net.most
    np.testing.assert_allclose(
        net.losses(x, [target], CRITERION).asnumpy(), entropy(scores, target), rtol=1e-4
    )
    net.price = 1.0
    share = net.losses(x, [target], CRITERION).asnumpy() - entropy(scores, target)
    assert 0.1 < share < 1


@pytest.mark.parametrize('name', SKIPPING)
def test_gates_learn_what_blocks_cost(name, digits):
    net, (x, targets) = tiny(name, each=2, price=50.0), minibatch(name, digits, 4)
    trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 0.1})
    assert net(x[:1])[1] == net.most
    for _ in range(12):
        with autograd.record():
            loss = net.losses(x, targets, CRITERION)
        loss.backward()
        trainer.step(4)
    assert net(x[:1])[1] < net.most


def test_policy_goes_before_the_network(digits):
    net, (x, _) = tiny('blockdrop', each=2), minibatch('blockdrop', digits, 3)
    disturb(net)
    for path in net.paths():
        net.force(path)
        drawn = mx.nd.array([path] * 3)
        one_by_one = np.concatenate([net(x[i : i + 1])[0].asnumpy() for i in range(3)])
        np.testing.assert_allclose(net.masked(x, drawn).asnumpy(), one_by_one, rtol=1e-4, atol=1e-5)


def test_fewer_blocks_earn_more_where_the_answer_is_right():
    scores = mx.nd.array([[0, 1], [0, 1], [0, 1]])
    drawn = mx.nd.array([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]])
    found = _reward(scores, mx.nd.array([1, 1, 0]), drawn)
    np.testing.assert_allclose(found.asnumpy(), [0, 0.75, -5])


def test_policy_learns_to_drop(digits):
    """Where every answer is right, few blocks are best."""
    net, (x, _) = tiny('blockdrop', each=1), minibatch('blockdrop', digits, 32)
    last = net.head[-1]
    last.weight.set_data(mx.nd.zeros(last.weight.shape))
    last.bias.set_data(mx.nd.array([9] + [0] * 9))
    trainer = gluon.Trainer(net.policy.collect_params(), 'adam', {'learning_rate': 0.05})
    before = net.policy(x).asnumpy().mean()
    for _ in range(20):
        with autograd.record():
            loss = net.losses(x, [0] * 32, CRITERION)
        loss.backward()
        trainer.step(32, ignore_stale_grad=True)
    assert net.policy(x).asnumpy().mean() < before - 0.2


@pytest.mark.parametrize('name', SPEAKING)
def test_captions_are_learned(name, digits):
    net, (x, targets) = tiny(name, hidden=32), minibatch(name, digits, 2)
    assert targets[0] != targets[1]
    trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 1e-2})
    losses = []
    for _ in range(60):
        with autograd.record():
            loss = net.losses(x, targets, CRITERION)
        loss.backward()
        trainer.step(2)
        losses.append(loss.mean().asscalar())
    assert losses[-1] < 0.1 * losses[0]
    caption, likelihood = net(x[:1])
    again = net.losses(x[:1], [tuple(caption)], CRITERION)
    np.testing.assert_allclose(-likelihood.asnumpy(), again.asnumpy(), rtol=1e-3, atol=1e-5)


def test_losses_of_captions_do_not_depend_on_longer_ones(digits):
    net, (x, _) = tiny('caption-resnext', hidden=8), minibatch('caption-resnext', digits, 2)
    targets = [(5,), (4, 3, 2)]
    both = net.losses(x, targets, CRITERION).asnumpy()
    alone = [net.losses(x[i : i + 1], targets[i : i + 1], CRITERION).asscalar() for i in (0, 1)]
    np.testing.assert_allclose(both, alone, rtol=1e-4)


@pytest.mark.parametrize('name', ['mobilenet', *SKIPPING, 'blockdrop'])
def test_digits_are_learned(name, digits):
    net, (x, targets) = build(name, width=4, **FEW.get(name, {})), minibatch(name, digits, 32)
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 1e-2})
    found = []
    for _ in range(25):
        with autograd.record():
            loss = net.losses(x, targets, CRITERION)
        loss.backward()
        trainer.step(32)
        with autograd.train_mode():  # by this minibatch's own statistics
            answers = net.masked(x, mx.nd.ones((32, 3))) if name == 'blockdrop' else None
        found.append((loss if answers is None else CRITERION(answers, mx.nd.array(targets))).mean())
    assert found[-1].asscalar() < 0.7 * found[0].asscalar()


# --- data ----------------------------------------------------------------------------------------


def test_splits(digits):
    assert [len(digits[split].labels) for split in ('train', 'dev', 'test')] == [360, 40, 150]
    (sample, *_) = draw_samples('vgg', digits['dev'], 'dev', 3)
    assert sample.image.shape == (1, 32, 32) and sample.image.dtype == np.uint8
    assert not sample.image[0, :2].any() and not sample.image[0, :, -2:].any()
    np.testing.assert_allclose(
        sample.image[0, 2:-2, 2:-2].ravel() / 255, digits['dev'].images[0], atol=1e-3
    )
    assert len(draw_samples('vgg', digits['dev'], 'dev', 99)) == 40


@pytest.mark.parametrize('name', NETWORKS)
def test_inputs_by_name(name):
    inputs = samples(name, count=4)
    side = SIDE if name in SPEAKING else 32
    assert [x.shape for x in inputs] == [(1, 1, side, side)] * 4
    assert all(0 < x.asnumpy().max() <= 1 for x in inputs)


def test_canvases_are_what_captions_say():
    """Each digit is a square with a shade of its own, so that it can be found again."""
    images = np.zeros((10, 28, 28), np.uint8)
    images[:, 4:14, 12:22] = 20 + 20 * np.arange(10)[:, None, None]
    seen = set()
    for canvas, caption in draw_canvases(images, np.arange(10), 200, [7]):
        words = caption_text(caption).split()
        assert END not in caption and 3 <= len(words) <= LONGEST
        numbers = [word - 2 for word in caption if 2 <= word < 12]
        seen.add(' '.join(word for word in words if WORDS.index(word) >= 12))
        if len(set(numbers)) < len(numbers):
            continue
        places = [np.argwhere(canvas == 20 + 20 * number) for number in numbers]
        assert [len(place) for place in places] == [100] * len(numbers)  # nothing is hidden
        (top, left), (lower, other), *third = (place.mean(axis=0) for place in places)
        if words[1] == 'left':
            assert left < other - 10 and abs(top - lower) < 4
            assert all(lowest > top + 10 for lowest, _ in third)
        else:
            assert top < lower - 10
            assert 'and' not in words or (left < other - 10) == ('left' in words)
            assert all(last > other + 10 and abs(low - lower) < 4 for low, last in third)
    assert seen == {
        'above',
        'left of',
        'above and left of',
        'above and right of',
        'above left of',
        'left of above',
    }


def test_canvases_are_the_same_again(digits):
    one, same = (draw_samples('caption-resnext', digits['dev'], 'dev', 5) for _ in range(2))
    other = draw_samples('caption-resnext', digits['dev'], 'test', 5)
    assert [sample.target for sample in one] == [sample.target for sample in same]
    assert [sample.target for sample in one] != [sample.target for sample in other]
    assert all((a.image == b.image).all() for a, b in zip(one, same))


def test_an_image_without_ink():
    ((canvas, caption),) = draw_canvases(np.zeros((1, 28, 28), np.uint8), np.array([3]), 1, [0])
    assert not canvas.any() and 'three' in caption_text(caption)


# --- the program ---------------------------------------------------------------------------------

FEW_IMAGES = ['--train-images', '64', '--dev-images', '10', '--test-images', '10']


@pytest.mark.parametrize('name', ['mobilenet', 'caption-resnext'])
def test_program(name, tmp_path, capsys):
    options = ['--network', name, *FEW_IMAGES, '--checkpoint', str(tmp_path / 'run')]
    assert main([*options, '--epochs', '1']) == 0
    said = capsys.readouterr().out
    assert f'images: 64 train, 10 dev, 10 test; {name}, at most ' in said and 'early' in said
    assert main([*options, '--epochs', '2', '--resume']) == 0
    said = capsys.readouterr().out
    assert 'epoch   1' not in said and 'epoch   2  loss ' in said
    one, two = checkpoints.load(tmp_path / 'run').history
    assert two['loss'] < one['loss']
    assert main([*options, '--mode', 'infer']) == 0
    assert capsys.readouterr().out.splitlines()[-2].split()[:4] == said.splitlines()[-2].split()[:4]


def test_threshold_of_the_program(tmp_path, capsys):
    options = ['--network', 'vgg', '--mode', 'infer', *FEW_IMAGES]
    for threshold, early, units in (('1e-3', '1.0000', '1.0000'), ('2', '0.0000', '7.0000')):
        assert main([*options, '--threshold', threshold]) == 0
        assert capsys.readouterr().out.splitlines()[-2].split()[2:4] == [early, units]


def test_wrong_options(capsys):
    assert main(['--network', 'caption-resnext', '--threshold', '0.5']) == 1
    assert 'says words until the end symbol' in capsys.readouterr().err
    for unknown in (['--hidden', '3'], ['--scheduler', 'fsm'], ['--network', 'alexnet']):
        with pytest.raises(SystemExit, match='2'):
            main(unknown)


def closing(capsys):
    """What the program says after its table."""
    return capsys.readouterr().out.rsplit('-\n', 1)[1].splitlines()


@pytest.mark.parametrize('name', ['mobilenet', 'caption-resnext'])
def test_compiled(name, capsys):
    """The figures are those of the table, and some samples part."""
    options = ['--network', name, '--mode', 'infer', *FEW_IMAGES, '--eval-batch-size', '6']
    more = ['--threshold', '0.2'] if name == 'mobilenet' else []
    assert main([*options, *more, '--compile']) == 0
    said = capsys.readouterr().out
    table, (how, equal, ran, *paths) = (part.splitlines() for part in said.rsplit('-\n', 1))
    right, early, units = map(float, table[-2].split()[1:4])
    assert how == f'compiled, in MXNet, 6 images together: {Figures(right, early, units)}'
    assert equal.startswith('10 of 10 results are those of eager Gluon: numbers at most ')
    assert ran.startswith('10 samples in ') and 'true' in paths[0] and 'images/s' in paths[-1]
    counts = paths[0].split()
    looks = [int(counts[counts.index(word) + 1]) for word in ('true', 'false')]
    assert sum(looks) == round(10 * units)  # one for each exit, or word


def test_exported_and_run_in_a_host(tmp_path, capsys):
    pytest.importorskip('onnx')
    folder = tmp_path / 'bundle'
    options = ['--network', 'mobilenet', '--mode', 'infer', *FEW_IMAGES, '--threshold', '0.2']
    assert main([*options, '--export', str(folder), '--host', 'mxnet']) == 0
    exported, how, equal, ran, *_ = closing(capsys)
    assert exported == f'exported: {folder}' and '10 of 10 results are those' in equal
    images = samples('mobilenet', count=10)
    found = edb.load_program(folder)(images)
    assert f'units {np.mean([units for _, units in found]):.2f}' in how
    assert list(folder.glob('*.onnx'))
    assert main([*options, '--host', 'mxnet']) == 0  # of a folder that is there for this only
    assert closing(capsys)[1:3] == [equal, ran]


def test_run_by_onnx_runtime(capsys):
    pytest.importorskip('onnxruntime')
    options = ['--network', 'mobilenet', '--mode', 'infer', *FEW_IMAGES, '--threshold', '0.2']
    assert main([*options, '--host', 'onnx']) == 0
    how, equal, *_ = closing(capsys)
    assert how.startswith('compiled, in ONNX Runtime') and '10 of 10 results are those' in equal


@pytest.mark.parametrize('missing', ['gluon_edbatch_runtime', 'onnxruntime'])
def test_a_host_that_is_not_there_is_told_before_training(missing, monkeypatch, capsys):
    for name in ('gluon_edbatch_runtime', 'onnxruntime'):
        monkeypatch.setitem(sys.modules, name, None if name == missing else sys)
    monkeypatch.setattr(gluon, 'Trainer', None)
    assert main(['--host', 'onnx', *FEW_IMAGES]) == 1
    said = capsys.readouterr().err
    assert f'--host onnx: {missing} is not installed: `pip install' in said


def test_a_folder_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / 'file').touch()
    folder = str(tmp_path / 'file' / 'bundle')
    assert main(['--mode', 'infer', *FEW_IMAGES, '--export', folder]) == 1
    assert f'--export {folder}: ' in capsys.readouterr().err


def test_what_is_like_eager():
    one, other = mx.nd.array([[1, 100]]), mx.nd.array([[1, 100.0005]])
    results = [(one, 3), (one, 3), (one, 3), ([1, 2], one), ([1, 2], one)]
    found = [(one, 3), (one, 4), (other, 3), ([1, 2], other), ([1], one)]
    like = likeness(found, results, 1e-4)
    assert like[:3] == (5, [1, 4], []) and 4e-6 < like.most < 6e-6
    assert str(like).splitlines()[1] == 'another path: images 1, 4'
    assert likeness(found, results, 1e-6).farther == [2, 3]
    assert '1 of 5 results' in str(likeness(found, results, 1e-6))
    assert likeness([(one[:, :1], 3)], results[:1], 1).elsewhere == [0]
    assert likeness(results, results, 0) == (5, [], [], 0)


def test_figures():
    assert str(Figures(0.5, 0.25, 3)) == 'right 0.5000  early 0.2500  units 3.00'
