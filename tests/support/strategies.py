"""Random graphs for property tests."""

from hypothesis import strategies as st

from gluon_edbatch_core.graph.graph import Graph

Inputs = list[list[int]]


@st.composite
def _dag(draw, max_nodes: int) -> Inputs:
    """Draw any edges, a producer named twice among them."""
    backs = draw(st.lists(st.lists(st.integers(1, 8), max_size=4), max_size=max_nodes))
    return [[node - back for back in row if back <= node] for node, row in enumerate(backs)]


@st.composite
def _trees(draw, max_nodes: int) -> Inputs:
    """Draw trees recorded bottom-up; a node may read each child once or twice (its h and its c)."""
    arities = draw(st.lists(st.integers(0, 3), max_size=max_nodes))
    twice = draw(st.booleans())
    inputs: Inputs = []
    stack: list[int] = []
    for node, arity in enumerate(arities):
        children = [stack.pop() for _ in range(min(arity, len(stack)))]
        inputs.append(children * 2 if twice else list(children))
        stack.append(node)
    return inputs


@st.composite
def _chains(draw, max_nodes: int) -> Inputs:
    """Draw several chains, one recorded after the other."""
    inputs: Inputs = []
    for length in draw(st.lists(st.integers(1, 8), max_size=max(1, max_nodes // 8))):
        inputs += [[len(inputs) + step - 1] if step else [] for step in range(length)]
    return inputs


@st.composite
def _fans(draw, max_nodes: int) -> Inputs:
    """Draw layers, each node of which reads the whole layer before: wide fans in and out."""
    inputs: Inputs = []
    before: list[int] = []
    for width in draw(st.lists(st.integers(1, max(1, max_nodes // 4)), max_size=4)):
        layer = list(range(len(inputs), len(inputs) + width))
        inputs += [list(before) for _ in layer]
        before = layer
    return inputs


@st.composite
def graphs(draw, max_nodes: int = 32, max_types: int = 5) -> Graph:
    """Draw a graph of some shape, maybe without nodes, with one node, or with types without
    nodes."""
    shape = draw(st.sampled_from([_dag, _trees, _chains, _fans]))
    inputs = draw(shape(max_nodes))[:max_nodes]
    num_types = draw(st.integers(1, max_types))
    types = draw(
        st.lists(st.integers(0, num_types - 1), min_size=len(inputs), max_size=len(inputs))
    )
    alone = draw(st.one_of(st.just(set()), st.sets(st.integers(0, num_types - 1))))
    return Graph.from_lists(types, inputs, num_types, alone=sorted(alone))
