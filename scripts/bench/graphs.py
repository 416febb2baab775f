"""Graphs of ED-Batch's workloads straight from the data, as recording per-sample models gives them.

A schedule depends on the types of the nodes and on the edges only, so that schedulers can be
compared without a model. ``SOURCES`` has one function for each workload, which yields a
`SampleGraph` for every sample in the data; `minibatch` joins some of them. Types are named as the
models' blocks, with one type for a ragged argument of any length. Needs NumPy only.
"""
import hashlib
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Callable, Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple, Union


from gluon_edbatch.graph import Graph

__all__ = ['SOURCES', 'SampleGraph', 'load_graphs', 'minibatch']

RARE = 5                # words seen less often are spelled
LONGEST_WORD = 4        # characters of a dictionary word, as most have at most four
Tree = Union[str, Tuple['Tree', 'Tree']]


class SampleGraph(NamedTuple):
    """What one sample records.

    Attributes
    ----------
    types : list of str
        The name of each node's type.
    inputs : list of list of int
        The nodes that each node reads, all before it.
    """

    types: List[str]
    inputs: List[List[int]]

    @classmethod
    def empty(cls) -> 'SampleGraph':
        """Nothing recorded yet."""
        return cls([], [])

    def call(self, kind: str, *inputs: int) -> int:
        """Record a call; gives its node."""
        self.types.append(kind)
        self.inputs.append(list(inputs))
        return len(self.types) - 1


def minibatch(samples: Sequence[SampleGraph]) -> Graph:
    """One graph of several samples; types are numbered in the order in which they occur."""
    names = {kind: number for number, kind in
             enumerate(dict.fromkeys(kind for sample in samples for kind in sample.types))}
    types, inputs = [], []
    for sample in samples:
        base = len(types)
        types += [names[kind] for kind in sample.types]
        inputs += [[base + node for node in row] for row in sample.inputs]
    return Graph.from_lists(types, inputs, len(names), type_names=tuple(names))


def load_graphs(workload: str, data: Path, count: int, split: str = 'train') -> List[SampleGraph]:
    """The graphs of the first `count` samples of a workload.

    Parameters
    ----------
    workload : str
        One of ``SOURCES``.
    data : Path
        The directory of the data sets.
    count : int
        How many; fewer if there are no more.
    split : str, default 'train'
        ``'train'`` or ``'dev'``.
    """
    return list(islice(SOURCES[workload](data, split), count))


# Trees


def _sst(data: Path, split: str) -> Iterator[Tree]:
    with (data / 'sst' / f'{split}.txt').open(encoding='utf-8') as lines:
        for line in lines:
            yield _parse(line.rstrip('\n').replace('(', '( ').replace(')', ' )').split(' '))


def _parse(tokens: Sequence[str]) -> Tree:
    """A binary tree of words from brackets with labels, which are left out."""
    stack: List[list] = [[]]
    for token in filter(None, tokens):
        if token == '(':
            stack.append([])
        elif token == ')':
            label, *children = stack.pop()
            stack[-1].append(children[0] if len(children) == 1 else tuple(children))
        else:
            stack[-1].append(token)
    return stack[0][0]


def _tree(tree: Tree, leaf: Callable[[SampleGraph, str], int],
          inner: Callable[[SampleGraph, int, int], int]) -> SampleGraph:
    """Record a tree bottom-up, then classify its root."""
    graph = SampleGraph.empty()

    def record(node: Tree) -> int:
        if isinstance(node, str):
            return leaf(graph, node)
        return inner(graph, record(node[0]), record(node[1]))

    graph.call('SoftmaxCELoss', graph.call('Dense', record(tree)))
    return graph


def treelstm_sst(data: Path, split: str) -> Iterator[SampleGraph]:
    """Binary Tree-LSTM; one type for leaves and inner nodes, children are ragged."""
    for tree in _sst(data, split):
        yield _tree(tree, lambda graph, word: graph.call(
            'ChildSumTreeLSTMCell', graph.call('Embedding', )),
            lambda graph, left, right: graph.call('ChildSumTreeLSTMCell', left, right, left, right))


def treegru_sst(data: Path, split: str) -> Iterator[SampleGraph]:
    """Tree-GRU with a cell for leaves and one for inner nodes."""
    for tree in _sst(data, split):
        yield _tree(tree, lambda graph, word: graph.call('LeafCell', graph.call('Embedding')),
                    lambda graph, left, right: graph.call('TreeGRUCell', left, right))


def mvrnn_sst(data: Path, split: str) -> Iterator[SampleGraph]:
    """A vector and a matrix a node: two look-ups a leaf, one cell a pair."""
    def leaf(graph: SampleGraph, word: str) -> int:
        graph.call('Embedding(matrix)')
        return graph.call('Lift', graph.call('Embedding'), len(graph.types) - 2)

    for tree in _sst(data, split):
        yield _tree(tree, leaf, lambda graph, left, right: graph.call(
            'MVCell', left, left, right, right))


def treelstm2_sst(data: Path, split: str) -> Iterator[SampleGraph]:
    """Tree-LSTM with two kinds of inner cell, chosen by the words below the node."""
    for tree in _sst(data, split):
        words: Dict[int, str] = {}

        def leaf(graph: SampleGraph, word: str) -> int:
            node = graph.call('LeafCell', graph.call('Embedding'))
            words[node] = word
            return node

        def inner(graph: SampleGraph, left: int, right: int) -> int:
            text = f'{words[left]} {words[right]}'
            kind = hashlib.md5(text.encode()).digest()[0] % 2
            node = graph.call(f'NaryTreeLSTMCell({"ab"[kind]})', left, left, right, right)
            words[node] = text
            return node

        yield _tree(tree, leaf, inner)


