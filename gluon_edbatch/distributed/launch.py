"""Start the workers, servers and scheduler of a job, on this machine or on several by ssh.

The launcher replaces MXNet's, which fails under Python 3.9 and later, and sets the same variables
(``DMLC_*``). It needs the standard library only, and the same files and paths on all machines.
"""

import argparse
import contextlib
import json
import os
import select
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

RANK = 'GLUON_EDBATCH_RANK'  # of a worker, from 0: MXNet's own ranks have no order
GUARD = Path(__file__).with_name('process_guard.py')
BEATS = 8  # lines to each guard, which it answers, within the silence that ends the job
PATIENCE = 20.0  # seconds that the last processes have to end after the first
ENDING = 12.0  # seconds that all guards have to end what they started
LOGINS = 5  # to a machine at the same time: sshd refuses some of more than 10
_GLANCE = 0.1  # seconds to wait before all processes are looked at again
_LONGEST = 1 << 16  # bytes of a line that is copied as a whole; also the size of a pipe
_PASSED = (*'DMLC_ PS_ MXNET_ OMP_ GLUON_EDBATCH_ PATH PYTHONPATH LD_LIBRARY_PATH'.split(),)


class Process:
    """A worker, server or scheduler of the job, and the guard that runs it."""

    def __init__(self, role: str, name: str, host: str, guard: Sequence[str], label: str):
        self.role, self.host, self._label = role, host, label.encode()
        self.name = f'{name} on {_address(host)}' if host else name
        self.status: Optional[int] = None  # as a shell has it, once the process has ended
        self.quiet = 0.0  # seconds since the guard was heard
        self.answered = False  # whether the guard has begun
        pipes: Any = dict.fromkeys(['stdin', 'stdout', 'stderr'], subprocess.PIPE)
        # In a session of its own: an interrupt from the keyboard goes to the launcher alone.
        self.guard: Any = subprocess.Popen(guard, bufsize=0, start_new_session=True, **pipes)
        self.sources: Any = {1: self.guard.stdout, 2: self.guard.stderr}
        self._rests = {1: b'', 2: b''}  # unfinished lines

    def say(self, text: str) -> None:
        """Write a line to the guard."""
        with contextlib.suppress(OSError):  # the guard has ended, which its status tells
            self.guard.stdin.write(f'{text}\n'.encode())

    def read(self, number: int, last: bool = False) -> Optional[bytes]:
        """Return new lines of a stream, the `last` one as it is; None after the stream's end."""
        text = self.sources[number].read(_LONGEST)  # None: nothing yet; empty: the end
        ended = text == b''
        if ended and not self._rests[number]:
            return None
        if text:
            self.quiet = 0.0
        if text and number == 2 and b'\0' in text:  # the guard has answered
            self.answered, text = True, text.replace(b'\0', b'')
        lines = (self._rests[number] + (text or b'')).splitlines(True)
        self._rests[number] = b''
        if lines and not lines[-1].endswith((b'\n', b'\r')):
            if last or ended:
                lines[-1] += b'\n' if self._label else b''  # the next label begins a line
            elif len(lines[-1]) < _LONGEST:
                self._rests[number] = lines.pop()
        return b''.join(self._label + line for line in lines)

    def fate(self) -> str:
        """Say how the process ended."""
        names = {128 + each: f'{self.name} was killed by {each.name}' for each in signal.Signals}
        if self.answered or not self.host:
            return names.get(self.status or 0, f'{self.name} ended with status {self.status}')
        reach = shlex.join([*self.guard.args[:-1], 'true'])
        return (
            f'{self.name} never began (status {self.status}): `{reach}` has to work without '
            'a password, and that machine to have the same Python and checkout under the same paths'
        )


