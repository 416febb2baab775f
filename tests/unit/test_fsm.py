"""Schedulers that choose among ready types: sufficient condition, beam search, learned policies."""

import json
from dataclasses import replace
from itertools import combinations
from random import Random
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gluon_edbatch.testing.scheduling import check_schedule, check_scheduler
from gluon_edbatch_core.errors import PolicyError
from gluon_edbatch_core.graph.graph import Graph
from gluon_edbatch_core.schedule import (
    BaseEncoding,
    BeamScheduler,
    CachedScheduler,
    DepthScheduler,
    FSMScheduler,
    Policy,
    QLearningConfig,
    Run,
    SufficientConditionScheduler,
    get_encoding,
    get_scheduler,
    learn_policy,
    lower_bound,
)
from gluon_edbatch_core.schedule.bound import CostToGo
from gluon_edbatch_core.schedule.fsm import run_policy
from gluon_edbatch_core.schedule.policy import UNSEEN
from gluon_edbatch_core.schedule.sufficient import SufficientCondition
from tests.support.cases import in_one_test
from tests.support.strategies import graphs

ENCODINGS = ['E_base', 'E_sort', 'E_max', 'E_path']
QUICK = QLearningConfig(effort=500)


def in_lists(graph):
    return [graph.inputs[a:b].tolist() for a, b in zip(graph.offsets[:-1], graph.offsets[1:])]


def two_kinds(seed, trees=6, leaves=8):
    """Binary trees with two kinds of inner node, which no table of ready types gets right."""
    random, types, inputs = Random(seed), [], []

    def call(kind, *row):
        types.append(kind)
        inputs.append(list(row))
        return len(types) - 1

    for _ in range(trees):
        nodes = [call(0) for _ in range(random.randint(2, leaves))]
        while len(nodes) > 1:
            place = random.randrange(len(nodes) - 1)
            nodes[place : place + 2] = [call(random.randint(1, 2), *nodes[place : place + 2])]
        call(3, *nodes)
    return Graph.from_lists(types, inputs, 4, type_names=['leaf', 'one', 'two', 'head'])


def policy_of(graph, encoding):
    return learn_policy([graph], encoding, QUICK)


# The rules, for every scheduler


@pytest.mark.parametrize(
    'scheduler',
    [
        SufficientConditionScheduler(),
        BeamScheduler(1),
        BeamScheduler(3),
        FSMScheduler(learn=False),
        FSMScheduler(config=QUICK),
        CachedScheduler(BeamScheduler(2)),
    ],
    ids=repr,
)
@settings(max_examples=120, deadline=None)
@given(graph=graphs())
def test_schedulers_keep_the_rules(scheduler, graph):
    check_scheduler(scheduler, graph)


@pytest.mark.parametrize('encoding', ENCODINGS)
@settings(max_examples=60, deadline=None)
@given(graph=graphs(), other=graphs())
def test_learned_policies_keep_the_rules(encoding, graph, other):
    policy = policy_of(graph, encoding)
    check_scheduler(FSMScheduler(policy), graph)
    check_scheduler(FSMScheduler(policy), other)
    assert len(run_policy(graph, policy)) == policy.reached.batches


# Against the optimum


def fewest_batches(graph):
    """Search through all sets of nodes that can have run, with any batch from any of them."""
    rows, everything = in_lists(graph), frozenset(range(len(graph)))
    reached, steps = {frozenset()}, 0
    while everything not in reached:
        following = set()
        for done in reached:
            ready = {}
            for node in everything - done:
                if done.issuperset(rows[node]):
                    ready.setdefault(int(graph.types[node]), []).append(node)
            for kind, nodes in ready.items():
                sizes = [1] if graph.alone[kind] else range(1, len(nodes) + 1)
                following.update(
                    done.union(some) for size in sizes for some in combinations(nodes, size)
                )
        reached, steps = following, steps + 1
    return steps


