"""Guard what recorded calls read of the user's model, which must not change until they ran."""

from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import RecordError

from ..mx.arrays import detached
from ..mx.mutation_guard import MutationGuard, release_all
from ..mx.parameters import arrays_of
from ..subgraph.fingerprint import Fingerprint, changed, containers, contents, fingerprint
from ..subgraph.node_type import NodeType
from ..subgraph.trace import describe


def key_of(parameter: gluon.Parameter, ctx: mx.Context) -> tuple[int, int, int]:
    """Return a key for a parameter on a device, faster than hashing the context."""
    return id(parameter), ctx.device_typeid, ctx.device_id


class ModelWatch:
    """Guard the parameters and attributes of blocks that a recording's calls read."""

    def __init__(self) -> None:
        # By `key_of`, as they were when calls that use them were first recorded.
        self.parameters: dict[tuple[int, int, int], MutationGuard] = {}
        self._owners: list[tuple[gluon.Parameter, MutationGuard]] = []
        self._marks: dict[gluon.Block, Fingerprint] = {}
        self._containers: dict[gluon.Block, Optional[tuple]] = {}
        self._replaced: Optional[str] = None
        self._changed: Optional[str] = None

    def of(self, parameter: gluon.Parameter, ctx: mx.Context) -> MutationGuard:
        """Return the guard of a parameter."""
        return self.parameters[key_of(parameter, ctx)]

    def mark_of(self, block: gluon.Block) -> Fingerprint:
        """Return the fingerprint of a block, which must last until its calls are evaluated."""
        mark = self._marks.get(block)
        return self.mark(block) if mark is None else mark

    def mark(self, block: gluon.Block) -> Fingerprint:
        """Compute and keep the present fingerprint of a block."""
        mark = self._marks[block] = fingerprint(block)
        return mark

    def containers_of(self, block: gluon.Block) -> Optional[tuple]:
        """Return a block's lists, dicts and sets, which are compared at each call (see `Form`)."""
        if block in self._containers:
            known = self._containers[block]
            if known is None or known[1] == contents(known[0]):
                return known
        self.mark(block)
        found = containers(block)
        self._containers[block] = (found, contents(found)) if found else None
        return self._containers[block]

    def watch(self, recording: Any, name: str, node_type: NodeType) -> None:
        """Guard the values of a type's parameters, which must be the same for all calls of a scope.

        `recording` is notified before a parameter changes. `name` names the block that reads them.
        """
        ctx, touched = node_type.ctx, recording.when_touched
        device = ctx.device_typeid, ctx.device_id
        for parameter in node_type.parameters:
            key, array = (id(parameter), *device), parameter.data(ctx)  # as `key_of`
            watched = self.parameters.get(key)
            if watched is not None and recording.any_left():
                self._watch_again(name, parameter, watched, array)
                continue
            if watched is not None:
                self._owners = [owner for owner in self._owners if owner[1] is not watched]
            watched = self.parameters[key] = MutationGuard(array, touched)
            self._owners.append((parameter, watched))

    def _watch_again(
        self, name: str, parameter: gluon.Parameter, watched: MutationGuard, array: NDArray
    ) -> None:
        """Guard a parameter that calls which wait read, too: its values must be the same."""
        if watched.array is array and watched.copy is None:
            return
        before, now = watched.values(), detached(array)
        if (
            before.dtype != now.dtype
            or before.ctx != now.ctx
            or not np.array_equal(before.asnumpy(), now.asnumpy())
        ):
            raise RecordError(
                f'parameter {parameter.name} of {name} was changed between two recorded calls '
                f'that use it; evaluate the earlier ones (gluon_edbatch.forward) first'
            )
        if watched.array is array:
            watched.watch_again()

    def any_touched(self) -> bool:
        """Return whether a parameter may have been written to since calls read it."""
        return any([watched.copy is not None for watched in self.parameters.values()])

    def look_at_parameters(self) -> None:
        """Note whether a parameter got another array."""
        for parameter, watched in self._owners:
            for array in arrays_of(parameter):
                if array is watched.array:
                    break
            else:
                self._replaced = parameter.name
                break

    def look_at_blocks(self) -> None:
        """Note whether attributes that blocks read were changed."""
        for block, mark in self._marks.items():
            now = fingerprint(block)
            if now is not mark and now != mark:
                self._changed = f'{", ".join(changed(mark, now))} of {describe(block)}'
                break

    def check(self) -> None:
        """Raise `RecordError` if a change of a parameter or block was noted."""
        if self._replaced is not None:
            raise RecordError(
                f'parameter {self._replaced} got a new array (by initialize, cast, reset_ctx, '
                f'grad_req, …) while a scope was recording calls that use it; evaluate them '
                f'(gluon_edbatch.forward) or leave the scope first'
            )
        if self._changed is not None:
            raise RecordError(
                f'{self._changed} was changed while a scope was recording calls that read it; '
                f'change it before the scope or after it'
            )

    def forget_blocks(self) -> None:
        """Forget the fingerprints of all blocks, after an attribute of one was set."""
        self._marks.clear()
        self._containers.clear()

    def release(self) -> None:
        """Release the guards of all parameters."""
        release_all(self.parameters.values())
