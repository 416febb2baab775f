"""Starts a job of workers, servers and a scheduler, on this machine or on several by ssh.

MXNet's own launcher (``mxnet/tools/launch.py`` over ``dmlc_tracker``) ends with an `AttributeError`
under Python 3.9 and later, leaves processes behind, and waits forever for those of which one was
killed. This one sets the same variables (``DMLC_*``), which is all that MXNet asks for. It needs
Python alone, on every machine, and the same files in the same places.
"""

import argparse
import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Dict, Iterator, List, NamedTuple, Optional, Sequence

RANK = 'GLUON_EDBATCH_RANK'  # of a worker: MXNet numbers them as they come
GUARD = Path(__file__).with_name('guard.py')
BEATS = 8  # words to each guard, which it answers, within the silence that ends the job
SILENCE = 40.0  # seconds
PATIENCE = 20.0  # seconds that the last processes have to end after the first
ENDING = 12.0  # seconds that all guards have to end what they started
LOGINS = 5  # to a machine at the same time: sshd turns away more than 10 by chance
_GLANCE = 0.1
_LONGEST = 1 << 16  # bytes of a line that is still a line
_LEFT = (
    'the others have ended, and {} still wait: did each worker train within '
    "'with gluon_edbatch.distributed.connect(...)', as --kvstore dist_sync of the examples does?"
)
_UNREACHED = (
    'never began (status {}): `{}` has to work without a password, and that machine to have the '
    'same Python and checkout under the same paths'
)
_PASSED = (
    *('DMLC_', 'PS_', 'MXNET_', 'OMP_', 'GLUON_EDBATCH_'),
    *('PATH', 'PYTHONPATH', 'LD_LIBRARY_PATH'),
)


class Computer(NamedTuple):
    """A machine: its name for ssh (None for this one), and the port (None: ssh knows)."""

    name: Optional[str]
    port: Optional[str] = None

    @property
    def address(self) -> str:
        """What other machines call it."""
        return 'this machine' if self.name is None else self.name.rpartition('@')[2]


class Output(threading.Thread):
    """Passes on what a process writes: whole lines, which say whose they are.

    Attributes
    ----------
    heard : bool
        Set whenever something was read; to be taken back by who looks at it.
    answered : bool
        Whether its guard was heard.
    busy : bool
        Whether what was read is being written, which may have to wait for who reads it.
    error : OSError or None
        Why it can no longer be written.
    """

    _writing = threading.Lock()

    def __init__(self, source: IO, sink: int, label: str):
        super().__init__(daemon=True)
        self._source, self._sink, self._label = source, sink, label.encode()
        self.heard = self.answered = self.busy = False
        self.error: Optional[OSError] = None
        self.start()

    def run(self) -> None:
        """Until the source ends, or nobody reads any more."""
        rest, text = b'', b'something'
        with self._source:
            while text and self.error is None:
                text = os.read(self._source.fileno(), 1 << 16)
                self.heard = self.busy = True
                *lines, rest = (rest + self._without_answers(text)).splitlines(True) or [b'']
                if not text and rest and self._label:
                    rest += b'\n'  # or the next line would be whose this one is
                if not text or rest.endswith((b'\n', b'\r')) or len(rest) > _LONGEST:
                    lines, rest = [*lines, rest], b''
                self._write(b''.join(self._label + line for line in lines if line))
                self.busy = False

    def finish(self) -> None:
        """Wait until all is written, but not for something that has left the process's group and
        may write on."""
        self.join(1.0)
        while self.busy and self.is_alive():
            self.join(1.0)

    def _without_answers(self, text: bytes) -> bytes:
        if self._sink != 2:  # the guard answers among the errors
            return text
        self.answered = self.answered or b'\0' in text
        return text.replace(b'\0', b'')

    def _write(self, text: bytes) -> None:
        try:
            with self._writing:
                while text:
                    text = text[os.write(self._sink, text) :]
        except OSError as error:
            self.error = error