class Job:
    """All processes of a job, with workers and servers on these hosts in turns."""

    def __init__(self, options: argparse.Namespace, hosts: Sequence[str]):
        self._options, self._hosts = options, hosts
        self._processes: list[Process] = []
        self._sources: Any = selectors.DefaultSelector()
        self._texts = {1: b'', 2: b''}  # for the launcher's streams, whose readers may be slow
        self._unread: Optional[OSError] = None  # why they cannot be written to
        self._beaten, self._over = time.monotonic(), 0.0
        self._port = _reserved(options.port or 0)
        self._variables = {
            'OMP_NUM_THREADS': str(options.cpus or 1),
            # What is in a buffer would come late, and be lost when a process is killed.
            'PYTHONUNBUFFERED': os.environ.get('PYTHONUNBUFFERED', '1'),
            **{k: v for k, v in os.environ.items() if k in options.env or k.startswith(_PASSED)},
            **({} if hosts[0] else {'DMLC_INTERFACE': 'lo'}),
            'DMLC_PS_ROOT_URI': options.root or _own_address(hosts[0]),
            'DMLC_PS_ROOT_PORT': str(self._port.getsockname()[1]),
            'DMLC_NUM_WORKER': str(options.workers),
            'DMLC_NUM_SERVER': str(options.servers),
        }

    def run(self) -> int:
        """Start all processes and wait for their end; return the exit status of the job."""
        counts = {'scheduler': 1, 'server': self._options.servers, 'worker': self._options.workers}
        waiting = [(role, index) for role, count in counts.items() for index in range(count)]
        try:
            while True:
                waiting = [place for place in waiting if not self._start(*place)]
                verdict = self._verdict(self._look(), begun=not waiting)
                if verdict is not None:
                    status, why = verdict
                    self._texts[2] += f'launch: {why}\n'.encode() if why else b''
                    return status
        finally:
            for process in self._processes:
                process.guard.stdin.close()
            deadline = time.monotonic() + ENDING
            while self._look() or any(self._texts.values()):
                for process in self._processes if time.monotonic() > deadline else ():
                    process.guard.kill()

    def _start(self, role: str, index: int) -> bool:
        """Start a process, unless too many logins to its machine are under way."""
        options, machines = self._options, len(self._hosts)
        host = '' if role == 'scheduler' else self._hosts[index % machines]
        if host and sum(p.host == host and not p.answered for p in self._processes) >= LOGINS:
            return False
        variables = {**self._variables, 'DMLC_ROLE': role, RANK: str(index)}
        guard = [options.python, '-I', str(GUARD)]
        if host:
            with contextlib.suppress(OSError):  # ssh alone knows the name: MXNet chooses an address
                variables['DMLC_NODE_HOST'] = socket.gethostbyname(_address(host))
            machine, _, port = host.partition(':')
            reach = [*shlex.split(options.ssh), *(['-p', port] if port else []), machine]
            guard = [*reach, shlex.join(guard)]
        command, cpus = options.command, options.cpus or 0
        if role != 'worker':  # MXNet serves as soon as it is imported with another role
            command, cpus = [options.python, '-c', 'import gluon_edbatch'], 0
        first = index // machines * cpus  # workers of one machine have different processors
        spec = [command, os.getcwd(), variables, list(range(first, first + cpus)), options.silence]
        name = role if role == 'scheduler' else f'{role} {index}'
        process = Process(role, name, host, guard, '' if options.plain else f'{name}: ')
        process.say(json.dumps(spec))
        self._processes.append(process)
        for number, source in process.sources.items():
            os.set_blocking(source.fileno(), False)
            self._sources.register(source, selectors.EVENT_READ, (process, number))
        return True

    def _look(self) -> list[Process]:
        """Copy the output of processes, or wait a moment for some; return those that run."""
        before = time.monotonic()
        # Nothing is read, nor counted as silence, while somebody holds the terminal.
        if self._flush():
            for key, _ in self._sources.select(_GLANCE):
                process, number = key.data
                text = process.read(number)
                if text is None:
                    self._sources.unregister(key.fileobj)
                self._texts[number] += text or b''
            # A launcher that stood still for longer has missed no answer.
            passed = min(time.monotonic() - before, 2 * _GLANCE)
            for process in self._processes:
                process.quiet += passed
        for process in self._processes:
            status = process.guard.poll()
            if status is not None and process.status is None:
                process.status = status if status >= 0 else 128 - status
                for number in process.sources:  # the last words
                    self._texts[number] += process.read(number, last=True) or b''
        return [process for process in self._processes if process.status is None]

    def _flush(self) -> bool:
        """Write what readers take without a wait; return whether nothing is left."""
        for number in self._texts:
            try:
                while self._texts[number] and select.select([], [number], [], _GLANCE)[1]:
                    # A pipe that is ready has room for so much. Writing more might wait.
                    written = os.write(number, self._texts[number][: select.PIPE_BUF])
                    self._texts[number] = self._texts[number][written:]
            except OSError as error:  # nobody reads any more, or the disk is full
                self._texts[number], self._unread = b'', error
        return not any(self._texts.values())

    def _verdict(self, running: Sequence[Process], begun: bool) -> Optional[tuple[int, str]]:
        """Return the exit status of the job, if it is over, and why it ends early."""
        silence, now = self._options.silence, time.monotonic()
        # A worker rather than a server, which ends because a worker is missing.
        for process in sorted(self._processes, key=lambda each: each.role != 'worker'):
            if process.status:
                return process.status, f'{process.fate()}: the job ends'
        if self._unread:
            return 128 + signal.SIGPIPE, f'more words are lost ({self._unread}): the job ends'
        if begun and not running:
            return 0, ''
        machines = {each.host or each for each in running if each.quiet > silence}
        if machines:  # all processes of a machine that is lost are
            lost = [each for each in running if each.host in machines or each in machines]
            for process in lost:
                process.guard.kill()  # it would not answer
            names = ', '.join(process.name for process in lost)
            return 1, f'nothing heard of {names} for {silence:g} s: the job ends'
        workers = [process for process in running if process.role == 'worker']
        if begun and (not workers or len(running) - len(workers) <= self._options.servers):
            self._over = self._over or now
            if now - self._over > PATIENCE:
                names = ', '.join(process.name for process in running)
                return 1, (
                    f'the others have ended, and {names} still wait: did each worker train within '
                    "'with gluon_edbatch.distributed.connect(...)', as with --kvstore dist_sync?"
                )
        if now - self._beaten > silence / BEATS:
            self._beaten = now
            for process in running:
                process.say('')
        return None


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.command:
        parser.error('what is to be run? write it after the options, as python train.py ...')
    options.servers = options.servers or options.workers
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        return Job(options, read_hosts(options.hosts) if options.hosts else ['']).run()
    except OSError as error:
        print(f'launch: {error}', file=sys.stderr)
        return 1


