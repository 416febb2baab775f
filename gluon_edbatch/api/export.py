"""What a bundle holds of a model's cells and of the policy of its schedules."""

from collections.abc import Iterable
from typing import Any

from mxnet import gluon

from gluon_edbatch_core.bundle.manifest import BundleWriter
from gluon_edbatch_core.errors import BundleError
from gluon_edbatch_core.schedule import FSMScheduler, Scheduler

from ..mx.blocks import RECURRENT_LAYERS, names_of_blocks
from ..record.recording import Recording
from ..record.sites import Site, site_at
from ..subgraph.node_type import NodeType
from ..subgraph.structure import LEAF
from ..subgraph.trace import StaticGraph
from .cell_entries import CellCalls, Weights, leaves_of, program_of_uncalled, why_not_there
from .scope import batching


class CellsContent:
    """What a manifest holds of the cells that a scope has recorded."""

    def __init__(self, net: gluon.Block, scope: batching):
        recording = scope._recording
        if recording is None or not recording.forms:
            raise BundleError('the scope has recorded nothing: record some samples')
        recording.flush()
        self._names = names_of_blocks(net)
        self._weights: Weights = {}
        self._types: list[dict[str, Any]] = []
        self._programs: dict[Any, dict[str, Any]] = {}
        self.cells: dict[str, dict[str, Any]] = {}
        calls = _called(recording, self._names)
        for each in calls:
            names, key = self._added(each.blocks), (each.blocks, str(each.template))
            entry = each.entry(names, self._weights)
            if entry is not None:
                self._types.append(entry)
            elif key not in self._programs:
                alike = [one for one in calls if (one.blocks, str(one.template)) == key]
                met = {kind: site for one in alike for kind, site in one.types.items()}
                made = each._replace(types=met).program(names, self._weights)
                self._programs[key] = made
        types = [kind for each in calls for kind in each.types]
        self._policy = _policy(scope.scheduler, sorted(types, key=lambda kind: kind.serial))

    def _added(self, blocks: Iterable[gluon.Block]) -> list[str]:
        """Return the names of cells, which are added."""
        found: list[str] = []
        for block in blocks:
            for name in self._names[block]:
                found.append(name)
                self.cells[name] = {
                    'children': getattr(block, 'values_of_child', 0),
                    'flattens': getattr(block, 'flattens', False),
                    'states': _states_of(block),
                }
        return found

    def add_uncalled(self, block: gluon.HybridBlock) -> None:
        """Add a cell that no sample called. Raise if it cannot be traced."""
        made = program_of_uncalled(block, self._names[block], self._weights)
        self._programs[block] = made
        self._added([block])

    def written(self, bundle: BundleWriter) -> dict[str, Any]:
        """Write the weights; return the manifest's data."""
        return {
            'cells': self.cells,
            'types': self._types,
            'programs': list(self._programs.values()),
            'weights': [
                {**bundle.add_array(f'weight{place}.npy', array), 'name': name}
                for place, (name, array) in enumerate(self._weights.values())
            ],
            'policy': self._policy,
        }


def _states_of(block: gluon.Block) -> list[list[int]]:
    """Return the shapes of the states of a recurrent cell or layer, with -1 for the batch."""
    has_states = isinstance(block, gluon.rnn.RecurrentCell) or type(block) in RECURRENT_LAYERS
    infos = block.state_info(-1) if has_states else []
    return [list(info['shape']) for info in infos]


def _called(recording: Recording, names: dict[gluon.Block, list[str]]) -> list[CellCalls]:
    """Return the calls of cells, in the order of their types' serials."""
    sites: dict[tuple[NodeType, gluon.Block], Site] = {}
    nodes = recording.node_forms.since(0).tolist()
    first = {form: node for node, form in reversed(list(enumerate(nodes)))}
    for form in recording.forms:
        kind, block = form.node_type, form.block
        if form.index not in first:
            continue
        node = first[form.index]
        site = site_at(recording.node_codes[node], recording.node_instructions[node])
        if block is None:
            why = why_not_there(kind)
            if why:
                raise BundleError(
                    f'{site}: {kind} is an operator outside of cells, which is not there without '
                    f'MXNet ({why}): put it into the hybrid_forward of a HybridBlock'
                )
        elif block not in names:
            raise BundleError(f'{site}: {kind}: the block is not in the model that is exported')
        else:
            sites.setdefault((kind, block), site)
    blocks_of: dict[NodeType, list[gluon.Block]] = {}
    for kind, block in sites:
        blocks_of.setdefault(kind, []).append(block)
    found: dict[Any, CellCalls] = {}
    graphs: dict[Any, StaticGraph] = {}
    for kind in sorted(blocks_of, key=lambda kind: kind.serial):
        blocks = tuple(blocks_of[kind])
        template = _template_of(blocks[0], kind)
        graph = graphs.get((blocks[0], str(template)))
        if graph is None:
            graph = recording.trace(blocks[0], template, [None] * leaves_of((list, *template)))
            graphs[blocks[0], str(template)] = graph
        ranks = [(each.kind, each.arena.dtype, len(each.arena.row_shape))
                 for each in kind.arguments]  # fmt: skip
        calls = found.setdefault(
            (blocks, str(template), *ranks), CellCalls(blocks, template, graph, {})
        )
        calls.types[kind] = sites[kind, blocks[0]]
    return list(found.values())


def _template_of(block: gluon.HybridBlock, kind: NodeType) -> tuple[Any, ...]:
    """Return the structure of the arguments of a type's calls. A recurrent layer that was given
    zeros as states is recorded without them, and returns states."""
    template = kind.made_with[0]
    if type(block) in RECURRENT_LAYERS:
        if template == (LEAF,) and kind.traced.results != LEAF:
            template = (LEAF, (list, *[LEAF] * len(block.state_info(1))))
        block.skip_states = len(template) == 1
    return template


def _policy(scheduler: Scheduler, types: Iterable[NodeType]) -> dict[str, Any]:
    """Return the learned policy that decides on graphs of these types; empty if there is none."""
    if not isinstance(scheduler, FSMScheduler):
        return {}
    known = [scheduler.policy] if scheduler.policy is not None else scheduler.policies
    names = {kind.stable_name for kind in types}
    for policy in known:
        if names <= set(policy.types):
            return policy.content()
    return {}
