"""Record graphs of the workloads' per-sample models, without running them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import gluon_edbatch as edb
from gluon_edbatch_core.graph.graph import Graph

from .settings import Settings
from .workloads import load_workload

__all__ = ['GraphSource']


class GraphSource:
    """A workload's model and samples.

    Parameters
    ----------
    workload : str
        One of `WORKLOADS`.
    data : Path, optional
        Directory of the data sets; None for the samples that come with the examples.
    mode : str
        ``'train'``: losses are recorded, too; ``'infer'``: they are not, unless the workload
        waits for values to predict.
    width : int
        Of embeddings and cells; the shapes are part of the types' names.

    Attributes
    ----------
    samples : list
    """

    def __init__(self, workload: str, data: Optional[Path], mode: str, width: int):
        self._workload = load_workload(
            Settings(
                workload=workload,
                mode=mode,
                system='agenda',
                hidden=width,
                embed=width,
                data=None if data is None else str(data),
            )
        )
        self._training = mode == 'train' or self._workload.waits
        self._net, self._loss = self._workload.build()
        self.samples: list[Any] = self._workload.samples

    def graph(self, samples: Sequence[Any]) -> Graph:
        """Return the graph of a minibatch."""
        with edb.batching('agenda') as scope:
            kept = [
                self._workload.loss(self._net, self._loss, sample, eager=False)
                if self._training
                else self._workload.predict(self._net, sample)
                for sample in samples
            ]
            graph = scope.graph()
        del kept
        return graph
