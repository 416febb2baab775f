"""The errors that this package raises, each with the rule that was broken and what to do."""


class EdbError(Exception):
    """Base class of all errors raised by gluon_edbatch."""


class RecordError(EdbError, ValueError):
    """A call cannot be recorded: wrong shapes, dtypes, contexts or argument kinds."""


class UnrecordableError(RecordError):
    """An operator's result cannot be a recorded value, so the operator has to run eagerly."""


class ControlFlowError(UnrecordableError):
    """A block with control flow cannot be one recorded call; its operators are called singly."""


class BatchError(EdbError, RuntimeError):
    """A batch of recorded calls failed while it ran."""


class RowDependenceError(EdbError, ValueError):
    """A block's result for one sample depends on the other samples of its batch."""


class StaleValueError(EdbError, RuntimeError):
    """A recorded value is used after an exception left its scope, or after its graph was freed."""


class PolicyError(EdbError, ValueError):
    """`Policy.load` cannot use a file; the message names the file and says what is wrong."""


class BundleError(EdbError, ValueError):
    """A folder is not a usable bundle, or a model cannot be exported; the message says why."""


class SampleError(EdbError, RuntimeError):
    """The function of one sample of `run_concurrently` raised an exception, which is the cause.

    Attributes
    ----------
    index : int
        Position of the sample.
    """

    def __init__(self, message: str, index: int):
        super().__init__(message, index)
        self.index = index

    def __str__(self) -> str:
        return self.args[0]


class ProgramError(EdbError, ValueError):
    """Code cannot be compiled into a program, or a program cannot take a sample; the message names
    the line and says what to write instead.

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
    """A sample ran more blocks of a compiled program than ``max_steps``: its loop does not end, or
    `compile_program` needs a higher limit."""


class QueueFullError(EdbError, RuntimeError):
    """The serving engine refuses a request: its queue is full, or the request would be late."""


class EngineClosedError(EdbError, RuntimeError):
    """The serving engine is not started, takes no more requests, or failed before it answered."""


class DeadlineError(EdbError, TimeoutError):
    """A request's result missed its deadline, and is not computed any more."""


class FolderError(EdbError, ValueError):
    """A folder cannot be served; the message names it and says what is wrong."""


class DistributedError(EdbError, RuntimeError):
    """A job of several workers cannot start or continue; the message says what to do instead."""