@settings(max_examples=150, deadline=None)
@given(graph=graphs(max_nodes=9, max_types=3))
def test_no_scheduler_beats_the_optimum_and_a_wide_beam_finds_it(graph):
    optimum = fewest_batches(graph)
    for scheduler in (
        SufficientConditionScheduler(),
        FSMScheduler(policy_of(graph, 'E_path')),
        BeamScheduler(1),
    ):
        assert len(scheduler.schedule(graph)) >= optimum
    # No more sets of nodes than there can be: the beam leaves nothing out.
    assert len(BeamScheduler(1 << 9).schedule(graph)) == optimum


@settings(max_examples=300, deadline=None)
@given(graph=graphs())
def test_what_a_run_does_by_itself_costs_nothing(graph):
    """A batch that need not be chosen lowers the bound, so that nobody can save it."""
    run, togo, seen = Run(graph), CostToGo(graph), 0
    assert togo.bound == lower_bound(graph)
    while True:
        more = run.settle()
        new = len(run.batches) - seen
        before = togo.bound
        togo.run(run.batches[seen:])
        assert togo.bound == before - new
        seen = len(run.batches)
        if not more:
            break
        kind = min(run.frontier.counts)
        before = togo.bound
        togo.run([run.take(kind)])
        assert before - togo.bound in (0, 1)
        seen += 1
    assert togo.bound == 0


# The sufficient condition against its definition


@settings(max_examples=300, deadline=None)
@given(graph=graphs(), seed=st.integers(0, 100), late=st.booleans())
def test_the_largest_share_is_as_defined(graph, seed, late):
    random, rows, run, condition = Random(seed), in_lists(graph), Run(graph), None
    while run.settle():
        if condition is None and not (late and len(run.batches) < 4):
            condition = SufficientCondition(run)
        if condition is not None:
            done = set(np.concatenate(run.batches).tolist()) if run.batches else set()
            above = []  # types of the ancestors that have not run
            for row in rows:
                above.append(
                    set().union(
                        *(
                            above[node]
                            | (
                                {int(graph.types[node])}
                                - set([int(graph.types[node])] if node in done else [])
                            )
                            for node in row
                        )
                    )
                )
            first = [0] * graph.num_types
            for node, kind in enumerate(graph.types.tolist()):
                first[kind] += node not in done and kind not in above[node]
            counts = run.frontier.counts
            assert condition.choose() == max(
                counts, key=lambda kind: (counts[kind] / first[kind], counts[kind], -kind)
            )
        run.take(random.choice(sorted(run.frontier.counts)))


def test_sufficient_condition_by_hand():
    # Type 0 lies before and after type 1; running all ready nodes of 0 at first costs a batch.
    graph = Graph.from_lists([0, 1, 0, 0, 1], [[], [0], [1], [], [3]])
    assert len(SufficientConditionScheduler().schedule(graph)) == 3


# Looking ahead, against its definition


def chains(*words):
    """A chain of calls for each word, whose letters are the types."""
    types, inputs = [], []
    for word in words:
        for place, letter in enumerate(word):
            inputs.append([len(types) - 1] if place else [])
            types.append('abcd'.index(letter))
    return Graph.from_lists(types, inputs, 4)


def heaviest(graph, frontier, top, steps):
    """The most that the ways from the nodes of so many batches can weigh, and the types that can
    be the first of such batches."""
    gains = {}
    for kind in frontier.kinds() if steps else ():
        behind = [top - int(height) for height in graph.height[frontier.ready(kind)]]
        gain = sum(np.exp(-2.0 * each) for each in behind if each <= 6)
        if gain:
            following = frontier.copy()
            following.advance(kind)
            gains[kind] = gain + heaviest(graph, following, top, steps - 1)[0]
    most = max(gains.values(), default=0.0)
    return most, [kind for kind, gain in gains.items() if gain > most * (1 - 1e-8)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text('abc', min_size=1, max_size=12), min_size=2, max_size=6))
