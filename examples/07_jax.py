"""Use the gated MLP in JAX: under jit, in a scan over layers, and differentiated.

Shows: cuswiglu.jax.mlp on checkpoint matrices, lax.scan, grad.
Needs: the extra jax; for the kernels a Hopper GPU, and JAX for CUDA. Elsewhere it is plain JAX.
Run:   python examples/07_jax.py
"""

import jax
import jax.numpy as jnp

import cuswiglu.jax

TOKENS, HIDDEN, INTERMEDIATE, LAYERS = 16, 256, 704, 4


def feed_forward(x, gate_proj, up_proj, down_proj):
    """One layer, with its residual; matrices are (out, in), and their transposes are never made."""
    return x + cuswiglu.jax.mlp(x, gate_proj.T, up_proj.T, down_proj.T)


@jax.jit
def stack(x, weights):
    """All layers, of weights stacked along a leading dimension."""
    return jax.lax.scan(lambda x, layer: (feed_forward(x, *layer), None), x, weights)[0]


@jax.jit
def gradients(x, weights):
    """Gradient of the mean square of the stack's result, by the weights."""
    return jax.grad(lambda weights: (stack(x, weights).astype(jnp.float32) ** 2).mean())(weights)


def main():
    """Compute, print, check."""
    keys = iter(jax.random.split(jax.random.key(0), 4))

    def drawn(*shape):
        values = jax.random.normal(next(keys), shape) * shape[-1] ** -0.5
        return values.astype(jnp.bfloat16)

    x = drawn(TOKENS, HIDDEN)
    weights = (
        drawn(LAYERS, INTERMEDIATE, HIDDEN),
        drawn(LAYERS, INTERMEDIATE, HIDDEN),
        drawn(LAYERS, HIDDEN, INTERMEDIATE),
    )
    y = stack(x, weights)
    print(f"{LAYERS} layers on {jax.default_backend()}: y {y.shape}, {y.dtype}")
    by_gate, by_up, by_down = gradients(x, weights)
    print(f"gradients: {by_gate.shape}, {by_up.shape}, {by_down.shape}")
    assert all(bool(jnp.isfinite(one).all()) for one in (y, by_gate, by_up, by_down))


if __name__ == "__main__":
    main()
