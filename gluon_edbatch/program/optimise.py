"""Step 3: run passes over all blocks of a program, each of which can be left out.

A pass that changes nothing returns the same blocks. All passes are repeated until none changes
anything.
"""

from collections.abc import Sequence
from typing import Any, Callable

from gluon_edbatch_core.branching.host_arithmetic import calculate
from gluon_edbatch_core.branching.program_graph import (
    Calculate,
    Choose,
    End,
    Finish,
    Goto,
    gotos,
    read_by,
)
from gluon_edbatch_core.branching.pytree import exact

from .block_ir import IRBlock, IRBlocks, Made, Place, needed, renamed
from .flow import in_order


def optimise(blocks: IRBlocks, without: Sequence[str] = ()) -> tuple[IRBlocks, dict[str, int]]:
    """Return blocks after all passes except some, and the number of removals by each pass."""
    effects = dict.fromkeys(PASSES, 0)
    changed = True
    while changed:
        changed = False
        for name, each in PASSES.items():
            if name not in without:
                blocks, effect = each(blocks)
                effects[name] += effect
                changed = changed or effect > 0
        blocks = _in_order(blocks)
    return blocks, effects


def _in_order(blocks: IRBlocks) -> IRBlocks:
    """Return the blocks that can be reached, in an order where loops come before what follows."""
    order = in_order(0, lambda number: [to.block for to in gotos(blocks[number].end)])
    place = {number: new for new, number in enumerate(order)}
    return [
        blocks[number]._replace(
            end=_redirected(blocks[number].end, lambda to: to._replace(block=place[to.block]))
        )
        for number in order
    ]


def _redirected(end: End, goto: Callable[[Goto], Goto]) -> End:
    if isinstance(end, Choose):
        return end._replace(then=goto(end.then), other=goto(end.other))
    return goto(end) if isinstance(end, Goto) else end


def _ways_to(blocks: IRBlocks) -> list[list[Goto]]:
    """Return all edges that lead to each block; the program's call leads to the first."""
    ways: list[list[Goto]] = [[] for _ in blocks]
    for block in blocks:
        for to in gotos(block.end):
            ways[to.block].append(to)
    return ways


# --- passes --------------------------------------------------------------------------------------


def _threaded(blocks: IRBlocks) -> tuple[IRBlocks, int]:
    """Redirect edges to blocks that compute nothing to where these lead."""
    count = 0

    def on(to: Goto) -> Goto:
        nonlocal count
        seen = set()
        while True:
            target = blocks[to.block]
            if target.made or not isinstance(target.end, Goto) or to.block in seen:
                return to
            seen.add(to.block)
            names: dict[int, Place] = dict(enumerate(to.values))
            moved: Any = renamed(target.end, names)
            to, count = moved, count + 1

    made = [block._replace(end=_redirected(block.end, on)) for block in blocks]
    return made, count


def _merged(blocks: IRBlocks) -> tuple[IRBlocks, int]:
    """Merge a block into the only block that leads to it without a choice."""
    blocks, ways, count = list(blocks), _ways_to(blocks), 0
    gone: set[int] = set()
    for number in range(len(blocks)):
        while number not in gone and isinstance(blocks[number].end, Goto):
            to: Any = blocks[number].end
            is_end = isinstance(blocks[to.block].end, Finish) and not blocks[to.block].made
            if to.block in (0, number) or (len(ways[to.block]) > 1 and not is_end):
                break
            if not is_end:
                gone.add(to.block)
            blocks[number] = _joined(blocks[number], blocks[to.block], to)
            count += 1
    return blocks, count


def _joined(first: IRBlock, second: IRBlock, to: Goto) -> IRBlock:
    """Return a block and the one that it always jumps to as one."""
    shift = len(first.specs) - second.takes
    names: dict[int, Place] = dict(enumerate(to.values))
    names.update({place: place + shift for place in range(second.takes, len(second.specs))})
    return IRBlock(
        first.takes,
        first.specs + second.specs[second.takes :],
        first.made + tuple([renamed(made, names) for made in second.made]),
        _decided(renamed(second.end, names)),
        first.name,
    )


