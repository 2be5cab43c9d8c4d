"""Weights that are derived from an fp32 master by counter-based noise, never undone by subtraction.

`noise` is the definition in numpy; `kernels` (numba), `torch_noise` and `triton_noise` are the same bits,
faster or elsewhere. `selection` says which tensors of a checkpoint take part, `master` holds them, and
`digest` names their state. This package imports nothing of that by itself: numba alone costs half a second.
"""
