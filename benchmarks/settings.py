"""Settings of one measurement. Needs nothing but the standard library."""

from dataclasses import dataclass
from typing import Optional

__all__ = [
    'BATCHED',
    'EAGER',
    'EQUAL_LENGTH_RIVALS',
    'MODES',
    'NESTED_RIVALS',
    'PADDED_RIVALS',
    'RIVALS',
    'SYSTEMS',
    'TREE_RIVALS',
    'Settings',
    'scheduler_of',
]

MODES = ('train', 'infer')
BATCHED = (
    'depth',
    'agenda',
    'agenda-remaining',
    'sufficient',
    'fsm',
    'fsm-reuse',
    'lazy-unbatched',
)
EAGER = ('unbatched', 'unbatched-hybridized')
TREE_RIVALS = ('plain-hybridized', 'manual', 'manual-torch', 'manual-shared', 'manual-torch-shared')
EQUAL_LENGTH_RIVALS = ('manual', 'manual-fused')
PADDED_RIVALS = ('manual', 'manual-torch')
NESTED_RIVALS = (*PADDED_RIVALS, 'nested-torch')
RIVALS = TREE_RIVALS + EQUAL_LENGTH_RIVALS[1:] + NESTED_RIVALS[2:]
SYSTEMS = BATCHED + EAGER + RIVALS


def scheduler_of(system: str) -> str:
    """Return the name of a system for ``gluon_edbatch.batching``, whose 'unbatched' is not eager
    Gluon."""
    return {'lazy-unbatched': 'unbatched', 'fsm-reuse': 'fsm'}.get(system, system)


@dataclass(frozen=True)
class Settings:
    """What one measurement runs: a workload, a system, sizes and repeats.

    Parameters
    ----------
    workload, mode, system : str
        Workload, ``train`` or ``infer``, and one of `SYSTEMS`.
    batch_size, hidden, embed : int
        Samples in a minibatch; widths.
    data : str, optional
        Directory of the data sets; None for the samples that come with the examples.
    threads : int
        Threads of the operators. Python and the engine's own thread come on top.
    repeat : int
        Timed repeats.
    minibatches : int, optional
        Minibatches in a repeat; None for as many as take about `seconds`.
    seconds : float
        See `minibatches`.
    seed : int
        Seed of parameters and of the order of samples.
    optimizer : str
        ``sgd``, ``adagrad`` or ``adam``.
    learning_rate : float
        Learning rate of the optimizer.
    ctx : str
        ``cpu``, ``gpu`` or ``gpu:N``.
    """

    workload: str
    mode: str
    system: str
    batch_size: int = 256
    hidden: int = 150
    embed: int = 300
    data: Optional[str] = None
    threads: int = 1
    repeat: int = 7
    minibatches: Optional[int] = None
    seconds: float = 1.0
    seed: int = 0
    optimizer: str = 'sgd'
    learning_rate: float = 0.05
    ctx: str = 'cpu'
