"""The simulated engine in the hands of somebody whose clients come, read every token and go: a fake server."""

from heapq import heappush

from plimsoll.sim.engine import Engine
from plimsoll.sim.requests import Request


class LiveEngine(Engine):
    """An engine whose stretches may be cut short, so that its counters and its requests' tokens are never old."""

    @property
    def steps(self) -> int:
        """Steps that ``advance`` will finish."""
        return self._stretch or 1

    def pause(self, now_seconds: float) -> None:
        """Let the stretch under way end with the step under way; a moment before ``next_seconds``."""
        if self._stretch > 1:
            self._end_after(self._steps_until(now_seconds))

    def produced(self, request: Request) -> int:
        """Tokens that a request has been given, up to the last ``advance``."""
        if request.finish_step >= 0:
            return request.output_tokens - (request.finish_step - self._step)
        return request.output_tokens if request.finish_seconds < self.next_seconds else request.generated

    def cancel(self, request: Request, now_seconds: float) -> None:
        """The client is gone: the request ends with the step under way, or at once if it only waits."""
        if request in self._waiting:
            self._waiting.remove(request)
        elif request.finish_step < 0:
            request.output_tokens = request.generated + 1
        else:
            self.pause(now_seconds)
            left = request.finish_step - self._step
            if left > self.steps:
                request.output_tokens -= left - self.steps
                request.finish_step = self._step + self.steps
                self._order += 1
                heappush(self._finishing, (request.finish_step, self._order, request))
