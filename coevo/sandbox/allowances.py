"""What a vetted source may name (`coevo.sandbox.vetting`): it can compute with numbers and nothing else."""

NUMPY = (
    "abs", "absolute", "add", "all", "allclose", "amax", "amin", "any", "append", "arange", "arccos", "arccosh",
    "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition", "argsort", "argwhere",
    "around", "array", "asarray", "atleast_1d", "atleast_2d", "average", "bincount", "broadcast_to", "cbrt", "ceil",
    "clip", "column_stack", "concatenate", "convolve", "corrcoef", "cos", "cosh", "count_nonzero", "cov", "cross",
    "cumprod", "cumsum", "deg2rad", "degrees", "delete", "diag", "diagonal", "diff", "digitize", "divide", "dot",
    "ediff1d", "equal", "exp", "exp2", "expand_dims", "expm1", "eye", "fabs", "fill_diagonal", "flatnonzero",
    "flip", "floor", "floor_divide", "fmax", "fmin", "fmod", "full", "full_like", "gradient", "greater",
    "greater_equal", "heaviside", "histogram", "hstack", "hypot", "identity", "inner", "insert", "interp",
    "intersect1d", "isclose", "isfinite", "isin", "isinf", "isnan", "ix_", "less", "less_equal", "lexsort",
    "linspace", "log", "log10", "log1p", "log2", "logaddexp", "logical_and", "logical_not", "logical_or",
    "logical_xor", "logspace", "matmul", "max", "maximum", "mean", "median", "meshgrid", "min", "minimum", "mod",
    "multiply", "nan_to_num", "nanargmax", "nanargmin", "nanmax", "nanmean", "nanmin", "nanstd", "nansum", "nanvar",
    "ndim", "negative", "nonzero", "not_equal", "ones", "ones_like", "outer", "partition", "percentile", "positive",
    "power", "prod", "ptp", "quantile", "rad2deg", "radians", "ravel", "reciprocal", "remainder", "repeat",
    "reshape", "roll", "round", "searchsorted", "select", "setdiff1d", "shape", "sign", "sin", "sinc", "sinh",
    "size", "sort", "sqrt", "square", "squeeze", "stack", "std", "subtract", "sum", "swapaxes", "take", "tan",
    "tanh", "tensordot", "tile", "trace", "transpose", "trapezoid", "tri", "tril", "triu", "true_divide", "trunc",
    "union1d", "unique", "unravel_index", "var", "vdot", "vstack", "where", "zeros", "zeros_like",
)  # fmt: skip
"""Functions of numpy, where they are called."""

MATH = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "comb", "copysign", "cos", "cosh",
    "degrees", "dist", "erf", "erfc", "exp", "expm1", "fabs", "factorial", "floor", "fmod", "fsum", "gamma", "gcd",
    "hypot", "isclose", "isfinite", "isinf", "isnan", "isqrt", "lgamma", "log", "log10", "log1p", "log2", "perm",
    "pow", "prod", "radians", "remainder", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
"""Functions of math, where they are called."""

METHODS = (
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "clip", "conj", "copy", "cumprod", "cumsum",
    "diagonal", "dot", "flatten", "item", "max", "mean", "min", "nonzero", "prod", "ravel", "repeat", "reshape",
    "round", "searchsorted", "sort", "squeeze", "std", "sum", "swapaxes", "take", "tolist", "trace", "transpose",
    "var", "add", "append", "clear", "count", "difference", "discard", "extend", "get", "index", "insert",
    "intersection", "is_integer", "isdisjoint", "issubset", "issuperset", "items", "keys", "pop", "remove",
    "reverse", "setdefault", "symmetric_difference", "union", "update", "values", "bit_length",
)  # fmt: skip
"""Of arrays, lists, dictionaries and sets, where they are called; any object may have them."""

BUILTINS = (
    "abs", "all", "any", "bool", "complex", "dict", "divmod", "enumerate", "float", "frozenset", "int", "len",
    "list", "max", "min", "pow", "range", "reversed", "round", "set", "sorted", "sum", "tuple", "zip",
)  # fmt: skip
"""Functions of Python, where they are called."""

EXCEPTIONS = (
    "ArithmeticError", "AssertionError", "Exception", "FloatingPointError", "IndexError", "KeyError", "LookupError",
    "OverflowError", "RuntimeError", "TypeError", "ValueError", "ZeroDivisionError",
)  # fmt: skip
"""Where they are raised, caught or made."""

TYPES = (
    "float64", "float32", "int64", "int32", "bool_",
)  # fmt: skip
"""Of arrays, as an argument."""

CONSTANTS = (
    "e", "inf", "nan", "newaxis", "pi", "tau",
)  # fmt: skip
"""Of numpy and math."""

VALUES = (
    "T", "imag", "ndim", "real", "shape", "size",
)  # fmt: skip
"""Attributes that are read."""

KEYWORDS = (
    "axis", "keepdims", "ddof", "start", "default", "reverse", "atol", "rtol", "decimals",
    "endpoint", "num", "indices", "minlength", "k",
)  # fmt: skip
"""Arguments by name of what is not the source's own."""

ITERTOOLS = ("accumulate", "chain", "combinations", "pairwise", "permutations", "product")
"""Functions of itertools, where they are called."""

WORDS = {"kind": ("stable", "quicksort", "mergesort", "heapsort"), "side": ("left", "right")}
"""Arguments by name that may be one of these texts."""