def _decided(end: End) -> End:
    """Return the edge that is always taken, if there is one; else the end as it is."""
    if isinstance(end, Choose) and isinstance(end.condition, tuple):
        return end.then if end.condition[0] else end.other
    return end


def _without_dead(blocks: IRBlocks) -> tuple[IRBlocks, int]:
    """Let blocks take only the values that they, or later ones, read."""
    read: list[set[int]] = [set() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(blocks))):
            found = _read_of(blocks[number], read)
            changed = changed or found != read[number]
            read[number] = found
    read[0] = set(range(blocks[0].takes))  # what it is called with
    kept = [sorted(each) for each in read]
    made = [_taking(block, kept[number], kept) for number, block in enumerate(blocks)]
    return made, sum([one.takes - other.takes for one, other in zip(blocks, made)])


def _read_of(block: IRBlock, read: list[set[int]]) -> set[int]:
    """Return the values that a block takes and reads, if later blocks take only `read`."""
    end: Any = block.end
    places: list[Any] = [end.condition] if isinstance(end, Choose) else []
    places += end.values if isinstance(end, Finish) else ()
    for to in gotos(end):
        places += [each for i, each in enumerate(to.values) if i in read[to.block]]
    wanted = {place for place in places if isinstance(place, int)}
    wanted.update(*map(read_by, needed(block.made, wanted)))
    return {place for place in wanted if place < block.takes}


def _taking(block: IRBlock, own: list[int], kept: list[list[int]]) -> IRBlock:
    """Return a block that takes some of its values only."""

    def goto(to: Goto) -> Goto:
        return to._replace(values=tuple([to.values[place] for place in kept[to.block]]))

    end = _redirected(block.end, goto)
    inside = needed(block.made, read_by(end))
    inner = range(block.takes, len(block.specs))
    names = {place: new for new, place in enumerate([*own, *inner])}
    return IRBlock(
        len(own),
        tuple([block.specs[place] for place in names]),
        tuple([renamed(made, names) for made in inside]),
        renamed(end, names),
        block.name,
    )


def _with_known_takes(blocks: IRBlocks) -> tuple[IRBlocks, int]:
    """Replace numbers that are equal on all edges to a block, what is computed from them, and
    values that a block takes twice."""
    ways, made, count = _ways_to(blocks), [], 0
    for number, block in enumerate(blocks):
        names: dict[int, Place] = {}
        first: dict[Any, int] = {}
        for place in range(block.takes if number and ways[number] else 0):
            values = [to.values[place] for to in ways[number]]
            key = tuple(map(exact, values))
            if isinstance(values[0], tuple) and len(set(key)) == 1:
                names[place] = values[0]
            elif first.setdefault(key, place) != place:
                names[place] = first[key]
        block, folded = _folded(block, names)
        made.append(block)
        count += folded
    return made, count


def _folded(block: IRBlock, names: dict[int, Place]) -> tuple[IRBlock, int]:
    """Return a block with known numbers, or other values, in place of some values."""
    kept: list[Made] = []
    used = set(read_by(block.end)).union(*[read_by(made) for made in block.made])
    count = len(used.intersection(names))
    for made in block.made:
        made = renamed(made, names)
        if isinstance(made, Calculate) and all([isinstance(p, tuple) for p in made.operands]):
            value = calculate(made, [p[0] for p in made.operands], 1)[0]  # type: ignore[index]
            names[made.output] = (value.item(),)
            count += 1
            continue
        kept.append(made)
    end = _decided(renamed(block.end, names))
    return block._replace(made=tuple(kept), end=end), count


PASSES: dict[str, Callable[[IRBlocks], tuple[IRBlocks, int]]] = {
    'thread': _threaded,
    'constants': _with_known_takes,
    'dead': _without_dead,
    'merge': _merged,
}
