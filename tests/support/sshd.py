"""Run an ssh server for tests, on this machine only, with its own keys and settings."""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .processes import start

_SERVER = """
Port {port}
ListenAddress 127.0.0.1
ListenAddress 127.0.0.2
HostKey {directory}/host
AuthorizedKeysFile {directory}/user.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
PidFile none
"""
# As in a user's ~/.ssh/config: the launcher has to leave the port to it.
_CLIENT = """
Host first
  HostName 127.0.0.1
Host second
  HostName 127.0.0.2
Host *
  Port {port}
  IdentityFile {directory}/user
  IdentitiesOnly yes
  BatchMode yes
  UserKnownHostsFile {directory}/known
  StrictHostKeyChecking accept-new
  LogLevel ERROR
"""


@contextlib.contextmanager
def start_sshd(directory: Path) -> Iterator[str]:
    """Start a server that knows the machines `first` and `second`; yield the command that reaches
    it."""
    server = shutil.which('sshd', path=os.environ['PATH'] + ':/usr/sbin:/usr/local/sbin')
    if server is None or not shutil.which('ssh') or not shutil.which('ssh-keygen'):
        pytest.skip('no sshd (on Debian: apt-get install openssh-server)')
    if os.getuid() == 0:  # where it locks itself in; a start of the system's own makes it
        os.makedirs('/run/sshd', mode=0o755, exist_ok=True)
    for name in ('host', 'user'):
        key = ['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', directory / name]
        subprocess.run(key, check=True, stdin=subprocess.DEVNULL)
    with socket.socket() as found:  # held until the server has it: another may ask for a free one
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(('', 0))
        port = found.getsockname()[1]
        for name, text in {'server': _SERVER, 'client': _CLIENT}.items():
            (directory / name).write_text(text.format(port=port, directory=directory))
        with start([server, '-D', '-e', '-f', directory / 'server']) as process:
            said = ''
            while said.count('Server listening') < 2:
                line = process.stderr.readline()
                said += line
                if not line:
                    pytest.skip(f'sshd does not start: {said}')
            yield shlex.join(['ssh', '-F', str(directory / 'client')])
