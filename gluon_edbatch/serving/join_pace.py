"""How often samples join those that are on their way.

What a sample does first, as an encoder, may take much longer than later steps, and all others would
wait for it. So rounds in which nobody joins get a share of the seconds of one in which somebody
did: where joining costs much, samples join in groups that are the larger the more come."""

from collections import deque

SHARE = 0.5  # of the seconds of a round in which samples joined, before others do
_LATELY = 3  # rounds of those, of which the shortest counts


class Pace:
    """Decides in which rounds samples join, by how long rounds take."""

    def __init__(self) -> None:
        self._joining: deque[float] = deque([0.0], maxlen=_LATELY)
        self._since = 0.0

    def may_join(self, running: int) -> bool:
        """Whether samples may join so many others now."""
        return not running or self._since >= SHARE * min(self._joining)

    def note(self, seconds: float, joined: bool, is_beginning: bool = False) -> None:
        """A round took so long. Samples joined in it; or what those need first who joined before
        was computed beside it."""
        if joined:
            self._joining.append(seconds)
            self._since = 0.0
        elif is_beginning:
            self._joining[-1] += seconds
        else:
            self._since += seconds
