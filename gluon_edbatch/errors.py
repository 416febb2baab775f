"""The errors that this package raises, each with the rule that was broken and what to do."""


class EdbError(Exception):
    """Base of all errors raised by gluon_edbatch."""


class RecordError(EdbError, ValueError):
    """A call cannot be recorded: wrong shapes, dtypes, contexts or argument kinds."""


class UnrecordableError(RecordError):
    """An operator whose result cannot be a recorded value, so that it has to run at once."""


class ControlFlowError(UnrecordableError):
    """A block with control flow that cannot be one call, so that its operators are called one by
    one."""


class BatchError(EdbError, RuntimeError):
    """A batch of recorded calls failed while it ran."""


class RowDependenceError(EdbError, ValueError):
    """A block's result for one sample depends on the other samples of its batch."""


class StaleValueError(EdbError, RuntimeError):
    """A recorded value is used after an exception left its scope, or after its graph was freed."""


class PolicyError(EdbError, ValueError):
    """A file is not a policy that `Policy.load` can use; the message names it and says what is
    wrong."""


class BundleError(EdbError, ValueError):
    """A folder is not a bundle that can be used, or a model cannot become one; the message names
    it and says what is wrong."""


class SampleError(EdbError, RuntimeError):
    """The function of one of the samples of `run_concurrently` raised an exception, the cause.

    Attributes
    ----------
    index : int
        Which of the samples.
    """

    def __init__(self, message: str, index: int):
        super().__init__(message, index)
        self.index = index

    def __str__(self) -> str:
        return self.args[0]


class ProgramError(EdbError, ValueError):
    """Code that cannot be compiled into a program, or a sample that it cannot take; the message
    names the line and says what to write instead.

    Attributes
    ----------
    placed : bool
        Whether the message names a line.
    """

    def __init__(self, message: str, placed: bool = False):
        super().__init__(message)
        self.placed = placed


class ProgramIndexError(ProgramError, IndexError):
    """A sample of a compiled program chooses a block at an index that the list does not have."""


class StepsError(EdbError, RuntimeError):
    """A sample ran more blocks of a compiled program than ``max_steps``: a loop that does not end,
    or one for which `compile_program` is to be given more."""


class QueueFullError(EdbError, RuntimeError):
    """An engine that serves has as many requests waiting as it may, or as many as can be done until
    the deadline of one more."""


class EngineClosedError(EdbError, RuntimeError):
    """An engine that serves was not started yet, takes no more requests, or ended by an error
    before it had answered one that it had taken."""


class DeadlineError(EdbError, TimeoutError):
    """The result of a request was not there when it was wanted, and is not computed any more."""


class FolderError(EdbError, ValueError):
    """A folder is none that can be served; the message names it and says what is wrong."""


class DistributedError(EdbError, RuntimeError):
    """A job of several workers cannot go on, or not begin; the message says what to do instead."""
