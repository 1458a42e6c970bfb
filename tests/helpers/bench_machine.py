"""A machine without a GPU that runs of the benchmark believe in."""

from __future__ import annotations

from cuswiglu.bench.contenders import Found
from cuswiglu.bench.run.measure import Measured
from cuswiglu.bench.run.run import Method, run
from tests.helpers.bench_records import SESSION, outcomes


class Watch:
    """A monitor that has seen the same thing each time."""

    def __init__(self, seen=None, trouble=""):
        self.seen, self.trouble = seen or {"reasons": ["power cap"]}, trouble

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def take(self):
        return self.seen


class Machine:
    """Stands in for a GPU: each cell takes ten seconds, and `measured` says which were asked."""

    def __init__(self, session=SESSION, missing=None, watch=None, answers=None):
        self.now, self.measured = 0.0, []
        self.missing = missing or {}
        self.answers = answers or {}
        self.method = Method(
            gpu=lambda: "0000:01:00.0",
            session=lambda gpu: session,
            measure=self.measure,
            watch=lambda gpu: watch or Watch(),
            clock=lambda: self.now,
        )

    def find(self):
        return Found([], self.missing)

    def measure(self, cell, contenders, *, seed, rounds, doing):
        self.now += 10
        self.measured.append(cell)
        doing("timing")
        answer = self.answers.get(cell, outcomes())
        if isinstance(answer, Exception):
            raise answer
        return Measured(3, answer)

    def run(self, record, cells, path=None, **options):
        """Measure the cells that a record lacks."""
        return run(record, cells, self.find, path, method=self.method, **options)
