"""Step 3: passes over all blocks of a program, each of which can be left out.

Where a pass changes nothing, it gives the same drafts again; all are repeated until none does.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from ..branching.host_arithmetic import calculate
from ..branching.program_graph import (
    Calculate,
    Choose,
    End,
    Finish,
    Goto,
    gotos,
    read_by,
    read_by_end,
    written_by,
)
from ..branching.pytree import exact
from ..ops import op_of
from .draft import (
    Applied,
    Draft,
    Made,
    Place,
    graph_key,
    is_needed,
    needed,
    renamed,
    renamed_end,
)
from .flow import in_order

Drafts = list[Draft]


@dataclass
class Optimised:
    """What came of it.

    Attributes
    ----------
    drafts : list of Draft
    effects : dict of str to int
        By pass, how much of its kind went away.
    """

    drafts: Drafts
    effects: dict[str, int] = field(default_factory=dict)


def optimise(drafts: Drafts, training: bool, without: Sequence[str] = ()) -> Optimised:
    """Apply all passes, or all but some."""
    effects: Counter = Counter()
    passes = {name: each for name, each in PASSES.items() if name not in without}
    changed = True
    while changed:
        changed = False
        for name, each in passes.items():
            drafts, effect = each(drafts, training)
            effects[name] += effect
            changed = changed or effect > 0
        drafts = _in_order(drafts)
    return Optimised(_in_order(drafts), {name: effects[name] for name in PASSES})


def _in_order(drafts: Drafts) -> Drafts:
    """Those that can be reached, in an order in which loops come before what follows them."""
    order = in_order(0, lambda number: [to.block for to in gotos(drafts[number].end)])
    place = {number: new for new, number in enumerate(order)}
    return [
        drafts[number]._replace(
            end=_redirected(drafts[number].end, lambda to: to._replace(block=place[to.block]))
        )
        for number in order
    ]


def _redirected(end: End, goto: Callable[[Goto], Goto]) -> End:
    if isinstance(end, Choose):
        return end._replace(then=goto(end.then), other=goto(end.other))
    return goto(end) if isinstance(end, Goto) else end


def _ways_to(drafts: Drafts) -> list[list[Goto]]:
    """All that leads to each block; to the first, the program's call."""
    ways: list[list[Goto]] = [[] for _ in drafts]
    for draft in drafts:
        for to in gotos(draft.end):
            ways[to.block].append(to)
    return ways


def _tidied(draft: Draft) -> Draft:
    return draft._replace(made=needed(draft.made, read_by_end(draft.end)))


# --- passes --------------------------------------------------------------------------------------


def _threaded(drafts: Drafts, _: bool) -> tuple[Drafts, int]:
    """Ways to a block that computes nothing lead to where it leads."""
    count = 0

    def on(to: Goto) -> Goto:
        nonlocal count
        seen = set()
        while True:
            target = drafts[to.block]
            if target.made or not isinstance(target.end, Goto) or to.block in seen:
                return to
            seen.add(to.block)
            names: dict[int, Place] = dict(enumerate(to.values))
            moved: Any = renamed_end(target.end, names)
            to, count = moved, count + 1

    made = [draft._replace(end=_redirected(draft.end, on)) for draft in drafts]
    return made, count


def _merged(drafts: Drafts, _: bool) -> tuple[Drafts, int]:
    """A block that only one other leads to, without a choice, becomes a part of that."""
    drafts, ways, count = list(drafts), _ways_to(drafts), 0
    gone: set[int] = set()
    for number in range(len(drafts)):
        while number not in gone and isinstance(drafts[number].end, Goto):
            to: Any = drafts[number].end
            is_end = isinstance(drafts[to.block].end, Finish) and not drafts[to.block].made
            if to.block in (0, number) or (len(ways[to.block]) > 1 and not is_end):
                break
            if not is_end:
                gone.add(to.block)
            drafts[number] = _joined(drafts[number], drafts[to.block], to)
            count += 1
    return drafts, count


def _joined(first: Draft, second: Draft, to: Goto) -> Draft:
    """Two blocks as one."""
    shift = len(first.specs) - second.takes
    names: dict[int, Place] = dict(enumerate(to.values))
    names.update({place: place + shift for place in range(second.takes, len(second.specs))})
    return Draft(
        first.takes,
        first.specs + second.specs[second.takes :],
        first.made + tuple([renamed(made, names) for made in second.made]),
        _decided(renamed_end(second.end, names)),
        first.name,
    )


def _decided(end: End) -> End:
    """The way that is always taken, if it is."""
    if isinstance(end, Choose) and isinstance(end.condition, tuple):
        return end.then if end.condition[0] else end.other
    return end


