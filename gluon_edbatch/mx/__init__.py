"""All that touches MXNet where its interface is not public, and NDArrays of our own."""

from ..compiled import load

load(f'{__name__}.hybrid')
