"""What a workload has to say of itself, and which there are."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from .settings import EQUAL_LENGTH_RIVALS, PADDED_RIVALS, TREE_RIVALS, Settings

__all__ = [
    'WORKLOADS',
    'Entry',
    'Products',
    'Workload',
    'check_rival',
    'data_directory',
    'load_workload',
]


class Entry(NamedTuple):
    """Where a workload is (it is loaded by name, as it imports MXNet), and which rivals it has."""

    module: str
    name: str
    rivals: tuple[str, ...] = ()


WORKLOADS = {
    'treelstm-sick': Entry('treelstm_sick', 'TreeLSTMSick', TREE_RIVALS),
    'treelstm-sst': Entry('sst', 'TreeLSTMSST'),
    'treegru-sst': Entry('sst', 'TreeGRUSST'),
    'mvrnn-sst': Entry('sst', 'MVRNNSST'),
    'treelstm2-sst': Entry('sst', 'TwoCellTreeLSTMSST'),
    'treenn-sst': Entry('sst', 'TreeNNSST'),
    'treenn-operators-sst': Entry('sst', 'OperatorTreeNNSST'),
    'tree-transformer': Entry('sst', 'TreeTransformerSST', PADDED_RIVALS),
    'lattice-lstm': Entry('tagging', 'LatticeLSTM'),
    'lattice-gru': Entry('tagging', 'LatticeGRU'),
    'bilstm-tagger': Entry('tagging', 'BiLSTMTagger'),
    'bilstm-tagger-char': Entry('tagging', 'BiLSTMTaggerChar'),
    'bilstm-tagger-equal': Entry('tagging', 'BiLSTMTaggerEqual', EQUAL_LENGTH_RIVALS),
    'graph-messages': Entry('dependencies', 'GraphMessages', PADDED_RIVALS),
    'graph-attention': Entry('dependencies', 'GraphAttention', PADDED_RIVALS),
    'pointer': Entry('dependencies', 'Pointer', PADDED_RIVALS),
    'transformer-sst': Entry('sentences', 'TransformerSST', PADDED_RIVALS),
    'adaptive': Entry('sentences', 'Adaptive', PADDED_RIVALS),
}

# (columns in, columns out) of a matrix product -> how many rows go through it.
Products = dict[tuple[int, int], int]


class Workload(ABC):
    """A per-sample Gluon model with its samples.

    Parameters
    ----------
    settings : Settings
        Widths, data and seed.

    Attributes
    ----------
    samples : list
    waits : bool
        What a sample's prediction does next depends on values, so that recording it has no end.
    """

    waits: ClassVar[bool] = False

    def __init__(self, settings: Settings):
        self.settings = settings

    samples: list[Any]

    @abstractmethod
    def build(self):
        """A new, initialised `gluon.Block` and its loss, both for one sample."""

    @abstractmethod
    def predict(self, net, sample) -> Any:
        """What the model says of one sample: its output, or several in nested lists."""

    def predict_all(self, net, samples: Sequence[Any]) -> list[Any]:
        """The same for a minibatch, in a batching scope."""
        return [self.predict(net, sample) for sample in samples]

    @abstractmethod
    def loss(self, net, loss, sample, eager: bool):
        """The loss of one sample: (r,), to be summed over its r parts.

        Parameters
        ----------
        eager : bool
            Outside a batching scope: arrays that are no parameters must be NDArrays.
        """

    def loss_all(self, net, loss, samples: Sequence[Any], eager: bool) -> list[Any]:
        """The same for each sample of a minibatch."""
        return [self.loss(net, loss, sample, eager) for sample in samples]

    @abstractmethod
    def products(self, samples: Sequence[Any]) -> Products:
        """Matrix products of the eager model's forward pass, node by node.

        Counted as the eager model does them for these samples: neither padded nor shared nor
        deduplicated. Looking a row up is no product.
        """

    @abstractmethod
    def levels(self, samples: Sequence[Any]) -> int:
        """Calls of the cell on the longest path through any sample: fewer batches cannot do."""

    def rival(self, system: str):
        """The same model without gluon_edbatch: an object with the interface of `rivals.Rival`.

        Parameters
        ----------
        system : str
            One of the rivals in the workload's `Entry`.
        """
        raise NotImplementedError(f'{type(self).__name__} has no rivals')

    def padded_rival(self, system: str, kind: str, *arguments: Any):
        """A class of `rivals.padded_gluon` or `rivals.padded_torch`, made for the settings."""
        module = import_module(
            '.rivals.padded_torch' if system == 'manual-torch' else '.rivals.padded_gluon',
            __package__,
        )
        settings, (net, _) = self.settings, self.build()
        return getattr(module, kind)(
            net,
            *arguments,
            optimizer=settings.optimizer,
            learning_rate=settings.learning_rate,
            ctx=settings.ctx,
        )

    def flops(self, samples: Sequence[Any], training: bool) -> float:
        """Floating point operations in `products`; training counts them three times."""
        once = sum(
            2.0 * wide * high * rows for (wide, high), rows in self.products(samples).items()
        )
        return 3 * once if training else once


def data_directory(settings: Settings, name: str, example: str) -> Path:
    """Of a data set called `name`, or of the sample that comes with an example."""
    if settings.data is not None:
        return Path(settings.data) / name
    return Path(__file__).resolve().parents[1] / 'example' / example / 'sample'


def check_rival(settings: Settings) -> None:
    """Raise `ValueError` if the workload has no such rival."""
    if settings.system not in WORKLOADS[settings.workload].rivals:
        raise ValueError(f'{settings.workload} has no such rival')


def load_workload(settings: Settings) -> Workload:
    """The workload that the settings name, with its samples read."""
    entry = WORKLOADS[settings.workload]
    return getattr(import_module('.' + entry.module, __package__), entry.name)(settings)
