"""python -m benchmarks and its like: rows are complete, and rivals compute what they should."""

import csv
import json
import sys
from importlib.util import find_spec

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, nd

from benchmarks.commands import COMMANDS, main, workloads
from benchmarks.gemm import best_rate
from benchmarks.measure import _phase_fields
from benchmarks.rivals.levels import plan_levels
from benchmarks.runner import MeasurementError, measure_in_turn
from benchmarks.settings import Settings
from benchmarks.systems import Phases, build_system
from benchmarks.treelstm_sick import TreeLSTMSick, initial_weights, weights_of
from benchmarks.workloads import WORKLOADS, load_workload
from example.tree_lstm.data import Pair, Tree
from example.tree_sst.data import build_samples, parse_tree
from tests.support import processes
from tests.support.models import random_tree
from tests.support.tiers import sampled

SCRIPTS = processes.ROOT / 'scripts'

needs_torch = pytest.mark.skipif(find_spec('torch') is None, reason='PyTorch is not installed')
RIVALS = [
    pytest.param(name, marks=needs_torch) if 'torch' in name else name
    for name in (
        'plain-hybridized',
        'manual',
        'manual-shared',
        'manual-torch',
        'manual-torch-shared',
    )
]
FIELDS = """workload mode batch_size hidden embed scheduler threads samples_per_s samples_per_s_min
    samples_per_s_max nodes batches lower_bound record_ms schedule_ms execute_ms backward_ms
    update_ms record_us_per_call gemm_bound_samples_per_s efficiency peak_rss_mb
    first_minibatch_ms cpu_ms cpu
    mxnet""".split()
TINY = [
    '--batch-size',
    '3',
    '--hidden',
    '5',
    '--embed',
    '4',
    '--repeat',
    '2',
    '--minibatches',
    '1',
    '--seconds',
    '0.05',
]


def run_benchmarks(*arguments, **environment):
    """Run ``python -m benchmarks`` in a process."""
    return processes.run_python('-m', 'benchmarks', *arguments, cwd=processes.ROOT, **environment)


