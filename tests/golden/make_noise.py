"""Writes noise.json: the noise contract `normal-v1` computed in exact rational arithmetic, without coevo.

    python tests/golden/make_noise.py > tests/golden/noise.json

Only the shipped table is read. Philox runs on Python's integers; every sum and product is a Fraction that is
rounded once to the format in question, so this shares no rounding with numpy, LLVM or torch.
"""

import hashlib
import json
import struct
from fractions import Fraction
from pathlib import Path

TABLE = Path(__file__).parents[2] / "coevo" / "weights" / "normal-v1.f32"
FORMATS = {"float32": (8, 23), "bfloat16": (8, 7), "float16": (5, 10)}  # exponent bits, mantissa bits

# Random123's kat_vectors, "philox4x32 10": counter, key, words.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]

# -0.0, 0.0, fp32 subnormals of both signs, halfway cases of bfloat16 and float16 (to even, up and down), the
# largest float16 and what rounds past it, the largest fp32, infinities, ordinary weights.
MASTER_TEXT = """
    80000000 00000000 00000001 80000001 007fffff 3f808000 3f818000 bf808000 3f801000 3f803000 477fe000 477fefff
    477ff000 c77ff000 33000000 33000001 b3800000 33c00000 38800000 387fffff 7f7fffff 7f800000 ff800000 3ca3d70a
    bca3d70a 3d23d70a 3727c5ac
"""
MASTER = MASTER_TEXT.split()


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def nearest(sign, value, name):
    """(sign, magnitude) rounded to nearest even in a format; None is infinity."""
    exponent_bits, mantissa_bits = FORMATS[name]
    bias = 2 ** (exponent_bits - 1) - 1
    if value is None or value == 0:
        return sign, value
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    exponent -= value < Fraction(2) ** exponent
    quantum = Fraction(2) ** (max(exponent, 1 - bias) - mantissa_bits)
    rounded = round(value / quantum) * quantum
    return sign, None if rounded >= Fraction(2) ** (bias + 1) else rounded


def encode(number, name):
    exponent_bits, mantissa_bits = FORMATS[name]
    (sign, value), bias = number, 2 ** (exponent_bits - 1) - 1
    if value is None:
        pattern = (2**exponent_bits - 1) << mantissa_bits
    elif value < Fraction(2) ** (1 - bias):
        pattern = int(value / Fraction(2) ** (1 - bias - mantissa_bits))
    else:
        exponent = value.numerator.bit_length() - value.denominator.bit_length()
        exponent -= value < Fraction(2) ** exponent
        pattern = int(value / Fraction(2) ** (exponent - mantissa_bits)) + ((exponent + bias - 1) << mantissa_bits)
    width = 1 + exponent_bits + mantissa_bits
    return f"{pattern | sign << (width - 1):0{width // 4}x}"


def decode32(text):
    bits = int(text, 16)
    sign, exponent, mantissa = bits >> 31, bits >> 23 & 255, bits & 0x7FFFFF
    if exponent == 255:
        return sign, None
    return sign, Fraction(mantissa + (2**23 if exponent else 0)) * Fraction(2) ** (max(exponent, 1) - 150)


def fp32(number):
    return decode32(struct.pack(">f", number).hex())


def times(a, b):
    value = None if a[1] is None or b[1] is None else a[1] * b[1]
    return nearest(a[0] ^ b[0], value, "float32")


def plus(a, b):
    if a[1] is None or b[1] is None:
        return a if a[1] is None else b
    total = (-1) ** a[0] * a[1] + (-1) ** b[0] * b[1]
    return nearest(a[0] & b[0] if total == 0 else int(total < 0), abs(total), "float32")


def product32(number, scale):
    return fp32(float(number) * float(scale))


class Noise:
    def __init__(self):
        self.table = [fp32(value) for (value,) in struct.iter_unpack("<f", TABLE.read_bytes())]

    def index(self, seed, name, i):
        h = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
        b = i // 8
        words = philox([b % 2**32, b >> 32, h % 2**32, h >> 32], [seed % 2**32, seed >> 32])
        return words[i % 8 // 2] >> 16 * (i % 2) & 0xFFFF

    def value(self, seed, name, i):
        return self.table[self.index(seed, name, i)]


def serve_cases(noise):
    choices = [  # seed, name, sigma, scale, start
        (0, "model.embed_tokens.weight", 1e-3, 1.0, 0),
        (2**64 - 1, "model.embed_tokens.weight", -1e-3, 1.0, 5),
        (0x0123456789ABCDEF, "wörter.weight", 0.37, 2.5, 8),
        (1 << 32, "a", 1e-38, 0.01, 2**35 + 3),
        (7, "lm_head.weight", 1e5, 1.0, 0),
        (7, "lm_head.weight", 0.0, 1.0, 0),
        (7, "lm_head.weight", 1e-3, 0.0, 0),
    ]
    for seed, name, sigma, scale, start in choices:
        step = product32(sigma, scale)
        results = {}
        for dtype in FORMATS:
            served = []
            for i, text in enumerate(MASTER, start):
                weight = decode32(text)
                if step[1] != 0:
                    weight = plus(weight, times(step, noise.value(seed, name, i)))
                served.append(encode(nearest(*weight, dtype), dtype))
            results[dtype] = " ".join(served)
        yield {"seed": f"{seed:016x}", "name": name, "sigma": sigma, "scale": scale, "start": start, **results}


def update_cases(noise):
    choices = [  # name, scale, start, terms
        ("model.norm.weight", 1.0, 0, [(1, 5e-4), (2, -2.5e-4), (2**63, 1e-3)]),
        ("model.norm.weight", 0.3, 13, [(9, 1e-3), (4, 7e-4), (9, -3e-4), (4, -7e-4), (6, 1e-45)]),
        ("model.norm.weight", 1.0, 0, [(3, 0.25), (3, -0.25)]),
        ("b", 1.0, 8191, [(seed, (-1) ** seed * 1e-2 / (seed + 1)) for seed in range(40)]),
    ]
    for name, scale, start, terms in choices:
        merged = {}
        for seed, coefficient in terms:
            merged[seed] = merged.get(seed, 0.0) + coefficient
        steps = [(seed, product32(c, scale)) for seed, c in merged.items() if product32(c, scale)[1] != 0]
        result = []
        for i, text in enumerate(MASTER, start):
            total = (0, Fraction(0))
            for seed, step in steps:
                total = plus(total, times(step, noise.value(seed, name, i)))
            result.append(encode(plus(decode32(text), total) if steps else decode32(text), "float32"))
        listed = [[f"{seed:016x}", coefficient] for seed, coefficient in terms]
        yield {"name": name, "scale": scale, "start": start, "terms": listed, "float32": " ".join(result)}


def main():
    noise = Noise()
    known = [dict(zip(("counter", "key", "words"), entry, strict=True)) for entry in KNOWN_ANSWERS]
    indices = {"seed": f"{2**40 + 17:016x}", "name": "w", "start": 2**35 - 4}
    indices["table_indices"] = [noise.index(2**40 + 17, "w", 2**35 - 4 + i) for i in range(24)]
    golden = {"family": "normal-v1", "philox4x32_10": known, "indices": indices, "master": " ".join(MASTER)}
    golden |= {"serve": list(serve_cases(noise)), "update": list(update_cases(noise))}
    return json.dumps(golden, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(main(), end="")
