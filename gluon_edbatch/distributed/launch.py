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
import time
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

RANK = 'GLUON_EDBATCH_RANK'  # of a worker: MXNet numbers them as they come
GUARD = Path(__file__).with_name('guard.py')
BEAT = 5.0  # seconds between two words to each guard
PATIENCE = 20.0  # seconds that the last processes have to end after the first
_GLANCE = 0.1
_LEFT = (
    'the others have ended, and {} still wait: did each worker train within '
    "'with gluon_edbatch.distributed.connect(...)', as --kvstore dist_sync of the examples does?"
)
_PASSED = ('DMLC_', 'PS_', 'MXNET_', 'OMP_', 'GLUON_EDBATCH_', 'PYTHONPATH', 'LD_LIBRARY_PATH')


class Computer(NamedTuple):
    """A machine: its name for ssh (None for this one), the port of its ssh, its address."""

    name: Optional[str]
    port: str = '22'

    @property
    def address(self) -> str:
        """What other machines call it."""
        return 'this machine' if self.name is None else self.name.rpartition('@')[2]


class Process:
    """A process of the job, by way of its guard."""

    def __init__(self, role: str, index: int, host: Computer, guard: Sequence[str], spec: dict):
        self.role = role
        self.name = role if role == 'scheduler' else f'{role} {index}'
        self.where = '' if host.name is None else f' on {host.address}'
        self.status: Optional[int] = None
        # Of a session of its own: an interrupt from the keyboard is the launcher's to pass on.
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
        self._say(json.dumps(spec) + '\n')

    def look(self) -> Optional[int]:
        """Its exit status, if it has ended."""
        self.status = self._guard.poll()
        return self.status

    def beat(self) -> None:
        """Tell the guard that the launcher is there."""
        self._say('\n')

    def end(self) -> None:
        """Ask it to end, and all that it started."""
        with contextlib.suppress(OSError):
            assert self._guard.stdin is not None
            self._guard.stdin.close()

    def wait(self, seconds: float) -> None:
        """Until it has ended, or else it is killed."""
        try:
            self._guard.wait(seconds)
        except subprocess.TimeoutExpired:
            self._guard.kill()

    def fate(self) -> str:
        """How it ended, for people."""
        assert self.status is not None
        number = abs(self.status) - (128 if self.status > 0 else 0)
        if number > 0 and number in {each.value for each in signal.Signals}:
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
        local = hosts[0].name is None
        self._variables = {
            'DMLC_PS_ROOT_URI': options.root or ('127.0.0.1' if local else _own_address(hosts[0])),
            'DMLC_PS_ROOT_PORT': str(options.port or _free_port()),
            'DMLC_NUM_WORKER': str(options.workers),
            'DMLC_NUM_SERVER': str(options.servers),
            'OMP_NUM_THREADS': os.environ.get('OMP_NUM_THREADS', str(options.cpus or 1)),
            **({'DMLC_INTERFACE': 'lo'} if local else {}),
        }

    def run(self) -> int:
        """Start all and wait; gives the exit status of the job."""
        try:
            self._start('scheduler', 0, Computer(None))
            for role, count in (
                ('server', self._options.servers),
                ('worker', self._options.workers),
            ):
                for index in range(count):
                    self._start(role, index, self._hosts[index % len(self._hosts)])
            return self._wait()
        finally:
            for process in self._processes:
                process.end()
            for process in self._processes:
                process.wait(3 * PATIENCE / 4)

    def _start(self, role: str, index: int, host: Computer) -> None:
        options, python = self._options, self._options.python
        serving = [python, '-c', 'import mxnet']  # with the role in its variables, it serves
        command = options.command if role == 'worker' else serving
        variables = {**self._variables, 'DMLC_ROLE': role, RANK: str(index)}
        spec = {
            'command': command,
            'directory': os.getcwd(),
            'environment': variables,
            'processors': self._processors(role, index),
        }
        guard = [python, '-I', str(GUARD)]
        if host.name is not None:
            variables.update(self._passed(), **_node_host(host))
            guard = [*shlex.split(options.ssh), '-p', host.port, host.name, shlex.join(guard)]
        self._processes.append(Process(role, index, host, guard, spec))

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

    def _wait(self) -> int:
        beaten = time.monotonic()
        over: Optional[float] = None
        while True:
            running = [process for process in self._processes if process.look() is None]
            failed = [process for process in self._processes if process.status]
            if failed:  # a worker rather than who missed it
                first = min(failed, key=lambda process: process.role != 'worker')
                _say(f'{first.fate()}: the job ends')
                return _status(first)
            if not running:
                return 0
            now = time.monotonic()
            if _some_are_over(running, self._processes):
                over = now if over is None else over
                if now - over > PATIENCE:
                    _say(_LEFT.format(', '.join(process.name for process in running)))
                    return 1
            if now - beaten > BEAT:
                beaten = now
                for process in running:
                    process.beat()
            time.sleep(_GLANCE)


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
        _say(str(error))
        return 1


def read_hosts(path: str) -> Iterator[Computer]:
    """Machines of a file: a line each, ``[USER@]HOST[:PORT]``; the rest of a line is a remark."""
    found = False
    for line in Path(path).read_text(encoding='utf-8').splitlines():
        words = line.split('#')[0].split()
        if words:
            found = True
            name, _, port = words[0].partition(':')
            yield Computer(name, port or '22')
    if not found:
        raise OSError(f'{path} names no host: write one on each line, as [USER@]HOST[:PORT]')


def _interrupt(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _say(text: str) -> None:
    print(f'launch: {text}', file=sys.stderr, flush=True)


def _status(fault: Process) -> int:
    """Of the job; never 0."""
    status = fault.status or 1
    return status if status > 0 else 128 - status


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as found:
        found.bind(('', 0))
        return found.getsockname()[1]


def _node_host(host: Computer) -> Dict[str, str]:
    """Where it listens: a number, as MXNet looks up no names. It chooses for itself where the name
    is known to ssh only."""
    try:
        return {'DMLC_NODE_HOST': socket.gethostbyname(host.address)}
    except OSError:
        return {}


def _own_address(host: Computer) -> str:
    """The address of this machine in the network of another: nothing is sent."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as towards:
        towards.connect((host.address, 9))
        return towards.getsockname()[0]


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
        default='ssh -o BatchMode=yes -o ServerAliveInterval=10 -o ServerAliveCountMax=3',
        metavar='COMMAND',
        help='(default: %(default)s)',
    )
    add('command', nargs=argparse.REMAINDER, metavar='COMMAND ...')
    return parser


if __name__ == '__main__':
    sys.exit(main())