def run(script, *arguments, **environment):
    """A script's standard output; it has to succeed."""
    if script.endswith('.sh'):
        done = processes.run(['bash', SCRIPTS / script, *arguments], **environment)
    else:
        done = run_benchmarks(*arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(output):
    return [json.loads(line) for line in output.splitlines()]


def settings(system='manual', **fields):
    return Settings(
        'treelstm-sick',
        'train',
        system,
        **{
            **dict(batch_size=3, hidden=5, embed=4, repeat=1, minibatches=1, seconds=0.05),
            **fields,
        },
    )


# --- rows ----------------------------------------------------------------------------------


def check_row(row, mode, system):
    assert set(FIELDS) <= set(row)
    assert (row['workload'], row['mode'], row['scheduler']) == ('treelstm-sick', mode, system)
    assert (row['batch_size'], row['hidden'], row['embed'], row['threads']) == (3, 5, 4, 1)
    assert 0 < row['samples_per_s_min'] <= row['samples_per_s'] <= row['samples_per_s_max']
    assert row['efficiency'] == pytest.approx(
        row['samples_per_s'] / row['gemm_bound_samples_per_s'], rel=1e-2
    )
    assert row['execute_ms'] > 0 and row['peak_rss_mb'] > 0
    for name in ('backward_ms', 'update_ms'):
        assert (row[name] is None) == (mode == 'infer')


@pytest.mark.parametrize(
    'system, mode',
    [
        ('depth', 'train'),
        ('unbatched', 'train'),
        ('unbatched-hybridized', 'infer'),
        ('manual', 'infer'),
    ],
)
def test_row_of_one_system(system, mode):
    (row,) = rows_of(
        run('benchmark.py', 'treelstm-sick', '--mode', mode, '--scheduler', system, '--json', *TINY)
    )
    check_row(row, mode, system)
    if system == 'depth':
        assert row['batches'] >= row['lower_bound'] > 0
        assert row['nodes'] > row['batches']
        assert row['record_us_per_call'] > 0
        assert {'name', 'calls', 'batches'} == set(row['types'][0])


@needs_torch
def test_row_of_torch():
    (row,) = rows_of(
        run('benchmark.py', 'treelstm-sick', '--scheduler', 'manual-torch', '--json', *TINY)
    )
    check_row(row, 'train', 'manual-torch')
    assert row['torch']


def test_several_systems_and_sizes_in_turn():
    rows = rows_of(
        run(
            'benchmark.py',
            'treelstm-sick',
            '--scheduler',
            'manual,plain-hybridized',
            '--json',
            *TINY,
            '--batch-size',
            '1,2',
        )
    )
    assert [(row['batch_size'], row['scheduler']) for row in rows] == [
        (size, system) for size in (1, 2) for system in ('manual', 'plain-hybridized')
    ]


def test_table_for_people():
    text = run('benchmark.py', 'treelstm-sick', '--scheduler', 'manual', *TINY)
    assert 'samples/s' in text and 'manual' in text


def test_time_of_a_call_is_that_of_its_own_step():
    fields = _phase_fields([Phases(record_ms=2.0, nodes=1000), Phases(record_ms=3.0, nodes=500)])
    assert (fields['record_ms'], fields['record_us_per_call'], fields['nodes']) == (2.5, 4, 750)


def test_data_directory(tmp_path):
    sample = processes.ROOT / 'example' / 'tree_lstm' / 'sample'
    (tmp_path / 'sick').symlink_to(sample, target_is_directory=True)
    (row,) = rows_of(
        run(
            'benchmark.py',
            'treelstm-sick',
            '--scheduler',
            'manual',
            '--json',
            '--data',
            tmp_path,
            *TINY,
        )
    )
    check_row(row, 'train', 'manual')


@pytest.mark.parametrize(
    'arguments, message',
    [
        (['nonsense'], 'invalid choice'),
        (['treelstm-sick', '--scheduler', 'fastest'], "'fastest' is none of"),
        (['treelstm-sick', '--batch-size', '0'], '0 is less than 1'),
        (['treelstm-sick', '--scheduler', 'manual', '--cpus', '100000'], '--cpus 100000'),
        (['treelstm-sick', '--scheduler', 'manual', '--data', 'nowhere'], 'no such file'),
    ],
)
def test_what_cannot_be_done_is_said(arguments, message):
    done = run_benchmarks(*arguments)
    assert done.returncode != 0
    assert message in done.stderr
    assert 'Traceback' not in done.stderr


def test_one_system_that_fails_leaves_the_others():
    cells = [settings('manual'), settings('manual-shared', optimizer='nonsense')]
    (_, good), (_, bad) = measure_in_turn(cells, apart=False)
    assert good['samples_per_s'] > 0
    assert isinstance(bad, MeasurementError) and 'nonsense' in str(bad)


def test_rivals_that_a_workload_lacks():
    names = 'agenda,manual'
    done = run_benchmarks(
        'mvrnn-sst',
        '--json',
        '--mode',
        'infer',
        '--scheduler',
        names,
        *TINY,
    )
    assert done.returncode == 1
    assert done.stderr == 'benchmarks: manual: mvrnn-sst has no such rival\n'
    (row,) = rows_of(done.stdout)  # the other is measured
    assert (row['workload'], row['scheduler']) == ('mvrnn-sst', 'agenda')


# --- workloads -----------------------------------------------------------------------------


@pytest.mark.parametrize('name', WORKLOADS)
def test_systems_agree_on_loss_and_outputs(name):
    """Batched or not, the measured step does the same: one update, from the same parameters."""
    losses, outputs = [], []
    for system in ('agenda', 'unbatched', 'unbatched-hybridized'):
        chosen = Settings(
            name, 'train', system, hidden=8, embed=4, optimizer='adam', learning_rate=0.01
        )
        workload = load_workload(chosen)
        samples = workload.samples[:2]
        built = build_system(workload, chosen)
        losses.append([built.train(samples).asscalar() for _ in range(3)])
        outputs.append(joined(built.predict(samples)))
    assert losses[0][2] < losses[0][0]
    for other_losses, other_outputs in zip(losses[1:], outputs[1:]):
        np.testing.assert_allclose(other_losses, losses[0], rtol=1e-4)
        np.testing.assert_allclose(other_outputs, outputs[0], rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize(
    'name, products',
    [
        ('treelstm-sst', {(4, 6): 3 * 2, (12, 30): 2, (6, 5): 5}),
        ('treelstm2-sst', {(4, 6): 3 * 2, (12, 30): 2, (6, 5): 5}),
        ('treegru-sst', {(4, 6): 3 * 2, (6, 6): 2 * 4, (6, 5): 5}),
        ('mvrnn-sst', {(3, 6): 3 * 6, (6, 6): 2 * 2, (12, 6): 2 * 7, (6, 5): 5}),
        ('treenn-sst', {(12, 6): 2, (6, 5): 5}),
        ('treenn-operators-sst', {(12, 6): 2, (6, 5): 5}),
    ],
)
def test_products_of_sentiment_trees(name, products):
    workload = load_workload(Settings(name, 'train', 'agenda', hidden=6, embed=4))
    samples = build_samples([parse_tree('(2 (2 a) (2 (2 b) (2 c)))')], lambda words: [0] * 3)
    assert workload.products(samples) == products
    assert workload.levels(samples) == 3


# --- rivals --------------------------------------------------------------------------------


def node_by_node(weights, pairs):
    """Loss, gradients and outputs of the model, one node at a time with plain operators."""
    w = {name: nd.array(value) for name, value in weights.items()}
    hidden = weights['u_f'].shape[0]
    for value in w.values():
        value.attach_grad()

    def encode(tree):
        states = [encode(child) for child in tree.children]
        own = nd.dot(w['embed'][tree.token : tree.token + 1], w['w'], transpose_b=True) + w['b']
        iou, c = own[:, : 3 * hidden], 0
        for h_k, c_k in states:
            iou = iou + nd.dot(h_k, w['u_iou'], transpose_b=True)
            c = c + nd.sigmoid(own[:, 3 * hidden :] + nd.dot(h_k, w['u_f'], transpose_b=True)) * c_k
        i, o, u = (iou[:, k * hidden : (k + 1) * hidden] for k in range(3))
        c = nd.sigmoid(i) * nd.tanh(u) + c
        return nd.sigmoid(o) * nd.tanh(c), c

    losses, outputs = [], []
    with autograd.record():
        for pair in pairs:
            left, right = encode(pair.left)[0], encode(pair.right)[0]
            both = nd.concat(left * right, nd.abs(left - right), dim=1)
            x = nd.sigmoid(nd.dot(both, w['sim_w'], transpose_b=True) + w['sim_b'])
            x = nd.dot(x, w['out_w'], transpose_b=True) + w['out_b']
            outputs.append(x - nd.log(nd.exp(x).sum()))
            target = nd.array(pair.target)
            losses.append((target * (nd.log(target + 1e-12) - outputs[-1])).sum())
        loss = nd.add_n(*losses) / len(losses)
    loss.backward()
    return (
        loss.asscalar(),
        {name: value.grad.asnumpy() for name, value in w.items()},
        nd.concat(*outputs, dim=0).asnumpy(),
    )


def random_pairs(sizes, seed=0, vocab=7):
    rng = np.random.RandomState(seed)
    return [
        Pair(
            random_tree(rng, left, vocab=vocab),
            random_tree(rng, right, vocab=vocab),
            rng.uniform(1, 5),
        )
        for left, right in sizes
    ]


SIZES = {
    'one pair': [(5, 4)],
    'single nodes only': [(1, 1), (1, 1)],
    'single nodes among trees': [(1, 6), (3, 1), (2, 2)],
    'many': [(k % 9 + 1, 12 - k) for k in range(12)],
}


def assert_close(ours, expected):
    assert abs(ours - expected).max() <= 1e-5 * max(1e-3, abs(expected).max())


@pytest.mark.parametrize('sizes', SIZES.values(), ids=SIZES)
@pytest.mark.parametrize('system', RIVALS)
def test_rival_equals_node_by_node(system, sizes):
    workload = TreeLSTMSick(settings(system, hidden=6, embed=4))
    workload.vocab_size = 7
    pairs = random_pairs(sizes)
    loss, gradients, outputs = node_by_node(initial_weights(7, 4, 6), pairs)
    rival = workload.rival(system)
    plan = rival.plan(pairs)
    ours = rival.predict(plan)
    ours = nd.concat(*ours, dim=0) if isinstance(ours, list) else ours
    assert_close(as_numpy(ours), outputs)
    for _ in range(2):  # a second pass must not add to the first
        ours = rival.loss(rival.plan(pairs), pairs)
        rival.backward(ours)
        # PyTorch leaves out the constant 1e-12 in the logarithm.
        assert_close(as_numpy(ours).reshape(-1)[0], loss)
        for name, value in rival.gradients().items():
            assert_close(value, gradients[name])
    rival.update()  # some parameters may have met no sample
    rival.wait()


@pytest.mark.parametrize('system', RIVALS)
def test_rival_trains(system):
    workload = TreeLSTMSick(settings(system, hidden=6, embed=4, learning_rate=0.5))
    rival, pairs = workload.rival(system), workload.samples[:8]
    losses = []
    for _ in range(8):
        loss = rival.loss(rival.plan(pairs), pairs)
        losses.append(float(as_numpy(loss).reshape(-1)[0]))
        rival.backward(loss)
        rival.update()
    rival.wait()
    assert losses[-1] < 0.9 * losses[0]


def test_example_computes_the_same():
    """The rivals are rivals of the example's model, not of another."""
    workload = TreeLSTMSick(settings(hidden=6, embed=4))
    net, loss_of = workload.build()
    pairs = workload.samples[:4]
    parameters = weights_of(net)
    weights = {
        name: joined(parameter.data() for parameter in own) for name, own in parameters.items()
    }
    loss, gradients, outputs = node_by_node(weights, pairs)
    with autograd.record():
        losses = [workload.loss(net, loss_of, pair, eager=True) for pair in pairs]
        ours = mx.nd.add_n(*losses) / len(losses)
    ours.backward()
    assert_close(ours.asscalar(), loss)
    for name, own in parameters.items():
        assert_close(joined(parameter.grad() for parameter in own), gradients[name])
    assert_close(np.concatenate([workload.predict(net, pair).asnumpy() for pair in pairs]), outputs)


def joined(arrays):
    return np.concatenate([array.asnumpy() for array in arrays])


def as_numpy(value):
    return value.asnumpy() if hasattr(value, 'asnumpy') else value.detach().numpy()


def test_levels():
    #       0            children first met, by level: inner nodes 0 | 1, 4 | 5; leaves 2, 3 | 6
    #    1     4
    #   2 3    5
    #          6
    tree = Tree(0, [Tree(1, [Tree(2), Tree(3)]), Tree(4, [Tree(5, [Tree(6)])])])
    levels = plan_levels([Tree(9), tree])
    assert levels.tokens.tolist() == [0, 1, 4, 5, 2, 3, 6, 9]
    assert levels.num_inner == 4
    assert levels.leaf_parents.tolist() == [1, 1, 3]
    assert [(level.begin, level.end) for level in levels.levels] == [(0, 1), (1, 3), (3, 4)]
    assert [level.child_parents.tolist() for level in levels.levels] == [[0, 0], [1], []]
    assert levels.roots.tolist() == [1, 0]


# --- the bound -----------------------------------------------------------------------------


def test_products_are_those_of_every_node():
    workload = TreeLSTMSick(settings(hidden=6, embed=4))
    pair = Pair(Tree(0, [Tree(1), Tree(2, [Tree(3)])]), Tree(4), 3)
    assert workload.products([pair]) == {(4, 24): 5, (6, 18): 5, (6, 6): 3, (12, 50): 1, (50, 5): 1}
    once = 2 * (5 * 4 * 24 + 5 * 6 * 18 + 3 * 6 * 6 + 12 * 50 + 50 * 5)
    assert workload.flops([pair], training=False) == once
    assert workload.flops([pair], training=True) == 3 * once
    assert workload.levels([pair]) == 3


def test_best_rate():
    assert best_rate([(4, 8)], mx.cpu()) > 0


# --- tables and plots ----------------------------------------------------------------------


def sample_rows():
    return [
        dict(
            workload='treelstm-sick',
            mode=mode,
            scheduler=system,
            batch_size=size,
            hidden=5,
            embed=4,
            threads=1,
            samples_per_s=100.0 * size,
            samples_per_s_min=90.0 * size,
            samples_per_s_max=120.0 * size,
            gemm_bound_samples_per_s=9e3,
            cpu='some, cpu',
            cpus=1,
            mxnet='1.9.1',
            nodes=None,
            types=[dict(name='cell', calls=1, batches=1)],
        )
        for mode in ('train', 'infer')
        for system in ('depth', 'manual')
        for size in (1, 8)
    ]


@pytest.mark.parametrize('sizes', sampled(2, [(1, 8), (1,)]))
def test_plots_and_csv(tmp_path, sizes):
    rows = [row for row in sample_rows() if row['batch_size'] in sizes]
    source = tmp_path / 'sweep.jsonl'
    source.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    text = run('benchmark.py', 'plots', source, '--out', tmp_path / 'out')
    assert text.count('manual') == 2 * len(sizes)
    assert (tmp_path / 'out' / 'sweep-treelstm-sick.png').stat().st_size > 1000
    with (tmp_path / 'out' / 'sweep.csv').open(newline='') as file:
        assert [float(row['samples_per_s']) for row in csv.DictReader(file)] == [
            row['samples_per_s'] for row in rows
        ]
    again = run(
        'benchmark.py', 'plots', tmp_path / 'out' / 'sweep.csv', '--out', tmp_path / 'again'
    )
    assert again == text


@pytest.mark.parametrize(
    'content, message',
    [('', 'has no rows'), ('{', 'not JSON'), ('[]', 'not list'), ('{"mode": "train"}', 'workload')],
)
def test_bad_rows_are_said(tmp_path, capsys, content, message):
    path = tmp_path / 'rows.jsonl'
    path.write_text(content)
    assert main(['plots', str(path)]) == 2
    assert message in capsys.readouterr().err


def test_generated_scripts_run(tmp_path):
    run(
        'benchmark.py',
        'generate',
        '--out',
        tmp_path,
        '--workload',
        'treelstm-sick',
        '--hidden',
        '4,5',
        '--batch-size',
        '2',
        '--scheduler',
        'manual',
        '--mode',
        'infer',
        '--repeat',
        '1',
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        'run_all.sh',
        'treelstm-sick-cpu-h4.sh',
        'treelstm-sick-cpu-h5.sh',
    ]
    done = processes.run(['bash', tmp_path / 'run_all.sh'], PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    (row,) = rows_of((tmp_path / 'treelstm-sick-cpu-h5.jsonl').read_text())
    assert (row['hidden'], row['mode'], row['scheduler']) == (5, 'infer', 'manual')


def test_generator_refuses_unknown_names(tmp_path, capsys):
    with pytest.raises(SystemExit, match='2'):
        main(['generate', '--out', str(tmp_path), '--scheduler', 'fastest'])
    assert "'fastest' is none of" in capsys.readouterr().err


@pytest.mark.slow
def test_benchmark_sh(tmp_path):
    run(
        'benchmark.sh',
        '--quick',
        '--out',
        tmp_path,
        PYTHON=sys.executable,
        SWEEP_SIZES='1,2',
        SWEEP_SYSTEMS='depth,manual',
    )
    names = {path.name for path in tmp_path.iterdir()}
    assert {
        'table.jsonl',
        'table.csv',
        'sweep.jsonl',
        'sweep.csv',
        'table-treelstm-sick.png',
        'sweep-treelstm-sick.png',
    } <= names
    systems = {row['scheduler'] for row in rows_of((tmp_path / 'table.jsonl').read_text())}
    assert {'depth', 'agenda', 'unbatched', 'unbatched-hybridized', 'manual'} <= systems


def told_by(arguments, capsys):
    """What a command line prints that ends by itself."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_of_the_programs():
    assert 'usage: ' in run('benchmark.py', '--help')
    assert 'usage: ' in run('benchmark.sh', '--help')


@pytest.mark.parametrize('command', COMMANDS)
def test_help(command, capsys):
    assert 'usage: ' in told_by([command, '--help'], capsys)


def test_help_lists_the_commands(capsys):
    text = told_by(['--help'], capsys)
    assert set(COMMANDS) == {
        'workloads',
        'schedulers',
        'blocks',
        'ablation',
        'compare',
        'reads',
        'few',
        'gains',
        'generate',
        'idioms',
        'plots',
        'replay',
    }
    for name in COMMANDS:
        assert f'\n    {name}' in text


@pytest.mark.parametrize(
    'arguments, message',
    [
        ([], 'required: COMMAND'),
        (['gain'], "invalid choice: 'gain' (choose from 'workloads', "),
        (['workloads', 'gains'], "argument workload: invalid choice: 'gains'"),
        (['--mode', 'infer'], 'required: workload'),
    ],
)
def test_wrong_commands_are_said(arguments, message, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    'arguments',
    [
        ['treelstm-sick', '--mode', 'infer'],
        ['--mode', 'infer', 'treelstm-sick'],
        ['workloads', 'treelstm-sick', '--mode', 'infer'],
    ],
)
def test_a_workload_is_short_for_its_command(arguments, monkeypatch):
    seen = []
    monkeypatch.setattr(workloads, 'run', seen.append)
    assert main(arguments) == 0
    (options,) = seen
    assert (options.command, options.workload, options.mode) == (
        'workloads',
        'treelstm-sick',
        ['infer'],
    )
    assert (options.batch_size, options.scheduler) == ([256], ['agenda'])
