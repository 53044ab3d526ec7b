# SPDX-License-Identifier: BSD-2-Clause
"""
The command of an exec: migration: joins its standard input and output to the unix socket named by argv[1].
"""
import os
import socket
import sys
import threading


def copy(read, write, finish):
    try:
        while data := read(1 << 18):
            write(data)
    except OSError:
        pass
    finish()


def main():
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(sys.argv[1])

    def write_out(data):
        view = memoryview(data)
        while view:
            view = view[os.write(1, view):]

    def give_up():
        # The peer has gone: the end of our output tells it to the VM, and so does a broken input.
        os.close(1)
        os.close(0)
        os._exit(0)

    threading.Thread(target=copy, args=(sock.recv, write_out, give_up), daemon=True).start()
    copy(lambda n: os.read(0, n), sock.sendall, lambda: sock.shutdown(socket.SHUT_WR))
    sock.close()


if __name__ == '__main__':
    main()
