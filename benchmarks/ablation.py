"""Measure a workload with all optimisations of gluon_edbatch, and without one at a time."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

from tqdm import tqdm

import gluon_edbatch as edb

from .machine import machine_info
from .measure import Measurement
from .output import aligned, rounded
from .settings import Settings

__all__ = ['ALL', 'NONE', 'ablation_table', 'measure_ablation', 'variants']

ALL, NONE = 'all on', 'all off'
WARM_UPS = 2  # types are compared with calls run alone at first
Row = dict[str, Any]


class _Repeat(NamedTuple):
    speed: float
    cpu_ms: float


def variants(names: Sequence[str], without: Sequence[str] = ()) -> dict[str, edb.CompileOptions]:
    """Return options with everything on, with each of these options off, and with everything off.

    Parameters
    ----------
    names : sequence of str
    without : sequence of str
        Options that are always off.
    """
    every = edb.CompileOptions().but(**dict.fromkeys(without, False))
    names = [name for name in names if name not in without]
    return {
        ALL: every,
        **{name: every.but(**{name: False}) for name in names},
        NONE: edb.CompileOptions.none(),
    }


def measure_ablation(
    settings: Settings, names: Sequence[str], without: Sequence[str] = ()
) -> list[Row]:
    """Return a row for each of the `variants`.

    All run in this process on the same model, in turn (A B A B …). The n-th repeats of all use the
    same minibatches, so the ratio of a pair is that of the options. Training moves the parameters,
    on which the time does not depend.
    """
    measurement, repeats = Measurement(settings), {}
    chosen = variants(names, without)
    total = (WARM_UPS + settings.repeat) * len(chosen)
    with tqdm(
        total=total, leave=False, disable=None, desc=f'{settings.workload} {settings.mode}'
    ) as bar:
        for _, options in _in_turn(chosen, WARM_UPS):
            with edb.compile_options(**dict(options.items())):
                measurement.warm_up()
            bar.update()
        for name, options in _in_turn(chosen, settings.repeat):
            found = repeats.setdefault(name, [])
            with edb.compile_options(**dict(options.items())):
                found.append(_Repeat(*measurement.timed(len(found))))
            bar.update()
    with edb.compile_options(**dict(chosen[ALL].items())):
        measurement.timed(0)
    types = {kind.name: kind.passes for kind in measurement.system.scope.report().types}
    return [
        dict(_row(settings, name, repeats[name], repeats[ALL], types), without=list(without))
        for name in chosen
    ]


def _in_turn(chosen: dict[str, edb.CompileOptions], times: int) -> Iterator[Any]:
    """Yield each variant in every round; rounds begin with different ones, as the first is
    coldest."""
    entries = list(chosen.items())
    for number in range(times):
        first = number % len(entries)
        yield from entries[first:] + entries[:first]


def _row(
    settings: Settings,
    name: str,
    own: list[_Repeat],
    full: list[_Repeat],
    types: dict[str, Sequence[str]],
) -> Row:
    speeds = [repeat.speed for repeat in own]
    changed = sum(name in passes for passes in types.values())
    return {
        'workload': settings.workload,
        'mode': settings.mode,
        'batch_size': settings.batch_size,
        'hidden': settings.hidden,
        'embed': settings.embed,
        'scheduler': settings.system,
        'threads': settings.threads,
        'off': name,
        'samples_per_s': rounded(median(speeds)),
        'samples_per_s_min': rounded(min(speeds)),
        'samples_per_s_max': rounded(max(speeds)),
        'ratio': rounded(median(a.speed / b.speed for a, b in zip(own, full))),
        'cpu_ms': rounded(median(repeat.cpu_ms for repeat in own)),
        'cpu_ratio': rounded(median(a.cpu_ms / b.cpu_ms for a, b in zip(own, full))),
        'types_changed': None if name in (ALL, NONE) else changed,
        'types': len(types),
        'repeat': len(own),
        'seed': settings.seed,
        'data': settings.data or 'embedded',
        **machine_info(),
    }


def ablation_table(rows: Sequence[Row]) -> str:
    """Return the rows of one workload and mode as a table."""
    row = rows[0]
    head = (
        f'{row["workload"]}, {row["mode"]}, minibatches of {row["batch_size"]}, hidden '
        f'{row["hidden"]}, embedding {row["embed"]}, {row["threads"]} thread(s) on '
        f'{row["cpus"]} x {row["cpu"]}'
    )
    if row['without']:
        head += f', without {", ".join(row["without"])}'
    cells = [['off', 'samples/s', 'min', 'max', 'speed ratio', 'cpu ratio', 'types changed']]
    for row in rows:
        changed = '' if row['types_changed'] is None else f'{row["types_changed"]}/{row["types"]}'
        cells.append(
            [
                row['off'],
                f'{row["samples_per_s"]:.1f}',
                f'{row["samples_per_s_min"]:.1f}',
                f'{row["samples_per_s_max"]:.1f}',
                f'{row["ratio"]:.3f}',
                f'{row["cpu_ratio"]:.3f}',
                changed,
            ]
        )
    return '\n'.join([head] + aligned(cells, left=('off',)))