def read_hosts(path: str) -> list[str]:
    """Read machines from a file: ``[USER@]HOST[:PORT]`` begins a line, and ``#`` a remark."""
    lines = Path(path).read_text(encoding='utf-8').splitlines()
    hosts = [words[0] for words in (line.split('#')[0].split() for line in lines) if words]
    if not hosts:
        raise OSError(f'{path} names no host: write one on each line, as [USER@]HOST[:PORT]')
    return hosts


def _reserved(port: int) -> socket.socket:
    """Bind a port (0: a free one) that MXNet's scheduler alone can take, with SO_REUSEADDR."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(('', port))
    except OSError as error:
        raise OSError(f'port {port}: {error.strerror}') from None
    return found


def _address(host: str) -> str:
    return host.partition(':')[0].rpartition('@')[2] or '127.0.0.1'


def _own_address(host: str) -> str:
    """Return the address by which another machine reaches this one; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
            towards.connect((_address(host), 9))
            return towards.getsockname()[0]
    except OSError as error:
        why = f'{_address(host)} has no address here ({error.strerror})'
        raise OSError(f'{why}: say by --root which one of this machine the others reach') from None


def _positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text} is less than 1')
    return int(text)


def _parser() -> argparse.ArgumentParser:
    about = 'Run COMMAND as N workers, with servers and a scheduler beside them. '
    about += 'If one of them fails, all end, and so does this program, with its status.'
    ssh = 'ssh -T -o BatchMode=yes -o ConnectTimeout=15'  # a terminal would mix errors in
    parser = argparse.ArgumentParser(prog='launch', description=about)
    add = parser.add_argument
    add('-n', '--workers', type=_positive, metavar='N', required=True)
    add('-s', '--servers', type=_positive, metavar='N', help='(default: as many as workers)')
    hosts = 'machines, [USER@]HOST[:PORT] on each line, that ssh reaches without a password'
    add('-H', '--hosts', metavar='FILE', help=hosts)
    add('--cpus', type=_positive, metavar='N', help='keep each worker to N processors of its own')
    also = f'pass this variable on to other machines, besides {", ".join(_PASSED)}'
    add('--env', metavar='NAME', action='append', default=[], help=also)
    add('--root', metavar='ADDRESS', help='of this machine, for the others (default: found)')
    add('--port', type=_positive, metavar='N', help='of the scheduler (default: one that is free)')
    python = 'for servers and guards, on all machines (default: that of this program)'
    add('--python', metavar='FILE', default=sys.executable, help=python)
    add('--ssh', metavar='COMMAND', default=ssh, help='(default: %(default)s)')
    lost = 'after which a machine that does not answer counts as lost (default: %(default)g)'
    add('--silence', metavar='SECONDS', type=float, default=40.0, help=lost)
    add('--plain', action='store_true', help='write lines as they are, and not whose they are')
    add('command', metavar='COMMAND ...', nargs=argparse.REMAINDER)
    return parser


if __name__ == '__main__':
    sys.exit(main())
