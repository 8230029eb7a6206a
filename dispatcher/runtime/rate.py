"""The write rate, a token bucket. Time is an argument."""


class Bucket:
    """`rate` tokens a second, and a burst of twice the rate. Creates come first: a sweep uses only the upper half."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._level = self.burst
        self._at = now

    @property
    def burst(self) -> float:
        return self._rate * 2

    def left(self, now: float) -> int:
        """Number of whole tokens that can be taken now."""
        self._level = min(self.burst, self._level + (now - self._at) * self._rate)
        self._at = now
        return int(self._level)

    def spare(self, now: float) -> int:
        """Number of tokens above the half that is kept for creates."""
        return max(0, self.left(now) - int(self.burst / 2))

    def take(self, count: int) -> None:
        self._level -= count