class Process:
    """A process of the job, by way of its guard.

    Attributes
    ----------
    status : int or None
        Its exit status, if it has ended.
    quiet : float
        Seconds, as the launcher's glances count them, since its guard was heard.
    """

    def __init__(
        self, role: str, index: int, host: Computer, guard: Sequence[str], spec: dict, plain: bool
    ):
        self.role, self.host = role, host
        self.name = role if role == 'scheduler' else f'{role} {index}'
        self.where = '' if host.name is None else f' on {host.address}'
        self.status: Optional[int] = None
        self.quiet = 0.0
        self._reach = shlex.join([*guard[:-1], 'true'])
        # Of a session of its own: an interrupt from the keyboard is the launcher's to pass on.
        self._guard = subprocess.Popen(
            guard,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._guard.stdout is not None and self._guard.stderr is not None
        label = '' if plain else f'{self.name}: '
        self._outputs = [
            Output(self._guard.stdout, 1, label),
            Output(self._guard.stderr, 2, label),
        ]
        self._say(json.dumps(spec) + '\n')

    @property
    def answered(self) -> bool:
        """Whether its guard has begun."""
        return any(output.answered for output in self._outputs)

    @property
    def unwritten(self) -> Optional[OSError]:
        """Why what it writes can no longer be passed on."""
        return self._outputs[0].error or self._outputs[1].error

    def look(self) -> Optional[int]:
        """Its exit status, if it has ended; to be called at every glance."""
        status = self._guard.poll()
        if status is not None and self.status is None:
            for output in self._outputs:  # its last words before what is said of it
                output.join(1.0)
        self.status = status
        self.quiet += _GLANCE
        for output in self._outputs:
            if output.heard or output.busy:
                self.quiet, output.heard = 0.0, False
        return status

    def beat(self) -> None:
        """Tell the guard that the launcher is there."""
        self._say('\n')

    def end(self) -> None:
        """Ask it to end, and all that it started."""
        with contextlib.suppress(OSError):
            assert self._guard.stdin is not None
            self._guard.stdin.close()

    def kill(self) -> None:
        """Do not wait for it: its guard does not answer."""
        self._guard.kill()

    def wait(self, seconds: float) -> None:
        """Until it has ended, or else it is killed."""
        try:
            self._guard.wait(seconds)
        except subprocess.TimeoutExpired:
            self._guard.kill()
        for output in self._outputs:
            output.finish()

    def fate(self) -> str:
        """How it ended, for people."""
        assert self.status is not None
        number = abs(self.status) - (128 if self.status > 0 else 0)
        if not self.answered and self.host.name is not None:
            how = _UNREACHED.format(self.status, self._reach)
        elif number > 0 and number in {each.value for each in signal.Signals}:
            how = f'was killed by {signal.Signals(number).name}'
        else:
            how = f'ended with status {self.status}'
        return f'{self.name}{self.where} {how}'

    def _say(self, text: str) -> None:
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, which `look` will tell
            self._guard.stdin.write(text.encode())
            self._guard.stdin.flush()


class Job:
    """All processes of a job.

    Parameters
    ----------
    options : argparse.Namespace
        The command line.
    hosts : sequence of Computer
        Where workers and servers run, in turns. The scheduler runs here.
    """

    def __init__(self, options: argparse.Namespace, hosts: Sequence[Computer]):
        self._options = options
        self._hosts = hosts
        self._processes: List[Process] = []
        self._beaten = time.monotonic()
        self._over: Optional[float] = None
        self._port = _reserved(options.port or 0)
        local = hosts[0].name is None
        self._variables = {
            'DMLC_PS_ROOT_URI': options.root or ('127.0.0.1' if local else _own_address(hosts[0])),
            'DMLC_PS_ROOT_PORT': str(self._port.getsockname()[1]),
            'DMLC_NUM_WORKER': str(options.workers),
            'DMLC_NUM_SERVER': str(options.servers),
            'OMP_NUM_THREADS': os.environ.get('OMP_NUM_THREADS', str(options.cpus or 1)),
            # What is written to a pipe would come late, and be lost with what is killed.
            'PYTHONUNBUFFERED': os.environ.get('PYTHONUNBUFFERED', '1'),
            **({'DMLC_INTERFACE': 'lo'} if local else {}),
        }

    def run(self) -> int:
        """Start all and wait; gives the exit status of the job."""
        starting = self._start()
        try:
            while True:
                begun = next(starting, True)
                status = self._glance(begun)
                if status is not None:
                    return status
                time.sleep(_GLANCE)
        finally:
            for process in self._processes:
                process.end()
            last = time.monotonic() + ENDING
            for process in self._processes:
                process.wait(max(0.0, last - time.monotonic()))
            self._port.close()

    def _start(self) -> Iterator[bool]:
        """Start all; gives False whenever a machine has to be waited for."""
        counts = {
            'scheduler': 1,
            'server': self._options.servers,
            'worker': self._options.workers,
        }
        for role, count in counts.items():
            for index in range(count):
                host = self._hosts[index % len(self._hosts)]
                if role == 'scheduler':
                    host = Computer(None)
                while host.name is not None and self._coming(host) >= LOGINS:
                    yield False
                self._processes.append(self._started(role, index, host))

    def _coming(self, host: Computer) -> int:
        return sum(each.host == host and not each.answered for each in self._processes)

    def _started(self, role: str, index: int, host: Computer) -> Process:
        options, python = self._options, self._options.python
        serving = [python, '-c', 'import mxnet']  # with the role in its variables, it serves
        command = options.command if role == 'worker' else serving
        variables = {**self._variables, 'DMLC_ROLE': role, RANK: str(index)}
        spec = {
            'command': command,
            'directory': os.getcwd(),
            'environment': variables,
            'processors': self._processors(role, index),
            'silence': options.silence,
        }
        guard = [python, '-I', str(GUARD)]
        if host.name is not None:
            variables.update(self._passed(), **_node_host(host))
            port = [] if host.port is None else ['-p', host.port]
            guard = [*shlex.split(options.ssh), *port, host.name, shlex.join(guard)]
        return Process(role, index, host, guard, spec, options.plain)

    def _processors(self, role: str, index: int) -> List[int]:
        """Which of its machine's a worker is kept to, counted from 0 and then over again; workers
        of one machine have different ones, if it has enough."""
        count = self._options.cpus
        if role != 'worker' or count is None:
            return []
        place = index // len(self._hosts)
        return [place * count + i for i in range(count)]

    def _passed(self) -> Dict[str, str]:
        names = [*self._options.env, *(name for name in os.environ if name.startswith(_PASSED))]
        return {
            name: os.environ[name]
            for name in names
            if name in os.environ and name not in self._variables
        }

    def _glance(self, begun: bool) -> Optional[int]:
        """Look at all processes once; gives the status of the job if it is over."""
        running = [process for process in self._processes if process.look() is None]
        failed = [process for process in self._processes if process.status]
        if failed:  # a worker rather than who missed it
            first = min(failed, key=lambda process: process.role != 'worker')
            _say(f'{first.fate()}: the job ends')
            return _status(first)
        for process in self._processes:
            if process.unwritten:
                _say(f'the words of {process.name} are lost ({process.unwritten}): the job ends')
                return 128 + signal.SIGPIPE
        if not running:
            return 0
        lost = self._lost(running)
        if lost:
            names = ', '.join(process.name + process.where for process in lost)
            _say(f'nothing heard of {names} for {self._options.silence:g} s: the job ends')
            for process in lost:
                process.kill()
            return 1
        now = time.monotonic()
        if begun and _some_are_over(running, self._processes):
            self._over = self._over or now
            if now - self._over > PATIENCE:
                _say(_LEFT.format(', '.join(process.name for process in running)))
                return 1
        if now - self._beaten > self._options.silence / BEATS:
            self._beaten = now
            for process in running:
                process.beat()
        return None

    def _lost(self, running: Sequence[Process]) -> List[Process]:
        """Those that do not answer, and all on machines of which one does not."""
        silent = [process for process in running if process.quiet > self._options.silence]
        machines = {process.host for process in silent if process.host.name is not None}
        return [each for each in running if each in silent or each.host in machines]


def _some_are_over(running: Sequence[Process], processes: Sequence[Process]) -> bool:
    """Whether the job is: no worker is left, or the scheduler or a server is not."""
    workers = [process for process in running if process.role == 'worker']
    others = [process for process in processes if process.role != 'worker']
    return not workers or any(process.status is not None for process in others)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Command line; gives the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.command:
        parser.error('what is to be run? write it after the options, as python train.py ...')
    if options.servers is None:
        options.servers = options.workers
    for name in ('SIGTERM', 'SIGHUP', 'SIGINT'):
        signal.signal(getattr(signal, name), _interrupt)
    try:
        hosts = [Computer(None)] if options.hosts is None else list(read_hosts(options.hosts))
        return Job(options, hosts).run()
    except OSError as error:
        _say(f'{error.filename}: {error.strerror}' if error.filename else str(error))
        return 1


def read_hosts(path: str) -> Iterator[Computer]:
    """Machines of a file: a line each, ``[USER@]HOST[:PORT]``; the rest of a line is a remark."""
    found = False
    for line in Path(path).read_text(encoding='utf-8').splitlines():
        words = line.split('#')[0].split()
        if words:
            found = True
            name, _, port = words[0].partition(':')
            yield Computer(name, port or None)
    if not found:
        raise OSError(f'{path} names no host: write one on each line, as [USER@]HOST[:PORT]')


def _interrupt(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads any more
        os.write(2, f'launch: {text}\n'.encode())


def _status(fault: Process) -> int:
    """Of the job; never 0."""
    status = fault.status or 1
    return status if status > 0 else 128 - status


def _reserved(port: int) -> socket.socket:
    """A port of this machine (0: one that is free) that is given to nobody else meanwhile.

    It is bound and not listened at, which leaves it to who asks for it by number and with
    SO_REUSEADDR, as MXNet's scheduler does.
    """
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(('', port))
    except OSError as error:
        raise OSError(f'port {port}: {error.strerror}') from None
    return found


def _node_host(host: Computer) -> Dict[str, str]:
    """Where it listens: a number, as MXNet looks up no names. It chooses for itself where the name
    is known to ssh only."""
    try:
        return {'DMLC_NODE_HOST': socket.gethostbyname(host.address)}
    except OSError:
        return {}


def _own_address(host: Computer) -> str:
    """The address of this machine in the network of another: nothing is sent."""
    try:
        with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as towards:
            towards.connect((host.address, 9))
            return towards.getsockname()[0]
    except OSError as error:
        raise OSError(
            f'{host.address} has no address here ({error.strerror}): say by --root which one of '
            'this machine the others reach'
        ) from None


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f'{text} is less than 1')
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='launch',
        description='Run COMMAND as so many workers, with servers and a scheduler beside them. '
        'If one of them fails, all end, and so does this program, with its status.',
    )
    add = parser.add_argument
    add('-n', '--workers', type=_positive, required=True, metavar='N')
    add('-s', '--servers', type=_positive, metavar='N', help='(default: as many as workers)')
    add(
        '-H',
        '--hosts',
        metavar='FILE',
        help='machines, [USER@]HOST[:PORT] on each line, reached '
        'by ssh without a password; they have the same files in the same places',
    )
    add('--cpus', type=_positive, metavar='N', help='keep each worker to N processors of its own')
    add(
        '--env',
        action='append',
        default=[],
        metavar='NAME',
        help=f'pass this variable on to other machines, besides {", ".join(_PASSED)}',
    )
    add('--root', metavar='ADDRESS', help='of this machine, for the others (default: found)')
    add('--port', type=_positive, metavar='N', help='of the scheduler (default: one that is free)')
    add(
        '--python',
        default=sys.executable,
        metavar='FILE',
        help='for servers and guards, on all machines (default: that of this program)',
    )
    add(
        '--ssh',
        default='ssh -T -o BatchMode=yes -o ConnectTimeout=15',  # a terminal would mix errors in
        metavar='COMMAND',
        help='(default: %(default)s)',
    )
    add(
        '--silence',
        type=float,
        default=SILENCE,
        metavar='SECONDS',
        help='without a word after which a machine counts as lost (default: %(default)g)',
    )
    add('--plain', action='store_true', help='write lines as they are, and not whose they are')
    add('command', nargs=argparse.REMAINDER, metavar='COMMAND ...')
    return parser


if __name__ == '__main__':
    sys.exit(main())