def test_look_ahead_begins_the_batches_that_weigh_most(words):
    graph = chains(*words)
    run = Run(graph)
    choose = UNSEEN['look ahead'](run).choose
    while run.settle():
        top = max(graph.height[run.frontier.ready(kind)].max() for kind in run.frontier.kinds())
        before, waiting = repr(run.frontier), run.frontier.copy()
        behind = [top - graph.height[run.frontier.ready(kind)] for kind in run.frontier.kinds()]
        second, first = sorted([np.exp(-2.0 * each).sum() for each in behind])[-2:]
        steps = 4 if second >= 0.01 * first else 1  # one that outweighs the others needs no search
        kind = choose()
        assert kind in heaviest(graph, run.frontier, top, steps)[1]
        assert repr(run.frontier) == before
        assert run.take(kind).tolist() == waiting.take(kind).tolist()
        assert repr(run.frontier) == repr(waiting)  # the search undid what it counted down


@pytest.mark.parametrize(
    'name, times, batches',
    [
        ('longest way', 1, 'bcbcaa'),
        ('look ahead', 1, 'cbcaa'),
        ('look ahead', 200, 'bcbcaa'),  # too many chains to try anything
    ],
)
def test_look_ahead_by_hand(name, times, batches):
    graph = chains(*['cbc', 'baa'] * times)
    run = Run(graph)
    run.finish(UNSEEN[name](run))
    assert ''.join('abcd'[graph.types[batch[0]]] for batch in run.schedule()) == batches


# Policies


def test_a_seed_gives_one_policy():
    some = [two_kinds(seed) for seed in range(3)]
    first, again = (learn_policy(some, config=QLearningConfig(effort=3000)) for _ in range(2))
    assert first.table == again.table and list(first.table) == list(again.table)
    assert first.reached == again.reached and first.reached.batches <= first.reached.sufficient


def test_policy_does_not_depend_on_numbers_of_types():
    graph = two_kinds(1)
    turned = Graph(
        3 - graph.types, graph.offsets, graph.inputs, 4, graph.alone, graph.type_names[::-1]
    )
    policy = learn_policy([graph], config=QUICK)
    assert np.array_equal(run_policy(graph, policy).order, run_policy(turned, policy).order)
    assert learn_policy([turned], config=QUICK).table == policy.table


def test_small_graphs_are_left_to_the_sufficient_condition_if_a_policy_says_so():
    graph = two_kinds(1)
    policy = replace(learn_policy([graph], 'E_base', QUICK), table={}, unseen='least deep')
    taken = [
        len(run_policy(graph, replace(policy, small=nodes)))
        for nodes in (len(graph) - 1, len(graph))
    ]
    assert taken[1] == len(SufficientConditionScheduler().schedule(graph)) < taken[0]


def test_the_rule_or_table_with_the_fewest_batches_on_held_out_graphs_decides():
    # At the bound a table decides, though some rules need as few batches.
    chain = chains('ab', 'bab')
    policy = learn_policy([chain] * 3, config=QUICK)
    assert policy.decides == 'table' and policy.unseen == 'sufficient'
    # Nothing judges a table above the bound but the graph that it learned from.
    policy = learn_policy([two_kinds(1, trees=20, leaves=14)], config=QUICK)
    assert policy.decides == policy.unseen and policy.reached.batches > policy.reached.lower_bound
    some = [two_kinds(seed, trees=20, leaves=14) for seed in range(6)]
    policy = learn_policy(some, config=QLearningConfig(effort=20_000))
    found = dict(policy.parameters['held out'])
    assert found.pop('minibatches') == 3
    others = [replace(policy, unseen=name, table={}) for name in UNSEEN]
    for other in others:  # the rules are counted on the graphs that no table learned from
        taken = [len(run_policy(graph, other)) for graph in some[1::2]]
        assert found[other.unseen] == sum(taken)
    assert found['depth'] == sum(len(DepthScheduler().schedule(graph)) for graph in some[1::2])
    assert found[policy.decides] == min(found.values()) and 'table' in found
    assert policy.reached.batches == sum(len(run_policy(graph, policy)) for graph in some)
    decided = run_policy(some[0], policy).decided_by
    assert decided.startswith(f'{policy.decides} ({found[policy.decides]} batches; ')
    assert f'depth {found["depth"]}' in decided


