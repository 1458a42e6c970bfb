"""The table of cells, a line as each is finished, and what is to be known about the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from . import bandwidth, figures, scaling
from .cells import LAYERS, Cell, flops
from .record import CellRecord, Record, Session


@dataclass(frozen=True)
class Column:
    """A column of the table of cells: heading, width, and what stands in it."""

    heading: str
    width: int
    text: Callable[[CellRecord], str]


def _against(heading: str, *names: str, who: str = "auto") -> Column:
    """How many times as fast as these one of ours is."""

    def text(row: CellRecord) -> str:
        ours, theirs = row.us(who), row.us(*names)
        if ours and theirs:
            return f"{theirs / ours:.3f}"
        return _untimed(row, *names)

    return Column(heading, max(7, len(heading)), text)


def _untimed(row: CellRecord, *names: str) -> str:
    """Why there is no figure: all of these failed, or there is nothing to be said of them."""
    tried = any(name in row.outcomes for name in names)
    return "failed" if tried and not row.us(*names) else "-"


def _time(who: str, form: str = "{:.1f}") -> Column:
    """Microseconds of one of ours."""

    def text(row: CellRecord) -> str:
        time = row.us(who)
        return form.format(time) if time else "failed"

    heading = f"{who} us"
    return Column(heading, max(9, len(heading)), text)


def _kernel(who: str, width: int) -> Column:
    def text(row: CellRecord) -> str:
        return row.outcomes[who].choice if who in row.outcomes else ""

    return Column("its kernel", width, text)


def _of_best(row: CellRecord) -> str:
    found, ours = figures.best_instance(row), row.us("auto")
    return f"{found[1] / ours:.3f}" if found and ours else "-"


def _host_time(name: str) -> Column:
    """Microseconds of host time of a call."""

    def text(row: CellRecord) -> str:
        time = row.us(name)
        return f"{time:.2f}" if time else _untimed(row, name)

    return Column(name, max(6, len(name)), text)


def _times(heading: str, one: str, other: str) -> Column:
    """How many times another contender's time one takes."""

    def text(row: CellRecord) -> str:
        time, unit = row.us(one), row.us(other)
        return f"{time / unit:.2f}" if time and unit else "-"

    return Column(heading, max(6, len(heading)), text)


_HOST_RATIOS = (
    _times("planned/bare", "planned", "bare-launches"),
    _times("eager/unplanned", "torch-eager", "unplanned"),
)


def _stack_time(name: str) -> Column:
    """Microseconds of a whole stack."""

    def text(row: CellRecord) -> str:
        time = row.us(name)
        return f"{time * LAYERS:.0f}" if time else _untimed(row, name)

    return Column(name, max(6, len(name)), text)


_STACK = (
    *(_stack_time(name) for name in (scaling.OURS, scaling.PLAIN, "captured")),
    _times("jax/cuswiglu-jax", scaling.PLAIN, scaling.OURS),
    _times("cuswiglu-jax/captured", scaling.OURS, "captured"),
)


def _or_dash(heading: str, figure: Callable[[CellRecord], float | None], form: str) -> Column:
    def text(row: CellRecord) -> str:
        value = figure(row)
        return "-" if value is None else form.format(value)

    return Column(heading, max(6, len(heading)), text)


def _of(who: str, figure: str) -> Callable[[CellRecord], float | None]:
    return lambda row: getattr(scaling.scaling(row, who), figure)


def _gpus(row: CellRecord) -> int:
    return scaling.scaling(row, scaling.OURS).gpus


_SCALING = (
    Column("GPUs", 4, lambda row: str(_gpus(row))),
    _or_dash("ours, 1", _of(scaling.OURS, "one"), "{:.1f}"),
    _or_dash("jax, 1", _of(scaling.PLAIN, "one"), "{:.1f}"),
    _or_dash("ours, all", _of(scaling.OURS, "every"), "{:.1f}"),
    _or_dash("jax, all", _of(scaling.PLAIN, "every"), "{:.1f}"),
    _or_dash("speed, 1", lambda row: scaling.speed(row, gpus=1), "{:.3f}"),
    _or_dash("all", lambda row: scaling.speed(row, gpus=_gpus(row)), "{:.3f}"),
    _or_dash("speed-up", _of(scaling.OURS, "speedup"), "{:.2f}"),
    _or_dash("jax's", _of(scaling.PLAIN, "speedup"), "{:.2f}"),
    _or_dash("sum", _of(scaling.OURS, "share"), "{:.1%}"),
    _or_dash("jax's", _of(scaling.PLAIN, "share"), "{:.1%}"),
)


def _decode(sessions: Sequence[Session]) -> list[Column]:
    return [
        _time(bandwidth.OURS, "{:.2f}"),
        _kernel(bandwidth.OURS, 27),
        _or_dash("TB/s", bandwidth.tbs, "{:.2f}"),
        _or_dash("of copy", lambda row: bandwidth.share(row, sessions), "{:.1%}"),
        _against("bare", bandwidth.BARE, who=bandwidth.OURS),
        _time(bandwidth.MLP, "{:.2f}"),
        _against("best other", *figures.UNFUSED_MLP, who=bandwidth.MLP),
        _times("batch/mlp", bandwidth.MLP_BATCH, bandwidth.MLP),
    ]


