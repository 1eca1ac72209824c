"""Ends a command by a signal: Ctrl-C, `kill`, and a terminal that goes away are one exception, raised once.

With an exception, the command's own files and processes are cleaned up. Python raises it between two steps of the main
thread, and two kinds of steps lose it: a blocking call that begins just after the signal came is not interrupted, and
Python drops an exception in a finalizer. So a thread sends the signal again until the command has received it.
"""

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Final

from semel.ui.cli.errors import Ended

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# The default action of each signal.
_USUAL: Final = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}
_AGAIN_SECONDS: Final = 0.01


class Endings:
    """The signals that end this process's command from now on."""

    def __init__(self) -> None:
        # The signals that the command has received, in their order.
        self.struck: list[int] = []
        self._usual_hook = sys.unraisablehook
        come, self._note = os.pipe()
        os.set_blocking(self._note, False)
        signal.set_wakeup_fd(self._note, warn_on_full_buffer=False)
        threading.Thread(target=self._send_again, args=(come,), name="endings", daemon=True).start()
        for number, usual in _USUAL.items():
            # For a command in the background, or under nohup, the signal is ignored, and has to stay ignored.
            if signal.getsignal(number) == usual:
                signal.signal(number, self._end)
        sys.unraisablehook = self._end_nevertheless

    def _end(self, number: int, struck_in: FrameType | None) -> None:
        """Raise the exception once, because `timeout` sends its signal twice, and the second one would interrupt the
        clean-up. This also handles Ctrl-C: only an exception that is already an object gets through a callback of
        librdkafka, and neither sys.exit nor Python's own handler makes an object.
        """
        if number in self.struck or self._is_lost_in(struck_in):
            return
        self.struck.append(number)
        raise Ended(number)

    def _end_nevertheless(self, lost: "UnraisableHookArgs") -> None:
        """Keep a signal from being lost in a finalizer: in a program with a few hundred finalizers a second, such as a
        loop of asyncio, that is likely.
        """
        if not isinstance(lost.exc_value, Ended):
            self._usual_hook(lost)
            return
        number = lost.exc_value.number
        self.struck.remove(number)
        os.write(self._note, bytes([number]))

    def _is_lost_in(self, frame: FrameType | None) -> bool:
        """Whether the hook above is running, in which Python drops an exception for good; the signal is sent again."""
        while frame is not None and frame.f_code is not Endings._end_nevertheless.__code__:
            frame = frame.f_back
        return frame is not None

    def _send_again(self, come: int) -> None:
        while numbers := os.read(come, 1):
            number = numbers[0]
            time.sleep(_AGAIN_SECONDS)
            while signal.getsignal(number) == self._end and number not in self.struck:
                signal.pthread_kill(threading.main_thread().ident or 0, number)
                time.sleep(_AGAIN_SECONDS)