def _places(names: dict[int, Place]) -> dict[int, int]:
    return {place: new for place, new in names.items() if isinstance(new, int)}


def _without_dead(drafts: Drafts, _: bool) -> tuple[Drafts, int]:
    """Blocks take only what they, or later ones, read."""
    read: list[set[int]] = [set() for _ in drafts]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(drafts))):
            found = _read_of(drafts[number], read)
            changed = changed or found != read[number]
            read[number] = found
    read[0] = set(range(drafts[0].takes))  # what it is called with
    kept = [sorted(each) for each in read]
    made = [_taking(draft, kept[number], kept) for number, draft in enumerate(drafts)]
    return made, sum([draft.takes for draft in drafts]) - sum([draft.takes for draft in made])


def _read_of(draft: Draft, read: list[set[int]]) -> set[int]:
    """What it takes and reads, if later blocks take only that."""
    end = draft.end
    places: set[Any] = {end.condition} if isinstance(end, Choose) else set()
    if isinstance(end, Finish):
        places.update(read_by_end(end))
    for to in gotos(end):
        places.update([each for i, each in enumerate(to.values) if i in read[to.block]])
    ints = [place for place in places if isinstance(place, int)]
    wanted = set(ints)
    for made in reversed(draft.made):
        if is_needed(made, wanted):
            wanted.update(read_by(made))
    return {place for place in wanted if place < draft.takes}


def _taking(draft: Draft, own: list[int], kept: list[list[int]]) -> Draft:
    """The same block that takes some of its values only."""

    def goto(to: Goto) -> Goto:
        return to._replace(values=tuple([to.values[place] for place in kept[to.block]]))

    draft = _tidied(draft._replace(end=_redirected(draft.end, goto)))
    inner = range(draft.takes, len(draft.specs))
    names = {place: new for new, place in enumerate([*own, *inner])}
    return Draft(
        len(own),
        tuple([draft.specs[place] for place in names]),
        tuple([renamed(made, names) for made in draft.made]),
        renamed_end(draft.end, names),
        draft.name,
    )


def _with_constant_takes(drafts: Drafts, _: bool) -> tuple[Drafts, int]:
    """Numbers that are the same wherever a block is come to from, and what is computed of such."""
    ways, made, count = _ways_to(drafts), [], 0
    for number, draft in enumerate(drafts):
        constants: dict[int, Any] = {}
        for place in range(draft.takes if number else 0):
            values = {exact(to.values[place]) for to in ways[number]}
            if len(values) == 1 and isinstance(ways[number][0].values[place], tuple):
                constants[place] = ways[number][0].values[place]
        draft, folded = _folded(draft, constants)
        made.append(draft)
        count += folded
    return made, count


def _folded(draft: Draft, constants: dict[int, Any]) -> tuple[Draft, int]:
    """With numbers that are known in the place of values."""
    kept: list[Made] = []
    used = set(read_by_end(draft.end)).union(*[read_by(made) for made in draft.made])
    count = len(used.intersection(constants))
    for made in draft.made:
        made = renamed(made, constants)
        if isinstance(made, Calculate) and all([isinstance(p, tuple) for p in made.operands]):
            value = calculate(made, [p[0] for p in made.operands], 1)[0]  # type: ignore[index]
            constants[made.output] = (value.item(),)
            count += 1
            continue
        kept.append(made)
    end = _decided(renamed_end(draft.end, constants))
    return draft._replace(made=tuple(kept), end=end), count


def _without_identities(drafts: Drafts, training: bool) -> tuple[Drafts, int]:
    """Operators that change nothing, and values that a block takes twice."""
    ways, made, count = _ways_to(drafts), [], 0
    for number, draft in enumerate(drafts):
        names: dict[int, int] = {}
        first: dict[Any, int] = {}
        for place in range(draft.takes if number else 0):
            key = tuple([exact(to.values[place]) for to in ways[number]])
            names[place] = first.setdefault(key, place)
        kept: list[Made] = []
        for each in draft.made:
            each = renamed(each, names)
            same = _same_as(each, draft, training)
            if same is None:
                kept.append(each)
            else:
                names[written_by(each)[0]] = same
        changes = {old: new for old, new in names.items() if old != new}
        read = set(read_by_end(draft.end)).union(*[read_by(each) for each in draft.made])
        count += len(read.intersection(changes))
        made.append(
            draft._replace(made=tuple(kept), end=renamed_end(draft.end, changes))
            if changes
            else draft
        )
    return made, count


