"""Step 3: run passes over all blocks of a program, each of which can be left out.

A pass that changes nothing returns the same drafts. All passes are repeated until none changes
anything.
"""

from collections.abc import Sequence
from typing import Any, Callable

from ..branching.host_arithmetic import calculate
from ..branching.program_graph import Calculate, Choose, End, Finish, Goto, gotos, read_by
from ..branching.pytree import exact
from .block_ir import Draft, Made, Place, needed, renamed
from .flow import in_order

Drafts = list[Draft]


def optimise(drafts: Drafts, without: Sequence[str] = ()) -> tuple[Drafts, dict[str, int]]:
    """Return drafts after all passes except some, and the number of removals by each pass."""
    effects = dict.fromkeys(PASSES, 0)
    changed = True
    while changed:
        changed = False
        for name, each in PASSES.items():
            if name not in without:
                drafts, effect = each(drafts)
                effects[name] += effect
                changed = changed or effect > 0
        drafts = _in_order(drafts)
    return drafts, effects


def _in_order(drafts: Drafts) -> Drafts:
    """Return the drafts that can be reached, in an order where loops come before what follows."""
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
    """Return all edges that lead to each block; the program's call leads to the first."""
    ways: list[list[Goto]] = [[] for _ in drafts]
    for draft in drafts:
        for to in gotos(draft.end):
            ways[to.block].append(to)
    return ways


# --- passes --------------------------------------------------------------------------------------


def _threaded(drafts: Drafts) -> tuple[Drafts, int]:
    """Redirect edges to blocks that compute nothing to where these lead."""
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
            moved: Any = renamed(target.end, names)
            to, count = moved, count + 1

    made = [draft._replace(end=_redirected(draft.end, on)) for draft in drafts]
    return made, count


def _merged(drafts: Drafts) -> tuple[Drafts, int]:
    """Merge a block into the only block that leads to it without a choice."""
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
    """Return a block and the one that it always jumps to as one."""
    shift = len(first.specs) - second.takes
    names: dict[int, Place] = dict(enumerate(to.values))
    names.update({place: place + shift for place in range(second.takes, len(second.specs))})
    return Draft(
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


def _without_dead(drafts: Drafts) -> tuple[Drafts, int]:
    """Let blocks take only the values that they, or later ones, read."""
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
    """Return the values that a block takes and reads, if later blocks take only `read`."""
    end: Any = draft.end
    places: list[Any] = [end.condition] if isinstance(end, Choose) else []
    places += end.values if isinstance(end, Finish) else ()
    for to in gotos(end):
        places += [each for i, each in enumerate(to.values) if i in read[to.block]]
    wanted = {place for place in places if isinstance(place, int)}
    wanted.update(*map(read_by, needed(draft.made, wanted)))
    return {place for place in wanted if place < draft.takes}


def _taking(draft: Draft, own: list[int], kept: list[list[int]]) -> Draft:
    """Return a block that takes some of its values only."""

    def goto(to: Goto) -> Goto:
        return to._replace(values=tuple([to.values[place] for place in kept[to.block]]))

    end = _redirected(draft.end, goto)
    inside = needed(draft.made, read_by(end))
    inner = range(draft.takes, len(draft.specs))
    names = {place: new for new, place in enumerate([*own, *inner])}
    return Draft(
        len(own),
        tuple([draft.specs[place] for place in names]),
        tuple([renamed(made, names) for made in inside]),
        renamed(end, names),
        draft.name,
    )


def _with_known_takes(drafts: Drafts) -> tuple[Drafts, int]:
    """Replace numbers that are equal on all edges to a block, what is computed from them, and
    values that a block takes twice."""
    ways, made, count = _ways_to(drafts), [], 0
    for number, draft in enumerate(drafts):
        names: dict[int, Place] = {}
        first: dict[Any, int] = {}
        for place in range(draft.takes if number and ways[number] else 0):
            values = [to.values[place] for to in ways[number]]
            key = tuple(map(exact, values))
            if isinstance(values[0], tuple) and len(set(key)) == 1:
                names[place] = values[0]
            elif first.setdefault(key, place) != place:
                names[place] = first[key]
        draft, folded = _folded(draft, names)
        made.append(draft)
        count += folded
    return made, count


def _folded(draft: Draft, names: dict[int, Place]) -> tuple[Draft, int]:
    """Return a draft with known numbers, or other values, in place of some values."""
    kept: list[Made] = []
    used = set(read_by(draft.end)).union(*[read_by(made) for made in draft.made])
    count = len(used.intersection(names))
    for made in draft.made:
        made = renamed(made, names)
        if isinstance(made, Calculate) and all([isinstance(p, tuple) for p in made.operands]):
            value = calculate(made, [p[0] for p in made.operands], 1)[0]  # type: ignore[index]
            names[made.output] = (value.item(),)
            count += 1
            continue
        kept.append(made)
    end = _decided(renamed(draft.end, names))
    return draft._replace(made=tuple(kept), end=end), count


PASSES: dict[str, Callable[[Drafts], tuple[Drafts, int]]] = {
    'thread': _threaded,
    'constants': _with_known_takes,
    'dead': _without_dead,
    'merge': _merged,
}