def test_the_least_estimated_time_decides_if_overheads_of_batches_are_known(tmp_path):
    some = [two_kinds(seed, trees=60, leaves=20) for seed in range(5, 11)]
    fewest = learn_policy(some, config=QUICK)
    assert fewest.decides == 'look ahead' and 'held out us' not in fewest.parameters

    def learned(overhead):
        known = [replace(graph, overheads=[overhead] * 4) for graph in some]
        return learn_policy(known, config=QUICK)

    # To look ahead takes longer than a few short batches, but not than long ones.
    quick, slow = learned(1.0), learned(1e3)
    assert slow.decides == 'look ahead' and slow.verdict.startswith(fewest.verdict + '; estimated')
    assert quick.decides == 'longest way' and quick.reached.batches > slow.reached.batches
    times, found = quick.parameters['held out us'], quick.parameters['held out']
    assert set(times) == {*UNSEEN, 'table'} and min(times, key=times.get) == 'longest way'
    spent = found['look ahead'] + 0.054 * sum(map(len, some[1::2]))
    assert times['look ahead'] == pytest.approx(spent)
    assert (
        f'; estimated longest way {times["longest way"] / 1e3:.2f} ms, look ahead ' in quick.verdict
    )
    # Types may have other numbers than in the policy, and batches of theirs other times.
    graph = replace(some[0], overheads=[0.1, 0.2, 0.3, 0.4])
    turned = replace(graph, types=3 - graph.types, type_names=graph.type_names[::-1])
    turned = replace(turned, overheads=graph.overheads[::-1])
    one, other = (learn_policy([each], config=QUICK).parameters for each in (graph, turned))
    assert one == other
    quick.save(tmp_path / 'policy.json')
    assert Policy.load(tmp_path / 'policy.json').verdict == quick.verdict
    for damaged in ([], {}, {'longest way': [1]}, {'longest way': 1.0, 'other': 1.0}):
        parameters = {'held out': found, 'held out us': damaged}
        assert 'estimated' not in replace(quick, parameters=parameters).verdict


def test_a_table_decides_if_its_encoding_is_named_or_if_it_is_better():
    some = [two_kinds(seed, trees=20, leaves=14) for seed in range(4)]
    policy = learn_policy(some, 'E_sort', QUICK)
    assert policy.decides == 'table' and policy.unseen == 'sufficient'
    assert policy.encoding.name == 'E_sort'
    held_out = sum(len(run_policy(graph, policy)) for graph in some[1::2])
    assert policy.parameters['held out']['table'] == held_out
    # One rule that is bad, and a table that imitates it or is better.
    with mock.patch.dict(UNSEEN, dict.fromkeys(UNSEEN, UNSEEN['least deep'])):
        policy = learn_policy(some, config=QLearningConfig(effort=20_000))
    found = policy.parameters['held out']
    assert policy.decides == 'table' and found['table'] < found[policy.unseen]


def test_unknown_types_are_chosen_by_the_sufficient_condition():
    graph = two_kinds(1)
    other = Graph(graph.types, graph.offsets, graph.inputs, 4, graph.alone, list('abcd'))
    policy = replace(learn_policy([graph], 'E_base', QUICK), table={(0, 1): 0}, unseen='sufficient')
    schedule = run_policy(other, policy)
    assert schedule.unseen_states
    assert len(schedule) == len(SufficientConditionScheduler().schedule(other))