def columns(suite: str, sessions: Sequence[Session] = ()) -> list[Column]:
    """The table of cells of a suite; figures are auto's speed against the column's contender.

    Of the suite `host`, microseconds of host time; of `jax`, of a stack; of `tensor-parallel`, of a
    layer. `decode` compares bandwidth with the copy of the cell's session; `activations` the time
    of each with `silu`'s.
    """

    def used(row: CellRecord) -> str:
        time = row.us("auto")
        share = flops(suite, row.cell) / (time * 1e-6) / figures.PEAK_FLOPS if time else None
        return f"{share:.1%}" if share else "-"

    cell = [
        Column("model", 6, lambda row: row.cell.model),
        Column("M", 5, lambda row: str(row.cell.m)),
    ]
    if suite == "decode":
        return [*cell, *_decode(sessions)]
    if suite == "activations":
        others = [_against(name, name, who="silu") for name in (*figures.COSTS, "float16")]
        return [*cell, _time("silu"), _kernel("silu", 31), *others]
    if suite == "jax":
        return [*cell, *_STACK]
    if suite == "tensor-parallel":
        return [*cell, *_SCALING]
    if suite == "host":
        return [*cell, *(_host_time(name) for name in figures.HOST), *_HOST_RATIOS]
    first = [
        *cell,
        _time("auto"),
        _kernel("auto", 31),
    ]
    if suite == "mlp":
        others = [
            _against("2 gemms", "two-gemms"),
            _against("fused", "fused"),
            _against("eager", "torch-eager"),
            _against("compile", "torch-compile"),
        ]
    else:
        others = [
            Column("of best", 7, _of_best),
            _against("bare", "bare"),
            _against("quack", *figures.QUACK),
            _against("eager", "torch-eager"),
            _against("compile", "torch-compile"),
            _against("jax", "jax"),
            _against("triton", "flash-swiglu-mlp"),
        ]
    return [*first, *others, Column("of peak", 7, used)]


def legend(suite: str) -> str:
    """What the figures of the table of cells are."""
    if suite == "host":
        return "microseconds of host time of a call, while the GPU is not waited for"
    if suite == "activations":
        return (
            "microseconds of SiLU in BF16 without biases, and the time of each other call over it; "
            "float16 is SiLU too"
        )
    if suite == "jax":
        return f"microseconds of {LAYERS} layers, x + mlp(x), and their ratios"
    if suite == "tensor-parallel":
        return (
            "microseconds of a layer, x + mlp(x), ours and plain JAX's; our speed against plain "
            "JAX; speed-up over one GPU; share of the sum over the GPUs"
        )
    if suite == "decode":
        return (
            "gate and up, from CUDA graphs: TB/s of their weights, its share of a copy's, speed "
            "against cuBLAS's bare product; whole MLP: speed against the best of "
            f"{', '.join(figures.UNFUSED_MLP)}; time with deterministic='batch' over without"
        )
    return "auto's time, then its speed against each contender"


def heading(suite: str) -> str:
    return _line((column.heading, column.width) for column in columns(suite))


def line(suite: str, row: CellRecord, sessions: Sequence[Session] = ()) -> str:
    """One cell of a record with these sessions."""
    return _line((column.text(row), column.width) for column in columns(suite, sessions))


def _line(parts: Iterable[tuple[str, int]]) -> str:
    return " ".join(text.rjust(width) for text, width in parts)


def session_text(session: Session) -> str:
    """What a session ran on."""
    gpu, packages = session.gpu, session.environment.get("packages", {})
    versions = ", ".join(f"{name} {version}" for name, version in packages.items())
    parts = [f"{session.started}: {gpu.get('name', 'unknown GPU')}"]
    if gpu.get("driver"):
        parts.append(f"driver {gpu['driver']}, {gpu.get('power_limit_w')} W")
    if session.copy_tbs:
        parts.append(f"copies {session.copy_tbs:.2f} TB/s, read plus written")
    return f"{', '.join(parts)}; cuswiglu {session.environment.get('cuswiglu')}, {versions}"


def _gpu_lines(record: Record) -> list[str]:
    """Clocks and power over all cells."""
    seen = [row.gpu for row in record.cells if row.gpu.get("sm_mhz") and row.gpu.get("watts")]
    if not seen:
        return ["clocks and power: not recorded"]
    clocks = [gpu["sm_mhz"] for gpu in seen]
    watts, heat = [gpu["watts"] for gpu in seen], [gpu.get("celsius") or 0 for gpu in seen]
    reasons = sorted({reason for gpu in seen for reason in gpu.get("reasons", ())})
    return [
        f"SM clock {min(c[0] for c in clocks):.0f} to {max(c[2] for c in clocks):.0f} MHz, "
        f"power up to {max(w[1] for w in watts):.0f} W, up to {max(heat):.0f} C, "
        f"clocks held by: {', '.join(reasons) or 'nothing'}"
    ]


def notes(record: Record, wanted: Sequence[Cell]) -> list[str]:
    """Sessions, clocks, warnings, who was missing, what failed, which cells are not measured."""
    lines = [session_text(session) for session in record.sessions]
    lines += _gpu_lines(record)
    if len(record.sessions) > 1:
        lines.append(f"measured in {len(record.sessions)} sessions: compare within cells only")
    if record.suite in ("paper", "quick") and any(row.us("jax") for row in record.cells):
        lines.append("jax is not captured in a CUDA graph: its times hold the host's dispatch")
    for number, session in enumerate(record.sessions, 1):
        lines += [f"warning, session {number}: {warning}" for warning in session.warnings]
        lines += [f"missing: {name}: {reason}" for name, reason in session.missing.items()]
    lines += [
        f"failed: {row.cell}, {name}: {outcome.error}"
        for row in record.cells
        for name, outcome in row.outcomes.items()
        if outcome.error
    ]
    rest = record.missing_cells(wanted)
    if rest:
        lines.append(f"not measured: {len(rest)} cells: {', '.join(map(str, rest))}")
    return list(dict.fromkeys(lines))
