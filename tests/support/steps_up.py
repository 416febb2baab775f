"""Find calls from a package to a later one while one minibatch is trained.

``python steps_up.py LAYER…``, the packages of a layer separated by commas, the last layer first,
prints a line for each pair of modules. It counts frames of Python: ``GLUON_EDBATCH_COMPILED=0``
shows those of compiled modules. A call by MXNet counts as one of the module that called MXNet. A
call by the user's model, which includes cells, is the user's.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import gluon_edbatch as edb  # before MXNet, for later versions of NumPy

# isort: split
import mxnet as mx
from mxnet import autograd, gluon

from gluon_edbatch.execute import backward
from tests.support.models import VOCAB, random_trees, started

PACKAGE = edb.__name__ + '.'
EMBED, HIDDEN = 3, 4


class Classifier(edb.AutoBatchMixin, gluon.Block):
    """Compute a loss of a tree, which is one sample."""

    def __init__(self):
        super().__init__()
        self.embedding = gluon.nn.Embedding(VOCAB, EMBED)
        self.cell = edb.rnn.ChildSumTreeLSTMCell(HIDDEN, input_size=EMBED)
        self.output = gluon.nn.Dense(
            2, in_units=HIDDEN
        )  # else MXNet initialises it in the scope, by hooks
        self.loss = gluon.loss.SoftmaxCELoss()

    def encode(self, tree):
        """Return states of a node."""
        children = [self.encode(child) for child in tree.children]
        return self.cell(self.embedding(mx.nd.array([tree.token])), children)

    def forward(self, tree):
        return self.loss(self.output(self.encode(tree)[0]), mx.nd.zeros((1,)))


class Profile:
    """Collect pairs (caller, callee) of modules in which the callee's package is the later one."""

    def __init__(self, layers):
        self.rank = {room: -place for place, layer in enumerate(layers) for room in layer}
        self.pairs = set()

    def __call__(self, frame, event, _arg):
        callee = self.module(frame) if event == 'call' else None
        if callee is None:
            return
        frame = frame.f_back
        while frame is not None and (
            frame.f_globals['__name__'].startswith('mxnet.') or frame.f_code.co_name == 'profiled'
        ):
            frame = frame.f_back
        caller = frame and self.module(frame)
        if caller is not None and self.rank[self.room(caller)] < self.rank[self.room(callee)]:
            self.pairs.add((caller, callee))

    def module(self, frame):
        """Return a frame's module, without the package's name."""
        name = frame.f_globals.get('__name__') or ''
        name = name[len(PACKAGE) :] if name.startswith(PACKAGE) else ''
        return name if self.room(name) in self.rank else None

    @staticmethod
    def room(module):
        """Return the first part of a module's name."""
        return module.split('.')[0]

    def on_the_engines_thread(self, record_function):
        """Profile backward, which the engine calls in its own thread, where no profile is set."""

        def recorded(inputs, outputs, function):
            def profiled(*args):
                sys.setprofile(self)
                try:
                    function(*args)
                finally:
                    sys.setprofile(None)

            return record_function(inputs, outputs, profiled)

        return recorded


def main():
    """Run the command ``python steps_up.py``."""
    profile = Profile([layer.split(',') for layer in sys.argv[1:]])
    backward.record_function = profile.on_the_engines_thread(backward.record_function)
    for native in (True, False):
        model = started(Classifier())
        options = edb.CompileOptions(native=native)
        sys.setprofile(profile)
        with autograd.record(), edb.batching(compile_options=options):
            losses = [model(tree) for tree in random_trees(3)]
        autograd.backward(losses)
        mx.nd.waitall()
        sys.setprofile(None)
        assert model.embedding.weight.grad().asnumpy().any()
    for pair in sorted(profile.pairs):
        print(*pair)


if __name__ == '__main__':
    main()