# Lattices


def _weibo(data: Path, split: str) -> Iterator[str]:
    """Sentences, each character without the digit that follows it."""
    text = (data / 'zh_ner_weibo' / f'weiboNER_2nd_conll.{split}').read_text(encoding='utf-8')
    for block in text.split('\n\n'):
        characters = [line.split('\t')[0][:-1] for line in block.splitlines() if line.strip()]
        if characters:
            yield ''.join(characters)


def _dictionary(data: Path) -> Set[str]:
    lines = (data / 'zh_wordlist' / 'dict.txt.small').read_text(encoding='utf-8').splitlines()
    return {word for word in (line.split(' ')[0] for line in lines)
            if 1 < len(word) <= LONGEST_WORD}


def _lattice(data: Path, split: str, merged: Callable[[List[int]], List[int]], prefix: str
             ) -> Iterator[SampleGraph]:
    """An arc from position to position for every character and dictionary word.

    Arcs are run by the cell for characters or that for words; where several end, their states are
    merged by one block with a ragged argument.
    """
    dictionary = _dictionary(data)
    for sentence in _weibo(data, split):
        graph = SampleGraph.empty()
        states: List[List[int]] = [[]]
        for end in range(1, len(sentence) + 1):
            arcs = [graph.call(f'{prefix}(char)', graph.call('Embedding(char)'), *states[end - 1])]
            for begin in range(max(0, end - LONGEST_WORD), end - 1):
                if sentence[begin:end] in dictionary:
                    arcs.append(graph.call(f'{prefix}(word)', graph.call('Embedding(word)'),
                                           *states[begin]))
            state = arcs[0] if len(arcs) == 1 else graph.call('Merge', *merged(arcs))
            states.append(merged([state]))
            graph.call('SoftmaxCELoss', graph.call('Dense', state))
        yield graph


def lattice_lstm(data: Path, split: str) -> Iterator[SampleGraph]:
    """Lattice of LSTM cells: each reads an h and a c."""
    return _lattice(data, split, lambda nodes: nodes + nodes, 'LSTMCell')


def lattice_gru(data: Path, split: str) -> Iterator[SampleGraph]:
    """Lattice of GRU cells."""
    return _lattice(data, split, list, 'GRUCell')


# Chains


def _wikiner(data: Path, split: str) -> List[List[str]]:
    with (data / 'wikiner' / f'{split}.txt').open(encoding='utf-8') as lines:
        return [[pair.rpartition('|')[0] for pair in line.split()] for line in lines
                if line.strip()]


def _run(graph: SampleGraph, kind: str, inputs: Sequence[int]) -> List[int]:
    """A chain of LSTM cells over some nodes."""
    states: List[int] = []
    for node in inputs:
        states.append(graph.call(kind, node, *states[-1:] * 2))
    return states


def _both_ways(graph: SampleGraph, kind: str, inputs: Sequence[int]) -> List[List[int]]:
    return [_run(graph, f'{kind}(forward)', inputs),
            _run(graph, f'{kind}(backward)', inputs[::-1])[::-1]]


def _tagger(words: Sequence[str], look_up: Callable[[SampleGraph, str], int]) -> SampleGraph:
    """Two bidirectional layers, a classifier and a loss a word."""
    graph = SampleGraph.empty()
    nodes = [look_up(graph, word) for word in words]
    for layer in range(2):
        nodes = [graph.call(f'concat({layer})', *pair)
                 for pair in zip(*_both_ways(graph, f'LSTMCell({layer})', nodes))]
    for node in nodes:
        graph.call('SoftmaxCELoss', graph.call('Dense', node))
    return graph


def bilstm_tagger(data: Path, split: str) -> Iterator[SampleGraph]:
    """Bidirectional LSTM tagger."""
    for words in _wikiner(data, split):
        yield _tagger(words, lambda graph, word: graph.call('Embedding'))


def bilstm_tagger_char(data: Path, split: str) -> Iterator[SampleGraph]:
    """The same, with rare words spelled by a bidirectional LSTM over their characters."""
    seen = Counter(word for words in _wikiner(data, 'train') for word in words)

    def look_up(graph: SampleGraph, word: str) -> int:
        if seen[word] >= RARE:
            return graph.call('Embedding')
        letters = [graph.call('Embedding(char)') for _ in word]
        forward, backward = _both_ways(graph, 'LSTMCell(char)', letters)
        return graph.call('concat(char)', forward[-1], backward[0])

    for words in _wikiner(data, split):
        yield _tagger(words, look_up)


SOURCES: Dict[str, Callable[[Path, str], Iterator[SampleGraph]]] = {
    'treelstm-sst': treelstm_sst,
    'treegru-sst': treegru_sst,
    'mvrnn-sst': mvrnn_sst,
    'treelstm2-sst': treelstm2_sst,
    'lattice-lstm': lattice_lstm,
    'lattice-gru': lattice_gru,
    'bilstm-tagger': bilstm_tagger,
    'bilstm-tagger-char': bilstm_tagger_char,
}
