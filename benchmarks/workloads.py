"""The workloads: their interface and their registry."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from .settings import EQUAL_LENGTH_RIVALS, NESTED_RIVALS, PADDED_RIVALS, TREE_RIVALS, Settings

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
    """An entry of the registry: a workload's module (loaded by name, as it imports MXNet), and its
    rivals."""

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
    'transformer-sst': Entry('sentences', 'TransformerSST', NESTED_RIVALS),
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
        Whether a sample's prediction depends on values, so that its recording waits for them.
    """

    waits: ClassVar[bool] = False

    def __init__(self, settings: Settings):
        self.settings = settings

    samples: list[Any]

    @abstractmethod
    def build(self):
        """Return a new, initialised `gluon.Block` and its loss, both for one sample."""

    @abstractmethod
    def predict(self, net, sample) -> Any:
        """Return the model's output for one sample, or several in nested lists."""

    def predict_all(self, net, samples: Sequence[Any]) -> list[Any]:
        """Return the model's outputs for a minibatch, in a batching scope."""
        return [self.predict(net, sample) for sample in samples]

    @abstractmethod
    def loss(self, net, loss, sample, eager: bool):
        """Return the loss of one sample: (r,), to be summed over its r parts.

        Parameters
        ----------
        eager : bool
            Whether this is outside a batching scope: arrays that are not parameters must be
            NDArrays.
        """

    def loss_all(self, net, loss, samples: Sequence[Any], eager: bool) -> list[Any]:
        """Return the loss of each sample of a minibatch."""
        return [self.loss(net, loss, sample, eager) for sample in samples]

    @abstractmethod
    def products(self, samples: Sequence[Any]) -> Products:
        """Return the matrix products of the eager model's forward pass, node by node.

        Products are counted as the eager model does them for these samples: neither padded nor
        shared nor deduplicated. A look-up is not a product.
        """

    @abstractmethod
    def levels(self, samples: Sequence[Any]) -> int:
        """Return calls of the cell on the longest path through any sample, the least number of
        batches."""

    def rival(self, system: str):
        """Return the model without gluon_edbatch: an object with the interface of `rivals.Rival`.

        Parameters
        ----------
        system : str
            One of the rivals in the workload's `Entry`.
        """
        raise NotImplementedError(f'{type(self).__name__} has no rivals')

    def padded_rival(self, system: str, kind: str, *arguments: Any):
        """Return a rival of `rivals.padded_gluon` or `rivals.padded_torch`, made for the
        settings."""
        module = import_module(
            '.rivals.padded_torch' if 'torch' in system else '.rivals.padded_gluon',
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
        """Return floating point operations in `products`; training counts them three times."""
        once = sum(
            2.0 * wide * high * rows for (wide, high), rows in self.products(samples).items()
        )
        return 3 * once if training else once


def data_directory(settings: Settings, name: str, example: str) -> Path:
    """Return the directory of a data set called `name`, or of the sample that comes with an
    example."""
    if settings.data is not None:
        return Path(settings.data) / name
    return Path(__file__).resolve().parents[1] / 'example' / example / 'sample'


def check_rival(settings: Settings) -> None:
    """Raise `ValueError` if the workload has no such rival."""
    if settings.system not in WORKLOADS[settings.workload].rivals:
        raise ValueError(f'{settings.workload} has no such rival')


def load_workload(settings: Settings) -> Workload:
    """Return the workload that the settings name, with its samples read."""
    entry = WORKLOADS[settings.workload]
    return getattr(import_module('.' + entry.module, __package__), entry.name)(settings)
