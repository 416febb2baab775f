"""The nine networks by name: what builds each, and what it is trained on."""

from functools import partial
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import mxnet as mx
from mxnet.ndarray import NDArray

from example.torchfold.data import Digits

from .blockdrop import BlockDrop
from .captioning import Captioner
from .data import Sample, canvas_samples, digit_samples, images_of, read_splits
from .encoders import googlenet, resnext
from .network import DynamicNetwork
from .shallow_deep import mobilenet, resnet56, vgg16, wide_resnet32
from .skipnet import FeedForwardSkipNet, RecurrentSkipNet

__all__ = ['NETWORKS', 'SAMPLE', 'build', 'draw_samples', 'samples']

SAMPLE = Path(__file__).parents[1] / 'torchfold' / 'sample'
_SEEDS = {'train': 0, 'dev': 1, 'test': 2}  # of canvases


class Entry(NamedTuple):
    """A network of the table.

    Attributes
    ----------
    make : callable
        Builds it; takes its sizes.
    canvases : bool
        Whether it sees canvases with captions, or single digits.
    """

    make: Callable[..., DynamicNetwork]
    canvases: bool = False


NETWORKS: dict[str, Entry] = {
    'mobilenet': Entry(mobilenet),
    'vgg': Entry(vgg16),
    'resnet': Entry(resnet56),
    'wideresnet': Entry(wide_resnet32),
    'skipnet-recurrent': Entry(RecurrentSkipNet),
    'skipnet-feedforward': Entry(FeedForwardSkipNet),
    'caption-resnext': Entry(partial(Captioner, resnext), canvases=True),
    'caption-googlenet': Entry(partial(Captioner, googlenet), canvases=True),
    'blockdrop': Entry(BlockDrop),
}


def build(name: str, ctx: Optional[mx.Context] = None, **sizes: Any) -> DynamicNetwork:
    """Return a network of `NETWORKS`, initialised by MXNet's random numbers.

    Parameters
    ----------
    name : str
    ctx : mxnet.Context, optional
        Device of the parameters.
    **sizes
        Sizes that differ from the table's, such as ``width`` and ``threshold``.
    """
    network = NETWORKS[name].make(**sizes)
    init = mx.init.Xavier(rnd_type='gaussian', factor_type='in', magnitude=2)
    network.initialize(init, ctx=ctx)
    return network


def samples(name: str, data: Any = SAMPLE, count: int = 100) -> list[NDArray]:
    """Return inputs of a network: test images (1, 1, H, W) of a directory with MNIST's files."""
    digits = read_splits(data)['test']
    images = images_of(draw_samples(name, digits, 'test', count))
    return [mx.nd.array(image[None]) for image in images]


def draw_samples(name: str, digits: Digits, split: str, count: int) -> list[Sample]:
    """Return `count` samples of a split, or as many digits as there are; always the same."""
    if NETWORKS[name].canvases:
        return canvas_samples(digits, count, [_SEEDS[split]])
    return digit_samples(digits, count)
