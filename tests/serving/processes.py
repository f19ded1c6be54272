"""Servers in processes of their own that start at once, as everything is imported already, and clients that insist."""

import http.client
import json
import os
import signal
import socket
import threading
import time
import traceback
from contextlib import suppress

from torch_kbandits.serving import Service
from torch_kbandits.serving.server import serve


class Nursery:
    """A process without threads that forks servers, whatever threads run in the tests meanwhile."""

    def __init__(self, path, port, **words):
        self._ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._ours.close()
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
                while theirs.recv(1):
                    pid = os.fork()
                    if pid == 0:
                        theirs.close()
                        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                        serve(Service.open(path, **words), port=port)
                        break
                    theirs.sendall(pid.to_bytes(4, "big"))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        theirs.close()

    def start(self):
        self._ours.sendall(b"1")
        return int.from_bytes(self._ours.recv(4), "big")

    def close(self):
        self._ours.close()
        os.waitpid(self._pid, 0)


def end(pid, how):
    """Send a signal to a process of a nursery, and wait until it is gone and its files are free."""
    with suppress(ProcessLookupError):
        os.kill(pid, how)
        while True:
            os.kill(pid, 0)
            time.sleep(0.001)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def insist(port, method, path, body=None, patience=60.0):
    """Send a request until it is answered, and return the answer; only what says to try again is tried again."""
    deadline = time.monotonic() + patience
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20.0)
        try:
            words = None if body is None else json.dumps(body)
            connection.request(method, path, words, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
            if response.status != 503:
                assert response.status == 200, (path, body, response.status, answer)
                return answer
        except (OSError, http.client.HTTPException, ValueError):
            assert time.monotonic() < deadline, (path, body)
        finally:
            connection.close()
        time.sleep(0.002)


class Client(threading.Thread):
    """Asks and tells until it is stopped, and remembers what was answered; its rewards are its own."""

    def __init__(self, port, number):
        super().__init__()
        self.port, self.number = port, number
        self.asked, self.told = {}, {}
        self.stopping = threading.Event()
        self.error = None

    def run(self):
        try:
            count = 0
            while not self.stopping.is_set():
                count += 1
                key = f"{self.number}-{count}"
                asked = insist(self.port, "POST", "/ask", {"q": 1 + count % 2, "key": key})
                self.asked[key] = asked
                rewards = [self.number + 1e-3 * count + 1e-6 * place for place in range(len(asked["ids"]))]
                insist(self.port, "POST", "/tell", {"ids": asked["ids"], "y": rewards})
                self.told |= dict(zip(asked["ids"], rewards, strict=True))
        except BaseException as error:
            self.error = error
