"""The write rate: a token bucket. Time is an argument."""


class Bucket:
    """`rate` tokens a second, twice that at once. Creates come first: a sweep takes only from the upper half."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._level = self.burst
        self._at = now

    @property
    def burst(self) -> float:
        return self._rate * 2

    def left(self, now: float) -> int:
        """Whole tokens that could be taken now."""
        self._level = min(self.burst, self._level + (now - self._at) * self._rate)
        self._at = now
        return int(self._level)

    def spare(self, now: float) -> int:
        """Tokens above the half that is kept for creates."""
        return max(0, self.left(now) - int(self.burst / 2))

    def take(self, count: int) -> None:
        self._level -= count