@pytest.mark.parametrize('unseen', UNSEEN)
def test_policy_without_a_table_goes_by_its_rule(unseen):
    graph = two_kinds(1)
    policy = replace(learn_policy([graph], 'E_base', QUICK), table={}, unseen=unseen)
    run = Run(policy.number(graph))
    rule = UNSEEN[unseen](run)
    while run.settle():
        run.take(rule.choose())
    schedule = run_policy(graph, policy)
    assert np.array_equal(schedule.order, run.schedule().order) and not schedule.unseen_states


def test_equal_names_are_told_apart_by_their_order():
    graph = two_kinds(1)
    same = Graph(graph.types, graph.offsets, graph.inputs, 4, graph.alone, ['x', 'y', 'y', 'z'])
    assert learn_policy([same], config=QUICK).types == ('x', 'y', 'y #2', 'z')


@pytest.mark.parametrize('encoding', ENCODINGS)
def test_save_and_load(encoding, tmp_path):
    path, graph = tmp_path / 'policy.json', two_kinds(2, trees=12, leaves=14)
    policy = learn_policy([graph], encoding, QLearningConfig(effort=3000))
    policy.save(path)
    policy.save(path)
    again = Policy.load(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ['policy.json']
    assert again.table == policy.table and again.types == policy.types
    assert again.config == policy.config and again.reached == policy.reached
    assert again.encoding.name == encoding and repr(again) == repr(policy)
    assert np.array_equal(run_policy(graph, again).order, run_policy(graph, policy).order)


def test_parameters_are_kept(tmp_path):
    path = tmp_path / 'policy.json'
    parameters = {'of a later release': {'weights': [[1, -2.5], []], 'bias': 1e-300}, 'b': 10**40}
    policy = learn_policy([two_kinds(2)], 'E_base', QUICK)
    assert list(policy.parameters) == ['held out']
    replace(policy, parameters=parameters).save(path)
    again = Policy.load(path)
    again.save(path)
    assert Policy.load(path).parameters == again.parameters == parameters
    with pytest.raises(PolicyError, match='parameters must be finite numbers by name'):
        path.write_text(path.read_text().replace('1e-300', '1e300000'))
        Policy.load(path)
    with pytest.raises(ValueError, match='parameters must be finite numbers by name'):
        replace(policy, parameters={'a': np.float32(1)})


class Own(BaseEncoding):
    name = 'mine'


def test_own_encoding(tmp_path):
    path = tmp_path / 'policy.json'
    learn_policy([two_kinds(2)], Own(), QUICK).save(path)
    assert Policy.load(path, encoding=Own()).encoding.name == 'mine'
    with pytest.raises(PolicyError, match="no state encoding 'mine'.*give it to Policy.load"):
        Policy.load(path)
    with pytest.raises(PolicyError, match="with the encoding 'mine', not with 'E_base'"):
        Policy.load(path, encoding=BaseEncoding())
    with pytest.raises(PolicyError, match="with the encoding 'mine', not with 'E_base'"):
        Policy.load(path, encoding='E_base')
    learn_policy([two_kinds(2)], 'E_base', QUICK).save(path)
    assert isinstance(Policy.load(path, encoding='E_base').encoding, BaseEncoding)


@in_one_test(
    'changes, message',
    [
        (dict(format='x'), 'this is no policy'),
        (dict(version=1), 'version 1, but only versions 2 and 3 can be read.*learn it anew'),
        (dict(version=4), 'version 4.*install the release that wrote it, or learn it anew'),
        (dict(parameters=None), 'parameters must be finite numbers by name'),
        (dict(parameters=[1]), 'parameters must be finite numbers by name'),
        (dict(parameters={'a': [True]}), 'parameters must be finite numbers by name'),
        (dict(parameters={'a': [[[[[[[[[1]]]]]]]]]}), 'parameters must be finite numbers by name'),
        (dict(parameters={'a': {'b': 'c'}}), 'parameters must be finite numbers by name'),
        (dict(parameters={'a\ud800': 1}), 'parameters must be finite numbers by name'),
        (dict(unseen='oracle'), 'unseen must be one of least deep, longest way'),
        (dict(encoding='E_none'), "there is no state encoding 'E_none'"),
        (dict(encoding=3), 'encoding must be a name'),
        (dict(types=['a', 'a']), 'types must be a list of different names'),
        (dict(types=['a\ud800', 'b']), 'types must be a list of different names'),
        (dict(types=None), 'types must be a list of different names'),
        (
            dict(table=[[[0], 9]]),
            'entry 0 of the table chooses the type 9, but types go from 0 to 3',
        ),
        (dict(table=[[[0], True]]), 'chooses the type True'),
        (dict(table=[[[0], [[[[[[3]]]]]]]]), r'chooses the type \[\[\[\[\.\.\.\]\]\]\], but'),
        (dict(table=[[[0], 1], [[0], 2]]), 'entry 1 of the table has the same state'),
        (dict(table=[[['x'], 1]]), 'entry 0 of the table has a state that is no list of whole'),
        (dict(table=[[[1 << 70], 1]]), 'entry 0 of the table has a state that is no list of whole'),
        (dict(table=[3]), 'entry 0 of the table must be'),
        (dict(table=None), 'table must be a list'),
        (dict(config={}), 'config must have check_every'),
        (dict(small=-1), 'small must be a whole number of nodes, not -1'),
        (dict(reached={}), 'reached must have whole numbers'),
    ],
)
def test_load_says_what_is_wrong(tmp_path, changes, message):
    path = tmp_path / 'policy.json'
    learn_policy([two_kinds(2)], config=QUICK).save(path)
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **changes}))
    with pytest.raises(PolicyError, match=message):
        Policy.load(path)