def _same_as(made: Made, draft: Draft, training: bool) -> Optional[int]:
    """The value that something is the same as."""
    if not isinstance(made, Applied) or len(made.graph.operators) != 1 or len(made.inputs) != 1:
        return None
    (op,) = made.graph.operators
    if op in ('_copy', 'identity') or (op == 'Dropout' and not training):
        return made.inputs[0]
    if op in ('Reshape', 'reshape', 'Flatten', 'expand_dims', 'squeeze') and (
        draft.specs[made.outputs[0]] == draft.specs[made.inputs[0]]
    ):
        return made.inputs[0]
    return None


def _without_repeated(drafts: Drafts, training: bool) -> tuple[Drafts, int]:
    """What a block computes twice of the same values."""
    count, result = 0, []
    for draft in drafts:
        known: dict[Any, tuple[int, ...]] = {}
        names: dict[int, int] = {}
        kept: list[Made] = []
        for made in draft.made:
            made = renamed(made, names)
            key = _key(made, training)
            if key is not None and key in known:
                names.update(zip(written_by(made), known[key]))
                count += 1
                continue
            if key is not None:
                known[key] = written_by(made)
            kept.append(made)
        end = renamed_end(draft.end, names)
        result.append(draft._replace(made=tuple(kept), end=end) if names else draft)
    return result, count


def _key(made: Made, training: bool) -> Any:
    """The same for what computes the same; None for what does not each time."""
    if isinstance(made, Applied):
        if any(op_of(op).noise for op in made.graph.operators) or (training and made.graph.states):
            return None
        parameters = tuple([(name, id(each)) for name, each in sorted(made.parameters.items())])
        return graph_key(made.graph), parameters, made.inputs
    places = made.operands if isinstance(made, Calculate) else made[1:2]
    return type(made), made._replace(output=-1), tuple(map(exact, places))


def _hoisted(drafts: Drafts, training: bool) -> tuple[Drafts, int]:
    """What both ways of a choice begin with runs before it, for all samples at once."""
    drafts, ways, count = list(drafts), _ways_to(drafts), 0
    for number, draft in enumerate(drafts):
        end = draft.end
        if not isinstance(end, Choose) or end.then.block == end.other.block:
            continue
        if 0 in (end.then.block, end.other.block) or number in (end.then.block, end.other.block):
            continue
        if len(ways[end.then.block]) > 1 or len(ways[end.other.block]) > 1:
            continue
        moved = _first_shared(draft, drafts, training)
        if moved is not None:
            drafts[number], drafts[end.then.block], drafts[end.other.block] = moved
            ways = _ways_to(drafts)
            count += 1
    return drafts, count


def _first_shared(draft: Draft, drafts: Drafts, training: bool) -> Any:
    """The three blocks with one operator moved to the first; None if there is none."""
    end: Any = draft.end
    found: dict[Any, Applied] = {}
    for to in (end.then, end.other):
        target, names = drafts[to.block], _places(dict(enumerate(to.values)))
        for made in target.made:
            if isinstance(made, Applied) and all(place in names for place in made.inputs):
                key = _key(renamed(made, names), training)
                if key is not None and key in found and to is end.other:
                    return _moved(draft, drafts, found[key], made)
                if key is not None and to is end.then:
                    found[key] = made
    return None


def _moved(draft: Draft, drafts: Drafts, first: Applied, second: Applied) -> Any:
    end: Any = draft.end
    names = _places(dict(enumerate(end.then.values)))
    then, other = drafts[end.then.block], drafts[end.other.block]
    start = len(draft.specs)
    new = tuple(range(start, start + len(first.outputs)))
    specs = tuple([then.specs[place] for place in first.outputs])
    inputs = tuple([names[place] for place in first.inputs])
    draft = draft._replace(
        specs=draft.specs + specs,
        made=draft.made + (first._replace(inputs=inputs, outputs=new),),
        end=end._replace(
            then=end.then._replace(values=end.then.values + new),
            other=end.other._replace(values=end.other.values + new),
        ),
    )
    return draft, _taking_more(then, first), _taking_more(other, second)


def _taking_more(draft: Draft, made: Applied) -> Draft:
    """A block that takes what it made before."""
    count = len(made.outputs)
    names = {place: place + count for place in range(draft.takes, len(draft.specs))}
    names.update({place: draft.takes + i for i, place in enumerate(made.outputs)})
    specs = [draft.specs[place] for place in made.outputs]
    return Draft(
        draft.takes + count,
        draft.specs[: draft.takes] + tuple(specs) + draft.specs[draft.takes :],
        tuple([renamed(each, names) for each in draft.made if each is not made]),
        renamed_end(draft.end, names),
        draft.name,
    )


PASSES: dict[str, Callable[[Drafts, bool], tuple[Drafts, int]]] = {
    'thread': _threaded,
    'constants': _with_constant_takes,
    'identities': _without_identities,
    'dead': _without_dead,
    'merge': _merged,
    'repeated': _without_repeated,
    'prefixes': _hoisted,
}
