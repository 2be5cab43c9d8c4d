# pyright: basic, reportMissingImports=false, reportUnknownParameterType=false, reportMissingParameterType=false
"""The Triton side of `triton_noise`: imports triton, so nothing imports this at module level.

A program makes BLOCKS Philox calls and with them 8 * BLOCKS elements. The joins put the eight elements of a
call next to each other in one thread, which makes the loads and stores wide.
"""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def _word(number):
    return number.to(tl.uint32, bitcast=True)


@triton.jit
def _indices(blocks, h0, h1, k0, k1, BLOCKS: tl.constexpr):  # noqa: N803 - Triton spells constants so
    """Table indices of the elements of Philox calls `blocks` (BLOCKS,): (8 * BLOCKS,), in element order."""
    c0 = (blocks & 0xFFFFFFFF).to(tl.uint32)
    c1 = (blocks >> 32).to(tl.uint32)
    c2 = tl.zeros_like(c0) + h0
    c3 = tl.zeros_like(c0) + h1
    m0 = tl.full((BLOCKS,), 0xD2511F53, tl.uint32)
    m1 = tl.full((BLOCKS,), 0xCD9E8D57, tl.uint32)
    k0 = tl.zeros_like(c0) + k0
    k1 = tl.zeros_like(c0) + k1
    for _ in tl.static_range(10):
        hi0 = tl.umulhi(m0, c0)
        hi1 = tl.umulhi(m1, c2)
        lo0 = m0 * c0
        c0 = hi1 ^ c1 ^ k0
        c1 = m1 * c2
        c2 = hi0 ^ c3 ^ k1
        c3 = lo0
        k0 += tl.full((BLOCKS,), 0x9E3779B9, tl.uint32)
        k1 += tl.full((BLOCKS,), 0xBB67AE85, tl.uint32)
    words = tl.join(tl.join(c0, c2), tl.join(c1, c3))  # (BLOCKS, 2, 2): word 2 i + j
    return tl.reshape(tl.join(words & 0xFFFF, words >> 16), (8 * BLOCKS,))


# A number that happens to be 1 would otherwise become a constant, and a multiple of 16 another kernel.
@triton.jit(do_not_specialize=["h0", "h1", "k0", "k1"])
def serve(
    master,
    out,
    table,
    size,
    first,
    skip,
    h0,
    h1,
    k0,
    k1,
    step,
    DTYPE: tl.constexpr,  # noqa: N803
    BLOCKS: tl.constexpr,  # noqa: N803
):
    """Stores cast(R(master + R(step·n))); DTYPE 0 float32, 1 bfloat16, 2 float16, the last two as int16 bits."""
    begin = tl.program_id(0).to(tl.int64) * BLOCKS
    blocks = first + begin + tl.arange(0, BLOCKS)
    indices = _indices(blocks, _word(h0), _word(h1), _word(k0), _word(k1), BLOCKS)
    at = begin * 8 + tl.arange(0, 8 * BLOCKS) - skip
    inside = (at >= 0) & (at < size)
    values = tl.load(master + at, mask=inside) + step * tl.load(table + indices)
    if DTYPE == 0:
        tl.store(out + at, values, mask=inside)
    else:
        if DTYPE == 1:  # on the bits, because Triton's interpreter cuts off where the device rounds
            whole = values.to(tl.uint32, bitcast=True)
            bits = tl.where(values != values, 0x7FC0, (whole + 0x7FFF + ((whole >> 16) & 1)) >> 16)
        else:
            bits = tl.where(values != values, 0x7E00, values.to(tl.float16).to(tl.int16, bitcast=True))
        tl.store(out + at, bits.to(tl.int16), mask=inside)


@triton.jit(do_not_specialize=["h0", "h1"])
def update(
    master,
    table,
    keys,
    steps,
    terms,
    size,
    first,
    skip,
    h0,
    h1,
    BLOCKS: tl.constexpr,  # noqa: N803
):
    """Stores R(master + acc), acc over all terms in registers; keys (terms, 2) int32 bits, steps (terms,)."""
    begin = tl.program_id(0).to(tl.int64) * BLOCKS
    blocks = first + begin + tl.arange(0, BLOCKS)
    at = begin * 8 + tl.arange(0, 8 * BLOCKS) - skip
    inside = (at >= 0) & (at < size)
    total = tl.zeros((8 * BLOCKS,), tl.float32)
    for t in range(terms):
        k0 = _word(tl.load(keys + 2 * t))
        k1 = _word(tl.load(keys + 2 * t + 1))
        indices = _indices(blocks, _word(h0), _word(h1), k0, k1, BLOCKS)
        total += tl.load(steps + t) * tl.load(table + indices)
    tl.store(master + at, tl.load(master + at, mask=inside) + total, mask=inside)


def compile_for_cuda(kernel, signature, constants, capability, options):
    """PTX of `kernel` with these argument types and constants, compiled without a device."""
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm["ptx"]
