# SPDX-License-Identifier: BSD-2-Clause
"""The ways from one VM to another: each kind of URI, direct or through a relay, live or by way of a file."""
import os
import shlex
import socket
import sys

from .deadline import poll
from .relay import Faults, Relay, connect_unix, listen_tcp, listen_unix

EXEC_PIPE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'exec_pipe.py')


class Route:
    """
    One way for one migration.  Order of use: incoming (when the destination is started), listen(),
    connect(); or, if @stored, connect() and, when the source has completed, load().  close() in any case.
    """
    name = None
    stored = False              # by way of a file: the destination comes later
    needs = None                # a feature of Program.can() that both ends must have
    bidirectional = True        # a return path is possible

    def __init__(self, folder, faults=None):
        self.folder = folder
        self.faults = faults
        self.relay = None

    @property
    def incoming(self):
        """The destination's -incoming value and the descriptors that it inherits."""
        return 'defer', ()

    def path(self, suffix):
        return os.path.join(self.folder, f'route{suffix}')

    def listen(self, dst):
        raise NotImplementedError

    def connect(self, src):
        raise NotImplementedError

    def load(self, dst):
        raise NotImplementedError

    def captured(self):
        """The bytes that went from source to destination."""
        return self.relay.up

    def close(self):
        if self.relay:
            self.relay.close()


class Tcp(Route):
    name = 'tcp'

    def listen(self, dst):
        dst.call('migrate-incoming', uri='tcp:127.0.0.1:0')
        address = poll(lambda: dst.migration().get('socket-address'), 30, 'socket-address')[0]
        self.port = int(address['port'])
        if self.faults:
            target = self.port
            listener = listen_tcp()
            self.relay = Relay(self.faults, listener, lambda: socket.create_connection(('127.0.0.1', target)))
            self.port = listener.getsockname()[1]

    @property
    def uri(self):
        return f'tcp:127.0.0.1:{self.port}'

    def connect(self, src):
        src.call('migrate', uri=self.uri)


class Unix(Route):
    name = 'unix'

    def listen(self, dst):
        target = self.path('.unix')
        dst.call('migrate-incoming', uri=f'unix:{target}')
        self.uri = f'unix:{target}'
        if self.faults:
            listener = listen_unix(self.path('.relay'))
            self.relay = Relay(self.faults, listener, lambda: connect_unix(target))
            self.uri = f'unix:{self.path(".relay")}'

    def connect(self, src):
        src.call('migrate', uri=self.uri)


class Fd(Route):
    """Both ends get a connected socket by getfd over QMP."""
    name = 'fd'

    def __init__(self, folder, faults=None):
        super().__init__(folder, faults)
        self.near, self.far = socket.socketpair()
        if faults:
            inner_near, inner_far = socket.socketpair()
            self.relay = Relay(faults)
            self.relay.add_link(self.far, inner_near)
            self.far = inner_far

    def listen(self, dst):
        dst.qmp.getfd('mig', self.far.fileno())
        dst.call('migrate-incoming', uri='fd:mig')
        self.far.close()

    def connect(self, src):
        src.qmp.getfd('mig', self.near.fileno())
        src.call('migrate', uri='fd:mig')
        self.near.close()

    def close(self):
        super().close()
        self.near.close()
        self.far.close()


class FdInherited(Fd):
    """The destination inherits its socket: -incoming fd:NUMBER."""
    name = 'fd-inherited'

    @property
    def incoming(self):
        return f'fd:{self.far.fileno()}', (self.far.fileno(),)

    def listen(self, dst):
        self.far.close()


class Exec(Route):
    """A command at each end, joined by the relay, which passes both directions."""
    name = 'exec'

    def __init__(self, folder, faults=None):
        super().__init__(folder, faults)
        self.near = listen_unix(self.path('.near'))
        self.far = listen_unix(self.path('.far'))
        self.command = f'exec:exec {shlex.quote(sys.executable)} {shlex.quote(EXEC_PIPE)} '
        self.relay = Relay(faults or Faults())

    def _accept(self, listener, vm):
        listener.settimeout(0.1)

        def attempt():
            vm.check_alive()
            try:
                return listener.accept()[0]
            except TimeoutError:
                return None
        return poll(attempt, 30, f'{vm}: the command of exec: connects')

    def listen(self, dst):
        dst.call('migrate-incoming', uri=self.command + shlex.quote(self.path('.far')))
        self.far_end = self._accept(self.far, dst)

    def connect(self, src):
        src.call('migrate', uri=self.command + shlex.quote(self.path('.near')))
        self.relay.add_link(self._accept(self.near, src), self.far_end)

    def close(self):
        super().close()
        self.near.close()
        self.far.close()


class ExecFifo(Route):
    """exec:cat at both ends of a fifo; one way only."""
    name = 'exec-fifo'
    bidirectional = False

    def __init__(self, folder, faults=None):
        assert not faults, 'nothing can be put in between here'
        super().__init__(folder)
        os.mkfifo(self.path('.fifo'))

    def listen(self, dst):
        dst.call('migrate-incoming', uri=f'exec:cat < {shlex.quote(self.path(".fifo"))}')

    def connect(self, src):
        src.call('migrate', uri=f'exec:cat > {shlex.quote(self.path(".fifo"))}')


class Stored(Route):
    """Saved to a file, loaded from it later."""
    stored = True
    bidirectional = False
    save_uri = None
    load_uri = None

    @property
    def file(self):
        return self.path('.stream')

    def listen(self, dst):
        pass

    def connect(self, src):
        src.call('migrate', uri=self.save_uri.format(self.file))

    def load(self, dst):
        dst.call('migrate-incoming', uri=self.load_uri.format(self.file))

    def captured(self):
        with open(self.file, 'rb') as f:
            return f.read()


class File(Stored):
    name = 'file'
    needs = 'file'
    save_uri = load_uri = 'file:{}'


class ExecFile(Stored):
    name = 'exec-file'
    save_uri = 'exec:cat > {}'
    load_uri = 'exec:cat < {}'


ROUTES = {route.name: route for route in (Tcp, Unix, Fd, FdInherited, Exec, ExecFifo, File, ExecFile)}
LIVE = tuple(name for name, route in ROUTES.items() if not route.stored)
STORED = tuple(name for name, route in ROUTES.items() if route.stored)


def perform(src, dst, route, seconds=120):
    """A whole migration from @src to @dst; the final query-migrate of both."""
    if route.stored:
        route.connect(src)
        at_source = src.wait_migration('completed', seconds=seconds)
        route.load(dst)
    else:
        route.listen(dst)
        route.connect(src)
        at_source = src.wait_migration('completed', seconds=seconds)
    return at_source, dst.wait_migration('completed', seconds=seconds)