@pytest.mark.parametrize(
    'values, message',
    [
        (dict(seed=-1), 'seed must be from 0'),
        (dict(steps=1.5), 'steps must be a whole number'),
        (dict(epsilon=2), 'epsilon must be from 0 to 1'),
        (dict(effort=True), 'effort must be a whole'),
        (dict(learning_rate='x'), 'learning_rate must be a number'),
    ],
)
def test_config_says_what_is_wrong(tmp_path, values, message):
    with pytest.raises(ValueError, match=message):
        QLearningConfig(**values)
    path = tmp_path / 'policy.json'
    learn_policy([two_kinds(2)], config=QUICK).save(path)
    content = json.loads(path.read_text())
    content['config'].update(values)
    path.write_text(json.dumps(content))
    with pytest.raises(PolicyError, match=message):
        Policy.load(path)


def test_load_refuses_what_is_no_policy(tmp_path):
    path = tmp_path / 'policy.json'
    learn_policy([two_kinds(2)], config=QUICK).save(path)
    whole = path.read_bytes()
    for junk in (
        b'',
        whole[: len(whole) // 2],
        whole[:-3],
        b'\xff\xfe' * 500_000,
        bytes(np.random.RandomState(0).bytes(1 << 20)),
        b'[' * (1 << 20),
        b'[]',
        b'null',
        whole.replace(b'"effort": 500', b'"effort": NaN'),
    ):
        path.write_bytes(junk)
        with pytest.raises(PolicyError, match='no policy'):
            Policy.load(path)
    with pytest.raises(FileNotFoundError):
        Policy.load(tmp_path / 'none.json')


# The scheduler that learns by itself


def test_fsm_learns_on_the_first_minibatches_and_then_looks_up():
    fsm = FSMScheduler(config=QUICK)
    learned = [fsm.schedule(two_kinds(seed)).learn_s for seed in range(8)]
    assert learned[0] > 0 and learned[4:] == [0] * 4
    assert len(fsm.policies) == 1 and fsm.learn_s == pytest.approx(sum(learned))


def test_learning_is_over_where_the_bound_is_reached():
    chain = Graph.from_lists([0, 1, 1, 1], [[], [0], [1], [2]], type_names=['in', 'cell'])
    fsm = FSMScheduler()
    for length in range(2, 9):
        fsm.schedule(
            Graph.from_lists(
                [0] + [1] * length, [[]] + [[i] for i in range(length)], type_names=['in', 'cell']
            )
        )
    assert fsm.schedule(chain).learn_s == 0 and fsm.policies[0].reached.graphs == 1


def test_models_have_policies_of_their_own():
    fsm, graph = FSMScheduler(config=QUICK), two_kinds(3)
    fsm.schedule(graph)
    fsm.schedule(Graph(graph.types, graph.offsets, graph.inputs, 4, graph.alone, list('abcd')))
    assert [policy.types for policy in fsm.policies] == [
        ('head', 'leaf', 'one', 'two'),
        ('a', 'b', 'c', 'd'),
    ]


def test_a_model_with_ever_new_types_is_not_learned_for_ever():
    fsm, graph = FSMScheduler(config=QUICK), two_kinds(3)
    learned = [
        fsm.schedule(
            Graph(
                graph.types,
                graph.offsets,
                graph.inputs,
                4,
                graph.alone,
                ['leaf', 'one', 'two', f'head {number}'],
            )
        ).learn_s
        for number in range(16)
    ]
    assert len(fsm.policies) == 1 and learned[0] > 0 and learned[-2:] == [0, 0]


def test_without_learning_the_sufficient_condition_decides():
    graph = two_kinds(3)
    fsm = FSMScheduler(learn=False)
    assert np.array_equal(
        fsm.schedule(graph).order, SufficientConditionScheduler().schedule(graph).order
    )
    assert fsm.policies == [] and fsm.unseen_states == 0


def test_what_was_learned_is_used_when_learning_is_switched_off():
    fsm = FSMScheduler(config=QUICK)
    for seed in range(6):
        fsm.schedule(two_kinds(seed, trees=20, leaves=14))
    fsm.learn = False
    (policy,) = fsm.policies
    others = []
    for seed in range(6, 18):
        graph = two_kinds(seed, trees=20, leaves=14)
        found, expected = fsm.schedule(graph), run_policy(graph, policy)
        assert np.array_equal(found.bounds, expected.bounds)
        assert np.array_equal(found.order, expected.order)
        others.append(SufficientConditionScheduler().schedule(graph))
        others[-1] = np.array_equal(found.order, others[-1].order)
    assert not all(others)  # so that it can be told from having forgotten


# Caches


def test_equal_graphs_are_scheduled_once():
    cached = CachedScheduler(DepthScheduler(), capacity=2)
    first = cached.schedule(two_kinds(1))
    assert cached.schedule(two_kinds(1)) is first
    for seed in (2, 3):
        assert cached.schedule(two_kinds(seed)) is not first
    assert len(cached.cache) == 2 and cached.schedule(two_kinds(1)) is not first
    graph = two_kinds(1)
    for other in (
        Graph(graph.types[::-1].copy(), graph.offsets, graph.inputs, 4, graph.alone),
        Graph(graph.types, graph.offsets, graph.inputs, 4, ~graph.alone),
    ):
        check_schedule(cached.schedule(other), other)


def test_wrong_arguments():
    with pytest.raises(ValueError, match='width must be at least 1'):
        BeamScheduler(0)
    with pytest.raises(ValueError, match='there must be a graph'):
        learn_policy([])
    with pytest.raises(ValueError, match="no state encoding 'E'; there are 'E_base'"):
        get_encoding('E')
    with pytest.raises(TypeError, match='is not a state encoding'):
        get_encoding(BaseEncoding)
    with pytest.raises(ValueError, match='capacity must be at least 0'):
        CachedScheduler(get_scheduler('depth'), -1)
    with pytest.raises(ValueError, match='capacity must be at least 0'):
        FSMScheduler(cache=-1)
    with pytest.raises(TypeError, match="a Policy or None, not 'policy.json'; Policy.load"):
        FSMScheduler('policy.json')
